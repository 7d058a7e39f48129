//! One choice under a grammar: its thought first, then what the grammar allows.

use super::keys::{self, KeyTracker};
use super::tokens::is_breaks;
use super::watch::WatchedMatcher;
use super::{CANNOT_GO_ON, CompiledGrammar, watch_over};
use chimere_engine::constraint::Effect;
use chimere_engine::constraint::grammar::Grammar;
use chimere_engine::ids::TokenId;
use llguidance::Matcher;
use llguidance::api::StopReason;
use llguidance::toktrie::SimpleVob;
use std::sync::Arc;

/// Follows what one choice says.
pub(super) struct GrammarSequence {
    grammar: Arc<CompiledGrammar>,
    matcher: Matcher,
    watched: Arc<WatchedMatcher>,
    shared: Option<SharedLexer>,
    stage: OutputStage,
    /// The end of the text, as far as a marker may have begun in it.
    tail: Vec<u8>,
    /// The token that came last, if the grammar is about it.
    last: Option<TokenId>,
    /// Whether what the grammar allowed when it was asked last may all be how one text begins.
    one_text: bool,
    /// The keys of the answer's objects, where the grammar leaves them open.
    keys: Option<KeyTracker>,
    supposed: Option<Supposed>,
}

/// The grammar behind tokens that are only supposed.
struct Supposed {
    matcher: Matcher,
    last: TokenId,
    keys: Option<KeyTracker>,
}

/// The lexer is one that other outputs read with as well.
struct SharedLexer {
    lane: usize,
    /// What the grammar has read, for the case that the lexer stops.
    read: Vec<TokenId>,
}

/// Where a choice stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputStage {
    /// A thought, which a token ends.
    Thought,
    /// Nothing has come; a thought may.
    MayThink,
    /// The thought is over. Line breaks may come, as the model is used to, or as its end is forced.
    AfterThought {
        /// Bytes of those that have come.
        breaks: usize,
    },
    /// What the grammar is about.
    Answer,
    /// Any text, until a token begins a call, which the grammar is about.
    BeforeCall,
    /// An end has come; what is computed behind it is for nobody.
    Over,
}

impl GrammarSequence {
    pub(super) fn new(grammar: Arc<CompiledGrammar>, lane: usize, stage: OutputStage) -> Self {
        let matcher = grammar.lexers.of_lane(lane);
        Self {
            watched: watch_over(&matcher, &grammar.watch),
            matcher,
            keys: grammar.keys.clone(),
            grammar,
            shared: Some(SharedLexer { lane, read: Vec::new() }),
            stage,
            tail: Vec::new(),
            last: None,
            one_text: false,
            supposed: None,
        }
    }

    fn end_thought(&mut self) {
        self.tail.clear();
        self.stage =
            if self.grammar.in_calls_only { OutputStage::BeforeCall } else { OutputStage::AfterThought { breaks: 0 } };
    }

    /// What the grammar allows, and `others`.
    fn allowed(&mut self, others: &[TokenId]) -> Result<Effect, String> {
        let mut mask = match &mut self.supposed {
            Some(Supposed { matcher, .. }) => {
                run_other(&self.watched, matcher, Matcher::compute_mask_or_eos).map_err(|_| self.failure())?
            }
            None => self.on_matcher(Matcher::compute_mask_or_eos)?,
        };
        self.keep_keys_distinct(&mut mask);
        if mask.is_zero() {
            return Err(format!("{CANNOT_GO_ON}has come to a place from where it allows nothing"));
        }
        self.one_text = self.grammar.vocabulary.begin_alike(mask.iter());
        others.iter().for_each(|id| mask.allow_token(*id));
        Ok(Effect::Allow(mask.as_slice().into()))
    }

    /// Takes the tokens out of a mask that would repeat a key.
    fn keep_keys_distinct(&self, mask: &mut SimpleVob) {
        let (matcher, tracker) = match &self.supposed {
            Some(supposed) => (&supposed.matcher, &supposed.keys),
            None => (&self.matcher, &self.keys),
        };
        if let Some(tracker) = tracker {
            let vocabulary = &self.grammar.vocabulary;
            let behind = |token| MatcherAhead::new(matcher, &self.watched, token);
            keys::keep_distinct(tracker, mask, behind, (&vocabulary.tokenizer, &vocabulary.keys));
        }
    }

    fn consume(&mut self, token: TokenId) -> Result<(), String> {
        self.stage = OutputStage::Answer;
        self.last = Some(token);
        self.on_matcher(|matcher| matcher.consume_token(token))?;
        if let Some(keys) = &mut self.keys {
            // What the mask did not allow does not come; text that came all the same is followed as far as it goes.
            let _ = keys.read(&self.grammar.vocabulary.tokenizer, token);
        }
        if let Some(shared) = &mut self.shared {
            shared.read.push(token);
        }
        Ok(())
    }

    /// Does something that may take too long, and does it again where it was the shared lexer that stopped.
    fn on_matcher<T, E>(&mut self, work: impl Fn(&mut Matcher) -> Result<T, E>) -> Result<T, String> {
        let mut done = self.watched.run(|| work(&mut self.matcher));
        if done.is_err()
            && !self.matcher.is_cancelled()
            && !self.has_too_many_items()
            && let Some(shared) = self.shared.take()
        {
            self.start_over(shared)?;
            done = self.watched.run(|| work(&mut self.matcher));
        }
        done.map_err(|_| self.failure())
    }

