//! The keys of an answer's objects, which are distinct however they are spelled. A grammar cannot say that of keys that
//! a schema leaves open, because it does not know which of them came before. So the text of such an answer is followed
//! beside its grammar, and the tokens that would close a key a second time are taken out of what the grammar allows.
//! Keys have escapes only for characters that cannot be written plainly.

mod schema;
mod tokens;
mod tracker;

pub(super) use schema::{OpenKeys, open_keys};
pub(super) use tokens::KeyTokens;
pub(super) use tracker::{JsonArguments, KeyTracker};

use crate::text::Tokenizer;
use chimere_engine::ids::TokenId;
use llguidance::toktrie::SimpleVob;
use std::collections::HashMap;

/// Tokens that one mask may be followed by to see whether a key that has begun like an earlier one can still differ.
const LOOKAHEAD_MAX: usize = 256;

/// A grammar behind tokens that have not come.
pub(super) trait Ahead: Sized {
    /// The grammar behind this token; `None` where it cannot tell.
    fn behind(&self, token: TokenId) -> Option<Self>;
    /// The tokens that it allows; `None` where it cannot tell.
    fn allowed(&mut self) -> Option<SimpleVob>;
}

/// Takes the tokens out of a mask that would repeat a key of an object that is open, and those behind which only such
/// keys are left.
pub(super) fn keep_distinct<A: Ahead>(
    tracker: &KeyTracker,
    mask: &mut SimpleVob,
    behind: impl Fn(TokenId) -> Option<A>,
    (tokenizer, tokens): (&Tokenizer, &KeyTokens),
) {
    let mut search = KeySearch { tokenizer, left: LOOKAHEAD_MAX, known: HashMap::new() };
    let mut trial = KeyTracker::default();
    for id in tokens.suspects(tracker, mask, tokenizer) {
        trial.start_trial(tracker);
        let distinct = trial.read(tokenizer, id).is_ok() && search.can_differ(&trial, || behind(id));
        if !distinct {
            mask.disallow_token(id);
        }
    }
}

/// Looks for the end of a key that no earlier one has.
struct KeySearch<'a> {
    tokenizer: &'a Tokenizer,
    /// How many more tokens may be followed. A key is taken to be able to differ once they are used up.
    left: usize,
    /// Of places where a key is how an earlier one begins, whether it can differ.
    known: HashMap<(usize, Option<Vec<u8>>), bool>,
}

impl KeySearch<'_> {
    fn can_differ<A: Ahead>(&mut self, at: &KeyTracker, ahead: impl FnOnce() -> Option<A>) -> bool {
        let Some(place) = at.begins_like_earlier() else { return true };
        if let Some(known) = self.known.get(&place) {
            return *known;
        }
        if self.left == 0 {
            return true;
        }
        self.left -= 1;
        // What leads back here leads to nothing new.
        self.known.insert(place.clone(), false);
        let differs = ahead().is_none_or(|ahead| self.some_differs(at, ahead));
        self.known.insert(place, differs);
        differs
    }

    fn some_differs<A: Ahead>(&mut self, at: &KeyTracker, mut ahead: A) -> bool {
        let Some(mask) = ahead.allowed() else { return true };
        let (mut trial, mut alike) = (KeyTracker::default(), Vec::new());
        for id in mask.iter() {
            trial.start_trial(at);
            match trial.read(self.tokenizer, id) {
                Ok(()) if trial.begins_like_earlier().is_none() => return true,
                Ok(()) => alike.push(id),
                Err(_) => {}
            }
        }
        alike.into_iter().any(|id| {
            let mut trial = KeyTracker::default();
            trial.start_trial(at);
            trial.read(self.tokenizer, id).is_ok() && self.can_differ(&trial, || ahead.behind(id))
        })
    }
}
