//! What the model's own draft head is asked for. A guess costs time in the step that makes it, and a row in the next one
//! that verifies it, so a gate of its own says how many are worth both. Whether a guess that is there is worth its row,
//! is asked again once it is: then another source may have a better one.

use super::gate::{self, Gate};
use super::{Drafting, decode_us};
use crate::drafts::DraftKind;
use crate::ids::TokenId;
use crate::scheduler::Scheduler;
use crate::scheduler::cost::Pace;
use crate::scheduler::drafter::Offer;
use crate::scheduler::drafting::DraftMode;
use crate::scheduler::sequence::{Next, Rank, Sequence};
use crate::scheduler::yielding::SitsOut;
use std::collections::BTreeMap;

/// After so many steps without guesses some are asked for all the same, of which it is learned whether they would pay.
/// If not, they are tried again after twice as many.
const TRIAL_STEPS: u32 = 128;
/// At most.
const TRIAL_STEPS_MAX: u32 = 256;
/// After so many where the last trial was right: a second one says whether that was chance.
const TRIAL_STEPS_AGAIN: u32 = 8;
/// A trial was right where so much of what was compared was.
const TRIAL_RIGHT: f64 = 0.8;
/// As many for each sequence.
const TRIAL_GUESSES: u32 = 2;
/// What a pass of the draft head takes of a step without drafts, before one was seen.
const PASS_AT_FIRST: f64 = 0.25;

/// What was decided last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guessing {
    gate: Gate,
    /// Steps with decode rows since one that asked for guesses.
    steps_without: u32,
    /// How many there are before the next trial.
    trial_after: u32,
    last_trial: Trial,
}

/// What guesses turned out to be that nobody waited for, since some were asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    compared: u32,
    right: u32,
    /// The one before it was right.
    second: bool,
}

impl Trial {
    fn was_right(&self) -> bool {
        self.right > 0 && f64::from(self.right) >= TRIAL_RIGHT * f64::from(self.compared)
    }
}

impl Default for Guessing {
    fn default() -> Self {
        Self { gate: Gate::without_tries(), steps_without: 0, trial_after: TRIAL_STEPS, last_trial: Trial::default() }
    }
}

/// How many guesses a plan's decode rows ask for, by sequence.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct Asked {
    guesses: BTreeMap<Rank, u32>,
    /// Nobody waits for them: they tell how good they are, and that is all.
    trial: bool,
}

impl Asked {
    pub(in crate::scheduler) fn remove(&mut self, rank: &Rank) -> Option<u32> {
        self.guesses.remove(rank)
    }

    /// Passes of the draft head, and their rows.
    pub(in crate::scheduler) fn shape(&self) -> (u32, u32) {
        (self.guesses.values().max().copied().unwrap_or(0), self.guesses.values().sum())
    }

    pub(in crate::scheduler) fn is_trial(&self) -> bool {
        self.trial
    }
}

impl Drafting {
    /// Is there a draft head whose guesses are wanted?
    pub(super) fn asks(&self) -> bool {
        self.sources.max > 0 && self.settings.room.guesses && self.settings.kinds.contains(DraftKind::Mtp)
    }

    /// The most rows of a step of pieces with drafts that nobody knows yet, and of the one before it.
    pub(in crate::scheduler) fn follow_rows_max(&self) -> u32 {
        self.settings.room.follow_rows_max
    }

    /// What a sequence could draft of so many guesses of the draft head.
    pub(in crate::scheduler) fn offer_guesses(&self, seq: &mut Sequence, most: u32) -> Offer {
        seq.drafter.offer_guesses(most.min(self.sources.max as u32) as usize, &self.sources)
    }
}

impl Guessing {
    /// Of the first `compared` of some guesses that nobody waited for so many were right.
    pub(super) fn hear(&mut self, compared: usize, right: usize) {
        self.last_trial.compared += compared as u32;
        self.last_trial.right += right as u32;
    }

    /// Is it time for a trial, where there are so many steps before one? `news`: it would be something new if that were
    /// right.
    fn is_trial_due(&self, after: u32, news: bool) -> bool {
        let again = news && self.last_trial.was_right();
        self.steps_without >= if again { TRIAL_STEPS_AGAIN.min(after) } else { after }
    }
}

impl Scheduler {
    /// What the next step asks for, behind rows that have these drafts.
    pub(in crate::scheduler) fn ask(&mut self, drafts: &BTreeMap<Rank, Offer>, out: &SitsOut, pace: &Pace) -> Asked {
        if !self.may_ask() {
            return Asked::default();
        }
        let shut_out = self.keys_that_draft_nothing();
        let Self { running, drafting, .. } = self;
        let (mut ranks, mut offers) = (Vec::new(), Vec::new());
        for seq in running.iter_mut() {
            let next = seq.next();
            let may = drafting.takes_now(seq) && !shut_out.contains(&seq.key);
            if next != Next::Output(1) || out.holds(seq.key, next) || !may {
                continue;
            }
            let drafted = drafts.get(&seq.rank);
            // The samples of this step, and the last token, which has no row.
            let ahead = drafted.map_or(0, |offer| offer.tokens.len() as u32) + 2;
            let most = seq.output_max.saturating_sub(seq.sampled() + ahead);
            let offer = drafting.offer_guesses(seq, most);
            // Who drafts for it goes on with it.
            let better = drafted.filter(|drafted| drafted.kind != DraftKind::Mtp && drafted.worth() >= offer.worth());
            if !offer.tokens.is_empty() && better.is_none() {
                ranks.push(seq.rank);
                offers.push(offer);
            }
        }
        let granted = self.guesses_granted(&offers, self.decode_rows(out), pace);
        let trial = granted.iter().all(|n| *n == 0) && self.is_trial_due() && !self.hopes();
        let of =
            |(offer, n): (&Offer, usize)| if trial { TRIAL_GUESSES.min(offer.tokens.len() as u32) } else { n as u32 };
        let guesses = ranks.into_iter().zip(offers.iter().zip(granted).map(of)).filter(|(_, n)| *n > 0).collect();
        Asked { guesses, trial }
    }

