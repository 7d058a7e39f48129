//! Rows of idle work: what it adds to a step in which all others have their rows, and its own steps.
//!
//! Beside others it joins steps of plain decode rows alone, for the time that [`IdleBudget`] leaves and within the
//! positions of a step. Steps with a prompt, with drafts or with a request left waiting are not made longer: somebody's
//! first token, or a choice that rests on what steps take, would depend on it. Steps of its own it has while no other
//! request lives, one at a time, so that whoever comes waits for one step at most.
//!
//! [`IdleBudget`]: crate::scheduler::policy::idle::IdleBudget

use super::builder::PlanBuilder;
use super::walk::PieceForm;
use crate::cache::pages_for;
use crate::scheduler::Scheduler;
use crate::scheduler::policy::cost::StepShape;
use crate::scheduler::policy::idle::ALONE_US;
use crate::scheduler::sequence::{NextRows, Sequence, canonical_end};
use crate::step::{Form, Piece, PieceTokens, StateStart};

/// Where rows of idle work go.
#[derive(Clone, Copy, Debug)]
enum IdlePlace {
    /// A step of their own.
    Alone,
    /// Decode rows of others, whose step should take `step_us` and may take `us` more.
    Beside { step_us: f64, us: f64 },
}

impl Scheduler {
    /// Adds rows of idle work to a plan that has the rows of all others.
    pub(super) fn add_idle(&mut self, builder: &mut PlanBuilder<'_>) {
        if self.idle.len() == 0 {
            return;
        }
        let Self { idle, pages, slots, .. } = self;
        idle.park_losers(pages, slots);
        match self.idle_place(builder) {
            None => {}
            Some(IdlePlace::Alone) => self.plan_idle_step(builder),
            Some(IdlePlace::Beside { step_us, us }) => {
                let rows: u32 = builder.pieces.iter().map(Piece::len).sum();
                builder.rest = self.config.step_tokens.saturating_sub(rows);
                (builder.rest_us, builder.granted) = (Some(us), true);
                self.walk_idle(builder, false);
                builder.granted = false;
                if builder.idle > 0 {
                    self.idle.budget.spend(step_us, us - builder.rest_us.unwrap_or(us));
                }
            }
        }
    }

    fn idle_place(&mut self, builder: &PlanBuilder<'_>) -> Option<IdlePlace> {
        if builder.pieces.is_empty() {
            let alone = self.live.len() == self.idle.len() && self.in_flight.is_empty();
            return alone.then_some(IdlePlace::Alone);
        }
        let plain = |piece: &Piece| {
            piece.form == Form::Recurrent && piece.certain() == 1 && piece.drafts.is_empty() && piece.guesses == 0
        };
        let read = self.running.iter().any(|seq| seq.next() == NextRows::Prompt);
        if read || self.queue.iter().next().is_some() || !builder.pieces.iter().all(plain) {
            return None;
        }
        let shape = StepShape::of_pieces(&builder.pieces, builder.pace.recompute);
        let step_us = builder.pace.cost.predict(&shape)?;
        Some(IdlePlace::Beside { step_us, us: self.idle.budget.beside(step_us) })
    }

    /// A step of idle work alone: all decode rows, and of prompts what the time allows, one unit at least.
    fn plan_idle_step(&mut self, builder: &mut PlanBuilder<'_>) {
        (builder.rest, builder.rest_us) = (self.config.step_tokens, None);
        self.walk_idle(builder, true);
        let Self { idle, pages, slots, .. } = self;
        if builder.pieces.is_empty() && idle.park_last(pages, slots) {
            // Those that run keep each other from a page.
            self.plan_idle_step(builder);
        }
    }

    fn walk_idle(&mut self, builder: &mut PlanBuilder<'_>, alone: bool) {
        for at in 0..self.idle.running.len() {
            if self.idle.running[at].next() == NextRows::Output(1) && self.may_join(at, alone) {
                self.plan_idle_output(at, 1, builder);
            }
        }
        if alone {
            builder.rest_us = Some(ALONE_US);
        }
        for at in 0..self.idle.running.len() {
            self.plan_idle_positions(at, builder, alone);
        }
        while let Some(at) = self.start_idle(builder, alone) {
            self.plan_idle_positions(at, builder, alone);
        }
    }

    /// Plans what a sequence has to compute before it decodes.
    fn plan_idle_positions(&mut self, at: usize, builder: &mut PlanBuilder<'_>, alone: bool) {
        if !self.may_join(at, alone) {
            return;
        }
        match self.idle.running[at].next() {
            NextRows::Prompt => self.plan_idle_prompt(at, builder),
            NextRows::Output(ahead) if ahead > 1 => self.plan_idle_output(at, ahead, builder),
            _ => {}
        }
    }

