//! The way by which rules reach the engine while its thread computes.

use crate::actors::messages::RulesReady;
use actix::Recipient;
use chimere_engine::backend::EarlyRules;
use chimere_engine::constraint::StepRules;
use std::sync::Arc;

/// Brings the rules of deferred sources to the engine, also while its thread computes. Clones share it.
#[derive(Clone)]
pub struct RulesLink {
    engine: Recipient<RulesReady>,
    early: Arc<EarlyRules>,
}

impl RulesLink {
    /// The way to an engine that looks for rules in `early` by itself, where it can.
    pub(in crate::actors) fn new(engine: Recipient<RulesReady>, early: Arc<EarlyRules>) -> Self {
        Self { engine, early }
    }

    /// Sends all rules of a source for a launched step. The engine gets a message only where it does not look itself.
    pub fn send(&self, rules: StepRules) {
        let step = rules.step;
        if self.early.put(rules) {
            self.engine.do_send(RulesReady(step));
        }
    }
}
