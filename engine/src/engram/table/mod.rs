//! Tables: the format of their files, how one is built, merged, pruned and published, and how many are asked at once.
//!
//! A table says what followed a context how often. Nothing here knows requests, documents or how far a table is
//! believed.

mod build;
mod check;
mod error;
mod filter;
mod format;
mod long;
mod lookup;
mod merge;
mod ngrams;
mod opened;
mod prior;
mod prune;
mod publish;
mod record;

pub use build::{BuildError, BuildOptions, build};
pub use check::OrderStats;
pub use error::{TableError, TableProblem};
pub use filter::{Filter, TableBits};
pub use format::{Image, TokenizerHash};
pub use lookup::{CONTINUATIONS_MAX, Found, Lookup, Member, PredictionRules, Query, lookup};
pub use merge::{MergeError, merge};
pub use ngrams::{Continuation, Continuations, Entry, Ngrams};
pub use opened::Table;
pub use prior::JointPrior;
pub use prune::{PruneRules, fade, prune};
pub use publish::publish;
