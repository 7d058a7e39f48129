//! How low-rank adapters lie in the memory of a device: the groups of matrices that read the same rows, and the bytes
//! of an adapter. `chimere_kernels::cuda::lora` says what kernels do with them.

use super::operators::attention;
use super::pack::Heads;
use crate::adapter::{AdaptedMatrix, Adapter, LowRank};
use crate::model::{AttentionConfig, GdnConfig, MlpConfig, ModelConfig, OpConfig, SharedConfig};
use chimere_kernels::cuda::lora::{GroupHead, HEAD_BYTES, NO_PART, PARTS_MAX, PLACE_BYTES, RANK_MULTIPLE};
use chimere_kernels::cuda::rows::padded;
use half::f16;
use std::thread;

/// How many adapters a device holds at a time, and how large they may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdapterRoom {
    /// Adapters whose matrices lie on the device; 0 for a backend without.
    pub slots: usize,
    /// Largest rank of any matrix.
    pub rank_max: usize,
}

/// Matrices of a block that read the same rows.
#[derive(Debug)]
pub(crate) struct GroupPlan {
    block: usize,
    /// Values of a row that they read, with the zeros behind it.
    pub(crate) cols: usize,
    /// The zeros behind each head of such a row.
    heads: Option<Heads>,
    /// What products of them are multiplied with beyond what the adapter says.
    factor: f32,
    /// Outputs of the products, those that no adapter changes among them.
    width: usize,
    parts: Vec<PartPlan>,
}

/// One matrix of a group.
#[derive(Debug)]
struct PartPlan {
    matrix: AdaptedMatrix,
    /// Which output of the group each row of the matrix makes.
    outputs: Vec<usize>,
}

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
    /// By block.
    pub(crate) blocks: Vec<BlockGroups>,
}

impl AdapterPlan {
    /// None for a backend that holds no adapters.
    pub(crate) fn of(c: &ModelConfig, room: AdapterRoom) -> Option<Self> {
        let room = AdapterRoom { rank_max: room.rank_max.next_multiple_of(RANK_MULTIPLE), ..room };
        let (mut groups, mut blocks) = (Vec::new(), Vec::new());
        for (number, block) in c.blocks().enumerate() {
            let mut take = |group: Option<GroupPlan>| {
                groups.push(GroupPlan { block: number, ..group? });
                Some(groups.len() - 1)
            };
            let [inputs, outputs] = of_operator(&block.op, c.hidden).map(&mut take);
            blocks.push(BlockGroups { inputs, outputs });
        }
        (room.slots > 0 && room.rank_max > 0).then_some(Self { room, groups, blocks })
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

impl GroupPlan {
    /// Of a matrix whose rows make all outputs.
    fn whole(matrix: AdaptedMatrix, cols: usize, hidden: usize) -> Self {
        let parts = vec![PartPlan { matrix, outputs: (0..hidden).collect() }];
        Self { block: 0, cols: padded(cols), heads: None, factor: 1.0, width: hidden, parts }
    }

    /// Of matrices whose outputs stand behind one another, `width` with what else stands there.
    fn stacked(hidden: usize, parts: Vec<(AdaptedMatrix, usize)>, heads: Option<Heads>, others: usize) -> Self {
        let mut first = 0;
        let mut part = |(matrix, rows): (AdaptedMatrix, usize)| {
            let at = first;
            let outputs = (0..rows).map(|row| at + heads.map_or(row, |heads| heads.place(row))).collect();
            first += heads.map_or(rows, |heads| heads.widened(rows));
            PartPlan { matrix, outputs }
        };
        let parts: Vec<_> = parts.into_iter().map(&mut part).collect();
        Self { block: 0, cols: padded(hidden), heads: None, factor: 1.0, width: first + others, parts }
    }

    /// By output, which part it is of.
    pub(crate) fn columns(&self) -> Vec<u8> {
        let mut columns = vec![NO_PART; self.width];
        for (number, part) in self.parts.iter().enumerate() {
            part.outputs.iter().for_each(|output| columns[*output] = number as u8);
        }
        columns
    }

    /// Bytes of A and of B, for an adapter of this rank.
    fn bytes(&self, rank: usize) -> [usize; 2] {
        [2 * self.a_rows(rank) * self.cols, 2 * rank * self.width]
    }

    /// Rows of A, for adapters of this rank.
    pub(crate) fn a_rows(&self, rank: usize) -> usize {
        self.parts.len() * rank
    }

    /// What an adapter has for the part of this number.
    fn part<'a>(&self, adapter: &'a Adapter, part: &PartPlan) -> Option<&'a LowRank> {
        adapter.part(self.block, part.matrix)
    }

