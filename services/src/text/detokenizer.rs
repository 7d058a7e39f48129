//! Turns a stream of tokens into a stream of text, never with half a character.

use super::tokenizer::{TokenKind, Tokenizer};
use chimere_engine::ids::TokenId;
use std::sync::Arc;

/// The text of one choice as its tokens come. Control tokens are left out, markup such as `<think>` is not.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    /// The start of a character whose other bytes are still to come: at most three.
    held: Vec<u8>,
}

impl Detokenizer {
    /// At the start of a choice's text.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self { tokenizer, held: Vec::with_capacity(8) }
    }

    /// The text that this token completes; often empty when a character spans several tokens.
    pub fn push(&mut self, token: TokenId) -> String {
        if self.tokenizer.kind(token) == TokenKind::Special {
            return String::new();
        }
        self.held.extend_from_slice(self.tokenizer.bytes(token));
        let open = whole(&self.held);
        let text = String::from_utf8_lossy(&self.held[..open]).into_owned();
        self.held.drain(..open);
        text
    }

    /// What is left when no more tokens come: U+FFFD if a character stayed incomplete.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        text
    }
}

/// Where an incomplete but so far valid character begins at the end of `bytes`; their length if there is none.
pub fn whole(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        match std::str::from_utf8(&bytes[at..]) {
            Ok(_) => return bytes.len(),
            Err(e) => match e.error_len() {
                None => return at + e.valid_up_to(),
                Some(bad) => at += e.valid_up_to() + bad,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tokenizer::golden;
    use super::*;
    use proptest::prelude::*;

    fn streamed(ids: &[TokenId]) -> Vec<String> {
        let mut detokenizer = Detokenizer::new(golden());
        let mut out: Vec<String> = ids.iter().map(|&id| detokenizer.push(id)).collect();
        out.push(detokenizer.finish());
        out
    }

    /// The tokens of single bytes.
    fn bytes(bytes: &[u8]) -> Vec<TokenId> {
        let golden = golden();
        bytes.iter().map(|&b| (0..golden.len()).find(|&id| golden.bytes(id) == [b]).unwrap()).collect()
    }

    #[test]
    fn a_character_waits_for_its_last_byte() {
        assert_eq!(streamed(&bytes("a🙂b".as_bytes())), ["a", "", "", "", "🙂", "b", ""]);
    }

    #[test]
    fn a_character_that_never_ends_is_replaced_at_the_end() {
        assert_eq!(streamed(&bytes(b"a\xf0\x9f")), ["a", "", "", "\u{fffd}"]);
    }

    #[test]
    fn bytes_that_start_nothing_are_replaced_at_once() {
        assert_eq!(streamed(&bytes(b"\x80a\xf0a")), ["\u{fffd}", "a", "", "\u{fffd}a", ""]);
    }

    #[test]
    fn control_tokens_are_silent_and_markup_is_not() {
        let ids = golden().encode("<think>a<|im_end|>");
        assert_eq!(streamed(&ids).concat(), "<think>a");
    }

    proptest! {
        #[test]
        fn streaming_gives_what_decoding_gives(ids in prop::collection::vec(0u32..520, 0..60)) {
            prop_assert_eq!(streamed(&ids).concat(), golden().decode(&ids, false));
        }
    }
}
