//! The reference models load, from either format, into the same canonical weights.

use chimere_engine::format::gguf::{GgufHeader, MetaValue};
use chimere_engine::format::{Gguf, Tensor, TextAssets, TokenizerSource};
use chimere_engine::model::*;
use std::path::{Path, PathBuf};

fn golden(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file)
}

fn gguf(preset: &str) -> Model {
    load(&golden(&format!("{preset}/model.gguf"))).unwrap()
}

#[test]
fn the_reference_files_have_the_shapes_they_were_made_with() {
    for (preset, architecture, order, r) in [
        ("moe", "qwen35moe", HeadOrder::Tiled, 2),
        ("dense", "qwen35", HeadOrder::Tiled, 3),
        ("next", "qwen3next", HeadOrder::Grouped, 2),
        ("quant", "qwen35moe", HeadOrder::Tiled, 2),
    ] {
        let m = gguf(preset);
        let gdn: Vec<&GdnConfig> = m.config.each().collect();
        assert_eq!((m.config.architecture, gdn[0].head_order), (architecture, order), "{preset}");
        assert_eq!(gdn[0].value_heads / gdn[0].key_heads, r, "{preset}");
        let mixers: Vec<&str> = m.config.layers.iter().map(|layer| layer[0].op.name()).collect();
        let want = ["gated delta", "gated delta", "gated delta", "attention"];
        assert_eq!(mixers, want, "{preset}: the draft layer is not among them");
        assert!(
            m.config.layers.iter().all(|layer| layer.len() == 2 && layer[1].op.name() == "feed-forward"),
            "{preset}"
        );
        assert!(m.weights.draft_head.is_some() && m.weights.head.is_some(), "{preset}");
        assert_eq!((m.config.vocab, m.config.context, m.config.rms_eps), (512, 8192, 1e-6), "{preset}");
        let attention: Vec<&AttentionConfig> = m.config.each().collect();
        assert_eq!(attention[0].rope, Some(Rope { dim: 64, theta: 1e7, yarn: None }), "{preset}");
        assert!(attention[0].gated && attention[0].qk_norm, "{preset}");
    }
}

#[test]
fn a_summary_counts_every_weight_once() {
    let summary = Summary::of(&gguf("quant"));
    let config = gguf("quant").config;
    let MoeConfig { experts, expert, .. } = config.each().next().unwrap();
    let width = expert.width;
    let role = |r| summary.roles.get(&r).unwrap();
    assert_eq!(role(Role::Experts).parameters, (4 * experts * 3 * width * 256) as u64);
    assert_eq!(role(Role::Embedding).types.keys().copied().collect::<Vec<_>>(), ["Q4_K"]);
    assert_eq!(role(Role::Head).bytes, 512 * 210);
    assert!(role(Role::Experts).types.len() >= 8, "{:?}", role(Role::Experts).types);
    assert_eq!(summary.bytes(), summary.roles.values().map(|r| r.types.values().sum::<u64>()).sum::<u64>());
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
    let Op::Gdn(gdn) = &m.weights.layers[0][0].op else { panic!("a GDN layer") };
    assert!(gdn.a_neg.iter().all(|a| *a < 0.0), "-exp(A_log)");
    let mean = m.weights.norm.iter().sum::<f32>() / m.weights.norm.len() as f32;
    assert!((mean - 1.0).abs() < 0.2, "1 + w, got a mean of {mean}");
}

