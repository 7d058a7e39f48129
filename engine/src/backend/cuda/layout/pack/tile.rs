//! One row of a tile: where the codes, planes and scales of its blocks lie.

use chimere_kernels::cuda::product::layout::{Block, Codes, Layout, Scales, UNIT, e2m1_word, e4m3_word};
use chimere_kernels::cuda::quantized::BLOCK;

/// Blocks of a unit.
const UNIT_BLOCKS: usize = UNIT / BLOCK;

/// A row of a tile, part by part.
pub(super) struct TileRow<'a> {
    pub(super) codes: &'a mut [[u8; 4]],
    pub(super) planes: &'a mut [u8],
    pub(super) scales: &'a mut [u8],
    pub(super) groups: &'a mut [u8],
    /// Of the row: its pair's number, and whether it is the pair's upper one.
    pub(super) g: usize,
    pub(super) high: usize,
}

impl<'a> TileRow<'a> {
    #[inline(always)]
    pub(super) fn of(layout: Layout, r: usize, units: usize, tile: &'a mut [u8]) -> Self {
        let [planes_at, scales_at, groups_at, _] = layout.offsets(units);
        let (codes, rest) = tile.split_at_mut(planes_at);
        let (planes, rest) = rest.split_at_mut(scales_at - planes_at);
        let (scales, groups) = rest.split_at_mut(groups_at - scales_at);
        Self { codes: codes.as_chunks_mut().0, planes, scales, groups, g: r % 8, high: r / 8 }
    }

    /// Puts block `b` where the lanes of its row look for it.
    #[inline(always)]
    pub(super) fn put(&mut self, layout: Layout, b: usize, block: &Block) {
        let (unit, at) = (b / UNIT_BLOCKS, b % UNIT_BLOCKS);
        let (codes_bytes, plane_bytes, scale_bytes, group_bytes) = layout.parts();
        let (lane, high) = (4 * self.g, self.high);
        let codes = &mut self.codes[unit * (codes_bytes / 4)..][..codes_bytes / 4];
        let planes = &mut self.planes[unit * plane_bytes..][..plane_bytes];
        let (quads, nibble_at) = (quads(&block.codes), |t: usize| 128 * (at / 2) + 4 * (lane + t) + at % 2 * 2 + high);
        match layout.codes {
            Codes::Byte => put_bytes(&block.codes, &mut codes[128 * at..][..128], lane, high),
            Codes::E4m3 => put_bytes(&apart(&block.codes), &mut codes[128 * at..][..128], lane, high),
            Codes::Word => {
                put_bytes(&block.codes, &mut codes[128 * at..][..128], lane, high);
                put_bytes(&block.low, &mut codes[512 + 128 * at..][..128], lane, high);
            }
            Codes::Grid => put_grid(block, codes, planes, lane, at, high),
            Codes::Table(_) => (0..4).for_each(|t| codes[nibble_at(t)] = in_order(&quads, t).to_le_bytes()),
            Codes::E2m1 => {
                (0..4).for_each(|t| codes[nibble_at(t)] = e2m1_word([quads[t], quads[t + 4]]).to_le_bytes());
            }
            Codes::Nibble | Codes::Zeroed | Codes::Five | Codes::SignedFive | Codes::Six => {
                (0..4).for_each(|t| codes[nibble_at(t)] = nibbles(&quads, t).to_le_bytes());
            }
        }
        match layout.codes {
            Codes::Five | Codes::SignedFive => {
                (0..4).for_each(|t| {
                    or_word(planes, 2 * (lane + t) + at / 2, above::<1>(&quads, t, high) << (at % 2 * 4))
                });
            }
            Codes::Six => (0..4).for_each(|t| or_word(planes, 4 * (lane + t) + at, above::<2>(&quads, t, high))),
            _ => {}
        }
        let scales = &mut self.scales[unit * scale_bytes..][..scale_bytes];
        let groups = &mut self.groups[unit / 2 * group_bytes..][..group_bytes];
        put_scales(layout.scales, block, scales, groups, self.g, high, at);
    }
}

/// A block's codes, four in a word.
pub(super) type PackedQuads = [u32; 8];

#[inline(always)]
pub(super) fn quads(bytes: &[u8; BLOCK]) -> PackedQuads {
    std::array::from_fn(|i| u32::from_le_bytes(bytes.as_chunks().0[i]))
}

/// A row's bytes of a block.
#[inline(always)]
fn put_bytes(bytes: &[u8; BLOCK], codes: &mut [[u8; 4]], lane: usize, high: usize) {
    let quads = bytes.as_chunks::<4>().0;
    for t in 0..4 {
        codes[4 * (lane + t) + high] = quads[t];
        codes[4 * (lane + t) + 2 + high] = quads[t + 4];
    }
}

