//! Full attention over a paged cache, from a step's in-projections to the int8 rows of the out-projection:
//! [`crate::reference::rmsnorm`] and [`crate::reference::rope`] of queries and keys, [`crate::reference::attention`],
//! the sigmoid gate.
//!
//! [`Attention::decode`] is one launch for one row a sequence and the drafted ones behind it, [`Attention::prefill`]
//! two for neighbouring rows of sequences. A row's bytes depend on its own sequence alone; the two ways differ in the
//! last bits.

use crate::cuda::rows::quantized::Planes;
use crate::cuda::runtime::arguments::{self, DeviceStruct, Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::wide::halves::{HIDDEN_FACTOR, HalfRows};
use crate::cuda::{Arch, CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaSlice, CudaView, CudaViewMut};

/// Positions of a page.
pub const PAGE: usize = 32;
/// Most rows of a decode step: each thread of a block knows one.
pub const DECODE_ROWS_MAX: usize = 256;
/// Query rows of the smallest prefill tile, over tokens and heads of a key-value head.
const TILE_ROWS: usize = 64;
/// And of those of two warpgroups, where the chip has matrix instructions for them.
const WIDE_TILE_ROWS: usize = 2 * TILE_ROWS;
/// Most splits of a row, as in the source.
const SPLITS_MAX: usize = 128;
/// Places for the weights of a row's splits: of all that there may be, and of those that are asked for beyond.
const ADD_WEIGHTS: usize = SPLITS_MAX + 36;
/// Pages of the shortest split, as in the source.
const SPLIT_PAGES: usize = 8;
const PREFILL_THREADS: u32 = 128;
/// Two warpgroups that attend, one that brings what they want.
const WIDE_PREFILL_THREADS: u32 = 3 * 128;
/// Bytes of barriers behind what these have in shared memory.
const BARRIER_BYTES: usize = 80;
/// The least that any supported chip has for a block.
const SHARED_BYTES_MAX: usize = 99 << 10;

/// Widths of heads that there are kernels for, ascending.
pub const DIMS: [usize; 3] = [64, 128, 256];

/// Heads of an attention layer, and its rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// D, of queries, keys and values.
    pub dim: usize,
    /// How many query heads there are.
    pub heads: usize,
    /// Key-value heads; query head `h` uses `h / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Dims that are rotated, pair `(i, i + rotary / 2)`.
    pub rotary: usize,
    /// Base of the rotations' frequencies.
    pub theta: f64,
    /// Epsilon of the norms of queries and keys.
    pub eps: f32,
    /// Whether query heads have gates.
    pub gated: bool,
    /// Whether queries and keys are normed.
    pub normed: bool,
    /// What scores are multiplied with.
    pub scale: f32,
    /// From an input row to the next, in values: D of q and D of gate, if there are gates, for each query head, all k,
    /// all v.
    pub stride: usize,
    /// Of the output rows.
    pub planes: Planes,
    /// Drafted rows that may stand behind a sequence's own in a decode step.
    pub drafts: usize,
}

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvType {
    /// Keys and values as f16.
    F16,
    /// Both in blocks of 32 dims that share an f16 scale, codes of 8 bits; keys after a Hadamard rotation.
    Q8,
    /// Keys as [`KvType::Q8`], values with codes of 4 bits.
    Q8Q4,
}

impl KvType {
    /// As the source numbers them.
    fn codes(self) -> (i64, i64) {
        match self {
            Self::F16 => (0, 0),
            Self::Q8 => (1, 1),
            Self::Q8Q4 => (1, 2),
        }
    }

    /// Bytes of one key and one value of `dim` dims.
    fn vector_bytes(self, dim: usize) -> (usize, usize) {
        let scales = dim / 32 * 2;
        match self {
            Self::F16 => (2 * dim, 2 * dim),
            Self::Q8 => (dim + scales, dim + scales),
            Self::Q8Q4 => (dim + scales, dim / 2 + scales),
        }
    }
}

impl AttentionShape {
    /// Query heads that share a key-value head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Values of an input row.
    pub fn inputs(&self) -> usize {
        ((1 + usize::from(self.gated)) * self.heads + 2 * self.kv_heads) * self.dim
    }

    /// From an output row to the next, in values: a multiple of 128.
    pub fn out_stride(&self) -> usize {
        (self.heads * self.dim).next_multiple_of(128)
    }