#[test]
fn both_formats_of_a_model_give_the_same_weights() {
    for preset in ["moe", "next"] {
        let dir = tempfile::tempdir().unwrap();
        let hf = load(&hugging_face_copy(preset, dir.path())).unwrap();
        let gguf = gguf(preset);
        let mut same = ModelConfig { name: hf.config.name.clone(), ..gguf.config.clone() };
        for block in same.layers.iter_mut().flatten() {
            if let OpConfig::Gdn(gdn) = &mut block.op {
                gdn.head_order = HeadOrder::Grouped;
            }
        }
        assert_eq!(hf.config, same, "{preset}");
        let (hf, gguf) = (canonical(&hf), canonical(&gguf));
        assert_eq!(hf.len(), gguf.len());
        for ((what, shape, hf), (_, gguf_shape, gguf)) in hf.iter().zip(&gguf) {
            assert_eq!(shape, gguf_shape, "{preset} {what}");
            let differing = hf.iter().zip(gguf).position(|(a, b)| !same_value(what, *a, *b));
            assert_eq!(differing.map(|i| (i, hf[i], gguf[i])), None, "{preset} {what}");
        }
    }
}

/// The exponential of `a` may differ in the last place between mathematics libraries.
fn same_value(what: &str, a: f32, b: f32) -> bool {
    a == b || (what.ends_with("a_neg") && (a - b).abs() <= 2.0 * f32::EPSILON * a.abs())
}

/// The directory of a preset with the tokenizer that only `moe` has.
fn hugging_face_copy(preset: &str, dir: &Path) -> PathBuf {
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(golden(&format!("{preset}/{file}")), dir.join(file)).unwrap();
    }
    std::fs::copy(golden("moe/tokenizer.json"), dir.join("tokenizer.json")).unwrap();
    dir.to_owned()
}

type Named = (String, Vec<usize>, Vec<f32>);

/// Every weight, value heads in grouped order.
fn canonical(m: &Model) -> Vec<Named> {
    let mut out: Vec<Named> = Vec::new();
    let w = &m.weights;
    push(&mut out, "embed", &w.embed);
    out.push(("norm".into(), vec![], w.norm.clone()));
    push(&mut out, "head", w.head.as_ref().unwrap());
    for (i, layer) in w.layers.iter().enumerate() {
        push_layer(&mut out, &format!("{i}."), layer);
    }
    let head = w.draft_head.as_ref().unwrap();
    push(&mut out, "mtp.fc", &head.fc);
    for (name, x) in [("embed_norm", &head.embed_norm), ("hidden_norm", &head.hidden_norm), ("norm", &head.norm)] {
        out.push((format!("mtp.{name}"), vec![], x.clone()));
    }
    push_layer(&mut out, "mtp.", &head.layer);
    out
}

fn push(out: &mut Vec<Named>, name: &str, t: &Tensor) {
    out.push((name.to_owned(), t.shape.clone(), t.decode()));
}

fn push_layer(out: &mut Vec<Named>, at: &str, layer: &[Block]) {
    out.push((format!("{at}input_norm"), vec![], layer[0].norm.clone()));
    out.push((format!("{at}post_norm"), vec![], layer[1].norm.clone()));
    match &layer[0].op {
        Op::Gdn(g) => push_gdn(out, at, g, &g.config),
        Op::Attention(a) => {
            for (name, t) in [("q", &a.q), ("k", &a.k), ("v", &a.v), ("out", &a.out)] {
                push(out, &format!("{at}{name}"), t);
            }
            out.push((format!("{at}q_norm"), vec![], a.q_norm.clone().unwrap()));
            out.push((format!("{at}k_norm"), vec![], a.k_norm.clone().unwrap()));
        }
        other => panic!("no mixer: {other:?}"),
    }
    let Op::Moe(m) = &layer[1].op else { panic!("a mixture of experts") };
    let shared = m.shared.as_ref().unwrap();
    push(out, &format!("{at}router"), &m.router);
    out.push((format!("{at}shared_gate"), vec![], shared.gate.clone().unwrap()));
    for (part, s) in [("experts", &m.experts), ("shared", &shared.expert)] {
        for (name, t) in [("gate", s.gate.as_ref().unwrap()), ("up", &s.up), ("down", &s.down)] {
            push(out, &format!("{at}{part}.{name}"), t);
        }
    }
}

