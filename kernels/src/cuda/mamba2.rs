//! A Mamba-2 layer's mixer from the in-projections to the int8 rows of the out-projection:
//! [`crate::reference::conv_silu`], [`crate::reference::mamba2_recurrent`], gate, and the norm of each group's values.
//!
//! [`Mamba2::decode`] is one launch for one token a sequence, [`Mamba2::prefill`] four for pieces of prompts, which go
//! in chunks of [`CHUNK`] tokens ([`crate::reference::mamba2_chunked`]): products on tensor cores with 16 bits of
//! precision, the state in f32. A sequence's bytes depend on its own rows and on where chunks begin, so they are the
//! same however a prompt is cut at multiples of a chunk.

use crate::cuda::gdn::pieces::{CHUNK, MixedRows, PIECE, Pieces, chunks_max};
use crate::cuda::rows::padded;
use crate::cuda::rows::quantized::Planes;
use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaSlice, CudaView, CudaViewMut};

const NAME: &str = "mamba2";
/// Positions whose inputs the convolution sees.
pub const TAPS: usize = 4;
/// Values of state that a block holds in its threads' registers.
const BLOCK_STATE_MAX: usize = 8192;
// As in the source.
const THREADS: usize = 256;
const CONV_PARTS: usize = 4;
const FINISH_PARTS: usize = 64;
/// Threads of a block that prepares a chunk, and its heads.
const CHUNK_THREADS: usize = 128;
const CHUNK_HEADS: usize = 4;
/// A head's values that a warp of the scan has, and warps of a block of it.
const WARP_VALUES: usize = 16;
const SCAN_WARPS: usize = 4;
/// Halves of chunks that a block of the scan may hold.
const STAGES: [usize; 3] = [1, 2, 4];

/// Sizes of a Mamba-2 layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mamba2Shape {
    /// Number of heads, H.
    pub heads: usize,
    /// Width of a head, P.
    pub head_dim: usize,
    /// Width of the state of one of a head's values, N.
    pub state_dim: usize,
    /// Groups of neighbouring heads that share B and C, and a norm.
    pub groups: usize,
    /// Whether a group's gated values are normed.
    pub normed: bool,
    /// Int8 codes for each value of the output rows.
    pub planes: Planes,
}

