//! How the codes of a block come into 512-bit vectors.

use super::super::ahead::{NEAR_BYTES, ask};
use super::super::layout::SIX_ADD;
use std::arch::x86_64::*;

/// Reads the codes of a block.
pub(super) trait CodeReader: Copy {
    /// Bytes of a block.
    const BYTES: usize;

    /// Quads `v` and `v + 4` of the block at `at`.
    unsafe fn pair(self, at: *const u8, v: usize) -> (__m512i, __m512i);
}

/// Codes that are bytes in memory or in a panel.
#[derive(Clone, Copy)]
pub(super) struct Bytes;

impl CodeReader for Bytes {
    const BYTES: usize = 512;

    #[inline(always)]
    unsafe fn pair(self, at: *const u8, v: usize) -> (__m512i, __m512i) {
        // SAFETY: a block has eight vectors.
        unsafe { (load(at.add(64 * v)), load(at.add(64 * (v + 4)))) }
    }
}

/// Codes of four bits, two in a byte.
#[derive(Clone, Copy)]
pub(super) struct Nibbles;

impl CodeReader for Nibbles {
    const BYTES: usize = 256;

    #[inline(always)]
    unsafe fn pair(self, at: *const u8, v: usize) -> (__m512i, __m512i) {
        // SAFETY: a block has four vectors of nibbles.
        unsafe {
            let (both, low) = (load(at.add(64 * v)), _mm512_set1_epi8(15));
            (_mm512_and_si512(both, low), _mm512_and_si512(_mm512_srli_epi16::<4>(both), low))
        }
    }
}

/// Nibbles that stand for the levels of a table.
#[derive(Clone, Copy)]
pub(super) struct Table(__m512i);

impl CodeReader for Table {
    const BYTES: usize = 256;

    #[inline(always)]
    unsafe fn pair(self, at: *const u8, v: usize) -> (__m512i, __m512i) {
        // SAFETY: as for nibbles.
        unsafe {
            let (low, high) = Nibbles.pair(at, v);
            (_mm512_shuffle_epi8(self.0, low), _mm512_shuffle_epi8(self.0, high))
        }
    }
}

/// Codes of five bits: a nibble, and a plane of fifth bits; `ADD` is added to each.
#[derive(Clone, Copy)]
pub(super) struct Fives<const ADD: i8>;

impl<const ADD: i8> CodeReader for Fives<ADD> {
    const BYTES: usize = 256 + 64;

    #[inline(always)]
    unsafe fn pair(self, at: *const u8, v: usize) -> (__m512i, __m512i) {
        // SAFETY: a plane of 64 bytes follows the nibbles.
        unsafe {
            let (low, high) = Nibbles.pair(at, v);
            let plane = load(at.add(256));
            (fifth_bit::<ADD>(low, plane, v), fifth_bit::<ADD>(high, plane, v + 4))
        }
    }
}

/// Adds `ADD`, and 16 where bit `j` of the plane is set.
#[inline(always)]
unsafe fn fifth_bit<const ADD: i8>(codes: __m512i, plane: __m512i, j: usize) -> __m512i {
    // SAFETY: registers only.
    unsafe {
        let set = _mm512_test_epi8_mask(plane, _mm512_set1_epi8((1u8 << j) as i8));
        _mm512_add_epi8(
            codes,
            _mm512_mask_blend_epi8(set, _mm512_set1_epi8(ADD), _mm512_set1_epi8(ADD.wrapping_add(16))),
        )
    }
}

/// Codes of six bits: a nibble, and two planes of two bits.
#[derive(Clone, Copy)]
pub(super) struct Sixes;

impl CodeReader for Sixes {
    const BYTES: usize = 256 + 128;

    #[inline(always)]
    unsafe fn pair(self, at: *const u8, v: usize) -> (__m512i, __m512i) {
        // SAFETY: two planes of 64 bytes follow the nibbles.
        unsafe {
            let (low, high) = Nibbles.pair(at, v);
            // Rotates the two bits to their place above the nibble; what comes from other bytes is masked off.
            let turn = _mm512_set1_epi32(((2 * v + 28) % 32) as i32);
            (two_bits(low, load(at.add(256)), turn), two_bits(high, load(at.add(256 + 64)), turn))
        }
    }
}

/// Adds the two bits that `turn` brings above the nibbles.
#[inline(always)]
unsafe fn two_bits(codes: __m512i, plane: __m512i, turn: __m512i) -> __m512i {
    // SAFETY: registers only.
    unsafe {
        let bits = _mm512_and_si512(_mm512_rorv_epi32(plane, turn), _mm512_set1_epi8(0x30));
        _mm512_add_epi8(_mm512_or_si512(codes, bits), _mm512_set1_epi8(SIX_ADD as i8))
    }
}

/// A reader of nibbles that stand for 16 levels.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn table(levels: [u8; 16]) -> Table {
    // SAFETY: 16 bytes.
    Table(_mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(levels.as_ptr().cast()) }))
}

/// Unpacks the codes of `blocks` blocks into bytes; `flip` is xored into each.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn unpack_codes<C: CodeReader>(reader: C, blocks: usize, from: *const u8, to: *mut u8, flip: u8) {
    let flip = _mm512_set1_epi8(flip as i8);
    for b in 0..blocks {
        ask::<_MM_HINT_T0>(from.wrapping_add(NEAR_BYTES + b * C::BYTES), C::BYTES);
        for v in 0..4 {
            // SAFETY: the caller's.
            unsafe {
                let (low, high) = reader.pair(from.add(b * C::BYTES), v);
                _mm512_store_si512(to.add(b * 512 + 64 * v).cast(), _mm512_xor_si512(low, flip));
                _mm512_store_si512(to.add(b * 512 + 64 * (v + 4)).cast(), _mm512_xor_si512(high, flip));
            }
        }
    }
}

#[inline(always)]
unsafe fn load(at: *const u8) -> __m512i {
    // SAFETY: the caller's; planes of codes lie on cache lines.
    unsafe { _mm512_load_si512(at.cast()) }
}
