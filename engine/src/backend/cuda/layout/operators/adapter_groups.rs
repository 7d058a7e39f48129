//! Matrices of a block that read the same rows, and how an adapter's lie for them.

use crate::adapter::{AdaptedMatrix, Adapter, LowRank};
use crate::backend::cuda::layout::pack::Heads;
use chimere_kernels::cuda::lora::{GroupHead, NO_PART, RANK_MULTIPLE};
use chimere_kernels::cuda::rows::padded;
use half::f16;

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
    pub(super) width: usize,
    pub(super) parts: Vec<PartPlan>,
}

/// One matrix of a group.
#[derive(Debug)]
pub(super) struct PartPlan {
    matrix: AdaptedMatrix,
    /// Which output of the group each row of the matrix makes.
    outputs: Vec<usize>,
}

impl GroupPlan {
    /// Of a matrix whose rows make all outputs.
    pub(crate) fn whole(matrix: AdaptedMatrix, cols: usize, hidden: usize) -> Self {
        let parts = vec![PartPlan { matrix, outputs: (0..hidden).collect() }];
        Self { block: 0, cols: padded(cols), heads: None, factor: 1.0, width: hidden, parts }
    }

    /// Of matrices whose outputs stand behind one another, `width` with what else stands there.
    pub(crate) fn stacked(
        hidden: usize,
        parts: Vec<(AdaptedMatrix, usize)>,
        heads: Option<Heads>,
        others: usize,
    ) -> Self {
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

    /// Of a gate and an up matrix of so many rows, which come in turns of eight.
    pub(crate) fn interleaved(hidden: usize, width: usize) -> Self {
        let outputs = |first: usize| (0..width).map(|row| row / 8 * 16 + first + row % 8).collect();
        let part = |matrix, first| PartPlan { matrix, outputs: outputs(first) };
        let parts = vec![part(AdaptedMatrix::Gate, 0), part(AdaptedMatrix::Up, 8)];
        Self { block: 0, cols: padded(hidden), heads: None, factor: 1.0, width: 2 * width, parts }
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
    pub(super) fn bytes(&self, rank: usize) -> [usize; 2] {
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

    /// Of this block among the model's.
    pub(super) fn of_block(self, block: usize) -> Self {
        Self { block, ..self }
    }

    /// Of rows that are heads, with zeros behind each where `heads` asks for them.
    pub(crate) fn of_heads(self, heads: Option<Heads>) -> Self {
        Self { heads, ..self }
    }

    /// With products that are multiplied with `factor` beyond what the adapter says.
    pub(crate) fn times(self, factor: f32) -> Self {
        Self { factor, ..self }
    }

    /// The largest rank of its matrices, rounded up; 0 where it changes none.
    pub(super) fn rank(&self, adapter: &Adapter) -> usize {
        let ranks = self.parts.iter().filter_map(|part| self.part(adapter, part)).map(|part| part.rank);
        ranks.max().unwrap_or(0).next_multiple_of(RANK_MULTIPLE)
    }

    /// Writes zeroed matrices A and B, which begin at `places`.
    pub(super) fn pack(
        &self,
        adapter: &Adapter,
        rank: usize,
        [a_at, b_at]: [u32; 2],
        (a, b): (&mut [u8], &mut [u8]),
    ) -> GroupHead {
        let mut head = GroupHead { a: a_at, b: b_at, rank: rank as u32, ..GroupHead::default() };
        for (number, part) in self.parts.iter().enumerate() {
            let Some(low_rank) = self.part(adapter, part) else { continue };
            let [a_scale, b_scale] = [low_rank.a(), low_rank.b()].map(|matrix| exponent(matrix.top()));
            head.parts |= 1 << number;
            head.scales[number] = low_rank.scale * self.factor * a_scale * b_scale;
            let a = &mut a[2 * number * rank * self.cols..];
            for input in 0..low_rank.inputs() {
                let at = self.heads.map_or(input, |heads| heads.place(input));
                for r in 0..low_rank.rank {
                    put(a, r * self.cols + at, low_rank.a().at(r, input) / a_scale);
                }
            }
            for (nth, output) in part.outputs.iter().enumerate() {
                for r in 0..low_rank.rank {
                    put(b, output * rank + r, low_rank.b().at(nth, r) / b_scale);
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

/// The power of two by which values are divided, so that the largest magnitude of them, `top`, gets between 1 and 2:
/// f16 keeps eleven bits of what is not far below it.
pub(super) fn exponent(top: f32) -> f32 {
    if top < f32::MIN_POSITIVE { 1.0 } else { f32::from_bits(top.to_bits() & 0x7f80_0000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_heads_and_of_turns_find_their_outputs() {
        let heads = Some(Heads { own: 32, padded: 64 });
        let group = GroupPlan::stacked(64, vec![(AdaptedMatrix::Query, 64), (AdaptedMatrix::Key, 32)], heads, 0);
        assert_eq!((group.width, group.cols), (192, 128));
        assert_eq!([0, 31, 32, 64, 127, 128].map(|at| group.columns()[at]), [0, 0, NO_PART, 0, NO_PART, 1]);
        let columns = GroupPlan::interleaved(64, 16).columns();
        assert_eq!([0, 7, 8, 15, 16, 24].map(|at| columns[at]), [0, 0, 1, 1, 0, 1]);
    }
}
