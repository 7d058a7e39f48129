//! Steps beyond the plain run: rules that come late, forks, scores, plans that contradict the backend. The same on the
//! CPU and, where there is one, on a GPU.

#![allow(clippy::unwrap_used, reason = "a test may panic anywhere")]

mod support;

use chimere_engine::backend::cpu::{CpuBackend, CpuConfig, KvType};
use chimere_engine::backend::cuda::{Activations, AdapterRoom, CudaBackend, CudaConfig, KvStorage, probe};
use chimere_engine::backend::{Backend, BackendError, EarlyRules};
use chimere_engine::constraint::{Effect, RowRule, Rule, Source, Sources, StepRules};
use chimere_engine::ids::{PageId, SeqId, SlotId, StepId, TokenId};
use chimere_engine::sampling::SamplingParams;
use chimere_engine::step::{
    ExpertCut, Form, Piece, PieceTokens, SampleRow, Score, ScoreRows, StateCopy, StateStart, StepOutcome, StepPlan,
};
use std::sync::Arc;

const PROMPT: [TokenId; 5] = [7, 300, 41, 5, 99];

type Make = fn() -> Box<dyn Backend>;

/// What there is on this machine.
fn backends() -> Vec<Make> {
    let mut all: Vec<Make> = vec![on_the_cpu];
    match probe(0) {
        Ok(_) => all.push(on_the_gpu),
        Err(error) => {
            let required = std::env::var("CHIMERE_REQUIRE").unwrap_or_default().split(',').any(|r| r == "gpu");
            assert!(!required, "{error}");
            eprintln!("on the CPU alone: {error}");
        }
    }
    all
}

fn on_the_gpu() -> Box<dyn Backend> {
    let config = CudaConfig {
        ordinal: 0,
        own_context: false,
        slots: 3,
        pages: 12,
        checkpoints: 0,
        host_cache_bytes: 0,
        kv: KvStorage::F16,
        activations: Activations::Auto,
        step_rows_max: 64,
        context: 96,
        drafts: 0,
        draft_head: false,
        host_embedding: false,
        expert_bytes: None,
        replayed: false,
        adapters: AdapterRoom::default(),
        kernel_cache: None,
    };
    Box::new(CudaBackend::new(&support::gguf("moe"), &config, &mut |_| {}).unwrap())
}

fn on_the_cpu() -> Box<dyn Backend> {
    Box::new(cpu())
}

fn cpu() -> CpuBackend {
    let config = CpuConfig {
        threads: 2,
        slots: 3,
        pages: 12,
        checkpoints: 0,
        kv_type: KvType::F16,
        exact: false,
        step_rows_max: 64,
        context: 96,
        drafts: 0,
        draft_head: false,
    };
    CpuBackend::new(&support::gguf("moe"), &config, &mut |_| {}).unwrap()
}

fn row(slot: u32, waits: bool) -> SampleRow {
    let params = Arc::new(SamplingParams { logprobs: Some(2), ..SamplingParams::greedy() });
    let waits_for = if waits { Sources::only(Source::Tables) } else { Sources::NONE };
    SampleRow { waits_for, ..SampleRow::new(SeqId(u64::from(slot)), SlotId(slot), params) }
}

/// Sequence, slot and pages of the same number; four pages each.
fn piece(slot: u32, form: Form, start: u32, tokens: PieceTokens, samples: Vec<SampleRow>) -> Piece {
    let pages = (4 * slot..4 * slot + 3).map(PageId).collect();
    Piece {
        seq: SeqId(slot.into()),
        slot: SlotId(slot),
        state: StateStart::at(start),
        form,
        start,
        tokens,
        drafts: Vec::new(),
        guesses: 0,
        pages,
        prompt_len: 5,
        samples,
        score: None,
        experts: None,
        adapter: None,
        follows: None,
        ends: Arc::default(),
        pool_from: None,
        exports: Vec::new(),
    }
}

fn prompt(slot: u32, waits: bool) -> Piece {
    piece(slot, Form::Chunked, 0, PieceTokens::Known(PROMPT.to_vec()), vec![row(slot, waits)])
}

fn next(slot: u32, start: u32) -> Piece {
    piece(slot, Form::Recurrent, start, PieceTokens::Sampled, vec![row(slot, false)])
}

fn plan(id: u64, pieces: Vec<Piece>) -> StepPlan {
    StepPlan::new(StepId(id), pieces)
}

