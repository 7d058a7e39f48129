//! Finds markup in a text of which more may come.

/// Longer names of functions and parameters are taken for text.
const NAME_BYTES_MAX: usize = 256;

/// A text without the one line break at its end.
pub(super) fn without_newline(text: &str) -> &str {
    text.strip_suffix("\r\n").or_else(|| text.strip_suffix('\n')).unwrap_or(text)
}

/// A text that may go on, without what could become the one line break at its end.
pub(super) fn before_newline(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

/// Bytes of the one line break at a text's start; `None` where more of it is needed to tell.
pub(super) fn newline(text: &str) -> Option<usize> {
    match text.as_bytes() {
        [] | [b'\r'] => None,
        [b'\r', b'\n', ..] => Some(2),
        [b'\n', ..] => Some(1),
        _ => Some(0),
    }
}

/// What a search for markers gave.
pub(super) enum MarkerSearch<'a> {
    /// The first marker, and where it stands.
    At(usize, &'a str),
    /// None, but one may begin here; the text's end if none may.
    Open(usize),
}

/// Looks for the first of some markers, none of which begins with another.
pub(super) fn find<'a>(text: &str, from: usize, markers: &[&'a str]) -> MarkerSearch<'a> {
    let at = markers.iter().filter_map(|m| text[from..].find(m).map(|at| (from + at, *m))).min();
    if let Some((at, marker)) = at {
        return MarkerSearch::At(at, marker);
    }
    let longest = markers.iter().map(|m| m.len()).max().unwrap_or(0);
    let bytes = text.as_bytes();
    let mut starts = (from.max(text.len().saturating_sub(longest))..text.len()).filter(|&at| bytes[at] == b'<');
    let open = starts.find(|&at| markers.iter().any(|m| m.starts_with(&text[at..])));
    MarkerSearch::Open(open.unwrap_or(text.len()))
}

/// What a text begins with.
pub(super) enum OpeningTag<'a> {
    /// Its name and its length with the brackets.
    Whole(&'a str, usize),
    /// It may still become one.
    Part,
    No,
}

/// Reads `<function=NAME>` or `<parameter=KEY>` at the start of a text.
pub(super) fn tag<'a>(text: &'a str, open: &str) -> OpeningTag<'a> {
    let Some(rest) = text.strip_prefix(open) else {
        return if open.starts_with(text) { OpeningTag::Part } else { OpeningTag::No };
    };
    match rest.find(['>', '<', '\n']) {
        Some(end) if rest[end..].starts_with('>') && (1..=NAME_BYTES_MAX).contains(&end) => {
            OpeningTag::Whole(rest[..end].trim(), open.len() + end + 1)
        }
        None if rest.len() <= NAME_BYTES_MAX => OpeningTag::Part,
        _ => OpeningTag::No,
    }
}
