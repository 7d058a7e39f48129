//! The model's tokenizer: byte-level BPE with the family's pre-tokenizers. Exact, or refused when it is built.

mod alphabet;
mod guarded;
mod long_word;
mod normalized;
mod source;
mod split;

pub(super) use guarded::{GUARD, SPLIT};

use guarded::restored;

use aho_corasick::{AhoCorasick, MatchKind};
use chimere_engine::engram::WordStarts;
use chimere_engine::format::TokenizerSource;
use chimere_engine::ids::TokenId;
use long_word::{LONG_WORD_BYTES, Merges};
use normalized::Normalized;
use source::TokenizerParts;
use split::Splitter;
use std::borrow::Cow;
use std::ops::Range;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::{Model, NormalizedString};

/// Text to ids and back. Immutable and shared; encoding a long text takes a while, so the async threads leave it to the
/// pool.
#[derive(Debug)]
pub struct Tokenizer {
    bpe: BPE,
    /// For words of more than [`LONG_WORD_BYTES`].
    merges: Merges,
    splitter: Splitter,
    nfc: bool,
    /// Finds added tokens; pattern i is `added[i]`.
    matcher: AhoCorasick,
    added: Vec<(String, TokenId)>,
    normalized: Normalized,
    /// The bytes of all tokens, one after the other; token i ends at `ends[i]`.
    bytes: Vec<u8>,
    ends: Vec<u32>,
    kinds: Vec<TokenKind>,
    /// Bytes of the longest token.
    longest: usize,
}

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of text that merging makes.
    Text,
    /// Markup that belongs to the text: `<think>`, `<tool_call>`. Shown to readers and parsers.
    Added,
    /// Control: `<|im_end|>`. Never shown.
    Special,
    /// An id without a token.
    Unused,
}

/// Why a tokenizer could not be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TokenizerError {
    /// Valid, but not something that can be done exactly.
    #[error("tokenizer: {what} is {got}, which is not supported")]
    Unsupported {
        /// Key or path in the file.
        what: String,
        /// What the file says.
        got: String,
    },
    /// The file contradicts itself.
    #[error("tokenizer: {what} has {got}")]
    Malformed {
        /// Key or path in the file.
        what: String,
        /// What the file says.
        got: String,
    },
    /// `tokenizer.json` cannot be read.
    #[error("tokenizer.json: {0}")]
    Json(String),
}

/// A tokenizer in the form that GGUF files carry it in, whichever form it has; an error if they have no name for its
/// pre-tokenizer.
pub fn as_gguf(source: &TokenizerSource) -> Result<TokenizerSource, TokenizerError> {
    source::as_gguf(source)
}

impl Tokenizer {
    /// From either shape that model files carry.
    pub fn new(source: &TokenizerSource) -> Result<Self, TokenizerError> {
        let parts = source::read(source)?;
        let merges = Merges::new(&parts)?;
        let table = TokenTable::new(&parts)?;
        let matcher =
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(parts.added.iter().map(|a| &a.0));
        let matcher = matcher.map_err(|e| malformed("added tokens", e.to_string()))?;
        let bpe = BPE::builder()
            .vocab_and_merges(parts.vocab.into_iter().collect::<Vocab>(), parts.merges)
            .ignore_merges(parts.ignore_merges)
            .build();
        Ok(Self {
            merges,
            bpe: bpe.map_err(|e| malformed("merges", e.to_string()))?,
            splitter: Splitter::new(parts.rule),
            nfc: parts.nfc,
            matcher,
            added: parts.added.into_iter().map(|(content, id, _)| (content, id)).collect(),
            normalized: parts.normalized,
            longest: table.longest,
            bytes: table.bytes,
            ends: table.ends,
            kinds: table.kinds,
        })
    }

    /// Ids of a text in which added tokens are written out, such as a raw prompt.
    pub fn encode(&self, text: &str) -> Vec<TokenId> {
        self.encode_with(text, |piece, ids| self.encode_piece(piece, ids))
    }

    /// Ids of a rendered conversation, in which markers that others wrote are broken up (see [`super::guard`]).
    pub fn encode_guarded(&self, text: &str) -> Vec<TokenId> {
        self.encode_with(text, |piece, ids| restored(piece).iter().for_each(|piece| self.encode_piece(piece, ids)))
    }

