//! Engram: n-gram tables over token ids that add knowledge at the sampler. A [`Table`] says what followed a context how
//! often; [`lookup()`] asks many tables for many sequences at once; [`Prediction`] backs off over orders; [`Mode`]
//! turns it into sparse changes of logits. `docs/using/engram.md` has the formulas, `docs/reference/engram-file.md` the
//! format of a file.
//!
//! An n-gram's order is the length of its context: order 2 predicts a token from the two before it. Nothing here knows
//! requests, actors or text.

mod apply;
mod checksum;
mod context;
mod fit;
mod latest;
mod matching;
mod order;
mod pages;
mod predict;
mod request_tables;
mod share;
mod table;
mod tracker;

#[cfg(test)]
mod tests;

pub use apply::{ALPHA_MAX, BIAS_NATS_MAX, LAMBDA_MAX, Mixing, Mode, ModeError, Strength};
pub use checksum::xxh64;
pub use context::Context;
pub use fit::{
    Auto, CELLS_ALL, Cell, Evidence, Fit, Joint, Level, Levels, Origin, SHARE_MAX, Strengths, StrengthsError, Witness,
    rareness,
};
pub use latest::Latest;
pub use matching::{
    COMMON_IDS, Documents, LongestMatch, Opening, Place, RUN_TOKENS, RUNS_REMEMBERED, Recalled, Recent, Recollection,
    WordStarts, recalled,
};
pub use order::{MATCH_MAX, ORDER_MAX, Orders, OrdersError};
pub use predict::{Predicted, Prediction};
pub use request_tables::{RequestTables, Source, Tally, ThinkIds};
pub use table::{
    BuildError, BuildOptions, CONTINUATIONS_MAX, Continuation, Continuations, Entry, Filter, Found, Image, JointPrior,
    Lookup, Member, MergeError, Ngrams, OrderStats, PredictionRules, PruneRules, Query, Table, TableBits, TableError,
    TableProblem, TokenizerHash, build, fade, lookup, merge, prune, publish,
};
pub use tracker::{TableAnswer, TableSequence, TableTracker};
