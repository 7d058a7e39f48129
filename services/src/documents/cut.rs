//! Cuts sections into passages that are found and shown: whole paragraphs as far as they fit, and of a paragraph that
//! is too long pieces that overlap. A passage stays within its section, so that it has one page and one path of
//! headings.

use std::ops::Range;

/// How a text is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The most tokens of a passage, at least 1.
    pub(super) tokens: u32,
    /// Tokens that two pieces of one paragraph have in common, at most half of those.
    pub(super) overlap: u32,
}

/// Bytes of a word that is cut although it is one: none is so long but in data that is no prose.
const WORD_BYTES_MAX: usize = 64;

/// The passages of a section, as ranges of its bytes in order. `count` has a text's tokens.
pub(super) fn passages(section: &str, cut: Cut, count: &dyn Fn(&str) -> usize) -> Vec<Range<usize>> {
    let (max, mut found, mut open) = (cut.tokens as usize, Vec::new(), None::<(Range<usize>, usize)>);
    for paragraph in paragraphs(section) {
        let tokens = count(&section[paragraph.clone()]);
        match &mut open {
            Some((range, have)) if *have + tokens <= max => {
                *have += tokens;
                range.end = paragraph.end;
            }
            _ => {
                found.extend(open.take().map(|(range, _)| range));
                if tokens <= max {
                    open = Some((paragraph, tokens));
                } else {
                    found.extend(pieces(section, paragraph, cut, count));
                }
            }
        }
    }
    found.extend(open.map(|(range, _)| range));
    let trimmed = found.into_iter().map(|range| trim(section, range));
    trimmed.filter(|range| !range.is_empty()).collect()
}

/// Texts between empty lines, each with the blank lines after it, so that together they are all of the section.
fn paragraphs(section: &str) -> Vec<Range<usize>> {
    let (mut found, mut begin, mut at, mut blank) = (Vec::new(), 0, 0, false);
    for line in section.split_inclusive('\n') {
        let is_blank = line.trim().is_empty();
        if blank && !is_blank && at > begin {
            found.push(begin..at);
            begin = at;
        }
        blank = is_blank;
        at += line.len();
    }
    found.push(begin..section.len());
    found
}

/// Pieces of a paragraph that is too long: whole lines or sentences if these are short enough, else words.
fn pieces(section: &str, paragraph: Range<usize>, cut: Cut, count: &dyn Fn(&str) -> usize) -> Vec<Range<usize>> {
    let units = units(section, paragraph, cut.tokens as usize, count);
    let (mut found, mut first) = (Vec::new(), 0);
    while first < units.len() {
        let (mut end, mut tokens) = (first, 0);
        while end < units.len() && (end == first || tokens + units[end].1 <= cut.tokens as usize) {
            tokens += units[end].1;
            end += 1;
        }
        found.push(units[first].0.start..units[end - 1].0.end);
        if end == units.len() {
            break;
        }
        // So many units again that the overlap is filled and the next piece has something new.
        let (mut back, mut again) = (end, 0);
        while back > first + 1 && again + units[back - 1].1 <= cut.overlap as usize {
            back -= 1;
            again += units[back].1;
        }
        let fits_new = again + units[end].1 <= cut.tokens as usize;
        first = if fits_new { back } else { end };
    }
    found
}

/// Lines, sentences or words with their tokens, none of more than `max`, which together are the paragraph. As large as
/// a part of `max`, so that pieces end near it and an overlap is made of whole ones.
fn units(
    section: &str,
    paragraph: Range<usize>,
    max: usize,
    count: &dyn Fn(&str) -> usize,
) -> Vec<(Range<usize>, usize)> {
    let text = &section[paragraph.clone()];
    let (mut found, mut begin) = (Vec::new(), 0);
    let small = (max / 8).max(1);
    for end in sentence_ends(text) {
        let tokens = count(&text[begin..end]);
        if tokens <= small {
            found.push((begin..end, tokens));
        } else {
            found.extend(words(text, begin..end).into_iter().map(|word| {
                let tokens = count(&text[word.clone()]);
                (word, tokens)
            }));
        }
        begin = end;
    }
    let at = paragraph.start;
    found.into_iter().map(|(range, tokens)| (range.start + at..range.end + at, tokens)).collect()
}

