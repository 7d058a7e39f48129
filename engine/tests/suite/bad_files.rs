//! Broken model files: an error that names what is wrong, never a panic, never an allocation by a number that a file
//! merely claims.

use chimere_engine::format::gguf::{GgufHeader, MetaValue};
use chimere_engine::format::{BlockType, Gguf};
use chimere_engine::model::{load, load_gguf};
use std::path::{Path, PathBuf};

fn golden(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file)
}

/// Opens bytes as a GGUF file and loads the model in it; gives the error's text.
fn refusal(bytes: &[u8]) -> String {
    let model = Gguf::from_bytes(bytes, Path::new("m.gguf")).and_then(|file| load_gguf(&file));
    model.map(|m| m.config.name).expect_err("a broken file").to_string()
}

/// `GGUF`, version 3, and these counts.
fn head(tensors: u64, keys: u64) -> Vec<u8> {
    [b"GGUF".as_slice(), &3u32.to_le_bytes(), &tensors.to_le_bytes(), &keys.to_le_bytes()].concat()
}

fn string(s: &str) -> Vec<u8> {
    [&(s.len() as u64).to_le_bytes(), s.as_bytes()].concat()
}

/// A tensor's entry, dimensions fastest first.
fn entry(name: &str, dims: &[u64], ty: u32, offset: u64) -> Vec<u8> {
    let dims_bytes: Vec<u8> = dims.iter().flat_map(|d| d.to_le_bytes()).collect();
    [
        string(name),
        (dims.len() as u32).to_le_bytes().to_vec(),
        dims_bytes,
        ty.to_le_bytes().to_vec(),
        offset.to_le_bytes().to_vec(),
    ]
    .concat()
}

/// A file of these entries, padded, with `data` bytes of data.
fn file_of(entries: &[Vec<u8>], data: usize) -> Vec<u8> {
    let mut out = [head(entries.len() as u64, 0), entries.concat()].concat();
    out.resize(out.len().next_multiple_of(32) + data, 0);
    out
}

#[test]
fn a_file_cut_anywhere_in_its_header_is_an_error() {
    let whole = std::fs::read(golden("moe/model.gguf")).unwrap();
    // The header ends where the first tensor's data begins; past it, cut in the data.
    let cuts = (0..40_000).chain((40_000..whole.len()).step_by(4093));
    for len in cuts {
        let e = Gguf::from_bytes(&whole[..len], Path::new("m.gguf")).expect_err("a cut file").to_string();
        assert!(e.starts_with("m.gguf: "), "cut to {len}: {e}");
        if len >= 4 {
            assert!(e.contains("wanted"), "cut to {len}: {e}");
        }
    }
}

#[test]
fn what_is_no_gguf_file_is_said_to_be_none() {
    assert_eq!(refusal(b""), "m.gguf: not a GGUF file: wanted the magic `GGUF`, got ``");
    assert_eq!(
        refusal(b"PK\x03\x04 and so on"),
        "m.gguf: not a GGUF file: wanted the magic `GGUF`, got `PK\\x03\\x04`"
    );
    let version = |v: u32| refusal(&[b"GGUF".as_slice(), &v.to_le_bytes(), &[0; 16]].concat());
    assert_eq!(version(2), "m.gguf: GGUF version: wanted 3, got 2");
    assert_eq!(version(3 << 24), "m.gguf: GGUF version: wanted 3, got 50331648 (a big-endian file)");
}

#[test]
fn counts_and_lengths_beyond_the_file_are_refused_before_anything_is_made_of_them() {
    assert_eq!(
        refusal(&head(0, u64::MAX)),
        format!("m.gguf: key count: wanted at most 0 in the 0 bytes left, got {}", u64::MAX)
    );
    assert_eq!(
        refusal(&head(1 << 60, 0)),
        format!("m.gguf: tensor count: wanted at most 0 in the 0 bytes left, got {}", 1u64 << 60)
    );
    let long_key = [head(0, 1), u64::MAX.to_le_bytes().to_vec(), vec![0; 8]].concat();
    assert_eq!(
        refusal(&long_key),
        format!("m.gguf: name of key 0 at byte 32: wanted {} bytes, 8 are left in the file", u64::MAX)
    );
    let array = |of: u32, len: u64| {
        [
            head(0, 1),
            string("a"),
            9u32.to_le_bytes().to_vec(),
            of.to_le_bytes().to_vec(),
            len.to_le_bytes().to_vec(),
            vec![0; 64],
        ]
        .concat()
    };
    assert_eq!(
        refusal(&array(10, 1 << 61)),
        format!("m.gguf: value of key `a`: wanted at most 8 in the 64 bytes left, got {}", 1u64 << 61)
    );
    assert_eq!(refusal(&array(8, 9)), "m.gguf: value of key `a`: wanted at most 8 in the 64 bytes left, got 9");
    assert_eq!(refusal(&array(13, 1)), "m.gguf: value of key `a`: wanted a type from 0 to 12, got 13");
}