fn push_gdn(out: &mut Vec<Named>, at: &str, w: &GdnWeights, gdn: &GdnConfig) {
    let qk = 2 * gdn.key_heads * gdn.key_dim;
    let hidden = w.qkv.cols();
    let mut named = |name: &str, x: Vec<f32>| out.push((format!("{at}{name}"), vec![], x));
    let qkv = w.qkv.decode();
    let (fixed, values) = qkv.split_at(qk * hidden);
    named("qk", fixed.to_vec());
    named("v", grouped(values, gdn, gdn.value_dim * hidden));
    named("z", grouped(&w.z.decode(), gdn, gdn.value_dim * hidden));
    named("b", grouped(&w.b.decode(), gdn, hidden));
    named("a", grouped(&w.a.decode(), gdn, hidden));
    named(
        "conv",
        [&w.conv[..qk * gdn.conv_taps], &grouped(&w.conv[qk * gdn.conv_taps..], gdn, gdn.value_dim * gdn.conv_taps)]
            .concat(),
    );
    named("a_neg", grouped(&w.a_neg, gdn, 1));
    named("dt_bias", grouped(&w.dt_bias, gdn, 1));
    named("norm", w.norm.clone());
    named("out", w.out.decode().chunks(w.out.cols()).flat_map(|row| grouped(row, gdn, gdn.value_dim)).collect());
}

/// Value heads of `each` numbers, brought into grouped order.
fn grouped(x: &[f32], gdn: &GdnConfig, each: usize) -> Vec<f32> {
    let r = gdn.value_heads / gdn.key_heads;
    let mut heads: Vec<usize> = (0..gdn.value_heads).collect();
    if gdn.head_order == HeadOrder::Tiled {
        heads = (0..gdn.value_heads).map(|h| h % r * gdn.key_heads + h / r).collect();
    }
    heads.into_iter().flat_map(|h| x[h * each..(h + 1) * each].to_vec()).collect()
}

#[test]
fn a_directory_says_the_same_about_text_as_the_file() {
    let (dir, file) = (TextAssets::from_hugging_face(&golden("moe")).unwrap(), gguf("moe").text);
    assert_eq!(dir.end_ids, file.end_ids);
    assert!(dir.chat_template.unwrap().contains("<|im_start|>"));
    assert!(matches!(dir.tokenizer, TokenizerSource::Json(bytes) if bytes.starts_with(b"{")));
}

#[test]
fn the_vocabulary_file_of_the_family_is_read_without_its_tensors() {
    let Some(dir) = outside("CHIMERE_FAMILY_DIR") else { return };
    let file = Gguf::open(&dir.join("qwen35-vocab.gguf")).unwrap();
    let text = TextAssets::from_gguf(&file).unwrap();
    let TokenizerSource::Gguf { pre, tokens, types, merges } = text.tokenizer else { panic!("from a GGUF file") };
    let ends: Vec<_> = text.end_ids.iter().map(|id| tokens[*id as usize].as_str()).collect();
    assert_eq!(ends, ["<|endoftext|>", "<|im_end|>"]);
    assert_eq!((pre.as_str(), types.len()), ("qwen35", tokens.len()));
    assert!(tokens.len() > 150_000 && merges.len() > 150_000, "{} tokens, {} merges", tokens.len(), merges.len());
}

/// Data from outside the repository. Without it a test is skipped, or fails if `CHIMERE_REQUIRE` lists the variable.
fn outside(variable: &str) -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os(variable) {
        return Some(dir.into());
    }
    let required = std::env::var("CHIMERE_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|v| v == variable), "{variable} is required and not set");
    eprintln!("skipped: {variable} does not name the family's files");
    None
}