/// What tables say of a step's row for this slot.
fn rules(step: u64, slot: u32, bias: &[(TokenId, f32)]) -> StepRules {
    let row = RowRule { seq: SeqId(slot.into()), output: 0, effect: Effect::Bias(bias.to_vec()) };
    StepRules { step: StepId(step), source: Source::Tables, rows: vec![row] }
}

fn tokens(outcome: &StepOutcome) -> Vec<TokenId> {
    outcome.samples.iter().map(|s| s.token).collect()
}

/// Three tokens of a prompt, one step after another.
fn plainly(b: &mut dyn Backend, slot: u32, first_id: u64) -> Vec<TokenId> {
    let pieces = [prompt(slot, false), next(slot, 5), next(slot, 6)];
    let run = |(i, p)| tokens(&b.launch(plan(first_id + i as u64, vec![p])).unwrap().wait().unwrap())[0];
    pieces.into_iter().enumerate().map(run).collect()
}

#[test]
fn a_step_waits_for_its_rules_and_the_steps_after_it_wait_too() {
    for make in backends() {
        let want = plainly(&mut *make(), 0, 0);
        let mut b = make();
        let first = b.launch(plan(0, vec![prompt(0, true)])).unwrap();
        // Launched before its token is known.
        let second = b.launch(plan(1, vec![next(0, 5)])).unwrap();
        b.constrain(rules(0, 0, &[])).unwrap();
        assert_eq!(tokens(&first.wait().unwrap()), want[..1]);
        assert_eq!(tokens(&second.wait().unwrap()), want[1..2]);
        let third = b.launch(plan(2, vec![next(0, 6)])).unwrap();
        assert_eq!(tokens(&third.wait().unwrap()), want[2..3]);
    }
}

#[test]
fn late_rules_change_the_token_and_what_follows_but_not_the_log_probabilities() {
    for make in backends() {
        let mut b = make();
        let plain = b.launch(plan(0, vec![prompt(0, false)])).unwrap().wait().unwrap();
        let other = (plain.samples[0].token + 1) % 512;
        let late = b.launch(plan(1, vec![prompt(1, true)])).unwrap();
        let after = b.launch(plan(2, vec![next(1, 5)])).unwrap();
        b.constrain(rules(1, 1, &[(other, 100.0)])).unwrap();
        let edited = late.wait().unwrap();
        assert_eq!(tokens(&edited), [other]);
        assert_eq!(edited.samples[0].logprobs.as_ref().unwrap().top, plain.samples[0].logprobs.as_ref().unwrap().top);
        let known = piece(2, Form::Recurrent, 5, PieceTokens::Known(vec![other]), vec![row(2, false)]);
        let mut apart = make();
        apart.launch(plan(0, vec![prompt(2, false)])).unwrap();
        let want = apart.launch(plan(1, vec![known])).unwrap().wait().unwrap();
        assert_eq!(tokens(&after.wait().unwrap()), tokens(&want));
    }
}

#[test]
fn rules_that_are_there_before_the_forward_is_done_give_what_late_ones_give() {
    for make in backends() {
        let (mut late, mut b, early) = (make(), make(), Arc::new(EarlyRules::default()));
        b.look_for_rules(early.clone());
        let other = rules(0, 0, &[(123, 100.0)]);
        let plans = || [plan(0, vec![prompt(0, true), prompt(1, false)]), plan(1, vec![next(0, 5), next(1, 5)])];
        let [first, second] = plans().map(|p| late.launch(p).unwrap());
        late.constrain(other.clone()).unwrap();
        let want = [first, second].map(|pending| tokens(&pending.wait().unwrap()));
        assert_eq!(want[0][0], 123);
        early.put(other);
        let [first, second] = plans().map(|p| b.launch(p).unwrap());
        // A backend that does not look there is told as ever.
        early.take(StepId(0)).into_iter().for_each(|rules| b.constrain(rules).unwrap());
        assert_eq!([first, second].map(|pending| tokens(&pending.wait().unwrap())), want);
        // Another step's rules are not this one's.
        early.put(rules(9, 0, &[(5, 100.0)]));
        let third =
            b.launch(plan(2, vec![piece(0, Form::Recurrent, 6, PieceTokens::Sampled, vec![row(0, true)])])).unwrap();
        b.constrain(rules(2, 0, &[(77, 100.0)])).unwrap();
        assert_eq!(tokens(&third.wait().unwrap()), [77]);
        assert!(early.take(StepId(9)).is_some());
    }
}

