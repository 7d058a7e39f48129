//! One choice's way through its text and its quotes.

use super::{Place, Quotes};
use crate::text::grammar::OutputStage;
use crate::text::tokenizer::TokenKind;
use chimere_engine::constraint::Effect;
use chimere_engine::constraint::grammar::Grammar;
use chimere_engine::ids::TokenId;
use std::sync::Arc;

/// See the file's head.
pub(in crate::text::grammar) struct QuoteSequence {
    quotes: Arc<Quotes>,
    pub(super) place: Place,
    /// The places behind the tokens that are supposed.
    supposed: Vec<Place>,
}

impl QuoteSequence {
    /// At the beginning of an output that is in this stage.
    pub(in crate::text::grammar) fn new(quotes: Arc<Quotes>, stage: OutputStage) -> Self {
        let place = if matches!(stage, OutputStage::Thought) { Place::Thought } else { Place::Outside };
        Self { quotes, place, supposed: Vec::new() }
    }

    fn now(&self) -> &Place {
        self.supposed.last().unwrap_or(&self.place)
    }

    /// The place behind a token. Behind one that was to be impossible no quote is open: another rule came before this.
    fn behind(&self, token: TokenId) -> Option<Place> {
        let vocabulary = &self.quotes.vocabulary;
        let place = self.now();
        match place {
            Place::Thought if vocabulary.closes == Some(token) => Some(Place::Outside),
            _ if vocabulary.opens == Some(token) => Some(Place::Thought),
            _ if vocabulary.tokenizer.kind(token) != TokenKind::Text => Some(place.clone()),
            _ => self.quotes.after(place, vocabulary.tokenizer.bytes(token)),
        }
    }
}

impl Grammar for QuoteSequence {
    fn rule(&mut self) -> Result<Option<Effect>, String> {
        Ok(match self.now() {
            Place::Thought => None,
            Place::Outside => Some(Effect::Forbid(self.quotes.barred.clone())),
            Place::Opened => Some(Effect::Allow(self.quotes.opening.clone())),
            Place::Inside(at) => Some(Effect::Allow(self.quotes.mask(at, true))),
        })
    }

    fn suppose(&mut self, token: TokenId) -> bool {
        let behind = self.behind(token);
        self.supposed.extend(behind.clone());
        behind.is_some()
    }

    fn recall(&mut self) {
        self.supposed.clear();
    }

    fn take(&mut self, token: TokenId) -> Result<(), String> {
        self.supposed.clear();
        self.place = self.behind(token).unwrap_or(Place::Outside);
        Ok(())
    }
}