/// A file like `next`, but with its four projections fused as old converters wrote them, rows grouped by key head.
fn old_qwen3next() -> Vec<u8> {
    let file = Gguf::open(&golden("next/model.gguf")).unwrap();
    let mut header = GgufHeader::default();
    copy_keys(&file, &mut header, "");
    let config = gguf("next").config;
    let gdn: &GdnConfig = config.each().next().unwrap();
    let (k, values) = (gdn.key_dim, gdn.value_heads / gdn.key_heads * gdn.value_dim);
    let mut data: Vec<Vec<u8>> = Vec::new();
    for t in file.tensors().filter(|t| !t.name.contains("attn_gate")) {
        let (mut name, mut tensor) = (t.name.clone(), t.clone());
        if let Some(block) = t.name.strip_suffix("attn_qkv.weight") {
            name = format!("{block}ssm_in.weight");
            let z = file.tensor(&format!("{block}attn_gate.weight")).unwrap();
            let both =
                Tensor::owned(name.clone(), t.ty, vec![t.rows() + z.rows(), t.cols()], [t.bytes(), z.bytes()].concat())
                    .unwrap();
            let (k_at, v_at, z_at) = (gdn.key_heads * k, 2 * gdn.key_heads * k, t.rows());
            let group = |h: usize| {
                let part = |at: usize, len: usize| at + h * len..at + (h + 1) * len;
                [part(0, k), part(k_at, k), part(v_at, values), part(z_at, values)]
            };
            tensor = both.gather_rows(&(0..gdn.key_heads).flat_map(group).collect::<Vec<_>>());
        }
        header.tensor(name, tensor.ty, &tensor.shape);
        let mut bytes = tensor.bytes().to_vec();
        bytes.resize(header.padded(bytes.len() as u64) as usize, 0);
        data.push(bytes);
    }
    [header.to_bytes(), data.concat()].concat()
}

fn copy_keys(file: &Gguf, header: &mut GgufHeader, but: &str) {
    let meta = file.meta();
    for key in meta.keys().filter(|k| but.is_empty() || !k.contains(but)) {
        let value = if let Ok(Some(s)) = meta.str(key) {
            MetaValue::Str(s.to_owned())
        } else if let Ok(Some(b)) = meta.bool(key) {
            MetaValue::Bool(b)
        } else if let Ok(Some(n)) = meta.u64(key) {
            MetaValue::U64(n)
        } else if let Ok(Some(x)) = meta.f64(key) {
            MetaValue::F32(x as f32)
        } else if let Ok(Some(all)) = meta.strings(key) {
            MetaValue::Strings(all)
        } else {
            MetaValue::I32s(meta.integers(key).unwrap().unwrap().into_iter().map(|n| n as i32).collect())
        };
        header.set(key, value);
    }
}

#[test]
fn old_files_with_all_projections_in_one_tensor_give_the_same_weights() {
    let old = load_gguf(&Gguf::from_bytes(&old_qwen3next(), Path::new("old.gguf")).unwrap()).unwrap();
    let new = gguf("next");
    assert_eq!(old.config, new.config);
    for ((what, shape, old), (_, new_shape, new)) in canonical(&old).iter().zip(&canonical(&new)) {
        assert!(shape == new_shape && old == new, "{what}");
    }
}

#[test]
fn the_shipped_model_loads_from_its_directory() {
    let m = load(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../models/nano")).unwrap();
    assert_eq!(m.config.architecture, "qwen35moe");
    assert!(
        m.weights.draft_head.is_some() && m.weights.head.is_none(),
        "a draft head, and a head tied to the embedding"
    );
    assert!(m.text.chat_template.is_some());
    assert_eq!(m.text.end_ids.len(), 2);
}

#[test]
fn widths_of_experts_are_those_of_the_tensors_where_their_keys_are_missing() {
    let file = Gguf::open(&golden("quant/model.gguf")).unwrap();
    let mut header = GgufHeader::default();
    copy_keys(&file, &mut header, "feed_forward_length");
    let mut data: Vec<u8> = Vec::new();
    for t in file.tensors() {
        header.tensor(&t.name, t.ty, &t.shape);
        data.extend(t.bytes());
        data.resize(header.padded(data.len() as u64) as usize, 0);
    }
    let bytes = [header.to_bytes(), data].concat();
    let without = load_gguf(&Gguf::from_bytes(&bytes, Path::new("m.gguf")).unwrap()).unwrap();
    assert_eq!(without.config, gguf("quant").config);
}
