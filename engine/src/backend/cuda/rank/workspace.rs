//! Buffers of a step's rows on the device. Decode and prefill rows run one after another and share them.

use super::quantized::Quantized;
use super::residual::{FoldedRows, ResidualStream};
use crate::backend::cuda::error::{CudaResult, During};
use crate::backend::cuda::layout::shape::{Counts, Widths};
use crate::backend::cuda::layout::workspace::{GIVEN_ROWS_MAX, all_routed, listed, made_rows, scratch, shared_values};
use crate::model::ModelConfig;
use chimere_kernels::cuda::Device;
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::wide::halves::HalfRows;
use cudarc::driver::{CudaSlice, CudaView};
use std::ops::Range;

/// Buffers that a step's rows are computed in.
pub(crate) struct Workspace {
    /// The residual stream, `[rows, hidden]`.
    pub(crate) stream: ResidualStream,
    /// What in-projections write, `[rows, inputs]`.
    pub(crate) inputs: CudaSlice<f32>,
    /// What the mixer gives the out-projection.
    pub(crate) mixed: Quantized,
    /// `[blocks that choose][rows, used]`, so that who asks can see what every one of them chose.
    pub(crate) experts: CudaSlice<i32>,
    /// `[blocks that choose][GIVEN_ROWS_MAX, used]`: what decode rows take instead of choosing, in benchmarks.
    pub(crate) given: Option<CudaSlice<i32>>,
    /// `[rows, used + 1]`.
    pub(crate) gates: CudaSlice<f32>,
    /// One word: experts that rows with a cut kept since it was last read.
    pub(crate) tally: CudaSlice<u32>,
    /// `[experts][4]`: expert, first, count, 0.
    pub(crate) lists: CudaSlice<i32>,
    /// `[rows * used]`, or of decode rows `[experts, rows]`.
    pub(crate) list_in: CudaSlice<i32>,
    /// Output rows of each expert's products, laid out as `list_in`.
    pub(crate) list_out: CudaSlice<i32>,
    /// Pairs of a row and an expert that it uses.
    pairs: usize,
    /// Hidden rows of the experts, by pair.
    pub(crate) expert_hidden: Quantized,
    /// Hidden rows of the shared expert.
    pub(crate) shared_hidden: Quantized,
    /// Rows of f16 that one launch makes for the product behind it and for nobody else: instead of `mixed`, or of
    /// `expert_hidden`.
    pub(crate) made: HalfRows,
    /// Of experts with rows of a width of their own: what they read, then the sums of what they make.
    pub(crate) latent: Quantized,
    /// In the mixer what chunks of a prompt leave for each other, in the feed-forward part outputs of the experts,
    /// `[rows * used, hidden]`. Each is written anew before it is read, so that they may share one place.
    pub(crate) scratch: CudaSlice<f32>,
    /// Outputs of the shared expert, `[rows, hidden]`; none of a model without experts.
    pub(crate) shared_out: CudaSlice<f32>,
    /// Rows that logits are wanted of, gathered.
    pub(crate) last: FoldedRows,
    /// Logits of the wanted rows, `[logit rows, vocab]`.
    pub(crate) logits: CudaSlice<f32>,
}

impl Workspace {
    /// Takes all of it, zeroed: padding is never written.
    pub(crate) fn new(device: &Device, c: &ModelConfig, n: Counts, planes: Planes) -> CudaResult<Self> {
        let (s, w, routed) = (device.stream(), Widths::of(c), all_routed(c));
        let (rows, used) = (n.rows(), w.used);
        let (made, values) = made_rows(&w, rows);
        let doing = "allocating the workspace";
        let quantized = |rows, cols| Quantized::new(device, rows, cols, planes);
        Ok(Self {
            stream: ResidualStream::new(device, rows, w.hidden, planes)?,
            inputs: s.alloc_zeros(rows * w.inputs).during(doing)?,
            mixed: quantized(rows, w.mixed)?,
            experts: s.alloc_zeros((routed * rows * used).max(1)).during(doing)?,
            given: None,
            gates: s.clone_htod(&vec![1.0f32; rows * (used + 1)]).during(doing)?,
            tally: s.alloc_zeros(1).during(doing)?,
            lists: s.alloc_zeros((4 * w.experts).max(4)).during(doing)?,
            list_in: s.alloc_zeros(listed(n, &w)).during(doing)?,
            list_out: s.alloc_zeros(listed(n, &w)).during(doing)?,
            pairs: rows * used,
            expert_hidden: quantized((rows * used).max(1), w.width.max(1))?,
            shared_hidden: quantized(rows, w.shared)?,
            made: HalfRows::of_hidden(device, made, values)?,
            latent: quantized(rows, w.latent)?,
            scratch: s.alloc_zeros(scratch(c, n)).during(doing)?,
            shared_out: s.alloc_zeros(shared_values(n, &w)).during(doing)?,
            last: FoldedRows::new(device, n.logits, w.hidden, planes)?,
            logits: s.alloc_zeros(n.logits * w.vocab).during("allocating logits")?,
        })
    }

    /// Where in [`Workspace::experts`] the `n`th block that chooses has its choice.
    pub(crate) fn chosen(&self, n: usize) -> Range<usize> {
        n * self.pairs..(n + 1) * self.pairs
    }

    /// Takes memory for experts that decode rows are given, beyond what is planned.
    pub(crate) fn replay(&mut self, device: &Device, c: &ModelConfig) -> CudaResult<()> {
        let words = all_routed(c) * GIVEN_ROWS_MAX * Widths::of(c).used;
        self.given = Some(device.stream().alloc_zeros(words.max(1)).during("allocating given experts")?);
        Ok(())
    }
}

/// Of [`Workspace::given`] those of the `n`th block that chooses.
pub(crate) fn given_of(all: &CudaSlice<i32>, n: usize, used: usize) -> CudaView<'_, i32> {
    let each = GIVEN_ROWS_MAX * used;
    all.slice(n * each..(n + 1) * each)
}
