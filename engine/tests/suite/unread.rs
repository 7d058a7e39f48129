//! Mutations of the golden files: whatever is added to a file is refused by name or changes no logit, and whatever is
//! missed is named.

use crate::support::directory::Directory;
use crate::support::{Driver, GgufParts, Golden, config, golden_dir};
use chimere_engine::format::gguf::MetaValue;
use chimere_engine::model::{self, Model};
use chimere_engine::step::Form;
use serde_json::json;

/// Every file here, with its architecture in GGUF files.
const FILES: [(&str, &str); 13] = [
    ("moe", "qwen35moe"),
    ("dense", "qwen35"),
    ("next", "qwen3next"),
    ("mamba2", "mamba2"),
    ("granitehybrid", "granitehybrid"),
    ("falcon_h1", "falcon-h1"),
    ("nemotron_h", "nemotron_h_moe"),
    ("nemotron_super", "nemotron_h_moe"),
    ("qwen3", "qwen3"),
    ("qwen3_moe", "qwen3moe"),
    ("lfm2", "lfm2"),
    ("lfm2_moe", "lfm2moe"),
    ("granite", "granite"),
];

/// The presets that are directories too: all but the dense one, which is only a file.
pub(crate) fn directories() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(preset, _)| *preset).filter(|preset| *preset != "dense")
}

/// Logits of a few tokens.
fn logits(preset: &str, model: &Model) -> Vec<f32> {
    let ids = &Golden::of(preset).ids("input_ids")[..6];
    Driver::recording(model, &config(true, 1)).run(Form::Chunked, 0, ids).logits
}

/// That a mutation is refused with a message that has one of these names in it, or changes no logit.
fn check(preset: &str, whole: &[f32], names: &[&str], mutated: Result<Model, String>) {
    match mutated {
        Err(e) => assert!(names.iter().any(|name| e.contains(name)), "{preset}: {names:?} is not named in: {e}"),
        Ok(model) => assert!(
            logits(preset.split(' ').next().unwrap(), &model) == whole,
            "{preset}: {names:?} changes what is computed"
        ),
    }
}

/// Why a mutation is refused.
fn refusal(mutated: Result<Model, String>) -> String {
    mutated.map(|m| m.config.name).expect_err("a member that changes the meaning of the model")
}

#[test]
fn every_tensor_of_a_file_is_used_or_named() {
    for (preset, _) in FILES {
        let whole = logits(preset, &GgufParts::of(preset).load().unwrap());
        let names: Vec<String> = GgufParts::of(preset).tensors.into_iter().map(|t| t.0).collect();
        for name in &names {
            let bias = format!("{}.bias", name.trim_end_matches(".weight").trim_end_matches(".bias"));
            let mut less = GgufParts::of(preset);
            less.tensors.retain(|t| t.0 != *name);
            // Without a head of its own a file's head is its embedding, and one convolution may do without a bias.
            if name != "output.weight" && (preset, name.as_str()) != ("nemotron_super", "blk.0.ssm_conv1d.bias") {
                check(&format!("{preset} without {name}"), &whole, &["m.gguf: tensor "], less.load());
            }
            let block = name.match_indices('.').nth(1).map_or(&name[..], |(at, _)| &name[..at]);
            let mut renamed = GgufParts::of(preset);
            renamed.tensors.iter_mut().filter(|t| t.0 == *name).for_each(|t| t.0.push('_'));
            check(preset, &whole, &[block], renamed.load());
            if !names.contains(&bias) {
                let mut more = GgufParts::of(preset);
                more.add_like(name, &bias);
                check(preset, &whole, &[&bias], more.load());
            }
        }
    }
}

#[test]
fn tensors_of_other_models_are_refused_in_every_family() {
    for (preset, _) in FILES {
        for name in
            ["rope_freqs.weight", "blk.0.post_ffw_norm.weight", "blk.0.attn_sinks.weight", "blk.99.attn_q.weight"]
        {
            let mut more = GgufParts::of(preset);
            let norm = if preset.starts_with("lfm2") { "token_embd_norm.weight" } else { "output_norm.weight" };
            more.add_like(norm, name);
            let want =
                format!("m.gguf: tensor `{name}`: wanted no such tensor: it is not known in this family, got one");
            assert_eq!(refusal(more.load()), want, "{preset}");
        }
    }
}

