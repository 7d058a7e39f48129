//! Pieces that follow a step whose outcome was not known when they were planned ([`Piece::follows`]), for a backend that
//! knows it when it computes them.

use super::BackendError;
use crate::ids::{SeqId, TokenId};
use crate::step::{Piece, StepOutcome, StepPlan};

/// What a step left of the pieces that asked for guesses.
#[derive(Debug, Default)]
pub struct Followed {
    pieces: Vec<(SeqId, u32, Vec<TokenId>)>,
}

impl Followed {
    /// Of a step of these pieces.
    pub fn of(pieces: &[Piece], outcome: &StepOutcome) -> Self {
        let (mut accepted, mut guesses) = (outcome.accepted.iter(), outcome.guesses.iter());
        let mut all = Vec::new();
        for piece in pieces {
            let right = if piece.drafts.is_empty() { Some(&0) } else { accepted.next() };
            let guessed = if piece.guesses > 0 { guesses.next() } else { None };
            all.extend(right.zip(guessed).map(|(right, guessed)| (piece.seq, *right, guessed.clone())));
        }
        Self { pieces: all }
    }

    /// The plan with all that it left open; `None` where nothing is.
    ///
    /// # Errors
    /// If a piece follows one that asked for no guesses, or had other drafts.
    pub fn settle(&self, plan: &StepPlan) -> Result<Option<StepPlan>, BackendError> {
        if plan.pieces.iter().all(|piece| piece.follows.is_none()) {
            return Ok(None);
        }
        let mut settled = plan.clone();
        for piece in &mut settled.pieces {
            let Some(drafts) = piece.follows.take() else { continue };
            let left = self.pieces.iter().find(|(seq, right, _)| *seq == piece.seq && *right <= drafts);
            let Some((_, right, guesses)) = left else {
                let why = format!("sequence {} follows a piece with {drafts} drafts that was not there", piece.seq);
                return Err(BackendError::Plan { step: plan.id, why });
            };
            piece.start += right;
            piece.drafts = guesses.iter().copied().take(piece.drafts.len()).collect();
            piece.samples.truncate(piece.drafts.len() + 1);
            piece.samples.iter_mut().for_each(|row| row.output_index += right);
        }
        Ok(Some(settled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{SlotId, StepId};
    use crate::sampling::SamplingParams;
    use crate::step::{Form, PieceTokens, SampleRow, StateStart};
    use std::sync::Arc;

    fn piece(drafts: usize, follows: Option<u32>) -> Piece {
        let row =
            SampleRow { output_index: 4, ..SampleRow::new(SeqId(1), SlotId(0), Arc::new(SamplingParams::greedy())) };
        Piece {
            seq: SeqId(1),
            slot: SlotId(0),
            state: StateStart::Continue,
            form: Form::Recurrent,
            start: 9,
            tokens: PieceTokens::Sampled,
            drafts: vec![0; drafts],
            guesses: 2,
            pages: Vec::new(),
            prompt_len: 4,
            samples: vec![row; drafts + 1],
            score: None,
            experts: None,
            adapter: None,
            follows,
            ends: Arc::default(),
            pool_from: None,
            exports: Vec::new(),
        }
    }

    #[test]
    fn a_piece_goes_on_behind_what_counts_with_the_guesses_as_drafts() {
        let outcome = StepOutcome { accepted: vec![2], guesses: vec![vec![7, 8]], ..StepOutcome::default() };
        let followed = Followed::of(&[piece(3, None)], &outcome);
        let settle = |piece| followed.settle(&StepPlan::new(StepId(2), vec![piece]));
        assert!(settle(piece(1, None)).unwrap().is_none());
        let settled = settle(piece(1, Some(3))).unwrap().unwrap();
        let [got] = &settled.pieces[..] else { panic!("one piece") };
        // Both rows were planned as output 4 here.
        let indices: Vec<_> = got.samples.iter().map(|row| row.output_index).collect();
        assert_eq!((got.start, &got.drafts[..], indices, got.follows), (11, &[7][..], vec![6, 6], None));
        let more = settle(piece(3, Some(3))).unwrap().unwrap();
        assert_eq!(
            (&more.pieces[0].drafts[..], more.pieces[0].samples.len()),
            (&[7, 8][..], 3),
            "as many as were guessed"
        );
        assert!(settle(piece(1, Some(1))).is_err(), "fewer drafts than count");
        assert!(Followed::default().settle(&StepPlan::new(StepId(2), vec![piece(1, Some(3))])).is_err());
    }
}
