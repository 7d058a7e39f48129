//! `mamba2`: a Mamba-2 mixer a layer and nothing else (state-spaces' Mamba-2 130M to 2.7B, Codestral Mamba).

use super::{Family, Layers, one_block};
use crate::format::{HfDir, LoadError};
use crate::model::blocks::{Mamba2Config, Mamba2Names, OpConfig};
use crate::model::gguf_keys::Keys;
use crate::model::hf_keys::{check_conv_bias, layer_count};
use crate::model::hf_tensors::{HfTensors, mamba_tensors, no_factors, renamed};

const NORM: &str = "attn_norm.weight";

pub(super) const FAMILY: Family = Family::renamed("mamba2", &["mamba2"], (gguf_layers, hugging_face_layers), &TENSORS);

const TENSORS: HfTensors = HfTensors {
    prefixes: &["backbone.", "model.", "model.backbone."],
    embedding: "embeddings.weight",
    norm: "norm_f.weight",
    layer: &[&[renamed(NORM, "norm.weight")], mamba_tensors!("mixer")],
    factors: no_factors,
};

const NAMES: Mamba2Names = Mamba2Names {
    heads: "num_heads",
    head_dim: "head_dim",
    state_dim: "state_size",
    groups: "n_groups",
    conv_taps: "conv_kernel",
};

fn gguf_layers(keys: &Keys<'_>) -> Result<Layers, LoadError> {
    Ok(layers(keys.main, Mamba2Config::from_gguf(keys, true)?))
}

fn hugging_face_layers(dir: &HfDir) -> Result<Layers, LoadError> {
    let c = dir.config();
    c.must_be("use_bias", false)?;
    c.must_be("rms_norm", true)?;
    check_conv_bias(dir, "use_conv_bias")?;
    Ok(layers(layer_count(dir)? as usize, Mamba2Config::from_hugging_face(c, &NAMES, true)?))
}

fn layers(count: usize, mamba: Mamba2Config) -> Layers {
    let main = (0..count).map(|_| one_block(NORM, OpConfig::Mamba2(mamba))).collect();
    Layers { main, draft: Vec::new() }
}
