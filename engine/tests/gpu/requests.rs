//! Whole requests through a scheduler: alone and in a crowd, with drafts, with a prefix cache, and for a long time.

use super::Test;
use super::driver::{Gpu, config};
use super::follow::{SYNTHETIC, synthetic};
use super::support;
use super::support::Random;
use super::support::conversations::{Setting, hold};
use super::support::drafts::{CONTEXT, Setup, check, check_head};
use chimere_engine::backend::cuda::{CudaBackend, CudaConfig, CudaMemory, probe};
use chimere_engine::backend::{Backend, Pending};
use chimere_engine::drafts::DraftMode;
use chimere_engine::ids::{Micros, RequestId, TokenId};
use chimere_engine::model::{DraftIds, Model};
use chimere_engine::sampling::SamplingParams;
use chimere_engine::scheduler::{Event, HostBlocks, PrefixConfig, Request, Scheduler, SchedulerConfig, Spec};
use chimere_engine::step::ExpertReads;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tokens and log-probabilities of a request, as bits, by choice.
type Output = BTreeMap<u32, Vec<(TokenId, u32)>>;

/// Tests that want a device.
pub(super) const TESTS: &[Test] = &[
    ("a_prefix_cache_changes_no_byte", a_prefix_cache_changes_no_byte),
    (
        "a_request_gives_the_same_bytes_alone_and_among_fifteen_others",
        a_request_gives_the_same_bytes_alone_and_among_fifteen_others,
    ),
    ("drafts_change_no_byte", drafts_change_no_byte),
    ("guesses_of_a_draft_head_change_no_byte", guesses_of_a_draft_head_change_no_byte),
    ("guesses_among_few_ids_change_no_byte", guesses_among_few_ids_change_no_byte),
    ("requests_come_and_go_for_a_long_time", requests_come_and_go_for_a_long_time),
];

pub(super) fn request(id: u64, vocab: u64, longest: u64) -> Request {
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
pub(super) fn serve(
    model: &Model,
    backend: &mut dyn Backend,
    requests: Vec<Request>,
    together: usize,
) -> BTreeMap<u64, Output> {
    serve_and_count(model, backend, requests, together).0
}

/// As [`serve`], and counts where the experts lay that were read.
pub(super) fn serve_and_count(
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

pub(super) fn scheduler_config(info: &chimere_engine::backend::BackendInfo) -> SchedulerConfig {
    SchedulerConfig {
        slots: info.slots,
        pages: info.pages,
        step_tokens: 256,
        context: info.context,
        queue_requests_max: 1 << 16,
        queue_prompt_tokens_max: 1 << 30,
        steps_in_flight_max: 2,
        adapter_slots: info.adapter_slots,
        prefix: PrefixConfig::OFF,
    }
}

fn a_request_gives_the_same_bytes_alone_and_among_fifteen_others() {
    let presets = [support::nano(), support::gguf("moe"), support::gguf("dense"), support::gguf("mamba2")];
    for model in presets.into_iter().chain(SYNTHETIC.map(|(shape, layers, _)| synthetic(shape, layers))) {
        let requests = || (0..24).map(|id| request(id, model.config.vocab as u64, 700)).collect::<Vec<_>>();
        let run = |slots, together| {
            let mut gpu = Gpu::new(&model, &config(slots, 600));
            serve(&model, &mut gpu.backend, requests(), together)
        };
        let (alone, crowd) = (run(2, 1), run(17, 16));
        let differing: Vec<u64> =
            alone.iter().filter(|(id, out)| crowd.get(id) != Some(out)).map(|(id, _)| *id).collect();
        assert_eq!(differing, [0u64; 0], "{}", model.config.name);
    }
}

/// A backend for tests of drafts.
pub(super) fn drafting(model: &Model, setup: &Setup, step_rows_max: u32) -> CudaBackend {
    let drafts = if setup.drafts == DraftMode::Off { 0 } else { 7 };
    let config = config(setup.slots, setup.pages);
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

/// Guesses of the model's own draft head change no byte.
fn guesses_of_a_draft_head_change_no_byte() {
    for (name, model) in [("nano", support::nano()), ("moe", support::gguf("moe")), ("dense", support::gguf("dense"))] {
        check_head(name, |setup, step_rows_max| drafting(&model, setup, step_rows_max));
    }
}

/// And with a few ids to guess among: the first, or such as lie anywhere.
fn guesses_among_few_ids_change_no_byte() {
    let listed = DraftIds::Listed((0..8192).step_by(3).collect());
    let few = DraftIds::Listed((0..512).rev().step_by(3).collect());
    for (name, model, ids) in [
        ("moe", support::gguf("moe"), few),
        ("nano", support::nano(), DraftIds::First(2048)),
        ("nano", support::nano(), listed),
    ] {
        let model = support::guessing_among(model, &ids);
        check_head(name, |setup, step_rows_max| drafting(&model, setup, step_rows_max));
    }
}

/// Conversations with and without a cache, with much and little room, and with clients that leave.
fn a_prefix_cache_changes_no_byte() {
    // Of the last one a block has both a state and pages.
    let presets = [support::nano(), support::gguf("moe"), support::gguf("dense"), support::gguf("mamba2")];
    for model in presets.into_iter().chain([synthetic("falcon-h1-7b", 2)]) {
        let off = Setting { step_tokens: 256, checkpoints: 0, together: 1, host: HostBlocks::NONE, cancel_after: 0 };
        let memory = CudaMemory::of(&model, &config(2, 200));
        let host = HostBlocks::of(memory.checkpoint, memory.page);
        let run = |slots: u32, pages: u32, setting: Setting| {
            // Room for some twenty entries, so that the host gives up some too.
            let host_cache_bytes = 30 * u64::from(setting.host.checkpoint) * setting.host.bytes;
            let config = CudaConfig { checkpoints: setting.checkpoints, host_cache_bytes, ..config(slots, pages) };
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

fn requests_come_and_go_for_a_long_time() {
    let seconds = std::env::var("CHIMERE_SOAK_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(10);
    let model = support::nano();
    let mut gpu = Gpu::new(&model, &config(32, 600));
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
