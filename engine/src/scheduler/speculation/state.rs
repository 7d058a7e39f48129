//! What the scheduler knows of drafts beside what each sequence does, and the decisions that follow from it.

use super::budget::{Budgets, ExpectedStepTime, ProposerClass};
use super::gate::{self, Gate, PlanWait};
use super::proposal::Proposal;
use super::proposers::{Proposers, SequenceProposers};
use super::settings::{DraftSettings, DraftTotals};
use super::trials::{HeadTrials, TRIAL_RIGHT};
use crate::drafts::DraftMode;
use crate::ids::{Micros, TokenId};
use crate::scheduler::policy::cost::{Pace, StepShape};
use crate::scheduler::request::Request;
use crate::scheduler::spec::Spec;

/// What a pass of the draft head takes of a step without drafts, before one was seen.
const PASS_AT_FIRST: f64 = 0.25;

/// Everything about drafts that the sequences of one scheduler have in common.
pub(in crate::scheduler) struct Speculation {
    settings: DraftSettings,
    sources: Proposers,
    gate: Gate,
    trials: HeadTrials,
    budgets: Budgets,
    totals: DraftTotals,
}

/// The decode rows of a step without its drafts.
#[derive(Clone, Copy, Debug)]
pub(in crate::scheduler) struct DecodeRows {
    /// The number of these rows.
    pub(in crate::scheduler) rows: u32,
    /// Positions that they attend to, all together.
    pub(in crate::scheduler) attended: u64,
}

/// What a step offers to drafts beside its decode rows.
#[derive(Clone, Copy, Debug)]
pub(in crate::scheduler) struct RoomBeside {
    /// Rows that drafts may have.
    pub(in crate::scheduler) drafts: usize,
    /// A prompt's rows in the same step would pay for the pass over the weights that drafts are to share in.
    pub(in crate::scheduler) prompts: bool,
}

impl std::fmt::Debug for Speculation {
    /// Without what planning looks up or may note: a plan that does not come about changes nothing that counts.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Speculation")
            .field("settings", &self.settings)
            .field("totals", &self.totals)
            .finish_non_exhaustive()
    }
}

impl Speculation {
    pub(in crate::scheduler) fn new(settings: DraftSettings) -> Self {
        let max = settings.mode.drafts_max().min(settings.room.piece_max);
        let sources = Proposers::new(settings.kinds, max as usize);
        Self {
            settings,
            sources,
            gate: Gate::default(),
            trials: HeadTrials::default(),
            budgets: Budgets::default(),
            totals: DraftTotals::default(),
        }
    }

    /// The sources of drafts on the host.
    pub(in crate::scheduler) fn proposers(&mut self) -> &mut Proposers {
        &mut self.sources
    }

    /// What was drafted since the start.
    pub(in crate::scheduler) fn totals(&self) -> DraftTotals {
        DraftTotals { lost: self.sources.lost, ..self.totals }
    }

    pub(in crate::scheduler) fn is_on(&self) -> bool {
        self.sources.max > 0 && (!self.sources.is_empty() || self.takes_runs() || self.asks())
    }

    /// The most drafts of a piece.
    pub(in crate::scheduler) fn piece_max(&self) -> usize {
        self.sources.max
    }

    /// The most drafts of a step as far as the backend says, where so many sequences run.
    pub(in crate::scheduler) fn step_max(&self, running: u32) -> u32 {
        let limits = self.settings.room;
        limits.step_max.min(limits.rows_max.saturating_sub(running))
    }

    /// The most rows of a step of pieces with drafts that nobody knows yet, and of the one before it.
    pub(in crate::scheduler) fn follow_rows_max(&self) -> u32 {
        self.settings.room.follow_rows_max
    }

    /// May drafts stand behind a sequence's rows, as far as its request and the backend say?
    pub(in crate::scheduler) fn takes(&self, spec: &Spec) -> bool {
        spec.drafts && (self.settings.room.penalties || !spec.sampling.reads_history())
    }

    /// Are outputs asked for together of which a grammar leaves no choice?
    pub(in crate::scheduler) fn takes_runs(&self) -> bool {
        self.sources.max > 0 && self.settings.drafts_grammars()
    }

    /// Is there a draft head whose guesses are wanted?
    pub(in crate::scheduler) fn asks(&self) -> bool {
        self.sources.max > 0 && self.settings.drafts_by_head()
    }

    /// What the best source of a sequence offers behind these outputs.
    pub(in crate::scheduler) fn offer(
        &mut self,
        drafter: &mut SequenceProposers,
        (request, choice): (&Request, u32),
        output: &[TokenId],
    ) -> Option<Proposal> {
        drafter.offer(request, choice, output, &mut self.sources)
    }

