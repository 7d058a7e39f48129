//! Memory for large arrays that are read at random: in huge pages where the system has them, since the processor keeps
//! the addresses of a few megabytes of small pages at a time, and finding one that it does not keep takes longer than
//! reading the memory itself.

use memmap2::MmapMut;
use std::io;

/// What the system gives at once, if it does, where that is a whole number of it from a multiple of it on.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Zeroed memory, in huge pages where the system has them.
#[derive(Debug)]
pub(super) struct Pages {
    map: MmapMut,
    start: usize,
    bytes: usize,
}

impl Pages {
    /// So many zeroed bytes.
    pub(super) fn zeroed(bytes: usize) -> Self {
        Self::try_zeroed(bytes).expect("there is memory for what is allocated, as everywhere else")
    }

    /// Zeroed memory of a size that a file names. A size that the system does not grant is an error and no panic.
    pub(super) fn try_zeroed(bytes: usize) -> io::Result<Self> {
        let small = bytes < HUGE_PAGE_BYTES / 2;
        // What is never touched costs addresses, not memory.
        let room = if small { bytes } else { bytes.next_multiple_of(HUGE_PAGE_BYTES) + HUGE_PAGE_BYTES };
        let map = MmapMut::map_anon(room)?;
        let start = if small { 0 } else { map.as_ptr().align_offset(HUGE_PAGE_BYTES) };
        // Where it has none, or keeps them to itself, the memory is there all the same.
        #[cfg(target_os = "linux")]
        let _ = small || map.advise(memmap2::Advice::HugePage).is_ok();
        Ok(Self { map, start, bytes })
    }
}

impl std::ops::Deref for Pages {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.map[self.start..self.start + self.bytes]
    }
}

impl std::ops::DerefMut for Pages {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..self.start + self.bytes]
    }
}

/// Asks memory for the cache line of an element; does nothing where there is none, or where the processor has no such
/// request.
#[inline]
pub(super) fn prefetch<T>(data: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = data.get(index) {
        // SAFETY: a prefetch reads nothing and faults on nothing; the address is inside the slice all the same.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(std::ptr::from_ref(element).cast())
        };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (data, index);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_any_size_is_zeroed_and_can_be_written_to_its_end() {
        for bytes in [0, 8, 4096, HUGE_PAGE_BYTES / 2, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 8] {
            let mut pages = Pages::zeroed(bytes);
            assert_eq!(pages.len(), bytes);
            assert!(pages.iter().all(|b| *b == 0));
            pages.fill(7);
            assert!(pages.iter().all(|b| *b == 7));
            assert!(bytes < HUGE_PAGE_BYTES / 2 || pages.as_ptr().addr().is_multiple_of(HUGE_PAGE_BYTES));
        }
    }
}
