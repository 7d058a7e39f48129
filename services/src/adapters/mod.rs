//! Adapters that are served beside the model, each under a name: those of one directory, which the operator names.

mod access;
mod directory;
mod error;

pub use directory::{AdapterDirectory, AdapterSettings, LoadedAdapter, ReadAdapter};
pub use error::AdapterError;

use crate::engram::Asker;
use chimere_engine::adapter::{Adapter, ScaledAdapter};
use std::sync::Arc;

/// The adapters that are loaded. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Adapters {
    directory: Option<Arc<AdapterDirectory>>,
    /// The caller that they are shown to; without one all are shown.
    asker: Option<Asker>,
}

impl Adapters {
    /// Loads all adapters of a directory. The name of a directory in PEFT's layout is its adapter's, and so is that of
    /// a GGUF file without its ending. Hidden files are left out.
    ///
    /// # Errors
    /// If the directory cannot be read, or one of its adapters is refused.
    pub fn load_all(directory: AdapterDirectory) -> Result<Self, AdapterError> {
        let files = directory.files()?;
        let all = Self { directory: Some(Arc::new(directory)), asker: None };
        for file in files {
            all.load(file.strip_suffix(directory::GGUF).unwrap_or(&file), Some(&file))?;
        }
        Ok(all)
    }

    /// Those that a caller may use; `None` if that is all of them.
    pub fn seen_by(&self, asker: Asker) -> Option<Self> {
        let directory = self.directory.as_ref()?;
        let restricted = !directory.access.now().is_open();
        restricted.then(|| Self { directory: Some(directory.clone()), asker: Some(asker) })
    }

    /// All that are loaded and shown, in the order in which they were loaded.
    pub fn loaded(&self) -> Vec<LoadedAdapter> {
        let Some(directory) = &self.directory else { return Vec::new() };
        let mut all: Vec<_> =
            directory.loaded.read().values().filter(|one| self.shows(&one.adapter)).cloned().collect();
        all.sort_unstable_by_key(|one| one.id);
        all
    }

    /// The adapter of a name.
    pub fn find(&self, name: &str) -> Option<Arc<Adapter>> {
        let found = self.directory.as_ref()?.loaded.read().get(name).map(|one| one.adapter.clone());
        found.filter(|adapter| self.shows(adapter))
    }

    /// The adapter that requests in llama.cpp's words have which name none.
    pub fn applied(&self) -> Option<ScaledAdapter> {
        let applied = self.directory.as_ref()?.applied.lock().clone();
        applied.filter(|scaled| self.shows(&scaled.adapter))
    }

    /// Says which adapter these are to have.
    pub fn apply(&self, chosen: Option<ScaledAdapter>) {
        if let Some(directory) = &self.directory {
            *directory.applied.lock() = chosen;
        }
    }

    /// The names of all that are shown.
    pub fn names(&self) -> Vec<String> {
        let Some(directory) = &self.directory else { return Vec::new() };
        let loaded = directory.loaded.read();
        loaded.values().filter(|one| self.shows(&one.adapter)).map(|one| one.adapter.name.clone()).collect()
    }

    fn shows(&self, adapter: &Adapter) -> bool {
        let (Some(directory), Some(asker)) = (&self.directory, &self.asker) else { return true };
        directory.access.now().allows(asker, &adapter.name)
    }

    /// Reads a file of the directory under a name, which it takes: the file that has the name, unless another is said.
    pub fn read(&self, name: &str, file: Option<&str>) -> Result<ReadAdapter, AdapterError> {
        self.directory.as_ref().ok_or(AdapterError::NoDirectory)?.read(name, file)
    }

    /// Nats that an adapter may change what the model says by.
    pub fn kl_max(&self) -> f64 {
        self.directory.as_ref().map_or(0.0, |directory| directory.settings.kl_max)
    }

    /// Serves what was read.
    pub fn keep(&self, read: ReadAdapter) -> Result<(), AdapterError> {
        self.directory.as_ref().ok_or(AdapterError::NoDirectory)?.keep(read)
    }

    /// Reads a file and serves it.
    pub fn load(&self, name: &str, file: Option<&str>) -> Result<(), AdapterError> {
        self.keep(self.read(name, file)?)
    }

