//! What is put into a conversation before its question: examples from a collection, passages from stores of files; as
//! many as leave room for the answer. What the model itself searches for comes into its later rounds by the same way.

mod examples;
mod file_search;
mod fit;

pub(super) use examples::with_examples;
pub(super) use file_search::{BETWEEN, best_passages, numbered_passages, stores_exist, with_passages};
pub(super) use fit::room;
