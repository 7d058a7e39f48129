//! Norms over one vector: sums in a fixed order, products fused.

use crate::backend::cpu::simd::{Kernel, LANES, Lanes, run};

/// `out = x * w / sqrt(mean(x^2) + eps)`.
///
/// # Safety
/// The instruction set of `L` exists.
#[inline(always)]
pub(crate) unsafe fn rmsnorm<L: Lanes>(x: &[f32], w: &[f32], eps: f32, out: &mut [f32]) {
    // SAFETY: the caller's.
    unsafe {
        let scale = 1.0 / (sum_of_squares::<L>(x) / x.len() as f32 + eps).sqrt();
        scaled::<L>(x, scale, w, out);
    }
}

/// [`rmsnorm`] in place.
///
/// # Safety
/// The instruction set of `L` exists.
#[inline(always)]
pub(crate) unsafe fn rmsnorm_in_place<L: Lanes>(x: &mut [f32], w: &[f32], eps: f32) {
    assert!(x.len() == w.len() && x.len().is_multiple_of(LANES), "a norm has one weight an element, in whole vectors");
    // SAFETY: the caller's, and the lengths above.
    unsafe {
        let scale = L::splat(1.0 / (sum_of_squares::<L>(x) / x.len() as f32 + eps).sqrt());
        for i in (0..x.len()).step_by(LANES) {
            L::load(x.as_ptr().add(i)).mul(scale).mul(L::load(w.as_ptr().add(i))).store(x.as_mut_ptr().add(i));
        }
    }
}

/// `x *= factor / sqrt(sum(x^2) + 1e-6)`.
///
/// # Safety
/// The instruction set of `L` exists.
#[inline(always)]
pub(crate) unsafe fn l2norm<L: Lanes>(x: &mut [f32], factor: f32) {
    assert!(x.len().is_multiple_of(LANES), "heads come in whole vectors");
    // SAFETY: the caller's, and the length above.
    unsafe {
        let scale = L::splat(factor / (sum_of_squares::<L>(x) + 1e-6).sqrt());
        for i in (0..x.len()).step_by(LANES) {
            L::load(x.as_ptr().add(i)).mul(scale).store(x.as_mut_ptr().add(i));
        }
    }
}

/// `out = rmsnorm(x, w) * silu(z)`.
///
/// # Safety
/// The instruction set of `L` exists.
#[inline(always)]
pub(crate) unsafe fn gated_norm<L: Lanes>(x: &[f32], w: &[f32], z: &[f32], eps: f32, out: &mut [f32]) {
    assert!(x.len() == z.len(), "one gate an element");
    // SAFETY: the caller's, and the lengths asserted here and in `scaled`.
    unsafe {
        let scale = 1.0 / (sum_of_squares::<L>(x) / x.len() as f32 + eps).sqrt();
        scaled::<L>(x, scale, w, out);
        for i in (0..x.len()).step_by(LANES) {
            let gate = L::load(z.as_ptr().add(i)).silu();
            L::load(out.as_ptr().add(i)).mul(gate).store(out.as_mut_ptr().add(i));
        }
    }
}

#[inline(always)]
unsafe fn scaled<L: Lanes>(x: &[f32], scale: f32, w: &[f32], out: &mut [f32]) {
    assert!(
        x.len() == w.len() && x.len() == out.len() && x.len().is_multiple_of(LANES),
        "one weight an element, in whole vectors"
    );
    // SAFETY: the caller's, and the lengths above.
    unsafe {
        for i in (0..x.len()).step_by(LANES) {
            let y = L::load(x.as_ptr().add(i)).mul(L::splat(scale)).mul(L::load(w.as_ptr().add(i)));
            y.store(out.as_mut_ptr().add(i));
        }
    }
}

#[inline(always)]
unsafe fn sum_of_squares<L: Lanes>(x: &[f32]) -> f32 {
    // SAFETY: the caller's; every load lies inside `x`.
    unsafe {
        let mut acc = L::splat(0.0);
        for part in x.chunks_exact(LANES) {
            let v = L::load(part.as_ptr());
            acc = v.mul_add(v, acc);
        }
        acc.sum()
    }
}

/// [`rmsnorm`] of whole rows.
pub(crate) struct RmsNorm<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) w: &'a [f32],
    pub(crate) eps: f32,
    pub(crate) out: &'a mut [f32],
}

impl Kernel for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) {
        // SAFETY: the caller's.
        unsafe { rmsnorm::<L>(self.x, self.w, self.eps, self.out) }
    }
}

/// [`rmsnorm_in_place`] of a whole row.
struct RmsNormInPlace<'a> {
    x: &'a mut [f32],
    w: &'a [f32],
    eps: f32,
}

impl Kernel for RmsNormInPlace<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) {
        // SAFETY: the caller's.
        unsafe { rmsnorm_in_place::<L>(self.x, self.w, self.eps) }
    }
}

/// [`rmsnorm_in_place`] on the widest instruction set.
pub(crate) fn norm_row_in_place(x: &mut [f32], w: &[f32], eps: f32) {
    run(RmsNormInPlace { x, w, eps });
}

/// [`rmsnorm`] on the widest instruction set.
pub(crate) fn norm_row(x: &[f32], w: &[f32], eps: f32, out: &mut [f32]) {
    run(RmsNorm { x, w, eps, out });
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_kernels::reference;

    struct Heads<'a> {
        x: &'a [f32],
        w: &'a [f32],
        z: &'a [f32],
    }
    impl Kernel for Heads<'_> {
        type Output = [Vec<f32>; 4];
        #[inline(always)]
        unsafe fn call<L: Lanes>(self) -> Self::Output {
            let mut out = [(); 4].map(|()| self.x.to_vec());
            // SAFETY: the caller's.
            unsafe {
                rmsnorm::<L>(self.x, self.w, 1e-6, &mut out[0]);
                rmsnorm_in_place::<L>(&mut out[1], self.w, 1e-6);
                gated_norm::<L>(self.x, self.w, self.z, 1e-6, &mut out[2]);
                l2norm::<L>(&mut out[3], 1.0);
            }
            out
        }
    }

    #[test]
    fn norms_agree_with_their_definitions() {
        let wave = |f: f32| -> Vec<f32> { (0..128).map(|i| (i as f32 * f).sin() * 3.0).collect() };
        let (x, w, z) = (wave(0.7), wave(1.9), wave(0.3));
        let rms = reference::rmsnorm(&x, &w, 1e-6);
        let want = [rms.clone(), rms, reference::gated_norm(&x, &w, &z, 1e-6), reference::l2norm(&x)];
        for (got, want) in run(Heads { x: &x, w: &w, z: &z }).iter().zip(&want) {
            assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs().max(0.1)));
        }
    }
}
