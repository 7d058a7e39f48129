//! Finds stop strings in a stream of text, and holds back what may still become one.

/// Watches one choice's text. The text ends before the stop string that is complete first; of two that are complete at
/// the same character, before the longer one.
#[derive(Clone, Debug)]
pub struct StopScanner {
    matchers: Vec<Matcher>,
    /// The end of the text, as far as it may be the start of a stop string.
    held: String,
    stopped: bool,
}

/// What may be passed on, and whether the text ends there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Text that is certainly no part of a stop string.
    pub text: String,
    /// Which stop string ended the text.
    pub stop: Option<usize>,
}

impl StopScanner {
    /// Empty strings, which would end every text before it begins, are refused where requests are checked.
    pub fn new<S: AsRef<str>>(stops: &[S]) -> Self {
        debug_assert!(stops.iter().all(|s| !s.as_ref().is_empty()));
        Self { matchers: stops.iter().map(|s| Matcher::new(s.as_ref())).collect(), held: String::new(), stopped: false }
    }

    /// Takes the next piece of text. After a stop nothing is taken any more.
    pub fn push(&mut self, piece: &str) -> Scanned {
        if self.stopped {
            return Scanned::default();
        }
        if self.matchers.is_empty() {
            return Scanned { text: piece.to_owned(), stop: None };
        }
        let before = self.held.len();
        self.held.push_str(piece);
        for (i, &byte) in piece.as_bytes().iter().enumerate() {
            if let Some((which, len)) = self.step(byte) {
                self.stopped = true;
                self.held.truncate(before + i + 1 - len);
                return Scanned { text: std::mem::take(&mut self.held), stop: Some(which) };
            }
        }
        let open = self.matchers.iter().map(|m| m.matched).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - open);
        Scanned { text: std::mem::replace(&mut self.held, rest), stop: None }
    }

    /// What was held back, when no more text comes.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Moves every matcher on; the longest stop string that this byte completes.
    fn step(&mut self, byte: u8) -> Option<(usize, usize)> {
        let mut found: Option<(usize, usize)> = None;
        for (which, matcher) in self.matchers.iter_mut().enumerate() {
            if matcher.step(byte) && found.is_none_or(|(_, len)| matcher.stop.len() > len) {
                found = Some((which, matcher.stop.len()));
            }
        }
        found
    }
}

/// Knuth, Morris and Pratt's automaton for one stop string: linear in the text, whatever the string.
#[derive(Clone, Debug)]
struct Matcher {
    stop: Box<[u8]>,
    /// For each length of a partial match the longest shorter one that is also a suffix of it.
    shorter: Box<[usize]>,
    /// Bytes of the stop string that the text ends with.
    matched: usize,
}

impl Matcher {
    fn new(stop: &str) -> Self {
        let stop: Box<[u8]> = stop.as_bytes().into();
        let mut shorter = vec![0; stop.len() + 1];
        let mut k = 0;
        for i in 1..stop.len() {
            while k > 0 && stop[i] != stop[k] {
                k = shorter[k];
            }
            k += usize::from(stop[i] == stop[k]);
            shorter[i + 1] = k;
        }
        Self { stop, shorter: shorter.into(), matched: 0 }
    }

    /// True when the text now ends with the whole stop string, after which it must not be asked again.
    fn step(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.stop[self.matched] != byte {
            self.matched = self.shorter[self.matched];
        }
        self.matched += usize::from(self.stop[self.matched] == byte);
        self.matched == self.stop.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pieces in, pieces out; `|` stands for the stop.
    fn check(stops: &[&str], pieces: &[&str], expected: &[&str]) {
        let mut scanner = StopScanner::new(stops);
        let mut out = Vec::new();
        for piece in pieces {
            let scanned = scanner.push(piece);
            out.push(scanned.text + if scanned.stop.is_some() { "|" } else { "" });
        }
        out.push(scanner.finish());
        assert_eq!(out, expected);
    }

    #[test]
    fn a_stop_string_across_pieces_is_never_shown() {
        check(&["END"], &["abE", "N", "D tail", "more"], &["ab", "", "|", "", ""]);
    }

    #[test]
    fn only_what_may_be_a_start_is_held() {
        check(&["END"], &["abE", "N", "X", "E"], &["ab", "", "ENX", "", "E"]);
        check(&["aab"], &["aa", "aa", "c"], &["", "aa", "aac", ""]);
    }

    #[test]
    fn the_stop_that_is_complete_first_wins() {
        check(&["abcd", "bc"], &["xabcd"], &["xa|", ""]);
        check(&["c", "abc"], &["xabcd"], &["x|", ""]);
    }

    #[test]
    fn characters_of_several_bytes_stay_whole() {
        check(&["é!"], &["aé", "b", "é", "!"], &["a", "éb", "", "|", ""]);
        check(&["è"], &["é"], &["é", ""]);
    }

    #[test]
    fn without_stop_strings_text_passes() {
        check(&[], &["a", ""], &["a", "", ""]);
    }

    #[test]
    fn the_stop_is_told_by_its_number() {
        assert_eq!(StopScanner::new(&["x", "b"]).push("abx").stop, Some(1));
    }

    /// The definition: the earliest end of any stop string, and of those the earliest start.
    fn naive<'a>(stops: &[String], text: &'a str) -> &'a str {
        let ends = stops.iter().filter_map(|s| text.find(s.as_str()).map(|at| (at + s.len(), at)));
        ends.min().map_or(text, |(_, at)| &text[..at])
    }

    proptest! {
        #[test]
        fn scanning_finds_what_a_search_of_the_whole_finds(
            stops in prop::collection::vec("[abé]{1,4}", 0..4),
            pieces in prop::collection::vec("[abcé]{0,4}", 0..12),
        ) {
            let text = pieces.concat();
            let mut scanner = StopScanner::new(&stops);
            let mut shown = String::new();
            for piece in &pieces {
                shown += &scanner.push(piece).text;
                // Nothing that is shown is ever taken back.
                prop_assert!(naive(&stops, &text).starts_with(&shown));
                // Nothing is held that cannot become a stop string.
                prop_assert!(scanner.held.is_empty() || stops.iter().any(|s| s.starts_with(&scanner.held)));
            }
            shown += &scanner.finish();
            prop_assert_eq!(shown, naive(&stops, &text));
        }
    }
}
