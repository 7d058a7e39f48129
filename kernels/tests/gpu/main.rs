//! Every kernel against its definition, on the device at hand. Without one the tests report that they were ignored, and
//! why;
//! `CHIMERE_REQUIRE=gpu` turns that into a failure.
//!
//! `gpu build [ARCH [OPERATOR]]` compiles the programs of all tests, or of those of one operator, into the kernel cache
//! and needs no device, so that a machine without the compiler can run them; ARCH is sm_90a unless it is named.
//! `CHIMERE_FEW_CASES=1` leaves out most cases of the longest tests.

mod activated;
mod attention;
mod carry;
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

const TESTS: [&[Test]; 13] = [
    activated::TESTS,
    attention::TESTS,
    carry::TESTS,
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

/// Programs of the tests of one operator, or of all.
fn programs(arch: Arch, only: Option<&str>) -> Result<Vec<Program>, CudaError> {
    type Programs = fn() -> Result<Vec<Program>, CudaError>;
    let of: [(&str, Programs); 13] = [
        ("activated", activated::programs),
        ("attention", attention::programs),
        ("carry", carry::programs),
        ("draft_head", draft_head::programs),
        ("embed", embed::programs),
        ("gdn", gdn::programs),
        ("mamba2", mamba2::programs),
        ("pool", pool::programs),
        ("product", product::programs),
        ("router", router::programs),
        ("rows", rows::programs),
        ("sampler", sampler::programs),
        ("wide", wide::programs),
    ];
    let halves: (&str, Programs) = ("wide", wide::half_programs);
    let all = of.into_iter().chain(arch.has_warpgroups().then_some(halves));
    let wanted = all.filter(|(name, _)| only.is_none_or(|only| only == *name));
    Ok(wanted.map(|(_, programs)| programs()).collect::<Result<Vec<_>, _>>()?.concat())
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("build") {
        let (arch, only) = (arguments.next().unwrap_or_else(|| "sm_90a".into()), arguments.next());
        let built = build(&arch, only.as_deref());
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

fn build(arch: &str, only: Option<&str>) -> Outcome {
    let (arch, cache): (Arch, _) = (arch.parse()?, KernelCache::new(KernelCache::default_dir()));
    let programs = programs(arch, only)?;
    println!("{} of {} programs compiled", cache.build(&programs, &[arch])?, programs.len());
    Ok(())
}

fn fail(error: &str) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}
