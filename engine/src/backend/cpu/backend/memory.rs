//! What the backend will take of memory, known before any of it is taken.

use crate::backend::cpu::config::CpuConfig;
use crate::backend::cpu::draft_head::buffers::HeadBuffers;
use crate::backend::cpu::draft_head::weights::PackedDraftHead;
use crate::backend::cpu::network::weights::CpuModel;
use crate::backend::cpu::network::workspace::Workspace;
use crate::backend::cpu::pass::room::WorkspaceRoom;
use crate::backend::cpu::store::StoreShape;
use crate::model::{Model, ModelConfig};

/// Bytes by use, for a planner that splits one budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes of one page of keys and values.
    pub page_bytes: u64,
    /// Bytes of one sequence's recurrent state.
    pub slot_bytes: u64,
    /// Bytes of what one sequence's drafted rows leave until it is known which of them count, and of what its draft
    /// head has not read yet.
    pub drafted_bytes: u64,
    /// Buffers of a step.
    pub workspace_bytes: u64,
    /// Bytes of all pages of keys and values.
    pub kv_bytes: u64,
    /// Bytes of all sequences' recurrent states and drafted rows.
    pub state_bytes: u64,
    /// All checkpoints, each of which takes what a slot does.
    pub checkpoint_bytes: u64,
}

impl MemoryUse {
    /// Bytes of the packed weights.
    pub fn weight_bytes(model: &Model, config: &CpuConfig) -> u64 {
        let head = model.weights.draft_head.as_ref().filter(|_| config.of(&model.config).draft_head);
        let head_bytes = head.map_or(0, |w| PackedDraftHead::planned_bytes(w, config.exact));
        CpuModel::planned_bytes(model, config.exact) + head_bytes
    }

    /// Bytes that [`crate::backend::cpu::CpuBackend::new`] will allocate beside the packed weights.
    pub fn of(model: &ModelConfig, config: &CpuConfig) -> Self {
        let config = &config.of(model);
        let model = &config.computed(model);
        let shape = StoreShape::of(model);
        let mut room = WorkspaceRoom::counting(config.step_rows_max as usize, model.hidden);
        take_buffers(model, config.logit_rows(), &mut room);
        let drafted_bytes = shape.drafted_bytes() * u64::from(config.draft_room().piece_max) + shape.late_bytes();
        let (page_bytes, slot_bytes) = (shape.page_bytes(config.kv_type()), shape.slot_bytes());
        Self {
            page_bytes,
            slot_bytes,
            drafted_bytes,
            workspace_bytes: room.bytes(),
            kv_bytes: page_bytes * u64::from(config.pages),
            state_bytes: (slot_bytes + drafted_bytes) * u64::from(config.slots),
            checkpoint_bytes: slot_bytes * u64::from(config.checkpoints),
        }
    }
}

impl MemoryUse {
    /// All that the backend will allocate beside the packed weights.
    pub fn total(&self) -> u64 {
        [self.workspace_bytes, self.kv_bytes, self.state_bytes, self.checkpoint_bytes]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// Takes, or counts, the buffers of a step: those of the model, and of its draft head where it is computed.
pub(super) fn take_buffers(
    c: &ModelConfig,
    logit_rows: usize,
    room: &mut WorkspaceRoom,
) -> (Workspace, Option<HeadBuffers>) {
    let workspace = Workspace::new(c, logit_rows, room);
    (workspace, (!c.draft.is_empty()).then(|| HeadBuffers::new(room, logit_rows)))
}
