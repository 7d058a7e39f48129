//! A configuration as it applies to a model: what the model does not take is switched off.

use super::config::{CudaConfig, Placement};
use super::draft_head::is_computed;
use super::operators::OpQuery;
use super::outputs::LAUNCH_ROWS;
use super::shape::Counts;
use crate::model::ModelConfig;
use crate::step::DraftRoom;
use chimere_kernels::cuda::draft_head::ROWS_MAX;

impl CudaConfig {
    /// What is done of it for this model: one with an operator whose state drafted rows would change for good takes
    /// none.
    pub fn of(&self, model: &ModelConfig) -> Self {
        let takes = model.blocks().all(|block| OpQuery(&block.op).takes_drafts());
        let drafts = if takes { self.drafts } else { 0 };
        // Experts of the head are not among those that lie in two memories.
        let draft_head = self.draft_head && drafts > 0 && self.expert_bytes.is_none() && is_computed(model);
        Self { drafts, draft_head, ..self.clone() }
    }

    /// The model as far as it is computed: without a draft head where its guesses are not wanted.
    pub(crate) fn computed(&self, model: &ModelConfig) -> ModelConfig {
        let draft = if self.draft_head { model.draft.clone() } else { Vec::new() };
        ModelConfig { draft, ..model.clone() }
    }

    /// What of the weights is brought, and where.
    pub(crate) fn placement(&self) -> Placement {
        Placement { host_embedding: self.host_embedding, expert_bytes: self.expert_bytes, draft: self.draft_head }
    }

    /// Drafted tokens that steps may have: as many as the largest decode graph has rows for.
    pub(crate) fn draft_room(&self) -> DraftRoom {
        if self.drafts == 0 {
            return DraftRoom::default();
        }
        let rows_max = Counts::of(self).decode as u32;
        let (piece_max, step_max, guesses) = (self.drafts, rows_max, self.draft_head);
        let follow_rows_max = rows_max.min(ROWS_MAX as u32).min(LAUNCH_ROWS as u32);
        DraftRoom { piece_max, step_max, rows_max, penalties: false, guesses, follow_rows_max }
    }
}
