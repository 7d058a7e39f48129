//! The characters that keep what others write from becoming a template's markers (see [`crate::text::guard`]), and how
//! they are taken out again.

use std::borrow::Cow;

/// A noncharacter, which interchanged text does not contain. One that is there is doubled.
pub(in crate::text) const GUARD: char = '\u{fdd0}';
/// A noncharacter at which a text is cut before it is made into tokens. One that is there has a [`GUARD`] behind it.
pub(in crate::text) const SPLIT: char = '\u{fdd3}';

/// The pieces of a guarded text, each of which is made into tokens by itself, as they were written.
pub(in crate::text) fn restored(text: &str) -> Vec<Cow<'_, str>> {
    if !text.contains([GUARD, SPLIT]) {
        return vec![Cow::Borrowed(text)];
    }
    let (mut pieces, mut piece) = (Vec::new(), String::with_capacity(text.len()));
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            GUARD | SPLIT if chars.next_if_eq(&GUARD).is_some() => piece.push(c),
            GUARD => {}
            SPLIT => pieces.push(Cow::Owned(std::mem::take(&mut piece))),
            c => piece.push(c),
        }
    }
    pieces.push(Cow::Owned(piece));
    pieces
}