/// Where sentences and lines end, the last one at the text's end.
fn sentence_ends(text: &str) -> Vec<usize> {
    let (mut ends, mut stopped) = (Vec::new(), false);
    for (at, c) in text.char_indices() {
        let after = at + c.len_utf8();
        // The blank belongs to the next sentence, as tokenizers have it.
        if (stopped && c.is_whitespace() || c == '\n') && at > 0 {
            ends.push(at);
        }
        if matches!(c, '。' | '！' | '？') {
            ends.push(after);
        }
        stopped = matches!(c, '.' | '!' | '?');
    }
    ends.push(text.len());
    ends.dedup();
    ends.retain(|end| *end > 0);
    ends
}

/// Words, each with the blanks before it; a very long one in parts.
fn words(text: &str, range: Range<usize>) -> Vec<Range<usize>> {
    let (mut found, mut begin, mut in_word) = (Vec::new(), range.start, false);
    for (at, c) in text[range.clone()].char_indices() {
        let at = at + range.start;
        if (c.is_whitespace() && in_word || at - begin >= WORD_BYTES_MAX) && at > begin {
            found.push(begin..at);
            begin = at;
        }
        in_word = !c.is_whitespace();
    }
    if range.end > begin {
        found.push(begin..range.end);
    }
    found
}

/// Without the blanks around it.
fn trim(section: &str, range: Range<usize>) -> Range<usize> {
    let text = &section[range.clone()];
    let begin = range.start + (text.len() - text.trim_start().len());
    begin..(begin + text.trim().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words_of(text: &str) -> usize {
        text.split_whitespace().count()
    }

    fn cut(section: &str, tokens: u32, overlap: u32) -> Vec<&str> {
        let found = passages(section, Cut { tokens, overlap }, &words_of);
        found.into_iter().map(|range| &section[range]).collect()
    }

    #[test]
    fn paragraphs_stay_whole_as_far_as_they_fit() {
        assert_eq!(cut("a b\n\nc d\n\ne f g\n", 4, 1), ["a b\n\nc d", "e f g"]);
        assert_eq!(cut("a b\nc d", 9, 1), ["a b\nc d"]);
        assert_eq!(cut("\n\n \n", 4, 1), [""; 0]);
    }

    #[test]
    fn a_long_paragraph_is_cut_into_pieces_that_overlap_and_its_neighbours_do_not() {
        let long = "x\n\na b c d e f g h i j\n\ny";
        assert_eq!(cut(long, 4, 1), ["x", "a b c d", "d e f g", "g h i j", "y"]);
        assert_eq!(cut(long, 4, 0), ["x", "a b c d", "e f g h", "i j", "y"]);
        let sentences = "One two three. Four five six. Seven eight nine.";
        assert_eq!(cut(sentences, 40, 0), [sentences]);
    }

    #[test]
    fn sentences_and_lines_are_not_cut_where_they_are_short() {
        let text: String = (0..30).map(|i| format!("Number {i}. ")).collect();
        let found = cut(&text, 17, 0);
        assert!(found.iter().all(|piece| piece.starts_with("Number") && piece.ends_with('.')), "{found:?}");
    }

    proptest! {
        #[test]
        fn passages_leave_nothing_out_and_none_is_too_long(
            section in "([a-c]{1,9}|[. \n])*(\n\n)?([a-cäß。]{1,3}[ \n]?){0,60}",
            tokens in 1u32..9,
            overlap in 0u32..5,
        ) {
            let overlap = overlap.min(tokens / 2);
            let found = passages(&section, Cut { tokens, overlap }, &words_of);
            prop_assert!(found.iter().all(|range| words_of(&section[range.clone()]) <= tokens as usize));
            prop_assert!(found.windows(2).all(|two| two[0].start < two[1].start && two[0].end < two[1].end));
            let mut covered = vec![false; section.len()];
            found.iter().for_each(|range| covered[range.clone()].fill(true));
            let left_out: String = section.char_indices().filter(|(at, _)| !covered[*at]).map(|(_, c)| c).collect();
            prop_assert_eq!(left_out.trim(), "");
        }
    }
}
