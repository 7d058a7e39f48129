//! Directories of few bits: what a GPU makes of each layout that files of GGUF do not have.

use super::Test;
use super::follow::follow;
use super::support::directory::{Directory, StoredTensors};
use super::support::{Random, golden_dir};
use chimere_engine::backend::cuda::Activations;
use chimere_engine::ids::TokenId;
use chimere_engine::model::Model;
use half::f16;
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

/// Tests that want a device.
pub(super) const TESTS: &[Test] =
    &[("directories_of_few_bits_follow_the_exact_path", directories_of_few_bits_follow_the_exact_path)];

const HIDDEN: usize = 256;
const VOCAB: usize = 512;
const EXPERTS: usize = 8;
const WIDTH: usize = 128;
const HEADS: usize = 4;
const DIM: usize = 64;

/// The tensors of a random model of two layers.
struct RandomTensors {
    tensors: StoredTensors,
    random: Random,
}

/// Puts a matrix of a format into a directory.
type PutMatrix = fn(&mut RandomTensors, &str, usize, usize);

impl RandomTensors {
    fn put(&mut self, name: String, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) {
        self.tensors.insert(name, (dtype, shape.to_vec(), bytes));
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.random.below(256) as u8).collect()
    }

    /// 8-bit floats of trained sizes beside a scale.
    fn e4m3(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.random.below(2) << 7 | (24 + self.random.below(48))) as u8).collect()
    }

    fn floats(&mut self, name: &str, shape: &[usize], spread: f32, mean: f32) {
        let n: usize = shape.iter().product();
        let value = |random: &mut Random| mean + spread * (random.below(2001) as f32 / 1000.0 - 1.0);
        let bytes = (0..n).flat_map(|_| value(&mut self.random).to_le_bytes()).collect();
        self.put(name.to_owned(), Dtype::F32, shape, bytes);
    }

    fn scales(&mut self, name: String, shape: &[usize], size: f32) {
        self.floats(&name, shape, size / 2.0, size);
    }

    fn of(expert: PutMatrix, mixer: PutMatrix) -> Self {
        let mut d = Self { tensors: StoredTensors::new(), random: Random(7) };
        d.floats("model.language_model.embed_tokens.weight", &[VOCAB, HIDDEN], 0.5, 0.0);
        d.floats("model.language_model.norm.weight", &[HIDDEN], 0.1, 0.0);
        mixer(&mut d, "lm_head", VOCAB, HIDDEN);
        for layer in 0..2 {
            let prefix = format!("model.language_model.layers.{layer}.");
            for norm in ["input_layernorm", "post_attention_layernorm"] {
                d.floats(&format!("{prefix}{norm}.weight"), &[HIDDEN], 0.1, 0.0);
            }
            if layer == 0 {
                d.put_gdn(&prefix, mixer)
            } else {
                d.put_attention(&prefix, mixer)
            }
            d.floats(&format!("{prefix}mlp.gate.weight"), &[EXPERTS, HIDDEN], 0.2, 0.0);
            d.floats(&format!("{prefix}mlp.shared_expert_gate.weight"), &[1, HIDDEN], 0.2, 0.0);
            let all = (0..EXPERTS).map(|e| format!("experts.{e}")).chain(["shared_expert".to_owned()]);
            for module in all {
                for (part, rows, cols) in [("gate", WIDTH, HIDDEN), ("up", WIDTH, HIDDEN), ("down", HIDDEN, WIDTH)] {
                    expert(&mut d, &format!("{prefix}mlp.{module}.{part}_proj"), rows, cols);
                }
            }
        }
        d
    }

    fn put_gdn(&mut self, prefix: &str, mixer: PutMatrix) {
        // Queries and keys of half the heads.
        let values = HEADS * DIM;
        let channels = HEADS * DIM + values;
        for (name, rows, cols) in
            [("in_proj_qkv", channels, HIDDEN), ("in_proj_z", values, HIDDEN), ("out_proj", HIDDEN, values)]
        {
            mixer(self, &format!("{prefix}linear_attn.{name}"), rows, cols);
        }
        for name in ["in_proj_a", "in_proj_b"] {
            self.floats(&format!("{prefix}linear_attn.{name}.weight"), &[HEADS, HIDDEN], 0.1, 0.0);
        }
        self.floats(&format!("{prefix}linear_attn.conv1d.weight"), &[channels, 1, 4], 0.4, 0.1);
        self.floats(&format!("{prefix}linear_attn.A_log"), &[HEADS], 0.5, 0.0);
        self.floats(&format!("{prefix}linear_attn.dt_bias"), &[HEADS], 0.5, 0.0);
        self.floats(&format!("{prefix}linear_attn.norm.weight"), &[DIM], 0.1, 1.0);
    }

    fn put_attention(&mut self, prefix: &str, mixer: PutMatrix) {
        let (q, kv) = (2 * HEADS * DIM, 2 * DIM);
        for (name, rows, cols) in
            [("q_proj", q, HIDDEN), ("k_proj", kv, HIDDEN), ("v_proj", kv, HIDDEN), ("o_proj", HIDDEN, HEADS * DIM)]
        {
            mixer(self, &format!("{prefix}self_attn.{name}"), rows, cols);
        }
        for name in ["q_norm", "k_norm"] {
            self.floats(&format!("{prefix}self_attn.{name}.weight"), &[DIM], 0.1, 0.0);
        }
    }

    fn load(&self, quantization: &Value) -> Model {
        let file = golden_dir("formats/fp8-block").join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        config["quantization_config"] = quantization.clone();
        let text = config["text_config"].as_object_mut().unwrap();
        let own = json!({
            "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": 2,
            "layer_types": ["linear_attention", "full_attention"],
            "num_attention_heads": HEADS, "num_key_value_heads": 2, "head_dim": DIM,
            "linear_num_key_heads": HEADS / 2, "linear_num_value_heads": HEADS,
            "linear_key_head_dim": DIM, "linear_value_head_dim": DIM,
            "num_experts": EXPERTS, "num_experts_per_tok": 2,
            "moe_intermediate_size": WIDTH, "shared_expert_intermediate_size": WIDTH,
        });
        text.extend(own.as_object().unwrap().clone());
        text["rope_parameters"]["mrope_section"] = json!([3, 3, 2]);
        Directory { tensors: self.tensors.clone(), config }.load("formats/tokenizer.json").unwrap()
    }
}

