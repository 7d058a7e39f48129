//! A tokenizer as grammars read it: the bytes of every token, and which tokens must not come where only a single token
//! may stand for a piece of markup.

use super::keys::KeyTokens;
use crate::limits::GRAMMAR_FORCED_BYTES_MAX;
use crate::text::Tokenizer;
use crate::text::parser::{CALL, THINK, THINK_END};
use crate::text::tokenizer::TokenKind;
use chimere_engine::ids::TokenId;
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use std::sync::Arc;

/// Bytes of line breaks that a model may put between its thought and its answer.
const BREAK_BYTES_MAX: usize = 2;

/// What grammars need to know of a model's tokens. Made once.
pub(super) struct GrammarTokens {
    /// The tokens in the form that the library of grammars reads.
    pub(super) env: TokEnv,
    pub(super) tokenizer: Arc<Tokenizer>,
    /// Ids that end an answer.
    pub(super) end_ids: Arc<[TokenId]>,
    /// The token that opens a thought.
    pub(super) opens: Option<TokenId>,
    /// The token that closes it.
    pub(super) closes: Option<TokenId>,
    /// The token that begins a call.
    pub(super) call: Option<TokenId>,
    /// Line breaks that may come after a thought, by how many bytes may still come of them.
    breaks: [Vec<TokenId>; BREAK_BYTES_MAX + 1],
    /// What cannot come inside a thought: ends, and the token that begins a call.
    barred: Vec<TokenId>,
    thought_end: MarkerTokens,
    call_begin: MarkerTokens,
    /// By which keys of JSON end.
    pub(super) keys: KeyTokens,
}

impl GrammarTokens {
    /// Of a model whose answers end with one of `end_ids`; there is at least one.
    pub(super) fn new(tokenizer: Arc<Tokenizer>, end_ids: &[TokenId]) -> Self {
        let ids = 0..tokenizer.len();
        let words: Vec<Vec<u8>> = ids.clone().map(|id| word(&tokenizer, id)).collect();
        let ends: Vec<TokenId> = end_ids.iter().copied().filter(|id| *id < tokenizer.len()).collect();
        let trie = TokTrie::from(&TokRxInfo::new(tokenizer.len(), ends[0]), &words).with_eos_tokens(&ends);
        let breaks_within = |most: usize| {
            let text = ids.clone().filter(|id| tokenizer.kind(*id) == TokenKind::Text);
            text.filter(|id| (1..=most).contains(&tokenizer.bytes(*id).len()) && is_breaks(tokenizer.bytes(*id)))
                .collect()
        };
        let call = tokenizer.id(CALL);
        Self {
            env: Arc::new(Canonical { trie, tokenizer: tokenizer.clone() }),
            opens: tokenizer.id(THINK),
            closes: tokenizer.id(THINK_END),
            call,
            breaks: std::array::from_fn(breaks_within),
            barred: ends.iter().copied().chain(call).collect(),
            thought_end: MarkerTokens::of(THINK_END, &tokenizer),
            call_begin: MarkerTokens::of(CALL, &tokenizer),
            end_ids: ends.into(),
            keys: KeyTokens::new(&tokenizer),
            tokenizer,
        }
    }

    /// Line breaks that may come after a thought when there are so many bytes of them.
    pub(super) fn breaks_after(&self, bytes: usize) -> &[TokenId] {
        &self.breaks[BREAK_BYTES_MAX.saturating_sub(bytes)]
    }

    /// What cannot come inside a thought whose text ends with `tail`: it is ended by its token, or not at all.
    pub(super) fn barred_in_thought(&self, tail: &[u8]) -> Arc<[TokenId]> {
        let spelled = self.thought_end.completions(tail).chain(self.call_begin.completions(tail));
        self.barred.iter().copied().chain(spelled).collect()
    }

    /// What cannot come in an answer whose text ends with `tail` and in which a call is begun by its token alone.
    pub(super) fn barred_in_text(&self, tail: &[u8]) -> Arc<[TokenId]> {
        self.call_begin.completions(tail).collect()
    }

    /// Whether the first byte of all these tokens is the same, so that they may be how one text begins.
    pub(super) fn begin_alike(&self, mut ids: impl Iterator<Item = TokenId>) -> bool {
        let first = |id| self.env.tok_trie().token(id).first();
        let one = ids.next().map(first);
        ids.all(|id| Some(first(id)) == one)
    }

