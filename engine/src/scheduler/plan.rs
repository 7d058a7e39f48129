//! Planning: one walk over the running sequences, in which waiting ones start where their place is.
//!
//! The order is that of what keys were served, and within a key that of rank. Decode rows have their share of the budget set aside
//! before the walk, so the walk may follow that order alone. Pages are taken in the same order: who finds none preempts from the back,
//! where nothing has been planned yet, and who is last itself waits a step.

use super::cost::{Pace, StepShape};
use super::way::{SitsOut, Turn};
use super::{Fork, Launched, LaunchedPiece, Scheduler, WaitReason};
use crate::CHUNK_TOKENS;
use crate::PAGE_TOKENS;
use crate::ids::{KeyId, Micros, SlotId, StepId};
use crate::sequence::{Next, Rank, Role, Sequence, canonical_end};
use crate::step::{Form, Piece, PieceTokens, SampleRow, ScoreRows, StateCopy, StepPlan};

/// A plan in the making.
struct Draft<'a> {
    now: Micros,
    pace: &'a Pace,
    /// Budget that decode rows leave, in positions.
    rest: u32,
    /// The same in microseconds; `None` where nothing sets a target, or nobody decodes whom a long step would hold up.
    rest_us: Option<f64>,
    /// A prompt piece or recomputed positions are in: no unit beyond the budget any more.
    granted: bool,
    /// A prompt piece is in.
    prompts: bool,
    /// Waiting sequences may still start.
    starts: bool,
    out: SitsOut,
    /// Decode rows that sit out.
    rows_out: u64,
    pieces: Vec<Piece>,
    launched: Vec<LaunchedPiece>,
    forks: Vec<Fork>,
}

impl Draft<'_> {
    /// Prompt positions from `start` on that a sequence may be granted beside the decode rows.
    fn room(&self, start: u32) -> u32 {
        let room = self.rest.min(self.positions_in_time(start));
        if self.granted { room } else { room.max(CHUNK_TOKENS) }
    }

    /// The most prompt positions from `start` on that the time left allows; none while nobody knows what they take.
    fn positions_in_time(&self, start: u32) -> u32 {
        let Some(left) = self.rest_us else { return u32::MAX };
        let fits = |len: u32| self.pace.cost.prompt_us(start, len, !self.prompts).is_some_and(|us| us <= left);
        // Every position costs more than none, so the last that fits is found by halving.
        let (mut fit, mut over) = (0, self.rest.saturating_add(1));
        while over - fit > 1 {
            let middle = fit + (over - fit) / 2;
            if fits(middle) { fit = middle } else { over = middle }
        }
        fit
    }

    /// Positions of the recurrent form, from `start` on, that a sequence may recompute.
    fn recompute_room(&self, start: u32) -> u32 {
        let room = if self.granted { self.rest } else { self.rest.max(CHUNK_TOKENS) };
        let in_time = match (self.rest_us, self.recompute_us(start, 1)) {
            (Some(left), Some(each)) if each > 0.0 => (left.max(0.0) / each) as u32,
            _ => u32::MAX,
        };
        let in_time = if self.granted { in_time } else { in_time.max(1) };
        room.min(in_time).min(self.pace.passes_max.map_or(u32::MAX, |n| n.get()))
    }

    fn recompute_us(&self, start: u32, positions: u32) -> Option<f64> {
        let passes = if self.pace.passes_max.is_some() { positions } else { 0 };
        self.pace.cost.recurrent_us(passes, start, positions)
    }

    fn grant(&mut self, positions: u32, us: Option<f64>) {
        self.rest = self.rest.saturating_sub(positions);
        self.rest_us = self.rest_us.map(|left| left - us.unwrap_or(left));
        self.granted = true;
    }
}

/// A sequence's place in the order of a walk.
type Place = (u64, KeyId, Rank);

impl Scheduler {
    /// The next step, which counts as launched with this. `None` if there is nothing to compute, or if as many steps are in flight
    /// as may be. A function of the scheduler's state and of `now` alone.
    pub fn plan(&mut self, now: Micros) -> Option<StepPlan> {
        self.plan_within(now, &Pace::default())
    }

