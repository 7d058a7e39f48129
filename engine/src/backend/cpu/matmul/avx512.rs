//! Products with 512-bit vectors: one vector holds a quad of codes of 16 output rows, and VNNI adds its four products per row.
//!
//! Up to [`FUSED_ROWS`] activation rows, codes are unpacked in registers on their way from memory. More rows share a *panel*: two
//! tiles unpacked once into bytes and f32 scales, which the cache keeps while all rows pass. Loops over blocks and operations
//! within one are those of `scalar.rs`; only the order of integer sums differs.

use super::layout::{Codes, Layout, SIX_ADD, Scales};
use super::lines::Lines;
use super::rows::QBlock;
use super::{FloatForm, Job, TILE_ROWS};
use std::arch::x86_64::*;
use std::cell::RefCell;
use std::ops::Range;

/// Rows beyond which a panel pays: unpacking then costs less than doing it again for every few rows.
const FUSED_ROWS: usize = 4;
/// Rows that a panel kernel takes at once: 2 tiles by 6 rows of integer and float sums fill 24 of 32 registers.
const PANEL_ROWS: usize = 6;
/// The same where each half block has its sum.
const PANEL_ROWS_HALVES: usize = 4;
/// Tiles of a panel.
const PANEL_TILES: usize = 2;
/// Activation bytes that stay in the second-level cache while the tiles pass by.
const ROWS_BYTES: usize = 512 << 10;

/// How far ahead codes are asked for. The processor's own prefetching alone reads half as fast: it stops at page ends.
const PREFETCH_BYTES: usize = 4096;

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
            let with = |codes, j: usize| {
                let set = _mm512_test_epi8_mask(plane, _mm512_set1_epi8((1u8 << j) as i8));
                _mm512_add_epi8(codes, _mm512_mask_blend_epi8(set, _mm512_set1_epi8(ADD), _mm512_set1_epi8(ADD.wrapping_add(16))))
            };
            (with(low, v), with(high, v + 4))
        }
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
            let with = |codes, plane: usize| {
                let bits = _mm512_rorv_epi32(load(at.add(256 + 64 * plane)), turn);
                let bits = _mm512_and_si512(bits, _mm512_set1_epi8(0x30));
                _mm512_add_epi8(_mm512_or_si512(codes, bits), _mm512_set1_epi8(SIX_ADD as i8))
            };
            (with(low, 0), with(high, 1))
        }
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

macro_rules! scales {
    ($name:ident, $of:expr, $group:expr, $block:expr) => {
        struct $name;

        impl ScaleReader for $name {
            const HALVES: bool = $of.halves();
            const MIN: bool = $of.has_min();
            const GROUP: (usize, usize) = $of.group();

            #[inline(always)]
            unsafe fn group(at: *const u8) -> (__m512, __m512) {
                // SAFETY: the group's bytes are readable.
                unsafe { $group(at) }
            }

            #[inline(always)]
            unsafe fn block(shared: (__m512, __m512), at: *const u8, j: usize) -> BlockScales {
                // SAFETY: as above, for blocks of the group.
                unsafe { $block(shared, at, j) }
            }
        }
    };
}

