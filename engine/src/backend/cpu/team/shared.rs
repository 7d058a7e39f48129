//! Memory that the threads of a step divide among themselves.

use crate::backend::cpu::team::pool::Team;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

/// A buffer whose parts several threads read and write, between barriers that order them.
///
/// Every step runs in phases: within a phase each thread writes only ranges that no other thread touches, and reads
/// what an earlier phase wrote. The methods are unsafe because that split is the caller's.
pub(crate) struct SharedBuffer<T> {
    cells: Box<[UnsafeCell<T>]>,
    /// The first cell that lies on a cache line. A vector that straddles two costs as much as two, and an allocator
    /// puts large buffers 16 bytes behind the start of a page.
    start: usize,
    len: usize,
}

const LINE_BYTES: usize = 64;
#[cfg(target_os = "linux")]
const HUGE_BYTES: usize = 2 << 20;

// SAFETY: the cells are only reached through the unsafe methods, whose callers keep writers and readers of a range
// apart.
unsafe impl<T: Send> Sync for SharedBuffer<T> {}

impl<T: Copy + Default> SharedBuffer<T> {
    /// `len` default values; zeroed pages are not touched until used.
    pub(crate) fn new(len: usize) -> Self {
        let plain = vec![T::default(); len + LINE_BYTES / size_of::<T>()].into_boxed_slice();
        let start = plain.as_ptr().align_offset(LINE_BYTES);
        assert!(start + len <= plain.len(), "a line's worth of elements holds the start of one");
        // SAFETY: UnsafeCell<T> has the layout of T.
        let cells = unsafe { Box::from_raw(Box::into_raw(plain) as *mut [UnsafeCell<T>]) };
        advise_huge(&cells);
        Self { cells, start, len }
    }

    /// How many elements it has.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn cells(&self, range: Range<usize>) -> &[UnsafeCell<T>] {
        &self.cells[self.start..][..self.len][range]
    }

    /// Reads a range.
    ///
    /// # Safety
    /// No thread writes to the range while the slice lives.
    pub(crate) unsafe fn get(&self, range: Range<usize>) -> &[T] {
        let cells = self.cells(range);
        // SAFETY: in bounds by the index above; unwritten by the caller's promise.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), cells.len()) }
    }

    /// Writes a range.
    ///
    /// # Safety
    /// No other thread reads or writes the range while the slice lives.
    #[allow(clippy::mut_from_ref, reason = "the caller divides the buffer")]
    pub(crate) unsafe fn get_mut(&self, range: Range<usize>) -> &mut [T] {
        let cells = self.cells(range);
        // SAFETY: in bounds by the index above; nobody else's by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(cells.as_ptr().cast_mut().cast(), cells.len()) }
    }

    /// Where `range` starts, for writers that keep to their part of it.
    pub(crate) fn part(&self, range: Range<usize>) -> *mut T {
        self.cells(range).as_ptr().cast_mut().cast()
    }

    /// Copies a range onto another one of the same buffer.
    pub(crate) fn copy_within(&mut self, from: Range<usize>, to: usize) {
        // SAFETY: `&mut self` excludes everybody else.
        unsafe { self.get_mut(0..self.len()) }.copy_within(from, to);
    }
}

/// Asks for huge pages behind a large buffer that nobody has touched yet: states of many sequences miss the translation
/// cache less often. Only advice: where it is not taken, all else is the same.
fn advise_huge<T>(cells: &[T]) {
    #[cfg(target_os = "linux")]
    if size_of_val(cells) >= 2 * HUGE_BYTES {
        let first = cells.as_ptr().addr().next_multiple_of(HUGE_BYTES);
        let bytes = (cells.as_ptr_range().end.addr() - first) / HUGE_BYTES * HUGE_BYTES;
        // SAFETY: whole pages inside the buffer, whose contents this does not change.
        unsafe { libc::madvise(first as *mut libc::c_void, bytes, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = cells;
}

/// Something of each thread's own, made before there are threads.
pub(crate) struct PerThread<T>(Vec<Mutex<T>>);

impl<T> PerThread<T> {
    /// For teams of up to `threads`.
    pub(crate) fn new(threads: usize, make: impl Fn() -> T) -> Self {
        Self((0..threads).map(|_| Mutex::new(make())).collect())
    }

    /// The calling thread's own.
    pub(crate) fn of(&self, team: Team<'_>) -> MutexGuard<'_, T> {
        self.0[team.index].lock().expect("no thread panicked before")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_start_on_a_cache_line_and_end_where_they_say() {
        for len in [0, 1, 16, 1000, 1 << 20] {
            let (words, halves) = (SharedBuffer::<u32>::new(len), SharedBuffer::<u16>::new(len));
            assert_eq!((words.part(0..len).addr() % LINE_BYTES, halves.part(0..len).addr() % LINE_BYTES), (0, 0));
            assert_eq!((words.len(), halves.len()), (len, len));
        }
    }

    #[test]
    fn threads_fill_their_own_ranges() {
        let buffer = SharedBuffer::<u32>::new(100);
        std::thread::scope(|s| {
            for t in 0..4 {
                let buffer = &buffer;
                // SAFETY: the ranges do not overlap.
                s.spawn(move || unsafe { buffer.get_mut(t * 25..t * 25 + 25) }.fill(t as u32));
            }
        });
        // SAFETY: the threads are gone.
        assert!(unsafe { buffer.get(0..100) }.iter().enumerate().all(|(i, v)| *v as usize == i / 25));
    }
}
