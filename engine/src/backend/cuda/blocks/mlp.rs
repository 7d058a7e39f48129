//! A dense feed-forward part, or an expert of many: gate and up or, where a squared ReLU stands between, up alone, and
//! down. A dense part's down is a product into the residual stream; what experts make is summed by whoever chose them.

use super::{BlockPass, FirstMatrix, LoadedWeights, OperatorRun};
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::operators::mlp::{ExpertMatrices, ExpertRole};
use crate::backend::cuda::layout::operators::operator::Setting;
use crate::backend::cuda::layout::products::RowCount;
use crate::backend::cuda::rank::memory::RankMemory;
use crate::backend::cuda::rank::products::{Product, ProductKernels};
use crate::backend::cuda::rank::quantized::Quantized;
use crate::backend::cuda::rank::weights::Matrix;
use crate::backend::cuda::rank::workspace::Workspace;
use crate::model::MlpConfig;
use chimere_kernels::cuda::rows::padded;
use chimere_kernels::cuda::wide::{Columns, Output, Source};
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::CudaViewMut;

/// They on the device, with their products.
pub(crate) struct BoundMlp {
    pub(crate) weights: ExpertMatrices<Matrix>,
    pub(crate) gate_up: Product,
    pub(crate) down: Product,
    width: usize,
}

impl BoundMlp {
    /// Loads the products of an expert, or of a stack of them, of this width.
    pub(crate) fn new(
        products: &mut ProductKernels<'_>,
        weights: ExpertMatrices<Matrix>,
        (norm, width): (Option<usize>, usize),
        place: ExpertRole,
    ) -> CudaResult<Self> {
        let [gate_up, down] = weights.kinds(norm, place)?;
        Ok(Self { gate_up: products.of(gate_up)?, down: products.of(down)?, weights, width })
    }

    /// All rows through the shared expert, into [`Workspace::shared_out`].
    pub(crate) fn launch_shared(&self, at: BlockPass<'_>, work: &mut Workspace) -> CudaResult<()> {
        let x = work.stream.rows.read(at.eps);
        self.launch_gate_up(at, &at.adapted_inputs(x.source())?, &mut work.shared_hidden)?;
        self.launch_down(at, &work.shared_hidden, &mut work.shared_out.as_view_mut())
    }

    /// Gate and up of all rows, or up alone.
    pub(crate) fn launch_gate_up(&self, at: BlockPass<'_>, x: &Source<'_>, hidden: &mut Quantized) -> CudaResult<()> {
        let (rows, columns) = (at.pass.rows, Columns::First(at.pass.rows.count));
        let (mut codes, mut meta) = hidden.views_mut();
        let out = Output::Activated { codes: &mut codes, meta: &mut meta, stride: padded(self.width) };
        // SAFETY: the columns are not listed.
        unsafe { self.gate_up.launch(at.device, rows, &self.weights.gate_up, x, columns, out) }
    }

    /// Multiplies the hidden rows with the down matrix, into `values`: `[rows, hidden]`.
    pub(crate) fn launch_down(
        &self,
        at: BlockPass<'_>,
        hidden: &Quantized,
        values: &mut CudaViewMut<'_, f32>,
    ) -> CudaResult<()> {
        let (rows, columns) = (at.pass.rows, Columns::First(at.pass.rows.count));
        let (codes, meta) = hidden.views();
        let out = Output::Plain { values, stride: at.hidden };
        let x = at.adapted_output(Source::plain(&codes, &meta))?;
        // SAFETY: the columns are not listed.
        unsafe { self.down.launch(at.device, rows, &self.weights.down, &x, columns, out) }
    }
}

impl OperatorRun for MlpConfig {
    type Bound = BoundMlp;
    type Kernels = ();

    fn load(&self, _: &Device, _: &KernelCache, _: &Setting) -> CudaResult<()> {
        Ok(())
    }

    fn bind(&self, w: LoadedWeights<Self>, products: &mut ProductKernels<'_>, hidden: usize) -> CudaResult<BoundMlp> {
        BoundMlp::new(products, w, (Some(hidden), self.width), ExpertRole::Alone)
    }

    fn first(bound: &BoundMlp, _rows: RowCount) -> FirstMatrix<'_> {
        FirstMatrix { matrix: &bound.weights.gate_up, halves: None }
    }

    fn launch(bound: &BoundMlp, _kernels: &mut (), at: BlockPass<'_>, memory: &mut RankMemory<'_>) -> CudaResult<()> {
        let work = &mut *memory.work;
        let x = work.stream.rows.read(at.eps);
        bound.launch_gate_up(at, &at.adapted_inputs(x.source())?, &mut work.shared_hidden)?;
        let (codes, meta) = work.shared_hidden.views();
        let hidden = at.adapted_output(Source::plain(&codes, &meta))?;
        work.stream.add_product_of(at.device, at.pass.rows, (&bound.down, &bound.weights.down), &hidden, at.next)
    }
}