scales!(F16, Scales::F16, |_| none(), |_, at, _| one(halves(at)));
scales!(Bf16, Scales::Bf16, |_| none(), |_, at, _| one(bf16(at)));
scales!(HalvesF16, Scales::HalvesF16, |_| none(), |_, at: *const u8, _| BlockScales {
    scale: halves(at),
    second: halves(at.add(32)),
    min: _mm512_setzero_ps()
});
scales!(MinF16, Scales::MinF16, |_| none(), |_, at: *const u8, _| BlockScales {
    scale: halves(at),
    second: _mm512_setzero_ps(),
    min: halves(at.add(32))
});
scales!(
    MinByte,
    Scales::MinByte,
    |at: *const u8| (halves(at), halves(at.add(32))),
    |(d, dmin): (__m512, __m512), at: *const u8, j: usize| BlockScales {
        scale: _mm512_mul_ps(d, bytes(at.add(64 + 32 * j))),
        second: _mm512_setzero_ps(),
        min: _mm512_mul_ps(dmin, bytes(at.add(64 + 32 * j + 16))),
    }
);
scales!(Byte, Scales::Byte, |at| (halves(at), _mm512_setzero_ps()), |(d, _): (__m512, __m512), at: *const u8, j: usize| one(
    _mm512_mul_ps(d, bytes(at.add(32 + 16 * j)))
));
scales!(
    HalvesByte,
    Scales::HalvesByte,
    |at| (halves(at), _mm512_setzero_ps()),
    |(d, _): (__m512, __m512), at: *const u8, j: usize| BlockScales {
        scale: _mm512_mul_ps(d, bytes(at.add(32 + 32 * j))),
        second: _mm512_mul_ps(d, bytes(at.add(32 + 32 * j + 16))),
        min: _mm512_setzero_ps(),
    }
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

/// 16 f16.
#[inline(always)]
unsafe fn halves(at: *const u8) -> __m512 {
    // SAFETY: the caller's.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
}

/// 16 bf16.
#[inline(always)]
unsafe fn bf16(at: *const u8) -> __m512 {
    // SAFETY: the caller's.
    unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast())))) }
}

/// 16 signed bytes.
#[inline(always)]
unsafe fn bytes(at: *const u8) -> __m512 {
    // SAFETY: the caller's.
    unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast()))) }
}

/// Asks for the codes that follow those of the block at `at` some way behind.
#[inline(always)]
fn prefetch<C: CodeReader>(at: *const u8) {
    for line in 0..C::BYTES / 64 {
        // SAFETY: a hint; the address need not be mapped.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(PREFETCH_BYTES + 64 * line).cast()) };
    }
}

/// Code and scale planes of the tiles that a kernel works on.
#[derive(Clone, Copy)]
struct Tiles<const T: usize> {
    codes: [*const u8; T],
    scales: [*const u8; T],
    blocks: usize,
    /// Whether codes come from memory, so that it pays to ask for them early.
    cold: bool,
}

/// `T` tiles times `R` rows.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn kernel<C: CodeReader, S: ScaleReader, const R: usize, const T: usize>(
    reader: C,
    w: Tiles<T>,
    x: [*const QBlock; R],
) -> [[__m512; R]; T] {
    let mut acc = [[_mm512_setzero_ps(); R]; T];
    let (per, group_bytes) = S::GROUP;
    let mut b = 0;
    while b < w.blocks {
        // SAFETY: block and group indices stay below the counts that the planes were made for.
        let at = w.scales.map(|s| unsafe { s.add(b / per * group_bytes) });
        // SAFETY: as above.
        let shared = at.map(|at| unsafe { S::group(at) });
        for j in 0..per {
            if w.cold {
                w.codes.iter().for_each(|c| prefetch::<C>(c.wrapping_add(b * C::BYTES)));
            }
            // SAFETY: the caller's: rows have as many blocks as the tiles.
            unsafe {
                block::<C, S, R, T>(reader, w.codes.map(|c| c.add(b * C::BYTES)), at, shared, j, x.map(|x| x.add(b)), &mut acc)
            };
            b += 1;
        }
    }
    acc
}

