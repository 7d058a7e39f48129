//! Anthropic's messages: what its clients send, and what they read.

use crate::support::*;
use chimere::http::auth::AcceptedKeys;
use serde_json::{Value, json};

const MESSAGES: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";

fn server() -> Server {
    Server::start(Options::default())
}

/// A request whose user says `text`.
fn say(text: &str) -> Value {
    json!({"model": "tiny", "max_tokens": 200, "messages": [{"role": "user", "content": text}]})
}

/// The tool `add`, and a text in which it is called.
fn add() -> (Value, &'static str) {
    let schema = json!({"$schema": "x", "type": "object", "properties": {"a": {"type": "integer"}}});
    let tools = json!([{"name": "add", "description": "adds", "input_schema": schema, "defer_loading": true}]);
    (tools, "<tool_call>\n<function=add>\n<parameter=a>\n17\n</parameter>\n</function>\n</tool_call>")
}

/// The events of a stream, whose names stand before their data and in it.
pub(crate) fn events(server: &Server, body: Value) -> Vec<Value> {
    Stream::open(server.addr, MESSAGES, &with(body, json!({"stream": true}))).named_events()
}

/// The message that a client puts together from a stream, as the official ones do.
pub(crate) fn assembled(events: &[Value]) -> Value {
    let mut message = events[0]["message"].clone();
    let mut inputs: Vec<String> = Vec::new();
    for event in &events[1..] {
        let at = event["index"].as_u64().unwrap_or(0) as usize;
        let block = |message: &mut Value, field: &str, more: &Value| {
            let old = message["content"][at][field].as_str().unwrap_or_default().to_owned();
            message["content"][at][field] = json!(old + more.as_str().unwrap());
        };
        match (event["type"].as_str().unwrap(), event["delta"]["type"].as_str().unwrap_or("")) {
            ("content_block_start", _) => {
                message["content"].as_array_mut().unwrap().push(event["content_block"].clone());
                inputs.push(String::new());
            }
            (_, "citations_delta") => {
                let block = message["content"][at].as_object_mut().unwrap();
                let citations = block.entry("citations").or_insert_with(|| json!([]));
                citations.as_array_mut().unwrap().push(event["delta"]["citation"].clone());
            }
            (_, "text_delta") => block(&mut message, "text", &event["delta"]["text"]),
            (_, "thinking_delta") => block(&mut message, "thinking", &event["delta"]["thinking"]),
            (_, "signature_delta") => message["content"][at]["signature"] = event["delta"]["signature"].clone(),
            (_, "input_json_delta") => inputs[at] += event["delta"]["partial_json"].as_str().unwrap(),
            ("content_block_stop", _) if !inputs[at].is_empty() => {
                message["content"][at]["input"] = serde_json::from_str(&inputs[at]).unwrap();
            }
            ("message_delta", _) => {
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
                message["stop_sequence"] = event["delta"]["stop_sequence"].clone();
                message["usage"] = event["usage"].clone();
            }
            _ => {}
        }
    }
    message["id"] = Value::Null;
    message
}

