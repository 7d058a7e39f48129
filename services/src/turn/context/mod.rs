//! What is put into a conversation before its question: examples from a collection, passages from stores of files; as
//! many as leave room for the answer.

mod examples;
mod file_search;
mod fit;

pub(super) use examples::with_examples;
pub(super) use file_search::with_passages;
