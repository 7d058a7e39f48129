//! Quotes by construction: between two straight quotation marks an answer says only what stands in one of some
//! passages, word by word. Outside of them anything may come. Whatever the model is, a quote cannot be wrong.
//!
//! A quote begins and ends at the edges of words, and line breaks of a passage count as blanks. Within a thought
//! nothing is restricted.

mod passages;
mod sequence;
#[cfg(test)]
mod tests;

use super::tokens::GrammarTokens;
use super::{Grammars, OutputStage};
use crate::text::prompt::Thinking;
use crate::text::tokenizer::TokenKind;
use chimere_engine::ids::TokenId;
use passages::Passages;
use std::sync::Arc;

pub(super) use sequence::QuoteSequence;

/// The mark that opens and closes a quote.
const MARK: u8 = b'"';

/// What an answer may quote, prepared for one request.
pub struct Quotes {
    vocabulary: Arc<GrammarTokens>,
    passages: Passages,
    /// What may come right behind the mark that opens a quote.
    opening: Arc<[u32]>,
    /// What may not come outside of quotes: tokens in whose middle a quote begins that no passage has.
    barred: Arc<[TokenId]>,
    /// Tokens that close a quote with their first byte, as a mask.
    closing: Vec<u32>,
}

/// Where in its output a choice is.
#[derive(Clone, Debug, PartialEq)]
enum Place {
    /// In a thought, where anything may come.
    Thought,
    /// In the answer, outside of quotes.
    Outside,
    /// In a quote, which has just been opened.
    Opened,
    /// In a quote, whose text goes on at these bytes of the passages.
    Inside(Vec<u32>),
}

impl Grammars {
    /// What an answer may quote from some passages. Takes time in proportion to the vocabulary and to the passages.
    pub fn quotes<'a>(&self, passages: impl Iterator<Item = &'a str>) -> Result<Arc<Quotes>, String> {
        let made = self.made.get_or_init(|| self.make()).as_ref().map_err(Clone::clone)?;
        Ok(Arc::new(Quotes::new(made.vocabulary.clone(), Passages::new(passages))))
    }
}

impl Quotes {
    fn new(vocabulary: Arc<GrammarTokens>, passages: Passages) -> Self {
        let tokenizer = vocabulary.tokenizer.clone();
        let text = |id: &TokenId| tokenizer.kind(*id) == TokenKind::Text;
        let closes = |id: &TokenId| {
            let bytes = tokenizer.bytes(*id);
            bytes.first() == Some(&MARK) && !bytes[1..].contains(&MARK)
        };
        let mut closing = vec![0; words(tokenizer.len())];
        (0..tokenizer.len()).filter(text).filter(closes).for_each(|id| allow(&mut closing, id));
        let mut quotes = Self { vocabulary, passages, opening: Arc::new([]), barred: Arc::new([]), closing };
        quotes.opening = quotes.mask(quotes.passages.starts(), false);
        let barred = |id: &TokenId| quotes.after(&Place::Outside, tokenizer.bytes(*id)).is_none();
        quotes.barred = (0..tokenizer.len()).filter(text).filter(barred).collect();
        quotes
    }

    /// Where an output begins.
    pub(super) fn begin(&self, thinking: Option<Thinking>) -> OutputStage {
        if thinking == Some(Thinking::Open) { OutputStage::Thought } else { OutputStage::Answer }
    }

    /// The place behind some bytes of text; none where these cannot come.
    fn after(&self, place: &Place, bytes: &[u8]) -> Option<Place> {
        let mut place = place.clone();
        for &byte in bytes {
            place = match (place, byte) {
                (Place::Thought, _) => Place::Thought,
                (Place::Outside, MARK) => Place::Opened,
                (Place::Outside, _) => Place::Outside,
                // A quote that says nothing.
                (Place::Opened, MARK) => return None,
                (Place::Opened, byte) => Place::Inside(self.passages.behind(self.passages.starts(), byte)),
                (Place::Inside(at), MARK) if self.passages.may_end(&at) => Place::Outside,
                (Place::Inside(at), byte) => Place::Inside(self.passages.behind(&at, byte)),
            };
            if matches!(&place, Place::Inside(at) if at.is_empty()) {
                return None;
            }
        }
        Some(place)
    }

    /// The tokens that may come in a quote whose text goes on at these bytes. One that says nothing yet cannot be
    /// `closed`.
    fn mask(&self, at: &[u32], closed: bool) -> Arc<[u32]> {
        let mut mask = vec![0; words(self.vocabulary.tokenizer.len())];
        if closed && self.passages.may_end(at) {
            mask.copy_from_slice(&self.closing);
        }
        let trie = self.vocabulary.env.tok_trie();
        let mut waiting = vec![(trie.root(), at.to_vec())];
        while let Some((node, at)) = waiting.pop() {
            for (byte, behind) in self.passages.next(&at) {
                let Some(child) = trie.child_at_byte(node, byte) else { continue };
                child.token_id().into_iter().for_each(|id| allow(&mut mask, id));
                if self.passages.may_end(&behind)
                    && let Some(closed) = trie.child_at_byte(child, MARK)
                {
                    self.allow_without_marks(closed, &mut mask);
                }
                waiting.push((child, behind));
            }
        }
        mask.into()
    }

    /// Allows the tokens that go on from a node without a further mark.
    fn allow_without_marks(&self, node: &llguidance::toktrie::TrieNode, mask: &mut [u32]) {
        let trie = self.vocabulary.env.tok_trie();
        let mut waiting = vec![node];
        while let Some(node) = waiting.pop() {
            node.token_id().into_iter().for_each(|id| allow(mask, id));
            waiting.extend(trie.node_children(node).filter(|child| child.byte() != MARK));
        }
    }
}

/// Words of a mask for so many tokens.
fn words(tokens: u32) -> usize {
    tokens.div_ceil(u32::BITS) as usize
}

fn allow(mask: &mut [u32], id: TokenId) {
    if let Some(word) = mask.get_mut((id / u32::BITS) as usize) {
        *word |= 1 << (id % u32::BITS);
    }
}
