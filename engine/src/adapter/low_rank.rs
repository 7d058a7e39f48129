//! The change of one matrix by an adapter, laid out for vectors of sixteen lanes.

use super::AdaptedMatrix;
use super::lanes::{LINE, LaneMatrix};

/// What is added to the product of one matrix: `scale * B (A x)`.
#[derive(Clone, Debug)]
pub struct LowRank {
    /// The matrix of the block.
    pub matrix: AdaptedMatrix,
    /// How many rows A has.
    pub rank: usize,
    /// What the product is multiplied with.
    pub scale: f32,
    /// Rows of B and columns of A.
    size: (usize, usize),
    /// A with its rows as lanes: a row's product with all of A grows in lanes, which no sum ever mixes.
    a: LaneMatrix,
    /// B with its rows as lanes, which are those of the model's matrix.
    b: LaneMatrix,
}

impl LowRank {
    /// The change by `a`, `[rank, in]`, and `b`, `[out, rank]`.
    pub fn new(matrix: AdaptedMatrix, rank: usize, scale: f32, a: &[f32], b: &[f32]) -> Self {
        let size = (b.len() / rank, a.len() / rank);
        Self { matrix, rank, scale, size, a: LaneMatrix::new(a, size.1), b: LaneMatrix::new(b, rank) }
    }

    /// Rows of the matrix that it changes.
    pub fn out(&self) -> usize {
        self.size.0
    }

    /// Columns of the matrix that it changes.
    pub fn inputs(&self) -> usize {
        self.size.1
    }

    /// Lanes that the rank takes, in whole lines.
    pub(crate) fn rank_lanes(&self) -> usize {
        self.rank.next_multiple_of(LINE)
    }

    /// The matrix A, `[rank, in]`.
    pub(crate) fn a(&self) -> &LaneMatrix {
        &self.a
    }

    /// The matrix B, `[out, rank]`.
    pub(crate) fn b(&self) -> &LaneMatrix {
        &self.b
    }

    /// Both matrices, A first.
    pub(super) fn matrices(&mut self) -> [&mut LaneMatrix; 2] {
        [&mut self.a, &mut self.b]
    }

    /// Bytes of both matrices in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.a.bytes() + self.b.bytes()
    }
}
