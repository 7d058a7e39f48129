//! The directory of adapters, and those of its files that are loaded.

use super::access::AdapterAccess;
use super::error::AdapterError;
use crate::holder::access::AccessFile;
use crate::limits::{ADAPTER_HOST_MIB, ADAPTER_KL_MAX, ADAPTER_RANK_MAX, ADAPTERS_MAX, SERVED_NAME_BYTES_MAX};
use crate::names::{NameOwner, ServedNames, is_served_name};
use chimere_engine::adapter::{Adapter, ScaledAdapter};
use chimere_engine::model::{self, AdapterTargets};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the name of a GGUF file ends with.
pub(super) const GGUF: &str = ".gguf";

/// Bounds of what is loaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdapterSettings {
    /// The largest rank that is accepted.
    pub rank_max: usize,
    /// Bytes of all adapters in the host's memory.
    pub host_bytes_max: u64,
    /// Nats that an adapter may change what the model says by, on average over the prompts of its probe.
    pub kl_max: f64,
}

impl Default for AdapterSettings {
    fn default() -> Self {
        Self { rank_max: ADAPTER_RANK_MAX, host_bytes_max: ADAPTER_HOST_MIB << 20, kl_max: ADAPTER_KL_MAX }
    }
}

/// The directory that holds the adapters of a service, with those that are loaded.
#[derive(Debug)]
pub struct AdapterDirectory {
    path: PathBuf,
    targets: AdapterTargets,
    names: ServedNames,
    pub(super) settings: AdapterSettings,
    pub(super) access: AccessFile<AdapterAccess>,
    pub(super) loaded: RwLock<BTreeMap<String, LoadedAdapter>>,
    /// What requests in llama.cpp's words have that name none.
    pub(super) applied: Mutex<Option<ScaledAdapter>>,
    /// The number of the next one.
    next_id: Mutex<u32>,
}

/// An adapter that is served.
#[derive(Clone, Debug)]
pub struct LoadedAdapter {
    /// The adapter that is served.
    pub adapter: Arc<Adapter>,
    /// Its place among all that this process has loaded, from 0 on: what llama.cpp's clients know it by.
    pub id: u32,
    /// The file or directory that it was read from.
    pub path: PathBuf,
}

/// An adapter that was read and is not served yet. Its name is free again when this is dropped.
#[derive(Debug)]
pub struct ReadAdapter {
    /// The adapter that was read.
    pub adapter: Arc<Adapter>,
    path: PathBuf,
    claim: NameClaim,
}

/// A name that is taken for an adapter that may not be served in the end.
#[derive(Debug)]
struct NameClaim {
    name: String,
    names: ServedNames,
    kept: bool,
}

impl Drop for NameClaim {
    fn drop(&mut self) {
        if !self.kept {
            self.names.release(&self.name);
        }
    }
}

impl AdapterDirectory {
    /// The directory at `path`, of adapters for the matrices of a model.
    ///
    /// # Errors
    /// If its file of those who may use them cannot be read.
    pub fn open(
        path: &Path,
        targets: AdapterTargets,
        names: ServedNames,
        settings: AdapterSettings,
    ) -> Result<Self, AdapterError> {
        let access = AccessFile::open(path, AdapterAccess::parse).map_err(AdapterError::Refused)?;
        let (loaded, applied, next_id) = (RwLock::default(), Mutex::default(), Mutex::default());
        let targets = targets.with_rank_max(settings.rank_max);
        Ok(Self { path: path.into(), targets, names, settings, access, loaded, applied, next_id })
    }

    /// Names of the files and directories that are adapters.
    pub(super) fn files(&self) -> Result<Vec<String>, AdapterError> {
        let path = &self.path;
        let unreadable = |error: std::io::Error| AdapterError::Refused(format!("{}: {error}", path.display()));
        let mut files = Vec::new();
        for entry in std::fs::read_dir(path).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_one = entry.path().join("adapter_config.json").exists() || name.ends_with(GGUF);
            if is_one && !name.starts_with('.') {
                files.push(name);
            }
        }
        files.sort_unstable();
        Ok(files)
    }

    pub(super) fn read(&self, name: &str, file: Option<&str>) -> Result<ReadAdapter, AdapterError> {
        let name = checked(name)?.to_owned();
        let path = self.path_of(file.unwrap_or(&name))?;
        if self.loaded.read().len() >= ADAPTERS_MAX {
            return Err(AdapterError::TooMany);
        }
        self.names.claim(&name, NameOwner::Adapter).map_err(|owner| AdapterError::Taken(name.clone(), owner))?;
        let claim = NameClaim { name, names: self.names.clone(), kept: false };
        let read = model::read_adapter(&path, &claim.name, &self.targets);
        let adapter = Arc::new(read.map_err(|error| AdapterError::Refused(error.to_string()))?);
        self.check_room(&adapter, &self.loaded.read())?;
        Ok(ReadAdapter { adapter, path, claim })
    }

    pub(super) fn keep(&self, read: ReadAdapter) -> Result<(), AdapterError> {
        let ReadAdapter { adapter, path, mut claim } = read;
        let mut loaded = self.loaded.write();
        if loaded.len() >= ADAPTERS_MAX {
            return Err(AdapterError::TooMany);
        }
        self.check_room(&adapter, &loaded)?;
        let (matrices, rank, bytes) = (adapter.matrices(), adapter.rank_max(), adapter.bytes());
        tracing::info!(adapter = adapter.name, matrices, rank, bytes, "loaded");
        let mut next_id = self.next_id.lock();
        loaded.insert(claim.name.clone(), LoadedAdapter { adapter, id: *next_id, path });
        *next_id += 1;
        claim.kept = true;
        Ok(())
    }

    pub(super) fn unload(&self, name: &str) -> Result<(), AdapterError> {
        let gone = self.loaded.write().remove(name);
        gone.ok_or_else(|| AdapterError::NotLoaded(name.chars().take(SERVED_NAME_BYTES_MAX).collect()))?;
        self.names.release(name);
        self.applied.lock().take_if(|scaled| scaled.adapter.name == name);
        Ok(())
    }

    fn check_room(&self, adapter: &Adapter, loaded: &BTreeMap<String, LoadedAdapter>) -> Result<(), AdapterError> {
        let (bytes, max) = (adapter.bytes(), self.settings.host_bytes_max);
        let used = loaded.values().map(|one| one.adapter.bytes()).sum::<u64>();
        if used.saturating_add(bytes) <= max {
            return Ok(());
        }
        Err(AdapterError::NoRoom { name: adapter.name.clone(), bytes, used, max })
    }

    /// The file or directory of a name, which lies in the directory itself.
    fn path_of(&self, file: &str) -> Result<PathBuf, AdapterError> {
        // A path that names the directory too, as other programs write it.
        let name = Path::new(file).strip_prefix(&self.path).ok().and_then(Path::to_str).unwrap_or(file);
        let name = name.trim_end_matches('/');
        checked(name.strip_suffix(GGUF).unwrap_or(name))?;
        let both = [self.path.join(name), self.path.join(format!("{name}{GGUF}"))];
        both.into_iter().find(|path| path.exists()).ok_or_else(|| AdapterError::NoFile(name.to_owned()))
    }
}

fn checked(name: &str) -> Result<&str, AdapterError> {
    if is_served_name(name) {
        return Ok(name);
    }
    Err(AdapterError::BadName(name.chars().take(SERVED_NAME_BYTES_MAX).collect()))
}
