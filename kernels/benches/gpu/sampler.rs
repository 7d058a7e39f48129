//! Times of sampling.

use crate::time::graph_time;
use crate::{Gpu, Outcome};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::sampler::{self, SampleInputs, SampleOutputs, SampleParams, SampleResult, Sampler};
use chimere_kernels::cuda::{CudaError, Program};
use cudarc::driver::CudaSlice;
use std::error::Error;

const VOCAB: usize = 248_320;
const ROWS_MAX: usize = 256;
const SLOTS: usize = 4;

/// Builds the programs that [`time`] loads.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    [false, true].map(|drawn| sampler::program(VOCAB, drawn)).into_iter().collect()
}

/// Nearly a normal distribution: the sum of twelve even ones.
fn normal(random: &mut Random) -> f32 {
    (0..12).map(|_| 0.5 * random.signed()).sum()
}

/// Measures rows of the released vocabulary: normally distributed logits, and such with a few that stand out.
pub(crate) fn time(gpu: &Gpu) -> Outcome {
    let vocab = VOCAB;
    let stream = gpu.device.stream();
    let mut kernel = Sampler::load(&gpu.device, &gpu.cache, vocab, ROWS_MAX)?;
    let mut random = Random(1);
    let mut flat: Vec<f32> = (0..16 * vocab).map(|_| 2.0 * normal(&mut random)).collect();
    let repeated = |flat: &[f32]| -> Result<CudaSlice<f32>, Box<dyn Error>> {
        let mut all = stream.alloc_zeros::<f32>(ROWS_MAX * vocab)?;
        for i in 0..ROWS_MAX / 16 {
            stream.memcpy_htod(flat, &mut all.slice_mut(i * flat.len()..(i + 1) * flat.len()))?;
        }
        Ok(all)
    };
    let plain = repeated(&flat)?;
    flat.chunks_mut(vocab)
        .for_each(|row| (0..40).for_each(|i| row[random.bits() as usize % vocab] = 14.0 + 0.25 * i as f32));
    let peaked = repeated(&flat)?;
    let history = stream.clone_htod(&(0..SLOTS * vocab).map(|i| u16::from(i % 100 == 0)).collect::<Vec<_>>())?;
    // 64 pairs, as many as a table gives at most.
    let lists: Vec<u32> = (0..64).flat_map(|i| [i * 97, 0.01f32.to_bits()]).collect();
    let lists = stream.clone_htod(&lists)?;
    let mut results = stream.alloc_zeros::<SampleResult>(ROWS_MAX)?;
    let mut sampled = stream.alloc_zeros::<i32>(ROWS_MAX)?;
    let base = SampleParams::default();
    let cases = [
        ("greedy", SampleParams { temperature: 0.0, ..base }),
        ("temperature 1", base),
        ("top_k 20, top_p 0.95", SampleParams { top_k: 20, top_p: 0.95, ..base }),
        ("top_p 0.9", SampleParams { top_p: 0.9, ..base }),
        ("min_p 0.05", SampleParams { min_p: 0.05, ..base }),
        ("penalties", SampleParams { history: 0, repetition_penalty: 1.1, presence_penalty: 0.5, ..base }),
        ("20 logprobs", SampleParams { logprobs: 20, ..base }),
        ("20 logprobs of the draw", SampleParams { logprobs: 20, processed: 1, ..base }),
        (
            "top_k 20, top_p 0.95, 20 logprobs of the draw",
            SampleParams { top_k: 20, top_p: 0.95, logprobs: 20, processed: 1, ..base },
        ),
        ("certainty", SampleParams { certainty: 1, ..base }),
        ("greedy, 64 mixed in", SampleParams { temperature: 0.0, mixes: 64, ..base }),
        ("temperature 1, 64 mixed in", SampleParams { mixes: 64, ..base }),
        ("temperature 1, 64 biased", SampleParams { edits: 64, ..base }),
        ("top_k 20, top_p 0.95, 64 mixed in", SampleParams { top_k: 20, top_p: 0.95, mixes: 64, ..base }),
    ];
    println!("| us, {vocab} logits | 1 row | 4 | 16 | 64 | 256 |\n| --- | --- | --- | --- | --- | --- |");
    for (shape, logits) in [("normal", &plain), ("peaked", &peaked)] {
        for (name, params) in cases {
            let mut line = format!("| {name}, {shape} |");
            for n in [1, 4, 16, 64, 256] {
                let rows: Vec<SampleParams> =
                    (0..n).map(|i| SampleParams { row: i as i32, slot: i as i32, seed: i as u64, ..params }).collect();
                let params = stream.clone_htod(&rows)?;
                let processed = rows[0].processed == 1;
                let seconds = graph_time(gpu, if n > 16 { 5 } else { 40 }, |_| {
                    let inputs = SampleInputs {
                        logits: &logits.as_view(),
                        params: &params.as_view(),
                        lists: &lists.as_view(),
                        history: &history.as_view(),
                        ahead: None,
                        tally: None,
                        processed,
                    };
                    let outputs =
                        SampleOutputs { results: &mut results.as_view_mut(), sampled: &mut sampled.as_view_mut() };
                    // SAFETY: rows, slots and history are below their numbers; launches are in order.
                    unsafe { kernel.launch(&gpu.device, n, inputs, outputs) }
                })?;
                line.push_str(&format!(" {:.1} |", seconds * 1e6));
            }
            println!("{line}");
        }
    }
    Ok(())
}
