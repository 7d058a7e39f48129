//! Adapters against `peft` on tiny models, and files that are refused by name.

use crate::support::{Driver, GgufParts, Golden, config, deviation, gguf, golden_dir, hugging_face, max_abs, piece};
use chimere_engine::adapter::{Adapter, ResidentAdapter};
use chimere_engine::format::gguf::MetaValue;
use chimere_engine::format::{BlockType, Tensor};
use chimere_engine::ids::{AdapterSlotId, PageId, SeqId, SlotId, TokenId};
use chimere_engine::model::{AdapterTargets, Model, read_adapter};
use chimere_engine::step::{Form, Piece};
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize_to_file};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PRESETS: [&str; 3] = ["moe", "next", "qwen3"];
/// Of the standard deviation of the logits.
const LOGITS: f32 = 2e-4;

fn adapter_dir(preset: &str) -> PathBuf {
    golden_dir("adapters").join(preset)
}

fn adapter(preset: &str, model: &Model) -> Arc<Adapter> {
    Arc::new(read_adapter(&adapter_dir(preset), preset, &AdapterTargets::of(model)).unwrap())
}

/// A piece of the sequence, slot and pages of this number.
fn piece_of(number: u32, adapter: Option<&Arc<Adapter>>, start: usize, ids: &[TokenId]) -> Piece {
    let plain = piece(if ids.len() == 1 { Form::Recurrent } else { Form::Chunked }, start, ids);
    let pages = plain.pages.iter().map(|page| PageId(page.0 + 4 * number)).collect();
    let resident =
        |adapter: &Arc<Adapter>| ResidentAdapter { adapter: adapter.clone(), slot: AdapterSlotId(0), scale: 1.0 };
    Piece { seq: SeqId(number.into()), slot: SlotId(number), pages, adapter: adapter.map(resident), ..plain }
}

/// An adapter as a test changes it.
struct Parts {
    config: Value,
    tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
}

impl Parts {
    fn of(preset: &str) -> Self {
        let dir = adapter_dir(preset);
        let bytes = std::fs::read(dir.join("adapter_model.safetensors")).unwrap();
        let all = SafeTensors::deserialize(&bytes).unwrap();
        let values = |t: &TensorView<'_>| t.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let tensors = all.iter().map(|(name, t)| (name.to_owned(), (t.shape().to_vec(), values(&t)))).collect();
        let config = serde_json::from_slice(&std::fs::read(dir.join("adapter_config.json")).unwrap()).unwrap();
        Self { config, tensors }
    }

    fn write(&self, dir: &Path) {
        std::fs::write(dir.join("adapter_config.json"), self.config.to_string()).unwrap();
        let bytes = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let all: Vec<_> = self.tensors.iter().map(|(name, (shape, x))| (name, shape, bytes(x))).collect();
        let view = |shape: &Vec<usize>, bytes| TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap();
        let views = all.iter().map(|(name, shape, bytes)| (name.as_str(), view(shape, bytes)));
        serialize_to_file(views, None, &dir.join("adapter_model.safetensors")).unwrap();
    }

    fn read(&self, model: &Model) -> Result<Adapter, String> {
        let dir = tempfile::tempdir().unwrap();
        self.write(dir.path());
        read_adapter(dir.path(), "a", &AdapterTargets::of(model)).map_err(|e| e.to_string())
    }

    /// Names of the tensors with this in them.
    fn named(&self, part: &str) -> Vec<String> {
        self.tensors.keys().filter(|name| name.contains(part)).cloned().collect()
    }

    fn rename(mut self, from: &str, to: &str) -> Self {
        self.tensors = self.tensors.into_iter().map(|(name, t)| (name.replace(from, to), t)).collect();
        self
    }
}

/// Logits of a prompt's last rows with an adapter, in `--exact`.
fn exact_logits(model: &Model, adapter: Option<&Arc<Adapter>>, ids: &[TokenId], rows: usize) -> Vec<f32> {
    let mut driver = Driver::recording(model, &config(true, 2));
    driver.step(vec![piece_of(0, adapter, 0, ids)]);
    let all = driver.backend.recording().logits.clone();
    all[all.len() - rows * model.config.vocab..].to_vec()
}

#[test]
fn adapters_of_peft_give_its_logits_on_models_of_both_formats() {
    for preset in PRESETS {
        let golden = Golden::read(&adapter_dir(preset).join("golden.safetensors"));
        let (ids, (shape, want)) = (golden.ids("input_ids"), golden.array("logits"));
        for model in [gguf(preset), hugging_face(preset)] {
            let got = exact_logits(&model, Some(&adapter(preset, &model)), &ids, shape[0]);
            let error = max_abs(&got, &want) / deviation(&want);
            assert!(error < LOGITS, "{preset}: logits off by {error:e} of their deviation");
            let plain = exact_logits(&model, None, &ids, shape[0]);
            assert!(max_abs(&plain, &want) > 0.1 * deviation(&want), "{preset}: the adapter changes nothing");
        }
    }
}

