//! Many tokens of a GDN layer's mixer for pieces of several sequences: what [`super::decode`] computes token by
//! token, in chunks of 64 ([`crate::reference::gdn_chunked`]), from the in-projections to the int8 rows of the
//! out-projection.
//!
//! Three launches: convolution, norms and what a chunk needs of itself; chunks after one another; gated norm. Products
//! run on tensor cores with 16 bits of precision, the state is f32. A sequence's bytes depend on its own rows and on
//! where chunks begin, so they are the same however a prompt is cut at multiples of [`CHUNK`].

use super::decode::{GdnState, Heads, LayerWeights};
pub use super::pieces::{CHUNK, MixedRows, PIECE, Pieces, chunk_number, chunks_max};
use crate::cuda::rows::quantized::Planes;
use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::wide::halves::{HIDDEN_FACTOR, HalfRows};
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaView, CudaViewMut};

/// Threads of a block, as in the source; of the scan's, at most.
const THREADS: usize = 128;
/// Blocks that share the tokens of a chunk in the last kernel, as in the source.
const FINISH_PARTS: u32 = 4;
/// Columns of a state that a warp of the scan has, or a pair of them.
const WARP_COLS: usize = 16;
/// Warps of a block of pairs that scan.
const PAIR_WARPS: usize = 4;
/// With the one that brings chunks.
const PAIR_THREADS: usize = 32 * (PAIR_WARPS + 1);
/// Shared memory for what a warp hands its partner.
const EXCHANGE_BYTES: usize = 2 * 4096;

fn check(heads: Heads, stride: usize) -> Result<(), CudaError> {
    let fail = |reason: String| Err(CudaError::shape("gdn_prefill", reason));
    if ![64, 128].contains(&heads.key_dim) || ![64, 128].contains(&heads.value_dim) {
        return fail(format!("keys of {} and values of {}: must be 64 or 128", heads.key_dim, heads.value_dim));
    }
    if heads.keys == 0 || heads.values == 0 || !heads.values.is_multiple_of(heads.keys) {
        return fail(format!("{} value heads for {} key heads: must be a multiple", heads.values, heads.keys));
    }
    if stride < heads.inputs() || !stride.is_multiple_of(4) {
        return fail(format!("rows {stride} apart: must be a multiple of 4 and hold {} values", heads.inputs()));
    }
    Ok(())
}

/// Warps of a block of the scan.
fn scan_warps(heads: Heads) -> usize {
    (heads.value_dim / WARP_COLS).min(THREADS / 32)
}

/// The program for these heads; input rows are `stride` values apart, `planes` are those of the outputs.
///
/// # Errors
/// If there is no kernel for them.
pub fn program(heads: Heads, stride: usize, planes: Planes) -> Result<Program, CudaError> {
    check(heads, stride)?;
    let defines = vec![
        ("K", heads.key_dim as i64),
        ("V", heads.value_dim as i64),
        ("HK", heads.keys as i64),
        ("HV", heads.values as i64),
        ("X_STRIDE", stride as i64),
        ("GROUPED", i64::from(heads.grouped)),
        ("SCAN_WARPS", scan_warps(heads) as i64),
        ("HIDDEN_FACTOR", HIDDEN_FACTOR),
        planes.define(),
    ];
    Ok(Program::of::<Arguments>("gdn_prefill", source!("gdn/prefill.cu"), defines))
}

/// Bytes of shared memory for a chunk in the scan: q, k, T, P and the sums of log decays.
fn stage_bytes(heads: Heads) -> usize {
    8 * CHUNK * heads.key_dim + 8 * CHUNK * CHUNK + 4 * CHUNK
}

/// Bytes of shared memory for a block of pairs: two chunks, and what its warps exchange.
fn pair_bytes(heads: Heads) -> usize {
    2 * stage_bytes(heads) + PAIR_WARPS * EXCHANGE_BYTES
}

/// How many chunks a block of the scan can hold.
fn stages_max(heads: Heads, shared_max: usize) -> usize {
    if 2 * stage_bytes(heads) <= shared_max { 2 } else { 1 }
}

/// How many it holds: with two the next chunk comes in while one is worked on; where blocks are more than
/// multiprocessors, two blocks with one chunk each overlap better.
fn stages(heads: Heads, pieces: usize, shared_max: usize, multiprocessors: usize) -> usize {
    if heads.values * tiles(heads) * pieces > multiprocessors { 1 } else { stages_max(heads, shared_max) }
}

