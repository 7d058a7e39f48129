//! How the scales of a block come into 256-bit vectors.

use super::super::layout::Scales;
use super::Lanes;
use std::arch::x86_64::*;

/// Scales of a block; the second is that of the second half, where halves have their own.
#[derive(Clone, Copy)]
pub(super) struct BlockScales {
    pub(super) scale: Lanes,
    pub(super) second: Lanes,
    pub(super) min: Lanes,
}

/// Reads the scales of a block.
pub(super) trait ScaleReader {
    /// Whether each half block has its scale.
    const HALVES: bool;
    /// Whether a minimum is subtracted.
    const MIN: bool;
    /// Blocks of a group, and its bytes.
    const GROUP: (usize, usize);

    /// What they are in a panel.
    type Panel: ScaleReader;

    /// What the blocks of a group share.
    unsafe fn group(at: *const u8) -> [Lanes; 2];

    /// Block `j` of the group at `at`.
    unsafe fn block(shared: &[Lanes; 2], at: *const u8, j: usize) -> BlockScales;
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
            type Panel = Panel<{ Scales::$name.halves() }, { Scales::$name.has_min() }>;

            #[inline(always)]
            unsafe fn group($of: *const u8) -> [Lanes; 2] {
                // SAFETY: the group's bytes are readable.
                unsafe { $group }
            }

            #[inline(always)]
            unsafe fn block($shared: &[Lanes; 2], $at: *const u8, $j: usize) -> BlockScales {
                // SAFETY: as above, for blocks of the group.
                unsafe { $block }
            }
        }
    };
}

scales!(F16, group(_at) = [none(); 2], block(_shared, at, _j) = one(halves(at)));
scales!(Bf16, group(_at) = [none(); 2], block(_shared, at, _j) = one(bf16(at)));
scales!(HalvesF16, group(_at) = [none(); 2], block(_shared, at, _j) = with_second(halves(at), halves(at.add(32))));
scales!(MinF16, group(_at) = [none(); 2], block(_shared, at, _j) = with_min(halves(at), halves(at.add(32))));
scales!(
    ZeroByte,
    group(at) = [halves(at), times(halves(at), at.add(32))],
    block(shared, _at, _j) = with_min(shared[0], shared[1])
);
scales!(
    MinByte,
    group(at) = [halves(at), halves(at.add(32))],
    block(shared, at, j) = with_min(times(shared[0], at.add(64 + 32 * j)), times(shared[1], at.add(64 + 32 * j + 16)))
);
scales!(Byte, group(at) = [halves(at), none()], block(shared, at, j) = one(times(shared[0], at.add(32 + 16 * j))));
scales!(
    HalvesByte,
    group(at) = [halves(at), none()],
    block(shared, at, j) =
        with_second(times(shared[0], at.add(32 + 32 * j)), times(shared[0], at.add(32 + 32 * j + 16)))
);

/// The scales of a panel: f32, the scales of 16 rows, then those of the second half or the minima.
pub(super) struct Panel<const HALVES: bool, const MIN: bool>;

impl<const HALVES: bool, const MIN: bool> ScaleReader for Panel<HALVES, MIN> {
    const HALVES: bool = HALVES;
    const MIN: bool = MIN;
    const GROUP: (usize, usize) = (1, PANEL_SCALE_BYTES);
    type Panel = Self;

    #[inline(always)]
    unsafe fn group(_: *const u8) -> [Lanes; 2] {
        // SAFETY: touches no memory.
        unsafe { [none(); 2] }
    }

    #[inline(always)]
    unsafe fn block(_: &[Lanes; 2], at: *const u8, _: usize) -> BlockScales {
        // SAFETY: the block's vectors are readable.
        unsafe {
            let scale = lanes(at);
            let second = if HALVES || MIN { lanes(at.add(64)) } else { scale };
            BlockScales { scale, second, min: second }
        }
    }
}

/// Bytes of a block's scales in a panel.
pub(super) const PANEL_SCALE_BYTES: usize = 128;

