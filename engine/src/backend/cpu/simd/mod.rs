//! Sixteen lanes of `f32`, the same results on every instruction set.
//!
//! A kernel is a function generic over [`Lanes`] and runs through [`run`], which picks the widest set that may be used.
//! Lanes never mix but in [`Lanes::sum`], whose order is fixed, and products are fused everywhere, so the bytes do not
//! depend on the choice. Integer dot products are not here but in `matmul`.

pub(crate) mod gemm;
pub(crate) mod norm;
pub(crate) mod rowops;

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

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Kernel, LANES, Lanes};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512dq,avx2,fma,f16c")]
    pub(crate) unsafe fn wide<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: the features of this function are those that Wide needs.
        unsafe { kernel.call::<Wide>() }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) unsafe fn narrow<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: the features of this function are those that Narrow needs.
        unsafe { kernel.call::<Narrow>() }
    }

    /// The lanes in one register of AVX-512.
    #[derive(Clone, Copy)]
    pub(crate) struct Wide(__m512);

    // SAFETY of every block below: `wide` has enabled the features; pointers are the caller's promise.
    #[allow(clippy::undocumented_unsafe_blocks, reason = "said once for all one-line wrappers")]
    impl Lanes for Wide {
        const TILE: (usize, usize) = (8, 2);
        type Sum = __m512i;

        #[inline(always)]
        unsafe fn zero_sum() -> __m512i {
            unsafe { _mm512_setzero_si512() }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            unsafe { Self(_mm512_set1_ps(x)) }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self {
            unsafe { Self(_mm512_loadu_ps(p)) }
        }
        #[inline(always)]
        unsafe fn load_f16(p: *const u16) -> Self {
            unsafe { Self(_mm512_cvtph_ps(_mm256_loadu_si256(p.cast()))) }
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut f32) {
            unsafe { _mm512_storeu_ps(p, self.0) }
        }
        #[inline(always)]
        unsafe fn store_f16(self, p: *mut u16) {
            unsafe { _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0)) }
        }
        #[inline(always)]
        unsafe fn add(self, o: Self) -> Self {
            unsafe { Self(_mm512_add_ps(self.0, o.0)) }
        }
        #[inline(always)]
        unsafe fn sub(self, o: Self) -> Self {
            unsafe { Self(_mm512_sub_ps(self.0, o.0)) }
        }
        #[inline(always)]
        unsafe fn mul(self, o: Self) -> Self {
            unsafe { Self(_mm512_mul_ps(self.0, o.0)) }
        }
        #[inline(always)]
        unsafe fn div(self, o: Self) -> Self {
            unsafe { Self(_mm512_div_ps(self.0, o.0)) }
        }
        #[inline(always)]
        unsafe fn mul_add(self, a: Self, b: Self) -> Self {
            unsafe { Self(_mm512_fmadd_ps(self.0, a.0, b.0)) }
        }
        #[inline(always)]
        unsafe fn max(self, o: Self) -> Self {
            unsafe { Self(_mm512_max_ps(self.0, o.0)) }
        }
        #[inline(always)]
        unsafe fn min(self, o: Self) -> Self {
            unsafe { Self(_mm512_min_ps(self.0, o.0)) }
        }
        #[inline(always)]
        unsafe fn round(self) -> Self {
            unsafe { Self(_mm512_roundscale_ps::<8>(self.0)) }
        }
        #[inline(always)]
        unsafe fn scale(self, n: Self) -> Self {
            unsafe {
                let bits = _mm512_slli_epi32::<23>(_mm512_add_epi32(_mm512_cvtps_epi32(n.0), _mm512_set1_epi32(127)));
                Self(_mm512_mul_ps(self.0, _mm512_castsi512_ps(bits)))
            }
        }
        #[inline(always)]
        unsafe fn zero_below(self, x: Self, bound: f32) -> Self {
            unsafe {
                let keep = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x.0, _mm512_set1_ps(bound));
                Self(_mm512_maskz_mov_ps(keep, self.0))
            }
        }
        #[inline(always)]
        unsafe fn any_nan(self, o: Self) -> bool {
            unsafe { _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, o.0) != 0 }
        }
        #[inline(always)]
        unsafe fn add_rounded(self, sum: __m512i) -> __m512i {
            unsafe {
                let n = _mm512_cvtps_epi32(self.0);
                let even = _mm512_and_si512(n, _mm512_set1_epi64(0xFFFF_FFFF));
                _mm512_add_epi64(_mm512_add_epi64(sum, even), _mm512_srli_epi64::<32>(n))
            }
        }
        #[inline(always)]
        unsafe fn sum(self) -> f32 {
            unsafe { sum_of_halves(_mm256_add_ps(_mm512_castps512_ps256(self.0), _mm512_extractf32x8_ps::<1>(self.0))) }
        }
        #[inline(always)]
        unsafe fn total(sum: __m512i) -> u64 {
            unsafe { _mm512_reduce_add_epi64(sum) as u64 }
        }
    }

    /// The rest of [`Lanes::sum`] once 8 lanes are left.
    #[inline(always)]
    unsafe fn sum_of_halves(eight: __m256) -> f32 {
        // SAFETY: registers only.
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    /// The lanes in two registers of AVX2.
    #[derive(Clone, Copy)]
    pub(crate) struct Narrow(__m256, __m256);

    const HALF: usize = LANES / 2;

    // SAFETY of every block below: `narrow` has enabled the features; pointers are the caller's promise.
    #[allow(clippy::undocumented_unsafe_blocks, reason = "said once for all one-line wrappers")]
    impl Lanes for Narrow {
        const TILE: (usize, usize) = (4, 1);
        type Sum = __m256i;

        #[inline(always)]
        unsafe fn zero_sum() -> __m256i {
            unsafe { _mm256_setzero_si256() }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            unsafe { Self(_mm256_set1_ps(x), _mm256_set1_ps(x)) }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self {
            unsafe { Self(_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(HALF))) }
        }
        #[inline(always)]
        unsafe fn load_f16(p: *const u16) -> Self {
            unsafe {
                Self(_mm256_cvtph_ps(_mm_loadu_si128(p.cast())), _mm256_cvtph_ps(_mm_loadu_si128(p.add(HALF).cast())))
            }
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut f32) {
            unsafe {
                _mm256_storeu_ps(p, self.0);
                _mm256_storeu_ps(p.add(HALF), self.1);
            }
        }
        #[inline(always)]
        unsafe fn store_f16(self, p: *mut u16) {
            unsafe {
                _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0));
                _mm_storeu_si128(p.add(HALF).cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.1));
            }
        }
        #[inline(always)]
        unsafe fn add(self, o: Self) -> Self {
            unsafe { Self(_mm256_add_ps(self.0, o.0), _mm256_add_ps(self.1, o.1)) }
        }
        #[inline(always)]
        unsafe fn sub(self, o: Self) -> Self {
            unsafe { Self(_mm256_sub_ps(self.0, o.0), _mm256_sub_ps(self.1, o.1)) }
        }
        #[inline(always)]
        unsafe fn mul(self, o: Self) -> Self {
            unsafe { Self(_mm256_mul_ps(self.0, o.0), _mm256_mul_ps(self.1, o.1)) }
        }
        #[inline(always)]
        unsafe fn div(self, o: Self) -> Self {
            unsafe { Self(_mm256_div_ps(self.0, o.0), _mm256_div_ps(self.1, o.1)) }
        }
        #[inline(always)]
        unsafe fn mul_add(self, a: Self, b: Self) -> Self {
            unsafe { Self(_mm256_fmadd_ps(self.0, a.0, b.0), _mm256_fmadd_ps(self.1, a.1, b.1)) }
        }
        #[inline(always)]
        unsafe fn max(self, o: Self) -> Self {
            unsafe { Self(_mm256_max_ps(self.0, o.0), _mm256_max_ps(self.1, o.1)) }
        }
        #[inline(always)]
        unsafe fn min(self, o: Self) -> Self {
            unsafe { Self(_mm256_min_ps(self.0, o.0), _mm256_min_ps(self.1, o.1)) }
        }
        #[inline(always)]
        unsafe fn round(self) -> Self {
            unsafe { Self(_mm256_round_ps::<8>(self.0), _mm256_round_ps::<8>(self.1)) }
        }
        #[inline(always)]
        unsafe fn scale(self, n: Self) -> Self {
            #[inline(always)]
            unsafe fn one(x: __m256, n: __m256) -> __m256 {
                unsafe {
                    let bits = _mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)));
                    _mm256_mul_ps(x, _mm256_castsi256_ps(bits))
                }
            }
            unsafe { Self(one(self.0, n.0), one(self.1, n.1)) }
        }
        #[inline(always)]
        unsafe fn zero_below(self, x: Self, bound: f32) -> Self {
            unsafe {
                let b = _mm256_set1_ps(bound);
                let keep = (_mm256_cmp_ps::<_CMP_NLT_UQ>(x.0, b), _mm256_cmp_ps::<_CMP_NLT_UQ>(x.1, b));
                Self(_mm256_and_ps(self.0, keep.0), _mm256_and_ps(self.1, keep.1))
            }
        }
        #[inline(always)]
        unsafe fn any_nan(self, o: Self) -> bool {
            unsafe {
                let (a, b) = (_mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, o.0), _mm256_cmp_ps::<_CMP_UNORD_Q>(self.1, o.1));
                _mm256_movemask_ps(_mm256_or_ps(a, b)) != 0
            }
        }
        #[inline(always)]
        unsafe fn add_rounded(self, sum: __m256i) -> __m256i {
            #[inline(always)]
            unsafe fn add(sum: __m256i, x: __m256) -> __m256i {
                unsafe {
                    let n = _mm256_cvtps_epi32(x);
                    let even = _mm256_and_si256(n, _mm256_set1_epi64x(0xFFFF_FFFF));
                    _mm256_add_epi64(_mm256_add_epi64(sum, even), _mm256_srli_epi64::<32>(n))
                }
            }
            unsafe { add(add(sum, self.0), self.1) }
        }
        #[inline(always)]
        unsafe fn sum(self) -> f32 {
            unsafe { sum_of_halves(_mm256_add_ps(self.0, self.1)) }
        }
        #[inline(always)]
        unsafe fn total(sum: __m256i) -> u64 {
            let mut lanes = [0u64; 4];
            unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
            lanes.iter().sum()
        }
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
