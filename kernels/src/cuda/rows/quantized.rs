//! The int8 form of activation rows: what products read and what norms write. The device's twin is in
//! `csrc/common/int8_rows.cuh`.
//!
//! A row of `cols` values has `cols * planes` codes and a pair of floats for each 32 of them: of each block of values
//! first one plane, then the other.

/// Values that share a scale.
pub const BLOCK: usize = 32;
/// Steps of a second plane in one of the first.
const STEPS: f32 = 254.0;

/// Int8 codes that a value has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Planes {
    /// One, in steps of 1/127 of the largest value of a block: 8 bits.
    #[default]
    One,
    /// Two, the second in steps of 1/254 of the first one's: nearly 16 bits, at twice the matrix instructions.
    Two,
}

impl Planes {
    /// Both numbers of planes.
    pub const ALL: [Self; 2] = [Self::One, Self::Two];

    /// Codes of a value.
    pub const fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    /// What the sources know it by.
    pub(in crate::cuda) fn define(self) -> (&'static str, i64) {
        ("PLANES", self.count() as i64)
    }
}

/// Order of the quads (4 codes) of a block in memory: a matrix instruction's lane reads two neighbours.
pub const QUAD_ORDER: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// Rows on the host, to compare with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuantizedRows {
    /// As in device memory, `[rows, cols * planes]`.
    pub codes: Vec<i8>,
    /// `{d, sum of codes}`, `[rows, cols / 32 * planes]`.
    pub meta: Vec<[f32; 2]>,
    /// Codes of a value.
    pub planes: Planes,
}

impl QuantizedRows {
    /// `d = max |x| / 127` (NaN if a value is not finite, 0 below 1e-30), codes the nearest integers of `x * (127 /
    /// max)`, ties to even. Of a second plane `d / 254`, and 254 times what that leaves.
    pub fn of(values: &[f32], planes: Planes) -> Self {
        assert!(values.len().is_multiple_of(BLOCK), "{} values are not whole blocks of {BLOCK}", values.len());
        let mut rows = Self { planes, ..Self::default() };
        for x in values.chunks_exact(BLOCK) {
            let top = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
            let (d, inverse) = match top {
                _ if x.iter().any(|v| !v.is_finite()) => (f32::NAN, 0.0),
                top if top < 1e-30 => (0.0, 0.0),
                top => (top / 127.0, 127.0 / top),
            };
            let scaled = |i: usize| if inverse == 0.0 { 0.0 } else { x[i] * inverse };
            rows.push(d, std::array::from_fn(|i| scaled(i).round_ties_even()));
            if planes == Planes::Two {
                let rest = |i: usize| (scaled(i) - scaled(i).round_ties_even()) * STEPS;
                rows.push(d * (1.0 / STEPS), std::array::from_fn(|i| rest(i).round_ties_even()));
            }
        }
        rows
    }

    fn push(&mut self, d: f32, codes: [f32; BLOCK]) {
        let codes = codes.map(|c| c as i8);
        self.codes.extend(QUAD_ORDER.iter().flat_map(|quad| &codes[4 * quad..4 * quad + 4]));
        self.meta.push([d, codes.iter().map(|c| f32::from(*c)).sum()]);
    }

    /// What block `index` of values stands for (rows after one another).
    pub fn values(&self, index: usize) -> [f64; BLOCK] {
        let mut values = [0.0; BLOCK];
        for plane in (index * self.planes.count()..).take(self.planes.count()) {
            let d = f64::from(self.meta[plane][0]);
            values.iter_mut().zip(self.block(plane)).for_each(|(v, c)| *v += d * f64::from(c));
        }
        values
    }

    /// As far as a value of block `index` of values may be from what stands for it: half a step of the last plane, and
    /// what the factors of the first, three numbers in f32, are off by.
    pub fn error_max(&self, index: usize) -> f64 {
        let [first, last] =
            [index * self.planes.count(), (index + 1) * self.planes.count() - 1].map(|p| f64::from(self.meta[p][0]));
        0.5 * last + 3.0 * 2f64.powi(-24) * 127.0 * first
    }

    /// Codes `index * 32` to `index * 32 + 31`, which are a block of one plane, in the order of their values.
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
        let rows = QuantizedRows::of(&x, Planes::One);
        for b in 0..2 {
            let ([d, sum], codes) = (rows.meta[b], rows.block(b));
            assert_eq!(sum, codes.iter().map(|c| i32::from(*c)).sum::<i32>() as f32);
            for (code, x) in codes.iter().zip(&x[32 * b..]) {
                assert!((f32::from(*code) * d - x).abs() <= d * 0.5001, "{code} * {d} for {x}");
            }
        }
    }

    #[test]
    fn a_second_plane_holds_what_the_first_leaves_to_half_of_its_own_step() {
        let x: Vec<f32> = (0..64).map(|i| (i as f32 * 0.37).sin() * (1.0 + i as f32)).collect();
        let [one, two] = Planes::ALL.map(|planes| QuantizedRows::of(&x, planes));
        for b in 0..2 {
            assert_eq!((one.block(b), one.meta[b]), (two.block(2 * b), two.meta[2 * b]), "the first plane is the same");
            assert_eq!(two.meta[2 * b + 1][1], two.block(2 * b + 1).iter().map(|c| i32::from(*c)).sum::<i32>() as f32);
            let top = x[32 * b..32 * b + 32].iter().fold(0.0f32, |m, v| m.max(v.abs()));
            assert!((two.error_max(b) * 2.0 * 127.0 * 254.0 / f64::from(top) - 1.0).abs() < 0.02);
            for (got, x) in two.values(b).iter().zip(&x[32 * b..]) {
                let off = (got - f64::from(*x)).abs();
                assert!(off <= two.error_max(b), "{got} for {x}");
            }
        }
    }

    #[test]
    fn zeros_stay_zeros_and_what_is_not_finite_shows() {
        assert_eq!(QuantizedRows::of(&[0.0; 32], Planes::One).meta, [[0.0, 0.0]]);
        assert_eq!(QuantizedRows::of(&[0.0; 32], Planes::Two).meta, [[0.0, 0.0]; 2]);
        let mut x = [1.0; 32];
        x[7] = f32::INFINITY;
        let rows = QuantizedRows::of(&x, Planes::Two);
        assert!(rows.meta.iter().all(|[d, sum]| d.is_nan() && *sum == 0.0) && rows.codes == [0; 64]);
    }
}
