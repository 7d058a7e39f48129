//! From encoded tensors to the tiles that the device's products read (`chimere_kernels::cuda::product::layout` says how
//! they lie).
//!
//! Most types have a home: a layout that holds exactly their values. What has none becomes 16-bit codes
//! ([`Layout::W16`]), within 2^-15 of the largest value of each 32. A row is packed by itself, straight from its
//! encoded bytes, so that a tile may take its rows from several tensors.

use crate::format::blocks::decode::{decode_row, e8m0, k_scale_min, q3_k_scale};
use crate::format::blocks::grids;
use crate::format::{BlockType, NotFinite, Tensor};
use chimere_kernels::cuda::product::layout::{Block, Codes, Layout, Scales, UNIT};
use chimere_kernels::cuda::quantized::BLOCK;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Blocks of a unit.
const UNIT_BLOCKS: usize = UNIT / BLOCK;
/// Values decoded at a time: every encoding's blocks divide it.
const PIECE: usize = 256;

/// The storage that a tensor's rows get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Home {
    /// The layout that the tensor has on the device.
    pub(super) layout: Layout,
    /// What products are to be multiplied with: 1 but for IQ3_XXS, whose levels are quarters.
    pub(super) factor: f32,
}

impl Home {
    /// Of what has no exact one.
    pub(super) const ROUNDED: Self = Self { layout: Layout::W16, factor: 1.0 };

    /// That of `t`. A companion scale is multiplied into 16-bit codes, because no layout has room for it.
    pub(super) fn of(t: &Tensor) -> Self {
        let scaled = t.scale.as_ref().is_some_and(|s| s.iter().any(|s| *s != 1.0));
        if scaled { Self::ROUNDED } else { Self::of_type(t.ty) }
    }

    /// That of an encoding.
    pub(super) fn of_type(ty: BlockType) -> Self {
        use BlockType as B;
        let layout = match ty {
            B::Q8_0 => Layout::Q8_0,
            B::Q5_0 => Layout::Q5_0,
            B::Q4_0 => Layout::Q4_0,
            B::Iq4Nl => Layout::IQ4_NL,
            B::Mxfp4 => Layout::MXFP4,
            B::Iq4Xs => Layout::IQ4_XS,
            B::Q4K => Layout::Q4_K,
            B::Q5K => Layout::Q5_K,
            B::Q6K | B::Q3K => Layout::Q6_K,
            B::Iq3S => Layout::IQ3_S,
            B::Iq3Xxs => IQ3_XXS,
            B::F32 | B::F16 | B::Bf16 | B::Q2K | B::Q4_1 | B::Q5_1 | B::Nvfp4 => Layout::W16,
            B::Iq1S | B::Iq1M | B::Iq2Xxs | B::Iq2Xs | B::Iq2S => Layout::W16,
        };
        Self { layout, factor: if ty == B::Iq3Xxs { 0.25 } else { 1.0 } }
    }
}

/// Magnitudes of the code book with the sign as the fourth bit.
const IQ3_XXS: Layout = Layout {
    codes: Codes::Table([4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62]),
    scales: Scales::Byte,
};

/// What is stored of a row's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowCoding {
    /// The home of its tensor.
    Home,
    /// The value rounded to codes of 16 bits.
    Rounded,
    /// The value rounded to Q8_0.
    First,
    /// What [`RowCoding::First`] leaves, rounded to Q8_0.
    Rest,
    /// [`RowCoding::Rounded`], each head's values followed by zeros.
    Heads(Heads),
}

/// Heads that kernels take for wider ones: each ends with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heads {
    /// Values of a head, a multiple of 32.
    pub(super) own: usize,
    /// With its zeros, likewise.
    pub(super) padded: usize,
}

impl Heads {
    /// Values of so many heads as `values` are of, with their zeros.
    pub(super) fn widened(self, values: usize) -> usize {
        values / self.own * self.padded
    }

