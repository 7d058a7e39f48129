//! What the backend will take of memory, known before any of it is taken.

use crate::backend::cpu::network::weights::CpuModel;
use crate::backend::cpu::network::workspace::workspace_bytes;
use crate::backend::cpu::store::StoreShape;
use crate::backend::cpu::{CpuConfig, KvType};
use crate::model::{Model, ModelConfig};
use memmap2::MmapMut;

/// Bytes by use, for a planner that splits one budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes of one page of keys and values.
    pub page_bytes: u64,
    /// Bytes of one sequence's recurrent state.
    pub slot_bytes: u64,
    /// Bytes of what one sequence's drafted rows leave until it is known which of them count, and of what its draft head
    /// has not read yet.
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
        CpuModel::planned_bytes(model, config.exact, config.of(&model.config).draft_head)
    }

    /// What [`crate::backend::cpu::CpuBackend::new`] will allocate beside the packed weights.
    pub fn of(model: &ModelConfig, config: &CpuConfig) -> Self {
        let config = &config.of(model);
        let model = &config.computed(model);
        let shape = StoreShape::of(model);
        let drafted_bytes = shape.drafted_bytes() * u64::from(config.draft_room().piece_max) + shape.late_bytes();
        let (page_bytes, slot_bytes) = (shape.page_bytes(config.kv_type()), shape.slot_bytes());
        Self {
            page_bytes,
            slot_bytes,
            drafted_bytes,
            workspace_bytes: workspace_bytes(model, config.step_rows_max as usize, config.logit_rows()),
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

/// Address space that is kept for a plan, so that one that cannot be allocated is refused with a sentence: a failed
/// allocation would abort the process. No memory is touched.
#[derive(Debug)]
pub struct Reservation {
    _map: Option<MmapMut>,
}

impl Reservation {
    /// `None` if the system does not give that much, such as under `ulimit -v`.
    pub fn of(bytes: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes).ok()?;
        let map = (bytes > 0).then(|| MmapMut::map_anon(bytes)).transpose().ok()?;
        Some(Self { _map: map })
    }
}

impl KvType {
    pub(crate) fn bytes(self) -> usize {
        match self {
            KvType::F32 => 4,
            KvType::F16 => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_are_addresses_cannot_be_reserved() {
        assert!(Reservation::of(0).is_some() && Reservation::of(1 << 30).is_some());
        assert!(Reservation::of(1 << 60).is_none() && Reservation::of(u64::MAX).is_none());
    }
}
