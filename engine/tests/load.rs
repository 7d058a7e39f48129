//! The reference models load, from either format, into the same canonical weights.

use chimere_engine::format::TokenizerSource;
use chimere_engine::model::{Architecture, FfnConfig, HeadOrder, LayerKind, MixerWeights, Model, Role, Summary, load};
use std::path::PathBuf;

fn golden(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file)
}

fn gguf(preset: &str) -> Model {
    load(&golden(&format!("{preset}/model.gguf"))).unwrap()
}

#[test]
fn the_reference_files_have_the_shapes_they_were_made_with() {
    for (preset, architecture, order, r) in [
        ("moe", Architecture::Qwen35Moe, HeadOrder::Tiled, 2),
        ("dense", Architecture::Qwen35, HeadOrder::Tiled, 3),
        ("next", Architecture::Qwen3Next, HeadOrder::Grouped, 2),
        ("quant", Architecture::Qwen35Moe, HeadOrder::Tiled, 2),
    ] {
        let m = gguf(preset);
        assert_eq!((m.config.architecture, m.config.gdn.head_order), (architecture, order), "{preset}");
        assert_eq!(m.config.gdn.value_heads / m.config.gdn.key_heads, r, "{preset}");
        use LayerKind::{Attention, Gdn};
        assert_eq!(m.config.layers, [Gdn, Gdn, Gdn, Attention], "{preset}: the draft layer is not among them");
        assert!(m.weights.mtp.is_some() && m.weights.head.is_some(), "{preset}");
        assert_eq!((m.config.vocab, m.config.context, m.config.rms_eps), (512, 8192, 1e-6), "{preset}");
        assert_eq!((m.config.attention.rotary_dim, m.config.attention.rope_theta), (64, 1e7), "{preset}");
    }
}

#[test]
fn a_summary_counts_every_weight_once() {
    let summary = Summary::of(&gguf("quant"));
    let FfnConfig::Moe { experts, width, .. } = gguf("quant").config.ffn else { panic!("a mixture of experts") };
    let role = |r| summary.roles.get(&r).unwrap();
    assert_eq!(role(Role::Experts).parameters, (4 * experts * 3 * width * 256) as u64);
    assert_eq!(role(Role::Embedding).types.keys().copied().collect::<Vec<_>>(), ["Q4_K"]);
    assert_eq!(role(Role::Head).bytes, 512 * 210);
    assert!(role(Role::Experts).types.len() >= 8, "{:?}", role(Role::Experts).types);
    assert_eq!(summary.bytes(), summary.roles.values().map(|r| r.types.values().sum::<u64>()).sum());
    assert!(summary.parameters() > role(Role::Experts).parameters);
}

#[test]
fn text_comes_along_with_both_end_ids() {
    let text = gguf("moe").text;
    let TokenizerSource::Gguf { pre, tokens, types, merges } = text.tokenizer else { panic!("from a GGUF file") };
    assert_eq!((pre.as_str(), tokens.len(), types.len()), ("qwen35", 512, 512));
    assert!(!merges.is_empty());
    let ends: Vec<_> = text.end_ids.iter().map(|id| tokens[*id as usize].as_str()).collect();
    assert_eq!(ends, ["<|im_end|>", "<|endoftext|>"]);
}

#[test]
fn decays_and_norms_are_factors() {
    let m = gguf("moe");
    let MixerWeights::Gdn(gdn) = &m.weights.layers[0].mixer else { panic!("a GDN layer") };
    assert!(gdn.a_neg.iter().all(|a| *a < 0.0), "-exp(A_log)");
    let mean = m.weights.norm.iter().sum::<f32>() / m.weights.norm.len() as f32;
    assert!((mean - 1.0).abs() < 0.2, "1 + w, got a mean of {mean}");
}
