//! Planning: one walk over the running sequences by rank, in which waiting ones start where their rank puts them.
//!
//! Decode rows have their share of the budget set aside before the walk, so the walk may follow rank alone. Pages are taken in the
//! same order: who finds none preempts from the back, where nothing has been planned yet, and who is last itself waits a step.

use super::{Fork, Launched, LaunchedPiece, Scheduler};
use crate::CHUNK_TOKENS;
use crate::PAGE_TOKENS;
use crate::ids::{Micros, SlotId, StepId};
use crate::sequence::{Next, Role, Sequence, canonical_end};
use crate::step::{Form, Piece, PieceTokens, SampleRow, ScoreRows, StateCopy, StepPlan};

/// A plan in the making.
struct Draft {
    now: Micros,
    /// Budget that decode rows leave.
    rest: u32,
    /// A prompt piece or recomputed positions are in: no unit beyond the budget any more.
    granted: bool,
    /// Waiting sequences may still start.
    starts: bool,
    pieces: Vec<Piece>,
    launched: Vec<LaunchedPiece>,
    forks: Vec<Fork>,
}

impl Draft {
    /// Positions that a sequence may be granted beside the decode rows.
    fn room(&self) -> u32 {
        if self.granted { self.rest } else { self.rest.max(CHUNK_TOKENS) }
    }

    fn grant(&mut self, positions: u32) {
        self.rest = self.rest.saturating_sub(positions);
        self.granted = true;
    }
}

impl Scheduler {
    /// The next step, which counts as launched with this. `None` if there is nothing to compute, or if as many steps are in flight
    /// as may be. A function of the scheduler's state and of `now` alone.
    pub fn plan(&mut self, now: Micros) -> Option<StepPlan> {
        if self.in_flight.len() >= self.config.steps_in_flight_max as usize {
            return None;
        }
        let decodes = self.running.iter().filter(|seq| seq.next() == Next::Output(1)).count() as u32;
        let rest = self.config.step_tokens.saturating_sub(decodes);
        let mut draft = Draft {
            now,
            rest,
            granted: false,
            starts: true,
            pieces: Vec::with_capacity(self.running.len() + 1),
            launched: Vec::with_capacity(self.running.len() + 1),
            forks: Vec::new(),
        };
        let mut at = 0;
        loop {
            self.start_before(at, &mut draft);
            let Some(seq) = self.running.get(at) else { break };
            at += match seq.next() {
                Next::Nothing => 1,
                Next::Prompt => 1 + self.plan_prompt(at, &mut draft),
                Next::Output(ahead) => {
                    self.plan_output(at, ahead, &mut draft);
                    1
                }
            };
        }
        self.launch(draft)
    }

    /// Starts the first in the queue if its place by rank is at `at`, and if slots, pages and budget allow. It never preempts and
    /// nobody overtakes it: with both, a request that needs much would wait for ever.
    fn start_before(&mut self, at: usize, draft: &mut Draft) {
        let Some(head) = self.queue.first().filter(|_| draft.starts) else { return };
        if self.running.get(at).is_some_and(|seq| seq.rank < head.rank) {
            return;
        }
        draft.starts = self.can_start(head, draft);
        if !draft.starts {
            return;
        }
        let mut place = at;
        loop {
            let mut seq = self.queue.pop_first().expect("a leader's followers wait behind it");
            seq.slot = Some(self.slots.claim().expect("counted by can_start"));
            self.running.insert(place, seq);
            place += 1;
            if self.queue.first().is_none_or(|next| next.role != Role::Follower) {
                return;
            }
        }
    }

    fn can_start(&self, head: &Sequence, draft: &Draft) -> bool {
        let slots = if head.role == Role::Leader { head.request.choices } else { 1 };
        let first_unit = canonical_end(0, 0, head.prompt_len());
        // A preempted one waits for the tokens that were in flight: they belong to what it recomputes.
        head.pending == 0 && slots <= self.slots.free() && first_unit <= draft.room() && self.pages_suffice(head)
    }

