//! The part of a configuration that the backend carries out for a given model.

use crate::backend::cpu::config::CpuConfig;
use crate::backend::cpu::draft_head::is_computed;
use crate::model::ModelConfig;

impl CpuConfig {
    /// The configuration as far as it is carried out for this model: a model with a state that drafted rows would
    /// change for good takes no drafts.
    pub fn of(&self, model: &ModelConfig) -> Self {
        let takes = model.blocks().all(|block| block.op.state().takes_drafts());
        let drafts = if takes { self.drafts } else { 0 };
        Self { drafts, draft_head: self.draft_head && drafts > 0 && is_computed(model), ..*self }
    }

    /// The model as far as it is computed: without a draft head where its guesses are not wanted.
    pub(super) fn computed(&self, model: &ModelConfig) -> ModelConfig {
        let draft = if self.draft_head { model.draft.clone() } else { Vec::new() };
        ModelConfig { draft, ..model.clone() }
    }
}
