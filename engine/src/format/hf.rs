//! Hugging Face directories: config.json, sharded safetensors by mmap, the files about text. Nothing else here reads
//! these files.

mod config;
mod json;
mod tensors;
mod text;

pub use config::HfConfig;

use super::{BlockType, Files, LoadError, Tensor};
use std::path::{Path, PathBuf};
use tensors::{Tensors, Workers};

/// What the names of a vision tower's tensors begin with.
const VISION: [&str; 2] = ["model.visual.", "visual."];

/// Whether a tensor is one of a vision tower, which is left out.
pub(crate) fn is_vision(name: &str) -> bool {
    VISION.iter().any(|prefix| name.starts_with(prefix))
}

/// A model's directory in Hugging Face's layout, open.
#[derive(Debug)]
pub struct HfDir {
    path: PathBuf,
    config: HfConfig,
    tensors: Tensors,
}

impl HfDir {
    /// Reads config.json and maps the weights.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let config = HfConfig::read(&path.join("config.json"))?;
        let tensors = Tensors::open(path)?;
        let vision = tensors.names().filter(|name| is_vision(name)).count();
        if vision > 0 {
            tracing::info!("{vision} tensors of the vision tower are left out: text only");
        }
        Ok(Self { path: path.to_owned(), config, tensors })
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text part of config.json.
    pub fn config(&self) -> &HfConfig {
        &self.config
    }

    /// What the weights are read from.
    pub fn files(&self) -> &Files {
        self.tensors.files()
    }

    /// Names of all tensors.
    pub fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.tensors.names()
    }

    /// How many tensors there are.
    pub fn tensor_count(&self) -> usize {
        self.tensors.names().count()
    }

    /// Whether there is a tensor of this name.
    pub fn has_tensor(&self, name: &str) -> bool {
        self.tensors.has(name)
    }

    /// Encoding and shape of the tensor of this name, without a byte of it.
    pub fn outline(&self, name: &str) -> Result<Option<(BlockType, &[usize])>, LoadError> {
        self.tensors.outline(name)
    }

    /// The tensor of this name: a view of the mapped file, or bf16 of its own where the file has 8-bit floats with
    /// scales.
    pub fn tensor(&self, name: &str) -> Result<Option<Tensor>, LoadError> {
        self.tensors.get(name)
    }

    /// The name of the scales of a tensor of 8-bit floats.
    pub(crate) fn scales_of(&self, name: &str) -> Option<String> {
        self.tensors.scales_of(name)
    }

    /// As [`HfDir::tensor`], decoded by the calling thread alone: whoever makes a tensor once for all may be asked for
    /// it by a thread of the pool, which must not take up work that asks for it again.
    pub(crate) fn tensor_by_this_thread(&self, name: &str) -> Result<Option<Tensor>, LoadError> {
        self.tensors.get_with(name, Workers::This)
    }
}