    /// Are there pages for all its known tokens, beside those that running sequences need for theirs and a page for each to grow?
    /// Without that a start would soon be undone by a preemption.
    fn pages_suffice(&self, head: &Sequence) -> bool {
        // Alone it may start with fewer: choices that find no page are preempted, and run one after the other.
        let needed = head.pages_wanted().min(self.pages.total());
        let owed: u32 = self.running.iter().filter(|s| s.role != Role::Follower).map(|s| s.pages_wanted() + 1).sum();
        self.pages.free() >= needed + owed
    }

    /// Plans the next prompt piece of the sequence at `at`. Returns how many choices right behind it forked off.
    fn plan_prompt(&mut self, at: usize, draft: &mut Draft) -> usize {
        let (start, prompt_len) = (self.running[at].computed, self.running[at].prompt_len());
        let unit_end = canonical_end(start, start, prompt_len);
        if unit_end - start > draft.room() || !self.make_room(at, unit_end) {
            return 0;
        }
        let reach = self.running[at].reach(self.pages.free()).min(start + draft.room());
        let end = canonical_end(start, reach, prompt_len);
        self.claim_pages(at, end);
        draft.grant(end - start);
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
    fn plan_output(&mut self, at: usize, ahead: u32, draft: &mut Draft) {
        let start = self.running[at].computed;
        let room = if ahead == 1 { 1 } else { draft.room().min(ahead) };
        if room == 0 || !self.make_room(at, start + 1) {
            return;
        }
        let end = (start + room).min(self.running[at].reach(self.pages.free()));
        self.claim_pages(at, end);
        if ahead > 1 {
            draft.grant(end - start);
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
        draft: &mut Draft,
    ) {
        let rows: Vec<_> = self.running[samples.clone()].iter_mut().map(Sequence::sample_row).collect();
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
        };
        draft.launched.push(LaunchedPiece {
            rank: seq.rank,
            request: seq.request.id,
            scores: score.map_or(0, |rows| piece.len() - u32::from(rows.next.is_none())),
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
    fn fork(&mut self, at: usize, draft: &mut Draft) -> usize {
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

    fn fork_one(&mut self, leader: usize, follower: usize, draft: &mut Draft) -> bool {
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
            let mut seq = self.running.pop().expect("more than `first` are left");
            seq.preemptions += 1;
            self.totals.preemptions += 1;
            let seq = self.release(seq);
            self.queue.push(seq);
        }
    }

    fn note_start(&mut self, at: usize, now: Micros) {
        let seq = &self.running[at];
        let times = &mut self.live.get_mut(&seq.request.id).expect("its sequence lives").times;
        if times.started.is_none() {
            times.started = Some(now);
            self.totals.prompt_tokens += u64::from(seq.prompt_len());
        }
    }

    /// Numbers the step. Copies of forks that were planned before it go first; without a piece they stay for the next step, because
    /// nothing on the device changes until then.
    fn launch(&mut self, draft: Draft) -> Option<StepPlan> {
        if draft.pieces.is_empty() {
            return None;
        }
        let id = StepId(self.next_step);
        self.next_step += 1;
        let forks = std::mem::replace(&mut self.forks, draft.forks);
        self.totals.rows += draft.pieces.iter().map(|piece| u64::from(piece.len())).sum::<u64>();
        self.in_flight.push_back(Launched { id, pieces: draft.launched });
        Some(StepPlan { id, copies: forks.iter().flat_map(Fork::copies).collect(), pieces: draft.pieces })
    }
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
        SampleRow {
            seq: self.rank.seq,
            slot: self.held_slot(),
            params: self.request.sampling.clone(),
            output_index,
            choice: self.choice,
            forced: None,
            awaits_edits: self.request.awaits_edits,
        }
    }
}
