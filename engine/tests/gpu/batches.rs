//! Rows among others: each follows the CPU and has the same bytes in any batch.

use super::Test;
use super::driver::{Gpu, config, cpu_config};
use super::experts::token_of;
use super::follow::{SYNTHETIC, synthetic};
use super::support;
use super::support::{Driver, Random, relative_rms};
use chimere_engine::backend::cuda::{Activations, CudaConfig};
use chimere_engine::ids::{PageId, SeqId, SlotId, TokenId};
use chimere_engine::model::Model;
use chimere_engine::sampling::SamplingParams;
use chimere_engine::step::{Form, Piece, PieceTokens, SampleRow, StateStart};
use std::sync::Arc;

/// Tests that want a device.
pub(super) const TESTS: &[Test] = &[
    ("every_row_of_a_batch_follows_the_cpu", every_row_of_a_batch_follows_the_cpu),
    ("a_row_has_the_same_bytes_in_any_batch", a_row_has_the_same_bytes_in_any_batch),
];

/// Pages of a sequence.
const PAGES_EACH: u32 = 4;

/// Those of sequence `i` that hold so many positions.
pub(super) fn pages_of(i: u32, positions: u32) -> Vec<PageId> {
    (0..positions.div_ceil(chimere_engine::PAGE_TOKENS)).map(|p| PageId(PAGES_EACH * i + p)).collect()
}

/// One decode row of each of several sequences. Sequence `i` has slot `i` and pages of its own.
pub(super) fn decode_rows(position: u32, tokens: Option<&[TokenId]>, rows: u32, params: &SamplingParams) -> Vec<Piece> {
    let piece = |i: u32| {
        let params = Arc::new(SamplingParams { seed: 1000 + u64::from(i), ..params.clone() });
        let row = SampleRow { output_index: position, ..SampleRow::new(SeqId(u64::from(i)), SlotId(i), params) };
        let tokens = tokens.map_or(PieceTokens::Sampled, |t| PieceTokens::Known(vec![t[i as usize]]));
        let (seq, slot, pages) = (row.seq, row.slot, pages_of(i, position + 1));
        let samples = vec![row];
        Piece {
            seq,
            slot,
            state: StateStart::at(position),
            form: Form::Recurrent,
            start: position,
            tokens,
            drafts: Vec::new(),
            guesses: 0,
            pages,
            prompt_len: 0,
            samples,
            score: None,
            experts: None,
            adapter: None,
            follows: None,
            ends: Arc::default(),
            pool_from: None,
            exports: Vec::new(),
        }
    };
    (0..rows).map(piece).collect()
}

/// [`decode_rows`] run; what was sampled.
pub(super) fn decode_together(
    gpu: &mut Gpu,
    position: u32,
    tokens: Option<&[TokenId]>,
    rows: u32,
    params: &SamplingParams,
) -> Vec<TokenId> {
    gpu.step(decode_rows(position, tokens, rows, params)).samples.iter().map(|s| s.token).collect()
}

