//! Products with 256-bit vectors, for x86-64 without AVX-512: a tile's 16 rows are two vectors.
//!
//! One or two activation rows read codes that are unpacked in registers on their way from memory. More share a *panel*:
//! some blocks of a tile, unpacked once into bytes and f32 scales, which the first-level cache keeps while groups of
//! rows pass. Codes that are bytes in memory are read from there. Integer sums are exact, so how they come about is
//! free: `product.rs` has the ways.

mod codes;
mod product;
mod scales;

pub(super) use scales::halves_of_e4m3;

use super::ahead::{ASKS_MAX, FAR_BYTES, NEAR_BYTES, PrefetchStream};
use super::layout::{Codes, Layout, Scales};
use super::qblock::QBlock;
use super::{E4M3_FACTOR, FloatForm, GROUP_COLS, TILE_ROWS, TileJob};
use crate::lines::Lines;
use codes::{Bytes, CodeReader, Fives, Nibbles, Sixes, Table, five_bits, unpack_codes};
use product::{ActivationBlocks, BlockSums, Signed, block_sums, by_magnitude};
use scales::{BlockScales, PANEL_SCALE_BYTES, ScaleReader, bf16, e4m3, halves, unpack_scales};
use std::arch::asm;
use std::arch::x86_64::*;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Rows up to which codes are unpacked in registers, two rows at a time.
const FUSED_ROWS: usize = 4;
/// Rows of which two or one are taken where codes are bytes in memory.
const FUSED_ROWS_BYTES: usize = 2;
/// Rows that a kernel takes at once: their sums are 8 of 16 registers.
const GROUP: usize = 4;
/// Rows that such a kernel takes where halves of a block have sums of their own.
const GROUP_HALVES: usize = 2;
/// Rows that share a panel, and whose activations stay in the second-level cache while the tiles pass by.
const ROWS: usize = 32;
/// Blocks of a panel: whole groups of scales, and codes that fill a quarter of the first-level cache.
const PANEL_BLOCKS: usize = 16;

/// The 16 rows of a tile.
type Lanes = [__m256; 2];

/// Blocks of a tile.
#[derive(Clone, Copy)]
struct TilePart {
    codes: *const u8,
    scales: *const u8,
    blocks: usize,
    /// What is asked for meanwhile, into the first-level cache and into the second.
    near: PrefetchStream,
    far: PrefetchStream,
}

impl TilePart {
    /// Some blocks from `b` on, which begins a group of scales.
    #[inline(always)]
    fn part<C: CodeReader, S: ScaleReader>(&self, b: usize) -> Self {
        let (per, group_bytes) = S::GROUP;
        Self {
            codes: self.codes.wrapping_add(b * C::BYTES),
            scales: self.scales.wrapping_add(b / per * group_bytes),
            blocks: (self.blocks - b).min(PANEL_BLOCKS),
            near: self.near.from(b),
            far: self.far.from(b),
        }
    }
}

/// Adds the terms of some blocks to the outputs of `R` rows.
#[inline(always)]
unsafe fn kernel<C: CodeReader, S: ScaleReader, const VNNI: bool, const R: usize>(
    reader: C,
    w: &TilePart,
    x: &ActivationBlocks<R>,
    acc: &mut [Lanes; R],
) {
    // SAFETY: block and group indices stay below the counts that the planes were made for; rows have as many blocks.
    unsafe {
        let (per, group_bytes) = S::GROUP;
        let mut b = 0;
        while b < w.blocks {
            let scales = w.scales.add(b / per * group_bytes);
            let shared = S::group(scales);
            for j in 0..per {
                w.near.ask::<_MM_HINT_T0>(b);
                w.far.ask::<_MM_HINT_T1>(b);
                let (codes, scales) = (w.codes.add(b * C::BYTES), S::block(&shared, scales, j));
                if halves_apart::<C, S, R>() {
                    add_half::<C, S, VNNI, R>(reader, codes, &scales, (x, b), acc, 0);
                    read_again();
                    add_half::<C, S, VNNI, R>(reader, codes, &scales, (x, b), acc, 1);
                } else {
                    let sums = block_sums::<C, S, VNNI, R, 2>(reader, codes, x, b, 0);
                    for r in 0..R {
                        let x = x.block(r, b);
                        acc[r] = [
                            add_block::<S>(acc[r][0], &sums[r][0], &scales, x, 0),
                            add_block::<S>(acc[r][1], &sums[r][1], &scales, x, 1),
                        ];
                    }
                }
                b += 1;
            }
        }
    }
}