impl Mamba2Shape {
    /// Values of all heads.
    pub fn values(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Channels of the convolution: x, B and C.
    pub fn channels(&self) -> usize {
        self.values() + 2 * self.groups * self.state_dim
    }

    /// Values of an input row: z, x, B, C, step sizes.
    pub fn inputs(&self) -> usize {
        self.values() + self.channels() + self.heads
    }

    /// Values of a sequence's state, `[heads, P, N]`.
    pub fn state(&self) -> usize {
        self.values() * self.state_dim
    }

    /// Values of a sequence's convolution ring.
    pub fn tail(&self) -> usize {
        TAPS * self.channels()
    }

    /// A head's values that a block has.
    fn part(&self) -> usize {
        self.head_dim.min(BLOCK_STATE_MAX / self.state_dim)
    }

    /// Blocks of a row or a piece.
    fn blocks(&self) -> usize {
        self.values() / self.part()
    }

    /// Warps of a block of the scan.
    fn scan_warps(&self) -> usize {
        (self.head_dim / WARP_VALUES).min(SCAN_WARPS)
    }

    /// Values of B or of C of a token as operands.
    fn wide(&self) -> usize {
        self.state_dim.max(64)
    }

    /// Bytes of B or of C of a chunk, as two bf16 each.
    fn key_bytes(&self) -> usize {
        4 * CHUNK * self.wide()
    }

    /// Bytes of shared memory for half of a chunk in the scan: C or B, M, decays.
    fn stage_bytes(&self) -> usize {
        self.key_bytes() + 4 * CHUNK * CHUNK + 8 * CHUNK
    }

    /// Halves of chunks that a block of the scan holds of so many blocks: with two chunks the next one comes in while
    /// one is worked on; where blocks are more than multiprocessors, two of them with one chunk each overlap better.
    fn stages(&self, blocks: usize, shared_max: usize, multiprocessors: usize) -> usize {
        let wanted = if blocks > multiprocessors { 2 } else { 4 };
        let fit = |n: &usize| *n <= wanted && n * self.stage_bytes() <= shared_max;
        STAGES.into_iter().rfind(fit).unwrap_or(STAGES[0])
    }

    /// That there are kernels for it.
    ///
    /// # Errors
    /// If there are none; it names the size.
    pub fn check(&self) -> Result<(), CudaError> {
        let fail = |reason: String| Err(CudaError::shape(NAME, reason));
        let Self { heads, head_dim, state_dim, groups, .. } = *self;
        if ![32, 64, 128, 256].contains(&state_dim) {
            return fail(format!("a state of {state_dim}: must be 32, 64, 128 or 256"));
        }
        if ![32, 64, 128, 256].contains(&head_dim) {
            return fail(format!("heads of {head_dim}: must be of 32, 64, 128 or 256"));
        }
        if heads == 0 || groups == 0 || !heads.is_multiple_of(groups) {
            return fail(format!("{heads} heads in {groups} groups: must be a multiple"));
        }
        Ok(())
    }
}

/// The program of all five kernels.
///
/// # Errors
/// If there are none for the shape.
pub fn program(shape: Mamba2Shape) -> Result<Program, CudaError> {
    shape.check()?;
    let defines = vec![
        ("P", shape.head_dim as i64),
        ("N", shape.state_dim as i64),
        ("H", shape.heads as i64),
        ("G", shape.groups as i64),
        ("PART", shape.part() as i64),
        ("X_STRIDE", shape.inputs() as i64),
        ("OUT_STRIDE", padded(shape.values()) as i64),
        ("NORMED", i64::from(shape.normed)),
        shape.planes.define(),
    ];
    Ok(Program::of::<Arguments>(NAME, source!("mamba2/mamba2.cu"), defines))
}

/// Where the parts of the scratch memory begin, in values of 4 bytes, and where the last one ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mamba2ScratchLayout {
    convolved: usize,
    steps: usize,
    keys: usize,
    mats: usize,
    sums: usize,
    end: usize,
}

fn parts(shape: Mamba2Shape, rows: usize, pieces: usize) -> Mamba2ScratchLayout {
    // Of rows in no piece, which are one token a sequence, there are no chunks.
    let chunks = if pieces == 0 { 0 } else { chunks_max(rows, pieces) };
    let convolved = rows * shape.values();
    let steps = convolved + rows * shape.channels();
    // Copies are of 16 bytes.
    let keys = (steps + rows * shape.heads * 2).next_multiple_of(4);
    let mats = keys + chunks * shape.groups * 2 * CHUNK * shape.wide();
    let sums = mats + chunks * shape.heads * CHUNK * CHUNK;
    Mamba2ScratchLayout { convolved, steps, keys, mats, sums, end: sums + chunks * shape.heads * CHUNK * 2 }
}

/// Values of scratch memory (f32) that a launch for `rows` rows in `pieces` pieces wants, or in 0 one of single tokens.
/// Layers may share it.
pub fn scratch(shape: Mamba2Shape, rows: usize, pieces: usize) -> usize {
    parts(shape, rows, pieces).end
}

