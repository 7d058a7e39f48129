//! Buffers of a step's rows on the device. Decode and prefill rows run one after another and share them.

use super::blocks::OpQuery;
use super::error::{CudaBackendError, During};
use super::residual::{FoldedRows, Residual};
use super::shape::{Counts, Widths};
use crate::model::{BlockConfig, ModelConfig};
use chimere_kernels::cuda::Device;
use chimere_kernels::cuda::quantized::{BLOCK, Planes};
use chimere_kernels::cuda::rows::padded;
use chimere_kernels::cuda::wide::halves::HalfRows;
use cudarc::driver::{CudaSlice, CudaView, CudaViewMut};
use std::ops::Range;

/// Rows in the int8 form.
pub(super) struct Quantized {
    /// `[rows, cols * planes]`, cols padded.
    codes: CudaSlice<i8>,
    /// `[rows, cols / 32 * planes, 2]`.
    meta: CudaSlice<f32>,
}

impl Quantized {
    /// Takes the memory, zeroed. Never empty, as the driver gives no memory of 0 bytes.
    pub(super) fn new(device: &Device, rows: usize, cols: usize, planes: Planes) -> Result<Self, CudaBackendError> {
        let (stream, n) = (device.stream(), rows * padded(cols) * planes.count());
        Ok(Self {
            codes: stream.alloc_zeros(n.max(1)).during("allocating the workspace")?,
            meta: stream.alloc_zeros((n / BLOCK * 2).max(1)).during("allocating the workspace")?,
        })
    }

    pub(super) fn bytes(rows: usize, cols: usize, planes: Planes) -> usize {
        rows * padded(cols) / BLOCK * (BLOCK + 8) * planes.count()
    }
}

impl Quantized {
    /// Codes, then what stands beside them.
    pub(super) fn views(&self) -> (CudaView<'_, i8>, CudaView<'_, f32>) {
        (self.codes.as_view(), self.meta.as_view())
    }

    /// Both views for a launch that writes them.
    pub(super) fn views_mut(&mut self) -> (CudaViewMut<'_, i8>, CudaViewMut<'_, f32>) {
        (self.codes.as_view_mut(), self.meta.as_view_mut())
    }
}

/// Decode rows of a step that can be given experts, at most: as many as one launch of the kernels for few rows takes.
pub(super) const GIVEN_ROWS_MAX: usize = 16;

/// Buffers that a step's rows are computed in.
pub(super) struct Workspace {
    /// `[rows, hidden]`.
    pub(super) stream: Residual,
    /// What in-projections write, `[rows, inputs]`.
    pub(super) inputs: CudaSlice<f32>,
    /// What the mixer gives the out-projection.
    pub(super) mixed: Quantized,
    /// `[blocks that choose][rows, used]`, so that who asks can see what every one of them chose.
    pub(super) experts: CudaSlice<i32>,
    /// `[blocks that choose][GIVEN_ROWS_MAX, used]`: what decode rows take instead of choosing, in benchmarks.
    pub(super) given: Option<CudaSlice<i32>>,
    /// `[rows, used + 1]`.
    pub(super) gates: CudaSlice<f32>,
    /// One word: experts that rows with a cut kept since it was last read.
    pub(super) tally: CudaSlice<u32>,
    /// `[experts][4]`: expert, first, count, 0.
    pub(super) lists: CudaSlice<i32>,
    /// `[rows * used]`, or of decode rows `[experts, rows]`.
    pub(super) list_in: CudaSlice<i32>,
    /// Likewise.
    pub(super) list_out: CudaSlice<i32>,
    /// Rows, `used` times.
    pairs: usize,
    /// Hidden rows of the experts, by pair.
    pub(super) expert_hidden: Quantized,
    /// Hidden rows of the shared expert.
    pub(super) shared_hidden: Quantized,
    /// Rows of f16 that one launch makes for the product behind it and for nobody else: instead of `mixed`, or of
    /// `expert_hidden`.
    pub(super) made: HalfRows,
    /// Of experts with rows of a width of their own: what they read, then the sums of what they make.
    pub(super) latent: Quantized,
    /// In the mixer what chunks of a prompt leave for each other, in the feed-forward part outputs of the experts,
    /// `[rows * used, hidden]`. Each is written anew before it is read, so that they may share one place.
    pub(super) scratch: CudaSlice<f32>,
    /// Outputs of the shared expert, `[rows, hidden]`; none of a model without experts.
    pub(super) shared_out: CudaSlice<f32>,
    /// Rows that logits are wanted of, gathered.
    pub(super) last: FoldedRows,
    /// `[logit rows, vocab]`.
    pub(super) logits: CudaSlice<f32>,
}

