//! What a step leaves for pieces that follow it before anybody has heard how many of its drafts count
//! ([`crate::step::Piece::follows`]): where on the device that is to be found, and for the host a place where it will
//! be told.

use crate::PAGE_TOKENS;
use crate::backend::cuda::error::{CudaBackendError, CudaResult};
use crate::ids::{SeqId, SlotId, TokenId};
use crate::step::{Piece, SampleRow};
use chimere_kernels::cuda::draft_head::BEHIND_WORDS;
use cudarc::driver::sys::CUdeviceptr;
use std::sync::{Arc, OnceLock};

/// What a row's place is in the step's two groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowPlace {
    /// Row of the last decode pass.
    Decode(usize),
    /// Row of the prefill.
    Prefill(usize),
}

/// A piece behind whose samples the draft head guesses.
#[derive(Clone, Debug)]
pub(crate) struct AskedAt {
    /// Its first sampled row.
    pub(crate) place: RowPlace,
    /// Slot of the piece's sequence.
    pub(crate) slot: SlotId,
    /// The sample of that row.
    pub(crate) first_sample: usize,
    pub(crate) drafts: usize,
    /// Position of the first sampled row.
    pub(crate) position: u32,
    /// The first position that the piece's pages do not reach.
    pub(crate) limit: u32,
    pub(crate) guesses: u32,
    pub(crate) sample: SampleRow,
}

impl AskedAt {
    pub(crate) fn of(piece: &Piece, place: RowPlace, first_sample: usize, sample: SampleRow) -> Self {
        let (position, limit) = (piece.start + piece.certain() - 1, piece.pages.len() as u32 * PAGE_TOKENS);
        let (slot, drafts, guesses) = (piece.slot, piece.drafts.len(), piece.guesses);
        Self { place, slot, first_sample, drafts, position, limit, guesses, sample }
    }

    /// As the device reads it ([`chimere_kernels::cuda::draft_head::GuessingRows::asked`]).
    pub(crate) fn words(&self) -> [i32; 4] {
        let (first, third) = match self.place {
            RowPlace::Decode(row) => (row as i32, self.drafts as i32),
            RowPlace::Prefill(_) => (!(self.slot.0 as i32), self.position as i32),
        };
        [first, self.first_sample as i32, third, self.limit as i32]
    }

    /// Its first row in the step's decode pass; behind a prompt's end any, for it has no drafts that would be looked up
    /// there.
    pub(crate) fn decode_row(&self) -> usize {
        if let RowPlace::Decode(row) = self.place { row } else { 0 }
    }

    /// How many guesses there is room for behind so many accepted drafts.
    pub(crate) fn room(&self, accepted: u32) -> usize {
        self.guesses.min(self.limit.saturating_sub(self.position + accepted + 1)) as usize
    }
}

/// What became of the pieces of a step that asked for guesses, in their order, once somebody has waited for it.
pub(crate) type Settled = Arc<OnceLock<Vec<SettledPiece>>>;

/// How many drafts of a piece count, and what was guessed behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SettledPiece {
    pub(crate) accepted: u32,
    pub(crate) guesses: Vec<TokenId>,
}

/// The step before, as far as it asked for guesses.
pub(crate) struct Leader {
    pub(crate) asked: Vec<AskedAt>,
    /// Where the device finds what was guessed, and rows of a pass of guesses.
    pub(crate) guessed: CUdeviceptr,
    pub(crate) guess_rows: usize,
    pub(crate) settled: Settled,
}

/// A piece of a leader, as the piece that follows it finds it.
#[derive(Clone, Debug)]
pub(crate) struct Lead {
    asked: AskedAt,
    place: usize,
    settled: Settled,
}

impl Leader {
    /// What a piece follows.
    ///
    /// # Errors
    /// If there is no such piece, or it had other drafts or fewer guesses.
    pub(crate) fn of(leader: Option<&Self>, piece: &Piece) -> CudaResult<Lead> {
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
    pub(crate) fn settled(&self) -> Option<&SettledPiece> {
        self.settled.get()?.get(self.place)
    }

    /// What the device is told of the `nth` row of the piece, whose state is stored behind `whole` positions and after
    /// every so many.
    pub(crate) fn words(&self, nth: usize, (whole, every): (u32, usize)) -> [i32; BEHIND_WORDS] {
        let asked = &self.asked;
        let behind = [asked.decode_row(), asked.first_sample, asked.drafts, nth, self.place];
        let [row, first_sample, drafts, nth, place] = behind.map(|n| n as i32);
        [row, first_sample, drafts, nth, place, whole as i32, every as i32, 0]
    }
}
