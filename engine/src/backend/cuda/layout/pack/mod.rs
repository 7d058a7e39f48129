//! From encoded tensors to the tiles that the device's products read (`chimere_kernels::cuda::product::layout` says how
//! they lie).
//!
//! Most types have a home: a layout that holds exactly their values. What has none becomes 16-bit codes
//! ([`Layout::W16`]), within 2^-15 of the largest value of each 32. A row is packed by itself, straight from its
//! encoded bytes, so that a tile may take its rows from several tensors.

mod encodings;
pub(crate) mod source;
mod tile;
#[cfg(test)]
pub(super) mod unpack;

use crate::format::blocks::decode::decode_row;
use crate::format::{BlockType, NotFinite, Tensor};
use chimere_kernels::cuda::product::layout::{Block, Codes, E2M1_FACTOR, Layout, Scales, put_factor};
use chimere_kernels::cuda::quantized::BLOCK;
use encodings::exact_packer;
use half::f16;
use half::slice::HalfFloatSliceExt;
use tile::TileRow;

/// Values decoded at a time: every encoding's blocks divide it.
const PIECE: usize = 256;

/// The storage that a tensor's rows get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Home {
    /// The layout that the tensor has on the device.
    pub(crate) layout: Layout,
    /// What products are to be multiplied with: 1 but for IQ3_XXS, whose levels are quarters.
    pub(crate) factor: f32,
}

impl Home {
    /// Of what has no exact one.
    pub(crate) const ROUNDED: Self = Self { layout: Layout::W16, factor: 1.0 };

    /// That of `t`. Scales beside its encoding become factors of rows, where the layout has these; else they are
    /// multiplied into 16-bit codes.
    pub(crate) fn of(t: &Tensor) -> Self {
        let scaled = t.scale.as_ref().is_some_and(|s| s.iter().any(|s| *s != 1.0));
        let home = Self::of_type(t.ty);
        match t.ty {
            BlockType::Nvfp4 | BlockType::F8E4m3 => home,
            BlockType::U4G128 if scaled => Self { layout: home.layout.with_row_factors(), ..home },
            // Eight rows share a scale of 128 rows.
            BlockType::F8E4m3B128 if !t.rows().is_multiple_of(SHARED_ROWS) => Self::ROUNDED,
            _ if scaled => Self::ROUNDED,
            _ => home,
        }
    }

    /// That of an encoding.
    pub(crate) fn of_type(ty: BlockType) -> Self {
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
            B::Nvfp4 => Layout::NVFP4,
            B::F8E4m3 => Layout::FP8_ROWS,
            B::F8E4m3B128 => Layout::FP8_BLOCKS,
            B::U4G128 => Layout::U4_G128,
            B::F32 | B::F16 | B::Bf16 | B::Q2K | B::Q4_1 | B::Q5_1 => Layout::W16,
            B::Iq1S | B::Iq1M | B::Iq2Xxs | B::Iq2Xs | B::Iq2S => Layout::W16,
        };
        Self { layout, factor: if ty == B::Iq3Xxs { 0.25 } else { 1.0 } }
    }
}

/// Magnitudes of the code book with the sign as the fourth bit.
const IQ3_XXS: Layout = Layout {
    codes: Codes::Table([4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62]),
    scales: Scales::Byte,
    row_factors: false,
};

/// Rows of a tile that share the scale of [`Scales::Eights`].
const SHARED_ROWS: usize = 8;

/// What is stored of a row's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowCoding {
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
pub(crate) struct Heads {
    /// Values of a head, a multiple of 32.
    pub(crate) own: usize,
    /// With its zeros, likewise.
    pub(crate) padded: usize,
}

impl Heads {
    /// Values of so many heads as `values` are of, with their zeros.
    pub(crate) fn widened(self, values: usize) -> usize {
        values / self.own * self.padded
    }

    /// Where value `i` stands.
    pub(crate) fn place(self, i: usize) -> usize {
        i / self.own * self.padded + i % self.own
    }

    /// Which value stands in place `at`, if it is not a zero.
    pub(crate) fn value(self, at: usize) -> Option<usize> {
        let (head, i) = (at / self.padded, at % self.padded);
        (i < self.own).then_some(head * self.own + i)
    }
}

/// Packs one encoded row as row `r` of a zeroed tile of `units` units; an error if its weights are no finite numbers.
pub(crate) fn pack_row(
    t: &Tensor,
    form: RowCoding,
    matrix: usize,
    row: usize,
    r: usize,
    units: usize,
    tile: &mut [u8],
) -> Result<(), NotFinite> {
    let scale = t.row_scale(matrix, row);
    let bytes = t.finite_row(matrix, row)?;
    let home = Home::of(t);
    let form = if form == RowCoding::Home && home == Home::ROUNDED { RowCoding::Rounded } else { form };
    match form {
        RowCoding::Home => {
            exact_packer(t.ty)(bytes, r, units, tile);
            let levels = if t.ty == BlockType::Nvfp4 { E2M1_FACTOR } else { 1.0 };
            put_factor(home.layout, units, r, scale * levels, tile);
        }
        RowCoding::Rounded => pack_values::<RoundedEncoding>(t.ty, scale, bytes, t.cols(), |b| b, r, units, tile),
        RowCoding::First => pack_values::<First>(t.ty, scale, bytes, t.cols(), |b| b, r, units, tile),
        RowCoding::Rest => pack_values::<Rest>(t.ty, scale, bytes, t.cols(), |b| b, r, units, tile),
        RowCoding::Heads(heads) => {
            let place = |b: usize| heads.widened(b / (heads.own / BLOCK) * heads.own) / BLOCK + b % (heads.own / BLOCK);
            pack_values::<RoundedEncoding>(t.ty, scale, bytes, t.cols(), place, r, units, tile)
        }
    }
    Ok(())
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
pub(crate) fn decode(ty: BlockType, bytes: &[u8], out: &mut [f32]) {
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

/// A layout that values are rounded to.
trait Rounding {
    const LAYOUT: Layout;

    fn block(x: &[f32; BLOCK]) -> Block;
}

struct RoundedEncoding;
impl Rounding for RoundedEncoding {
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
