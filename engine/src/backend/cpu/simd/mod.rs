//! Sixteen lanes of `f32`, the same results on every instruction set.
//!
//! A kernel is a function generic over [`Lanes`] and runs through [`run`], which picks the widest set that may be used.
//! Lanes never mix but in [`Lanes::sum`], whose order is fixed, and products are fused everywhere, so the bytes do not
//! depend on the choice. Integer dot products are not here but in `matmul`.

pub(crate) mod gemm;
pub(crate) mod low_rank;
pub(crate) mod norm;
pub(crate) mod rowops;
#[cfg(target_arch = "x86_64")]
mod x86;

use chimere_kernels::reference::exp::{LN2_HI, LN2_LO, POLY};
use std::sync::OnceLock;

/// Lanes of one vector.
pub(crate) const LANES: usize = 16;

/// A vector of [`LANES`] values.
///
/// # Safety
/// Methods may be called only where the instruction set of the implementation exists ([`run`] sees to it), with
/// pointers valid for [`LANES`] elements.
pub(crate) trait Lanes: Copy {
    /// Rows and vectors of the largest register tile.
    const TILE: (usize, usize);
    /// A sum of integers that grows in all lanes.
    type Sum: Copy;

    /// A sum of nothing.
    unsafe fn zero_sum() -> Self::Sum;
    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(p: *const f32) -> Self;
    unsafe fn load_f16(p: *const u16) -> Self;
    /// The lower and the upper halves of words, each half a bfloat16.
    unsafe fn load_bf16_pairs(p: *const u32) -> [Self; 2];
    unsafe fn store(self, p: *mut f32);
    /// Rounds to f16, ties to even.
    unsafe fn store_f16(self, p: *mut u16);
    /// Asks for what a later [`Lanes::load`] from `p` reads, which need not be mapped.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "x86-64 alone is told what comes"))]
    unsafe fn prefetch(p: *const f32) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which any address may be given to.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(p.cast())
        }
    }
    /// [`Lanes::prefetch`] of what is read later still: into the second-level cache only.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "x86-64 alone is told what comes"))]
    unsafe fn prefetch_far(p: *const f32) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(p.cast())
        }
    }
    unsafe fn add(self, o: Self) -> Self;
    unsafe fn sub(self, o: Self) -> Self;
    unsafe fn mul(self, o: Self) -> Self;
    unsafe fn div(self, o: Self) -> Self;
    /// `self * a + b`, rounded once.
    unsafe fn mul_add(self, a: Self, b: Self) -> Self;
    unsafe fn max(self, o: Self) -> Self;
    unsafe fn min(self, o: Self) -> Self;
    /// To the nearest integer, ties to even.
    unsafe fn round(self) -> Self;
    /// `self * 2^n` for integral `n` in -126..=127.
    unsafe fn scale(self, n: Self) -> Self;
    /// Lanes where `x < bound` become zero.
    unsafe fn zero_below(self, x: Self, bound: f32) -> Self;
    /// Whether a lane of either vector is no number.
    unsafe fn any_nan(self, o: Self) -> bool;
    /// `sum` and the lanes rounded to integers, for values of 0 to 2^30: many are added before lanes meet in
    /// [`Lanes::total`].
    unsafe fn add_rounded(self, sum: Self::Sum) -> Self::Sum;
    /// What was added to `sum`, which started as [`Lanes::zero_sum`].
    unsafe fn total(sum: Self::Sum) -> u64;

    /// The lanes, in their order.
    #[inline(always)]
    unsafe fn array(self) -> [f32; LANES] {
        let mut a = [0.0; LANES];
        // SAFETY: `a` has LANES elements.
        unsafe { self.store(a.as_mut_ptr()) };
        a
    }

    /// The sum of all lanes: halves are added to halves.
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the caller's.
        fold(unsafe { self.array() }, |a, b| a + b)
    }

    /// The largest of the lanes.
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        // SAFETY: the caller's.
        fold(unsafe { self.array() }, f32::max)
    }

    /// [`chimere_kernels::reference::exp`] in every lane.
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        // SAFETY: the caller's.
        unsafe {
            let x = self.min(Self::splat(88.3)).max(Self::splat(-87.3));
            let n = x.mul(Self::splat(std::f32::consts::LOG2_E)).round();
            let r = n.mul_add(Self::splat(-LN2_LO), n.mul_add(Self::splat(-LN2_HI), x));
            let mut p = Self::splat(POLY[0]);
            for c in &POLY[1..] {
                p = p.mul_add(r, Self::splat(*c));
            }
            let y = p.mul_add(r.mul(r), r).add(Self::splat(1.0));
            y.scale(n).zero_below(self, -87.3)
        }
    }

    /// `1 / (1 + e^-x)` in every lane.
    #[inline(always)]
    unsafe fn sigmoid(self) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::splat(1.0).div(Self::splat(1.0).add(Self::splat(0.0).sub(self).exp())) }
    }

    /// `x * sigmoid(x)` in every lane.
    #[inline(always)]
    unsafe fn silu(self) -> Self {
        // SAFETY: the caller's.
        unsafe { self.div(Self::splat(1.0).add(Self::splat(0.0).sub(self).exp())) }
    }
}

