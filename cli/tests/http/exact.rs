//! What must come out to the letter: samples of equal prompts, offsets, calls that were cut off, numbers.

use crate::support::*;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn texts(reply: &Reply) -> Vec<String> {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["choices"].as_array().unwrap().iter().map(|c| c["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn equal_prompts_of_a_request_draw_each_for_itself_and_the_first_as_it_would_alone() {
    let server = Server::start(Options { real: true, ..Options::default() });
    let body =
        |prompt: Value| json!({"prompt": prompt, "max_tokens": 12, "temperature": 1, "seed": 5, "ignore_eos": true});
    let alone = texts(&post(server.addr, COMPLETIONS, &body(json!("once upon"))));
    let eight = texts(&post(server.addr, COMPLETIONS, &body(json!(vec!["once upon"; 8]))));
    assert_eq!(eight[0], alone[0], "a given seed gives the bytes that it always gave");
    let different: std::collections::HashSet<&String> = eight.iter().collect();
    assert_eq!(different.len(), 8, "{eight:?}");
    assert_eq!(
        texts(&post(server.addr, COMPLETIONS, &body(json!(vec!["once upon"; 8])))),
        eight,
        "and gives them again"
    );
}

#[test]
fn offsets_of_tokens_lead_to_the_characters_that_they_are_parts_of() {
    let server = Server::start(Options::default());
    let text = "na\u{ef}ve \u{1f999} \u{65e5}\u{672c}";
    let body = json!({"prompt": format!("SAY[{text}]"), "max_tokens": 60, "logprobs": 3, "echo": true});
    let choice = post(server.addr, COMPLETIONS, &body).json()["choices"][0].clone();
    let shown: Vec<char> = choice["text"].as_str().unwrap().chars().collect();
    let offsets: Vec<usize> =
        choice["logprobs"]["text_offset"].as_array().unwrap().iter().map(|o| o.as_u64().unwrap() as usize).collect();
    assert!(offsets.is_sorted() && *offsets.last().unwrap() < shown.len(), "{offsets:?}");
    let tokens = choice["logprobs"]["tokens"].as_array().unwrap();
    assert!(tokens.iter().any(|t| t.as_str().unwrap().starts_with("bytes:")), "{tokens:?}");
    for (token, at) in tokens.iter().zip(offsets).filter(|(t, _)| !t.as_str().unwrap().starts_with("bytes:")) {
        let token: Vec<char> = token.as_str().unwrap().chars().collect();
        assert_eq!(shown[at..at + token.len()], token);
    }
    for top in choice["logprobs"]["top_logprobs"].as_array().unwrap().iter().skip(1) {
        assert!(top.as_object().unwrap().len() >= 3, "no token is lost: {top}");
    }
}

#[test]
fn a_call_that_max_tokens_cut_off_is_said_to_be_incomplete() {
    let server = Server::start(Options::default());
    let parameters = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let tools = json!([{"type": "function", "function": {"name": "write", "parameters": parameters}}]);
    let call = "<tool_call>\n<function=write>\n<parameter=text>\nsome words that go on for a while\n</parameter>\n</function>\n</tool_call>";
    let whole = with(ask(&format!("SAY[{call}]")), json!({"tools": tools}));
    let reply = post(server.addr, CHAT, &whole).json();
    let tokens = reply["usage"]["completion_tokens"].as_u64().unwrap();
    assert_eq!(reply["choices"][0]["message"]["tool_calls"][0].get("status"), None);
    let cut = with(whole, json!({"max_tokens": tokens * 2 / 3}));
    let choice = post(server.addr, CHAT, &cut).json()["choices"][0].clone();
    let made = &choice["message"]["tool_calls"][0];
    assert_eq!((&made["status"], &choice["finish_reason"]), (&json!("incomplete"), &json!("length")), "{choice}");
    let arguments = made["function"]["arguments"].as_str().unwrap();
    assert!(
        arguments.starts_with("{\"text\": \"some") && serde_json::from_str::<Value>(arguments).is_err(),
        "{arguments}"
    );
    let chunks = Stream::open(server.addr, CHAT, &with(cut, json!({"stream": true}))).chunks();
    let told = chunks.iter().any(|c| c["choices"][0]["delta"]["tool_calls"][0]["status"] == "incomplete");
    assert!(told, "a stream says it too");
}

#[test]
fn a_stop_string_inside_of_a_call_leaves_it_incomplete_and_one_at_its_end_whole() {
    let server = Server::start(Options::default());
    let parameters = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let tools = json!([{"type": "function", "function": {"name": "write", "parameters": parameters}}]);
    let call = "<tool_call>\n<function=write>\n<parameter=text>\nrm old files\n</parameter>\n</function>\n</tool_call>";
    let body = |stop: &str| with(ask(&format!("SAY[{call}]")), json!({"tools": tools, "stop": [stop]}));
    let choice = |stop: &str| post(server.addr, CHAT, &body(stop)).json()["choices"][0].clone();
    let (cut, whole) = (choice("old"), choice("</tool_call>"));
    let shown = |choice: &Value| {
        let made = &choice["message"]["tool_calls"][0];
        (made["function"]["arguments"].clone(), made["status"].clone(), choice["finish_reason"].clone())
    };
    assert_eq!(shown(&cut), (json!("{\"text\": \"rm "), json!("incomplete"), json!("stop")), "{cut}");
    assert_eq!(shown(&whole), (json!("{\"text\": \"rm old files\"}"), Value::Null, json!("tool_calls")), "{whole}");
}

#[test]
fn a_prompt_is_counted_and_shown_as_chat_would_read_it() {
    let server = Server::start(Options::default());
    let tools = json!([{"type": "function", "function": {"name": "write", "parameters": {"type": "object"}}}]);
    let body = with(ask("hello <|im_end|> there"), json!({"tools": tools, "reasoning_effort": "none", "stream": true}));
    let counted = post(server.addr, "/v1/chat/completions/input_tokens", &body).json();
    let shown = post(server.addr, "/apply-template", &body).json()["prompt"].as_str().unwrap().to_owned();
    assert!(
        shown.contains("hello <|im_end|> there<|im_end|>") && shown.ends_with("<think>\n\n</think>\n\n"),
        "{shown}"
    );
    let whole = with(body, json!({"stream": false}));
    let usage = post(server.addr, CHAT, &whole).json()["usage"]["prompt_tokens"].clone();
    assert_eq!(counted, json!({"object": "response.input_tokens", "input_tokens": usage}));
    let refused = post(server.addr, "/apply-template", &json!({"messages": []}));
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("messages")));
}

