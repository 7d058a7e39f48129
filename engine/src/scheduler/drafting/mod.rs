//! How many tokens of which sequence are drafted in a step, and what is learned from those that were.
//!
//! Sources ([`crate::drafts`]) need to know what came last, so a sequence drafts only when none of its tokens is on its
//! way; where drafts are likely to pay, the next step waits for that ([`Scheduler::waits_to_draft`]). Which of the
//! offered tokens are worth a row each is a pure function (`gate.rs`) of how often such guesses were right (`drafter/`)
//! and of what steps take.

mod budget;
mod gate;
mod guesses;
mod runs;

use super::Scheduler;
use super::cost::{Pace, StepShape};
use super::drafter::{Drafter, MakeSource, Offer, Sources};
use super::sequence::{Next, Rank, Sequence};
use super::yielding::SitsOut;
use crate::CHUNK_TOKENS;
use crate::drafts::{DRAFTS_MAX, DraftKind, DraftKinds};
use crate::ids::{KeyId, Micros, TokenId};
use crate::step::DraftRoom;
use budget::Budgets;
pub(super) use budget::{Toll, Whose};
use gate::{Gate, Wait};
pub(super) use guesses::Asked;
pub(super) use runs::KnownRun;
use std::collections::{BTreeMap, BTreeSet};

/// How many tokens are drafted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DraftMode {
    /// None.
    #[default]
    Off,
    /// As many as should save time.
    Auto,
    /// So many wherever a source has as many, whether it pays or not.
    Fixed(u32),
}

/// Whether and how a scheduler drafts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftSettings {
    /// How many.
    pub mode: DraftMode,
    /// Whose guesses are asked for.
    pub kinds: DraftKinds,
    /// What the backend takes.
    pub room: DraftRoom,
}

/// What was drafted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftTotals {
    /// Drafted tokens, by kind in the order of [`DraftKind::ALL`].
    pub drafted: [u64; DraftKind::ALL.len()],
    /// Accepted ones, by kind and by their place behind the sequence's own token, from 0.
    pub accepted: [[u64; DRAFTS_MAX]; DraftKind::ALL.len()],
    /// Pieces with drafts, by kind.
    pub pieces: [u64; DraftKind::ALL.len()],
    /// Decode rows by how many drafts stood behind them.
    pub rows: [u64; DRAFTS_MAX + 1],
    /// Sources that panicked and were switched off.
    pub lost: u64,
}

/// What the scheduler knows of drafts beside what each sequence does.
pub(super) struct Drafting {
    settings: DraftSettings,
    sources: Sources,
    gate: Gate,
    guessing: guesses::Guessing,
    budgets: Budgets,
    totals: DraftTotals,
}

impl std::fmt::Debug for Drafting {
    /// Without what planning looks up or may note: a plan that does not come about changes nothing that counts.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drafting")
            .field("settings", &self.settings)
            .field("totals", &self.totals)
            .finish_non_exhaustive()
    }
}

impl Drafting {
    pub(super) fn new(settings: DraftSettings) -> Self {
        let max = match settings.mode {
            DraftMode::Off => 0,
            DraftMode::Auto => DRAFTS_MAX as u32,
            DraftMode::Fixed(n) => n.min(DRAFTS_MAX as u32),
        };
        let sources = Sources::new(settings.kinds, max.min(settings.room.piece_max) as usize);
        Self {
            settings,
            sources,
            gate: Gate::default(),
            guessing: guesses::Guessing::default(),
            budgets: Budgets::default(),
            totals: DraftTotals::default(),
        }
    }

    fn is_on(&self) -> bool {
        self.sources.max > 0 && (!self.sources.is_empty() || self.takes_runs() || self.asks())
    }

    /// May drafts stand behind a sequence's rows, as far as its request and the backend say?
    pub(super) fn takes(&self, seq: &Sequence) -> bool {
        let spec = &seq.request.spec;
        spec.drafts && (self.settings.room.penalties || !spec.sampling.reads_history())
    }

    /// The same, as far as what is said about its outputs lets them.
    pub(super) fn takes_now(&self, seq: &Sequence) -> bool {
        self.takes(seq) && seq.rules.may_draft()
    }

