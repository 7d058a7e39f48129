//! Products with 512-bit vectors: one vector holds a quad of codes of 16 output rows, and VNNI adds its four products
//! per row.
//!
//! Up to [`FUSED_ROWS`] activation rows, codes are unpacked in registers on their way from memory. More rows share a
//! *panel*: two tiles unpacked once into bytes and f32 scales, which the cache keeps while all rows pass. Codes that
//! are bytes in memory are read from there for any number of rows. A kernel takes two tiles where registers allow: the
//! broadcast activations, which bound a kernel of one, are then read once for both. Loops over blocks and operations
//! within one are those of `scalar.rs`; only the order of integer sums differs.

use super::ahead::{ASKS_MAX, FAR_BYTES, NEAR_BYTES, Stream, ask};
use super::layout::{Codes, Layout, SIX_ADD, Scales};
use super::lines::Lines;
use super::qblock::QBlock;
use super::{FloatForm, TILE_ROWS, TileJob};
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
/// The same where each half block has its sum.
const PANEL_ROWS_HALVES: usize = 4;
/// Tiles of a panel.
const PANEL_TILES: usize = 2;
/// Activation bytes that stay in the second-level cache while the tiles pass by.
const ROWS_BYTES: usize = 512 << 10;

/// Reads the codes of a block.
trait CodeReader: Copy {
    const BYTES: usize;

    /// Quads `v` and `v + 4` of the block at `at`.
    unsafe fn pair(self, at: *const u8, v: usize) -> (__m512i, __m512i);
}

#[derive(Clone, Copy)]
struct Bytes;

impl CodeReader for Bytes {
    const BYTES: usize = 512;

    #[inline(always)]
    unsafe fn pair(self, at: *const u8, v: usize) -> (__m512i, __m512i) {
        // SAFETY: a block has eight vectors.
        unsafe { (load(at.add(64 * v)), load(at.add(64 * (v + 4)))) }
    }
}

#[derive(Clone, Copy)]
struct Nibbles;

impl CodeReader for Nibbles {
    const BYTES: usize = 256;

    #[inline(always)]
    unsafe fn pair(self, at: *const u8, v: usize) -> (__m512i, __m512i) {
        // SAFETY: a block has four vectors of nibbles.
        unsafe {
            let (both, low) = (load(at.add(64 * v)), _mm512_set1_epi8(15));
            (_mm512_and_si512(both, low), _mm512_and_si512(_mm512_srli_epi16::<4>(both), low))
        }
    }
}

#[derive(Clone, Copy)]
struct Table(__m512i);

impl CodeReader for Table {
    const BYTES: usize = 256;

    #[inline(always)]
    unsafe fn pair(self, at: *const u8, v: usize) -> (__m512i, __m512i) {
        // SAFETY: as for nibbles.
        unsafe {
            let (low, high) = Nibbles.pair(at, v);
            (_mm512_shuffle_epi8(self.0, low), _mm512_shuffle_epi8(self.0, high))
        }
    }
}

#[derive(Clone, Copy)]
struct Fives<const ADD: i8>;

impl<const ADD: i8> CodeReader for Fives<ADD> {
    const BYTES: usize = 256 + 64;

    #[inline(always)]
    unsafe fn pair(self, at: *const u8, v: usize) -> (__m512i, __m512i) {
        // SAFETY: a plane of 64 bytes follows the nibbles.
        unsafe {
            let (low, high) = Nibbles.pair(at, v);
            let plane = load(at.add(256));
            (fifth_bit::<ADD>(low, plane, v), fifth_bit::<ADD>(high, plane, v + 4))
        }
    }
}

/// Adds `ADD`, and 16 where bit `j` of the plane is set.
#[inline(always)]
unsafe fn fifth_bit<const ADD: i8>(codes: __m512i, plane: __m512i, j: usize) -> __m512i {
    // SAFETY: registers only.
    unsafe {
        let set = _mm512_test_epi8_mask(plane, _mm512_set1_epi8((1u8 << j) as i8));
        _mm512_add_epi8(
            codes,
            _mm512_mask_blend_epi8(set, _mm512_set1_epi8(ADD), _mm512_set1_epi8(ADD.wrapping_add(16))),
        )
    }
}

#[derive(Clone, Copy)]
struct Sixes;

impl CodeReader for Sixes {
    const BYTES: usize = 256 + 128;

    #[inline(always)]
    unsafe fn pair(self, at: *const u8, v: usize) -> (__m512i, __m512i) {
        // SAFETY: two planes of 64 bytes follow the nibbles.
        unsafe {
            let (low, high) = Nibbles.pair(at, v);
            // Rotates the two bits to their place above the nibble; what comes from other bytes is masked off.
            let turn = _mm512_set1_epi32(((2 * v + 28) % 32) as i32);
            (two_bits(low, load(at.add(256)), turn), two_bits(high, load(at.add(256 + 64)), turn))
        }
    }
}

