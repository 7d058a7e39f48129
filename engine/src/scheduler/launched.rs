//! What the scheduler remembers of a step from its launch to its outcome.

use super::sequence::Rank;
use super::speculation::{ExpectedStepTime, Proposal};
use crate::ids::{Micros, RequestId, StepId};

/// What to expect back from a step.
#[derive(Debug)]
pub(super) struct LaunchedStep {
    pub(super) id: StepId,
    pub(super) pieces: Vec<LaunchedPiece>,
    /// `None` where it has more than decode rows, and while nobody knows what steps take.
    pub(super) expected: Option<ExpectedStepTime>,
    pub(super) launched: Micros,
    pub(super) prompt_rows: u32,
    /// Requests were left waiting when it was planned.
    pub(super) left_waiting: bool,
    /// All of its rows are of idle work.
    pub(super) is_idle: bool,
}

/// What to expect back from one of its pieces.
#[derive(Debug)]
pub(super) struct LaunchedPiece {
    pub(super) rank: Rank,
    pub(super) request: RequestId,
    /// How many scores it reports.
    pub(super) scores: u32,
    /// How many sums of hidden states.
    pub(super) pooled: u32,
    /// The sequences that get its samples.
    pub(super) samples: Vec<Rank>,
    /// The prompt's end, and no output is wanted.
    pub(super) completes: bool,
    /// What was drafted, each with a sample of its own behind the first.
    pub(super) drafted: Option<Proposal>,
    /// It asks for guesses of the draft head.
    pub(super) guesses: bool,
    /// It has so many guesses of the piece before it as drafts, or as many as there are: which, that one's outcome tells.
    pub(super) follows: Option<u32>,
}
