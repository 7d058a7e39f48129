//! From encoded rows to packed tiles, and back to the numbers of one block in portable code.

use super::layout::{Codes, Layout, SIX_ADD, Scales};
use super::qblock::BLOCK;
use super::{E4M3_FACTOR, GROUP_COLS, TILE_ROWS};
use crate::format::BlockType;
use crate::format::blocks::decode::{e8m0, iq1_m_factor, iq1_m_scale, k_scale_min, q3_k_scale, ue4m3};
use crate::format::blocks::grids;
use half::{bf16, f16};

/// Quads of a block by row of the tile, four codes each.
type BlockQuads = [[u32; TILE_ROWS]; 8];

/// Packs up to 16 rows, each the whole encoded row, into the zeroed bytes of a tile.
pub(super) fn pack_tile(ty: BlockType, layout: Layout, blocks: usize, rows: &[&[u8]], tile: &mut [u8]) {
    let codes_of = codes_of(ty);
    let (codes, scales) = tile.split_at_mut(layout.codes_bytes(blocks));
    for (b, out) in codes.chunks_exact_mut(layout.codes.block_bytes()).enumerate() {
        let mut quads: BlockQuads = [[0; TILE_ROWS]; 8];
        for (lane, row) in rows.iter().enumerate() {
            let codes = codes_of(row, b);
            for (quad, bytes) in quads.iter_mut().zip(codes.as_chunks::<4>().0) {
                quad[lane] = u32::from_le_bytes(*bytes);
            }
        }
        place(layout.codes, &quads, out);
    }
    for (lane, row) in rows.iter().enumerate() {
        place_scales(ty, blocks, row, lane, scales);
    }
}

/// Packs up to 16 rows of floats of `size` bytes into the zeroed bytes of a tile.
pub(super) fn pack_floats(size: usize, cols: usize, rows: &[&[u8]], tile: &mut [u8]) {
    for (k, out) in tile.chunks_exact_mut(TILE_ROWS * size).take(cols).enumerate() {
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(size)) {
            out.copy_from_slice(&row[k * size..][..size]);
        }
    }
}

/// Packs up to 16 rows of 8-bit floats with a scale for 128 of them ([`BlockType::F8E4m3B128`]).
pub(super) fn pack_float_groups(cols: usize, rows: &[&[u8]], tile: &mut [u8]) {
    let (codes, factors) = tile.split_at_mut(cols * TILE_ROWS);
    let block = BlockType::F8E4m3B128.bytes();
    let size = size_of::<f32>();
    for (lane, row) in rows.iter().enumerate() {
        for (group, from) in row.chunks_exact(block).enumerate() {
            let (scale, values) = from.split_first_chunk().expect("a scale of four bytes");
            let factor = f32::from_le_bytes(*scale) * E4M3_FACTOR;
            factors[(group * TILE_ROWS + lane) * size..][..size].copy_from_slice(&factor.to_le_bytes());
            for (i, value) in values.iter().enumerate() {
                codes[(group * GROUP_COLS + i) * TILE_ROWS + lane] = *value;
            }
        }
    }
}

/// Writes the codes of one block in their storage.
fn place(codes: Codes, quads: &BlockQuads, out: &mut [u8]) {
    let words = out.as_chunks_mut::<4>().0;
    if codes == Codes::Byte {
        for (word, code) in words.iter_mut().zip(quads.as_flattened()) {
            *word = code.to_le_bytes();
        }
        return;
    }
    let (nibbles, planes) = words.split_at_mut(4 * TILE_ROWS);
    for (v, words) in nibbles.chunks_exact_mut(TILE_ROWS).enumerate() {
        for (lane, word) in words.iter_mut().enumerate() {
            *word = (quads[v][lane] & 0x0f0f_0f0f | (quads[v + 4][lane] & 0x0f0f_0f0f) << 4).to_le_bytes();
        }
    }
    let (per_plane, bits, mask) = if codes == Codes::Six { (4, 2, 0x0303_0303) } else { (8, 1, 0x0101_0101) };
    for (words, quads) in planes.chunks_exact_mut(TILE_ROWS).zip(quads.chunks_exact(per_plane)) {
        for (lane, word) in words.iter_mut().enumerate() {
            let high = |(j, quad): (usize, &[u32; TILE_ROWS])| (quad[lane] >> 4 & mask) << (j * bits);
            *word = quads.iter().enumerate().map(high).fold(0, |a, b| a | b).to_le_bytes();
        }
    }
}

