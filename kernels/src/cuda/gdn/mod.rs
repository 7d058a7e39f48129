//! Mixers of Gated DeltaNet layers: one token of each sequence, or pieces of prompts in chunks.

pub mod decode;
pub mod pieces;
pub mod prefill;
