//! What the tables say of a step follows from the ids before each row alone.

use super::*;
use crate::constraint::{Awaiting, Effect, RowRule};
use crate::ids::{SeqId, StepId};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const OPEN: TokenId = 90;
const CLOSE: TokenId = 91;
const END: TokenId = 92;

fn request(texts: &[Vec<TokenId>]) -> RequestTables {
    let table = Arc::new(table(texts, &options(1, 3, 100)));
    RequestTables {
        filter: Arc::new(Filter::of_tables([&*table].into_iter())),
        tables: Member::all([table].into_iter()),
        prior: None,
        own: Vec::new(),
        mode: Mode::mixture(0.5).unwrap(),
        auto: None,
        rules: PredictionRules { min_count: 1 },
        silent_in: None,
        end_ids: vec![END],
        tally: Tally::default(),
    }
}

fn awaiting(step: u64, rows: &[(u64, u32)]) -> Awaiting {
    let rows = rows.iter().map(|(seq, output)| (SeqId(*seq), *output)).collect();
    Awaiting { step: StepId(step), rows, drafts: Default::default() }
}

/// What a row's rule mixes in.
fn mixed(rule: &RowRule) -> &[(TokenId, f32)] {
    match &rule.effect {
        Effect::Mix(list) => list,
        other => panic!("{other:?} is no mixture"),
    }
}

/// The tokens that rows' rules mention.
fn mentioned(rules: &[RowRule]) -> Vec<TokenId> {
    rules.iter().flat_map(mixed).map(|m| m.0).collect()
}

/// Feeds one sequence its outputs step by step; what is mentioned at each output.
fn follow(request: RequestTables, prompt: &[TokenId], outputs: &[TokenId]) -> Vec<Vec<TokenId>> {
    let mut tracker = TableTracker::default();
    tracker.track(SeqId(1), TableSequence::new(prompt, 0, Arc::new(request)));
    let step = |(i, token): (usize, &TokenId)| {
        tracker.launched(awaiting(i as u64, &[(1, i as u32)]));
        let rules = tracker.answer().unwrap().rules.rows;
        tracker.sampled(&[(SeqId(1), *token)]);
        mentioned(&rules)
    };
    outputs.iter().enumerate().map(step).collect()
}

#[test]
fn a_step_waits_for_the_tokens_that_its_rules_depend_on() {
    let mut tracker = TableTracker::default();
    tracker.track(SeqId(1), TableSequence::new(&[1, 2], 0, Arc::new(request(&[vec![1, 2, 3, 4]]))));
    tracker.launched(awaiting(0, &[(1, 0)]));
    tracker.launched(awaiting(1, &[(1, 1)]));
    let first = tracker.answer().unwrap();
    assert_eq!((first.rules.step, mentioned(&first.rules.rows)), (StepId(0), vec![3]));
    assert_eq!((first.lookups, first.hits), (1, 1));
    assert!(tracker.answer().is_none(), "its token is not here yet");
    tracker.sampled(&[(SeqId(9), 7), (SeqId(1), 3)]);
    let second = tracker.answer().unwrap();
    assert_eq!((second.rules.step, mentioned(&second.rules.rows)), (StepId(1), vec![4]));
}

#[test]
fn steps_are_answered_in_order_even_if_a_later_one_could_be_first() {
    let mut tracker = TableTracker::default();
    let request = Arc::new(request(&[vec![1, 2, 3]]));
    tracker.track(SeqId(1), TableSequence::new(&[1], 0, request.clone()));
    tracker.track(SeqId(2), TableSequence::new(&[1], 1, request));
    tracker.launched(awaiting(0, &[(1, 1)]));
    tracker.launched(awaiting(1, &[(2, 0)]));
    assert!(tracker.answer().is_none());
    tracker.sampled(&[(SeqId(1), 2)]);
    assert_eq!(tracker.answer().unwrap().rules.step, StepId(0));
    assert_eq!(tracker.answer().unwrap().rules.step, StepId(1));
}

