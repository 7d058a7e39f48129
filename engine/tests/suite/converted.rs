//! A Hugging Face directory, laid out as a GGUF file: against the files of the presets that have both, which a
//! converter wrote, byte by byte.

use crate::support::{Driver, Golden, config, gguf, golden_dir, max_abs};
use chimere_engine::format::blocks::decode_row;
use chimere_engine::format::{BlockType, Gguf, HfDir, Tensor};
use chimere_engine::model::{self, as_gguf, load_gguf};
use chimere_engine::quantize::{self, Importance, Output, Threads, fitting, groups};
use chimere_engine::step::Form;
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The file that a converter wrote of a preset.
fn written(preset: &str) -> Gguf {
    Gguf::open(&golden_dir(preset).join("model.gguf")).unwrap()
}

/// The preset's directory as a file, with the tokenizer of the preset's own file.
fn converted(preset: &str) -> Gguf {
    as_gguf(HfDir::open(&golden_dir(preset)).unwrap(), &gguf(preset).text).unwrap().0
}

/// Names, order, types, shapes and bytes. The exponential may differ in the last place between libraries.
fn check_tensors(got: &Gguf, want: &Gguf) {
    let names = |file: &Gguf| file.tensors_in_order().map(|t| t.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(got), names(want));
    for (got, want) in got.tensors_in_order().zip(want.tensors_in_order()) {
        assert_eq!((got.ty, &got.shape), (want.ty, &want.shape), "{}", got.name);
        let near = |(a, b): (f32, f32)| (a - b).abs() <= 2.0 * f32::EPSILON * b.abs();
        let same = got.bytes() == want.bytes();
        assert!(
            same || got.name.ends_with("ssm_a") && got.decode().into_iter().zip(want.decode()).all(near),
            "{}",
            got.name
        );
    }
}

#[test]
fn directories_become_the_files_that_converters_write() {
    for preset in ["moe", "next"] {
        let (got, want) = (converted(preset), written(preset));
        check_tensors(&got, &want);
        let keys =
            |file: &Gguf| file.meta().encoded().map(|(k, v)| (k.to_owned(), v.to_vec())).collect::<HashMap<_, _>>();
        let (got, want) = (keys(&got), keys(&want));
        for (key, value) in &want {
            // The directory has no name of its own.
            assert!(key == "general.name" || got.get(key) == Some(value), "{preset}: {key}");
        }
        assert_eq!(got.keys().filter(|key| !want.contains_key(*key)).collect::<Vec<_>>(), [""; 0], "{preset}");
    }
}

/// Both sources written with all matrices in this type. The logits are the same bit for bit but for exponentials, which
/// libraries round differently.
fn quantized_alike(preset: &str, ty: BlockType) {
    let dir = tempfile::tempdir().unwrap();
    let importance = Importance::default();
    let ids = Golden::of(preset).ids("input_ids");
    let logits = |name: &str, source: &Gguf| {
        let main = load_gguf(source).unwrap().config.layers.len();
        let groups = groups(source, main);
        let all = groups.iter().flat_map(|g| &g.tensors);
        let types = all.map(|n| (n.clone(), fitting(ty, source.tensor(n).unwrap().cols()).unwrap())).collect();
        let (dropped, keys, dropped_keys) = (vec![], vec![], vec![]);
        let output = Output { source, types, dropped, keys, dropped_keys, importance: &importance, encoder: &Threads };
        let path = dir.path().join(name);
        quantize::write(&path, &output, |_, _| ()).unwrap();
        let model = model::load(&path).unwrap();
        assert!(model.weights.draft_head.is_some(), "the draft head is in it");
        Driver::recording(&model, &config(true, 2)).run(Form::Chunked, 0, &ids).logits.clone()
    };
    let (directory, file) = (converted(preset), written(preset));
    let decays = directory.tensors().filter(|t| t.name.ends_with("ssm_a")).cloned().collect::<Vec<_>>();
    let (got, want) = (logits("a.gguf", &directory), logits("b.gguf", &file));
    let error = max_abs(&got, &want);
    assert!(error < 1e-4, "{preset} {}: off by {error:e}", ty.name());
    let same = logits("c.gguf", &file.with(decays));
    assert!(got.iter().zip(&same).all(|(a, b)| a.to_bits() == b.to_bits()), "{preset} {}", ty.name());
}

