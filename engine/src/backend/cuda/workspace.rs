//! Buffers of a step's rows on the device. Decode and prefill rows run one after another and share them.

use super::error::{CudaBackendError, During};
use super::shape::{Counts, Widths, gdn_heads};
use crate::model::{LayerKind, ModelConfig};
use chimere_kernels::cuda::quantized::{BLOCK, Planes};
use chimere_kernels::cuda::rows::padded;
use chimere_kernels::cuda::{Device, gdn_prefill};
use cudarc::driver::CudaSlice;

/// Rows in the int8 form.
pub(super) struct Quantized {
    /// `[rows, cols * planes]`, cols padded.
    pub(super) codes: CudaSlice<i8>,
    /// `[rows, cols / 32 * planes, 2]`.
    pub(super) meta: CudaSlice<f32>,
}

impl Quantized {
    fn new(device: &Device, rows: usize, cols: usize, planes: Planes) -> Result<Self, CudaBackendError> {
        let (stream, n) = (device.stream(), rows * padded(cols) * planes.count());
        Ok(Self {
            codes: stream.alloc_zeros(n).during("allocating the workspace")?,
            meta: stream.alloc_zeros(n / BLOCK * 2).during("allocating the workspace")?,
        })
    }

    fn bytes(rows: usize, cols: usize, planes: Planes) -> usize {
        rows * padded(cols) / BLOCK * (BLOCK + 8) * planes.count()
    }
}

/// See the module.
pub(super) struct Workspace {
    /// Residual stream, `[rows, hidden]`.
    pub(super) x: CudaSlice<f32>,
    /// The residual stream times the next norm's weight.
    pub(super) normed: Quantized,
    /// Sums of squares of the residual stream, `[rows, hidden / 32]`.
    pub(super) squares: CudaSlice<f32>,
    /// What a launch that reads `normed` writes for the reader after it: they change places then.
    pub(super) next: Quantized,
    /// As `squares`.
    pub(super) next_squares: CudaSlice<f32>,
    /// In-projections, `[rows, inputs]`.
    pub(super) inputs: CudaSlice<f32>,
    /// What the mixer gives the out-projection.
    pub(super) mixed: Quantized,
    /// `[layers][rows, used]`, so that who asks can see what every layer chose.
    pub(super) experts: CudaSlice<i32>,
    /// `[rows, used + 1]`.
    pub(super) gates: CudaSlice<f32>,
    /// One word: experts that rows with a cut kept since it was last read.
    pub(super) tally: CudaSlice<u32>,
    /// `[experts][4]`: expert, first, count, 0.
    pub(super) lists: CudaSlice<i32>,
    /// `[rows * used]`.
    pub(super) list_in: CudaSlice<i32>,
    /// `[rows * used]`.
    pub(super) list_out: CudaSlice<i32>,
    /// Hidden rows of the experts, by pair.
    pub(super) expert_hidden: Quantized,
    /// Hidden rows of the shared expert.
    pub(super) shared_hidden: Quantized,
    /// In the mixer what chunks of a prompt leave for each other, in the feed-forward part outputs of the experts,
    /// `[rows * used, hidden]`. Each is written anew before it is read, so that they may share one place.
    pub(super) scratch: CudaSlice<f32>,
    /// Outputs of the shared expert, `[rows, hidden]`.
    pub(super) shared_out: CudaSlice<f32>,
    /// Rows that logits are wanted of, gathered.
    pub(super) last: Quantized,
    /// Their squares.
    pub(super) last_squares: CudaSlice<f32>,
    /// `[logit rows, vocab]`.
    pub(super) logits: CudaSlice<f32>,
}

