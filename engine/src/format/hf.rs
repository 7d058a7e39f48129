//! Hugging Face directories: config.json, sharded safetensors by mmap, the files about text. Nothing else here reads
//! these files.

mod adapter;
mod config;
mod json;
mod quantized;
mod sentence;
mod tensors;
mod text;

pub(crate) use adapter::AdapterDir;
pub use config::HfConfig;
pub(crate) use json::Json;
pub use sentence::{SentenceModules, TextPooling};

use super::{BlockType, Files, LoadError, Tensor};
use quantized::{FoundMatrices, Quantization, QuantizedMatrix};
use std::path::{Path, PathBuf};
use tensors::Tensors;

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
    quantization: Quantization,
    found: FoundMatrices,
}

impl HfDir {
    /// Reads config.json and maps the weights.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let config = HfConfig::read(&path.join("config.json"))?;
        let (tensors, quantization) = (Tensors::open(path)?, config.quantization(path)?);
        let vision = tensors.names().filter(|name| is_vision(name)).count();
        if vision > 0 {
            tracing::info!("{vision} tensors of the vision tower are left out: text only");
        }
        Ok(Self { path: path.to_owned(), config, tensors, quantization, found: FoundMatrices::default() })
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
        self.tensors.location(name).is_some() || QuantizedMatrix::stands_for(&self.tensors, name)
    }

    /// Encoding and shape of the tensor of this name, without a byte of it.
    pub fn outline(&self, name: &str) -> Result<Option<(BlockType, Vec<usize>)>, LoadError> {
        match self.quantized(name)? {
            Some(quantized) => Ok(Some((quantized.encoding(), quantized.stored.shape.clone()))),
            None => self.tensors.outline(name),
        }
    }

    /// As [`HfDir::outline`], for the tensor that [`HfDir::floats_by_this_thread`] gives.
    pub(crate) fn float_outline(&self, name: &str) -> Result<Option<(BlockType, Vec<usize>)>, LoadError> {
        Ok(self.outline(name)?.map(|(ty, shape)| (if is_float(ty) { ty } else { BlockType::F32 }, shape)))
    }

    /// The tensor of this name: a view of the mapped file, or of bytes that are made of it where the file has a matrix
    /// of few bits in several tensors.
    pub fn tensor(&self, name: &str) -> Result<Option<Tensor>, LoadError> {
        match self.quantized(name)? {
            Some(quantized) => quantized.tensor().map(Some),
            None => self.tensors.plain(name),
        }
    }

    fn quantized(&self, name: &str) -> Result<Option<QuantizedMatrix<'_>>, LoadError> {
        QuantizedMatrix::find(&self.tensors, &self.quantization, &self.found, name)
    }

    /// As [`HfDir::tensor`], but a quantised matrix is decoded, by the calling thread alone: whoever makes a tensor
    /// once for all may be asked for it by a thread of the pool, which must not take up work that asks for it again.
    pub(crate) fn floats_by_this_thread(&self, name: &str) -> Result<Option<Tensor>, LoadError> {
        let Some(tensor) = self.tensor(name)? else { return Ok(None) };
        Ok(Some(if is_float(tensor.ty) && tensor.scale.is_none() { tensor } else { tensor.decoded() }))
    }

    /// The names of the tensors that the one of this name is made of, if it is made of several.
    pub(crate) fn parts_of(&self, name: &str) -> Vec<String> {
        self.quantized(name).ok().flatten().map(|quantized| quantized.stored.parts.clone()).unwrap_or_default()
    }

    /// That weights of few bits are stored in a way that is read here, and as config.json says.
    pub(crate) fn check_quantization(&self) -> Result<(), LoadError> {
        let mut names: Vec<&str> = self.tensors.names().collect();
        names.sort_unstable();
        let scheme_of =
            |stem: &str| Ok(self.quantized(&format!("{stem}.weight"))?.map(|quantized| quantized.stored.scheme));
        self.quantization.check(&names, scheme_of)
    }
}

/// Whether an encoding is of single floats of 16 or 32 bits.
fn is_float(ty: BlockType) -> bool {
    matches!(ty, BlockType::F32 | BlockType::F16 | BlockType::Bf16)
}
