//! Sizes of what sequences leave on the device between steps.

use super::config::CudaConfig;
use super::operators::OpQuery;
use super::operators::operator::Memory;
use crate::PAGE_TOKENS;
use crate::model::ModelConfig;
use chimere_kernels::cuda::draft_head::DraftHead;

/// Sizes of everything in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreShape {
    pub(crate) slots: usize,
    /// States and rings that are kept beside those of slots, behind them.
    pub(crate) checkpoints: usize,
    pub(crate) pages: usize,
    /// Blocks with recurrent state.
    pub(crate) recurrent: usize,
    /// Blocks with keys and values.
    pub(crate) cached: usize,
    /// Floats of a slot's state in a block.
    pub(crate) state: usize,
    /// Floats of a slot's ring in a block.
    pub(crate) ring: usize,
    /// Floats of what a slot's stored state may lack in a block. A checkpoint lacks nothing.
    pub(crate) updates: usize,
    /// Floats of the hidden states that a slot carries for the draft head.
    pub(crate) carried: usize,
    /// Words of a slot's history: two tokens each.
    pub(crate) counts: usize,
    /// Pages that a sequence may have.
    pub(crate) table: usize,
    /// Bytes of a page's keys in a block.
    pub(crate) key_page: usize,
    /// Bytes of a page's values in a block.
    pub(crate) value_page: usize,
}

impl StoreShape {
    pub(crate) fn of(c: &ModelConfig, config: &CudaConfig) -> Self {
        let (kv, drafts) = (config.kv.into(), config.drafts as usize);
        let memories = || c.blocks().chain(&c.draft).map(|block| OpQuery(&block.op).memory(kv, drafts));
        // All that have any have the same: `operators::check` refused what has not.
        let state = memories().find(Memory::is_recurrent).unwrap_or_default();
        let page = memories().find(Memory::is_cached).unwrap_or_default();
        Self {
            slots: config.slots as usize,
            checkpoints: config.checkpoints as usize,
            pages: config.pages as usize,
            recurrent: memories().filter(Memory::is_recurrent).count(),
            cached: memories().filter(Memory::is_cached).count(),
            state: state.state,
            ring: state.ring,
            updates: state.updates,
            carried: if c.draft.is_empty() { 0 } else { DraftHead::carried(c.hidden) },
            counts: c.vocab.div_ceil(2),
            table: (config.context.div_ceil(PAGE_TOKENS) as usize).max(1),
            key_page: page.key_page,
            value_page: page.value_page,
        }
    }

    /// Bytes of a slot, its page table included.
    pub(crate) fn slot_bytes(&self) -> u64 {
        self.slot_parts().iter().map(|part| part.1).sum()
    }

    /// Bytes of each part of a slot, with its name.
    pub(crate) fn slot_parts(&self) -> [(&'static str, u64); 4] {
        [
            ("recurrent state, convolution", self.checkpoint_bytes()),
            ("updates that the state may lack", (4 * self.recurrent * self.updates) as u64),
            ("hidden states for the draft head", (4 * self.carried) as u64),
            ("token history, page table", (4 * (self.counts + self.table + 1)) as u64),
        ]
    }

    /// Recurrent states on the device: one a slot and one a checkpoint.
    pub(crate) fn states(&self) -> usize {
        self.slots + self.checkpoints
    }

    /// Bytes of a checkpoint.
    pub(crate) fn checkpoint_bytes(&self) -> u64 {
        (4 * self.recurrent * (self.state + self.ring)) as u64
    }

    /// Bytes of a page in all layers.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.page_parts().iter().map(|part| part.1).sum()
    }

    /// Bytes of each part of a page in all layers, with its name.
    pub(crate) fn page_parts(&self) -> [(&'static str, u64); 2] {
        [("keys", (self.cached * self.key_page) as u64), ("values", (self.cached * self.value_page) as u64)]
    }
}