    /// Where in a rendered conversation the last of these added tokens begins.
    pub fn last_of(&self, text: &str, ids: &[TokenId]) -> Option<usize> {
        self.added_in(text).filter(|(_, id)| ids.contains(id)).last().map(|(at, _)| at.start)
    }

    /// Ids of a text that is nothing but text: what looks like an added token is spelled out.
    pub fn encode_plain(&self, text: &str) -> Vec<TokenId> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        self.encode_piece(text, &mut ids);
        ids
    }

    /// The fewest tokens that any of the `encode`s can make of a text, from its length alone: nothing is longer than
    /// the longest token.
    pub fn tokens_min(&self, text: &str) -> usize {
        // Guards are taken out, and composition leaves at least a third of the bytes: three Hangul letters become one,
        // the Kelvin sign K.
        let kept = text.len() - text.matches([GUARD, SPLIT]).map(str::len).sum::<usize>();
        let kept = if self.nfc && !is_composed(text) { kept / 3 } else { kept };
        kept.div_ceil(self.longest)
    }

    /// Cuts at added tokens, and leaves to `encode` what is between them.
    fn encode_with(&self, text: &str, encode: impl Fn(&str, &mut Vec<TokenId>)) -> Vec<TokenId> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        let mut at = 0;
        for (found, id) in self.added_in(text) {
            encode(&text[at..found.start], &mut ids);
            ids.push(id);
            at = found.end;
        }
        encode(&text[at..], &mut ids);
        ids
    }

    /// The added tokens of a text, with their places.
    fn added_in(&self, text: &str) -> impl Iterator<Item = (Range<usize>, TokenId)> {
        self.matcher.find_iter(text).filter_map(|found| {
            let (content, id) = &self.added[found.pattern().as_usize()];
            let vanishes = self.normalized.vanishes(*id, content, &text[found.end()..]);
            (!vanishes).then_some((found.range(), *id))
        })
    }

    /// Appends the ids of a text without added tokens.
    fn encode_piece(&self, text: &str, ids: &mut Vec<TokenId>) {
        let text = self.composed(text);
        let mut word = String::new();
        for piece in self.splitter.words(&text) {
            // No token is as long as any of these words, so that they are merged whatever `ignore_merges` says.
            if piece.len() > LONG_WORD_BYTES.max(self.longest) {
                self.merges.encode(piece.as_bytes(), ids);
                continue;
            }
            word.clear();
            alphabet::write(piece.as_bytes(), &mut word);
            let tokens = self
                .bpe
                .tokenize(&word)
                .expect("merging fails only for want of an unknown token, and every byte has a token");
            ids.extend(tokens.iter().map(|t| t.id));
        }
    }

    /// Text of some ids, control tokens left out or written; bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[TokenId], special: bool) -> String {
        let shown = ids.iter().filter(|&&id| special || self.kind(id) != TokenKind::Special);
        let bytes: Vec<u8> = shown.flat_map(|&id| self.bytes(id)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The bytes that a token stands for; empty for an id without a token.
    pub fn bytes(&self, id: TokenId) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start as usize..end as usize]
    }

    /// A token as text by itself, for logprobs: parts of a character become U+FFFD.
    pub fn text(&self, id: TokenId) -> Cow<'_, str> {
        String::from_utf8_lossy(self.bytes(id))
    }

    /// Which tokens begin a word: those that begin with anything but a letter or digit, which ends the word before, and
    /// those of scripts that are written without spaces.
    pub fn word_starts(&self) -> WordStarts {
        let spaceless = |c: char| ('\u{2E80}'..='\u{D7FF}').contains(&c) || c >= '\u{20000}';
        let begins = |id| {
            self.text(id).chars().next().is_some_and(|c| c != '\u{FFFD}' && (!c.is_alphanumeric() || spaceless(c)))
        };
        WordStarts::new(self.len(), begins)
    }

    /// What a token is for.
    pub fn kind(&self, id: TokenId) -> TokenKind {
        self.kinds.get(id as usize).copied().unwrap_or(TokenKind::Unused)
    }

    /// Id of an added token, or of one whose text is exactly this.
    pub fn id(&self, text: &str) -> Option<TokenId> {
        let added = self.added.iter().find(|(content, _)| content == text).map(|a| a.1);
        added.or_else(|| {
            let mut token = String::new();
            alphabet::write(text.as_bytes(), &mut token);
            self.bpe.token_to_id(&token)
        })
    }

    /// One more than the highest id that has a token; the model's vocabulary may be larger.
    pub fn len(&self) -> u32 {
        self.ends.len() as u32
    }

    /// A tokenizer without tokens cannot be built.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// A text as its tokens are made of it: in the normal form of the vocabulary.
    pub(super) fn composed<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.nfc { nfc(text) } else { Cow::Borrowed(text) }
    }

    /// Whether a text as a whole is an added token.
    pub(super) fn is_added(&self, text: &str) -> bool {
        self.added.iter().any(|(content, _)| content == text)
    }

    /// The added tokens that are written out in a text, and the texts before, between and behind them.
    pub(super) fn cut<'a>(&self, text: &'a str) -> (Vec<&'a str>, Vec<&'a str>) {
        let (mut tokens, mut between, mut at) = (Vec::new(), Vec::new(), 0);
        for found in self.matcher.find_iter(text) {
            between.push(&text[at..found.start()]);
            tokens.push(&text[found.range()]);
            at = found.end();
        }
        between.push(&text[at..]);
        (tokens, between)
    }

    /// Added tokens by content, with their ids.
    pub fn added(&self) -> impl Iterator<Item = (&str, TokenId)> {
        self.added.iter().map(|(content, id)| (content.as_str(), *id))
    }
}

