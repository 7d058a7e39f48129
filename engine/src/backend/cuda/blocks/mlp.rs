//! A dense feed-forward part, or an expert of many: gate and up or, where a squared ReLU stands between, up alone, and
//! down. A dense part's down is a product into the residual stream; what experts make is summed by whoever chose them.

use super::{BlockPass, Operator, Setting, WantedProducts};
use crate::backend::cuda::error::CudaBackendError;
use crate::backend::cuda::matrices::{Kernels as Products, Product, ProductKind};
use crate::backend::cuda::plan::{MatrixPlan, MatrixUse};
use crate::backend::cuda::shape::Widths;
use crate::backend::cuda::store::Store;
use crate::backend::cuda::weights::{Matrix, Packed};
use crate::backend::cuda::workspace::{Quantized, Workspace};
use crate::model::{Activation, MlpConfig, MlpWeights};
use chimere_kernels::cuda::rows::padded;
use chimere_kernels::cuda::wide::{Columns, Epilogue, Output, Source};
use chimere_kernels::cuda::{Device, KernelCache, Program};
use cudarc::driver::CudaViewMut;

/// The matrices of an expert, or of a stack of them.
pub(in crate::backend::cuda) struct ExpertMatrices<M = Matrix> {
    /// Rows of gate and up in turns of 8: `[2 * width, hidden]`; or of up alone, and zeros up to a multiple of 64.
    pub(in crate::backend::cuda) gate_up: M,
    /// `[hidden, width]`.
    pub(in crate::backend::cuda) down: M,
    /// What stands between.
    pub(in crate::backend::cuda) activation: Activation,
}

/// Rows of a matrix of up alone: what the experts' kernels do at a time.
const UP_ROWS: usize = 64;

/// What an expert is in its layer.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// One of many, of which a row uses some.
    Routed { used: usize, of: usize },
    /// That of all rows, beside those; `few`: whether few rows have it done with those.
    Shared { few: bool },
    /// A dense part.
    Alone,
}

/// They on the device, with their products.
pub(in crate::backend::cuda) struct Bound {
    pub(super) weights: ExpertMatrices,
    pub(super) gate_up: Product,
    pub(super) down: Product,
    width: usize,
}

impl<'a> ExpertMatrices<MatrixPlan<'a>> {
    /// `scale`: what the outputs are multiplied with.
    pub(super) fn plan(part: MatrixUse, w: &'a MlpWeights, scale: f32) -> Self {
        let gate_up = match &w.gate {
            Some(gate) => MatrixPlan::interleaved(part, gate, &w.up),
            None => MatrixPlan::whole(part, &w.up).in_rows_of(UP_ROWS),
        };
        Self { gate_up, down: MatrixPlan::whole(part, &w.down).times(scale), activation: w.config.activation }
    }
}

impl<M> ExpertMatrices<M> {
    pub(super) fn map<N>(self, m: &mut impl FnMut(M) -> N) -> ExpertMatrices<N> {
        ExpertMatrices { gate_up: m(self.gate_up), down: m(self.down), activation: self.activation }
    }
}

impl<M: Packed> ExpertMatrices<M> {
    /// Kinds of the two products. `norm`: of how many values the rows that they read have a norm folded in, if any.
    pub(super) fn kinds(&self, norm: Option<usize>, place: Place) -> Result<[ProductKind; 2], CudaBackendError> {
        let kind = |m: &M, epilogue, norm| match place {
            Place::Routed { used, of } => ProductKind::routed(m, epilogue, norm, (used, of)),
            Place::Shared { few } => ProductKind::dense(m, epilogue, norm).map(|kind| kind.beside_experts(few)),
            Place::Alone => ProductKind::dense(m, epilogue, norm),
        };
        let activated = match self.activation {
            Activation::SiluGated => Epilogue::Gated,
            Activation::Relu2 => Epilogue::Squared,
        };
        let last = if matches!(place, Place::Alone) { Epilogue::Residual } else { Epilogue::Plain };
        let (gate_up, down) = (kind(&self.gate_up, activated, norm)?, kind(&self.down, last, None)?);
        // Hidden rows of a shared expert or a dense part have no place as f16.
        Ok(if let Place::Routed { .. } = place { [gate_up.feeding(&down), down] } else { [gate_up, down] })
    }

