//! Memory in whole cache lines, so that a vector load never straddles two.

use std::ops::{Deref, DerefMut};

const LINE_BYTES: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE_BYTES]);

/// Zeroed bytes that start on a cache line.
#[derive(Default)]
pub(super) struct Lines(Vec<Line>);

impl Lines {
    /// At least `bytes` zeros.
    pub(super) fn zeroed(bytes: usize) -> Self {
        Self(vec![Line([0; LINE_BYTES]); bytes.div_ceil(LINE_BYTES)])
    }

    /// Makes room for `bytes`; what was there is not kept in order.
    pub(super) fn grow(&mut self, bytes: usize) {
        if self.len() < bytes {
            *self = Self::zeroed(bytes);
        }
    }
}

impl Deref for Lines {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `Line` is plain bytes without padding, so the vector's memory is `len * 64` initialised bytes.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * LINE_BYTES) }
    }
}

impl DerefMut for Lines {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and any byte pattern is a valid `Line`.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * LINE_BYTES) }
    }
}