    /// Who guesses, and how often that was right.
    pub(super) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Are outputs asked for together of which a grammar leaves no choice?
    fn takes_runs(&self) -> bool {
        self.sources.max > 0 && self.settings.kinds.contains(DraftKind::Grammar)
    }

    /// What became of some drafts, and which of them the sequence that they were for had learned from.
    pub(super) fn note(&mut self, offer: &Offer, accepted: usize, drafter: Option<&mut Drafter>) {
        let kind = offer.kind as usize;
        self.totals.pieces[kind] += 1;
        self.totals.drafted[kind] += offer.tokens.len() as u64;
        self.totals.accepted[kind][..accepted].iter_mut().for_each(|n| *n += 1);
        self.sources.learn(offer, offer.tokens.len(), accepted);
        if let Some(drafter) = drafter {
            drafter.drafted(offer, accepted);
        }
    }

    /// A token came that nothing was drafted for; guesses that were made are compared with it.
    pub(super) fn hear(&mut self, drafter: &mut Drafter, token: TokenId, index: u32) {
        if let Some((offer, compared, equal)) = drafter.compare(token, index) {
            self.sources.learn(&offer, compared, equal);
            if offer.kind == DraftKind::Mtp {
                self.guessing.hear(compared, equal);
            }
        }
    }
}

/// What a step of these decode rows, which attend to so many positions, takes with drafts behind them.
fn decode_us(pace: &Pace, (rows, attended): (u32, u64), drafts: u32) -> Option<f64> {
    let attended = attended + attended / u64::from(rows.max(1)) * u64::from(drafts);
    let late = drafts > 0;
    pace.cost.decode_rows_us(&StepShape { passes: 1, rows: rows + drafts, attended, late, ..StepShape::default() })
}

impl Scheduler {
    /// The same with drafts. Before anything is admitted.
    #[must_use]
    pub fn with_drafts(self, settings: DraftSettings) -> Self {
        assert!(self.live.is_empty(), "requests were admitted already");
        Self { drafting: Drafting::new(settings), ..self }
    }

    /// The same with a source of the caller's own, which takes the place of the one of its kind.
    #[must_use]
    pub fn with_draft_source(mut self, kind: DraftKind, make: MakeSource) -> Self {
        self.drafting.sources.replace(kind, make);
        self
    }

    /// What was drafted since the start.
    pub fn draft_totals(&self) -> DraftTotals {
        DraftTotals { lost: self.drafting.sources.lost, ..self.drafting.totals }
    }

    /// Should the next step wait for the one in flight, because somebody would draft once its token is known? Then
    /// sequences that decode together stay together.
    pub(super) fn waits_to_draft(&mut self, pace: &Pace) -> bool {
        if !self.drafting.is_on() || self.in_flight.is_empty() {
            return false;
        }
        if self.running.iter().any(|seq| seq.drafted > 0 || seq.guesses_due > 0) {
            return true;
        }
        let shut_out = self.keys_that_draft_nothing();
        let mut offers = Vec::new();
        for at in 0..self.running.len() {
            let seq = &self.running[at];
            if seq.pending == 1 && matches!(seq.next(), Next::Output(1)) && !shut_out.contains(&seq.key) {
                // The first token of the guess is the one on its way.
                offers.extend(self.offer(at, 1).map(Offer::without_first));
            }
        }
        let decodes = self.decode_rows(&SitsOut::nobody());
        match offers.as_slice() {
            [] => false,
            [(first, behind)] if decodes.0 == 1 => {
                let drafts = self.granted_beside(std::slice::from_ref(behind), decodes, pace)[0];
                drafts > 0 && self.wait_pays(*first, &behind.clone().cut(drafts), decodes, pace)
            }
            _ => {
                let offers: Vec<_> = offers.into_iter().map(|(first, behind)| behind.behind(first)).collect();
                self.granted_beside(&offers, decodes, pace).iter().any(|n| *n > 0)
            }
        }
    }

    /// Should a row that decodes alone wait for its token? It is the guess's first with a chance of `first`, and `behind`
    /// is what would be drafted then.
    fn wait_pays(&self, first: f32, behind: &Offer, decodes: (u32, u64), pace: &Pace) -> bool {
        let us = |drafts| decode_us(pace, decodes, drafts);
        let wait = Wait { right: first.into(), us: pace.cost.wait_us(us(0).unwrap_or_default()) };
        self.drafting.settings.mode != DraftMode::Auto || wait.pays(behind, us)
    }

