//! A kernel whose wait never ends (`csrc/common/endless.cu`), so that a test sees what follows.

use super::arguments::device_struct;
use super::cache::KernelCache;
use super::compiler::{Program, source};
use super::device::{Device, Grid, Kernel};
use super::error::CudaError;

device_struct! {
    /// Parameters of the kernel.
    struct Arguments {
        /// 0: by a barrier, else by a counter.
        by: u32,
    }
}

const ENDLESS: &str = "endless";

/// How a launch of [`Endless`] waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndlessBy {
    /// At a barrier in shared memory; only chips of sm_90 and newer.
    Barrier,
    /// For a word in memory.
    Word,
}

/// The program of [`Endless`], with waits of so many ticks of 67 ms.
pub fn endless_program(ticks: u32) -> Program {
    Program::of::<Arguments>(ENDLESS, source!("common/endless.cu"), vec![("WAIT_TICKS", i64::from(ticks))])
}

/// A kernel whose wait never ends, so that a test sees what follows. The device's context is lost with it.
#[derive(Debug)]
pub struct Endless(Kernel<Arguments>);

impl Endless {
    /// Loads the kernel with a bound of so many ticks of 67 ms.
    ///
    /// # Errors
    /// If it cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, ticks: u32) -> Result<Self, CudaError> {
        Ok(Self(device.module(cache, &endless_program(ticks))?.kernel(ENDLESS)?))
    }

    /// Enqueues it. Thread 37 of block (2, 1) of a grid of (3, 2) waits.
    ///
    /// # Errors
    /// If the driver refuses; that the wait has ended shows later.
    pub fn launch(&self, device: &Device, by: EndlessBy) -> Result<(), CudaError> {
        let grid = Grid { blocks: (3, 2), threads: 64 };
        // SAFETY: the argument names no memory.
        unsafe { self.0.launch(device, grid, &Arguments { by: u32::from(by == EndlessBy::Word) }) }
    }
}
