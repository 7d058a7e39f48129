//! `qwen35moe`: `qwen35` with a mixture of experts in every layer (Qwen3.5-35B-A3B, 122B-A10B, 397B-A17B, Qwen3.6-35B-A3B).

use super::load::Spec;
use super::{Architecture, HeadOrder, qwen35};

pub(super) const SPEC: Spec = Spec {
    architecture: Architecture::Qwen35Moe,
    gguf: "qwen35moe",
    hugging_face: &["qwen3_5_moe", "qwen3_5_moe_text"],
    moe: true,
    gguf_head_order: HeadOrder::Tiled,
    gguf_projections: qwen35::gguf_projections,
    hugging_face_projections: qwen35::hugging_face_projections,
};
