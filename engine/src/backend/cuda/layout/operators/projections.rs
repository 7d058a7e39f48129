//! The products around what mixes tokens: one for all that it reads of a row, one that adds what it made to the
//! residual stream.

use super::operator::WantedProducts;
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::matrix::{MatrixPlan, MatrixUse, Packed, Segments, TensorRows, segments};
use crate::backend::cuda::layout::pack::Heads;
use crate::backend::cuda::layout::products::ProductKind;
use crate::format::Tensor;
use chimere_kernels::cuda::wide::Epilogue;

/// The matrices into an operator and out of it.
pub(crate) struct Projections<M> {
    /// `[rows of all inputs, hidden]`.
    pub(crate) inputs: Segments<M>,
    /// Out-projection into the residual stream, `[hidden, mixed]`.
    pub(crate) out: M,
}

impl<'a> Projections<MatrixPlan<'a>> {
    /// `scale`: what the outputs are multiplied with.
    pub(crate) fn plan(inputs: Vec<TensorRows<'a>>, out: &'a Tensor, hidden: usize, scale: f32) -> Self {
        Self::of_heads(inputs, (out, None), hidden, scale)
    }

    /// Plans the projections of an operator whose mixed rows are heads, with zeros behind each where `heads` asks for
    /// them.
    pub(crate) fn of_heads(
        inputs: Vec<TensorRows<'a>>,
        (out, heads): (&'a Tensor, Option<Heads>),
        hidden: usize,
        scale: f32,
    ) -> Self {
        let out = MatrixPlan::of_heads(MatrixUse::Mixers, out, heads).times(scale);
        Self { inputs: segments(hidden, inputs), out }
    }
}

impl<M> Projections<M> {
    pub(crate) fn map<N>(self, m: &mut impl FnMut(M) -> N) -> Projections<N> {
        Projections { inputs: self.inputs.map(m), out: m(self.out) }
    }
}

impl<M: Packed> Projections<M> {
    /// Adds their products to those that blocks want.
    pub(crate) fn products(&self, hidden: usize, wanted: &mut WantedProducts) -> CudaResult<()> {
        for segment in &self.inputs.parts {
            wanted.kinds.push(ProductKind::dense(&segment.matrix, Epilogue::Plain, Some(hidden))?.adaptable());
        }
        wanted.kinds.push(ProductKind::dense(&self.out, Epilogue::Residual, None)?.adaptable());
        Ok(())
    }
}