#[test]
fn a_row_has_the_same_token_whether_its_mask_was_there_before_its_logits_or_came_after() {
    let drawn = |seed| Arc::new(SamplingParams { seed, ..SamplingParams::default() });
    let few = |ids: &[TokenId]| {
        let mut mask = vec![0u32; 16];
        ids.iter().for_each(|id| mask[*id as usize / 32] |= 1 << (id % 32));
        Effect::Allow(mask.into())
    };
    let effects = |seed: u32| {
        let some: Vec<_> = (0..40).map(|i| (97 * i + 13 * seed) % 512).collect();
        [few(&some[..2]), few(&some), few(&(0..300).collect::<Vec<_>>()), Effect::Force(some[5])]
    };
    let (mut late, mut b, early) = (cpu(), cpu(), Arc::new(EarlyRules::default()));
    b.look_for_rules(early.clone());
    for seed in 0..24 {
        let effect = &effects(seed)[seed as usize % 4];
        // The first row is under the mask, the second one free.
        let of = |slot, waits| {
            let mut ids = PROMPT;
            ids[4] = 19 * seed + slot;
            let piece = Piece { tokens: PieceTokens::Known(ids.to_vec()), ..prompt(slot, waits) };
            let samples = piece.samples.iter().map(|row| SampleRow { params: drawn(seed.into()), ..row.clone() });
            Piece { samples: samples.collect(), ..piece }
        };
        let step = || plan(seed.into(), vec![of(0, true), of(1, false)]);
        let rows = vec![RowRule { seq: SeqId(0), output: 0, effect: effect.clone() }];
        let rules = StepRules { step: StepId(seed.into()), source: Source::Tables, rows };
        let pending = late.launch(step()).unwrap();
        late.constrain(rules.clone()).unwrap();
        let want = tokens(&pending.wait().unwrap());
        // What is read without being computed is no number.
        b.poison();
        early.put(rules);
        let pending = b.launch(step()).unwrap();
        assert!(early.take(StepId(seed.into())).is_none(), "it was found");
        assert_eq!(tokens(&pending.wait().unwrap()), want, "seed {seed}");
    }
}

#[test]
fn rules_for_a_step_that_awaits_none_are_refused_and_change_nothing() {
    for make in backends() {
        let mut b = make();
        let waiting = b.launch(plan(0, vec![prompt(0, true)])).unwrap();
        let error = b.constrain(rules(3, 0, &[])).unwrap_err();
        assert!(matches!(error, BackendError::Plan { step: StepId(3), .. }), "{error}");
        b.constrain(rules(0, 0, &[])).unwrap();
        assert_eq!(waiting.wait().unwrap().samples.len(), 1);
    }
}

#[test]
fn what_is_planned_and_what_comes_late_compose_and_a_rule_that_leaves_nothing_yields() {
    for make in backends() {
        let plain = plainly(&mut *make(), 0, 0)[0];
        let forbid = |source, ids: Vec<TokenId>| Rule { source, effect: Effect::Forbid(ids.into()) };
        let with = |rules: Vec<Rule>, bias: &[(TokenId, f32)]| {
            let (mut b, mut piece) = (make(), prompt(0, true));
            piece.samples[0].rules = rules;
            let pending = b.launch(plan(0, vec![piece])).unwrap();
            b.constrain(self::rules(0, 0, bias)).unwrap();
            let sample = pending.wait().unwrap().samples.remove(0);
            (sample.token, sample.yielded)
        };
        let (token, yielded) = with(vec![forbid(Source::MinTokens, vec![plain])], &[]);
        assert!(token != plain && yielded.is_empty(), "{token}");
        // What may not come stays so whatever is added to it.
        assert_eq!(with(vec![forbid(Source::HeldWords, vec![plain])], &[(plain, 100.0)]), (token, yielded));
        assert_eq!(with(vec![forbid(Source::HeldWords, vec![7])], &[(123, 100.0)]), (123, Sources::NONE));
        let forced = Rule { source: Source::Forced, effect: Effect::Force(9) };
        let held = forbid(Source::HeldWords, vec![8, 9]);
        assert_eq!(with(vec![held, forced], &[(123, 100.0)]), (9, Sources::only(Source::HeldWords)));
        let all_but = |id| (0..512).filter(|other| *other != id).collect::<Vec<_>>();
        let (grammar, least) = (forbid(Source::Grammar, all_but(44)), forbid(Source::MinTokens, vec![44]));
        assert_eq!(with(vec![least, grammar], &[(123, 100.0)]), (44, Sources::only(Source::MinTokens)));
    }
}

