//! Measurements of an earlier run in the folder of `--work`: importance, and divergences of single groups.

use super::job::QuantizeJob;
use super::{QuantizeArgs, RoundingMethod, SEQUENCE_TOKENS, failed};
use crate::CliError;
use chimere_engine::quantize::Importance;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// A name that says what was measured: the source's name and size, and what the text depends on.
fn measured_name(args: &QuantizeArgs) -> String {
    let stem = args.model.file_stem().unwrap_or_default().to_string_lossy();
    let bytes = bytes_at(&args.model);
    format!("{stem}-{bytes}-{}x{SEQUENCE_TOKENS}-seed{}", args.sequences, args.seed)
}

/// Bytes of a file, or of all files of a folder.
fn bytes_at(path: &Path) -> u64 {
    let file = |path: &Path| std::fs::metadata(path).map_or(0, |m| m.len());
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| file(&entry.path())).sum(),
        Err(_) => file(path),
    }
}

/// The file that measured importance is kept in, where there is a folder for it.
pub(super) fn importance_path(args: &QuantizeArgs) -> Option<PathBuf> {
    args.work.as_ref().map(|dir| dir.join(format!("{}.importance.gguf", measured_name(args))))
}

/// The importance that an earlier run kept.
pub(super) fn kept_importance(args: &QuantizeArgs) -> Result<Option<Importance>, CliError> {
    importance_path(args).filter(|path| path.exists()).map(|path| Importance::open(&path).map_err(failed)).transpose()
}

/// Divergences that an earlier run measured, by group.
pub(super) struct KeptDivergences {
    path: Option<PathBuf>,
    groups: Map<String, Value>,
}

impl KeptDivergences {
    /// Divergences of earlier runs of this model and these options; none where there is no folder.
    pub(super) fn open(job: &QuantizeJob<'_>) -> Self {
        let importance = match (job.args.importance.as_str(), job.args.rounding()) {
            ("self", RoundingMethod::Correlated) => "-correlated",
            ("self", RoundingMethod::Nearest) => "",
            _ => "-other",
        };
        let name = format!("{}-{}{importance}.divergences.json", measured_name(job.args), job.args.tokens);
        let path = job.args.work.as_ref().map(|dir| dir.join(name));
        // What cannot be read is measured again.
        let text = path.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        let groups = text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        Self { path, groups }
    }

    /// The kept divergence and `t^2` of a group, or else the measured ones, which are kept from then on.
    pub(super) fn or_measure(
        &mut self,
        group: &str,
        measure: impl FnOnce() -> Result<(f64, f64), CliError>,
    ) -> Result<(f64, f64), CliError> {
        let number = |key: &str| self.groups.get(group)?.get(key)?.as_f64();
        if let (Some(kl), Some(t2)) = (number("kl"), number("t2")) {
            return Ok((kl, t2));
        }
        let (kl, t2) = measure()?;
        self.groups.insert(group.to_owned(), json!({"kl": kl, "t2": t2}));
        if let Some(path) = &self.path {
            let partial = path.with_added_extension("partial");
            let text = Value::Object(self.groups.clone()).to_string();
            let kept = std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, path));
            kept.map_err(|e| failed(format!("{}: {e}", path.display())))?;
        }
        Ok((kl, t2))
    }
}
