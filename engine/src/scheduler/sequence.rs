//! One sequence: a prompt, what one choice generated after it, and how far both are computed. Holds a page table and a
//! slot, and decides neither when it runs nor what it may hold.

use super::speculation::{KnownRun, SequenceProposers};
use super::{FinishReason, Request, Usage};
use crate::cache::{Hit, pages_for};
use crate::constraint::SequenceRules;
use crate::ids::{KeyId, Micros, PageId, SeqId, SlotId, TokenId};
use crate::step::{Sample, SampleRow};
use crate::{CHUNK_TOKENS, PAGE_TOKENS};

/// Who goes first within a key: lower priority values, then earlier arrivals, then lower choices. Sequence ids grow in
/// the order in which requests come to a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Priority of the request; smaller values go first.
    pub(crate) priority: i32,
    /// When the request was admitted, by this scheduler or by another one that handed it over.
    pub(crate) admitted: Micros,
    /// Unique, so that ranks are too.
    pub(crate) seq: SeqId,
}

/// How the choices of one request depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChoiceRole {
    /// Computes its own rows.
    Alone,
    /// Computes the prompt for the followers that rank right behind it.
    Leader,
    /// Has a slot and no rows until the leader has reached the prompt's end.
    Follower,
}

/// What a sequence can compute next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextRows {
    /// Nothing until an outcome arrives, or its adapter gets a slot.
    Nothing,
    /// Prompt positions, in canonical pieces.
    Prompt,
    /// This many positions after the prompt; the last one samples. More than one only after a preemption.
    Output(u32),
}

/// A piece that goes on from one whose outcome was not known when it was planned ([`crate::step::Piece::follows`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FollowUp {
    /// The most guesses that it has as drafts.
    pub(crate) drafts: u32,
    /// What it asks the draft head for.
    pub(crate) guesses: u32,
}

impl FollowUp {
    /// Positions behind the computed ones that its sequence may come to: drafts in flight, the next row, its drafts, its
    /// guesses.
    pub(crate) fn reach(&self, seq: &Sequence) -> u32 {
        seq.drafted + 1 + self.drafts + self.guesses
    }
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) rank: Rank,
    /// The key that the sequence runs on account of.
    pub(crate) key: KeyId,
    /// It does not count against the bounds of what may wait.
    pub(crate) exempt: bool,
    /// Of the prompt, tokens that the cache spared when it first ran; while it waits for that, those that it would.
    pub(crate) cached: u32,
    /// What its first piece goes on from.
    pub(crate) restore: Option<Hit>,
    /// Positions of the prompt after which a checkpoint is worth its room, descending.
    pub(crate) exports: Vec<u32>,
    /// The furthest of them, taken or not.
    pub(crate) last_export: u32,
    /// Prompt positions that its key was charged for: a recomputation is not the caller's doing.
    pub(crate) charged: u32,
    pub(crate) request: Request,
    pub(crate) choice: u32,
    /// Tokens to generate: what was asked for, cut to what the context and all the pages can hold.
    pub(crate) output_max: u32,
    /// Output tokens that are generated and committed.
    pub(crate) output: Vec<TokenId>,
    /// Sampled by launched steps and not committed yet. Positive only if `computed` is one short of all tokens, or if
    /// the sequence was preempted meanwhile.
    pub(crate) pending: u32,
    /// Drafts in flight, each with a sample and a position that count only if they prove right: until that is known
    /// nothing of it can be planned. They are neither in `pending` nor in `computed`.
    pub(crate) drafted: u32,
    /// Guesses that a piece in flight asks the draft head for, and that the next one is to have as drafts.
    pub(crate) guesses_due: u32,
    /// A piece in flight behind the one whose drafts are not known yet. Nothing of it is in `pending`, in `drafted` or
    /// in `computed` before they are.
    pub(crate) follow_up: Option<FollowUp>,
    /// Positions whose state and KV launched steps have computed or will have.
    pub(crate) computed: u32,
    /// State slot of the sequence, held while it runs.
    pub(crate) slot: Option<SlotId>,
    /// Page table: covers `computed` positions and those of drafts and guesses in flight, no page more.
    pub(crate) pages: Vec<PageId>,
    /// Its adapter lies in no slot, so nothing of it can be planned.
    pub(crate) lacks_adapter: bool,
    pub(crate) role: ChoiceRole,
    pub(crate) preemptions: u32,
    /// It has run before, here or on another scheduler, and is computed again.
    pub(crate) resumes: bool,
    /// What constrains its outputs.
    pub(crate) rules: SequenceRules,
    /// What guesses its next tokens.
    pub(super) drafter: SequenceProposers,
    /// Outputs that write the only text which its grammar allows.
    pub(super) run: KnownRun,
}