    /// What a sequence could draft of a run of outputs that begins with number `first`.
    pub(in crate::scheduler) fn offer_run(
        &self,
        drafter: &mut SequenceProposers,
        first: u32,
        tokens: Vec<TokenId>,
    ) -> Proposal {
        drafter.offer_run(first, tokens, &self.sources)
    }

    /// What a sequence could draft of so many guesses of the draft head.
    pub(in crate::scheduler) fn offer_guesses(&self, drafter: &mut SequenceProposers, most: u32) -> Proposal {
        drafter.offer_guesses(most.min(self.sources.max as u32) as usize, &self.sources)
    }

    /// The offer of these guesses, which a piece has as drafts whatever they are worth.
    pub(in crate::scheduler) fn offer_made(&self, tokens: Vec<TokenId>) -> Proposal {
        let mut offer = SequenceProposers::default().offer_guesses(tokens.len(), &self.sources);
        offer.tokens = tokens;
        offer
    }

    /// How many tokens of each offer are drafted beside these rows.
    pub(in crate::scheduler) fn granted(
        &self,
        offers: &[Proposal],
        decodes: DecodeRows,
        room: RoomBeside,
        pace: &Pace,
    ) -> Vec<usize> {
        if self.settings.mode != DraftMode::Auto {
            return gate::fill(offers, room.drafts);
        }
        let may_lose = |offer: &Proposal| self.budgets.allows(offer.kind);
        if !would_tell(decodes, room, pace) || !offers.iter().any(may_lose) {
            return vec![0; offers.len()];
        }
        let us = |drafts, _| decode_us(pace, decodes, drafts);
        let choose = |offers: &[Proposal]| self.gate.choose(offers, decodes.rows, room.drafts, us);
        if offers.iter().all(may_lose) {
            return choose(offers);
        }
        let of_those = |offer: &Proposal| if may_lose(offer) { offer.clone() } else { offer.clone().cut(0) };
        choose(&offers.iter().map(of_those).collect::<Vec<_>>())
    }

    /// How many guesses of the draft head are worth what they take in this step and in the next, behind these rows.
    pub(in crate::scheduler) fn guesses_granted(
        &self,
        offers: &[Proposal],
        decodes: DecodeRows,
        room: RoomBeside,
        pace: &Pace,
    ) -> Vec<usize> {
        if self.settings.mode != DraftMode::Auto {
            return gate::fill(offers, room.drafts);
        }
        if !would_tell(decodes, room, pace) || !self.budgets.allows_head() {
            return vec![0; offers.len()];
        }
        let rows_us = |drafts| decode_us(pace, decodes, drafts);
        let us = |guesses: u32, passes: u32| {
            let at_first = || rows_us(0).map(|us| f64::from(passes) * PASS_AT_FIRST * us);
            let made = if guesses == 0 { 0.0 } else { pace.cost.guess_us(passes, guesses).or_else(at_first)? };
            Some(rows_us(guesses)? + made)
        };
        self.trials.gate.choose(offers, decodes.rows, room.drafts, us)
    }

    /// Should a row that decodes alone wait for its token? It is the guess's first with a chance of `first`, and
    /// `behind` is what would be drafted then.
    pub(in crate::scheduler) fn wait_pays(
        &self,
        first: f32,
        behind: &Proposal,
        decodes: DecodeRows,
        pace: &Pace,
    ) -> bool {
        let us = |drafts| decode_us(pace, decodes, drafts);
        let wait = PlanWait { right: first.into(), us: pace.cost.wait_us(us(0).unwrap_or_default()) };
        self.settings.mode != DraftMode::Auto || wait.pays(behind, us)
    }

    /// Is it time to compare some guesses with what comes? `best`: of the sequences that run, how often the draft
    /// head's first guess is right where it is right most often.
    pub(in crate::scheduler) fn is_trial_due(&self, best: f64) -> bool {
        if self.budgets.allows_head() {
            let news = self.sources.head_is_right().min(best) < TRIAL_RIGHT;
            return self.trials.is_trial_due(self.trials.trial_after, news);
        }
        self.budgets.trial_after().is_some_and(|after| self.trials.is_trial_due(after, true))
    }

    /// Two trials in a row were right: what is said now is not what the head was measured by. Then it is asked again as if
    /// it were nearly always right.
    pub(in crate::scheduler) fn hopes(&mut self) -> bool {
        let hopes = self.trials.take_hope();
        if hopes {
            self.budgets.begin_again();
            self.sources.hope();
        }
        hopes
    }

