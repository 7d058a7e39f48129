//! What stands around routed experts whose rows have a width of their own: a matrix brings a row of the stream there,
//! and another one brings the weighed sum of what the experts made back into the stream.

use super::{BlockPass, WantedProducts};
use crate::backend::cuda::error::CudaBackendError;
use crate::backend::cuda::matrices::{Kernels as Products, Product, ProductKind};
use crate::backend::cuda::plan::{MatrixPlan, MatrixUse};
use crate::backend::cuda::weights::{Matrix, Packed};
use crate::backend::cuda::workspace::Workspace;
use crate::model::LatentWeights;
use chimere_kernels::cuda::quantized::BLOCK;
use chimere_kernels::cuda::rows::padded;
use chimere_kernels::cuda::wide::{Columns, Epilogue, Output};

/// The two matrices.
pub(in crate::backend::cuda) struct LatentMatrices<M> {
    /// `[latent, hidden]`, and zeros up to whole blocks of the int8 form.
    pub(super) into: M,
    /// `[hidden, latent]`.
    back: M,
}

/// They on the device, with their products.
pub(super) struct BoundLatent {
    pub(super) into: Matrix,
    into_product: Product,
    back: Matrix,
    back_product: Product,
    width: usize,
}

impl<'a> LatentMatrices<MatrixPlan<'a>> {
    /// `scale`: what the outputs are multiplied with.
    pub(super) fn plan(w: &'a LatentWeights, scale: f32) -> Self {
        let into = MatrixPlan::whole(MatrixUse::Mixers, &w.into).in_rows_of(BLOCK);
        Self { into, back: MatrixPlan::whole(MatrixUse::Mixers, &w.back).times(scale) }
    }
}

impl<M> LatentMatrices<M> {
    pub(super) fn map<N>(self, m: &mut impl FnMut(M) -> N) -> LatentMatrices<N> {
        LatentMatrices { into: m(self.into), back: m(self.back) }
    }
}

impl<M: Packed> LatentMatrices<M> {
    /// Adds their products to those that blocks want.
    pub(super) fn products(&self, hidden: usize, wanted: &mut WantedProducts) -> Result<(), CudaBackendError> {
        wanted.kinds.extend(self.kinds(hidden)?);
        Ok(())
    }

    fn kinds(&self, hidden: usize) -> Result<[ProductKind; 2], CudaBackendError> {
        let into = ProductKind::dense(&self.into, Epilogue::Rounded, Some(hidden))?;
        Ok([into, ProductKind::dense(&self.back, Epilogue::Residual, None)?])
    }
}

impl BoundLatent {
    /// Loads their products for experts of rows of `width`.
    pub(super) fn new(
        products: &mut Products<'_>,
        weights: LatentMatrices<Matrix>,
        (hidden, width): (usize, usize),
    ) -> Result<Self, CudaBackendError> {
        let [into, back] = weights.kinds(hidden)?;
        let (into_product, back_product) = (products.of(into)?, products.of(back)?);
        let LatentMatrices { into, back } = weights;
        Ok(Self { into, into_product, back, back_product, width })
    }

    /// Rows of the stream into [`Workspace::latent`].
    pub(super) fn enter(&self, at: BlockPass<'_>, work: &mut Workspace) -> Result<(), CudaBackendError> {
        let x = work.stream.rows.read(at.eps);
        let (mut codes, mut meta) = work.latent.views_mut();
        let out = Output::Activated { codes: &mut codes, meta: &mut meta, stride: padded(self.width) };
        let columns = Columns::First(at.pass.rows.count);
        // SAFETY: the columns are not listed.
        unsafe { self.into_product.launch(at.device, at.pass.rows, &self.into, &x.source(), columns, out) }
    }

    /// The sums in [`Workspace::latent`] into the stream.
    pub(super) fn leave(&self, at: BlockPass<'_>, work: &mut Workspace) -> Result<(), CudaBackendError> {
        work.stream.add_product(at.device, at.pass.rows, (&self.back_product, &self.back), &work.latent, at.next)
    }
}
