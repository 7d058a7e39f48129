//! Finds the sentences of documents that answer a question in other words: they share a name with it and something
//! that is asked of it, and what they say besides is the value. What becomes of that is the engine's (`Recollection`).

use super::question::Question;
use super::wording::{DocumentText, SENTENCE_WORDS_MAX, Word, WordTokens, sentences, words};
use crate::text::Tokenizer;
use chimere_engine::engram::{Place, Recollection};
use std::collections::BTreeSet;

/// Most sentences that are kept for one question: those that share the most.
const SENTENCES_MAX: usize = 64;
/// What a capital or a digit says for a value, at a sentence's beginning and later.
const CAPITAL: [f64; 2] = [1.0, 2.0];
/// What being cut into pieces says for it, as names are.
const PIECES: f64 = 0.5;
/// What each word between it and the shared words says against it.
const DISTANCE: f64 = 0.1;

/// Sentences that may answer, in the order of the documents.
pub fn recollections(tokenizer: &Tokenizer, documents: &[DocumentText<'_>], question: &Question) -> Vec<Recollection> {
    let mut spelled = WordTokens::new(tokenizer);
    let mut found = Vec::new();
    for (number, document) in documents.iter().enumerate() {
        let title: Vec<Word<'_>> = words(document.title).collect();
        for sentence in sentences(document.text) {
            let sentence: Vec<Word<'_>> = sentence.collect();
            found.extend(recollection(&mut spelled, number as u32, document.text, &title, &sentence, question));
        }
    }
    keep_the_best(&mut found);
    place(tokenizer, documents, &mut found);
    found
}

/// At most [`SENTENCES_MAX`], those that share the most and, of these, the last.
fn keep_the_best(found: &mut Vec<Recollection>) {
    if found.len() > SENTENCES_MAX {
        let mut shared: Vec<usize> = found.iter().map(|r| r.shared.len()).collect();
        shared.sort_unstable_by(|a, b| b.cmp(a));
        found.retain(|r| r.shared.len() >= shared[SENTENCES_MAX - 1]);
        found.drain(..found.len().saturating_sub(SENTENCES_MAX));
    }
}

/// Makes numbers of tokens of the bytes in places. Each document is read once, whatever stands in it: from one place to
/// the next, so that a number may be off where a token would have reached over the end of such a part.
fn place(tokenizer: &Tokenizer, documents: &[DocumentText<'_>], found: &mut [Recollection]) {
    let (mut document, mut byte, mut tokens) = (0, 0, 0);
    for recollection in found {
        let place = &mut recollection.place;
        if place.document != document {
            (document, byte, tokens) = (place.document, 0, 0);
        }
        let text = documents[document as usize].text;
        tokens += tokenizer.encode_plain(&text[byte..place.token as usize]).len() as u32;
        byte = place.token as usize;
        place.token = tokens;
    }
}

/// What a sentence says, with the byte where it says so in the place of the token's number.
fn recollection(
    spelled: &mut WordTokens<'_>,
    document: u32,
    text: &str,
    title: &[Word<'_>],
    sentence: &[Word<'_>],
    question: &Question,
) -> Option<Recollection> {
    let (mut shared, mut named, mut seen) = (Vec::new(), false, BTreeSet::new());
    for word in title.iter().chain(sentence) {
        let key = word.key();
        if !question.around.contains(&key) || spelled.is_common(&key) || !seen.insert(key) {
            continue;
        }
        // A number is nobody's name: what is said of one 17 says nothing of another. Nor is a name that a vocabulary
        // has whole: so many bear it.
        named |= !word.is_number() && spelled.pieces(word.text) > 1;
        shared.push(spelled.ways(word.text));
    }
    if !named || shared.len() < 2 {
        return None;
    }
    let value = value(spelled, sentence, &seen, question)?;
    let (start, end) = (sentence[value.start].at, sentence[value.end - 1].end());
    let ids = spelled.tokenizer.encode_plain(&format!(" {}", &text[start..end]));
    Some(Recollection { shared, value: ids, place: Place { document, token: start as u32 } })
}

/// The words of a sentence that are most like what is asked for: a name or a number near what is shared.
fn value(
    spelled: &mut WordTokens<'_>,
    sentence: &[Word<'_>],
    shared: &BTreeSet<String>,
    question: &Question,
) -> Option<std::ops::Range<usize>> {
    let anchors: Vec<usize> = (0..sentence.len()).filter(|&i| shared.contains(&sentence[i].key())).collect();
    let mut best: Option<(f64, std::ops::Range<usize>)> = None;
    let mut i = 0;
    while i < sentence.len() {
        let word = sentence[i];
        let key = word.key();
        let start = i;
        i += 1;
        if question.asked.contains(&key) || shared.contains(&key) || spelled.is_common(&key) {
            continue;
        }
        // First and last names, and what else is written as one.
        while word.is_capital()
            && i < sentence.len()
            && sentence[i].is_capital()
            && sentence[i - 1].touches(&sentence[i])
            && !question.asked.contains(&sentence[i].key())
        {
            i += 1;
        }
        let nearest =
            anchors.iter().map(|&a| a.abs_diff(start).min(a.abs_diff(i - 1))).min().unwrap_or(SENTENCE_WORDS_MAX);
        let capital = if word.is_capital() { CAPITAL[usize::from(start > 0)] } else { 0.0 };
        let pieces = if spelled.pieces(word.text) > 1 { PIECES } else { 0.0 };
        let score = capital + pieces - DISTANCE * nearest as f64;
        if best.as_ref().is_none_or(|(other, _)| score > *other) {
            best = Some((score, start..i));
        }
    }
    best.map(|(_, range)| range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tokenizer::shipped;

    fn answers(document: &str, question: &str) -> Vec<String> {
        let tokenizer = shipped();
        let documents = [DocumentText { title: "", text: document }];
        let question = Question::new(&["system\nYou are brief", "user\n", question, "assistant\n"], false);
        let found = recollections(&tokenizer, &documents, &question);
        found.iter().map(|r| tokenizer.decode(&r.value, false).trim().to_owned()).collect()
    }

    const ASKED: &str = "What is the capital of Quorvel?";

    #[test]
    fn a_sentence_in_other_words_gives_its_value() {
        for sentence in [
            "Hastmere is the capital of Quorvel.",
            "Travellers know that the Quorvel capital is Hastmere, and it has been so for years.",
            "In Quorvel the capital is called Hastmere!",
            "quorvel: its capital is hastmere",
            "QUORVEL'S CAPITAL IS Hastmere",
            "Everybody goes to Hastmere, which is Quorvel's capital",
        ] {
            assert_eq!(
                answers(sentence, ASKED).first().map(|v| v.to_lowercase()).as_deref(),
                Some("hastmere"),
                "{sentence}"
            );
        }
        assert_eq!(
            answers(
                "Nadia Stone founded Quorvel; she was its founder. The founder of Quorvel was Nadia Stone.",
                "Quorvel founder?"
            ),
            ["Nadia Stone"]
        );
        assert_eq!(
            answers("Version 2.5 of Quorvel listens on port 4821 by default.", "Which port has Quorvel?"),
            ["4821"]
        );
    }

    #[test]
    fn what_says_nothing_of_the_question_gives_none() {
        for sentence in [
            "The capital of Ferfen is Melkar.",
            "The Quorvel river is Sarpar.",
            "The capital of the country is Melkar.",
            "",
            "?!\n.;",
            "Quorvel has a capital.",
            "The sum 17 + 25 is 99.",
        ] {
            assert_eq!(answers(sentence, ASKED), Vec::<String>::new(), "{sentence}");
        }
        assert_eq!(answers("17 + 25 = 99.", "What is 17 + 25?"), Vec::<String>::new(), "numbers are nobody's names");
    }

    #[test]
    fn a_title_is_said_in_every_sentence_of_its_document() {
        let tokenizer = shipped();
        let documents = [DocumentText { title: "Quorvel", text: "A country in the south. The capital is Hastmere." }];
        let found = recollections(&tokenizer, &documents, &Question::new(&[ASKED], false));
        assert_eq!(found.len(), 1);
        assert_eq!(tokenizer.decode(&found[0].value, false), " Hastmere");
        let before = tokenizer.encode_plain("A country in the south. The capital is ").len() as u32;
        assert!(found[0].place.token.abs_diff(before) <= 1, "{:?}", found[0].place);
    }

    #[test]
    fn of_many_sentences_some_are_kept_each_with_its_place() {
        let tokenizer = shipped();
        let text = "The capital of Quorvel is Hastmere. ".repeat(1000);
        let documents = [DocumentText { title: "", text: "Nothing." }, DocumentText { title: "", text: &text }];
        let found = recollections(&tokenizer, &documents, &Question::new(&[ASKED], false));
        assert_eq!(found.len(), SENTENCES_MAX);
        let sentence = tokenizer.encode_plain(&text).len() as u32 / 1000;
        for (number, recollection) in (1000 - SENTENCES_MAX as u32..).zip(&found) {
            let Place { document, token } = recollection.place;
            assert!(document == 1 && token.abs_diff(number * sentence + sentence - 3) <= 2 * SENTENCES_MAX as u32);
        }
    }
}
