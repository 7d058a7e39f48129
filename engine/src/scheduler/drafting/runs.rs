//! Runs of outputs that write the only text which a grammar allows: drafts that are wrong only where the model writes
//! that text in other tokens. They need not wait for the token before them, as other guesses do: what a run was told
//! for was the text behind that token already.

use crate::constraint::grammar::ForcedRun;
use crate::ids::TokenId;
use crate::scheduler::Scheduler;
use crate::scheduler::drafter::Offer;

/// The run that a sequence was told of last, as long as its outputs keep to it. It is a function of the outputs before
/// it, so it stays true whatever becomes of the sequence.
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

    /// Output `index` is this token: if it is another than that of the run, what stands behind it says nothing.
    pub(in crate::scheduler) fn hear(&mut self, index: u32, token: TokenId) {
        if self.from(index).first().is_some_and(|of_run| *of_run != token) {
            self.tokens.clear();
        }
    }
}

impl Scheduler {
    /// Does it use runs, so that a plan is better made once they are known?
    pub fn takes_runs(&self) -> bool {
        self.drafting.takes_runs()
    }

    /// A grammar allows one text only, which these outputs write. Of a sequence that has ended it means nothing.
    pub fn note_run(&mut self, run: ForcedRun) {
        let ForcedRun { seq, output, tokens } = run;
        if let Some(known) = self.running.iter_mut().find(|of| of.rank.seq == seq) {
            known.run = KnownRun { output, tokens };
        }
    }

    /// What may be drafted behind the tokens that a sequence has or asked for, because no other text may come.
    pub(super) fn run(&mut self, at: usize) -> Option<Offer> {
        let Self { running, drafting, .. } = self;
        let seq = &mut running[at];
        if !drafting.takes_runs() || !drafting.takes(seq) || !seq.rules.may_run() {
            return None;
        }
        let first = seq.sampled();
        // The last token has no row, so one of those that are left needs no draft.
        let left = seq.output_max.saturating_sub(first + 1) as usize;
        let tokens = seq.run.from(first);
        let tokens = tokens[..left.min(drafting.sources.max).min(tokens.len())].to_vec();
        (!tokens.is_empty()).then(|| seq.drafter.offer_run(first, tokens, &drafting.sources))
    }
}
