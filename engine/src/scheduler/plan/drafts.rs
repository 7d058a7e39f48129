//! How many drafts stand behind each decode row of the next step, and whether that step waits so that there may be
//! some.

use super::guesses::HeadRequests;
use super::pause::Paused;
use crate::CHUNK_TOKENS;
use crate::constraint::grammar::ForcedRun;
use crate::drafts::DraftKind;
use crate::ids::{KeyId, Micros};
use crate::scheduler::Scheduler;
use crate::scheduler::policy::cost::Pace;
use crate::scheduler::sequence::{NextRows, Rank, Sequence};
use crate::scheduler::speculation::{
    DecodeRows, DraftSettings, DraftTotals, ExpectedStepTime, KnownRun, MakeSource, Proposal, ProposerClass,
    RoomBeside, Speculation,
};
use std::collections::{BTreeMap, BTreeSet};

impl Sequence {
    /// May drafts stand behind its rows, as far as its request, the backend and the rules for its outputs let them?
    pub(super) fn takes_drafts(&self, speculation: &Speculation) -> bool {
        speculation.takes(&self.request.spec) && self.rules.may_draft()
    }
}

impl Scheduler {
    /// A scheduler that drafts like this. Before anything is admitted.
    #[must_use]
    pub fn with_drafts(self, settings: DraftSettings) -> Self {
        assert!(self.live.is_empty(), "requests were admitted already");
        Self { speculation: Speculation::new(settings), ..self }
    }

    /// A scheduler with a source of the caller's own, which takes the place of the one of its kind.
    #[must_use]
    pub fn with_draft_source(mut self, kind: DraftKind, make: MakeSource) -> Self {
        self.speculation.proposers().replace(kind, make);
        self
    }

    /// What was drafted since the start.
    pub fn draft_totals(&self) -> DraftTotals {
        self.speculation.totals()
    }

    /// Does it use runs, so that a plan is better made once they are known?
    pub fn takes_runs(&self) -> bool {
        self.speculation.takes_runs()
    }

    /// A grammar allows one text only, which these outputs write. Of a sequence that has ended it means nothing.
    pub fn note_run(&mut self, run: ForcedRun) {
        if let Some(known) = self.running.iter_mut().find(|of| of.rank.seq == run.seq) {
            known.run = KnownRun::of(run);
        }
    }

    /// Should the next step wait for the one in flight, because somebody would draft once its token is known? Then
    /// sequences that decode together stay together.
    pub(in crate::scheduler) fn waits_to_draft(&mut self, pace: &Pace) -> bool {
        if !self.speculation.is_on() || self.in_flight.is_empty() {
            return false;
        }
        if self.running.iter().any(|seq| seq.drafted > 0 || seq.guesses_due > 0) {
            return true;
        }
        let shut_out = self.keys_that_draft_nothing();
        let mut offers = Vec::new();
        for at in 0..self.running.len() {
            let seq = &self.running[at];
            if seq.pending == 1 && matches!(seq.next(), NextRows::Output(1)) && !shut_out.contains(&seq.key) {
                // The first token of the guess is the one on its way.
                offers.extend(self.offer(at, 1).map(Proposal::without_first));
            }
        }
        let decodes = self.decode_rows(&Paused::nobody());
        match offers.as_slice() {
            [] => false,
            [(first, behind)] if decodes.rows == 1 => {
                let drafts = self.granted_beside(std::slice::from_ref(behind), decodes, pace)[0];
                drafts > 0 && self.speculation.wait_pays(*first, &behind.clone().cut(drafts), decodes, pace)
            }
            _ => {
                let offers: Vec<_> = offers.into_iter().map(|(first, behind)| behind.behind(first)).collect();
                self.granted_beside(&offers, decodes, pace).iter().any(|n| *n > 0)
            }
        }
    }

    /// What is drafted in the next step, by sequence.
    pub(super) fn allot(&mut self, out: &Paused, pace: &Pace) -> BTreeMap<Rank, Proposal> {
        if !self.speculation.is_on() {
            return BTreeMap::new();
        }
        let shut_out = self.keys_that_draft_nothing();
        let mut ranks = Vec::new();
        let mut offers = Vec::new();
        for at in 0..self.running.len() {
            let seq = &self.running[at];
            let next = seq.next();
            if next != NextRows::Output(1) || out.holds(seq.key, next) || shut_out.contains(&seq.key) {
                continue;
            }
            let (rank, known) = (seq.rank, seq.pending == 0);
            if let Some(offer) = self.run(at).or_else(|| if known { self.offer(at, 0) } else { None }) {
                ranks.push(rank);
                offers.push(offer);
            }
        }
        let granted = self.granted_beside(&offers, self.decode_rows(out), pace);
        let cut = offers.into_iter().zip(granted).map(|(offer, n)| offer.cut(n));
        ranks.into_iter().zip(cut).filter(|(_, offer)| !offer.tokens.is_empty()).collect()
    }

