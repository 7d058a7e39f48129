#![no_main]

#[path = "../targets/limits.rs"]
mod limits;
#[path = "../targets/dialects.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::run(bytes));
