//! Weights that are asked for before they are read.

use std::arch::x86_64::*;

/// How far ahead weights are asked for. The processor's own prefetching alone reads half as fast on Intel: it stops at
/// page ends. On Zen 4 asking only 4 KiB ahead is slower than not asking; on Zen 5 with weights beyond the second-level
/// cache 16 KiB are better than 8.
pub(super) const AHEAD_BYTES: usize = 16 << 10;

/// Asks for `bytes` bytes.
#[inline(always)]
pub(super) fn ask(at: *const u8, bytes: usize) {
    let mut line = 0;
    while line < bytes {
        // SAFETY: a hint; the address need not be mapped.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(line).cast()) };
        line += 64;
    }
}

/// Asks for the weights that a product begins with.
pub(super) fn ask_first(weights: &[u8]) {
    ask(weights.as_ptr(), weights.len().min(AHEAD_BYTES));
}