/// Whether 16 registers hold the sums of `R` rows only for one half of the tile at a time, beside codes and
/// activations.
#[inline(always)]
const fn halves_apart<C: CodeReader, S: ScaleReader, const R: usize>() -> bool {
    let parts = if S::HALVES { 2 } else { 1 };
    let pairs = if C::QUADS == 0 || C::QUADS == 8 { 0 } else { 1 };
    R * 2 * (parts + pairs) > 12
}

/// Has what was read before here be read again: activations that are kept for the second half of a tile are kept in
/// memory, for want of registers.
#[inline(always)]
fn read_again() {
    // SAFETY: no instruction.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}

/// Adds a block's terms for rows 0..8 or 8..16 of the tile.
#[inline(always)]
unsafe fn add_half<C: CodeReader, S: ScaleReader, const VNNI: bool, const R: usize>(
    reader: C,
    codes: *const u8,
    scales: &BlockScales,
    (x, b): (&ActivationBlocks<R>, usize),
    acc: &mut [Lanes; R],
    half: usize,
) {
    // SAFETY: the caller's.
    unsafe {
        let sums = block_sums::<C, S, VNNI, R, 1>(reader, codes, x, b, half);
        for r in 0..R {
            acc[r][half] = add_block::<S>(acc[r][half], &sums[r][0], scales, x.block(r, b), half);
        }
    }
}

/// Adds a block's term to a half of the outputs, in the one order that `scalar.rs` defines.
#[inline(always)]
unsafe fn add_block<S: ScaleReader>(acc: __m256, sums: &BlockSums, w: &BlockScales, x: &QBlock, half: usize) -> __m256 {
    // SAFETY: registers only.
    unsafe {
        let sum = _mm256_cvtepi32_ps(sums[0]);
        let term = if S::MIN {
            _mm256_fmsub_ps(sum, w.scale[half], _mm256_mul_ps(w.min[half], _mm256_set1_ps(x.sum)))
        } else if S::HALVES {
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[1]), w.second[half], _mm256_mul_ps(sum, w.scale[half]))
        } else {
            _mm256_mul_ps(sum, w.scale[half])
        };
        _mm256_fmadd_ps(term, _mm256_set1_ps(x.d), acc)
    }
}

/// Quantised tiles times rows.
///
/// # Safety
/// The host has AVX2, FMA and F16C; shapes were checked.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn blocks(job: &TileJob<'_>, layout: Layout, tiles: Range<usize>) {
    // SAFETY: the caller's.
    unsafe { each_layout::<false>(job, layout, tiles) }
}

/// Quantised tiles times rows where the host has AVX-VNNI.
///
/// # Safety
/// As for [`blocks`], and it has.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(super) unsafe fn blocks_vnni(job: &TileJob<'_>, layout: Layout, tiles: Range<usize>) {
    // SAFETY: the caller's.
    unsafe { each_layout::<true>(job, layout, tiles) }
}

/// Picks the readers of a layout.
#[inline(always)]
unsafe fn each_layout<const VNNI: bool>(job: &TileJob<'_>, layout: Layout, tiles: Range<usize>) {
    let tiles = TilesJob { job, layout, tiles };
    // SAFETY: the caller's; the readers are those of the layout.
    unsafe {
        match (layout.codes, layout.scales) {
            (Codes::Byte, Scales::F16) => tiles.run::<Bytes<128, 0>, scales::F16, VNNI>(Bytes),
            (Codes::Nibble, Scales::MinF16) => tiles.run::<_, scales::MinF16, VNNI>(Nibbles),
            (Codes::Nibble, Scales::ZeroByte) => tiles.run::<_, scales::ZeroByte, VNNI>(Nibbles),
            (Codes::Nibble, Scales::MinByte) => tiles.run::<_, scales::MinByte, VNNI>(Nibbles),
            (Codes::Five { .. }, Scales::F16) => tiles.run::<_, scales::F16, VNNI>(Fives::<16>),
            (Codes::Five { .. }, Scales::MinF16) => tiles.run::<_, scales::MinF16, VNNI>(Fives::<0>),
            (Codes::Five { .. }, Scales::MinByte) => tiles.run::<_, scales::MinByte, VNNI>(Fives::<0>),
            (Codes::Six, Scales::HalvesByte) => tiles.run::<_, scales::HalvesByte, VNNI>(Sixes),
            (Codes::Table(t), scales) if five_bits(&t) => small_table::<VNNI>(&tiles, Table::of(&t), scales),
            (Codes::Table(t), Scales::F16) => tiles.run::<_, scales::F16, VNNI>(Table::<128, 0>::of(&t)),
            (Codes::Table(t), Scales::Byte) => tiles.run::<_, scales::Byte, VNNI>(Table::<128, 0>::of(&t)),
            (Codes::Table(t), Scales::HalvesByte) => tiles.run::<_, scales::HalvesByte, VNNI>(Table::<128, 0>::of(&t)),
            (codes, scales) => unreachable!("no type is stored as {codes:?} with {scales:?}"),
        }
    }
}

