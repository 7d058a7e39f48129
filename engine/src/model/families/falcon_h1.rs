//! `falcon-h1`: attention and Mamba-2 side by side on one norm, then a SwiGLU. The release multiplies on many ways;
//! GGUF files have that in their weights, a directory's are multiplied when they are read (Falcon-H1 0.5B to 34B).

use super::{Family, Layers, granitehybrid, mixer_and_feed_forward};
use crate::format::hf::HfConfig;
use crate::format::{HfDir, LoadError};
use crate::model::blocks::{AttentionConfig, Mamba2Config, MlpConfig, OpConfig, ParallelConfig, Positions};
use crate::model::gguf_keys::Keys;
use crate::model::hf_keys::{check_conv_bias, factor, layer_count};
use crate::model::hf_tensors::{Factors, HfTensors, attention_tensors, mamba_tensors, renamed};

/// The converter leaves the end of the second name out, and llama.cpp asks for it so.
const NORMS: [&str; 2] = ["attn_norm.weight", "ffn_norm"];

pub(super) const FAMILY: Family =
    Family::renamed("falcon-h1", &["falcon_h1"], (gguf_layers, hugging_face_layers), &TENSORS);

const TENSORS: HfTensors = HfTensors {
    prefixes: &["model."],
    embedding: "embed_tokens.weight",
    norm: "final_layernorm.weight",
    layer: &[
        &[renamed(NORMS[0], "input_layernorm.weight"), renamed(NORMS[1], "pre_ff_layernorm.weight")],
        mamba_tensors!("mamba"),
        attention_tensors!("self_attn"),
        &[
            renamed("ffn_gate.weight", "feed_forward.gate_proj.weight"),
            renamed("ffn_up.weight", "feed_forward.up_proj.weight"),
            renamed("ffn_down.weight", "feed_forward.down_proj.weight"),
        ],
    ],
    factors,
};

fn gguf_layers(keys: &Keys<'_>) -> Result<Layers, LoadError> {
    let attention = AttentionConfig::plain_from_gguf(keys, &vec![true; keys.main], Positions::Rotated)?;
    // The one family that has files of both kinds.
    let normed = keys.has_tensor("blk.0.ssm_norm.weight");
    Ok(layers(keys.main, attention, Mamba2Config::from_gguf(keys, normed)?, MlpConfig::from_gguf(keys)?))
}

fn hugging_face_layers(dir: &HfDir) -> Result<Layers, LoadError> {
    let c = dir.config();
    ["attention_bias", "mlp_bias", "mamba_proj_bias", "projectors_bias"]
        .into_iter()
        .try_for_each(|key| c.must_be(key, false))?;
    check_conv_bias(dir, "mamba_conv_bias")?;
    let normed = c.bool("mamba_rms_norm")?.unwrap_or(false);
    // Where the key is missing the norm comes first.
    if normed && c.bool("mamba_norm_before_gate")?.unwrap_or(true) {
        return Err(c.error("mamba_norm_before_gate", "false: a norm before the gate is not supported", true));
    }
    let mamba = Mamba2Config::from_hugging_face(c, &granitehybrid::NAMES, normed)?;
    c.must_be("mamba_d_ssm", mamba.values())?;
    let attention = AttentionConfig::plain_from_hugging_face(c, Positions::Rotated)?;
    Ok(layers(layer_count(dir)? as usize, attention, mamba, MlpConfig::from_hugging_face(c)?))
}

fn layers(count: usize, attention: AttentionConfig, mamba: Mamba2Config, mlp: MlpConfig) -> Layers {
    let mixer = OpConfig::Parallel(ParallelConfig { attention, mamba });
    let layer = |_| mixer_and_feed_forward(NORMS, [mixer.clone(), OpConfig::Mlp(mlp)]);
    Layers { main: (0..count).map(layer).collect(), draft: Vec::new() }
}

/// What the model multiplies around each matrix, which is as good as multiplying its weights.
fn factors(c: &HfConfig, tensor: &str) -> Result<Factors, LoadError> {
    let of = |keys: &[&str]| keys.iter().try_fold(1.0, |product, key| Ok::<_, LoadError>(product * factor(c, key)?));
    Ok(Factors::One(match tensor {
        "attn_q.weight" | "attn_v.weight" => of(&["attention_in_multiplier"])?,
        "attn_k.weight" => of(&["attention_in_multiplier", "key_multiplier"])?,
        "attn_output.weight" => of(&["attention_out_multiplier"])?,
        "ssm_out.weight" => of(&["ssm_out_multiplier"])?,
        "ffn_gate.weight" => entry(c, "mlp_multipliers", 2)?[0],
        "ffn_down.weight" => entry(c, "mlp_multipliers", 2)?[1],
        "ssm_in.weight" => return in_factors(c),
        _ => 1.0,
    }))
}

/// Those of the rows of z, x, B, C and the step sizes.
fn in_factors(c: &HfConfig) -> Result<Factors, LoadError> {
    let mamba = Mamba2Config::from_hugging_face(c, &granitehybrid::NAMES, false)?;
    let (values, shared) = (mamba.values(), mamba.groups * mamba.state_dim);
    let (all, each) = (factor(c, "ssm_in_multiplier")?, entry(c, "ssm_multipliers", 5)?);
    let rows = [values, values, shared, shared, mamba.heads];
    Ok(Factors::Rows(rows.into_iter().zip(each).map(|(rows, factor)| (rows, all * factor)).collect()))
}

/// A list of so many factors; all 1 where there is none.
fn entry(c: &HfConfig, key: &str, count: usize) -> Result<Vec<f32>, LoadError> {
    match c.numbers(key)? {
        None => Ok(vec![1.0; count]),
        Some(all) if all.len() == count => Ok(all.into_iter().map(|x| x as f32).collect()),
        Some(all) => Err(c.error(key, format_args!("{count} numbers"), all.len())),
    }
}