#[test]
fn a_row_of_a_sequence_that_has_ended_holds_nothing_up() {
    let mut tracker = TableTracker::default();
    let request = Arc::new(request(&[vec![1, 2, 3]]));
    tracker.track(SeqId(1), TableSequence::new(&[1], 0, request.clone()));
    tracker.track(SeqId(2), TableSequence::new(&[1], 1, request));
    tracker.launched(awaiting(0, &[(1, 5), (2, 0)]));
    tracker.forget(SeqId(1));
    let answered = tracker.answer().unwrap();
    assert_eq!(answered.rules.rows.iter().map(|e| e.seq).collect::<Vec<_>>(), [SeqId(2)]);
}

#[test]
fn tables_are_silent_inside_thinking_and_after_the_end() {
    let text = vec![1, 2, 1, 2, 1, 2];
    let think = |opened| RequestTables {
        silent_in: Some(ThinkIds { open: OPEN, close: CLOSE, opened }),
        ..request(std::slice::from_ref(&text))
    };
    let none: Vec<TokenId> = Vec::new();
    // The prompt opened it: silent until the output after the closing id.
    assert_eq!(
        follow(think(true), &[1], &[2, CLOSE, 1, END, 2]),
        [none.clone(), none.clone(), none.clone(), vec![2], none.clone()]
    );
    // The output's first token opens it; a later one is a token like others.
    assert_eq!(
        follow(think(false), &[1], &[OPEN, 1, CLOSE, 1, 2]),
        [vec![2], none.clone(), none.clone(), none.clone(), vec![2]]
    );
    assert_eq!(follow(think(false), &[1], &[2, OPEN, 1]), [vec![2], vec![1], none.clone()]);
    assert_eq!(
        follow(request(&[text]), &[1], &[OPEN, 1, 2]),
        [vec![2], none, vec![2]],
        "without phases it speaks everywhere"
    );
}

/// A table of nothing that panics when it is asked.
struct Broken;

impl Ngrams for Broken {
    fn orders(&self) -> u32 {
        1 << 1
    }

    fn vocab(&self) -> u32 {
        100
    }

    fn prior(&self, _: TokenId) -> u64 {
        0
    }

    fn prior_total(&self) -> u64 {
        0
    }

    fn prefetch(&self, _: &Context, _: usize) {}

    fn locate(&self, _: &Context, _: usize) -> Option<usize> {
        panic!("a table breaks on purpose")
    }

    fn read(&self, _: &Context, _: usize, _: usize) -> Option<Continuations<'_>> {
        None
    }
}

#[test]
fn a_table_that_breaks_ends_the_tracker_s_thread_whoever_asked_it() {
    for (threads, broken) in [(0, 0), (1, 39), (2, 0), (2, 39), (4, 20)] {
        let mut tracker = TableTracker::new(threads).unwrap();
        for seq in 0..40 {
            let mut request = request(&[vec![1, 2, 3]]);
            request.own.extend((seq == broken).then(|| Arc::new(Broken) as Arc<dyn Ngrams>));
            tracker.track(SeqId(seq), TableSequence::new(&[1], 0, Arc::new(request)));
        }
        tracker.launched(awaiting(0, &(0..40).map(|seq| (seq, 0)).collect::<Vec<_>>()));
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tracker.answer().is_some()));
        assert!(answer.is_err(), "{threads} threads, sequence {broken}");
    }
}

/// A model that has no opinion takes what the tables mention, and breaks off with `other` where they are silent.
fn obedient(request: RequestTables, prompt: &[TokenId], tokens: u32, other: TokenId) -> Vec<TokenId> {
    let mut tracker = TableTracker::default();
    tracker.track(SeqId(1), TableSequence::new(prompt, 0, Arc::new(request)));
    let step = |i| {
        tracker.launched(awaiting(u64::from(i), &[(1, i)]));
        let rules = tracker.answer().unwrap().rules.rows;
        let best = rules.iter().flat_map(mixed).max_by(|a, b| a.1.total_cmp(&b.1));
        let token = best.map_or(other, |m| m.0);
        tracker.sampled(&[(SeqId(1), token)]);
        token
    };
    (0..tokens).map(step).collect()
}

