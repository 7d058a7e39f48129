//! Full attention over a paged cache, from a step's in-projections to the int8 rows of the out-projection:
//! [`crate::reference::rmsnorm`] and [`crate::reference::rope`] of queries and keys, [`crate::reference::attention`],
//! the sigmoid gate.
//!
//! [`Attention::decode`] is one launch for one row a sequence and the drafted ones behind it, [`Attention::prefill`]
//! two for neighbouring rows of sequences. A row's bytes depend on its own sequence alone; the two ways differ in the
//! last bits.

mod operands;
mod shape;
mod splits;
#[cfg(test)]
mod tests;
mod tiles;
mod tiling;

pub use operands::{AttentionRows, Cache, Norms, Out};
pub use shape::{AttentionShape, DIMS, KvType, PAGE};
pub use splits::{DecodeScratch, splits};
pub use tiles::{TileChip, tiles, tiles_max};
pub use tiling::{DECODE_ROWS_MAX, DecodeTiling, tiling};

use crate::cuda::rows::quantized::Planes;
use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::wide::halves::{HIDDEN_FACTOR, HalfRows};
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use crate::reference::rope_frequency;
use cudarc::driver::{CudaSlice, CudaView};
use shape::SHARED_BYTES_MAX;

const PREFILL_THREADS: u32 = 128;

/// Two warpgroups that attend, one that brings what they want.
const WIDE_PREFILL_THREADS: u32 = 3 * 128;

/// The program of all three kernels.
///
/// # Errors
/// If there is no kernel for the shape.
pub fn program(shape: AttentionShape, kv: KvType, tiling: DecodeTiling) -> Result<Program, CudaError> {
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
    Ok(Program::of::<Arguments>("attention", source!("attention/attention.cu"), defines))
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
        tiling: DecodeTiling,
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
        scratch: &mut DecodeScratch,
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
    /// of what [`tiles()`] makes of the pieces, in any order; it lies on the device. Rows in no tile get no output;
    /// rows that are none stay as they are.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// As for [`Attention::decode`], but rows of a slot may be many: those of a tile have one slot and positions that
    /// count up by one, and each tile lies within the rows and is no longer than those of [`tiles()`]. No two rows have
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

/// By how much of a circle pair `i` turns a position.
fn turns_a_position(shape: AttentionShape, i: usize) -> f64 {
    rope_frequency(i, shape.rotary, shape.theta, shape.yarn.as_ref()) / std::f64::consts::TAU
}
