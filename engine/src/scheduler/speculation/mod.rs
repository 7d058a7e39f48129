//! Speculative decoding as far as it is numbers: who proposes tokens, how often the proposals were right, how many of
//! them are worth a row, and what they may lose. It knows no sequence; `plan/drafts.rs` and `plan/guesses.rs` apply it
//! to those that run.
//!
//! Proposers ([`crate::drafts`]) need to know the last token, so a sequence drafts only when none of its tokens is on
//! its way; where drafts are likely to pay, the next step waits for that. How many of the proposed tokens are worth a
//! row each is a pure function (`gate.rs`) of how often such proposals were right (`acceptance.rs`) and of how long
//! steps take.

mod acceptance;
mod budget;
mod gate;
mod proposal;
mod proposers;
mod run;
mod settings;
mod state;
mod trials;

pub(super) use budget::{ExpectedStepTime, ProposerClass};
pub(super) use proposal::Proposal;
pub use proposers::MakeSource;
pub(super) use proposers::SequenceProposers;
pub(super) use run::KnownRun;
pub use settings::{DraftSettings, DraftTotals};
pub(super) use state::{DecodeRows, RoomBeside, Speculation};