    /// What the best source of a running sequence would draft, at most, behind the tokens that it has and `ahead` that
    /// are on their way. `None` where it may not draft.
    pub(super) fn offer(&mut self, at: usize, ahead: u32) -> Option<Proposal> {
        let Self { running, speculation, .. } = self;
        let seq = &mut running[at];
        // The last token has no row, so one of those that are left needs no draft.
        let left = seq.output_max.saturating_sub(seq.output.len() as u32 + ahead + 1);
        let most = left.min(speculation.piece_max() as u32);
        if most == 0 || !seq.takes_drafts(speculation) {
            return None;
        }
        let Sequence { drafter, request, output, choice, .. } = seq;
        let offer = speculation.offer(drafter, (request, *choice), output)?;
        Some(offer.cut((most + ahead) as usize))
    }

    /// What may be drafted behind the tokens that a sequence has or asked for, because no other text may come.
    fn run(&mut self, at: usize) -> Option<Proposal> {
        let Self { running, speculation, .. } = self;
        let seq = &mut running[at];
        if !speculation.takes_runs() || !speculation.takes(&seq.request.spec) || !seq.rules.may_run() {
            return None;
        }
        let first = seq.sampled();
        // The last token has no row, so one of those that are left needs no draft.
        let left = seq.output_max.saturating_sub(first + 1) as usize;
        let tokens = seq.run.from(first);
        let tokens = tokens[..left.min(speculation.piece_max()).min(tokens.len())].to_vec();
        (!tokens.is_empty()).then(|| speculation.offer_run(&mut seq.drafter, first, tokens))
    }

    /// How many tokens of each offer are drafted beside these rows.
    pub(super) fn granted_beside(&self, offers: &[Proposal], decodes: DecodeRows, pace: &Pace) -> Vec<usize> {
        self.speculation.granted(offers, decodes, self.room_beside(decodes.rows, pace), pace)
    }

    /// Decode rows of the next step.
    pub(super) fn decode_rows(&self, out: &Paused) -> DecodeRows {
        let decodes =
            self.running.iter().filter(|seq| seq.next() == NextRows::Output(1) && !out.keys.contains(&seq.key));
        DecodeRows::of(decodes)
    }

    /// What a step with so many decode rows has room for beside them.
    pub(super) fn room_beside(&self, rows: u32, pace: &Pace) -> RoomBeside {
        // The unit that moves a prompt has its place in every step.
        let beside = self.config.step_tokens.saturating_sub(rows + CHUNK_TOKENS);
        let drafts = beside.min(self.speculation.step_max(self.running.len() as u32)) as usize;
        let prompts = !pace.apart && self.running.iter().any(|seq| seq.next() == NextRows::Prompt);
        RoomBeside { drafts, prompts }
    }

    /// Keys that hold more than their share of what runs while somebody of another key waits: nothing is drafted for
    /// them, since their rows would make the others' wait longer.
    pub(super) fn keys_that_draft_nothing(&self) -> BTreeSet<KeyId> {
        if self.accounts.active_count() < 2 {
            return BTreeSet::new();
        }
        let reads = self.running.iter().filter(|seq| seq.next() == NextRows::Prompt).map(|seq| seq.key);
        let waiting: BTreeSet<KeyId> = self.queue.by_key().map(|(key, _)| key).chain(reads).collect();
        let mut held = BTreeMap::<KeyId, u32>::new();
        self.running.iter().for_each(|seq| *held.entry(seq.key).or_default() += 1);
        let all = held.values().sum();
        let above = |key: KeyId, held: u32| held > self.accounts.share_rounded_up(key, all);
        let others_wait = |key: KeyId| waiting.iter().any(|other| *other != key);
        held.into_iter().filter(|(key, held)| others_wait(*key) && above(*key, *held)).map(|(key, _)| key).collect()
    }

    /// What a step of these decode rows should take with its drafts and guesses, and without.
    pub(super) fn expected(
        &self,
        drafts: &BTreeMap<Rank, Proposal>,
        asked: &HeadRequests,
        out: &Paused,
        pace: &Pace,
    ) -> Option<ExpectedStepTime> {
        let of = |whose: ProposerClass| {
            let offers = drafts.values().filter(|offer| ProposerClass::from(offer.kind) == whose);
            offers.map(|offer| offer.tokens.len() as u32).sum::<u32>()
        };
        let (head, looked_up) = (of(ProposerClass::Head), of(ProposerClass::LookedUp));
        let whose = if looked_up > head { ProposerClass::LookedUp } else { ProposerClass::Head };
        self.speculation.expected(self.decode_rows(out), (head + looked_up, whose), asked.shape(), pace)
    }

    /// A step was committed that gave so many tokens.
    pub(in crate::scheduler) fn pay(&mut self, expected: Option<ExpectedStepTime>, tokens: usize, now: Micros) {
        let busy = !self.in_flight.is_empty() || self.running.iter().any(|seq| seq.next() != NextRows::Nothing);
        self.speculation.pay(expected, tokens, now, busy);
    }
}

impl DecodeRows {
    /// One row of each of these sequences.
    pub(super) fn of<'a>(sequences: impl Iterator<Item = &'a Sequence>) -> Self {
        sequences.fold(Self { rows: 0, attended: 0 }, |Self { rows, attended }, seq| Self {
            rows: rows + 1,
            attended: attended + u64::from(seq.computed) + 1,
        })
    }
}
