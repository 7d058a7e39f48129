//! The part of a deferred source that is its own: how it begins with a sequence, and what it reports of an answer.

use chimere_engine::constraint::grammar::ForcedRun;
use chimere_engine::constraint::{DeferredTracker, Source, StepRules, TrackedSequence};
use chimere_engine::ids::{SeqId, TokenId};
use std::time::Duration;

/// Plain code that an actor owns: it tracks sequences and answers steps.
pub trait DeferredSource: Unpin + 'static {
    /// What it knows of a sequence.
    type Sequence: TrackedSequence;

    /// What it is told of a request.
    type Rules: Clone + Send + 'static;

    /// The source whose rules it says.
    const SOURCE: Source = <Self::Sequence as TrackedSequence>::SOURCE;
    /// It answers sooner than its thread takes to wake, so it is woken once a step: it hears of steps with the tokens
    /// that these wait for, and the scheduler actor hears of its answers when the step is done.
    const QUICK: bool;

    /// The sequences that use it.
    fn tracker(&mut self) -> &mut DeferredTracker<Self::Sequence>;

    /// Begins with the sequence of a request's choice of this number, which has its prompt and no output.
    fn begin(&self, seq: SeqId, choice: u32, prompt: &[TokenId], rules: &Self::Rules) -> Self::Sequence;

    /// Tells the metrics of an answer and of the time that it took, and gives what the actors need of it.
    fn report(&mut self, answer: <Self::Sequence as TrackedSequence>::Answer, took: Duration) -> DeferredAnswer;
}

/// What the actors need of a source's answer to a step.
pub struct DeferredAnswer {
    /// Rules of the source for the step.
    pub rules: StepRules,
    /// Sequences that cannot go on, and why.
    pub failed: Vec<(SeqId, String)>,
    /// Outputs of which there is no choice.
    pub forced: Vec<ForcedRun>,
}