    /// Bytes of a page of keys and of a page of values, all key-value heads of one layer.
    pub fn page_bytes(&self, kv: KvType) -> (usize, usize) {
        let (k, v) = kv.vector_bytes(self.dim);
        (self.kv_heads * PAGE * k, self.kv_heads * PAGE * v)
    }

    /// The scale of most models, `1 / sqrt(dim)`.
    pub fn usual_scale(dim: usize) -> f32 {
        1.0 / (dim as f32).sqrt()
    }

    /// The scale for powers of 2 instead of e. The usual one is rounded once.
    fn scale_of_two(&self) -> f32 {
        if self.scale == Self::usual_scale(self.dim) {
            return std::f32::consts::LOG2_E / (self.dim as f32).sqrt();
        }
        std::f32::consts::LOG2_E * self.scale
    }

    /// That there is a kernel for it.
    ///
    /// # Errors
    /// If there is none; it names the size.
    pub fn check(&self) -> Result<(), CudaError> {
        let fail = |reason: String| Err(CudaError::shape("attention", reason));
        let AttentionShape { dim, heads, kv_heads, rotary, stride, .. } = *self;
        if !DIMS.contains(&dim) {
            return fail(format!("heads of {dim}: must be of 64, 128 or 256"));
        }
        if kv_heads == 0 || heads == 0 || !heads.is_multiple_of(kv_heads) || heads / kv_heads > 16 {
            return fail(format!(
                "{heads} query heads for {kv_heads} key-value heads: must be a multiple, at most 16 of each"
            ));
        }
        if !(rotary.is_multiple_of(4) && rotary <= 64 || rotary == 128 && dim == 128) {
            let reason = format!("{rotary} rotated dims: must be a multiple of 4, at most 64, or all of 128");
            return fail(reason);
        }
        if stride < self.inputs() || !stride.is_multiple_of(2) {
            return fail(format!("input rows {stride} apart: must be even and at least {}", self.inputs()));
        }
        Ok(())
    }

    /// Shared memory of a prefill block: queries, and two pages of keys and values as f16 or one of these and one as it
    /// is kept.
    fn prefill_shared_bytes(&self, kv: KvType) -> usize {
        let (queries, f16_pages) = (TILE_ROWS * self.dim * 2, 2 * PAGE * self.dim * 2);
        let (k, v) = kv.vector_bytes(self.dim);
        queries + f16_pages + PAGE * (k + v)
    }

    /// Shared memory of a prefill block of warpgroups, in bytes: queries, four pages of keys and four of values as f16,
    /// and two pages of each in the cache's encoding unless that is f16.
    fn wide_prefill_shared_bytes(&self, kv: KvType) -> usize {
        let (queries, f16_pages) = (WIDE_TILE_ROWS * self.dim * 2, 2 * 4 * PAGE * self.dim * 2);
        let (k, v) = kv.vector_bytes(self.dim);
        queries + f16_pages + if kv == KvType::F16 { 0 } else { 2 * PAGE * (k + v) } + BARRIER_BYTES
    }

    /// Shared memory of a decode block: `Decode` of the source, which asserts it.
    fn decode_shared_bytes(&self, kv: KvType, tiling: Tiling) -> usize {
        let (dim, group, (k, v)) = (self.dim, self.group(), kv.vector_bytes(self.dim));
        let query_rows = if group > 8 { 16 } else { 8 };
        let pages = tiling.round * PAGE * (k + v);
        let products = (dim / 32 + tiling.round) * query_rows * 64 + 4 * group * dim.max(ADD_WEIGHTS);
        let own = 4 * 4 * dim + 8 * (self.rotary / 2 + 1);
        let sums = 2 * 4 * tiling.warps * 16 + 2 * 8;
        let lists = 4 * (3 * DECODE_ROWS_MAX + tiling.warps);
        (pages + products + own + sums + lists).next_multiple_of(128)
    }
}

/// Most splits of a row of up to `context` positions: a split has 8 pages, and twice as many whenever there would be
/// more than 128.
pub fn splits(context: usize) -> usize {
    let pages = context.div_ceil(PAGE);
    // One page more may halve their number; the most is reached before.
    if pages > SPLITS_MAX * SPLIT_PAGES { SPLITS_MAX } else { pages.div_ceil(SPLIT_PAGES) }
}

/// Query rows of the largest prefill tile.
fn tile_rows_max(arch: Arch) -> usize {
    if arch.has_warpgroups() { WIDE_TILE_ROWS } else { TILE_ROWS }
}

/// The chip, as far as it decides about prefill tiles.
#[derive(Clone, Copy, Debug)]
pub struct TileChip {
    /// What its code is made for.
    pub arch: Arch,
    /// How many multiprocessors it has.
    pub multiprocessors: usize,
}

