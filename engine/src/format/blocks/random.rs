//! Random blocks that decode to sane values: for synthetic models, where every bit pattern would do but for the scales.

use super::BlockType;
use half::{bf16, f16};

/// What a state of SplitMix64 is moved on by.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A small fast generator (SplitMix64): quality is of no concern here, speed is.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// Streams of different `(seed, stream)` have nothing to do with each other.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut outer = Self(seed);
        let base = outer.next_u64();
        let mut rng = Self(base ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        Self(rng.next_u64())
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        Self::mixed(self.0)
    }

    /// Number `n`, from 1, of those that come from the plain state `seed`: different seeds have different ones.
    pub fn nth(seed: u64, n: u64) -> u64 {
        Self::mixed(seed.wrapping_add(n.wrapping_mul(STEP)))
    }

    fn mixed(state: u64) -> u64 {
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform from -1 to 1.
    pub fn signed_unit(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        // Whole words apart from the rest, so that no length is looked at a billion times.
        let (words, rest) = out.as_chunks_mut::<8>();
        words.iter_mut().for_each(|word| *word = self.next_u64().to_le_bytes());
        let last = self.next_u64().to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// Where a block's f16 factors stand, and what they are for values of standard deviation 1.
fn factors(ty: BlockType) -> &'static [(usize, f32)] {
    // Standard deviations of uniform integers: 74 for 8 bits, 18.5 for 6, 9.2 for 5, 4.6 for 4. Group scales multiply
    // by about 60 in Q4_K and Q5_K (6 bits, and their minimum spreads as far), by 74 in Q6_K (8 bits), by 16 in IQ3_S
    // (its magnitudes are near 9).
    match ty {
        BlockType::Q8_0 => const { &[(0, 1.0 / 74.0)] },
        BlockType::Q5_0 => const { &[(0, 1.0 / 9.2)] },
        BlockType::Q4K => const { &[(0, 1.0 / 4.6 / 60.0), (2, 7.5 / 4.6 / 60.0)] },
        BlockType::Q5K => const { &[(0, 1.0 / 9.2 / 60.0), (2, 15.5 / 9.2 / 60.0)] },
        BlockType::Q6K => const { &[(208, 1.0 / 18.5 / 74.0)] },
        BlockType::Iq3S => const { &[(0, 1.0 / 9.0 / 16.0)] },
        _ => &[],
    }
}

/// Sizes of a block's factors beside each other.
const SPREADS: usize = 256;

/// From 0.7 to 1.3.
fn spread(i: usize) -> f32 {
    0.7 + 0.6 * i as f32 / (SPREADS - 1) as f32
}

/// Takes from a block's codes the one that has no negative, for 0 in its place. With it a row's mean is half a step
/// below 0, the same in all rows: inputs that have a mean of their own, as squared ReLUs leave, would move all outputs
/// of all tokens along one direction, layer after layer, until a router could no longer tell tokens apart.
fn even_out(ty: BlockType, block: &mut [u8]) {
    match ty {
        BlockType::Q8_0 => block[2..].iter_mut().filter(|code| **code == 0x80).for_each(|code| *code = 0),
        BlockType::Q5_0 => {
            let (high, low) = block[2..].split_first_chunk_mut::<4>().expect("32 fifth bits, then the nibbles");
            let zeros = low.iter().enumerate().fold(0u32, |bits, (i, byte)| {
                bits | u32::from(byte & 15 == 0) << i | u32::from(byte >> 4 == 0) << (16 + i)
            });
            *high = (u32::from_le_bytes(*high) | zeros).to_le_bytes();
        }
        // Minima, or factors of either sign, make up for it.
        _ => {}
    }
}

/// Fills `out` with whole blocks whose values have a standard deviation of about `rms` and a mean of 0.
///
/// # Panics
/// If `out` is no whole number of blocks, or for a type other than F32, BF16, Q8_0, Q5_0, Q4_K, Q5_K, Q6_K and IQ3_S.
pub fn random_blocks(ty: BlockType, rms: f32, rng: &mut SplitMix, out: &mut [u8]) {
    assert!(out.len().is_multiple_of(ty.bytes()), "{} bytes of {}", out.len(), ty.name());
    let width = rms * 3f32.sqrt();
    match ty {
        BlockType::F32 => {
            let values = out.as_chunks_mut::<4>().0;
            return values.iter_mut().for_each(|v| *v = (width * rng.signed_unit()).to_le_bytes());
        }
        BlockType::Bf16 => {
            let values = out.as_chunks_mut::<2>().0;
            return values.iter_mut().for_each(|v| *v = bf16::from_f32(width * rng.signed_unit()).to_le_bytes());
        }
        _ => {}
    }
    let factors = factors(ty);
    assert!(!factors.is_empty(), "random blocks of {} are not made", ty.name());
    rng.fill(out);
    // Eight spreads are drawn from one word, and their factors rounded once: converting two factors a block would take
    // longer than drawing the block.
    let table: Vec<[[u8; 2]; SPREADS]> = factors
        .iter()
        .map(|(_, unit)| std::array::from_fn(|i| f16::from_f32(rms * unit * spread(i)).to_le_bytes()))
        .collect();
    let mut word = 0;
    for (i, block) in out.chunks_exact_mut(ty.bytes()).enumerate() {
        word = if i % 8 == 0 { rng.next_u64() } else { word >> 8 };
        for ((at, _), halves) in factors.iter().zip(&table) {
            block[*at..at + 2].copy_from_slice(&halves[word as usize % SPREADS]);
        }
        even_out(ty, block);
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode_row;
    use super::*;

    #[test]
    fn blocks_of_symmetric_types_have_no_direction_of_their_own() {
        for ty in [BlockType::Q8_0, BlockType::Q5_0] {
            let values = 1 << 20;
            let mut bytes = vec![0; ty.row_bytes(values).unwrap()];
            random_blocks(ty, 1.0, &mut SplitMix::new(3, 4), &mut bytes);
            let mut x = vec![0.0; values];
            decode_row(ty, &bytes, &mut x);
            // The mean of so many of spread 1 is off by a thousandth; half a step is 0.0068 in eight bits, 0.054 in
            // five.
            let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / values as f64;
            assert!(mean.abs() < 0.004, "{}: mean {mean}", ty.name());
        }
    }

    #[test]
    fn random_blocks_have_about_the_spread_that_was_asked_for() {
        use BlockType::*;
        for ty in [F32, Bf16, Q8_0, Q5_0, Q4K, Q5K, Q6K, Iq3S] {
            let values = 256 * 256;
            let mut bytes = vec![0; ty.row_bytes(values).unwrap()];
            random_blocks(ty, 0.02, &mut SplitMix::new(1, 2), &mut bytes);
            let mut x = vec![0.0; values];
            decode_row(ty, &bytes, &mut x);
            let mean = x.iter().sum::<f32>() / values as f32;
            let rms = (x.iter().map(|x| x * x).sum::<f32>() / values as f32).sqrt();
            assert!((0.014..0.028).contains(&rms) && mean.abs() < 0.002, "{}: mean {mean}, rms {rms}", ty.name());
        }
    }
}