/// Runs the kernel for a table whose levels have five bits.
#[inline(always)]
unsafe fn small_table<const VNNI: bool>(tiles: &TilesJob<'_>, table: Table<16, 4>, scales: Scales) {
    // SAFETY: the caller's.
    unsafe {
        match scales {
            Scales::F16 => tiles.run::<_, scales::F16, VNNI>(table),
            Scales::Bf16 => tiles.run::<_, scales::Bf16, VNNI>(table),
            Scales::HalvesF16 => tiles.run::<_, scales::HalvesF16, VNNI>(table),
            Scales::Byte => tiles.run::<_, scales::Byte, VNNI>(table),
            Scales::HalvesByte => tiles.run::<_, scales::HalvesByte, VNNI>(table),
            scales => unreachable!("no type is stored as a table with {scales:?}"),
        }
    }
}

thread_local! {
    /// Activations by magnitude and sign. It grows to the widest rows that the thread meets.
    static SIGNED: Cell<Lines> = Cell::default();
}

/// Tiles of a job, and how they are laid out.
struct TilesJob<'a> {
    job: &'a TileJob<'a>,
    layout: Layout,
    tiles: Range<usize>,
}

impl TilesJob<'_> {
    /// All rows of the job.
    #[inline(always)]
    unsafe fn run<C: CodeReader, S: ScaleReader, const VNNI: bool>(&self, reader: C) {
        for pairs in self.job.pairs.chunks(ROWS) {
            // Taken, not borrowed in a closure: that would be a function without the instruction set of this one.
            let mut signed = if by_magnitude::<C, VNNI>() { SIGNED.take() } else { Lines::default() };
            // SAFETY: the caller's.
            unsafe {
                if by_magnitude::<C, VNNI>() {
                    self.write_signed(pairs, &mut signed);
                }
                let rows = Rows { job: self.job, pairs, signed: signed.as_ptr().cast() };
                let fused = if C::BYTES == Bytes::<0, 0>::BYTES { FUSED_ROWS_BYTES } else { FUSED_ROWS };
                if pairs.len() <= fused {
                    self.fused::<C, S, VNNI>(reader, &rows);
                } else {
                    for tile in self.tiles.clone() {
                        self.shared::<C, S, VNNI>(reader, tile, &rows);
                    }
                }
            }
            if by_magnitude::<C, VNNI>() {
                SIGNED.set(signed);
            }
        }
    }

    /// Activations of some rows by magnitude and sign.
    #[inline(always)]
    unsafe fn write_signed(&self, pairs: &[(u32, u32)], to: &mut Lines) {
        let blocks = self.job.w.blocks();
        to.grow(pairs.len() * blocks * size_of::<Signed>());
        let to = to.as_mut_ptr().cast::<Signed>();
        for r in 0..pairs.len() {
            let x = self.job.x.blocks(pairs[r].0 as usize);
            for b in 0..blocks {
                // SAFETY: the caller's, and there is room.
                unsafe { Signed::write(to.add(r * blocks + b), &*x.add(b)) };
            }
        }
    }

    /// The planes of a tile.
    #[inline(always)]
    fn tile(&self, tile: usize) -> TilePart {
        let blocks = self.job.w.blocks();
        let codes = self.job.w.tile(tile).as_ptr();
        let scales = codes.wrapping_add(self.layout.codes_bytes(blocks));
        TilePart { codes, scales, blocks, near: PrefetchStream::NONE, far: PrefetchStream::NONE }
    }

    /// What lies `bytes` bytes after tile `tile`.
    #[inline(always)]
    fn after<C: CodeReader, S: ScaleReader>(&self, tile: usize, bytes: usize) -> PrefetchStream {
        PrefetchStream::new(self.job.after(tile, self.tiles.end, bytes), C::BYTES + S::GROUP.1 / S::GROUP.0)
    }

    /// Rows by two and one, tile by tile.
    #[inline(always)]
    unsafe fn fused<C: CodeReader, S: ScaleReader, const VNNI: bool>(&self, reader: C, rows: &Rows<'_>) {
        for tile in self.tiles.clone() {
            let mut part = self.tile(tile);
            let (blocks, groups) = (part.blocks, rows.pairs.len().div_ceil(2));
            (part.near, part.far) = (self.after::<C, S>(tile, NEAR_BYTES), self.after::<C, S>(tile, FAR_BYTES));
            for group in 0..groups {
                let mut part = part;
                // A single group asks for as many lines a block as the layout says, which are known here.
                if groups > 1 {
                    (part.near, part.far) = (part.near.piece(group, 1, blocks), part.far.piece(group, groups, blocks));
                }
                // SAFETY: the caller's.
                unsafe {
                    match rows.pairs.len() - 2 * group {
                        1 => self.fused_group::<C, S, VNNI, 1>(reader, &part, tile, rows, 2 * group),
                        _ => self.fused_group::<C, S, VNNI, 2>(reader, &part, tile, rows, 2 * group),
                    }
                }
            }
        }
    }

    /// `R` rows of a tile, from the `first` on.
    #[inline(always)]
    unsafe fn fused_group<C: CodeReader, S: ScaleReader, const VNNI: bool, const R: usize>(
        &self,
        reader: C,
        part: &TilePart,
        tile: usize,
        rows: &Rows<'_>,
        first: usize,
    ) {
        // SAFETY: the caller's.
        unsafe {
            let mut acc = [[_mm256_setzero_ps(); 2]; R];
            kernel::<C, S, VNNI, R>(reader, part, &rows.group::<R>(first), &mut acc);
            for r in 0..R {
                store(self.job, rows.pairs[first + r].1, tile, acc[r]);
            }
        }
    }

    /// Up to [`ROWS`] rows and one tile, some blocks at a time.
    #[inline(always)]
    unsafe fn shared<C: CodeReader, S: ScaleReader, const VNNI: bool>(&self, reader: C, tile: usize, rows: &Rows<'_>) {
        let mut whole = self.tile(tile);
        whole.far = self.after::<C, S>(tile, FAR_BYTES);
        if rows.pairs.len() <= GROUP {
            whole.near = self.after::<C, S>(tile, NEAR_BYTES);
        }
        let mut panel = MaybeUninit::<PanelBytes>::uninit();
        // Zeroed as far as there are rows: all of it takes as long as a block of two rows.
        let mut acc = [const { MaybeUninit::<Lanes>::uninit() }; ROWS];
        // SAFETY: the caller's; the panel has room for its blocks.
        unsafe {
            let acc = zeroed(&mut acc, rows.pairs.len());
            let mut b = 0;
            while b < whole.blocks {
                let part = whole.part::<C, S>(b);
                if C::BYTES == Bytes::<0, 0>::BYTES {
                    groups::<C, S, VNNI>(reader, &part, rows, b, acc);
                } else {
                    let part = unpack::<C, S>(reader, &part, panel.as_mut_ptr());
                    groups::<C::Unpacked, S::Panel, VNNI>(C::Unpacked::default(), &part, rows, b, acc);
                }
                b += part.blocks;
            }
            for r in 0..rows.pairs.len() {
                store(self.job, rows.pairs[r].1, tile, acc[r]);
            }
        }
    }
}

