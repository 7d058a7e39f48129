//! What a launch of the router reads and writes.

use super::shape::USED_MAX;
use crate::cuda::CudaError;
use crate::cuda::rows::fits;
use crate::reference::ExpertCut;
use cudarc::driver::{CudaView, CudaViewMut};

/// Weights of one layer.
#[derive(Clone, Copy)]
pub struct LayerWeights<'a> {
    /// `[cols]`, the factor of the norm before the router.
    pub norm: &'a CudaView<'a, f32>,
    /// Weights of the router, `[experts, cols]`.
    pub experts: &'a CudaView<'a, f32>,
    /// Weights of the shared expert's gate, `[cols]`.
    pub shared_gate: &'a CudaView<'a, f32>,
    /// `[experts]`, where experts are chosen by sigmoids.
    pub bias: Option<&'a CudaView<'a, f32>>,
    /// Epsilon of the norm before the router.
    pub eps: f32,
}

impl LayerWeights<'_> {
    /// Whether those of `experts` experts and rows of `cols` values are there, for a kernel of this name; with biases
    /// where it chooses by sigmoids.
    pub(in crate::cuda) fn check(
        &self,
        kernel: &'static str,
        experts: usize,
        cols: usize,
        sigmoid: bool,
    ) -> Result<(), CudaError> {
        fits(kernel, "the biases", self.bias.map_or(0, |bias| bias.len()), if sigmoid { experts } else { 0 })?;
        fits(kernel, "the norm", self.norm.len(), cols)?;
        fits(kernel, "the weights", self.experts.len(), experts * cols)?;
        fits(kernel, "the shared gate", self.shared_gate.len(), cols)
    }
}

/// The rows of a step that are routed.
#[derive(Clone, Copy)]
pub struct RouterRows<'a> {
    /// Number of rows, padding rows included.
    pub count: usize,
    /// `[rows]`; below 0: no row.
    pub slots: &'a CudaView<'a, i32>,
    /// Residual stream before the norm, `[rows, cols]`.
    pub x: &'a CudaView<'a, f32>,
    /// `[rows, cols / 32]`, as [`crate::cuda::rows`] says.
    pub squares: &'a CudaView<'a, f32>,
    /// How few experts rows may do with; `None` where all take all.
    pub cuts: Option<Cuts<'a>>,
}

/// An [`ExpertCut`] for each row.
#[derive(Clone, Copy)]
pub struct Cuts<'a> {
    /// `[rows, 2]`, as [`cut_words`] makes them; aligned to 8 bytes.
    pub words: &'a CudaView<'a, i32>,
    /// One word, to which the numbers of experts that rows with a cut keep are added.
    pub tally: &'a CudaView<'a, u32>,
}

impl Cuts<'_> {
    /// Whether those of `rows` rows are there, for a kernel of this name.
    pub(in crate::cuda) fn check(&self, kernel: &'static str, rows: usize) -> Result<(), CudaError> {
        fits(kernel, "the cuts", self.words.len(), 2 * rows)?;
        fits(kernel, "the tally", self.tally.len(), 1)
    }
}

/// A row's words in [`Cuts`]; a row without a cut has zeros.
pub fn cut_words(cut: Option<&ExpertCut>) -> [i32; 2] {
    // More than a row uses is as good as what it uses.
    let part = |n: u32| n.min(USED_MAX as u32) as i32;
    cut.map_or([0; 2], |c| [part(c.min) | part(c.max) << 16, c.mass.to_bits() as i32])
}

/// The experts that rows were given, and their weights.
pub struct ChosenExperts<'a, 'b> {
    /// `[rows, used]`, best first; -1 in padding rows, and behind those that a cut leaves.
    pub experts: &'a mut CudaViewMut<'b, i32>,
    /// `[rows, used + 1]`: weights of those experts, which add up to one, then the shared expert's; 0 in rows that are
    /// none, and of experts that were cut away.
    pub gates: &'a mut CudaViewMut<'b, f32>,
}

/// Lists that a launch writes: the rows that go to each expert.
pub struct Groups<'a, 'b> {
    /// `[experts, 4]`: `{expert, first, count, 0}`.
    pub slots: &'a mut CudaViewMut<'b, i32>,
    /// `[rows * used]`: rows of expert 0 in order, then those of expert 1, and so on. Padding rows are nowhere;
    /// what lies behind the last stays as it is.
    pub in_rows: &'a mut CudaViewMut<'b, i32>,
    /// `[rows * used]`: the pair `row * used + k` beside each.
    pub out_rows: &'a mut CudaViewMut<'b, i32>,
    /// Where it is not 0, lists are `[experts, pitch]` and each expert's stand from `expert * pitch` on, in any order
    /// where rows are more than [`super::Variant::Few`] takes. At least as many as there are rows, of which there are
    /// at most [`super::GROUPED_ROWS`].
    pub pitch: usize,
}
