//! What the model's own draft head is asked for. A guess costs time in the step that makes it, and a row in the next one
//! that verifies it, so a gate of its own says how many are worth both. Whether a guess that is there is worth its row,
//! is asked again once it is: then another source may have a better one.

use super::pause::Paused;
use crate::ids::TokenId;
use crate::scheduler::Scheduler;
use crate::scheduler::policy::cost::Pace;
use crate::scheduler::sequence::{NextRows, Rank};
use crate::scheduler::speculation::{DecodeRows, Proposal};
use std::collections::BTreeMap;

/// Guesses that a trial asks for, of each sequence.
const TRIAL_GUESSES: u32 = 2;

/// How many guesses a plan's decode rows ask for, by sequence.
#[derive(Debug, Default)]
pub(super) struct HeadRequests {
    guesses: BTreeMap<Rank, u32>,
    /// Nobody waits for them: they tell how good they are, and that is all.
    trial: bool,
}

impl HeadRequests {
    pub(super) fn remove(&mut self, rank: &Rank) -> Option<u32> {
        self.guesses.remove(rank)
    }

    /// Passes of the draft head, and their rows.
    pub(super) fn shape(&self) -> (u32, u32) {
        (self.guesses.values().max().copied().unwrap_or(0), self.guesses.values().sum())
    }

    pub(super) fn is_trial(&self) -> bool {
        self.trial
    }
}

impl Scheduler {
    /// What the next step asks for, behind rows that have these drafts.
    pub(super) fn ask(&mut self, drafts: &BTreeMap<Rank, Proposal>, out: &Paused, pace: &Pace) -> HeadRequests {
        if !self.may_ask() {
            return HeadRequests::default();
        }
        let (ranks, offers) = self.offers_to_ask_for(drafts, out);
        let granted = self.guesses_granted(&offers, self.decode_rows(out), pace);
        let trial = granted.iter().all(|n| *n == 0) && self.is_trial_due() && !self.hopes();
        let of = |(offer, n): (&Proposal, usize)| {
            if trial { TRIAL_GUESSES.min(offer.tokens.len() as u32) } else { n as u32 }
        };
        let guesses = ranks.into_iter().zip(offers.iter().zip(granted).map(of)).filter(|(_, n)| *n > 0).collect();
        HeadRequests { guesses, trial }
    }

    /// The sequences behind whose rows the draft head may guess, and what could be drafted of its guesses.
    fn offers_to_ask_for(&mut self, drafts: &BTreeMap<Rank, Proposal>, out: &Paused) -> (Vec<Rank>, Vec<Proposal>) {
        let shut_out = self.keys_that_draft_nothing();
        let Self { running, speculation, .. } = self;
        let (mut ranks, mut offers) = (Vec::new(), Vec::new());
        for seq in running.iter_mut() {
            let next = seq.next();
            let may = seq.takes_drafts(speculation) && !shut_out.contains(&seq.key);
            if next != NextRows::Output(1) || out.holds(seq.key, next) || !may {
                continue;
            }
            let drafted = drafts.get(&seq.rank);
            // The samples of this step, and the last token, which has no row.
            let ahead = drafted.map_or(0, |offer| offer.tokens.len() as u32) + 2;
            let most = seq.output_max.saturating_sub(seq.sampled() + ahead);
            let offer = speculation.offer_guesses(&mut seq.drafter, most);
            // Who drafts for it goes on with it.
            let better = drafted.filter(|drafted| !drafted.is_from_head() && drafted.worth() >= offer.worth());
            if !offer.tokens.is_empty() && better.is_none() {
                ranks.push(seq.rank);
                offers.push(offer);
            }
        }
        (ranks, offers)
    }

    /// Is it time to compare some guesses with what comes?
    fn is_trial_due(&self) -> bool {
        let of_running = self.running.iter().filter_map(|seq| seq.drafter.head_is_right()).fold(0.0, f64::max);
        self.speculation.is_trial_due(of_running)
    }

    /// Two trials in a row were right: the head is asked again as if it were nearly always right.
    fn hopes(&mut self) -> bool {
        let hopes = self.speculation.hopes();
        if hopes {
            self.running.iter_mut().for_each(|seq| seq.drafter.hope());
        }
        hopes
    }

    /// Is there a head, and is nobody's answer from it on its way? Where nobody waits for it, that of this step would be
    /// taken for it.
    fn may_ask(&self) -> bool {
        self.speculation.asks() && !self.in_flight.iter().flat_map(|step| &step.pieces).any(|piece| piece.guesses)
    }

    /// What the piece asks for that ends the prompt of the sequence at `at`: its first row then has drafts.
    pub(super) fn ask_behind_prompt(&mut self, at: usize, pace: &Pace) -> u32 {
        let shut_out = self.keys_that_draft_nothing();
        let may_ask = self.may_ask();
        let Self { running, speculation, .. } = self;
        let seq = &mut running[at];
        let alone = seq.request.spec.choices == 1;
        if !may_ask || !alone || !seq.takes_drafts(speculation) || shut_out.contains(&seq.key) {
            return 0;
        }
        // The first output, and the last, which has no row.
        let most = seq.output_max.saturating_sub(2);
        let offer = speculation.offer_guesses(&mut seq.drafter, most);
        let DecodeRows { rows, attended } = self.decode_rows(&Paused::nobody());
        let beside = DecodeRows { rows: rows + 1, attended: attended + u64::from(self.running[at].computed) + 1 };
        let wanted = self.guesses_granted(&[offer], beside, pace)[0] as u32;
        let guesses = self.room_for_guesses(at, None, wanted);
        self.speculation.pay_for_guesses(beside, guesses, pace);
        guesses
    }

    /// How many guesses are worth what they take in this step and in the next, behind these rows.
    pub(super) fn guesses_granted(&self, offers: &[Proposal], decodes: DecodeRows, pace: &Pace) -> Vec<usize> {
        self.speculation.guesses_granted(offers, decodes, self.room_beside(decodes.rows, pace), pace)
    }

    /// What the draft head guesses behind the outputs that a sequence has by now.
    pub(in crate::scheduler) fn commit_guesses(&mut self, rank: Rank, tokens: Vec<TokenId>) {
        let Some(seq) = self.find_mut(rank) else { return };
        seq.guesses_due = 0;
        let (drafted, outputs) = (seq.drafted, seq.output.len() as u32);
        let mut drafter = std::mem::take(&mut seq.drafter);
        self.speculation.record_head_output(&mut drafter, outputs, tokens);
        self.find_mut(rank).expect("it was found just now").drafter = drafter;
        // The pages that were claimed for guesses.
        if drafted == 0 {
            self.forget_drafts(rank);
        }
    }
}
