//! Everything of tables that a running service needs, in one value.

use super::keeper::Keeper;
use super::tables::Tables;
use super::teacher::Teacher;
use crate::text::Fingerprint;
use chimere_engine::engram::{Strengths, WordStarts};
use std::sync::Arc;

/// The part of the service that requests with tables need.
pub struct EngramParts {
    /// The tables that requests can name.
    pub tables: Arc<Tables>,
    /// Where what they are taught goes first; `None` without a directory.
    pub teacher: Option<Arc<Teacher>>,
    /// Passes on what was written there.
    pub keeper: Keeper,
    /// What is learned is at least this good, 0 to 1.
    pub quality_min: f64,
    /// What the tokenizer's ids mean.
    pub ids: Fingerprint,
    /// Which of them begin words.
    pub words: Arc<WordStarts>,
    /// How far a match is believed, where no strength is given.
    pub strengths: Arc<Strengths>,
}
