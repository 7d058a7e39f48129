//! The products around what mixes tokens: one for all that it reads of a row, one that adds what it made to the
//! residual stream.

use super::{BlockPass, WantedProducts};
use crate::backend::cuda::error::CudaBackendError;
use crate::backend::cuda::matrices::{Kernels as Products, Product, ProductKind, RowCount, Stacked};
use crate::backend::cuda::pack::Heads;
use crate::backend::cuda::plan::{MatrixPlan, MatrixUse, TensorRows, segments};
use crate::backend::cuda::weights::{Matrix, Packed, Segments};
use crate::backend::cuda::workspace::Workspace;
use crate::format::Tensor;
use chimere_kernels::cuda::rows::padded;
use chimere_kernels::cuda::wide::{Epilogue, HalfPlace, Source};

/// The matrices into an operator and out of it.
pub(in crate::backend::cuda) struct Projections<M> {
    /// `[rows of all inputs, hidden]`.
    pub(in crate::backend::cuda) inputs: Segments<M>,
    /// `[hidden, mixed]`.
    pub(in crate::backend::cuda) out: M,
}

/// Their matrices on the device, with the products.
pub(super) struct BoundProjections {
    inputs: Stacked,
    out: Matrix,
    out_product: Product,
    /// Whether rows of prompts may be f16 where they are mixed.
    may_mix_halves: bool,
}

impl<'a> Projections<MatrixPlan<'a>> {
    /// `scale`: what the outputs are multiplied with.
    pub(super) fn plan(inputs: Vec<TensorRows<'a>>, out: &'a Tensor, hidden: usize, scale: f32) -> Self {
        Self::of_heads(inputs, (out, None), hidden, scale)
    }

    /// The same of heads that have zeros behind them.
    pub(super) fn of_heads(
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
    pub(super) fn map<N>(self, m: &mut impl FnMut(M) -> N) -> Projections<N> {
        Projections { inputs: self.inputs.map(m), out: m(self.out) }
    }
}

impl<M: Packed> Projections<M> {
    /// Adds their products to those that blocks want.
    pub(super) fn products(&self, hidden: usize, wanted: &mut WantedProducts) -> Result<(), CudaBackendError> {
        for segment in &self.inputs.parts {
            wanted.kinds.push(ProductKind::dense(&segment.matrix, Epilogue::Plain, Some(hidden))?);
        }
        wanted.kinds.push(ProductKind::dense(&self.out, Epilogue::Residual, None)?);
        Ok(())
    }
}

impl BoundProjections {
    /// Loads their products with the matrices on the device.
    pub(super) fn new(
        products: &mut Products<'_>,
        weights: Projections<Matrix>,
        hidden: usize,
    ) -> Result<Self, CudaBackendError> {
        let Projections { inputs, out } = weights;
        let inputs = Stacked::new(products, inputs, hidden)?;
        let out_product = products.of(ProductKind::dense(&out, Epilogue::Residual, None)?)?;
        Ok(Self { inputs, out_product, out, may_mix_halves: false })
    }

    /// The same of an operator that can make f16 of a prompt's mixed rows of this width, with nothing behind them.
    pub(super) fn mixing_halves(self, width: usize) -> Self {
        Self { may_mix_halves: width == padded(width), ..self }
    }

    /// Whether the pass's rows are f16 where they are mixed, in [`Workspace::made`] and not in [`Workspace::mixed`].
    pub(super) fn mixes_halves(&self, at: BlockPass<'_>) -> bool {
        self.may_mix_halves && at.pass.prompts.is_some() && self.out_product.takes_halves(at.pass.rows)
    }

    /// The matrix that is read first.
    pub(super) fn first(&self) -> &Matrix {
        self.inputs.first()
    }

    /// Where such rows of the stream become f16 for what reads them first, if they do.
    pub(super) fn half_place(&self, rows: RowCount) -> Option<&HalfPlace> {
        self.inputs.half_place(rows)
    }

    /// From the residual stream into [`Workspace::inputs`].
    pub(super) fn read(&self, at: BlockPass<'_>, work: &mut Workspace) -> Result<(), CudaBackendError> {
        self.read_as(at, work, false)
    }

    /// The same, as f16 for an operator that takes such rows.
    pub(super) fn read_as(
        &self,
        at: BlockPass<'_>,
        work: &mut Workspace,
        halves: bool,
    ) -> Result<(), CudaBackendError> {
        let rows = work.stream.rows.read(at.eps);
        let out = (&mut work.inputs.as_view_mut(), halves);
        self.inputs.launch(at.device, at.pass.rows, &rows.source(), out)
    }

    /// From the mixed rows into the residual stream.
    pub(super) fn write(&self, at: BlockPass<'_>, work: &mut Workspace) -> Result<(), CudaBackendError> {
        let (codes, meta) = work.mixed.views();
        let x = Source::plain(&codes, &meta).made(self.mixes_halves(at).then_some(&work.made));
        work.stream.add_product_of(at.device, at.pass.rows, (&self.out_product, &self.out), &x, at.next)
    }

    /// The same where another operator has yet to read what this one read of the stream.
    pub(super) fn write_aside(&self, at: BlockPass<'_>, work: &mut Workspace) -> Result<(), CudaBackendError> {
        work.stream.turn();
        let written = self.write(at, work);
        work.stream.turn();
        written
    }
}
