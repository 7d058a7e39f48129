//! Added tokens that a tokenizer.json wants looked for in normalised text, as `add_tokens` of the Python packages makes
//! them. They are found in the text as it came, with all others, where that gives the same ids.

use super::nfc;
use std::collections::HashSet;

/// Marks behind a character that are looked at: more than any script puts there.
const MARKS_MAX: usize = 32;

/// The ids of those whose last character a mark behind it may change.
#[derive(Clone, Debug, Default)]
pub(super) struct Normalized(HashSet<u32>);

impl Normalized {
    /// Whether the token `id`, found in a text, is not there once the text is normalised: one of the marks at the
    /// beginning of `rest` becomes one with the last character of `content`.
    pub(super) fn vanishes(&self, id: u32, content: &str, rest: &str) -> bool {
        let Some(last) = content.chars().next_back().filter(|_| self.0.contains(&id)) else { return false };
        let marks = rest.chars().take(MARKS_MAX).take_while(|c| *c >= '\u{300}');
        let together: String = std::iter::once(last).chain(marks).collect();
        !nfc(&together).starts_with(last)
    }
}

/// The tokens that are looked for in normalised text, of those that are and of the others, by content and id; the
/// content of one that would be found elsewhere than in the text as it came otherwise.
pub(super) fn checked<'a>(
    later: &[(&'a str, u32)],
    first: &[(&'a str, u32)],
    nfc: bool,
) -> Result<Normalized, &'a str> {
    let mut changing = HashSet::new();
    for (content, id) in later {
        // The others are looked for first, in the whole text, and these only in what is left.
        let torn = first.iter().any(|other| tears(content, other.0));
        let vanishing = nfc && may_vanish(content);
        // Where one vanishes, a shorter one that it begins with comes out.
        let shorter = |other: &(&str, u32)| other.1 != *id && content.starts_with(other.0);
        if torn || (nfc && !stays(content)) || (vanishing && later.iter().any(shorter)) {
            return Err(content);
        }
        changing.extend(vanishing.then_some(*id));
    }
    Ok(Normalized(changing))
}

/// Whether text can have both so that `first` takes a part of `token` away. One that lies in the other whole is found
/// after it either way.
fn tears(token: &str, first: &str) -> bool {
    let runs_into = |a: &str, b: &str| {
        let ends = a.char_indices().skip(1).map(|(at, _)| &a[at..]);
        ends.into_iter().any(|end| end.len() < b.len() && b.starts_with(end))
    };
    token.contains(first) || runs_into(token, first) || runs_into(first, token)
}

/// Whether composition neither changes the text nor makes it of another one: the Kelvin sign becomes a K, and there are
/// signs that become a semicolon or a grave accent.
fn stays(content: &str) -> bool {
    content.is_ascii() && !content.contains(['K', ';', '`'])
}

/// Whether marks compose with the last character: with letters, and the stroke with `<`, `=` and `>`.
fn may_vanish(content: &str) -> bool {
    content.ends_with(|c: char| c.is_ascii_alphabetic() || "<=>".contains(c))
}
