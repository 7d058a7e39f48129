//! A hasher for maps whose keys are numbers that nobody from outside chooses: one multiplication. The standard one,
//! made for keys that somebody might choose to collide, takes longer than a lookup of an n-gram.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are numbers that nobody from outside chooses.
pub(crate) type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// The hasher of [`ByNumber`]: a number is its own hash, mixed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        // A map looks at the lowest bits and at the highest; the multiplication has mixed the highest best.
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    #[test]
    fn neighbouring_numbers_differ_in_the_bits_that_a_map_looks_at() {
        let hash = |number: u64| BuildHasherDefault::<NumberHasher>::default().hash_one(number);
        let low: HashSet<u64> = (0..4096).map(|n| hash(n) % 4096).collect();
        let high: HashSet<u64> = (0..128).map(|n| hash(n) >> 57).collect();
        assert!(low.len() > 2048 && high.len() > 64, "{} of 4096 places, {} of 128 tags", low.len(), high.len());
    }
}
