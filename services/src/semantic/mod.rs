//! Collections of texts that are found by what they mean and say: each account's own, kept in a database and searched
//! in memory. Where vectors come from is not here.

mod collections;
mod error;
mod fusion;
mod index;
mod legs;
mod self_test;
mod store;
mod words;

pub use collections::{By, Collections, DueTest, Info, SentenceProbe, Settings};
pub use error::CollectionError;
pub use index::{CollectionQuery, FoundItem, Index, Item, ProbeQuery, Ranking};
pub use self_test::{FoundAt, Hits, SelfTest};

pub(crate) use fusion::fused;
pub(crate) use legs::{Centred, Nearest, best, blend, found_with, share};
pub(crate) use self_test::{SENTENCES_MAX, is_due, order, taken_out};
pub(crate) use words::WordIndex;
