//! Every kernel against its definition, on the device at hand. Without one the tests report that they were ignored, and
//! why;
//! `CHIMERE_REQUIRE=gpu` turns that into a failure.
//!
//! `gpu build [ARCH [OPERATOR]]` compiles the programs of all tests, or of those of one operator, into the kernel cache
//! and needs no device, so that a machine without the compiler can run them; ARCH is sm_90a unless it is named.
//! `gpu late WARP TEST` runs tests with the one warp of every block asleep before each of its waits, so that it comes
//! to them last; `gpu endless word` is what the tests of waits start. `CHIMERE_FEW_CASES=1` leaves out most cases of
//! the longest tests.

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
mod waits;
mod wide;

use chimere_kernels::cuda::{Arch, CudaError, Device, KernelCache, Program};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::process::ExitCode;
use std::sync::Arc;
use support::{Gpu, Outcome, Test};

const TESTS: [&[Test]; 14] = [
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
    waits::TESTS,
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
    let is_wanted = |name: &str| only.is_none_or(|only| only == name);
    let wanted = all.filter(|(name, _)| is_wanted(name));
    let mut programs = wanted.map(|(_, programs)| programs()).collect::<Result<Vec<_>, _>>()?.concat();
    if is_wanted("waits") {
        programs.extend(waits::programs(arch)?);
    }
    Ok(programs)
}

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().collect();
    let word = |at: usize| words.get(at).map(String::as_str);
    let done = match (word(1), word(2)) {
        (Some("build"), arch) => Some(build(arch.unwrap_or("sm_90a"), word(3))),
        (Some("endless"), Some(by)) => Some(waits::endless(by)),
        _ => None,
    };
    if let Some(done) = done {
        return done.map_or_else(|error| fail(&error.to_string()), |()| ExitCode::SUCCESS);
    }
    let late = match (word(1), word(2).map(str::parse)) {
        (Some("late"), Some(Ok(warp))) => waits::late(warp),
        _ => Vec::new(),
    };
    if !late.is_empty() {
        words.drain(1..3);
    }
    // One at a time: they measure memory of one device, and some kernels want all of it to themselves.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_iter(words) };
    let cache = KernelCache::new(KernelCache::default_dir());
    let gpu = Arc::new(Device::open(0).map(|device| Gpu { device: device.with_defines(late), cache }));
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
