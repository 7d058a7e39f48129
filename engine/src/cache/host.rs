//! The second tier of the prefix cache: memory of the host, in blocks of one size.
//!
//! A block holds the KV of one unit of [`CHUNK_TOKENS`] positions, or a part of a checkpoint. Entries on the host share
//! the blocks of units as entries on the device share pages. What is here was copied while it lay on the device, so
//! giving an entry up there costs nothing; whoever wants it back waits for a copy.

use super::order::{EvictionOrder, Priority};
use crate::CHUNK_TOKENS;
use crate::ids::{HostBlockId, TransferId};

/// How memory of the host is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostBlocks {
    /// Bytes of a block.
    pub bytes: u64,
    /// Blocks of a checkpoint; none without a tier on the host.
    pub checkpoint: u32,
    /// Blocks of a unit: one, or none for a model that keeps no keys and values.
    pub unit: u32,
}

impl HostBlocks {
    /// The blocks of a cache without a tier on the host.
    pub const NONE: Self = Self { bytes: 0, checkpoint: 0, unit: 0 };
    /// A checkpoint is not cut into more: each is a copy of its own.
    const CHECKPOINT_BLOCKS_MAX: u64 = 256;

    /// Blocks for checkpoints and KV pages of so many bytes, or [`Self::NONE`] where there are no checkpoints.
    pub fn of(checkpoint_bytes: u64, page_bytes: u64) -> Self {
        if checkpoint_bytes == 0 {
            return Self::NONE;
        }
        let unit_bytes = page_bytes * u64::from(CHUNK_TOKENS / crate::PAGE_TOKENS);
        let bytes = unit_bytes.max(checkpoint_bytes.div_ceil(Self::CHECKPOINT_BLOCKS_MAX)).next_multiple_of(256);
        Self { bytes, checkpoint: checkpoint_bytes.div_ceil(bytes) as u32, unit: u32::from(unit_bytes > 0) }
    }

    /// Does this describe a tier?
    pub fn is_some(&self) -> bool {
        self.checkpoint > 0
    }
}

/// An entry's place on the host.
#[derive(Debug)]
pub(super) struct OnHost {
    /// Blocks of the host that hold the entry's checkpoint, in order.
    pub(super) blocks: Vec<HostBlockId>,
    pub(super) priority: Priority,
    /// The copy to here is still under way, and nothing may be read.
    pub(super) saving: Option<TransferId>,
    /// Copies from here that are under way.
    pub(super) loads: u32,
}

impl OnHost {
    /// Nobody reads or writes it.
    pub(super) fn is_idle(&self) -> bool {
        self.saving.is_none() && self.loads == 0
    }
}

/// Who has which block, and who goes first.
#[derive(Debug, Default)]
pub(super) struct HostTier {
    pub(super) cut: HostBlocks,
    pub(super) order: EvictionOrder,
    free: Vec<HostBlockId>,
    total: u32,
}

impl HostTier {
    pub(super) fn new(cut: HostBlocks) -> Self {
        Self { cut, ..Self::default() }
    }

    /// There are so many blocks by now; never fewer than before.
    pub(super) fn grow(&mut self, total: u32) {
        self.free.extend((self.total..total).rev().map(HostBlockId));
        self.total = self.total.max(total);
    }

    pub(super) fn total(&self) -> u32 {
        self.total
    }

    pub(super) fn used(&self) -> u32 {
        self.total - self.free.len() as u32
    }

    pub(super) fn has_free(&self, blocks: u32) -> bool {
        self.free.len() >= blocks as usize
    }

    /// A free block, of which [`Self::has_free`] has told.
    pub(super) fn claim(&mut self) -> HostBlockId {
        self.free.pop().expect("free blocks were counted")
    }

    pub(super) fn release(&mut self, block: HostBlockId) {
        self.free.push(block);
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> &[HostBlockId] {
        &self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_holds_a_unit_and_a_checkpoint_is_not_cut_too_small() {
        let released = HostBlocks::of(64 << 20, 640 << 10);
        assert_eq!(released, HostBlocks { bytes: 1280 << 10, checkpoint: 52, unit: 1 });
        let tiny_pages = HostBlocks::of(64 << 20, 1 << 10);
        assert_eq!((tiny_pages.bytes, tiny_pages.checkpoint), (256 << 10, 256));
        assert_eq!(HostBlocks::of(1 << 20, 0).unit, 0, "no keys and values, no blocks of units");
        assert!(!HostBlocks::of(0, 100).is_some());
    }
}