/// Adds the two bits that `turn` brings above the nibbles.
#[inline(always)]
unsafe fn two_bits(codes: __m512i, plane: __m512i, turn: __m512i) -> __m512i {
    // SAFETY: registers only.
    unsafe {
        let bits = _mm512_and_si512(_mm512_rorv_epi32(plane, turn), _mm512_set1_epi8(0x30));
        _mm512_add_epi8(_mm512_or_si512(codes, bits), _mm512_set1_epi8(SIX_ADD as i8))
    }
}

/// Scales of a block; the second is that of the second half, where halves have their own.
#[derive(Clone, Copy)]
struct BlockScales {
    scale: __m512,
    second: __m512,
    min: __m512,
}

/// Reads the scales of a block.
trait ScaleReader {
    const HALVES: bool;
    const MIN: bool;
    /// Blocks of a group, and its bytes.
    const GROUP: (usize, usize);

    /// What the blocks of a group share.
    unsafe fn group(at: *const u8) -> (__m512, __m512);

    /// Block `j` of the group at `at`.
    unsafe fn block(shared: (__m512, __m512), at: *const u8, j: usize) -> BlockScales;
}

/// A reader of one way to store scales: `group` and `block` are pasted into its methods, for a closure would be
/// compiled without the instruction set of the kernel that calls it.
macro_rules! scales {
    ($name:ident, group($of:ident) = $group:expr, block($shared:ident, $at:ident, $j:ident) = $block:expr) => {
        struct $name;

        impl ScaleReader for $name {
            const HALVES: bool = Scales::$name.halves();
            const MIN: bool = Scales::$name.has_min();
            const GROUP: (usize, usize) = Scales::$name.group();

            #[inline(always)]
            unsafe fn group($of: *const u8) -> (__m512, __m512) {
                // SAFETY: the group's bytes are readable.
                unsafe { $group }
            }

            #[inline(always)]
            unsafe fn block($shared: (__m512, __m512), $at: *const u8, $j: usize) -> BlockScales {
                // SAFETY: as above, for blocks of the group.
                unsafe { $block }
            }
        }
    };
}

scales!(F16, group(_at) = none(), block(_shared, at, _j) = one(halves(at)));
scales!(Bf16, group(_at) = none(), block(_shared, at, _j) = one(bf16(at)));
scales!(HalvesF16, group(_at) = none(), block(_shared, at, _j) = with_second(halves(at), halves(at.add(32))));
scales!(MinF16, group(_at) = none(), block(_shared, at, _j) = with_min(halves(at), halves(at.add(32))));
scales!(
    MinByte,
    group(at) = (halves(at), halves(at.add(32))),
    block(shared, at, j) = with_min(times(shared.0, at.add(64 + 32 * j)), times(shared.1, at.add(64 + 32 * j + 16)))
);
scales!(
    Byte,
    group(at) = (halves(at), _mm512_setzero_ps()),
    block(shared, at, j) = one(times(shared.0, at.add(32 + 16 * j)))
);
scales!(
    HalvesByte,
    group(at) = (halves(at), _mm512_setzero_ps()),
    block(shared, at, j) = with_second(times(shared.0, at.add(32 + 32 * j)), times(shared.0, at.add(32 + 32 * j + 16)))
);

/// The scales of a panel: f32 vectors, the scale, then that of the second half or the minimum.
struct Panel<const HALVES: bool, const MIN: bool>;

impl<const HALVES: bool, const MIN: bool> ScaleReader for Panel<HALVES, MIN> {
    const HALVES: bool = HALVES;
    const MIN: bool = MIN;
    const GROUP: (usize, usize) = (1, panel_scale_bytes(HALVES || MIN));

    #[inline(always)]
    unsafe fn group(_: *const u8) -> (__m512, __m512) {
        // SAFETY: touches no memory.
        unsafe { none() }
    }

    #[inline(always)]
    unsafe fn block(_: (__m512, __m512), at: *const u8, _: usize) -> BlockScales {
        // SAFETY: the block's vectors are readable.
        unsafe {
            let scale = _mm512_load_ps(at.cast());
            let second = if HALVES || MIN { _mm512_load_ps(at.add(64).cast()) } else { scale };
            BlockScales { scale, second, min: second }
        }
    }
}

/// Bytes of a block's scales in a panel: one vector or two.
pub(super) const fn panel_scale_bytes(two: bool) -> usize {
    if two { 128 } else { 64 }
}