#[test]
fn keys_of_other_models_are_refused_in_every_family() {
    let number = MetaValue::F32;
    let count = MetaValue::U32;
    for (preset, architecture) in FILES {
        let own = |key: &str| GgufParts::of(preset).keys.iter().any(|k| k.0 == format!("{architecture}.{key}"));
        let refused = |key: &str, value: MetaValue| {
            let key = format!("{architecture}.{key}");
            let mut more = GgufParts::of(preset);
            more.set(&key, value);
            let e = refusal(more.load());
            assert!(e.starts_with(&format!("m.gguf: key `{key}`: wanted ")), "{preset}: {e}");
        };
        refused("attention.causal", MetaValue::Bool(false));
        refused("attention.sliding_window", count(128));
        refused("attn_logit_softcapping", number(30.0));
        refused("final_logit_softcapping", number(30.0));
        if !own("rope.scaling.factor") {
            refused("rope.scaling.factor", number(4.0));
        }
        refused("attention.clamp_kqv", number(8.0));
        refused("a_key_of_tomorrow", count(1));
        if !own("residual_scale") {
            refused("residual_scale", number(0.5));
        }
        if architecture.starts_with("qwen") {
            refused("attention.scale", number(0.25));
            refused("expert_gating_func", count(2));
            refused("expert_weights_norm", MetaValue::Bool(false));
            refused("expert_weights_scale", number(2.5));
        }
        refused("vocab_size", count(511));
    }
}

#[test]
fn keys_that_change_nothing_are_accepted_in_every_family() {
    for (preset, architecture) in FILES {
        let mut more = GgufParts::of(preset);
        let whole = logits(preset, &GgufParts::of(preset).load().unwrap());
        for (key, value) in [
            ("attention.causal", MetaValue::Bool(true)),
            ("attention.sliding_window", MetaValue::U32(0)),
            ("rope.scaling.attn_factor", MetaValue::F32(1.0)),
            ("rope.dimension_sections", MetaValue::I32s(vec![11, 11, 10, 0])),
            ("expert_weights_norm", MetaValue::Bool(true)),
            ("vocab_size", MetaValue::U32(512)),
        ] {
            more.set(&format!("{architecture}.{key}"), value);
        }
        if !more.keys.iter().any(|(name, _)| name.ends_with("rope.scaling.factor")) {
            more.set(&format!("{architecture}.rope.scaling.factor"), MetaValue::F32(1.0));
        }
        more.set("general.a_remark", MetaValue::Str("what keys of no family say".into()));
        assert!(logits(preset, &more.load().unwrap()) == whole, "{preset}");
    }
}

/// The model of a directory of any preset: all have one vocabulary.
fn load(dir: &Directory) -> Result<Model, String> {
    dir.load("moe/tokenizer.json")
}

#[test]
fn every_tensor_of_a_directory_is_used_or_named() {
    for preset in directories() {
        let mut dir = Directory::of(preset);
        let whole = logits(preset, &load(&dir).unwrap());
        let names: Vec<String> = dir.tensors.keys().cloned().collect();
        // One expert, of those that are a tensor each, stands for all.
        for name in names.iter().filter(|n| !n.contains(".experts.") || n.contains(".experts.1.")) {
            let tensor = dir.tensors.remove(name).unwrap();
            let stack = name.replace(".experts.1.", ".experts.{}.");
            let named = [name, &stack, "embed_tokens.weight", "conv_bias"];
            check(preset, &whole, &named, load(&dir));
            dir.tensors.insert(format!("{name}_"), tensor.clone());
            check(preset, &whole, &named, load(&dir));
            dir.tensors.remove(&format!("{name}_"));
            let bias = format!("{}.bias", name.trim_end_matches(".weight").trim_end_matches(".bias"));
            if !names.contains(&bias) {
                dir.tensors.insert(bias.clone(), tensor.clone());
                dir.tensors.insert(name.clone(), tensor.clone());
                check(preset, &whole, &[&bias], load(&dir));
                dir.tensors.remove(&bias);
            }
            dir.tensors.insert(name.clone(), tensor);
        }
    }
}

#[test]
fn keys_of_other_configurations_are_refused_in_every_family() {
    for preset in directories() {
        for (key, value) in [
            ("sliding_window", json!(128)),
            ("use_sliding_window", json!(true)),
            ("final_logit_softcapping", json!(30.0)),
            ("attn_logit_softcapping", json!(50.0)),
            ("attention_bias", json!(true)),
            ("is_causal", json!(false)),
            ("hidden_act", json!("gelu")),
            ("a_key_of_tomorrow", json!(1)),
        ] {
            let mut dir = Directory::of(preset);
            if key == "sliding_window" && dir.text()["use_sliding_window"] == json!(false) {
                continue;
            }
            dir.text()[key] = value;
            let e = refusal(load(&dir));
            assert!(e.contains(&format!("config.json: key `{key}`: wanted ")), "{preset}: {e}");
        }
        let mut dir = Directory::of(preset);
        dir.text()["rope_parameters"]["factor"] = json!(4.0);
        dir.text()["rope_parameters"]["rope_type"] = json!("default");
        assert!(refusal(load(&dir)).contains("key `rope_parameters.factor`: wanted no such key"), "{preset}");
        let mut dir = Directory::of(preset);
        let whole = logits(preset, &load(&dir).unwrap());
        for (key, value) in [
            ("transformers_version", json!("6.1.0")),
            ("use_cache", json!(false)),
            ("initializer_range", json!(0.5)),
            ("attention_dropout", json!(0.1)),
            ("use_sliding_window", json!(false)),
            ("sliding_window", json!(4096)),
            ("max_window_layers", json!(28)),
            ("some_key", json!(null)),
        ] {
            dir.text()[key] = value;
        }
        assert!(logits(preset, &load(&dir).unwrap()) == whole, "{preset}");
    }
}

