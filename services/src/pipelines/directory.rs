//! The directory of pipelines: read at the start and looked at again and again; a file with a mistake changes nothing.

use super::error::PipelineError;
use super::pipeline::NamedPipeline;
use crate::limits::{PIPELINE_FILE_BYTES_MAX, PIPELINES_MAX};
use crate::metrics;
use crate::names::{NameOwner, ServedNames, is_served_name};
use chimere_engine::files::{Stamp, read_regular_text};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What a pipeline's file ends with.
const ENDING: &str = "toml";

/// The pipelines that are served; none without a directory. Clones are the same ones.
#[derive(Clone, Debug, Default)]
pub struct Pipelines(Option<Arc<Directory>>);

/// A file of the directory: what it holds, and what is wrong with it now.
#[derive(Clone, Debug)]
pub struct PipelineEntry {
    /// The file's name without the ending.
    pub name: String,
    /// The pipeline that is served: the file's, or the last one before a mistake.
    pub pipeline: Option<Arc<NamedPipeline>>,
    /// The mistake, if the file has one.
    pub error: Option<String>,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    /// Between two looks; zero for never.
    period: Duration,
    /// Names of all that answers.
    names: ServedNames,
    /// Choices that a request may have.
    choices_max: u32,
    files: Mutex<BTreeMap<String, PipelineFile>>,
}

#[derive(Debug)]
struct PipelineFile {
    /// What the file was when it was last read, well or not: a mistake is told once.
    seen: Option<Stamp>,
    entry: PipelineEntry,
}

impl Pipelines {
    /// Those of a directory, beside all that has these names, with at most so many choices a request.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn open(path: &Path, period: Duration, names: ServedNames, choices_max: u32) -> Result<Self, String> {
        std::fs::read_dir(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let files = Mutex::default();
        let directory = Directory { path: path.to_owned(), period, names, choices_max, files };
        directory.look();
        Ok(Self(Some(Arc::new(directory))))
    }

    /// The pipeline of a name, in capitals or not.
    pub fn find(&self, name: &str) -> Option<Arc<NamedPipeline>> {
        let files = self.0.as_ref()?.files.lock();
        let mut all = files.values().filter_map(|file| file.entry.pipeline.clone());
        all.find(|pipeline| pipeline.name.eq_ignore_ascii_case(name))
    }

    /// All files, in the order of their names.
    pub fn entries(&self) -> Vec<PipelineEntry> {
        self.0.as_ref().map_or_else(Vec::new, |all| all.files.lock().values().map(|file| file.entry.clone()).collect())
    }

    /// Names of those that are served.
    pub fn names(&self) -> Vec<String> {
        self.entries().into_iter().filter(|entry| entry.pipeline.is_some()).map(|entry| entry.name).collect()
    }

    /// Tells the metrics what there is. For a start: files may be read before there is anybody to tell.
    pub fn export(&self) {
        export(self.entries().iter());
    }

    /// Looks at the directory again and again, as long as somebody polls this.
    pub async fn keep(self) {
        let Some(directory) = self.0.filter(|directory| !directory.period.is_zero()) else { return };
        loop {
            tokio::time::sleep(directory.period).await;
            directory.look();
        }
    }
}

impl Directory {
    /// Reads what is new or other, and lets go of what is gone.
    fn look(&self) {
        let found = match files_of(&self.path) {
            Ok(found) => found,
            Err(error) => return tracing::error!(error, "the pipelines stay as they were"),
        };
        let mut files = self.files.lock();
        files.retain(|name, file| {
            let stays = found.iter().any(|(other, _)| other == name);
            if !stays && file.entry.pipeline.is_some() {
                self.names.release(name);
            }
            stays
        });
        for (name, path) in found {
            let now = Stamp::at(&path);
            let known = files.get(&name);
            if known.is_some_and(|file| file.seen == now) {
                continue;
            }
            let before = known.and_then(|file| file.entry.pipeline.clone());
            let read = self.read(&name, &path, &files);
            files.insert(name.clone(), PipelineFile { seen: now, entry: entry_of(name, read, before) });
        }
        export(files.values().map(|file| &file.entry));
    }

