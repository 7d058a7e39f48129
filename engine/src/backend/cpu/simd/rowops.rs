//! Element-wise operations on rows.

use crate::backend::cpu::simd::{Kernel, LANES, Lanes, run};

/// Adds `y` to `x`, element by element.
pub(crate) fn add(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// `out = silu(gate) * up`; lengths are whole vectors.
pub(crate) fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) {
    struct Swiglu<'a>(&'a [f32], &'a [f32], &'a mut [f32]);
    impl Kernel for Swiglu<'_> {
        type Output = ();
        #[inline(always)]
        unsafe fn call<L: Lanes>(self) {
            let Self(gate, up, out) = self;
            assert!(
                gate.len() == up.len() && gate.len() == out.len() && out.len().is_multiple_of(LANES),
                "equal rows of vectors"
            );
            for i in (0..out.len()).step_by(LANES) {
                // SAFETY: the instruction set is the caller's promise; the lengths were just checked.
                unsafe {
                    L::load(gate.as_ptr().add(i)).silu().mul(L::load(up.as_ptr().add(i))).store(out.as_mut_ptr().add(i))
                }
            }
        }
    }
    run(Swiglu(gate, up, out));
}

/// `out = relu(up)^2`; lengths are whole vectors.
pub(crate) fn relu2(up: &[f32], out: &mut [f32]) {
    struct Relu2<'a>(&'a [f32], &'a mut [f32]);
    impl Kernel for Relu2<'_> {
        type Output = ();
        #[inline(always)]
        unsafe fn call<L: Lanes>(self) {
            let Self(up, out) = self;
            assert!(up.len() == out.len() && out.len().is_multiple_of(LANES), "equal rows of vectors");
            for i in (0..out.len()).step_by(LANES) {
                // SAFETY: the instruction set is the caller's promise; the lengths were just checked.
                unsafe {
                    let x = L::load(up.as_ptr().add(i)).max(L::splat(0.0));
                    x.mul(x).store(out.as_mut_ptr().add(i))
                }
            }
        }
    }
    run(Relu2(up, out));
}

/// The sigmoid of the product of two rows of whole vectors.
pub(crate) fn sigmoid_dot(a: &[f32], b: &[f32]) -> f32 {
    struct Sigmoid(f32);
    impl Kernel for Sigmoid {
        type Output = f32;
        #[inline(always)]
        unsafe fn call<L: Lanes>(self) -> f32 {
            // SAFETY: the instruction set is the caller's promise.
            unsafe { L::splat(self.0).sigmoid().array()[0] }
        }
    }
    run(Sigmoid(dot(a, b)))
}

/// The product of two rows of whole vectors.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    struct Dot<'a>(&'a [f32], &'a [f32]);
    impl Kernel for Dot<'_> {
        type Output = f32;
        #[inline(always)]
        unsafe fn call<L: Lanes>(self) -> f32 {
            let Self(a, b) = self;
            assert!(a.len() == b.len() && a.len().is_multiple_of(LANES), "equal rows of vectors");
            // SAFETY: the instruction set is the caller's promise; the lengths were just checked.
            unsafe {
                let mut acc = L::splat(0.0);
                for i in (0..a.len()).step_by(LANES) {
                    acc = L::load(a.as_ptr().add(i)).mul_add(L::load(b.as_ptr().add(i)), acc);
                }
                acc.sum()
            }
        }
    }
    run(Dot(a, b))
}

/// `x += sum_i weights[i] * rows[i]`, in order; rows lie `stride` apart, and lengths are whole vectors.
///
/// # Safety
/// `rows` points to `x.len()` values for each weight, which nobody writes meanwhile. What lies between the rows is not
/// read.
pub(crate) unsafe fn add_weighted(x: &mut [f32], weights: &[f32], rows: *const f32, stride: usize) {
    struct Sum<'a>(&'a mut [f32], &'a [f32], *const f32, usize);
    impl Kernel for Sum<'_> {
        type Output = ();
        #[inline(always)]
        unsafe fn call<L: Lanes>(self) {
            let Self(x, weights, rows, stride) = self;
            assert!(x.len().is_multiple_of(LANES), "rows of vectors");
            for at in (0..x.len()).step_by(LANES) {
                // SAFETY: the instruction set and the rows are the caller's promise; the length was just checked.
                unsafe {
                    let mut acc = L::splat(0.0);
                    for (i, w) in weights.iter().enumerate() {
                        acc = L::splat(*w).mul_add(L::load(rows.add(i * stride + at)), acc);
                    }
                    L::load(x.as_ptr().add(at)).add(acc).store(x.as_mut_ptr().add(at));
                }
            }
        }
    }
    run(Sum(x, weights, rows, stride));
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_kernels::reference;

    fn wave(len: usize, f: f32) -> Vec<f32> {
        (0..len).map(|i| (i as f32 * f).sin() * 3.0).collect()
    }

    #[test]
    fn swiglu_agrees_with_its_definition() {
        let (gate, up, mut out) = (wave(64, 0.7), wave(64, 1.1), vec![0.0; 64]);
        swiglu(&gate, &up, &mut out);
        assert!((0..64).all(|i| (out[i] - reference::swiglu(gate[i], up[i])).abs() < 1e-5));
    }

    #[test]
    fn relu2_agrees_with_its_definition() {
        let (up, mut out) = (wave(48, 0.7), vec![1.0; 48]);
        relu2(&up, &mut out);
        assert!((0..48).all(|i| (out[i] - reference::relu2(up[i])).abs() < 1e-5));
    }

    #[test]
    fn weighted_rows_are_added_in_order() {
        let (rows, weights, mut x) = (wave(3 * 40, 0.3), [0.5f32, 0.25, -1.0], wave(32, 0.9));
        let want: Vec<f32> =
            (0..32).map(|i| x[i] + (0..3).fold(0.0f32, |s, r| weights[r].mul_add(rows[r * 40 + i], s))).collect();
        // SAFETY: three rows of 40 lie there.
        unsafe { add_weighted(&mut x, &weights, rows.as_ptr(), 40) };
        assert_eq!(x, want);
    }

    #[test]
    fn the_shared_gate_is_a_sigmoid_of_a_product() {
        let (a, b) = (wave(48, 0.3), wave(48, 0.8));
        let dot: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        assert!((f64::from(sigmoid_dot(&a, &b)) - 1.0 / (1.0 + (-dot).exp())).abs() < 1e-5);
    }
}