#[test]
fn a_row_that_asks_is_told_who_ruled_and_by_the_processor_its_experts() {
    for make in backends() {
        let report = |beside: Vec<Piece>| {
            let (mut b, mut asks) = (make(), prompt(0, true));
            let row = &mut asks.samples[0];
            row.params = Arc::new(SamplingParams { report: true, ..SamplingParams::greedy() });
            row.rules = vec![Rule { source: Source::MinTokens, effect: Effect::Forbid([7, 8, 7].into()) }];
            let pending = b.launch(plan(0, std::iter::once(asks).chain(beside).collect())).unwrap();
            b.constrain(rules(0, 0, &[(123, 1.0)])).unwrap();
            let mut samples = pending.wait().unwrap().samples;
            assert!(samples[1..].iter().all(|sample| sample.report.is_none()), "they did not ask");
            (b.info().device, *samples.remove(0).report.unwrap())
        };
        let (device, alone) = report(Vec::new());
        assert_eq!(alone.ruled.iter().collect::<Vec<_>>(), [Source::MinTokens, Source::Tables]);
        assert_eq!((alone.allowed, alone.experts.is_some()), (Some(510), device == "cpu"));
        for layer in alone.experts.iter().flatten() {
            assert!(layer.len() == 4 && layer.iter().all(|e| *e < 16), "{layer:?}");
        }
        assert_eq!(report(vec![prompt(1, false), prompt(2, false)]).1, alone, "what is beside a row changes nothing");
    }
}

#[test]
fn a_fork_goes_on_as_its_source_does() {
    for make in backends() {
        let mut b = make();
        let want = plainly(&mut *b, 0, 0);
        // The prompt's end is sampled for two choices; the second one's slot and page are copied before it goes on.
        let mut both = prompt(1, false);
        both.samples.push(row(2, false));
        let first = b.launch(plan(3, vec![both])).unwrap().wait().unwrap();
        assert_eq!(tokens(&first), [want[0], want[0]]);
        let copies = vec![
            StateCopy::Slot { from: SlotId(1), to: SlotId(2) },
            StateCopy::Page { from: PageId(4), to: PageId(8) },
        ];
        let step = StepPlan { copies, ..plan(4, vec![next(1, 5), next(2, 5)]) };
        assert_eq!(tokens(&b.launch(step).unwrap().wait().unwrap()), [want[1], want[1]]);
        let step = plan(5, vec![next(2, 6), next(1, 6)]);
        assert_eq!(tokens(&b.launch(step).unwrap().wait().unwrap()), [want[2], want[2]]);
    }
}

#[test]
fn a_prompt_s_own_tokens_are_scored_each_by_the_row_before_it() {
    for make in backends() {
        let mut b = make();
        let mut scored = prompt(0, false);
        scored.score = Some(ScoreRows { top: 3, next: [12].into(), ..ScoreRows::default() });
        let outcome = b.launch(plan(0, vec![scored])).unwrap().wait().unwrap();
        let got: Vec<_> = outcome.scores.iter().map(|s| (s.position, s.token)).collect();
        assert_eq!(got, [(1, 300), (2, 41), (3, 5), (4, 99), (5, 12)]);
        for score in &outcome.scores {
            let top = &score.logprobs.top;
            assert!(top.len() == 3 && top[0].1 >= score.logprobs.logprob && score.logprobs.logprob < 0.0, "{score:?}");
        }
        // The last row's best alternative is the token that greedy sampling took.
        assert_eq!(outcome.scores[4].logprobs.top[0].0, outcome.samples[0].token);
    }
}

