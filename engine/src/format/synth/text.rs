//! A tokenizer that is valid and small: a token a byte, a few merges, the family's markers, and words that no text
//! is encoded to up to the vocabulary's size. Random weights draw these most of all, so an answer is as much text as a
//! trained model's.

use crate::format::gguf::{GgufHeader, MetaValue};

/// Merges, so that readers which expect some find them. `Ġ` stands for a space.
const MERGES: [(&str, &str); 6] = [("Ġ", "t"), ("Ġ", "a"), ("h", "e"), ("i", "n"), ("r", "e"), ("o", "n")];
/// Name and type: 3 is control, 4 user-defined (not dropped with special tokens).
const MARKERS: [(&str, i32); 9] = [
    ("<|endoftext|>", 3),
    ("<|im_start|>", 3),
    (END, 3),
    ("<think>", 4),
    ("</think>", 4),
    ("<tool_call>", 4),
    ("</tool_call>", 4),
    ("<tool_response>", 4),
    ("</tool_response>", 4),
];
const END: &str = "<|im_end|>";
const TEMPLATE: &str = "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}\
                        {%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}";

/// The fewest tokens that hold all this.
pub(super) fn tokens_min() -> usize {
    256 + MERGES.len() + MARKERS.len()
}

/// Writes the tokenizer's keys, with the pre-tokenizer of this name.
pub(super) fn set(header: &mut GgufHeader, vocab: usize, pre: &str) {
    let mut tokens: Vec<String> = (0..=255).map(|b| byte_char(b).to_string()).collect();
    tokens.extend(MERGES.iter().map(|(a, b)| format!("{a}{b}")));
    let mut types = vec![1; tokens.len()];
    for (name, ty) in MARKERS {
        tokens.push(name.to_owned());
        types.push(ty);
    }
    tokens.extend((tokens.len()..vocab).map(word));
    types.resize(tokens.len(), 1);
    let id = |name: &str| tokens.iter().position(|t| t == name).expect("the markers are in the vocabulary") as u32;
    let (end, pad) = (id(END), id("<|endoftext|>"));
    header.set("tokenizer.ggml.model", MetaValue::Str("gpt2".into()));
    header.set("tokenizer.ggml.pre", MetaValue::Str(pre.into()));
    header.set("tokenizer.ggml.tokens", MetaValue::Strings(tokens));
    header.set("tokenizer.ggml.token_type", MetaValue::I32s(types));
    header.set("tokenizer.ggml.merges", MetaValue::Strings(MERGES.iter().map(|(a, b)| format!("{a} {b}")).collect()));
    header.set("tokenizer.ggml.eos_token_id", MetaValue::U32(end));
    header.set("tokenizer.ggml.padding_token_id", MetaValue::U32(pad));
    header.set("tokenizer.ggml.add_bos_token", MetaValue::Bool(false));
    header.set("tokenizer.chat_template", MetaValue::Str(TEMPLATE.into()));
}

/// A word of five letters behind a space, another one for each id below 26^5: no merges lead to it.
fn word(id: usize) -> String {
    let letters = (0..5).map(|place| char::from(b'a' + (id / 26_usize.pow(place) % 26) as u8));
    std::iter::once('Ġ').chain(letters).collect()
}

/// The character that stands for a byte in a byte-level vocabulary: itself if printable, else one from U+0100 on, in
/// order.
fn byte_char(byte: u8) -> char {
    let plain = |b: &u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    if plain(&byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|b| !plain(b)).count() as u32;
    char::from_u32(256 + before).expect("68 code points after U+00FF")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_characters_of_byte_level_vocabularies() {
        assert_eq!([b' ', b'\n', b'a', 0x7f, 0xff].map(byte_char), ['Ġ', 'Ċ', 'a', 'ġ', 'ÿ']);
        let all: std::collections::HashSet<char> = (0..=255).map(byte_char).collect();
        assert_eq!(all.len(), 256);
    }

    #[test]
    fn ids_beyond_the_merges_are_words_that_are_told_apart() {
        let words: std::collections::HashSet<String> = (tokens_min()..1 << 20).map(word).collect();
        assert_eq!(words.len(), (1 << 20) - tokens_min());
        assert_eq!(word(27), "Ġbbaaa");
    }
}