    /// Which value stands in place `at`, if it is not a zero.
    pub(super) fn value(self, at: usize) -> Option<usize> {
        let (head, i) = (at / self.padded, at % self.padded);
        (i < self.own).then_some(head * self.own + i)
    }
}

/// Packs one encoded row as row `r` of a zeroed tile of `units` units; an error if its weights are no finite numbers.
pub(super) fn pack_row(
    t: &Tensor,
    form: RowCoding,
    matrix: usize,
    row: usize,
    r: usize,
    units: usize,
    tile: &mut [u8],
) -> Result<(), NotFinite> {
    let scale = t.scale.as_ref().map_or(1.0, |s| if s.len() == 1 { s[0] } else { s[matrix] });
    let bytes = t.finite_row(matrix, row)?;
    let form = if form == RowCoding::Home && Home::of(t) == Home::ROUNDED { RowCoding::Rounded } else { form };
    match form {
        RowCoding::Home => exact_packer(t.ty)(bytes, r, units, tile),
        RowCoding::Rounded => pack_values::<Rounded>(t.ty, scale, bytes, t.cols(), |b| b, r, units, tile),
        RowCoding::First => pack_values::<First>(t.ty, scale, bytes, t.cols(), |b| b, r, units, tile),
        RowCoding::Rest => pack_values::<Rest>(t.ty, scale, bytes, t.cols(), |b| b, r, units, tile),
        RowCoding::Heads(heads) => {
            let place = |b: usize| heads.widened(b / (heads.own / BLOCK) * heads.own) / BLOCK + b % (heads.own / BLOCK);
            pack_values::<Rounded>(t.ty, scale, bytes, t.cols(), place, r, units, tile)
        }
    }
    Ok(())
}

type RowPacker = fn(&[u8], usize, usize, &mut [u8]);

fn exact_packer(ty: BlockType) -> RowPacker {
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
        B::F32
        | B::F16
        | B::Bf16
        | B::Q2K
        | B::Q4_1
        | B::Q5_1
        | B::Nvfp4
        | B::Iq1S
        | B::Iq1M
        | B::Iq2Xxs
        | B::Iq2Xs
        | B::Iq2S => {
            unreachable!("{} has no exact layout", ty.name())
        }
    }
}

/// An encoding with a home.
trait Encoding {
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

/// Packs a row of any encoding by its values; block `b` of them becomes block `place_of(b)`.
#[expect(clippy::too_many_arguments, reason = "each is a thing of its own")]
fn pack_values<E: Rounding>(
    ty: BlockType,
    scale: f32,
    bytes: &[u8],
    cols: usize,
    place_of: impl Fn(usize) -> usize,
    r: usize,
    units: usize,
    tile: &mut [u8],
) {
    let mut place = TileRow::of(E::LAYOUT, r, units, tile);
    let mut values = [0.0; PIECE];
    for from in (0..cols).step_by(PIECE) {
        let n = PIECE.min(cols - from);
        let at = |n| ty.row_bytes(n).expect("pieces are whole blocks");
        decode(ty, &bytes[at(from)..at(from + n)], &mut values[..n]);
        values[..n].iter_mut().for_each(|v| *v *= scale);
        // What fills up the last block must not weigh in its scale.
        values[n..].fill(0.0);
        for (b, x) in values[..n.next_multiple_of(BLOCK)].as_chunks::<BLOCK>().0.iter().enumerate() {
            place.put(E::LAYOUT, place_of(from / BLOCK + b), &E::block(x));
        }
    }
}

/// As [`decode_row`], faster for floats.
pub(super) fn decode(ty: BlockType, bytes: &[u8], out: &mut [f32]) {
    match ty {
        BlockType::F32 => out.iter_mut().zip(bytes.as_chunks::<4>().0).for_each(|(x, b)| *x = f32::from_le_bytes(*b)),
        BlockType::Bf16 => {
            let wide = |b: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16);
            out.iter_mut().zip(bytes.as_chunks::<2>().0).for_each(|(x, b)| *x = wide(b));
        }
        BlockType::F16 => {
            let mut halves = [f16::ZERO; PIECE];
            for (x, bytes) in out.chunks_mut(PIECE).zip(bytes.chunks(2 * PIECE)) {
                let halves = &mut halves[..x.len()];
                halves.iter_mut().zip(bytes.as_chunks::<2>().0).for_each(|(h, b)| *h = f16::from_le_bytes(*b));
                halves.convert_to_f32_slice(x);
            }
        }
        _ => decode_row(ty, bytes, out),
    }
}