#[test]
fn names_with_other_beginnings_mean_the_same_modules() {
    let (model, parts) = (gguf("moe"), Parts::of("moe"));
    let plain = parts.read(&model).unwrap();
    for (from, to) in [
        ("base_model.model.model.", "base_model.model.model.language_model."),
        ("base_model.model.model.", "base_model.model.language_model.model."),
        ("base_model.model.model.", "model."),
        ("base_model.model.model.", ""),
        (".weight", ".default.weight"),
    ] {
        let other = Parts::of("moe").rename(from, to).read(&model).unwrap();
        assert_eq!((other.matrices(), other.rank_max(), other.bytes()), (31, 6, plain.bytes()), "{to}");
    }
}

/// Value heads of the preset `moe` in the order of a GGUF file, of `width` rows each behind `start`.
fn tiled(start: usize, width: usize) -> Vec<usize> {
    let heads = [0, 2, 1, 3].into_iter().flat_map(|head| head * width..(head + 1) * width);
    (0..start).chain(heads.map(|row| start + row)).collect()
}

/// The adapter of the preset `moe` as a converter writes it.
fn as_gguf(parts: &Parts) -> GgufParts {
    let mut file = GgufParts { keys: Vec::new(), tensors: Vec::new() };
    for (key, word) in [("general.type", "adapter"), ("adapter.type", "lora"), ("general.architecture", "qwen35moe")] {
        file.set(key, MetaValue::Str(word.into()));
    }
    file.set("adapter.lora.alpha", MetaValue::F32(8.0));
    let names = [
        ("linear_attn.in_proj_qkv", "attn_qkv"),
        ("linear_attn.in_proj_z", "attn_gate"),
        ("linear_attn.in_proj_b", "ssm_beta"),
        ("linear_attn.in_proj_a", "ssm_alpha"),
        ("linear_attn.out_proj", "ssm_out"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
        ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
        ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
    ];
    for (name, (shape, values)) in &parts.tensors {
        let (layer, rest) = name.split_once("layers.").unwrap().1.split_once('.').unwrap();
        let (theirs, ours) = names.iter().find(|(theirs, _)| rest.starts_with(theirs)).unwrap();
        let is_a = rest.contains("lora_A");
        let order = match (*ours, is_a) {
            ("attn_qkv", false) => tiled(512, 128),
            ("attn_gate", false) | ("ssm_out", true) => tiled(0, 128),
            ("ssm_beta" | "ssm_alpha", false) => tiled(0, 1),
            _ => Vec::new(),
        };
        let value = |row: usize, col: usize| values[row * shape[1] + col];
        let moved = |row: usize, col: usize| match (order.is_empty(), is_a) {
            (true, _) => value(row, col),
            (false, true) => value(row, order[col]),
            (false, false) => value(order[row], col),
        };
        let bytes = (0..shape[0]).flat_map(|row| (0..shape[1]).flat_map(move |col| [(row, col)]));
        let bytes = bytes.flat_map(|(row, col)| moved(row, col).to_le_bytes()).collect();
        let name = format!("blk.{layer}.{ours}.weight.lora_{}", if is_a { "a" } else { "b" });
        let tensor = Tensor::owned(name.clone(), BlockType::F32, shape.clone(), bytes).unwrap();
        file.tensors.push((name, tensor));
        assert!(rest.starts_with(theirs));
    }
    file
}

#[test]
fn gguf_adapters_give_the_logits_of_the_directory_that_they_were_made_of() {
    let dir = tempfile::tempdir().unwrap();
    let mut parts = Parts::of("moe");
    // A GGUF file has one factor for all matrices.
    parts.config["alpha_pattern"] = json!({});
    parts.config["rank_pattern"] = json!({});
    parts.tensors.retain(|name, _| !name.contains("q_proj") && !name.contains("layers.1.linear_attn.out_proj"));
    parts.write(dir.path());
    let path = dir.path().join("adapter.gguf");
    std::fs::write(&path, as_gguf(&parts).bytes()).unwrap();
    let ids = Golden::of("moe").ids("input_ids");
    for model in [gguf("moe"), hugging_face("moe")] {
        let logits = |path: &Path| {
            let adapter = Arc::new(read_adapter(path, "a", &AdapterTargets::of(&model)).unwrap());
            exact_logits(&model, Some(&adapter), &ids, 8)
        };
        assert_eq!(logits(&path), logits(dir.path()));
    }
}

#[test]
fn rows_with_and_without_an_adapter_have_the_bytes_that_they_have_alone() {
    for preset in PRESETS {
        let (model, ids) = (gguf(preset), Golden::of(preset).ids("input_ids"));
        let (first, second) = (adapter(preset, &model), adapter(preset, &model));
        let (vocab, middle) = (model.config.vocab, ids.len() / 2);
        let parts = [(0, &ids[..middle]), (middle, &ids[middle..=middle])];
        for exact in [true, false] {
            let alone = |adapter: Option<&Arc<Adapter>>, threads| {
                let mut driver = Driver::recording(&model, &config(exact, threads));
                let mut logits = Vec::new();
                for (start, part) in parts {
                    driver.step(vec![piece_of(0, adapter, start, part)]);
                    logits.extend(driver.backend.recording().logits.clone());
                }
                logits
            };
            let (base, changed) = (alone(None, 1), alone(Some(&first), 1));
            assert_ne!(base, changed, "{preset}");
            assert_eq!(alone(Some(&second), 3), changed, "{preset}, by three threads");
            let mut driver = Driver::recording(&model, &config(exact, 2));
            let both = [Some(&first), None];
            for (start, part) in parts {
                let pieces = both.iter().zip(0..).map(|(adapter, n)| piece_of(n, *adapter, start, part)).collect();
                driver.step(pieces);
                let got = driver.backend.recording().logits.clone();
                let (a, b) = got.split_at(got.len() / 2);
                let part = start * vocab..start * vocab + a.len();
                assert!(a == &changed[part.clone()] && b == &base[part], "{preset} from {start}, exact {exact}");
            }
        }
    }
}

/// How a test changes an adapter.
type Change<'a> = &'a dyn Fn(&mut Parts);

/// Checks that an adapter that was changed is refused with these words.
fn refusals(model: &Model) -> impl Fn(Change<'_>, &[&str]) {
    |change, said| {
        let mut parts = Parts::of("moe");
        change(&mut parts);
        let error = parts.read(model).map(|_| ()).unwrap_err();
        said.iter().for_each(|word| assert!(error.contains(word), "{error:?} does not say {word:?}"));
    }
}

#[test]
fn what_is_not_supported_is_refused_by_its_name() {
    let model = gguf("moe");
    let refused = refusals(&model);
    for (key, value) in [
        ("use_dora", json!(true)),
        ("use_qalora", json!(true)),
        ("lora_bias", json!(true)),
        ("fan_in_fan_out", json!(true)),
        ("bias", json!("all")),
        ("peft_type", json!("LOHA")),
        ("task_type", json!("SEQ_CLS")),
        ("modules_to_save", json!(["lm_head"])),
        ("layer_replication", json!([[0, 2]])),
        ("trainable_token_indices", json!([1])),
        ("target_parameters", json!(["mlp.experts.gate_up_proj"])),
        ("alora_invocation_tokens", json!([1, 2])),
        ("kasa_config", json!({"a": 1})),
        ("something_new", json!(3)),
        ("r", json!("four")),
        ("r", json!(5)),
        ("r", Value::Null),
        ("lora_alpha", Value::Null),
        ("rank_pattern", json!({"q_proj": 0})),
        ("rank_pattern", json!({"(q_proj": 6})),
        ("rank_pattern", json!([1])),
        ("rank_pattern", (0..1025).map(|i| (format!("m{i}"), json!(6))).collect::<serde_json::Map<_, _>>().into()),
        ("alpha_pattern", json!({"q_proj": "2"})),
    ] {
        let name = if (key, &value) == ("r", &json!(5)) { "rank 5" } else { key };
        refused(&|parts| parts.config[key] = value.clone(), &[name]);
    }
}

#[test]
fn modules_and_halves_that_do_not_fit_are_refused_by_their_name() {
    let model = gguf("moe");
    let refused = refusals(&model);
    let other = |from: &'static str, to: &'static str, said: &'static str| {
        refused(&|parts| *parts = std::mem::replace(parts, Parts::of("next")).rename(from, to), &[said]);
    };
    other("layers.3.", "layers.4.", "layer 4");
    other("model.layers.3.", "model.embed_tokens.", "embed_tokens");
    other("k_proj", "qkv_proj", "`self_attn.qkv_proj`");
    other("in_proj_qkv.", "in_proj_qkvz.", "in_proj_qkvz");
    other("shared_expert.up_proj", "experts.3.up_proj", "routed experts");
    other("shared_expert.up_proj", "gate", "router");
    other("q_proj.lora_A.weight", "q_proj.lora_magnitude_vector", "DoRA");
    other("q_proj.lora_A.weight", "q_proj.modules_to_save.weight", "replaces the model's own");
    other("q_proj.lora_A.weight", "q_proj.lora_C.weight", "lora_C");
    let first = Parts::of("moe").named("lora_A");
    for name in &first {
        let b = name.replace("lora_A", "lora_B");
        refused(&|parts| _ = parts.tensors.remove(name), &[&b, "one of the two"]);
        refused(&|parts| _ = parts.tensors.remove(&b), &[name, "one of the two"]);
        for half in [name, &b] {
            let fewer = |parts: &mut Parts| {
                let (shape, values) = parts.tensors.get_mut(half).unwrap();
                let kept = (shape[0] - 1) * shape[1];
                shape[0] -= 1;
                values.truncate(kept);
            };
            refused(&fewer, &[half]);
            refused(&|parts| parts.tensors.get_mut(half).unwrap().1[3] = f32::NAN, &[half, "finite"]);
            refused(&|parts| parts.tensors.get_mut(half).unwrap().0.insert(0, 1), &[half, "a matrix"]);
        }
    }
    refused(&|parts| parts.tensors.clear(), &["a matrix that it changes"]);
    let zeros = |parts: &mut Parts| {
        parts.tensors.iter_mut().filter(|(name, _)| name.contains("lora_B")).for_each(|(_, (_, x))| x.fill(0.0));
    };
    refused(&zeros, &["zeros in all of lora_B"]);
    assert!(8 * first.len() + 11 > 200, "many files were tried");
}

