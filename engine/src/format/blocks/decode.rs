//! The definition of every encoding: bytes of a row to its values, in plain Rust. Kernels are held against this.
//!
//! Each function takes one block; element `e`, low and high nibble are as in the container's documentation. Values are
//! products and sums in float32 in the order written, without fused operations, so they are the same on every machine.

use super::{BlockType, grids};
use half::{bf16, f16};

/// Decodes a row of whole blocks.
///
/// # Panics
/// If `out` is no whole number of blocks or `bytes` is not its encoded length.
pub fn decode_row(ty: BlockType, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(ty.row_bytes(out.len()), Some(bytes.len()), "a row of {} {} values", out.len(), ty.name());
    let block = match ty {
        BlockType::F32 => f32_value,
        BlockType::F16 => f16_value,
        BlockType::Bf16 => bf16_value,
        BlockType::Q4_0 => q4_0,
        BlockType::Q4_1 => q4_1,
        BlockType::Q5_0 => q5_0,
        BlockType::Q5_1 => q5_1,
        BlockType::Q8_0 => q8_0,
        BlockType::Q2K => q2_k,
        BlockType::Q3K => q3_k,
        BlockType::Q4K => q4_k,
        BlockType::Q5K => q5_k,
        BlockType::Q6K => q6_k,
        BlockType::Iq1S => iq1_s,
        BlockType::Iq1M => iq1_m,
        BlockType::Iq2Xxs => iq2_xxs,
        BlockType::Iq2Xs => iq2_xs,
        BlockType::Iq2S => iq2_s,
        BlockType::Iq3Xxs => iq3_xxs,
        BlockType::Iq3S => iq3_s,
        BlockType::Iq4Nl => iq4_nl,
        BlockType::Iq4Xs => iq4_xs,
        BlockType::Mxfp4 => mxfp4,
        BlockType::Nvfp4 => nvfp4,
        BlockType::F8E4m3 => f8_e4m3,
        BlockType::F8E4m3B128 => f8_e4m3_b128,
        BlockType::U4G128 => u4_g128,
    };
    for (b, x) in bytes.chunks_exact(ty.bytes()).zip(out.chunks_exact_mut(ty.elements())) {
        block(b, x);
    }
}

/// Levels of IQ4_NL and IQ4_XS.
pub(crate) const IQ4_LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// Values of a 4-bit float (E2M1).
pub(crate) const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

fn half_at(b: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([b[at], b[at + 1]]).to_f32()
}

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// Nibble `i` of a 2-nibble byte, low one first.
fn nibble(byte: u8, high: bool) -> u8 {
    if high { byte >> 4 } else { byte & 15 }
}

/// Nibble of element `e` where a run of `len` elements has all its low nibbles first.
fn halves(qs: &[u8], e: usize, len: usize) -> u8 {
    nibble(qs[e % (len / 2)], e >= len / 2)
}

fn bit(b: &[u8], i: usize) -> u8 {
    b[i / 8] >> (i % 8) & 1
}

fn f32_value(b: &[u8], out: &mut [f32]) {
    out[0] = f32::from_bits(u32_at(b, 0));
}

fn f16_value(b: &[u8], out: &mut [f32]) {
    out[0] = half_at(b, 0);
}

fn bf16_value(b: &[u8], out: &mut [f32]) {
    out[0] = bf16::from_bits(u16_at(b, 0)).to_f32();
}

fn q8_0(b: &[u8], out: &mut [f32]) {
    let d = half_at(b, 0);
    for (x, q) in out.iter_mut().zip(&b[2..]) {
        *x = d * f32::from(*q as i8);
    }
}

fn q4_0(b: &[u8], out: &mut [f32]) {
    let d = half_at(b, 0);
    for (e, x) in out.iter_mut().enumerate() {
        *x = d * (f32::from(halves(&b[2..], e, 32)) - 8.0);
    }
}

fn q4_1(b: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(b, 0), half_at(b, 2));
    for (e, x) in out.iter_mut().enumerate() {
        *x = d * f32::from(halves(&b[4..], e, 32)) + m;
    }
}

fn q5_0(b: &[u8], out: &mut [f32]) {
    let d = half_at(b, 0);
    for (e, x) in out.iter_mut().enumerate() {
        let q = halves(&b[6..], e, 32) | bit(&b[2..6], e) << 4;
        *x = d * (f32::from(q) - 16.0);
    }
}

fn q5_1(b: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(b, 0), half_at(b, 2));
    for (e, x) in out.iter_mut().enumerate() {
        let q = halves(&b[8..], e, 32) | bit(&b[4..8], e) << 4;
        *x = d * f32::from(q) + m;
    }
}