#[test]
fn arrays_in_arrays_have_an_end() {
    let mut nested = [head(0, 1), string("deep"), 9u32.to_le_bytes().to_vec()].concat();
    for _ in 0..10_000 {
        nested.extend([9u32.to_le_bytes().as_slice(), &1u64.to_le_bytes()].concat());
    }
    assert_eq!(refusal(&nested), "m.gguf: key `deep`: wanted arrays nested at most 4 deep, got deeper ones");
}

#[test]
fn tensors_must_lie_in_the_file_each_in_its_own_place() {
    let f32s = |name, dims: &[u64], offset| entry(name, dims, 0, offset);
    assert_eq!(
        refusal(&file_of(&[f32s("w", &[8], 32)], 32)),
        "m.gguf: tensor `w`: wanted 32 bytes of data at offset 32, got a data section of 32 bytes"
    );
    assert_eq!(
        refusal(&file_of(&[f32s("w", &[8], 16)], 64)),
        "m.gguf: tensor `w`: wanted an offset that is a multiple of 32, got 16"
    );
    assert_eq!(
        refusal(&file_of(&[f32s("a", &[16], 0), f32s("b", &[16], 32)], 96)),
        "m.gguf: tensor `b`: wanted data of its own, got data that overlaps tensor `a`"
    );
    assert_eq!(
        refusal(&file_of(&[f32s("a", &[8], 0), f32s("a", &[8], 32)], 64)),
        "m.gguf: tensor `a`: wanted one tensor of this name, got two"
    );
    assert_eq!(
        refusal(&file_of(&[f32s("w", &[1 << 40, 1 << 40], 0)], 32)),
        "m.gguf: tensor `w`: wanted a size below 2^64 bytes, got shape [1099511627776, 1099511627776]"
    );
    assert_eq!(
        refusal(&file_of(&[f32s("w", &[1 << 62], 0)], 32)),
        "m.gguf: tensor `w`: wanted a size below 2^64 bytes, got shape [4611686018427387904]"
    );
    assert_eq!(
        refusal(&file_of(&[f32s("w", &[8], u64::MAX - 31)], 32)),
        format!(
            "m.gguf: tensor `w`: wanted 32 bytes of data at offset {}, got a data section of 32 bytes",
            u64::MAX - 31
        )
    );
    assert_eq!(refusal(&file_of(&[f32s("w", &[8, 0], 0)], 32)), "m.gguf: tensor `w`: wanted dimensions above 0, got 0");
    assert_eq!(
        refusal(&file_of(&[f32s("w", &[1, 1, 1, 1, 1], 0)], 32)),
        "m.gguf: tensor `w`: wanted 1 to 4 dimensions, got 5"
    );
    assert_eq!(
        refusal(&file_of(&[entry("w", &[33, 2], 8, 0)], 96)),
        "m.gguf: tensor `w`: wanted rows of whole Q8_0 blocks of 32 elements, got 33 elements a row"
    );
}

#[test]
fn types_that_are_not_read_are_refused_by_name_with_the_tensor() {
    for (id, name) in [(24, "I8"), (34, "TQ1_0"), (137, "IQ2_K of ik_llama.cpp"), (9999, "unknown")] {
        let e = refusal(&file_of(&[entry("blk.0.ffn_up_exps.weight", &[256], id, 0)], 256));
        assert!(
            e.starts_with("m.gguf: tensor `blk.0.ffn_up_exps.weight`: wanted an encoding that is read here"),
            "{e}"
        );
        assert!(e.ends_with(&format!(", got type {id} ({name})")), "{e}");
    }
}