impl Workspace {
    /// Takes all of it, zeroed: padding is never written.
    pub(super) fn new(device: &Device, c: &ModelConfig, n: Counts, planes: Planes) -> Result<Self, CudaBackendError> {
        let (s, w, layers) = (device.stream(), Widths::of(c), c.layers.len());
        let (rows, used) = (n.rows(), w.used);
        let doing = "allocating the workspace";
        let quantized = |rows, cols| Quantized::new(device, rows, cols, planes);
        Ok(Self {
            x: s.alloc_zeros(rows * w.hidden).during(doing)?,
            normed: quantized(rows, w.hidden)?,
            squares: s.alloc_zeros(rows * w.hidden / BLOCK).during(doing)?,
            next: quantized(rows, w.hidden)?,
            next_squares: s.alloc_zeros(rows * w.hidden / BLOCK).during(doing)?,
            inputs: s.alloc_zeros(rows * w.inputs).during(doing)?,
            mixed: quantized(rows, w.mixed)?,
            experts: s.alloc_zeros((layers * rows * used).max(1)).during(doing)?,
            gates: s.clone_htod(&vec![1.0f32; rows * (used + 1)]).during(doing)?,
            tally: s.alloc_zeros(1).during(doing)?,
            lists: s.alloc_zeros((4 * w.experts).max(4)).during(doing)?,
            list_in: s.alloc_zeros((rows * used).max(1)).during(doing)?,
            list_out: s.alloc_zeros((rows * used).max(1)).during(doing)?,
            expert_hidden: quantized((rows * used).max(1), w.width.max(1))?,
            shared_hidden: quantized(rows, w.shared)?,
            scratch: s.alloc_zeros(scratch(c, n)).during(doing)?,
            shared_out: s.alloc_zeros(rows * w.hidden).during(doing)?,
            last: quantized(n.logits, w.hidden)?,
            last_squares: s.alloc_zeros(n.logits * w.hidden / BLOCK).during(doing)?,
            logits: s.alloc_zeros(n.logits * w.vocab).during("allocating logits")?,
        })
    }

    /// What [`Workspace::new`] takes.
    pub(super) fn bytes(c: &ModelConfig, n: Counts, planes: Planes) -> u64 {
        Self::parts(c, n, planes).iter().map(|part| part.1 as u64).sum()
    }

    /// Bytes by buffer.
    fn parts(c: &ModelConfig, n: Counts, planes: Planes) -> Vec<(&'static str, usize)> {
        let (w, layers) = (Widths::of(c), c.layers.len());
        let (rows, used) = (n.rows(), w.used);
        let pairs = (rows * used).max(1);
        let quantized = |rows, cols| Quantized::bytes(rows, cols, planes);
        vec![
            ("residual stream", 4 * (rows * w.hidden + 2 * rows * w.hidden / BLOCK) + 2 * quantized(rows, w.hidden)),
            ("in-projections", 4 * rows * w.inputs),
            ("mixed", quantized(rows, w.mixed)),
            ("chosen experts", 4 * ((layers * rows * used).max(1) + 2 * pairs + rows * (used + 1) + (4 * w.experts).max(4) + 1)),
            ("hidden rows of experts", quantized(pairs, w.width.max(1)) + quantized(rows, w.shared)),
            ("scratch of mixers, experts' outputs", 4 * scratch(c, n)),
            ("shared expert's outputs", 4 * rows * w.hidden),
            ("logits", 4 * (n.logits * w.vocab + n.logits * w.hidden / BLOCK) + quantized(n.logits, w.hidden)),
        ]
    }

    /// Prints [`Workspace::parts`].
    #[cfg(test)]
    pub(super) fn print(c: &ModelConfig, n: Counts, planes: Planes) {
        Self::parts(c, n, planes).iter().for_each(|(name, bytes)| println!("  {name:32} {bytes:>14}"));
    }
}

/// Values of [`Workspace::scratch`].
fn scratch(c: &ModelConfig, n: Counts) -> usize {
    let w = Widths::of(c);
    let gdn = if c.layers.contains(&LayerKind::Gdn) { gdn_prefill::scratch(gdn_heads(c), n.prefill, n.slots) } else { 0 };
    gdn.max(n.rows() * w.used * w.hidden).max(1)
}
