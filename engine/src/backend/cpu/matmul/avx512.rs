//! Products with 512-bit vectors: one vector holds a quad of codes of 16 output rows, and VNNI adds its four products
//! per row.
//!
//! Up to [`FUSED_ROWS`] activation rows, codes are unpacked in registers on their way from memory. More rows share a
//! *panel*: two tiles unpacked once into bytes and f32 scales, which the cache keeps while all rows pass. Codes that
//! are bytes in memory are read from there for any number of rows. A kernel takes two tiles where registers allow: the
//! broadcast activations, which bound a kernel of one, are then read once for both. Loops over blocks and operations
//! within one are those of `scalar.rs`; only the order of integer sums differs. `product.rs` has the kernel, `codes.rs`
//! and `scales.rs` what it reads.

mod codes;
mod product;
mod scales;

pub(super) use scales::panel_scale_bytes;

use super::ahead::{ASKS_MAX, FAR_BYTES, NEAR_BYTES, PrefetchStream};
use super::layout::{Codes, Layout, Scales};
use super::qblock::QBlock;
use super::{E4M3_FACTOR, FloatForm, GROUP_COLS, TILE_ROWS, TileJob};
use crate::lines::Lines;
use codes::{Bytes, CodeReader, Fives, Nibbles, Sixes, table, unpack_codes};
use product::{Tiles, kernel};
use scales::{
    Bf16, Byte, F16, HalvesByte, HalvesF16, MinByte, MinF16, Panel, ScaleReader, ZeroByte, bf16, e4m3, halves,
    unpack_scales,
};
use std::arch::x86_64::*;
use std::cell::Cell;
use std::ops::Range;

/// Rows beyond which a panel pays: as many as one pass takes, so that codes are unpacked once either way.
const FUSED_ROWS: usize = 8;
/// Up to so many rows a kernel takes two tiles whose codes it unpacks: a row's activations are then read once for both.
const FUSED_PAIR_ROWS: usize = 4;
/// Fewer rows wait for weights, which come sooner in one stream than in two.
const PAIR_ROWS_MIN: usize = 3;
/// Rows that a kernel of two tiles of bytes takes at once: 6 rows of integer and float sums fill 24 of 32 registers.
const PANEL_ROWS: usize = 6;
/// Rows of such a kernel where each half block has its sum.
const PANEL_ROWS_HALVES: usize = 4;
/// Tiles of a panel.
const PANEL_TILES: usize = 2;
/// Activation bytes that stay in the second-level cache while the tiles pass by.
const ROWS_BYTES: usize = 512 << 10;

/// Multiplies with the rows' scales and stores the outputs of one tile.
#[inline(always)]
pub(super) unsafe fn store(job: &TileJob<'_>, row: u32, tile: usize, acc: __m512) {
    let lanes = job.lanes(tile);
    let exist = u16::MAX >> (TILE_ROWS - lanes);
    // SAFETY: as in `OutView::store`: the lanes that exist are in bounds, and nobody else touches them.
    unsafe {
        let scale = _mm512_loadu_ps(job.w.row_scales(tile).as_ptr());
        _mm512_mask_storeu_ps(job.out.tile(row, tile, lanes), exist, _mm512_mul_ps(acc, scale))
    };
}

/// Quantised tiles times rows.
///
/// # Safety
/// The host has AVX-512 with VNNI; shapes were checked.
pub(super) unsafe fn blocks(job: &TileJob<'_>, layout: Layout, tiles: Range<usize>) {
    let rows = (ROWS_BYTES / (job.w.blocks() * size_of::<QBlock>())).next_multiple_of(PANEL_ROWS);
    for pairs in job.pairs.chunks(rows) {
        let job = TileJob { pairs, ..*job };
        // SAFETY: the caller's.
        unsafe {
            // Bytes need no unpacking, so they need no panel.
            if pairs.len() > FUSED_ROWS && layout.codes != Codes::Byte {
                panels(&job, layout, tiles.clone())
            } else {
                fused(&job, layout, tiles.clone())
            }
        }
    }
}

