//! Engram: n-gram tables over token ids that add knowledge at the sampler. A [`Table`] says what followed a context how
//! often; [`lookup()`] asks many tables for many sequences at once; [`Prediction`] backs off over orders; [`Mode`]
//! turns it into sparse changes of logits. `docs/using/engram.md` has the file format and the formulas.
//!
//! An n-gram's order is the length of its context: order 2 predicts a token from the two before it. Nothing here knows
//! requests, actors or text.

mod apply;
mod auto;
mod build;
mod checksum;
mod context;
mod documents;
mod error;
mod filter;
mod fit;
mod format;
mod hasher;
mod latest;
mod long;
mod lookup;
mod merge;
mod opening;
mod order;
mod pages;
mod predict;
mod prior;
mod prune;
mod publish;
mod recent;
mod recollection;
mod repeats;
mod request_tables;
mod share;
mod spelling;
mod strength;
mod table;
mod tracker;

#[cfg(test)]
mod tests;

pub use apply::{ALPHA_MAX, BIAS_NATS_MAX, LAMBDA_MAX, Mixing, Mode, ModeError, Strength};
pub use auto::{Auto, Level, Levels, Origin};
pub use build::{BuildError, BuildOptions, build};
pub use checksum::xxh64;
pub use context::Context;
pub use documents::{Documents, LongestMatch, Place};
pub use error::{TableError, TableProblem};
pub use filter::{Filter, TableBits};
pub use fit::Fit;
pub use format::{Image, TokenizerHash};
pub use latest::Latest;
pub use lookup::{CONTINUATIONS_MAX, Found, Lookup, Member, Query, lookup};
pub use merge::{MergeError, merge};
pub use opening::Opening;
pub use order::{Orders, OrdersError};
pub use predict::{Predicted, Prediction, PredictionRules};
pub use prior::JointPrior;
pub use prune::{PruneRules, fade, prune};
pub use publish::publish;
pub use recent::Recent;
pub use recollection::{Recalled, Recollection, recalled};
pub use repeats::{RUN_TOKENS, RUNS_REMEMBERED};
pub use request_tables::{RequestTables, Source, Tally, ThinkIds};
pub use spelling::{COMMON_IDS, WordStarts};
pub use strength::{CELLS_ALL, Cell, Evidence, Joint, SHARE_MAX, Strengths, StrengthsError, Witness, rareness};
pub use table::{Continuation, Continuations, Entry, Ngrams, OrderStats, Table};
pub use tracker::{Answered, Tracker};

/// The longest context of which a table has all that stood in its texts, in tokens.
pub const ORDER_MAX: usize = 8;
/// The longest context that is looked for in documents and in tables of version 3, in tokens.
pub const MATCH_MAX: usize = 32;
