//! How low-rank adapters lie in the memory of a device: the groups of matrices that read the same rows, and the bytes
//! of an adapter. `chimere_kernels::cuda::lora` says what kernels do with them.

use super::OpQuery;
use super::adapter_groups::GroupPlan;
use crate::adapter::Adapter;
use crate::backend::cuda::layout::config::AdapterRoom;
use crate::model::ModelConfig;
use chimere_kernels::cuda::lora::{HEAD_BYTES, PARTS_MAX, PLACE_BYTES, RANK_MULTIPLE};
use std::thread;

/// Of a block, the groups of the matrices that it reads the residual stream with, and that it writes it with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockGroups {
    pub(crate) inputs: Option<usize>,
    pub(crate) outputs: Option<usize>,
}

/// All groups of a model.
#[derive(Debug)]
pub(crate) struct AdapterPlan {
    pub(crate) room: AdapterRoom,
    pub(crate) groups: Vec<GroupPlan>,
    /// Groups of each of the model's blocks.
    pub(crate) blocks: Vec<BlockGroups>,
}

impl AdapterPlan {
    /// None for a backend that holds no adapters.
    pub(crate) fn of(c: &ModelConfig, room: AdapterRoom) -> Option<Self> {
        if !room.holds_any() {
            return None;
        }
        let room = AdapterRoom { rank_max: room.rank_max.next_multiple_of(RANK_MULTIPLE), ..room };
        let (mut groups, mut blocks) = (Vec::new(), Vec::new());
        for (number, block) in c.blocks().enumerate() {
            let mut take = |group: Option<GroupPlan>| {
                groups.push(group?.of_block(number));
                Some(groups.len() - 1)
            };
            let [inputs, outputs] = OpQuery(&block.op).adapter_groups(c.hidden).map(&mut take);
            blocks.push(BlockGroups { inputs, outputs });
        }
        Some(Self { room, groups, blocks })
    }

    /// Bytes of an adapter's slot.
    pub(crate) fn slot_bytes(&self) -> usize {
        let matrices = self.groups.iter().flat_map(|group| group.bytes(self.room.rank_max));
        self.groups.len() * HEAD_BYTES + matrices.sum::<usize>().next_multiple_of(PLACE_BYTES)
    }

    /// Values of what `A x` of a row takes.
    pub(crate) fn reduced(&self) -> usize {
        PARTS_MAX * self.room.rank_max
    }

    /// Bytes of the device's memory, for so many rows and slots of sequences.
    pub(crate) fn bytes(&self, rows: usize, sequences: usize) -> u64 {
        let columns: usize = self.groups.iter().map(|group| group.width).sum();
        (self.room.slots * self.slot_bytes() + 4 * rows * self.reduced() + 8 * sequences + columns) as u64
    }

    /// The bytes of an adapter, as many as its rank takes, by several threads.
    ///
    /// # Panics
    /// If its rank is above [`AdapterRoom::rank_max`].
    pub(crate) fn pack(&self, adapter: &Adapter, image: &mut Vec<u8>) {
        const THREADS: usize = 8;
        let ranks: Vec<usize> = self.groups.iter().map(|group| group.rank(adapter)).collect();
        assert!(ranks.iter().all(|rank| *rank <= self.room.rank_max), "the service checks the rank of what it loads");
        let heads = self.groups.len() * HEAD_BYTES;
        let bytes = self.groups.iter().zip(&ranks).map(|(group, rank)| group.bytes(*rank).iter().sum::<usize>());
        image.clear();
        image.resize(heads + bytes.sum::<usize>(), 0);
        let (head_bytes, mut rest) = image.split_at_mut(heads);
        let (mut at, mut work) = (heads, Vec::new());
        let heads = head_bytes.as_chunks_mut::<HEAD_BYTES>().0;
        for ((group, head), rank) in self.groups.iter().zip(heads).zip(ranks) {
            let [a_bytes, b_bytes] = group.bytes(rank);
            let places = [at, at + a_bytes].map(|at| (at / PLACE_BYTES) as u32);
            let (own, behind) = rest.split_at_mut(a_bytes + b_bytes);
            (at, rest) = (at + a_bytes + b_bytes, behind);
            work.push((group, rank, places, head, own.split_at_mut(a_bytes)));
        }
        let each = work.len().div_ceil(THREADS).max(1);
        thread::scope(|scope| {
            while !work.is_empty() {
                let part = work.split_off(work.len().saturating_sub(each));
                scope.spawn(move || {
                    for (group, rank, places, head, matrices) in part {
                        *head = group.pack(adapter, rank, places, matrices).bytes();
                    }
                });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::adapter_groups::exponent;
    use super::*;
    use crate::adapter::{AdaptedMatrix, LowRank};
    use half::f16;

    fn low_rank(matrix: AdaptedMatrix, (rank, cols, rows): (usize, usize, usize)) -> LowRank {
        let values = |n: usize, by: f32| (0..n).map(|i| (i % 7) as f32 * by).collect::<Vec<_>>();
        LowRank::new(matrix, rank, 2.0, &values(rank * cols, 0.25), &values(rank * rows, 0.001))
    }

    fn halves(bytes: &[u8]) -> Vec<f32> {
        bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect()
    }

    #[test]
    fn an_adapter_lies_by_its_own_rank_with_the_largest_value_between_one_and_two() {
        let groups = vec![GroupPlan::whole(AdaptedMatrix::Out, 32, 64)];
        let room = AdapterRoom { slots: 1, rank_max: 16 };
        let plan = AdapterPlan { room, groups, blocks: Vec::new() };
        let part = low_rank(AdaptedMatrix::Out, (3, 32, 64));
        let (own_a, own_b) = (exponent(part.a().top()), exponent(part.b().top()));
        let (a_of_1, b_of_5) = (part.a().at(1, 1), part.b().at(5, 2));
        let mut image = Vec::new();
        plan.pack(&Adapter::new("a", vec![vec![part]]), &mut image);
        assert_eq!(image.len(), HEAD_BYTES + 2 * 8 * (128 + 64));
        assert!(image.len() <= plan.slot_bytes());
        let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        assert_eq!([word(0), word(4), word(8), word(12)], [2, 2 + 8 * 128 * 2 / 16, 8, 1]);
        assert_eq!(f32::from_bits(word(16)), 2.0 * own_a * own_b);
        let all = halves(&image[HEAD_BYTES..]);
        assert_eq!((own_a, all[128 + 1]), (1.0, a_of_1));
        assert!(all[3 * 128..8 * 128].iter().all(|x| *x == 0.0), "the rank is rounded up with zeros");
        let of_b = |output: usize, r: usize| all[8 * 128 + output * 8 + r] * own_b;
        assert!((of_b(5, 2) - b_of_5).abs() < 1e-6 && of_b(5, 3) == 0.0);
        assert!(all.iter().fold(0.0f32, |top, x| top.max(*x)) < 2.0);
    }
}
