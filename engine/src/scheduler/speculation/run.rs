//! Runs of outputs that write the only text which a grammar allows: drafts that are wrong only where the model writes
//! that text in other tokens. They need not wait for the token before them, as other guesses do: what a run was told
//! for was the text behind that token already.

use crate::constraint::grammar::ForcedRun;
use crate::ids::TokenId;

/// The run that a sequence was told of last, as long as its outputs keep to it. It is a function of the outputs before
/// it, so it stays true whatever becomes of the sequence.
#[derive(Clone, Debug, Default)]
pub(in crate::scheduler) struct KnownRun {
    /// The number of the first output.
    output: u32,
    tokens: Vec<TokenId>,
}

impl KnownRun {
    /// Outputs that a grammar leaves no choice of.
    pub(in crate::scheduler) fn of(run: ForcedRun) -> Self {
        Self { output: run.output, tokens: run.tokens }
    }

    /// What it says of output `index` and those that follow.
    pub(in crate::scheduler) fn from(&self, index: u32) -> &[TokenId] {
        index.checked_sub(self.output).and_then(|at| self.tokens.get(at as usize..)).unwrap_or_default()
    }

    /// Output `index` is this token: if it is another than that of the run, what stands behind it says nothing.
    pub(in crate::scheduler) fn record_token(&mut self, index: u32, token: TokenId) {
        if self.from(index).first().is_some_and(|of_run| *of_run != token) {
            self.tokens.clear();
        }
    }
}
