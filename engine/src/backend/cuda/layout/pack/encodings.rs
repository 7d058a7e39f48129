//! Encodings that have a layout of their own: a row of a file's blocks becomes a row of a tile, value by value the
//! same.

use super::IQ3_XXS;
use super::tile::{PackedQuads, TileRow, quads, spread};
use crate::format::BlockType;
use crate::format::blocks::decode::{e8m0, k_scale_min, q3_k_scale};
use crate::format::blocks::grids;
use chimere_kernels::cuda::product::layout::{Block, Layout};
use chimere_kernels::cuda::quantized::BLOCK;
use half::bf16;

/// An encoding with a home.
pub(super) trait Encoding {
    const LAYOUT: Layout;
    /// Elements and bytes of an encoded block.
    const SIZE: (usize, usize);

    /// Block `b % (SIZE.0 / 32)` of the encoded block `bytes`.
    fn block(bytes: &[u8], b: usize) -> Block;

    /// Puts the `i`th encoded block of a row where its blocks go.
    #[inline(always)]
    fn put(bytes: &[u8], i: usize, place: &mut TileRow<'_>) {
        let blocks = Self::SIZE.0 / BLOCK;
        for b in 0..blocks {
            place.put(Self::LAYOUT, i * blocks + b, &Self::block(bytes, b));
        }
    }
}

fn packer<E: Encoding>() -> RowPacker {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi2")]
        unsafe fn wide<E: Encoding>(bytes: &[u8], r: usize, units: usize, tile: &mut [u8]) {
            pack_exact::<E>(bytes, r, units, tile);
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            // SAFETY: the machine has what `wide` is compiled for.
            return |bytes, r, units, tile| unsafe { wide::<E>(bytes, r, units, tile) };
        }
    }
    pack_exact::<E>
}

#[inline(always)]
fn pack_exact<E: Encoding>(bytes: &[u8], r: usize, units: usize, tile: &mut [u8]) {
    let mut place = TileRow::of(E::LAYOUT, r, units, tile);
    for (i, bytes) in bytes.chunks_exact(E::SIZE.1).enumerate() {
        E::put(bytes, i, &mut place);
    }
}

#[inline(always)]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Four codes at a time, `f(k)` those of quad `k`.
#[inline(always)]
fn codes_of(f: impl Fn(usize) -> u32) -> [u8; BLOCK] {
    bytes(std::array::from_fn(f))
}

/// The first 32 bytes.
#[inline(always)]
fn quads_at(bytes: &[u8]) -> PackedQuads {
    quads(bytes.first_chunk().expect("a block has so many"))
}

/// Each byte's low nibble.
const LOW: u32 = 0x0f0f_0f0f;
/// A one in each byte.
const ONES: u32 = 0x0101_0101;

/// Low nibbles, then high nibbles, of 16 bytes.
#[inline(always)]
fn halves(qs: &[u8]) -> [u8; BLOCK] {
    let qs: &[u8; 16] = qs.first_chunk().expect("a block has 16 bytes of nibbles");
    let quad = |k: usize| u32::from_le_bytes(qs.as_chunks().0[k]);
    codes_of(|k| if k < 4 { quad(k) & LOW } else { quad(k - 4) >> 4 & LOW })
}

/// Group `g` of 8 of the 128 bytes of Q4_K and Q5_K.
#[inline(always)]
fn k_nibbles(qs: &[u8], g: usize) -> PackedQuads {
    quads_at(&qs[32 * (g / 2)..]).map(|quad| quad >> (4 * (g % 2)) & LOW)
}

/// `x - top` of each byte, where bytes are below `2 * top` and `top` is a power of two.
#[inline(always)]
fn minus(x: u32, top: u32) -> u32 {
    // What was below has the bit now, and gets all bits above it.
    let y = x ^ (top * ONES);
    y | ((y & (top * ONES)) / top * (256 - top))
}

#[inline(always)]
fn bytes(quads: PackedQuads) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    bytes.as_chunks_mut().0.iter_mut().zip(quads).for_each(|(bytes, quad)| *bytes = quad.to_le_bytes());
    bytes
}

struct Q8_0;
impl Encoding for Q8_0 {
    const LAYOUT: Layout = Layout::Q8_0;
    const SIZE: (usize, usize) = (32, 34);

    #[inline(always)]
    fn block(bytes: &[u8], _: usize) -> Block {
        Block { d: u16_at(bytes, 0), codes: *bytes[2..].first_chunk().expect("32 codes"), ..Block::default() }
    }
}