#[test]
fn a_table_cannot_drive_an_output_round_in_circles() {
    let circle: Vec<TokenId> = [1, 2, 3, 4].repeat(20);
    // Nothing in the table knows 50, so what follows it is the model's own.
    let said = obedient(request(std::slice::from_ref(&circle)), &[4], 60, 50);
    let mut want = [1, 2, 3, 4].repeat(3);
    want.extend(std::iter::repeat_n(50, 48));
    assert_eq!(said, want, "eight tokens come again at the twelfth, and there it ends");
    // Without the guard against repeats, an output that follows the tables never leaves the circle.
    let table = Arc::new(table(&[circle], &options(1, 3, 100)));
    let mut unguarded: Vec<TokenId> = vec![4];
    for _ in 0..60 {
        let best = predict(&[&table], &unguarded, 1).listed.into_iter().max_by(|a, b| a.p.total_cmp(&b.p)).unwrap();
        unguarded.push(best.token);
    }
    assert_eq!(unguarded[1..], [1, 2, 3, 4].repeat(15));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Whatever shares a step, however many steps are in flight and whenever tokens arrive, each row gets what its own
    /// ids ask for.
    #[test]
    fn rules_depend_on_the_sequence_alone(
        texts in prop::collection::vec(prop::collection::vec(0u32..6, 2..40), 1..4),
        outputs in prop::collection::vec(prop::collection::vec(0u32..6, 1..30), 1..30),
        lag in 1usize..3,
        starts in prop::collection::vec(0usize..10, 30),
        threads in 0usize..3,
    ) {
        let alone: Vec<Vec<Vec<TokenId>>> = outputs.iter().map(|o| follow(request(&texts), &[0, 1], o)).collect();
        let shared = Arc::new(request(&texts));
        let mut tracker = TableTracker::new(threads).unwrap();
        for seq in 0..outputs.len() {
            tracker.track(SeqId(seq as u64), TableSequence::new(&[0, 1], seq as u32, shared.clone()));
        }
        let mut got: BTreeMap<(u64, u32), Vec<TokenId>> = BTreeMap::new();
        let mut in_flight: std::collections::VecDeque<Awaiting> = Default::default();
        for step in 0..50 {
            // Sequences start at different times, so they are at different outputs in one step.
            let rows: Vec<_> = (0..outputs.len()).filter_map(|seq| {
                let output = (step as usize).checked_sub(starts[seq])?;
                (output < outputs[seq].len()).then_some((seq as u64, output as u32))
            }).collect();
            if !rows.is_empty() {
                tracker.launched(awaiting(step, &rows));
                in_flight.push_back(awaiting(step, &rows));
            }
            while in_flight.len() >= lag || (step == 49 && !in_flight.is_empty()) {
                let done = in_flight.pop_front().unwrap();
                let answered = tracker.answer().unwrap();
                prop_assert_eq!(answered.rules.step, done.step);
                for (seq, output) in &done.rows {
                    let rules: Vec<_> = answered.rules.rows.iter().filter(|e| e.seq == *seq).cloned().collect();
                    got.insert((seq.0, *output), mentioned(&rules));
                }
                let came = |(seq, output): &(SeqId, u32)| (*seq, outputs[seq.0 as usize][*output as usize]);
                let tokens: Vec<_> = done.rows.iter().map(came).collect();
                tracker.sampled(&tokens);
            }
        }
        for (seq, want) in alone.iter().enumerate() {
            for (output, want) in want.iter().enumerate() {
                prop_assert_eq!(&got[&(seq as u64, output as u32)], want, "sequence {} output {}", seq, output);
            }
        }
    }
}
