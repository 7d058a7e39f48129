//! Markdown: its headings part it into sections, and its text stays as it is written.

use super::lines::{HeadingPath, ParseFault, SectionSink};
use std::io::Write;

/// Finds the sections of a text.
pub(super) fn read(text: &str, sink: &mut SectionSink<impl Write>) -> Result<(), ParseFault> {
    let (mut path, mut begin, mut at, mut fence) = (HeadingPath::default(), 0, 0, None);
    for line in text.split_inclusive('\n') {
        let mark = fence_of(line);
        match fence {
            // A fence ends with as many marks of its own kind or more.
            Some((kind, count)) if mark.is_some_and(|(k, n)| k == kind && n >= count) => fence = None,
            Some(_) => {}
            None if mark.is_some() => fence = mark,
            None => {
                if let Some((level, title)) = heading(line) {
                    sink.section(None, &path.titles(), &text[begin..at])?;
                    path.enter(level, title);
                    begin = at;
                }
            }
        }
        at += line.len();
    }
    sink.section(None, &path.titles(), &text[begin..])
}

/// The kind of a line that begins or ends a block of code, and how many marks it has.
fn fence_of(line: &str) -> Option<(char, usize)> {
    let line = line.trim_start();
    let kind = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let count = line.chars().take_while(|c| *c == kind).count();
    (count >= 3).then_some((kind, count))
}

/// Level and title of a heading.
fn heading(line: &str) -> Option<(u8, &str)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let rest = &line[level..];
    let is_one = (1..=6).contains(&level) && rest.starts_with([' ', '\t', '\n']);
    is_one.then(|| (level as u8, rest.trim().trim_end_matches('#').trim_end()))
}

#[cfg(test)]
mod tests {
    use super::super::lines::tests::sections;
    use super::*;

    #[test]
    fn headings_part_a_text_and_those_in_code_do_not() {
        let text = "before\n# One #\n\na\n## Two\nb\n```sh\n# no heading\n```\n#hash\n# Three\nc";
        assert_eq!(
            sections(|sink| read(text, sink)).unwrap(),
            [
                "||before",
                "|One|# One #\n\na",
                "|One > Two|## Two\nb\n```sh\n# no heading\n```\n#hash",
                "|Three|# Three\nc"
            ]
        );
    }
}
