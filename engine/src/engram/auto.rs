//! A strength that nobody gives: every match says how far it is believed, by what is known about it.
//!
//! Matches are asked from the longest to the shortest. Each takes its lambda of what those before it have left, and
//! what none of them takes is the model's: with pi_k = lambda_k (1 - lambda_1) .. (1 - lambda_(k-1)), tokens are drawn
//! from sum_k pi_k c_k(t) / N_k + (1 - sum_k pi_k) p_model(t). That is Jelinek and Mercer's deleted interpolation with
//! the model as the last order.

use super::documents::{Documents, LongestMatch, Place};
use super::lookup::Found;
use super::predict::PredictionRules;
use super::recent::Recent;
use super::recollection::{Recalled, Recollection, recalled};
use super::spelling::WordStarts;
use super::strength::{Cell, Evidence, Joint, Strengths, Witness, rareness};
use super::{MATCH_MAX, ORDER_MAX};
use crate::ids::TokenId;
use std::ops::Range;
use std::sync::Arc;

/// Places behind one context that are counted; a context that stands more often says little anyway.
const PLACES_MAX: usize = 4096;
/// Words from which on a context, if it has a name too, says one thing: two documents that go on otherwise contradict
/// each other.
const STATEMENT_WORDS: u32 = 3;
/// The model keeps at least this share of every position.
const REST_MIN: f64 = 0.02;
/// Weights below this change nothing that could be seen.
const WEIGHT_MIN: f64 = 1e-6;

/// What a request whose strength is computed brings.
#[derive(Clone)]
pub struct Auto {
    /// Lambda of every kind of match.
    pub strengths: Arc<Strengths>,
    /// Which tokens begin words.
    pub words: Arc<WordStarts>,
    /// The request's own texts.
    pub documents: Option<Arc<Documents>>,
    /// What they say of the question in other words.
    pub recollections: Vec<Recollection>,
}

/// Where a token comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A document said it here; another document, which came earlier, says something else there.
    Document(Place, Option<Place>),
    /// One of the tables, after a context of this many tokens.
    Tables(usize),
}

/// One match and what it expects.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Which lambda is its.
    pub cell: Cell,
    /// Tokens of the context; 0 where it was not the last ones that matched.
    pub len: usize,
    /// Where its expectations come from.
    pub origin: Origin,
    /// Part of [`Levels::expected`].
    expected: Range<usize>,
}

/// Where a level's counts come from.
struct Matched<'a> {
    witness: Witness,
    /// Words of the context.
    words: u32,
    context: &'a [TokenId],
    /// How often the context stands somewhere, N.
    occurrences: u64,
    /// Of how many of these the counts are.
    looked_at: u64,
    origin: Origin,
}

/// All matches of one position, the most trusted first. Made once and filled again and again.
#[derive(Debug, Default)]
pub struct Levels {
    levels: Vec<Level>,
    /// (token, c / N) of all levels.
    expected: Vec<(TokenId, f64)>,
    counts: Vec<(TokenId, u32)>,
}