/// Six-bit scale and minimum of group `g` of 8 in the 12 bytes that Q4_K and Q5_K share.
pub(crate) fn k_scale_min(s: &[u8], g: usize) -> (u8, u8) {
    if g < 4 {
        (s[g] & 63, s[g + 4] & 63)
    } else {
        (s[g + 4] & 15 | s[g - 4] >> 6 << 4, s[g + 4] >> 4 | s[g] >> 6 << 4)
    }
}

/// Writes `d * scale * code - dmin * minimum` for the 8 groups of 32 values of a block whose first 16 bytes are `d`,
/// `dmin` (f16) and the scales and minima of [`k_scale_min`]. `code` is called with the group and the place in it.
#[inline(always)]
fn scaled_groups(b: &[u8], out: &mut [f32], code: impl Fn(usize, usize) -> u8) {
    let (d, dmin, s) = (half_at(b, 0), half_at(b, 2), &b[4..16]);
    for (g, x) in out.chunks_exact_mut(32).enumerate() {
        let (sc, mn) = k_scale_min(s, g);
        let (scale, min) = (d * f32::from(sc), dmin * f32::from(mn));
        for (l, x) in x.iter_mut().enumerate() {
            *x = scale * f32::from(code(g, l)) - min;
        }
    }
}

fn q4_k(b: &[u8], out: &mut [f32]) {
    let qs = &b[16..144];
    scaled_groups(b, out, |g, l| nibble(qs[32 * (g / 2) + l], g % 2 == 1));
}

fn q5_k(b: &[u8], out: &mut [f32]) {
    let (qh, qs) = (&b[16..48], &b[48..176]);
    scaled_groups(b, out, |g, l| nibble(qs[32 * (g / 2) + l], g % 2 == 1) + 16 * (qh[l] >> g & 1));
}

fn q6_k(b: &[u8], out: &mut [f32]) {
    let (ql, qh, sc, d) = (&b[..128], &b[128..192], &b[192..208], half_at(b, 208));
    for (e, x) in out.iter_mut().enumerate() {
        let (n, r, l) = (e / 128, e % 128 / 32, e % 32);
        let low = nibble(ql[64 * n + 32 * (r & 1) + l], r >= 2);
        let high = qh[32 * n + l] >> (2 * r) & 3;
        let scale = d * f32::from(sc[8 * n + 2 * r + l / 16] as i8);
        *x = scale * (f32::from(low | high << 4) - 32.0);
    }
}

fn q2_k(b: &[u8], out: &mut [f32]) {
    let (s, qs, d, dmin) = (&b[..16], &b[16..80], half_at(b, 80), half_at(b, 82));
    for (e, x) in out.iter_mut().enumerate() {
        let (n, r, l) = (e / 128, e % 128 / 32, e % 32);
        let q = qs[32 * n + l] >> (2 * r) & 3;
        let s = s[e / 16];
        *x = d * f32::from(s & 15) * f32::from(q) - dmin * f32::from(s >> 4);
    }
}

/// Six-bit scale `j` of 16 in the 12 bytes of Q3_K, still with its offset of 32.
pub(crate) fn q3_k_scale(s: &[u8], j: usize) -> u8 {
    nibble(s[j % 8], j >= 8) | (s[8 + j % 4] >> (2 * (j / 4)) & 3) << 4
}

fn q3_k(b: &[u8], out: &mut [f32]) {
    let (hm, qs, s, d) = (&b[..32], &b[32..96], &b[96..108], half_at(b, 108));
    for (e, x) in out.iter_mut().enumerate() {
        let (n, r, l) = (e / 128, e % 128 / 32, e % 32);
        let low = qs[32 * n + l] >> (2 * r) & 3;
        let minus = if hm[l] >> (4 * n + r) & 1 == 1 { 0.0 } else { 4.0 };
        let scale = d * (f32::from(q3_k_scale(s, e / 16)) - 32.0);
        *x = scale * (f32::from(low) - minus);
    }
}

fn iq4_nl(b: &[u8], out: &mut [f32]) {
    let d = half_at(b, 0);
    for (e, x) in out.iter_mut().enumerate() {
        *x = d * f32::from(IQ4_LEVELS[usize::from(halves(&b[2..], e, 32))]);
    }
}

fn iq4_xs(b: &[u8], out: &mut [f32]) {
    let (d, sh, sl, qs) = (half_at(b, 0), u16_at(b, 2), &b[4..8], &b[8..136]);
    for (g, x) in out.chunks_exact_mut(32).enumerate() {
        let sc = nibble(sl[g / 2], g % 2 == 1) | ((sh >> (2 * g) & 3) as u8) << 4;
        let scale = d * (f32::from(sc) - 32.0);
        for (l, x) in x.iter_mut().enumerate() {
            *x = scale * f32::from(IQ4_LEVELS[usize::from(halves(&qs[16 * g..16 * g + 16], l, 32))]);
        }
    }
}

