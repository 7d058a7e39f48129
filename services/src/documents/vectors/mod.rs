//! Vectors of the passages of stores: which file waits for its own, how they are kept, and how far a store believes
//! them. Who makes them is not here.

mod making;
mod testing;

pub use making::VectorJob;
pub use testing::{DueStoreTest, StoreProbe, TestTurn};

#[cfg(test)]
mod tests;