#[test]
fn files_that_are_cut_short_are_refused_by_their_name() {
    let targets = AdapterTargets::of(&gguf("moe"));
    for name in ["adapter_model.safetensors", "adapter_config.json"] {
        let whole = std::fs::read(adapter_dir("moe").join(name)).unwrap();
        for part in 0..24 {
            let dir = tempfile::tempdir().unwrap();
            Parts::of("moe").write(dir.path());
            std::fs::write(dir.path().join(name), &whole[..whole.len() * part / 24]).unwrap();
            let error = read_adapter(dir.path(), "a", &targets).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(name), "{part} of 24 parts: {error:?} does not say {name:?}");
        }
    }
}

#[test]
fn pickles_and_adapters_of_other_models_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    Parts::of("moe").write(dir.path());
    let error = |dir: &Path, preset: &str| {
        read_adapter(dir, "a", &AdapterTargets::of(&gguf(preset))).map(|_| ()).unwrap_err().to_string()
    };
    // The two presets have matrices of equal sizes; their rows lie otherwise.
    assert!(error(&adapter_dir("next"), "moe").contains("in_proj_ba"));
    assert!(error(dir.path(), "mamba2").contains("mamba2"));
    assert!(error(dir.path(), "qwen3").contains("in_proj_a"));
    std::fs::rename(dir.path().join("adapter_model.safetensors"), dir.path().join("adapter_model.bin")).unwrap();
    assert!(error(dir.path(), "moe").contains("a pickle"));
    let file = golden_dir("moe").join("model.gguf");
    assert!(error(&file, "moe").contains("general.type"));
}