impl Levels {
    /// Fills in what is known at one position: `found` as the tables have answered, shortest contexts first.
    pub fn fill<'f>(
        &mut self,
        auto: &Auto,
        recent: &Recent,
        found: impl Iterator<Item = Found<'f>> + Clone,
        rules: PredictionRules,
    ) {
        self.levels.clear();
        self.expected.clear();
        let longest = auto.documents.as_ref().and_then(|d| Some((&**d, d.longest(recent.ids())?)));
        let statement =
            longest.as_ref().is_some_and(|(d, m)| is_statement(words(auto, recent, Some((d, m)), m.len), m.len));
        let recalled = recalled(&auto.recollections, recent.said());
        if let (Some(recalled), false) = (&recalled, statement) {
            self.push_recalled(recalled);
        }
        let mut longest = longest;
        for len in (1..=MATCH_MAX).rev() {
            if let Some((documents, matched)) = longest.take_if(|(_, m)| m.len == len) {
                self.push_documents(auto, recent, documents, &matched, rules);
            }
            if len <= ORDER_MAX {
                self.push_tables(auto, recent, len, found.clone(), rules);
            }
        }
        if let (Some(recalled), true) = (&recalled, statement) {
            self.push_recalled(recalled);
        }
    }

    /// The matches, the most trusted first, and what each expects.
    pub fn iter(&self) -> impl Iterator<Item = (&Level, &[(TokenId, f64)])> {
        self.levels.iter().map(|level| (level, &self.expected[level.expected.clone()]))
    }

    /// Weights for [`crate::constraint::Effect::Mix`], by rising id.
    pub fn weights(&self, strengths: &Strengths) -> Vec<(TokenId, f32)> {
        let (mut rest, mut shares) = (1.0, Vec::with_capacity(self.expected.len()));
        for (level, expected) in self.iter() {
            let share = (rest * f64::from(strengths.of(level.cell))).min(rest - REST_MIN).max(0.0);
            rest -= share;
            shares.extend(expected.iter().map(|&(token, p)| (token, share * p)));
        }
        // Stable, so that equal tokens are added in the order of their levels, on every machine.
        shares.sort_by_key(|s| s.0);
        let one = |same: &[(TokenId, f64)]| (same[0].0, same.iter().map(|s| s.1).sum::<f64>() / rest);
        let weights = shares.chunk_by(|a, b| a.0 == b.0).map(one);
        weights.filter(|w| w.1 > WEIGHT_MIN).map(|(token, weight)| (token, weight as f32)).collect()
    }

    /// Where a token comes from, if a match expects it: the most trusted one.
    pub fn origin(&self, token: TokenId) -> Option<Origin> {
        self.iter().find(|(_, expected)| expected.iter().any(|e| e.0 == token)).map(|(level, _)| level.origin)
    }

    fn push_recalled(&mut self, recalled: &Recalled<'_>) {
        let place = recalled.recollection.place;
        let first = self.expected.len();
        self.expected.push((recalled.token, 1.0));
        let origin = Origin::Document(place, recalled.against);
        self.levels.push(Level { cell: Cell::recalled(recalled.first), len: 0, origin, expected: first..first + 1 });
    }

    fn push_documents(
        &mut self,
        auto: &Auto,
        recent: &Recent,
        documents: &Documents,
        matched: &LongestMatch<'_>,
        rules: PredictionRules,
    ) {
        let words = words(auto, recent, Some((documents, matched)), matched.len);
        let behind = &matched.behind[..matched.behind.len().min(PLACES_MAX)];
        let last = *behind.iter().max().expect("a match stands somewhere");
        let settled = is_statement(words, matched.len).then(|| documents.place(last).document);
        let holds = |at: &&u32| settled.is_none_or(|document| documents.place(**at).document == document);
        let against = behind.iter().filter(|at| !holds(at) && documents.id(**at) != documents.id(last)).max();
        self.counts.clear();
        // Where documents contradict each other the later one is believed, as if the earlier had not said it.
        let believed = behind.iter().filter(|at| against.is_none() || holds(at));
        self.counts.extend(believed.map(|&at| (documents.id(at), 1)));
        let origin = Origin::Document(documents.place(last), against.map(|&at| documents.place(at)));
        let total = if against.is_some() { self.counts.len() } else { matched.behind.len() };
        let looked_at = self.counts.len() as u64;
        let context = &recent.ids()[recent.ids().len() - matched.len..];
        let source =
            Matched { witness: Witness::Documents, words, context, occurrences: total as u64, looked_at, origin };
        self.push(auto, &source, rules);
    }

    fn push_tables<'f>(
        &mut self,
        auto: &Auto,
        recent: &Recent,
        order: usize,
        found: impl Iterator<Item = Found<'f>>,
        rules: PredictionRules,
    ) {
        let (mut total, mut any) = (0u64, false);
        self.counts.clear();
        for answer in found.filter(|f| f.order == order) {
            (total, any) = (total.saturating_add(answer.list.total()), true);
            self.counts.extend(answer.listed());
        }
        if any {
            let context = &recent.ids()[recent.ids().len() - order..];
            let words = auto.words.count(context);
            let origin = Origin::Tables(order);
            let source =
                Matched { witness: Witness::Tables, words, context, occurrences: total, looked_at: total, origin };
            self.push(auto, &source, rules);
        }
    }

    /// Takes `counts` for a level.
    fn push(&mut self, auto: &Auto, source: &Matched<'_>, rules: PredictionRules) {
        let &Matched { witness, words, context, occurrences, looked_at, origin } = source;
        let first = self.expected.len();
        self.counts.sort_unstable_by_key(|c| c.0);
        let (mut continuations, counted) = (0, looked_at.max(1) as f64);
        for same in self.counts.chunk_by(|a, b| a.0 == b.0) {
            let count: u64 = same.iter().map(|c| u64::from(c.1)).sum();
            continuations += 1;
            if count >= u64::from(rules.min_count) {
                self.expected.push((same[0].0, count as f64 / counted));
            }
        }
        let most = self.expected[first..].iter().reduce(|a, b| if b.1 > a.1 { b } else { a });
        // Where nothing is frequent enough to be expected nothing is said, whatever the cell.
        let joint =
            most.map_or(Joint::AfterOther, |most| Joint::between(context[context.len() - 1], most.0, &auto.words));
        let rareness = rareness(context);
        let evidence = Evidence { witness, words, occurrences, continuations, joint, rareness };
        self.levels.push(Level {
            cell: evidence.cell(),
            len: context.len(),
            origin,
            expected: first..self.expected.len(),
        });
    }
}

/// Words of the last `len` ids. Where a text begins, a word does, whatever its first token looks like elsewhere.
fn words(auto: &Auto, recent: &Recent, matched: Option<(&Documents, &LongestMatch<'_>)>, len: usize) -> u32 {
    let context = &recent.ids()[recent.ids().len() - len..];
    // Shorter contexts are sorted before longer ones, so a text that begins here is the first of its range.
    let begins = matched.is_some_and(|(documents, m)| documents.begins_text(m.behind[0], len));
    auto.words.count(context) + u32::from(begins && !auto.words.begins(context[0]))
}

/// A context of some words, one of them cut into pieces as names are.
fn is_statement(words: u32, len: usize) -> bool {
    words >= STATEMENT_WORDS && len > words as usize
}
