//! What comes out when all goes well.

use crate::support::client::joined;
use crate::support::*;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn server() -> Server {
    Server::start(Options::default())
}

fn streamed(server: &Server, path: &str, body: Value) -> Vec<Value> {
    Stream::open(server.addr, path, &with(body, json!({"stream": true}))).chunks()
}

#[test]
fn a_chat_is_answered_whole() {
    let server = server();
    let reply = post(server.addr, CHAT, &ask("SAY[hello there]"));
    assert_eq!(reply.content(), "hello there");
    let body = reply.json();
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!((&body["object"], &body["model"]), (&json!("chat.completion"), &json!("tiny")));
    assert_eq!(body["system_fingerprint"], "fp_test");
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert!(body["usage"]["prompt_tokens"].as_u64().unwrap() > 5, "{body}");
    for name in ["queue_ms", "prefill_ms", "ttft_ms", "itl_ms_mean", "itl_ms_p95", "decode_ms", "total_ms"] {
        assert!(body["timings"][name].as_f64().is_some_and(|ms| ms >= 0.0), "{name}: {body}");
    }
}

#[test]
fn a_chat_is_streamed_as_the_clients_of_openai_expect() {
    let server = server();
    let body = with(ask("SAY[hello there]"), json!({"stream": true, "stream_options": {"include_usage": true}}));
    let mut stream = Stream::open(server.addr, CHAT, &body);
    assert_eq!(stream.status, 200);
    assert!(stream.headers.contains(&("content-type".into(), "text/event-stream; charset=utf-8".into())));
    let chunks = stream.chunks();
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(joined(&chunks, 0, "content"), "hello there");
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
    assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert!(last["timings"]["ttft_ms"].is_number());
    assert!(chunks[..chunks.len() - 1].iter().all(|c| c["usage"].is_null() && c["id"] == last["id"]));
    assert_eq!(chunks[chunks.len() - 2]["choices"][0]["finish_reason"], "stop");
}

#[test]
fn without_include_usage_the_chunk_that_ends_the_stream_carries_usage_and_timings() {
    let server = server();
    let chunks = streamed(&server, CHAT, ask("SAY[hi]"));
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    assert!(last["usage"]["completion_tokens"].as_u64().unwrap() > 0 && last["timings"].is_object(), "{last}");
    assert!(chunks[..chunks.len() - 1].iter().all(|c| c.get("usage").is_none()));
}

#[test]
fn whole_and_streamed_replies_say_the_same() {
    let server = server();
    let body = with(ask("SAY[one two three]"), json!({"logprobs": true, "top_logprobs": 2, "seed": 7}));
    let whole = post(server.addr, CHAT, &body).json();
    let chunks = streamed(&server, CHAT, body);
    assert_eq!(joined(&chunks, 0, "content"), whole["choices"][0]["message"]["content"]);
    let tokens =
        chunks.iter().filter_map(|c| c["choices"][0]["logprobs"]["content"].as_array()).flatten().cloned().collect();
    assert_eq!(Value::Array(tokens), whole["choices"][0]["logprobs"]["content"]);
    assert_eq!(chunks.last().unwrap()["usage"], whole["usage"]);
}

