//! The way by which rules reach the engine while its thread computes.

use super::messages::RulesReady;
use actix::Recipient;
use chimere_engine::backend::EarlyRules;
use chimere_engine::constraint::StepRules;
use std::sync::Arc;

/// Brings what late sources say to the engine, also while its thread computes. Clones share it.
#[derive(Clone)]
pub struct RulesLink {
    engine: Recipient<RulesReady>,
    early: Arc<EarlyRules>,
}

impl RulesLink {
    /// To an engine that looks for rules in `early` by itself, where it can.
    pub(super) fn new(engine: Recipient<RulesReady>, early: Arc<EarlyRules>) -> Self {
        Self { engine, early }
    }

    /// All that a source says of a launched step. The engine hears of it only where it does not look for itself.
    pub fn send(&self, rules: StepRules) {
        let step = rules.step;
        if self.early.put(rules) {
            self.engine.do_send(RulesReady(step));
        }
    }
}