struct Q5_0;
impl Encoding for Q5_0 {
    const LAYOUT: Layout = Layout::Q5_0;
    const SIZE: (usize, usize) = (32, 22);

    #[inline(always)]
    fn block(bytes: &[u8], _: usize) -> Block {
        let fifths = u32::from_le_bytes(*bytes[2..].first_chunk().expect("a word of fifth bits"));
        let low = quads(&halves(&bytes[6..]));
        let codes = codes_of(|k| minus(low[k] | spread(fifths >> (4 * k) & 15) << 4, 16));
        Block { d: u16_at(bytes, 0), codes, ..Block::default() }
    }
}

struct Q4_0;
impl Encoding for Q4_0 {
    const LAYOUT: Layout = Layout::Q4_0;
    const SIZE: (usize, usize) = (32, 18);

    #[inline(always)]
    fn block(bytes: &[u8], _: usize) -> Block {
        Block { d: u16_at(bytes, 0), codes: halves(&bytes[2..]), ..Block::default() }
    }
}

struct Iq4Nl;
impl Encoding for Iq4Nl {
    const LAYOUT: Layout = Layout::IQ4_NL;
    const SIZE: (usize, usize) = (32, 18);

    #[inline(always)]
    fn block(bytes: &[u8], b: usize) -> Block {
        Q4_0::block(bytes, b)
    }
}

struct Mxfp4;
impl Encoding for Mxfp4 {
    const LAYOUT: Layout = Layout::MXFP4;
    const SIZE: (usize, usize) = (32, 17);

    /// Levels are doubled, so the scale is halved, which bf16 can down to the smallest: 2^-128.
    #[inline(always)]
    fn block(bytes: &[u8], _: usize) -> Block {
        let d = bf16::from_f32(e8m0(bytes[0]) * 0.5).to_bits();
        Block { d, codes: halves(&bytes[1..]), ..Block::default() }
    }
}

struct Nvfp4;
impl Encoding for Nvfp4 {
    const LAYOUT: Layout = Layout::NVFP4;
    const SIZE: (usize, usize) = (64, 36);

    #[inline(always)]
    fn block(bytes: &[u8], b: usize) -> Block {
        let (first, second) = (&bytes[4 + 16 * b..][..8], &bytes[12 + 16 * b..][..8]);
        let code = |e: usize| if e < 16 { first[e % 8] >> (e / 8 * 4) } else { second[e % 8] >> (e % 16 / 8 * 4) };
        // The encoding's NaN counts as 0.
        let s = [0, 1].map(|half| bytes[2 * b + half]).map(|s| if s & 0x7f == 0x7f { 0 } else { (s & 0x7f) as i8 });
        Block { s, codes: std::array::from_fn(|e| code(e) & 15), ..Block::default() }
    }
}

struct F8E4m3;
impl Encoding for F8E4m3 {
    const LAYOUT: Layout = Layout::FP8_ROWS;
    const SIZE: (usize, usize) = (32, 32);

    #[inline(always)]
    fn block(bytes: &[u8], _: usize) -> Block {
        Block { codes: *bytes.first_chunk().expect("32 codes"), scale: 1.0, ..Block::default() }
    }
}

struct F8E4m3B128;
impl Encoding for F8E4m3B128 {
    const LAYOUT: Layout = Layout::FP8_BLOCKS;
    const SIZE: (usize, usize) = (128, 132);

    #[inline(always)]
    fn block(bytes: &[u8], b: usize) -> Block {
        let (scale, codes) = bytes.split_first_chunk().expect("a scale of four bytes");
        let codes = *codes[32 * b..].first_chunk().expect("32 codes");
        Block { codes, scale: f32::from_le_bytes(*scale), ..Block::default() }
    }
}

struct U4G128;
impl Encoding for U4G128 {
    const LAYOUT: Layout = Layout::U4_G128;
    const SIZE: (usize, usize) = (128, 68);

    #[inline(always)]
    fn block(bytes: &[u8], b: usize) -> Block {
        Block { d: u16_at(bytes, 0), s: [bytes[2] as i8, 0], codes: halves(&bytes[4 + 16 * b..]), ..Block::default() }
    }
}

struct Iq4Xs;
impl Encoding for Iq4Xs {
    const LAYOUT: Layout = Layout::IQ4_XS;
    const SIZE: (usize, usize) = (256, 136);

