//! What agents meet in long conversations: calls that end too early, tools' results that are no text, tools that fill
//! the context, log-probabilities of a response.

use crate::support::*;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

fn server() -> Server {
    Server::start(Options::default())
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"text": {"type": "string"}}})
}

fn function(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "writes", "parameters": schema()}})
}

fn answered(server: &Server, path: &str, body: &Value) -> Value {
    let reply = post(server.addr, path, body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// A text that ends by itself inside of a call of the tool `write`.
const OPEN_CALL: &str = "SAY[so<tool_call>\n<function=write>\n<parameter=text>\nrm old]";

#[test]
fn a_call_that_the_model_did_not_end_is_told_in_each_dialect() {
    let server = server();
    let asked = json!({"messages": [{"role": "user", "content": OPEN_CALL}], "max_tokens": 200,
        "tools": [function("write")], "chat_template_kwargs": {"enable_thinking": false}});
    let choice = answered(&server, CHAT, &asked)["choices"][0].clone();
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!((&call["status"], &choice["finish_reason"]), (&json!("incomplete"), &json!("stop")), "{choice}");
    assert_eq!(call["function"]["arguments"], "{\"text\": \"rm old");
    let chunks = Stream::open(server.addr, CHAT, &with(asked.clone(), json!({"stream": true}))).chunks();
    assert!(chunks.iter().any(|c| c["choices"][0]["delta"]["tool_calls"][0]["status"] == "incomplete"), "{chunks:?}");

    let tool = json!({"type": "function", "name": "write", "parameters": schema()});
    let asked = json!({"input": OPEN_CALL, "reasoning": {"effort": "none"}, "tools": [tool]});
    let response = answered(&server, RESPONSES, &asked);
    let statuses: Vec<&Value> = response["output"].as_array().unwrap().iter().map(|item| &item["status"]).collect();
    assert_eq!(statuses, ["completed", "incomplete"], "{response}");

    let tool = json!({"name": "write", "input_schema": schema()});
    let asked = json!({"messages": [{"role": "user", "content": OPEN_CALL}], "max_tokens": 200, "tools": [tool]});
    let message = answered(&server, MESSAGES, &asked);
    assert_eq!((&message["content"].as_array().unwrap().len(), &message["stop_reason"]), (&1, &json!("end_turn")));
    assert_eq!(message["stop_details"]["type"], "incomplete_tool_use", "{message}");
    let events = Stream::open(server.addr, MESSAGES, &with(asked, json!({"stream": true}))).events();
    assert!(events.iter().any(|event| event.contains("message_delta") && event.contains("incomplete_tool_use")));

    let asked = json!({"model": "tiny", "messages": [{"role": "user", "content": OPEN_CALL}], "stream": false,
        "think": false, "tools": [function("write")]});
    let message = answered(&server, "/api/chat", &asked);
    assert_eq!((&message["done_reason"], message["message"].get("tool_calls")), (&json!("incomplete_tool_call"), None));
}

#[test]
fn a_closing_tag_in_an_argument_arrives_whole_and_streamed() {
    let server = server();
    let call = "<tool_call>\n<function=write>\n<parameter=text>\nsay </parameter> and </tool_call> now\n</parameter>\n\
        </function>\n</function_invocation>\n</tool_call>";
    let asked = json!({"messages": [{"role": "user", "content": format!("SAY[{call}]")}], "max_tokens": 200,
        "tools": [function("write")], "chat_template_kwargs": {"enable_thinking": false}});
    let wanted = "{\"text\": \"say </parameter> and </tool_call> now\"}";
    let choice = answered(&server, CHAT, &asked)["choices"][0].clone();
    let made = &choice["message"]["tool_calls"][0]["function"]["arguments"];
    assert_eq!((made, &choice["message"]["content"]), (&json!(wanted), &Value::Null), "{choice}");
    let chunks = Stream::open(server.addr, CHAT, &with(asked, json!({"stream": true}))).chunks();
    let delta =
        |c: &Value| c["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str().map(str::to_owned);
    assert_eq!(chunks.iter().filter_map(delta).collect::<String>(), wanted);
}

const LEFT_OUT: &str = "[An image was left out here: this model reads text.]";

#[test]
fn an_image_in_a_tool_s_result_is_named_and_the_conversation_goes_on() {
    let server = server();
    let call = json!({"id": "c1", "type": "function", "function": {"name": "write", "arguments": "{}"}});
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let result = json!([{"type": "text", "text": "seen: "}, image]);
    let messages = json!([
        {"role": "user", "content": "look"}, {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": result}, {"role": "user", "content": "SAY[ok]"},
    ]);
    answered(&server, CHAT, &json!({"messages": messages}));
    assert!(server.fake.was_told().contains(&format!("seen: {LEFT_OUT}")));

    let parts = json!([{"type": "input_text", "text": "shot: "}, {"type": "input_image", "image_url": "data:x"}]);
    let input = json!([
        {"role": "user", "content": "look"},
        {"type": "function_call", "call_id": "c1", "name": "write", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": parts}, {"role": "user", "content": "SAY[ok]"},
    ]);
    answered(&server, RESPONSES, &json!({"input": input}));
    assert!(server.fake.was_told().contains(&format!("shot: {LEFT_OUT}")));

    let shown = json!([{"role": "user", "content": [image]}]);
    assert_eq!(post(server.addr, CHAT, &json!({"messages": shown})).status, 400, "what a user shows is refused");
}

/// Anthropic's messages up to the result of a tool with these blocks.
fn messages_with(result: Value) -> Value {
    json!([
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "write", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": result}, {"type": "text", "text": "SAY[ok]"}]},
    ])
}

#[test]
fn documents_and_search_results_are_read_where_they_are_text() {
    let server = server();
    let text = json!({"type": "document", "title": "Foxes", "context": "from a book",
        "source": {"type": "text", "media_type": "text/plain", "data": "a fox is red"}, "citations": {}});
    let blocks = json!({"type": "document",
        "source": {"type": "content", "content": [{"type": "text", "text": "an owl is grey"}]}});
    let found = json!({"type": "search_result", "source": "https://a.example", "title": "Crows",
        "content": [{"type": "text", "text": "a crow is black"}]});
    let all = ["Foxes\nfrom a book\na fox is red", "an owl is grey", "Crows\nhttps://a.example\na crow is black"];
    let said = |messages: &Value| {
        answered(&server, MESSAGES, &json!({"messages": messages, "max_tokens": 50}));
        server.fake.was_told()
    };

    let asked = json!([{"role": "user", "content": [text, blocks, found, {"type": "text", "text": "SAY[ok]"}]}]);
    let told = said(&asked);
    assert!(all.iter().all(|part| told.contains(part)), "{told}");

    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
    let pdf = json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"}});
    let told = said(&messages_with(json!([text, blocks, found, image, pdf, {"type": "sound"}])));
    let others = [LEFT_OUT, "[A document was left out here", "[A part was left out here"];
    assert!(all.iter().chain(&others).all(|part| told.contains(part)), "{told}");

    let shown = json!([{"role": "user", "content": [pdf]}]);
    let reply = post(server.addr, MESSAGES, &json!({"messages": shown, "max_tokens": 50}));
    assert!(reply.status == 400 && reply.text().contains("messages[0].content[0].source.type"), "{}", reply.text());
}

#[test]
fn a_response_has_the_log_probabilities_of_its_text_whole_and_streamed() {
    let server = server();
    let asked = json!({"input": "SAY[let me see</think>\n\nhere it is]", "reasoning": {"effort": "high"},
        "include": ["message.output_text.logprobs"], "top_logprobs": 2});
    let response = answered(&server, RESPONSES, &asked);
    assert_eq!(response["top_logprobs"], 2);
    let message = response["output"].as_array().unwrap().iter().find(|item| item["type"] == "message").unwrap();
    let part = &message["content"][0];
    let tokens = part["logprobs"].as_array().unwrap();
    let text: String = tokens.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!((text.as_str(), &part["text"]), ("here it is", &json!("here it is")));
    for token in tokens {
        assert!(token["logprob"].as_f64().unwrap() <= 0.0 && token["bytes"].is_array(), "{token}");
        assert_eq!(token["top_logprobs"].as_array().unwrap().len(), 2, "{token}");
    }
    let events = Stream::open(server.addr, RESPONSES, &with(asked.clone(), json!({"stream": true}))).named_events();
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    let deltas = of("response.output_text.delta");
    let streamed: Vec<Value> = deltas.iter().flat_map(|event| event["logprobs"].as_array().unwrap().clone()).collect();
    assert_eq!(streamed, *tokens);
    assert_eq!(of("response.output_text.done")[0]["logprobs"], part["logprobs"]);
    assert_eq!(of("response.content_part.done")[1]["part"], *part);
    let without = answered(&server, RESPONSES, &with(asked.clone(), json!({"include": []})));
    assert!(without.to_string().contains(r#""logprobs":[]"#), "{without}");
    let wrong = post(server.addr, RESPONSES, &with(asked, json!({"top_logprobs": 99})));
    assert!(wrong.status == 400 && wrong.text().contains("`top_logprobs`"), "{}", wrong.text());
}

#[test]
fn a_prompt_that_tools_fill_says_what_to_switch_off() {
    let server = Server::start(Options { context: 256, ..Options::default() });
    let tools: Vec<Value> = ["one", "two", "three"]
        .map(|name| {
            let mut tool = function(name);
            tool["function"]["description"] = json!("word ".repeat(120));
            tool
        })
        .to_vec();
    let message = |path: &str, body: &Value| {
        let reply = post(server.addr, path, body);
        assert_eq!(reply.status, 400, "{}", reply.text());
        reply.json()["error"]["message"].as_str().unwrap().to_owned()
    };
    let asked = json!({"messages": [{"role": "user", "content": "hello"}], "tools": tools, "max_tokens": 10});
    let said = message(CHAT, &asked);
    let advice = "the declaration of 3 tools takes ";
    assert!(said.contains("maximum context length is 255 tokens") && said.contains(advice), "{said}");
    assert!(said.ends_with("switch off tools that this conversation does not need"), "{said}");

    let own: Vec<Value> = tools
        .iter()
        .map(|tool| {
            let function = &tool["function"];
            json!({"name": function["name"], "description": function["description"], "input_schema": schema()})
        })
        .collect();
    let said = message(MESSAGES, &with(asked.clone(), json!({"tools": own})));
    assert!(said.starts_with("prompt is too long: ") && said.contains(advice), "{said}");

    let long = json!({"messages": [{"role": "user", "content": "word ".repeat(400)}], "tools": [function("one")]});
    assert!(!message(CHAT, &with(asked, long)).contains("switch off"));
}
