//! What a sequence has said last, and what that matches beside tables: a request's documents, sentences that answer in
//! other words or that an answer may begin with, and what the sequence itself has said before.
//!
//! A match says which token may come next. How far it is believed is for `fit/` to say.

mod documents;
mod opening;
mod recent;
mod recollection;
mod repeats;
mod spelling;

pub use documents::{Documents, LongestMatch, Place};
pub use opening::Opening;
pub use recent::Recent;
pub use recollection::{Recalled, Recollection, recalled};
pub(in crate::engram) use repeats::Repeats;
pub use repeats::{RUN_TOKENS, RUNS_REMEMBERED};
pub use spelling::{COMMON_IDS, WordStarts};
