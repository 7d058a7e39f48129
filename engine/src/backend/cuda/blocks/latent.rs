//! What stands around routed experts whose rows have a width of their own: a matrix brings a row of the stream there,
//! and another one brings the weighed sum of what the experts made back into the stream.

use super::BlockPass;
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::operators::latent::LatentMatrices;
use crate::backend::cuda::rank::products::{Product, ProductKernels};
use crate::backend::cuda::rank::weights::Matrix;
use crate::backend::cuda::rank::workspace::Workspace;
use chimere_kernels::cuda::rows::padded;
use chimere_kernels::cuda::wide::{Columns, Output};

/// They on the device, with their products.
pub(crate) struct BoundLatent {
    pub(crate) into: Matrix,
    into_product: Product,
    back: Matrix,
    back_product: Product,
    width: usize,
}

impl BoundLatent {
    /// Loads their products for experts of rows of `width`.
    pub(crate) fn new(
        products: &mut ProductKernels<'_>,
        weights: LatentMatrices<Matrix>,
        (hidden, width): (usize, usize),
    ) -> CudaResult<Self> {
        let [into, back] = weights.kinds(hidden)?;
        let (into_product, back_product) = (products.of(into)?, products.of(back)?);
        let LatentMatrices { into, back } = weights;
        Ok(Self { into, into_product, back, back_product, width })
    }

    /// Rows of the stream into [`Workspace::latent`].
    pub(crate) fn enter(&self, at: BlockPass<'_>, work: &mut Workspace) -> CudaResult<()> {
        let x = work.stream.rows.read(at.eps);
        let (mut codes, mut meta) = work.latent.views_mut();
        let out = Output::Activated { codes: &mut codes, meta: &mut meta, stride: padded(self.width) };
        let columns = Columns::First(at.pass.rows.count);
        // SAFETY: the columns are not listed.
        unsafe { self.into_product.launch(at.device, at.pass.rows, &self.into, &x.source(), columns, out) }
    }

    /// The sums in [`Workspace::latent`] into the stream.
    pub(crate) fn leave(&self, at: BlockPass<'_>, work: &mut Workspace) -> CudaResult<()> {
        work.stream.add_product(at.device, at.pass.rows, (&self.back_product, &self.back), &work.latent, at.next)
    }
}
