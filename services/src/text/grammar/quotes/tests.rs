use super::*;
use crate::text::grammar::GrammarStart;
use crate::text::tokenizer::golden;
use chimere_engine::constraint::Effect;
use chimere_engine::constraint::grammar::Grammar;
use proptest::prelude::*;

const PORT: &str = "The port of Kelm lies in\nthe north. It was built in 1871 by „Anna“ and called \"the old\" one.";
const SONG: &str = "The song of Dosh is sung in spring.";

fn quotes(passages: &[&str]) -> Arc<Quotes> {
    let tokenizer = golden();
    let end = tokenizer.id("<|im_end|>").unwrap();
    Grammars::new(tokenizer, vec![end]).quotes(passages.iter().copied()).unwrap()
}

fn allows(rule: &Option<Effect>, id: TokenId) -> bool {
    match rule {
        None => true,
        Some(Effect::Allow(mask)) => mask.get(id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1),
        Some(Effect::Forbid(ids)) => !ids.contains(&id),
        other => panic!("{other:?}"),
    }
}

/// The part of a text that may come.
fn followed(quotes: &Arc<Quotes>, thinking: Option<Thinking>, text: &str) -> String {
    let tokenizer = golden();
    let mut sequence = GrammarStart::of_quotes(quotes.clone(), thinking).begin(0);
    let ids = tokenizer.encode(text);
    for (at, id) in ids.iter().enumerate() {
        if !allows(&sequence.rule().unwrap(), *id) {
            return tokenizer.decode(&ids[..at], true);
        }
        sequence.take(*id).unwrap();
    }
    text.to_owned()
}

#[test]
fn between_marks_only_words_of_a_passage_may_come() {
    let quotes = quotes(&[PORT, SONG]);
    for text in [
        "It says \"built in 1871\" and \"The song of Dosh\", no more.",
        "\"lies in the north.\"",
        "\"north. It was\"",
        "\"by „Anna“ and\"",
        "\"1871\"",
        "Anything at all may come, such as 1872, the moon and {\"",
    ] {
        assert_eq!(followed(&quotes, None, text), text);
    }
    for (text, good) in [
        ("\"built in 1872\"", "\"built in 187"),
        ("\"Dosh lies in\"", "\"Dosh "),
        ("\"ort of Kelm\"", "\""),
        ("\"the nor\"", "\"the nor"),
        ("\"\"", "\""),
        ("\"the north. The song\"", "\"the north. "),
        ("\"called the old", "\"called"),
    ] {
        let got = followed(&quotes, None, text);
        // A token is more than a character, so less may have come than could.
        assert!(good.starts_with(&got) && got.len() + 5 > good.len(), "{text}: {got}");
    }
}

#[test]
fn a_thought_may_say_what_it_likes_and_its_end_begins_the_answer() {
    let quotes = quotes(&[SONG]);
    let text = "so \"on\"</think>\n\n\"song of Dosh\"";
    assert_eq!(followed(&quotes, Some(Thinking::Open), text), text);
    let got = followed(&quotes, Some(Thinking::Open), "so \"on\"</think>\n\n\"on\"");
    assert!(got.ends_with("</think>\n\n\"o"), "{got}");
}

#[test]
fn supposed_tokens_are_forgotten() {
    let quotes = quotes(&[SONG]);
    let mut sequence = QuoteSequence::new(quotes, OutputStage::Answer);
    let mark = golden().id("\"").unwrap();
    let free = sequence.rule().unwrap();
    assert!(sequence.suppose(mark) && !allows(&sequence.rule().unwrap(), golden().id("x").unwrap()));
    assert!(!sequence.suppose(mark), "nothing is quoted");
    sequence.recall();
    assert_eq!(sequence.rule().unwrap(), free);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn a_mask_allows_the_tokens_whose_bytes_may_come_and_no_others(
        passages in prop::collection::vec("[ab. \"é\n]{0,30}", 1..4),
        tokens in prop::collection::vec(any::<prop::sample::Index>(), 0..12)
    ) {
        let quotes = quotes(&passages.iter().map(String::as_str).collect::<Vec<_>>());
        let tokenizer = golden();
        let text: Vec<TokenId> = (0..tokenizer.len()).filter(|id| tokenizer.kind(*id) == TokenKind::Text).collect();
        let mut sequence = QuoteSequence::new(quotes.clone(), OutputStage::Answer);
        for draw in tokens {
            let (rule, place) = (sequence.rule().unwrap(), sequence.place.clone());
            // A token may close a quote, and open none: that would be two in one.
            let marks = |id: &TokenId| tokenizer.bytes(*id).iter().filter(|byte| **byte == MARK).count();
            for id in text.iter().filter(|id| marks(id) < 2) {
                let comes = quotes.after(&place, tokenizer.bytes(*id)).is_some();
                prop_assert_eq!(allows(&rule, *id), comes, "{:?} {:?}", place, tokenizer.text(*id));
            }
            let allowed: Vec<&TokenId> = text.iter().filter(|id| allows(&rule, **id)).collect();
            if allowed.is_empty() {
                break;
            }
            sequence.take(**draw.get(&allowed)).unwrap();
        }
    }
}