/// The codes of block `b` of 32 of an encoded row, as wide as the layout stores them.
fn codes_of(ty: BlockType) -> fn(&[u8], usize) -> [u8; BLOCK] {
    use BlockType as B;
    match ty {
        B::Q8_0 => |row, b| std::array::from_fn(|e| row[34 * b + 2 + e] ^ 0x80),
        B::Q4_0 | B::Iq4Nl => |row, b| nibbles(&row[18 * b + 2..]),
        B::Q4_1 => |row, b| nibbles(&row[20 * b + 4..]),
        B::Mxfp4 => |row, b| nibbles(&row[17 * b + 1..]),
        B::Nvfp4 => nvfp4_codes,
        B::Q5_0 => |row, b| with_fifth_bit(&row[22 * b + 2..], &row[22 * b + 6..]),
        B::Q5_1 => |row, b| with_fifth_bit(&row[24 * b + 4..], &row[24 * b + 8..]),
        B::Q4K => |row, b| k_nibbles(&row[144 * (b / 8) + 16..], b % 8),
        B::Q5K => q5_k_codes,
        B::Q6K => q6_k_codes,
        B::Q3K => q3_k_codes,
        B::Iq4Xs => |row, b| nibbles(&row[136 * (b / 8) + 8 + 16 * (b % 8)..]),
        B::Iq3S => iq3_s_codes,
        B::Iq3Xxs => iq3_xxs_codes,
        B::Iq1S => iq1_s_codes,
        B::Iq1M => iq1_m_codes,
        B::Iq2Xxs => iq2_xxs_codes,
        B::Iq2Xs => iq2_xs_codes,
        B::Iq2S => iq2_s_codes,
        B::U4G128 => |row, b| nibbles(&row[68 * (b / 4) + 4 + 16 * (b % 4)..]),
        B::F32 | B::F16 | B::Bf16 | B::F8E4m3 | B::F8E4m3B128 | B::Q2K => unreachable!("{} has no layout", ty.name()),
    }
}

/// Low nibbles, then high nibbles, of 16 bytes.
#[inline(always)]
fn nibbles(qs: &[u8]) -> [u8; BLOCK] {
    let qs: &[u8; 16] = qs.first_chunk().expect("a block has 16 bytes of nibbles");
    std::array::from_fn(|e| if e < 16 { qs[e] & 15 } else { qs[e - 16] >> 4 })
}

#[inline(always)]
fn with_fifth_bit(bits: &[u8], qs: &[u8]) -> [u8; BLOCK] {
    let bits = u32::from_le_bytes(*bits.first_chunk().expect("a block has 4 bytes of fifth bits"));
    let mut codes = nibbles(qs);
    for (e, code) in codes.iter_mut().enumerate() {
        *code |= ((bits >> e & 1) as u8) << 4;
    }
    codes
}

/// Group `g` of 8 of the 128 bytes of Q4_K and Q5_K.
#[inline(always)]
fn k_nibbles(qs: &[u8], g: usize) -> [u8; BLOCK] {
    let qs: &[u8; 32] = qs[32 * (g / 2)..].first_chunk().expect("two groups share 32 bytes");
    let shift = 4 * (g % 2);
    qs.map(|q| q >> shift & 15)
}

fn nvfp4_codes(row: &[u8], b: usize) -> [u8; BLOCK] {
    let qs = &row[36 * (b / 2) + 4 + 16 * (b % 2)..][..16];
    std::array::from_fn(|e| qs[8 * (e / 16) + e % 8] >> (e % 16 / 8 * 4) & 15)
}

fn q5_k_codes(row: &[u8], b: usize) -> [u8; BLOCK] {
    let (block, g) = (&row[176 * (b / 8)..][..176], b % 8);
    let mut codes = k_nibbles(&block[48..], g);
    for (code, high) in codes.iter_mut().zip(&block[16..48]) {
        *code |= (high >> g & 1) << 4;
    }
    codes
}

fn q6_k_codes(row: &[u8], b: usize) -> [u8; BLOCK] {
    let (block, n, r) = (&row[210 * (b / 8)..][..210], b % 8 / 4, b % 4);
    let (low, high) = (&block[64 * n + 32 * (r % 2)..][..32], &block[128 + 32 * n..][..32]);
    let shift = r / 2 * 4;
    std::array::from_fn(|l| low[l] >> shift & 15 | (high[l] >> (2 * r) & 3) << 4)
}

