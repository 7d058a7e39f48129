//! Weights and logits that are no finite numbers, on a device.

use super::Test;
use super::driver::{Gpu, config};
use super::support;
use chimere_engine::backend::cuda::CudaBackend;
use chimere_engine::constraint::{Effect, Rule, Source};
use chimere_engine::format::Tensor;
use chimere_engine::ids::{SeqId, SlotId};
use chimere_engine::model::Model;
use chimere_engine::sampling::SamplingParams;
use chimere_engine::step::{Form, Piece, SampleRow, ScoreRows};
use std::sync::Arc;

/// Tests that want a device.
pub(super) const TESTS: &[Test] = &[
    ("weights_that_are_no_finite_numbers_are_refused_by_name", weights_that_are_no_finite_numbers_are_refused_by_name),
    ("rows_whose_logits_overflow_are_told_from_others", rows_whose_logits_overflow_are_told_from_others),
];

fn weights_that_are_no_finite_numbers_are_refused_by_name() {
    let mut model = support::gguf("moe");
    let head = model.weights.head.as_ref().unwrap_or(&model.weights.embed);
    let (mut bytes, row) = (head.bytes().to_vec(), head.ty.row_bytes(head.cols()).unwrap());
    bytes[5 * row..6 * row].fill(0xff);
    model.weights.head = Some(Tensor::owned("the head".into(), head.ty, head.shape.clone(), bytes).unwrap());
    for host_embedding in [false, true] {
        let config = chimere_engine::backend::cuda::CudaConfig { host_embedding, ..config(4, 64) };
        let error = CudaBackend::new(&model, &config, &mut |_| {}).err().expect("a NaN among the weights");
        let error = error.to_string();
        assert!(error.contains("`the head`") && error.contains("row 5"), "{error}");
    }
}

/// Whether what came out of rows of different kinds is finite: plain, with a mask, with penalties, with all reports,
/// under a draw, and scored.
fn finite(model: &Model) -> Vec<bool> {
    let mut gpu = Gpu::new(model, &config(4, 64));
    let greedy = SamplingParams::greedy();
    let mask: Arc<[u32]> = (0..model.config.vocab.div_ceil(32)).map(|word| u32::from(word < 2)).collect();
    let two = Rule { source: Source::MinTokens, effect: Effect::Allow(mask) };
    let kinds = [
        (greedy.clone(), vec![]),
        (greedy.clone(), vec![two]),
        (SamplingParams { presence_penalty: 0.5, ..greedy.clone() }, vec![]),
        (SamplingParams { logprobs: Some(3), certainty: true, ..greedy.clone() }, vec![]),
        (SamplingParams { seed: 7, ..SamplingParams::default() }, vec![]),
    ];
    let prompt = || Piece { prompt_len: 3, ..support::piece(Form::Chunked, 0, &[1, 2, 3]) };
    let mut finite = Vec::new();
    for (params, rules) in kinds {
        let row = SampleRow { rules, ..SampleRow::new(SeqId(1), SlotId(0), Arc::new(params)) };
        finite.push(gpu.step(vec![Piece { samples: vec![row], ..prompt() }]).samples[0].finite);
    }
    let scored = Piece { score: Some(ScoreRows { top: 1, ..ScoreRows::default() }), ..prompt() };
    finite.push(gpu.step(vec![scored]).scores.iter().all(|score| score.finite));
    finite
}

fn rows_whose_logits_overflow_are_told_from_others() {
    let mut model = support::nano();
    assert_eq!(finite(&model), [true; 6]);
    // As if every product overflowed.
    model.config.logit_scale = f32::INFINITY;
    assert_eq!(finite(&model), [false; 6]);
    model.config.logit_scale = 1.0;
    assert_eq!(finite(&model), [true; 6], "nothing of it stays on the device");
}
