//! Families of models: what is said about their layers by a file, and how. One file a family, and one line in the
//! table.

mod falcon_h1;
mod granitehybrid;
mod lfm2;
mod lfm2moe;
mod mamba2;
mod nemotron_h;
mod qwen3;
mod qwen35;
mod qwen35moe;
mod qwen3moe;
mod qwen3next;
#[cfg(test)]
mod scaled;

pub(super) use qwen3next::{ba_rows, qkvz_rows};

use super::blocks::{Block, Conversion, GdnPacking, LayerPlan, OpConfig};
use super::gguf_keys::Keys;
use super::hf_tensors::HfTensors;
use crate::format::{HfDir, LoadError};

/// The families that are read.
pub(super) const FAMILIES: &[&Family] = &[
    &qwen35moe::FAMILY,
    &qwen35::FAMILY,
    &qwen3next::FAMILY,
    &qwen3moe::FAMILY,
    &qwen3::FAMILY,
    &mamba2::FAMILY,
    &granitehybrid::FAMILY,
    &granitehybrid::DENSE,
    &granitehybrid::MOE,
    &falcon_h1::FAMILY,
    &nemotron_h::MOE,
    &nemotron_h::DENSE,
    &lfm2::FAMILY,
    &lfm2moe::FAMILY,
    #[cfg(test)]
    &scaled::FAMILY,
];

/// What sets one family apart when its files are read.
pub(super) struct Family {
    /// `general.architecture` of GGUF files, and the prefix of their keys.
    pub(super) gguf: &'static str,
    /// `model_type` in config.json, of the whole model and of its text part.
    pub(super) hugging_face: &'static [&'static str],
    /// What its GGUF files do in their own way.
    pub(super) form: GgufForm,
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

/// What GGUF files of families do in different ways.
#[derive(Clone, Copy)]
pub(super) struct GgufForm {
    /// The name of the norm before the head.
    pub(super) output_norm: &'static str,
    /// Whether the two rows that are rotated together stand side by side in the projections of queries and keys, as
    /// files of Llama's descendants have them, and not half a head apart.
    pub(super) paired: bool,
}

impl GgufForm {
    const USUAL: Self = Self { output_norm: "output_norm.weight", paired: false };
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
        Self {
            gguf,
            hugging_face,
            form: GgufForm::USUAL,
            gguf_layers,
            hugging_face_layers,
            gdn: None,
            hugging_face_tensors: Some(tensors),
            conversion: None,
        }
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
