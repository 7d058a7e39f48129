//! The CUDA backend against the CPU backend and the reference, on a real device. Without one tests report that they
//! were ignored, and why;
//! `CHIMERE_REQUIRE` with `gpu` turns that into a failure.
//!
//! Data is read from the repository, or from where `CHIMERE_TEST_DATA` says it was copied to. `CHIMERE_SOAK_SECONDS`
//! lengthens the last test.
#![allow(clippy::unwrap_used, reason = "a test may panic anywhere")]

mod adapters;
mod batches;
mod compiles;
mod driver;
mod encoders;
mod experts;
mod follow;
mod formats;
mod guesses;
mod not_finite;
mod pooled;
mod replicas;
mod requests;
mod sampling;
#[path = "../support/mod.rs"]
mod support;

use chimere_engine::backend::cuda::{Compiler, probe};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::process::ExitCode;

/// A test and its name.
type Test = (&'static str, fn());

/// Tests that want a device.
const ON_A_GPU: [&[Test]; 13] = [
    adapters::TESTS,
    follow::TESTS,
    formats::TESTS,
    batches::TESTS,
    guesses::TESTS,
    sampling::TESTS,
    experts::TESTS,
    pooled::TESTS,
    replicas::TESTS,
    requests::TESTS,
    compiles::TESTS,
    encoders::TESTS,
    not_finite::TESTS,
];

fn main() -> ExitCode {
    // What a test of replicas starts again.
    let words: Vec<String> = std::env::args().collect();
    if let [_, word, lost] = words.as_slice()
        && word == "trap"
    {
        replicas::trap(lost);
        return ExitCode::SUCCESS;
    }
    // One at a time: some measure the memory of the one device.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let mut trials: Vec<Trial> = ON_A_GPU.concat().iter().map(|(name, test)| on_a_gpu(name, *test)).collect();
    trials.push(Trial::ignorable_test("a_given_model_follows_the_cpu", || {
        let Some(path) = std::env::var_os("CHIMERE_TEST_MODEL") else {
            return Ok(Completion::ignored_with("CHIMERE_TEST_MODEL names no file"));
        };
        completed_or(no_gpu(), || follow::a_given_model_follows_the_cpu(path.as_ref()))
    }));
    trials.push(Trial::ignorable_test("hidden_states_count_once_where_few_pages_have_a_prompt_computed_twice", || {
        let on_cpu = pooled::pooled_on_the_cpu();
        completed_or(no_gpu(), || pooled::hidden_states_count_once_on_a_gpu(&on_cpu))
    }));
    trials.push(Trial::ignorable_test("every_kernel_of_the_shipped_model_compiles", || {
        completed_or(missing("nvrtc", Compiler::load().err()), compiles::every_kernel_of_the_shipped_model_compiles)
    }));
    trials.push(Trial::ignorable_test("every_kernel_of_the_synthetic_hybrids_compiles", || {
        completed_or(missing("nvrtc", Compiler::load().err()), compiles::every_kernel_of_the_synthetic_hybrids_compiles)
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn on_a_gpu(name: &str, test: fn()) -> Trial {
    Trial::ignorable_test(name, move || completed_or(no_gpu(), test))
}

/// Runs `test`, or says why it cannot; a failure if what is missing is required.
fn completed_or(missing: Result<Option<String>, Failed>, test: impl FnOnce()) -> Result<Completion, Failed> {
    if let Some(reason) = missing? {
        return Ok(Completion::ignored_with(reason));
    }
    test();
    Ok(Completion::Completed)
}

fn no_gpu() -> Result<Option<String>, Failed> {
    missing("gpu", probe(0).err())
}

/// Why something cannot be tested, or a failure where `CHIMERE_REQUIRE` has its name.
fn missing(what: &str, error: Option<impl std::fmt::Display>) -> Result<Option<String>, Failed> {
    let Some(error) = error else { return Ok(None) };
    if std::env::var("CHIMERE_REQUIRE").is_ok_and(|names| names.split(',').any(|name| name == what)) {
        return Err(error.to_string().into());
    }
    Ok(Some(error.to_string()))
}