#[inline(always)]
unsafe fn load(at: *const u8) -> __m512i {
    // SAFETY: the caller's; planes of codes lie on cache lines.
    unsafe { _mm512_load_si512(at.cast()) }
}

#[inline(always)]
unsafe fn none() -> (__m512, __m512) {
    // SAFETY: touches no memory.
    unsafe { (_mm512_setzero_ps(), _mm512_setzero_ps()) }
}

#[inline(always)]
unsafe fn one(scale: __m512) -> BlockScales {
    // SAFETY: touches no memory.
    unsafe { BlockScales { scale, second: scale, min: _mm512_setzero_ps() } }
}

#[inline(always)]
unsafe fn with_second(scale: __m512, second: __m512) -> BlockScales {
    // SAFETY: touches no memory.
    unsafe { BlockScales { scale, second, min: _mm512_setzero_ps() } }
}

#[inline(always)]
unsafe fn with_min(scale: __m512, min: __m512) -> BlockScales {
    // SAFETY: touches no memory.
    unsafe { BlockScales { scale, second: _mm512_setzero_ps(), min } }
}

/// Reads 16 f16 as f32.
#[inline(always)]
unsafe fn halves(at: *const u8) -> __m512 {
    // SAFETY: the caller's.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
}

/// Reads 16 bf16 as f32.
#[inline(always)]
unsafe fn bf16(at: *const u8) -> __m512 {
    // SAFETY: the caller's.
    unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast())))) }
}

/// `d` times 16 signed bytes.
#[inline(always)]
unsafe fn times(d: __m512, at: *const u8) -> __m512 {
    // SAFETY: the caller's.
    unsafe { _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast())))) }
}

/// Code and scale planes of the tiles that a kernel works on.
#[derive(Clone, Copy)]
struct Tiles<const T: usize> {
    codes: [*const u8; T],
    scales: [*const u8; T],
    blocks: usize,
    /// What is asked for meanwhile: into the first-level cache a stream of each tile, since they are read side by side, and
    /// into the second one for all, in the order in which it lies in memory.
    near: [Stream; T],
    far: Stream,
}

/// `T` tiles times `R` rows.
#[inline(always)]
unsafe fn kernel<C: CodeReader, S: ScaleReader, const R: usize, const T: usize>(
    reader: C,
    w: &Tiles<T>,
    x: &[*const QBlock; R],
) -> [[__m512; R]; T] {
    // SAFETY: block and group indices stay below the counts that the planes were made for; rows have as many blocks.
    unsafe {
        let mut acc = [[_mm512_setzero_ps(); R]; T];
        let (per, group_bytes) = S::GROUP;
        let mut b = 0;
        while b < w.blocks {
            let mut scales = w.scales;
            let mut shared = [none(); T];
            for t in 0..T {
                scales[t] = scales[t].add(b / per * group_bytes);
                shared[t] = S::group(scales[t]);
            }
            for j in 0..per {
                let sums = block_sums::<C, S, R, T>(reader, w, x, b);
                for t in 0..T {
                    let scales = S::block(shared[t], scales[t], j);
                    for r in 0..R {
                        acc[t][r] = add_block::<S>(acc[t][r], sums[t][r], &scales, &*x[r].add(b));
                    }
                }
                b += 1;
            }
        }
        acc
    }
}

/// Integer sums of block `b` by tile and row: of the whole block in the first place, or of its two halves.
#[inline(always)]
unsafe fn block_sums<C: CodeReader, S: ScaleReader, const R: usize, const T: usize>(
    reader: C,
    w: &Tiles<T>,
    x: &[*const QBlock; R],
    b: usize,
) -> [[[__m512i; 2]; R]; T] {
    // SAFETY: the caller's, for every pointer.
    unsafe {
        let mut sums = [[[_mm512_setzero_si512(); 2]; R]; T];
        let other = usize::from(S::HALVES);
        for t in 0..T {
            w.near[t].ask::<_MM_HINT_T0>(b);
        }
        w.far.ask::<_MM_HINT_T1>(b);
        for t in 0..T {
            for r in 0..R {
                sums[t][r] = start::<S>(&*x[r].add(b));
            }
        }
        for v in 0..4 {
            let mut codes = [(_mm512_setzero_si512(), _mm512_setzero_si512()); T];
            for t in 0..T {
                codes[t] = reader.pair(w.codes[t].add(b * C::BYTES), v);
            }
            for r in 0..R {
                let q = (&raw const (*x[r].add(b)).q).cast::<i32>();
                let (low, high) = (_mm512_set1_epi32(q.add(v).read()), _mm512_set1_epi32(q.add(v + 4).read()));
                for t in 0..T {
                    sums[t][r][0] = _mm512_dpbusd_epi32(sums[t][r][0], codes[t].0, low);
                    sums[t][r][other] = _mm512_dpbusd_epi32(sums[t][r][other], codes[t].1, high);
                }
            }
        }
        sums
    }
}