/// Blocks that share the columns of a head in the scan.
fn tiles(heads: Heads) -> usize {
    heads.value_dim / (scan_warps(heads) * WARP_COLS)
}

/// Where the parts of the scratch memory begin, in values of 4 bytes, and where the last one ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GdnScratchLayout {
    mats: usize,
    sums: usize,
    values: usize,
    end: usize,
}

fn parts(heads: Heads, rows: usize, pieces: usize) -> GdnScratchLayout {
    let chunks = chunks_max(rows, pieces);
    let mats = chunks * heads.keys * 2 * CHUNK * heads.key_dim;
    let sums = mats + chunks * heads.values * 2 * CHUNK * CHUNK;
    let values = sums + chunks * heads.values * CHUNK;
    GdnScratchLayout { mats, sums, values, end: values + rows * heads.values * heads.value_dim }
}

/// Values of scratch memory (f32) that a launch for `rows` rows in `pieces` pieces wants. Layers may share it.
pub fn scratch(heads: Heads, rows: usize, pieces: usize) -> usize {
    parts(heads, rows, pieces).end
}

/// Where in scratch memory a launch leaves `[rows, value heads * V]` outputs of before the gated norm, in f32.
pub fn raw_outputs(heads: Heads, rows: usize, pieces: usize) -> std::ops::Range<usize> {
    let parts = parts(heads, rows, pieces);
    parts.values..parts.end
}

/// The kernels for the heads of a model.
#[derive(Debug)]
pub struct GdnPrefill {
    heads: Heads,
    stride: usize,
    planes: Planes,
    shared_max: usize,
    multiprocessors: usize,
    chunk: Kernel<Arguments>,
    scan: Scan,
    finish: Kernel<Arguments>,
}

/// How the scan is launched.
#[derive(Debug)]
enum Scan {
    /// A warp for 16 columns, with room for one chunk, and for two if there is.
    Warps(Vec<Kernel<Arguments>>),
    /// Two for 16 columns.
    Pairs(Kernel<Arguments>),
}

impl Scan {
    fn load(heads: Heads, device: &Device, kernel: Kernel<Arguments>) -> Result<Self, CudaError> {
        if device.arch().has_paired_scan() {
            return Ok(Self::Pairs(kernel.with_shared(pair_bytes(heads))?));
        }
        // What a function may have at most is one value for all its handles, so the largest comes last.
        let stages = 1..=stages_max(heads, device.shared_memory_max()?);
        let kernels = stages.map(|n| kernel.clone().with_shared(n * stage_bytes(heads)));
        Ok(Self::Warps(kernels.collect::<Result<_, _>>()?))
    }

    /// The kernel, its blocks for one piece, and their threads.
    fn for_heads(&self, heads: Heads, stages: usize) -> (&Kernel<Arguments>, usize, usize) {
        match self {
            Self::Warps(kernels) => (&kernels[stages - 1], heads.values * tiles(heads), scan_warps(heads) * 32),
            Self::Pairs(kernel) => {
                let columns = PAIR_WARPS / 2 * WARP_COLS;
                (kernel, heads.values * heads.value_dim / columns, PAIR_THREADS)
            }
        }
    }
}