fn signed(magnitude: f32, minus: bool) -> f32 {
    if minus { -magnitude } else { magnitude }
}

fn iq3_s(b: &[u8], out: &mut [f32]) {
    let (d, qs, qh, sg, sc) = (half_at(b, 0), &b[2..66], &b[66..74], &b[74..106], &b[106..110]);
    for (e, x) in out.iter_mut().enumerate() {
        let (quad, g) = (e / 4, e / 32);
        let index = usize::from(qs[quad]) | usize::from(bit(qh, quad)) << 8;
        let scale = d * f32::from(1 + 2 * nibble(sc[g / 2], g % 2 == 1));
        *x = signed(scale * f32::from(grids::IQ3_S[index][e % 4]), bit(sg, e) == 1);
    }
}

fn iq3_xxs(b: &[u8], out: &mut [f32]) {
    let (d, qs) = (half_at(b, 0), &b[2..66]);
    for (g, x) in out.chunks_exact_mut(32).enumerate() {
        let aux = u32_at(b, 66 + 4 * g);
        let scale = d * (0.5 + (aux >> 28) as f32) * 0.5;
        for (l, x) in x.iter_mut().enumerate() {
            let signs = grids::even_signs((aux >> (7 * (l / 8)) & 127) as u8);
            let entry = grids::IQ3_XXS[usize::from(qs[8 * g + l / 4])];
            *x = signed(scale * f32::from(entry[l % 4]), signs >> (l % 8) & 1 == 1);
        }
    }
}

fn iq2_s(b: &[u8], out: &mut [f32]) {
    let (d, qs, sg, qh, sc) = (half_at(b, 0), &b[2..34], &b[34..66], &b[66..74], &b[74..82]);
    for (o, x) in out.chunks_exact_mut(8).enumerate() {
        let scale = d * (0.5 + f32::from(nibble(sc[o / 4], o % 4 >= 2))) * 0.25;
        let index = usize::from(qs[o]) | usize::from(qh[o / 4] >> (2 * (o % 4)) & 3) << 8;
        for (l, x) in x.iter_mut().enumerate() {
            *x = signed(scale * f32::from(grids::IQ2_S[index][l]), sg[o] >> l & 1 == 1);
        }
    }
}

fn iq2_xxs(b: &[u8], out: &mut [f32]) {
    let d = half_at(b, 0);
    for (g, x) in out.chunks_exact_mut(32).enumerate() {
        let (entries, aux) = (&b[2 + 8 * g..6 + 8 * g], u32_at(b, 6 + 8 * g));
        let scale = d * (0.5 + (aux >> 28) as f32) * 0.25;
        for (l, x) in x.iter_mut().enumerate() {
            let signs = grids::even_signs((aux >> (7 * (l / 8)) & 127) as u8);
            let entry = grids::IQ2_XXS[usize::from(entries[l / 8])];
            *x = signed(scale * f32::from(entry[l % 8]), signs >> (l % 8) & 1 == 1);
        }
    }
}

fn iq2_xs(b: &[u8], out: &mut [f32]) {
    let (d, sc) = (half_at(b, 0), &b[66..74]);
    for (o, x) in out.chunks_exact_mut(8).enumerate() {
        let scale = d * (0.5 + f32::from(nibble(sc[o / 4], o % 4 >= 2))) * 0.25;
        let q = u16_at(b, 2 + 2 * o);
        let (entry, signs) = (grids::IQ2_XS[usize::from(q & 511)], grids::even_signs((q >> 9) as u8));
        for (l, x) in x.iter_mut().enumerate() {
            *x = signed(scale * f32::from(entry[l]), signs >> l & 1 == 1);
        }
    }
}

/// What is added to all values of an entry of IQ1_S and IQ1_M, or taken from them.
const IQ1_DELTA: f32 = 0.125;

/// Eight values of IQ1_S and IQ1_M.
fn iq1_entry(index: usize, scale: f32, minus: bool, out: &mut [f32]) {
    for (x, q) in out.iter_mut().zip(grids::IQ1[index]) {
        *x = scale * (f32::from(q) - 1.0 + signed(IQ1_DELTA, minus));
    }
}

fn iq1_s(b: &[u8], out: &mut [f32]) {
    let (d, qs) = (half_at(b, 0), &b[2..34]);
    for (o, x) in out.chunks_exact_mut(8).enumerate() {
        let qh = u16_at(b, 34 + 2 * (o / 4));
        let index = usize::from(qs[o]) | usize::from(qh >> (3 * (o % 4)) & 7) << 8;
        iq1_entry(index, d * f32::from(2 * (qh >> 12 & 7) + 1), qh >> 15 == 1, x);
    }
}

