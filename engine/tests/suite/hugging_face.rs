//! Hugging Face directories in the variations that exports come in, and broken ones.

use chimere_engine::format::{BlockType, GenerationDefaults, TextAssets};
use chimere_engine::model::*;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory in the making, from the reference model `moe`.
struct Export {
    config: Value,
    tensors: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>,
    dir: TempDir,
}

fn golden(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/moe").join(file)
}

impl Export {
    fn new() -> Self {
        let bytes = std::fs::read(golden("model.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensors =
            file.iter().map(|(n, t)| (n.to_owned(), (t.dtype(), t.shape().to_vec(), t.data().to_vec()))).collect();
        let config = serde_json::from_slice(&std::fs::read(golden("config.json")).unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::copy(golden("tokenizer.json"), dir.path().join("tokenizer.json")).unwrap();
        Self { config, tensors, dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn json(&self, file: &str, value: &Value) {
        std::fs::write(self.path().join(file), value.to_string()).unwrap();
    }

    fn file(&self, name: &str, pick: impl Fn(&str) -> bool) -> Vec<String> {
        let picked: Vec<_> = self.tensors.iter().filter(|(n, _)| pick(n)).collect();
        let views = picked.iter().map(|(n, (d, s, b))| ((*n).clone(), TensorView::new(*d, s.clone(), b).unwrap()));
        std::fs::write(self.path().join(name), serialize(views, None).unwrap()).unwrap();
        picked.into_iter().map(|(n, _)| n.clone()).collect()
    }

    fn load(&self) -> Model {
        self.try_load().unwrap_or_else(|e| panic!("{e}"))
    }

    fn try_load(&self) -> Result<Model, String> {
        self.json("config.json", &self.config);
        self.file("model.safetensors", |_| true);
        load(self.path()).map_err(|e| e.to_string())
    }

    /// The error's text, without the directory.
    fn refusal(&self) -> String {
        strip(self.path(), &self.try_load().map(|m| m.config.name).expect_err("a broken directory"))
    }

    fn text(&mut self) -> &mut Value {
        &mut self.config["text_config"]
    }

    fn rename(&mut self, from: &str, to: &str) {
        let renamed = |n: String| n.strip_prefix(from).map(|rest| format!("{to}{rest}")).unwrap_or(n);
        self.tensors = std::mem::take(&mut self.tensors).into_iter().map(|(n, t)| (renamed(n), t)).collect();
    }
}

fn strip(dir: &Path, error: &str) -> String {
    error.replace(&format!("{}/", dir.display()), "").replace(&dir.display().to_string(), "DIR")
}

/// Every byte of every weight, in a fixed order.
fn all_bytes(m: &Model) -> Vec<Vec<u8>> {
    let mut out = vec![m.weights.embed.bytes().to_vec()];
    let layers = m.weights.layers.iter().chain(m.weights.draft_head.as_ref().map(|head| &head.layer));
    for layer in layers {
        match &layer[0].op {
            Op::Gdn(g) => out.extend([&g.qkv, &g.z, &g.b, &g.a, &g.out].map(|t| t.bytes().to_vec())),
            Op::Attention(a) => out.extend([&a.q, &a.k, &a.v, &a.out].map(|t| t.bytes().to_vec())),
            other => panic!("no mixer: {other:?}"),
        }
        let Op::Moe(f) = &layer[1].op else { panic!("a mixture of experts") };
        for s in [&f.experts, &f.shared.as_ref().unwrap().expert] {
            out.extend(s.matrices().map(|t| t.bytes().to_vec()));
        }
        out.push(f.router.bytes().to_vec());
    }
    out
}

#[test]
fn shards_are_put_together_by_their_index() {
    let export = Export::new();
    let whole = all_bytes(&export.load());
    std::fs::remove_file(export.path().join("model.safetensors")).unwrap();
    let mut map = serde_json::Map::new();
    for (name, part) in [("a.safetensors", 0), ("b.safetensors", 1)] {
        let tensors = export.file(name, |n| usize::from(n.len() % 3 == 0) == part);
        map.extend(tensors.into_iter().map(|t| (t, json!(name))));
    }
    export.json("model.safetensors.index.json", &json!({ "weight_map": map }));
    assert!(all_bytes(&load(export.path()).unwrap()) == whole);

    let refusal = || strip(export.path(), &load(export.path()).map(|m| m.config.name).unwrap_err().to_string());
    let mut wrong = map.clone();
    wrong.insert("model.ghost".into(), json!("b.safetensors"));
    export.json("model.safetensors.index.json", &json!({ "weight_map": wrong }));
    assert_eq!(
        refusal(),
        "model.safetensors.index.json: tensor `model.ghost`: wanted to be in the file that the index names, got no such tensor"
    );
    wrong["model.ghost"] = json!("../b.safetensors");
    export.json("model.safetensors.index.json", &json!({ "weight_map": wrong }));
    assert_eq!(
        refusal(),
        "model.safetensors.index.json: key `model.ghost`: wanted the name of a file in this directory, got \"../b.safetensors\""
    );
    export.json("model.safetensors.index.json", &json!({ "weight_map": map }));
    std::fs::remove_file(export.path().join("b.safetensors")).unwrap();
    assert!(refusal().starts_with("b.safetensors: No such file"), "{}", refusal());
}

#[test]
fn text_only_exports_with_a_flat_config_and_short_names_are_the_same_model() {
    let mut export = Export::new();
    let whole = all_bytes(&export.load());
    export.rename("model.language_model.", "model.");
    export.rename("mtp.", "model.mtp.");
    export.config = export.config["text_config"].clone();
    let model = export.load();
    assert!(model.weights.draft_head.is_some());
    assert!(all_bytes(&model) == whole);
}

#[test]
fn experts_may_be_one_tensor_each() {
    let mut export = Export::new();
    let whole = all_bytes(&export.load());
    let fused: Vec<String> = export.tensors.keys().filter(|n| n.contains(".experts.")).cloned().collect();
    for name in fused {
        let (dtype, shape, bytes) = export.tensors.remove(&name).unwrap();
        let stem = name.rsplit_once('.').unwrap().0;
        for (e, matrix) in bytes.chunks(bytes.len() / shape[0]).enumerate() {
            let mut put = |part: &str, rows: usize, b: &[u8]| {
                export
                    .tensors
                    .insert(format!("{stem}.{e}.{part}_proj.weight"), (dtype, vec![rows, shape[2]], b.to_vec()));
            };
            if name.ends_with("gate_up_proj") {
                let (gate, up) = matrix.split_at(matrix.len() / 2);
                put("gate", shape[1] / 2, gate);
                put("up", shape[1] / 2, up);
            } else {
                put("down", shape[1], matrix);
            }
        }
    }
    assert!(all_bytes(&export.load()) == whole);
    export.tensors.remove("model.language_model.layers.2.mlp.experts.7.up_proj.weight");
    assert_eq!(
        export.refusal(),
        "DIR: tensor `model.language_model.layers.2.mlp.experts.7.up_proj.weight`: wanted shape [32, 32], got no such tensor"
    );
}

#[test]
fn eight_bit_floats_in_squares_that_are_cut_short_become_f32_with_their_scales() {
    let mut export = Export::new();
    let name = "model.language_model.layers.3.self_attn.q_proj.weight";
    let (rows, cols) = (2048, 32);
    // Rows of 1.0 and -0.5 in turn; one scale for each 128 rows.
    let bytes: Vec<u8> = (0..rows).flat_map(|r| vec![if r % 2 == 0 { 0x38 } else { 0xb0 }; cols]).collect();
    export.tensors.insert(name.to_owned(), (Dtype::F8_E4M3, vec![rows, cols], bytes));
    assert_eq!(
        export.refusal(),
        format!("DIR: tensor `{name}_scale_inv`: wanted the scales of an F8_E4M3 tensor, got no such tensor")
    );
    let scales: Vec<u8> = (0..16).flat_map(|i| (i as f32 + 1.0).to_le_bytes()).collect();
    let scale = |shape: &[usize]| (Dtype::F32, shape.to_vec(), scales.clone());
    export.tensors.insert(format!("{name}_scale_inv"), scale(&[8, 2]));
    assert_eq!(export.refusal(), format!("DIR: tensor `{name}_scale_inv`: wanted shape [16, 1], got shape [8, 2]"));
    export.tensors.insert(format!("{name}_scale_inv"), scale(&[16, 1]));
    export.config["quantization_config"] = json!({ "quant_method": "fp8", "weight_block_size": [128, 128] });
    let model = export.load();
    let Op::Attention(a) = &model.weights.layers[3][0].op else { panic!("attention") };
    let q = a.q.decode();
    assert_eq!(a.q.ty, BlockType::F32);
    for (row, want) in [(0, 1.0), (1, -0.5), (128, 2.0), (2047, -8.0)] {
        assert_eq!(q[row * cols..(row + 1) * cols], [want; 32], "row {row}");
    }
}

#[test]
fn eight_bit_floats_in_whole_squares_keep_their_bytes() {
    let mut export = Export::new();
    let name = "model.language_model.layers.3.self_attn.o_proj.weight";
    let (rows, cols) = (32, 1024);
    let bytes = (0..rows * cols).map(|i| if i % 3 == 0 { 0xbe } else { 0x01 }).collect();
    export.tensors.insert(name.to_owned(), (Dtype::F8_E4M3, vec![rows, cols], bytes));
    let scales = (0..8).flat_map(|i| (i as f32 + 1.0).to_le_bytes()).collect();
    export.tensors.insert(format!("{name}_scale_inv"), (Dtype::F32, vec![1, 8], scales));
    let model = export.load();
    let Op::Attention(a) = &model.weights.layers[3][0].op else { panic!("attention") };
    assert_eq!(a.out.ty, BlockType::F8E4m3B128);
    for (i, got) in a.out.decode().into_iter().enumerate() {
        let value = if i % 3 == 0 { -1.75 } else { 1.0 / 512.0 };
        assert_eq!(got, value * (i % cols / 128 + 1) as f32, "value {i}");
    }
}

#[test]
fn vision_tensors_are_left_out_and_strange_types_only_matter_where_they_are_used() {
    let mut export = Export::new();
    let whole = all_bytes(&export.load());
    export.tensors.insert("model.visual.blocks.0.attn.qkv.weight".into(), (Dtype::I64, vec![1], vec![0; 8]));
    assert!(all_bytes(&export.load()) == whole);
    export.tensors.insert("model.language_model.norm.weight".into(), (Dtype::I64, vec![32], vec![0; 256]));
    assert_eq!(
        export.refusal(),
        "DIR: tensor `model.language_model.norm.weight`: wanted F32, F16, BF16 or a quantised matrix, got I64"
    );
}

#[test]
fn a_tied_head_is_the_embedding_and_an_untied_one_must_be_there() {
    let mut export = Export::new();
    export.tensors.remove("lm_head.weight");
    assert_eq!(export.refusal(), "DIR: tensor `lm_head.weight`: wanted shape [512, 32], got no such tensor");
    export.config["tie_word_embeddings"] = json!(true);
    export.text().as_object_mut().unwrap().remove("tie_word_embeddings");
    assert!(export.load().weights.head.is_none());
}

#[test]
fn a_missing_draft_head_is_no_error_and_a_broken_one_is_left_out() {
    let mut export = Export::new();
    export.tensors.remove("mtp.norm.weight");
    assert!(export.load().weights.draft_head.is_none());
    export.tensors.retain(|name, _| !name.starts_with("mtp."));
    assert!(export.load().weights.draft_head.is_none());
}

#[test]
fn keys_of_the_config_are_missed_and_refused_by_name() {
    let export = Export::new();
    for key in [
        "hidden_size",
        "num_hidden_layers",
        "vocab_size",
        "rms_norm_eps",
        "head_dim",
        "linear_num_value_heads",
        "num_experts_per_tok",
    ] {
        let mut export = Export::new();
        export.text().as_object_mut().unwrap().remove(key);
        assert_eq!(export.refusal(), format!("config.json: key `{key}`: wanted a value, got no such key"));
    }
    let with = |key: &str, value: Value| {
        let mut e = Export { config: export.config.clone(), ..Export::new() };
        e.text()[key] = value;
        e.refusal()
    };
    assert_eq!(
        with("hidden_size", json!("wide")),
        "config.json: key `hidden_size`: wanted a whole number of at least 0, got a string"
    );
    assert_eq!(
        with("hidden_size", json!(u64::MAX)),
        format!("config.json: key `hidden_size`: wanted 1 to 1048576, got {}", u64::MAX)
    );
    assert_eq!(
        with("num_hidden_layers", json!(5)),
        "config.json: key `layer_types`: wanted 5 entries, one a layer, got 4"
    );
    assert_eq!(
        with("layer_types", json!(["sliding"])),
        "config.json: key `layer_types`: wanted `linear_attention` or `full_attention`, got \"sliding\""
    );
    assert_eq!(
        with("num_experts_per_tok", json!(17)),
        "config.json: key `num_experts_per_tok`: wanted at most 16, the number of experts, got 17"
    );
    assert_eq!(
        with("mlp_only_layers", json!([1])),
        "config.json: key `mlp_only_layers`: wanted an empty list: experts in every layer, got a list or an object"
    );
    let mut e = Export::new();
    e.text()["rope_parameters"]["rope_type"] = json!("yarn");
    assert_eq!(
        e.refusal(),
        "config.json: key `rope_parameters.rope_type`: wanted `default`: scaled rotation is not supported, got `yarn`"
    );
    let mut e = Export::new();
    e.config["quantization_config"] = json!({ "quant_method": "hqq" });
    assert_eq!(
        e.refusal(),
        "config.json: key `quantization_config.quant_method`: wanted one of `fp8`, `modelopt`, `compressed-tensors`, \
         `awq`, `gptq`, got `hqq`"
    );
    let mut e = Export::new();
    e.text()["model_type"] = json!("llama");
    assert!(e.refusal().starts_with("config.json: key `model_type`: wanted one of qwen3_5_moe, "), "{}", e.refusal());
}

#[test]
fn shapes_that_contradict_the_config_are_told_with_both() {
    let mut export = Export::new();
    export.text()["moe_intermediate_size"] = json!(16);
    assert_eq!(
        export.refusal(),
        "DIR: tensor `model.language_model.layers.0.mlp.experts.gate_up_proj`: wanted shape [16, 32, 32], got shape [16, 64, 32]"
    );
}

#[test]
fn a_tokenizer_with_more_tokens_than_the_embedding_has_rows_is_refused() {
    let mut export = Export::new();
    export.text()["vocab_size"] = json!(300);
    let e = export.refusal();
    assert!(e.starts_with("tokenizer.json: vocabulary: wanted ids below 300, the rows of the embedding, got "), "{e}");
}

#[test]
fn a_cut_weight_file_or_an_empty_directory_is_an_error() {
    let export = Export::new();
    export.load();
    let path = export.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    for len in [0, 7, 8, 100, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..len]).unwrap();
        let e = strip(export.path(), &load(export.path()).map(|m| m.config.name).unwrap_err().to_string());
        assert!(
            e.starts_with("model.safetensors: safetensors header: wanted one that describes this file"),
            "cut to {len}: {e}"
        );
    }
    let empty = tempfile::tempdir().unwrap();
    let e = load(empty.path()).map(|m| m.config.name).unwrap_err().to_string();
    assert!(e.ends_with("config.json: No such file or directory (os error 2)"), "{e}");
}

#[test]
fn sampling_defaults_end_ids_and_templates_are_found_where_releases_put_them() {
    let export = Export::new();
    let text = || TextAssets::from_hugging_face(export.path()).unwrap();
    let names = text().end_ids;
    assert_eq!(names.len(), 2, "both end tokens by name");
    export.json(
        "generation_config.json",
        &json!({ "eos_token_id": [5, names[0]], "temperature": 0.7, "top_k": 20, "top_p": null }),
    );
    assert_eq!(text().end_ids, [5, names[0], names[1]]);
    assert_eq!(text().defaults, GenerationDefaults { temperature: Some(0.7), top_k: Some(20), ..Default::default() });
    assert_eq!(text().chat_template, None);
    export.json(
        "tokenizer_config.json",
        &json!({ "chat_template": [{ "name": "tool_use", "template": "t" }, { "name": "default", "template": "d" }] }),
    );
    assert_eq!(text().chat_template.as_deref(), Some("d"));
    assert_eq!((text().tool_template.as_deref(), text().bos_token), (Some("t"), None));
    let about = json!({ "chat_template": "c", "bos_token": "<s>", "eos_token": { "content": "</s>" } });
    export.json("tokenizer_config.json", &about);
    assert_eq!((text().bos_token.as_deref(), text().eos_token.as_deref()), (Some("<s>"), Some("</s>")));
    assert_eq!(text().tool_template, None);
    assert_eq!(text().chat_template.as_deref(), Some("c"));
    export.json("chat_template.json", &json!({ "chat_template": "j" }));
    assert_eq!(text().chat_template.as_deref(), Some("j"));
    std::fs::write(export.path().join("chat_template.jinja"), "file").unwrap();
    assert_eq!(text().chat_template.as_deref(), Some("file"));
    std::fs::create_dir(export.path().join("additional_chat_templates")).unwrap();
    std::fs::write(export.path().join("additional_chat_templates/tool_use.jinja"), "tools").unwrap();
    assert_eq!(text().tool_template.as_deref(), Some("tools"));
    export.json("generation_config.json", &json!({ "eos_token_id": "x" }));
    let e = strip(export.path(), &TextAssets::from_hugging_face(export.path()).unwrap_err().to_string());
    assert_eq!(e, "generation_config.json: key `eos_token_id`: wanted a token id or an array of them, got a string");
}
