//! Tensors of one safetensors file or of all shards that model.safetensors.index.json names.

use super::json::Json;
use crate::format::mapped::MappedFile;
use crate::format::{BlockType, Files, LoadError, Problem, Tensor};
use safetensors::{Dtype, SafeTensors};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";
/// All tensors of a directory, by name.
pub(super) struct Tensors {
    dir: PathBuf,
    by_name: HashMap<String, TensorLocation>,
    files: Files,
}

/// Where a tensor lies.
pub(super) struct TensorLocation {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    file: Arc<MappedFile>,
    range: Range<usize>,
}

impl TensorLocation {
    /// The tensor's bytes, for whoever keeps them.
    pub(super) fn bytes(&self) -> MappedBytes {
        MappedBytes { file: self.file.clone(), range: self.range.clone() }
    }

    /// The tensor as elements of this type, which are as wide as the file's.
    pub(super) fn mapped(&self, name: &str, ty: BlockType) -> Tensor {
        let tensor = Tensor::mapped(name.to_owned(), ty, self.shape.clone(), self.file.clone(), self.range.clone());
        tensor.expect("the safetensors header was checked against shapes and file")
    }

    /// The values of a tensor of whole numbers.
    pub(super) fn integers(&self) -> Option<Vec<i64>> {
        let bytes = &self.file[self.range.clone()];
        match self.dtype {
            Dtype::I32 => Some(bytes.as_chunks().0.iter().map(|b| i64::from(i32::from_le_bytes(*b))).collect()),
            Dtype::I64 => Some(bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect()),
            _ => None,
        }
    }
}

/// A run of bytes of a mapped file.
pub(super) struct MappedBytes {
    file: Arc<MappedFile>,
    range: Range<usize>,
}

impl MappedBytes {
    pub(super) fn get(&self) -> &[u8] {
        &self.file[self.range.clone()]
    }
}

impl Tensors {
    pub(super) fn open(dir: &Path) -> Result<Self, LoadError> {
        let mut all = Self { dir: dir.to_owned(), by_name: HashMap::new(), files: Files::default() };
        match Json::read_if_there(&dir.join(INDEX))? {
            None => all.add_file(&dir.join(SINGLE))?,
            Some(index) => all.add_indexed(&index)?,
        }
        Ok(all)
    }

    /// The tensors of one file of a directory.
    pub(super) fn open_file(dir: &Path, name: &str) -> Result<Self, LoadError> {
        let mut all = Self { dir: dir.to_owned(), by_name: HashMap::new(), files: Files::default() };
        all.add_file(&dir.join(name))?;
        Ok(all)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    /// Where the tensor of this name lies, if there is one.
    pub(super) fn location(&self, name: &str) -> Option<&TensorLocation> {
        self.by_name.get(name)
    }

    /// Type and shape of the tensor of this name, which has floats of 16 or 32 bits.
    pub(super) fn outline(&self, name: &str) -> Result<Option<(BlockType, Vec<usize>)>, LoadError> {
        let Some(entry) = self.by_name.get(name) else { return Ok(None) };
        Ok(Some((self.plain_type(name, entry)?, entry.shape.clone())))
    }

    /// The tensor of this name, which has floats of 16 or 32 bits.
    pub(super) fn plain(&self, name: &str) -> Result<Option<Tensor>, LoadError> {
        let Some(entry) = self.by_name.get(name) else { return Ok(None) };
        Ok(Some(entry.mapped(name, self.plain_type(name, entry)?)))
    }

    fn plain_type(&self, name: &str, entry: &TensorLocation) -> Result<BlockType, LoadError> {
        match entry.dtype {
            Dtype::F32 => Ok(BlockType::F32),
            Dtype::F16 => Ok(BlockType::F16),
            Dtype::BF16 => Ok(BlockType::Bf16),
            other => Err(self.error(name, "F32, F16, BF16 or a quantised matrix", format_args!("{other:?}"))),
        }
    }

    fn add_indexed(&mut self, index: &Json) -> Result<(), LoadError> {
        let map = index.get("weight_map").and_then(|v| v.as_object());
        let map = map.ok_or_else(|| index.error("weight_map", "an object of tensor names and files", "none"))?;
        let mut files = BTreeSet::new();
        for (tensor, file) in map {
            let name = file.as_str().filter(|f| Path::new(f).file_name().is_some_and(|n| n == *f));
            files.insert(name.ok_or_else(|| index.error(tensor, "the name of a file in this directory", file))?);
        }
        files.iter().try_for_each(|f| self.add_file(&self.dir.join(f)))?;
        match map.keys().find(|name| !self.by_name.contains_key(*name)) {
            None => Ok(()),
            Some(name) => {
                Err(Problem::tensor(name, "to be in the file that the index names", "no such tensor")
                    .in_file(&index.file))
            }
        }
    }

    fn add_file(&mut self, path: &Path) -> Result<(), LoadError> {
        let file = MappedFile::open(path)?;
        self.files.push(file.clone());
        let (head, meta) = SafeTensors::read_metadata(&file)
            .map_err(|e| Problem::container("safetensors header", "one that describes this file", e).in_file(path))?;
        // The data section starts behind the header's length field and the header.
        let data_at = head + size_of::<u64>();
        for (name, info) in meta.tensors() {
            let (start, end) = info.data_offsets;
            let entry = TensorLocation {
                dtype: info.dtype,
                shape: info.shape.clone(),
                file: file.clone(),
                range: data_at + start..data_at + end,
            };
            if self.by_name.insert(name.clone(), entry).is_some() {
                return Err(Problem::tensor(name, "one tensor of this name in all files", "two").in_file(path));
            }
        }
        Ok(())
    }

    pub(super) fn error(&self, name: &str, want: impl std::fmt::Display, got: impl std::fmt::Display) -> LoadError {
        Problem::tensor(name, want, got).in_file(&self.dir)
    }
}

impl std::fmt::Debug for Tensors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tensors").field("dir", &self.dir).field("count", &self.by_name.len()).finish()
    }
}
