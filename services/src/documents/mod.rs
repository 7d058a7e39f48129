//! An account's documents: files as they were uploaded, their texts, and stores that are searched for passages. HTTP is
//! not here, and neither is the model that may make vectors.

mod passage;

pub use passage::Passage;