/// The first `len` of some sums, which are zero.
#[inline(always)]
unsafe fn zeroed(acc: &mut [MaybeUninit<Lanes>], len: usize) -> &mut [Lanes] {
    for sums in &mut acc[..len] {
        // SAFETY: registers only.
        sums.write(unsafe { [_mm256_setzero_ps(); 2] });
    }
    // SAFETY: they were written just now.
    unsafe { acc[..len].assume_init_mut() }
}

/// Rows of activations that pass a tile.
struct Rows<'a> {
    job: &'a TileJob<'a>,
    pairs: &'a [(u32, u32)],
    /// `[rows, blocks]`, where codes are multiplied by magnitudes.
    signed: *const Signed,
}

impl Rows<'_> {
    /// `R` rows from the `first` on.
    #[inline(always)]
    fn group<const R: usize>(&self, first: usize) -> ActivationBlocks<R> {
        let mut x = ActivationBlocks { rows: [std::ptr::null(); R], signed: [std::ptr::null(); R] };
        for r in 0..R {
            x.rows[r] = self.job.x.blocks(self.pairs[first + r].0 as usize);
            x.signed[r] = self.signed.wrapping_add((first + r) * self.job.w.blocks());
        }
        x
    }
}

/// The terms of a part that begins at block `b` of the tile, by groups of rows. What is unpacked looks alike for many
/// layouts, so this is a function for each set, which they share.
#[inline(always)]
unsafe fn groups<C: CodeReader, S: ScaleReader, const VNNI: bool>(
    reader: C,
    part: &TilePart,
    rows: &Rows<'_>,
    b: usize,
    acc: &mut [Lanes],
) {
    // SAFETY: the caller's.
    unsafe {
        match VNNI {
            true => groups_vnni::<C, S>(reader, part, rows, b, acc),
            false => groups_avx2::<C, S>(reader, part, rows, b, acc),
        }
    }
}

