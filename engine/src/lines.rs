//! Memory in whole cache lines, so that a vector load never straddles two; for weights, in huge pages where the system
//! has them.

use memmap2::MmapMut;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) const LINE_BYTES: usize = 64;
/// Weights share mappings of this size: most matrices of a mixture are smaller than one huge page.
const SLAB_BYTES: usize = 64 << 20;
const HUGE_BYTES: usize = 2 << 20;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct CacheLine([u8; LINE_BYTES]);

/// Zeroed bytes that start on a cache line.
pub(crate) struct Lines {
    start: NonNull<u8>,
    len: usize,
    /// Keeps the memory behind `start`.
    _owner: Owner,
}

enum Owner {
    Heap { _lines: Vec<CacheLine> },
    Mapping { _slab: Arc<Slab> },
}

/// A mapping, parts of which are handed out once each.
struct Slab {
    start: NonNull<u8>,
    /// Unmapped when the last part is dropped.
    _map: MmapMut,
}

// SAFETY: a slab's pointer is only added to; its parts do not overlap.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}
// SAFETY: `Lines` is the only way to its bytes, as `Vec<u8>` is to its own.
unsafe impl Send for Lines {}
// SAFETY: as above.
unsafe impl Sync for Lines {}

impl Lines {
    /// At least `bytes` zeros.
    pub(crate) fn zeroed(bytes: usize) -> Self {
        let mut lines = vec![CacheLine([0; LINE_BYTES]); bytes.div_ceil(LINE_BYTES)];
        let start = NonNull::from(lines.as_mut_slice()).cast();
        Self { start, len: lines.len() * LINE_BYTES, _owner: Owner::Heap { _lines: lines } }
    }

    /// At least `bytes` zeros for weights. Reading them in order misses the translation cache 512 times less often.
    pub(crate) fn for_weights(bytes: usize) -> Self {
        let len = bytes.next_multiple_of(LINE_BYTES);
        match carve(len) {
            Some((start, slab)) => Self { start, len, _owner: Owner::Mapping { _slab: slab } },
            None => Self::zeroed(bytes),
        }
    }

    /// At least `bytes` zeros, in a mapping that nothing else shares and that goes when they do.
    pub(crate) fn alone(bytes: usize) -> Self {
        let len = bytes.next_multiple_of(LINE_BYTES);
        // Less than a huge page would get small ones.
        match Slab::map(len.next_multiple_of(HUGE_BYTES)) {
            Some(slab) => Self { start: slab.start, len, _owner: Owner::Mapping { _slab: slab } },
            None => Self::zeroed(bytes),
        }
    }

    /// Makes room for `bytes`; what was there is not kept in order.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only x86-64 has scratch memory"))]
    pub(crate) fn grow(&mut self, bytes: usize) {
        if self.len < bytes {
            *self = Self::zeroed(bytes);
        }
    }
}

/// `len` bytes of the slab in use, of a new one, or of a mapping of their own. `None` if the system maps no more.
fn carve(len: usize) -> Option<(NonNull<u8>, Arc<Slab>)> {
    static CURRENT: Mutex<Option<(Arc<Slab>, usize)>> = Mutex::new(None);
    if len > SLAB_BYTES / 4 {
        let slab = Slab::map(len)?;
        return Some((slab.start, slab));
    }
    // A panic cannot leave it half changed.
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    if current.as_ref().is_none_or(|(_, used)| used + len > SLAB_BYTES) {
        *current = Some((Slab::map(SLAB_BYTES)?, 0));
    }
    let (slab, used) = current.as_mut()?;
    // SAFETY: `used + len` is within the slab.
    let start = unsafe { slab.start.add(*used) };
    *used += len;
    Some((start, slab.clone()))
}

impl Slab {
    fn map(bytes: usize) -> Option<Arc<Self>> {
        let mut map = MmapMut::map_anon(bytes).ok()?;
        // Only advice: where it is not taken, pages are small and all else is the same.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Some(Arc::new(Self { start: NonNull::from(&mut map[..]).cast(), _map: map }))
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl Deref for Lines {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes that the owner keeps and nobody else reaches.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Lines {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_zeros_on_their_own_lines_whatever_lies_beside_them() {
        let mut all: Vec<Lines> =
            [1, 64, 100, 0, SLAB_BYTES / 4, SLAB_BYTES / 4, SLAB_BYTES / 4, SLAB_BYTES / 4, SLAB_BYTES]
                .map(Lines::for_weights)
                .into_iter()
                .collect();
        for (i, lines) in all.iter_mut().enumerate() {
            assert!(lines.as_ptr().addr().is_multiple_of(LINE_BYTES) && lines.len().is_multiple_of(LINE_BYTES));
            assert!(lines.iter().all(|b| *b == 0), "allocation {i} is not zeros");
            lines.fill(0xff);
        }
    }
}