#[test]
fn quantising_a_directory_gives_the_answers_of_quantising_its_file() {
    quantized_alike("moe", BlockType::Q8_0);
    quantized_alike("next", BlockType::Q4K);
}

/// Encoding, shape and bytes by name.
type Tensors = HashMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

fn bf16(shape: &[usize], values: impl IntoIterator<Item = f32>) -> (Dtype, Vec<usize>, Vec<u8>) {
    (Dtype::BF16, shape.to_vec(), values.into_iter().flat_map(|x| half::bf16::from_f32(x).to_le_bytes()).collect())
}

/// A directory to be.
struct Export {
    config: Value,
    tensors: Tensors,
    dir: tempfile::TempDir,
}

impl Export {
    /// That of a preset, all in bf16.
    fn of(preset: &str) -> Self {
        let dir = HfDir::open(&golden_dir(preset)).unwrap();
        let text = std::fs::read(golden_dir(preset).join("config.json")).unwrap();
        let rounded = |t: Tensor| bf16(&t.shape, t.decode());
        let tensors = dir.tensor_names().map(|n| (n.to_owned(), rounded(dir.tensor(n).unwrap().unwrap()))).collect();
        Self { config: serde_json::from_slice(&text).unwrap(), tensors, dir: tempfile::tempdir().unwrap() }
    }

    fn write(&self) -> HfDir {
        std::fs::write(self.dir.path().join("config.json"), self.config.to_string()).unwrap();
        let views = self.tensors.iter().map(|(n, (d, s, b))| (n, TensorView::new(*d, s.clone(), b).unwrap()));
        std::fs::write(self.dir.path().join("model.safetensors"), serialize(views, None).unwrap()).unwrap();
        HfDir::open(self.dir.path()).unwrap()
    }

    /// The error's text, without the directory.
    fn refusal(&self) -> String {
        let error = as_gguf(self.write(), &gguf("moe").text).map(|(_, model)| model.config.name).unwrap_err();
        let dir = self.dir.path().display();
        error.to_string().replace(&format!("{dir}/"), "").replace(&dir.to_string(), "DIR")
    }
}

#[test]
fn tensors_that_nobody_knows_and_parts_that_are_missing_are_named() {
    let mut export = Export::of("moe");
    export.tensors.insert("model.visual.patch_embed.weight".into(), bf16(&[1], [0.0]));
    assert!(as_gguf(export.write(), &gguf("moe").text).is_ok(), "a vision tower is left out");
    export.tensors.insert("model.language_model.layers.0.mlp.extra.weight".into(), bf16(&[1], [0.0]));
    assert_eq!(
        export.refusal(),
        "DIR: tensor `model.language_model.layers.0.mlp.extra.weight`: wanted no such tensor: it is not known in this \
         family, got one"
    );
    let mut export = Export::of("moe");
    export.tensors.remove("mtp.norm.weight");
    assert_eq!(export.refusal(), "DIR: tensor `mtp.norm.weight`: wanted shape [32], got no such tensor");
    let mut export = Export::of("moe");
    export.tensors.get_mut("model.language_model.layers.1.linear_attn.dt_bias").unwrap().1 = vec![2, 2];
    assert!(export.refusal().ends_with("linear_attn.dt_bias`: wanted shape [4], got shape [2, 2]"));
    let mut export = Export::of("moe");
    export.config["text_config"]["rope_parameters"]["mrope_section"] = json!([11, 0.5]);
    assert!(export.refusal().contains("mrope_section`: wanted at most 4 whole numbers up to 4096, got [11.0, 0.5]"));
    let other = Export::of("mamba2").refusal();
    assert!(
        other.contains("wanted one of qwen3_5_moe, ") && other.ends_with("written as GGUF, got `mamba2`"),
        "{other}"
    );
}

