//! How the scales of a block come into 512-bit vectors.

use super::super::avx2::halves_of_e4m3;
use super::super::layout::Scales;
use std::arch::x86_64::*;

/// Scales of a block; the second is that of the second half, where halves have their own.
#[derive(Clone, Copy)]
pub(super) struct BlockScales {
    pub(super) scale: __m512,
    pub(super) second: __m512,
    pub(super) min: __m512,
}

/// Reads the scales of a block.
pub(super) trait ScaleReader {
    /// Whether each half block has its scale.
    const HALVES: bool;
    /// Whether a minimum is subtracted.
    const MIN: bool;
    /// Blocks of a group, and its bytes.
    const GROUP: (usize, usize);

    /// What the blocks of a group share.
    unsafe fn group(at: *const u8) -> (__m512, __m512);

    /// Block `j` of the group at `at`.
    unsafe fn block(shared: (__m512, __m512), at: *const u8, j: usize) -> BlockScales;
}

/// A reader of one way to store scales: `group` and `block` are pasted into its methods, for a closure would be
/// compiled without the instruction set of the kernel that calls it.
macro_rules! scales {
    ($name:ident, group($of:ident) = $group:expr, block($shared:ident, $at:ident, $j:ident) = $block:expr) => {
        pub(super) struct $name;

        impl ScaleReader for $name {
            const HALVES: bool = Scales::$name.halves();
            const MIN: bool = Scales::$name.has_min();
            const GROUP: (usize, usize) = Scales::$name.group();

            #[inline(always)]
            unsafe fn group($of: *const u8) -> (__m512, __m512) {
                // SAFETY: the group's bytes are readable.
                unsafe { $group }
            }

            #[inline(always)]
            unsafe fn block($shared: (__m512, __m512), $at: *const u8, $j: usize) -> BlockScales {
                // SAFETY: as above, for blocks of the group.
                unsafe { $block }
            }
        }
    };
}

scales!(F16, group(_at) = none(), block(_shared, at, _j) = one(halves(at)));
scales!(Bf16, group(_at) = none(), block(_shared, at, _j) = one(bf16(at)));
scales!(HalvesF16, group(_at) = none(), block(_shared, at, _j) = with_second(halves(at), halves(at.add(32))));
scales!(MinF16, group(_at) = none(), block(_shared, at, _j) = with_min(halves(at), halves(at.add(32))));
scales!(
    ZeroByte,
    group(at) = (halves(at), times(halves(at), at.add(32))),
    block(shared, _at, _j) = with_min(shared.0, shared.1)
);
scales!(
    MinByte,
    group(at) = (halves(at), halves(at.add(32))),
    block(shared, at, j) = with_min(times(shared.0, at.add(64 + 32 * j)), times(shared.1, at.add(64 + 32 * j + 16)))
);
scales!(
    Byte,
    group(at) = (halves(at), _mm512_setzero_ps()),
    block(shared, at, j) = one(times(shared.0, at.add(32 + 16 * j)))
);
scales!(
    HalvesByte,
    group(at) = (halves(at), _mm512_setzero_ps()),
    block(shared, at, j) = with_second(times(shared.0, at.add(32 + 32 * j)), times(shared.0, at.add(32 + 32 * j + 16)))
);

/// The scales of a panel: f32 vectors, the scale, then that of the second half or the minimum.
pub(super) struct Panel<const HALVES: bool, const MIN: bool>;

impl<const HALVES: bool, const MIN: bool> ScaleReader for Panel<HALVES, MIN> {
    const HALVES: bool = HALVES;
    const MIN: bool = MIN;
    const GROUP: (usize, usize) = (1, panel_scale_bytes(HALVES || MIN));

    #[inline(always)]
    unsafe fn group(_: *const u8) -> (__m512, __m512) {
        // SAFETY: touches no memory.
        unsafe { none() }
    }

    #[inline(always)]
    unsafe fn block(_: (__m512, __m512), at: *const u8, _: usize) -> BlockScales {
        // SAFETY: the block's vectors are readable.
        unsafe {
            let scale = _mm512_load_ps(at.cast());
            let second = if HALVES || MIN { _mm512_load_ps(at.add(64).cast()) } else { scale };
            BlockScales { scale, second, min: second }
        }
    }
}

/// Bytes of a block's scales in a panel: one vector or two.
pub(in crate::backend::cpu::matmul) const fn panel_scale_bytes(two: bool) -> usize {
    if two { 128 } else { 64 }
}

/// What the blocks of a group share where that is nothing.
#[inline(always)]
pub(super) unsafe fn none() -> (__m512, __m512) {
    // SAFETY: touches no memory.
    unsafe { (_mm512_setzero_ps(), _mm512_setzero_ps()) }
}

#[inline(always)]
unsafe fn one(scale: __m512) -> BlockScales {
    // SAFETY: touches no memory.
    unsafe { BlockScales { scale, second: scale, min: _mm512_setzero_ps() } }
}

#[inline(always)]
unsafe fn with_second(scale: __m512, second: __m512) -> BlockScales {
    // SAFETY: touches no memory.
    unsafe { BlockScales { scale, second, min: _mm512_setzero_ps() } }
}

#[inline(always)]
unsafe fn with_min(scale: __m512, min: __m512) -> BlockScales {
    // SAFETY: touches no memory.
    unsafe { BlockScales { scale, second: _mm512_setzero_ps(), min } }
}

/// Reads 16 f16 as f32.
#[inline(always)]
pub(super) unsafe fn halves(at: *const u8) -> __m512 {
    // SAFETY: the caller's.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
}

/// Reads 16 8-bit floats (E4M3) as f32, each divided by 256.
#[inline(always)]
pub(super) unsafe fn e4m3(at: *const u8) -> __m512 {
    // SAFETY: the caller's.
    unsafe { _mm512_cvtph_ps(halves_of_e4m3(at)) }
}

/// Reads 16 bf16 as f32.
#[inline(always)]
pub(super) unsafe fn bf16(at: *const u8) -> __m512 {
    // SAFETY: the caller's.
    unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast())))) }
}

/// `d` times 16 signed bytes.
#[inline(always)]
unsafe fn times(d: __m512, at: *const u8) -> __m512 {
    // SAFETY: the caller's.
    unsafe { _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast())))) }
}

/// Unpacks the scales of `blocks` blocks into f32 vectors, as [`Panel`] reads them.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn unpack_scales<S: ScaleReader>(blocks: usize, from: *const u8, to: *mut u8) {
    let (per, bytes) = S::GROUP;
    let two = S::HALVES || S::MIN;
    for b in 0..blocks {
        // SAFETY: the caller's.
        unsafe {
            let (at, to) = (from.add(b / per * bytes), to.add(b * panel_scale_bytes(two)));
            let w = S::block(S::group(at), at, b % per);
            _mm512_store_ps(to.cast(), w.scale);
            if two {
                _mm512_store_ps(to.add(64).cast(), if S::MIN { w.min } else { w.second });
            }
        }
    }
}