device_struct! {
    /// Parameters that the five kernels share.
    #[derive(Default)]
    struct Arguments {
        /// Rows of the in-projection, `[rows, inputs]`.
        x: Ptr<f32>,
        /// `[slots, heads, P, N]`.
        state: PtrMut<f32>,
        /// Inputs of the convolution at the last four positions of each slot, `[slots, 4, channels]`; position `p` has
        /// entry `p % 4`.
        tail: PtrMut<f32>,
        /// Weights of the convolution, `[channels, 4]`; the last of four is the current token's.
        taps: Ptr<f32>,
        /// Bias of the convolution, `[channels]`.
        conv_bias: Ptr<f32>,
        /// Factor `-exp(A_log)` of each head's log decay, `[heads]`, below 0.
        a_neg: Ptr<f32>,
        /// Factor D of the input that goes past the state, `[heads]`.
        d: Ptr<f32>,
        /// Bias of each head's step size, `[heads]`.
        dt_bias: Ptr<f32>,
        /// `[heads * P]`; not read without norms.
        norm: Ptr<f32>,
        /// Scratch: `[rows, heads * P]`, before the gate.
        values: PtrMut<f32>,
        /// Slot of each row's sequence, `[rows]`; read by decode alone.
        slots: Ptr<i32>,
        /// Position of each row in its sequence, `[rows]`; read by decode alone.
        positions: Ptr<i32>,
        /// Of decode: `[rows, groups]`, blocks that are done, zero between launches.
        counters: PtrMut<i32>,
        /// Of prompts: `[count]`: slot, start, first row, rows.
        pieces: Ptr<[i32; 4]>,
        /// Of prompts, scratch: `[rows, channels]`.
        convolved: PtrMut<f32>,
        /// Of prompts, scratch: `[rows, heads]` of step size and log decay.
        steps: PtrMut<[f32; 2]>,
        /// Of prompts, scratch: `[chunks, groups, C and B, high and low, 64, N or 64]` bf16.
        keys: PtrMut<u16>,
        /// Of prompts, scratch: `[chunks, heads, high and low, 64, 64]` bf16.
        mats: PtrMut<u16>,
        /// Of prompts, scratch: `[chunks, heads, 64]`: what a token takes of the state before, and gives to that
        /// behind.
        sums: PtrMut<[f32; 2]>,
        /// Of prompts: `[chunks]`, where state and ring after each are kept too, or below 0; null: nowhere.
        exports: Ptr<i32>,
        /// `[rows, padded(heads * P) * planes]`.
        codes: PtrMut<i8>,
        /// `[rows, padded(heads * P) / 32 * planes]`.
        meta: PtrMut<[f32; 2]>,
        eps: f32,
        /// Of prompts: how many pieces there are.
        count: i32,
        /// Of prompts: halves of chunks that the scan's shared memory holds.
        stages: i32,
    }
}

/// Weights of one layer.
#[derive(Clone, Copy)]
pub struct LayerWeights<'a> {
    /// `[channels, 4]`, the last is the current token's.
    pub taps: &'a CudaView<'a, f32>,
    /// Bias of the convolution, `[channels]`.
    pub conv_bias: &'a CudaView<'a, f32>,
    /// Factor `-exp(A_log)` of each head's log decay, `[heads]`, below 0.
    pub a_neg: &'a CudaView<'a, f32>,
    /// `[heads]`, what of the input goes past the state.
    pub d: &'a CudaView<'a, f32>,
    /// Bias of each head's step size, `[heads]`.
    pub dt_bias: &'a CudaView<'a, f32>,
    /// `[heads * P]`, where values are normed.
    pub norm: &'a CudaView<'a, f32>,
    /// Epsilon of the norm of each group's values.
    pub eps: f32,
}

/// State of a layer's sequences, by slot.
pub struct Mamba2State<'a, 'b> {
    /// `[slots, heads, P, N]`.
    pub state: &'a mut CudaViewMut<'b, f32>,
    /// `[slots, 4, channels]`: entry `p % 4` is position `p`'s input.
    pub tail: &'a mut CudaViewMut<'b, f32>,
}

/// The rows of a step; on the device, written before the step begins.
#[derive(Clone, Copy)]
pub struct Mamba2Rows<'a> {
    /// Number of rows, padding rows included.
    pub count: usize,
    /// Slot of each row's sequence; below 0: no row. No slot comes twice.
    pub slots: &'a CudaView<'a, i32>,
    /// Position of each row.
    pub positions: &'a CudaView<'a, i32>,
}

/// The kernels for the layers of a model.
#[derive(Debug)]
pub struct Mamba2 {
    shape: Mamba2Shape,
    decode: Kernel<Arguments>,
    conv: Kernel<Arguments>,
    chunk: Kernel<Arguments>,
    /// For each of [`STAGES`] that fits.
    scan: Vec<(usize, Kernel<Arguments>)>,
    finish: Kernel<Arguments>,
    shared_max: usize,
    multiprocessors: usize,
}