fn q3_k_codes(row: &[u8], b: usize) -> [u8; BLOCK] {
    let (block, g) = (&row[110 * (b / 8)..][..110], b % 8);
    let (high, low) = (&block[..32], &block[32 + 32 * (g / 4)..][..32]);
    std::array::from_fn(|l| (low[l] >> (2 * (g % 4)) & 3) + (high[l] >> g & 1) * 4)
}

/// Sign bit `e % 8` of byte `e / 8` becomes the code's fourth bit.
fn sign(signs: u8, e: usize) -> u8 {
    (signs >> (e % 8) & 1) << 3
}

fn iq3_s_codes(row: &[u8], b: usize) -> [u8; BLOCK] {
    let (block, g) = (&row[110 * (b / 8)..][..110], b % 8);
    std::array::from_fn(|e| {
        let index = usize::from(block[2 + 8 * g + e / 4]) | usize::from(block[66 + g] >> (e / 4) & 1) << 8;
        (grids::IQ3_S[index][e % 4] / 2) | sign(block[74 + 4 * g + e / 8], e)
    })
}

fn iq3_xxs_codes(row: &[u8], b: usize) -> [u8; BLOCK] {
    let (block, g) = (&row[98 * (b / 8)..][..98], b % 8);
    let word = u32::from_le_bytes(*block[66 + 4 * g..].first_chunk().expect("a word a group"));
    std::array::from_fn(|e| {
        let signs = grids::even_signs((word >> (7 * (e / 8)) & 127) as u8);
        (grids::IQ3_XXS[usize::from(block[2 + 8 * g + e / 4])][e % 4] / 8) | sign(signs, e)
    })
}

fn iq2_s_codes(row: &[u8], b: usize) -> [u8; BLOCK] {
    let (block, g) = (&row[82 * (b / 8)..][..82], b % 8);
    std::array::from_fn(|e| {
        let o = 4 * g + e / 8;
        let index = usize::from(block[2 + o]) | usize::from(block[66 + g] >> (2 * (e / 8)) & 3) << 8;
        (grids::IQ2_S[index][e % 8] / 16) | sign(block[34 + o], e)
    })
}

fn iq2_xs_codes(row: &[u8], b: usize) -> [u8; BLOCK] {
    let (block, g) = (&row[74 * (b / 8)..][..74], b % 8);
    std::array::from_fn(|e| {
        let q = u16_at(block, 2 + 8 * g + 2 * (e / 8));
        (grids::IQ2_XS[usize::from(q & 511)][e % 8] / 16) | sign(grids::even_signs((q >> 9) as u8), e)
    })
}

fn iq2_xxs_codes(row: &[u8], b: usize) -> [u8; BLOCK] {
    let group = &row[66 * (b / 8) + 2 + 8 * (b % 8)..][..8];
    let word = u32::from_le_bytes(*group.last_chunk().expect("a word a group"));
    std::array::from_fn(|e| {
        let signs = grids::even_signs((word >> (7 * (e / 8)) & 127) as u8);
        (grids::IQ2_XXS[usize::from(group[e / 8])][e % 8] / 16) | sign(signs, e)
    })
}

/// The fourth bit says that the eighth is taken and not added.
fn iq1_s_codes(row: &[u8], b: usize) -> [u8; BLOCK] {
    let (block, g) = (&row[50 * (b / 8)..][..50], b % 8);
    let high = u16_at(block, 34 + 2 * g);
    std::array::from_fn(|e| {
        let index = usize::from(block[2 + 4 * g + e / 8]) | usize::from(high >> (3 * (e / 8)) & 7) << 8;
        grids::IQ1[index][e % 8] | ((high >> 15) as u8) << 3
    })
}