#[inline(always)]
fn fold(mut a: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut n = LANES;
    while n > 1 {
        n /= 2;
        for i in 0..n {
            a[i] = f(a[i], a[i + n]);
        }
    }
    a[0]
}

/// A computation that any implementation of [`Lanes`] can do.
pub(crate) trait Kernel {
    /// What the computation returns.
    type Output;
    /// Does it.
    ///
    /// # Safety
    /// The instruction set of `L` exists here; [`run`] is the only caller.
    unsafe fn call<L: Lanes>(self) -> Self::Output;
}

/// Runs a kernel on the widest vectors that may be used.
#[inline]
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Output {
    match Width::used() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Width::used` found the features.
        Width::Wide => unsafe { x86::wide(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Width::Narrow => unsafe { x86::narrow(kernel) },
        // SAFETY: plain arrays run everywhere.
        Width::Plain => unsafe { kernel.call::<PlainLanes>() },
    }
}

/// Which implementation of [`Lanes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Narrow,
    #[cfg(target_arch = "x86_64")]
    Wide,
}

impl Width {
    /// The widest of this machine, or that of the instruction set that was asked for. Found once.
    #[inline]
    fn used() -> Self {
        static USED: OnceLock<Width> = OnceLock::new();
        *USED.get_or_init(Self::find)
    }

    #[cfg(target_arch = "x86_64")]
    fn find() -> Self {
        use crate::backend::cpu::isa::Isa;
        match Isa::host() {
            Isa::Avx512 | Isa::Amx => Self::Wide,
            // These vectors need no byte products, so that more machines have them than the products' widest set.
            isa @ (Isa::Avx2 | Isa::AvxVnni)
                if !isa.is_asked() && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") =>
            {
                Self::Wide
            }
            Isa::Avx2 | Isa::AvxVnni => Self::Narrow,
            _ => Self::Plain,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn find() -> Self {
        Self::Plain
    }
}

/// Plain arrays, for machines without wide vectors and for tests; compilers turn it into what the target has. On x86-64
/// that is nothing for what stands out of line here, each lane of which is a call of the C library: sixteen of them
/// wherever a kernel has one were half a megabyte, which somebody's first build waited for. Tiles have one vector
/// there.
#[derive(Clone, Copy)]
pub(crate) struct PlainLanes([f32; LANES]);

impl PlainLanes {
    #[inline(always)]
    fn zip(self, o: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], o.0[i])))
    }
}

// SAFETY of the loads and stores below: the caller's promise of LANES valid elements.
impl Lanes for PlainLanes {
    const TILE: (usize, usize) = if cfg!(target_arch = "x86_64") { (1, 1) } else { (4, 1) };
    type Sum = u64;