impl TileChip {
    /// That of a device.
    pub fn of(device: &Device) -> Self {
        Self { arch: device.arch(), multiprocessors: device.multiprocessors() as usize }
    }
}

/// Most tiles of a step of `rows` rows in `pieces` pieces.
pub fn tiles_max(shape: AttentionShape, chip: TileChip, rows: usize, pieces: usize) -> usize {
    let tiles = rows.div_ceil(tile_rows_max(chip.arch) / shape.group()) + pieces;
    tiles.max(chip.multiprocessors)
}

/// Tiles `{first row, rows}` of a step whose sequences have `pieces` neighbouring rows each, one after another. Pieces
/// of 0 have none. Where small tiles do not fill the chip, tiles are small; a row's bytes do not depend on it.
pub fn tiles(shape: AttentionShape, chip: TileChip, pieces: &[usize]) -> Vec<[i32; 2]> {
    let small = TILE_ROWS / shape.group();
    let smalls: usize = pieces.iter().map(|rows| rows.div_ceil(small)).sum();
    let few = smalls * shape.kv_heads <= chip.multiprocessors;
    tiles_of(if few { small } else { tile_rows_max(chip.arch) / shape.group() }, pieces)
}

/// Cuts pieces into tiles of `tokens` rows each; the last tile of a piece may have fewer.
fn tiles_of(tokens: usize, pieces: &[usize]) -> Vec<[i32; 2]> {
    let (mut first, mut tiles) = (0, Vec::new());
    for piece in pieces {
        let rows = |at: &usize| [(first + at) as i32, tokens.min(piece - at) as i32];
        tiles.extend((0..*piece).step_by(tokens).map(|at| rows(&at)));
        first += piece;
    }
    tiles
}

/// How a decode block is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Pages that a block holds at a time: 2, 4 or 8.
    pub round: usize,
    /// Blocks of a multiprocessor.
    pub resident: usize,
    /// Warps of a block: 8, or 16 with four pages and more.
    pub warps: usize,
}

/// As many pages as fit into 72 KiB, where that leaves room for the rest on every chip; two blocks of that fit on a
/// large one. Where it is two pages only, a block alone with four of them and twice the warps waits half as often: it
/// is taken where the chip has shared memory enough for it.
pub fn tiling(shape: AttentionShape, kv: KvType, arch: Arch) -> Tiling {
    const STAGED_BYTES_MAX: usize = 72 << 10;
    const ALONE: Tiling = Tiling { round: 4, resident: 1, warps: 16 };
    let (k, v) = kv.vector_bytes(shape.dim);
    let fits = |tiling: &Tiling| {
        tiling.round * PAGE * (k + v) <= STAGED_BYTES_MAX && shape.decode_shared_bytes(kv, *tiling) <= SHARED_BYTES_MAX
    };
    let pair = |round: usize| Tiling { round, resident: 2, warps: 8 };
    let pages = [8, 4].map(pair).into_iter().find(fits);
    let alone = (shape.decode_shared_bytes(kv, ALONE) <= arch.shared_bytes_max()).then_some(ALONE);
    pages.or(alone).unwrap_or(pair(2))
}

/// The program of all three kernels.
///
/// # Errors
/// If there is no kernel for the shape.
pub fn program(shape: AttentionShape, kv: KvType, tiling: Tiling) -> Result<Program, CudaError> {
    shape.check()?;
    debug_assert!(shape.prefill_shared_bytes(kv) <= SHARED_BYTES_MAX, "every legal shape fits");
    let (k_type, v_type) = kv.codes();
    let defines = vec![
        ("D", shape.dim as i64),
        ("GQ", shape.group() as i64),
        ("HKV", shape.kv_heads as i64),
        ("ROTARY", shape.rotary as i64),
        ("GATED", i64::from(shape.gated)),
        ("NORMED", i64::from(shape.normed)),
        ("X_STRIDE", shape.stride as i64),
        ("OUT_STRIDE", shape.out_stride() as i64),
        ("K_TYPE", k_type),
        ("V_TYPE", v_type),
        ("DRAFTS", shape.drafts as i64),
        ("ROUND", tiling.round as i64),
        ("WARPS", tiling.warps as i64),
        ("RESIDENT", tiling.resident as i64),
        ("DECODE_BYTES", shape.decode_shared_bytes(kv, tiling) as i64),
        ("HIDDEN_FACTOR", HIDDEN_FACTOR),
        shape.planes.define(),
    ];
    Ok(Program {
        name: "attention",
        source: source!("attention/attention.cu"),
        arguments: arguments::file(&[Arguments::declaration()]),
        defines,
    })
}

