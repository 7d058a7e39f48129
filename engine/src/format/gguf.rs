//! GGUF v3 files by mmap, split ones too: metadata and tensors by name. What keys and tensors mean is [`crate::model`]'s business.

mod meta;
mod parse;
mod split;
mod types;
mod write;

pub use meta::Metadata;
pub(crate) use split::set_name;
pub use write::{GgufHeader, MetaValue};

use super::{LoadError, Problem, Tensor};
use memmap2::{Mmap, MmapMut};
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open GGUF file, or a whole set of split ones.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    meta: Metadata,
    tensors: HashMap<String, Tensor>,
}

impl Gguf {
    /// Opens a file. If it is one part of a split set (`-00002-of-00003.gguf`), the whole set beside it is opened.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        match split::parts(path)? {
            None => {
                let one = Self::open_one(path)?;
                split::check_whole(&one).map_err(|e| e.in_file(path))?;
                Ok(one)
            }
            Some(parts) => split::join(parts.iter().map(|p| Self::open_one(p)).collect::<Result<_, _>>()?),
        }
    }

    /// A file that is already in memory, for tests and fuzzing. `path` is only for messages.
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self, LoadError> {
        let copy = || {
            let mut map = MmapMut::map_anon(bytes.len().max(1))?;
            map[..bytes.len()].copy_from_slice(bytes);
            map.make_read_only()
        };
        let map = copy().map_err(|e| Problem::from(e).in_file(path))?;
        Self::from_map(Arc::new(map), bytes.len(), path)
    }

    /// The file that was opened (the first part of a split set).
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Key-value pairs (of the first part).
    pub fn meta(&self) -> &Metadata {
        &self.meta
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// All tensors, in no particular order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &Tensor> {
        self.tensors.values()
    }

    fn open_one(path: &Path) -> Result<Self, LoadError> {
        let map = map_file(path)?;
        let len = map.len();
        Self::from_map(map, len, path)
    }

    fn from_map(map: Arc<Mmap>, len: usize, path: &Path) -> Result<Self, LoadError> {
        let header = parse::header(&map[..len]).map_err(|e| e.in_file(path))?;
        let tensors = header
            .tensors
            .into_iter()
            .map(|t| {
                let tensor = Tensor::mapped(t.name.clone(), t.ty, t.shape, map.clone(), t.range);
                (t.name, tensor.expect("the parser checked shape and range against the file"))
            })
            .collect();
        Ok(Self { path: path.to_owned(), meta: Metadata::new(header.entries, map, path.to_owned()), tensors })
    }
}

/// Maps a whole file for reading, of whatever format.
pub(super) fn map_file(path: &Path) -> Result<Arc<Mmap>, LoadError> {
    let map = || {
        let file = File::open(path)?;
        // SAFETY: the map is read-only and private to this process. A model file must not be cut while it is served (the process
        // would get SIGBUS), as for every program that maps its weights; it is not written to by us.
        unsafe { Mmap::map(&file) }
    };
    map().map(Arc::new).map_err(|e| Problem::from(e).in_file(path))
}