#[test]
fn a_head_of_its_own_is_used_though_the_configuration_ties_it() {
    for preset in ["moe", "next", "mamba2", "falcon_h1"] {
        let mut dir = Directory::of(preset);
        let whole = logits(preset, &load(&dir).unwrap());
        dir.text()["tie_word_embeddings"] = json!(true);
        let model = load(&dir).unwrap();
        assert!(model.weights.head.is_some() && logits(preset, &model) == whole, "{preset}");
        let embedding =
            dir.tensors.keys().find(|n| n.ends_with("embed_tokens.weight") || n.ends_with("embeddings.weight"));
        let copy = dir.tensors[embedding.unwrap()].clone();
        dir.tensors.insert("lm_head.weight".into(), copy);
        assert!(load(&dir).unwrap().weights.head.is_none(), "{preset}: a copy of the embedding is tied to it");
    }
}

#[test]
fn an_id_that_ends_a_text_is_one_of_the_vocabulary() {
    for preset in directories() {
        let mut dir = Directory::of(preset);
        dir.text()["eos_token_id"] = json!([2, 99_999]);
        let e = refusal(load(&dir));
        assert!(
            e.ends_with("eos_token_id`: wanted ids below 512, the rows of the embedding, got 99999"),
            "{preset}: {e}"
        );
    }
}

#[test]
fn a_family_that_is_not_read_is_named_before_its_keys() {
    let mut dir = Directory::of("next");
    for (key, value) in [
        ("model_type", json!("gpt_oss")),
        ("attention_bias", json!(true)),
        ("hidden_act", json!("gelu")),
        ("norm_topk_prob", json!(false)),
        ("quantization_config", json!({ "quant_method": "mxfp4" })),
    ] {
        dir.text()[key] = value;
    }
    let e = refusal(load(&dir));
    assert!(e.contains("key `model_type`: wanted one of ") && e.ends_with("got `gpt_oss`"), "{e}");
}

#[test]
fn files_that_are_no_models_are_called_by_their_kind() {
    let text = |value: &str| MetaValue::Str(value.into());
    let mut vocabulary = GgufParts::of("moe");
    vocabulary.tensors.clear();
    let of = |key: &str, value: &str| {
        let mut parts = GgufParts::of("moe");
        parts.set(key, text(value));
        parts
    };
    for (parts, kind) in [
        (of("general.type", "adapter"), "an adapter, "),
        (of("general.type", "imatrix"), "an importance matrix, "),
        (of("general.type", "mmproj"), "a projector of pictures, "),
        (of("general.architecture", "clip"), "a projector of pictures, "),
        (vocabulary, "a vocabulary without weights"),
    ] {
        let e = refusal(parts.load());
        assert!(e.starts_with(&format!("m.gguf: content: wanted a model, got {kind}")), "{e}");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("adapter_config.json"), "{}").unwrap();
    let e = refusal(model::load(dir.path()).map_err(|e| e.to_string()));
    assert!(e.contains(": content: wanted a model, got an adapter, "), "{e}");
}

#[test]
fn a_directory_stands_for_its_one_gguf_model_whatever_lies_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(golden_dir("moe").join(file), dir.path().join(file)).unwrap();
    }
    std::fs::write(dir.path().join("mmproj-F16.gguf"), "").unwrap();
    assert_eq!(model::find_file(dir.path()).unwrap(), dir.path(), "a projector is no model");
    let file = dir.path().join("dense.gguf");
    std::fs::copy(golden_dir("dense").join("model.gguf"), &file).unwrap();
    assert_eq!(model::find_file(dir.path()).unwrap(), file);
    assert_eq!(model::load(dir.path()).unwrap().config.architecture, "qwen35");
    let mut projector = GgufParts::of("moe");
    projector.set("general.architecture", MetaValue::Str("clip".into()));
    std::fs::write(dir.path().join("vision.gguf"), projector.bytes()).unwrap();
    assert_eq!(model::find_file(dir.path()).unwrap(), file, "what a projector says of itself counts");
}
