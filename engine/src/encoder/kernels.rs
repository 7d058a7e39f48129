//! What an encoder does to rows beside products: LayerNorm, GELU, softmax. `chimere_kernels::reference` defines them.

use super::config::Gelu;
use crate::backend::cpu::simd::{Kernel, LANES, Lanes, run};

/// Brings every row of `x` to mean 0 and variance 1, then multiplies with `weight` and adds `bias`.
pub(super) fn layer_norm(x: &mut [f32], weight: &[f32], bias: &[f32], eps: f32) {
    assert!(weight.len() == bias.len() && weight.len().is_multiple_of(LANES), "rows come in whole vectors");
    assert!(x.len().is_multiple_of(weight.len()), "x holds whole rows");
    run(LayerNormRows { x, weight, bias, eps });
}

/// The function of a feed-forward part, in place.
pub(super) fn gelu(x: &mut [f32], form: Gelu) {
    assert!(x.len().is_multiple_of(LANES), "rows come in whole vectors");
    run(GeluRow { x, form });
}

/// `x += bias` in every row of `x`.
pub(super) fn add_bias(x: &mut [f32], bias: &[f32]) {
    for row in x.chunks_exact_mut(bias.len()) {
        row.iter_mut().zip(bias).for_each(|(x, bias)| *x += bias);
    }
}

struct LayerNormRows<'a> {
    x: &'a mut [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    eps: f32,
}

impl Kernel for LayerNormRows<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) {
        let width = self.weight.len();
        // SAFETY: the caller's; `layer_norm` has checked that rows, weights and biases are whole vectors of one width.
        unsafe {
            for row in self.x.chunks_exact_mut(width) {
                let mut sum = L::splat(0.0);
                for at in (0..width).step_by(LANES) {
                    sum = sum.add(L::load(row.as_ptr().add(at)));
                }
                let mean = L::splat(sum.sum() / width as f32);
                let mut square = L::splat(0.0);
                for at in (0..width).step_by(LANES) {
                    let from_mean = L::load(row.as_ptr().add(at)).sub(mean);
                    square = from_mean.mul_add(from_mean, square);
                }
                let scale = L::splat(1.0 / (square.sum() / width as f32 + self.eps).sqrt());
                for at in (0..width).step_by(LANES) {
                    let normed = L::load(row.as_ptr().add(at)).sub(mean).mul(scale);
                    let (weight, bias) = (L::load(self.weight.as_ptr().add(at)), L::load(self.bias.as_ptr().add(at)));
                    normed.mul_add(weight, bias).store(row.as_mut_ptr().add(at));
                }
            }
        }
    }
}

struct GeluRow<'a> {
    x: &'a mut [f32],
    form: Gelu,
}

impl Kernel for GeluRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) {
        // SAFETY: the caller's; `gelu` has checked that these are whole vectors.
        unsafe {
            for at in (0..self.x.len()).step_by(LANES) {
                let p = self.x.as_mut_ptr().add(at);
                let x = L::load(p);
                let y = match self.form {
                    Gelu::Exact => exact::<L>(x),
                    Gelu::Tanh => tanh::<L>(x),
                };
                y.store(p);
            }
        }
    }
}

/// `max(x, 0) - |x| erfc(|x| / sqrt 2) / 2`, which is `x / 2 (1 + erf(x / sqrt 2))` for either sign. `erfc` is formula
/// 7.1.26 of Abramowitz and Stegun, within 1.5e-7.
#[inline(always)]
unsafe fn exact<L: Lanes>(x: L) -> L {
    const FACTOR: f32 = 0.327_591_1;
    const POLY: [f32; 5] = [1.061_405_4, -1.453_152, 1.421_413_8, -0.284_496_72, 0.254_829_6];
    // SAFETY: the caller's.
    unsafe {
        let zero = L::splat(0.0);
        let size = x.max(zero.sub(x));
        let z = size.mul(L::splat(std::f32::consts::FRAC_1_SQRT_2));
        let t = L::splat(1.0).div(z.mul_add(L::splat(FACTOR), L::splat(1.0)));
        let mut poly = L::splat(POLY[0]);
        for factor in &POLY[1..] {
            poly = poly.mul_add(t, L::splat(*factor));
        }
        let erfc = poly.mul(t).mul(zero.sub(z.mul(z)).exp());
        size.mul(L::splat(-0.5)).mul_add(erfc, x.max(zero))
    }
}

/// `x / 2 (1 + tanh u)` is `x sigmoid(2 u)`.
#[inline(always)]
unsafe fn tanh<L: Lanes>(x: L) -> L {
    /// Twice the root of `2 / pi`.
    const OUTER: f32 = 1.595_769;
    // SAFETY: the caller's.
    unsafe {
        let inner = x.mul(x).mul_add(L::splat(0.044_715), L::splat(1.0));
        x.mul(x.mul(inner).mul(L::splat(OUTER)).sigmoid())
    }
}

/// `x = softmax(factor x)` over the first `count` values; what stands behind them is left as it is.
///
/// # Safety
/// The instruction set of `L` exists.
#[inline(always)]
pub(super) unsafe fn softmax<L: Lanes>(x: &mut [f32], count: usize, factor: f32) {
    assert!(count <= x.len() && x.len().is_multiple_of(LANES), "a row of scores comes in whole vectors");
    // Scores behind the last one are no scores: they get a weight of nothing.
    for score in &mut x[count..] {
        *score = f32::NEG_INFINITY;
    }
    // SAFETY: the caller's, and the lengths above.
    unsafe {
        let mut top = L::splat(f32::NEG_INFINITY);
        for at in (0..x.len()).step_by(LANES) {
            top = top.max(L::load(x.as_ptr().add(at)));
        }
        let (top, factor) = (L::splat(top.largest()), L::splat(factor));
        let mut sum = L::splat(0.0);
        for at in (0..x.len()).step_by(LANES) {
            let p = x.as_mut_ptr().add(at);
            let e = L::load(p).sub(top).mul(factor).exp();
            e.store(p);
            sum = sum.add(e);
        }
        let scale = L::splat(1.0 / sum.sum());
        for at in (0..x.len()).step_by(LANES) {
            let p = x.as_mut_ptr().add(at);
            L::load(p).mul(scale).store(p);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_kernels::reference;

    #[test]
    fn gelu_agrees_with_its_definition_in_both_forms() {
        let x: Vec<f32> = (-1600..1600).map(|i| i as f32 * 0.01).collect();
        for (form, want) in [(Gelu::Exact, reference::gelu as fn(f32) -> f32), (Gelu::Tanh, reference::gelu_tanh)] {
            let mut got = x.clone();
            gelu(&mut got, form);
            for (x, got) in x.iter().zip(&got) {
                assert!((got - want(*x)).abs() <= 3e-7 * x.abs().max(1.0), "{form:?} of {x} is {got}");
            }
        }
    }

    #[test]
    fn the_norm_agrees_with_its_definition() {
        let wave = |f: f32| -> Vec<f32> { (0..96).map(|i| (i as f32 * f).sin() * 3.0 + 1.0).collect() };
        let (x, weight, bias) = (wave(0.7), wave(1.9), wave(0.3));
        let mut got = [x.clone(), wave(0.2)].concat();
        layer_norm(&mut got, &weight, &bias, 1e-12);
        let want = [
            reference::layer_norm(&x, &weight, &bias, 1e-12),
            reference::layer_norm(&wave(0.2), &weight, &bias, 1e-12),
        ];
        assert!(got.iter().zip(want.concat()).all(|(a, b)| (a - b).abs() <= 1e-5), "{got:?}");
    }
}
