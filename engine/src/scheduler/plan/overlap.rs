//! A step that is planned while nobody knows yet how many drafts of the one in flight count: each sequence goes on behind
//! what counts, with the guesses that it asked for as drafts ([`Piece::follows`]). So the device begins it when the one
//! before ends, and need not wait for the host.
//!
//! All who run are in it, or it is not planned: who is left out would wait for a step more. What it says of a sequence
//! (`follow_up`) counts when the outcome before it is known.

use super::pause::Paused;
use crate::adapter::ResidentAdapter;
use crate::cache::pages_for;
use crate::ids::{Micros, TokenId};
use crate::scheduler::Scheduler;
use crate::scheduler::launched::LaunchedPiece;
use crate::scheduler::policy::cost::Pace;
use crate::scheduler::sequence::{FollowUp, Rank, Sequence};
use crate::scheduler::speculation::{DecodeRows, Proposal, ProposerClass};
use crate::step::{Form, Piece, PieceTokens, StateStart, StepPlan};

/// How many drafts and guesses can count behind a piece in flight and the one that follows it, whatever counts of what is
/// drafted already: each piece has a token of its own, and the last one has no row.
fn left(seq: &Sequence) -> u32 {
    seq.output_max.saturating_sub(seq.sampled() + seq.drafted + 2)
}

impl Scheduler {
    /// The step behind one whose outcome decides what comes next, where that is all that keeps it from being planned.
    pub(super) fn plan_behind(&mut self, now: Micros, pace: &Pace) -> Option<StepPlan> {
        let follow_ups = self.follow_ups(pace)?;
        let mut builder = self.builder(now, pace, Paused::nobody());
        let (decodes, drafted) = (self.rows_in_doubt(), follow_ups.iter().map(|f| f.drafts).sum());
        let passes = follow_ups.iter().map(|f| f.guesses).max().unwrap_or(0);
        let guesses = follow_ups.iter().map(|f| f.guesses).sum();
        builder.expected = self.speculation.expected(decodes, (drafted, ProposerClass::Head), (passes, guesses), pace);
        for (at, follow_up) in follow_ups.into_iter().enumerate() {
            let adapter = self.resident_adapter(at, &builder);
            let (piece, launched) = self.follow(at, adapter, follow_up);
            builder.pieces.push(piece);
            builder.launched.push(launched);
        }
        self.launch(builder)
    }

    /// Of each sequence that runs what follows its piece in flight; `None` where one of them wants something else.
    fn follow_ups(&mut self, pace: &Pace) -> Option<Vec<FollowUp>> {
        let alone = self.in_flight.len() == 1 && self.queue.iter().next().is_none() && self.forks.is_empty();
        let all = alone && self.in_flight[0].pieces.len() == self.running.len();
        if !all || !self.running.iter().all(|seq| self.may_follow(seq)) || !self.keys_that_draft_nothing().is_empty() {
            return None;
        }
        if !(0..self.running.len()).all(|at| self.head_is_best(at)) {
            return None;
        }
        let decodes = self.rows_in_doubt();
        let drafts = self.offers_of_head(|seq| seq.guesses_due.min(left(seq).saturating_sub(1)));
        let drafts = self.granted_beside(&drafts, decodes, pace);
        let mut drafted = drafts.iter().map(|n| *n as u32);
        let guesses = self.offers_of_head(|seq| left(seq).saturating_sub(drafted.next().expect("one a sequence")));
        let guesses = self.guesses_granted(&guesses, decodes, pace);
        let of = |(drafts, guesses): (usize, usize)| FollowUp { drafts: drafts as u32, guesses: guesses as u32 };
        let all: Vec<_> = drafts.into_iter().zip(guesses).map(of).collect();
        let rows = |drafts: u32| decodes.rows + drafts;
        let before = rows(self.running.iter().map(|seq| seq.drafted).sum());
        let few = before.max(rows(all.iter().map(|f| f.drafts).sum())) <= self.speculation.follow_rows_max();
        (few && all.iter().all(|f| f.drafts > 0 && f.guesses > 0) && self.have_room(&all)).then_some(all)
    }