fn iq1_m_codes(row: &[u8], b: usize) -> [u8; BLOCK] {
    let (block, g) = (&row[56 * (b / 8)..][..56], b % 8);
    std::array::from_fn(|e| {
        let o = 4 * g + e / 8;
        let high = block[32 + o / 2] >> (4 * (o % 2)) & 15;
        grids::IQ1[usize::from(block[o]) | usize::from(high & 7) << 8][e % 8] | (high & 8)
    })
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Writes `bits` as entry `index` of an array of u16.
fn put(out: &mut [u8], index: usize, bits: u16) {
    out[2 * index..2 * index + 2].copy_from_slice(&bits.to_le_bytes());
}

/// Writes the scales of one row into its lane of the tile's scale plane.
fn place_scales(ty: BlockType, blocks: usize, row: &[u8], lane: usize, out: &mut [u8]) {
    use BlockType as B;
    const SIGN: u16 = 0x8000;
    for b in 0..blocks {
        let at = b * TILE_ROWS + lane;
        let (first, second) = (2 * b * TILE_ROWS + lane, (2 * b + 1) * TILE_ROWS + lane);
        match ty {
            B::Q8_0 => put(out, at, u16_at(row, 34 * b)),
            B::Q4_0 | B::Iq4Nl => put(out, at, u16_at(row, 18 * b)),
            B::Q5_0 => put(out, at, u16_at(row, 22 * b)),
            B::Mxfp4 => put(out, at, bf16::from_f32(e8m0(row[17 * b])).to_bits()),
            B::Nvfp4 => {
                let scale = |h: usize| f16::from_f32(ue4m3(row[36 * (b / 2) + 2 * (b % 2) + h])).to_bits();
                put(out, first, scale(0));
                put(out, second, scale(1));
            }
            B::U4G128 => {
                let (block, out) = (&row[68 * (b / 4)..], &mut out[48 * (b / 4)..][..48]);
                put(out, lane, u16_at(block, 0));
                out[32 + lane] = block[2];
            }
            // These add a minimum, the layout subtracts one.
            B::Q4_1 | B::Q5_1 => {
                let block = &row[ty.bytes() * b..];
                put(out, first, u16_at(block, 0));
                put(out, second, u16_at(block, 2) ^ SIGN);
            }
            _ => {
                let block = &row[ty.bytes() * (b / 8)..][..ty.bytes()];
                place_group_scales(ty, block, b, lane, out);
            }
        }
    }
}

/// The scales of block `b` where 256 inputs share an f16; `block` is the encoded block of 256.
fn place_group_scales(ty: BlockType, block: &[u8], b: usize, lane: usize, out: &mut [u8]) {
    use BlockType as B;
    let (g, halves) = (b % 8, matches!(ty, B::Q6K | B::Q3K | B::Iq2S | B::Iq2Xs | B::Iq1M));
    let group_bytes = match ty {
        B::Q4K | B::Q5K => Scales::MinByte,
        _ if halves => Scales::HalvesByte,
        _ => Scales::Byte,
    }
    .group()
    .1;
    let out = &mut out[b / 8 * group_bytes..][..group_bytes];
    let nibble = |at: usize, high: bool| if high { block[at] >> 4 } else { block[at] & 15 };
    if matches!(ty, B::Q4K | B::Q5K) {
        put(out, lane, u16_at(block, 0));
        put(out, TILE_ROWS + lane, u16_at(block, 2));
        let (scale, min) = k_scale_min(&block[4..16], g);
        out[64 + 32 * g + lane] = scale;
        out[64 + 32 * g + 16 + lane] = min;
        return;
    }
    let d_at = match ty {
        B::Q6K => 208,
        B::Q3K => 108,
        _ => 0,
    };
    let d = if ty == B::Iq1M { iq1_m_factor(&block[48..]).to_bits() } else { u16_at(block, d_at) };
    put(out, lane, d);
    let scale = |half: usize| match ty {
        B::Q6K => block[192 + 2 * g + half],
        B::Q3K => q3_k_scale(&block[96..108], 2 * g + half).wrapping_sub(32),
        B::Iq2S => 1 + 2 * nibble(74 + g, half == 1),
        B::Iq2Xs => 1 + 2 * nibble(66 + g, half == 1),
        B::Iq2Xxs => 1 + 2 * (block[2 + 8 * g + 7] >> 4),
        B::Iq1S => 1 + 2 * (block[34 + 2 * g + 1] >> 4 & 7),
        B::Iq1M => 1 + 2 * iq1_m_scale(&block[48..], 2 * g + half),
        B::Iq4Xs => (nibble(4 + g / 2, g % 2 == 1) | ((u16_at(block, 2) >> (2 * g) & 3) as u8) << 4).wrapping_sub(32),
        B::Iq3S => 1 + 2 * nibble(106 + g / 2, g % 2 == 1),
        B::Iq3Xxs => 1 + 2 * (block[66 + 4 * g + 3] >> 4),
        _ => unreachable!("{} has no scale of 256 inputs", ty.name()),
    };
    if halves {
        out[32 + 32 * g + lane] = scale(0);
        out[32 + 32 * g + 16 + lane] = scale(1);
    } else {
        out[32 + 16 * g + lane] = scale(0);
    }
}

/// One block of a tile as numbers.
pub(super) struct TileBlock {
    /// `[quad][row][input of the quad]`; signed weights plus 128, or unsigned ones with a minimum.
    pub(super) codes: [u8; 8 * TILE_ROWS * 4],
    /// Scale of each half block, by row; both the same unless the layout has halves.
    pub(super) scale: [[f32; TILE_ROWS]; 2],
    /// What is subtracted, by row; zeros unless the layout has a minimum.
    pub(super) min: [f32; TILE_ROWS],
}

/// Reads block `b` of a tile of `blocks` blocks.
pub(super) fn unpack(layout: Layout, blocks: usize, tile: &[u8], b: usize) -> TileBlock {
    let (codes, scales) = tile.split_at(layout.codes_bytes(blocks));
    let bytes = layout.codes.block_bytes();
    let (scale, min) = unpack_scales(layout.scales, scales, b);
    TileBlock { codes: unpack_codes(layout.codes, &codes[b * bytes..][..bytes]), scale, min }
}

/// The codes of a block as bytes.
#[inline(always)]
pub(super) fn unpack_codes(codes: Codes, bytes: &[u8]) -> [u8; 512] {
    let mut out = [0; 512];
    if codes == Codes::Byte {
        out.copy_from_slice(bytes);
        return out;
    }
    let (nibbles, planes) = bytes.split_at(256);
    for (e, byte) in nibbles.iter().enumerate() {
        (out[e], out[256 + e]) = (byte & 15, byte >> 4);
    }
    match codes {
        Codes::Table(levels) => out.iter_mut().for_each(|c| *c = levels[usize::from(*c)]),
        Codes::Five { add } => {
            for (j, quad) in out.chunks_exact_mut(64).enumerate() {
                quad.iter_mut().zip(planes).for_each(|(c, bits)| *c = (*c | (bits >> j & 1) << 4) + add);
            }
        }
        Codes::Six => {
            for (j, quad) in out.chunks_exact_mut(64).enumerate() {
                let plane = &planes[j / 4 * 64..][..64];
                quad.iter_mut().zip(plane).for_each(|(c, bits)| *c = (*c | (bits >> (2 * (j % 4)) & 3) << 4) + SIX_ADD);
            }
        }
        Codes::Nibble | Codes::Byte => {}
    }
    out
}

fn unpack_scales(scales: Scales, plane: &[u8], b: usize) -> ([[f32; TILE_ROWS]; 2], [f32; TILE_ROWS]) {
    const NONE: [f32; TILE_ROWS] = [0.0; TILE_ROWS];
    let (per, bytes) = scales.group();
    let group = &plane[b / per * bytes..][..bytes];
    let half =
        |at: usize| -> [f32; TILE_ROWS] { std::array::from_fn(|l| f16::from_bits(u16_at(group, at + 2 * l)).to_f32()) };
    let times = |d: [f32; TILE_ROWS], at: usize| -> [f32; TILE_ROWS] {
        std::array::from_fn(|l| d[l] * f32::from(group[at + l] as i8))
    };
    let g = b % per;
    match scales {
        Scales::F16 => ([half(0); 2], NONE),
        Scales::Bf16 => ([std::array::from_fn(|l| bf16::from_bits(u16_at(group, 2 * l)).to_f32()); 2], NONE),
        Scales::HalvesF16 => ([half(0), half(32)], NONE),
        Scales::MinF16 => ([half(0); 2], half(32)),
        // At most 16, and six bits each, so that reading them as signed changes nothing.
        Scales::ZeroByte => ([half(0); 2], times(half(0), 32)),
        Scales::MinByte => ([times(half(0), 64 + 32 * g); 2], times(half(32), 64 + 32 * g + 16)),
        Scales::Byte => ([times(half(0), 32 + 16 * g); 2], NONE),
        Scales::HalvesByte => ([times(half(0), 32 + 32 * g), times(half(0), 32 + 32 * g + 16)], NONE),
    }
}
