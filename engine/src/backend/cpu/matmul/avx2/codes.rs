//! How the codes of a block come into 256-bit vectors.

use std::arch::x86_64::*;

/// Reads the codes of a block of 32 inputs by 16 rows as unsigned bytes.
pub(super) trait CodeReader: Copy {
    /// Bytes of a block.
    const BYTES: usize;
    /// What the bytes have more than the weights: 0, 16, 32 or 128.
    const PLUS: i32;
    /// How many quads of products add up in 16 bits, 0 if not even one does: four bits make at most 8 * 2 * 15 * 127 of
    /// eight, five 4 * 2 * 31 * 127 of four, and six 2 * 2 * 63 * 127 of two, all below 2^15.
    const QUADS: usize;
    /// What they are in a panel.
    type Unpacked: CodeReader + Default;

    /// Rows 0..8 or 8..16 of quad `quad` of the block at `at`.
    unsafe fn quad(self, at: *const u8, quad: usize, half: usize) -> __m256i;
}

/// Bytes as they lie in memory or in a panel.
#[derive(Clone, Copy, Default)]
pub(super) struct Bytes<const PLUS: i32, const QUADS: usize>;

impl<const PLUS: i32, const QUADS: usize> CodeReader for Bytes<PLUS, QUADS> {
    const BYTES: usize = 512;
    const PLUS: i32 = PLUS;
    const QUADS: usize = QUADS;
    type Unpacked = Self;

    #[inline(always)]
    unsafe fn quad(self, at: *const u8, quad: usize, half: usize) -> __m256i {
        // SAFETY: a block has eight quads.
        unsafe { load(at, quad, half) }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Nibbles;

impl CodeReader for Nibbles {
    const BYTES: usize = 256;
    const PLUS: i32 = 0;
    const QUADS: usize = 8;
    type Unpacked = Bytes<0, 8>;

    #[inline(always)]
    unsafe fn quad(self, at: *const u8, quad: usize, half: usize) -> __m256i {
        // SAFETY: a block has four quads of nibbles for quads 0..4 and 4..8.
        unsafe {
            let both = load(at, quad % 4, half);
            _mm256_and_si256(if quad < 4 { both } else { _mm256_srli_epi16::<4>(both) }, _mm256_set1_epi8(15))
        }
    }
}

/// Nibbles that select from a table. Its levels are the weights plus `PLUS`, of which `QUADS` quads add up.
#[derive(Clone, Copy)]
pub(super) struct Table<const PLUS: i32, const QUADS: usize>(__m256i);

impl<const PLUS: i32, const QUADS: usize> Table<PLUS, QUADS> {
    /// From signed weights plus 128, as a layout has them.
    #[inline(always)]
    pub(super) unsafe fn of(levels: &[u8; 16]) -> Self {
        // SAFETY: 16 bytes.
        unsafe {
            let levels = _mm_sub_epi8(_mm_loadu_si128(levels.as_ptr().cast()), _mm_set1_epi8((128 - PLUS) as i8));
            Self(_mm256_broadcastsi128_si256(levels))
        }
    }
}

/// Whether all levels, which are signed weights plus 128, have five bits when only 16 are added.
pub(super) fn five_bits(levels: &[u8; 16]) -> bool {
    levels.iter().all(|level| (112..144).contains(level))
}

impl<const PLUS: i32, const QUADS: usize> CodeReader for Table<PLUS, QUADS> {
    const BYTES: usize = 256;
    const PLUS: i32 = PLUS;
    const QUADS: usize = QUADS;
    type Unpacked = Bytes<PLUS, QUADS>;

    #[inline(always)]
    unsafe fn quad(self, at: *const u8, quad: usize, half: usize) -> __m256i {
        // SAFETY: as for nibbles.
        unsafe { _mm256_shuffle_epi8(self.0, Nibbles.quad(at, quad, half)) }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Fives<const PLUS: i32>;

impl<const PLUS: i32> CodeReader for Fives<PLUS> {
    const BYTES: usize = 256 + 64;
    const PLUS: i32 = PLUS;
    const QUADS: usize = 4;
    type Unpacked = Bytes<PLUS, 4>;

    #[inline(always)]
    unsafe fn quad(self, at: *const u8, quad: usize, half: usize) -> __m256i {
        // SAFETY: a plane of 64 bytes follows the nibbles.
        unsafe {
            let plane = load(at, 4, half);
            // The bit goes to its place above the nibble; what comes from other bytes is masked off.
            let turned = match quad {
                0 => _mm256_slli_epi16::<4>(plane),
                1 => _mm256_slli_epi16::<3>(plane),
                2 => _mm256_slli_epi16::<2>(plane),
                3 => _mm256_slli_epi16::<1>(plane),
                4 => plane,
                5 => _mm256_srli_epi16::<1>(plane),
                6 => _mm256_srli_epi16::<2>(plane),
                _ => _mm256_srli_epi16::<3>(plane),
            };
            let bit = _mm256_and_si256(turned, _mm256_set1_epi8(0x10));
            _mm256_or_si256(Nibbles.quad(at, quad, half), bit)
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Sixes;

impl CodeReader for Sixes {
    const BYTES: usize = 256 + 128;
    const PLUS: i32 = 32;
    const QUADS: usize = 2;
    type Unpacked = Bytes<32, 2>;

    #[inline(always)]
    unsafe fn quad(self, at: *const u8, quad: usize, half: usize) -> __m256i {
        // SAFETY: two planes of 64 bytes follow the nibbles.
        unsafe {
            let plane = load(at, 4 + quad / 4, half);
            // Two bits go to their place above the nibble; what comes from other bytes is masked off.
            let turned = match quad % 4 {
                0 => _mm256_slli_epi16::<4>(plane),
                1 => _mm256_slli_epi16::<2>(plane),
                2 => plane,
                _ => _mm256_srli_epi16::<2>(plane),
            };
            let bits = _mm256_and_si256(turned, _mm256_set1_epi8(0x30));
            _mm256_or_si256(Nibbles.quad(at, quad, half), bits)
        }
    }
}

/// A half of line `line` of a block.
#[inline(always)]
unsafe fn load(at: *const u8, line: usize, half: usize) -> __m256i {
    // SAFETY: the caller's; planes of codes lie on cache lines.
    unsafe { _mm256_load_si256(at.add(64 * line + 32 * half).cast()) }
}

/// Writes the codes of a block as bytes. Quads that share bytes come after each other.
#[inline(always)]
pub(super) unsafe fn unpack_codes<C: CodeReader>(reader: C, at: *const u8, to: *mut u8) {
    // SAFETY: the caller's: `to` has 512 bytes and lies on a cache line.
    unsafe {
        // No loop: where it is not unrolled, which bits a quad has is found out each time.
        unpack_quad(reader, at, to, 0);
        unpack_quad(reader, at, to, 4);
        unpack_quad(reader, at, to, 1);
        unpack_quad(reader, at, to, 5);
        unpack_quad(reader, at, to, 2);
        unpack_quad(reader, at, to, 6);
        unpack_quad(reader, at, to, 3);
        unpack_quad(reader, at, to, 7);
    }
}

#[inline(always)]
unsafe fn unpack_quad<C: CodeReader>(reader: C, at: *const u8, to: *mut u8, quad: usize) {
    for half in 0..2 {
        // SAFETY: the caller's.
        unsafe { _mm256_store_si256(to.add(64 * quad + 32 * half).cast(), reader.quad(at, quad, half)) };
    }
}