#[test]
fn odd_metadata_is_named() {
    let with = |key: &str, ty: u32, value: &[u8]| {
        [head(0, 1), string(key), ty.to_le_bytes().to_vec(), value.to_vec()].concat()
    };
    assert_eq!(
        refusal(&with("general.alignment", 4, &[24, 0, 0, 0])),
        "m.gguf: key `general.alignment`: wanted a power of two of at most 1 GiB, got 24"
    );
    assert_eq!(
        refusal(&with("general.alignment", 4, &[0, 0, 0, 0])),
        "m.gguf: key `general.alignment`: wanted a power of two of at most 1 GiB, got 0"
    );
    assert_eq!(refusal(&with("x", 7, &[2])), "m.gguf: key `x`: wanted a bool of 0 or 1, got 2");
    let twice = [head(0, 2), string("x"), vec![0, 0, 0, 0, 1], string("x"), vec![0, 0, 0, 0, 1]].concat();
    assert_eq!(refusal(&twice), "m.gguf: key `x`: wanted one value, got the key twice");
    assert_eq!(refusal(&head(0, 0)), "m.gguf: key `general.architecture`: wanted a string, got no such key");
}

/// A tiny `qwen35` model of one GDN and one attention layer, its data all zeros.
#[derive(Clone)]
struct Tiny {
    keys: Vec<(String, MetaValue)>,
    tensors: Vec<(String, BlockType, Vec<usize>)>,
}

impl Tiny {
    fn new() -> Self {
        let mut keys = vec![("general.architecture".to_owned(), MetaValue::Str("qwen35".into()))];
        let numbers = [
            ("block_count", 2),
            ("context_length", 64),
            ("embedding_length", 32),
            ("attention.head_count", 2),
            ("attention.head_count_kv", 1),
            ("attention.key_length", 16),
            ("attention.value_length", 16),
            ("rope.dimension_count", 8),
            ("ssm.conv_kernel", 4),
            ("ssm.state_size", 8),
            ("ssm.group_count", 2),
            ("ssm.time_step_rank", 6),
            ("ssm.inner_size", 48),
            ("full_attention_interval", 2),
            ("feed_forward_length", 64),
        ];
        keys.extend(numbers.map(|(k, n)| (format!("qwen35.{k}"), MetaValue::U32(n))));
        keys.push(("qwen35.attention.layer_norm_rms_epsilon".into(), MetaValue::F32(1e-6)));
        keys.push(("qwen35.rope.freq_base".into(), MetaValue::F32(1e7)));
        keys.push(("tokenizer.ggml.model".into(), MetaValue::Str("gpt2".into())));
        keys.push(("tokenizer.ggml.pre".into(), MetaValue::Str("qwen35".into())));
        keys.push(("tokenizer.ggml.tokens".into(), MetaValue::Strings(vec!["a".into(), "<|im_end|>".into()])));
        keys.push(("tokenizer.ggml.token_type".into(), MetaValue::I32s(vec![1, 3])));
        keys.push(("tokenizer.ggml.merges".into(), MetaValue::Strings(vec![])));
        let mut tiny = Self { keys, tensors: Vec::new() };
        tiny.add("token_embd.weight", &[2, 32]);
        tiny.add("output_norm.weight", &[32]);
        for i in 0..2 {
            for (name, shape) in [
                ("attn_norm", vec![32]),
                ("post_attention_norm", vec![32]),
                ("ffn_gate", vec![64, 32]),
                ("ffn_up", vec![64, 32]),
                ("ffn_down", vec![32, 64]),
            ] {
                tiny.add(&format!("blk.{i}.{name}.weight"), &shape);
            }
        }
        for (name, shape) in [
            ("attn_qkv.weight", vec![80, 32]),
            ("attn_gate.weight", vec![48, 32]),
            ("ssm_beta.weight", vec![6, 32]),
            ("ssm_alpha.weight", vec![6, 32]),
            ("ssm_conv1d.weight", vec![80, 4]),
            ("ssm_a", vec![6]),
            ("ssm_dt.bias", vec![6]),
            ("ssm_norm.weight", vec![8]),
            ("ssm_out.weight", vec![32, 48]),
        ] {
            tiny.add(&format!("blk.0.{name}"), &shape);
        }
        for (name, shape) in [
            ("q", vec![64, 32]),
            ("k", vec![16, 32]),
            ("v", vec![16, 32]),
            ("q_norm", vec![16]),
            ("k_norm", vec![16]),
            ("output", vec![32, 32]),
        ] {
            tiny.add(&format!("blk.1.attn_{name}.weight"), &shape);
        }
        tiny
    }

