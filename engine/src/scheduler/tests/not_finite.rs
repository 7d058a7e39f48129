//! A request whose numbers are none fails, and nobody beside it.

use super::device::FakeDevice;
use super::drafts::request;
use crate::cache::PrefixConfig;
use crate::ids::{Micros, RequestId, SeqId};
use crate::scheduler::{Event, NOT_FINITE, Pooling, PromptScores, Request, Scheduler, SchedulerConfig, Spec};
use crate::step::StepOutcome;

const CONFIG: SchedulerConfig = SchedulerConfig {
    slots: 4,
    pages: 100,
    step_tokens: 200,
    context: 1_000,
    queue_requests_max: 64,
    queue_prompt_tokens_max: 60_000,
    steps_in_flight_max: 1,
    adapter_slots: 8,
    prefix: PrefixConfig::OFF,
};

/// Runs two requests to their ends while `spoil` does what it likes with each step's outcome, by the sequence of the
/// first. How each ended: a reason, or what it failed with.
fn ends(first: Request, spoil: impl Fn(u32, SeqId, &mut StepOutcome)) -> [String; 2] {
    let (mut scheduler, mut device) = (Scheduler::new(CONFIG), FakeDevice::new(&CONFIG));
    let id = first.id;
    scheduler.admit(first, Micros(0)).unwrap();
    let seq = scheduler.first_sequence(id).unwrap();
    let other = request(2, 30, 8);
    scheduler.admit(other, Micros(0)).unwrap();
    let mut ends = [const { String::new() }; 2];
    let mut step = 0;
    while let Some(plan) = scheduler.plan(Micros(step)) {
        let mut outcome = device.run(&plan);
        spoil(step as u32, seq, &mut outcome);
        for (id, event) in scheduler.commit(outcome, Micros(step)) {
            let end = &mut ends[usize::from(id != RequestId(1))];
            match event {
                Event::Finished { reason, .. } => *end = format!("{reason:?}"),
                Event::Failed(why) => *end = why,
                _ => assert!(end.is_empty(), "nothing follows an end: {event:?}"),
            }
        }
        step += 1;
    }
    scheduler.assert_all_is_free();
    ends
}

#[test]
fn a_request_whose_logits_are_no_finite_numbers_fails_alone() {
    for at in [0, 3] {
        let spoil = |step: u32, seq: SeqId, outcome: &mut StepOutcome| {
            let of = outcome.samples.iter_mut().filter(|sample| sample.seq == seq && step >= at);
            of.for_each(|sample| sample.finite = false);
        };
        assert_eq!(ends(request(1, 20, 8), spoil), [NOT_FINITE, "Length"], "from step {at} on");
    }
    assert_eq!(ends(request(1, 20, 8), |_, _, _| {}), ["Length", "Length"]);
}

#[test]
fn so_does_one_whose_scores_or_hidden_states_are_none() {
    let scored = Spec { score_prompt: Some(PromptScores::whole(0)), ..Spec::clone(&request(1, 20, 8).spec) };
    let spoil = |_: u32, seq: SeqId, outcome: &mut StepOutcome| {
        outcome.scores.iter_mut().filter(|score| score.seq == seq).take(1).for_each(|score| score.finite = false);
    };
    let prompt: Vec<_> = (0..20).collect();
    assert_eq!(ends(Request::new(RequestId(1), prompt.clone(), scored), spoil), [NOT_FINITE, "Length"]);
    let pooled = Spec { pool: Some(Pooling::Mean), max_tokens: Some(0), ..Spec::default() };
    let spoil = |_: u32, seq: SeqId, outcome: &mut StepOutcome| {
        outcome.pooled.iter_mut().filter(|unit| unit.seq == seq).for_each(|unit| unit.sum[0] = f32::NAN);
    };
    assert_eq!(ends(Request::new(RequestId(1), prompt, pooled), spoil), [NOT_FINITE, "Length"]);
}
