//! A form of any kind, of any text, is an error that says why or a grammar that can be followed: where it allows
//! something, what it allows may come. Never a panic, and never more than the limits allow.

use chimere::text::grammar::{AnswerForm, Calls, Grammars, Structure};
use chimere::text::{Thinking, Tokenizer, Tool};
use chimere_engine::constraint::Effect;
use chimere_engine::constraint::grammar::Grammar;
use chimere_engine::format::TokenizerSource;
use std::sync::{Arc, LazyLock};

/// Tokens that are followed.
const TOKENS: usize = 24;

static GRAMMARS: LazyLock<Grammars> = LazyLock::new(|| {
    let file = include_bytes!("../../engine/tests/golden/moe/tokenizer.json");
    let tokenizer = Tokenizer::new(&TokenizerSource::Json(file.to_vec())).expect("a good tokenizer");
    let end = tokenizer.id("<|im_end|>").expect("the tokenizer has an end");
    Grammars::new(Arc::new(tokenizer), vec![end])
});

/// The first byte says which form the rest is.
pub fn run(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let Some(structure) = structure(*kind, text) else { return };
    let Ok(grammar) = GRAMMARS.compile(&structure) else { return };
    let mut sequence =
        grammar.after(Some(Thinking::Closed)).expect("there is no thought whose end is to be told").begin(0);
    for i in 0..TOKENS {
        let token = match sequence.rule() {
            Ok(Some(Effect::Allow(mask))) => nth(&mask, i * usize::from(*kind) + rest.len()),
            Ok(Some(Effect::Forbid(ids))) => (0..).find(|id| !ids.contains(id)).expect("some token is left"),
            Ok(_) => return,
            Err(_) => return,
        };
        ahead(&mut *sequence);
        if sequence.take(token).is_err() {
            return;
        }
    }
}

/// What has to come may come, as far as it is certain, and what is supposed is forgotten.
fn ahead(sequence: &mut dyn Grammar) {
    for token in sequence.forced() {
        if !sequence.suppose(token) || sequence.rule().is_err() {
            break;
        }
    }
    sequence.recall();
}

fn structure(kind: u8, text: &str) -> Option<Structure> {
    let form = match kind {
        b'j' => AnswerForm::Json { schema: serde_json::from_str(text).ok()?, compact: false, closed: false },
        b'c' => AnswerForm::Json { schema: serde_json::from_str(text).ok()?, compact: true, closed: true },
        b'r' => AnswerForm::Regex(text.to_owned()),
        b'o' => AnswerForm::Choice(text.lines().map(str::to_owned).collect()),
        b'l' => AnswerForm::Lark(text.to_owned()),
        b'g' => AnswerForm::Gbnf(text.to_owned()),
        b't' | b'm' => {
            let tools = vec![Tool { name: "f".into(), parameters: serde_json::from_str(text).ok()? }];
            return Some(Structure { form: None, calls: Some(Calls { tools, must: kind == b't', several: true }) });
        }
        _ => return None,
    };
    Some(Structure { form: Some(form), calls: None })
}

/// One of the tokens that a mask allows, of which there is at least one.
fn nth(mask: &[u32], n: usize) -> u32 {
    let allowed: Vec<u32> =
        (0..mask.len() as u32 * 32).filter(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1).collect();
    assert!(!allowed.is_empty(), "a grammar that goes on allows something");
    allowed[n % allowed.len()]
}
