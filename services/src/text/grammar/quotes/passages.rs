//! The texts that may be quoted, as bytes in a row, and where in them words begin and end.

use super::MARK;

/// Stands between passages, and for a quotation mark in one: no quote reaches over it. No text has this byte.
const GAP: u8 = 0xff;

/// See the file's head.
pub(super) struct Passages {
    bytes: Vec<u8>,
    /// Bytes at which a word begins.
    starts: Vec<u32>,
}

impl Passages {
    /// Of these texts. A run of white space becomes a blank.
    pub(super) fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let mut bytes = vec![GAP];
        for text in texts {
            for (i, word) in text.split_whitespace().enumerate() {
                bytes.extend((i > 0).then_some(b' '));
                bytes.extend(word.bytes().map(|byte| if byte == MARK { GAP } else { byte }));
            }
            bytes.push(GAP);
        }
        let starts = (1..bytes.len()).filter(|at| begins_word(&bytes, *at)).map(|at| at as u32).collect();
        Self { bytes, starts }
    }

    /// The bytes at which a quote may begin.
    pub(super) fn starts(&self) -> &[u32] {
        &self.starts
    }

    /// The places behind a byte, of those where it stands. A vocabulary has a token for every byte, also for the gap's.
    pub(super) fn behind(&self, at: &[u32], byte: u8) -> Vec<u32> {
        at.iter().filter(|at| byte != GAP && self.bytes[**at as usize] == byte).map(|at| at + 1).collect()
    }

    /// The bytes that stand at some places, each with the places behind it.
    pub(super) fn next(&self, at: &[u32]) -> Vec<(u8, Vec<u32>)> {
        let mut next: Vec<(u8, Vec<u32>)> = Vec::new();
        for &place in at {
            let byte = self.bytes[place as usize];
            match next.iter_mut().find(|(known, _)| *known == byte) {
                _ if byte == GAP => {}
                Some((_, behind)) => behind.push(place + 1),
                None => next.push((byte, vec![place + 1])),
            }
        }
        next
    }

    /// Whether a quote may end at one of these places: between words.
    pub(super) fn may_end(&self, at: &[u32]) -> bool {
        at.iter().any(|at| {
            let at = *at as usize;
            is_visible(self.bytes[at - 1]) && !(is_word(self.bytes[at - 1]) && is_word(self.bytes[at]))
        })
    }
}

/// Whether a byte begins a word, or stands alone before one.
fn begins_word(bytes: &[u8], at: usize) -> bool {
    is_visible(bytes[at]) && !is_word(bytes[at - 1])
}

/// Whether a byte belongs to a word: letters and digits, and all letters beyond ASCII.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || (byte >= 0x80 && byte != GAP)
}

fn is_visible(byte: u8) -> bool {
    byte != GAP && byte != b' '
}