    /// Is it a row behind which guesses are made that has all that it needs to go on by itself?
    fn may_follow(&self, seq: &Sequence) -> bool {
        seq.guesses_due > 0
            && !seq.lacks_adapter
            && seq.pending == 1
            && seq.follow_up.is_none()
            && self.speculation.takes(&seq.request.spec)
            && seq.rules.are_silent_from(seq.sampled())
    }

    /// Of each sequence that runs what could be drafted of the draft head's guesses, of which it can do with so many.
    fn offers_of_head(&mut self, mut most: impl FnMut(&Sequence) -> u32) -> Vec<Proposal> {
        let Self { running, speculation, .. } = self;
        let of = |seq: &mut Sequence| {
            let most = most(seq);
            speculation.offer_guesses(&mut seq.drafter, most)
        };
        running.iter_mut().map(of).collect()
    }

    /// Does no other source have a better guess by now? Then the next step had better wait for it.
    fn head_is_best(&mut self, at: usize) -> bool {
        let Some(other) = self.offer(at, 0).filter(|offer| !offer.is_from_head()) else { return true };
        let Self { running, speculation, .. } = self;
        other.worth() < speculation.offer_guesses(&mut running[at].drafter, u32::MAX).worth()
    }

    /// Is there a page for each position that they may come to, beside one for everybody as without?
    fn have_room(&self, follow_ups: &[FollowUp]) -> bool {
        let lacking = |(seq, f): (&Sequence, &FollowUp)| seq.pages_lacking(seq.computed + f.reach(seq));
        let lacking: u32 = self.running.iter().zip(follow_ups).map(lacking).sum();
        lacking + self.running.len() as u32 <= self.pages.available()
    }

    fn follow(&mut self, at: usize, adapter: Option<ResidentAdapter>, follow_up: FollowUp) -> (Piece, LaunchedPiece) {
        let reach = follow_up.reach(&self.running[at]);
        self.claim_spare(at, reach);
        let seq = &mut self.running[at];
        // What was claimed before, when more might have counted, stays with the sequence.
        let pages = seq.pages[..pages_for(seq.computed + reach) as usize].to_vec();
        let follows = Some(seq.drafted);
        let samples = seq.follow_up_rows(follow_up);
        let piece = Piece {
            seq: seq.rank.seq,
            slot: seq.held_slot(),
            state: StateStart::Continue,
            form: Form::Recurrent,
            start: seq.computed,
            tokens: PieceTokens::Sampled,
            drafts: vec![0; follow_up.drafts as usize],
            guesses: follow_up.guesses,
            follows,
            pages,
            prompt_len: seq.prompt_len(),
            samples,
            score: None,
            experts: seq.request.spec.experts,
            adapter,
            ends: seq.request.spec.end_ids.clone(),
            pool_from: None,
            exports: Vec::new(),
        };
        let launched = LaunchedPiece {
            rank: seq.rank,
            request: seq.request.id,
            scores: 0,
            pooled: 0,
            samples: vec![seq.rank],
            completes: false,
            drafted: None,
            guesses: true,
            follows: Some(follow_up.drafts),
        };
        let key = seq.key;
        // Whether drafts are served, their outcome tells.
        self.accounts.output_served(key);
        (piece, launched)
    }

    /// The guesses of a sequence's piece are known: they are the drafts of the piece that follows it, if one does.
    pub(in crate::scheduler) fn settle_follow_up(&mut self, rank: Rank, guesses: &[TokenId]) {
        let next = self.in_flight.front_mut().and_then(|step| step.pieces.iter_mut().find(|piece| piece.rank == rank));
        let Some((piece, most)) = next.and_then(|piece| piece.follows.take().map(|most| (piece, most))) else { return };
        let tokens = guesses.iter().copied().take(most as usize);
        let offer = self.speculation.offer_made(tokens.collect());
        let drafts = offer.tokens.len() as u32;
        piece.drafted = (drafts > 0).then_some(offer);
        if let Some(seq) = self.find_mut(rank) {
            seq.take_follow_up(drafts);
            let positions = seq.drafted + seq.guesses_due;
            self.give_back_pages(rank, positions);
        }
    }

    /// Rows of the next step, if each sequence that runs has one, and the positions that they attend to.
    fn rows_in_doubt(&self) -> DecodeRows {
        DecodeRows::of(self.running.iter())
    }
}
