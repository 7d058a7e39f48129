//! Many rows with matrix tiles (AMX): a tile instruction adds the 32 products of a block for 16 rows by 16 outputs.
//!
//! The integers are those of the byte dot products, so results are the same bytes; what follows a block's sums is done
//! in vectors. Per block of 32 inputs, 16 x 16 outputs cost 48 vector operations beside 16 cycles of the tile unit,
//! against some 170 vector operations without it.
//!
//! The instructions stand in inline assembly, since the compiler's intrinsics for them are not stable.

use super::ahead::{ASKS_MAX, PrefetchStream};
use super::avx512::{panel_scale_bytes, store, unpack_tile_codes, unpack_tile_scales};
use super::layout::Layout;
use super::qblock::QBlock;
use super::rows::block_stride;
use super::{TILE_ROWS, TileJob};
use crate::lines::Lines;
use std::arch::asm;
use std::arch::x86_64::*;
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Activation rows of a tile.
const GROUP: usize = 16;
/// Blocks that the tile unit works ahead of the vectors: from loads to stored sums takes some 100 cycles, a block's
/// vectors 25.
const AHEAD: usize = 3;
/// Activation bytes that stay in the second-level cache while the weight tiles pass by.
const ROWS_BYTES: usize = 768 << 10;

/// Whether `rows` pay for unpacking a tile's codes into memory.
pub(super) const fn pays(rows: usize) -> bool {
    rows > 8
}