    /// Forgets an adapter. Requests that have it keep it.
    pub fn unload(&self, name: &str) -> Result<(), AdapterError> {
        self.directory.as_ref().ok_or(AdapterError::NoDirectory)?.unload(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{NameOwner, ServedNames};
    use chimere_engine::model::{self, AdapterTargets};
    use std::path::{Path, PathBuf};

    fn golden() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden")
    }

    fn open(dir: &Path, preset: &str, settings: AdapterSettings) -> Result<Adapters, AdapterError> {
        let targets = AdapterTargets::of(&model::load(&golden().join(preset).join("model.gguf")).unwrap());
        AdapterDirectory::open(dir, targets, ServedNames::of_model(["tiny"].into_iter()), settings)
            .and_then(Adapters::load_all)
    }

    /// A directory with an adapter of the preset `moe`, and the model.
    fn opened(name: &str) -> (tempfile::TempDir, Result<Adapters, AdapterError>) {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(golden().join("adapters/moe"), dir.path().join(name)).unwrap();
        let adapters = open(dir.path(), "moe", AdapterSettings::default());
        (dir, adapters)
    }

    #[test]
    fn adapters_of_the_directory_come_and_go_by_name() {
        let (dir, adapters) = opened("poet");
        let adapters = adapters.unwrap();
        assert_eq!(adapters.names(), ["poet"]);
        let first = adapters.find("poet").unwrap();
        for (name, owner) in [("poet", NameOwner::Adapter), ("POET", NameOwner::Adapter), ("Tiny", NameOwner::Model)] {
            let refused = adapters.load(name, Some("poet"));
            assert!(matches!(refused, Err(AdapterError::Taken(_, other)) if other == owner), "{name}");
        }
        adapters.load("again", Some(dir.path().join("poet").to_str().unwrap())).unwrap();
        assert_ne!(adapters.find("again").unwrap(), first, "read again, it has a number of its own");
        adapters.unload("poet").unwrap();
        assert!(matches!(adapters.unload("poet"), Err(AdapterError::NotLoaded(_))));
        assert_eq!((adapters.names(), adapters.find("poet")), (vec!["again".to_owned()], None));
        drop(adapters.read("poet", None).unwrap());
        adapters.load("poet", None).unwrap();
        let ids: Vec<_> = adapters.loaded().into_iter().map(|one| (one.id, one.adapter.name.clone())).collect();
        assert_eq!(ids, [(1, "again".to_owned()), (2, "poet".to_owned())]);
    }

    #[test]
    fn names_that_lead_elsewhere_and_files_that_do_not_fit_are_refused() {
        let (dir, adapters) = opened("poet");
        let adapters = adapters.unwrap();
        for bad in ["", "..", "../poet", "a/b", ".poet", "/etc", "a b", &"x".repeat(65)] {
            assert!(matches!(adapters.load("other", Some(bad)), Err(AdapterError::BadName(_))), "{bad:?}");
            assert!(matches!(adapters.load(bad, Some("poet")), Err(AdapterError::BadName(_))), "{bad:?}");
        }
        assert!(matches!(adapters.load("nobody", None), Err(AdapterError::NoFile(_))));
        assert!(matches!(Adapters::default().load("poet", None), Err(AdapterError::NoDirectory)));
        let other = open(dir.path(), "qwen3", AdapterSettings::default());
        assert!(matches!(other, Err(AdapterError::Refused(why)) if why.contains("in_proj")));
        assert!(opened(".hidden").1.unwrap().names().is_empty());
        assert!(matches!(opened("a poet").1, Err(AdapterError::BadName(_))));
        assert!(matches!(opened("tiny").1, Err(AdapterError::Taken(_, NameOwner::Model))));
    }

    #[test]
    fn ranks_and_bytes_beyond_the_bounds_are_refused_by_the_figure() {
        let (dir, adapters) = opened("poet");
        let bytes = adapters.unwrap().find("poet").unwrap().bytes();
        let small = AdapterSettings { rank_max: 4, ..AdapterSettings::default() };
        let refused = open(dir.path(), "moe", small).unwrap_err().to_string();
        assert!(refused.contains("a rank from 1 to 4") && refused.contains("got 6"), "{refused}");
        let one = open(dir.path(), "moe", AdapterSettings { host_bytes_max: bytes, ..small_enough() }).unwrap();
        let refused = one.load("again", Some("poet")).unwrap_err().to_string();
        let want = format!("\"again\" takes {bytes} bytes of memory beside the {bytes} of the adapters");
        assert!(refused.contains(&want) && refused.contains(&format!("at most {bytes} together")), "{refused}");
        one.unload("poet").unwrap();
        one.load("again", Some("poet")).unwrap();
    }

    fn small_enough() -> AdapterSettings {
        AdapterSettings { rank_max: 6, ..AdapterSettings::default() }
    }
}