#[test]
fn gguf_adapters_with_other_keys_or_halves_are_refused() {
    let model = gguf("moe");
    let mut parts = Parts::of("moe");
    parts.tensors.retain(|name, _| name.contains("k_proj"));
    let refused = |change: &dyn Fn(&mut GgufParts), said: &str| {
        let (dir, mut file) = (tempfile::tempdir().unwrap(), as_gguf(&parts));
        change(&mut file);
        let path = dir.path().join("a.gguf");
        std::fs::write(&path, file.bytes()).unwrap();
        let error = read_adapter(&path, "a", &AdapterTargets::of(&model)).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(said), "{error:?} does not say {said:?}");
    };
    refused(&|file| file.set("adapter.type", MetaValue::Str("loha".into())), "`loha`");
    refused(&|file| file.set("general.architecture", MetaValue::Str("qwen35".into())), "`qwen35`");
    refused(&|file| file.set("adapter.alora.invocation_tokens", MetaValue::U32s(vec![1])), "invocation_tokens");
    refused(&|file| file.keys.retain(|(key, _)| key != "adapter.lora.alpha"), "adapter.lora.alpha");
    refused(&|file| file.set("adapter.lora.alpha", MetaValue::F32(f32::INFINITY)), "a finite alpha");
    refused(&|file| _ = file.tensors.remove(0), "no pair");
    refused(&|file| _ = file.tensors.remove(1), "no pair");
    refused(&|file| file.tensors[0].0 = "blk.3.attn_k.weight".into(), "attn_k.weight");
}