impl Sequence {
    /// A choice of a request that was admitted then, and whose sequences have ids from `first` on.
    pub(crate) fn new(
        request: Request,
        key: KeyId,
        (admitted, first): (Micros, SeqId),
        choice: u32,
        output_max: u32,
    ) -> Self {
        let spec = &request.spec;
        let role = match choice {
            _ if spec.choices == 1 => ChoiceRole::Alone,
            0 => ChoiceRole::Leader,
            _ => ChoiceRole::Follower,
        };
        let ends = (spec.min_tokens, spec.end_ids.clone());
        Self {
            rank: Rank { priority: spec.priority, admitted, seq: SeqId(first.0 + u64::from(choice)) },
            key,
            exempt: false,
            cached: 0,
            restore: None,
            exports: Vec::new(),
            last_export: 0,
            charged: 0,
            choice,
            output_max,
            output: Vec::new(),
            pending: 0,
            drafted: 0,
            guesses_due: 0,
            follow_up: None,
            computed: 0,
            slot: None,
            pages: Vec::new(),
            lacks_adapter: false,
            role,
            preemptions: 0,
            resumes: false,
            rules: SequenceRules::new(ends, spec.thinking.clone(), spec.waits_for),
            drafter: SequenceProposers::default(),
            run: KnownRun::default(),
            request,
        }
    }

    pub(crate) fn prompt_len(&self) -> u32 {
        self.request.prompt.len() as u32
    }

    /// Tokens generated, committed or not.
    pub(crate) fn sampled(&self) -> u32 {
        self.output.len() as u32 + self.pending
    }

    /// Positions that have a token, committed or not.
    pub(crate) fn len(&self) -> u32 {
        self.prompt_len() + self.sampled()
    }

    /// What to compute next. The length limit shows here already; end ids show only at commit.
    pub(crate) fn next(&self) -> NextRows {
        let prompt_done = self.computed >= self.prompt_len();
        let enough = self.sampled() >= self.output_max && (self.sampled() > 0 || prompt_done);
        let waits = self.lacks_adapter || self.in_doubt() || self.rules.reads_further(self.pending);
        if self.role == ChoiceRole::Follower || enough || waits {
            NextRows::Nothing
        } else if prompt_done {
            NextRows::Output(self.len() - self.computed)
        } else {
            NextRows::Prompt
        }
    }

    /// Is it unknown how many of its tokens in flight count?
    pub(crate) fn in_doubt(&self) -> bool {
        self.drafted > 0 || self.follow_up.is_some()
    }

    /// The number of its adapter, if it has one.
    pub(crate) fn adapter_number(&self) -> Option<u64> {
        self.request.spec.adapter.as_ref().map(|scaled| scaled.adapter.number)
    }

    /// Of one that runs.
    pub(crate) fn held_slot(&self) -> SlotId {
        self.slot.expect("a running sequence has a slot")
    }

    /// Slots that its start needs: all choices run from the prompt's end on.
    pub(crate) fn slots_wanted(&self) -> u32 {
        if self.role == ChoiceRole::Leader { self.request.spec.choices } else { 1 }
    }

    /// Pages it lacks for all its known tokens, and for its followers' copies of the prompt's part-filled page.
    pub(crate) fn pages_wanted(&self) -> u32 {
        let part_filled = !self.prompt_len().is_multiple_of(PAGE_TOKENS);
        let copies = if part_filled { self.slots_wanted() - 1 } else { 0 };
        self.pages_lacking(self.len()) + copies
    }

    /// It counts against the bounds of what may wait for a first step.
    pub(crate) fn takes_place(&self) -> bool {
        self.is_new() && !self.exempt
    }

    /// Prompt positions that it has to compute itself, of one that waits as far as that is known.
    pub(crate) fn prompt_to_compute(&self) -> u32 {
        let spared = if self.is_new() { self.cached } else { self.computed };
        if self.role == ChoiceRole::Follower { 0 } else { self.prompt_len().saturating_sub(spared) }
    }

    /// Waits for its first step.
    pub(crate) fn is_new(&self) -> bool {
        !self.resumes && self.slot.is_none()
    }

    /// Pages it lacks to have `positions` computed.
    pub(crate) fn pages_lacking(&self, positions: u32) -> u32 {
        pages_for(positions).saturating_sub(self.pages.len() as u32)
    }

