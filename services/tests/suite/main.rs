//! The service's library and the repository without a socket: what may depend on what, pages that are made from the
//! source, texts of real models, the corpus of the fuzzer. One binary, because each one is linked with the whole
//! service. Tests that talk to the service or need the program stand in `cli/tests`.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod dependencies;
mod documents;
mod encoder;
mod family_text;
mod fuzz_corpus;
#[path = "../../../fuzz/targets/limits.rs"]
#[allow(unreachable_pub, reason = "shared with the fuzzer, whose programs are other crates")]
mod limits;
mod maskbench;
mod request_corpus;
