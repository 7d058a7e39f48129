//! The int8 form of activation rows: what products read and what norms write. The device's twin is in `common.cuh`.

/// Values that share a scale.
pub const BLOCK: usize = 32;

/// Order of the quads (4 codes) of a block in memory: a matrix instruction's lane reads two neighbours.
pub const QUAD_ORDER: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// Rows on the host, to compare with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuantizedRows {
    /// As in device memory, `[rows, cols]`.
    pub codes: Vec<i8>,
    /// `{d, sum of codes}`, `[rows, cols / 32]`.
    pub meta: Vec<[f32; 2]>,
}

impl QuantizedRows {
    /// `d = max |x| / 127` (NaN if a value is not finite, 0 below 1e-30), codes the nearest integers of `x * (127 / max)`, ties to even.
    pub fn of(values: &[f32]) -> Self {
        assert!(values.len().is_multiple_of(BLOCK), "{} values are not whole blocks of {BLOCK}", values.len());
        let mut rows = Self::default();
        for x in values.chunks_exact(BLOCK) {
            let top = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
            let (d, inverse) = match top {
                _ if x.iter().any(|v| !v.is_finite()) => (f32::NAN, 0.0),
                top if top < 1e-30 => (0.0, 0.0),
                top => (top / 127.0, 127.0 / top),
            };
            let codes: [i8; BLOCK] =
                std::array::from_fn(|i| if inverse == 0.0 { 0 } else { (x[i] * inverse).round_ties_even() as i8 });
            rows.codes.extend(QUAD_ORDER.iter().flat_map(|quad| &codes[4 * quad..4 * quad + 4]));
            rows.meta.push([d, codes.iter().map(|c| f32::from(*c)).sum()]);
        }
        rows
    }

    /// Codes of block `index` (rows after one another) in their own order.
    pub fn block(&self, index: usize) -> [i8; BLOCK] {
        let mut codes = [0; BLOCK];
        for (stored, quad) in self.codes[index * BLOCK..][..BLOCK].chunks_exact(4).zip(QUAD_ORDER) {
            codes[4 * quad..4 * quad + 4].copy_from_slice(stored);
        }
        codes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_read_back_in_its_own_order_and_to_half_a_step() {
        let x: Vec<f32> = (0..64).map(|i| (i as f32 * 0.37).sin() * (1.0 + i as f32)).collect();
        let rows = QuantizedRows::of(&x);
        for b in 0..2 {
            let ([d, sum], codes) = (rows.meta[b], rows.block(b));
            assert_eq!(sum, codes.iter().map(|c| i32::from(*c)).sum::<i32>() as f32);
            for (code, x) in codes.iter().zip(&x[32 * b..]) {
                assert!((f32::from(*code) * d - x).abs() <= d * 0.5001, "{code} * {d} for {x}");
            }
        }
    }

    #[test]
    fn zeros_stay_zeros_and_what_is_not_finite_shows() {
        assert_eq!(QuantizedRows::of(&[0.0; 32]).meta, [[0.0, 0.0]]);
        let mut x = [1.0; 32];
        x[7] = f32::INFINITY;
        assert!(QuantizedRows::of(&x).meta[0][0].is_nan());
    }
}