pub(crate) fn whole(server: &Server, body: Value) -> Value {
    let reply = post(server.addr, MESSAGES, &body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let mut message = reply.json();
    assert!(message["id"].as_str().unwrap().starts_with("msg_"));
    message["id"] = Value::Null;
    message
}

#[test]
fn a_message_is_answered_with_blocks_of_text_and_thoughts_only_where_they_were_asked_for() {
    let server = server();
    let message = whole(&server, say("SAY[hello there]"));
    assert_eq!(message["content"], json!([{"type": "text", "text": "hello there"}]));
    assert_eq!(
        (&message["type"], &message["role"], &message["model"], &message["stop_reason"], &message["stop_sequence"]),
        (&json!("message"), &json!("assistant"), &json!("tiny"), &json!("end_turn"), &Value::Null)
    );
    let usage = &message["usage"];
    assert!(usage["input_tokens"].as_u64() > Some(5) && usage["output_tokens"].as_u64() > Some(2), "{usage}");
    assert_eq!(usage["cache_read_input_tokens"], 0);

    let thinks =
        with(say("SAY[let me see</think>\n\nyes]"), json!({"thinking": {"type": "enabled", "budget_tokens": 99}}));
    let content = whole(&server, thinks.clone())["content"].clone();
    assert_eq!((&content[0]["type"], &content[0]["thinking"]), (&json!("thinking"), &json!("let me see")));
    assert_eq!(content[1], json!({"type": "text", "text": "yes"}));
    assert!(!content[0]["signature"].as_str().unwrap().is_empty());

    let omitted = json!({"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "max"}});
    let content = whole(&server, with(thinks, omitted))["content"].clone();
    assert_eq!((&content[0]["thinking"], &content[1]["text"]), (&json!(""), &json!("yes")));
}

#[test]
fn a_stream_brings_the_message_in_the_order_that_clients_expect() {
    let server = server();
    let (tools, call) = add();
    let text = format!("SAY[let me see</think>\n\nhere it is{call}]");
    let body = with(say(&text), json!({"tools": tools, "thinking": {"type": "enabled", "budget_tokens": 99}}));
    let events = events(&server, body.clone());
    let mut names: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
    names.dedup();
    let block = ["content_block_start", "content_block_delta", "content_block_stop"];
    let wanted = [&["message_start"][..], &block, &block, &block, &["message_delta", "message_stop"]].concat();
    assert_eq!(names, wanted);
    let start = &events[0]["message"];
    assert_eq!((&start["content"], &start["stop_reason"]), (&json!([]), &Value::Null));
    assert!(start["usage"]["input_tokens"].as_u64() > Some(5), "{start}");

    let message = assembled(&events);
    assert_eq!(message["content"][2]["input"], json!({"a": 17}));
    assert_eq!(message["stop_reason"], "tool_use");
    let mut same = whole(&server, body);
    // Each call has an id of its own.
    same["content"][2]["id"] = message["content"][2]["id"].clone();
    assert_eq!(message, same);
}

#[test]
fn a_conversation_with_a_tool_comes_back_as_it_was_said() {
    let server = server();
    let (tools, call) = add();
    let first = whole(&server, with(say(&format!("SAY[{call}]")), json!({"tools": tools})));
    let id = first["content"][0]["id"].clone();
    let mut assistant = first["content"].as_array().unwrap().clone();
    assistant.insert(0, json!({"type": "thinking", "thinking": "once upon a time", "signature": "of another server"}));
    assistant.insert(1, json!({"type": "redacted_thinking", "data": "eA=="}));
    let result = json!({"type": "tool_result", "tool_use_id": id, "is_error": true,
        "content": [{"type": "text", "text": "no such number"}, {"type": "tool_reference", "tool_name": "x__add"}]});
    let messages = json!([
        {"role": "system", "content": "one"},
        {"role": "user", "content": [{"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": assistant},
        {"role": "user", "content": [result, {"type": "text", "text": "SAY[42]"}]},
        {"role": "system", "content": "two"},
    ]);
    let system = json!([{"type": "text", "text": "x-anthropic-billing-header: 1"}, {"type": "text", "text": "zero"}]);
    let second = json!({"max_tokens": 50, "system": system, "messages": messages, "tools": tools,
        "context_management": {"edits": []}, "metadata": {"user_id": "u"}, "service_tier": "standard_only"});
    assert_eq!(whole(&server, second.clone())["content"][0]["text"], "42");
    let told = server.fake.was_told();
    for said in [
        "zero\n\none",
        "<parameter=a>\n17\n",
        "Error: no such number",
        "The tool x__add can be called now",
        "<system-reminder>\ntwo\n",
    ] {
        assert!(told.contains(said), "{said:?} in {told}");
    }
    assert!(!told.contains("billing"), "{told}");

    let counted = post(server.addr, COUNT, &with(second, json!({"max_tokens": null}))).json();
    assert!(counted["input_tokens"].as_u64() > Some(100), "{counted}");
    assert_eq!(counted.as_object().unwrap().len(), 1);
}

#[test]
fn what_ended_a_message_is_told() {
    let server = server();
    let stops = with(say("SAY[one two three]"), json!({"stop_sequences": ["zzz", " two"]}));
    let message = whole(&server, stops.clone());
    assert_eq!((&message["stop_reason"], &message["stop_sequence"]), (&json!("stop_sequence"), &json!(" two")));
    assert_eq!(message["content"][0]["text"], "one");
    assert_eq!(assembled(&events(&server, stops)), message);
    let (tools, call) = add();
    let cut = with(say(&format!("SAY[{call}]")), json!({"tools": tools, "max_tokens": 20}));
    let message = whole(&server, cut);
    assert_eq!(
        (&message["stop_reason"], &message["content"]),
        (&json!("max_tokens"), &json!([])),
        "half a call is none"
    );
}

#[test]
fn an_error_has_anthropic_s_shape_wherever_it_arises() {
    let server = Server::start(Options { keys: keys("sk-a"), context: 128, ..Options::default() });
    let asked = |method: &str, path: &str, key: &str, body: &Value| {
        let reply = request(server.addr, method, path, &[("x-api-key", key)], body.to_string().as_bytes());
        let error = reply.json();
        assert_eq!(error["request_id"].as_str(), reply.header("request-id"), "{error}");
        assert_eq!(error["type"], "error");
        let error = &error["error"];
        (reply.status, error["type"].as_str().unwrap().to_owned(), error["message"].as_str().unwrap().to_owned())
    };
    let image = json!([{"role": "user", "content": [{"type": "image", "source": {}}]}]);
    let forced = json!({"tools": add().0, "tool_choice": {"type": "tool", "name": "nobody"}});
    let nested = json!({"tools": [{"name": "a b", "input_schema": {}}]});
    for (method, path, key, body, status, kind, said) in [
        ("POST", MESSAGES, "sk-b", say("x"), 401, "authentication_error", "not known"),
        ("GET", MESSAGES, "sk-a", say("x"), 405, "invalid_request_error", "takes POST"),
        ("POST", "/v1/messages/batches", "sk-a", say("x"), 404, "not_found_error", "nothing at"),
        ("POST", MESSAGES, "sk-a", with(say("x"), json!({"model": "claude"})), 404, "not_found_error", "`claude`"),
        (
            "POST",
            MESSAGES,
            "sk-a",
            with(say("x"), json!({"messages": image})),
            400,
            "invalid_request_error",
            "messages[0].content[0]",
        ),
        ("POST", MESSAGES, "sk-a", with(say("x"), forced), 400, "invalid_request_error", "tool_choice"),
        ("POST", MESSAGES, "sk-a", with(say("x"), nested), 400, "invalid_request_error", "`tools[0].name`"),
        ("POST", MESSAGES, "sk-a", say(&"word ".repeat(200)), 400, "invalid_request_error", "prompt is too long: "),
        ("POST", COUNT, "sk-a", json!({}), 400, "invalid_request_error", "`messages` is missing"),
        ("POST", MESSAGES, "sk-a", json!("x"), 400, "invalid_request_error", "must be a JSON object"),
    ] {
        let (got_status, got_kind, message) = asked(method, path, key, &body);
        assert_eq!((got_status, got_kind.as_str()), (status, kind), "{message}");
        assert!(message.contains(said), "{message}");
    }
    let twice = br#"{"messages": [], "messages": []}"#;
    let reply = request(server.addr, "POST", MESSAGES, &[("x-api-key", "sk-a")], twice);
    assert!(reply.text().contains("stands twice"), "{}", reply.text());
}

#[test]
fn a_stream_that_breaks_ends_with_an_error_event() {
    let server = server();
    let stream = json!({"stream": true});
    server.fake.trouble(Trouble::StepFails);
    let mut stream = Stream::open(server.addr, MESSAGES, &with(say("LOOP[a ]"), stream));
    let events = stream.events();
    let last = events.last().unwrap();
    let data: Value = serde_json::from_str(last.strip_prefix("event: error\ndata: ").unwrap()).unwrap();
    assert_eq!((&data["type"], &data["error"]["type"]), (&json!("error"), &json!("overloaded_error")), "{last}");
}

#[test]
fn a_silent_stream_is_pinged() {
    let server = Server::start(Options { keep_alive: std::time::Duration::from_millis(20), ..Options::default() });
    server.fake.allow(0);
    let mut stream = Stream::open(server.addr, MESSAGES, &with(say("SAY[x]"), json!({"stream": true})));
    assert!(stream.event().unwrap().starts_with("event: message_start\n"));
    assert_eq!(stream.event().unwrap(), "event: ping\ndata: {\"type\":\"ping\"}");
    server.fake.allow_all();
    assert!(stream.events().last().unwrap().starts_with("event: message_stop\n"));
}

#[test]
fn keys_are_taken_from_either_header() {
    let server = Server::start(Options { keys: AcceptedKeys::one("sk-a"), ..Options::default() });
    let body = say("SAY[x]").to_string();
    for (name, value, status) in [
        ("x-api-key", "sk-a", 200),
        ("Authorization", "Bearer sk-a", 200),
        ("x-api-key", "sk-b", 401),
        ("x-key", "sk-a", 401),
    ] {
        let headers = [(name, value), ("anthropic-version", "2023-06-01")];
        assert_eq!(request(server.addr, "POST", "/v1/messages?beta=true", &headers, body.as_bytes()).status, status);
    }
}

#[test]
fn an_answer_goes_on_with_the_assistant_s_last_turn_in_every_dialect_that_has_it() {
    let server = server();
    let messages = json!([{"role": "user", "content": "SAY[ three]"}, {"role": "assistant", "content": "one two"}]);
    let message = whole(&server, with(say(""), json!({"messages": messages})));
    assert_eq!(message["content"], json!([{"type": "text", "text": " three"}]));
    let told = server.fake.was_told();
    assert!(told.ends_with("one two"), "{told}");
    let chat = json!({"messages": messages, "continue_final_message": true, "add_generation_prompt": false});
    assert_eq!(post(server.addr, "/v1/chat/completions", &chat).content(), " three");
    let ollama = json!({"model": "tiny", "messages": messages, "stream": false});
    assert_eq!(post(server.addr, "/api/chat", &ollama).json()["message"]["content"], " three");
    assert!(server.fake.was_told().ends_with("one two"));
    let called = json!({"type": "tool_use", "id": "c", "name": "add", "input": {}});
    let called = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": [called]}]);
    let refused = post(server.addr, MESSAGES, &with(say(""), json!({"messages": called})));
    assert!(refused.status == 400 && refused.text().contains("`messages`"), "{}", refused.text());
}
