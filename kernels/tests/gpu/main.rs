//! Every kernel against its definition, on the device at hand. Without one the tests report that they were ignored, and
//! why;
//! `CHIMERE_REQUIRE=gpu` turns that into a failure.
//!
//! `gpu build [ARCH]` compiles the programs of all tests into the kernel cache and needs no device, so that a machine
//! without the compiler can run them; ARCH is sm_90a unless it is named. `CHIMERE_FEW_CASES=1` leaves out most cases of
//! the longest tests.

mod attention;
mod draft_head;
mod embed;
mod gdn;
mod mamba2;
mod pool;
mod product;
mod router;
mod rows;
mod sampler;
mod support;
mod tables;
mod wide;

use chimere_kernels::cuda::{Arch, CudaError, Device, KernelCache, Program};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::process::ExitCode;
use std::sync::Arc;
use support::{Gpu, Outcome, Test};

const TESTS: [&[Test]; 11] = [
    attention::TESTS,
    draft_head::TESTS,
    embed::TESTS,
    gdn::TESTS,
    mamba2::TESTS,
    pool::TESTS,
    product::TESTS,
    router::TESTS,
    rows::TESTS,
    sampler::TESTS,
    wide::TESTS,
];

fn programs() -> Result<Vec<Program>, CudaError> {
    type Programs = fn() -> Result<Vec<Program>, CudaError>;
    let of: [Programs; 11] = [
        attention::programs,
        draft_head::programs,
        embed::programs,
        gdn::programs,
        mamba2::programs,
        pool::programs,
        product::programs,
        router::programs,
        rows::programs,
        sampler::programs,
        wide::programs,
    ];
    Ok(of.into_iter().map(|programs| programs()).collect::<Result<Vec<_>, _>>()?.concat())
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("build") {
        let built = build(&arguments.next().unwrap_or_else(|| "sm_90a".into()));
        return built.map_or_else(|error| fail(&error.to_string()), |()| ExitCode::SUCCESS);
    }
    // One at a time: they measure memory of one device, and some kernels want all of it to themselves.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let gpu =
        Arc::new(Device::open(0).map(|device| Gpu { device, cache: KernelCache::new(KernelCache::default_dir()) }));
    let trials = TESTS.concat().into_iter().map(|(name, test)| {
        let gpu = gpu.clone();
        Trial::ignorable_test(name, move || run(&gpu, test))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn run(gpu: &Result<Gpu, CudaError>, test: fn(&Gpu) -> Outcome) -> Result<Completion, Failed> {
    match gpu {
        Ok(gpu) => test(gpu).map(|()| Completion::Completed).map_err(|error| error.to_string().into()),
        Err(error) if required() => Err(error.to_string().into()),
        Err(error) => Ok(Completion::ignored_with(error)),
    }
}

fn required() -> bool {
    std::env::var("CHIMERE_REQUIRE").is_ok_and(|names| names.split(',').any(|name| name == "gpu"))
}

fn build(arch: &str) -> Outcome {
    let (arch, cache): (Arch, _) = (arch.parse()?, KernelCache::new(KernelCache::default_dir()));
    let mut programs = programs()?;
    if arch.has_warpgroups() {
        programs.extend(wide::half_programs()?);
    }
    println!("{} of {} programs compiled", cache.build(&programs, &[arch])?, programs.len());
    Ok(())
}

fn fail(error: &str) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}