/// The operand of `ldtilecfg`.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Tiles 0, 1, 2: a block's activations, codes, sums. Tiles 3, 4, 2: those of half a block.
static CONFIG: TileConfig = TileConfig {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [32, 64, 64, 16, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 8, 16, 16, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// Sums of 16 rows by 16 outputs.
#[repr(C, align(64))]
struct OutputSums(#[allow(dead_code, reason = "read as vectors")] [[i32; TILE_ROWS]; GROUP]);

/// Up to 16 activation rows at a fixed distance. There are always 16 to read.
struct RowGroup {
    first: *const u8,
    stride: usize,
    outputs: Range<usize>,
}

/// A tile that was unpacked.
struct UnpackedTile {
    codes: *const u8,
    scales: *const u8,
    /// What is asked for while rows pass: memory would idle between two tiles.
    next: PrefetchStream,
}

#[derive(Default)]
struct AmxScratch {
    rows: Lines,
    panel: Lines,
}

thread_local! {
    static SCRATCH: RefCell<AmxScratch> = RefCell::default();
}

/// Quantised tiles times rows.
///
/// # Safety
/// The host has AVX-512 with VNNI and AMX with int8, this process may use it; shapes were checked.
pub(super) unsafe fn blocks(job: &TileJob<'_>, layout: Layout, tiles: Range<usize>) {
    let rows = (ROWS_BYTES / (job.w.blocks() * size_of::<QBlock>())).next_multiple_of(GROUP);
    SCRATCH.with_borrow_mut(|scratch| {
        // SAFETY: the configuration is valid; tile registers belong to this call until they are released.
        unsafe { asm!("ldtilecfg [{0}]", in(reg) &raw const CONFIG, options(nostack, readonly)) };
        for pairs in job.pairs.chunks(rows) {
            // SAFETY: the caller's.
            unsafe { chunk(&TileJob { pairs, ..*job }, layout, tiles.clone(), scratch) };
        }
        // SAFETY: as above.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    });
}

/// Rows that fit the cache: each weight tile is unpacked once and meets all of them.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn chunk(job: &TileJob<'_>, layout: Layout, tiles: Range<usize>, scratch: &mut AmxScratch) {
    let blocks = job.w.blocks();
    // SAFETY: the caller's: inputs exist.
    let groups = unsafe { gather(job, &mut scratch.rows) };
    let scale_bytes = blocks * panel_scale_bytes(layout.scales.halves() || layout.scales.has_min());
    scratch.panel.grow(blocks * 512 + scale_bytes);
    let codes = scratch.panel.as_mut_ptr();
    let scales = codes.wrapping_add(blocks * 512);
    let flip = if layout.scales.has_min() { 0 } else { 0x80 };
    let end = tiles.end;
    for tile in tiles {
        // SAFETY: the panel has room for the tile, and the groups' rows have as many blocks as the tile.
        unsafe {
            unpack_tile_codes(layout, blocks, job.w.tile(tile), codes, flip);
            unpack_tile_scales(layout, blocks, job.w.tile(tile), scales);
            let next = job.next_tiles(tile, 1, end);
            for (nth, group) in groups.iter().enumerate() {
                let panel = UnpackedTile { codes, scales, next: next.piece(nth, groups.len().min(ASKS_MAX), blocks) };
                match (layout.scales.halves(), layout.scales.has_min()) {
                    (false, false) => group_rows::<false, false>(job, tile, group, &panel),
                    (true, _) => group_rows::<true, false>(job, tile, group, &panel),
                    (_, true) => group_rows::<false, true>(job, tile, group, &panel),
                }
            }
        }
    }
}

/// Groups of 16 rows: in place where 16 follow each other, else copied.
unsafe fn gather(job: &TileJob<'_>, copies: &mut Lines) -> Vec<RowGroup> {
    let row_bytes = job.w.blocks() * size_of::<QBlock>();
    let stride = block_stride(job.w.cols) * size_of::<QBlock>();
    let row = |i: u32| job.x.blocks(i as usize).cast::<u8>();
    let in_place =
        |pairs: &[(u32, u32)]| pairs.len() == GROUP && pairs.iter().zip(pairs[0].0..).all(|(pair, i)| pair.0 == i);
    copies.grow(job.pairs.len().div_ceil(GROUP) * GROUP * stride);
    let start = copies.as_mut_ptr();
    let mut groups = Vec::with_capacity(job.pairs.len().div_ceil(GROUP));
    for (g, pairs) in job.pairs.chunks(GROUP).enumerate() {
        let outputs = g * GROUP..g * GROUP + pairs.len();
        if in_place(pairs) {
            groups.push(RowGroup { first: row(pairs[0].0), stride, outputs });
            continue;
        }
        let first = start.wrapping_add(g * GROUP * stride);
        for (r, pair) in pairs.iter().enumerate() {
            // SAFETY: the copies have room for 16 rows a group; the input exists.
            unsafe { std::ptr::copy_nonoverlapping(row(pair.0), first.add(r * stride), row_bytes) };
        }
        groups.push(RowGroup { first, stride, outputs });
    }
    groups
}

/// One tile times one group, for as many rows as it has, rounded up to four.
#[inline(always)]
unsafe fn group_rows<const HALVES: bool, const MIN: bool>(
    job: &TileJob<'_>,
    tile: usize,
    group: &RowGroup,
    panel: &UnpackedTile,
) {
    // SAFETY: the caller's.
    unsafe {
        match group.outputs.len() {
            0..=4 => kernel::<HALVES, MIN, 4>(job, tile, group, panel),
            5..=8 => kernel::<HALVES, MIN, 8>(job, tile, group, panel),
            9..=12 => kernel::<HALVES, MIN, 12>(job, tile, group, panel),
            _ => kernel::<HALVES, MIN, 16>(job, tile, group, panel),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn kernel<const HALVES: bool, const MIN: bool, const R: usize>(
    job: &TileJob<'_>,
    tile: usize,
    group: &RowGroup,
    panel: &UnpackedTile,
) {
    let blocks = job.w.blocks();
    // Not zeroed: that would cost as much as two blocks, and nothing is read that was not stored.
    let mut sums = [const { MaybeUninit::<[OutputSums; 2]>::uninit() }; AHEAD + 1];
    let mut acc = [_mm512_setzero_ps(); R];
    for b in 0..blocks.min(AHEAD) {
        // SAFETY: within the rows and the panel.
        unsafe { start::<HALVES>(group, panel.codes, b, &mut sums) };
    }
    for b in 0..blocks {
        if b + AHEAD < blocks {
            // SAFETY: as above.
            unsafe { start::<HALVES>(group, panel.codes, b + AHEAD, &mut sums) };
        }
        // SAFETY: within rows, panel and sums.
        unsafe {
            panel.next.ask::<_MM_HINT_T1>(b);
            let at = panel.scales.add(b * panel_scale_bytes(HALVES || MIN));
            let scale = _mm512_load_ps(at.cast());
            let second = if HALVES || MIN { _mm512_load_ps(at.add(64).cast()) } else { scale };
            let stored: *const OutputSums = sums[b % (AHEAD + 1)].as_ptr().cast();
            for (r, acc) in acc.iter_mut().enumerate() {
                let x = &*group.first.add(r * group.stride + b * size_of::<QBlock>()).cast::<QBlock>();
                let term = if MIN {
                    _mm512_fmsub_ps(row_sum(stored, r), scale, _mm512_mul_ps(second, _mm512_set1_ps(x.sum)))
                } else if HALVES {
                    _mm512_fmadd_ps(row_sum(stored.add(1), r), second, _mm512_mul_ps(row_sum(stored, r), scale))
                } else {
                    _mm512_mul_ps(row_sum(stored, r), scale)
                };
                *acc = _mm512_fmadd_ps(term, _mm512_set1_ps(x.d), *acc);
            }
        }
    }
    for (acc, pair) in acc.into_iter().zip(&job.pairs[group.outputs.clone()]) {
        // SAFETY: the caller's.
        unsafe { store(job, pair.1, tile, acc) };
    }
}

/// Sets the tile unit to the sums of block `b`.
#[inline(always)]
unsafe fn start<const HALVES: bool>(
    group: &RowGroup,
    codes: *const u8,
    b: usize,
    sums: &mut [MaybeUninit<[OutputSums; 2]>; AHEAD + 1],
) {
    // SAFETY: the caller's: within the rows and the panel.
    unsafe {
        let x = group.first.add(b * size_of::<QBlock>());
        block_sums::<HALVES>(x, group.stride, codes.add(b * 512), sums[b % (AHEAD + 1)].as_mut_ptr().cast());
    }
}

/// The sums of row `r` as floats.
#[inline(always)]
unsafe fn row_sum(sums: *const OutputSums, r: usize) -> __m512 {
    // SAFETY: the caller's: 16 rows of 16 sums.
    unsafe { _mm512_cvtepi32_ps(_mm512_load_si512(sums.cast::<i32>().add(r * TILE_ROWS).cast())) }
}

/// Integer sums of one block, or of its two halves.
#[inline(always)]
unsafe fn block_sums<const HALVES: bool>(x: *const u8, stride: usize, codes: *const u8, sums: *mut OutputSums) {
    // SAFETY: 16 rows of 32 bytes, 8 of 64 bytes, 16 of 64 bytes to write; `blocks` configured and releases the
    // registers.
    unsafe {
        if HALVES {
            asm!(
                "tileloadd tmm3, [{x} + {stride}*1]",
                "tileloadd tmm4, [{w} + {line}*1]",
                "tilezero tmm2",
                "tdpbssd tmm2, tmm3, tmm4",
                "tilestored [{first} + {line}*1], tmm2",
                "tileloadd tmm3, [{x} + {stride}*1 + 16]",
                "tileloadd tmm4, [{w} + {line}*1 + 256]",
                "tilezero tmm2",
                "tdpbssd tmm2, tmm3, tmm4",
                "tilestored [{second} + {line}*1], tmm2",
                x = in(reg) x, stride = in(reg) stride, w = in(reg) codes, line = in(reg) 64usize,
                first = in(reg) sums, second = in(reg) sums.add(1),
                options(nostack)
            );
        } else {
            asm!(
                "tileloadd tmm0, [{x} + {stride}*1]",
                "tileloadd tmm1, [{w} + {line}*1]",
                "tilezero tmm2",
                "tdpbssd tmm2, tmm0, tmm1",
                "tilestored [{first} + {line}*1], tmm2",
                x = in(reg) x, stride = in(reg) stride, w = in(reg) codes, line = in(reg) 64usize,
                first = in(reg) sums,
                options(nostack)
            );
        }
    }
}
