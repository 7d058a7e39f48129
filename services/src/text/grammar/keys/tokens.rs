//! The tokens of a vocabulary that may end a key, or begin one.

use super::KeyTracker;
use crate::text::Tokenizer;
use crate::text::tokenizer::TokenKind;
use chimere_engine::ids::TokenId;
use llguidance::toktrie::SimpleVob;

/// The tokens by which a key may come to be one that came before. Made once for a vocabulary.
pub(in crate::text::grammar) struct KeyTokens {
    /// With a quote or a backslash in them.
    quotes: Vec<TokenId>,
    /// With a comma and none of these.
    commas: Vec<TokenId>,
}

impl KeyTokens {
    pub(in crate::text::grammar) fn new(tokenizer: &Tokenizer) -> Self {
        let has = |id: &TokenId, bytes: &[u8]| tokenizer.bytes(*id).iter().any(|byte| bytes.contains(byte));
        let text = (0..tokenizer.len()).filter(|id| tokenizer.kind(*id) == TokenKind::Text);
        let (quotes, others): (Vec<_>, Vec<_>) = text.partition(|id| has(id, b"\"\\"));
        Self { quotes, commas: others.into_iter().filter(|id| has(id, b",")).collect() }
    }

    /// Those of a mask that have to be looked at, where the text is at this place.
    pub(super) fn suspects(&self, at: &KeyTracker, mask: &SimpleVob, tokenizer: &Tokenizer) -> Vec<TokenId> {
        if at.is_in_escape() {
            return mask.iter().collect();
        }
        let allowed = |id: &TokenId| mask.is_allowed(*id);
        let mut suspects: Vec<TokenId> = self.quotes.iter().copied().filter(allowed).collect();
        if at.keys_may_run_out() {
            suspects.extend(self.commas.iter().copied().filter(allowed));
            let rests: Vec<&[u8]> = at.rests_of_earlier().collect();
            if !rests.is_empty() {
                let goes_on = |id: &TokenId| rests.iter().any(|rest| rest.starts_with(tokenizer.bytes(*id)));
                suspects.extend(mask.iter().filter(goes_on));
            }
        }
        suspects
    }
}
