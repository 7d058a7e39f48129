//! A family and an operator of a test's own go through the loader and this backend like any other, and what is not
//! computed is refused.

use super::check;
use crate::PAGE_TOKENS;
use crate::backend::Backend;
use crate::backend::cpu::{CpuBackend, CpuConfig, KvType, MemoryUse, Probe};
use crate::format::gguf::{GgufHeader, MetaValue};
use crate::format::{BlockType, Gguf};
use crate::ids::{PageId, SeqId, SlotId, StepId};
use crate::model::{self, Model, OpConfig, ScaleConfig};
use crate::step::{Form, Piece, PieceTokens, StateStart, StepPlan};
use chimere_kernels::reference::rmsnorm;
use std::path::Path;
use std::sync::Arc;

const HIDDEN: usize = 32;
const LAYERS: usize = 2;
const EPS: f32 = 1e-6;

/// A model of the family `scaled`, every value of a wave of its own.
fn scaled() -> Model {
    let mut header = GgufHeader::default();
    header.set("general.architecture", MetaValue::Str("scaled".into()));
    for (key, n) in
        [("block_count", LAYERS), ("context_length", 64), ("embedding_length", HIDDEN), ("feed_forward_length", 64)]
    {
        header.set(format!("scaled.{key}"), MetaValue::U32(n as u32));
    }
    header.set("scaled.attention.layer_norm_rms_epsilon", MetaValue::F32(EPS));
    header.set("tokenizer.ggml.model", MetaValue::Str("gpt2".into()));
    header.set("tokenizer.ggml.pre", MetaValue::Str("qwen35".into()));
    header.set("tokenizer.ggml.tokens", MetaValue::Strings(vec!["a".into(), "<|im_end|>".into()]));
    header.set("tokenizer.ggml.token_type", MetaValue::I32s(vec![1, 3]));
    header.set("tokenizer.ggml.merges", MetaValue::Strings(vec![]));
    let mut tensors =
        vec![("token_embd.weight".to_owned(), vec![2, HIDDEN]), ("output_norm.weight".to_owned(), vec![HIDDEN])];
    for i in 0..LAYERS {
        for (name, shape) in [
            ("scale_norm", vec![HIDDEN]),
            ("scale", vec![HIDDEN]),
            ("ffn_norm", vec![HIDDEN]),
            ("ffn_gate", vec![64, HIDDEN]),
            ("ffn_up", vec![64, HIDDEN]),
            ("ffn_down", vec![HIDDEN, 64]),
        ] {
            tensors.push((format!("blk.{i}.{name}.weight"), shape));
        }
    }
    tensors.iter().for_each(|(name, shape)| _ = header.tensor(name, BlockType::F32, shape));
    let mut bytes = header.to_bytes();
    for (n, (_, shape)) in tensors.iter().enumerate() {
        let values = (0..shape.iter().product::<usize>()).map(|i| ((i + 7 * n) as f32 * 0.37).sin());
        bytes.extend(values.flat_map(f32::to_le_bytes));
        bytes.resize(header.padded(bytes.len() as u64) as usize, 0);
    }
    model::load_gguf(&Gguf::from_bytes(&bytes, Path::new("scaled.gguf")).unwrap()).unwrap()
}

fn config(threads: usize) -> CpuConfig {
    let (slots, pages) = (1, 2);
    CpuConfig {
        threads,
        slots,
        pages,
        checkpoints: 0,
        kv_type: KvType::F32,
        exact: true,
        step_rows_max: 8,
        context: 2 * PAGE_TOKENS,
        drafts: 0,
        draft_head: false,
    }
}