#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
unsafe fn groups_vnni<C: CodeReader, S: ScaleReader>(
    reader: C,
    part: &TilePart,
    rows: &Rows<'_>,
    b: usize,
    acc: &mut [Lanes],
) {
    // SAFETY: the caller's.
    unsafe {
        match S::HALVES {
            true => groups_of::<C, S, true, GROUP_HALVES>(reader, part, rows, b, acc),
            false => groups_of::<C, S, true, GROUP>(reader, part, rows, b, acc),
        }
    }
}

#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn groups_avx2<C: CodeReader, S: ScaleReader>(
    reader: C,
    part: &TilePart,
    rows: &Rows<'_>,
    b: usize,
    acc: &mut [Lanes],
) {
    // SAFETY: the caller's.
    unsafe {
        match S::HALVES {
            true => groups_of::<C, S, false, GROUP_HALVES>(reader, part, rows, b, acc),
            false => groups_of::<C, S, false, GROUP>(reader, part, rows, b, acc),
        }
    }
}

#[inline(always)]
unsafe fn groups_of<C: CodeReader, S: ScaleReader, const VNNI: bool, const R: usize>(
    reader: C,
    part: &TilePart,
    rows: &Rows<'_>,
    b: usize,
    acc: &mut [Lanes],
) {
    let groups = rows.pairs.len().div_ceil(R);
    // What comes next is asked for evenly: memory would idle while the last groups read from the cache.
    let asks = groups.min(ASKS_MAX);
    for group in 0..groups {
        let part = TilePart { far: part.far.piece(group, asks, part.blocks), ..*part };
        let (first, acc) = (R * group, &mut acc[R * group..]);
        // SAFETY: the caller's.
        unsafe {
            match (rows.pairs.len() - first).min(R) {
                1 => group_of::<C, S, VNNI, 1>(reader, &part, rows, (first, b), acc),
                2 if R > 2 => group_of::<C, S, VNNI, 2>(reader, &part, rows, (first, b), acc),
                3 if R > 3 => group_of::<C, S, VNNI, 3>(reader, &part, rows, (first, b), acc),
                _ => group_of::<C, S, VNNI, R>(reader, &part, rows, (first, b), acc),
            }
        }
    }
}

/// `R` rows from the `first` on.
#[inline(always)]
unsafe fn group_of<C: CodeReader, S: ScaleReader, const VNNI: bool, const R: usize>(
    reader: C,
    part: &TilePart,
    rows: &Rows<'_>,
    (first, b): (usize, usize),
    acc: &mut [Lanes],
) {
    let acc = acc.first_chunk_mut::<R>().expect("there are sums of each row");
    // SAFETY: the caller's.
    unsafe { kernel::<C, S, VNNI, R>(reader, part, &rows.group::<R>(first).from(b), acc) };
}

/// Unpacked codes and scales of some blocks.
#[repr(C, align(64))]
struct PanelBytes {
    codes: [u8; PANEL_BLOCKS * 512],
    scales: [u8; PANEL_BLOCKS * PANEL_SCALE_BYTES],
}