    /// The same, with no more positions than `pace` allows in a step's time.
    pub fn plan_within(&mut self, now: Micros, pace: &Pace) -> Option<StepPlan> {
        if self.in_flight.len() >= self.config.steps_in_flight_max as usize {
            return None;
        }
        self.make_way();
        let mut draft = self.draft(now, pace, self.sits_out(now, pace));
        self.walk(&mut draft);
        if draft.pieces.is_empty() && !draft.out.is_nobody() {
            // Those for whom rows sat out find no page; then nobody need sit out.
            draft = self.draft(now, pace, SitsOut::nobody());
            self.walk(&mut draft);
        }
        self.launch(draft)
    }

    fn walk(&mut self, draft: &mut Draft<'_>) {
        let mut at = 0;
        loop {
            self.start_before(at, draft);
            let Some(seq) = self.running.get(at) else { return };
            let next = seq.next();
            at += match next {
                Next::Nothing => 1,
                _ if draft.out.holds(seq.key, next) => {
                    draft.rows_out += u64::from(next == Next::Output(1));
                    1
                }
                Next::Prompt => 1 + self.plan_prompt(at, draft),
                Next::Output(ahead) => {
                    self.plan_output(at, ahead, draft);
                    1
                }
            };
        }
    }

    fn draft<'a>(&self, now: Micros, pace: &'a Pace, out: SitsOut) -> Draft<'a> {
        let decodes = self.running.iter().filter(|seq| seq.next() == Next::Output(1) && !out.keys.contains(&seq.key));
        let shape = decodes.fold(StepShape { passes: 1, ..StepShape::default() }, |shape, seq| StepShape {
            rows: shape.rows + 1,
            attended: shape.attended + u64::from(seq.computed) + 1,
            ..shape
        });
        let held_up = pace.target_us > 0 && shape.rows > 0;
        let beside = if out.turn == Turn::Prompts { 0 } else { shape.rows };
        Draft {
            now,
            pace,
            rest: self.config.step_tokens.saturating_sub(beside).min(out.tokens),
            rest_us: held_up.then(|| pace.target_us as f64 - pace.cost.predict(&shape).unwrap_or(0.0)),
            granted: false,
            prompts: false,
            starts: out.turn != Turn::Decodes,
            out,
            rows_out: 0,
            pieces: Vec::with_capacity(self.running.len() + 1),
            launched: Vec::with_capacity(self.running.len() + 1),
            forks: Vec::new(),
        }
    }

    fn place(&self, seq: &Sequence) -> Place {
        (self.accounts.turn(seq.key), seq.key, seq.rank)
    }

    /// Frees slots for the first in the queue where its key has less than its share of them and others have more: the last of those
    /// that have most to give is preempted. Only if with that it can start; within a key nobody is thrown out for a slot.
    fn make_way(&mut self) {
        let Some(head) = self.queue.first(&self.accounts).filter(|head| head.pending == 0) else { return };
        let (key, slots) = (head.key, slots_of(head));
        if slots <= self.slots.free() || self.accounts.active_count() < 2 {
            return;
        }
        let held = |key: KeyId, running: &[Sequence]| running.iter().filter(|seq| seq.key == key).count() as u32;
        if held(key, &self.running) + slots > self.accounts.share(key, self.slots.total()) || !self.pages_suffice(head) {
            return;
        }
        while slots > self.slots.free() {
            let above = |seq: &Sequence| held(seq.key, &self.running) > self.accounts.share(seq.key, self.slots.total());
            // Who would be ahead of the head in the queue would only take its place.
            let behind = |seq: &Sequence| (self.accounts.turn(seq.key), seq.key) > (self.accounts.turn(key), key);
            let victim = self.running.iter().rposition(|seq| behind(seq) && seq.role != Role::Follower && above(seq));
            let Some(victim) = victim else { return };
            self.preempt_group(victim);
        }
    }

    /// Starts the first in the queue if its place is at `at`, and if slots, pages and budget allow. It never preempts and nobody
    /// overtakes it: with both, a request that needs much would wait for ever.
    fn start_before(&mut self, at: usize, draft: &mut Draft<'_>) {
        let Some(head) = self.queue.first(&self.accounts).filter(|_| draft.starts) else { return };
        if self.running.get(at).is_some_and(|seq| self.place(seq) < self.place(head)) {
            return;
        }
        draft.starts = !draft.out.keys.contains(&head.key) && self.can_start(head, draft);
        if !draft.starts {
            return;
        }
        let key = head.key;
        let mut place = at;
        loop {
            let mut seq = self.queue.pop_first_of(key).expect("a leader's followers wait behind it");
            seq.slot = Some(self.slots.claim().expect("counted by can_start"));
            self.running.insert(place, seq);
            place += 1;
            if self.queue.first_of(key).is_none_or(|next| next.role != Role::Follower) {
                return;
            }
        }
    }

    fn can_start(&self, head: &Sequence, draft: &Draft<'_>) -> bool {
        let first_unit = canonical_end(0, 0, head.prompt_len());
        // A preempted one waits for the tokens that were in flight: they belong to what it recomputes.
        head.pending == 0 && slots_of(head) <= self.slots.free() && first_unit <= draft.room(0) && self.pages_suffice(head)
    }

    /// Are there pages for all its known tokens, beside those that running sequences need for theirs and a page for each to grow?
    /// Without that a start would soon be undone by a preemption.
    pub(super) fn pages_suffice(&self, head: &Sequence) -> bool {
        // Alone it may start with fewer: choices that find no page are preempted, and run one after the other.
        let needed = head.pages_wanted().min(self.pages.total());
        let owed: u32 = self.running.iter().filter(|s| s.role != Role::Follower).map(|s| s.pages_wanted() + 1).sum();
        self.pages.free() >= needed + owed
    }

    /// What keeps the first in the queue from starting, for whoever watches.
    pub(super) fn waits_for(&self) -> WaitReason {
        match self.queue.first(&self.accounts) {
            Some(head) if slots_of(head) > self.slots.free() => WaitReason::Slots,
            Some(head) if !self.pages_suffice(head) => WaitReason::Memory,
            _ => WaitReason::Budget,
        }
    }

    /// Plans the next prompt piece of the sequence at `at`. Returns how many choices right behind it forked off.
    fn plan_prompt(&mut self, at: usize, draft: &mut Draft<'_>) -> usize {
        let (start, prompt_len) = (self.running[at].computed, self.running[at].prompt_len());
        let unit_end = canonical_end(start, start, prompt_len);
        let room = draft.room(start);
        if unit_end - start > room || !self.make_room(at, unit_end) {
            return 0;
        }
        let reach = self.running[at].reach(self.pages.free()).min(start.saturating_add(room));
        let end = canonical_end(start, reach, prompt_len);
        self.claim_pages(at, end);
        draft.grant(end - start, draft.pace.cost.prompt_us(start, end - start, !draft.prompts));
        draft.prompts = true;
        self.charge_prompt(at, end);
        if start == 0 {
            self.note_start(at, draft.now);
        }
        self.running[at].computed = end;
        let samples_due = end == prompt_len && self.running[at].sampled() == 0 && self.running[at].output_max > 0;
        let forked = if samples_due { self.fork(at, draft) } else { 0 };
        let samples = if samples_due { at..at + 1 + forked } else { at..at };
        let score = self.score_rows(at, start, end);
        let tokens = PieceTokens::Known(self.running[at].tokens(start, end));
        self.push_piece(at, Form::Chunked, start, tokens, samples, score, draft);
        forked
    }

    /// Plans a decode row, or as many recomputed positions as budget and pages allow.
    fn plan_output(&mut self, at: usize, ahead: u32, draft: &mut Draft<'_>) {
        let start = self.running[at].computed;
        let room = if ahead == 1 { 1 } else { draft.recompute_room(start).min(ahead) };
        if room == 0 || !self.make_room(at, start + 1) {
            return;
        }
        let end = (start + room).min(self.running[at].reach(self.pages.free()));
        self.claim_pages(at, end);
        if ahead > 1 {
            draft.grant(end - start, draft.recompute_us(start, end - start));
        }
        let seq = &mut self.running[at];
        seq.computed = end;
        let known = seq.len() - seq.pending;
        let tokens = if end <= known { PieceTokens::Known(seq.tokens(start, end)) } else { PieceTokens::Sampled };
        let samples = if end == seq.len() { at..at + 1 } else { at..at };
        self.push_piece(at, Form::Recurrent, start, tokens, samples, None, draft);
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a piece, each computed where it is known")]
    fn push_piece(
        &mut self,
        at: usize,
        form: Form,
        start: u32,
        tokens: PieceTokens,
        samples: std::ops::Range<usize>,
        score: Option<ScoreRows>,
        draft: &mut Draft<'_>,
    ) {
        let rows: Vec<_> = self.running[samples.clone()].iter_mut().map(Sequence::sample_row).collect();
        let key = self.running[at].key;
        rows.iter().for_each(|_| self.accounts.output_served(key));
        let ranks = self.running[samples].iter().map(|seq| seq.rank).collect();
        let seq = &self.running[at];
        let piece = Piece {
            seq: seq.rank.seq,
            slot: seq.held_slot(),
            form,
            start,
            tokens,
            pages: seq.pages.clone(),
            prompt_len: seq.prompt_len(),
            samples: rows,
            score,
            experts: seq.request.experts.filter(|_| form == Form::Recurrent),
            pool_from: seq.request.pool.map(|pool| pool.from(seq.prompt_len())),
        };
        draft.launched.push(LaunchedPiece {
            rank: seq.rank,
            request: seq.request.id,
            scores: score.map_or(0, |rows| piece.len() - u32::from(rows.next.is_none())),
            pooled: piece.pooled_units().count() as u32,
            samples: ranks,
            completes: seq.output_max == 0 && seq.computed == seq.prompt_len(),
        });
        draft.pieces.push(piece);
    }

    /// Which scores a prompt piece reports: none if all that it could report were delivered before a preemption.
    fn score_rows(&self, at: usize, start: u32, end: u32) -> Option<ScoreRows> {
        let seq = &self.running[at];
        let top = seq.request.score_prompt.filter(|_| seq.choice == 0)?;
        let next = seq.request.prompt.get(end as usize).copied();
        let last_scored = end - u32::from(next.is_none());
        let delivered = self.live[&seq.request.id].scored;
        (last_scored > delivered.max(start)).then_some(ScoreRows { top, next })
    }

    /// Makes the followers of the leader at `at` sequences of their own at the prompt's end: they share the prompt's full pages and
    /// get a page for a copy of the part-filled one. Who finds none is preempted now and computes the prompt alone later. Returns
    /// how many forked.
    fn fork(&mut self, at: usize, draft: &mut Draft<'_>) -> usize {
        if self.running[at].role != Role::Leader {
            return 0;
        }
        let id = self.running[at].request.id;
        for seq in self.running[at..].iter_mut().take_while(|seq| seq.request.id == id) {
            seq.role = Role::Alone;
        }
        let mut forked = 0;
        while self.running.get(at + 1 + forked).is_some_and(|seq| seq.request.id == id) {
            if !self.fork_one(at, at + 1 + forked, draft) {
                self.preempt_from(at + 1 + forked);
                break;
            }
            forked += 1;
        }
        forked
    }

    fn fork_one(&mut self, leader: usize, follower: usize, draft: &mut Draft<'_>) -> bool {
        let (slot, computed) = (self.running[leader].held_slot(), self.running[leader].computed);
        if self.running[follower].output_max == 1 {
            // The prompt's last row samples its only token; it never has a row of its own.
            return true;
        }
        let full = (computed / PAGE_TOKENS) as usize;
        let part_filled = self.running[leader].pages.get(full).copied();
        while part_filled.is_some() && self.pages.free() == 0 {
            if !self.preempt_youngest(follower) {
                return false;
            }
        }
        let mut pages = self.running[leader].pages[..full].to_vec();
        for &page in &pages {
            self.pages.share(page);
        }
        let copy = part_filled.map(|from| (from, self.pages.claim().expect("one is free")));
        pages.extend(copy.map(|(_, to)| to));
        let seq = &mut self.running[follower];
        seq.pages = pages;
        seq.computed = computed;
        draft.forks.push(Fork { rank: seq.rank, slots: (slot, seq.held_slot()), pages: copy });
        true
    }

    /// Frees pages until the sequence at `at` can have `positions` computed. False if it would have to give way itself: then it
    /// keeps what it has and waits, until an older one ends or takes it away. The first of all never waits: alone it fits.
    fn make_room(&mut self, at: usize, positions: u32) -> bool {
        let needed = self.running[at].pages_lacking(positions);
        while self.pages.free() < needed {
            if !self.preempt_youngest(at) {
                assert!(at > 0, "sequence {} was admitted and does not fit alone", self.running[at].rank.seq);
                return false;
            }
        }
        true
    }

    fn claim_pages(&mut self, at: usize, positions: u32) {
        for _ in 0..self.running[at].pages_lacking(positions) {
            let page = self.pages.claim().expect("make_room found enough");
            self.running[at].pages.push(page);
        }
    }

    /// Preempts the last by rank: the youngest of the lowest priority. A prompt that is computed for several choices goes as one.
    /// False if there is none behind `at`.
    fn preempt_youngest(&mut self, at: usize) -> bool {
        let victim = self.running.iter().rposition(|seq| seq.role != Role::Follower).expect("followers have a leader");
        if victim <= at {
            return false;
        }
        self.preempt_from(victim);
        true
    }

    /// Sends the sequences from `first` on back to the queue. Their tokens stay, also those in flight; the rest is recomputed.
    fn preempt_from(&mut self, first: usize) {
        while self.running.len() > first {
            let seq = self.running.pop().expect("more than `first` are left");
            self.preempt(seq);
        }
    }

    /// Sends the sequence at `at`, with the followers that wait for its prompt, back to the queue.
    fn preempt_group(&mut self, at: usize) {
        let followers = self.running[at + 1..].iter().take_while(|seq| seq.role == Role::Follower).count();
        for seq in self.running.drain(at..=at + followers).collect::<Vec<_>>() {
            self.preempt(seq);
        }
    }

    fn preempt(&mut self, mut seq: Sequence) {
        seq.preemptions += 1;
        self.totals.preemptions += 1;
        let seq = self.release(seq);
        self.queue.push(seq);
    }

    /// Prompt positions are paid for once, whatever becomes of them.
    fn charge_prompt(&mut self, at: usize, end: u32) {
        let seq = &mut self.running[at];
        self.accounts.prompt_served(seq.key, end.saturating_sub(seq.charged));
        seq.charged = seq.charged.max(end);
    }

    fn note_start(&mut self, at: usize, now: Micros) {
        let seq = &self.running[at];
        let times = &mut self.live.get_mut(&seq.request.id).expect("its sequence lives").times;
        if times.started.is_none() {
            times.started = Some(now);
            self.totals.prompt_tokens += u64::from(seq.prompt_len());
        }
    }

    /// Orders running sequences by what their keys were served with this plan. Between two plans the order never changes.
    fn settle(&mut self, out: &SitsOut, now: Micros) {
        self.accounts.settle(&out.keys, out.turn != Turn::Prompts, now);
        if self.accounts.active_count() > 1 {
            let accounts = &self.accounts;
            self.running.sort_by_key(|seq| (accounts.turn(seq.key), seq.key, seq.rank));
        }
    }

    /// Numbers the step. Copies of forks that were planned before it go first; without a piece they stay for the next step, because
    /// nothing on the device changes until then.
    fn launch(&mut self, draft: Draft<'_>) -> Option<StepPlan> {
        if draft.pieces.is_empty() {
            return None;
        }
        let id = StepId(self.next_step);
        self.next_step += 1;
        let forks = std::mem::replace(&mut self.forks, draft.forks);
        self.totals.rows += draft.pieces.iter().map(|piece| u64::from(piece.len())).sum::<u64>();
        self.in_flight.push_back(Launched { id, pieces: draft.launched });
        self.totals.rows_sat_out += draft.rows_out;
        self.last_turn = draft.out.took();
        self.settle(&draft.out, draft.now);
        Some(StepPlan { id, copies: forks.iter().flat_map(Fork::copies).collect(), pieces: draft.pieces })
    }
}