/// One block of [`kernel`].
#[inline(always)]
unsafe fn block<C: CodeReader, S: ScaleReader, const R: usize, const T: usize>(
    reader: C,
    codes: [*const u8; T],
    scales: [*const u8; T],
    shared: [(__m512, __m512); T],
    j: usize,
    x: [*const QBlock; R],
    acc: &mut [[__m512; R]; T],
) {
    // SAFETY: the caller's, for every pointer.
    unsafe {
        let x: [&QBlock; R] = x.map(|x| &*x);
        let start = x.map(|x| match (S::MIN, S::HALVES) {
            (true, _) => [_mm512_setzero_si512(); 2],
            (_, true) => x.offset_half.map(|o| _mm512_set1_epi32(o)),
            _ => [_mm512_set1_epi32(x.offset), _mm512_setzero_si512()],
        });
        let mut sums = [start; T];
        let other = usize::from(S::HALVES);
        for v in 0..4 {
            for t in 0..T {
                let (low, high) = reader.pair(codes[t], v);
                for r in 0..R {
                    let quad = |q: usize| _mm512_set1_epi32(x[r].q.as_ptr().add(4 * q).cast::<i32>().read_unaligned());
                    sums[t][r][0] = _mm512_dpbusd_epi32(sums[t][r][0], low, quad(v));
                    sums[t][r][other] = _mm512_dpbusd_epi32(sums[t][r][other], high, quad(v + 4));
                }
            }
        }
        for t in 0..T {
            let w = S::block(shared[t], scales[t], j);
            for r in 0..R {
                let sum = _mm512_cvtepi32_ps(sums[t][r][0]);
                let term = if S::MIN {
                    _mm512_fmsub_ps(sum, w.scale, _mm512_mul_ps(w.min, _mm512_set1_ps(x[r].sum)))
                } else if S::HALVES {
                    _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[t][r][1]), w.second, _mm512_mul_ps(sum, w.scale))
                } else {
                    _mm512_mul_ps(sum, w.scale)
                };
                acc[t][r] = _mm512_fmadd_ps(term, _mm512_set1_ps(x[r].d), acc[t][r]);
            }
        }
    }
}

/// Multiplies with the matrix's scale and stores the outputs of one tile.
#[inline(always)]
pub(super) unsafe fn store(job: &Job<'_>, row: u32, tile: usize, acc: __m512) {
    let mut values = [0.0; TILE_ROWS];
    // SAFETY: 16 floats.
    unsafe { _mm512_storeu_ps(values.as_mut_ptr(), _mm512_mul_ps(acc, _mm512_set1_ps(job.w.scale))) };
    job.out.store(row, tile, job.lanes(tile), &values);
}

/// Quantised tiles times rows.
///
/// # Safety
/// The host has AVX-512 with VNNI; shapes were checked.
pub(super) unsafe fn blocks(job: &Job<'_>, layout: Layout, tiles: Range<usize>) {
    let rows = (ROWS_BYTES / (job.w.blocks() * size_of::<QBlock>())).next_multiple_of(PANEL_ROWS);
    for pairs in job.pairs.chunks(rows) {
        let job = Job { pairs, ..*job };
        // SAFETY: the caller's.
        unsafe { if pairs.len() > FUSED_ROWS { panels(&job, layout, tiles.clone()) } else { fused(&job, layout, tiles.clone()) } }
    }
}