/// The residual stream after each block.
fn hidden(model: &Model, tokens: &[u32], threads: usize) -> Vec<Vec<f32>> {
    let mut backend = CpuBackend::new(model, &config(threads), &mut |_| {}).unwrap();
    backend.set_probe(Probe { record: true, perturbation: None });
    let piece = Piece {
        seq: SeqId(1),
        slot: SlotId(0),
        state: StateStart::Clear,
        start: 0,
        form: Form::Chunked,
        tokens: PieceTokens::Known(tokens.to_vec()),
        drafts: Vec::new(),
        guesses: 0,
        pages: vec![PageId(0)],
        prompt_len: tokens.len() as u32,
        experts: None,
        adapter: None,
        samples: Vec::new(),
        score: None,
        follows: None,
        ends: Arc::default(),
        pool_from: None,
        exports: Vec::new(),
    };
    let plan = StepPlan::new(StepId(1), vec![piece]);
    backend.launch(plan).unwrap().wait().unwrap();
    backend.recording().hidden.clone()
}

/// A row through the scale of layer `i`, by its definition.
fn scale(model: &Model, i: usize, x: &[f32]) -> Vec<f32> {
    let block = &model.weights.layers[i][0];
    let model::Op::Scale(weights) = &block.op else { panic!("a scale comes first") };
    let normed = rmsnorm(x, &block.norm, EPS);
    x.iter().zip(&normed).zip(&weights.factors).map(|((x, y), f)| x + y * f).collect()
}

#[test]
fn a_family_and_an_operator_that_a_test_adds_are_loaded_and_computed() {
    let (model, tokens) = (scaled(), [0, 1, 1]);
    assert_eq!(model.config.each::<ScaleConfig>().count(), LAYERS);
    assert_eq!(model.config.shapes().iter().map(|op| op.name()).collect::<Vec<_>>(), ["scale", "feed-forward"]);
    let got = hidden(&model, &tokens, 1);
    assert_eq!(got.len(), 2 * LAYERS);
    let embedding = model.weights.embed.decode();
    for i in 0..LAYERS {
        for (row, token) in tokens.iter().enumerate() {
            let at = row * HIDDEN..(row + 1) * HIDDEN;
            let before =
                if i == 0 { &embedding[*token as usize * HIDDEN..][..HIDDEN] } else { &got[2 * i - 1][at.clone()] };
            let want = scale(&model, i, before);
            assert!(got[2 * i][at].iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-5), "layer {i} row {row}");
        }
        assert_ne!(got[2 * i], got[2 * i + 1], "the feed-forward part adds something");
    }
    assert_eq!(got, hidden(&model, &tokens, 3), "threads change no byte");
}

#[test]
fn a_model_without_state_takes_no_memory_for_any() {
    let memory = MemoryUse::of(&scaled().config, &config(1));
    assert_eq!((memory.slot_bytes, memory.page_bytes), (0, 0));
}

#[test]
fn what_is_not_computed_is_refused_by_name() {
    let golden = |preset: &str| {
        let path = format!("{}/tests/golden/{preset}/model.gguf", env!("CARGO_MANIFEST_DIR"));
        model::load(path.as_ref()).unwrap().config
    };
    let refusal = |preset: &str, change: &dyn Fn(&mut OpConfig)| {
        let mut config = golden(preset);
        assert!(check(&config).is_ok());
        config.layers.iter_mut().flatten().for_each(|block| change(&mut block.op));
        // What it would take is asked for before it is refused.
        assert!(MemoryUse::of(&config, &self::config(1)).workspace_bytes > 0);
        check(&config).unwrap_err().to_string()
    };
    let head = |op: &mut OpConfig| {
        if let OpConfig::Attention(a) = op {
            a.head_dim -= 8
        }
    };
    assert_eq!(refusal("moe", &head), "width of an attention head is 248, this backend needs a multiple of 32");
    let expert = |op: &mut OpConfig| {
        if let OpConfig::Moe(m) = op {
            m.expert.width += 8
        }
    };
    assert_eq!(refusal("moe", &expert), "width of an expert is 40, this backend needs a multiple of 32");
    let width = |op: &mut OpConfig| {
        if let OpConfig::Gdn(g) = op {
            g.key_dim += 1
        }
    };
    assert_eq!(refusal("moe", &width), "key width of a GDN head is 129, this backend needs a multiple of 32");
}
