//! What programs send that means nothing here, and how they knock at doors that are not quite the right ones.

use crate::support::client::{connect, joined, read_reply};
use crate::support::*;
use chimere::http::auth::AcceptedKeys;
use flate2::Compression;
use flate2::read::{DeflateEncoder, GzEncoder, ZlibEncoder};
use serde_json::{Value, json};
use std::io::{Read, Write};

const CHAT: &str = "/v1/chat/completions";

fn server() -> Server {
    Server::start(Options::default())
}

/// The value of a series, summed over nothing.
fn series(server: &Server, name: &str) -> f64 {
    let text = get(server.addr, "/metrics").text().to_owned();
    let line = text.lines().find(|l| l.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.unwrap_or_else(|| panic!("no series {name}")).rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// The tool `add` and a text in which it is called.
fn add() -> (Value, &'static str) {
    let parameters = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let tools = json!([{"type": "function", "function": {"name": "add", "parameters": parameters}}]);
    (tools, "<tool_call>\n<function=add>\n<parameter=a>\n17\n</parameter>\n</function>\n</tool_call>")
}

#[test]
fn a_second_turn_may_carry_what_a_client_added_to_the_first_reply() {
    let server = server();
    let (tools, call) = add();
    let first = with(ask(&format!("SAY[{call}]")), json!({"tools": tools}));
    let reply = post(server.addr, CHAT, &first).json();
    let mut message = reply["choices"][0]["message"].clone();
    // As LiteLLM sends a reply back.
    message["provider_specific_fields"] = json!({"refusal": null, "reasoning_content": "r"});
    message["tool_calls"][0]["provider_specific_fields"] = json!({});
    message["function_call"] = Value::Null;
    message["thinking_blocks"] = json!([]);
    let id = message["tool_calls"][0]["id"].clone();
    let name = "chimere_ignored_fields_total{field=\"messages.provider_specific_fields\"}";
    let before = series(&server, name);
    let mut second = first.clone();
    second["messages"] = json!([
        {"role": "user", "content": [{"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}]},
        message,
        {"role": "tool", "tool_call_id": id, "content": "SAY[forty-two]", "name": "add"},
    ]);
    assert_eq!(post(server.addr, CHAT, &second).content(), "forty-two");
    assert!(series(&server, name) > before, "it is counted by its name");
}

#[test]
fn a_call_that_a_limit_of_tokens_cut_is_followed_by_another_turn() {
    let server = server();
    let (tools, call) = add();
    let ask = with(ask(&format!("SAY[{call}]")), json!({"tools": tools}));
    let cut = (8..40).find_map(|max| {
        let reply = post(server.addr, CHAT, &with(ask.clone(), json!({"max_tokens": max}))).json();
        let choice = reply["choices"][0].clone();
        (choice["finish_reason"] == "length" && choice["message"]["tool_calls"][0].is_object()).then_some(choice)
    });
    let message = cut.expect("some limit cuts the call behind its name")["message"].clone();
    let id = message["tool_calls"][0]["id"].clone();
    let mut second = ask;
    second["messages"] = json!([{"role": "user", "content": "go"}, message,
        {"role": "tool", "tool_call_id": id, "content": "SAY[on]"}]);
    assert_eq!(post(server.addr, CHAT, &second).content(), "on");

    let tool = json!([{"type": "function", "name": "add", "parameters": tools[0]["function"]["parameters"]}]);
    let first = |max: u32| json!({"input": format!("SAY[{call}]"), "tools": tool, "max_output_tokens": max});
    let cut = (16..40).find_map(|max| {
        let reply = post(server.addr, "/v1/responses", &first(max)).json();
        let item = reply["output"].as_array()?.last()?.clone();
        (item["type"] == "function_call" && item["status"] == "incomplete").then_some((reply["id"].clone(), item))
    });
    let (kept, item) = cut.expect("some limit cuts the call behind its name");
    let output = json!({"type": "function_call_output", "call_id": item["call_id"], "output": "SAY[on]"});
    for body in [
        json!({"previous_response_id": kept, "input": [output], "tools": tool}),
        json!({"input": [{"role": "user", "content": "go"}, item, output], "tools": tool}),
    ] {
        let reply = post(server.addr, "/v1/responses", &body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.json()["output"][0]["content"][0]["text"], "on");
    }
}

#[test]
fn any_number_of_unknown_names_makes_one_series() {
    let server = server();
    let mut message = json!({"role": "user", "content": "SAY[x]"});
    for i in 0..50 {
        message[format!("foreign_{i}")] = json!(i);
    }
    let before = series(&server, "chimere_ignored_fields_total{field=\"other\"}");
    let body = with(ask(""), json!({"messages": [message]}));
    assert_eq!(post(server.addr, CHAT, &body).content(), "x");
    assert!(series(&server, "chimere_ignored_fields_total{field=\"other\"}") >= before + 50.0);
    let text = get(server.addr, "/metrics").text().to_owned();
    assert!(!text.contains("foreign_"), "no client makes a series");
}

#[test]
fn a_call_of_a_tool_that_nobody_declared_never_leaves_as_a_call() {
    let server = server();
    let (tools, call) = add();
    let foreign = call.replace("add", "delete_everything");
    let body = with(ask(&format!("SAY[{foreign}]")), json!({"tools": tools}));
    let whole = post(server.addr, CHAT, &body);
    assert_eq!(whole.content(), foreign);
    let choice = &whole.json()["choices"][0];
    assert_eq!((&choice["finish_reason"], choice["message"].get("tool_calls")), (&json!("stop"), None));
    let chunks = Stream::open(server.addr, CHAT, &with(body, json!({"stream": true}))).chunks();
    assert_eq!(joined(&chunks, 0, "content"), foreign);
}

#[test]
fn log_probabilities_stand_beside_the_text_that_they_belong_to() {
    let server = server();
    let (tools, call) = add();
    let text = format!("SAY[let me see</think>\n\nhere it is{call}]");
    let body =
        json!({"messages": [{"role": "user", "content": text}], "tools": tools, "logprobs": true, "top_logprobs": 1});
    let choice = post(server.addr, CHAT, &body).json()["choices"][0].clone();
    let joined = |name: &str| -> String {
        choice["logprobs"][name].as_array().unwrap().iter().map(|t| t["token"].as_str().unwrap()).collect()
    };
    assert_eq!((joined("content").as_str(), &choice["message"]["content"]), ("here it is", &json!("here it is")));
    assert_eq!(joined("reasoning_logprobs"), "let me see</think>\n\n");
    assert_eq!(joined("tool_calls_logprobs"), call);
    let chunks = Stream::open(server.addr, CHAT, &with(body, json!({"stream": true}))).chunks();
    for name in ["content", "reasoning_logprobs", "tool_calls_logprobs"] {
        let tokens = chunks.iter().filter_map(|c| c["choices"][0]["logprobs"][name].as_array()).flatten();
        assert_eq!(tokens.cloned().collect::<Vec<_>>(), *choice["logprobs"][name].as_array().unwrap(), "{name}");
    }
}

#[test]
fn more_tokens_than_there_is_room_for_are_cut_to_it_and_that_is_told() {
    let server = Server::start(Options { context: 128, ..Options::default() });
    let reply = post(server.addr, CHAT, &with(ask("LOOP[a ]"), json!({"max_tokens": 32_000}))).json();
    let room = 128 - reply["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!((&reply["timings"]["max_tokens"], &reply["usage"]["completion_tokens"]), (&json!(room), &json!(room)));
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    let reply = post(server.addr, CHAT, &with(ask("LOOP[a ]"), json!({"max_tokens": room}))).json();
    assert_eq!(reply["timings"].get("max_tokens"), None, "what was asked for is what there is");
}

#[test]
fn a_compressed_body_is_read() {
    let server = server();
    let body = ask("SAY[unpacked]").to_string();
    let level = Compression::fast();
    let mut packed = [Vec::new(), Vec::new(), Vec::new()];
    GzEncoder::new(body.as_bytes(), level).read_to_end(&mut packed[0]).unwrap();
    ZlibEncoder::new(body.as_bytes(), level).read_to_end(&mut packed[1]).unwrap();
    DeflateEncoder::new(body.as_bytes(), level).read_to_end(&mut packed[2]).unwrap();
    for (coding, bytes) in ["gzip", "deflate", "deflate"].into_iter().zip(&packed) {
        let reply = request(server.addr, "POST", CHAT, &[("Content-Encoding", coding)], bytes);
        assert_eq!(reply.content(), "unpacked", "{coding}");
    }
    let refused = request(server.addr, "POST", CHAT, &[("Content-Encoding", "br")], body.as_bytes());
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (415, &json!("unsupported_encoding")));
    let damaged = request(server.addr, "POST", CHAT, &[("Content-Encoding", "gzip")], body.as_bytes());
    assert_eq!((damaged.status, &damaged.json()["error"]["code"]), (400, &json!("invalid_encoding")));
}

#[test]
fn a_small_body_that_becomes_a_huge_one_is_413_and_takes_no_room_any_more() {
    let server = Server::start(Options { body_bytes: 1 << 20, bodies_bytes: 3 << 20, ..Options::default() });
    let mut bomb = Vec::new();
    GzEncoder::new(std::io::repeat(b' ').take(1 << 28), Compression::best()).read_to_end(&mut bomb).unwrap();
    assert!(bomb.len() < 1 << 20, "{} bytes pass the limit as they come", bomb.len());
    for _ in 0..8 {
        let reply = request(server.addr, "POST", CHAT, &[("Content-Encoding", "gzip")], &bomb);
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (413, &json!("body_too_large")), "{}", reply.text());
        assert!(reply.text().contains("decodes to more than 1048576 bytes"), "{}", reply.text());
    }
    assert_eq!(post(server.addr, CHAT, &ask("SAY[room]")).content(), "room");
}

#[test]
fn a_client_of_http_1_0_gets_its_stream_without_chunks() {
    let server = server();
    let body = with(ask("SAY[as it comes]"), json!({"stream": true})).to_string();
    let mut socket = connect(server.addr);
    let head = format!("POST {CHAT} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
    socket.write_all(&[head.as_bytes(), body.as_bytes()].concat()).unwrap();
    let reply = read_reply(socket);
    assert_eq!((reply.status, reply.header("transfer-encoding")), (200, None), "{:?}", reply.headers);
    let events: Vec<&str> = reply.text().split_terminator("\n\n").collect();
    assert_eq!(events.last(), Some(&"data: [DONE]"));
    assert!(events[0].starts_with("data: {"), "{}", events[0]);
}

#[test]
fn a_path_that_leads_nowhere_is_told_which_one_was_meant() {
    let server = server();
    for (path, meant) in [
        ("/v1/models/", "/v1/models?"),
        ("/models", "/v1/models?"),
        ("/chat/completions", "/v1/chat/completions?"),
        ("/v1/v1/messages", "/v1/messages?"),
    ] {
        let reply = get(server.addr, path);
        assert_eq!(reply.status, 404, "{path}");
        assert!(reply.json()["error"]["message"].as_str().unwrap().contains(meant), "{}", reply.text());
    }
    assert_eq!(get(server.addr, "/version").json()["version"], env!("CARGO_PKG_VERSION"));
    let head = request(server.addr, "HEAD", "/", &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn a_page_of_another_origin_is_told_which_setting_would_let_it_in() {
    let server = Server::start(Options { keys: AcceptedKeys::one("k"), ..Options::default() });
    let headers = [("Origin", "https://app.example"), ("Access-Control-Request-Method", "POST")];
    let reply = request(server.addr, "OPTIONS", CHAT, &headers, b"");
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (403, &json!("origin_not_allowed")));
    assert!(reply.text().contains("server.cors_origins"), "{}", reply.text());
    assert_eq!(reply.header("access-control-allow-origin"), None);
}

#[test]
fn a_model_is_found_under_all_its_names() {
    let server = server();
    let ids: Vec<Value> =
        get(server.addr, "/v1/models").json()["data"].as_array().unwrap().iter().map(|m| m["id"].clone()).collect();
    assert_eq!(ids, ["tiny", "gpt-tiny"]);
    for name in ["Tiny", "GPT-Tiny"] {
        assert_eq!(post(server.addr, CHAT, &with(ask("SAY[x]"), json!({"model": name}))).json()["model"], "tiny");
        assert_eq!(get(server.addr, &format!("/v1/models/{name}")).status, 200);
    }
}

#[test]
fn every_endpoint_of_the_openapi_document_is_there() {
    let server = server();
    let document = get(server.addr, "/openapi.json").json();
    let mut asked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.replace("{id}", "x").replace("{name}", "x");
        for method in methods.as_object().unwrap().keys() {
            let body = if method == "post" || method == "put" { "x" } else { "" };
            let reply = request(server.addr, &method.to_uppercase(), &path, &[], body.as_bytes());
            assert!(!reply.text().contains("there is nothing at"), "{method} {path}");
            assert_ne!(reply.status, 405, "{method} {path}");
            asked += 1;
        }
    }
    assert!(asked > 35, "{asked} endpoints");
}
