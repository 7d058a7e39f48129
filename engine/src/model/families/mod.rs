//! Families of models: what is said about their layers by a file, and how. One file a family, and one line in the
//! table.

mod falcon_h1;
mod granitehybrid;
mod mamba2;
mod nemotron_h;
mod qwen35;
mod qwen35moe;
mod qwen3next;
#[cfg(test)]
mod scaled;

use super::blocks::{Block, Conversion, GdnPacking, LayerPlan, OpConfig};
use super::gguf_keys::Keys;
use super::hf_tensors::HfTensors;
use crate::format::{HfDir, LoadError};

/// The families that are read.
pub(super) const FAMILIES: &[&Family] = &[
    &qwen35moe::FAMILY,
    &qwen35::FAMILY,
    &qwen3next::FAMILY,
    &mamba2::FAMILY,
    &granitehybrid::FAMILY,
    &falcon_h1::FAMILY,
    &nemotron_h::MOE,
    &nemotron_h::DENSE,
    #[cfg(test)]
    &scaled::FAMILY,
];

/// What sets one family apart when its files are read.
pub(super) struct Family {
    /// `general.architecture` of GGUF files, and the prefix of their keys.
    pub(super) gguf: &'static str,
    /// `model_type` in config.json, of the whole model and of its text part.
    pub(super) hugging_face: &'static [&'static str],
    /// The layers that a GGUF file's keys describe.
    pub(super) gguf_layers: GgufLayers,
    /// The layers that config.json describes.
    pub(super) hugging_face_layers: HfLayers,
    /// How the projections of gated-delta blocks are packed, if the family has such blocks.
    pub(super) gdn: Option<GdnPacking>,
    /// The names of a directory's tensors, if operators are to find them under those of GGUF files.
    pub(super) hugging_face_tensors: Option<&'static HfTensors>,
    /// How GGUF files of directories are written, if they are.
    pub(super) conversion: Option<&'static Conversion>,
}

type GgufLayers = fn(&Keys<'_>) -> Result<Layers, LoadError>;
type HfLayers = fn(&HfDir) -> Result<Layers, LoadError>;

impl Family {
    /// A family without gated-delta blocks, whose directories are read under the names of GGUF files and not
    /// converted.
    const fn renamed(
        gguf: &'static str,
        hugging_face: &'static [&'static str],
        (gguf_layers, hugging_face_layers): (GgufLayers, HfLayers),
        tensors: &'static HfTensors,
    ) -> Self {
        let hugging_face_tensors = Some(tensors);
        Self { gguf, hugging_face, gguf_layers, hugging_face_layers, gdn: None, hugging_face_tensors, conversion: None }
    }
}

/// Layers of a model.
pub(super) struct Layers {
    /// Those that every token goes through.
    pub(super) main: Vec<LayerPlan>,
    /// That of a draft head, if the file has one; empty if the family's are not read.
    pub(super) draft: LayerPlan,
}

/// A layer of one block behind a norm of this name.
fn one_block(norm: &'static str, op: OpConfig) -> LayerPlan {
    vec![Block { norm, op, scale: 1.0 }]
}

/// A layer of a mixer and a feed-forward part, each behind a norm of this name.
fn mixer_and_feed_forward(norms: [&'static str; 2], ops: [OpConfig; 2]) -> LayerPlan {
    norms.into_iter().zip(ops).map(|(norm, op)| Block { norm, op, scale: 1.0 }).collect()
}
