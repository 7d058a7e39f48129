//! What a step costs on the scheduler's side: planning 256 decoding sequences, committing their tokens, and telling how
//! much there is to do.
//!
//! `cargo bench -p chimere-engine --bench scheduler`; a line's time is that of one plan, or of one commit, of 256 rows.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use chimere_engine::constraint::Sources;
use chimere_engine::ids::{Micros, RequestId};
use chimere_engine::scheduler::{Pace, PrefixConfig, Request, Scheduler, SchedulerConfig, Spec, StepShape};
use chimere_engine::step::{Sample, StepOutcome, StepPlan};
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SEQUENCES: u32 = 256;
/// Steps before the sequences start anew, so that their contexts stay near the one that is measured.
const STEPS: u64 = 512;

fn decoding(prompt_tokens: u32) -> Scheduler {
    let context = prompt_tokens + STEPS as u32 + 8;
    let mut scheduler = Scheduler::new(SchedulerConfig {
        slots: SEQUENCES,
        pages: SEQUENCES * (context / 32 + 2),
        step_tokens: SEQUENCES * prompt_tokens,
        context,
        queue_requests_max: SEQUENCES,
        queue_prompt_tokens_max: u64::MAX,
        steps_in_flight_max: 2,
        adapter_slots: 8,
        prefix: PrefixConfig::OFF,
    });
    let prompt: Arc<[u32]> = (0..prompt_tokens).collect();
    for id in 0..u64::from(SEQUENCES) {
        let spec = Spec { end_ids: [u32::MAX].into(), ..Spec::default() };
        let request = Request::new(RequestId(id), prompt.clone(), spec);
        scheduler.admit(request, Micros(0)).expect("the queue has room");
    }
    let plan = scheduler.plan(Micros(0)).expect("prompts wait");
    scheduler.commit(outcome(&plan), Micros(0));
    scheduler
}

fn outcome(plan: &StepPlan) -> StepOutcome {
    let rows = plan.pieces.iter().flat_map(|piece| &piece.samples);
    let samples = rows
        .map(|row| Sample {
            seq: row.seq,
            token: 7,
            logprobs: None,
            certainty: None,
            changed: None,
            yielded: Sources::NONE,
            report: None,
            finite: true,
        })
        .collect();
    StepOutcome { id: Some(plan.id), samples, ..StepOutcome::default() }
}

/// Time of `iterations` plans and of as many commits.
fn measure(prompt_tokens: u32, iterations: u64) -> (Duration, Duration) {
    let (mut planning, mut committing) = (Duration::ZERO, Duration::ZERO);
    let mut scheduler = decoding(prompt_tokens);
    for step in 1..=iterations {
        if step % STEPS == 0 {
            scheduler = decoding(prompt_tokens);
        }
        let start = Instant::now();
        let plan = black_box(scheduler.plan(Micros(step)).expect("all sequences decode"));
        planning += start.elapsed();
        assert_eq!(plan.pieces.len() as u32, SEQUENCES);
        let outcome = outcome(&plan);
        let start = Instant::now();
        black_box(scheduler.commit(outcome, Micros(step)));
        committing += start.elapsed();
    }
    (planning, committing)
}

fn measure_load(c: &mut Criterion) {
    let (scheduler, mut pace) = (decoding(64), Pace::default());
    pace.cost.observe(&StepShape { passes: 1, rows: 256, ..StepShape::default() }, Micros(10_000));
    c.bench_function("load of 256 rows", |b| b.iter(|| black_box(scheduler.load(&pace))));
}

fn decode_256(c: &mut Criterion) {
    for prompt_tokens in [64, 4096] {
        let at = |what: &str| format!("{what} 256 rows, context {prompt_tokens}");
        c.bench_function(&at("plan"), |b| b.iter_custom(|n| measure(prompt_tokens, n).0));
        c.bench_function(&at("commit"), |b| b.iter_custom(|n| measure(prompt_tokens, n).1));
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(2));
    targets = decode_256, measure_load
}
criterion_main!(benches);