/// The kernels for the attention layers of a model.
#[derive(Debug)]
pub struct Attention {
    shape: AttentionShape,
    kv: KvType,
    /// Threads of a decode block, and how many of them the chip runs at a time: blocks wait for one another.
    decode_grid: Grid,
    /// Turns of a circle a position, for each pair.
    turns: CudaSlice<f64>,
    decode: Kernel<Arguments>,
    write: Kernel<Arguments>,
    prefill: Kernel<Arguments>,
}

/// What decode keeps between blocks of a launch; every layer may use the same.
#[derive(Debug)]
pub struct Scratch {
    rows: usize,
    splits: usize,
    /// `[rows, kv_heads, splits, group, dim]` f16.
    partials: CudaSlice<u16>,
    /// `[rows, kv_heads, splits, group]` of largest score and sum.
    stats: CudaSlice<f32>,
    /// `[rows, kv_heads, 2]`, zero between launches.
    counters: CudaSlice<i32>,
}

impl Scratch {
    /// Bytes for `rows` rows of up to `context` positions.
    pub fn bytes(shape: AttentionShape, rows: usize, context: usize) -> usize {
        rows * (splits(context) * shape.heads * (2 * shape.dim + 8) + 8 * shape.kv_heads)
    }

    /// Room for `rows` rows of up to `context` positions.
    ///
    /// # Errors
    /// If the device has not that much memory.
    pub fn new(device: &Device, shape: AttentionShape, rows: usize, context: usize) -> Result<Self, CudaError> {
        let (stream, splits) = (device.stream(), splits(context));
        let failed = |error| CudaError::Driver { call: "cuMemAlloc", error };
        Ok(Self {
            rows,
            splits,
            partials: stream.alloc_zeros(rows * splits * shape.heads * shape.dim).map_err(failed)?,
            stats: stream.alloc_zeros(rows * splits * shape.heads * 2).map_err(failed)?,
            counters: stream.alloc_zeros(rows * shape.kv_heads * 2).map_err(failed)?,
        })
    }
}

/// A step's rows; on the device, written before the step begins.
#[derive(Clone, Copy)]
pub struct AttentionRows<'a> {
    /// Number of rows, padding rows included.
    pub count: usize,
    /// Slot of each row's sequence; below 0: no row. In a decode step rows of one slot stand next to one another: all
    /// but the first are drafted.
    pub slots: &'a CudaView<'a, i32>,
    /// Position of each row; of drafted ones one after another.
    pub positions: &'a CudaView<'a, i32>,
    /// `[slots, pages_max]`: page of the cache that holds positions `32 i` to `32 i + 31`. Written before the step
    /// begins.
    pub page_table: &'a CudaView<'a, i32>,
    /// Pages of a slot's row in the table.
    pub pages_max: usize,
    /// Whether input rows are f16, two in the place of an f32; not of decode steps.
    pub half_inputs: bool,
}

/// Weights of one layer.
#[derive(Clone, Copy)]
pub struct Norms<'a> {
    /// `[dim]`, the factor itself.
    pub query: &'a CudaView<'a, f32>,
    /// `[dim]`, the factor itself.
    pub key: &'a CudaView<'a, f32>,
}

/// KV cache of one layer, in pages of [`AttentionShape::page_bytes`] each.
pub struct Cache<'a, 'b> {
    /// Pages of keys, `[pages, bytes of a page of keys]`.
    pub keys: &'a mut CudaViewMut<'b, u8>,
    /// Pages of values, `[pages, bytes of a page of values]`.
    pub values: &'a mut CudaViewMut<'b, u8>,
}

/// Where the result goes: int8 rows of [`AttentionShape::out_stride`]; what is beyond `heads * dim` of a row stays as
/// it is.
pub struct Out<'a, 'b> {
    /// `[rows, out_stride * planes]`.
    pub codes: &'a mut CudaViewMut<'b, i8>,
    /// `[rows, out_stride / 32 * planes, 2]`.
    pub meta: &'a mut CudaViewMut<'b, f32>,
    /// Where a prompt's rows go as f16 instead, if they do: with one plane, for heads whose values are whole units of
    /// 128.
    pub halves: Option<&'a HalfRows>,
}

