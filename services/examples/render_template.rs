//! Renders conversations by chat templates as the service does, for `scripts/templates.py`: each line of the standard
//! input is a case in JSON, each line of the output its text or its error.

use chimere::text::guard::Guard;
use chimere::text::template::TemplateGlobals;
use chimere::text::{ChatTemplate, Conversation, Message, RawJson, Tokenizer};
use chimere_engine::format::TokenizerSource;
use serde_json::{Value, json};
use std::io::{BufRead, stdin};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time of the cases, in seconds since 1970. All have the same.
static NOW: OnceLock<u64> = OnceLock::new();

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW.get().copied().unwrap_or_default())
}

fn main() {
    let file = include_bytes!("../../engine/tests/golden/moe/tokenizer.json");
    let tokenizer = Tokenizer::new(&TokenizerSource::Json(file.to_vec())).expect("a good tokenizer");
    let tokenizer = Arc::new(tokenizer);
    for line in stdin().lock().lines() {
        let case: Value = serde_json::from_str(&line.expect("text")).expect("a case in JSON");
        println!("{}", rendered(&case, &tokenizer).map_or_else(|e| json!({"error": e}), |text| json!({"text": text})));
    }
}

fn rendered(case: &Value, tokenizer: &Arc<Tokenizer>) -> Result<String, String> {
    NOW.get_or_init(|| case["now"].as_u64().unwrap_or_default());
    let token = |name: &str| case[name].as_str().map(str::to_owned);
    let globals = TemplateGlobals { bos_token: token("bos"), eos_token: token("eos"), clock: now };
    let list = |name: &str| case[name].as_array().cloned().unwrap_or_default();
    let messages = list("messages").iter().map(Message::of_json).collect::<Option<_>>().ok_or("not a message")?;
    let tools = list("tools").into_iter().map(RawJson).collect();
    let options = case["options"].as_object().cloned().unwrap_or_default();
    let conversation = Conversation { messages, tools, options, continues: false };
    let source = case["template"].as_str().unwrap_or_default();
    let template = ChatTemplate::with_globals(source, Guard::new(tokenizer), &globals).map_err(|e| e.to_string())?;
    let open = case["open"].as_bool().unwrap_or(true);
    let text = if open { template.render(&conversation) } else { template.render_closed(&conversation) };
    // What guards a text is taken out when it is tokenized.
    text.map(|text| tokenizer.decode(&tokenizer.encode_guarded(&text), true)).map_err(|e| e.to_string())
}
