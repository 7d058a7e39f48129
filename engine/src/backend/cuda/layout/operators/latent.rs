//! What stands around routed experts whose rows have a width of their own: a matrix brings a row of the stream there,
//! and another one brings the weighed sum of what the experts made back into the stream.

use super::operator::WantedProducts;
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::matrix::{MatrixPlan, MatrixUse, Packed};
use crate::backend::cuda::layout::products::ProductKind;
use crate::model::LatentWeights;
use chimere_kernels::cuda::quantized::BLOCK;
use chimere_kernels::cuda::wide::Epilogue;

/// The two matrices around experts whose rows have a width of their own.
pub(crate) struct LatentMatrices<M> {
    /// `[latent, hidden]`, and zeros up to whole blocks of the int8 form.
    pub(crate) into: M,
    /// Matrix that brings the sum of the experts back to the width of the stream, `[hidden, latent]`.
    pub(crate) back: M,
}

impl<'a> LatentMatrices<MatrixPlan<'a>> {
    /// `scale`: what the outputs are multiplied with.
    pub(crate) fn plan(w: &'a LatentWeights, scale: f32) -> Self {
        let into = MatrixPlan::whole(MatrixUse::Mixers, &w.into).in_rows_of(BLOCK);
        Self { into, back: MatrixPlan::whole(MatrixUse::Mixers, &w.back).times(scale) }
    }
}

impl<M> LatentMatrices<M> {
    pub(crate) fn map<N>(self, m: &mut impl FnMut(M) -> N) -> LatentMatrices<N> {
        LatentMatrices { into: m(self.into), back: m(self.back) }
    }
}

impl<M: Packed> LatentMatrices<M> {
    /// Adds their products to those that blocks want.
    pub(crate) fn products(&self, hidden: usize, wanted: &mut WantedProducts) -> CudaResult<()> {
        wanted.kinds.extend(self.kinds(hidden)?);
        Ok(())
    }

    pub(crate) fn kinds(&self, hidden: usize) -> CudaResult<[ProductKind; 2]> {
        let into = ProductKind::dense(&self.into, Epilogue::Rounded, Some(hidden))?;
        Ok([into, ProductKind::dense(&self.back, Epilogue::Residual, None)?])
    }
}
