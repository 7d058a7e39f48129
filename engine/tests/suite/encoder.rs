//! Encoders: vectors of a tiny random BERT against those of sentence-transformers, and what of its directory is
//! refused.

use crate::support::golden_dir;
use chimere_engine::encoder::TextEncoder;
use safetensors::tensor::TensorView;
use safetensors::{SafeTensors, serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

const CONFIG: &str = "config.json";
const MODULES: &str = "modules.json";
const POOLING: &str = "1_Pooling/config.json";
const WEIGHTS: &str = "model.safetensors";

/// A copy of the golden directory, to be changed.
struct EncoderDir(tempfile::TempDir);

impl EncoderDir {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("1_Pooling")).unwrap();
        for file in [CONFIG, MODULES, POOLING, WEIGHTS, "sentence_bert_config.json"] {
            std::fs::copy(golden_dir("encoder").join(file), dir.path().join(file)).unwrap();
        }
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn json(&self, file: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.path().join(file)).unwrap()).unwrap()
    }

    fn put(&self, file: &str, json: &Value) {
        std::fs::write(self.path().join(file), json.to_string()).unwrap();
    }

    /// With another value of a key.
    fn with(self, file: &str, key: &str, value: Value) -> Self {
        let mut json = self.json(file);
        json[key] = value;
        self.put(file, &json);
        self
    }

    /// With one of the ways in which golden.json has vectors.
    fn way(self, name: &str) -> Self {
        let cls = name == "cls";
        let dir = self.with(POOLING, "pooling_mode_cls_token", json!(cls));
        let dir = dir.with(POOLING, "pooling_mode_mean_tokens", json!(!cls));
        let mut modules = dir.json(MODULES);
        if name != "unit" {
            modules.as_array_mut().unwrap().truncate(2);
        }
        dir.put(MODULES, &modules);
        dir.with(CONFIG, "hidden_act", json!(if name == "tanh" { "gelu_new" } else { "gelu" }))
    }

    /// With other names of tensors; one without a name is left out.
    fn with_tensors(self, name_of: impl Fn(&str) -> Vec<String>) -> Self {
        let bytes = std::fs::read(self.path().join(WEIGHTS)).unwrap();
        let whole = SafeTensors::deserialize(&bytes).unwrap();
        let named = |(name, tensor): (String, TensorView<'_>)| {
            let (dtype, shape, data) = (tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec());
            name_of(&name).into_iter().map(move |name| (name, (dtype, shape.clone(), data.clone())))
        };
        let all: BTreeMap<_, _> = whole.tensors().into_iter().flat_map(named).collect();
        let views = all
            .iter()
            .map(|(name, (dtype, shape, data))| (name.clone(), TensorView::new(*dtype, shape.clone(), data).unwrap()));
        std::fs::write(self.path().join(WEIGHTS), serialize(views, None).unwrap()).unwrap();
        self
    }

    fn open(&self) -> TextEncoder {
        TextEncoder::open(self.path()).unwrap()
    }

    fn refusal(&self) -> String {
        TextEncoder::open(self.path()).expect_err("a directory whose meaning has changed").to_string()
    }
}

fn golden() -> Value {
    serde_json::from_slice(&std::fs::read(golden_dir("encoder").join("golden.json")).unwrap()).unwrap()
}

fn ids(golden: &Value) -> Vec<Vec<u32>> {
    serde_json::from_value(golden["ids"].clone()).unwrap()
}

fn tensor_names() -> Vec<String> {
    let bytes = std::fs::read(golden_dir("encoder").join(WEIGHTS)).unwrap();
    SafeTensors::deserialize(&bytes).unwrap().names().into_iter().map(str::to_owned).collect()
}

#[test]
fn vectors_are_those_of_sentence_transformers_in_every_way_of_pooling() {
    let golden = golden();
    for way in ["mean", "cls", "tanh", "unit"] {
        let encoder = EncoderDir::new().way(way).open();
        let want: Vec<Vec<f32>> = serde_json::from_value(golden["ways"][way].clone()).unwrap();
        for (ids, want) in ids(&golden).iter().zip(&want) {
            let got = encoder.vector(ids);
            let error = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            // The two forms of GELU differ by 1e-4.
            assert!(got.len() == want.len() && error < 5e-6, "{way}: off by {error}");
        }
    }
}

#[test]
fn a_text_has_the_same_bytes_on_many_threads_at_once() {
    let (encoder, ids) = (EncoderDir::new().open(), ids(&golden()));
    let bits = |vector: Vec<f32>| -> Vec<u32> { vector.into_iter().map(f32::to_bits).collect() };
    let all = || -> Vec<Vec<u32>> { ids.iter().map(|ids| bits(encoder.vector(ids))).collect() };
    let want = all();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(all)).collect();
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), want));
    });
}

