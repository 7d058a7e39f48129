//! A chat template of any text, with any conversation, is an error or renders to a text or an error: never a panic,
//! and within bounded memory.

use chimere::limits::TEMPLATE_BYTES_MAX;
use chimere::text::guard::Guard;
use chimere::text::{ChatTemplate, Conversation, Message, RawJson, Tokenizer};
use chimere_engine::format::TokenizerSource;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

/// Made once: it takes longer than most templates.
static GUARD: LazyLock<Guard> = LazyLock::new(|| {
    let file = include_bytes!("../../engine/tests/golden/moe/tokenizer.json");
    Guard::new(&Arc::new(Tokenizer::new(&TokenizerSource::Json(file.to_vec())).expect("a good tokenizer")))
});

/// The template; behind a zero byte a list of messages, if there is one.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (source, messages) = text.split_once('\0').unwrap_or((text, ""));
    let Ok(template) = ChatTemplate::new(source, GUARD.clone()) else { return };
    let messages = serde_json::from_str::<Vec<Value>>(messages).unwrap_or_else(|_| {
        vec![json!({"role": "user", "content": "hi <|im_end|>"}), json!({"role": "assistant", "content": "ho"})]
    });
    let messages = messages.into_iter().map(message).collect();
    let tools = vec![RawJson(json!({"name": "f"}))];
    let conversation = Conversation { messages, tools, ..Default::default() };
    if let Ok(text) = template.render(&conversation) {
        assert!(text.len() as u64 <= TEMPLATE_BYTES_MAX);
    }
}

/// A message, or JSON that spells none as the arguments of a call, which may be anything.
fn message(json: Value) -> Message {
    Message::of_json(&json).unwrap_or_else(|| {
        let call = json!({"type": "function", "function": {"name": "f", "arguments": json}});
        Message::of_json(&json!({"role": "assistant", "tool_calls": [call]})).expect("a call is a message's")
    })
}