/// Every row of batches of every size follows the CPU, which rounds activations to 8 bits too or not at all, and a
/// row's bytes are the same in all of them.
pub(super) fn batches_follow(
    name: &str,
    model: &Model,
    activations: Activations,
    steps: usize,
    rms_max: f64,
) -> Vec<String> {
    let (vocab, most) = (model.config.vocab, 64usize);
    let (name, exact) = (format!("{name}, {}", activations.name()), activations == Activations::Int16);
    let ids = |seq: usize| -> Vec<TokenId> {
        let mut random = Random(seq as u64 + 9);
        (0..steps).map(|_| random.below(vocab as u64) as TokenId).collect()
    };
    let mut cpu = Driver::recording(model, &cpu_config(exact));
    let want: Vec<Vec<f32>> = (0..most).map(|seq| cpu.prompt(&ids(seq), 512)).collect();
    let mut wrong = Vec::new();
    let mut gpu = Gpu::new(model, &CudaConfig { activations, ..config(64, 256) });
    let mut alone: Option<Vec<f32>> = None;
    for rows in [1, 2, 4, 8, 9, 16, 17, 24, 33, 64] {
        let (mut got, mut all) = (Vec::new(), Vec::new());
        for step in 0..steps {
            let tokens: Vec<TokenId> = (0..rows).map(|seq| ids(seq)[step]).collect();
            decode_together(&mut gpu, step as u32, Some(&tokens), rows as u32, &SamplingParams::greedy());
            got.extend(gpu.backend.logits(rows).unwrap());
            all.extend((0..rows).flat_map(|seq| want[seq][step * vocab..(step + 1) * vocab].iter().copied()));
        }
        let error = relative_rms(&got, &all);
        let first: Vec<f32> = got.chunks(rows * vocab).flat_map(|step| step[..vocab].iter().copied()).collect();
        if *alone.get_or_insert_with(|| first.clone()) != first {
            let alone = alone.as_deref().unwrap_or(&[]);
            let places: Vec<usize> = (0..first.len()).filter(|i| first[*i] != alone[*i]).collect();
            wrong.push(format!(
                "{name}: a row among {rows} differs from itself alone in {} of {} logits, step {} first",
                places.len(),
                first.len(),
                places[0] / vocab
            ));
        }
        println!("{name}, {rows} rows: RMS {error:.2e}, distinct experts {:?}", gpu.backend.expert_counts());
        if error.is_nan() || error > rms_max {
            wrong.push(format!("{name}, {rows} rows: {error:.2e}"));
        }
    }
    wrong
}

/// Where bytes do not depend on the batch they do not for any shape: the presets have narrow layers, whose kernels are
/// cut up in other ways than the shipped model's.
fn a_row_has_the_same_bytes_in_any_batch() {
    const STEPS: u32 = 4;
    let models = [
        "moe",
        "dense",
        "next",
        "quant",
        "mamba2",
        "granitehybrid",
        "falcon_h1",
        "nemotron_h",
        "nemotron_super",
        "qwen3",
        "qwen3_moe",
        "granite",
    ]
    .map(|name| (name, support::gguf(name)));
    let synthetic = SYNTHETIC.map(|(shape, layers, _)| (shape, synthetic(shape, layers)));
    for (name, model) in models.into_iter().chain(synthetic) {
        let vocab = model.config.vocab;
        for activations in [Activations::Int8, Activations::Int16] {
            let mut gpu = Gpu::new(&model, &CudaConfig { activations, ..config(64, 256) });
            let mut wrong = Vec::new();
            let mut alone: Option<Vec<f32>> = None;
            for rows in [1usize, 2, 5, 8, 9, 12, 16, 17, 40, 64] {
                let mut got = Vec::new();
                for step in 0..STEPS {
                    let tokens: Vec<TokenId> = (0..rows as u32).map(|seq| token_of(seq, step, vocab)).collect();
                    decode_together(&mut gpu, step, Some(&tokens), rows as u32, &SamplingParams::greedy());
                    got.extend_from_slice(&gpu.backend.logits(rows).unwrap()[..vocab]);
                }
                let want = alone.get_or_insert_with(|| got.clone());
                let differ = got.iter().zip(want.iter()).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
                if differ > 0 {
                    wrong.push(format!(
                        "{name}, {}: among {rows} rows {differ} of {} logits differ",
                        activations.name(),
                        got.len()
                    ));
                }
            }
            assert_eq!(wrong, [""; 0]);
        }
    }
}

fn every_row_of_a_batch_follows_the_cpu() {
    assert_eq!(batches_follow("nano", &support::nano(), Activations::Int8, 24, 4e-2), [""; 0]);
    assert_eq!(batches_follow("nano", &support::nano(), Activations::Int16, 24, 5e-3), [""; 0]);
    if let Some(path) = std::env::var_os("CHIMERE_TEST_MODEL") {
        let model = chimere_engine::model::load(path.as_ref()).unwrap();
        assert_eq!(batches_follow("given", &model, Activations::Int8, 6, 4e-2), [""; 0]);
    }
}
