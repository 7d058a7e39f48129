//! A dense feed-forward part, or an expert of many: gate and up or, where a squared ReLU stands between, up alone, and
//! down. A dense part's down is a product into the residual stream; what experts make is summed by whoever chose them.

use super::operator::{OperatorPlan, Setting, WantedProducts};
use crate::adapter::AdaptedMatrix;
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::matrix::{MatrixPlan, MatrixUse, Packed};
use crate::backend::cuda::layout::operators::adapter_groups::GroupPlan;
use crate::backend::cuda::layout::products::ProductKind;
use crate::backend::cuda::layout::shape::Widths;
use crate::model::{Activation, MlpConfig, MlpWeights};
use chimere_kernels::cuda::Program;
use chimere_kernels::cuda::wide::Epilogue;

/// The matrices of an expert, or of a stack of them.
pub(crate) struct ExpertMatrices<M> {
    /// Rows of gate and up in turns of 8: `[2 * width, hidden]`; or of up alone, and zeros up to a multiple of 64.
    pub(crate) gate_up: M,
    /// Down matrix of the expert, `[hidden, width]`.
    pub(crate) down: M,
    /// The function between both matrices.
    pub(crate) activation: Activation,
}

/// Rows of a matrix of up alone: what the experts' kernels do at a time.
const UP_ROWS: usize = 64;

/// What an expert is in its layer.
#[derive(Clone, Copy)]
pub(crate) enum ExpertRole {
    /// One of many, of which a row uses some.
    Routed { used: usize, of: usize },
    /// That of all rows, beside those; `few`: whether few rows have it done with those.
    Shared { few: bool },
    /// A dense feed-forward part, which all rows go through.
    Alone,
}

impl<'a> ExpertMatrices<MatrixPlan<'a>> {
    /// `scale`: what the outputs are multiplied with.
    pub(crate) fn plan(part: MatrixUse, w: &'a MlpWeights, scale: f32) -> Self {
        let gate_up = match &w.gate {
            Some(gate) => MatrixPlan::interleaved(part, gate, &w.up),
            None => MatrixPlan::whole(part, &w.up).in_rows_of(UP_ROWS),
        };
        Self { gate_up, down: MatrixPlan::whole(part, &w.down).times(scale), activation: w.config.activation }
    }
}

impl<'a> ExpertMatrices<MatrixPlan<'a>> {
    /// An expert of zeros of this width, with the matrices' form of `like`.
    pub(crate) fn zeros(part: MatrixUse, like: &'a MlpWeights, width: usize) -> Self {
        let (up, activation) = (&like.up, like.config.activation);
        let rows = if activation.is_gated() { 2 * width } else { width };
        let gate_up = MatrixPlan::zeros(part, up, rows, up.cols());
        Self { gate_up, down: MatrixPlan::zeros(part, &like.down, like.down.rows(), width), activation }
    }
}

impl<M> ExpertMatrices<M> {
    pub(crate) fn map<N>(self, m: &mut impl FnMut(M) -> N) -> ExpertMatrices<N> {
        ExpertMatrices { gate_up: m(self.gate_up), down: m(self.down), activation: self.activation }
    }
}

impl<M: Packed> ExpertMatrices<M> {
    /// Kinds of the two products. `norm`: of how many values the rows that they read have a norm folded in, if any.
    pub(crate) fn kinds(&self, norm: Option<usize>, place: ExpertRole) -> CudaResult<[ProductKind; 2]> {
        let kind = |m: &M, epilogue, norm| match place {
            ExpertRole::Routed { used, of } => ProductKind::routed(m, epilogue, norm, (used, of)),
            ExpertRole::Shared { few } => Ok(ProductKind::dense(m, epilogue, norm)?.beside_experts(few).adaptable()),
            ExpertRole::Alone => Ok(ProductKind::dense(m, epilogue, norm)?.adaptable()),
        };
        let activated = match self.activation {
            Activation::SiluGated => Epilogue::Gated,
            Activation::Relu2 => Epilogue::Squared,
        };
        let last = if matches!(place, ExpertRole::Alone) { Epilogue::Residual } else { Epilogue::Plain };
        let (gate_up, down) = (kind(&self.gate_up, activated, norm)?, kind(&self.down, last, None)?);
        // Hidden rows of a shared expert or a dense part have no place as f16.
        Ok(if let ExpertRole::Routed { .. } = place { [gate_up.feeding(&down), down] } else { [gate_up, down] })
    }

    /// Values between the matrices, with those that are zeros.
    pub(crate) fn width(&self) -> usize {
        let rows = self.gate_up.form().rows;
        if self.activation.is_gated() { rows / 2 } else { rows }
    }
}

impl OperatorPlan for MlpConfig {
    type Source = MlpWeights;
    type Weights<M, V> = ExpertMatrices<M>;

    fn check(&self) -> CudaResult<()> {
        Ok(())
    }

    fn widths(&self) -> Widths {
        Widths { shared: self.width, ..Widths::default() }
    }

    fn plan(w: &MlpWeights, scale: f32) -> ExpertMatrices<MatrixPlan<'_>> {
        ExpertMatrices::plan(MatrixUse::Shared, w, scale)
    }

    fn map<M, V, N, W>(
        w: ExpertMatrices<M>,
        matrix: &mut impl FnMut(M) -> N,
        _: &mut impl FnMut(V) -> W,
    ) -> ExpertMatrices<N> {
        w.map(matrix)
    }

    fn products<M: Packed, V>(
        &self,
        w: &ExpertMatrices<M>,
        hidden: usize,
        wanted: &mut WantedProducts,
    ) -> CudaResult<()> {
        wanted.kinds.extend(w.kinds(Some(hidden), ExpertRole::Alone)?);
        Ok(())
    }

    fn adapter_groups(&self, hidden: usize) -> [Option<GroupPlan>; 2] {
        let gate_up = || GroupPlan::interleaved(hidden, self.width);
        let down = || GroupPlan::whole(AdaptedMatrix::Down, self.width, hidden);
        let gated = self.activation.is_gated();
        [gated.then(gate_up), gated.then(down)]
    }

    fn programs(&self, _: &Setting) -> CudaResult<Vec<Program>> {
        Ok(Vec::new())
    }
}
