//! One layer of a file or a directory, from which operators read their weights.

use super::{Block, GdnPacking, LayerPlan, OpConfig};
use crate::format::{LoadError, Tensor};
use crate::model::reader::{Format, Reader, plus_one};

/// One layer of a source: tensors named after a prefix.
#[derive(Clone, Copy)]
pub(in crate::model) struct Layer<'a> {
    pub(in crate::model) reader: Reader<'a>,
    pub(in crate::model) format: Format,
    /// How the input projections of gated-delta blocks are packed, if the family has such blocks.
    pub(in crate::model) gdn: Option<&'a GdnPacking>,
    /// Whether the two rows that are rotated together stand side by side, and not half a head apart.
    pub(in crate::model) paired: bool,
    /// What stands before every name of this layer, such as `blk.3.`.
    pub(in crate::model) prefix: &'a str,
    /// Width of the residual stream.
    pub(in crate::model) hidden: usize,
}

impl Layer<'_> {
    /// The blocks of a layer with their weights.
    pub(in crate::model) fn read(&self, plan: &LayerPlan) -> Result<Vec<Block>, LoadError> {
        let block = |b: &Block<OpConfig, &'static str>| {
            Ok(Block { norm: self.norm(b.norm, &[self.hidden])?, op: b.op.read(self)?, scale: b.scale })
        };
        plan.iter().map(block).collect()
    }

    /// Weight of an RMS norm, as the factor to multiply by.
    pub(in crate::model) fn norm(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let values = self.values(name, shape)?;
        Ok(match self.format {
            Format::Gguf => values,
            Format::HuggingFace => plus_one(values),
        })
    }

    pub(in crate::model) fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(in crate::model) fn find(&self, name: &str, shape: &[usize]) -> Result<Option<Tensor>, LoadError> {
        self.reader.find(&self.name(name), shape)
    }

    pub(in crate::model) fn need(&self, name: &str, shape: &[usize]) -> Result<Tensor, LoadError> {
        self.reader.need(&self.name(name), shape)
    }

    pub(in crate::model) fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        self.reader.values(&self.name(name), shape)
    }

    pub(in crate::model) fn values_or_row(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        self.reader.values_or_row(&self.name(name), shape)
    }
}
