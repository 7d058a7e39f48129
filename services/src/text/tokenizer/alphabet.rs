//! GPT-2's byte alphabet: each byte is written as one printable character, so that a vocabulary of strings can hold any
//! bytes.

use std::sync::LazyLock;

/// Character of each byte: 33..=126, 161..=172 and 174..=255 stand for themselves, the other 68 are U+0100 and on, in
/// order.
static CHARS: LazyLock<[char; 256]> = LazyLock::new(|| {
    let mut next = 0x100;
    std::array::from_fn(|byte| {
        if matches!(byte, 33..=126 | 161..=172 | 174..=255) {
            return byte as u8 as char;
        }
        next += 1;
        char::from_u32(next - 1).expect("the 68 characters after U+0100 are no surrogates")
    })
});

/// Byte of each character below U+0144, if it has one.
static BYTES: LazyLock<[Option<u8>; 0x144]> = LazyLock::new(|| {
    let mut bytes = [None; 0x144];
    for (byte, &c) in CHARS.iter().enumerate() {
        bytes[c as usize] = Some(byte as u8);
    }
    bytes
});

/// Writes bytes in the alphabet, at the end of `out`.
pub(super) fn write(bytes: &[u8], out: &mut String) {
    out.extend(bytes.iter().map(|&b| CHARS[b as usize]));
}

/// The bytes that a token string stands for; the first character outside of the alphabet otherwise.
pub(super) fn read(token: &str) -> Result<Vec<u8>, char> {
    token.chars().map(|c| BYTES.get(c as usize).copied().flatten().ok_or(c)).collect()
}

/// The 256 characters that stand for bytes, in the order of the bytes.
pub(super) fn chars() -> impl Iterator<Item = char> {
    CHARS.iter().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_the_alphabet() {
        let all: Vec<u8> = (0..=255).collect();
        let mut text = String::new();
        write(&all, &mut text);
        assert_eq!(read(&text), Ok(all));
        assert_eq!(chars().collect::<std::collections::HashSet<_>>().len(), 256);
    }

    #[test]
    fn a_space_is_g_with_a_dot_and_a_newline_c_with_a_dot() {
        let mut text = String::new();
        write(b" a\n", &mut text);
        assert_eq!(text, "ĠaĊ");
        assert_eq!(read("a b"), Err(' '));
        assert_eq!(read("字"), Err('字'));
    }
}
