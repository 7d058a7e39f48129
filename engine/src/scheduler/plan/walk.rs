//! Planning: one walk over the running sequences, in which waiting ones start where their place is.
//!
//! The order is that of what keys were served, and within a key that of rank. Decode rows have their share of the
//! budget set aside before the walk, so the walk may follow that order alone. Pages are taken in the same order: who
//! finds none preempts from the back, where nothing has been planned yet, and who is last itself waits a step.

use super::builder::{Fork, PlanBuilder};
use super::pause::{Paused, RowKinds};
use crate::adapter::ResidentAdapter;
use crate::ids::{KeyId, Micros, RequestId, StepId};
use crate::scheduler::launched::{LaunchedPiece, LaunchedStep};
use crate::scheduler::policy::cost::Pace;
use crate::scheduler::sequence::{ChoiceRole, NextRows, Rank, Sequence, canonical_end};
use crate::scheduler::speculation::{ExpectedStepTime, Proposal};
use crate::scheduler::{Scheduler, WaitReason};
use crate::step::{Form, Piece, PieceTokens, SampleRow, ScoreRows, StateExport, StateStart, StepPlan};
use std::sync::Arc;

/// A sequence's place in the order of a walk.
type PlanOrder = (u64, KeyId, Rank);

/// How a piece's rows are computed, and what of them stays beside their tokens.
pub(super) struct PieceForm {
    pub(super) form: Form,
    pub(super) state: StateStart,
    pub(super) score: Option<ScoreRows>,
    pub(super) exports: Vec<StateExport>,
    pub(super) drafted: Option<Proposal>,
    pub(super) guesses: u32,
}

impl PieceForm {
    /// Of rows after the prompt.
    pub(super) fn recurrent() -> Self {
        let (state, exports) = (StateStart::Continue, Vec::new());
        Self { form: Form::Recurrent, state, score: None, exports, drafted: None, guesses: 0 }
    }

    /// The piece of a sequence that has computed these tokens with it, and what to expect back: tokens for `samples`,
    /// those of its drafts included, of the sequences `ranks`.
    pub(super) fn piece(
        self,
        seq: &Sequence,
        (start, tokens): (u32, PieceTokens),
        (samples, ranks): (Vec<SampleRow>, Vec<Rank>),
        adapter: Option<ResidentAdapter>,
    ) -> (Piece, LaunchedPiece) {
        let Self { form, state, score, exports, drafted, guesses } = self;
        let spec = &seq.request.spec;
        let piece = Piece {
            seq: seq.rank.seq,
            slot: seq.held_slot(),
            state,
            form,
            start,
            tokens,
            drafts: drafted.as_ref().map_or_else(Vec::new, |offer| offer.tokens.clone()),
            guesses,
            pages: seq.pages.clone(),
            prompt_len: seq.prompt_len(),
            samples,
            score,
            follows: None,
            experts: spec.experts.filter(|_| form == Form::Recurrent),
            adapter,
            ends: spec.end_ids.clone(),
            pool_from: spec.pool.map(|pool| pool.from(seq.prompt_len())),
            exports,
        };
        let launched = LaunchedPiece {
            rank: seq.rank,
            request: seq.request.id,
            scores: piece.scored().len() as u32,
            pooled: piece.pooled_units().count() as u32,
            samples: ranks,
            completes: seq.output_max == 0 && seq.computed == seq.prompt_len(),
            drafted,
            guesses: guesses > 0,
            follows: None,
        };
        (piece, launched)
    }
}

impl Scheduler {
    /// The next step, which counts as launched with this. `None` if there is nothing to compute, or if as many steps
    /// are in flight as may be. A function of the scheduler's state and of `now` alone.
    pub fn plan(&mut self, now: Micros) -> Option<StepPlan> {
        self.plan_within(now, &Pace::default())
    }

    /// As [`Self::plan`], with no more positions than `pace` allows in a step's time.
    pub fn plan_within(&mut self, now: Micros, pace: &Pace) -> Option<StepPlan> {
        if self.in_flight.len() >= self.config.steps_in_flight_max as usize {
            return None;
        }
        if self.waits_to_draft(pace) {
            if let Some(plan) = self.plan_behind(now, pace) {
                return Some(plan);
            }
            self.speculation.hold_back();
            return None;
        }
        self.make_way();
        self.settle_adapters(now);
        let mut builder = self.plan_others(now, pace);
        self.add_idle(&mut builder);
        let plan = self.launch(builder);
        if self.pages.free() < self.pages.spare() {
            self.prefix.free_a_page(StepId(self.next_step), &mut self.pages);
        }
        plan
    }