    /// How the tokenizer writes a text of the grammars' library behind the token `before`: together with it where that
    /// leaves it as it is.
    pub(super) fn written(&self, before: Option<TokenId>, text: &[u8]) -> Vec<TokenId> {
        let before = before.filter(|id| self.tokenizer.kind(*id) == TokenKind::Text);
        let head = before.map(|id| self.tokenizer.bytes(id)).unwrap_or_default();
        let (mut ids, _) = self.env.tokenize_bytes_marker(&[head, text].concat());
        match before {
            Some(id) if ids.first() != Some(&id) => self.env.tokenize_bytes_marker(text).0,
            Some(_) => ids.split_off(1),
            None => ids,
        }
    }

    /// Adds a token's text to a tail, and lets go what no marker is long enough to need.
    pub(super) fn append(&self, tail: &mut Vec<u8>, token: TokenId) {
        // Control tokens are no text: what stands before and after them is read together.
        if self.tokenizer.kind(token) != TokenKind::Special {
            tail.extend_from_slice(self.tokenizer.bytes(token));
            tail.drain(..tail.len().saturating_sub(THINK_END.len().max(CALL.len())));
        }
    }
}

/// The tokenizer for the grammars' library. Where a grammar leaves no choice of the text, the tokens are those that it
/// makes of that text; so there is no choice of them either. A model spells out in odd tokens what it would not have
/// said by itself. Calls are an exception: [`super::Calls`].
struct Canonical {
    trie: TokTrie,
    tokenizer: Arc<Tokenizer>,
}

impl Canonical {
    /// A tokenizer that composes characters would write another text; and what merging makes of markup is no text to
    /// the trie. Of a long text the beginning alone: the library asks again at each token, for whose sake it asks.
    fn encode(&self, text: &str) -> Vec<TokenId> {
        let text = &text[..text.floor_char_boundary(GRAMMAR_FORCED_BYTES_MAX)];
        let ids = self.tokenizer.encode_plain(text);
        let is_text = ids.iter().all(|id| self.tokenizer.kind(*id) == TokenKind::Text);
        let bytes = ids.iter().flat_map(|id| self.tokenizer.bytes(*id));
        if is_text && bytes.eq(text.as_bytes()) { ids } else { self.trie.greedy_tokenize(text.as_bytes()) }
    }
}

impl TokenizerEnv for Canonical {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| self.encode(text))
    }
}

/// Nothing but line breaks, which the parser of answers takes for none of the answer.
pub(super) fn is_breaks(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b'\n' | b'\r'))
}

/// How the grammars' library has a token: markup and control tokens are marked, so that text never means them. A token
/// that begins with the mark itself cannot be part of any text.
fn word(tokenizer: &Tokenizer, id: TokenId) -> Vec<u8> {
    let bytes = tokenizer.bytes(id);
    match tokenizer.kind(id) {
        TokenKind::Text if bytes.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) => Vec::new(),
        TokenKind::Text => bytes.to_vec(),
        TokenKind::Added | TokenKind::Special => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat(),
        TokenKind::Unused => Vec::new(),
    }
}

/// A marker that is a token of its own, and the other tokens that would complete its text.
struct MarkerTokens {
    marker: &'static [u8],
    /// By how much of the marker is there: tokens that begin with the rest. At 0, those that have all of it inside.
    completing: Vec<Vec<TokenId>>,
}

impl MarkerTokens {
    fn of(marker: &'static str, tokenizer: &Tokenizer) -> Self {
        let mut completing = vec![Vec::new(); marker.len()];
        let bytes = marker.as_bytes();
        for id in (0..tokenizer.len()).filter(|id| tokenizer.kind(*id) == TokenKind::Text) {
            let token = tokenizer.bytes(id);
            for (there, ids) in completing.iter_mut().enumerate().skip(1) {
                if token.starts_with(&bytes[there..]) {
                    ids.push(id);
                }
            }
            if token.windows(bytes.len()).any(|part| part == bytes) {
                completing[0].push(id);
            }
        }
        Self { marker: bytes, completing }
    }

    fn completions(&self, tail: &[u8]) -> impl Iterator<Item = TokenId> {
        let begun = self.completing.iter().enumerate().filter(|(there, _)| tail.ends_with(&self.marker[..*there]));
        begun.flat_map(|(_, ids)| ids).copied()
    }
}