/// Picks the kernel for a layout.
unsafe fn fused(job: &Job<'_>, layout: Layout, tiles: Range<usize>) {
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
unsafe fn fused_tiles<C: CodeReader, S: ScaleReader>(job: &Job<'_>, layout: Layout, tiles: Range<usize>, reader: C) {
    for tile in tiles {
        let codes = job.w.tile(tile).as_ptr();
        let blocks = job.w.blocks();
        // SAFETY: within the tile.
        let w = Tiles { codes: [codes], scales: [unsafe { codes.add(layout.codes_bytes(blocks)) }], blocks, cold: true };
        // SAFETY: the caller's; rows are read up to the matrix's columns.
        unsafe {
            match job.pairs.len() {
                0 => {}
                1 => run::<C, S, 1, 1>(job, job.pairs, tile, reader, w),
                2 => run::<C, S, 2, 1>(job, job.pairs, tile, reader, w),
                3 => {
                    run::<C, S, 2, 1>(job, &job.pairs[..2], tile, reader, w);
                    run::<C, S, 1, 1>(job, &job.pairs[2..], tile, reader, w);
                }
                _ => run::<C, S, 4, 1>(job, job.pairs, tile, reader, w),
            }
        }
    }
}

/// `R` rows times `T` tiles from `tile` on, stored. The last tile may stand twice in `w` to make up `T`.
#[inline(always)]
unsafe fn run<C: CodeReader, S: ScaleReader, const R: usize, const T: usize>(
    job: &Job<'_>,
    pairs: &[(u32, u32)],
    tile: usize,
    reader: C,
    w: Tiles<T>,
) {
    // SAFETY: the caller's.
    unsafe {
        let acc = kernel::<C, S, R, T>(reader, w, std::array::from_fn(|r| job.x.blocks(pairs[r].0 as usize)));
        for (t, acc) in acc.into_iter().enumerate() {
            for (acc, pair) in acc.into_iter().zip(pairs) {
                store(job, pair.1, (tile + t).min(job.last), acc);
            }
        }
    }
}

thread_local! {
    /// Two unpacked tiles. It grows to the widest matrix that the thread meets.
    static PANEL: RefCell<Lines> = RefCell::default();
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn panels(job: &Job<'_>, layout: Layout, tiles: Range<usize>) {
    let blocks = job.w.blocks();
    let direct = layout.codes == Codes::Byte;
    let codes_bytes = if direct { 0 } else { blocks * Bytes::BYTES };
    let scale_bytes = blocks * panel_scale_bytes(layout.scales.halves() || layout.scales.has_min());
    PANEL.with_borrow_mut(|panel| {
        panel.grow(PANEL_TILES * (codes_bytes + scale_bytes));
        let start = panel.as_mut_ptr();
        for tile in tiles.clone().step_by(PANEL_TILES) {
            let w = Tiles::<PANEL_TILES> {
                codes: std::array::from_fn(|t| {
                    let source = job.w.tile((tile + t).min(tiles.end - 1)).as_ptr();
                    if direct { source } else { start.wrapping_add(t * codes_bytes) }
                }),
                scales: std::array::from_fn(|t| start.wrapping_add(PANEL_TILES * codes_bytes + t * scale_bytes).cast_const()),
                blocks,
                cold: false,
            };
            // SAFETY: the panel has room for both tiles; the rest is the caller's.
            unsafe {
                for t in 0..PANEL_TILES {
                    let tile = job.w.tile((tile + t).min(tiles.end - 1));
                    if !direct {
                        unpack_tile_codes(layout, blocks, tile, w.codes[t].cast_mut(), 0);
                    }
                    unpack_tile_scales(layout, blocks, tile, w.scales[t].cast_mut());
                }
                panel_rows(job, layout, tile, w);
            }
        }
    });
}

/// All rows times one panel.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn panel_rows(job: &Job<'_>, layout: Layout, tile: usize, mut w: Tiles<PANEL_TILES>) {
    let groups = job.pairs.len().div_ceil(if layout.scales.halves() { PANEL_ROWS_HALVES } else { PANEL_ROWS });
    let mut rest = job.pairs;
    for left in (1..=groups).rev() {
        // Even groups: 8 rows are 4 + 4, which use the broadcast loads better than 6 + 2.
        let (pairs, after) = rest.split_at(rest.len().div_ceil(left));
        rest = after;
        // Only the first rows meet codes that nobody has unpacked before.
        w.cold = layout.codes == Codes::Byte && left == groups;
        // SAFETY: the caller's.
        unsafe {
            match (layout.scales.halves(), layout.scales.has_min()) {
                (false, false) => panel_group::<false, false>(job, pairs, tile, w),
                (true, _) => panel_group::<true, false>(job, pairs, tile, w),
                (_, true) => panel_group::<false, true>(job, pairs, tile, w),
            }
        }
    }
}

#[inline(always)]
unsafe fn panel_group<const HALVES: bool, const MIN: bool>(
    job: &Job<'_>,
    pairs: &[(u32, u32)],
    tile: usize,
    w: Tiles<PANEL_TILES>,
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
        prefetch::<C>(from.wrapping_add(b * C::BYTES));
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
pub(super) unsafe fn floats(job: &Job<'_>, form: FloatForm, tiles: Range<usize>) {
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
unsafe fn float_rows<const FORM: u8>(job: &Job<'_>, pairs: &[(u32, u32)], tile: usize) {
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
unsafe fn float_kernel<const FORM: u8, const R: usize>(job: &Job<'_>, pairs: &[(u32, u32)], tile: usize) {
    let at = job.w.tile(tile).as_ptr();
    let x: [*const f32; R] = std::array::from_fn(|r| job.x.values(pairs[r].0 as usize));
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
