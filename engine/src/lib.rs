//! Tokens in, tokens out: the scheduler, the caches, the model formats and the backends of Chimère.
//!
//! Text, HTTP, actors and clocks live in the `chimere` crate; nothing here is asynchronous. The three calls that matter
//! are
//! `Scheduler::plan`, [`backend::Backend::launch`] and `Scheduler::commit`, and only the middle one touches a device.

pub mod adapter;
pub mod backend;
mod cache;
pub mod constraint;
pub mod drafts;
pub mod encoder;
pub mod engram;
pub mod files;
pub mod format;
mod hasher;
pub mod ids;
mod lines;
pub mod model;
pub mod quantize;
pub mod sampling;
pub mod scheduler;
pub mod step;

pub use cache::{ExpertPlace, ExpertPlaces, ExpertUses, Going, expert_reserves};

/// Tokens in one page of the KV cache.
pub const PAGE_TOKENS: u32 = 32;
/// Prompts are computed in pieces that end at absolute multiples of this, or at the prompt's end.
pub const CHUNK_TOKENS: u32 = 64;

const _: () = assert!(PAGE_TOKENS.is_power_of_two(), "kernels index pages by shift");
const _: () = assert!(CHUNK_TOKENS.is_multiple_of(PAGE_TOKENS), "a prompt piece starts on a page");
