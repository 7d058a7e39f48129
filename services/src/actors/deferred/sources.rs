//! The scheduler actor's side of all deferred sources: tables and grammars.

use super::actor::Reports;
use super::grammars::GrammarSource;
use super::polled_queue::PolledQueue;
use super::source::DeferredSource;
use super::tables::EngramSource;
use super::users::DeferredUsers;
use crate::actors::deferred_rules::DeferredRules;
use crate::actors::messages::{Awaits, Follow, RulesSent};
use chimere_engine::constraint::Source;
use chimere_engine::ids::{RequestId, SeqId, StepId};
use chimere_engine::step::StepPlan;

/// Told to clients whose streams broke with the tables' thread.
const ENGRAM_LOST: &str = "the part that looks tables up failed; requests without tables go on";
/// Told to clients whose streams broke with the grammars' thread.
const GRAMMAR_LOST: &str = "the part that follows grammars failed; requests without one go on";

/// The requests that use tables and grammars, and the answers of these sources.
pub(in crate::actors) struct DeferredSources {
    tables: DeferredUsers<EngramSource>,
    grammars: DeferredUsers<GrammarSource>,
    /// The steps that quick sources have answered, read at a step's end.
    answers: PolledQueue<RulesSent>,
}

/// The messages to the actors of deferred sources that go out when a plan has been launched.
pub(in crate::actors) struct PlanAwaits {
    tables: Option<Awaits>,
    grammars: Option<Awaits>,
}

impl DeferredSources {
    /// Sources that no request uses yet and whose actors do not run.
    pub(in crate::actors) fn new(
        (tables, grammars): (DeferredUsers<EngramSource>, DeferredUsers<GrammarSource>),
    ) -> Self {
        Self { tables, grammars, answers: PolledQueue::default() }
    }

    /// Starts the actors of tables and grammars.
    pub(in crate::actors) fn start(&self, reports: &Reports) {
        self.tables.start(reports.clone());
        self.grammars.start(reports.clone());
    }

    /// The queue in which quick sources leave their answers.
    pub(in crate::actors) fn answers(&self) -> &PolledQueue<RulesSent> {
        &self.answers
    }

    /// Begins to track a request that was admitted, or that came from another engine, with its rules of all sources.
    pub(in crate::actors) fn follow(&mut self, id: RequestId, follow: Follow<DeferredRules>) {
        let DeferredRules { tables, grammar } = follow.rules.clone();
        if let Some(rules) = grammar {
            self.grammars.follow(id, follow.with_rules(rules));
        }
        if let Some(rules) = tables {
            self.tables.follow(id, follow.with_rules(rules));
        }
    }

    /// Ends the tracking of a request.
    pub(in crate::actors) fn forget(&mut self, id: RequestId) {
        self.tables.forget(id);
        self.grammars.forget(id);
    }

    /// The request of a sequence, if it uses this source.
    pub(in crate::actors) fn request_of(&self, source: Source, seq: SeqId) -> Option<RequestId> {
        match source {
            Source::Tables => self.tables.request_of(seq),
            _ => self.grammars.request_of(seq),
        }
    }

    /// The messages that go to the actors when this plan has been launched.
    pub(in crate::actors) fn awaiting(&self, plan: &StepPlan) -> PlanAwaits {
        PlanAwaits { tables: self.tables.awaiting(plan), grammars: self.grammars.awaiting(plan) }
    }

    /// Tells the actors of a step that was launched right behind the step `before`, if that is in flight.
    pub(in crate::actors) fn launched(&self, step: PlanAwaits, before: Option<StepId>) {
        step.grammars.into_iter().for_each(|step| self.grammars.launched(step, before));
        step.tables.into_iter().for_each(|step| self.tables.launched(step, before));
    }

    /// Starts another actor for a source whose actor died. Returns the requests that used it, and why they end.
    pub(in crate::actors) fn replace(&mut self, source: Source, reports: Reports) -> (Vec<RequestId>, &'static str) {
        match source {
            Source::Tables => (restarted(&mut self.tables, reports), ENGRAM_LOST),
            _ => (restarted(&mut self.grammars, reports), GRAMMAR_LOST),
        }
    }

    /// Answers a step in the stead of an actor that is gone: the step goes on without its rules.
    pub(in crate::actors) fn answer_for(&self, source: Source, step: StepId) {
        match source {
            Source::Tables => self.tables.answer_for(step),
            _ => self.grammars.answer_for(step),
        }
    }
}

/// Starts another actor for a source, and returns the requests that the last one knew.
fn restarted<S: DeferredSource>(users: &mut DeferredUsers<S>, reports: Reports) -> Vec<RequestId> {
    let failed = users.take_all();
    users.start(reports);
    failed
}