/// What decode keeps between blocks of a launch; every layer may use the same.
#[derive(Debug)]
pub struct Counters(CudaSlice<i32>);

impl Counters {
    /// Bytes for `rows` rows.
    pub fn bytes(shape: Mamba2Shape, rows: usize) -> usize {
        4 * rows * shape.groups
    }

    /// For `rows` rows.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn new(device: &Device, shape: Mamba2Shape, rows: usize) -> Result<Self, CudaError> {
        let failed = |error| CudaError::Driver { call: "cuMemAlloc", error };
        device.stream().alloc_zeros(rows * shape.groups).map(Self).map_err(failed)
    }
}

impl Mamba2 {
    /// Loads the kernels for `shape`.
    ///
    /// # Errors
    /// If there are none for it, or they cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, shape: Mamba2Shape) -> Result<Self, CudaError> {
        let module = device.module(cache, &program(shape)?)?;
        let (scan, shared_max) = (module.kernel("mamba2_scan")?, device.shared_memory_max()?);
        // What a function may have at most is one value for all its handles, so the largest comes last.
        let stages = STAGES.into_iter().filter(|n| *n == 1 || n * shape.stage_bytes() <= shared_max);
        let scan = stages.map(|n| Ok((n, scan.clone().with_shared(n * shape.stage_bytes())?)));
        Ok(Self {
            shape,
            decode: module.kernel("mamba2_decode")?,
            conv: module.kernel("mamba2_conv")?,
            chunk: module.kernel("mamba2_chunk")?.with_shared(shape.key_bytes())?,
            scan: scan.collect::<Result<_, CudaError>>()?,
            finish: module.kernel("mamba2_finish")?,
            shared_max,
            multiprocessors: device.multiprocessors() as usize,
        })
    }

    /// Enqueues one token a sequence. `x` is `[rows, inputs]`, `scratch` as long as [`scratch`] says. Rows that are
    /// none stay as they are.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// Slots on the device are below those that `memory` has room for, and no two rows have the same. The memory and
    /// the lists were last written before a launch that does not start early, such as the first of a graph.
    #[allow(clippy::too_many_arguments, reason = "inputs, weights, memory and outputs of one operation")]
    pub unsafe fn decode(
        &self,
        device: &Device,
        rows: Mamba2Rows<'_>,
        x: &CudaView<'_, f32>,
        layer: LayerWeights<'_>,
        memory: Mamba2State<'_, '_>,
        counters: &mut Counters,
        scratch: &mut CudaViewMut<'_, f32>,
        out: MixedRows<'_, '_>,
    ) -> Result<(), CudaError> {
        let n = rows.count;
        self.fits("the list of slots", rows.slots.len(), n)?;
        self.fits("the list of positions", rows.positions.len(), n)?;
        self.fits("the counters", counters.0.len(), n * self.shape.groups)?;
        let arguments = self.arguments(device, (n, 0), x, layer, memory, scratch, out)?;
        if n == 0 {
            return Ok(());
        }
        let stream = device.stream();
        let arguments = Arguments {
            slots: Ptr::of(rows.slots, stream),
            positions: Ptr::of(rows.positions, stream),
            counters: PtrMut::of(&mut counters.0, stream),
            ..arguments
        };
        // SAFETY: buffers were found large enough, the caller vouches for slots and for the memory; that, the lists and
        // weights are all that the kernel reads before its wait.
        unsafe { self.enqueue(device, &self.decode, (self.shape.blocks(), n), THREADS, &arguments) }
    }

    /// Enqueues pieces of prompts. `x` is `[rows, inputs]`, `scratch` as long as [`scratch`] says. Rows in no piece
    /// stay as they are.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// The list is as [`Pieces`] says, and its slots are below those that `memory` has room for.
    #[allow(clippy::too_many_arguments, reason = "inputs, weights, memory and outputs of one operation")]
    pub unsafe fn prefill(
        &self,
        device: &Device,
        pieces: Pieces<'_>,
        x: &CudaView<'_, f32>,
        layer: LayerWeights<'_>,
        memory: Mamba2State<'_, '_>,
        scratch: &mut CudaViewMut<'_, f32>,
        out: MixedRows<'_, '_>,
    ) -> Result<(), CudaError> {
        let (shape, Pieces { list, count, rows, exports }) = (self.shape, pieces);
        let chunks = chunks_max(rows, count);
        self.fits("the list of pieces", list.len(), count * PIECE)?;
        self.fits("the exports", exports.map_or(usize::MAX, |list| list.len()), chunks)?;
        let arguments = self.arguments(device, (rows, count), x, layer, memory, scratch, out)?;
        if rows == 0 || count == 0 {
            return Ok(());
        }
        let stream = device.stream();
        let scan_blocks = shape.values() / (shape.scan_warps() * WARP_VALUES);
        let stages = shape.stages(scan_blocks * count, self.shared_max, self.multiprocessors);
        let arguments = Arguments {
            pieces: Ptr::of(list, stream),
            exports: Ptr::of_some(exports, stream),
            count: count as i32,
            stages: stages as i32,
            ..arguments
        };
        let chunk_blocks = shape.groups * (shape.heads / shape.groups).div_ceil(CHUNK_HEADS);
        let (_, scan) = self.scan.iter().find(|(n, _)| *n == stages).expect("those that fit were loaded");
        let strips = (shape.channels() + shape.heads).div_ceil(THREADS);
        // SAFETY: buffers were found large enough; the caller vouches for the pieces and slots; before their waits the
        // kernels read nothing.
        unsafe {
            self.enqueue(device, &self.conv, (chunks * CONV_PARTS, strips), THREADS, &arguments)?;
            self.enqueue(device, &self.chunk, (chunks, chunk_blocks), CHUNK_THREADS, &arguments)?;
            self.enqueue(device, scan, (scan_blocks, count), shape.scan_warps() * 32, &arguments)?;
            self.enqueue(device, &self.finish, (chunks * FINISH_PARTS, shape.groups), THREADS, &arguments)
        }
    }

    fn fits(&self, what: &str, got: usize, need: usize) -> Result<(), CudaError> {
        let text = || format!("{what} has {got} elements, {:?} needs {need}", self.shape);
        if got >= need { Ok(()) } else { Err(CudaError::shape(NAME, text())) }
    }

    /// What both ways are given, once everything is found to be large enough for `rows` rows in `pieces` pieces.
    #[allow(clippy::too_many_arguments, reason = "inputs, weights, memory and outputs of one operation")]
    fn arguments(
        &self,
        device: &Device,
        (rows, pieces): (usize, usize),
        x: &CudaView<'_, f32>,
        layer: LayerWeights<'_>,
        memory: Mamba2State<'_, '_>,
        scratch: &mut CudaViewMut<'_, f32>,
        out: MixedRows<'_, '_>,
    ) -> Result<Arguments, CudaError> {
        let (shape, parts) = (self.shape, parts(self.shape, rows, pieces));
        let codes = rows * padded(shape.values()) * shape.planes.count();
        self.fits("the input", x.len(), rows * shape.inputs())?;
        self.fits("the convolution", layer.taps.len(), shape.channels() * TAPS)?;
        self.fits("the convolution's bias", layer.conv_bias.len(), shape.channels())?;
        self.fits("the decay", layer.a_neg.len(), shape.heads)?;
        self.fits("d", layer.d.len(), shape.heads)?;
        self.fits("dt_bias", layer.dt_bias.len(), shape.heads)?;
        self.fits("the norm", layer.norm.len(), if shape.normed { shape.values() } else { 0 })?;
        self.fits("the state", memory.state.len(), rows.min(1) * shape.state())?;
        self.fits("the ring", memory.tail.len(), rows.min(1) * shape.tail())?;
        self.fits("scratch memory", scratch.len(), parts.end)?;
        self.fits("codes", out.codes.len(), codes)?;
        self.fits("meta", out.meta.len(), codes / 16)?;
        let stream = device.stream();
        let scratch = PtrMut::<f32>::of(scratch, stream);
        Ok(Arguments {
            x: Ptr::of(x, stream),
            state: PtrMut::of(memory.state, stream),
            tail: PtrMut::of(memory.tail, stream),
            taps: Ptr::of(layer.taps, stream),
            conv_bias: Ptr::of(layer.conv_bias, stream),
            a_neg: Ptr::of(layer.a_neg, stream),
            d: Ptr::of(layer.d, stream),
            dt_bias: Ptr::of(layer.dt_bias, stream),
            norm: Ptr::of(layer.norm, stream),
            values: scratch,
            convolved: scratch.skip(parts.convolved),
            steps: scratch.skip(parts.steps).cast(),
            keys: scratch.skip(parts.keys).cast(),
            mats: scratch.skip(parts.mats).cast(),
            sums: scratch.skip(parts.sums).cast(),
            codes: PtrMut::of(out.codes, stream),
            meta: PtrMut::of(out.meta, stream),
            eps: layer.eps,
            ..Arguments::default()
        })
    }

    /// # Safety
    /// The arguments are those of a launch that was checked.
    unsafe fn enqueue(
        &self,
        device: &Device,
        kernel: &Kernel<Arguments>,
        blocks: (usize, usize),
        threads: usize,
        arguments: &Arguments,
    ) -> Result<(), CudaError> {
        let grid = Grid { blocks: (blocks.0 as u32, blocks.1 as u32), threads: threads as u32 };
        // SAFETY: the caller's.
        unsafe { kernel.launch(device, grid, arguments) }
    }
}

