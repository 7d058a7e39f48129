//! GGUF v3 files by mmap, split ones too: metadata and tensors by name. What keys and tensors mean is
//! [`crate::model`]'s business.

mod meta;
mod parse;
mod split;
mod types;
mod write;

pub use meta::Metadata;
pub(crate) use split::set_name;
pub use write::{GgufHeader, MetaValue};

use super::mapped::MappedFile;
use super::{Files, LoadError, Problem, Tensor};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open GGUF file, or a whole set of split ones.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    meta: Metadata,
    tensors: HashMap<String, Tensor>,
    /// Names in the order of the file.
    order: Vec<String>,
    files: Files,
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
        let map = MappedFile::of_bytes(bytes).map_err(|e| Problem::from(e).in_file(path))?;
        Self::from_map(map, path)
    }

    /// What a file of these keys and tensors would be once it is written and opened. `path` is for messages, `files`
    /// are those that the tensors are read from.
    ///
    /// # Panics
    /// If two tensors have one name.
    pub(crate) fn of_parts(
        header: &GgufHeader,
        tensors: Vec<Tensor>,
        path: &Path,
        files: Files,
    ) -> Result<Self, LoadError> {
        let keys = Self::from_bytes(&header.to_bytes(), path)?;
        let order: Vec<String> = tensors.iter().map(|t| t.name.clone()).collect();
        let tensors: HashMap<_, _> = tensors.into_iter().map(|t| (t.name.clone(), t)).collect();
        assert_eq!(order.len(), tensors.len(), "every tensor has a name of its own");
        Ok(Self { tensors, order, files, ..keys })
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

    /// All tensors in the order of the file, part after part.
    pub fn tensors_in_order(&self) -> impl ExactSizeIterator<Item = &Tensor> {
        self.order.iter().map(|name| &self.tensors[name])
    }

    /// This file with other tensors in the place of those of their names.
    ///
    /// # Panics
    /// If there is no tensor of such a name.
    pub fn with(&self, others: impl IntoIterator<Item = Tensor>) -> Self {
        let mut tensors = self.tensors.clone();
        for tensor in others {
            let old = tensors.insert(tensor.name.clone(), tensor);
            assert!(old.is_some(), "a tensor takes the place of one that is there");
        }
        Self {
            path: self.path.clone(),
            meta: self.meta.clone(),
            tensors,
            order: self.order.clone(),
            files: self.files.clone(),
        }
    }

    /// What it is read from, all parts.
    pub fn files(&self) -> &Files {
        &self.files
    }

    fn open_one(path: &Path) -> Result<Self, LoadError> {
        Self::from_map(MappedFile::open(path)?, path)
    }

    fn from_map(map: Arc<MappedFile>, path: &Path) -> Result<Self, LoadError> {
        let header = parse::header(&map).map_err(|e| e.in_file(path))?;
        let order = header.tensors.iter().map(|t| t.name.clone()).collect();
        let tensors = header
            .tensors
            .into_iter()
            .map(|t| {
                let tensor = Tensor::mapped(t.name.clone(), t.ty, t.shape, map.clone(), t.range);
                (t.name, tensor.expect("the parser checked shape and range against the file"))
            })
            .collect();
        let mut files = Files::default();
        files.push(map.clone());
        let meta = Metadata::new(header.entries, header.encoded, map, path.to_owned());
        Ok(Self { path: path.to_owned(), meta, tensors, order, files })
    }
}