device_struct! {
    /// Parameters that the three kernels share.
    struct Arguments {
        /// `[count]`: slot, start, first row, rows.
        pieces: Ptr<[i32; 4]>,
        /// `[rows, stride]`, of one plane f16.
        x: Ptr<f32>,
        /// Inputs of the convolution at the last four positions of each slot, `[slots, 4, channels]`; position `p` has
        /// entry `p % 4`.
        tail: PtrMut<f32>,
        /// Weights of the convolution, `[channels, 4]`; the last of four is the current token's.
        taps: Ptr<f32>,
        /// Factor `-exp(A_log)` of each head's log decay, `[value heads]`, below 0.
        a_log_neg: Ptr<f32>,
        /// Bias of each head's step size, `[value heads]`.
        dt_bias: Ptr<f32>,
        /// Weight of the gated norm, `[V]`.
        norm: Ptr<f32>,
        /// Scratch: `[chunks, key heads, q and k, high and low, 64, K]` bf16.
        keys: PtrMut<u16>,
        /// Scratch: `[chunks, value heads, T and P, high and low, 64, 64]` bf16.
        mats: PtrMut<u16>,
        /// Scratch: `[chunks, value heads, 64]`.
        sums: PtrMut<f32>,
        /// Scratch: `[rows, value heads * V]`: v, then o in its place.
        values: PtrMut<f32>,
        /// `[slots, value heads, K, V]`.
        state: PtrMut<f32>,
        /// `[rows, value heads * V * planes]`.
        codes: PtrMut<i8>,
        /// `[rows, value heads * V / 32 * planes]`.
        meta: PtrMut<[f32; 2]>,
        /// `[value heads * V / 64, half_rows, 64]`: instead of codes; or null.
        halves: PtrMut<u16>,
        /// `[chunks]`: where the state after each chunk is kept beside its own place, as if it were a slot; below 0:
        /// nowhere. Null if no chunk's is kept.
        exports: Ptr<i32>,
        half_rows: i32,
        eps: f32,
        /// How many pieces there are.
        count: i32,
        /// Chunks that the scan's shared memory holds, 1 or 2.
        stages: i32,
    }
}

impl GdnPrefill {
    /// Loads the kernels for `heads`.
    ///
    /// # Errors
    /// If there are none for them, or they cannot be compiled or loaded.
    pub fn load(
        device: &Device,
        cache: &KernelCache,
        heads: Heads,
        stride: usize,
        planes: Planes,
    ) -> Result<Self, CudaError> {
        let module = device.module(cache, &program(heads, stride, planes)?)?;
        let shared_max = device.shared_memory_max()?;
        let scan = Scan::load(heads, device, module.kernel("gdn_scan")?)?;
        Ok(Self {
            heads,
            stride,
            planes,
            shared_max,
            multiprocessors: device.multiprocessors() as usize,
            chunk: module.kernel("gdn_chunk")?,
            scan,
            finish: module.kernel("gdn_finish")?,
        })
    }

    /// Whether input rows are f16, two in the place of an f32: those whose projection reads int8 of one plane.
    pub fn half_inputs(&self) -> bool {
        self.planes == Planes::One
    }