#[test]
fn a_directory_of_a_model_around_the_encoder_gives_the_same_vectors() {
    let ids = &ids(&golden())[1];
    let plain = EncoderDir::new();
    let around = EncoderDir::new().with_tensors(|name| match name {
        "pooler.dense.weight" => vec!["cls.predictions.transform.dense.weight".to_owned()],
        name => vec![format!("bert.{name}")],
    });
    assert_eq!(around.open().vector(ids), plain.open().vector(ids));
    let mixed = EncoderDir::new().with_tensors(|name| match name {
        "pooler.dense.weight" => vec!["cls.predictions.transform.dense.weight".to_owned()],
        name => vec![name.to_owned()],
    });
    assert!(mixed.refusal().contains("tensor `cls.predictions.transform.dense.weight`"), "{}", mixed.refusal());
}

#[test]
fn every_tensor_of_the_directory_is_used_or_named() {
    let keep = |name: &str| vec![name.to_owned()];
    for name in tensor_names().iter().filter(|name| !name.starts_with("pooler.")) {
        let less = EncoderDir::new().with_tensors(|n| if n == name { Vec::new() } else { keep(n) });
        let e = less.refusal();
        assert!(e.contains(&format!("tensor `{name}`")) && e.contains("no such tensor"), "without {name}: {e}");
        let more = format!("{name}_scale");
        let added = EncoderDir::new()
            .with_tensors(|n| if n == name { vec![keep(n)[0].clone(), more.clone()] } else { keep(n) });
        assert!(added.refusal().contains(&format!("tensor `{more}`")), "{}", added.refusal());
    }
    let renamed = EncoderDir::new().with_tensors(|n| keep(&n.replace("pooler.dense", "pooler.gate")));
    assert!(renamed.refusal().contains("tensor `pooler.gate.bias`"), "{}", renamed.refusal());
}

#[test]
fn a_key_that_changes_vectors_is_refused_by_name() {
    for (key, value) in [
        ("model_type", json!("roberta")),
        ("position_embedding_type", json!("relative_key")),
        ("is_decoder", json!(true)),
        ("add_cross_attention", json!(true)),
        ("hidden_act", json!("relu")),
        ("layer_norm_eps", json!(0.0)),
        ("num_attention_heads", json!(3)),
        ("num_attention_heads", json!(0)),
        ("intermediate_size", json!(47)),
        ("num_hidden_layers", json!(-1)),
        ("a_key_of_tomorrow", json!(1)),
        ("embedding_size", json!(32)),
    ] {
        let e = EncoderDir::new().with(CONFIG, key, value).refusal();
        assert!(e.contains(&format!("key `{key}`: wanted ")), "{e}");
    }
    for (key, value, tensor) in [
        ("vocab_size", 93, "embeddings.word_embeddings.weight"),
        ("max_position_embeddings", 41, "embeddings.position_embeddings.weight"),
        ("type_vocab_size", 3, "embeddings.token_type_embeddings.weight"),
        ("hidden_size", 64, "embeddings.word_embeddings.weight"),
        ("intermediate_size", 64, "encoder.layer.0.intermediate.dense.weight"),
        ("num_hidden_layers", 1, "encoder.layer.1.attention.output.LayerNorm.bias"),
        ("num_hidden_layers", 3, "encoder.layer.2.attention.self.query.weight"),
    ] {
        let e = EncoderDir::new().with(CONFIG, key, json!(value)).refusal();
        assert!(e.contains(&format!("tensor `{tensor}`: wanted ")), "{key} {value}: {e}");
    }
}

#[test]
fn modules_that_are_not_known_are_refused_by_name() {
    let dense = EncoderDir::new();
    let mut modules = dense.json(MODULES);
    modules[2]["type"] = json!("sentence_transformers.models.Dense");
    dense.put(MODULES, &modules);
    assert!(dense.refusal().contains("key `2.type`: wanted `Normalize`, got `Dense`"), "{}", dense.refusal());
    modules[1]["path"] = json!("../1_Pooling");
    dense.put(MODULES, &modules);
    assert!(dense.refusal().contains("key `1.path`"), "{}", dense.refusal());
    for (key, value) in [
        ("pooling_mode_max_tokens", json!(true)),
        ("pooling_mode_cls_token", json!(true)),
        ("pooling_mode_mean_tokens", json!(false)),
        ("pooling_mode", json!("lasttoken")),
        ("include_prompt", json!(false)),
    ] {
        let e = EncoderDir::new().with(POOLING, key, value).refusal();
        assert!(e.contains(key) || e.contains("pooling_mode_mean_tokens"), "{key}: {e}");
    }
}

#[test]
fn a_directory_without_modules_averages_rows_up_to_its_positions() {
    let dir = EncoderDir::new();
    for file in [MODULES, "sentence_bert_config.json"] {
        std::fs::remove_file(dir.path().join(file)).unwrap();
    }
    std::fs::remove_dir_all(dir.path().join("1_Pooling")).unwrap();
    let (encoder, mean) = (dir.open(), EncoderDir::new().way("mean").open());
    let ids = &ids(&golden())[0];
    assert_eq!(encoder.vector(ids), mean.vector(ids));
    assert_eq!((encoder.tokens_max(), mean.tokens_max(), encoder.width()), (40, 24, 32));
}
