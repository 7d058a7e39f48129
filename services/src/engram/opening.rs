//! Finds the sentence that an answer may begin with: it says all that a question names, and something besides. What
//! becomes of that is the engine's (`Opening`).

use super::question::Question;
use super::wording::{DocumentText, Word, WordTokens, is_number, sentences, words};
use crate::text::Tokenizer;
use chimere_engine::engram::{Opening, Place, rareness};
use chimere_engine::ids::TokenId;
use std::collections::BTreeSet;

/// Words that a question and a sentence share at least; numbers do not count.
const SHARED_MIN: usize = 2;
/// Share of what a question says, by the rareness of its words, that a sentence has to say too: the rest is how one
/// asks, such as "who" and "tell me".
const COVERED_MIN: f32 = 0.6;
/// Letters in which a word and another form of it begin alike, and by how many their lengths differ at most. A word of
/// fewer letters counts as no name, though a vocabulary may have it in pieces.
const STEM_LETTERS: usize = 4;
const ENDING_LETTERS: usize = 3;
/// Tokens of a sentence that are said: what follows is found as what stands in a document.
const TOKENS_MAX: usize = 28;
/// What stands between a thought and an answer.
const LEAD: &str = "\n\n";

/// The sentence that says most of the question, and the id that ends an answer; of equal sentences the last.
pub(crate) fn opening(
    tokenizer: &Tokenizer,
    documents: &[DocumentText<'_>],
    question: &Question,
    end: Option<TokenId>,
) -> Option<Opening> {
    let mut spelled = WordTokens::new(tokenizer);
    let asked = QuestionWords::new(&mut spelled, question.whole.as_ref()?)?;
    let mut best: Option<(f32, usize, usize, usize)> = None;
    for (number, document) in documents.iter().enumerate() {
        let title: Vec<Word<'_>> = words(document.title).collect();
        for sentence in sentences(document.text) {
            let sentence: Vec<Word<'_>> = sentence.collect();
            let Some(covered) = asked.covered(&mut spelled, document.text, &title, &sentence) else { continue };
            if best.is_none_or(|(other, ..)| covered >= other) {
                best = Some((covered, number, sentence[0].at, end_of(document.text, &sentence)));
            }
        }
    }
    let (_, number, start, stop) = best?;
    let text = documents[number].text;
    let mut tokens = tokenizer.encode_plain(&text[start..stop]);
    tokens.extend(end.filter(|_| tokens.len() <= TOKENS_MAX));
    tokens.truncate(TOKENS_MAX + 1);
    let token = tokenizer.encode_plain(&text[..start]).len() as u32;
    Some(Opening { lead: tokenizer.encode_plain(LEAD), tokens, place: Place { document: number as u32, token } })
}

/// The byte behind a sentence and its stop.
fn end_of(text: &str, sentence: &[Word<'_>]) -> usize {
    let end = sentence[sentence.len() - 1].end();
    end + text[end..].chars().next().filter(|c| ".!;。！".contains(*c)).map_or(0, char::len_utf8)
}

/// The words of a question that mean something.
struct QuestionWords(Vec<AskedWord>);

struct AskedWord {
    key: String,
    rareness: f32,
    is_number: bool,
    /// A name or a number: a sentence without it is about something else.
    is_needed: bool,
}

impl QuestionWords {
    /// `None` where too little is asked for.
    fn new(spelled: &mut WordTokens<'_>, keys: &BTreeSet<String>) -> Option<Self> {
        let mut asked = Vec::new();
        for key in keys {
            if spelled.is_common(key) {
                continue;
            }
            let is_number = is_number(key);
            let is_name = spelled.pieces(key) > 1 && key.chars().count() >= STEM_LETTERS;
            let (rareness, is_needed) = (rareness(spelled.ids(key)), is_number || is_name);
            asked.push(AskedWord { key: key.clone(), rareness, is_number, is_needed });
        }
        (asked.iter().filter(|word| !word.is_number).count() >= SHARED_MIN).then_some(Self(asked))
    }

    /// Which share of the question a sentence says, if it may answer it.
    fn covered(
        &self,
        spelled: &mut WordTokens<'_>,
        text: &str,
        title: &[Word<'_>],
        sentence: &[Word<'_>],
    ) -> Option<f32> {
        let said: Vec<String> = title.iter().chain(sentence).map(Word::key).collect();
        // Names that begin alike are names of different things.
        let is = |said: &str, word: &AskedWord| said == word.key || !word.is_needed && is_form_of(said, &word.key);
        let is_said = |word: &AskedWord| said.iter().any(|said| is(said, word));
        let (shared, missing): (Vec<&AskedWord>, Vec<&AskedWord>) = self.0.iter().partition(|word| is_said(word));
        let weight = |words: &[&AskedWord]| words.iter().map(|word| word.rareness).sum::<f32>();
        let covered = weight(&shared) / (weight(&shared) + weight(&missing));
        let names = shared.iter().filter(|word| !word.is_number).count();
        if names < SHARED_MIN || covered < COVERED_MIN || missing.iter().any(|word| word.is_needed) {
            return None;
        }
        let asks = text[sentence.last()?.end()..].starts_with(['?', '？']);
        let mut is_new =
            |key: String| !spelled.is_common(&key) && !self.0.iter().any(|word| is_form_of(&key, &word.key));
        (!asks && sentence.iter().any(|word| is_new(word.key()))).then_some(covered)
    }
}

/// Whether two words are one, or begin alike and end otherwise, as "closes" and "close" do.
fn is_form_of(word: &str, other: &str) -> bool {
    let (mut left, mut right) = (word.chars(), other.chars());
    let alike = left.by_ref().zip(right.by_ref()).take_while(|(a, b)| a == b).count();
    let (word, other) = (word.chars().count(), other.chars().count());
    word == other && alike == word || alike >= STEM_LETTERS && word.max(other) - alike <= ENDING_LETTERS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tokenizer::shipped;

    fn begun(documents: &[&str], question: &str) -> Option<String> {
        let tokenizer = shipped();
        let documents: Vec<DocumentText<'_>> = documents.iter().map(|text| DocumentText { title: "", text }).collect();
        let turn = format!("user\n{question}");
        let question = Question::new(&["", &turn, "\n", "assistant\n"], false);
        opening(&tokenizer, &documents, &question, None).map(|o| tokenizer.decode(&o.tokens, false))
    }

    const NOTES: &str = "The Tarnok lighthouse keeper is Ilsa Brandt. The harbour of Tarnok closes at nine.\n\
                         Tickets for the Tarnok ferry cost four crowns.";

    #[test]
    fn a_sentence_that_says_all_that_is_asked_and_more_begins_the_answer() {
        for (question, sentence) in [
            ("Who is the Tarnok lighthouse keeper?", "The Tarnok lighthouse keeper is Ilsa Brandt."),
            ("When does the harbour of Tarnok close?", "The harbour of Tarnok closes at nine."),
            ("How much do tickets for the Tarnok ferry cost?", "Tickets for the Tarnok ferry cost four crowns."),
            ("Please tell me who the Tarnok lighthouse keeper is.", "The Tarnok lighthouse keeper is Ilsa Brandt."),
        ] {
            assert_eq!(begun(&[NOTES], question).as_deref(), Some(sentence), "{question}");
        }
        let two = ["The capital of Zorbia is Flimton.", "The capital of Zorbia is Ostrel."];
        assert_eq!(begun(&two, "What is the capital of Zorbia?").as_deref(), Some(two[1]), "the later one");
    }

    #[test]
    fn other_sentences_do_not() {
        for (document, question) in [
            ("The capital of Zorbia is Flimton.", "What is the capital of Ferland?"),
            ("The capital of Zorbia is Flimton.", "What is the river of Zorbia?"),
            ("The capital of Zorbia is Flimton.", "Is Flimton the capital of Zorbia?"),
            ("Do you know the capital of Zorbia, Flimton?", "What is the capital of Zorbia?"),
            ("The capital of Zorbia is Flimton.", "Write a long poem about rivers near the capital of Zorbia"),
            ("Port 4821 and 17 make 99.", "What is 4821 + 17?"),
            ("The capital of Zorbia is Flimton.", "What is the capital of Zorban?"),
            ("", "What is the capital of Zorbia?"),
            ("The capital of Zorbia is Flimton.", ""),
        ] {
            assert_eq!(begun(&[document], question), None, "{document} {question}");
        }
    }

    #[test]
    fn a_title_counts_as_said_and_a_place_is_the_sentence_s() {
        let tokenizer = shipped();
        let text = "A country in the south. Its capital is Hastmere.";
        let question = Question::new(&["", "user\nWhat is the capital of Quorvel?", "assistant\n"], false);
        let found = opening(&tokenizer, &[DocumentText { title: "Quorvel", text }], &question, Some(3)).unwrap();
        assert_eq!(found.tokens, [&tokenizer.encode_plain("Its capital is Hastmere.")[..], &[3]].concat());
        let before = tokenizer.encode_plain("A country in the south.").len() as u32;
        assert!(found.place.document == 0 && found.place.token.abs_diff(before) <= 1, "{:?}", found.place);
    }
}
