//! One row of a guessing pass, and which sequences have one.

use crate::backend::cpu::pass::batch::HeadPiece;
use crate::backend::cpu::sampler::history::History;
use crate::backend::cpu::step::head::GuessRequest;
use crate::backend::cpu::store::{PAGE, Slot};
use crate::ids::TokenId;
use crate::sampling::SamplingParams;
use crate::step::SampleRow;
use std::sync::Arc;

/// One row of a guessing pass: the token that it reads, and how its guess is sampled.
pub(crate) struct GuessRow<'a> {
    request: &'a GuessRequest,
    /// Place among all requests of the step.
    pub(super) place: usize,
    token: [TokenId; 1],
    position: usize,
    from: usize,
    pub(super) sample: SampleRow,
    pub(super) history: History,
}

impl<'a> GuessRow<'a> {
    /// The row of a sequence in the pass after those that guessed `before`, if the sequence wants that many guesses,
    /// its pages and the `context` reach so far, and it goes on.
    pub(crate) fn of(
        (place, request): (usize, &'a GuessRequest),
        slot: &Slot,
        before: &[TokenId],
        context: usize,
    ) -> Option<Self> {
        let n = before.len() as u32;
        let position = request.position as usize + slot.unfolded + 1 + before.len();
        let fits = position < request.pages.len() * PAGE && position < context;
        let sampled = slot.sampled.filter(|_| n < request.guesses && fits)?;
        let token = before.last().copied().unwrap_or(sampled);
        if request.ends.contains(&token) {
            return None;
        }
        let output_index = request.row.output_index + slot.unfolded as u32 + 1 + n;
        let mut history = History::default();
        if request.row.params.reads_history() {
            history = slot.history.clone();
            [sampled].iter().chain(before).for_each(|token| history.push_output(*token));
        }
        let SampleRow { seq, slot: into, choice, .. } = request.row;
        let params = unreported(&request.row.params);
        let sample = SampleRow { output_index, choice, ..SampleRow::new(seq, into, params) };
        Some(Self { request, place, token: [token], position, from: slot.head.from, sample, history })
    }

    /// The row as a piece of the pass's batch.
    pub(crate) fn piece(&self) -> HeadPiece<'_> {
        let Self { request, token, position, from, sample, .. } = self;
        HeadPiece {
            seq: sample.seq,
            slot: request.slot,
            start: *position,
            from: *from,
            tokens: token,
            pages: &request.pages,
        }
    }
}

/// The parameters without what is reported beside the token, which nobody reads of a guess.
fn unreported(params: &Arc<SamplingParams>) -> Arc<SamplingParams> {
    if params.logprobs.is_some() || params.certainty {
        Arc::new(SamplingParams { logprobs: None, certainty: false, report: false, ..(**params).clone() })
    } else {
        params.clone()
    }
}