    #[inline(always)]
    unsafe fn zero_sum() -> u64 {
        0
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self([x; LANES])
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: as said above.
        Self(unsafe { p.cast::<[f32; LANES]>().read_unaligned() })
    }
    #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
    #[cfg_attr(target_arch = "x86_64", inline(never))]
    unsafe fn load_f16(p: *const u16) -> Self {
        // SAFETY: as said above.
        let bits = unsafe { p.cast::<[u16; LANES]>().read_unaligned() };
        Self(bits.map(|b| half::f16::from_bits(b).to_f32()))
    }
    #[inline(always)]
    unsafe fn load_bf16_pairs(p: *const u32) -> [Self; 2] {
        // SAFETY: as said above.
        let words = unsafe { p.cast::<[u32; LANES]>().read_unaligned() };
        let half = |shift: u32| Self(words.map(|word| f32::from_bits((word << shift) & 0xffff_0000)));
        [half(16), half(0)]
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: as said above.
        unsafe { p.cast::<[f32; LANES]>().write_unaligned(self.0) };
    }
    #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
    #[cfg_attr(target_arch = "x86_64", inline(never))]
    unsafe fn store_f16(self, p: *mut u16) {
        // SAFETY: as said above.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(self.0.map(|x| half::f16::from_f32(x).to_bits())) };
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const f32) {}
    #[inline(always)]
    unsafe fn prefetch_far(_: *const f32) {}
    #[inline(always)]
    unsafe fn add(self, o: Self) -> Self {
        self.zip(o, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(self, o: Self) -> Self {
        self.zip(o, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(self, o: Self) -> Self {
        self.zip(o, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn div(self, o: Self) -> Self {
        self.zip(o, |a, b| a / b)
    }
    #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
    #[cfg_attr(target_arch = "x86_64", inline(never))]
    unsafe fn mul_add(self, a: Self, b: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].mul_add(a.0[i], b.0[i])))
    }
    #[inline(always)]
    unsafe fn max(self, o: Self) -> Self {
        self.zip(o, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn min(self, o: Self) -> Self {
        self.zip(o, |a, b| if a < b { a } else { b })
    }
    #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
    #[cfg_attr(target_arch = "x86_64", inline(never))]
    unsafe fn round(self) -> Self {
        Self(self.0.map(f32::round_ties_even))
    }
    #[inline(always)]
    unsafe fn scale(self, n: Self) -> Self {
        self.zip(n, |a, n| a * f32::from_bits(((n as i32 + 127) as u32) << 23))
    }
    #[inline(always)]
    unsafe fn zero_below(self, x: Self, bound: f32) -> Self {
        self.zip(x, |a, x| if x < bound { 0.0 } else { a })
    }
    #[inline(always)]
    unsafe fn any_nan(self, o: Self) -> bool {
        self.0.iter().chain(&o.0).fold(false, |any, x| any | x.is_nan())
    }
    #[inline(always)]
    unsafe fn add_rounded(self, sum: u64) -> u64 {
        sum + self.0.iter().map(|x| x.round_ties_even() as u64).sum::<u64>()
    }
    #[inline(always)]
    unsafe fn total(sum: u64) -> u64 {
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything a vector can do, on values that cover exponents, halves and masks.
    struct All<'a>(&'a [f32; LANES]);

    impl Kernel for All<'_> {
        type Output = (Vec<[u32; LANES]>, u64, [bool; 3]);

        #[inline(always)]
        unsafe fn call<L: Lanes>(self) -> Self::Output {
            // SAFETY: the array has LANES elements.
            unsafe {
                let x = L::load(self.0.as_ptr());
                let y = x.mul(L::splat(0.37)).sub(L::splat(1.0));
                let h: Vec<u16> = self.0.iter().map(|x| half::f16::from_f32(*x).to_bits()).collect();
                let all = [x.exp(), x.sigmoid(), x.silu(), x.max(y), x.min(y), x.mul_add(y, x), x.div(y), x.round()];
                let mut out: Vec<_> = all.iter().map(|v| v.array().map(f32::to_bits)).collect();
                out.push(L::load_f16(h.as_ptr()).array().map(f32::to_bits));
                let pairs = L::load_bf16_pairs(self.0.as_ptr().cast());
                out.extend([pairs[0].array().map(f32::to_bits), pairs[1].array().map(f32::to_bits)]);
                out.push(
                    [L::splat(x.sum()), L::splat(x.largest())]
                        .map(|v| v.array()[0].to_bits())
                        .repeat(8)
                        .try_into()
                        .unwrap(),
                );
                let (large, huge) = (x.mul(x).mul(L::splat(1e4)), L::splat(1073741824.0));
                let sum = (0..5).fold(large.add_rounded(L::zero_sum()), |sum, _| huge.add_rounded(sum));
                let mut one = *self.0;
                one[11] = f32::NAN;
                let nan = L::load(one.as_ptr());
                (out, L::total(sum), [x.any_nan(y), x.any_nan(nan), nan.any_nan(x)])
            }
        }
    }

    #[test]
    fn every_instruction_set_gives_the_bits_of_plain_arrays() {
        for seed in 0..2000 {
            let x =
                std::array::from_fn(|i| ((seed * 31 + i * 17) as f32 * 0.713).sin() * [0.01, 1.0, 20.0, 100.0][i % 4]);
            // SAFETY: plain arrays run everywhere.
            let want = unsafe { All(&x).call::<PlainLanes>() };
            assert_eq!(run(All(&x)), want);
            #[cfg(target_arch = "x86_64")]
            if std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("avx512dq") {
                // SAFETY: just checked; every machine with both has the others.
                assert_eq!(unsafe { x86::wide(All(&x)) }, want);
            }
            #[cfg(target_arch = "x86_64")]
            if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
                // SAFETY: just checked; every machine with both has f16c.
                assert_eq!(unsafe { x86::narrow(All(&x)) }, want);
            }
        }
    }

    #[test]
    fn exp_has_the_bits_of_its_definition() {
        struct Exp([f32; LANES]);
        impl Kernel for Exp {
            type Output = [f32; LANES];
            #[inline(always)]
            unsafe fn call<L: Lanes>(self) -> Self::Output {
                // SAFETY: the array has LANES elements.
                unsafe { L::load(self.0.as_ptr()).exp().array() }
            }
        }
        for i in 0..40_000 {
            let x: [f32; LANES] = std::array::from_fn(|l| (i as f32 - 20_000.0) * 0.005 + l as f32 * 0.001);
            assert_eq!(run(Exp(x)), x.map(chimere_kernels::reference::exp));
        }
        assert_eq!(run(Exp([f32::NEG_INFINITY; LANES])), [0.0; LANES]);
    }
}
