//! Adapters that are served beside the model, each under a name: those of one directory, which the operator names.

use chimere_engine::adapter::Adapter;
use chimere_engine::format::LoadError;
use chimere_engine::model::{self, Model};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a name.
const NAME_BYTES_MAX: usize = 64;
/// Adapters that may be loaded at a time.
const ADAPTERS_MAX: usize = 256;
/// What the name of a GGUF file ends with.
const GGUF: &str = ".gguf";

/// The adapters that are loaded. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Adapters(Option<Arc<AdapterDirectory>>);

#[derive(Debug)]
struct AdapterDirectory {
    directory: PathBuf,
    /// The file that the model was read from.
    model: PathBuf,
    loaded: RwLock<BTreeMap<String, Arc<Adapter>>>,
}

/// Why an adapter is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// No directory is named in the configuration.
    #[error("there is no directory for adapters: set adapters.directory")]
    NoDirectory,
    /// A name that no adapter can have.
    #[error(
        "an adapter's name begins with a letter or a digit and has at most {NAME_BYTES_MAX} of them, `.`, `-` and `_`, got {0:?}"
    )]
    BadName(String),
    /// There is no such file.
    #[error("the directory of adapters has no {0:?}")]
    NoFile(String),
    /// None of this name is loaded.
    #[error("no adapter {0:?} is loaded")]
    NotLoaded(String),
    /// One of this name is loaded.
    #[error("an adapter {0:?} is loaded already")]
    Loaded(String),
    /// There are as many as there may be.
    #[error("{ADAPTERS_MAX} adapters are loaded, and no more may be")]
    TooMany,
    /// The file cannot be read, or does not fit the model.
    #[error("{0}")]
    Refused(String),
}

impl Adapters {
    /// All adapters of a directory, for a model and the file that it was read from. The name of a directory in PEFT's
    /// layout is its adapter's, and so is that of a GGUF file without its ending. Hidden files are left out.
    ///
    /// # Errors
    /// If the directory cannot be read, or one of its adapters is refused.
    pub fn open(directory: &Path, (model, file): (&Model, &Path)) -> Result<Self, AdapterError> {
        let unreadable = |error: std::io::Error| AdapterError::Refused(format!("{}: {error}", directory.display()));
        let shared = AdapterDirectory { directory: directory.into(), model: file.into(), loaded: RwLock::default() };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_one = entry.path().join("adapter_config.json").exists() || name.ends_with(GGUF);
            if is_one && !name.starts_with('.') {
                files.push(name);
            }
        }
        files.sort_unstable();
        for file in files {
            let name = checked(file.strip_suffix(GGUF).unwrap_or(&file))?;
            shared.keep(model::read_adapter(&directory.join(&file), name, model).map_err(refused)?)?;
        }
        Ok(Self(Some(Arc::new(shared))))
    }

    /// The adapter of a name.
    pub fn find(&self, name: &str) -> Option<Arc<Adapter>> {
        self.0.as_ref()?.loaded.read().get(name).cloned()
    }

    /// The names of all that are loaded.
    pub fn names(&self) -> Vec<String> {
        self.0.as_ref().map_or_else(Vec::new, |shared| shared.loaded.read().keys().cloned().collect())
    }

    /// Loads a file of the directory under a name: the one that has the name, unless another is said. Reads the disk.
    pub fn load(&self, name: &str, file: Option<&str>) -> Result<(), AdapterError> {
        let shared = self.0.as_ref().ok_or(AdapterError::NoDirectory)?;
        let name = checked(name)?;
        may_load(&shared.loaded.read(), name)?;
        let path = shared.path_of(file.unwrap_or(name))?;
        let model = model::load(&shared.model).map_err(refused)?;
        shared.keep(model::read_adapter(&path, name, &model).map_err(refused)?)
    }

    /// Forgets an adapter. Requests that have it keep it.
    pub fn unload(&self, name: &str) -> Result<(), AdapterError> {
        let shared = self.0.as_ref().ok_or(AdapterError::NoDirectory)?;
        let gone = shared.loaded.write().remove(name);
        gone.map(drop).ok_or_else(|| AdapterError::NotLoaded(name.to_owned()))
    }
}

impl AdapterDirectory {
    fn keep(&self, adapter: Adapter) -> Result<(), AdapterError> {
        let mut loaded = self.loaded.write();
        may_load(&loaded, &adapter.name)?;
        let (matrices, rank, bytes) = (adapter.matrices(), adapter.rank_max(), adapter.bytes());
        tracing::info!(adapter = adapter.name, matrices, rank, bytes, "loaded");
        loaded.insert(adapter.name.clone(), Arc::new(adapter));
        Ok(())
    }

    /// The file or directory of a name, which lies in the directory itself.
    fn path_of(&self, file: &str) -> Result<PathBuf, AdapterError> {
        // A path that names the directory too, as other programs write it.
        let name = Path::new(file).strip_prefix(&self.directory).ok().and_then(Path::to_str).unwrap_or(file);
        let name = checked(name.trim_end_matches('/'))?;
        let both = [self.directory.join(name), self.directory.join(format!("{name}{GGUF}"))];
        both.into_iter().find(|path| path.exists()).ok_or_else(|| AdapterError::NoFile(name.to_owned()))
    }
}

fn refused(error: LoadError) -> AdapterError {
    AdapterError::Refused(error.to_string())
}

fn may_load(loaded: &BTreeMap<String, Arc<Adapter>>, name: &str) -> Result<(), AdapterError> {
    if loaded.contains_key(name) {
        return Err(AdapterError::Loaded(name.to_owned()));
    }
    if loaded.len() >= ADAPTERS_MAX { Err(AdapterError::TooMany) } else { Ok(()) }
}

fn checked(name: &str) -> Result<&str, AdapterError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let fine = name.len() <= NAME_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(plain);
    if fine { Ok(name) } else { Err(AdapterError::BadName(name.chars().take(NAME_BYTES_MAX).collect())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden")
    }

    fn open(dir: &Path, preset: &str) -> Result<Adapters, AdapterError> {
        let file = golden().join(preset).join("model.gguf");
        Adapters::open(dir, (&model::load(&file).unwrap(), &file))
    }

    /// A directory with an adapter of the preset `moe`, and the model.
    fn opened(name: &str) -> (tempfile::TempDir, Result<Adapters, AdapterError>) {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(golden().join("adapters/moe"), dir.path().join(name)).unwrap();
        let adapters = open(dir.path(), "moe");
        (dir, adapters)
    }

    #[test]
    fn adapters_of_the_directory_come_and_go_by_name() {
        let (dir, adapters) = opened("poet");
        let adapters = adapters.unwrap();
        assert_eq!(adapters.names(), ["poet"]);
        let first = adapters.find("poet").unwrap();
        assert!(matches!(adapters.load("poet", None), Err(AdapterError::Loaded(_))));
        adapters.load("again", Some(dir.path().join("poet").to_str().unwrap())).unwrap();
        assert_ne!(adapters.find("again").unwrap(), first, "read again, it has a number of its own");
        adapters.unload("poet").unwrap();
        assert!(matches!(adapters.unload("poet"), Err(AdapterError::NotLoaded(_))));
        assert_eq!((adapters.names(), adapters.find("poet")), (vec!["again".to_owned()], None));
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
        let other = open(dir.path(), "qwen3");
        assert!(matches!(other, Err(AdapterError::Refused(why)) if why.contains("in_proj")));
        assert!(opened(".hidden").1.unwrap().names().is_empty());
        assert!(matches!(opened("a poet").1, Err(AdapterError::BadName(_))));
    }
}