    /// What a step of these rows should take with so many drafts, most of them somebody's, and with guesses in so many
    /// passes; and what it should take without.
    pub(in crate::scheduler) fn expected(
        &self,
        decodes: DecodeRows,
        (drafted, whose): (u32, ProposerClass),
        (passes, guesses): (u32, u32),
        pace: &Pace,
    ) -> Option<ExpectedStepTime> {
        let guess_us = if guesses > 0 { pace.cost.guess_us(passes, guesses).unwrap_or_default() } else { 0.0 };
        let without_us = decode_us(pace, decodes, 0).filter(|us| *us > 0.0 && decodes.rows > 0)?;
        let expected_us = decode_us(pace, decodes, drafted)? + guess_us;
        let tried = pace.cost.tried(decodes.rows + drafted);
        Some(ExpectedStepTime {
            rows: decodes.rows,
            drafted,
            without_us,
            expected_us,
            tried,
            drafts: drafted + guesses > 0,
            whose,
        })
    }

    /// Guesses are asked for in a step that has no expected time, before one of these rows.
    pub(in crate::scheduler) fn pay_for_guesses(&mut self, decodes: DecodeRows, guesses: u32, pace: &Pace) {
        let us = if guesses > 0 { pace.cost.guess_us(guesses, guesses) } else { None };
        let steps = us.zip(decode_us(pace, decodes, 0)).filter(|(_, step)| *step > 0.0).map(|(us, step)| us / step);
        self.budgets.pay(steps.unwrap_or_default());
    }

    /// A step is not planned ahead, because something may be drafted in it.
    pub(in crate::scheduler) fn hold_back(&mut self) {
        self.budgets.hold_back();
    }

    /// A step is launched: was it planned ahead, or held back because something might be drafted?
    pub(in crate::scheduler) fn note_launch(&mut self, expected: Option<ExpectedStepTime>) -> Option<ExpectedStepTime> {
        self.budgets.launch(expected)
    }

    /// A step was committed that gave so many tokens; `busy` if there is more to do.
    pub(in crate::scheduler) fn pay(
        &mut self,
        expected: Option<ExpectedStepTime>,
        tokens: usize,
        now: Micros,
        busy: bool,
    ) {
        let Self { budgets, sources, .. } = self;
        budgets.commit(expected, tokens, now, busy);
        sources.may_lose = budgets.allowed();
    }

    /// A step was launched in which decode rows have so many drafts each.
    pub(in crate::scheduler) fn note_drafts(&mut self, drafts: impl Iterator<Item = usize>) {
        let mut any = None;
        for n in drafts {
            self.totals.rows[n] += 1;
            any = Some(any.unwrap_or(false) || n > 0);
        }
        if let Some(any) = any {
            self.gate.chose(any, self.budgets.is_close());
        }
    }

    /// A step was launched whose decode rows ask for so many guesses each; or `trial` does.
    pub(in crate::scheduler) fn note_asked(&mut self, guesses: &[u32], trial: bool) {
        self.trials.note_asked(guesses, trial);
    }

    /// What became of some drafts, and which of them the sequence that they were for had learned from.
    pub(in crate::scheduler) fn note(
        &mut self,
        offer: &Proposal,
        accepted: usize,
        drafter: Option<&mut SequenceProposers>,
    ) {
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
    pub(in crate::scheduler) fn record_token(&mut self, drafter: &mut SequenceProposers, token: TokenId, index: u32) {
        if let Some((offer, compared, equal)) = drafter.compare(token, index) {
            self.sources.learn(&offer, compared, equal);
            if offer.is_from_head() {
                self.trials.record(compared, equal);
            }
        }
    }

    /// The draft head guesses these tokens of a sequence, from output `first` on.
    pub(in crate::scheduler) fn record_head_output(
        &self,
        drafter: &mut SequenceProposers,
        first: u32,
        tokens: Vec<TokenId>,
    ) {
        drafter.record_head_output(first, tokens, &self.sources);
    }
}

/// Would it be seen what drafts lose beside these rows? Of rows that never decoded without drafts nobody knows what
/// these spare, and beside prompts steps differ.
fn would_tell(decodes: DecodeRows, room: RoomBeside, pace: &Pace) -> bool {
    !room.prompts && pace.cost.knows_ahead(decodes.rows)
}

/// What a step of these decode rows takes with drafts behind them.
fn decode_us(pace: &Pace, DecodeRows { rows, attended }: DecodeRows, drafts: u32) -> Option<f64> {
    let attended = attended + attended / u64::from(rows.max(1)) * u64::from(drafts);
    let late = drafts > 0;
    pace.cost.decode_rows_us(&StepShape { passes: 1, rows: rows + drafts, attended, late, ..StepShape::default() })
}