/// Picks the kernel for a layout.
unsafe fn fused(job: &TileJob<'_>, layout: Layout, tiles: Range<usize>) {
    // SAFETY: the caller's; the readers are those of the layout.
    unsafe {
        match (layout.codes, layout.scales) {
            (Codes::Byte, Scales::F16) => fused_tiles::<_, F16>(job, layout, tiles, Bytes),
            (Codes::Nibble, Scales::MinF16) => fused_tiles::<_, MinF16>(job, layout, tiles, Nibbles),
            (Codes::Nibble, Scales::ZeroByte) => fused_tiles::<_, ZeroByte>(job, layout, tiles, Nibbles),
            (Codes::Nibble, Scales::MinByte) => fused_tiles::<_, MinByte>(job, layout, tiles, Nibbles),
            (Codes::Five { .. }, Scales::F16) => fused_tiles::<_, F16>(job, layout, tiles, Fives::<112>),
            (Codes::Five { .. }, Scales::MinF16) => fused_tiles::<_, MinF16>(job, layout, tiles, Fives::<0>),
            (Codes::Five { .. }, Scales::MinByte) => fused_tiles::<_, MinByte>(job, layout, tiles, Fives::<0>),
            (Codes::Six, Scales::HalvesByte) => fused_tiles::<_, HalvesByte>(job, layout, tiles, Sixes),
            (Codes::Table(t), Scales::F16) => fused_tiles::<_, F16>(job, layout, tiles, table(t)),
            (Codes::Table(t), Scales::Bf16) => fused_tiles::<_, Bf16>(job, layout, tiles, table(t)),
            (Codes::Table(t), Scales::HalvesF16) => fused_tiles::<_, HalvesF16>(job, layout, tiles, table(t)),
            (Codes::Table(t), Scales::Byte) => fused_tiles::<_, Byte>(job, layout, tiles, table(t)),
            (Codes::Table(t), Scales::HalvesByte) => fused_tiles::<_, HalvesByte>(job, layout, tiles, table(t)),
            (codes, scales) => unreachable!("no type is stored as {codes:?} with {scales:?}"),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn fused_tiles<C: CodeReader, S: ScaleReader>(
    job: &TileJob<'_>,
    layout: Layout,
    tiles: Range<usize>,
    reader: C,
) {
    let rows = job.pairs.len();
    let pairs = !S::HALVES && rows >= PAIR_ROWS_MIN && (C::BYTES == Bytes::BYTES || rows <= FUSED_PAIR_ROWS);
    let mut tile = tiles.start;
    // SAFETY: the caller's.
    unsafe {
        while pairs && tile + 1 < tiles.end {
            fused_rows::<C, S, 2>(job, layout, tile, reader, tiles.end);
            tile += 2;
        }
        while tile < tiles.end {
            fused_rows::<C, S, 1>(job, layout, tile, reader, tiles.end);
            tile += 1;
        }
    }
}

/// All rows times `T` tiles of a range that ends at `end`, in groups of rows as even as they come.
#[inline(always)]
unsafe fn fused_rows<C: CodeReader, S: ScaleReader, const T: usize>(
    job: &TileJob<'_>,
    layout: Layout,
    tile: usize,
    reader: C,
    end: usize,
) {
    let (blocks, start, bytes) = (job.w.blocks(), job.w.tile(tile).as_ptr(), job.w.tile_bytes);
    let far = PrefetchStream::new(job.after(tile, end, FAR_BYTES + (T - 1) * bytes), T * bytes / blocks);
    let mut w = Tiles { codes: [start; T], scales: [start; T], blocks, near: [PrefetchStream::NONE; T], far };
    for t in 0..T {
        w.codes[t] = job.w.tile(tile + t).as_ptr();
        w.scales[t] = w.codes[t].wrapping_add(layout.codes_bytes(blocks));
        w.near[t] = PrefetchStream::new(job.after(tile + t, end, NEAR_BYTES), bytes / blocks);
    }
    let most = match (S::HALVES, T) {
        (true, _) => FUSED_ROWS / 2,
        (_, 1) => FUSED_ROWS,
        _ => PANEL_ROWS,
    };
    let (mut rest, groups) = (job.pairs, job.pairs.len().div_ceil(most));
    for nth in 0..groups {
        let (group, after) = rest.split_at(rest.len().div_ceil(groups - nth));
        rest = after;
        // What comes next is asked for evenly: memory would idle while the other groups find the codes in the cache.
        w.far = far.piece(nth, groups, blocks);
        // SAFETY: the caller's; rows are read up to the matrix's columns.
        unsafe { run_padded::<C, S, T>(job, group, tile, reader, &w) };
        w.near = [PrefetchStream::NONE; T];
    }
}

/// A group of rows times some tiles. The last row may stand twice to make up a count that has a kernel.
#[inline(always)]
unsafe fn run_padded<C: CodeReader, S: ScaleReader, const T: usize>(
    job: &TileJob<'_>,
    pairs: &[(u32, u32)],
    tile: usize,
    reader: C,
    w: &Tiles<T>,
) {
    // SAFETY: the caller's.
    unsafe {
        match pairs.len() {
            0 => {}
            1 => run::<C, S, 1, T>(job, pairs, tile, reader, w),
            2 => run::<C, S, 2, T>(job, pairs, tile, reader, w),
            3 => run::<C, S, 3, T>(job, pairs, tile, reader, w),
            _ if S::HALVES => run::<C, S, 4, T>(job, pairs, tile, reader, w),
            4 => run::<C, S, 4, T>(job, pairs, tile, reader, w),
            5 if T > 1 => run::<C, S, 5, T>(job, pairs, tile, reader, w),
            _ if T > 1 => run::<C, S, 6, T>(job, pairs, tile, reader, w),
            5 | 6 => run::<C, S, 6, T>(job, pairs, tile, reader, w),
            _ => run::<C, S, 8, T>(job, pairs, tile, reader, w),
        }
    }
}

/// Up to `R` rows times `T` tiles from `tile` on, stored. The last tile may stand twice in `w` to make up `T`.
#[inline(always)]
unsafe fn run<C: CodeReader, S: ScaleReader, const R: usize, const T: usize>(
    job: &TileJob<'_>,
    pairs: &[(u32, u32)],
    tile: usize,
    reader: C,
    w: &Tiles<T>,
) {
    // SAFETY: the caller's; the inputs exist.
    unsafe {
        let mut x = [std::ptr::null(); R];
        for r in 0..R {
            x[r] = job.x.blocks(pairs[r.min(pairs.len() - 1)].0 as usize);
        }
        let acc = kernel::<C, S, R, T>(reader, w, &x);
        for t in 0..T {
            for r in 0..R {
                if r < pairs.len() {
                    store(job, pairs[r].1, (tile + t).min(job.last), acc[t][r]);
                }
            }
        }
    }
}

thread_local! {
    /// Two unpacked tiles. It grows to the widest matrix that the thread meets.
    static PANEL: Cell<Lines> = Cell::default();
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn panels(job: &TileJob<'_>, layout: Layout, tiles: Range<usize>) {
    let blocks = job.w.blocks();
    let codes_bytes = blocks * Bytes::BYTES;
    let scale_bytes = blocks * panel_scale_bytes(layout.scales.halves() || layout.scales.has_min());
    // Taken, not borrowed in a closure: that would be a function without the instruction set of this one.
    let mut panel = PANEL.take();
    panel.grow(PANEL_TILES * (codes_bytes + scale_bytes));
    let start = panel.as_mut_ptr();
    for tile in tiles.clone().step_by(PANEL_TILES) {
        let mut w = Tiles {
            codes: [start.cast_const(); PANEL_TILES],
            scales: [start.cast_const(); PANEL_TILES],
            blocks,
            near: [PrefetchStream::NONE; PANEL_TILES],
            far: job.next_tiles(tile, PANEL_TILES, tiles.end),
        };
        for t in 0..PANEL_TILES {
            let source = job.w.tile((tile + t).min(tiles.end - 1));
            let codes = start.wrapping_add(t * codes_bytes);
            let scales = start.wrapping_add(PANEL_TILES * codes_bytes + t * scale_bytes);
            // SAFETY: the panel has room for both tiles; the rest is the caller's.
            unsafe {
                unpack_tile_codes(layout, blocks, source, codes, 0);
                unpack_tile_scales(layout, blocks, source, scales);
            }
            (w.codes[t], w.scales[t]) = (codes.cast_const(), scales.cast_const());
        }
        // SAFETY: as above.
        unsafe { panel_rows(job, layout, tile, w) };
    }
    PANEL.set(panel);
}

/// All rows times one panel.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn panel_rows(job: &TileJob<'_>, layout: Layout, tile: usize, mut w: Tiles<PANEL_TILES>) {
    let groups = job.pairs.len().div_ceil(if layout.scales.halves() { PANEL_ROWS_HALVES } else { PANEL_ROWS });
    let (mut rest, far) = (job.pairs, w.far);
    for nth in 0..groups {
        // Even groups: 8 rows are 4 + 4, which use the broadcast loads better than 6 + 2.
        let (pairs, after) = rest.split_at(rest.len().div_ceil(groups - nth));
        rest = after;
        w.far = far.piece(nth, groups.min(ASKS_MAX), w.blocks);
        // SAFETY: the caller's.
        unsafe {
            match (layout.scales.halves(), layout.scales.has_min()) {
                (false, false) => panel_group::<false, false>(job, pairs, tile, &w),
                (true, _) => panel_group::<true, false>(job, pairs, tile, &w),
                (_, true) => panel_group::<false, true>(job, pairs, tile, &w),
            }
        }
    }
}

#[inline(always)]
unsafe fn panel_group<const HALVES: bool, const MIN: bool>(
    job: &TileJob<'_>,
    pairs: &[(u32, u32)],
    tile: usize,
    w: &Tiles<PANEL_TILES>,
) {
    // SAFETY: the caller's.
    unsafe {
        match pairs.len() {
            1 => run::<_, Panel<HALVES, MIN>, 1, PANEL_TILES>(job, pairs, tile, Bytes, w),
            2 => run::<_, Panel<HALVES, MIN>, 2, PANEL_TILES>(job, pairs, tile, Bytes, w),
            3 => run::<_, Panel<HALVES, MIN>, 3, PANEL_TILES>(job, pairs, tile, Bytes, w),
            4 => run::<_, Panel<HALVES, MIN>, 4, PANEL_TILES>(job, pairs, tile, Bytes, w),
            5 => run::<_, Panel<HALVES, MIN>, 5, PANEL_TILES>(job, pairs, tile, Bytes, w),
            _ => run::<_, Panel<HALVES, MIN>, 6, PANEL_TILES>(job, pairs, tile, Bytes, w),
        }
    }
}

/// Unpacks the codes of a tile into bytes; `flip` is xored into each.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn unpack_tile_codes(layout: Layout, blocks: usize, tile: &[u8], codes: *mut u8, flip: u8) {
    let from = tile.as_ptr();
    // SAFETY: the tile has this plane, the panel room for it.
    unsafe {
        match layout.codes {
            Codes::Byte => unpack_codes(Bytes, blocks, from, codes, flip),
            Codes::Nibble => unpack_codes(Nibbles, blocks, from, codes, flip),
            Codes::Table(t) => unpack_codes(table(t), blocks, from, codes, flip),
            Codes::Five { add: 0 } => unpack_codes(Fives::<0>, blocks, from, codes, flip),
            Codes::Five { .. } => unpack_codes(Fives::<112>, blocks, from, codes, flip),
            Codes::Six => unpack_codes(Sixes, blocks, from, codes, flip),
        }
    }
}

/// Unpacks the scales of a tile into f32.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn unpack_tile_scales(layout: Layout, blocks: usize, tile: &[u8], scales: *mut u8) {
    let from = tile[layout.codes_bytes(blocks)..].as_ptr();
    // SAFETY: as above.
    unsafe {
        match layout.scales {
            Scales::F16 => unpack_scales::<F16>(blocks, from, scales),
            Scales::Bf16 => unpack_scales::<Bf16>(blocks, from, scales),
            Scales::HalvesF16 => unpack_scales::<HalvesF16>(blocks, from, scales),
            Scales::MinF16 => unpack_scales::<MinF16>(blocks, from, scales),
            Scales::ZeroByte => unpack_scales::<ZeroByte>(blocks, from, scales),
            Scales::MinByte => unpack_scales::<MinByte>(blocks, from, scales),
            Scales::Byte => unpack_scales::<Byte>(blocks, from, scales),
            Scales::HalvesByte => unpack_scales::<HalvesByte>(blocks, from, scales),
        }
    }
}

/// Float tiles times rows.
///
/// # Safety
/// As for [`blocks`].
pub(super) unsafe fn floats(job: &TileJob<'_>, form: FloatForm, tiles: Range<usize>) {
    for tile in tiles {
        for pairs in job.pairs.chunks(4) {
            // SAFETY: the caller's.
            unsafe {
                match form {
                    FloatForm::F32 => float_rows::<0>(job, pairs, tile),
                    FloatForm::F16 => float_rows::<1>(job, pairs, tile),
                    FloatForm::Bf16 => float_rows::<2>(job, pairs, tile),
                    FloatForm::E4m3 => float_rows::<3>(job, pairs, tile),
                    FloatForm::E4m3B128 => float_rows::<4>(job, pairs, tile),
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn float_rows<const FORM: u8>(job: &TileJob<'_>, pairs: &[(u32, u32)], tile: usize) {
    // SAFETY: the caller's.
    unsafe {
        match pairs.len() {
            1 => float_kernel::<FORM, 1>(job, pairs, tile),
            2 => float_kernel::<FORM, 2>(job, pairs, tile),
            3 => float_kernel::<FORM, 3>(job, pairs, tile),
            _ => float_kernel::<FORM, 4>(job, pairs, tile),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn float_kernel<const FORM: u8, const R: usize>(job: &TileJob<'_>, pairs: &[(u32, u32)], tile: usize) {
    let at = job.w.tile(tile).as_ptr();
    let factors = at.wrapping_add(job.w.float_codes_bytes()).cast::<f32>();
    let mut x = [std::ptr::null::<f32>(); R];
    for r in 0..R {
        x[r] = job.x.values(pairs[r].0 as usize);
    }
    let mut sums = [[_mm512_setzero_ps(); R]; 4];
    for k in (0..job.w.cols).step_by(4) {
        for (i, sums) in sums.iter_mut().enumerate() {
            let index = (k + i) * TILE_ROWS;
            // SAFETY: tiles and rows are padded to a multiple of four inputs.
            unsafe {
                let w = match FORM {
                    0 => _mm512_load_ps(at.cast::<f32>().add(index)),
                    1 => halves(at.add(2 * index)),
                    2 => bf16(at.add(2 * index)),
                    3 => _mm512_mul_ps(e4m3(at.add(index)), _mm512_set1_ps(E4M3_FACTOR)),
                    _ => {
                        let factor = _mm512_loadu_ps(factors.add(k / GROUP_COLS * TILE_ROWS));
                        _mm512_mul_ps(e4m3(at.add(index)), factor)
                    }
                };
                for r in 0..R {
                    sums[r] = _mm512_fmadd_ps(w, _mm512_set1_ps(*x[r].add(k + i)), sums[r]);
                }
            }
        }
    }
    for (r, pair) in pairs.iter().enumerate().take(R) {
        let sum = _mm512_add_ps(_mm512_add_ps(sums[0][r], sums[1][r]), _mm512_add_ps(sums[2][r], sums[3][r]));
        // SAFETY: the caller's.
        unsafe { store(job, pair.1, tile, sum) };
    }
}
