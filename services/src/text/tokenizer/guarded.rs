//! The character that keeps users' words from becoming control tokens (see [`crate::text::guard`]), and how it is taken
//! out again.

use std::borrow::Cow;

/// A noncharacter, which interchanged text does not contain; where it does, it is doubled.
pub(in crate::text) const GUARD: char = '\u{fdd0}';

/// Takes guards out: a single one vanishes, a pair is one that was there.
pub(in crate::text) fn unguarded(text: &str) -> Cow<'_, str> {
    if !text.contains(GUARD) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != GUARD || chars.next_if_eq(&GUARD).is_some() {
            out.push(c);
        }
    }
    Cow::Owned(out)
}