    /// Is it time to compare some guesses with what comes?
    fn is_trial_due(&self) -> bool {
        let Drafting { guessing, budgets, sources, .. } = &self.drafting;
        if budgets.allows(DraftKind::Mtp) {
            let of_running = self.running.iter().filter_map(|seq| seq.drafter.head_is_right()).fold(0.0, f64::max);
            return guessing.is_trial_due(guessing.trial_after, sources.head_is_right().min(of_running) < TRIAL_RIGHT);
        }
        budgets.trial_after().is_some_and(|after| guessing.is_trial_due(after, true))
    }

    /// Two trials in a row were right: what is said now is not what the head was measured by. Then it is asked again as if
    /// it were nearly always right.
    fn hopes(&mut self) -> bool {
        let Self { running, drafting, .. } = self;
        let trial = drafting.guessing.last_trial;
        let hopes = trial.second && trial.was_right();
        if hopes {
            drafting.guessing.last_trial = Trial::default();
            drafting.budgets.begin_again();
            drafting.sources.hope();
            running.iter_mut().for_each(|seq| seq.drafter.hope());
        }
        hopes
    }

    /// Is there a head, and is nobody's answer from it on its way? Where nobody waits for it, that of this step would be
    /// taken for it.
    fn may_ask(&self) -> bool {
        self.drafting.asks() && !self.in_flight.iter().flat_map(|step| &step.pieces).any(|piece| piece.guesses)
    }

    /// What the piece asks for that ends the prompt of the sequence at `at`: its first row then has drafts.
    pub(in crate::scheduler) fn ask_behind_prompt(&mut self, at: usize, pace: &Pace) -> u32 {
        let shut_out = self.keys_that_draft_nothing();
        let may_ask = self.may_ask();
        let Self { running, drafting, .. } = self;
        let seq = &mut running[at];
        let alone = seq.request.spec.choices == 1;
        if !may_ask || !alone || !drafting.takes_now(seq) || shut_out.contains(&seq.key) {
            return 0;
        }
        // The first output, and the last, which has no row.
        let offer = drafting.offer_guesses(seq, seq.output_max.saturating_sub(2));
        let (rows, attended) = self.decode_rows(&SitsOut::nobody());
        let beside = (rows + 1, attended + u64::from(self.running[at].computed) + 1);
        let wanted = self.guesses_granted(&[offer], beside, pace)[0] as u32;
        let guesses = self.room_for_guesses(at, None, wanted);
        self.pay_for_guesses(beside, guesses, pace);
        guesses
    }

    /// How many guesses are worth what they take in this step and in the next, behind so many rows that attend to so many
    /// positions.
    pub(in crate::scheduler) fn guesses_granted(
        &self,
        offers: &[Offer],
        (rows, attended): (u32, u64),
        pace: &Pace,
    ) -> Vec<usize> {
        if self.drafting.settings.mode != DraftMode::Auto {
            return gate::fill(offers, self.draft_room(rows));
        }
        if !self.would_tell(rows, pace) || !self.drafting.budgets.allows(DraftKind::Mtp) {
            return vec![0; offers.len()];
        }
        let rows_us = |drafts| decode_us(pace, (rows, attended), drafts);
        let us = |guesses: u32, passes: u32| {
            let at_first = || rows_us(0).map(|us| f64::from(passes) * PASS_AT_FIRST * us);
            let made = if guesses == 0 { 0.0 } else { pace.cost.guess_us(passes, guesses).or_else(at_first)? };
            Some(rows_us(guesses)? + made)
        };
        self.drafting.guessing.gate.choose(offers, rows, self.draft_room(rows), us)
    }

    /// A step was launched whose decode rows ask for so many guesses each; or `trial` does.
    pub(in crate::scheduler) fn note_asked(&mut self, guesses: &[u32], trial: bool) {
        let (any, guessing) = (guesses.iter().any(|n| *n > 0), &mut self.drafting.guessing);
        if !guesses.is_empty() {
            guessing.steps_without = if any { 0 } else { guessing.steps_without.saturating_add(1) };
            guessing.gate.chose(any && !trial, false);
            if any {
                guessing.last_trial = Trial { second: trial && guessing.last_trial.was_right(), ..Trial::default() };
            }
            guessing.trial_after = match (any, trial) {
                (false, _) => guessing.trial_after,
                (true, false) => TRIAL_STEPS,
                (true, true) => TRIAL_STEPS_MAX.min(2 * guessing.trial_after),
            };
        }
    }

    /// What the draft head guesses behind the outputs that a sequence has by now.
    pub(in crate::scheduler) fn commit_guesses(&mut self, rank: Rank, tokens: Vec<TokenId>) {
        let Some(seq) = self.find_mut(rank) else { return };
        seq.guesses_due = 0;
        let (drafted, outputs) = (seq.drafted, seq.output.len() as u32);
        let mut drafter = std::mem::take(&mut seq.drafter);
        drafter.hear_guesses(outputs, tokens, &self.drafting.sources);
        self.find_mut(rank).expect("it was found just now").drafter = drafter;
        // The pages that were claimed for guesses.
        if drafted == 0 {
            self.forget_drafts(rank);
        }
    }
}
