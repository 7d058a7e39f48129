//! Mixtures: rows that do with fewer experts, and experts that lie in the memory of the host.

use super::Test;
use super::batches::decode_rows;
use super::driver::{Gpu, config, cpu_config};
use super::requests::{request, serve_and_count};
use super::support;
use super::support::{Driver, relative_rms};
use chimere_engine::backend::cuda::{CudaConfig, CudaMemory};
use chimere_engine::ids::TokenId;
use chimere_engine::model::{Model, MoeConfig};
use chimere_engine::sampling::SamplingParams;
use chimere_engine::step::{ExpertCut, ExpertReads, ExpertUse, Form, Piece};

/// Tests that want a device.
pub(super) const TESTS: &[Test] = &[
    (
        "rows_do_with_fewer_experts_and_those_beside_them_do_not_notice",
        rows_do_with_fewer_experts_and_those_beside_them_do_not_notice,
    ),
    ("rows_with_fewer_experts_follow_the_cpu_s", rows_with_fewer_experts_follow_the_cpu_s),
    (
        "positions_that_are_computed_again_do_with_fewer_experts_too",
        positions_that_are_computed_again_do_with_fewer_experts_too,
    ),
    ("where_experts_lie_changes_no_byte", where_experts_lie_changes_no_byte),
];

/// Logits after the last of `steps` positions of each sequence, and what rows with a cut took on the way.
pub(super) fn decode_cut(
    gpu: &mut Gpu,
    rows: usize,
    steps: u32,
    cut: impl Fn(usize) -> Option<ExpertCut>,
) -> (Vec<f32>, ExpertUse) {
    let mut took = ExpertUse::default();
    for step in 0..steps {
        let tokens: Vec<TokenId> = (0..rows as u32).map(|i| token_of(i, step, gpu.vocab)).collect();
        let mut pieces = decode_rows(step, Some(&tokens), rows as u32, &SamplingParams::greedy());
        pieces.iter_mut().enumerate().for_each(|(i, p)| p.experts = cut(i));
        let of_step = gpu.step(pieces).experts;
        took = ExpertUse { rows: took.rows + of_step.rows, experts: took.experts + of_step.experts };
    }
    (gpu.backend.logits(rows).unwrap(), took)
}

pub(super) fn token_of(row: u32, step: u32, vocab: usize) -> TokenId {
    (row * 131 + step * 977 + 5) % vocab as TokenId
}

/// As [`decode_cut`] of one sequence, on the CPU.
pub(super) fn decode_cut_on_cpu(model: &Model, steps: u32, cut: Option<ExpertCut>) -> (Vec<f32>, ExpertUse) {
    let mut cpu = Driver::recording(model, &cpu_config(false));
    let mut took = ExpertUse::default();
    for step in 0..steps {
        let token = token_of(0, step, model.config.vocab);
        let outcome =
            cpu.step(vec![Piece { experts: cut, ..support::piece(Form::Recurrent, step as usize, &[token]) }]);
        took = ExpertUse { rows: took.rows + outcome.experts.rows, experts: took.experts + outcome.experts.experts };
    }
    (cpu.backend.recording().logits.clone(), took)
}

fn rows_do_with_fewer_experts_and_those_beside_them_do_not_notice() {
    let model = support::nano();
    let used = model.config.each::<MoeConfig>().next().expect("the shipped model has experts").used;
    let (vocab, layers, steps) = (model.config.vocab, model.config.layers.len() as u64, 12);
    let cut = |min, max, mass| ExpertCut { min, max, mass };
    let mut gpu = Gpu::new(&model, &config(64, 256));
    for rows in [1, 3, 16, 40usize] {
        let what = format!("{rows} rows");
        let given = rows as u64 * u64::from(steps) * layers;
        let (whole, none) = decode_cut(&mut gpu, rows, steps, |_| None);
        assert_eq!(none, ExpertUse::default(), "{what}");
        let (same, took) = decode_cut(&mut gpu, rows, steps, |_| Some(cut(1, 99, 1.5)));
        assert!(same == whole, "{what}: a cut that leaves all experts changes the logits");
        assert_eq!(took, ExpertUse { rows: given, experts: given * used as u64 }, "{what}");
        let (one, took) = decode_cut(&mut gpu, rows, steps, |_| Some(cut(1, 99, 0.0)));
        assert_eq!(took, ExpertUse { rows: given, experts: given }, "{what}");
        assert!(gpu.backend.expert_counts().iter().all(|n| (1..=rows as u32).contains(n)), "{what}");
        let (mixed, took) = decode_cut(&mut gpu, rows, steps, |i| (i % 2 == 0).then_some(cut(1, 1, 1.0)));
        assert_eq!(took.rows, rows.div_ceil(2) as u64 * u64::from(steps) * layers, "{what}");
        for (i, row) in mixed.chunks(vocab).enumerate() {
            let want = if i % 2 == 0 { &one } else { &whole };
            assert!(row == &want[i * vocab..(i + 1) * vocab], "{what}: row {i} among rows with and without a cut");
        }
    }
}