/// A row of a tile, part by part.
struct TileRow<'a> {
    codes: &'a mut [[u8; 4]],
    planes: &'a mut [u8],
    scales: &'a mut [u8],
    groups: &'a mut [u8],
    /// Of the row: its pair's number, and whether it is the pair's upper one.
    g: usize,
    high: usize,
}

impl<'a> TileRow<'a> {
    #[inline(always)]
    fn of(layout: Layout, r: usize, units: usize, tile: &'a mut [u8]) -> Self {
        let [planes_at, scales_at, groups_at, _] = layout.offsets(units);
        let (codes, rest) = tile.split_at_mut(planes_at);
        let (planes, rest) = rest.split_at_mut(scales_at - planes_at);
        let (scales, groups) = rest.split_at_mut(groups_at - scales_at);
        Self { codes: codes.as_chunks_mut().0, planes, scales, groups, g: r % 8, high: r / 8 }
    }

    /// Puts block `b` where the lanes of its row look for it.
    #[inline(always)]
    fn put(&mut self, layout: Layout, b: usize, block: &Block) {
        let (unit, at) = (b / UNIT_BLOCKS, b % UNIT_BLOCKS);
        let (codes_bytes, plane_bytes, scale_bytes, group_bytes) = layout.parts();
        let (lane, high) = (4 * self.g, self.high);
        let codes = &mut self.codes[unit * (codes_bytes / 4)..][..codes_bytes / 4];
        let planes = &mut self.planes[unit * plane_bytes..][..plane_bytes];
        let (quads, nibble_at) = (quads(&block.codes), |t: usize| 128 * (at / 2) + 4 * (lane + t) + at % 2 * 2 + high);
        match layout.codes {
            Codes::Byte => put_bytes(&block.codes, &mut codes[128 * at..][..128], lane, high),
            Codes::Word => {
                put_bytes(&block.codes, &mut codes[128 * at..][..128], lane, high);
                put_bytes(&block.low, &mut codes[512 + 128 * at..][..128], lane, high);
            }
            Codes::Grid => put_grid(block, codes, planes, lane, at, high),
            Codes::Table(_) => (0..4).for_each(|t| codes[nibble_at(t)] = in_order(&quads, t).to_le_bytes()),
            Codes::Nibble | Codes::Five | Codes::SignedFive | Codes::Six => {
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
type Quads = [u32; 8];

#[inline(always)]
fn quads(bytes: &[u8; BLOCK]) -> Quads {
    std::array::from_fn(|i| u32::from_le_bytes(bytes.as_chunks().0[i]))
}

#[inline(always)]
fn bytes(quads: Quads) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    bytes.as_chunks_mut().0.iter_mut().zip(quads).for_each(|(bytes, quad)| *bytes = quad.to_le_bytes());
    bytes
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
fn spread(nibble: u32) -> u32 {
    nibble.wrapping_mul(0x0020_4081) & 0x0101_0101
}

/// For lane `t` a word whose low nibbles are quad t's and high ones quad t + 4's.
#[inline(always)]
fn nibbles(quads: &Quads, t: usize) -> u32 {
    quads[t] & 0x0f0f_0f0f | (quads[t + 4] & 0x0f0f_0f0f) << 4
}

/// For lane `t` the nibbles of quad t, then those of quad t + 4, one after another, as a byte permutation selects.
#[inline(always)]
fn in_order(quads: &Quads, t: usize) -> u32 {
    // Both quads at once, each in its half of the word.
    let two = |quad: u32| (quad | quad >> 4) & 0x00ff_00ff;
    let four = |quad: u32| (two(quad) | two(quad) >> 8) & 0xffff;
    four(quads[t]) | four(quads[t + 4]) << 16
}

/// For lane `t` the bits above a nibble, `BITS` of a code, of quads t and t + 4.
#[inline(always)]
fn above<const BITS: usize>(quads: &Quads, t: usize, high: usize) -> u32 {
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
        Scales::F16 | Scales::Bf16 => {}
    }
    match scales {
        Scales::F16 | Scales::Bf16 => of_blocks[16 * g + 4 * at + 2 * high..][..2].copy_from_slice(&d),
        Scales::Min | Scales::Halves => {
            of_blocks[16 * g + 4 * at + 2 * high..][..2].copy_from_slice(&block.s.map(|s| s as u8))
        }
        Scales::Byte => of_blocks[8 * g + 2 * at + high] = block.s[0] as u8,
        Scales::Nibble => of_blocks[4 * g + at] |= block.nibble() << (4 * high),
    }
}

#[inline(always)]
fn or_word(bytes: &mut [u8], index: usize, value: u32) {
    let word = &mut bytes.as_chunks_mut::<4>().0[index];
    *word = (u32::from_le_bytes(*word) | value).to_le_bytes();
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
fn quads_at(bytes: &[u8]) -> Quads {
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
fn k_nibbles(qs: &[u8], g: usize) -> Quads {
    quads_at(&qs[32 * (g / 2)..]).map(|quad| quad >> (4 * (g % 2)) & LOW)
}

/// `x - top` of each byte, where bytes are below `2 * top` and `top` is a power of two.
#[inline(always)]
fn minus(x: u32, top: u32) -> u32 {
    // What was below has the bit now, and gets all bits above it.
    let y = x ^ (top * ONES);
    y | ((y & (top * ONES)) / top * (256 - top))
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

    /// The same bytes, two blocks at a time from the 32 that hold both: most weights of most files are these.
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

/// A layout that values are rounded to.
trait Rounding {
    const LAYOUT: Layout;

    fn block(x: &[f32; BLOCK]) -> Block;
}

struct Rounded;
impl Rounding for Rounded {
    const LAYOUT: Layout = Layout::W16;

    fn block(x: &[f32; BLOCK]) -> Block {
        Block::w16(x)
    }
}

struct First;
impl Rounding for First {
    const LAYOUT: Layout = Layout::Q8_0;

    fn block(x: &[f32; BLOCK]) -> Block {
        q8(x).0
    }
}

struct Rest;
impl Rounding for Rest {
    const LAYOUT: Layout = Layout::Q8_0;

    fn block(x: &[f32; BLOCK]) -> Block {
        let (_, rounded) = q8(x);
        q8(&std::array::from_fn(|i| x[i] - rounded[i])).0
    }
}

/// The nearest Q8_0, codes made with the stored scale, and its values.
fn q8(x: &[f32; BLOCK]) -> (Block, [f32; BLOCK]) {
    let top = x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    let stored = f16_up(top / 127.0);
    let d = stored.to_f32();
    let inverse = if d > 0.0 { 1.0 / d } else { 0.0 };
    // `as` saturates.
    let codes = x.map(|x| (x * inverse).round_ties_even() as i8);
    (Block { d: stored.to_bits(), codes: codes.map(|c| c as u8), ..Block::default() }, codes.map(|c| d * f32::from(c)))
}

/// The smallest f16 that is not below `x`, so that no code exceeds its range: what is left of a row has subnormal
/// scales.
fn f16_up(x: f32) -> f16 {
    let nearest = f16::from_f32(x);
    if nearest.to_f32() < x { f16::from_bits(nearest.to_bits() + 1) } else { nearest }
}