/// What integer sums start with: signed codes are stored plus 128, which is taken back here.
#[inline(always)]
unsafe fn start<S: ScaleReader>(x: &QBlock) -> [__m512i; 2] {
    // SAFETY: registers only.
    unsafe {
        match (S::MIN, S::HALVES) {
            (true, _) => [_mm512_setzero_si512(); 2],
            (_, true) => [_mm512_set1_epi32(x.offset_half[0]), _mm512_set1_epi32(x.offset_half[1])],
            _ => [_mm512_set1_epi32(x.offset), _mm512_setzero_si512()],
        }
    }
}

/// Adds a block's term to the output, in the one order that `scalar.rs` defines.
#[inline(always)]
unsafe fn add_block<S: ScaleReader>(acc: __m512, sums: [__m512i; 2], w: &BlockScales, x: &QBlock) -> __m512 {
    // SAFETY: registers only.
    unsafe {
        let sum = _mm512_cvtepi32_ps(sums[0]);
        let term = if S::MIN {
            _mm512_fmsub_ps(sum, w.scale, _mm512_mul_ps(w.min, _mm512_set1_ps(x.sum)))
        } else if S::HALVES {
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[1]), w.second, _mm512_mul_ps(sum, w.scale))
        } else {
            _mm512_mul_ps(sum, w.scale)
        };
        _mm512_fmadd_ps(term, _mm512_set1_ps(x.d), acc)
    }
}

/// Multiplies with the matrix's scale and stores the outputs of one tile.
#[inline(always)]
pub(super) unsafe fn store(job: &TileJob<'_>, row: u32, tile: usize, acc: __m512) {
    let lanes = job.lanes(tile);
    let exist = u16::MAX >> (TILE_ROWS - lanes);
    // SAFETY: as in `OutView::store`: the lanes that exist are in bounds, and nobody else touches them.
    unsafe {
        _mm512_mask_storeu_ps(job.out.tile(row, tile, lanes), exist, _mm512_mul_ps(acc, _mm512_set1_ps(job.w.scale)))
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

#[target_feature(enable = "avx512f")]
unsafe fn table(levels: [u8; 16]) -> Table {
    // SAFETY: 16 bytes.
    Table(_mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(levels.as_ptr().cast()) }))
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
    let far = Stream::new(job.after(tile, end, FAR_BYTES + (T - 1) * bytes), T * bytes / blocks);
    let mut w = Tiles { codes: [start; T], scales: [start; T], blocks, near: [Stream::NONE; T], far };
    for t in 0..T {
        w.codes[t] = job.w.tile(tile + t).as_ptr();
        w.scales[t] = w.codes[t].wrapping_add(layout.codes_bytes(blocks));
        w.near[t] = Stream::new(job.after(tile + t, end, NEAR_BYTES), bytes / blocks);
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
        w.near = [Stream::NONE; T];
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
            near: [Stream::NONE; PANEL_TILES],
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
            Scales::MinByte => unpack_scales::<MinByte>(blocks, from, scales),
            Scales::Byte => unpack_scales::<Byte>(blocks, from, scales),
            Scales::HalvesByte => unpack_scales::<HalvesByte>(blocks, from, scales),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn unpack_codes<C: CodeReader>(reader: C, blocks: usize, from: *const u8, to: *mut u8, flip: u8) {
    let flip = _mm512_set1_epi8(flip as i8);
    for b in 0..blocks {
        ask::<_MM_HINT_T0>(from.wrapping_add(NEAR_BYTES + b * C::BYTES), C::BYTES);
        for v in 0..4 {
            // SAFETY: the caller's.
            unsafe {
                let (low, high) = reader.pair(from.add(b * C::BYTES), v);
                _mm512_store_si512(to.add(b * 512 + 64 * v).cast(), _mm512_xor_si512(low, flip));
                _mm512_store_si512(to.add(b * 512 + 64 * (v + 4)).cast(), _mm512_xor_si512(high, flip));
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn unpack_scales<S: ScaleReader>(blocks: usize, from: *const u8, to: *mut u8) {
    let (per, bytes) = S::GROUP;
    let two = S::HALVES || S::MIN;
    for b in 0..blocks {
        // SAFETY: the caller's.
        unsafe {
            let (at, to) = (from.add(b / per * bytes), to.add(b * panel_scale_bytes(two)));
            let w = S::block(S::group(at), at, b % per);
            _mm512_store_ps(to.cast(), w.scale);
            if two {
                _mm512_store_ps(to.add(64).cast(), if S::MIN { w.min } else { w.second });
            }
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
                    _ => bf16(at.add(2 * index)),
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