    /// Values between the matrices, with those that are zeros.
    pub(super) fn width(&self) -> usize {
        let rows = self.gate_up.form().rows;
        if self.activation.is_gated() { rows / 2 } else { rows }
    }
}

impl Bound {
    /// Loads the products of an expert, or of a stack of them, of this width.
    pub(super) fn new(
        products: &mut Products<'_>,
        weights: ExpertMatrices,
        (norm, width): (Option<usize>, usize),
        place: Place,
    ) -> Result<Self, CudaBackendError> {
        let [gate_up, down] = weights.kinds(norm, place)?;
        Ok(Self { gate_up: products.of(gate_up)?, down: products.of(down)?, weights, width })
    }

    /// All rows through the shared expert, into [`Workspace::shared_out`].
    pub(super) fn launch_shared(&self, at: BlockPass<'_>, work: &mut Workspace) -> Result<(), CudaBackendError> {
        let x = work.stream.rows.read(at.eps);
        self.launch_gate_up(at, &x.source(), &mut work.shared_hidden)?;
        self.launch_down(at, &work.shared_hidden, &mut work.shared_out.as_view_mut())
    }

    /// Gate and up of all rows, or up alone.
    pub(super) fn launch_gate_up(
        &self,
        at: BlockPass<'_>,
        x: &Source<'_>,
        hidden: &mut Quantized,
    ) -> Result<(), CudaBackendError> {
        let (rows, columns) = (at.pass.rows, Columns::First(at.pass.rows.count));
        let (mut codes, mut meta) = hidden.views_mut();
        let out = Output::Activated { codes: &mut codes, meta: &mut meta, stride: padded(self.width) };
        // SAFETY: the columns are not listed.
        unsafe { self.gate_up.launch(at.device, rows, &self.weights.gate_up, x, columns, out) }
    }

    /// What follows it.
    pub(super) fn launch_down(
        &self,
        at: BlockPass<'_>,
        hidden: &Quantized,
        values: &mut CudaViewMut<'_, f32>,
    ) -> Result<(), CudaBackendError> {
        let (rows, columns) = (at.pass.rows, Columns::First(at.pass.rows.count));
        let (codes, meta) = hidden.views();
        let out = Output::Plain { values, stride: at.hidden };
        // SAFETY: the columns are not listed.
        unsafe { self.down.launch(at.device, rows, &self.weights.down, &Source::plain(&codes, &meta), columns, out) }
    }
}

impl Operator for MlpConfig {
    type Source = MlpWeights;
    type Weights<M, V> = ExpertMatrices<M>;
    type Bound = Bound;
    type Kernels = ();

    fn check(&self) -> Result<(), CudaBackendError> {
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
    ) -> Result<(), CudaBackendError> {
        wanted.kinds.extend(w.kinds(Some(hidden), Place::Alone)?);
        Ok(())
    }

    fn programs(&self, _: &Setting) -> Result<Vec<Program>, CudaBackendError> {
        Ok(Vec::new())
    }

    fn load(&self, _: &Device, _: &KernelCache, _: &Setting) -> Result<(), CudaBackendError> {
        Ok(())
    }

    fn bind(&self, w: ExpertMatrices, products: &mut Products<'_>, hidden: usize) -> Result<Bound, CudaBackendError> {
        Bound::new(products, w, (Some(hidden), self.width), Place::Alone)
    }

    fn first(bound: &Bound) -> &Matrix {
        &bound.weights.gate_up
    }

    fn launch(
        bound: &Bound,
        _kernels: &mut (),
        at: BlockPass<'_>,
        _store: &mut Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        let x = work.stream.rows.read(at.eps);
        bound.launch_gate_up(at, &x.source(), &mut work.shared_hidden)?;
        let down = (&bound.down, &bound.weights.down);
        work.stream.add_product(at.device, at.pass.rows, down, &work.shared_hidden, at.next)
    }
}
