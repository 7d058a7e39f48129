//! Memory that the threads of a step divide among themselves.

use super::pool::Team;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

/// A buffer whose parts several threads read and write, between barriers that order them.
///
/// Every step runs in phases: within a phase each thread writes only ranges that no other thread touches, and reads
/// what an earlier phase wrote. The methods are unsafe because that split is the caller's.
pub(super) struct Shared<T>(Box<[UnsafeCell<T>]>);

// SAFETY: the cells are only reached through the unsafe methods, whose callers keep writers and readers of a range
// apart.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T: Copy + Default> Shared<T> {
    /// `len` default values; zeroed pages are not touched until used.
    pub(super) fn new(len: usize) -> Self {
        let plain = vec![T::default(); len].into_boxed_slice();
        // SAFETY: UnsafeCell<T> has the layout of T.
        Self(unsafe { Box::from_raw(Box::into_raw(plain) as *mut [UnsafeCell<T>]) })
    }

    /// How many elements it has.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Reads a range.
    ///
    /// # Safety
    /// No thread writes to the range while the slice lives.
    pub(super) unsafe fn get(&self, range: Range<usize>) -> &[T] {
        let cells = &self.0[range];
        // SAFETY: in bounds by the index above; unwritten by the caller's promise.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), cells.len()) }
    }

    /// Writes a range.
    ///
    /// # Safety
    /// No other thread reads or writes the range while the slice lives.
    #[allow(clippy::mut_from_ref, reason = "the caller divides the buffer")]
    pub(super) unsafe fn get_mut(&self, range: Range<usize>) -> &mut [T] {
        let cells = &self.0[range];
        // SAFETY: in bounds by the index above; nobody else's by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(cells.as_ptr().cast_mut().cast(), cells.len()) }
    }

    /// Where `range` starts, for writers that keep to their part of it.
    pub(super) fn part(&self, range: Range<usize>) -> *mut T {
        self.0[range].as_ptr().cast_mut().cast()
    }

    /// Copies a range onto another one of the same buffer.
    pub(super) fn copy_within(&mut self, from: Range<usize>, to: usize) {
        // SAFETY: `&mut self` excludes everybody else.
        unsafe { self.get_mut(0..self.len()) }.copy_within(from, to);
    }
}

/// Something of each thread's own, made before there are threads.
pub(super) struct PerThread<T>(Vec<Mutex<T>>);

impl<T> PerThread<T> {
    /// For teams of up to `threads`.
    pub(super) fn new(threads: usize, make: impl Fn() -> T) -> Self {
        Self((0..threads).map(|_| Mutex::new(make())).collect())
    }

    /// The calling thread's own.
    pub(super) fn of(&self, team: Team<'_>) -> MutexGuard<'_, T> {
        self.0[team.index].lock().expect("no thread panicked before")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_fill_their_own_ranges() {
        let buffer = Shared::<u32>::new(100);
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