    /// Where its page table would end with `free` more pages.
    pub(crate) fn reach(&self, free: u32) -> u32 {
        (self.pages.len() as u32).saturating_add(free).saturating_mul(PAGE_TOKENS)
    }

    /// Committed tokens of these positions.
    pub(crate) fn tokens(&self, start: u32, end: u32) -> Vec<TokenId> {
        let prompt_len = self.prompt_len();
        let prompt = &self.request.prompt[start.min(prompt_len) as usize..end.min(prompt_len) as usize];
        let from = start.saturating_sub(prompt_len) as usize;
        let output = &self.output[from..end.saturating_sub(prompt_len).max(from as u32) as usize];
        [prompt, output].concat()
    }

    /// Asks for its next token.
    pub(crate) fn sample_row(&mut self) -> SampleRow {
        let row = self.row_of(self.sampled());
        self.pending += 1;
        row
    }

    /// Asks for the tokens behind `count` drafts, which come behind the token that was asked for last.
    pub(crate) fn drafted_rows(&mut self, count: u32) -> Vec<SampleRow> {
        self.drafted = count;
        (0..count).map(|i| self.row_of(self.sampled() + i)).collect()
    }

    /// Asks for the tokens of a piece that follows the one in flight: their numbers are those if no draft counts.
    pub(crate) fn follow_up_rows(&mut self, follow_up: FollowUp) -> Vec<SampleRow> {
        self.follow_up = Some(follow_up);
        (0..=follow_up.drafts).map(|i| self.row_of(self.sampled() + i)).collect()
    }

    /// What the piece in flight said is known: the one that follows it is on its way with so many drafts.
    pub(crate) fn take_follow_up(&mut self, drafts: u32) {
        let Some(follow_up) = self.follow_up.take() else { return };
        self.pending += 1;
        // Of a preempted one the tokens count, but nothing that was computed.
        if self.slot.is_some() {
            self.computed += 1;
            (self.drafted, self.guesses_due) = (drafts, follow_up.guesses);
        }
    }

    fn row_of(&mut self, output_index: u32) -> SampleRow {
        SampleRow {
            seq: self.rank.seq,
            slot: self.held_slot(),
            params: self.request.spec.sampling.clone(),
            output_index,
            choice: self.choice,
            rules: self.rules.of_output(output_index),
            waits_for: self.rules.waits_for(),
        }
    }

    /// A draft in flight proved right: its position counts, and what was sampled behind it is on its way.
    pub(crate) fn draft_counts(&mut self) {
        self.pending += 1;
        if self.drafted > 0 {
            self.computed += 1;
        }
    }

    /// Takes the oldest pending token; says why the sequence ends, if it does.
    pub(crate) fn commit(&mut self, sample: &Sample) -> Option<FinishReason> {
        assert!(self.pending > 0, "sequence {} gets a token that it did not ask for", self.rank.seq);
        self.pending -= 1;
        self.output.push(sample.token);
        let reason = self.ends_with(sample.token);
        self.rules.take(sample.token, sample.certainty);
        if reason.is_some() {
            self.rules.finish();
        }
        reason
    }

    fn ends_with(&self, token: TokenId) -> Option<FinishReason> {
        if self.request.spec.end_ids.contains(&token) {
            Some(FinishReason::Stop)
        } else if self.output.len() as u32 >= self.output_max {
            Some(FinishReason::Length)
        } else {
            None
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_len(),
            cached_tokens: self.cached,
            output_tokens: self.output.len() as u32,
            preemptions: self.preemptions,
        }
    }
}

/// The end of the largest canonical prompt piece that starts at `start` and ends at or before `reach`; at least one
/// unit, whatever `reach` says.
pub(crate) fn canonical_end(start: u32, reach: u32, prompt_len: u32) -> u32 {
    let unit_end = (start / CHUNK_TOKENS + 1) * CHUNK_TOKENS;
    if reach >= prompt_len { prompt_len } else { (reach / CHUNK_TOKENS * CHUNK_TOKENS).max(unit_end).min(prompt_len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_piece_ends_at_a_multiple_of_64_or_at_the_prompts_end() {
        assert_eq!(canonical_end(0, 150, 150), 150);
        assert_eq!(canonical_end(0, 149, 150), 128);
        assert_eq!(canonical_end(64, 127, 150), 128, "one unit at least");
        assert_eq!(canonical_end(128, 128, 150), 150, "the rest is less than a unit");
        assert_eq!(canonical_end(0, 1000, 64), 64);
        assert_eq!(canonical_end(0, 0, 1), 1);
    }
}