    #[inline(always)]
    fn block(bytes: &[u8], g: usize) -> Block {
        let low = bytes[4 + g / 2] >> (4 * (g % 2)) & 15;
        let s = low | ((u16_at(bytes, 2) >> (2 * g) & 3) as u8) << 4;
        Block { d: u16_at(bytes, 0), codes: halves(&bytes[8 + 16 * g..]), s: [s as i8 - 32, 0], ..Block::default() }
    }
}

struct Q4K;
impl Encoding for Q4K {
    const LAYOUT: Layout = Layout::Q4_K;
    const SIZE: (usize, usize) = (256, 144);

    #[inline(always)]
    fn block(bytes: &[u8], g: usize) -> Block {
        let (scale, min) = k_scale_min(&bytes[4..16], g);
        let codes = self::bytes(k_nibbles(&bytes[16..144], g));
        Block { d: u16_at(bytes, 0), dmin: u16_at(bytes, 2), s: [scale as i8, min as i8], codes, ..Block::default() }
    }

    /// Writes the bytes that [`Self::block`] gives, two blocks at a time from the 32 bytes that hold both: most weights
    /// of most files have this encoding.
    #[inline(always)]
    fn put(bytes: &[u8], i: usize, place: &mut TileRow<'_>) {
        const HIGH: u32 = 0xf0f0_f0f0;
        let (codes_bytes, _, scale_bytes, group_bytes) = Self::LAYOUT.parts();
        let (g, high) = (place.g, place.high);
        let (scales, mins) = k_scales_mins(bytes[4..16].as_array().expect("twelve bytes"));
        for (pair, qs) in bytes[16..144].as_chunks::<32>().0.iter().enumerate() {
            let (unit, half, quads) = (2 * i + pair / 2, pair % 2, quads(qs));
            let codes = &mut place.codes[unit * (codes_bytes / 4) + 128 * half + 16 * g + high..][..15];
            for t in 0..4 {
                let (first, second) = (quads[t], quads[t + 4]);
                codes[4 * t] = (first & LOW | (second & LOW) << 4).to_le_bytes();
                codes[4 * t + 2] = (first >> 4 & LOW | second & HIGH).to_le_bytes();
            }
            let factors = &mut place.scales[unit * scale_bytes + 16 * g + 8 * half + 2 * high..][..6];
            for (at, b) in [2 * pair, 2 * pair + 1].into_iter().enumerate() {
                factors[4 * at..4 * at + 2].copy_from_slice(&[scales[b], mins[b]]);
            }
        }
        place.groups[i * group_bytes + 8 * g + 4 * high..][..4].copy_from_slice(&bytes[..4]);
    }
}

/// All eight of [`k_scale_min`], factors and then minima.
#[inline(always)]
fn k_scales_mins(s: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    const SIX: u32 = 0x3f3f_3f3f;
    const TWO: u32 = 0x0303_0303;
    let [a, b, c] = [0, 1, 2].map(|k| u32::from_le_bytes(s.as_chunks().0[k]));
    let (scales, mins) = ([a & SIX, c & LOW | (a >> 6 & TWO) << 4], [b & SIX, c >> 4 & LOW | (b >> 6 & TWO) << 4]);
    let eight = |[low, high]: [u32; 2]| (u64::from(low) | u64::from(high) << 32).to_le_bytes();
    (eight(scales), eight(mins))
}

struct Q5K;
impl Encoding for Q5K {
    const LAYOUT: Layout = Layout::Q5_K;
    const SIZE: (usize, usize) = (256, 176);

    #[inline(always)]
    fn block(bytes: &[u8], g: usize) -> Block {
        let (scale, min) = k_scale_min(&bytes[4..16], g);
        let (low, fifths) = (k_nibbles(&bytes[48..176], g), quads_at(&bytes[16..48]));
        let codes = codes_of(|k| low[k] | (fifths[k] >> g & ONES) << 4);
        Block { d: u16_at(bytes, 0), dmin: u16_at(bytes, 2), s: [scale as i8, min as i8], codes, ..Block::default() }
    }
}

struct Q6K;
impl Encoding for Q6K {
    const LAYOUT: Layout = Layout::Q6_K;
    const SIZE: (usize, usize) = (256, 210);

