//! Tells the closing tags of a call from those that are the text of a value. The template writes each on a line of its
//! own, and there it counts. Models also write one behind the value's last character, where the call has to go on as
//! a call does, and whole calls on one line.

use super::scan::{MarkerSearch, find, newline};
use super::{CALL, CALL_END, FUNCTION, FUNCTION_END, PARAMETER, PARAMETER_END};

/// What the names of closing tags that models make up for calls begin with, as in `</function_invocation>`.
const CLOSING_NAMES: [&str; 4] = ["function", "tool", "parameter", "invoke"];
/// Longer names are text.
const CLOSING_NAME_BYTES_MAX: usize = 64;
/// Closing tags behind each other on one line: those of a function and of its call.
const TAGS_ON_LINE: usize = 2;

/// A tag inside of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct TagPlace<'a> {
    /// It stands at the start of a line.
    pub(super) starts_line: bool,
    /// The value began on the line of its parameter's tag.
    pub(super) is_inline: bool,
    /// It stands in a JSON string.
    pub(super) in_string: bool,
    /// The text behind it.
    pub(super) rest: &'a str,
    /// No more text comes.
    pub(super) last: bool,
}

/// Each answer is `None` where more text is needed to tell.
impl TagPlace<'_> {
    /// Whether the tag is the last on its line.
    pub(super) fn ends_line(self) -> Option<bool> {
        ends_line(self.rest, self.last)
    }

    /// Whether `</parameter>` ends the value.
    pub(super) fn closes_parameter(self) -> Option<bool> {
        if self.in_string {
            return Some(false);
        }
        if (self.starts_line && self.ends_line()?) || goes_on_as_call(self.rest, self.last)? {
            return Some(true);
        }
        if !self.is_inline || self.starts_line {
            return Some(false);
        }
        let line = self.rest.split('\n').next().unwrap_or_default();
        match find(line, 0, &[PARAMETER_END, PARAMETER, FUNCTION_END, FUNCTION, CALL_END, CALL]) {
            MarkerSearch::At(_, marker) => Some(marker != PARAMETER_END),
            MarkerSearch::Open(_) => (self.last || line.len() < self.rest.len()).then_some(true),
        }
    }

    /// Whether `</function>` ends the value, whose own closing tag is missing.
    pub(super) fn closes_function(self) -> Option<bool> {
        let after = self.rest.trim_start();
        if self.in_string {
            Some(false)
        } else if after.starts_with(CALL_END) {
            if self.is_inline { Some(true) } else { goes_on_as_call(after, self.last) }
        } else if CALL_END.starts_with(after) {
            self.last.then_some(true)
        } else {
            Some(false)
        }
    }

    /// Whether `</tool_call>` ends the value, whose own closing tag is missing.
    pub(super) fn closes_call(self) -> Option<bool> {
        if self.in_string {
            return Some(false);
        }
        let after = self.rest.trim_start();
        if self.ends_line()? && (self.starts_line || self.is_inline) || after.starts_with(CALL) {
            return Some(true);
        }
        if CALL.starts_with(after) { self.last.then_some(true) } else { Some(false) }
    }
}

fn ends_line(rest: &str, last: bool) -> Option<bool> {
    newline(rest.trim_start_matches([' ', '\t'])).map(|len| len > 0).or(last.then_some(true))
}

/// Whether a text goes on as a call does behind a parameter: with the next tag that opens something, or with closing
/// tags up to the end of their line.
fn goes_on_as_call(text: &str, last: bool) -> Option<bool> {
    let mut rest = text.trim_start();
    for _ in 0..TAGS_ON_LINE {
        let Some(after) = [FUNCTION_END, CALL_END].iter().find_map(|tag| rest.strip_prefix(tag)) else { break };
        if ends_line(after, last)? {
            return Some(true);
        }
        rest = after.trim_start_matches([' ', '\t']);
    }
    if [PARAMETER, FUNCTION, CALL].iter().any(|tag| rest.starts_with(tag)) {
        return Some(true);
    }
    let may_become_tag = [PARAMETER, FUNCTION, CALL, FUNCTION_END, CALL_END].iter().any(|tag| tag.starts_with(rest));
    if may_become_tag { last.then_some(true) } else { Some(false) }
}

/// A closing tag outside of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClosingTag {
    /// It has so many bytes.
    Whole(usize),
    /// The text may still become one.
    Part,
    No,
}

/// Reads a closing tag of a call at the start of a text, also one that only looks like those of the format.
pub(super) fn closing_tag(text: &str) -> ClosingTag {
    let Some(rest) = text.strip_prefix("</") else {
        return if "</".starts_with(text) { ClosingTag::Part } else { ClosingTag::No };
    };
    let is_of_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b':');
    let (name, behind) = rest.split_at(rest.bytes().take_while(|b| is_of_name(b)).count());
    let is_known = CLOSING_NAMES.iter().any(|known| name.starts_with(known));
    let may_be_known = is_known || CLOSING_NAMES.iter().any(|known| known.starts_with(name));
    match behind.bytes().next() {
        _ if name.len() > CLOSING_NAME_BYTES_MAX => ClosingTag::No,
        Some(b'>') if is_known => ClosingTag::Whole("</".len() + name.len() + 1),
        None if may_be_known => ClosingTag::Part,
        _ => ClosingTag::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closing_tag_of_a_call_is_told_by_its_name() {
        for (text, tag) in [
            ("</function_invocation> x", ClosingTag::Whole(22)),
            ("</tool_call>", ClosingTag::Whole(12)),
            ("</func", ClosingTag::Part),
            ("", ClosingTag::Part),
            ("</think>", ClosingTag::No),
            ("</function", ClosingTag::Part),
            ("</function x", ClosingTag::No),
            ("text", ClosingTag::No),
        ] {
            assert_eq!(closing_tag(text), tag, "{text}");
        }
    }
}