/// Slots that a start needs: all choices run from the prompt's end on.
pub(super) fn slots_of(head: &Sequence) -> u32 {
    if head.role == Role::Leader { head.request.choices } else { 1 }
}

impl Fork {
    fn copies(&self) -> impl Iterator<Item = StateCopy> + use<> {
        let (from, to) = self.slots;
        let page = self.pages.map(|(from, to)| StateCopy::Page { from, to });
        std::iter::once(StateCopy::Slot { from, to }).chain(page)
    }
}

impl Sequence {
    fn held_slot(&self) -> SlotId {
        self.slot.expect("a running sequence has a slot")
    }

    /// Pages it lacks for all its known tokens, and for its followers' copies of the prompt's part-filled page.
    fn pages_wanted(&self) -> u32 {
        let part_filled = !self.prompt_len().is_multiple_of(PAGE_TOKENS);
        let copies = if self.role == Role::Leader && part_filled { self.request.choices - 1 } else { 0 };
        self.pages_lacking(self.len()) + copies
    }

    /// Asks for this sequence's next token.
    fn sample_row(&mut self) -> SampleRow {
        let output_index = self.sampled();
        self.pending += 1;
        let watch = self.watch.as_mut();
        let (forced, params) = watch.map_or((None, None), |w| (w.forced(output_index), w.params(output_index)));
        SampleRow {
            seq: self.rank.seq,
            slot: self.held_slot(),
            params: params.unwrap_or_else(|| self.request.sampling.clone()),
            output_index,
            choice: self.choice,
            forced,
            awaits_edits: self.request.awaits_edits,
        }
    }
}