fn rows_with_fewer_experts_follow_the_cpu_s() {
    let (model, steps) = (support::nano(), 40);
    let mut gpu = Gpu::new(&model, &config(4, 64));
    let whole = decode_cut_on_cpu(&model, steps, None).0;
    for cut in [ExpertCut { min: 2, max: 2, mass: 1.0 }, ExpertCut { min: 1, max: 99, mass: 0.6 }] {
        let (want, by_cpu) = decode_cut_on_cpu(&model, steps, Some(cut));
        let (got, by_gpu) = decode_cut(&mut gpu, 1, steps, |_| Some(cut));
        let (near, far) = (relative_rms(&got, &want), relative_rms(&got, &whole));
        println!("{cut:?}: RMS {near:.2e}, {far:.2e} to all experts; experts {by_gpu:?}, on the CPU {by_cpu:?}");
        assert!(near < 1e-1 && near < 0.5 * far, "{cut:?}: RMS {near:.2e}, {far:.2e} to all experts");
        assert_eq!(by_gpu.rows, by_cpu.rows);
        // Rounding turns a row here and there to one expert more or less.
        assert!(by_gpu.experts.abs_diff(by_cpu.experts) * 50 < by_cpu.experts, "{cut:?}: {by_gpu:?} for {by_cpu:?}");
    }
}

fn positions_that_are_computed_again_do_with_fewer_experts_too() {
    let model = support::nano();
    let layers = model.config.layers.len() as u64;
    let mut gpu = Gpu::new(&model, &config(2, 64));
    let ids: Vec<TokenId> = (0..70).map(|i| token_of(0, i, model.config.vocab)).collect();
    let mut again = |cut| {
        let sample = decode_rows(69, None, 1, &SamplingParams::greedy()).remove(0).samples;
        let piece = Piece { experts: cut, samples: sample, ..support::piece(Form::Recurrent, 0, &ids) };
        let took = gpu.step(vec![piece]).experts;
        (gpu.backend.logits(1).unwrap(), took)
    };
    let (whole, _) = again(None);
    let (same, _) = again(Some(ExpertCut { min: 1, max: 99, mass: 1.5 }));
    assert!(same == whole, "a cut that leaves all experts changes the logits");
    let (one, took) = again(Some(ExpertCut { min: 1, max: 1, mass: 1.0 }));
    assert!(one != whole);
    assert_eq!(took, ExpertUse { rows: 70 * layers, experts: 70 * layers });
}

/// Experts in the device's memory, in the host's, and on their way between both.
fn where_experts_lie_changes_no_byte() {
    let given = std::env::var_os("CHIMERE_TEST_MODEL");
    let given = given.map(|path| chimere_engine::model::load(path.as_ref()).unwrap());
    for model in ["moe", "quant", "nemotron_super"].map(support::gguf).into_iter().chain([support::nano()]).chain(given)
    {
        let requests = || (0..16).map(|id| request(id, model.config.vocab as u64, 300)).collect::<Vec<_>>();
        // Where experts lie in two memories there is no draft head.
        let config = CudaConfig { draft_head: false, ..config(9, 600) };
        let all = CudaMemory::of(&model, &config).experts;
        if all == 0 {
            continue;
        }
        let run = |expert_bytes| {
            let mut gpu = Gpu::new(&model, &CudaConfig { expert_bytes, ..config.clone() });
            serve_and_count(&model, &mut gpu.backend, requests(), 6)
        };
        let (want, reads) = run(None);
        assert_eq!(reads, ExpertReads::default(), "nobody counts where there is one place");
        for percent in [95, 67, 30, 0] {
            let (got, reads) = run(Some(all * percent / 100));
            let differing: Vec<u64> =
                want.iter().filter(|(id, out)| got.get(id) != Some(out)).map(|(id, _)| *id).collect();
            println!("{} {percent} %: {reads:?}", model.config.name);
            assert_eq!(differing, [0u64; 0], "{}, {percent} % of the experts on the device", model.config.name);
            assert!(reads.misses > 0);
            // Of four experts two are used at a time: none is rarer than another for long, and the only place on the
            // device may be one in reserve.
            let many = model.config.each::<MoeConfig>().all(|moe| moe.experts > 4);
            assert!(reads.hits > 0 || percent == 0 || !many, "{percent} %: nobody was found");
            assert!(reads.hits == 0 || percent > 0, "{reads:?}: where is none");
            assert!(reads.promoted > 0 || percent == 0 || !many, "{percent} %: nobody changed places");
        }
    }
}
