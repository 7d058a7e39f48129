//! Runs of outputs of which a grammar leaves no choice: drafts that are certain, so that all of a run takes one step. They
//! need not wait for the token before them, as guesses do: what a run was told for had that token already.

use crate::constraint::grammar::ForcedRun;
use crate::ids::TokenId;
use crate::scheduler::Scheduler;
use crate::scheduler::drafter::Offer;

/// The run that a sequence was told of last. It is a function of the outputs before it, so it stays true whatever
/// becomes of the sequence.
#[derive(Clone, Debug, Default)]
pub(in crate::scheduler) struct KnownRun {
    /// The number of the first output.
    output: u32,
    tokens: Vec<TokenId>,
}

impl KnownRun {
    /// What it says of output `index` and those that follow.
    fn from(&self, index: u32) -> &[TokenId] {
        index.checked_sub(self.output).and_then(|at| self.tokens.get(at as usize..)).unwrap_or_default()
    }
}

impl Scheduler {
    /// Does it use runs, so that a plan is better made once they are known?
    pub fn takes_runs(&self) -> bool {
        self.drafting.takes_runs()
    }

    /// A grammar leaves no choice of these outputs. Of a sequence that has ended it means nothing.
    pub fn note_run(&mut self, run: ForcedRun) {
        let ForcedRun { seq, output, tokens } = run;
        if let Some(known) = self.running.iter_mut().find(|of| of.rank.seq == seq) {
            known.run = KnownRun { output, tokens };
        }
    }

    /// What may be drafted behind the tokens that a sequence has or asked for, because nothing else may come.
    pub(super) fn run(&self, at: usize) -> Option<Offer> {
        let seq = &self.running[at];
        if !self.takes_runs() || !seq.request.spec.drafts || !seq.rules.may_run() {
            return None;
        }
        // The last token has no row, so one of those that are left needs no draft.
        let left = seq.output_max.saturating_sub(seq.sampled() + 1) as usize;
        let tokens = seq.run.from(seq.sampled());
        let most = left.min(self.drafting.sources.max).min(tokens.len());
        (most > 0).then(|| Offer::certain(tokens[..most].to_vec()))
    }
}