device_struct! {
    /// Parameters that the three kernels share.
    struct Arguments {
        /// Rows of the in-projection, `[rows, stride]`: f32, or f16 where `half_x` is set.
        x: Ptr<f32>,
        /// Weight of the norm of queries, `[dim]`; not read where queries are not normed.
        q_norm: Ptr<f32>,
        /// Weight of the norm of keys, `[dim]`; not read where keys are not normed.
        k_norm: Ptr<f32>,
        /// `[rotary / 2]`: turns of a circle a position.
        turns: Ptr<f64>,
        /// Slot of each row's sequence, `[rows]`; a padding row has a value below 0.
        slots: Ptr<i32>,
        /// Position of each row in its sequence, `[rows]`.
        positions: Ptr<i32>,
        /// Page of the cache that holds each 32 positions of a slot, `[slots, pages_max]`.
        page_table: Ptr<i32>,
        k_cache: PtrMut<u8>,
        v_cache: PtrMut<u8>,
        /// `[rows, out_stride * planes]`.
        codes: PtrMut<i8>,
        /// `[rows, out_stride / 32 * planes]`.
        meta: PtrMut<[f32; 2]>,
        /// Of prefill: `[heads * dim / 64, rows, 64]`, instead of codes; or null.
        halves: PtrMut<u16>,
        /// Of decode: `[rows, kv_heads, splits_max, group, dim]` f16.
        partials: PtrMut<u16>,
        /// Of decode: `[rows, kv_heads, splits_max, group]` of largest score and sum.
        stats: PtrMut<[f32; 2]>,
        /// Of decode: `[rows, kv_heads, 2]`: splits that are done, blocks that know that all are; 0 between launches.
        counters: PtrMut<i32>,
        /// Of prefill: first row and rows.
        tiles: Ptr<[i32; 2]>,
        eps: f32,
        /// Of the scores, for powers of 2.
        scale: f32,
        rows: i32,
        /// Of prefill: whether `x` is f16, two in the place of an f32.
        half_x: i32,
        pages_max: i32,
        splits_max: i32,
    }
}