const _: () = assert!(CHUNK == 64, "the source's chunks are those of the delta rule, by which states are kept");

#[cfg(test)]
mod tests {
    use super::*;

    const NANO: Mamba2Shape =
        Mamba2Shape { heads: 64, head_dim: 64, state_dim: 128, groups: 8, normed: true, planes: Planes::One };

    #[test]
    fn released_models_have_kernels_and_their_heads_are_cut_to_fit_registers() {
        assert_eq!((NANO.channels(), NANO.inputs(), NANO.state()), (6144, 10304, 524_288));
        let falcon = Mamba2Shape { heads: 24, head_dim: 128, state_dim: 256, groups: 1, ..NANO };
        assert!(program(NANO).is_ok() && program(falcon).is_ok());
        assert_eq!((NANO.part(), NANO.blocks(), falcon.part(), falcon.blocks()), (64, 64, 32, 96));
    }

    #[test]
    fn sizes_without_a_kernel_are_refused_by_name() {
        let refused = |s: Mamba2Shape| program(s).unwrap_err().to_string();
        assert!(refused(Mamba2Shape { state_dim: 16, ..NANO }).contains("a state of 16"));
        assert!(refused(Mamba2Shape { head_dim: 80, ..NANO }).contains("heads of 80"));
        assert!(refused(Mamba2Shape { groups: 3, ..NANO }).contains("64 heads in 3 groups"));
    }

    #[test]
    fn parts_of_the_scratch_memory_are_aligned_for_copies() {
        for shape in [NANO, Mamba2Shape { heads: 1, groups: 1, ..NANO }] {
            let parts = parts(shape, 7, 2);
            let all = [parts.convolved, parts.steps, parts.keys, parts.mats, parts.sums];
            assert!(all.iter().all(|at| at.is_multiple_of(4)) && parts.end == scratch(shape, 7, 2), "{parts:?}");
            assert!(scratch(shape, 7, 0) < parts.mats);
        }
    }

    #[test]
    fn half_a_chunk_fits_into_the_smallest_shared_memory_and_two_chunks_into_the_largest() {
        let kib = [99, 163, 227].map(|kib| kib << 10);
        assert_eq!(kib.map(|max| NANO.stages(64, max, 132)), [2, 2, 4]);
        assert_eq!(kib.map(|max| NANO.stages(256, max, 132)), [2; 3]);
        let falcon = Mamba2Shape { heads: 24, head_dim: 128, state_dim: 256, groups: 1, ..NANO };
        assert!(falcon.stage_bytes() <= kib[0]);
        assert_eq!(kib.map(|max| falcon.stages(48, max, 132)), [1, 2, 2]);
    }
}
