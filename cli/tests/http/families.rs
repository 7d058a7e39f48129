//! The families beside Qwen's hybrids behind the program itself: tiny random weights, each with the pre-tokenizer and
//! the kind of template that its releases have.

use crate::support::*;
use chimere_engine::format::Gguf;
use chimere_engine::format::gguf::{GgufHeader, MetaValue};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const CHAT: &str = "/v1/chat/completions";

/// ChatML with a switch for thoughts and calls in tags, as Nemotron 3 has them.
const TAGS: &str = "{%- if tools %}<|im_start|>system\nTools: {{ tools | tojson }}. Call as <tool_call><function=NAME><parameter=KEY>\
{{ '<|im_end|>\n' }}{%- endif %}\
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}\
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}\
{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think></think>' }}{%- else %}{{ '<think>\n' }}{%- endif %}{%- endif %}";

/// ChatML with calls as objects, as Granite 4 and Falcon-H1 have them.
const OBJECTS: &str = "{%- if tools %}<|im_start|>system\nTools: {{ tools | tojson }}. \
Call as <tool_call>{\"name\": NAME, \"arguments\": OBJECT}</tool_call>{{ '<|im_end|>\n' }}{%- endif %}\
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}\
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}";

fn golden(preset: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../engine/tests/golden/{preset}/model.gguf"))
}

/// A preset's weights with the tokenizer of `moe`, which alone has one, under the family's pre-tokenizer.
fn served(dir: &TempDir, preset: &str, pre: &str, template: Option<&str>) -> PathBuf {
    let (weights, text) = (Gguf::open(&golden(preset)).unwrap(), Gguf::open(&golden("moe")).unwrap());
    let mut header = GgufHeader::default();
    let of_text = |key: &str| key.starts_with("tokenizer.");
    for (key, bytes) in weights.meta().encoded().filter(|(key, _)| !of_text(key)) {
        header.set(key, MetaValue::Encoded(bytes.to_vec()));
    }
    let replaced = ["tokenizer.ggml.pre", "tokenizer.chat_template"];
    for (key, bytes) in text.meta().encoded().filter(|(key, _)| of_text(key) && !replaced.contains(key)) {
        header.set(key, MetaValue::Encoded(bytes.to_vec()));
    }
    header.set(replaced[0], MetaValue::Str(pre.into()));
    template.into_iter().for_each(|template| _ = header.set(replaced[1], MetaValue::Str(template.into())));
    let tensors: Vec<_> = weights.tensors_in_order().collect();
    tensors.iter().for_each(|t| _ = header.tensor(&t.name, t.ty, &t.shape));
    let mut bytes = header.to_bytes();
    for t in &tensors {
        bytes.extend_from_slice(t.bytes());
        bytes.resize(header.padded(bytes.len() as u64) as usize, 0);
    }
    let path = dir.path().join(format!("{preset}.gguf"));
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Checks that an answer has equal bytes alone, among others and streamed.
fn check_completions(program: &Program) {
    let body = json!({"prompt": "Once upon a TIME in 1234 lines\n\n", "max_tokens": 24, "temperature": 0, "logprobs": 2, "ignore_eos": true});
    let alone = post(program.addr, "/v1/completions", &body).json();
    assert_eq!(alone["usage"]["completion_tokens"], 24, "{alone}");
    let together: Vec<_> = (0..4)
        .map(|_| (body.clone(), program.addr))
        .map(|(body, addr)| std::thread::spawn(move || post(addr, "/v1/completions", &body).json()))
        .collect();
    for other in together {
        assert_eq!(other.join().unwrap()["choices"], alone["choices"], "the same bytes alone and together");
    }
}

/// A question without a word about thoughts, of which some of the templates know nothing.
fn asked(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

fn tools() -> Value {
    let parameters = json!({"type": "object", "properties": {"unit": {"type": "string", "enum": ["C", "F"]}, "days": {"enum": [1, 2]}},
        "required": ["unit", "days"]});
    json!([{"type": "function", "function": {"name": "weather", "parameters": parameters}}])
}

/// A call that has to come, whole and streamed.
fn check_tools(program: &Program, more: Value) {
    let wanted = json!({"tools": tools(), "tool_choice": "required", "parallel_tool_calls": false, "max_tokens": 400, "temperature": 0});
    let body = with(with(asked("How warm is it?"), wanted), more);
    let reply = post(program.addr, CHAT, &body);
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    let choice = reply.json()["choices"][0].clone();
    let made = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(made["name"], "weather", "{choice}");
    let arguments: Value = serde_json::from_str(made["arguments"].as_str().unwrap()).unwrap();
    assert!(["C", "F"].contains(&arguments["unit"].as_str().unwrap()) && arguments["days"].is_u64(), "{arguments}");
    let content = choice["message"]["content"].as_str().unwrap_or("");
    assert!(!content.contains("tool_call"), "markup is never shown: {content}");
    let chunks = Stream::open(program.addr, CHAT, &with(body, json!({"stream": true}))).chunks();
    let calls =
        chunks.iter().filter_map(|c| c["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str());
    assert_eq!(serde_json::from_str::<Value>(&calls.collect::<String>()).unwrap(), arguments);
}

#[test]
fn mamba_2_completes_texts() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::of(&served(&dir, "mamba2", "olmo", None), &[]);
    check_completions(&program);
    assert_eq!(post(program.addr, CHAT, &asked("hello")).status, 400, "it was not made for conversations");
}

#[test]
fn granite_answers_and_calls_tools() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::of(&served(&dir, "granitehybrid", "dbrx", Some(OBJECTS)), &[]);
    check_completions(&program);
    check_tools(&program, json!({}));
}

#[test]
fn falcon_answers_and_calls_tools() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::of(&served(&dir, "falcon_h1", "falcon-h1", Some(OBJECTS)), &[]);
    check_completions(&program);
    check_tools(&program, json!({}));
}

#[test]
fn nemotron_thinks_within_bounds_answers_and_calls_tools() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::of(&served(&dir, "nemotron_h", "pixtral", Some(TAGS)), &[]);
    check_completions(&program);
    check_tools(&program, json!({"reasoning_effort": "none"}));
    let bounded = json!({"max_tokens": 60, "temperature": 0, "ignore_eos": true, "reasoning": {"max_tokens": 16}});
    let reply = post(program.addr, CHAT, &with(asked("Think."), bounded));
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    let message = reply.json()["choices"][0]["message"].clone();
    let thought = message["reasoning_content"].as_str().unwrap();
    assert!(!thought.is_empty() && !thought.contains("think>"), "{message}");
    assert!(!message["content"].as_str().unwrap().is_empty(), "the budget ends the thought: {message}");
}

#[test]
fn qwen_3_answers_and_calls_tools() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::of(&served(&dir, "qwen3", "qwen2", Some(OBJECTS)), &[]);
    check_completions(&program);
    // Its random weights begin a thought and never end it.
    check_tools(&program, json!({"reasoning_effort": "none"}));
}

#[test]
fn lfm_2_answers_and_calls_tools() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::of(&served(&dir, "lfm2_moe", "lfm2", Some(OBJECTS)), &[]);
    check_completions(&program);
    check_tools(&program, json!({}));
}
