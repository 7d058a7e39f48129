//! Encoders of the BERT family: the ids of one text in, one vector out, on the CPU and in f32.
//!
//! An encoder reads a text in both directions and keeps nothing of it, so it stands beside the engine: it has no
//! scheduler, no cache and no batch. A text goes through all layers alone, on the thread that asks, so its vector has
//! the same bytes whatever else is read. Tokenizers, threads and queues are in the crate `chimere`.

mod attention;
mod config;
mod forward;
mod kernels;
mod weights;

pub use crate::format::hf::{SentenceModules, TextPooling};
pub use config::{EncoderConfig, Gelu};

use crate::format::{HfDir, LoadError};
use crate::ids::TokenId;
use std::path::Path;
use weights::EncoderWeights;

/// An encoder in memory, which any number of threads may ask at once.
pub struct TextEncoder {
    config: EncoderConfig,
    modules: SentenceModules,
    weights: EncoderWeights,
}

impl TextEncoder {
    /// Reads a directory in Hugging Face's layout. A key or a tensor that changes vectors and is not known is an error
    /// that names it.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let dir = HfDir::open(path)?;
        let config = EncoderConfig::read(&dir)?;
        let modules = SentenceModules::read(path)?;
        let weights = EncoderWeights::read(&dir, &config)?;
        dir.files().check()?;
        Ok(Self { config, modules, weights })
    }

    /// Sizes of the encoder.
    pub fn config(&self) -> &EncoderConfig {
        &self.config
    }

    /// What is done before and after the layers.
    pub fn modules(&self) -> &SentenceModules {
        &self.modules
    }

    /// Numbers of a vector.
    pub fn width(&self) -> usize {
        self.config.hidden
    }

    /// The most tokens that a text may have, those around it included.
    pub fn tokens_max(&self) -> usize {
        self.modules.tokens_max.unwrap_or(usize::MAX).min(self.config.positions)
    }

    /// Bytes of its weights in memory.
    pub fn bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// The vector of a text.
    ///
    /// # Panics
    /// If there is no id, if there are more than [`TextEncoder::tokens_max`], or if one is not of the vocabulary.
    pub fn vector(&self, ids: &[TokenId]) -> Vec<f32> {
        assert!(!ids.is_empty() && ids.len() <= self.tokens_max(), "{} tokens of {}", ids.len(), self.tokens_max());
        let rows = forward::rows(&self.config, &self.weights, ids);
        let mut vector = pooled(self.modules.pooling, &rows, self.config.hidden);
        if self.modules.normalized {
            normalize(&mut vector);
        }
        vector
    }
}

impl std::fmt::Debug for TextEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextEncoder")
            .field("config", &self.config)
            .field("modules", &self.modules)
            .finish_non_exhaustive()
    }
}

/// One vector of the rows of a text, added up in their order.
fn pooled(pooling: TextPooling, rows: &[f32], hidden: usize) -> Vec<f32> {
    match pooling {
        TextPooling::Cls => rows[..hidden].to_vec(),
        TextPooling::Mean => {
            let mut sum = vec![0.0; hidden];
            for row in rows.chunks_exact(hidden) {
                sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
            }
            let count = (rows.len() / hidden) as f32;
            sum.iter_mut().for_each(|sum| *sum /= count);
            sum
        }
    }
}

/// Length 1; a vector of nothing but zeros stays as it is.
fn normalize(vector: &mut [f32]) {
    /// As `torch.nn.functional.normalize` has it.
    const LENGTH_MIN: f64 = 1e-12;
    let square: f64 = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    let length = square.sqrt().max(LENGTH_MIN);
    vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
}