fn fp8_squares(d: &mut RandomTensors, module: &str, rows: usize, cols: usize) {
    let codes = d.e4m3(rows * cols);
    d.put(format!("{module}.weight"), Dtype::F8_E4M3, &[rows, cols], codes);
    d.scales(format!("{module}.weight_scale_inv"), &[rows.div_ceil(128), cols / 128], 0.05);
}

fn fp8_rows(d: &mut RandomTensors, module: &str, rows: usize, cols: usize) {
    let codes = d.e4m3(rows * cols);
    d.put(format!("{module}.weight"), Dtype::F8_E4M3, &[rows, cols], codes);
    d.scales(format!("{module}.weight_scale"), &[rows, 1], 0.05);
}

fn nvfp4(d: &mut RandomTensors, module: &str, rows: usize, cols: usize) {
    let (codes, scales) = (d.bytes(rows * cols / 2), d.bytes(rows * cols / 16));
    d.put(format!("{module}.weight_packed"), Dtype::U8, &[rows, cols / 2], codes);
    let scales = scales.into_iter().map(|s| 40 + s % 32).collect();
    d.put(format!("{module}.weight_scale"), Dtype::F8_E4M3, &[rows, cols / 16], scales);
    d.scales(format!("{module}.weight_global_scale"), &[1], 40.0);
}

fn awq(d: &mut RandomTensors, module: &str, rows: usize, cols: usize) {
    let (codes, zeros) = (d.bytes(rows * cols / 2), d.bytes(rows * cols / 256));
    d.put(format!("{module}.qweight"), Dtype::I32, &[cols, rows / 8], codes);
    d.put(format!("{module}.qzeros"), Dtype::I32, &[cols / 128, rows / 8], zeros);
    let n = rows * cols / 128;
    let scales = (0..n).flat_map(|_| f16::from_f32(0.005 + 1e-5 * d.random.below(1000) as f32).to_le_bytes()).collect();
    d.put(format!("{module}.scales"), Dtype::F16, &[cols / 128, rows], scales);
}

fn directories_of_few_bits_follow_the_exact_path() {
    let groups = |bits: u32, kind: &str, strategy: &str, size: Value| {
        let weights = json!({ "num_bits": bits, "type": kind, "strategy": strategy, "group_size": size });
        json!({ "quant_method": "compressed-tensors",
                "config_groups": { "group_0": { "targets": ["Linear"], "weights": weights } } })
    };
    let formats: [(&str, PutMatrix, Value); 4] = [
        ("fp8 in squares", fp8_squares, json!({ "quant_method": "fp8", "weight_block_size": [128, 128] })),
        ("fp8 by rows", fp8_rows, groups(8, "float", "channel", Value::Null)),
        ("nvfp4", nvfp4, groups(4, "float", "tensor_group", json!(16))),
        ("awq", awq, json!({ "quant_method": "awq", "bits": 4, "group_size": 128 })),
    ];
    let ids: Vec<TokenId> = (0..70).map(|i| (i * 37 + 11) % VOCAB as TokenId).collect();
    let mut wrong = Vec::new();
    for (name, put, quantization) in formats {
        let model = RandomTensors::of(put, put).load(&quantization);
        // Random weights leave 8 bits of activations 0.15 off on a CPU too; 16 bits would show what a kernel loses.
        for (activations, rms, agreement) in [(Activations::Int16, 5e-3, 0.99), (Activations::Int8, 0.2, 0.85)] {
            wrong.extend(follow(name, &model, activations, &ids, rms, agreement));
        }
    }
    assert_eq!(wrong, [""; 0]);
}