impl Attention {
    /// Loads the kernels for `shape`.
    ///
    /// # Errors
    /// If there are none for it, or they cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, shape: AttentionShape, kv: KvType) -> Result<Self, CudaError> {
        Self::load_tiled(device, cache, shape, kv, tiling(shape, kv, device.arch()))
    }

    /// Loads the kernels for `shape`, decode as `tiling` says.
    ///
    /// # Errors
    /// As [`Attention::load`].
    pub fn load_tiled(
        device: &Device,
        cache: &KernelCache,
        shape: AttentionShape,
        kv: KvType,
        tiling: Tiling,
    ) -> Result<Self, CudaError> {
        let module = device.module(cache, &program(shape, kv, tiling)?)?;
        // Never empty, so that it has an address.
        let turns: Vec<f64> = (0..(shape.rotary / 2).max(1)).map(|i| turns_a_position(shape, i)).collect();
        let turns =
            device.stream().clone_htod(&turns).map_err(|error| CudaError::Driver { call: "cuMemcpyHtoD", error })?;
        let wide = device.arch().has_warpgroups();
        let shared_bytes = if wide { shape.wide_prefill_shared_bytes(kv) } else { shape.prefill_shared_bytes(kv) };
        let decode = module.kernel("attention_decode")?.with_shared(shape.decode_shared_bytes(kv, tiling))?;
        let threads = 32 * tiling.warps as u32;
        let resident = decode.resident(threads)?.min(tiling.resident as u32);
        Ok(Self {
            shape,
            kv,
            decode_grid: Grid { blocks: (resident * device.multiprocessors(), 1), threads },
            turns,
            decode,
            write: module.kernel("attention_write")?,
            prefill: module.kernel("attention_prefill")?.with_shared(shared_bytes)?,
        })
    }

    /// Enqueues one row a sequence, with drafted ones behind it: writes a row's key and value, attends to all positions
    /// up to its own. `x` is `[rows, stride]`. Padding rows stay as they are.
    ///
    /// # Errors
    /// If there are more than [`DECODE_ROWS_MAX`] rows, a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// Rows that have the same slot are no more than one and the shape's drafts; slots are rows of the page table,
    /// positions are below 32 times its pages and below the context that `scratch` was made for, pages up to each row's
    /// position are named by the table and lie within the cache, and the page of the position itself belongs to this
    /// sequence alone. Slots, positions, pages and what the cache holds of earlier positions were last written before a
    /// launch that does not start early, such as the first of a graph.
    #[allow(clippy::too_many_arguments, reason = "rows, inputs, weights, memory and outputs of one operation")]
    pub unsafe fn decode(
        &self,
        device: &Device,
        rows: AttentionRows<'_>,
        x: &CudaView<'_, f32>,
        norms: Norms<'_>,
        cache: Cache<'_, '_>,
        scratch: &mut Scratch,
        out: Out<'_, '_>,
    ) -> Result<(), CudaError> {
        if rows.count > DECODE_ROWS_MAX || rows.count > scratch.rows {
            let reason = format!(
                "{} rows at once: at most {DECODE_ROWS_MAX}, and {} of the scratch memory",
                rows.count, scratch.rows
            );
            return Err(CudaError::shape("attention", reason));
        }
        if rows.half_inputs || out.halves.is_some() {
            return Err(CudaError::shape("attention", "rows of f16 are those of prompts"));
        }
        let mut arguments = self.arguments(device, rows, x, norms, cache, out)?;
        if rows.count == 0 {
            return Ok(());
        }
        let (stream, kv_heads) = (device.stream(), self.shape.kv_heads);
        // Of another shape, these would be too small.
        self.fits(
            "the scratch memory",
            rows.count,
            scratch.stats.len(),
            scratch.rows * scratch.splits * self.shape.heads * 2,
        )?;
        self.fits("the partial sums", rows.count, scratch.partials.len(), scratch.stats.len() / 2 * self.shape.dim)?;
        self.fits("the counters", rows.count, scratch.counters.len(), scratch.rows * kv_heads * 2)?;
        arguments.splits_max = scratch.splits as i32;
        arguments.partials = PtrMut::of(&mut scratch.partials, stream);
        arguments.stats = PtrMut::of(&mut scratch.stats, stream);
        arguments.counters = PtrMut::of(&mut scratch.counters, stream);
        let items = rows.count * kv_heads * scratch.splits;
        let Grid { blocks: (most, _), threads } = self.decode_grid;
        let grid = Grid { blocks: (most.min(items as u32), 1), threads };
        // SAFETY: buffers were found large enough for the rows, the caller vouches for slots, positions and pages, and
        // for what is read before the wait.
        unsafe { self.decode.launch(device, grid, &arguments) }
    }

    /// Whether input rows of prompts should be f16: of activations of 8 bits that is exact enough.
    pub fn half_inputs(&self) -> bool {
        self.shape.planes == Planes::One
    }

    /// Enqueues that the keys and values of rows are written, and no more. Padding rows leave none.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// As for [`Attention::prefill`], without tiles.
    pub unsafe fn write(
        &self,
        device: &Device,
        rows: AttentionRows<'_>,
        x: &CudaView<'_, f32>,
        norms: Norms<'_>,
        cache: Cache<'_, '_>,
        out: Out<'_, '_>,
    ) -> Result<(), CudaError> {
        let arguments = self.arguments(device, rows, x, norms, cache, out)?;
        if rows.count == 0 {
            return Ok(());
        }
        let write = Grid { blocks: (rows.count as u32, self.shape.kv_heads as u32), threads: 64 };
        // SAFETY: as in `decode`; the kernel waits before it reads anything.
        unsafe { self.write.launch(device, write, &arguments) }
    }

    /// Enqueues neighbouring rows of sequences: writes all their keys and values, then attends. `tiles` holds `count`
    /// of what [`tiles`] makes of the pieces, in any order; it lies on the device. Rows in no tile get no output; rows
    /// that are none stay as they are.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// As for [`Attention::decode`], but rows of a slot may be many: those of a tile have one slot and positions that
    /// count up by one, and each tile lies within the rows and is no longer than those of [`tiles`]. No two rows have
    /// the same slot and position.
    #[allow(clippy::too_many_arguments, reason = "rows, inputs, weights, memory and outputs of one operation")]
    pub unsafe fn prefill(
        &self,
        device: &Device,
        rows: AttentionRows<'_>,
        (tiles, count): (&CudaView<'_, i32>, usize),
        x: &CudaView<'_, f32>,
        norms: Norms<'_>,
        cache: Cache<'_, '_>,
        out: Out<'_, '_>,
    ) -> Result<(), CudaError> {
        let mut arguments = self.arguments(device, rows, x, norms, cache, out)?;
        self.fits("the list of tiles", rows.count, tiles.len(), 2 * count)?;
        if rows.count == 0 || count == 0 {
            return Ok(());
        }
        arguments.tiles = Ptr::of(tiles, device.stream());
        let kv_heads = self.shape.kv_heads as u32;
        let write = Grid { blocks: (rows.count as u32, kv_heads), threads: 64 };
        let threads = if device.arch().has_warpgroups() { WIDE_PREFILL_THREADS } else { PREFILL_THREADS };
        let attend = Grid { blocks: (count as u32, kv_heads), threads };
        // SAFETY: as in `decode`; both kernels wait before they read anything.
        unsafe {
            self.write.launch(device, write, &arguments)?;
            self.prefill.launch(device, attend, &arguments)
        }
    }

    fn fits(&self, what: &str, rows: usize, got: usize, need: usize) -> Result<(), CudaError> {
        let text = || format!("{what} has {got} elements, {rows} rows of {:?} need {need}", self.shape);
        if got >= need { Ok(()) } else { Err(CudaError::shape("attention", text())) }
    }

    /// What both have in common, after its checks.
    fn arguments(
        &self,
        device: &Device,
        rows: AttentionRows<'_>,
        x: &CudaView<'_, f32>,
        norms: Norms<'_>,
        cache: Cache<'_, '_>,
        out: Out<'_, '_>,
    ) -> Result<Arguments, CudaError> {
        let (shape, n) = (self.shape, rows.count);
        let (k_page, v_page) = shape.page_bytes(self.kv);
        self.fits("the list of slots", n, rows.slots.len(), n)?;
        self.fits("the list of positions", n, rows.positions.len(), n)?;
        self.fits("the page table", n, rows.page_table.len(), n.min(1) * rows.pages_max)?;
        self.fits("the input", n, x.len(), n * shape.stride / if rows.half_inputs { 2 } else { 1 })?;
        let normed = if shape.normed { shape.dim } else { 0 };
        self.fits("the norm of queries", n, norms.query.len(), normed)?;
        self.fits("the norm of keys", n, norms.key.len(), normed)?;
        self.fits("the cache of keys", n, cache.keys.len(), n.min(1) * k_page)?;
        self.fits("the cache of values", n, cache.values.len(), n.min(1) * v_page)?;
        let codes = n * shape.out_stride() * shape.planes.count();
        self.fits("codes", n, out.codes.len(), codes)?;
        self.fits("meta", n, out.meta.len(), codes / 16)?;
        let width = shape.heads * shape.dim;
        let halves = HalfRows::target(out.halves, device, "attention", (n, width), shape.planes)?;
        let stream = device.stream();
        Ok(Arguments {
            x: Ptr::of(x, stream),
            q_norm: Ptr::of(norms.query, stream),
            k_norm: Ptr::of(norms.key, stream),
            turns: Ptr::of(&self.turns, stream),
            slots: Ptr::of(rows.slots, stream),
            positions: Ptr::of(rows.positions, stream),
            page_table: Ptr::of(rows.page_table, stream),
            k_cache: PtrMut::of(cache.keys, stream),
            v_cache: PtrMut::of(cache.values, stream),
            codes: PtrMut::of(out.codes, stream),
            meta: PtrMut::of(out.meta, stream),
            halves,
            partials: PtrMut::default(),
            stats: PtrMut::default(),
            counters: PtrMut::default(),
            tiles: Ptr::default(),
            eps: shape.eps,
            scale: shape.scale_of_two(),
            rows: n as i32,
            half_x: i32::from(rows.half_inputs),
            pages_max: rows.pages_max as i32,
            splits_max: 0,
        })
    }
}