    /// With a lexer of its own, to where the choice is: it has then taken the steps that it takes alone, masks among
    /// them. All of that may take as long as one token, since all others wait.
    fn start_over(&mut self, shared: SharedLexer) -> Result<(), String> {
        self.grammar.lexers.discard(shared.lane);
        self.matcher = self.grammar.lexers.own();
        self.watched = watch_over(&self.matcher, &self.grammar.watch);
        let matcher = &mut self.matcher;
        let mut again = |token| matcher.compute_mask_or_eos().and(matcher.consume_token(token));
        let read = self.watched.run(|| shared.read.into_iter().try_for_each(&mut again));
        read.map_err(|_| self.failure())
    }

    /// A place of the grammar is too large for the parser, which has nothing to do with the lexer.
    fn has_too_many_items(&self) -> bool {
        self.matcher.get_error().is_some_and(|said| said.contains("items; max is"))
    }

    fn failure(&self) -> String {
        let said = self.matcher.get_error().unwrap_or_default();
        tracing::debug!(error = said, "a grammar cannot go on");
        let steps = matches!(self.matcher.stop_reason(), StopReason::LexerTooComplex | StopReason::ParserTooComplex);
        let what = match self.matcher.is_cancelled() {
            true => "takes too long for one token",
            false if steps || self.has_too_many_items() => "takes too many steps for one token",
            false => "does not allow what had to come",
        };
        format!("{CANNOT_GO_ON}{what}")
    }
}

/// Has a clone, which has a handle of its own, do something that may take too long.
fn run_other<T>(watched: &WatchedMatcher, matcher: &mut Matcher, work: impl FnOnce(&mut Matcher) -> T) -> T {
    watched.run_other(matcher.cancellation_handle().unwrap_or_default(), || work(matcher))
}

/// A grammar behind tokens that are only tried.
struct MatcherAhead<'a> {
    matcher: Matcher,
    watched: &'a WatchedMatcher,
}

impl<'a> MatcherAhead<'a> {
    fn new(before: &Matcher, watched: &'a WatchedMatcher, token: TokenId) -> Option<Self> {
        let mut matcher = before.clone();
        run_other(watched, &mut matcher, |matcher| matcher.consume_token(token)).ok()?;
        Some(Self { matcher, watched })
    }
}

impl keys::Ahead for MatcherAhead<'_> {
    fn behind(&self, token: TokenId) -> Option<Self> {
        Self::new(&self.matcher, self.watched, token)
    }

    fn allowed(&mut self) -> Option<SimpleVob> {
        run_other(self.watched, &mut self.matcher, Matcher::compute_mask_or_eos).ok()
    }
}

impl Grammar for GrammarSequence {
    fn rule(&mut self) -> Result<Option<Effect>, String> {
        let vocabulary = &self.grammar.clone().vocabulary;
        match self.stage {
            OutputStage::Thought => Ok(Some(Effect::Forbid(vocabulary.barred_in_thought(&self.tail)))),
            OutputStage::BeforeCall => Ok(Some(Effect::Forbid(vocabulary.barred_in_text(&self.tail)))),
            OutputStage::MayThink => self.allowed(vocabulary.opens.as_slice()).map(Some),
            OutputStage::AfterThought { breaks } => self.allowed(vocabulary.breaks_after(breaks)).map(Some),
            OutputStage::Answer => self.allowed(&[]).map(Some),
            OutputStage::Over => Ok(None),
        }
    }

    fn forced(&mut self) -> Vec<TokenId> {
        // Elsewhere line breaks, thoughts or any text may come as well, and behind an end nothing.
        if self.stage != OutputStage::Answer || !self.one_text {
            return Vec::new();
        }
        let last = self.supposed.as_ref().map_or(self.last, |supposed| Some(supposed.last));
        let matcher = self.supposed.as_ref().map_or(&self.matcher, |supposed| &supposed.matcher);
        // Of a clone: one that has looked ahead no longer says which tokens are allowed where markup is ahead.
        let text = run_other(&self.watched, &mut matcher.clone(), Matcher::compute_ff_bytes);
        if text.is_empty() { Vec::new() } else { self.grammar.vocabulary.written(last, &text) }
    }

    fn suppose(&mut self, token: TokenId) -> bool {
        if self.stage != OutputStage::Answer {
            return false;
        }
        let begin = || Supposed { matcher: self.matcher.clone(), last: token, keys: self.keys.clone() };
        let Supposed { mut matcher, mut keys, .. } = self.supposed.take().unwrap_or_else(begin);
        let came = run_other(&self.watched, &mut matcher, |matcher| matcher.try_consume_tokens(&[token]));
        let tokenizer = &self.grammar.vocabulary.tokenizer;
        let distinct = keys.as_mut().is_none_or(|keys| keys.read(tokenizer, token).is_ok());
        self.supposed = Some(Supposed { matcher, last: token, keys });
        distinct && came.is_ok_and(|came| came == 1)
    }

    fn recall(&mut self) {
        self.supposed = None;
    }

    fn take(&mut self, token: TokenId) -> Result<(), String> {
        let vocabulary = &self.grammar.clone().vocabulary;
        if vocabulary.end_ids.contains(&token) {
            self.stage = OutputStage::Over;
        }
        match self.stage {
            OutputStage::Thought if vocabulary.closes == Some(token) => self.end_thought(),
            OutputStage::MayThink if vocabulary.opens == Some(token) => self.stage = OutputStage::Thought,
            OutputStage::BeforeCall if vocabulary.call == Some(token) => return self.consume(token),
            OutputStage::Thought | OutputStage::BeforeCall => vocabulary.append(&mut self.tail, token),
            OutputStage::AfterThought { breaks } if is_breaks(vocabulary.tokenizer.bytes(token)) => {
                self.stage = OutputStage::AfterThought { breaks: breaks + vocabulary.tokenizer.bytes(token).len() };
            }
            OutputStage::MayThink | OutputStage::AfterThought { .. } | OutputStage::Answer => {
                return self.consume(token);
            }
            OutputStage::Over => {}
        }
        Ok(())
    }
}
