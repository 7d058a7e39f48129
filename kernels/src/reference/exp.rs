//! The exponential and the logarithm that backends share.

/// `e^x` for the arithmetic that backends share bit for bit.
///
/// Range reduction to `|r| <= ln 2 / 2`, the degree-6 polynomial of Cephes, fused multiply-adds in the order written.
/// Within 2 ulp of the exact value; below -87.3 the result is 0, above 88.3 it stays at `e^88.3`.
#[inline]
pub fn exp(x: f32) -> f32 {
    if x < -87.3 {
        return 0.0;
    }
    let x = if x < 88.3 { x } else { 88.3 };
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    let r = n.mul_add(-LN2_LO, n.mul_add(-LN2_HI, x));
    let mut p = POLY[0];
    for c in &POLY[1..] {
        p = p.mul_add(r, *c);
    }
    let y = p.mul_add(r * r, r) + 1.0;
    y * f32::from_bits(((n as i32 + 127) as u32) << 23)
}

/// `ln x` of a normal positive number, for the arithmetic that backends share bit for bit.
///
/// The mantissa is brought to `sqrt 1/2 <= m < sqrt 2`; the degree-8 polynomial of Cephes, fused multiply-adds in the
/// order written. Within 2 ulp of the exact value, near 1 within one part in 10^7 of `x - 1`.
///
/// # Panics
/// In debug builds, if `x` is not a normal positive number.
#[inline]
pub fn ln(x: f32) -> f32 {
    debug_assert!(x.is_normal() && x > 0.0, "ln of {x}");
    // Adding the distance of sqrt 1/2 from 1 moves the step of the exponent from 1 to sqrt 1/2.
    let bits = x.to_bits() + (1.0f32.to_bits() - SQRT_HALF.to_bits());
    let n = ((bits >> 23) as i32 - 127) as f32;
    let m = f32::from_bits((bits & 0x7F_FFFF) + SQRT_HALF.to_bits());
    let f = m - 1.0;
    let z = f * f;
    let mut p = LN_POLY[0];
    for c in &LN_POLY[1..] {
        p = p.mul_add(f, *c);
    }
    let y = n.mul_add(LN2_LO, p * (f * z));
    let y = z.mul_add(-0.5, y);
    n.mul_add(LN2_HI, f + y)
}

const SQRT_HALF: f32 = std::f32::consts::FRAC_1_SQRT_2;
/// `(ln(1 + f) - f + f^2 / 2) / f^3`, highest power first.
pub const LN_POLY: [f32; 9] = [
    7.037_683_6e-2,
    -1.151_461e-1,
    1.167_699_87e-1,
    -1.242_014_1e-1,
    1.424_932_3e-1,
    -1.666_805_7e-1,
    2.000_071_4e-1,
    -2.499_999_4e-1,
    3.333_333e-1,
];
/// The larger part of `ln 2`; its product with an exponent is exact.
pub const LN2_HI: f32 = 0.693_359_4;
/// The rest of `ln 2`.
pub const LN2_LO: f32 = -2.121_944_4e-4;
/// `(e^r - 1 - r) / r^2`, highest power first.
pub const POLY: [f32; 6] = [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_ulp_over_its_range() {
        for i in -873_000..883_000 {
            let x = i as f32 * 1e-4;
            let want = f64::from(x).exp();
            let error = (f64::from(exp(x)) - want).abs() / want;
            assert!(error < 2.4e-7, "exp({x}) is off by {error:e}");
        }
    }

    #[test]
    fn exp_of_masked_and_huge_arguments_stays_finite() {
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::INFINITY).is_finite());
    }
    #[test]
    fn ln_is_close_over_its_range_and_exact_at_one() {
        assert_eq!(ln(1.0), 0.0);
        let mut x = f32::MIN_POSITIVE;
        while x < f32::MAX / 1.01 {
            let want = f64::from(x).ln();
            let error = (f64::from(ln(x)) - want).abs() / want.abs().max(f64::from(x - 1.0).abs().min(1.0));
            assert!(x == 1.0 || error < 3e-7, "ln({x:e}) is off by {error:e}");
            x *= 1.000_37;
        }
    }
}