/// 8-bit floats as [`e4m3_word`] has each quad.
#[inline(always)]
fn apart(codes: &[u8; BLOCK]) -> [u8; BLOCK] {
    let mut apart = *codes;
    apart.as_chunks_mut().0.iter_mut().for_each(|q| *q = e4m3_word(u32::from_le_bytes(*q)).to_le_bytes());
    apart
}

/// A row's indices of a block of a grid, their ninth bits and the signs.
#[inline(always)]
fn put_grid(block: &Block, codes: &mut [[u8; 4]], planes: &mut [u8], lane: usize, at: usize, high: usize) {
    let (signs, ninths) = planes.split_at_mut(256);
    for t in 0..4 {
        let [first, second] = [block.grid[t], block.grid[t + 4]];
        let code = &mut codes[4 * (lane + t) + at];
        (code[high], code[2 + high]) = (first as u8, second as u8);
        let bits = (first >> 8 | second >> 8 << 2) << (at % 2 * 4 + high);
        ninths[2 * (lane + t) + at / 2] |= bits as u8;
        let [first, second] = [t, t + 4].map(|quad| spread(block.signs >> (4 * quad) & 15));
        or_word(signs, 2 * (lane + t) + at / 2, (first | second << 2) << (at % 2 * 4 + high));
    }
}

/// Bit k of a nibble as the lowest bit of byte k.
#[inline(always)]
pub(super) fn spread(nibble: u32) -> u32 {
    nibble.wrapping_mul(0x0020_4081) & 0x0101_0101
}

/// For lane `t` a word whose low nibbles are quad t's and high ones quad t + 4's.
#[inline(always)]
fn nibbles(quads: &PackedQuads, t: usize) -> u32 {
    quads[t] & 0x0f0f_0f0f | (quads[t + 4] & 0x0f0f_0f0f) << 4
}

/// For lane `t` the nibbles of quad t, then those of quad t + 4, one after another, as a byte permutation selects.
#[inline(always)]
fn in_order(quads: &PackedQuads, t: usize) -> u32 {
    // Both quads at once, each in its half of the word.
    let two = |quad: u32| (quad | quad >> 4) & 0x00ff_00ff;
    let four = |quad: u32| (two(quad) | two(quad) >> 8) & 0xffff;
    four(quads[t]) | four(quads[t + 4]) << 16
}

/// For lane `t` the bits above a nibble, `BITS` of a code, of quads t and t + 4.
#[inline(always)]
fn above<const BITS: usize>(quads: &PackedQuads, t: usize, high: usize) -> u32 {
    let mask = if BITS == 1 { 0x0101_0101 } else { 0x0303_0303 };
    (quads[t] >> 4 & mask | (quads[t + 4] >> 4 & mask) << (2 * BITS)) << (BITS * high)
}

#[inline(always)]
fn put_scales(
    scales: Scales,
    block: &Block,
    of_blocks: &mut [u8],
    of_groups: &mut [u8],
    g: usize,
    high: usize,
    at: usize,
) {
    let d = block.d.to_le_bytes();
    match scales {
        Scales::Min => {
            of_groups[8 * g + 4 * high..][..2].copy_from_slice(&d);
            of_groups[8 * g + 4 * high + 2..][..2].copy_from_slice(&block.dmin.to_le_bytes());
        }
        Scales::Byte | Scales::Nibble | Scales::Halves => of_groups[4 * g + 2 * high..][..2].copy_from_slice(&d),
        Scales::F16 | Scales::Bf16 | Scales::E4m3 | Scales::Eights | Scales::Zero => {}
    }
    match scales {
        Scales::F16 | Scales::Bf16 => of_blocks[16 * g + 4 * at + 2 * high..][..2].copy_from_slice(&d),
        Scales::Min | Scales::Halves | Scales::E4m3 => {
            of_blocks[16 * g + 4 * at + 2 * high..][..2].copy_from_slice(&block.s.map(|s| s as u8))
        }
        Scales::Byte => of_blocks[8 * g + 2 * at + high] = block.s[0] as u8,
        Scales::Nibble => of_blocks[4 * g + at] |= block.nibble() << (4 * high),
        // All rows and blocks that share it put what they have.
        Scales::Eights => of_blocks[4 * high..][..4].copy_from_slice(&block.scale.to_le_bytes()),
        Scales::Zero => {
            let of_row = &mut of_blocks[8 * g + 4 * high..][..3];
            (of_row[0], of_row[1], of_row[2]) = (d[0], d[1], block.s[0] as u8);
        }
    }
}

#[inline(always)]
fn or_word(bytes: &mut [u8], index: usize, value: u32) {
    let word = &mut bytes.as_chunks_mut::<4>().0[index];
    *word = (u32::from_le_bytes(*word) | value).to_le_bytes();
}
