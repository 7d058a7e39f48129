//! What the engine's library promises to those who use it: files are read or refused, and models compute what they
//! should. One binary, because each one is linked with the whole engine. Beside it stand `gpu` and `steps.rs`, which
//! are carried to a machine with a GPU, and `changed_files.rs`, which takes files away from under its process.

#![allow(clippy::unwrap_used, reason = "a test may panic anywhere")]

mod adapters;
mod bad_files;
mod blocks;
mod canonical;
mod converted;
mod drafts;
mod encoder;
mod families;
mod formats;
mod fuzz_corpus;
mod golden;
mod hugging_face;
mod load;
mod nano;
mod not_finite;
mod prefix;
#[path = "../support/mod.rs"]
mod support;
mod synth;
mod unread;
