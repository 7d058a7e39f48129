//! The products around what mixes tokens: one for all that it reads of a row, one that adds what it made to the
//! residual stream.

use super::{BlockPass, FirstMatrix};
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::operators::projections::Projections;
use crate::backend::cuda::layout::products::{ProductKind, RowCount};
use crate::backend::cuda::rank::products::{Product, ProductKernels, Stacked};
use crate::backend::cuda::rank::weights::Matrix;
use crate::backend::cuda::rank::workspace::Workspace;
use chimere_kernels::cuda::rows::padded;
use chimere_kernels::cuda::wide::{Epilogue, Source};

/// Their matrices on the device, with the products.
pub(crate) struct BoundProjections {
    inputs: Stacked,
    out: Matrix,
    out_product: Product,
    /// Whether rows of prompts may be f16 where they are mixed.
    may_mix_halves: bool,
}

impl BoundProjections {
    /// Loads their products with the matrices on the device.
    pub(crate) fn new(
        products: &mut ProductKernels<'_>,
        weights: Projections<Matrix>,
        hidden: usize,
    ) -> CudaResult<Self> {
        let Projections { inputs, out } = weights;
        let inputs = Stacked::new(products, inputs, hidden)?;
        let out_product = products.of(ProductKind::dense(&out, Epilogue::Residual, None)?.adaptable())?;
        Ok(Self { inputs, out_product, out, may_mix_halves: false })
    }

    /// Lets prompt rows be mixed as f16, for an operator that can write such rows of this width: the width must be a
    /// whole number of blocks, so that nothing stands behind the values.
    pub(crate) fn mixing_halves(self, width: usize) -> Self {
        Self { may_mix_halves: width == padded(width), ..self }
    }

    /// Whether the pass's rows are f16 where they are mixed, in [`Workspace::made`] and not in [`Workspace::mixed`].
    pub(crate) fn mixes_halves(&self, at: BlockPass<'_>) -> bool {
        self.may_mix_halves && at.pass.prompts.is_some() && self.out_product.takes_halves(at.pass.rows)
    }

    /// The first of the in-projections, with the place where such rows become f16 for it, if they do.
    pub(crate) fn first(&self, rows: RowCount) -> FirstMatrix<'_> {
        FirstMatrix { matrix: self.inputs.first(), halves: self.inputs.half_place(rows) }
    }

    /// From the residual stream into [`Workspace::inputs`].
    pub(crate) fn read(&self, at: BlockPass<'_>, work: &mut Workspace) -> CudaResult<()> {
        self.read_as(at, work, false)
    }

    /// Multiplies the residual stream with the in-projections, into [`Workspace::inputs`]; `halves` writes f16 there,
    /// for an operator that reads such rows.
    pub(crate) fn read_as(&self, at: BlockPass<'_>, work: &mut Workspace, halves: bool) -> CudaResult<()> {
        let rows = work.stream.rows.read(at.eps);
        let out = (&mut work.inputs.as_view_mut(), halves);
        self.inputs.launch(at.device, at.pass.rows, at.adapted_inputs(rows.source())?, out)
    }

    /// From the mixed rows into the residual stream.
    pub(crate) fn write(&self, at: BlockPass<'_>, work: &mut Workspace) -> CudaResult<()> {
        let (codes, meta) = work.mixed.views();
        let x = at.adapted_output(Source::plain(&codes, &meta).made(self.mixes_halves(at).then_some(&work.made)))?;
        work.stream.add_product_of(at.device, at.pass.rows, (&self.out_product, &self.out), &x, at.next)
    }

    /// Adds the mixed rows to the residual stream where another operator has yet to read what this one read of it.
    pub(crate) fn write_aside(&self, at: BlockPass<'_>, work: &mut Workspace) -> CudaResult<()> {
        work.stream.turn();
        let written = self.write(at, work);
        work.stream.turn();
        written
    }
}
