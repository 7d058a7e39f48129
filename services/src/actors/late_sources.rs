//! The scheduler actor's side of all late sources: tables and grammars.

use super::engram::EngramSource;
use super::grammar::GrammarSource;
use super::late::{LateSource, Reports};
use super::late_users::LateUsers;
use super::messages::{Awaits, RulesSent};
use super::quiet::Quiet;
use crate::text::grammar::GrammarStart;
use chimere_engine::constraint::{Source, Sources};
use chimere_engine::engram::RequestTables;
use chimere_engine::ids::{RequestId, SeqId, StepId, TokenId};
use chimere_engine::step::StepPlan;
use std::sync::Arc;

/// What a client is told whose stream broke with the tables' thread.
const ENGRAM_LOST: &str = "the part that looks tables up failed; requests without tables go on";
/// What a client is told whose stream broke with the grammars' thread.
const GRAMMAR_LOST: &str = "the part that follows grammars failed; requests without one go on";

/// The requests that use tables and grammars, and the answers of these sources.
pub(super) struct LateSources {
    tables: LateUsers<EngramSource>,
    grammars: LateUsers<GrammarSource>,
    /// Which steps quick sources have answered: read at a step's end.
    answers: Quiet<RulesSent>,
}

/// The late sources that one request uses.
pub(super) struct LateRules {
    /// What tables do for it.
    pub(super) tables: Option<Arc<RequestTables>>,
    /// What its choices have to keep to.
    pub(super) grammar: Option<GrammarStart>,
}

impl LateRules {
    /// The sources that have rules here.
    pub(super) fn sources(&self) -> Sources {
        let tables = self.tables.as_ref().map(|_| Source::Tables);
        tables.into_iter().chain(self.grammar.as_ref().map(|_| Source::Grammar)).collect()
    }
}

/// What the actors of late sources are told when a plan has been launched.
pub(super) struct AwaitedRules {
    tables: Option<Awaits>,
    grammars: Option<Awaits>,
}

impl LateSources {
    /// Nobody uses them yet, and no actor runs.
    pub(super) fn new((tables, grammars): (LateUsers<EngramSource>, LateUsers<GrammarSource>)) -> Self {
        Self { tables, grammars, answers: Quiet::default() }
    }

    /// Starts the actors of tables and grammars.
    pub(super) fn start(&self, reports: &Reports) {
        self.tables.start(reports.clone());
        self.grammars.start(reports.clone());
    }

    /// Where quick sources leave their answers.
    pub(super) fn answers(&self) -> &Quiet<RulesSent> {
        &self.answers
    }

    /// A request was admitted whose sequences are `first` and those that follow it.
    pub(super) fn follow(
        &mut self,
        id: RequestId,
        (first, choices): (SeqId, u32),
        prompt: &Arc<[TokenId]>,
        rules: LateRules,
    ) {
        rules.grammar.into_iter().for_each(|g| self.grammars.follow(id, first, choices, prompt.clone(), g));
        rules.tables.into_iter().for_each(|t| self.tables.follow(id, first, choices, prompt.clone(), t));
    }

    /// A request has ended.
    pub(super) fn forget(&mut self, id: RequestId) {
        self.tables.forget(id);
        self.grammars.forget(id);
    }

    /// The request of a sequence, if it uses a grammar.
    pub(super) fn grammar_request_of(&self, seq: SeqId) -> Option<RequestId> {
        self.grammars.request_of(seq)
    }

    /// What the actors are to be told when this plan has been launched.
    pub(super) fn awaiting(&self, plan: &StepPlan) -> AwaitedRules {
        AwaitedRules { tables: self.tables.awaiting(plan), grammars: self.grammars.awaiting(plan) }
    }

    /// The step was launched, right behind the step `before`, if that is in flight.
    pub(super) fn launched(&self, step: AwaitedRules, before: Option<StepId>) {
        step.grammars.into_iter().for_each(|step| self.grammars.launched(step, before));
        step.tables.into_iter().for_each(|step| self.tables.launched(step, before));
    }

    /// The actor of a source died: another one is started. Tells the requests that used it, and why they end.
    pub(super) fn replace(&mut self, source: Source, reports: Reports) -> (Vec<RequestId>, &'static str) {
        match source {
            Source::Tables => (restarted(&mut self.tables, reports), ENGRAM_LOST),
            _ => (restarted(&mut self.grammars, reports), GRAMMAR_LOST),
        }
    }

    /// A step that the actor of a source will not answer any more goes on without its rules.
    pub(super) fn answer_for(&self, source: Source, step: StepId) {
        match source {
            Source::Tables => self.tables.answer_for(step),
            _ => self.grammars.answer_for(step),
        }
    }
}

/// Starts another actor for a source, and says whose requests the last one knew.
fn restarted<S: LateSource>(users: &mut LateUsers<S>, reports: Reports) -> Vec<RequestId> {
    let failed = users.take_all();
    users.start(reports);
    failed
}