#[test]
fn eight_bit_floats_become_what_they_stand_for() {
    let mut export = Export::of("moe");
    let name = "model.language_model.layers.0.mlp.shared_expert.up_proj.weight";
    export.tensors.insert(name.into(), (Dtype::F8_E4M3, vec![32, 32], vec![0x38; 1024]));
    export.config["quantization_config"] = json!({ "quant_method": "fp8" });
    assert!(export.refusal().contains("up_proj.weight_scale_inv`: wanted the scales of an F8_E4M3 tensor"));
    export.tensors.insert(format!("{name}_scale_inv"), bf16(&[1, 1], [0.5]));
    let (file, _) = as_gguf(export.write(), &gguf("moe").text).unwrap();
    let made = file.tensor("blk.0.ffn_up_shexp.weight").unwrap();
    assert!(made.ty == BlockType::F32 && made.decode() == [0.5; 1024]);
}

/// Without a draft head the file has none, and tied to the embedding no head.
#[test]
fn what_a_directory_lacks_its_file_lacks_too() {
    let mut export = Export::of("moe");
    export.tensors.retain(|name, _| !name.starts_with("mtp."));
    export.config["tie_word_embeddings"] = json!(true);
    export.config["text_config"]["tie_word_embeddings"] = json!(true);
    let own = as_gguf(export.write(), &gguf("moe").text).unwrap().1;
    assert!(own.weights.head.is_some(), "a head that differs from the embedding unties it");
    export.tensors.remove("lm_head.weight");
    let (file, model) = as_gguf(export.write(), &gguf("moe").text).unwrap();
    assert!(model.weights.draft_head.is_none() && model.weights.head.is_none());
    assert_eq!(file.meta().u64("qwen35moe.block_count").unwrap(), Some(4));
    assert_eq!(file.meta().u64("qwen35moe.nextn_predict_layers").unwrap(), None);
}

/// The dense preset has no directory: one is made of its file by what the release says of its order of heads, three
/// value heads to a key head, so that the order and its inverse are not the same.
#[test]
fn dense_models_and_heads_in_threes_find_their_places() {
    let file = written("dense");
    let export = Export { config: dense_config(), tensors: dense_tensors(&file), dir: tempfile::tempdir().unwrap() };
    let (got, _) = as_gguf(export.write(), &gguf("dense").text).unwrap();
    let names = |file: &Gguf| file.tensors_in_order().map(|t| t.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&got), names(&file));
    for (got, want) in got.tensors_in_order().zip(file.tensors_in_order()) {
        assert_eq!((got.ty, &got.shape), (want.ty, &want.shape), "{}", got.name);
        // Values that the directory has rounded to bf16 on the way.
        let near = |(a, b): (f32, f32)| (a - b).abs() <= 0.02 * b.abs() + 1e-3;
        assert!(got.decode().into_iter().zip(want.decode()).all(near), "{}", got.name);
    }
}

const DENSE_KEY_HEADS: usize = 2;
const DENSE_VALUE_HEADS: usize = 6;

fn dense_config() -> Value {
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(golden_dir("moe").join("config.json")).unwrap()).unwrap();
    config["model_type"] = json!("qwen3_5");
    let text = &mut config["text_config"];
    text["model_type"] = json!("qwen3_5_text");
    text["linear_num_value_heads"] = json!(DENSE_VALUE_HEADS);
    text["intermediate_size"] = json!(96);
    config
}

/// Row `r` of grouped heads of `width` rows is this row of tiled ones.
fn tiled(r: usize, width: usize) -> usize {
    let (head, row) = (r / width, r % width);
    let each = DENSE_VALUE_HEADS / DENSE_KEY_HEADS;
    // Head `head` is number `head % each` of key head `head / each`.
    ((head % each) * DENSE_KEY_HEADS + head / each) * width + row
}

