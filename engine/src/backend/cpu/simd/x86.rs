//! The lanes in registers of x86-64.

use super::{Kernel, LANES, Lanes};
use std::arch::x86_64::*;

#[target_feature(enable = "avx512f,avx512dq,avx2,fma,f16c")]
pub(crate) unsafe fn wide<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the features of this function are those that WideLanes needs.
    unsafe { kernel.call::<WideLanes>() }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn narrow<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the features of this function are those that NarrowLanes needs.
    unsafe { kernel.call::<NarrowLanes>() }
}

/// The lanes in one register of AVX-512.
#[derive(Clone, Copy)]
pub(crate) struct WideLanes(__m512);

// SAFETY of every block below: `wide` has enabled the features; pointers are the caller's promise.
#[allow(clippy::undocumented_unsafe_blocks, reason = "said once for all one-line wrappers")]
impl Lanes for WideLanes {
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
    unsafe fn load_bf16_pairs(p: *const u32) -> [Self; 2] {
        unsafe {
            let words = _mm512_loadu_si512(p.cast());
            let upper = _mm512_and_si512(words, _mm512_set1_epi32(0xffff_0000_u32 as i32));
            [Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))), Self(_mm512_castsi512_ps(upper))]
        }
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
pub(crate) struct NarrowLanes(__m256, __m256);

const HALF: usize = LANES / 2;

// SAFETY of every block below: `narrow` has enabled the features; pointers are the caller's promise.
#[allow(clippy::undocumented_unsafe_blocks, reason = "said once for all one-line wrappers")]
impl Lanes for NarrowLanes {
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
    unsafe fn load_bf16_pairs(p: *const u32) -> [Self; 2] {
        unsafe {
            let mask = _mm256_set1_epi32(0xffff_0000_u32 as i32);
            let (a, b) = (_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(HALF).cast()));
            let lower = (_mm256_slli_epi32::<16>(a), _mm256_slli_epi32::<16>(b));
            let upper = (_mm256_and_si256(a, mask), _mm256_and_si256(b, mask));
            [
                Self(_mm256_castsi256_ps(lower.0), _mm256_castsi256_ps(lower.1)),
                Self(_mm256_castsi256_ps(upper.0), _mm256_castsi256_ps(upper.1)),
            ]
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
