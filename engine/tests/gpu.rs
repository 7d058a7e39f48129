//! The CUDA backend against the CPU backend and the reference, on a real device. Without one tests report that they
//! were ignored, and why;
//! `CHIMERE_REQUIRE` with `gpu` turns that into a failure.
//!
//! Data is read from the repository, or from where `CHIMERE_TEST_DATA` says it was copied to. `CHIMERE_SOAK_SECONDS`
//! lengthens the last test.
#![allow(clippy::unwrap_used, reason = "a test may panic anywhere")]

mod support;

use chimere_engine::backend::cpu::{CpuBackend, CpuConfig};
use chimere_engine::backend::cuda::{
    Activations, Compiler, CudaBackend, CudaConfig, CudaMemory, KernelCache, KvStorage, probe, programs,
};
use chimere_engine::backend::{Backend, Pending};
use chimere_engine::constraint::{Constraint, Effect, RowRule, Rule, Source, Sources, StepRules};
use chimere_engine::format::synth::{Mix, SynthOptions, write, write_outline};
use chimere_engine::ids::{Micros, PageId, RequestId, SeqId, SlotId, StepId, TokenId};
use chimere_engine::model::{Model, MoeConfig};
use chimere_engine::sampling::SamplingParams;
use chimere_engine::scheduler::{
    DraftMode, Event, HostBlocks, Pooling, PrefixConfig, Request, Scheduler, SchedulerConfig, Spec,
};
use chimere_engine::step::{
    ExpertCut, ExpertReads, ExpertUse, Form, Piece, PieceTokens, PooledUnit, SampleRow, StateStart, StepOutcome,
    StepPlan,
};
use chimere_kernels::reference::sampler as definition;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::conversations::{Setting, hold};
use support::drafts::{CONTEXT, Setup, check, check_head};
use support::{Driver, Golden, Random, argmax_agreement, relative_rms};

/// Tests that want a device.
const ON_A_GPU: &[(&str, fn())] = &[
    ("the_golden_presets_follow_the_exact_path", the_golden_presets_follow_the_exact_path),
    ("synthetic_hybrids_follow_the_exact_path", synthetic_hybrids_follow_the_exact_path),
    ("the_shipped_model_follows_the_exact_path", the_shipped_model_follows_the_exact_path),
    ("greedy_tokens_part_only_where_the_best_two_are_close", greedy_tokens_part_only_where_the_best_two_are_close),
    ("every_row_of_a_batch_follows_the_cpu", every_row_of_a_batch_follows_the_cpu),
    ("a_row_has_the_same_bytes_in_any_batch", a_row_has_the_same_bytes_in_any_batch),
    (
        "rows_with_constraints_sample_the_definition_s_tokens_and_say_which_they_changed",
        rows_with_constraints_sample_the_definition_s_tokens_and_say_which_they_changed,
    ),
    ("rows_under_masks_of_their_own_say_what_these_leave", rows_under_masks_of_their_own_say_what_these_leave),
    (
        "rows_do_with_fewer_experts_and_those_beside_them_do_not_notice",
        rows_do_with_fewer_experts_and_those_beside_them_do_not_notice,
    ),
    ("rows_with_fewer_experts_follow_the_cpu_s", rows_with_fewer_experts_follow_the_cpu_s),
    (
        "positions_that_are_computed_again_do_with_fewer_experts_too",
        positions_that_are_computed_again_do_with_fewer_experts_too,
    ),
    ("rows_report_what_their_tokens_are_drawn_from", rows_report_what_their_tokens_are_drawn_from),
    (
        "rows_sample_the_tokens_that_the_definition_gives_for_their_logits",
        rows_sample_the_tokens_that_the_definition_gives_for_their_logits,
    ),
    ("a_prefix_cache_changes_no_byte", a_prefix_cache_changes_no_byte),
    (
        "a_request_gives_the_same_bytes_alone_and_among_fifteen_others",
        a_request_gives_the_same_bytes_alone_and_among_fifteen_others,
    ),
    ("drafts_change_no_byte", drafts_change_no_byte),
    ("guesses_of_a_draft_head_change_no_byte", guesses_of_a_draft_head_change_no_byte),
    ("where_experts_lie_changes_no_byte", where_experts_lie_changes_no_byte),
    (
        "hidden_states_follow_the_exact_path_and_do_not_depend_on_what_runs_beside_them",
        hidden_states_follow_the_exact_path_and_do_not_depend_on_what_runs_beside_them,
    ),
    ("requests_come_and_go_for_a_long_time", requests_come_and_go_for_a_long_time),
    ("a_cpu_and_a_gpu_backend_are_told_apart", a_cpu_and_a_gpu_backend_are_told_apart),
];