/// Writes the scales of block `b` of a plane as a panel has them.
#[inline(always)]
pub(super) unsafe fn unpack_scales<S: ScaleReader>(plane: *const u8, b: usize, to: *mut u8) {
    let (per, bytes) = S::GROUP;
    // SAFETY: the caller's: `to` has room for a block and lies on a cache line.
    unsafe {
        let at = plane.add(b / per * bytes);
        let w = S::block(&S::group(at), at, b % per);
        let second = if S::MIN { w.min } else { w.second };
        for half in 0..2 {
            _mm256_store_ps(to.add(32 * half).cast(), w.scale[half]);
            _mm256_store_ps(to.add(64 + 32 * half).cast(), second[half]);
        }
    }
}

#[inline(always)]
unsafe fn lanes(at: *const u8) -> Lanes {
    // SAFETY: the caller's.
    unsafe { [_mm256_load_ps(at.cast()), _mm256_load_ps(at.add(32).cast())] }
}

#[inline(always)]
unsafe fn none() -> Lanes {
    // SAFETY: touches no memory.
    unsafe { [_mm256_setzero_ps(); 2] }
}

#[inline(always)]
unsafe fn one(scale: Lanes) -> BlockScales {
    // SAFETY: touches no memory.
    unsafe { BlockScales { scale, second: none(), min: none() } }
}

#[inline(always)]
unsafe fn with_second(scale: Lanes, second: Lanes) -> BlockScales {
    // SAFETY: touches no memory.
    unsafe { BlockScales { scale, second, min: none() } }
}

#[inline(always)]
unsafe fn with_min(scale: Lanes, min: Lanes) -> BlockScales {
    // SAFETY: touches no memory.
    unsafe { BlockScales { scale, second: none(), min } }
}

/// Reads 16 f16 as f32.
#[inline(always)]
pub(super) unsafe fn halves(at: *const u8) -> Lanes {
    // SAFETY: the caller's.
    unsafe { [_mm256_cvtph_ps(_mm_loadu_si128(at.cast())), _mm256_cvtph_ps(_mm_loadu_si128(at.add(16).cast()))] }
}

/// Reads 16 8-bit floats (E4M3) as f16, each divided by 256: f16's exponents begin 8 lower.
#[inline(always)]
pub(in crate::backend::cpu::matmul) unsafe fn halves_of_e4m3(at: *const u8) -> __m256i {
    // SAFETY: the caller's.
    unsafe {
        let bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(at.cast()));
        let sign = _mm256_and_si256(_mm256_slli_epi16::<8>(bytes), _mm256_set1_epi16(i16::MIN));
        let rest = _mm256_slli_epi16::<7>(_mm256_and_si256(bytes, _mm256_set1_epi16(0x7f)));
        _mm256_or_si256(sign, rest)
    }
}

/// Reads 16 8-bit floats (E4M3) as f32, each divided by 256.
#[inline(always)]
pub(super) unsafe fn e4m3(at: *const u8) -> Lanes {
    // SAFETY: the caller's.
    unsafe {
        let halves = halves_of_e4m3(at);
        [_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(halves))]
    }
}

/// Reads 16 bf16 as f32.
#[inline(always)]
pub(super) unsafe fn bf16(at: *const u8) -> Lanes {
    // SAFETY: the caller's.
    unsafe { [eight_bf16(at), eight_bf16(at.add(16))] }
}

#[inline(always)]
unsafe fn eight_bf16(at: *const u8) -> __m256 {
    // SAFETY: the caller's.
    unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast())))) }
}

/// `d` times 16 signed bytes.
#[inline(always)]
unsafe fn times(d: Lanes, at: *const u8) -> Lanes {
    // SAFETY: the caller's.
    unsafe { [_mm256_mul_ps(d[0], eight_bytes(at)), _mm256_mul_ps(d[1], eight_bytes(at.add(8)))] }
}

#[inline(always)]
unsafe fn eight_bytes(at: *const u8) -> __m256 {
    // SAFETY: the caller's.
    unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast()))) }
}