fn dense_tensors(file: &Gguf) -> Tensors {
    const NAMES: [(&str, &str); 20] = [
        ("attn_norm.weight", "input_layernorm.weight"),
        ("post_attention_norm.weight", "post_attention_layernorm.weight"),
        ("attn_qkv.weight", "linear_attn.in_proj_qkv.weight"),
        ("attn_gate.weight", "linear_attn.in_proj_z.weight"),
        ("ssm_beta.weight", "linear_attn.in_proj_b.weight"),
        ("ssm_alpha.weight", "linear_attn.in_proj_a.weight"),
        ("ssm_conv1d.weight", "linear_attn.conv1d.weight"),
        ("ssm_a", "linear_attn.A_log"),
        ("ssm_dt.bias", "linear_attn.dt_bias"),
        ("ssm_norm.weight", "linear_attn.norm.weight"),
        ("ssm_out.weight", "linear_attn.out_proj.weight"),
        ("attn_q.weight", "self_attn.q_proj.weight"),
        ("attn_k.weight", "self_attn.k_proj.weight"),
        ("attn_v.weight", "self_attn.v_proj.weight"),
        ("attn_output.weight", "self_attn.o_proj.weight"),
        ("attn_q_norm.weight", "self_attn.q_norm.weight"),
        ("attn_k_norm.weight", "self_attn.k_norm.weight"),
        ("ffn_gate.weight", "mlp.gate_proj.weight"),
        ("ffn_up.weight", "mlp.up_proj.weight"),
        ("ffn_down.weight", "mlp.down_proj.weight"),
    ];
    const OUTSIDE: [(&str, &str); 7] = [
        ("token_embd.weight", "model.language_model.embed_tokens.weight"),
        ("output_norm.weight", "model.language_model.norm.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.4.nextn.eh_proj.weight", "mtp.fc.weight"),
        ("blk.4.nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight"),
        ("blk.4.nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight"),
        ("blk.4.nextn.shared_head_norm.weight", "mtp.norm.weight"),
    ];
    let theirs = |name: &str| -> String {
        if let Some(found) = OUTSIDE.iter().find(|n| n.0 == name) {
            return found.1.to_owned();
        }
        let (layer, own) = name.strip_prefix("blk.").unwrap().split_once('.').unwrap();
        let own = NAMES.iter().find(|n| n.0 == own).unwrap().1;
        if layer == "4" { format!("mtp.layers.0.{own}") } else { format!("model.language_model.layers.{layer}.{own}") }
    };
    file.tensors_in_order().map(|t| (theirs(&t.name), released(t))).collect()
}

/// A tensor as the release has it: heads grouped, norms as distances from 1, logarithms of decays.
fn released(t: &Tensor) -> (Dtype, Vec<usize>, Vec<u8>) {
    const KEYS: usize = 2 * DENSE_KEY_HEADS * 128;
    let (rows, cols) = (t.shape[..t.shape.len() - 1].iter().product::<usize>(), t.cols());
    let mut x = vec![0.0; rows * cols];
    decode_row(t.ty, t.bytes(), &mut x);
    let own = t.name.rsplit_once("blk.").map_or("", |(_, rest)| rest.split_once('.').unwrap().1);
    let row = |r: usize| match own {
        "attn_qkv.weight" | "ssm_conv1d.weight" if r < KEYS => r,
        "attn_qkv.weight" | "ssm_conv1d.weight" => KEYS + tiled(r - KEYS, 128),
        "attn_gate.weight" => tiled(r, 128),
        "ssm_beta.weight" | "ssm_alpha.weight" => tiled(r, 1),
        _ => r,
    };
    let col = |c: usize| match own {
        "ssm_out.weight" => tiled(c, 128),
        "ssm_a" | "ssm_dt.bias" => tiled(c, 1),
        _ => c,
    };
    let value = |x: f32| match own {
        "ssm_a" => (-x).ln(),
        "ssm_norm.weight" => x,
        _ if t.name.ends_with("norm.weight") => x - 1.0,
        _ => x,
    };
    let grouped = (0..rows * cols).map(|i| value(x[row(i / cols) * cols + col(i % cols)]));
    let shape = if own == "ssm_conv1d.weight" { vec![rows, 1, cols] } else { t.shape.clone() };
    bf16(&shape, grouped)
}
