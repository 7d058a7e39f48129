//! Checks every kernel against its definition on the device at hand, then times it.
//!
//! `gpu_check build` compiles for sm_90a into the kernel cache and needs no device; `gpu_check check` compares; `gpu_check time`
//! measures; without an argument it compares, then measures. Exits non-zero at the first difference.

mod check;
mod time;

use chimere_kernels::cuda::{Device, KernelCache};
use std::error::Error;

/// Of the device that `build` compiles for.
const MULTIPROCESSORS: usize = 132;

/// What everything here may fail with.
type Outcome = Result<(), Box<dyn Error>>;

/// The device, and where machine code is kept.
struct Gpu {
    device: Device,
    cache: KernelCache,
}

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run() -> Outcome {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let cache = KernelCache::new(KernelCache::default_dir());
    if mode == "build" {
        let programs = [check::programs()?, time::programs()?].concat();
        println!("{} of {} programs compiled", cache.build(&programs, &["sm_90a".parse()?])?, programs.len());
        return Ok(());
    }
    let gpu = Gpu { device: Device::open(0)?, cache };
    println!("{} with {} multiprocessors", gpu.device.arch(), gpu.device.multiprocessors());
    if mode != "time" {
        check::all(&gpu)?;
    }
    if mode != "check" {
        time::all(&gpu)?;
    }
    Ok(())
}