#[test]
fn several_tokens_are_scored_behind_a_piece_of_one_row_as_behind_one_of_many() {
    for make in backends() {
        let mut b = make();
        let scored = |piece: Piece| {
            let next = [12, 99, 5].into();
            Piece { score: Some(ScoreRows { from: 5, next, ..ScoreRows::default() }), ..piece }
        };
        let all = |b: &mut dyn Backend, id, piece| b.launch(plan(id, vec![piece])).unwrap().wait().unwrap().scores;
        let together = all(&mut *b, 0, scored(prompt(0, false)));
        let (head, last) = PROMPT.split_at(4);
        let known = |start, tokens: &[TokenId], samples| {
            piece(1, Form::Recurrent, start, PieceTokens::Known(tokens.to_vec()), samples)
        };
        b.launch(plan(1, vec![known(0, head, Vec::new())])).unwrap().wait().unwrap();
        let alone = all(&mut *b, 2, scored(known(4, last, vec![row(1, false)])));
        let told = |scores: &[Score]| scores.iter().map(|s| (s.position, s.token)).collect::<Vec<_>>();
        assert_eq!(told(&together), [(5, 12), (5, 99), (5, 5)]);
        assert_eq!(told(&alone), told(&together));
        for (one, other) in alone.iter().zip(&together) {
            let apart = (one.logprobs.logprob - other.logprobs.logprob).abs();
            assert!(one.finite && apart < 0.05, "{one:?} {other:?}");
        }
    }
}

#[test]
fn plans_that_contradict_the_backend_are_refused_by_name_and_leave_it_usable() {
    for make in backends() {
        let mut b = make();
        let wrong = |b: &mut dyn Backend, id, change: &dyn Fn(&mut StepPlan)| {
            let mut step = plan(id, vec![prompt(0, false)]);
            change(&mut step);
            b.launch(step).map(|_| ()).unwrap_err().to_string()
        };
        assert!(wrong(&mut *b, 0, &|p| p.pieces[0].slot = SlotId(3)).contains("slot 3 of 3"));
        assert!(wrong(&mut *b, 1, &|p| p.pieces[0].pages[0] = PageId(12)).contains("page 12 of 12"));
        assert!(wrong(&mut *b, 2, &|p| p.pieces[0].pages.clear()).contains("0 pages for 5 positions"));
        assert!(
            wrong(&mut *b, 3, &|p| p.pieces[0].tokens = PieceTokens::Known(vec![512]))
                .contains("token 512 of a vocabulary of 512")
        );
        assert!(wrong(&mut *b, 4, &|p| p.pieces[0].start = 95).contains("beyond the context of 96"));
        assert!(wrong(&mut *b, 5, &|p| p.pieces.push(p.pieces[0].clone())).contains("two pieces write slot 0"));
        assert!(
            wrong(&mut *b, 6, &|p| p.pieces[0].tokens = PieceTokens::Known(vec![1; 65]))
                .contains("65 rows, at most 64")
        );
        let copy = StateCopy::Page { from: PageId(0), to: PageId(40) };
        assert!(wrong(&mut *b, 7, &|p| p.copies.push(copy)).contains("beyond 3 slots or 12 pages"));
        let early = |p: &mut StepPlan| p.pieces[0].samples[0].waits_for = Sources::only(Source::Forced);
        assert!(wrong(&mut *b, 7, &early).contains("waits for forced, whose rules come with the plan"));
        let forced = |p: &mut StepPlan| {
            p.pieces[0].samples[0].rules = vec![Rule { source: Source::Forced, effect: Effect::Force(512) }];
        };
        assert!(wrong(&mut *b, 7, &forced).contains("forced token 512 of a vocabulary of 512"));
        let cut = ExpertCut { min: 0, max: 2, mass: 0.5 };
        assert!(wrong(&mut *b, 7, &|p| p.pieces[0].experts = Some(cut)).contains("experts cut to between 0 and 2"));
        let later = |p: &mut StepPlan| (p.pieces[0].pool_from, p.pieces[0].form) = (Some(0), Form::Recurrent);
        assert!(wrong(&mut *b, 7, &later).contains("hidden states of Recurrent positions from 0 on"));
        let unaligned = |p: &mut StepPlan| (p.pieces[0].pool_from, p.pieces[0].start) = (Some(0), 5);
        assert!(wrong(&mut *b, 7, &unaligned).contains("hidden states of Chunked positions from 5 on"));
        assert_eq!(b.launch(plan(8, vec![prompt(0, false)])).unwrap().wait().unwrap().samples.len(), 1);
        assert!(wrong(&mut *b, 8, &|_| ()).contains("launched after step 8"));
    }
}