    /// What is drafted in the next step, by sequence.
    pub(super) fn allot(&mut self, out: &SitsOut, pace: &Pace) -> BTreeMap<Rank, Offer> {
        if !self.drafting.is_on() {
            return BTreeMap::new();
        }
        let shut_out = self.keys_that_draft_nothing();
        let mut ranks = Vec::new();
        let mut offers = Vec::new();
        for at in 0..self.running.len() {
            let seq = &self.running[at];
            let next = seq.next();
            if next != Next::Output(1) || out.holds(seq.key, next) || shut_out.contains(&seq.key) {
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
    pub(super) fn offer(&mut self, at: usize, ahead: u32) -> Option<Offer> {
        let Self { running, drafting, .. } = self;
        let seq = &mut running[at];
        // The last token has no row, so one of those that are left needs no draft.
        let left = seq.output_max.saturating_sub(seq.output.len() as u32 + ahead + 1);
        let most = left.min(drafting.sources.max as u32);
        if most == 0 || !drafting.takes_now(seq) {
            return None;
        }
        let Sequence { drafter, request, output, choice, .. } = seq;
        let offer = drafter.offer(request, *choice, output, &mut drafting.sources)?;
        Some(offer.cut((most + ahead) as usize))
    }

    /// How many tokens of each offer are drafted beside so many rows that attend to so many positions.
    pub(super) fn granted_beside(&self, offers: &[Offer], (rows, attended): (u32, u64), pace: &Pace) -> Vec<usize> {
        if self.drafting.settings.mode != DraftMode::Auto {
            return gate::fill(offers, self.draft_room(rows));
        }
        let may_lose = |offer: &Offer| self.drafting.budgets.allows(offer.kind);
        if !self.would_tell(rows, pace) || !offers.iter().any(may_lose) {
            return vec![0; offers.len()];
        }
        let us = |drafts, _| decode_us(pace, (rows, attended), drafts);
        let choose = |offers: &[Offer]| self.drafting.gate.choose(offers, rows, self.draft_room(rows), us);
        if offers.iter().all(may_lose) {
            return choose(offers);
        }
        let of_those = |offer: &Offer| if may_lose(offer) { offer.clone() } else { offer.clone().cut(0) };
        choose(&offers.iter().map(of_those).collect::<Vec<_>>())
    }

    /// Would it be seen what drafts lose beside so many rows? Of rows that never decoded without drafts nobody knows what
    /// these spare, and beside prompts steps differ.
    fn would_tell(&self, rows: u32, pace: &Pace) -> bool {
        !self.shares_with_prompts(pace) && pace.cost.knows_ahead(rows)
    }

    /// Decode rows of the next step, and the positions that they attend to.
    fn decode_rows(&self, out: &SitsOut) -> (u32, u64) {
        let decodes = self.running.iter().filter(|seq| seq.next() == Next::Output(1) && !out.keys.contains(&seq.key));
        decodes.fold((0, 0), |(n, sum), seq| (n + 1, sum + u64::from(seq.computed) + 1))
    }

    /// Would a prompt's rows in the same step pay for the pass over the weights that drafts are to share in?
    fn shares_with_prompts(&self, pace: &Pace) -> bool {
        !pace.apart && self.running.iter().any(|seq| seq.next() == Next::Prompt)
    }

    /// Drafts that a step has room for behind so many rows.
    fn draft_room(&self, rows: u32) -> usize {
        // The unit that moves a prompt has its place in every step.
        let beside = self.config.step_tokens.saturating_sub(rows + CHUNK_TOKENS);
        let limits = self.drafting.settings.room;
        let recomputed = self.running.len() as u32;
        beside.min(limits.step_max).min(limits.rows_max.saturating_sub(recomputed)) as usize
    }

    /// Keys that hold more than their share of what runs while somebody of another key waits: nothing is drafted for
    /// them, since their rows would make the others' wait longer.
    pub(super) fn keys_that_draft_nothing(&self) -> BTreeSet<KeyId> {
        if self.accounts.active_count() < 2 {
            return BTreeSet::new();
        }
        let reads = self.running.iter().filter(|seq| seq.next() == Next::Prompt).map(|seq| seq.key);
        let waiting: BTreeSet<KeyId> = self.queue.by_key().map(|(key, _)| key).chain(reads).collect();
        let mut held = BTreeMap::<KeyId, u32>::new();
        self.running.iter().for_each(|seq| *held.entry(seq.key).or_default() += 1);
        let all = held.values().sum();
        let above = |key: KeyId, held: u32| held > self.accounts.share_rounded_up(key, all);
        let others_wait = |key: KeyId| waiting.iter().any(|other| *other != key);
        held.into_iter().filter(|(key, held)| others_wait(*key) && above(*key, *held)).map(|(key, _)| key).collect()
    }

    /// A step is not planned ahead, because something may be drafted in it.
    pub(super) fn hold_back(&mut self) {
        self.drafting.budgets.hold_back();
    }

    /// What a step of these decode rows should take with its drafts and guesses, and without.
    pub(super) fn toll(
        &self,
        drafts: &BTreeMap<Rank, Offer>,
        asked: &Asked,
        out: &SitsOut,
        pace: &Pace,
    ) -> Option<Toll> {
        let of = |whose: Whose| {
            let offers = drafts.values().filter(|offer| Whose::from(offer.kind) == whose);
            offers.map(|offer| offer.tokens.len() as u32).sum::<u32>()
        };
        let (head, looked_up) = (of(Whose::Head), of(Whose::LookedUp));
        let whose = if looked_up > head { Whose::LookedUp } else { Whose::Head };
        self.toll_of(self.decode_rows(out), (head + looked_up, whose), asked.shape(), pace)
    }

    /// The same of so many drafts, most of them somebody's, and of guesses in so many passes.
    pub(super) fn toll_of(
        &self,
        decodes: (u32, u64),
        (drafted, whose): (u32, Whose),
        (passes, guesses): (u32, u32),
        pace: &Pace,
    ) -> Option<Toll> {
        let guess_us = if guesses > 0 { pace.cost.guess_us(passes, guesses).unwrap_or_default() } else { 0.0 };
        let without_us = decode_us(pace, decodes, 0).filter(|us| *us > 0.0 && decodes.0 > 0)?;
        let expected_us = decode_us(pace, decodes, drafted)? + guess_us;
        let tried = pace.cost.tried(decodes.0 + drafted);
        Some(Toll { rows: decodes.0, drafted, without_us, expected_us, tried, drafts: drafted + guesses > 0, whose })
    }

    /// Guesses are asked for in a step that has no toll, before one of so many rows.
    fn pay_for_guesses(&mut self, decodes: (u32, u64), guesses: u32, pace: &Pace) {
        let us = if guesses > 0 { pace.cost.guess_us(guesses, guesses) } else { None };
        let steps = us.zip(decode_us(pace, decodes, 0)).filter(|(_, step)| *step > 0.0).map(|(us, step)| us / step);
        self.drafting.budgets.pay(steps.unwrap_or_default());
    }

    /// A step is launched: was it planned ahead, or held back because something might be drafted?
    pub(super) fn launch_toll(&mut self, toll: Option<Toll>) -> Option<Toll> {
        self.drafting.budgets.launch(toll)
    }

    /// A step was committed that gave so many tokens.
    pub(super) fn pay(&mut self, toll: Option<Toll>, tokens: usize, now: Micros) {
        let busy = !self.in_flight.is_empty() || self.running.iter().any(|seq| seq.next() != Next::Nothing);
        let Drafting { budgets, sources, .. } = &mut self.drafting;
        budgets.commit(toll, tokens, now, busy);
        sources.may_lose = DraftKind::ALL.into_iter().filter(|kind| budgets.allows(*kind)).collect();
    }

    /// A step was launched in which decode rows have so many drafts each.
    pub(super) fn note_drafts(&mut self, drafts: impl Iterator<Item = usize>) {
        let mut any = None;
        for n in drafts {
            self.drafting.totals.rows[n] += 1;
            any = Some(any.unwrap_or(false) || n > 0);
        }
        if let Some(any) = any {
            self.drafting.gate.chose(any, self.drafting.budgets.is_close());
        }
    }
}
