//! Checks every kernel against its definition on the device at hand, then times it.
//!
//! `gpu_check build` compiles for sm_90a into the kernel cache and needs no device; `gpu_check check` compares; `gpu_check time`
//! measures; without an argument it compares, then measures. A second argument names one operation alone. Exits non-zero at the
//! first difference.

mod attention;
mod check;
mod embed;
mod gdn_check;
mod gdn_time;
mod narrow_check;
mod narrow_time;
mod pool;
mod router;
mod rows;
mod sampler;
mod time;
mod wide;

use chimere_kernels::cuda::wide::Chip;
use chimere_kernels::cuda::{CudaError, Device, KernelCache, Program};
use std::error::Error;

/// Of the device that `build` compiles for.
const MULTIPROCESSORS: usize = 132;
const H200: Chip = Chip { multiprocessors: MULTIPROCESSORS, clusters: true, shared_bytes: 227 << 10 };

/// What everything here may fail with.
type Outcome = Result<(), Box<dyn Error>>;

/// The device, and where machine code is kept.
struct Gpu {
    device: Device,
    cache: KernelCache,
}

/// One operation, or a few that belong together.
struct Operation {
    name: &'static str,
    programs: fn() -> Result<Vec<Program>, CudaError>,
    check: fn(&Gpu) -> Outcome,
    time: fn(&Gpu) -> Outcome,
}

const OPERATIONS: [Operation; 10] = [
    Operation { name: "narrow", programs: narrow_programs, check: narrow_check::all, time: narrow_time::all },
    Operation { name: "experts", programs: experts_programs, check: narrow_check::experts, time: narrow_time::experts },
    Operation { name: "wide", programs: wide::programs, check: wide::check, time: wide::time },
    Operation { name: "gdn", programs: gdn_programs, check: gdn_check::all, time: gdn_time::all },
    Operation { name: "attention", programs: attention::programs, check: attention::check, time: attention::time },
    Operation { name: "embed", programs: embed::programs, check: embed::check, time: embed::time },
    Operation { name: "router", programs: router::programs, check: router::check, time: router::time },
    Operation { name: "rows", programs: rows::programs, check: rows::check, time: rows::time },
    Operation { name: "pool", programs: pool::programs, check: pool::check, time: pool::time },
    Operation { name: "sampler", programs: sampler::programs, check: sampler::check, time: sampler::time },
];

fn narrow_programs() -> Result<Vec<Program>, CudaError> {
    Ok([narrow_check::programs(), narrow_time::programs()].concat())
}

fn experts_programs() -> Result<Vec<Program>, CudaError> {
    Ok([narrow_check::experts_programs(), narrow_time::experts_programs()].concat())
}

fn gdn_programs() -> Result<Vec<Program>, CudaError> {
    Ok([gdn_check::programs()?, gdn_time::programs()?].concat())
}

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run() -> Outcome {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let only = std::env::args().nth(2);
    let wanted: Vec<Operation> = OPERATIONS.into_iter().filter(|o| only.as_deref().is_none_or(|name| name == o.name)).collect();
    if wanted.is_empty() {
        return Err(format!("no operation is called {}", only.unwrap_or_default()).into());
    }
    let cache = KernelCache::new(KernelCache::default_dir());
    if mode == "build" {
        let programs = wanted.iter().map(|o| (o.programs)()).collect::<Result<Vec<_>, _>>()?.concat();
        println!("{} of {} programs compiled", cache.build(&programs, &["sm_90a".parse()?])?, programs.len());
        return Ok(());
    }
    let gpu = Gpu { device: Device::open(0)?, cache };
    println!("{} with {} multiprocessors", gpu.device.arch(), gpu.device.multiprocessors());
    if mode != "time" {
        wanted.iter().try_for_each(|o| (o.check)(&gpu))?;
    }
    if mode != "check" {
        wanted.iter().try_for_each(|o| (o.time)(&gpu))?;
    }
    Ok(())
}