/// Unpacks the codes and scales of a part into a panel.
#[inline(always)]
unsafe fn unpack<C: CodeReader, S: ScaleReader>(reader: C, part: &TilePart, panel: *mut PanelBytes) -> TilePart {
    // SAFETY: the caller's.
    unsafe {
        let (codes, scales) = ((&raw mut (*panel).codes).cast::<u8>(), (&raw mut (*panel).scales).cast::<u8>());
        for b in 0..part.blocks {
            unpack_codes(reader, part.codes.add(b * C::BYTES), codes.add(b * 512));
            unpack_scales::<S>(part.scales, b, scales.add(b * PANEL_SCALE_BYTES));
        }
        TilePart { codes, scales, ..*part }
    }
}

/// Float tiles times rows.
///
/// # Safety
/// As for [`blocks`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn floats(job: &TileJob<'_>, form: FloatForm, tiles: Range<usize>) {
    for tile in tiles {
        for pair in job.pairs {
            // SAFETY: the caller's.
            unsafe {
                let x = job.x.values(pair.0 as usize);
                let sums = match form {
                    FloatForm::F32 => float_tile::<0>(job, tile, x),
                    FloatForm::F16 => float_tile::<1>(job, tile, x),
                    FloatForm::Bf16 => float_tile::<2>(job, tile, x),
                    FloatForm::E4m3 => float_tile::<3>(job, tile, x),
                    FloatForm::E4m3B128 => float_tile::<4>(job, tile, x),
                };
                store(job, pair.1, tile, sums);
            }
        }
    }
}

#[inline(always)]
unsafe fn float_tile<const FORM: u8>(job: &TileJob<'_>, tile: usize, x: *const f32) -> Lanes {
    let at = job.w.tile(tile).as_ptr();
    let factors = at.wrapping_add(job.w.float_codes_bytes()).cast::<f32>();
    // SAFETY: tiles and rows are padded to a multiple of four inputs.
    unsafe {
        let mut sums = [[_mm256_setzero_ps(); 2]; 4];
        for k in (0..job.w.cols).step_by(4) {
            for (i, sums) in sums.iter_mut().enumerate() {
                let index = (k + i) * TILE_ROWS;
                let w = match FORM {
                    0 => {
                        [_mm256_loadu_ps(at.cast::<f32>().add(index)), _mm256_loadu_ps(at.cast::<f32>().add(index + 8))]
                    }
                    1 => halves(at.add(2 * index)),
                    2 => bf16(at.add(2 * index)),
                    3 => multiplied(e4m3(at.add(index)), [_mm256_set1_ps(E4M3_FACTOR); 2]),
                    _ => {
                        let of_group = factors.add(k / GROUP_COLS * TILE_ROWS);
                        multiplied(e4m3(at.add(index)), [_mm256_loadu_ps(of_group), _mm256_loadu_ps(of_group.add(8))])
                    }
                };
                let x = _mm256_set1_ps(*x.add(k + i));
                *sums = [_mm256_fmadd_ps(w[0], x, sums[0]), _mm256_fmadd_ps(w[1], x, sums[1])];
            }
        }
        let [a, b, c, d] = sums;
        [
            _mm256_add_ps(_mm256_add_ps(a[0], b[0]), _mm256_add_ps(c[0], d[0])),
            _mm256_add_ps(_mm256_add_ps(a[1], b[1]), _mm256_add_ps(c[1], d[1])),
        ]
    }
}

#[inline(always)]
unsafe fn multiplied(a: Lanes, b: Lanes) -> Lanes {
    // SAFETY: registers only.
    unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
}

/// Multiplies with the rows' scales and stores the outputs of one tile.
#[inline(always)]
unsafe fn store(job: &TileJob<'_>, row: u32, tile: usize, acc: Lanes) {
    let (mut values, scales) = ([0.0f32; TILE_ROWS], job.w.row_scales(tile));
    for (h, acc) in acc.into_iter().enumerate() {
        // SAFETY: 16 floats.
        unsafe {
            let scale = _mm256_loadu_ps(scales.as_ptr().add(8 * h));
            _mm256_storeu_ps(values.as_mut_ptr().add(8 * h), _mm256_mul_ps(acc, scale));
        }
    }
    job.out.store(row, tile, job.lanes(tile), &values);
}
