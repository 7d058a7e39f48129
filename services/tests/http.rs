//! The service at its edge: bytes on a real socket, a fake backend behind it.

mod support;

use serde_json::json;
use support::client::joined;
use support::*;

#[test]
fn a_chat_is_answered_whole() {
    let server = Server::start(Options::default());
    let reply = post(server.addr, "/v1/chat/completions", &ask("SAY[hello there]"));
    assert_eq!(reply.content(), "hello there");
    let body = reply.json();
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["model"], "tiny");
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert!(body["usage"]["prompt_tokens"].as_u64().unwrap() > 5, "{body}");
    assert!(body["timings"]["total_ms"].as_f64().unwrap() > 0.0, "{body}");
}

#[test]
fn a_chat_is_streamed_as_the_clients_of_openai_expect() {
    let server = Server::start(Options::default());
    let body = with(ask("SAY[hello there]"), json!({"stream": true, "stream_options": {"include_usage": true}}));
    let mut stream = Stream::open(server.addr, "/v1/chat/completions", &body);
    assert_eq!(stream.status, 200);
    let chunks = stream.chunks();
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(joined(&chunks, 0, "content"), "hello there");
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
    assert!(last["timings"]["ttft_ms"].is_number());
    assert!(chunks[..chunks.len() - 1].iter().all(|c| c["usage"].is_null()));
    assert_eq!(chunks[chunks.len() - 2]["choices"][0]["finish_reason"], "stop");
}