/// The factor of a block of IQ1_M, whose bits are the highest four of each of four words of scales.
pub(crate) fn iq1_m_factor(scales: &[u8]) -> f16 {
    f16::from_bits((0..4).fold(0, |bits, i| bits | (u16_at(scales, 2 * i) >> 12) << (4 * i)))
}

/// Three-bit scale `j` of 16 in the same words.
pub(crate) fn iq1_m_scale(scales: &[u8], j: usize) -> u8 {
    (u16_at(scales, 2 * (j / 4)) >> (3 * (j % 4)) & 7) as u8
}

fn iq1_m(b: &[u8], out: &mut [f32]) {
    let (qs, qh, sc) = (&b[..32], &b[32..48], &b[48..56]);
    let d = iq1_m_factor(sc).to_f32();
    for (o, x) in out.chunks_exact_mut(8).enumerate() {
        let high = nibble(qh[o / 2], o % 2 == 1);
        let index = usize::from(qs[o]) | usize::from(high & 7) << 8;
        iq1_entry(index, d * f32::from(2 * iq1_m_scale(sc, o / 2) + 1), high >> 3 == 1, x);
    }
}

/// `2^(x - 127)`, subnormal for 0 as in the definition of E8M0.
pub(crate) fn e8m0(x: u8) -> f32 {
    if x == 0 {
        f32::from_bits(0x0040_0000)
    } else if x == 255 {
        f32::INFINITY
    } else {
        f32::from_bits(u32::from(x) << 23)
    }
}

fn mxfp4(b: &[u8], out: &mut [f32]) {
    let scale = e8m0(b[0]);
    for (e, x) in out.iter_mut().enumerate() {
        *x = scale * E2M1[usize::from(halves(&b[1..], e, 32))];
    }
}

/// An 8-bit float without sign: 4 bits of exponent, 3 of mantissa; the highest bit counts for nothing. 0x7F, its NaN,
/// counts as 0.
pub(crate) fn ue4m3(t: u8) -> f32 {
    let (e, m) = (t >> 3 & 15, f32::from(t & 7));
    match t & 0x7f {
        0 | 0x7f => 0.0,
        _ if e == 0 => m / 512.0,
        _ => (1.0 + m / 8.0) * f32::from_bits((u32::from(e) + 120) << 23),
    }
}

fn nvfp4(b: &[u8], out: &mut [f32]) {
    for (s, x) in out.chunks_exact_mut(16).enumerate() {
        let scale = ue4m3(b[s]);
        for (e, x) in x.iter_mut().enumerate() {
            *x = scale * E2M1[usize::from(halves(&b[4 + 8 * s..12 + 8 * s], e, 16))];
        }
    }
}

/// An 8-bit float with sign, 4 bits of exponent and 3 of mantissa; no infinities, NaN is all ones.
pub(crate) fn e4m3(byte: u8) -> f32 {
    let magnitude = if byte & 0x7f == 0x7f { f32::NAN } else { ue4m3(byte & 0x7f) };
    signed(magnitude, byte & 0x80 != 0)
}

fn f8_e4m3(b: &[u8], out: &mut [f32]) {
    out[0] = e4m3(b[0]);
}

fn f8_e4m3_b128(b: &[u8], out: &mut [f32]) {
    let scale = f32::from_bits(u32_at(b, 0));
    out.iter_mut().zip(&b[4..]).for_each(|(x, byte)| *x = scale * e4m3(*byte));
}

fn u4_g128(b: &[u8], out: &mut [f32]) {
    let (scale, zero) = (half_at(b, 0), f32::from(b[2]));
    for (g, x) in out.chunks_exact_mut(32).enumerate() {
        let qs = &b[4 + 16 * g..][..16];
        x.iter_mut().enumerate().for_each(|(e, x)| *x = scale * (f32::from(halves(qs, e, 32)) - zero));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bit_floats_have_their_published_values() {
        assert_eq!(
            [0x00, 0x01, 0x07, 0x08, 0x38, 0x7e, 0xb8].map(e4m3),
            [0.0, 0.001953125, 0.013671875, 0.015625, 1.0, 448.0, -1.0]
        );
        assert!(e4m3(0xff).is_nan() && e4m3(0x7f).is_nan());
    }

    #[test]
    fn a_group_of_nibbles_is_a_scale_times_what_exceeds_its_zero_point() {
        let mut block = vec![0u8; 68];
        block[..2].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        (block[2], block[4], block[67]) = (8, 0x1f, 0x90);
        let mut x = [0.0; 128];
        decode_row(BlockType::U4G128, &block, &mut x);
        assert_eq!((x[0], x[16], x[1], x[111], x[127]), (3.5, -3.5, -4.0, -4.0, 0.5));
    }
}