    fn add(&mut self, name: &str, shape: &[usize]) -> &mut Self {
        self.tensors.push((name.to_owned(), BlockType::F32, shape.to_vec()));
        self
    }

    fn set(&self, key: &str, value: MetaValue) -> Self {
        let mut tiny = self.without_key(key);
        tiny.keys.push((key.to_owned(), value));
        tiny
    }

    fn without_key(&self, key: &str) -> Self {
        Self { keys: self.keys.iter().filter(|k| k.0 != key).cloned().collect(), ..self.clone() }
    }

    fn without(&self, tensor: &str) -> Self {
        Self { tensors: self.tensors.iter().filter(|t| t.0 != tensor).cloned().collect(), ..self.clone() }
    }

    fn reshaped(&self, tensor: &str, shape: &[usize]) -> Self {
        let mut tiny = self.without(tensor);
        tiny.add(tensor, shape);
        tiny
    }

    fn bytes(&self) -> Vec<u8> {
        let mut header = GgufHeader::default();
        self.keys.iter().for_each(|(k, v)| _ = header.set(k, v.clone()));
        self.tensors.iter().for_each(|(n, ty, s)| _ = header.tensor(n, *ty, s));
        let mut out = header.to_bytes();
        for (_, ty, shape) in &self.tensors {
            let len = ty.row_bytes(*shape.last().unwrap()).unwrap() * shape.iter().rev().skip(1).product::<usize>();
            out.resize(out.len() + header.padded(len as u64) as usize, 0);
        }
        out
    }

    fn loads(&self) -> chimere_engine::model::Model {
        load_gguf(&Gguf::from_bytes(&self.bytes(), Path::new("m.gguf")).unwrap()).unwrap()
    }
}

#[test]
fn every_key_and_tensor_of_a_model_is_needed_and_missed_by_name() {
    let tiny = Tiny::new();
    assert!(tiny.loads().weights.head.is_none(), "without output.weight the head is tied");
    // What llama.cpp has a default for, and the end ids that the vocabulary names anyway.
    let optional = ["qwen35.full_attention_interval"];
    for (key, _) in tiny.keys.iter().filter(|(k, _)| !optional.contains(&k.as_str())) {
        let e = refusal(&tiny.without_key(key).bytes());
        assert!(e.contains(&format!("`{key}`")) && e.contains("got no such key"), "{key}: {e}");
    }
    for (tensor, ..) in &tiny.tensors {
        let e = refusal(&tiny.without(tensor).bytes());
        assert!(e.contains(&format!("`{tensor}`")) && e.contains("got no such tensor"), "{tensor}: {e}");
    }
}

#[test]
fn shapes_that_contradict_the_metadata_are_told_with_both() {
    let tiny = Tiny::new();
    for (tensor, _, shape) in tiny.tensors.iter().filter(|t| t.0 != "token_embd.weight") {
        let mut other = shape.clone();
        other[0] += 1;
        let want = format!("m.gguf: tensor `{tensor}`: wanted shape {shape:?}, got shape {other:?}");
        assert_eq!(refusal(&tiny.reshaped(tensor, &other).bytes()), want);
    }
    assert_eq!(
        refusal(&tiny.reshaped("token_embd.weight", &[2, 48]).bytes()),
        "m.gguf: tensor `token_embd.weight`: wanted shape [2, 32], got shape [2, 48]"
    );
    // A tensor with as many elements in other rows is another matrix.
    assert_eq!(
        refusal(&tiny.reshaped("blk.0.ffn_up.weight", &[32, 64]).bytes()),
        "m.gguf: tensor `blk.0.ffn_up.weight`: wanted shape [64, 32], got shape [32, 64]"
    );
    assert_eq!(
        refusal(&tiny.reshaped("token_embd.weight", &[1, 32]).bytes()),
        "m.gguf: key `tokenizer.ggml.tokens`: wanted at most 1 tokens, the rows of token_embd.weight, got 2"
    );
}

