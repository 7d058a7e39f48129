//! Words between the host's page-locked memory and the device.

use crate::support::{Gpu, Outcome, Test};
use chimere_kernels::cuda::carry::{self, BYTES_MAX, Carrier};
use chimere_kernels::cuda::{CudaError, Program};
use cudarc::driver::{DevicePtrMut, result, sys};

/// What the tests load.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    Ok(vec![carry::program()])
}

/// The tests of this file by their names, as `main` lists and filters them.
pub(crate) const TESTS: &[Test] = &[("carry::words_come_and_go_and_nothing_beside_them", words_come_and_go)];

/// Page-locked words, freed with it.
struct Locked(*mut u32, usize);

impl Locked {
    fn new(len: usize) -> Result<Self, Box<dyn std::error::Error>> {
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the device's context is bound to this thread; every word is written before it is read.
        let at = unsafe { result::malloc_host(4 * len, flags) }?.cast::<u32>();
        let mut locked = Self(at, len);
        // SAFETY: as many were allocated.
        unsafe { std::ptr::write_bytes(locked.0, 0, len) };
        locked.words().fill(0);
        Ok(locked)
    }

    fn words(&mut self) -> &mut [u32] {
        // SAFETY: as many were allocated and zeroed.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, and no launch uses it any more.
        let _ = unsafe { result::free_host(self.0.cast()) };
    }
}

fn words_come_and_go(gpu: &Gpu) -> Outcome {
    const MOST: usize = BYTES_MAX / 4;
    let (stream, carrier) = (gpu.device.stream(), Carrier::load(&gpu.device, &gpu.cache)?);
    stream.context().bind_to_thread()?;
    let (mut sent, mut back) = (Locked::new(MOST)?, Locked::new(MOST + 2)?);
    for (round, (n, at)) in [(1, 0), (255, 3), (257, 1), (0, 5), (MOST, 7)].into_iter().enumerate() {
        let word = |i: usize| (i as u32).wrapping_mul(2_654_435_761) ^ round as u32;
        sent.words().iter_mut().enumerate().for_each(|(i, w)| *w = word(i));
        back.words().fill(7);
        let mut memory = stream.clone_htod(&vec![9u32; MOST + 16])?;
        let to = memory.device_ptr_mut(stream).0 + 4 * at as u64;
        // SAFETY: both lie in page-locked memory that nobody touches before the stream was waited for.
        unsafe {
            carrier.bring(&gpu.device, &sent.words()[..n], to)?;
            carrier.fetch(&gpu.device, to, &mut back.words()[1..1 + n])?;
        }
        let there = stream.clone_dtoh(&memory)?;
        stream.synchronize()?;
        let want: Vec<u32> = (0..n).map(word).collect();
        assert_eq!(there[at..at + n], want, "{n} words");
        assert!(there[..at].iter().chain(&there[at + n..]).all(|w| *w == 9), "{n} words: written beside them");
        assert_eq!(back.words()[1..1 + n], want, "{n} words, back");
        assert_eq!((back.words()[0], back.words()[1 + n]), (7, 7), "{n} words, back: written beside them");
    }
    let mut memory = stream.alloc_zeros::<u32>(MOST + 1)?;
    let to = memory.device_ptr_mut(stream).0;
    let mut many = Locked::new(MOST + 1)?;
    // SAFETY: nothing is enqueued.
    let refused = unsafe { carrier.bring(&gpu.device, many.words(), to) };
    let refused = refused.expect_err("too many").to_string();
    assert!(refused.contains(&format!("{} bytes", BYTES_MAX + 4)), "{refused}");
    Ok(())
}
