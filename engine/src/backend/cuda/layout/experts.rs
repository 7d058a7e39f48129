//! How the routed experts of a model are split between the memory of the device and that of the host.

use super::matrix::MatrixPlan;
use super::pack::source::ByteSource;
use crate::cache::{self, EXPERT_RESERVES_MAX, EXPERTS_GOING_MAX as GOING_MAX};
use crate::format::NotFinite;
use chimere_kernels::cuda::stack::RESERVES;
use chimere_kernels::cuda::uses;

/// A place and a matrix in it begin at multiples of this: copies are of whole lines.
const ALIGN: usize = 256;

/// Words that change between two steps, at most, as pairs of an address and a value: of each that goes, the table's and
/// the reserves'.
pub(crate) const CHANGES: usize = 2 * GOING_MAX;
pub(crate) const CHANGES_BYTES: usize = CHANGES * 16;

/// The experts of blocks whose matrices have one size, in places of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolShape {
    /// Blocks that choose, by their number among such.
    pub(crate) blocks: Vec<usize>,
    /// Where in its place down begins, behind gate and up.
    pub(crate) down_at: usize,
    /// Bytes of a place.
    pub(crate) place_bytes: usize,
    /// Places in the device's memory, those in reserve too.
    pub(crate) device: usize,
}

impl PoolShape {
    /// Places of the device that are kept in reserve.
    pub(crate) fn reserves(&self) -> usize {
        const { assert!(RESERVES == EXPERT_RESERVES_MAX, "a block's reserves are those that kernels know") };
        cache::expert_reserves(self.device, self.blocks.len())
    }

    /// Experts that begin in the device's memory.
    pub(crate) fn residents(&self) -> usize {
        self.device - self.reserves()
    }
}

/// How the experts of a model are split between both memories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TierShape {
    /// Experts of a block.
    pub(crate) experts: usize,
    /// Blocks of the model that have routed experts.
    pub(crate) blocks: usize,
    pub(crate) pools: Vec<PoolShape>,
}

impl TierShape {
    /// Of the experts' matrices, gate and up and then down of each block, with at most `bytes` on the device; `None`
    /// if all of them fit, or there are none.
    pub(crate) fn of(matrices: &[&MatrixPlan<'_>], bytes: u64) -> Option<Self> {
        let (pairs, _) = matrices.as_chunks::<2>();
        let mut pools: Vec<PoolShape> = Vec::new();
        for (block, [gate_up, down]) in pairs.iter().enumerate() {
            let down_at = gate_up.matrix_bytes().next_multiple_of(ALIGN);
            let place_bytes = down_at + down.matrix_bytes().next_multiple_of(ALIGN);
            let same = |p: &&mut PoolShape| (p.down_at, p.place_bytes) == (down_at, place_bytes);
            match pools.iter_mut().find(same) {
                Some(pool) => pool.blocks.push(block),
                None => pools.push(PoolShape { blocks: vec![block], down_at, place_bytes, device: 0 }),
            }
        }
        let experts = pairs.first()?[0].count;
        let all = pools.iter().map(|p| (p.blocks.len() * experts * p.place_bytes) as u64).sum::<u64>();
        if all <= bytes {
            return None;
        }
        for pool in &mut pools {
            let members = (pool.blocks.len() * experts) as u128;
            pool.device = (members * u128::from(bytes) / u128::from(all)) as usize;
        }
        Some(Self { experts, blocks: pairs.len(), pools })
    }

    /// Bytes of the device's memory.
    pub(crate) fn device_bytes(&self) -> u64 {
        let table = self.blocks * (8 * self.experts + 8 * uses::words(self.experts) + 12 * RESERVES) + CHANGES_BYTES;
        table as u64 + self.pools.iter().map(|p| (p.device * p.place_bytes) as u64).sum::<u64>()
    }

    /// Bytes of the host's memory.
    pub(crate) fn host_bytes(&self) -> u64 {
        self.pools.iter().map(|p| (self.host_places(p) * p.place_bytes) as u64).sum()
    }

    /// Experts that have room on the device, and all.
    pub(crate) fn residents(&self) -> (usize, usize) {
        (self.pools.iter().map(|p| p.device).sum(), self.blocks * self.experts)
    }

    pub(crate) fn members(&self, pool: &PoolShape) -> usize {
        pool.blocks.len() * self.experts
    }

    /// With the spare ones.
    pub(crate) fn host_places(&self, pool: &PoolShape) -> usize {
        self.members(pool) - pool.residents() + GOING_MAX
    }
}

/// Experts as the bytes of their places. A pool's members are numbered so that the first ones are a few of every block.
pub(crate) struct PoolSource<'a> {
    pub(crate) matrices: &'a [[&'a MatrixPlan<'a>; 2]],
    pub(crate) shape: &'a PoolShape,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

impl ByteSource for PoolSource<'_> {
    /// A piece is a place.
    fn piece_bytes(&self) -> usize {
        self.shape.place_bytes
    }

    fn pieces(&self) -> usize {
        self.count
    }

    fn write(&self, piece: usize, out: &mut [u8]) -> Result<(), NotFinite> {
        let member = self.first + piece;
        let (expert, block) = (member / self.shape.blocks.len(), member % self.shape.blocks.len());
        for (plan, at) in self.matrices[self.shape.blocks[block]].iter().zip([0, self.shape.down_at]) {
            let (bytes, tile) = (plan.matrix_bytes(), plan.piece_bytes());
            let tiles = bytes / tile;
            let mut out = out[at..at + bytes].chunks_exact_mut(tile).enumerate();
            out.try_for_each(|(t, out)| plan.write(expert * tiles + t, out))?;
        }
        Ok(())
    }
}
