//! Whether encoded weights are finite numbers, found from what makes a block's values large: no value is decoded, so
//! that weights can be looked at while they are packed.

use super::BlockType;
use super::decode::{self, E2M1, decode_row, e8m0, iq1_m_factor};

/// Bits of an f16's exponent; all of them are set in infinities and NaNs alone.
const F16_EXPONENT: u16 = 0x7c00;
/// Bits of a bf16's exponent, which is the exponent of the upper half of an f32; all of them are set in infinities and
/// NaNs alone.
const BF16_EXPONENT: u16 = 0x7f80;

/// Whether every value of a run of whole blocks is a finite number.
///
/// # Panics
/// If `bytes` is no whole number of blocks.
pub fn is_finite(ty: BlockType, bytes: &[u8]) -> bool {
    assert!(bytes.len().is_multiple_of(ty.bytes()), "{} bytes of {}", bytes.len(), ty.name());
    use BlockType as B;
    match ty {
        // The sign left out, larger bits are a larger number, and infinity and NaN the largest.
        B::F32 => floats(bytes).fold(0, |most, bits| most.max(bits & 0x7fff_ffff)) < 0x7f80_0000,
        B::F16 => halves(bytes).fold(0, |most, bits| most.max(bits & 0x7fff)) < F16_EXPONENT,
        B::Bf16 => halves(bytes).fold(0, |most, bits| most.max(bits & 0x7fff)) < BF16_EXPONENT,
        B::Q4_0 | B::Q5_0 | B::Q8_0 | B::Iq4Nl => factors(ty, bytes, [0]),
        B::Iq4Xs | B::Iq1S | B::Iq2Xxs | B::Iq2Xs | B::Iq2S | B::Iq3Xxs | B::Iq3S => factors(ty, bytes, [0]),
        B::Q4_1 | B::Q5_1 | B::Q4K | B::Q5K => factors(ty, bytes, [0, 2]),
        B::Q2K => factors(ty, bytes, [80, 82]),
        B::Q3K => factors(ty, bytes, [108]),
        B::Q6K => factors(ty, bytes, [208]),
        B::Iq1M => bytes.chunks_exact(ty.bytes()).all(|block| iq1_m_factor(&block[48..]).is_finite()),
        B::Mxfp4 => bytes.chunks_exact(ty.bytes()).all(mxfp4),
        // The factors of its blocks have no infinity, and their NaN counts as 0.
        B::Nvfp4 => true,
        B::F8E4m3 => e4m3(bytes),
        B::F8E4m3B128 => bytes.chunks_exact(ty.bytes()).all(f8_e4m3_b128),
        B::U4G128 => factors(ty, bytes, [0]),
    }
}

/// Whether none of these 8-bit floats is NaN, which all ones beside the sign are.
fn e4m3(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |most, byte| most.max(byte & 0x7f)) < 0x7f
}

/// The largest scales overflow with the largest values only.
fn f8_e4m3_b128(block: &[u8]) -> bool {
    let (scale, values) = block.split_first_chunk().expect("a scale of four bytes");
    let most = values.iter().fold(0, |most, byte| most.max(byte & 0x7f));
    most < 0x7f && (f32::from_le_bytes(*scale) * decode::e4m3(most)).is_finite()
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes))
}

fn halves(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes))
}

/// Whether the factors of all blocks, f16 at these bytes of each, are finite. Products of a finite one with the integers
/// of a block are: none of these reaches 2^24.
fn factors<const N: usize>(ty: BlockType, bytes: &[u8], places: [usize; N]) -> bool {
    let infinite =
        |block: &[u8], at: usize| u16::from_le_bytes([block[at], block[at + 1]]) & F16_EXPONENT == F16_EXPONENT;
    let any = |block: &[u8]| places.iter().fold(false, |any, at| any | infinite(block, *at));
    !bytes.chunks_exact(ty.bytes()).fold(false, |found, block| found | any(block))
}

/// The largest factors overflow with the largest values only.
fn mxfp4(block: &[u8]) -> bool {
    let largest = E2M1[7];
    if (e8m0(block[0]) * largest).is_finite() {
        return true;
    }
    let mut values = [0.0; 32];
    decode_row(BlockType::Mxfp4, block, &mut values);
    values.iter().all(|x| x.is_finite())
}

#[cfg(test)]
mod tests {
    use super::super::SplitMix;
    use super::*;
    use half::f16;

    #[test]
    fn what_is_found_is_what_decoding_finds() {
        let (mut finite, mut rng) = ([0, 0], SplitMix::new(52, 0));
        for ty in BlockType::all() {
            let n = ty.elements();
            let (mut block, mut values) = (vec![0; ty.bytes()], vec![0.0; n]);
            for round in 0..4000 {
                rng.fill(&mut block);
                // Exponents of ones are rare among random bits.
                if round % 2 == 0 {
                    let at = round / 2 % ty.bytes();
                    block[at] |= 0x7f;
                    block[at.saturating_sub(1)] |= 0x80;
                }
                decode_row(ty, &block, &mut values);
                let want = values.iter().all(|x| x.is_finite());
                // A factor that is none stays one where all of a block's integers are 0: such a block is refused too.
                let got = is_finite(ty, &block);
                assert!(got == want || want && !got && has_bad_factor(ty, &block), "{} {block:?}", ty.name());
                finite[usize::from(got)] += 1;
            }
        }
        assert!(finite.iter().all(|n| *n > 1000), "{finite:?}");
    }

    /// An infinite factor of a minimum that no group uses does not show in the values.
    fn has_bad_factor(ty: BlockType, block: &[u8]) -> bool {
        let at = match ty {
            BlockType::Q4K | BlockType::Q5K => 2,
            BlockType::Q2K => 82,
            _ => return false,
        };
        !f16::from_le_bytes([block[at], block[at + 1]]).is_finite()
    }

    #[test]
    fn one_value_among_many_is_found_wherever_it_stands() {
        for (ty, bad) in [
            (BlockType::F32, f32::NAN.to_le_bytes().to_vec()),
            (BlockType::F16, f16::NEG_INFINITY.to_le_bytes().to_vec()),
            (BlockType::Bf16, half::bf16::NAN.to_le_bytes().to_vec()),
        ] {
            let mut bytes = vec![0; 1027 * ty.bytes()];
            assert!(is_finite(ty, &bytes));
            for at in [0, 513, 1026] {
                let place = at * ty.bytes()..(at + 1) * ty.bytes();
                bytes[place.clone()].copy_from_slice(&bad);
                assert!(!is_finite(ty, &bytes), "{} {at}", ty.name());
                bytes[place].fill(0);
            }
        }
    }
}