    /// The rows of the next step, but for those of idle work.
    fn plan_others<'a>(&mut self, now: Micros, pace: &'a Pace) -> PlanBuilder<'a> {
        let mut builder = self.builder(now, pace, self.paused(now, pace));
        self.walk(&mut builder);
        if builder.pieces.is_empty() && !builder.out.is_nobody() {
            // The prompts for which rows were paused find no page, so the pauses gain nothing.
            builder = self.builder(now, pace, Paused::nobody());
            self.walk(&mut builder);
        }
        if builder.pieces.is_empty() && builder.loading > 0 {
            // Nobody else is held up if the step itself waits.
            builder = PlanBuilder { waits_for_loads: true, ..self.builder(now, pace, Paused::nobody()) };
            self.walk(&mut builder);
        }
        if builder.pieces.is_empty() && self.in_flight.is_empty() && self.hurry_adapter(now) {
            builder = PlanBuilder { waits_for_loads: true, ..self.builder(now, pace, Paused::nobody()) };
            self.walk(&mut builder);
        }
        builder
    }

    fn walk(&mut self, builder: &mut PlanBuilder<'_>) {
        let mut at = 0;
        loop {
            self.start_before(at, builder);
            let Some(seq) = self.running.get(at) else { return };
            let next = seq.next();
            at += match next {
                NextRows::Nothing => 1,
                _ if !builder.waits_for_loads && self.waits_for_load(seq) => {
                    builder.loading += 1;
                    1
                }
                _ if builder.out.holds(seq.key, next) => {
                    builder.rows_out += u64::from(next == NextRows::Output(1));
                    1
                }
                NextRows::Prompt => 1 + self.plan_prompt(at, builder),
                NextRows::Output(ahead) => {
                    self.plan_output(at, ahead, builder);
                    1
                }
            };
        }
    }

    fn place(&self, seq: &Sequence) -> PlanOrder {
        (self.accounts.turn(seq.key), seq.key, seq.rank)
    }

    /// Starts the first in the queue if its place is at `at`, and if slots, pages and budget allow. It never preempts
    /// and nobody overtakes it: with both, a request that needs much would wait for ever.
    fn start_before(&mut self, at: usize, builder: &mut PlanBuilder<'_>) {
        let Some(head) = self.queue.first(&self.accounts).filter(|_| builder.starts) else { return };
        if self.running.get(at).is_some_and(|seq| self.place(seq) < self.place(head)) {
            return;
        }
        builder.starts = !builder.out.keys.contains(&head.key) && self.can_start(head, builder);
        if !builder.starts {
            return;
        }
        let key = head.key;
        let mut place = at;
        loop {
            let mut seq = self.queue.pop_first_of(key).expect("a leader's followers wait behind it");
            seq.slot = Some(self.slots.claim().expect("counted by can_start"));
            self.place_adapter(&mut seq, builder.now);
            if seq.role != ChoiceRole::Follower {
                self.look_up(&mut seq, builder.pace);
            }
            self.running.insert(place, seq);
            place += 1;
            if self.queue.first_of(key).is_none_or(|next| next.role != ChoiceRole::Follower) {
                return;
            }
        }
    }

    fn can_start(&self, head: &Sequence, builder: &PlanBuilder<'_>) -> bool {
        let first_unit = canonical_end(0, 0, head.prompt_len());
        // A preempted one waits for the tokens that were in flight: they belong to what it recomputes.
        head.pending == 0
            && head.slots_wanted() <= self.slots.free()
            && first_unit <= builder.room(0)
            && self.pages_suffice(head)
    }

    /// Are there pages for all its known tokens, beside those that running sequences need for theirs and a page for
    /// each to grow? Without that a start would soon be undone by a preemption.
    pub(in crate::scheduler) fn pages_suffice(&self, head: &Sequence) -> bool {
        // Alone it may start with fewer: choices that find no page are preempted, and run one after the other.
        let needed = head.pages_wanted().min(self.pages.total());
        let owed: u32 =
            self.running.iter().filter(|s| s.role != ChoiceRole::Follower).map(|s| s.pages_wanted() + 1).sum();
        let lacking = (needed + owed).saturating_sub(self.pages.available());
        // Pages that it will share with running sequences cost nothing; they are counted only where that decides.
        lacking == 0 || lacking <= self.pages_shared_by(head)
    }

    /// What keeps the first in the queue from starting, for whoever watches.
    pub(in crate::scheduler) fn waits_for(&self) -> WaitReason {
        match self.queue.first(&self.accounts) {
            Some(head) if head.slots_wanted() > self.slots.free() => WaitReason::Slots,
            Some(head) if !self.pages_suffice(head) => WaitReason::Memory,
            _ => WaitReason::Budget,
        }
    }

    /// Plans the next prompt piece of the sequence at `at`. Returns how many choices right behind it forked off.
    fn plan_prompt(&mut self, at: usize, builder: &mut PlanBuilder<'_>) -> usize {
        let (start, prompt_len) = (self.running[at].computed, self.running[at].prompt_len());
        let unit_end = canonical_end(start, start, prompt_len);
        let room = builder.room(start);
        if unit_end - start > room || !self.make_room(at, unit_end) {
            return 0;
        }
        let reach = self.running[at].reach(self.pages.available()).min(start.saturating_add(room));
        let end = canonical_end(start, reach, prompt_len);
        self.claim_pages(at, end);
        builder.grant(end - start, builder.pace.cost.prompt_us(start, end - start, !builder.prompts));
        builder.prompts = true;
        self.charge_prompt(at, end);
        let state = self.state_start(at);
        if state != StateStart::Continue {
            self.note_start(self.running[at].request.id, builder.now);
        }
        let exports = self.exports(at, end, builder.pace);
        self.running[at].computed = end;
        let samples_due = end == prompt_len && self.running[at].sampled() == 0 && self.running[at].output_max > 0;
        let forked = if samples_due { self.fork(at, builder) } else { 0 };
        let samples = if samples_due { at..at + 1 + forked } else { at..at };
        let score = self.score_rows(&self.running[at], start, end);
        let tokens = PieceTokens::Known(self.running[at].tokens(start, end));
        let guesses = if samples_due { self.ask_behind_prompt(at, builder.pace) } else { 0 };
        let form = PieceForm { form: Form::Chunked, state, score, exports, drafted: None, guesses };
        self.push_piece(at, form, start, tokens, samples, builder);
        forked
    }

    /// Plans a decode row, or as many recomputed positions as budget and pages allow.
    fn plan_output(&mut self, at: usize, ahead: u32, builder: &mut PlanBuilder<'_>) {
        let start = self.running[at].computed;
        let room = if ahead == 1 { 1 } else { builder.recompute_room(start).min(ahead) };
        if room == 0 || !self.make_room(at, start + 1) {
            return;
        }
        let end = (start + room).min(self.running[at].reach(self.pages.available()));
        self.claim_pages(at, end);
        if ahead > 1 {
            builder.grant(end - start, builder.recompute_us(start, end - start));
        }
        let seq = &mut self.running[at];
        seq.computed = end;
        let known = seq.len() - seq.pending;
        let tokens = if end <= known { PieceTokens::Known(seq.tokens(start, end)) } else { PieceTokens::Sampled };
        let samples = if end == seq.len() { at..at + 1 } else { at..at };
        let rank = self.running[at].rank;
        let drafted = builder.drafts.remove(&rank).and_then(|offer| self.room_for(at, offer));
        let wanted = builder.asked.remove(&rank).unwrap_or(0);
        let guesses =
            if builder.asked.is_trial() { wanted } else { self.room_for_guesses(at, drafted.as_ref(), wanted) };
        let form = PieceForm { drafted, guesses, ..PieceForm::recurrent() };
        self.push_piece(at, form, start, tokens, samples, builder);
    }

    /// Claims pages for what is drafted behind the sequence at `at`; cuts off what finds none.
    fn room_for(&mut self, at: usize, mut offer: Proposal) -> Option<Proposal> {
        let fits = self.claim_spare(at, offer.tokens.len() as u32);
        offer.shorten(fits as usize);
        (!offer.tokens.is_empty()).then_some(offer)
    }

    /// Claims pages for guesses that the next step is to have as drafts; says how many find some.
    pub(super) fn room_for_guesses(&mut self, at: usize, drafted: Option<&Proposal>, wanted: u32) -> u32 {
        let drafts = drafted.map_or(0, |offer| offer.tokens.len() as u32);
        let guesses = self.claim_spare(at, drafts + wanted).saturating_sub(drafts);
        self.running[at].guesses_due = guesses;
        guesses
    }

    /// Claims pages for so many positions behind those computed, or for as many as find some. Nobody is preempted for a
    /// draft or a guess, and everybody who runs finds a page as without.
    pub(super) fn claim_spare(&mut self, at: usize, positions: u32) -> u32 {
        let computed = self.running[at].computed;
        let spare = self.pages.available().saturating_sub(self.running.len() as u32);
        let fits = self.running[at].reach(spare).saturating_sub(computed).min(positions);
        self.claim_pages(at, computed + fits);
        fits
    }

    fn push_piece(
        &mut self,
        at: usize,
        form: PieceForm,
        start: u32,
        tokens: PieceTokens,
        samples: std::ops::Range<usize>,
        builder: &mut PlanBuilder<'_>,
    ) {
        let mut rows: Vec<_> = self.running[samples.clone()].iter_mut().map(Sequence::sample_row).collect();
        let key = self.running[at].key;
        // Whether drafts are served, their outcome tells.
        rows.iter().for_each(|_| self.accounts.output_served(key));
        let drafts = form.drafted.as_ref().map_or(0, |offer| offer.tokens.len() as u32);
        rows.extend(self.running[at].drafted_rows(drafts));
        let ranks = self.running[samples].iter().map(|seq| seq.rank).collect();
        let adapter = self.resident_adapter(at, builder);
        builder.push(form.piece(&self.running[at], (start, tokens), (rows, ranks), adapter));
    }

    /// Which scores a prompt piece reports: none if all that it could report were delivered before a preemption, or if
    /// nobody asks for them.
    pub(super) fn score_rows(&self, seq: &Sequence, start: u32, end: u32) -> Option<ScoreRows> {
        let asked = seq.request.spec.score_prompt.as_ref().filter(|_| seq.choice == 0)?;
        let own = seq.request.prompt.get(end as usize).map(|next| Arc::from([*next]));
        let next = own.unwrap_or_else(|| asked.behind.clone());
        let last_scored = end - u32::from(next.is_empty());
        let delivered = self.live[&seq.request.id].scored;
        let any = last_scored > delivered.max(start) && last_scored >= asked.from;
        any.then_some(ScoreRows { top: asked.top, from: asked.from, next })
    }

    /// Prompt positions are paid for once, whatever becomes of them.
    fn charge_prompt(&mut self, at: usize, end: u32) {
        let seq = &mut self.running[at];
        self.accounts.prompt_served(seq.key, end.saturating_sub(seq.charged));
        seq.charged = seq.charged.max(end);
    }

    /// The first row of a request is planned, or that of what is computed again.
    pub(super) fn note_start(&mut self, id: RequestId, now: Micros) {
        let live = self.live.get_mut(&id).expect("its sequence lives");
        if live.times.started.is_none() {
            live.times.started = Some(now);
            self.totals.prompt_tokens += if live.terms.idle { 0 } else { u64::from(live.prompt_len) };
        }
    }

    /// Orders running sequences by what their keys were served with this plan. Between two plans the order never
    /// changes.
    fn settle(&mut self, out: &Paused, now: Micros) {
        self.accounts.settle(&out.keys, out.kinds != RowKinds::Prompts, now);
        if self.accounts.active_count() > 1 {
            let accounts = &self.accounts;
            self.running.sort_by_key(|seq| (accounts.turn(seq.key), seq.key, seq.rank));
        }
    }

    /// Numbers the step. Copies of forks that were planned before it go first; without a piece they stay for the next
    /// step, because nothing on the device changes until then.
    pub(super) fn launch(&mut self, builder: PlanBuilder<'_>) -> Option<StepPlan> {
        if builder.pieces.is_empty() {
            return None;
        }
        let id = StepId(self.next_step);
        self.next_step += 1;
        self.totals.rows += builder.pieces.iter().map(|piece| u64::from(piece.len())).sum::<u64>();
        let is_idle = builder.others().is_empty();
        let expected = if is_idle { None } else { self.note_others(&builder) };
        let prompts = builder.others().iter().filter(|piece| piece.form == Form::Chunked);
        let prompt_rows = prompts.map(Piece::len).sum();
        let forks = std::mem::replace(&mut self.forks, builder.forks);
        self.in_flight.push_back(LaunchedStep {
            id,
            expected,
            launched: builder.now,
            prompt_rows,
            left_waiting: self.queue.iter().next().is_some(),
            pieces: builder.launched,
            is_idle,
        });
        let copies = forks.iter().flat_map(Fork::copies).collect();
        let (transfers, settles) = self.prefix.begin_transfers(id);
        Some(StepPlan { copies, transfers, settles, ..StepPlan::new(id, builder.pieces) })
    }

    /// Learns from a plan what concerns all but idle work; says what its decode rows should take.
    fn note_others(&mut self, builder: &PlanBuilder<'_>) -> Option<ExpectedStepTime> {
        // Whoever computes more than decode rows has no step without to be held against.
        let alone = !builder.granted && !builder.prompts && builder.idle == 0;
        let expected = self.speculation.note_launch(builder.expected).filter(|_| alone);
        let decodes = builder.others().iter().filter(|piece| piece.form == Form::Recurrent && piece.certain() == 1);
        let (drafts, guesses): (Vec<_>, Vec<_>) = decodes.map(|piece| (piece.drafts.len(), piece.guesses)).unzip();
        self.speculation.note_drafts(drafts.into_iter());
        self.speculation.note_asked(&guesses, builder.asked.is_trial());
        self.totals.paused_rows += builder.rows_out;
        self.last_kinds = builder.out.took();
        self.settle(&builder.out, builder.now);
        expected
    }
}
