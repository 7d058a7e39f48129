//! Collections of texts that are found by what they mean and say: each account's own, kept in a database and searched
//! in memory. Where vectors come from is not here.

mod collections;
mod error;
mod index;
mod store;
mod words;

pub use collections::{Collections, Info, Settings};
pub use error::CollectionError;
pub use index::{By, CollectionQuery, FoundItem, Index, Item};
