//! Whatever a checked request may say, also what no sensible one says: it is refused with a reason or runs to its end,
//! and no assertion stands where its data could reach it.

use super::device::{FakeDevice, VOCAB};
use crate::constraint::thinking::{Adaptive, Level, Thinking};
use crate::ids::{KeyId, Micros, RequestId};
use crate::sampling::SamplingParams;
use crate::scheduler::{
    Event, KeyLimits, Pace, Pooling, PrefixConfig, PromptScores, Rejected, Request, Scheduler, SchedulerConfig, Spec,
    Terms,
};
use crate::step::ExpertCut;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Mostly small numbers, now and then the ends of the range.
fn count(small: std::ops::Range<u32>) -> impl Strategy<Value = u32> {
    prop_oneof![8 => small, 1 => Just(0), 1 => Just(u32::MAX), 1 => Just(u32::MAX - 1)]
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..1_000_000u64, 1 => Just(0), 1 => Just(u64::MAX), 1 => Just(u64::MAX / 2)]
}

fn thinking() -> impl Strategy<Value = Thinking> {
    let level =
        || (-1.0..9.0f32, -1.0..2.0f32).prop_map(|(entropy_max, top_prob_min)| Level { entropy_max, top_prob_min });
    let adaptive =
        (1..5u32, level(), prop::option::of(level()), count(0..6)).prop_map(|(window, hold, stop, stop_tokens_min)| {
            Adaptive { window, hold, held: [9, 9, 41].into(), stop, stop_tokens_min }
        });
    (prop::option::of(0..VOCAB), prop::option::of(count(0..20)), prop::option::of(adaptive), 1..4u32).prop_map(
        |(opens, tokens_max, adaptive, closing)| Thinking {
            opens,
            ends: vec![41, 42],
            closing: (0..closing).map(|i| 40 + i).collect(),
            tokens_max,
            adaptive,
        },
    )
}

fn request() -> impl Strategy<Value = Request> {
    let prompt = prop_oneof![1 => Just(0usize), 12 => 1..180usize, 1 => Just(5_000usize)];
    let what = (prompt, 1..5u32, prop::option::of(count(0..40)), any::<bool>(), prop::option::of(0..21u8));
    let how =
        (prop_oneof![-2..3i32, Just(i32::MIN), Just(i32::MAX)], prop::option::of(thinking()), 0..3u8, count(0..9));
    (what, how, any::<u64>()).prop_map(
        |((prompt, choices, max_tokens, ends, score), (priority, thinking, pool, least), seed)| {
            let pool = [None, Some(Pooling::Mean), Some(Pooling::Last)][usize::from(pool)].filter(|_| choices == 1);
            let sampling = SamplingParams { seed, certainty: true, ..SamplingParams::default() };
            let spec = Spec {
                choices,
                // Who asks for a hidden state asks for no token; the HTTP part makes no other.
                max_tokens: if pool.is_some() { Some(0) } else { max_tokens },
                min_tokens: least,
                end_ids: if ends { [3, 4, 3].into() } else { Arc::default() },
                sampling: Arc::new(sampling),
                priority,
                score_prompt: score.map(PromptScores::whole),
                thinking: thinking.map(Arc::new),
                experts: Some(ExpertCut { min: 1, max: 2, mass: 0.5 }),
                pool,
                ..Spec::default()
            };
            let prompt: Vec<_> = (0..prompt).map(|i| i as u32 * 7 % VOCAB).collect();
            Request::new(RequestId(0), prompt, spec)
        },
    )
}

fn terms() -> impl Strategy<Value = Terms> {
    let limits = (1..1_001u32, count(0..4), count(0..5_000));
    (0..3u64, limits, prop::option::of(time()), prop::bool::weighted(0.1)).prop_map(
        |(key, (weight, requests, tokens_per_minute), deadline, exempt)| Terms {
            key: KeyId(key),
            limits: KeyLimits { weight, requests, tokens_per_minute },
            deadline: deadline.map(Micros),
            exempt,
            idle: false,
        },
    )
}

/// Runs until nothing is live, and counts the ends of choices.
fn drain(scheduler: &mut Scheduler, device: &mut FakeDevice, now: &mut u64, ends: &mut BTreeMap<RequestId, u32>) {
    let mut steps = 0;
    while !scheduler.is_idle() {
        *now = now.saturating_add(1);
        let plan = scheduler.plan(Micros(*now)).expect("what was taken can run");
        let outcome = device.run(&plan);
        for (id, event) in scheduler.commit(outcome, Micros(*now)) {
            if let Event::Finished { .. } = event {
                *ends.get_mut(&id).expect("events are for requests that were taken") -= 1;
            }
        }
        steps += 1;
        assert!(steps < 100_000, "it comes to an end");
    }
}

proptest! {
    #![proptest_config(super::property::cases())]

    #[test]
    fn any_request_is_refused_with_a_reason_or_runs_to_its_end(
        requests in prop::collection::vec((request(), terms(), time()), 1..24),
        pages in 3..24u32,
        wait_us_max in time(),
    ) {
        let config = SchedulerConfig {
            slots: 3,
            pages,
            step_tokens: 70,
            context: 300,
            queue_requests_max: 8,
            queue_prompt_tokens_max: 600,
            steps_in_flight_max: 1,
            adapter_slots: 8,
            prefix: PrefixConfig::OFF,
        };
        let (mut scheduler, mut device) = (Scheduler::new(config), FakeDevice::new(&config));
        let (mut ends, mut last) = (BTreeMap::new(), 0);
        for (i, (mut request, terms, now)) in requests.into_iter().enumerate() {
            request.id = RequestId(i as u64);
            let (id, choices, empty) = (request.id, request.spec.choices, request.prompt.is_empty());
            let pace = Pace { wait_us_max, ..Pace::default() };
            match scheduler.admit_under(request, &terms, Micros(now), &pace) {
                Ok(()) => {
                    prop_assert!(!empty);
                    ends.insert(id, choices);
                }
                Err(why) => prop_assert_eq!(why == Rejected::EmptyPrompt, empty, "{}", why),
            }
            scheduler.audit();
            last = now;
        }
        drain(&mut scheduler, &mut device, &mut last, &mut ends);
        prop_assert!(ends.values().all(|left| *left == 0), "every choice ends once: {ends:?}");
        scheduler.assert_all_is_free();
    }
}
