//! The CPU backend against the reference's outputs on the tiny models of each architecture.

use crate::support::{
    self, Driver, Golden, argmax_agreement, config, gguf, hugging_face, max_abs, relative, relative_rms,
};
use chimere_engine::backend::cpu::CpuConfig;
use chimere_engine::constraint::{Effect, Rule, Source};
use chimere_engine::ids::{PageId, SeqId, SlotId};
use chimere_engine::model::{AttentionConfig, GdnConfig, HeadOrder, Model, OperatorConfig};
use chimere_engine::sampling::SamplingParams;
use chimere_engine::step::{Form, Piece, SampleRow};
use chimere_kernels::reference::rmsnorm;
use std::sync::Arc;

const LOGITS: f32 = 2e-4;
const HIDDEN: f32 = 1e-4;

/// Logits, hidden states, states, cache and decoding of one model, in `--exact`.
fn check_exact(preset: &str, model: &Model) {
    let golden = Golden::of(preset);
    let ids = golden.ids("input_ids");
    let mut driver = Driver::recording(model, &config(true, 2));
    let recording = driver.run(Form::Chunked, 0, &ids);
    let error = max_abs(&recording.logits, &golden.array("logits").1);
    assert!(error < LOGITS, "{preset}: logits off by {error:e}");
    let mut before = Vec::new();
    for i in 0..model.config.layers.len() {
        let out = golden.array(&format!("layer.{i}.out")).1;
        if let Some((_, mixed)) = golden.find(&format!("layer.{i}.mixer_out")).filter(|_| i > 0) {
            let mixed: Vec<f32> = mixed.iter().zip(&before).map(|(a, b)| a + b).collect();
            let error = relative(&recording.hidden[2 * i], &mixed);
            assert!(error < HIDDEN, "{preset}: hidden after mixer {i} off by {error:e}");
        }
        let error = relative(&recording.hidden[2 * i + 1], &out);
        assert!(error < HIDDEN, "{preset}: hidden after layer {i} off by {error:e}");
        before = out;
    }
    check_cache(preset, model, &golden, &mut driver, ids.len());
    check_decode(preset, &golden, &mut driver, ids.len());
    check_states(preset, model, &golden, &mut driver);
}

/// Keys and values after the prompt.
fn check_cache(preset: &str, model: &Model, golden: &Golden, driver: &mut Driver, tokens: usize) {
    for (n, i) in layers::<AttentionConfig>(model).enumerate() {
        for (name, which) in [("k_cache", 0), ("v_cache", 1)] {
            let want = golden.array(&format!("layer.{i}.{name}")).1;
            let error = relative(&cached(model, driver, n, which, tokens), &want);
            assert!(error < HIDDEN, "{preset}: {name} of layer {i} off by {error:e}");
        }
    }
}

/// Recurrent states and convolution inputs after the last decoded token: the reference updates them in place.
fn check_states(preset: &str, model: &Model, golden: &Golden, driver: &mut Driver) {
    for (n, i) in layers::<GdnConfig>(model).enumerate() {
        let (state, tail) = driver.backend.state(SlotId(0), n);
        if let Some((_, want)) = golden.find(&format!("layer.{i}.recurrent_state")) {
            let error = relative(&release_order(model, state), &want);
            assert!(error < HIDDEN, "{preset}: state of layer {i} off by {error:e}");
        }
        let error = relative(&release_tail(model, tail), &golden.array(&format!("layer.{i}.conv_state")).1);
        assert!(error < HIDDEN, "{preset}: conv state of layer {i} off by {error:e}");
    }
}

/// Indices of the layers whose mixer is of a kind.
fn layers<C: OperatorConfig>(model: &Model) -> impl Iterator<Item = usize> {
    let layers = model.config.layers.iter().enumerate();
    layers.filter(|(_, layer)| C::of(&layer[0].op).is_some()).map(|(i, _)| i)
}

/// The shape of its gated-delta blocks.
fn gdn(model: &Model) -> &GdnConfig {
    model.config.each().next().unwrap()
}

