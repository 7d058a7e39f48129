//! What a table of token ids is tied to: two tokenizers have one fingerprint if every id stands for the same bytes and
//! purpose.

use super::tokenizer::{TokenKind, Tokenizer};
use chimere_engine::engram::TokenizerHash;
use sha2::{Digest, Sha256};

/// Identity of a tokenizer's ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// SHA-256 over each id's bytes and kind, as `docs/using/engram.md` has it.
    pub hash: TokenizerHash,
    /// One more than the highest id with a token: ids at the end that stand for nothing differ between files of one
    /// model.
    pub vocab: u32,
}

impl Fingerprint {
    /// Of a tokenizer. How it merges does not count: that changes which ids a text gets, not what they mean.
    pub fn of(tokenizer: &Tokenizer) -> Self {
        let vocab =
            (0..tokenizer.len()).rev().find(|&id| tokenizer.kind(id) != TokenKind::Unused).map_or(0, |id| id + 1);
        let mut hash = Sha256::new();
        for id in 0..vocab {
            let bytes = tokenizer.bytes(id);
            let length = u32::try_from(bytes.len()).expect("the bytes of all tokens are counted in 32 bits");
            hash.update(length.to_le_bytes());
            hash.update(bytes);
            hash.update([kind_code(tokenizer.kind(id))]);
        }
        Self { hash: TokenizerHash(hash.finalize().into()), vocab }
    }
}

/// Part of the file format.
fn kind_code(kind: TokenKind) -> u8 {
    match kind {
        TokenKind::Text => 0,
        TokenKind::Added => 1,
        TokenKind::Special => 2,
        TokenKind::Unused => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_engine::format::TokenizerSource;

    /// The byte alphabet as a vocabulary without merges, then these tokens.
    fn made(more: &[(&str, i32)]) -> Fingerprint {
        let bytes = (b'!'..=b'~').chain(0xA1..=0xAC).chain(0xAE..=0xFF).map(char::from);
        let others = (0..68).map(|i| char::from_u32(0x100 + i).unwrap());
        let mut tokens: Vec<String> = bytes.chain(others).map(String::from).collect();
        let mut types = vec![1; tokens.len()];
        tokens.extend(more.iter().map(|t| t.0.to_owned()));
        types.extend(more.iter().map(|t| t.1));
        let source = TokenizerSource::Gguf { pre: "qwen35".into(), tokens, types, merges: vec![] };
        Fingerprint::of(&Tokenizer::new(&source).unwrap())
    }

    #[test]
    fn a_token_s_bytes_kind_and_place_count() {
        let plain = made(&[("<a>", 3), ("<b>", 3)]);
        assert_eq!(plain.vocab, 258);
        assert_ne!(plain.hash, made(&[("<b>", 3), ("<a>", 3)]).hash, "another order");
        assert_ne!(plain.hash, made(&[("<a>", 3), ("<b>", 4)]).hash, "another kind");
        assert_ne!(plain.hash, made(&[("<a>", 3), ("<c>", 3)]).hash, "other bytes");
        assert_ne!(plain.hash, made(&[("<a>", 3), ("gap", 5), ("<b>", 3)]).hash, "another id");
    }

    #[test]
    fn ids_at_the_end_that_stand_for_nothing_change_nothing() {
        assert_eq!(made(&[("<a>", 3)]), made(&[("<a>", 3), ("[PAD0]", 5), ("[PAD1]", 5)]));
    }

    #[test]
    fn both_shapes_of_the_shipped_tokenizer_have_one_fingerprint() {
        let nano = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano");
        let model = chimere_engine::model::load(&nano.join("nano-q8_0.gguf")).unwrap();
        let gguf = Fingerprint::of(&Tokenizer::new(&model.text.tokenizer).unwrap());
        let json = TokenizerSource::Json(std::fs::read(nano.join("tokenizer.json")).unwrap());
        assert_eq!(gguf, Fingerprint::of(&Tokenizer::new(&json).unwrap()));
    }
}
