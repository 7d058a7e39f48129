//! Attention of one head: every row of a text looks at all of them.

use super::kernels::softmax;
use crate::backend::cpu::simd::gemm::{Gemm, Start};
use crate::backend::cpu::simd::{Kernel, LANES, Lanes, run};

/// A layer's queries, keys and values, `[rows, hidden]` each.
pub(super) struct LayerHeads<'a> {
    pub(super) rows: usize,
    pub(super) hidden: usize,
    pub(super) dim: usize,
    pub(super) query: &'a [f32],
    pub(super) key: &'a [f32],
    pub(super) value: &'a [f32],
}

/// Buffers of one text, for one head after the other.
pub(super) struct ScoreBuffers {
    /// `[dim, columns]`: keys as columns.
    keys: Vec<f32>,
    /// Scores of one head, `[rows, columns]`.
    scores: Vec<f32>,
    /// Rows in whole vectors.
    columns: usize,
}

impl ScoreBuffers {
    /// For so many rows and heads of this width.
    pub(super) fn new(rows: usize, dim: usize) -> Self {
        let columns = rows.next_multiple_of(LANES);
        Self { keys: vec![0.0; dim * columns], scores: vec![0.0; rows * columns], columns }
    }
}

impl LayerHeads<'_> {
    /// Writes what head `head` finds into its columns of `out`, which is `[rows, hidden]`.
    pub(super) fn attend(&self, head: usize, scores: &mut ScoreBuffers, out: &mut [f32]) {
        let start = head * self.dim;
        for row in 0..self.rows {
            let key = &self.key[row * self.hidden + start..][..self.dim];
            key.iter().enumerate().for_each(|(k, x)| scores.keys[k * scores.columns + row] = *x);
        }
        run(Attend { heads: self, start, scores, out });
    }
}

struct Attend<'a> {
    heads: &'a LayerHeads<'a>,
    /// First column of the head.
    start: usize,
    scores: &'a mut ScoreBuffers,
    out: &'a mut [f32],
}

impl Kernel for Attend<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) {
        let LayerHeads { rows, hidden, dim, .. } = *self.heads;
        let ScoreBuffers { keys, scores, columns } = self.scores;
        let (columns, factor) = (*columns, 1.0 / (dim as f32).sqrt());
        let (query, value, out) =
            (&self.heads.query[self.start..], &self.heads.value[self.start..], &mut self.out[self.start..]);
        // SAFETY: the caller's.
        unsafe {
            let start = Start::Zero;
            Gemm {
                m: rows,
                n: columns,
                k: dim,
                a: query,
                lda: hidden,
                b: keys,
                ldb: columns,
                c: scores,
                ldc: columns,
                start,
            }
            .run::<L>();
            for row in scores.chunks_exact_mut(columns) {
                softmax::<L>(row, rows, factor);
            }
            Gemm {
                m: rows,
                n: dim,
                k: rows,
                a: scores,
                lda: columns,
                b: value,
                ldb: hidden,
                c: out,
                ldc: hidden,
                start,
            }
            .run::<L>();
        }
    }
}
