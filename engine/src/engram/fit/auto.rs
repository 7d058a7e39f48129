//! A strength that nobody gives: every match says how far it is believed, by what is known about it.
//!
//! Matches are asked from the longest to the shortest. Each takes its lambda of what those before it have left, and
//! what none of them takes is the model's: with pi_k = lambda_k (1 - lambda_1) .. (1 - lambda_(k-1)), tokens are drawn
//! from sum_k pi_k c_k(t) / N_k + (1 - sum_k pi_k) p_model(t). That is Jelinek and Mercer's deleted interpolation with
//! the model as the last order.

use super::strength::{Cell, Evidence, Joint, Strengths, Witness, rareness_of};
use crate::engram::matching::{
    Documents, LongestMatch, Opening, Place, Recalled, Recent, Recollection, WordStarts, recalled,
};
use crate::engram::order::MATCH_MAX;
use crate::engram::table::{CONTINUATIONS_MAX, Continuations, Found, PredictionRules};
use crate::ids::TokenId;
use std::mem::take;
use std::ops::Range;
use std::sync::Arc;

/// Places behind one context that are counted; a context that stands more often says little anyway.
const PLACES_MAX: usize = 4096;
/// Words from which on a context, if it has a name too, says one thing: two documents that go on otherwise contradict
/// each other.
const STATEMENT_WORDS: u32 = 3;
/// The model keeps at least this share of every position, unless an opening wants more.
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
    /// What of them an answer may begin with.
    pub opening: Option<Opening>,
}

/// Where a token comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A document said it here; another document, which came earlier, says something else there.
    Document(Place, Option<Place>),
    /// One of the tables, after a context of this many tokens.
    Tables(usize),
}

/// One match: which lambda it has, how long it is, and where it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Which lambda is its.
    pub cell: Cell,
    /// Tokens of the context; 0 where it was not the last ones that matched.
    pub len: usize,
    /// Where its expectations come from.
    pub origin: Origin,
}

/// A level and what it expects.
#[derive(Debug)]
struct Match<'a> {
    level: Level,
    /// The list of the only table that knows the context, as it stands there.
    listed: Option<Continuations<'a>>,
    /// Part of [`Levels::counted`], where more than one list was counted.
    counted: Range<usize>,
    /// Occurrences that the counts are of.
    looked_at: f64,
}

/// What is known of a match before its cell is.
struct Matched {
    witness: Witness,
    /// Tokens of the context, and words.
    len: usize,
    words: u32,
    /// How often the context stands somewhere, N.
    occurrences: u64,
    /// Of how many of these the counts are.
    looked_at: u64,
    origin: Origin,
}

/// All matches of one position, the most trusted first. Made once and filled again and again: what the tables said
/// stays where it is, and only what has to be counted anew is copied.
#[derive(Debug, Default)]
pub struct Levels<'a> {
    matches: Vec<Match<'a>>,
    /// (token, c) of the levels that were counted anew.
    counted: Vec<(TokenId, u64)>,
    min_count: u32,
    ends: Ends,
    /// Room for what is counted, and for what is weighed.
    counts: Vec<(TokenId, u32)>,
    shares: Vec<f64>,
    order: Vec<u64>,
}