#[test]
fn log_probabilities_of_a_chat_name_each_token_that_the_text_is_made_of() {
    let server = server();
    let reply =
        post(server.addr, CHAT, &with(ask("SAY[abc def]"), json!({"logprobs": true, "top_logprobs": 3}))).json();
    let tokens = reply["choices"][0]["logprobs"]["content"].as_array().unwrap();
    let text: String = tokens.iter().map(|t| t["token"].as_str().unwrap()).collect();
    assert_eq!(text, "abc def", "the end id stands for no text and is left out");
    for token in tokens {
        assert_eq!(token["bytes"], json!(token["token"].as_str().unwrap().as_bytes()));
        assert!(token["logprob"].as_f64().unwrap() <= 0.0);
        assert_eq!(token["top_logprobs"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn characters_that_span_tokens_come_whole() {
    let server = server();
    let text = "na\u{ef}ve \u{1f999} \u{65e5}\u{672c}\u{8a9e} \u{2014} \u{1f468}\u{200d}\u{1f469}";
    let chunks = streamed(&server, CHAT, ask(&format!("SAY[{text}]")));
    assert_eq!(joined(&chunks, 0, "content"), text);
    let tokens = chunks.last().unwrap()["usage"]["completion_tokens"].as_u64().unwrap() as usize;
    assert!(chunks.len() - 2 < tokens, "some tokens were held back: {} chunks, {tokens} tokens", chunks.len());
}

#[test]
fn a_stop_string_ends_the_text_before_it_and_nothing_after_it_is_counted() {
    let server = server();
    let body = with(ask("LOOP[one two three ]"), json!({"stop": ["two th"], "max_tokens": 500, "logprobs": true}));
    let whole = post(server.addr, CHAT, &body);
    assert_eq!(whole.content(), "one ");
    let whole = whole.json();
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    let shown = whole["choices"][0]["logprobs"]["content"].as_array().unwrap();
    let text: String = shown.iter().map(|t| t["token"].as_str().unwrap()).collect();
    assert!(text.starts_with("one") && !text.contains("three"), "{text:?}");
    assert!(whole["usage"]["completion_tokens"].as_u64().unwrap() < 20, "{whole}");
    let chunks = streamed(&server, CHAT, body);
    assert_eq!(joined(&chunks, 0, "content"), "one ");
    server.wait_for_live(0);
}

#[test]
fn a_text_that_only_begins_like_a_stop_string_is_not_lost() {
    let server = server();
    let reply = post(server.addr, CHAT, &with(ask("SAY[one two]"), json!({"stop": "two three"})));
    assert_eq!(reply.content(), "one two");
}

#[test]
fn max_tokens_ends_a_choice_for_its_length() {
    let server = server();
    let reply = post(server.addr, CHAT, &with(ask("LOOP[ab ]"), json!({"max_completion_tokens": 7}))).json();
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    assert_eq!(reply["usage"]["completion_tokens"], 7);
}

#[test]
fn reasoning_is_separate_in_both_modes_and_counted() {
    let server = server();
    let body = json!({"messages": [{"role": "user", "content": "SAY[let me see</think>\n\nforty-two]"}]});
    let whole = post(server.addr, CHAT, &body).json();
    let message = &whole["choices"][0]["message"];
    assert_eq!((&message["reasoning_content"], &message["content"]), (&json!("let me see"), &json!("forty-two")));
    let reasoning = whole["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
    assert!(reasoning > 3 && reasoning < whole["usage"]["completion_tokens"].as_u64().unwrap(), "{whole}");
    let chunks = streamed(&server, CHAT, body);
    assert_eq!(joined(&chunks, 0, "reasoning_content"), "let me see");
    assert_eq!(joined(&chunks, 0, "content"), "forty-two");
}

#[test]
fn a_tool_call_is_streamed_as_deltas_and_never_leaks() {
    let server = server();
    let call = "<tool_call>\n<function=add>\n<parameter=a>\n17\n</parameter>\n\
                <parameter=b>\n25\n</parameter>\n</function>\n</tool_call>";
    let parameters = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}});
    let tools = json!([{"type": "function", "function": {"name": "add", "parameters": parameters}}]);
    let body = with(ask(&format!("SAY[{call}]")), json!({"tools": tools}));
    let whole = post(server.addr, CHAT, &body).json();
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], Value::Null);
    let function = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(function["name"], "add");
    assert_eq!(
        serde_json::from_str::<Value>(function["arguments"].as_str().unwrap()).unwrap(),
        json!({"a": 17, "b": 25})
    );

    let chunks = streamed(&server, CHAT, body);
    assert_eq!(joined(&chunks, 0, "content"), "");
    let deltas: Vec<&Value> = chunks.iter().filter_map(|c| c["choices"][0]["delta"]["tool_calls"].get(0)).collect();
    assert_eq!((&deltas[0]["function"]["name"], &deltas[0]["type"]), (&json!("add"), &json!("function")));
    let id = deltas[0]["id"].as_str().unwrap();
    assert!(id.strip_prefix("call_").is_some_and(|rest| !rest.contains('_')), "one prefix: {id}");
    assert!(deltas.iter().all(|d| d["index"] == 0));
    assert!(deltas[1..].iter().all(|d| d.get("id").is_none()), "only the first delta names the call: {deltas:?}");
    let arguments: String = deltas.iter().map(|d| d["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!(arguments, function["arguments"]);
}

#[test]
fn two_choices_are_two_texts_and_one_prompt() {
    let server = server();
    let body = with(ask("SAY[same words]"), json!({"n": 2}));
    let whole = post(server.addr, CHAT, &body).json();
    assert_eq!(whole["choices"].as_array().unwrap().len(), 2);
    assert_eq!(whole["choices"][1]["message"]["content"], "same words");
    let one = post(server.addr, CHAT, &ask("SAY[same words]")).json();
    assert_eq!(whole["usage"]["prompt_tokens"], one["usage"]["prompt_tokens"]);
    assert_eq!(whole["usage"]["completion_tokens"].as_u64(), one["usage"]["completion_tokens"].as_u64().map(|n| 2 * n));
    let chunks = streamed(&server, CHAT, body);
    for choice in 0..2 {
        assert_eq!(joined(&chunks, choice, "content"), "same words");
    }
    let endings = chunks.iter().filter(|c| c["choices"][0]["finish_reason"] == "stop").count();
    assert_eq!(endings, 2);
}

#[test]
fn completions_continue_strings_lists_and_token_ids() {
    let server = server();
    let whole = post(server.addr, COMPLETIONS, &json!({"prompt": "SAY[a b]", "max_tokens": 50})).json();
    assert_eq!((&whole["object"], &whole["choices"][0]["text"]), (&json!("text_completion"), &json!("a b")));
    assert!(whole["choices"][0]["logprobs"].is_null());

    let body = json!({"prompt": ["SAY[first]", "SAY[second]"], "n": 2, "max_tokens": 50});
    let whole = post(server.addr, COMPLETIONS, &body).json();
    let texts: Vec<&str> = whole["choices"].as_array().unwrap().iter().map(|c| c["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["first", "first", "second", "second"]);
    let chunks = streamed(&server, COMPLETIONS, body);
    assert_eq!((joined(&chunks, 1, "text"), joined(&chunks, 2, "text")), ("first".into(), "second".into()));

    let tokens = post(server.addr, "/tokenize", &json!({"prompt": "SAY[by id]"})).json()["tokens"].clone();
    let whole = post(server.addr, COMPLETIONS, &json!({"prompt": tokens, "max_tokens": 50})).json();
    assert_eq!(whole["choices"][0]["text"], "by id");
}

#[test]
fn an_echo_has_the_prompt_with_its_scores_before_the_completion() {
    let server = server();
    let body = json!({"prompt": "SAY[x y]", "max_tokens": 20, "echo": true, "logprobs": 1});
    let whole = post(server.addr, COMPLETIONS, &body).json();
    let choice = &whole["choices"][0];
    assert_eq!(choice["text"], "SAY[x y]x y");
    let logprobs = &choice["logprobs"];
    let tokens: Vec<&str> = logprobs["tokens"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    assert_eq!(tokens.concat(), "SAY[x y]x y");
    let (scores, offsets) =
        (logprobs["token_logprobs"].as_array().unwrap(), logprobs["text_offset"].as_array().unwrap());
    assert!(
        scores[0].is_null() && logprobs["top_logprobs"][0].is_null() && scores[1..].iter().all(Value::is_number),
        "{scores:?}"
    );
    let mut at = 0;
    for (token, offset) in tokens.iter().zip(offsets) {
        assert_eq!(offset.as_u64(), Some(at));
        at += token.chars().count() as u64;
    }
    let chunks = streamed(&server, COMPLETIONS, body);
    assert_eq!(chunks[0]["choices"][0]["text"], "SAY[x y]");
    assert_eq!(joined(&chunks, 0, "text"), "SAY[x y]x y");
}

#[test]
fn a_prompt_can_be_scored_without_a_completion() {
    let server = server();
    let body = json!({"prompt": "only this", "max_tokens": 0, "echo": true, "logprobs": 0});
    let whole = post(server.addr, COMPLETIONS, &body).json();
    assert_eq!(whole["choices"][0]["text"], "only this");
    assert_eq!(whole["usage"]["completion_tokens"], 0);
    let logprobs = &whole["choices"][0]["logprobs"];
    assert_eq!(
        logprobs["tokens"].as_array().unwrap().len(),
        whole["usage"]["prompt_tokens"].as_u64().unwrap() as usize
    );
}

#[test]
fn a_seed_is_reported_as_given_or_as_drawn() {
    let server = server();
    let given = post(server.addr, CHAT, &with(ask("SAY[x]"), json!({"seed": -5}))).json();
    assert_eq!(given["seed"], -5);
    let drawn = |_| post(server.addr, CHAT, &ask("SAY[x]")).json()["seed"].as_u64().unwrap();
    let (one, other) = (drawn(()), drawn(()));
    assert!(one != other && one < 1 << 53);
}

#[test]
fn a_request_keeps_the_name_that_its_client_gave_it() {
    let server = server();
    let body = ask("SAY[x]").to_string();
    let reply = request(server.addr, "POST", CHAT, &[("x-request-id", "mine-1")], body.as_bytes());
    assert_eq!(reply.header("x-request-id"), Some("mine-1"));
    let reply = request(server.addr, "GET", "/nowhere", &[("x-request-id", "not fit for a log")], b"");
    assert!(reply.header("x-request-id").unwrap().starts_with("req_"), "an unfit name is replaced");
}

#[test]
fn models_health_and_metrics_answer() {
    let server = server();
    assert_eq!(get(server.addr, "/v1/models").json()["data"][0]["id"], "tiny");
    assert_eq!(get(server.addr, "/v1/models/tiny").json()["max_model_len"], 2048);
    assert_eq!(get(server.addr, "/v1/models/other").status, 404);
    let anthropics = |path| request(server.addr, "GET", path, &[("anthropic-version", "2023-06-01")], b"").json();
    let list = anthropics("/v1/models");
    assert_eq!(
        (&list["data"][0]["type"], &list["first_id"], &list["has_more"]),
        (&json!("model"), &json!("tiny"), &json!(false))
    );
    assert_eq!(anthropics("/v1/models/tiny")["display_name"], "tiny");
    let info = get(server.addr, "/tokenizer_info").json();
    assert_eq!(info["model_max_length"], 2048);
    let end = info["eos_token"].as_str().expect("the token that ends a text");
    assert_eq!(post(server.addr, "/tokenize", &json!({"prompt": end})).json()["count"], 1);
    assert!(info["chat_template"].as_str().is_some_and(|template| template.contains("messages")));
    assert_eq!((get(server.addr, "/health").status, get(server.addr, "/ready").status), (200, 200));
    let head = request(server.addr, "HEAD", "/health", &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
    post(server.addr, CHAT, &ask("SAY[some words]"));
    let text = get(server.addr, "/metrics").text().to_owned();
    // A GPU's figures are there where one computes.
    for metric in chimere::metrics::ALL.iter().filter(|m| !m.name.starts_with("chimere_gpu_")) {
        let shown = text.lines().any(|l| l.starts_with(metric.name));
        // The memory plan is exported by `chimere serve`, which this is not; the process's own memory is measured here
        // too.
        assert!(shown, "{} is not exported", metric.name);
    }
}

#[test]
fn texts_and_conversations_are_tokenized_and_back() {
    let server = server();
    let text = "hello, w\u{f6}rld \u{1f999}";
    let reply =
        post(server.addr, "/tokenize", &json!({"model": "tiny", "prompt": text, "add_special_tokens": true})).json();
    assert_eq!(reply["count"].as_u64().unwrap() as usize, reply["tokens"].as_array().unwrap().len());
    assert_eq!(reply["max_model_len"], 2048);
    let back = post(server.addr, "/detokenize", &json!({"tokens": reply["tokens"]})).json();
    assert_eq!(back, json!({"prompt": text, "content": text}));
    let chat = json!({"messages": [{"role": "user", "content": "hi"}]});
    let reply = post(server.addr, "/tokenize", &chat).json();
    let back = post(server.addr, "/detokenize", &json!({"tokens": reply["tokens"]})).json();
    assert!(back["prompt"].as_str().unwrap().starts_with("<|im_start|>user\nhi<|im_end|>\n"), "{back}");
}

#[test]
fn thirty_two_streams_at_once_get_each_its_own_words() {
    let server = server();
    let addr = server.addr;
    server.fake.allow(0);
    let clients: Vec<_> = (0..32)
        .map(|i| {
            std::thread::spawn(move || {
                let text = format!("number {i} of many, with words of its own: {}", "x".repeat(i));
                let body = with(ask(&format!("SAY[{text}]")), json!({"stream": true}));
                assert_eq!(joined(&Stream::open(addr, CHAT, &body).chunks(), 0, "content"), text);
            })
        })
        .collect();
    server.wait_for_live(32);
    server.fake.allow_all();
    clients.into_iter().for_each(|c| c.join().unwrap());
    let widest = server.fake.plans().iter().map(|p| p.pieces.len()).max().unwrap();
    assert!(widest > 4, "the streams were computed together, {widest} at most");
    server.wait_for_live(0);
}

#[test]
fn a_client_that_reads_late_misses_nothing() {
    let server = server();
    // Some 2,000 chunks with 20 alternatives each are more than the socket's buffers take.
    let body = with(
        ask("LOOP[abc def ghi ]"),
        json!({"stream": true, "max_tokens": 1900, "logprobs": true, "top_logprobs": 20}),
    );
    let mut slow = Stream::open(server.addr, CHAT, &body);
    // The engine is done with it although nobody has read a byte of the text.
    let busy = || server.fake.launched();
    eventually("the engine has made all tokens", || busy() > 1900);
    let quick = post(server.addr, CHAT, &ask("SAY[not held up]"));
    assert_eq!(quick.content(), "not held up");
    let chunks = slow.chunks();
    assert_eq!(chunks.last().unwrap()["usage"]["completion_tokens"], 1900);
}
