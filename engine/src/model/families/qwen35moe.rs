//! `qwen35moe`: `qwen35` with a mixture of experts in every layer (Qwen3.5-35B-A3B, 122B-A10B, 397B-A17B,
//! Qwen3.6-35B-A3B).

use super::{Family, GgufForm, qwen35};
use crate::model::blocks::{HeadOrder, MoeConfig, OpConfig};

pub(super) const FAMILY: Family = Family {
    gguf: "qwen35moe",
    hugging_face: &["qwen3_5_moe", "qwen3_5_moe_text"],
    form: GgufForm::USUAL,
    gguf_layers: |keys| {
        qwen35::gguf_layers(keys, HeadOrder::Tiled, |keys| MoeConfig::from_gguf(keys).map(OpConfig::Moe))
    },
    hugging_face_layers: |dir| qwen35::hugging_face_layers(dir, |c| MoeConfig::from_hugging_face(c).map(OpConfig::Moe)),
    gdn: Some(qwen35::SEPARATE),
    hugging_face_tensors: None,
    conversion: Some(&qwen35::CONVERSION),
};