impl<'a> Levels<'a> {
    /// Fills in what is known at one position: `found` as the tables have answered, shortest contexts first.
    pub fn fill(&mut self, auto: &Auto, recent: &Recent, found: &[Found<'a>], rules: PredictionRules) {
        self.matches.clear();
        self.counted.clear();
        self.min_count = rules.min_count;
        self.ends.begin();
        let longest = auto.documents.as_ref().and_then(|d| Some((&**d, d.longest(recent.ids())?)));
        let statement = longest.as_ref().is_some_and(|(d, m)| is_statement(self.words(auto, recent, d, m), m.len));
        let recalled = recalled(&auto.recollections, recent.said());
        self.push_opening(auto, recent);
        if let (Some(recalled), false) = (&recalled, statement) {
            self.push_recalled(recalled);
        }
        let mut tables = found.chunk_by(|a, b| a.order == b.order).rev().peekable();
        if let Some((documents, matched)) = longest {
            while let Some(answers) = tables.next_if(|answers| answers[0].order > matched.len) {
                self.push_tables(auto, recent, answers);
            }
            self.push_documents(auto, recent, documents, &matched);
        }
        tables.for_each(|answers| self.push_tables(auto, recent, answers));
        if let (Some(recalled), true) = (&recalled, statement) {
            self.push_recalled(recalled);
        }
    }

    /// The matches, the most trusted first, and what each expects: (token, c / N).
    pub fn iter(&self) -> impl Iterator<Item = (&Level, impl Iterator<Item = (TokenId, f64)>)> {
        self.matches.iter().map(|m| (&m.level, self.expected(m)))
    }

    /// Weights for [`crate::constraint::Effect::Mix`], by rising id.
    pub fn weights(&mut self, strengths: &Strengths) -> Vec<(TokenId, f32)> {
        let (mut rest, mut shares, mut order) = (1.0, take(&mut self.shares), take(&mut self.order));
        for m in &self.matches {
            let lambda = f64::from(strengths.of(m.level.cell));
            let most = if m.level.cell == Cell::opening() { rest } else { rest - REST_MIN };
            let share = (rest * lambda).min(most).max(0.0);
            if share == 0.0 {
                continue;
            }
            rest -= share;
            self.expected(m).for_each(|(token, p)| {
                order.push(u64::from(token) << 32 | shares.len() as u64);
                shares.push(share * p);
            });
        }
        // Equal tokens are added in the order of their levels, on every machine.
        order.sort_unstable();
        let mut weights = Vec::with_capacity(order.len());
        for same in order.chunk_by(|a, b| a >> 32 == b >> 32) {
            let weight = same.iter().map(|at| shares[*at as u32 as usize]).sum::<f64>() / rest;
            if weight > WEIGHT_MIN {
                weights.push(((same[0] >> 32) as TokenId, weight as f32));
            }
        }
        shares.clear();
        order.clear();
        (self.shares, self.order) = (shares, order);
        weights
    }

    /// Where a token comes from, if a match expects it: the most trusted one, and an opening where no other does, which
    /// does not know what speaks against it.
    pub fn origin(&self, token: TokenId) -> Option<Origin> {
        let expecting = self.matches.iter().filter(|m| self.expected(m).any(|e| e.0 == token));
        // Of equals the first.
        expecting.min_by_key(|m| m.level.cell == Cell::opening()).map(|m| m.level.origin)
    }

    fn expected(&self, m: &Match<'a>) -> impl Iterator<Item = (TokenId, f64)> {
        let looked_at = m.looked_at;
        let listed = m.listed.iter().flat_map(|list| list.iter().take(CONTINUATIONS_MAX));
        // By falling count.
        let listed = listed.take_while(|c| c.1 >= self.min_count).map(|(token, count)| (token, f64::from(count)));
        let counted = self.counted[m.counted.clone()].iter().map(|&(token, count)| (token, count as f64));
        listed.chain(counted).map(move |(token, count)| (token, count / looked_at))
    }

    fn push_opening(&mut self, auto: &Auto, recent: &Recent) {
        let begun = auto.opening.as_ref().zip(recent.answer());
        if let Some((token, place)) = begun.and_then(|(opening, answer)| opening.next(answer, recent.after_thought())) {
            self.push_one(token, Cell::opening(), Origin::Document(place, None));
        }
    }

    fn push_recalled(&mut self, recalled: &Recalled<'_>) {
        let origin = Origin::Document(recalled.recollection.place, recalled.against);
        self.push_one(recalled.token, Cell::recalled(recalled.first), origin);
    }

    /// A match that is not of the last tokens, and expects one.
    fn push_one(&mut self, token: TokenId, cell: Cell, origin: Origin) {
        let first = self.counted.len();
        self.counted.push((token, 1));
        let level = Level { cell, len: 0, origin };
        self.matches.push(Match { level, listed: None, counted: first..first + 1, looked_at: 1.0 });
    }

    fn push_documents(&mut self, auto: &Auto, recent: &Recent, documents: &Documents, matched: &LongestMatch<'_>) {
        let words = self.words(auto, recent, documents, matched);
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
        let occurrences = if against.is_some() { self.counts.len() } else { matched.behind.len() } as u64;
        let looked_at = self.counts.len() as u64;
        let (witness, len) = (Witness::Documents, matched.len);
        self.push_counted(auto, recent, &Matched { witness, len, words, occurrences, looked_at, origin });
    }

    /// `answers` are those for one context, at least one.
    fn push_tables(&mut self, auto: &Auto, recent: &Recent, answers: &[Found<'a>]) {
        let len = answers[0].order;
        let total = answers.iter().fold(0u64, |sum, answer| sum.saturating_add(answer.list.total()));
        let (witness, words, origin) =
            (Witness::Tables, self.ends.words(recent.ids(), len, &auto.words), Origin::Tables(len));
        let of = Matched { witness, len, words, occurrences: total, looked_at: total, origin };
        if let [only] = answers {
            let most = only.listed().next().filter(|most| most.1 >= self.min_count).map(|most| most.0);
            let continuations = only.list.iter().len().min(CONTINUATIONS_MAX);
            let listed = (Some(only.list), self.counted.len()..self.counted.len());
            return self.push(auto, recent, &of, (continuations, most), listed);
        }
        self.counts.clear();
        answers.iter().for_each(|answer| self.counts.extend(answer.listed()));
        self.push_counted(auto, recent, &of);
    }

    /// Takes `counts` for a level.
    fn push_counted(&mut self, auto: &Auto, recent: &Recent, of: &Matched) {
        self.counts.sort_unstable_by_key(|c| c.0);
        let (first, mut continuations, mut most) = (self.counted.len(), 0, (0, None));
        for same in self.counts.chunk_by(|a, b| a.0 == b.0) {
            let (token, count) = (same[0].0, same.iter().map(|c| u64::from(c.1)).sum::<u64>());
            continuations += 1;
            if count >= u64::from(self.min_count) {
                self.counted.push((token, count));
                most = if count > most.0 { (count, Some(token)) } else { most };
            }
        }
        let counted = first..self.counted.len();
        self.push(auto, recent, of, (continuations, most.1), (None, counted));
    }

    /// `most` follows most often of all that are frequent enough.
    fn push(
        &mut self,
        auto: &Auto,
        recent: &Recent,
        of: &Matched,
        (continuations, most): (usize, Option<TokenId>),
        (listed, counted): (Option<Continuations<'a>>, Range<usize>),
    ) {
        let &Matched { witness, len, words, occurrences, looked_at, origin } = of;
        let last = recent.ids()[recent.ids().len() - 1];
        // Where nothing is frequent enough to be expected nothing is said, whatever the cell.
        let joint = most.map_or(Joint::AfterOther, |most| Joint::between(last, most, &auto.words));
        let rareness = self.ends.rareness(recent.ids(), len, &auto.words);
        let evidence = Evidence { witness, words, occurrences, continuations: continuations as u32, joint, rareness };
        let level = Level { cell: evidence.cell(), len, origin };
        self.matches.push(Match { level, listed, counted, looked_at: looked_at.max(1) as f64 });
    }

    /// Words of a match. Where a text begins, a word does, whatever its first token looks like elsewhere.
    fn words(&mut self, auto: &Auto, recent: &Recent, documents: &Documents, matched: &LongestMatch<'_>) -> u32 {
        let (ids, len) = (recent.ids(), matched.len);
        // Shorter contexts are sorted before longer ones, so a text that begins here is the first of its range.
        let begins = documents.begins_text(matched.behind[0], len) && !auto.words.begins(ids[ids.len() - len]);
        self.ends.words(ids, len, &auto.words) + u32::from(begins)
    }
}

/// What is known of the ends of what was said, from the newest id back and as far as anybody has asked.
#[derive(Debug)]
struct Ends {
    known: usize,
    /// Words that begin in the last n ids, and [`super::rareness`] of these.
    words: [u32; MATCH_MAX + 1],
    rareness: [f32; MATCH_MAX + 1],
}

impl Default for Ends {
    fn default() -> Self {
        Self { known: 0, words: [0; MATCH_MAX + 1], rareness: [0.0; MATCH_MAX + 1] }
    }
}

impl Ends {
    /// Something else was said.
    fn begin(&mut self) {
        self.known = 0;
    }

    fn words(&mut self, ids: &[TokenId], len: usize, words: &WordStarts) -> u32 {
        self.reach(ids, len, words);
        self.words[len]
    }

    fn rareness(&mut self, ids: &[TokenId], len: usize, words: &WordStarts) -> f32 {
        self.reach(ids, len, words);
        self.rareness[len]
    }

    fn reach(&mut self, ids: &[TokenId], len: usize, words: &WordStarts) {
        for known in self.known..len {
            let id = ids[ids.len() - 1 - known];
            self.words[known + 1] = self.words[known] + u32::from(words.begins(id));
            self.rareness[known + 1] = self.rareness[known] + rareness_of(id);
        }
        self.known = self.known.max(len);
    }
}

/// A context of some words, one of them cut into pieces as names are.
fn is_statement(words: u32, len: usize) -> bool {
    words >= STATEMENT_WORDS && len > words as usize
}
