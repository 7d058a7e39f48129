//! Rules on their way: what a source says about the rows that wait for it, once it has read the token just before them.

use super::{Effect, Source};
use crate::ids::{SeqId, StepId};

/// What one late source says about the rows of one step: all that it has to say, so an empty list frees the rows too.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRules {
    /// Which step.
    pub step: StepId,
    /// Who says it.
    pub source: Source,
    /// In any order; a row may have several entries or none.
    pub rows: Vec<RowRule>,
}

impl StepRules {
    /// The source says nothing about any row.
    pub fn silent(step: StepId, source: Source) -> Self {
        Self { step, source, rows: Vec::new() }
    }
}

/// A rule about one sampled row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowRule {
    /// The sequence that gets the token.
    pub seq: SeqId,
    /// How many tokens it has before this one: with it a row is named also where a sequence has several in a step.
    pub output: u32,
    /// What the rule does.
    pub effect: Effect,
}