    /// Rows that wait for a deferred source would hold up the sampler of others' rows.
    fn may_join(&self, at: usize, alone: bool) -> bool {
        alone || self.idle.running[at].request.spec.waits_for.is_empty()
    }

    /// Lends a slot to the first that waits for one, if there are pages for all that it knows and one more for each
    /// that runs. Says where it runs.
    fn start_idle(&mut self, builder: &PlanBuilder<'_>, alone: bool) -> Option<usize> {
        // The tokens in flight of a parked one belong to what it computes again.
        let ready = |seq: &&Sequence| seq.pending == 0 && (alone || seq.request.spec.waits_for.is_empty());
        let seq = self.idle.waiting.values().find(ready)?;
        let pages = pages_for(seq.len()) + self.idle.running.len() as u32;
        let fits = canonical_end(0, 0, seq.prompt_len()) <= builder.room(0) && pages <= self.pages.lendable();
        let rank = seq.rank;
        let slot = if fits { self.slots.lend(rank.seq)? } else { return None };
        let mut seq = self.idle.waiting.remove(&rank)?;
        seq.slot = Some(slot);
        let at = self.idle.running.partition_point(|other| other.rank < rank);
        self.idle.running.insert(at, seq);
        Some(at)
    }

    fn plan_idle_prompt(&mut self, at: usize, builder: &mut PlanBuilder<'_>) {
        let seq = &self.idle.running[at];
        let (id, start, prompt_len) = (seq.request.id, seq.computed, seq.prompt_len());
        let (unit_end, room) = (canonical_end(start, start, prompt_len), builder.room(start));
        let reach = seq.reach(self.pages.lendable()).min(start.saturating_add(room));
        if unit_end > reach {
            return;
        }
        let end = canonical_end(start, reach, prompt_len);
        self.borrow_pages(at, end);
        builder.grant(end - start, builder.pace.cost.prompt_us(start, end - start, !builder.prompts));
        builder.prompts = true;
        self.note_start(id, builder.now);
        let seq = &mut self.idle.running[at];
        seq.computed = end;
        let samples = end == prompt_len && seq.sampled() == 0 && seq.output_max > 0;
        let (score, tokens) =
            (self.score_rows(&self.idle.running[at], start, end), self.idle.running[at].tokens(start, end));
        let form = PieceForm { form: Form::Chunked, state: StateStart::at(start), score, ..PieceForm::recurrent() };
        self.push_idle(at, form, (start, PieceTokens::Known(tokens)), samples, builder);
    }

    /// Plans a decode row, or positions that a parked sequence had before.
    fn plan_idle_output(&mut self, at: usize, ahead: u32, builder: &mut PlanBuilder<'_>) {
        let seq = &self.idle.running[at];
        let start = seq.computed;
        let row_us = builder.pace.cost.recurrent_us(0, start, 1);
        let room = match (ahead, builder.rest_us, row_us) {
            (1, Some(left), Some(us)) if us > left => 0,
            (1, ..) => builder.rest.min(1),
            _ => builder.recompute_room(start).min(ahead),
        };
        let end = (start + room).min(seq.reach(self.pages.lendable()));
        if end == start {
            return;
        }
        self.borrow_pages(at, end);
        if ahead == 1 {
            builder.rest -= 1;
            builder.rest_us = builder.rest_us.map(|left| left - row_us.unwrap_or(left));
        } else {
            builder.grant(end - start, builder.recompute_us(start, end - start));
        }
        let seq = &mut self.idle.running[at];
        seq.computed = end;
        let known = seq.len() - seq.pending;
        let tokens = if end <= known { PieceTokens::Known(seq.tokens(start, end)) } else { PieceTokens::Sampled };
        let samples = end == seq.len();
        self.push_idle(at, PieceForm::recurrent(), (start, tokens), samples, builder);
    }

    fn borrow_pages(&mut self, at: usize, positions: u32) {
        let seq = &mut self.idle.running[at];
        for _ in 0..seq.pages_lacking(positions) {
            seq.pages.push(self.pages.lend(seq.rank.seq).expect("as many as its reach are there"));
        }
    }

    fn push_idle(
        &mut self,
        at: usize,
        form: PieceForm,
        tokens: (u32, PieceTokens),
        samples: bool,
        builder: &mut PlanBuilder<'_>,
    ) {
        let seq = &mut self.idle.running[at];
        let samples = if samples { vec![seq.sample_row()] } else { Vec::new() };
        let ranks = vec![seq.rank; samples.len()];
        let (piece, launched) = form.piece(seq, tokens, (samples, ranks), None);
        self.idle.totals.rows += u64::from(piece.len());
        builder.push((piece, launched));
        builder.idle += 1;
    }
}