    /// The largest rank of its matrices, rounded up; 0 where it changes none.
    fn rank(&self, adapter: &Adapter) -> usize {
        let ranks = self.parts.iter().filter_map(|part| self.part(adapter, part)).map(|part| part.rank);
        ranks.max().unwrap_or(0).next_multiple_of(RANK_MULTIPLE)
    }

    /// Writes zeroed matrices A and B, which begin at `places`.
    fn pack(&self, adapter: &Adapter, rank: usize, [a_at, b_at]: [u32; 2], (a, b): (&mut [u8], &mut [u8])) -> GroupHead {
        let mut head = GroupHead { a: a_at, b: b_at, rank: rank as u32, ..GroupHead::default() };
        for (number, part) in self.parts.iter().enumerate() {
            let Some(low_rank) = self.part(adapter, part) else { continue };
            let (a_scale, b_scale) = (exponent(&low_rank.a), exponent(&low_rank.b));
            head.parts |= 1 << number;
            head.scales[number] = low_rank.scale * self.factor * a_scale * b_scale;
            let cols = low_rank.a.len() / low_rank.rank;
            let a = &mut a[2 * number * rank * self.cols..];
            for (row, values) in low_rank.a.chunks_exact(cols).enumerate() {
                for (i, value) in values.iter().enumerate() {
                    let at = row * self.cols + self.heads.map_or(i, |heads| heads.place(i));
                    put(a, at, value / a_scale);
                }
            }
            for (r, values) in low_rank.b.chunks_exact(low_rank.out()).enumerate() {
                for (output, value) in part.outputs.iter().zip(values) {
                    put(b, output * rank + r, value / b_scale);
                }
            }
        }
        head
    }
}

