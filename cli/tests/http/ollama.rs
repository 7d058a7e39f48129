//! Ollama's API: what its programs send, and what they read.

use crate::support::*;
use serde_json::{Value, json};

const CHAT: &str = "/api/chat";
const GENERATE: &str = "/api/generate";

fn server() -> Server {
    Server::start(Options::default())
}

fn say(text: &str) -> Value {
    let messages = json!([{"role": "user", "content": text}]);
    json!({"model": "tiny", "messages": messages, "think": false, "options": {"num_ctx": 4096}})
}

fn add() -> (Value, &'static str) {
    let parameters = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let tools =
        json!([{"type": "function", "function": {"name": "add", "description": "d", "parameters": parameters}}]);
    (tools, "<tool_call>\n<function=add>\n<parameter=a>\n17\n</parameter>\n</function>\n</tool_call>")
}

/// The lines of a stream.
fn lines(server: &Server, path: &str, body: &Value) -> Vec<Value> {
    let reply = post(server.addr, path, body);
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/x-ndjson")), "{}", reply.text());
    reply.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn whole(server: &Server, path: &str, body: &Value) -> Value {
    let reply = post(server.addr, path, &with(body.clone(), json!({"stream": false})));
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

#[test]
fn a_conversation_streams_unless_it_is_told_not_to_and_says_the_same_either_way() {
    let server = server();
    let (tools, call) = add();
    let text = format!("SAY[let me see</think>\n\nhere it is{call}]");
    let body = with(say(&text), json!({"tools": tools, "think": "high", "keep_alive": "5m"}));
    let lines = lines(&server, CHAT, &body);
    let (last, before) = lines.split_last().unwrap();
    assert!(before.iter().all(|line| line["done"] == false && line["message"]["role"] == "assistant"));
    let joined = |name: &str| -> String { before.iter().filter_map(|line| line["message"][name].as_str()).collect() };
    let calls: Vec<&Value> =
        before.iter().filter_map(|line| line["message"]["tool_calls"].as_array()).flatten().collect();
    assert_eq!((joined("thinking").as_str(), joined("content").as_str(), calls.len()), ("let me see", "here it is", 1));
    assert_eq!(calls[0]["function"], json!({"index": 0, "name": "add", "arguments": {"a": 17}}));

    let whole = whole(&server, CHAT, &body);
    let message = &whole["message"];
    assert_eq!((&message["thinking"], &message["content"]), (&json!("let me see"), &json!("here it is")));
    assert_eq!(message["tool_calls"][0]["function"], calls[0]["function"]);
    for end in [last, &whole] {
        assert_eq!((&end["done"], &end["done_reason"], &end["model"]), (&json!(true), &json!("stop"), &json!("tiny")));
        assert_eq!((&end["prompt_eval_count"], &end["eval_count"]), (&last["prompt_eval_count"], &last["eval_count"]));
        for name in ["total_duration", "load_duration", "prompt_eval_duration", "eval_duration"] {
            assert!(end[name].is_u64(), "{name}: {end}");
        }
        assert!(end["created_at"].as_str().unwrap().ends_with('Z'), "{end}");
    }
}

#[test]
fn a_tool_s_result_comes_back_as_its_programs_send_it() {
    let server = server();
    let (tools, call) = add();
    let first = whole(&server, CHAT, &with(say(&format!("SAY[{call}]")), json!({"tools": tools})));
    let mut message = first["message"].clone();
    message["thinking"] = json!("hm");
    let messages = json!([{"role": "user", "content": "go", "images": []}, message,
        {"role": "tool", "tool_name": "add", "content": "result 42"}, {"role": "user", "content": "SAY[42]"}]);
    let second = whole(&server, CHAT, &with(say(""), json!({"messages": messages, "tools": tools})));
    assert_eq!(second["message"]["content"], "42");
    let told = server.fake.was_told();
    assert!(told.contains("<parameter=a>\n17\n") && told.contains("result 42"), "{told}");
}

#[test]
fn a_prompt_goes_on_with_or_without_the_template() {
    let server = server();
    let body = json!({"model": "tiny:latest", "prompt": "SAY[one two three]", "system": "be brief", "think": false,
        "options": {"stop": "three", "num_predict": -1}});
    assert_eq!(whole(&server, GENERATE, &body)["response"], "one two ");
    assert!(server.fake.was_told().contains("be brief"));
    let text: String = lines(&server, GENERATE, &body)
        .iter()
        .filter_map(|line| line["response"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(text, "one two ");
    let before = server.fake.was_told().len();
    let raw = with(body, json!({"raw": true, "system": null, "options": {"num_predict": 2}}));
    assert_eq!(whole(&server, GENERATE, &raw)["done_reason"], "length");
    assert_eq!(&server.fake.was_told()[before..], "SAY[one two three]");
    let load = whole(&server, GENERATE, &json!({"model": "tiny"}));
    assert_eq!((&load["done_reason"], &load["response"]), (&json!("load"), &json!("")));
}

#[test]
fn programs_find_the_model_and_what_it_can() {
    let server = server();
    let tags = get(server.addr, "/api/tags").json();
    let names: Vec<&Value> = tags["models"].as_array().unwrap().iter().map(|model| &model["name"]).collect();
    assert_eq!(names, ["tiny:latest", "gpt-tiny:latest"]);
    assert_eq!(get(server.addr, "/api/ps").json()["models"][0]["context_length"], 2048);
    assert!(get(server.addr, "/api/version").json()["version"].as_str().unwrap().split('.').count() == 3);
    let show = post(server.addr, "/api/show", &json!({"model": "TINY:latest"})).json();
    assert_eq!(show["model_info"]["chimere.context_length"], 2048);
    assert!(show["capabilities"].as_array().unwrap().contains(&json!("tools")), "{show}");
    assert_eq!(post(server.addr, "/api/pull", &json!({"name": "tiny"})).text(), "{\"status\":\"success\"}\n");
    let vectors = post(server.addr, "/api/embed", &json!({"model": "tiny", "input": ["a", "b"]})).json();
    assert_eq!((vectors["embeddings"].as_array().unwrap().len(), &vectors["prompt_eval_count"]), (2, &json!(2)));
    let vector = post(server.addr, "/api/embeddings", &json!({"model": "tiny", "prompt": "a"})).json();
    assert_eq!(vector["embedding"], vectors["embeddings"][0]);
}

#[test]
fn an_error_is_a_line_with_one_word_for_it() {
    let server = Server::start(Options { keys: keys("sk-a"), context: 128, ..Options::default() });
    let asked = |key: &str, path: &str, body: &Value| {
        let auth = format!("Bearer {key}");
        let reply = request(server.addr, "POST", path, &[("Authorization", &auth)], body.to_string().as_bytes());
        let error = reply.json();
        assert_eq!(error.as_object().unwrap().len(), 1, "{error}");
        (reply.status, error["error"].as_str().unwrap_or_else(|| panic!("{error}")).to_owned())
    };
    let image = json!({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]});
    for (key, path, body, status, said) in [
        ("sk-b", CHAT, say("x"), 401, "not known"),
        ("sk-a", CHAT, with(say("x"), json!({"model": "llama3"})), 404, "`llama3`"),
        ("sk-a", "/api/pull", json!({"model": "llama3"}), 404, "models are files"),
        ("sk-a", "/api/create", json!({}), 404, "nothing at"),
        ("sk-a", CHAT, with(say("x"), image), 400, "`messages[0].images`"),
        ("sk-a", CHAT, with(say("x"), json!({"format": 3})), 400, "`format`"),
        ("sk-a", CHAT, with(say("x"), json!({"think": "huge"})), 400, "`think`"),
        ("sk-a", CHAT, with(say("x"), json!({"options": {"repeat_penalty": 0}})), 400, "`repeat_penalty`"),
        ("sk-a", CHAT, say(&"word ".repeat(200)), 400, "room for 127"),
        ("sk-a", GENERATE, json!({"model": "tiny", "prompt": "x", "suffix": "y"}), 400, "`suffix`"),
        ("sk-a", GENERATE, json!({"prompt": "x"}), 400, "`model`"),
    ] {
        let (got, message) = asked(key, path, &body);
        assert_eq!(got, status, "{message}");
        assert!(message.contains(said), "{message}");
    }
}

#[test]
fn a_stream_that_breaks_ends_with_an_error_and_a_silent_one_says_that_it_is_there() {
    let server = Server::start(Options { keep_alive: std::time::Duration::from_millis(20), ..Options::default() });
    server.fake.allow(0);
    let mut stream = Stream::open(server.addr, CHAT, &say("LOOP[a ]"));
    let mut first = String::new();
    while !first.ends_with('\n') {
        first += &stream.piece().expect("a line");
    }
    let first: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    assert_eq!((&first["message"]["content"], &first["done"]), (&json!(""), &json!(false)));
    server.fake.trouble(Trouble::StepFails);
    server.fake.allow_all();
    let rest: String = std::iter::from_fn(|| stream.piece()).collect();
    let last: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert!(last["error"].is_string(), "{last}");
}