#[test]
fn metadata_that_contradicts_itself_is_named() {
    let tiny = Tiny::new();
    let number = |key: &str, n| refusal(&tiny.set(&format!("qwen35.{key}"), MetaValue::U32(n)).bytes());
    assert_eq!(
        number("block_count", 1000),
        "m.gguf: key `qwen35.block_count`: wanted 1 to 27, the number of tensors, got 1000"
    );
    assert_eq!(
        number("nextn_predict_layers", 2),
        "m.gguf: key `qwen35.nextn_predict_layers`: wanted less than the block count of 2, got 2"
    );
    assert_eq!(number("embedding_length", 0), "m.gguf: key `qwen35.embedding_length`: wanted 1 to 1048576, got 0");
    assert_eq!(
        number("embedding_length", u32::MAX),
        "m.gguf: key `qwen35.embedding_length`: wanted 1 to 1048576, got 4294967295"
    );
    assert_eq!(
        number("full_attention_interval", 0),
        "m.gguf: key `qwen35.full_attention_interval`: wanted at least 1, got 0"
    );
    assert_eq!(
        number("ssm.time_step_rank", 5),
        "m.gguf: key `qwen35.ssm.time_step_rank`: wanted a multiple of 2, the value of ssm.group_count, got 5"
    );
    assert_eq!(
        number("rope.dimension_count", 18),
        "m.gguf: key `qwen35.rope.dimension_count`: wanted an even number of at most 16, the head's size, got 18"
    );
    assert_eq!(
        number("attention.value_length", 8),
        "m.gguf: key `qwen35.attention.value_length`: wanted 16 like attention.key_length, got 8"
    );
    let set = |key: &str, value| refusal(&tiny.set(key, value).bytes());
    assert_eq!(
        set("general.architecture", MetaValue::Str("llama".into())),
        "m.gguf: key `general.architecture`: wanted one of qwen35moe, qwen35, qwen3next, qwen3moe, qwen3, mamba2, \
         granitehybrid, granite, granitemoe, falcon-h1, nemotron_h_moe, nemotron_h, lfm2, lfm2moe, got `llama`"
    );
    assert_eq!(
        set("qwen35.embedding_length", MetaValue::Str("wide".into())),
        "m.gguf: key `qwen35.embedding_length`: wanted a whole number of at least 0, got a string"
    );
    assert_eq!(
        set("qwen35.rope.scaling.type", MetaValue::Str("yarn".into())),
        "m.gguf: key `qwen35.rope.scaling.type`: wanted `none`: scaled rotation is not supported, got `yarn`"
    );
    assert_eq!(
        set("qwen35.feed_forward_length", MetaValue::U32s(vec![64, 32])),
        "m.gguf: key `qwen35.feed_forward_length`: wanted the same number in all main layers, got 64 and 32"
    );
    assert_eq!(
        set("qwen35.feed_forward_length", MetaValue::U32s(vec![64])),
        "m.gguf: key `qwen35.feed_forward_length`: wanted one number, or 2, one a layer, got 1"
    );
    assert_eq!(
        set("tokenizer.ggml.token_type", MetaValue::I32s(vec![1])),
        "m.gguf: key `tokenizer.ggml.token_type`: wanted 2 entries, one a token, got 1"
    );
    assert_eq!(
        set("tokenizer.ggml.eos_token_id", MetaValue::U32(7)),
        "m.gguf: key `tokenizer.ggml.eos_token_id`: wanted an id below 2, got 7"
    );
}

#[test]
fn sizes_may_be_written_a_layer_and_layers_listed() {
    let tiny = Tiny::new();
    let plain = tiny.loads().config;
    let listed = tiny
        .set("qwen35.feed_forward_length", MetaValue::U32s(vec![64, 64]))
        .set("qwen35.attention.head_count_kv", MetaValue::U32s(vec![0, 1]))
        .set("qwen35.full_attention_interval", MetaValue::U32(9))
        .set("qwen35.attention.recurrent_layers", MetaValue::Bools(vec![true, false]));
    assert_eq!(listed.loads().config, plain, "the list of layers wins over the interval");
}

#[test]
fn a_draft_head_that_cannot_be_read_is_left_out() {
    let tiny =
        Tiny::new().set("qwen35.block_count", MetaValue::U32(3)).set("qwen35.nextn_predict_layers", MetaValue::U32(1));
    let model = tiny.loads();
    assert!(model.weights.draft_head.is_none());
    assert_eq!(model.weights.layers.len(), 2);
}