/// The release's place of value head `h`.
fn release_head(model: &Model, h: usize) -> usize {
    let g = gdn(model);
    match g.head_order {
        HeadOrder::Grouped => h,
        HeadOrder::Tiled => h % g.key_heads * (g.value_heads / g.key_heads) + h / g.key_heads,
    }
}

fn release_order(model: &Model, state: &[f32]) -> Vec<f32> {
    let len = state.len() / gdn(model).value_heads;
    let mut out = vec![0.0; state.len()];
    for (h, part) in state.chunks(len).enumerate() {
        out[release_head(model, h) * len..][..len].copy_from_slice(part);
    }
    out
}

/// `[taps - 1, channels]` as `[channels, taps - 1]` in the release's order.
fn release_tail(model: &Model, tail: &[f32]) -> Vec<f32> {
    let (g, taps) = (gdn(model), gdn(model).conv_taps - 1);
    let keys = 2 * g.key_heads * g.key_dim;
    let place = |ch: usize| match ch.checked_sub(keys) {
        None => ch,
        Some(v) => keys + release_head(model, v / g.value_dim) * g.value_dim + v % g.value_dim,
    };
    let mut out = vec![0.0; tail.len()];
    for (i, value) in tail.iter().enumerate() {
        out[place(i % g.channels()) * taps + i / g.channels()] = *value;
    }
    out
}

/// Keys or values of the last 16 positions as `[heads, 16, D]`.
fn cached(model: &Model, driver: &mut Driver, layer: usize, which: usize, tokens: usize) -> Vec<f32> {
    let (a, mut out): (&AttentionConfig, _) = (model.config.each().next().unwrap(), Vec::new());
    for head in 0..a.kv_heads {
        for t in tokens - 16..tokens {
            let (keys, values) = driver.backend.page(PageId(t as u32 / 32), layer, head);
            let dim = a.head_dim;
            out.extend((0..dim).map(|d| if which == 0 { keys[d * 32 + t % 32] } else { values[t % 32 * dim + d] }));
        }
    }
    out
}

/// The reference's greedy continuation, token by token in the recurrent form.
fn check_decode(preset: &str, golden: &Golden, driver: &mut Driver, tokens: usize) {
    let (shape, want) = golden.array("decode_logits");
    for (n, id) in golden.ids("decode_ids").iter().enumerate() {
        let got = driver.run(Form::Recurrent, tokens + n, &[*id]).logits;
        let error = max_abs(&got, &want[n * shape[1]..][..shape[1]]);
        assert!(error < LOGITS, "{preset}: logits of decoded token {n} off by {error:e}");
    }
}

#[test]
fn moe_from_gguf_is_exact() {
    check_exact("moe", &gguf("moe"));
}

#[test]
fn moe_from_a_release_directory_is_exact() {
    check_exact("moe", &hugging_face("moe"));
}

#[test]
fn dense_with_three_value_heads_a_key_head_is_exact() {
    check_exact("dense", &gguf("dense"));
}

#[test]
fn next_from_gguf_is_exact() {
    check_exact("next", &gguf("next"));
}

#[test]
fn next_from_a_release_directory_is_exact() {
    check_exact("next", &hugging_face("next"));
}

#[test]
fn every_encoding_is_exact() {
    check_exact("quant", &gguf("quant"));
}

#[test]
fn any_split_of_a_prompt_gives_the_same_logits() {
    for preset in ["moe", "dense", "next", "quant"] {
        let (model, golden) = (gguf(preset), Golden::of(preset));
        let (ids, want) = (golden.ids("input_ids"), golden.array("logits").1);
        let whole = Driver::recording(&model, &config(true, 1)).prompt(&ids, ids.len());
        for size in [1, 7, 64] {
            let got = Driver::recording(&model, &config(true, 2)).prompt(&ids, size);
            let error = max_abs(&got, &whole);
            assert!(error < 1e-4, "{preset} in pieces of {size}: off by {error:e}");
            assert!(max_abs(&got, &want) < LOGITS);
        }
    }
}

