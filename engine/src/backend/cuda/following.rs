//! What a step leaves for pieces that follow it before anybody has heard how many of its drafts count
//! ([`crate::step::Piece::follows`]): where on the device that is to be found, and for the host a place where it will be
//! told.

use super::error::CudaBackendError;
use super::rows::AskedAt;
use crate::ids::{SeqId, TokenId};
use crate::step::Piece;
use chimere_kernels::cuda::draft_head::BEHIND_WORDS;
use cudarc::driver::sys::CUdeviceptr;
use std::sync::{Arc, OnceLock};

/// What became of the pieces of a step that asked for guesses, in their order, once somebody has waited for it.
pub(super) type Settled = Arc<OnceLock<Vec<SettledPiece>>>;

/// How many drafts of a piece count, and what was guessed behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SettledPiece {
    pub(super) accepted: u32,
    pub(super) guesses: Vec<TokenId>,
}

/// The step before, as far as it asked for guesses.
pub(super) struct Leader {
    pub(super) asked: Vec<AskedAt>,
    /// Where the device finds what was guessed, and rows of a pass of guesses.
    pub(super) guessed: CUdeviceptr,
    pub(super) guess_rows: usize,
    pub(super) settled: Settled,
}

/// A piece of a leader, as the piece that follows it finds it.
#[derive(Clone, Debug)]
pub(super) struct Lead {
    asked: AskedAt,
    place: usize,
    settled: Settled,
}

impl Leader {
    /// What a piece follows.
    ///
    /// # Errors
    /// If there is no such piece, or it had other drafts or fewer guesses.
    pub(super) fn of(leader: Option<&Self>, piece: &Piece) -> Result<Lead, CudaBackendError> {
        let found = leader.and_then(|leader| Some((leader, leader.place_of(piece.seq)?)));
        let fits = |asked: &AskedAt| {
            Some(asked.drafts as u32) == piece.follows && asked.guesses as usize >= piece.drafts.len()
        };
        match found {
            Some((leader, place)) if fits(&leader.asked[place]) => {
                Ok(Lead { asked: leader.asked[place].clone(), place, settled: leader.settled.clone() })
            }
            _ => Err(CudaBackendError::Unsupported {
                what: "what a piece follows",
                got: found.map_or_else(|| "nothing".into(), |(leader, at)| format!("{:?}", leader.asked[at].words())),
                need: format!("{:?} drafts and {} guesses", piece.follows, piece.drafts.len()),
            }),
        }
    }

    fn place_of(&self, seq: SeqId) -> Option<usize> {
        self.asked.iter().position(|asked| asked.sample.seq == seq)
    }
}

impl Lead {
    /// How many drafts count, and what was guessed; `None` before somebody has waited for that step.
    pub(super) fn settled(&self) -> Option<&SettledPiece> {
        self.settled.get()?.get(self.place)
    }

    /// What the device is told of the `nth` row of the piece, whose state is stored behind `whole` positions and after
    /// every so many.
    pub(super) fn words(&self, nth: usize, (whole, every): (u32, usize)) -> [i32; BEHIND_WORDS] {
        let asked = &self.asked;
        let behind = [asked.decode_row(), asked.first_sample, asked.drafts, nth, self.place];
        let [row, first_sample, drafts, nth, place] = behind.map(|n| n as i32);
        [row, first_sample, drafts, nth, place, whole as i32, every as i32, 0]
    }
}
