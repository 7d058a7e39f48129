//! Addresses in a text, as people write them: between words, quotes and brackets.

/// What may stand around an address and is no part of it.
const AROUND: &[char] = &['<', '>', '"', '\'', '`', '(', ')', '[', ']', '{', '}', '|', '*'];
/// What ends a sentence and no address.
const BEHIND: &[char] = &['.', ',', ';', ':', '!', '?'];

/// The addresses of a text.
pub fn addresses_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_whitespace() || AROUND.contains(&c));
    words.map(|word| word.trim_end_matches(BEHIND)).filter(|word| {
        let head = word.get(..8).unwrap_or(word).to_ascii_lowercase();
        head.starts_with("http://") || head.starts_with("https://")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_stand_between_words_and_end_before_the_sentence_does() {
        let text =
            "See http://a.test/x?y=1, <https://b.test/>, [c](HTTPS://c.test/p). Not ftp://d or httpx://e, héttp.";
        assert_eq!(
            addresses_in(text).collect::<Vec<_>>(),
            ["http://a.test/x?y=1", "https://b.test/", "HTTPS://c.test/p"]
        );
    }
}