impl Workspace {
    /// Takes all of it, zeroed: padding is never written.
    pub(super) fn new(device: &Device, c: &ModelConfig, n: Counts, planes: Planes) -> Result<Self, CudaBackendError> {
        let (s, w, routed) = (device.stream(), Widths::of(c), all_routed(c));
        let (rows, used) = (n.rows(), w.used);
        let (made, values) = made_rows(&w, rows);
        let doing = "allocating the workspace";
        let quantized = |rows, cols| Quantized::new(device, rows, cols, planes);
        Ok(Self {
            stream: Residual::new(device, rows, w.hidden, planes)?,
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

    /// Bytes that [`Workspace::new`] takes of the device, and the products' rows of f16.
    pub(super) fn bytes(c: &ModelConfig, n: Counts, planes: Planes) -> u64 {
        Self::parts(c, n, planes).iter().map(|part| part.1 as u64).sum()
    }

    /// Bytes of each buffer, with its name.
    fn parts(c: &ModelConfig, n: Counts, planes: Planes) -> Vec<(&'static str, usize)> {
        let (w, routed) = (Widths::of(c), all_routed(c));
        let (rows, used) = (n.rows(), w.used);
        let pairs = (rows * used).max(1);
        let quantized = |rows, cols| Quantized::bytes(rows, cols, planes);
        vec![
            ("residual stream", Residual::bytes(rows, w.hidden, planes)),
            ("in-projections", 4 * rows * w.inputs),
            ("mixed", quantized(rows, w.mixed)),
            (
                "chosen experts",
                4 * ((routed * rows * used).max(1)
                    + 2 * listed(n, &w)
                    + rows * (used + 1)
                    + (4 * w.experts).max(4)
                    + 1),
            ),
            (
                "rows of experts",
                quantized(pairs, w.width.max(1)) + quantized(rows, w.shared) + quantized(rows, w.latent),
            ),
            ("scratch of mixers, experts' outputs", 4 * scratch(c, n)),
            ("shared expert's outputs", 4 * shared_values(n, &w)),
            ("rows as f16", half_bytes(c, n)),
            ("logits", 4 * n.logits * w.vocab + FoldedRows::bytes(n.logits, w.hidden, planes)),
        ]
    }

    /// Where in [`Workspace::experts`] the `n`th block that chooses has its choice.
    pub(super) fn chosen(&self, n: usize) -> Range<usize> {
        n * self.pairs..(n + 1) * self.pairs
    }

    /// Takes memory for experts that decode rows are given, beyond what is planned.
    pub(super) fn replay(&mut self, device: &Device, c: &ModelConfig) -> Result<(), CudaBackendError> {
        let words = all_routed(c) * GIVEN_ROWS_MAX * Widths::of(c).used;
        self.given = Some(device.stream().alloc_zeros(words.max(1)).during("allocating given experts")?);
        Ok(())
    }

    /// Prints [`Workspace::parts`] as a table.
    #[cfg(test)]
    pub(super) fn print(c: &ModelConfig, n: Counts, planes: Planes) {
        Self::parts(c, n, planes).iter().for_each(|(name, bytes)| println!("  {name:32} {bytes:>14}"));
    }
}

/// Of [`Workspace::given`] those of the `n`th block that chooses.
pub(super) fn given_of(all: &CudaSlice<i32>, n: usize, used: usize) -> CudaView<'_, i32> {
    let each = GIVEN_ROWS_MAX * used;
    all.slice(n * each..(n + 1) * each)
}

/// How many of these blocks choose experts.
pub(super) fn routed_blocks<'a>(blocks: impl Iterator<Item = &'a BlockConfig>) -> usize {
    blocks.filter(|block| OpQuery(&block.op).widths().used > 0).count()
}

/// Those of a model, and behind them the draft head's.
fn all_routed(c: &ModelConfig) -> usize {
    routed_blocks(c.blocks().chain(&c.draft))
}

/// Values that shared experts make.
fn shared_values(n: Counts, w: &Widths) -> usize {
    if w.experts > 0 { n.rows() * w.hidden } else { 1 }
}

/// Places in each of the lists of experts' rows.
fn listed(n: Counts, w: &Widths) -> usize {
    (n.rows() * w.used).max(n.decode * w.experts).max(1)
}

/// How many rows products make f16 of at once, and how many values these have at most: a row's, or those of its
/// experts.
pub(super) fn half_rows(c: &ModelConfig, n: Counts) -> (usize, usize) {
    let (w, rows) = (Widths::of(c), n.rows());
    let input = if c.draft.is_empty() { 0 } else { 2 * w.hidden };
    let widest = [w.hidden, w.mixed, w.shared, w.latent, input].into_iter().map(padded).max().unwrap_or(0);
    (rows * w.used.max(1), rows * widest.max(w.used * padded(w.width)))
}

/// The same of shared experts, which run beside the others.
pub(super) fn shared_half_rows(c: &ModelConfig, n: Counts) -> (usize, usize) {
    let w = Widths::of(c);
    let rows = if w.experts > 0 && w.shared > 0 { n.rows() } else { 0 };
    (rows.max(1), rows * padded(w.hidden).max(padded(w.shared)))
}

/// How many rows [`Workspace::made`] has, and how many values all of them together.
fn made_rows(w: &Widths, rows: usize) -> (usize, usize) {
    (rows * w.used.max(1), rows * padded(w.mixed).max(w.used * padded(w.width)))
}

/// Bytes of all three; [`super::matrices::Kernels`] has the first two.
fn half_bytes(c: &ModelConfig, n: Counts) -> usize {
    let all = [half_rows(c, n), shared_half_rows(c, n), made_rows(&Widths::of(c), n.rows())];
    all.into_iter().map(|(rows, values)| HalfRows::bytes(rows, values)).sum()
}

/// How many values [`Workspace::scratch`] has.
fn scratch(c: &ModelConfig, n: Counts) -> usize {
    c.blocks().map(|block| OpQuery(&block.op).scratch(n, c.hidden)).max().unwrap_or(0).max(1)
}
