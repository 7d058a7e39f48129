//! Times of every kernel on the device at hand, as tables; without a device it says so.
//!
//! `gpu [OPERATOR]` measures, `gpu wide [PRODUCT [ROWS]]` and `gpu product [PRODUCT]` the products of one name;
//! `gpu build [ARCH [OPERATOR]]` compiles what is measured into the kernel cache and needs no device. ARCH is sm_90a
//! unless it is named.

mod attention;
mod embed;
mod gdn;
mod mamba2;
mod pool;
mod product;
mod router;
mod rows;
mod sampler;
#[path = "../../tests/gpu/tables.rs"]
mod tables;
mod time;
mod wide;

use chimere_kernels::cuda::wide::Chip;
use chimere_kernels::cuda::{CudaError, Device, KernelCache, Program};
use std::error::Error;
use std::process::ExitCode;

/// What programs are made for when there is no device to ask.
const H200: Chip = Chip { multiprocessors: 132, clusters: true, shared_bytes: 227 << 10, warpgroups: true };
/// Rows of the steps that are timed.
const TIMED: [usize; 6] = [1, 4, 16, 64, 256, 2048];

/// What everything here may fail with.
type Outcome = Result<(), Box<dyn Error>>;

/// The device, and where machine code is kept.
struct Gpu {
    device: Device,
    cache: KernelCache,
}

struct Operator {
    name: &'static str,
    programs: fn() -> Result<Vec<Program>, CudaError>,
    time: fn(&Gpu) -> Outcome,
}

const OPERATORS: [Operator; 11] = [
    Operator { name: "product", programs: product::programs, time: product::time },
    Operator { name: "experts", programs: product::experts_programs, time: product::experts },
    Operator { name: "wide", programs: wide::programs, time: wide::time },
    Operator { name: "gdn", programs: gdn::programs, time: gdn::time },
    Operator { name: "mamba2", programs: mamba2::programs, time: mamba2::time },
    Operator { name: "attention", programs: attention::programs, time: attention::time },
    Operator { name: "embed", programs: embed::programs, time: embed::time },
    Operator { name: "router", programs: router::programs, time: router::time },
    Operator { name: "rows", programs: rows::programs, time: rows::time },
    Operator { name: "pool", programs: pool::programs, time: pool::time },
    Operator { name: "sampler", programs: sampler::programs, time: sampler::time },
];

fn main() -> ExitCode {
    // `cargo bench` passes options of its own.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let done = match arguments.first().map(String::as_str) {
        Some("build") => build(arguments.get(1).map_or("sm_90a", String::as_str), arguments.get(2).map(String::as_str)),
        only => measure(only),
    };
    if let Err(error) = done {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn build(arch: &str, only: Option<&str>) -> Outcome {
    let programs = wanted(only)?.iter().map(|o| (o.programs)()).collect::<Result<Vec<_>, _>>()?.concat();
    let cache = KernelCache::new(KernelCache::default_dir());
    println!("{} of {} programs compiled", cache.build(&programs, &[arch.parse()?])?, programs.len());
    Ok(())
}

/// All operators, or the one of this name.
fn wanted(only: Option<&str>) -> Result<Vec<Operator>, Box<dyn Error>> {
    let wanted: Vec<Operator> = OPERATORS.into_iter().filter(|o| only.is_none_or(|name| name == o.name)).collect();
    if wanted.is_empty() {
        return Err(format!("no operator is called {}", only.unwrap_or_default()).into());
    }
    Ok(wanted)
}

fn measure(only: Option<&str>) -> Outcome {
    let wanted = wanted(only)?;
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(error) => {
            println!("nothing is measured: {error}");
            return Ok(());
        }
    };
    let gpu = Gpu { device, cache: KernelCache::new(KernelCache::default_dir()) };
    println!("{} with {} multiprocessors", gpu.device.arch(), gpu.device.multiprocessors());
    wanted.iter().try_for_each(|o| (o.time)(&gpu))
}