/// Bytes and kind of every id.
struct TokenTable {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    kinds: Vec<TokenKind>,
    longest: usize,
}

impl TokenTable {
    fn new(parts: &TokenizerParts) -> Result<Self, TokenizerError> {
        let mut tokens: Vec<(TokenKind, Cow<'_, [u8]>)> =
            vec![(TokenKind::Unused, Cow::Borrowed(&[])); parts.size as usize];
        for (token, &id) in &parts.vocab {
            let bytes = alphabet::read(token)
                .map_err(|c| malformed("vocabulary", format!("{token:?} with {c:?}, which is no byte")))?;
            tokens[id as usize] = (TokenKind::Text, Cow::Owned(bytes));
        }
        for (content, id, kind) in &parts.added {
            if content.is_empty() {
                return Err(malformed("added tokens", format!("an empty one with id {id}")));
            }
            tokens[*id as usize] = (*kind, Cow::Borrowed(content.as_bytes()));
        }
        let bytes: Vec<u8> = tokens.iter().flat_map(|t| t.1.iter()).copied().collect();
        u32::try_from(bytes.len()).map_err(|_| malformed("vocabulary", format!("{} bytes", bytes.len())))?;
        let longest = tokens.iter().map(|t| t.1.len()).max().unwrap_or(0).max(1);
        let mut end = 0;
        let ends = tokens.iter().map(|t| (end += t.1.len() as u32, end).1);
        Ok(Self { ends: ends.collect(), kinds: tokens.iter().map(|t| t.0).collect(), bytes, longest })
    }
}

fn malformed(what: &str, got: String) -> TokenizerError {
    TokenizerError::Malformed { what: what.to_owned(), got }
}

/// Canonical composition. Nothing below U+0300 composes with what stands before it, so most text is left alone.
fn nfc(text: &str) -> Cow<'_, str> {
    if is_composed(text) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(NormalizedString::from(text).nfc().get().to_owned())
}

/// Canonical composition leaves such a text as it is.
fn is_composed(text: &str) -> bool {
    text.chars().all(|c| c < '\u{300}')
}

/// The tokenizer of the golden models, for the tests beside this one.
#[cfg(test)]
pub(crate) fn golden() -> std::sync::Arc<Tokenizer> {
    tests::golden()
}

/// The tokenizer of the shipped model, for tests that need its words.
#[cfg(test)]
pub(crate) fn shipped() -> std::sync::Arc<Tokenizer> {
    let nano = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano/nano-q8_0.gguf");
    let model = chimere_engine::model::load(&nano).unwrap();
    std::sync::Arc::new(Tokenizer::new(&model.text.tokenizer).unwrap())
}

#[cfg(test)]
mod tests;
