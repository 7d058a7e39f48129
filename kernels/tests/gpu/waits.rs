//! Waits that end late, or never: what is recorded when a bound ends one, and stages of which one warp always comes
//! last.
//!
//! A wait that a bound ends takes the device's context with it. So what may end that way runs in a process of its own:
//! this program again, told to (`main.rs`).

use crate::support::{Gpu, Outcome, Test};
use crate::wide;
use chimere_kernels::cuda::endless::{Endless, EndlessBy, endless_program};
use chimere_kernels::cuda::{Arch, CudaError, Device, KernelCache, Program};
use std::error::Error;
use std::process::{Command, Output};

/// The bound of the wait that never ends, in ticks of 67 ms.
const TICKS: u32 = 3;
/// How late a warp comes to each of its waits: longer than the others take for all of a block's stages.
const LATE_NS: i64 = 50_000;

/// The tests of this file by their names, as `main` lists and filters them.
pub(crate) const TESTS: &[Test] = &[
    ("waits::one_that_never_ends_fails_the_launch_and_is_named", never_ending),
    ("waits::no_warp_is_two_phases_behind_however_late_it_comes", late_warps),
];

/// What every program is given so that warp `warp` comes late.
pub(crate) fn late(warp: u32) -> Vec<(&'static str, i64)> {
    vec![("DELAY_WARP", i64::from(warp)), ("DELAY_NS", LATE_NS)]
}

/// What the tests load.
pub(crate) fn programs(arch: Arch) -> Result<Vec<Program>, CudaError> {
    let mut programs = vec![endless_program(TICKS)];
    if arch.has_warpgroups() {
        let staged = wide::staged_programs()?;
        for warp in 0..wide::STAGED_WARPS {
            programs.extend(staged.iter().cloned().map(|mut program| {
                program.defines.extend(late(warp));
                program
            }));
        }
    }
    Ok(programs)
}

/// This program again, with these arguments and a device that it must have.
fn again(arguments: &[&str]) -> Result<(Output, String), Box<dyn Error>> {
    let output = Command::new(std::env::current_exe()?).args(arguments).env("CHIMERE_REQUIRE", "gpu").output()?;
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat();
    Ok((output, said))
}

fn never_ending(gpu: &Gpu) -> Outcome {
    let kinds = ["word", "barrier"];
    for by in kinds.into_iter().take(if gpu.device.arch().has_clusters() { 2 } else { 1 }) {
        let (output, said) = again(&["endless", by])?;
        assert!(output.status.success(), "by {by}: {said}");
        let want = "for what never comes, by block (2, 1), thread 37 (ENDLESS, common/endless.cu)";
        assert!(said.contains("synchronize: Err") && said.contains(want), "by {by}: {said}");
    }
    Ok(())
}

/// In a process of its own: launches a wait that never ends, and says what came of it.
pub(crate) fn endless(by: &str) -> Outcome {
    let (device, cache) = (Device::open(0)?, KernelCache::new(KernelCache::default_dir()));
    let kernel = Endless::load(&device, &cache, TICKS)?;
    if !device.ended_waits().is_empty() {
        return Err("a wait has ended before the launch".into());
    }
    kernel.launch(&device, if by == "word" { EndlessBy::Word } else { EndlessBy::Barrier })?;
    let result = device.stream().synchronize();
    println!("synchronize: {result:?}");
    println!("{}", device.explain(&"the launch failed"));
    // Neither modules nor memory can be given back to a context that is lost.
    std::process::exit(0);
}

/// A block that multiplies fed stages has the same bytes whichever of its warps comes late. A warp that only waited for
/// stages, and was needed for none, would stand still here for ever.
fn late_warps(gpu: &Gpu) -> Outcome {
    if !gpu.device.arch().has_warpgroups() {
        println!("skipped: {} has no matrix instructions of warpgroups", gpu.device.arch());
        return Ok(());
    }
    for warp in 0..wide::STAGED_WARPS {
        let (output, said) = again(&["late", &warp.to_string(), "--exact", wide::STAGED])?;
        assert!(output.status.success() && said.contains("1 passed"), "warp {warp} comes late: {said}");
    }
    Ok(())
}
