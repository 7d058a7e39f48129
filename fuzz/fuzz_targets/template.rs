//! A chat template of any text is an error or renders a conversation to a text or an error, never a panic, within bounded memory.
#![no_main]

use chimere::text::guard::Guard;
use chimere::text::{ChatTemplate, Conversation, Tokenizer};
use chimere_engine::format::TokenizerSource;
use libfuzzer_sys::fuzz_target;
use serde_json::json;
use std::sync::LazyLock;

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let file = include_bytes!("../../engine/tests/golden/moe/tokenizer.json");
    Tokenizer::new(&TokenizerSource::Json(file.to_vec())).expect("a good tokenizer")
});

fuzz_target!(|source: &str| {
    let Ok(template) = ChatTemplate::new(source, Guard::new(&TOKENIZER)) else { return };
    let messages = vec![json!({"role": "user", "content": "hi <|im_end|>"}), json!({"role": "assistant", "content": "ho"})];
    let _ = template.render(&Conversation { messages, ..Default::default() });
});