#[test]
fn fused_attention_projections_are_split() {
    let separate = Tiny::new();
    let mut fused =
        separate.without("blk.1.attn_q.weight").without("blk.1.attn_k.weight").without("blk.1.attn_v.weight");
    fused.add("blk.1.attn_qkv.weight", &[96, 32]);
    let chimere_engine::model::Op::Attention(a) = &fused.loads().weights.layers[1][0].op else { panic!("attention") };
    assert_eq!((a.q.rows(), a.k.rows(), a.v.rows()), (64, 16, 16));
}

#[test]
fn a_companion_scale_comes_with_its_matrix() {
    let mut tiny = Tiny::new();
    tiny.add("blk.0.ffn_up.scale", &[1]);
    let chimere_engine::model::Op::Mlp(ffn) = &tiny.loads().weights.layers[0][1].op else { panic!("dense") };
    assert_eq!((ffn.up.scale.as_deref(), ffn.down.scale.as_deref()), (Some([0.0].as_slice()), None));
    assert_eq!(
        refusal(&tiny.reshaped("blk.0.ffn_up.scale", &[2]).bytes()),
        "m.gguf: tensor `blk.0.ffn_up.scale`: wanted 1 value, or 1, one a matrix, got 2"
    );
}

/// Writes the tiny model as `parts` files, tensors dealt out in turn; `edit` may spoil one part's keys.
fn write_split(dir: &Path, parts: usize, edit: impl Fn(usize, Tiny) -> Tiny) {
    let tiny = Tiny::new();
    for i in 0..parts {
        let mine = tiny.tensors.iter().enumerate().filter(|(t, _)| t % parts == i).map(|(_, t)| t.clone()).collect();
        let keys = if i == 0 { tiny.keys.clone() } else { Vec::new() };
        let part = Tiny { keys, tensors: mine }
            .set("split.no", MetaValue::U32(i as u32))
            .set("split.count", MetaValue::U32(parts as u32))
            .set("split.tensors.count", MetaValue::U32(tiny.tensors.len() as u32));
        std::fs::write(dir.join(format!("m-{:05}-of-{parts:05}.gguf", i + 1)), edit(i, part).bytes()).unwrap();
    }
}

#[test]
fn a_split_model_loads_from_any_of_its_parts_or_from_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    write_split(dir.path(), 3, |_, t| t);
    for name in ["m-00001-of-00003.gguf", "m-00003-of-00003.gguf", ""] {
        assert_eq!(load(&dir.path().join(name)).unwrap().config.layers.len(), 2, "{name}");
    }
}

#[test]
fn a_directory_of_several_models_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_split(dir.path(), 2, |_, t| t);
    std::fs::write(dir.path().join("other.gguf"), Tiny::new().bytes()).unwrap();
    let e = load(dir.path()).map(|m| m.config.name).unwrap_err().to_string();
    let names = "2 (m-00001-of-00002.gguf, other.gguf)";
    assert!(e.ends_with(&format!(": directory: wanted one GGUF model, or the name of a file, got {names}")), "{e}");
}

#[test]
fn a_split_model_with_a_part_missing_or_swapped_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let fails = || load(&dir.path().join("m-00002-of-00003.gguf")).map(|m| m.config.name).unwrap_err().to_string();
    write_split(dir.path(), 3, |i, t| if i == 1 { t.set("split.no", MetaValue::U32(2)) } else { t });
    assert!(
        fails().ends_with("m-00002-of-00003.gguf: key `split.no`: wanted 1 by the file's name, got 2"),
        "{}",
        fails()
    );
    write_split(dir.path(), 3, |_, t| t.set("split.tensors.count", MetaValue::U32(28)));
    assert!(
        fails().ends_with("m-00001-of-00003.gguf: key `split.tensors.count`: wanted 27 as the parts have, got 28"),
        "{}",
        fails()
    );
    std::fs::remove_file(dir.path().join("m-00003-of-00003.gguf")).unwrap();
    assert!(fails().contains("m-00003-of-00003.gguf: No such file"), "{}", fails());
    let whole = Tiny::new().set("split.count", MetaValue::U32(3));
    std::fs::write(dir.path().join("whole.gguf"), whole.bytes()).unwrap();
    let e = load(&dir.path().join("whole.gguf")).map(|m| m.config.name).unwrap_err().to_string();
    assert!(e.ends_with("key `split.count`: wanted 1, as the name is not `NAME-00001-of-0000N.gguf`, got 3"), "{e}");
}