fn main() -> ExitCode {
    // One at a time: some measure the memory of the one device.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let mut trials: Vec<Trial> = ON_A_GPU.iter().map(|(name, test)| on_a_gpu(name, *test)).collect();
    trials.push(Trial::ignorable_test("a_given_model_follows_the_cpu", || {
        let Some(path) = std::env::var_os("CHIMERE_TEST_MODEL") else {
            return Ok(Completion::ignored_with("CHIMERE_TEST_MODEL names no file"));
        };
        completed_or(no_gpu(), || a_given_model_follows_the_cpu(path.as_ref()))
    }));
    trials.push(Trial::ignorable_test("hidden_states_count_once_where_few_pages_have_a_prompt_computed_twice", || {
        let on_cpu = pooled_on_the_cpu();
        completed_or(no_gpu(), || hidden_states_count_once_on_a_gpu(&on_cpu))
    }));
    trials.push(Trial::ignorable_test("every_kernel_of_the_shipped_model_compiles", || {
        completed_or(missing("nvrtc", Compiler::load().err()), every_kernel_of_the_shipped_model_compiles)
    }));
    trials.push(Trial::ignorable_test("every_kernel_of_the_synthetic_hybrids_compiles", || {
        completed_or(missing("nvrtc", Compiler::load().err()), every_kernel_of_the_synthetic_hybrids_compiles)
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn on_a_gpu(name: &str, test: fn()) -> Trial {
    Trial::ignorable_test(name, move || completed_or(no_gpu(), test))
}

/// Runs `test`, or says why it cannot; a failure if what is missing is required.
fn completed_or(missing: Result<Option<String>, Failed>, test: impl FnOnce()) -> Result<Completion, Failed> {
    if let Some(reason) = missing? {
        return Ok(Completion::ignored_with(reason));
    }
    test();
    Ok(Completion::Completed)
}

fn no_gpu() -> Result<Option<String>, Failed> {
    missing("gpu", probe(0).err())
}

/// Why something cannot be tested, or a failure where `CHIMERE_REQUIRE` has its name.
fn missing(what: &str, error: Option<impl std::fmt::Display>) -> Result<Option<String>, Failed> {
    let Some(error) = error else { return Ok(None) };
    if std::env::var("CHIMERE_REQUIRE").is_ok_and(|names| names.split(',').any(|name| name == what)) {
        return Err(error.to_string().into());
    }
    Ok(Some(error.to_string()))
}

fn config(slots: u32, pages: u32, deterministic: bool) -> CudaConfig {
    CudaConfig {
        ordinal: 0,
        slots,
        pages,
        checkpoints: 0,
        host_cache_bytes: 0,
        kv: KvStorage::F16,
        // Of models as small as those here, 16 bits.
        activations: Activations::Auto,
        step_rows_max: 512,
        context: 4096,
        deterministic,
        drafts: 7,
        mtp: true,
        host_embedding: false,
        expert_bytes: None,
        kernel_cache: None,
    }
}

/// One sequence in slot 0, driven by hand.
struct Gpu {
    backend: CudaBackend,
    next: u64,
    vocab: usize,
}

impl Gpu {
    fn new(model: &Model, config: &CudaConfig) -> Self {
        let begin = Instant::now();
        let backend = CudaBackend::new(model, config, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
        eprintln!("{}: ready after {:.1} s", model.config.name, begin.elapsed().as_secs_f32());
        Self { backend, next: 0, vocab: model.config.vocab }
    }

    /// Launches a step; whoever waits for it may have to send its late rules first.
    fn launch(&mut self, pieces: Vec<Piece>) -> (StepId, Pending) {
        let id = StepId(self.next);
        self.next += 1;
        (id, self.backend.launch(StepPlan::new(id, pieces)).unwrap())
    }

    /// A step from beginning to end.
    fn step(&mut self, pieces: Vec<Piece>) -> StepOutcome {
        self.launch(pieces).1.wait().unwrap()
    }

    /// Logits after the last of these positions, and what was sampled greedily.
    fn run(&mut self, form: Form, start: usize, tokens: PieceTokens, prompt_len: usize) -> (Vec<f32>, TokenId) {
        let row = SampleRow::new(SeqId(1), SlotId(0), Arc::new(SamplingParams::greedy()));
        let mut piece = support::piece(form, start, &[0]);
        piece.tokens = tokens;
        let end = start as u32 + piece.len();
        piece.pages = (0..end.div_ceil(chimere_engine::PAGE_TOKENS)).map(PageId).collect();
        piece.prompt_len = prompt_len as u32;
        piece.samples = vec![row];
        let outcome = self.step(vec![piece]);
        let logits = self.backend.logits(2).unwrap();
        // A decode row's logits come first; a prompt's too, if no decode row is in the step.
        (logits[..self.vocab].to_vec(), outcome.samples[0].token)
    }

    fn prompt(&mut self, ids: &[TokenId], sizes: &[usize]) -> (Vec<f32>, TokenId) {
        let (mut at, mut last) = (0, None);
        for size in sizes.iter().copied().cycle() {
            let end = (at + size).min(ids.len());
            last = Some(self.run(Form::Chunked, at, PieceTokens::Known(ids[at..end].to_vec()), ids.len()));
            at = end;
            if at == ids.len() {
                break;
            }
        }
        last.unwrap()
    }

    /// Logits at every position, one token at a time.
    fn decode(&mut self, ids: &[TokenId]) -> Vec<f32> {
        let step =
            |(i, id): (usize, &TokenId)| self.run(Form::Recurrent, i, PieceTokens::Known(vec![*id]), ids.len()).0;
        ids.iter().enumerate().flat_map(step).collect()
    }
}

fn cpu_config(exact: bool) -> CpuConfig {
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(16);
    support::shipped_config(exact, threads)
}

/// Mean Kullback-Leibler divergence of rows of logits.
fn divergence(got: &[f32], want: &[f32], vocab: usize) -> f64 {
    let log_softmax = |row: &[f32]| {
        let best = row.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
        let sum: f64 = row.iter().map(|l| f64::from(l - best).exp()).sum();
        row.iter().map(|l| f64::from(l - best) - sum.ln()).collect::<Vec<f64>>()
    };
    let rows = got.chunks(vocab).zip(want.chunks(vocab));
    let all: f64 =
        rows.map(|(g, w)| log_softmax(w).iter().zip(log_softmax(g)).map(|(w, g)| w.exp() * (w - g)).sum::<f64>()).sum();
    all / (got.len() / vocab) as f64
}

/// Compares logits of the exact path with the GPU's, one token at a time and in pieces; returns what went wrong.
fn follow(
    name: &str,
    model: &Model,
    activations: Activations,
    ids: &[TokenId],
    rms_max: f64,
    agreement_min: f64,
) -> Vec<String> {
    let (vocab, name) = (model.config.vocab, format!("{name}, {}", activations.of(model).name()));
    let want = Driver::recording(model, &cpu_config(true)).prompt(ids, 512);
    let default = Driver::recording(model, &cpu_config(false)).prompt(ids, 512);
    let of_default = (relative_rms(&default, &want), argmax_agreement(&default, &want, vocab));
    println!("{name}: the CPU's default path: RMS {:.2e}, same best token {:.3}", of_default.0, of_default.1);
    let mut gpu = Gpu::new(model, &CudaConfig { activations, ..config(2, 128, false) });
    let got = gpu.decode(ids);
    let (rms, agreement) = (relative_rms(&got, &want), argmax_agreement(&got, &want, vocab));
    println!("{name}: decode RMS {rms:.2e}, KL {:.2e}, same best token {agreement:.3}", divergence(&got, &want, vocab));
    let both = (relative_rms(&got, &default), argmax_agreement(&got, &default, vocab));
    println!("{name}: decode against the CPU's default path: RMS {:.2e}, same best token {:.3}", both.0, both.1);
    let mut wrong = Vec::new();
    if rms.is_nan() || rms > rms_max || agreement < agreement_min {
        wrong.push(format!("{name}: RMS {rms:.2e}, same best token {agreement:.3}"));
    }
    let last = &want[want.len() - vocab..];
    for sizes in [&[512][..], &[64], &[128, 64]] {
        let (logits, _) = gpu.prompt(ids, sizes);
        let error = relative_rms(&logits, last);
        println!("{name}: prompt in pieces of {sizes:?}: RMS {error:.2e}");
        if error.is_nan() || error > 2.0 * rms_max {
            wrong.push(format!("{name}: prompt in pieces of {sizes:?}: {error:.2e}"));
        }
    }
    wrong
}

fn the_golden_presets_follow_the_exact_path() {
    // The specification allows 3e-2 for dense models and 6e-2 for mixtures; 16 bits keep 3e-4, and would show if a
    // kernel lost a plane.
    let bounds = [
        ("dense", Activations::Int16, 5e-3, 0.99),
        ("moe", Activations::Int16, 5e-3, 0.99),
        ("next", Activations::Int16, 5e-3, 0.99),
        ("quant", Activations::Int16, 5e-3, 0.99),
        ("mamba2", Activations::Int16, 5e-3, 0.99),
        ("mamba2", Activations::Int8, 3e-2, 0.9),
        ("quant", Activations::Int8, 6e-2, 0.9),
    ];
    let all = bounds.map(|(preset, activations, rms, agreement)| {
        let ids = Golden::of(preset).ids("input_ids");
        follow(preset, &support::gguf(preset), activations, &ids, rms, agreement)
    });
    assert_eq!(all.concat(), [""; 0]);
}

/// A file of any size, where `CHIMERE_TEST_MODEL` names one: a synthetic one of the released shape has its widths and
/// encodings.
fn a_given_model_follows_the_cpu(path: &Path) {
    let model = chimere_engine::model::load(path).unwrap();
    let ids: Vec<TokenId> = (0..70).map(|i| (i * 337 + 11) % model.config.vocab as TokenId).collect();
    assert_eq!(follow("given", &model, Activations::Auto, &ids, 6e-2, 0.9), [""; 0]);
}

/// Hybrids whose golden presets have heads that are narrower than the kernels', with the sizes of a release but for few
/// layers, experts and tokens.
///
/// With bounds for activations of 16 and of 8 bits: of granite's weights the embedding outweighs what all blocks add,
/// so a block that is wrong moves its logits little; others have keys and values in f16 beside that.
const SYNTHETIC: [(&str, usize, [f64; 2]); 4] = [
    ("granite-4-h-tiny", 6, [5e-5, 5e-3]),
    ("falcon-h1-7b", 2, [2e-3, 4e-2]),
    ("nemotron-3-nano-30b-a3b", 7, [1e-3, 1.5e-2]),
    ("nemotron-h-8b", 2, [3e-4, 2.5e-2]),
];

fn small(shape: &str, layers: usize) -> SynthOptions {
    let experts = ["granite-4-h-tiny", "nemotron-3-nano-30b-a3b"].contains(&shape).then_some(8);
    let (layers, vocab) = (Some(layers), Some(512));
    SynthOptions { shape: shape.into(), mix: Mix::Q4, layers, experts, vocab, draft_head: false, seed: 3 }
}

fn synthetic(shape: &str, layers: usize) -> Model {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("model.gguf");
    write(&file, &small(shape, layers), |_, _| ()).unwrap();
    // The file is mapped: its folder may go.
    chimere_engine::model::load(&file).unwrap()
}

fn synthetic_hybrids_follow_the_exact_path() {
    let ids: Vec<TokenId> = (0..150).map(|i| (i * 337 + 11) % 512).collect();
    let follow = |(shape, layers, [wide, narrow]): (&str, usize, [f64; 2])| {
        let model = synthetic(shape, layers);
        [(Activations::Int16, wide, 0.98), (Activations::Int8, narrow, 0.9)]
            .map(|(activations, rms, agreement)| follow(shape, &model, activations, &ids, rms, agreement))
            .concat()
    };
    assert_eq!(SYNTHETIC.map(follow).concat(), [""; 0]);
}

fn nano_prompts() -> Vec<Vec<TokenId>> {
    let golden = Golden::read(&support::data_dir().join("models/nano/reference/golden.safetensors"));
    let (ids, mut at) = (golden.ids("ids"), 0);
    golden.ids("lengths").iter().map(|n| (at += *n as usize, ids[at - *n as usize..at].to_vec()).1).collect()
}

fn the_shipped_model_follows_the_exact_path() {
    let model = support::nano();
    let prompts = nano_prompts();
    let ids = |n| prompts.iter().flatten().copied().take(n).collect::<Vec<TokenId>>();
    assert_eq!(follow("nano", &model, Activations::Int16, &ids(1200), 5e-3, 0.99), [""; 0]);
    assert_eq!(follow("nano", &model, Activations::Int8, &ids(400), 3e-2, 0.95), [""; 0]);
}

fn greedy_tokens_part_only_where_the_best_two_are_close() {
    let (model, vocab) = (support::nano(), 8192);
    let mut gpu = Gpu::new(&model, &config(2, 128, false));
    let (mut cpu, mut default) =
        (Driver::recording(&model, &cpu_config(true)), Driver::recording(&model, &cpu_config(false)));
    // Where the best two of the CPU are how far apart, as a part of the logits' RMS; squares of errors, and of what
    // they are errors of.
    let (mut gaps, mut squares, mut compared, mut parted_default) = (Vec::new(), (0.0, 0.0), 0, 0);
    for (p, prompt) in nano_prompts().iter().take(20).enumerate() {
        let mut ids = prompt.clone();
        let (first, mut token) = gpu.prompt(prompt, &[512]);
        let mut rows = vec![first];
        for _ in 0..256 {
            ids.push(token);
            let (row, next) = gpu.run(Form::Recurrent, ids.len() - 1, PieceTokens::Sampled, prompt.len());
            rows.push(row);
            token = next;
        }
        let best_of = |row: &[f32]| (0..vocab).max_by(|a, b| row[*a].total_cmp(&row[*b]).then(b.cmp(a))).unwrap();
        let (logits, of_default) = (cpu.prompt(&ids, 512), default.prompt(&ids, 512));
        let parts = |at: &usize| best_of(&of_default[(at - 1) * vocab..at * vocab]) as TokenId != ids[*at];
        parted_default += usize::from((prompt.len()..ids.len()).any(|at| parts(&at)));
        for at in prompt.len()..ids.len() {
            let (row, got) = (&logits[(at - 1) * vocab..at * vocab], &rows[at - prompt.len()]);
            let size = |v: &[f32]| v.iter().map(|l| f64::from(*l).powi(2)).sum::<f64>();
            let error: Vec<f32> = got.iter().zip(row).map(|(a, b)| a - b).collect();
            squares = (squares.0 + size(&error), squares.1 + size(row));
            compared += 1;
            let best = best_of(row);
            if best as TokenId != ids[at] {
                let gap = f64::from(row[best] - row[ids[at] as usize]) / (size(row) / vocab as f64).sqrt();
                println!(
                    "prompt {p}, token {}: the CPU's best is {gap:.4} of the logits' RMS above the GPU's",
                    at - prompt.len()
                );
                gaps.push(gap);
                break;
            }
        }
    }
    let rms = (squares.0 / squares.1).sqrt();
    let far = gaps.iter().filter(|gap| **gap > 4.0 * rms).count();
    println!("{} of 20 prompts part, {far} far from a tie; {compared} tokens compared, RMS {rms:.2e}", gaps.len());
    println!("{parted_default} of 20 prompts part from the CPU's default path");
    assert!(
        rms < 5e-3 && far == 0,
        "{far} of 20 prompts part where the best two differ by more than four times the RMS {rms:.2e}"
    );
}

/// One decode row of each of several sequences. Sequence `i` has slot `i` and pages of its own.
fn decode_rows(position: u32, tokens: Option<&[TokenId]>, rows: u32, params: &SamplingParams) -> Vec<Piece> {
    const PAGES_EACH: u32 = 4;
    let piece = |i: u32| {
        let params = Arc::new(SamplingParams { seed: 1000 + u64::from(i), ..params.clone() });
        let row = SampleRow { output_index: position, ..SampleRow::new(SeqId(u64::from(i)), SlotId(i), params) };
        let tokens = tokens.map_or(PieceTokens::Sampled, |t| PieceTokens::Known(vec![t[i as usize]]));
        let pages = (0..=position / chimere_engine::PAGE_TOKENS).map(|p| PageId(PAGES_EACH * i + p)).collect();
        let (seq, slot, samples) = (row.seq, row.slot, vec![row]);
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
            pool_from: None,
            exports: Vec::new(),
        }
    };
    (0..rows).map(piece).collect()
}

/// [`decode_rows`] run; what was sampled.
fn decode_together(
    gpu: &mut Gpu,
    position: u32,
    tokens: Option<&[TokenId]>,
    rows: u32,
    params: &SamplingParams,
) -> Vec<TokenId> {
    gpu.step(decode_rows(position, tokens, rows, params)).samples.iter().map(|s| s.token).collect()
}

/// Every row of batches of every size follows the CPU, which rounds activations to 8 bits too or not at all, in both
/// modes; in the deterministic one a row's bytes are the same in all of them.
fn batches_follow(name: &str, model: &Model, activations: Activations, steps: usize, rms_max: f64) -> Vec<String> {
    let (vocab, most) = (model.config.vocab, 64usize);
    let (name, exact) = (format!("{name}, {}", activations.name()), activations == Activations::Int16);
    let ids = |seq: usize| -> Vec<TokenId> {
        let mut random = Random(seq as u64 + 9);
        (0..steps).map(|_| random.below(vocab as u64) as TokenId).collect()
    };
    let mut cpu = Driver::recording(model, &cpu_config(exact));
    let want: Vec<Vec<f32>> = (0..most).map(|seq| cpu.prompt(&ids(seq), 512)).collect();
    let mut wrong = Vec::new();
    for deterministic in [false, true] {
        let mut gpu = Gpu::new(model, &CudaConfig { activations, ..config(64, 256, deterministic) });
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
            if deterministic && *alone.get_or_insert_with(|| first.clone()) != first {
                let alone = alone.as_deref().unwrap_or(&[]);
                let places: Vec<usize> = (0..first.len()).filter(|i| first[*i] != alone[*i]).collect();
                wrong.push(format!(
                    "{name}: a row among {rows} differs from itself alone in {} of {} logits, step {} first",
                    places.len(),
                    first.len(),
                    places[0] / vocab
                ));
            }
            println!(
                "{name}, deterministic {deterministic}, {rows} rows: RMS {error:.2e}, distinct experts {:?}",
                gpu.backend.expert_counts()
            );
            if error.is_nan() || error > rms_max {
                wrong.push(format!("{name}, deterministic {deterministic}, {rows} rows: {error:.2e}"));
            }
        }
    }
    wrong
}

/// Where bytes do not depend on the batch they do not for any shape: the presets have narrow layers, whose kernels are
/// cut up in other ways than the shipped model's.
fn a_row_has_the_same_bytes_in_any_batch() {
    const STEPS: u32 = 4;
    let models = ["moe", "dense", "next", "quant", "mamba2"].map(|name| (name, support::gguf(name)));
    let synthetic = SYNTHETIC.map(|(shape, layers, _)| (shape, synthetic(shape, layers)));
    for (name, model) in models.into_iter().chain(synthetic) {
        let vocab = model.config.vocab;
        for activations in [Activations::Int8, Activations::Int16] {
            let mut gpu = Gpu::new(&model, &CudaConfig { activations, ..config(64, 256, true) });
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

/// The definition's token for a row of [`decode_rows`] with neutral parameters.
fn defined(logits: &[f32], row: usize, step: u32, constraint: &Constraint) -> TokenId {
    definition_of(row, step, (logits.len(), constraint), |p, c| definition::sample(logits, p, c))
}

/// Something of a row of so many logits, as the definition has its parameters.
fn definition_of<T>(
    row: usize,
    step: u32,
    (vocab, constraint): (usize, &Constraint),
    of: impl FnOnce(&definition::Sampling, &definition::Context) -> T,
) -> T {
    let sampling = definition::Sampling {
        temperature: 1.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
        seed: 1000 + row as u64,
        repetition_penalty: 1.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        logit_bias: &[],
        // What is forbidden is there what may not come before so many tokens.
        min_tokens: step + 1,
        end_ids: &constraint.forbidden,
    };
    let (prompt, counts) = (vec![false; vocab], vec![0; vocab]);
    let context = definition::Context {
        in_prompt: &prompt,
        output_counts: &counts,
        edits: &constraint.bias,
        mix: &constraint.mix,
        mask: constraint.mask.as_deref(),
        output_index: step,
        choice: 0,
    };
    of(&sampling, &context)
}

fn rows_with_constraints_sample_the_definition_s_tokens_and_say_which_they_changed() {
    let model = support::nano();
    let (vocab, mut gpu) = (model.config.vocab, Gpu::new(&model, &config(64, 256, false)));
    let mut changed = 0;
    for rows in [1, 3, 16, 40usize] {
        let mut random = Random(rows as u64);
        let first: Vec<TokenId> = (0..rows).map(|i| (i * 131 % vocab) as TokenId).collect();
        for step in 0..6u32 {
            let mut ids = |n: u64| -> Vec<(TokenId, f32)> {
                let ids: BTreeMap<_, _> =
                    (0..n).map(|_| (random.below(vocab as u64) as TokenId, random.below(100) as f32 / 400.0)).collect();
                ids.into_iter().collect()
            };
            let mask: Arc<[u32]> = (0..vocab.div_ceil(32) as u32).map(|w| w.wrapping_mul(2_654_435_761) | 1).collect();
            // Rows with biases, mixtures, both, a mask alone, and rows that wait for nothing but may not say their
            // first token.
            let mut rules: Vec<Vec<Rule>> = Vec::new();
            for i in 0..rows {
                let tables = |effect| Rule { source: Source::Tables, effect };
                let bias = (i % 5 == 0 || i % 5 == 2).then(|| tables(Effect::Bias(ids(20))));
                let mix = (i % 5 < 2).then(|| tables(Effect::Mix(ids(64))));
                let allow = || Rule { source: Source::Grammar, effect: Effect::Allow(mask.clone()) };
                let forbid = || Rule { source: Source::MinTokens, effect: Effect::Forbid([first[i], first[0]].into()) };
                let others = [(i % 5 == 1 || i % 5 == 3).then(allow), (i % 5 == 4).then(forbid)];
                rules.push([bias, mix].into_iter().chain(others).flatten().collect());
            }
            let mut pieces =
                decode_rows(step, (step == 0).then_some(&first[..]), rows as u32, &SamplingParams::default());
            for (piece, rules) in pieces.iter_mut().zip(&rules) {
                let row = &mut piece.samples[0];
                row.rules = rules.iter().filter(|rule| !rule.source.is_late()).cloned().collect();
                row.waits_for = rules.iter().map(|rule| rule.source).filter(|source| source.is_late()).collect();
            }
            let waits_for = pieces.iter().fold(Sources::NONE, |all, piece| all.with(piece.samples[0].waits_for));
            let (id, pending) = gpu.launch(pieces);
            for source in waits_for.iter() {
                let of_row = |(i, rules): (usize, &Vec<Rule>)| {
                    let said = rules.iter().filter(|rule| rule.source == source);
                    said.map(|rule| RowRule { seq: SeqId(i as u64), output: step, effect: rule.effect.clone() })
                        .collect::<Vec<_>>()
                };
                let said = rules.iter().enumerate().flat_map(of_row).collect();
                gpu.backend.constrain(StepRules { step: id, source, rows: said }).unwrap();
            }
            let samples = pending.wait().unwrap().samples;
            let logits = gpu.backend.logits(rows).unwrap();
            for (i, (sample, row)) in samples.iter().zip(logits.chunks(vocab)).enumerate() {
                let all = Constraint::of(rules[i].clone(), vocab as u32);
                let plain = Constraint { bias: Vec::new(), mix: Vec::new(), ..all.clone() };
                let (token, plain) = (defined(row, i, step, &all), defined(row, i, step, &plain));
                assert_eq!(
                    (sample.token, sample.changed),
                    (token, Some(token != plain)),
                    "row {i} of {rows}, step {step}"
                );
                changed += usize::from(token != plain);
            }
        }
    }
    println!("{changed} tokens changed");
    assert!(changed > 20, "{changed}");
}

/// Every row has its own mask of the whole vocabulary, so that their words do not fit into one batch of lists; half of
/// the masks leave one token, which a step later is what the row goes on from.
fn rows_under_masks_of_their_own_say_what_these_leave() {
    let model = support::nano();
    let (vocab, mut gpu) = (model.config.vocab, Gpu::new(&model, &config(64, 256, false)));
    let mut random = Random(7);
    for rows in [1, 16, 64usize] {
        let first: Vec<TokenId> = (0..rows).map(|i| (i * 131 % vocab) as TokenId).collect();
        for step in 0..4u32 {
            let left: Vec<Vec<TokenId>> =
                (0..rows).map(|i| (0..=i % 2 * 3).map(|_| random.below(vocab as u64) as TokenId).collect()).collect();
            let mut pieces =
                decode_rows(step, (step == 0).then_some(&first[..]), rows as u32, &SamplingParams::default());
            pieces.iter_mut().for_each(|piece| piece.samples[0].waits_for = Sources::only(Source::Grammar));
            let (id, pending) = gpu.launch(pieces);
            let rule = |(i, ids): (usize, &Vec<TokenId>)| {
                let mut words = vec![0u32; vocab.div_ceil(32)];
                ids.iter().for_each(|id| words[*id as usize / 32] |= 1 << (id % 32));
                RowRule { seq: SeqId(i as u64), output: step, effect: Effect::Allow(words.into()) }
            };
            let rules = left.iter().enumerate().map(rule).collect();
            gpu.backend.constrain(StepRules { step: id, source: Source::Grammar, rows: rules }).unwrap();
            for (i, (sample, ids)) in pending.wait().unwrap().samples.iter().zip(&left).enumerate() {
                assert!(ids.contains(&sample.token), "row {i} of {rows}, step {step}: {} of {ids:?}", sample.token);
                assert!(sample.yielded.is_empty());
            }
        }
    }
}

/// Logits after the last of `steps` positions of each sequence, and what rows with a cut took on the way.
fn decode_cut(
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

fn token_of(row: u32, step: u32, vocab: usize) -> TokenId {
    (row * 131 + step * 977 + 5) % vocab as TokenId
}

/// As [`decode_cut`] of one sequence, on the CPU.
fn decode_cut_on_cpu(model: &Model, steps: u32, cut: Option<ExpertCut>) -> (Vec<f32>, ExpertUse) {
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
    for deterministic in [false, true] {
        let mut gpu = Gpu::new(&model, &config(64, 256, deterministic));
        for rows in [1, 3, 16, 40usize] {
            let what = format!("deterministic {deterministic}, {rows} rows");
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
}

fn rows_with_fewer_experts_follow_the_cpu_s() {
    let (model, steps) = (support::nano(), 40);
    let mut gpu = Gpu::new(&model, &config(4, 64, false));
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
    let mut gpu = Gpu::new(&model, &config(2, 64, false));
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

fn rows_sample_the_tokens_that_the_definition_gives_for_their_logits() {
    let model = std::env::var_os("CHIMERE_TEST_MODEL")
        .map_or_else(support::nano, |path| chimere_engine::model::load(path.as_ref()).unwrap());
    let (vocab, mut gpu) = (model.config.vocab, Gpu::new(&model, &config(64, 256, false)));
    for rows in [1, 3, 16, 64usize] {
        let first: Vec<TokenId> = (0..rows).map(|i| (i * 131 % vocab) as TokenId).collect();
        for step in 0..8u32 {
            let tokens = (step == 0).then_some(&first[..]);
            let got = decode_together(&mut gpu, step, tokens, rows as u32, &SamplingParams::default());
            let logits = gpu.backend.logits(rows).unwrap();
            // The definition takes what is no number for minus infinity, so it would not tell dead rows.
            assert!(logits.iter().all(|l| l.is_finite()), "{rows} rows, step {step}");
            for (i, (token, row)) in got.iter().zip(logits.chunks(vocab)).enumerate() {
                assert_eq!(*token, defined(row, i, step, &Constraint::default()), "row {i} of {rows}, step {step}");
            }
            // Random weights give nearly uniform distributions, a trained model's may be sharp.
            if rows >= 16 && std::env::var_os("CHIMERE_TEST_MODEL").is_some() {
                let distinct = got.iter().collect::<std::collections::HashSet<_>>().len();
                assert!(2 * distinct > rows, "{distinct} distinct tokens of {rows} rows: {got:?}");
            }
        }
    }
}

/// With rows beside them that report log-probabilities of the model's own logits.
fn rows_report_what_their_tokens_are_drawn_from() {
    let model = support::nano();
    let (vocab, mut gpu) = (model.config.vocab, Gpu::new(&model, &config(16, 64, false)));
    let own = SamplingParams { logprobs: Some(3), ..SamplingParams::default() };
    for step in 0..4u32 {
        let first: Vec<TokenId> = (0..16).map(|i| i * 131 % vocab as TokenId).collect();
        let mut pieces = decode_rows(step, (step == 0).then_some(&first[..]), 16, &own);
        for sample in pieces.iter_mut().skip(1).step_by(2).flat_map(|piece| &mut piece.samples) {
            sample.params = Arc::new(SamplingParams { top_p: 0.5, processed: true, ..(*sample.params).clone() });
        }
        let got = gpu.step(pieces).samples;
        let logits = gpu.backend.logits(16).unwrap();
        for (i, (sample, row)) in got.iter().zip(logits.chunks(vocab)).enumerate() {
            let told = sample.logprobs.as_ref().expect("all rows asked for them");
            let top_p = if i % 2 == 1 { 0.5 } else { 1.0 };
            // Without filters and at temperature 1 what is drawn from are the model's own logits.
            let of_draw = definition_of(i, step, (vocab, &Constraint::default()), |p, c| {
                definition::drawn_logprobs(row, &definition::Sampling { top_p, ..*p }, c)
            });
            let near = |(a, b): (&(u32, f32), &(u32, f32))| a.0 == b.0 && (a.1 - b.1).abs() < 1e-4;
            assert!(
                told.top.len() == of_draw.len().min(3) && told.top.iter().zip(&of_draw).all(near),
                "row {i}, step {step}: {told:?}"
            );
            let own = of_draw.iter().find(|(id, _)| *id == sample.token).expect("a token that can be drawn");
            assert!((own.1 - told.logprob).abs() < 1e-4, "row {i}, step {step}: {own:?} {told:?}");
        }
    }
}

/// Tokens and log-probabilities of a request, as bits, by choice.
type Output = BTreeMap<u32, Vec<(TokenId, u32)>>;

fn request(id: u64, vocab: u64, longest: u64) -> Request {
    let mut random = Random(id * 77 + 5);
    let sampling = match id % 3 {
        0 => SamplingParams { logprobs: Some(2), ..SamplingParams::greedy() },
        1 => SamplingParams {
            temperature: 0.9,
            top_p: 0.95,
            top_k: 20,
            seed: id,
            logprobs: Some(0),
            processed: true,
            ..SamplingParams::default()
        },
        _ => SamplingParams {
            temperature: 1.0,
            repetition_penalty: 1.1,
            frequency_penalty: 0.2,
            seed: id,
            ..SamplingParams::default()
        },
    };
    let prompt: Vec<_> = (0..1 + random.below(longest)).map(|_| random.below(vocab) as TokenId).collect();
    let spec = Spec {
        choices: if id % 7 == 3 { 2 } else { 1 },
        max_tokens: Some(1 + random.below(90) as u32),
        sampling: Arc::new(sampling),
        ..Spec::default()
    };
    Request::new(RequestId(id), prompt, spec)
}

/// Runs requests through the real scheduler, at most `together` at a time.
fn serve(model: &Model, backend: &mut dyn Backend, requests: Vec<Request>, together: usize) -> BTreeMap<u64, Output> {
    serve_and_count(model, backend, requests, together).0
}

/// The same, and where the experts lay that were read.
fn serve_and_count(
    model: &Model,
    backend: &mut dyn Backend,
    requests: Vec<Request>,
    together: usize,
) -> (BTreeMap<u64, Output>, ExpertReads) {
    let mut reads = ExpertReads::default();
    let info = backend.info().clone();
    let mut scheduler = Scheduler::new(scheduler_config(&info));
    let mut waiting: VecDeque<Request> = requests.into();
    let (mut outputs, mut running, mut launched) = (BTreeMap::<u64, Output>::new(), 0, VecDeque::<Pending>::new());
    let mut now = Micros(0);
    assert!(model.config.vocab > 0);
    while !(waiting.is_empty() && scheduler.is_idle()) {
        now.0 += 1;
        while running < together
            && let Some(request) = waiting.pop_front()
        {
            running += request.spec.choices as usize;
            scheduler.admit(request, now).unwrap();
        }
        while let Some(plan) = scheduler.plan(now) {
            launched.push_back(backend.launch(plan).unwrap());
        }
        let Some(pending) = launched.pop_front() else { continue };
        let outcome = pending.wait().unwrap();
        reads.hits += outcome.expert_reads.hits;
        reads.misses += outcome.expert_reads.misses;
        reads.promoted += outcome.expert_reads.promoted;
        for (id, event) in scheduler.commit(outcome, now) {
            match event {
                Event::Token { choice, token, logprobs, .. } => {
                    let bits = logprobs.map_or(0, |l| l.logprob.to_bits());
                    outputs.entry(id.0).or_default().entry(choice).or_default().push((token, bits));
                }
                Event::Finished { .. } => running -= 1,
                other => panic!("{other:?}"),
            }
        }
    }
    (outputs, reads)
}

fn scheduler_config(info: &chimere_engine::backend::BackendInfo) -> SchedulerConfig {
    SchedulerConfig {
        slots: info.slots,
        pages: info.pages,
        step_tokens: 256,
        context: info.context,
        queue_requests_max: 1 << 16,
        queue_prompt_tokens_max: 1 << 30,
        steps_in_flight_max: 2,
        prefix: PrefixConfig::OFF,
    }
}

fn a_request_gives_the_same_bytes_alone_and_among_fifteen_others() {
    let presets = [support::nano(), support::gguf("moe"), support::gguf("dense"), support::gguf("mamba2")];
    for model in presets.into_iter().chain(SYNTHETIC.map(|(shape, layers, _)| synthetic(shape, layers))) {
        let requests = || (0..24).map(|id| request(id, model.config.vocab as u64, 700)).collect::<Vec<_>>();
        let run = |slots, together| {
            let mut gpu = Gpu::new(&model, &config(slots, 600, true));
            serve(&model, &mut gpu.backend, requests(), together)
        };
        let (alone, crowd) = (run(2, 1), run(17, 16));
        let differing: Vec<u64> =
            alone.iter().filter(|(id, out)| crowd.get(id) != Some(out)).map(|(id, _)| *id).collect();
        assert_eq!(differing, [0u64; 0], "{}", model.config.name);
    }
}

/// A backend for tests of drafts.
fn drafting(model: &Model, setup: &Setup, step_rows_max: u32) -> CudaBackend {
    let drafts = if setup.drafts == DraftMode::Off { 0 } else { 7 };
    let config = config(setup.slots, setup.pages, true);
    let config = CudaConfig { checkpoints: setup.checkpoints, step_rows_max, context: CONTEXT, drafts, ..config };
    let mut backend = CudaBackend::new(model, &config, &mut |_| {}).unwrap();
    backend.poison().unwrap();
    backend
}

/// Right, wrong and random guesses, 1 to 7 behind a row, against a backend that takes none.
fn drafts_change_no_byte() {
    for (name, model) in [("nano", support::nano()), ("moe", support::gguf("moe")), ("quant", support::gguf("quant"))] {
        check(name, |setup, step_rows_max| drafting(&model, setup, step_rows_max));
    }
}

/// The same with what the model's own draft head guesses.
fn guesses_of_a_draft_head_change_no_byte() {
    for (name, model) in [("nano", support::nano()), ("moe", support::gguf("moe")), ("dense", support::gguf("dense"))] {
        check_head(name, |setup, step_rows_max| drafting(&model, setup, step_rows_max));
    }
}

/// Experts in the device's memory, in the host's, and on their way between both.
fn where_experts_lie_changes_no_byte() {
    let given = std::env::var_os("CHIMERE_TEST_MODEL");
    let given = given.map(|path| chimere_engine::model::load(path.as_ref()).unwrap());
    for model in [support::nano(), support::gguf("moe"), support::gguf("quant")].into_iter().chain(given) {
        let requests = || (0..16).map(|id| request(id, model.config.vocab as u64, 300)).collect::<Vec<_>>();
        for deterministic in [false, true] {
            // Where experts lie in two memories there is no draft head.
            let config = CudaConfig { mtp: false, ..config(9, 600, deterministic) };
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
                assert_eq!(reads.hits > 0, percent > 0);
                assert!(reads.promoted > 0 || percent == 0, "{percent} %: nobody changed places");
            }
        }
    }
}

/// Conversations with and without a cache, with much and little room, and with clients that leave.
fn a_prefix_cache_changes_no_byte() {
    // Of the last one a block has both a state and pages.
    let presets = [support::nano(), support::gguf("moe"), support::gguf("dense"), support::gguf("mamba2")];
    for model in presets.into_iter().chain([synthetic("falcon-h1-7b", 2)]) {
        let off = Setting { step_tokens: 256, checkpoints: 0, together: 1, host: HostBlocks::NONE, cancel_after: 0 };
        let memory = CudaMemory::of(&model, &config(2, 200, true));
        let host = HostBlocks::of(memory.checkpoint, memory.page);
        let run = |slots: u32, pages: u32, setting: Setting| {
            // Room for some twenty entries, so that the host gives up some too.
            let host_cache_bytes = 30 * u64::from(setting.host.checkpoint) * setting.host.bytes;
            let config =
                CudaConfig { checkpoints: setting.checkpoints, host_cache_bytes, ..config(slots, pages, true) };
            let mut gpu = Gpu::new(&model, &config);
            gpu.backend.poison().unwrap();
            hold(&mut gpu.backend, 8, setting)
        };
        let want = run(2, 200, off);
        let on = Setting { checkpoints: 64, ..off };
        let crowd = Setting { together: 6, step_tokens: 150, ..on };
        for (slots, pages, setting) in [
            (2, 600, on),
            (9, 600, crowd),
            (9, 600, Setting { checkpoints: 3, ..crowd }),
            (9, 60, crowd),
            (9, 500, Setting { cancel_after: 2, ..crowd }),
            (2, 600, Setting { checkpoints: 2, host, ..on }),
            (9, 600, Setting { checkpoints: 3, host, ..crowd }),
            (9, 60, Setting { checkpoints: 3, host, cancel_after: 2, ..crowd }),
        ] {
            let got = run(slots, pages, setting);
            let differing: Vec<_> = want.answers.keys().filter(|t| got.answers.get(t) != want.answers.get(t)).collect();
            let (cached, all) = got.cached;
            println!("{} {slots} {pages} {setting:?}: {cached} of {all} cached, {:?}", model.config.name, got.stats);
            assert_eq!(differing, [&(0, 0); 0], "{} {setting:?}", model.config.name);
            assert!(cached > 0);
            assert_eq!(got.stats.totals.loaded > 0, setting.host.is_some(), "{:?}", got.stats);
        }
    }
}

/// Two steps of three prompts, of which two want the sum of all their hidden states and one its last; beside the second
/// step's runs a decode row. `together`: prompts share a step; else each piece of 64 has its own.
fn pooled_steps(together: bool) -> Vec<Vec<Piece>> {
    let text: Vec<TokenId> = nano_prompts().concat();
    let piece = |seq: u32, start: usize, end: usize, pool_from: u32| Piece {
        seq: SeqId(u64::from(seq)),
        slot: SlotId(seq),
        pages: (0..16).map(|page| PageId(16 * seq + page)).collect(),
        pool_from: Some(pool_from),
        ..support::piece(Form::Chunked, start, &text[300 * seq as usize..][start..end])
    };
    if together {
        let decode = Piece { pool_from: None, form: Form::Recurrent, ..piece(3, 5, 6, 0) };
        return vec![
            vec![piece(0, 0, 128, 0), piece(1, 0, 70, 0), piece(2, 0, 128, 139)],
            vec![decode, piece(2, 128, 140, 139), piece(0, 128, 200, 0)],
        ];
    }
    let pieces = |seq: u32, len: usize, from: u32| {
        (0..len).step_by(64).map(move |at| vec![piece(seq, at, len.min(at + 64), from)])
    };
    pieces(0, 200, 0).chain(pieces(1, 70, 0)).chain(pieces(2, 140, 139)).collect()
}

/// Units in the order of sequences and positions.
fn pooled_units(steps: Vec<Vec<Piece>>, mut run: impl FnMut(Vec<Piece>) -> StepOutcome) -> Vec<PooledUnit> {
    let mut units: Vec<PooledUnit> = steps.into_iter().flat_map(|pieces| run(pieces).pooled).collect();
    units.sort_by_key(|unit| (unit.seq, unit.positions.start));
    units
}

fn hidden_states_follow_the_exact_path_and_do_not_depend_on_what_runs_beside_them() {
    let model = support::nano();
    let mut cpu = Driver::recording(&model, &CpuConfig { slots: 4, ..cpu_config(true) });
    let want = pooled_units(pooled_steps(true), |pieces| cpu.step(pieces));
    let at = |units: &[PooledUnit]| units.iter().map(|u| (u.seq.0, u.positions.clone())).collect::<Vec<_>>();
    assert_eq!(
        at(&want),
        [(0, 0..64), (0, 64..128), (0, 128..192), (0, 192..200), (1, 0..64), (1, 64..70), (2, 139..140)]
    );
    for deterministic in [false, true] {
        let mut gpu = Gpu::new(&model, &config(4, 128, deterministic));
        let got = pooled_units(pooled_steps(true), |pieces| gpu.step(pieces));
        assert_eq!(at(&got), at(&want));
        let values = |units: &[PooledUnit]| units.iter().flat_map(|u| u.sum.clone()).collect::<Vec<f32>>();
        let error = relative_rms(&values(&got), &values(&want));
        let each: Vec<String> =
            got.iter().zip(&want).map(|(g, w)| format!("{:.1e}", relative_rms(&g.sum, &w.sum))).collect();
        println!("hidden states, deterministic {deterministic}: RMS {error:.2e}, by unit {each:?}");
        assert!(error <= 3e-2, "{error:.2e}");
        let apart = pooled_units(pooled_steps(false), |pieces| gpu.step(pieces));
        assert!(!deterministic || apart == got, "other pieces give other sums");
    }
}

/// Five requests that write, and four that want hidden states, the first of which is long.
fn pooled_requests() -> Vec<Request> {
    let base = |id: u64, tokens: u64, spec: Spec| {
        let mut random = Random(id + 40);
        Request::new(RequestId(id), (0..tokens).map(|_| random.below(8192) as TokenId).collect::<Vec<_>>(), spec)
    };
    let pooled = |id, tokens, pool| base(id, tokens, Spec { pool: Some(pool), ..Spec::greedy(0) });
    let long = pooled(5, 2560, Pooling::Mean);
    let short = [pooled(6, 40, Pooling::Mean), pooled(7, 130, Pooling::Last), pooled(8, 64, Pooling::Mean)];
    (0..5).map(|id| base(id, 27, Spec::greedy(120))).chain([long]).chain(short).collect()
}

/// What [`pooled_requests`] get, and how often one of their prompts had to begin again.
fn pooled(backend: &mut dyn Backend) -> (BTreeMap<u64, Vec<f32>>, usize) {
    let mut scheduler =
        Scheduler::new(SchedulerConfig { step_tokens: 64, ..scheduler_config(&backend.info().clone()) });
    pooled_requests().into_iter().for_each(|request| scheduler.admit(request, Micros(0)).map(drop).unwrap());
    let (mut states, mut begins, mut launched) = (BTreeMap::new(), 0, VecDeque::<Pending>::new());
    while !scheduler.is_idle() {
        while let Some(plan) = scheduler.plan(Micros(1)) {
            begins += plan.pieces.iter().filter(|p| p.pool_from.is_some() && p.start == 0).count();
            launched.push_back(backend.launch(plan).unwrap());
        }
        let outcome = launched.pop_front().expect("somebody runs").wait().unwrap();
        for (id, event) in scheduler.commit(outcome, Micros(2)) {
            if let Event::Pooled(state) = event {
                assert!(states.insert(id.0, state).is_none(), "request {} is told twice", id.0);
            }
        }
    }
    (states, begins - pooled_requests().iter().filter(|r| r.spec.pool.is_some()).count())
}

/// So few that a prompt gives its pages away and begins again.
const FEW_PAGES: u32 = 92;

/// What [`pooled_requests`] get on the CPU, and how many prompts few pages have begin again there.
fn pooled_on_the_cpu() -> (BTreeMap<u64, Vec<f32>>, usize) {
    let model = support::nano();
    let on_cpu = |pages| {
        let config = CpuConfig { slots: 8, pages, ..cpu_config(false) };
        pooled(&mut CpuBackend::new(&model, &config, &mut |_| {}).unwrap())
    };
    let (want, once) = on_cpu(512);
    let (again, twice) = on_cpu(FEW_PAGES);
    assert!(once == 0 && twice > 0 && want.len() == 4, "{once} and {twice} prompts begun again, {} states", want.len());
    assert!(again == want, "the CPU gives other bytes");
    (want, twice)
}

fn hidden_states_count_once_on_a_gpu((want, twice): &(BTreeMap<u64, Vec<f32>>, usize)) {
    let mut gpu = Gpu::new(&support::nano(), &config(8, FEW_PAGES, false));
    let (got, restarts) = pooled(&mut gpu.backend);
    assert_eq!((restarts, got.len()), (*twice, want.len()));
    for (id, want) in want {
        let error = relative_rms(&got[id], want);
        println!("request {id}: hidden state RMS {error:.2e}");
        // One row alone has no others that its error could vanish among.
        assert!(error <= if *id == 7 { 1e-1 } else { 3e-2 }, "request {id}: {error:.2e}");
    }
}

fn requests_come_and_go_for_a_long_time() {
    let seconds = std::env::var("CHIMERE_SOAK_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(10);
    let model = support::nano();
    let mut gpu = Gpu::new(&model, &config(32, 600, false));
    let free = || probe(0).unwrap().free_bytes;
    let (before, begin) = (free(), Instant::now());
    let (mut scheduler, mut random) = (Scheduler::new(scheduler_config(&gpu.backend.info().clone())), Random(3));
    let (mut launched, mut now, mut next, mut steps, mut live) =
        (VecDeque::<Pending>::new(), Micros(0), 0u64, 0u64, Vec::<RequestId>::new());
    while begin.elapsed() < Duration::from_secs(seconds) {
        now.0 += 1;
        if live.len() < 40 && random.below(4) == 0 {
            scheduler.admit(request(next, 8192, 300), now).unwrap();
            live.push(RequestId(next));
            next += 1;
        }
        if !live.is_empty() && random.below(200) == 0 {
            let gone = live.swap_remove(random.below(live.len() as u64) as usize);
            scheduler.cancel(gone);
        }
        while let Some(plan) = scheduler.plan(now) {
            launched.push_back(gpu.backend.launch(plan).unwrap());
        }
        let Some(pending) = launched.pop_front() else { continue };
        steps += 1;
        for (id, event) in scheduler.commit(pending.wait().unwrap(), now) {
            if matches!(event, Event::Finished { .. }) {
                live.retain(|l| *l != id);
            }
        }
    }
    println!("{steps} steps, {next} requests in {seconds} s; free memory {} before, {} after", before, free());
    assert_eq!(free(), before, "memory leaks");
}

fn a_cpu_and_a_gpu_backend_are_told_apart() {
    let model = support::gguf("moe");
    let cpu = CpuBackend::new(&model, &cpu_config(false), &mut |_| {}).unwrap();
    let gpu = Gpu::new(&model, &config(2, 16, false));
    assert_eq!((cpu.info().device, gpu.backend.info().device), ("cpu", "cuda"));
}

/// Needs the run-time compiler and no device.
fn every_kernel_of_the_synthetic_hybrids_compiles() {
    let (dir, arch) = (tempfile::tempdir().unwrap(), "sm_90a".parse().unwrap());
    let cache = KernelCache::new(dir.path());
    let outline = dir.path().join("outline.gguf");
    for (shape, layers, _) in SYNTHETIC {
        write_outline(&outline, &small(shape, layers)).unwrap();
        let model = chimere_engine::model::load(&outline).unwrap();
        for (activations, expert_bytes) in
            [(Activations::Int8, None), (Activations::Int8, Some(0)), (Activations::Int16, None)]
        {
            let config = CudaConfig { activations, expert_bytes, ..config(2, 16, true) };
            cache.build(&programs(&model, &config, arch, None).unwrap(), &[arch]).unwrap_or_else(|e| panic!("{e}"));
        }
    }
}

/// Needs the run-time compiler and no device.
fn every_kernel_of_the_shipped_model_compiles() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, arch) = (KernelCache::new(dir.path()), "sm_90a".parse().unwrap());
    for expert_bytes in [None, Some(0)] {
        let config = CudaConfig { expert_bytes, ..config(2, 16, true) };
        let programs = programs(&support::nano(), &config, arch, None).unwrap();
        let missing = cache.missing(&programs, arch);
        assert!(missing > 0);
        assert_eq!(cache.build(&programs, &[arch]).unwrap(), missing);
    }
}
