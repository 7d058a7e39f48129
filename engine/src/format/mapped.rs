//! A model's file while it is loaded: mapped, so that every core reads its own part, and looked after, so that whoever
//! cuts or overwrites the file meanwhile makes the load fail and not the process. Nothing is served from a map:
//! backends copy what they keep.

use super::fault::FaultWatch;
use super::{LoadError, Problem};
use crate::files::{Stamp, open_regular};
use memmap2::{Mmap, MmapMut};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The bytes of a file, or of what a test says is one.
#[derive(Debug)]
pub(in crate::format) struct MappedFile {
    /// Ends before the map does: its addresses may be somebody else's after that.
    origin: Option<MappingSource>,
    map: Mmap,
    len: usize,
}

#[derive(Debug)]
struct MappingSource {
    path: PathBuf,
    file: File,
    stamp: Stamp,
    watch: FaultWatch,
}

impl MappedFile {
    /// Maps a whole regular file for reading, of whatever format.
    pub(super) fn open(path: &Path) -> Result<Arc<Self>, LoadError> {
        let open = || -> Result<Self, Problem> {
            let file = open_regular(path)?;
            let stamp = Stamp::of(&file)?;
            // SAFETY: the map is read-only and private to this process. The file may be changed by others: bytes are
            // read as bytes, what was checked is checked again where it is used, `watch` survives that pages go away,
            // and `check` tells before anything is served.
            let map = unsafe { Mmap::map(&file) }?;
            let watch = FaultWatch::over(&map)?;
            let len = map.len();
            Ok(Self { origin: Some(MappingSource { path: path.to_owned(), file, stamp, watch }), map, len })
        };
        open().map(Arc::new).map_err(|e| e.in_file(path))
    }

    /// Bytes that are already in memory, at an address such as that of a map.
    pub(super) fn of_bytes(bytes: &[u8]) -> std::io::Result<Arc<Self>> {
        let mut map = MmapMut::map_anon(bytes.len().max(1))?;
        map[..bytes.len()].copy_from_slice(bytes);
        Ok(Arc::new(Self { origin: None, map: map.make_read_only()?, len: bytes.len() }))
    }

    /// An error if the file is not, or was not all the time, what it was when it was opened.
    fn check(&self) -> Result<(), LoadError> {
        let Some(MappingSource { path, file, stamp, watch }) = &self.origin else { return Ok(()) };
        let now = Stamp::of(file).map_err(|e| Problem::from(e).in_file(path))?;
        if now != *stamp || watch.met_a_missing_page() {
            return Err(Problem::Changed.in_file(path));
        }
        Ok(())
    }
}

impl std::ops::Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map[..self.len]
    }
}

/// The files that a model is loaded from. What was read of them counts once they were checked after it was read.
#[derive(Clone, Debug, Default)]
pub struct Files(Vec<Arc<MappedFile>>);

impl Files {
    /// An error that names the first file that was changed since it was opened.
    pub fn check(&self) -> Result<(), LoadError> {
        self.0.iter().try_for_each(|file| file.check())
    }

    pub(super) fn push(&mut self, file: Arc<MappedFile>) {
        self.0.push(file);
    }

    pub(super) fn extend(&mut self, files: Files) {
        self.0.extend(files.0);
    }
}