    #[inline(always)]
    fn block(bytes: &[u8], g: usize) -> Block {
        let (n, r) = (g / 4, g % 4);
        let (low, high) = (quads_at(&bytes[64 * n + 32 * (r % 2)..]), quads_at(&bytes[128 + 32 * n..]));
        let code = |k: usize| low[k] >> (r / 2 * 4) & LOW | (high[k] >> (2 * r) & (3 * ONES)) << 4;
        let s = [bytes[192 + 2 * g] as i8, bytes[193 + 2 * g] as i8];
        Block { d: u16_at(bytes, 208), codes: codes_of(|k| minus(code(k), 32)), s, ..Block::default() }
    }
}

struct Q3K;
impl Encoding for Q3K {
    const LAYOUT: Layout = Layout::Q6_K;
    const SIZE: (usize, usize) = (256, 110);

    #[inline(always)]
    fn block(bytes: &[u8], g: usize) -> Block {
        let (thirds, low) = (quads_at(bytes), quads_at(&bytes[32 + 32 * (g / 4)..]));
        let code = |k: usize| low[k] >> (2 * (g % 4)) & (3 * ONES) | (thirds[k] >> g & ONES) << 2;
        let s = [0, 1].map(|half| q3_k_scale(&bytes[96..108], 2 * g + half) as i8 - 32);
        Block { d: u16_at(bytes, 108), codes: codes_of(|k| minus(code(k), 4)), s, ..Block::default() }
    }
}

struct Iq3S;
impl Encoding for Iq3S {
    const LAYOUT: Layout = Layout::IQ3_S;
    const SIZE: (usize, usize) = (256, 110);

    #[inline(always)]
    fn block(bytes: &[u8], g: usize) -> Block {
        let (indices, ninths) = (&bytes[2 + 8 * g..][..8], u16::from(bytes[66 + g]));
        let grid = std::array::from_fn(|quad| u16::from(indices[quad]) | (ninths >> quad & 1) << 8);
        let signs = u32::from_le_bytes(*bytes[74 + 4 * g..].first_chunk().expect("a word of signs"));
        let s = 1 + 2 * (bytes[106 + g / 2] >> (4 * (g % 2)) & 15) as i8;
        Block { d: u16_at(bytes, 0), grid, signs, s: [s, 0], ..Block::default() }
    }
}

struct Iq3Xxs;
impl Encoding for Iq3Xxs {
    const LAYOUT: Layout = IQ3_XXS;
    const SIZE: (usize, usize) = (256, 98);

    #[inline(always)]
    fn block(bytes: &[u8], g: usize) -> Block {
        let word = u32::from_le_bytes(*bytes[66 + 4 * g..].first_chunk().expect("a word a group"));
        let codes = codes_of(|k| {
            let magnitudes = u32::from_le_bytes(grids::IQ3_XXS[usize::from(bytes[2 + 8 * g + k])]);
            let signs = grids::even_signs((word >> (7 * (k / 2)) & 127) as u8);
            // Eighths, rounded down: 62 is the eighth level.
            magnitudes >> 3 & (7 * ONES) | spread(u32::from(signs >> (4 * (k % 2)) & 15)) << 3
        });
        Block { d: u16_at(bytes, 0), codes, s: [1 + 2 * (word >> 28) as i8, 0], ..Block::default() }
    }
}

type RowPacker = fn(&[u8], usize, usize, &mut [u8]);

pub(super) fn exact_packer(ty: BlockType) -> RowPacker {
    use BlockType as B;
    match ty {
        B::Q8_0 => packer::<Q8_0>(),
        B::Q5_0 => packer::<Q5_0>(),
        B::Q4_0 => packer::<Q4_0>(),
        B::Iq4Nl => packer::<Iq4Nl>(),
        B::Mxfp4 => packer::<Mxfp4>(),
        B::Iq4Xs => packer::<Iq4Xs>(),
        B::Q4K => packer::<Q4K>(),
        B::Q5K => packer::<Q5K>(),
        B::Q6K => packer::<Q6K>(),
        B::Q3K => packer::<Q3K>(),
        B::Iq3S => packer::<Iq3S>(),
        B::Iq3Xxs => packer::<Iq3Xxs>(),
        B::Nvfp4 => packer::<Nvfp4>(),
        B::F8E4m3 => packer::<F8E4m3>(),
        B::F8E4m3B128 => packer::<F8E4m3B128>(),
        B::U4G128 => packer::<U4G128>(),
        B::F32 | B::F16 | B::Bf16 | B::Q2K | B::Q4_1 | B::Q5_1 | B::Iq1S | B::Iq1M | B::Iq2Xxs | B::Iq2Xs | B::Iq2S => {
            unreachable!("{} has no exact layout", ty.name())
        }
    }
}