/// Pair `i` turns by `theta^(-2i / rotary)` radians a position.
fn turns_a_position(shape: AttentionShape, i: usize) -> f64 {
    shape.theta.powf(-2.0 * i as f64 / shape.rotary.max(1) as f64) / std::f64::consts::TAU
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASED: AttentionShape = AttentionShape {
        dim: 256,
        heads: 16,
        kv_heads: 2,
        rotary: 64,
        theta: 1e7,
        eps: 1e-6,
        gated: true,
        normed: true,
        scale: 1.0 / 16.0,
        stride: 9216,
        planes: Planes::One,
        drafts: 0,
    };

    #[test]
    fn the_released_model_s_cache_takes_what_the_specification_says() {
        let token = |kv| {
            let (k, v) = RELEASED.page_bytes(kv);
            10 * (k + v) / PAGE
        };
        assert_eq!([KvType::F16, KvType::Q8, KvType::Q8Q4].map(token), [20480, 10880, 8320]);
        assert_eq!((RELEASED.inputs(), RELEASED.out_stride()), (9216, 4096));
        assert_eq!(Scratch::bytes(RELEASED, 1, 256), 16 * 520 + 2 * 8);
    }

    #[test]
    fn a_row_has_at_most_as_many_splits_as_scratch_has_room_for() {
        // The device's rule.
        let of_row = |position: usize| {
            let (pages, mut per) = (position / PAGE + 1, SPLIT_PAGES);
            while per * SPLITS_MAX < pages {
                per *= 2;
            }
            pages.div_ceil(per)
        };
        let mut most = 0;
        for context in 1..=262_144 {
            most = most.max(of_row(context - 1));
            assert!(most <= splits(context), "{context}");
        }
        assert_eq!([1, 256, 257, 32768, 262_144].map(splits), [1, 1, 2, 128, 128]);
    }

    #[test]
    fn tiles_do_not_reach_from_one_sequence_to_the_next() {
        let of = |arch: &str, multiprocessors| TileChip { arch: arch.parse().unwrap(), multiprocessors };
        let (ada, hopper) = (of("sm_89", 4), of("sm_90a", 4));
        assert_eq!(tiles(RELEASED, ada, &[3, 0, 17]), [[0, 3], [3, 8], [11, 8], [19, 1]]);
        assert_eq!(tiles(RELEASED, hopper, &[3, 0, 17]), [[0, 3], [3, 16], [19, 1]]);
        // Two tiles of two key-value heads are as many as there are multiprocessors.
        assert_eq!(tiles(RELEASED, hopper, &[16]), [[0, 8], [8, 8]]);
        let six = AttentionShape { heads: 12, ..RELEASED };
        assert_eq!(tiles(six, hopper, &[25]), [[0, 21], [21, 4]]);
    }

    #[test]
    fn there_is_room_for_the_tiles_of_every_step() {
        for (arch, multiprocessors) in [("sm_89", 128), ("sm_90a", 132)] {
            let chip = TileChip { arch: arch.parse().unwrap(), multiprocessors };
            for pieces in [vec![1; 256], vec![33; 16], vec![8192], vec![528], vec![0, 529], vec![7, 2000, 1]] {
                let (tiles, rows) = (tiles(RELEASED, chip, &pieces), pieces.iter().sum());
                assert!(tiles.len() <= tiles_max(RELEASED, chip, rows, pieces.len()), "{arch}: {pieces:?}");
            }
        }
    }

    #[test]
    fn every_legal_shape_fits_a_small_chip_and_others_are_refused_by_name() {
        let [small, hopper]: [Arch; 2] = ["sm_89", "sm_90a"].map(|arch| arch.parse().unwrap());
        for kv in [KvType::F16, KvType::Q8, KvType::Q8Q4] {
            for (dim, heads) in [64, 128, 256].into_iter().flat_map(|dim| (1..=16).map(move |group| (dim, 2 * group))) {
                let shape = AttentionShape { dim, heads, stride: 20000, ..RELEASED };
                assert!(shape.prefill_shared_bytes(kv) <= SHARED_BYTES_MAX);
                assert!(shape.wide_prefill_shared_bytes(kv) <= hopper.shared_bytes_max());
                for arch in [small, hopper] {
                    let tiling = tiling(shape, kv, arch);
                    assert!(program(shape, kv, tiling).is_ok());
                    let bytes = shape.decode_shared_bytes(kv, tiling);
                    assert!(bytes <= arch.shared_bytes_max(), "{shape:?} {kv:?} {arch}");
                }
            }
        }
        let rounds = |arch| [KvType::F16, KvType::Q8, KvType::Q8Q4].map(|kv| tiling(RELEASED, kv, arch).round);
        assert_eq!([rounds(small), rounds(hopper)], [[2, 4, 4], [4, 4, 4]]);
        let refused = |s: AttentionShape| {
            program(s, KvType::F16, Tiling { round: 2, resident: 2, warps: 8 }).unwrap_err().to_string()
        };
        assert!(refused(AttentionShape { dim: 96, ..RELEASED }).contains("heads of 96"));
        assert!(refused(AttentionShape { heads: 34, ..RELEASED }).contains("34 query heads for 2"));
        assert!(refused(AttentionShape { rotary: 128, ..RELEASED }).contains("128 rotated dims"));
        let falcon = AttentionShape { dim: 128, rotary: 128, gated: false, normed: false, ..RELEASED };
        assert!(falcon.check().is_ok() && falcon.inputs() == 20 * 128);
        assert!(refused(AttentionShape { stride: 9000, ..RELEASED }).contains("9000 apart"));
    }
}