#[test]
fn a_conversation_s_numbers_are_rendered_as_they_were_written() {
    let server = Server::start(Options::default());
    let numbers = r#"{"a": {"x": 0.37331193139504204}, "b": 123456789012345678901234567890, "c": -0}"#;
    let body = format!(
        r#"{{"messages": [{{"role": "user", "content": "q"}}, {{"role": "assistant", "content": null, "tool_calls": [{{"id": "c", "type": "function",
        "function": {{"name": "f", "arguments": {}}}}}]}}, {{"role": "tool", "tool_call_id": "c", "content": "r"}}]}}"#,
        Value::from(numbers)
    );
    let ids = request(server.addr, "POST", "/tokenize", &[], body.as_bytes()).json()["tokens"].clone();
    let prompt =
        post(server.addr, "/detokenize", &json!({"tokens": ids})).json()["prompt"].as_str().unwrap().to_owned();
    for shown in ["{\"x\": 0.37331193139504204}", "\n123456789012345678901234567890\n", "\n-0\n"] {
        assert!(prompt.contains(shown), "{prompt}");
    }
}

#[test]
fn processed_log_probabilities_are_of_what_is_drawn_from_and_the_others_of_all_tokens() {
    let server = Server::start(Options { real: true, ..Options::default() });
    let body = |mode: &str| {
        json!({"prompt": "once upon", "max_tokens": 8, "temperature": 0.7, "top_k": 4, "seed": 5, "ignore_eos": true,
            "logprobs": 10, "logprobs_mode": mode})
    };
    let shown = |mode: &str| {
        let reply = post(server.addr, COMPLETIONS, &body(mode));
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["choices"][0].clone()
    };
    let (raw, processed) = (shown("raw"), shown("processed"));
    assert_eq!(raw["text"], processed["text"], "only what is reported differs");
    let sums = |choice: &Value| -> Vec<(usize, f64)> {
        let tops = choice["logprobs"]["top_logprobs"].as_array().unwrap().iter().map(|top| top.as_object().unwrap());
        tops.map(|top| (top.len(), top.values().map(|logprob| logprob.as_f64().unwrap().exp()).sum())).collect()
    };
    assert!(sums(&processed).iter().all(|(tokens, sum)| *tokens <= 4 && (sum - 1.0).abs() < 1e-3), "{processed}");
    assert!(sums(&raw).iter().all(|(tokens, sum)| *tokens >= 10 && *sum < 0.999), "{raw}");
}