    /// Enqueues them. `x` is `[rows, stride]`; `scratch` has as many values as [`scratch`] says. `halves`: where the
    /// rows go as f16 and not to `out`, if they do: with one plane, of heads whose values are whole units of 128.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// The list is as [`Pieces`] says, and its slots are below those that `memory` has room for.
    #[allow(clippy::too_many_arguments, reason = "inputs, weights, memory and outputs of one operation")]
    pub unsafe fn launch(
        &self,
        device: &Device,
        pieces: Pieces<'_>,
        x: &CudaView<'_, f32>,
        layer: LayerWeights<'_>,
        memory: GdnState<'_, '_>,
        scratch: &mut CudaViewMut<'_, f32>,
        (out, halves): (MixedRows<'_, '_>, Option<&HalfRows>),
    ) -> Result<(), CudaError> {
        let (heads, Pieces { list, count, rows, exports }) = (self.heads, pieces);
        let (width, parts) = (heads.values * heads.value_dim, parts(heads, rows, count));
        let fits = |what: &str, got: usize, need: usize| {
            let text = || format!("{what} has {got} elements, {rows} rows in {count} pieces of {heads:?} need {need}");
            if got >= need { Ok(()) } else { Err(CudaError::shape("gdn_prefill", text())) }
        };
        fits("the list of pieces", list.len(), count * PIECE)?;
        fits("the input", x.len(), rows * self.stride / if self.half_inputs() { 2 } else { 1 })?;
        fits("the exports", exports.map_or(usize::MAX, |list| list.len()), chunks_max(rows, count))?;
        layer.check(heads, fits)?;
        fits("the state", memory.state.len(), count.min(1) * heads.state())?;
        fits("the ring", memory.tail.len(), count.min(1) * heads.tail())?;
        fits("scratch memory", scratch.len(), parts.end)?;
        fits("codes", out.codes.len(), rows * width * self.planes.count())?;
        fits("meta", out.meta.len(), rows * width / 16 * self.planes.count())?;
        let halves = HalfRows::target(halves, device, "gdn_prefill", (rows, width), self.planes)?;
        if rows == 0 || count == 0 {
            return Ok(());
        }
        let stream = device.stream();
        let stages = stages(heads, count, self.shared_max, self.multiprocessors);
        let scratch = PtrMut::<f32>::of(scratch, stream);
        let [taps, a_log_neg, dt_bias, norm] = layer.pointers(stream);
        let arguments = Arguments {
            pieces: Ptr::of(list, stream),
            x: Ptr::of(x, stream),
            tail: PtrMut::of(memory.tail, stream),
            taps,
            a_log_neg,
            dt_bias,
            norm,
            keys: scratch.cast(),
            mats: scratch.skip(parts.mats).cast(),
            sums: scratch.skip(parts.sums),
            values: scratch.skip(parts.values),
            state: PtrMut::of(memory.state, stream),
            codes: PtrMut::of(out.codes, stream),
            meta: PtrMut::of(out.meta, stream),
            halves,
            half_rows: rows as i32,
            exports: Ptr::of_some(exports, stream),
            eps: layer.eps,
            count: count as i32,
            stages: stages as i32,
        };
        let run = |kernel: &Kernel<Arguments>, blocks: (u32, u32), threads: usize| {
            let grid = Grid { blocks, threads: threads as u32 };
            // SAFETY: buffers were found large enough; the caller vouches for the pieces and slots; before their waits
            // the kernels read weights only.
            unsafe { kernel.launch(device, grid, &arguments) }
        };
        let chunks = chunks_max(rows, count) as u32;
        run(&self.chunk, (chunks, (heads.keys + heads.values) as u32), THREADS)?;
        let (scan, blocks, threads) = self.scan.for_heads(heads, stages);
        run(scan, (blocks as u32, count as u32), threads)?;
        run(&self.finish, (chunks * FINISH_PARTS, heads.values as u32), THREADS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::Arch;

    const RELEASED: Heads = Heads { key_dim: 128, value_dim: 128, keys: 16, values: 32, grouped: false };

    #[test]
    fn what_has_no_kernel_is_refused_by_name() {
        assert!(program(RELEASED, RELEASED.inputs(), Planes::One).is_ok());
        let refused = |h: Heads, stride: usize| program(h, stride, Planes::One).unwrap_err().to_string();
        assert!(refused(Heads { value_dim: 32, ..RELEASED }, 1 << 20).contains("values of 32"));
        assert!(refused(Heads { values: 24, ..RELEASED }, 1 << 20).contains("24 value heads for 16"));
        assert!(refused(RELEASED, RELEASED.inputs() + 1).contains("multiple of 4"));
    }

    #[test]
    fn a_chunk_fits_into_the_smallest_shared_memory_and_two_into_the_largest() {
        let kib = [99, 163, 227].map(|kib| kib << 10);
        assert!(stage_bytes(RELEASED) <= kib[0]);
        assert!(pair_bytes(RELEASED) <= kib[2] && !"sm_120a".parse::<Arch>().unwrap().has_paired_scan());
        assert_eq!(kib.map(|max| stages_max(RELEASED, max)), [1, 1, 2]);
        assert_eq!(kib.map(|max| stages_max(Heads { key_dim: 64, ..RELEASED }, max)), [1, 2, 2]);
    }

    #[test]
    fn a_lone_prompt_loads_ahead_and_many_overlap() {
        assert_eq!([1, 2, 3, 32].map(|pieces| stages(RELEASED, pieces, 227 << 10, 132)), [2, 2, 1, 1]);
        assert_eq!(stages(RELEASED, 1, 99 << 10, 132), 1);
    }

    #[test]
    fn numbers_of_chunks_are_distinct_and_below_what_scratch_has_room_for() {
        for rows in [[1usize, 64, 65, 200], [63, 1, 0, 64], [64, 64, 64, 64], [130, 62, 1, 1]] {
            let (mut first, mut next) = (0, 0);
            for (p, n) in rows.into_iter().enumerate() {
                let number = first / CHUNK + p;
                assert!(number >= next, "{rows:?}: chunk {number} of piece {p} comes twice");
                (next, first) = (number + n.div_ceil(CHUNK), first + n);
            }
            assert!(next <= chunks_max(first, rows.len()), "{rows:?}");
        }
        let parts = parts(RELEASED, 200, 3);
        assert!([parts.mats, parts.sums, parts.values].iter().all(|at| at.is_multiple_of(4)), "copies are of 16 bytes");
    }
}