/// Writes value `at` of a matrix in f16.
fn put(matrix: &mut [u8], at: usize, value: f32) {
    matrix[2 * at..2 * at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
}

/// The power of two by which values are divided, so that the largest of them is between 1 and 2: f16 keeps eleven bits
/// of what is not far below it.
fn exponent(values: &[f32]) -> f32 {
    let top = values.iter().fold(0.0f32, |top, value| top.max(value.abs()));
    if top < f32::MIN_POSITIVE { 1.0 } else { f32::from_bits(top.to_bits() & 0x7f80_0000) }
}

/// The groups of an operator: of what it reads the stream with, and of what it writes it with.
fn of_operator(op: &OpConfig, hidden: usize) -> [Option<GroupPlan>; 2] {
    match op {
        OpConfig::Gdn(config) => of_gdn(config, hidden).map(Some),
        OpConfig::Attention(config) => of_attention(config, hidden).map(Some),
        OpConfig::Mlp(config) => of_mlp(config, hidden),
        OpConfig::Moe(config) if config.latent.is_none() => match &config.shared {
            Some(shared) => of_shared(shared, hidden),
            None => [None, None],
        },
        _ => [None, None],
    }
}

fn of_gdn(config: &GdnConfig, hidden: usize) -> [GroupPlan; 2] {
    let (values, heads) = (config.values(), config.value_heads);
    let parts = vec![
        (AdaptedMatrix::Qkv, config.channels()),
        (AdaptedMatrix::Z, values),
        (AdaptedMatrix::Beta, heads),
        (AdaptedMatrix::Alpha, heads),
    ];
    // What rounding left of the write strengths and decays stands behind them.
    [GroupPlan::stacked(hidden, parts, None, 2 * heads), GroupPlan::whole(AdaptedMatrix::Out, values, hidden)]
}

fn of_attention(config: &AttentionConfig, hidden: usize) -> [GroupPlan; 2] {
    let heads = attention::heads(config);
    let (queries, keys) = (config.query_rows(), config.keys());
    let parts = vec![(AdaptedMatrix::Query, queries), (AdaptedMatrix::Key, keys), (AdaptedMatrix::Value, keys)];
    let mixed = heads.map_or(config.queries(), |heads| heads.widened(config.queries()));
    let out = GroupPlan { heads, ..GroupPlan::whole(AdaptedMatrix::Out, mixed, hidden) };
    [GroupPlan::stacked(hidden, parts, heads, 0), out]
}

fn of_mlp(config: &MlpConfig, hidden: usize) -> [Option<GroupPlan>; 2] {
    if !config.activation.is_gated() {
        return [None, None];
    }
    // Rows of gate and up come in turns of eight.
    let outputs = |first: usize| (0..config.width).map(|row| row / 8 * 16 + first + row % 8).collect();
    let part = |matrix, first| PartPlan { matrix, outputs: outputs(first) };
    let parts = vec![part(AdaptedMatrix::Gate, 0), part(AdaptedMatrix::Up, 8)];
    let width = 2 * config.width;
    let gate_up = GroupPlan { block: 0, cols: padded(hidden), heads: None, factor: 1.0, width, parts };
    [Some(gate_up), Some(GroupPlan::whole(AdaptedMatrix::Down, config.width, hidden))]
}

fn of_shared(config: &SharedConfig, hidden: usize) -> [Option<GroupPlan>; 2] {
    let [gate_up, down] = of_mlp(&config.expert, hidden);
    // One without a gate has a gate of zeros, which is open by half.
    let factor = if config.gated { 1.0 } else { 2.0 };
    [gate_up, down.map(|down| GroupPlan { factor, ..down })]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn low_rank(matrix: AdaptedMatrix, (rank, cols, rows): (usize, usize, usize)) -> LowRank {
        let values = |n: usize, by: f32| -> Arc<[f32]> { (0..n).map(|i| (i % 7) as f32 * by).collect() };
        LowRank { matrix, rank, scale: 2.0, a: values(rank * cols, 0.25), b: values(rank * rows, 0.001) }
    }

    fn halves(bytes: &[u8]) -> Vec<f32> {
        bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect()
    }

    #[test]
    fn rows_of_heads_and_of_turns_find_their_outputs() {
        let heads = Some(Heads { own: 32, padded: 64 });
        let group = GroupPlan::stacked(64, vec![(AdaptedMatrix::Query, 64), (AdaptedMatrix::Key, 32)], heads, 0);
        assert_eq!((group.width, group.cols), (192, 128));
        assert_eq!([0, 31, 32, 64, 127, 128].map(|at| group.columns()[at]), [0, 0, NO_PART, 0, NO_PART, 1]);
        let [gate_up, _] = of_mlp(&MlpConfig::swiglu(16), 64);
        let columns = gate_up.unwrap().columns();
        assert_eq!([0, 7, 8, 15, 16, 24].map(|at| columns[at]), [0, 0, 1, 1, 0, 1]);
    }

    #[test]
    fn an_adapter_lies_by_its_own_rank_with_the_largest_value_between_one_and_two() {
        let groups = vec![GroupPlan { block: 0, ..GroupPlan::whole(AdaptedMatrix::Out, 32, 64) }];
        let room = AdapterRoom { slots: 1, rank_max: 16 };
        let plan = AdapterPlan { room, groups, blocks: Vec::new() };
        let part = low_rank(AdaptedMatrix::Out, (3, 32, 64));
        let (a, b) = (part.a.clone(), part.b.clone());
        let mut image = Vec::new();
        plan.pack(&Adapter::new("a", vec![vec![part]]), &mut image);
        assert_eq!(image.len(), HEAD_BYTES + 2 * 8 * (128 + 64));
        assert!(image.len() <= plan.slot_bytes());
        let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        assert_eq!([word(0), word(4), word(8), word(12)], [2, 2 + 8 * 128 * 2 / 16, 8, 1]);
        let (own_a, own_b) = (exponent(&a), exponent(&b));
        assert_eq!(f32::from_bits(word(16)), 2.0 * own_a * own_b);
        let all = halves(&image[HEAD_BYTES..]);
        assert_eq!((own_a, all[128 + 1]), (1.0, a[33]));
        assert!(all[3 * 128..8 * 128].iter().all(|x| *x == 0.0), "the rank is rounded up with zeros");
        let of_b = |output: usize, r: usize| all[8 * 128 + output * 8 + r] * own_b;
        assert!((of_b(5, 2) - b[2 * 64 + 5]).abs() < 1e-6 && of_b(5, 3) == 0.0);
        assert!(all.iter().fold(0.0f32, |top, x| top.max(*x)) < 2.0);
    }
}
