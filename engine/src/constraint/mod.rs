//! What may be said next: several sources have rules about it, and one lattice composes them for each row that is
//! sampled.
//!
//! A [`Source`] says [`Rule`]s; [`Constraint::of`] composes the rules of a row, whoever said them and whenever they
//! came, and a backend applies the one [`Constraint`] that results. How rules combine, in which order sources yield,
//! and which tokens each source reads stands in `docs/internals/constraints.md`, and so does what a new source needs.
//!
//! `lattice.rs` composes. `sequence.rs` has the sources that the scheduler asks when it plans a row, `thinking.rs`
//! among them; `deferred.rs` tracks the sequences of the others, whose rows wait: [`crate::engram::TableSequence`] is
//! what tables know of a sequence, and [`grammar::GrammarSequence`] what grammars know of it.

mod deferred;
pub mod grammar;
mod lattice;
mod sequence;
pub mod thinking;

pub use deferred::{Awaiting, DeferredTracker, RowRule, StepRules, Tracked, TrackedSequence};
pub use lattice::Constraint;
pub(crate) use sequence::SequenceRules;

use crate::ids::TokenId;
use std::sync::Arc;

/// A source of rules about what may come next. The sources stand in the order of precedence: where the rules of two
/// leave no token in common, the later one yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A token that has to come, as those that close a thought.
    Forced,
    /// A grammar that the output keeps to.
    Grammar,
    /// No end before so many tokens.
    MinTokens,
    /// Words that are held back while a thought is certain.
    HeldWords,
    /// Tables of n-grams. They forbid nothing, so they never yield.
    Tables,
}

impl Source {
    /// All sources, in the order of precedence.
    pub const ALL: [Self; 5] = [Self::Forced, Self::Grammar, Self::MinTokens, Self::HeldWords, Self::Tables];

    /// The name of the source in replies and metrics: one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forced => "forced",
            Self::Grammar => "grammar",
            Self::MinTokens => "min_tokens",
            Self::HeldWords => "held_words",
            Self::Tables => "tables",
        }
    }

    /// How far before an output the last token stands that the source's rules for it depend on; `None` if they depend
    /// on the output's number alone.
    pub const fn reads(self) -> Option<u32> {
        match self {
            Self::Forced | Self::HeldWords => Some(thinking::LAG),
            Self::Grammar | Self::Tables => Some(1),
            Self::MinTokens => None,
        }
    }

    /// Whether its rules are deferred, so that rows wait for them: it reads the token just before, which is still on
    /// the device when the row is planned.
    pub const fn is_deferred(self) -> bool {
        matches!(self.reads(), Some(1))
    }
}

/// A set of sources.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Sources(u8);

impl Sources {
    /// The set without a source.
    pub const NONE: Self = Self(0);

    /// The set of this source alone.
    pub const fn only(source: Source) -> Self {
        Self(1 << source as u8)
    }

    /// The sources that are in one of the sets or in both.
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// The sources of this set that are not in `others`.
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Whether this source is in the set.
    pub const fn contains(self, source: Source) -> bool {
        self.0 & Self::only(source).0 != 0
    }

    /// Whether no source is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Its sources in the order of precedence.
    pub fn iter(self) -> impl Iterator<Item = Source> {
        Source::ALL.into_iter().filter(move |source| self.contains(*source))
    }
}

impl FromIterator<Source> for Sources {
    fn from_iter<I: IntoIterator<Item = Source>>(sources: I) -> Self {
        sources.into_iter().fold(Self::NONE, |all, source| all.with(Self::only(source)))
    }
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// What one source says about one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The source that says it.
    pub source: Source,
    /// The effect on the tokens that may come.
    pub effect: Effect,
}

/// What a rule does to the choice of a token.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// This token comes, whatever the logits say.
    Force(TokenId),
    /// Only these tokens may come: bit `id % 32` of word `id / 32`. Words that are not there allow nothing.
    Allow(Arc<[u32]>),
    /// These tokens may not come.
    Forbid(Arc<[TokenId]>),
    /// Added to logits after the penalties; no token stands in it twice. Ids that rise are the quick case.
    Bias(Vec<(TokenId, f32)>),
    /// Mixed in after all biases, before the temperature: a listed token's logit l becomes ln(e^l + weight * e^LSE),
    /// LSE the log-sum-exp of all logits by then. With lambda / (1 - lambda) * p as weights, tokens are drawn from (1 -
    /// lambda) p_model + lambda p. No token stands in it twice.
    Mix(Vec<(TokenId, f32)>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_wait_for_the_sources_that_read_the_token_just_before_and_for_no_others() {
        let deferred: Vec<_> = Source::ALL.into_iter().filter(|source| source.is_deferred()).collect();
        assert_eq!(deferred, [Source::Grammar, Source::Tables]);
        assert_eq!([Source::Forced, Source::HeldWords].map(Source::reads), [Some(2); 2]);
        assert_eq!(Source::MinTokens.reads(), None);
    }

    #[test]
    fn a_set_of_sources_names_them_in_the_order_of_precedence() {
        let set: Sources = [Source::Tables, Source::Forced].into_iter().collect();
        assert_eq!(set.iter().map(Source::name).collect::<Vec<_>>(), ["forced", "tables"]);
        assert!(set.contains(Source::Tables) && !set.contains(Source::Grammar));
        assert_eq!(set.without(Sources::only(Source::Forced)), Sources::only(Source::Tables));
        assert!(set.without(set).is_empty() && Sources::NONE.with(set) == set);
        assert!(Source::ALL.is_sorted(), "they are listed in their order");
    }
}