    fn read(
        &self,
        name: &str,
        path: &Path,
        known: &BTreeMap<String, PipelineFile>,
    ) -> Result<NamedPipeline, PipelineError> {
        let wrong = |message: String| PipelineError { file: format!("{name}.{ENDING}"), message };
        let same = |other: &&String| **other != *name && other.eq_ignore_ascii_case(name);
        if let Some(other) = known.keys().find(same) {
            return Err(wrong(format!("{other}.{ENDING} has the same name but for capitals")));
        }
        if known.len() >= PIPELINES_MAX && !known.contains_key(name) {
            return Err(wrong(format!("a directory has at most {PIPELINES_MAX} pipelines")));
        }
        let pipeline = read_file(name, path)?;
        let (wanted, max) = (pipeline.choices(), self.choices_max);
        if wanted > max {
            return Err(wrong(format!("best_of.n is {wanted}, and this service runs at most {max} choices at once")));
        }
        // Whoever is served already has its name.
        if known.get(name).is_none_or(|file| file.entry.pipeline.is_none()) {
            let taken = |owner: NameOwner| wrong(format!("{owner} has this name, choose another one"));
            self.names.claim(name, NameOwner::Pipeline).map_err(taken)?;
        }
        Ok(pipeline)
    }
}

fn entry_of(
    name: String,
    read: Result<NamedPipeline, PipelineError>,
    before: Option<Arc<NamedPipeline>>,
) -> PipelineEntry {
    match read {
        Ok(pipeline) => {
            tracing::info!(pipeline = name, steps = pipeline.steps.len(), "a pipeline was read");
            PipelineEntry { name, pipeline: Some(Arc::new(pipeline)), error: None }
        }
        Err(error) => {
            let error = error.to_string();
            tracing::error!(error, kept = before.is_some(), "a pipeline's file was not taken");
            PipelineEntry { name, pipeline: before, error: Some(error) }
        }
    }
}

fn export<'a>(entries: impl Iterator<Item = &'a PipelineEntry>) {
    let (mut served, mut refused) = (0, 0);
    for entry in entries {
        served += u32::from(entry.pipeline.is_some());
        refused += u32::from(entry.error.is_some());
    }
    ::metrics::gauge!(metrics::PIPELINES, "state" => "served").set(f64::from(served));
    ::metrics::gauge!(metrics::PIPELINES, "state" => "refused").set(f64::from(refused));
}

/// What a directory's files say, in the order of their names, without serving them.
///
/// # Errors
/// If the directory cannot be read.
pub fn read_directory(path: &Path) -> Result<Vec<Result<NamedPipeline, PipelineError>>, String> {
    Ok(files_of(path)?.into_iter().map(|(name, path)| read_file(&name, &path)).collect())
}

fn read_file(name: &str, path: &Path) -> Result<NamedPipeline, PipelineError> {
    let wrong = |message: String| PipelineError { file: format!("{name}.{ENDING}"), message };
    if !is_served_name(name) {
        let wanted = "a pipeline's name has 1 to 64 of A to Z, a to z, 0 to 9, _, . and -, the first no point";
        return Err(wrong(format!("{wanted}, got {:?}", name.chars().take(64).collect::<String>())));
    }
    let text = read_regular_text(path, PIPELINE_FILE_BYTES_MAX).map_err(|e| wrong(e.to_string()))?;
    NamedPipeline::parse(name, &text)
}

fn files_of(path: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let wrong = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut found = Vec::new();
    for file in std::fs::read_dir(path).map_err(wrong)? {
        let path = file.map_err(wrong)?.path();
        if path.extension().is_some_and(|ending| ending == ENDING)
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
        {
            found.push((name.to_owned(), path.clone()));
        }
    }
    found.sort();
    Ok(found)
}