#[test]
fn pieces_of_whole_chunks_change_no_byte() {
    let (model, ids) = (gguf("moe"), Golden::of("moe").ids("input_ids"));
    for exact in [true, false] {
        let whole = Driver::recording(&model, &config(exact, 1)).prompt(&ids, ids.len());
        let pieces = Driver::recording(&model, &config(exact, 2)).prompt(&ids, 64);
        assert!(whole.iter().zip(&pieces).all(|(a, b)| a.to_bits() == b.to_bits()), "exact {exact}");
    }
}

#[test]
fn the_default_path_stays_within_its_tolerance() {
    for (preset, bound) in [("moe", 6e-2), ("quant", 6e-2), ("next", 6e-2), ("dense", 3e-2)] {
        let (model, golden) = (gguf(preset), Golden::of(preset));
        let (shape, want) = golden.array("logits");
        let ids = golden.ids("input_ids");
        let got = Driver::recording(&model, &config(false, 2)).prompt(&ids, ids.len());
        let (error, agreement) = (relative_rms(&got, &want), argmax_agreement(&got, &want, shape[1]));
        assert!(error < bound, "{preset}: relative error {error:e}");
        assert!(agreement >= 0.9, "{preset}: the best token agrees in {agreement} of rows");
    }
}

#[test]
fn hidden_states_are_summed_after_the_final_norm_from_where_it_was_asked() {
    let (model, golden) = (gguf("moe"), Golden::of("moe"));
    let ids = golden.ids("input_ids");
    let mut driver = Driver::recording(&model, &config(true, 2));
    let piece = Piece { pool_from: Some(3), ..support::piece(Form::Chunked, 0, &ids) };
    let units = driver.step(vec![piece]).pooled;
    let hidden = golden.array(&format!("layer.{}.out", model.config.layers.len() - 1)).1;
    let rows: Vec<_> =
        hidden.chunks(model.config.hidden).map(|x| rmsnorm(x, &model.weights.norm, model.config.rms_eps)).collect();
    assert_eq!((units[0].positions.start, units.last().unwrap().positions.end as usize), (3, ids.len()));
    for unit in units {
        let mut want = vec![0.0; model.config.hidden];
        for row in &rows[unit.positions.start as usize..unit.positions.end as usize] {
            want.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        }
        let error = relative(&unit.sum, &want);
        assert!(error < HIDDEN, "the sum of {:?} is off by {error:e}", unit.positions);
    }
}

/// Of a prompt of `len` tokens in pieces of 64, behind which the next token of `ids` is said.
fn draft_logits(model: &Model, ids: &[u32], len: usize) -> Vec<f32> {
    let mut driver = Driver::recording(model, &CpuConfig { drafts: 2, draft_head: true, ..config(true, 2) });
    driver.backend.poison();
    let last = (len - 1) / 64 * 64;
    (0..last).step_by(64).for_each(|start| drop(driver.run(Form::Chunked, start, &ids[start..start + 64])));
    let rules = vec![Rule { source: Source::Forced, effect: Effect::Force(ids[len]) }];
    let row = SampleRow::new(SeqId(1), SlotId(0), Arc::new(SamplingParams::greedy()));
    let piece = Piece {
        guesses: 2,
        samples: vec![SampleRow { rules, ..row }],
        pages: (0..4).map(PageId).collect(),
        ..support::piece(Form::Chunked, last, &ids[last..len])
    };
    let guesses = driver.step(vec![piece]).guesses;
    assert_eq!(guesses.iter().map(Vec::len).collect::<Vec<_>>(), [2]);
    let (all, vocab) = (driver.backend.recording().guesses.clone(), model.config.vocab);
    assert_eq!(all.len(), 2 * vocab);
    all[..vocab].to_vec()
}

#[test]
fn the_draft_head_is_exact() {
    for preset in ["moe", "dense"] {
        let (model, golden) = (gguf(preset), Golden::of(preset));
        let ((shape, want), ids) = (golden.array("mtp_logits"), golden.ids("input_ids"));
        for len in [1, 2, 31, 32, 64, 65, 79] {
            let got = draft_logits(&model, &ids, len);
            let error = max_abs(&got, &want[(len - 1) * shape[1]..][..shape[1]]);
            assert!(error < LOGITS, "{preset}: logits of the draft behind {len} tokens off by {error:e}");
        }
    }
}
