//! OpenAI's responses: what its clients send, what they read, and what is kept for them.

use crate::support::*;
use serde_json::{Value, json};

const RESPONSES: &str = "/v1/responses";

fn server() -> Server {
    Server::start(Options::default())
}

/// A request whose user says `text`, with thinking off.
fn say(text: &str) -> Value {
    json!({"model": "tiny", "input": text, "reasoning": {"effort": "none"}})
}

fn weather() -> (Value, &'static str) {
    let function = |name: &str| {
        json!({"type": "function", "name": name, "description": "d", "strict": false,
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}})
    };
    let space = json!({"type": "namespace", "name": "sums", "description": "d", "tools": [function("add")]});
    let call = "<tool_call>\n<function=sums__add>\n<parameter=a>\n17\n</parameter>\n</function>\n</tool_call>";
    (json!([function("other"), space, {"type": "web_search", "search_context_size": "low"}]), call)
}

/// The events of a stream, numbered from 0, whose names stand before their data and in it.
fn events(server: &Server, body: Value) -> Vec<Value> {
    let events = Stream::open(server.addr, RESPONSES, &with(body, json!({"stream": true}))).named_events();
    for (i, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], json!(i));
    }
    events
}

fn answered(server: &Server, body: Value) -> Value {
    let reply = post(server.addr, RESPONSES, &body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// The text of a response.
fn text(response: &Value) -> &str {
    let output = response["output"].as_array().unwrap();
    let message = output.iter().find(|item| item["type"] == "message").unwrap_or_else(|| panic!("{response}"));
    message["content"][0]["text"].as_str().unwrap()
}

#[test]
fn a_response_says_what_was_asked_and_what_came_of_it() {
    let server = server();
    let body =
        with(say("SAY[hello]"), json!({"instructions": "be brief", "metadata": {"a": "b"}, "max_output_tokens": 50}));
    let response = answered(&server, body);
    assert_eq!(text(&response), "hello");
    assert!(response["id"].as_str().unwrap().starts_with("resp_"));
    for (name, value) in [
        ("object", json!("response")),
        ("status", json!("completed")),
        ("error", Value::Null),
        ("incomplete_details", Value::Null),
        ("instructions", json!("be brief")),
        ("metadata", json!({"a": "b"})),
        ("max_output_tokens", json!(50)),
        ("previous_response_id", Value::Null),
        ("store", json!(true)),
        ("tools", json!([])),
    ] {
        assert_eq!(response[name], value, "{name}");
    }
    let usage = &response["usage"];
    let sum = usage["input_tokens"].as_u64().unwrap() + usage["output_tokens"].as_u64().unwrap();
    assert_eq!(
        (usage["total_tokens"].as_u64(), &usage["input_tokens_details"]["cached_tokens"]),
        (Some(sum), &json!(0))
    );
    assert!(server.fake.was_told().contains("be brief"));

    for (name, value) in [
        ("top_logprobs", json!(0)),
        ("temperature", json!(1.0)),
        ("presence_penalty", json!(0.0)),
        ("max_tool_calls", Value::Null),
        ("safety_identifier", Value::Null),
        ("prompt_cache_key", Value::Null),
    ] {
        assert_eq!(response.get(name), Some(&value), "{name}: what was not asked for is there too");
    }
    assert!(response["completed_at"].as_u64() >= response["created_at"].as_u64(), "{response}");

    let cut = answered(&server, with(say("LOOP[a ]"), json!({"max_output_tokens": 5})));
    assert_eq!((cut.get("completed_at"), cut.get("instructions")), (Some(&Value::Null), Some(&Value::Null)));
    assert_eq!(
        (&cut["status"], &cut["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    assert_eq!(cut["output"][0]["status"], "incomplete");
}

#[test]
fn a_stream_tells_every_step_of_every_item_and_ends_with_the_whole() {
    let server = server();
    let (tools, call) = weather();
    let said = format!("SAY[let me see</think>\n\nhere it is{call}]");
    let body = with(say(&said), json!({"tools": tools, "reasoning": {"effort": "high"}}));
    let events = events(&server, body);
    let mut names: Vec<&str> =
        events.iter().map(|e| e["type"].as_str().unwrap().trim_start_matches("response.")).collect();
    names.dedup();
    let item = |steps: &[&'static str]| [&["output_item.added"][..], steps, &["output_item.done"]].concat();
    let part = |kind: [&'static str; 2]| item(&["content_part.added", kind[0], kind[1], "content_part.done"]);
    let wanted = [
        vec!["created", "in_progress"],
        part(["reasoning_text.delta", "reasoning_text.done"]),
        part(["output_text.delta", "output_text.done"]),
        item(&["function_call_arguments.delta", "function_call_arguments.done"]),
        vec!["completed"],
    ];
    assert_eq!(names, wanted.concat());
    let whole = &events.last().unwrap()["response"];
    let done: Vec<&Value> =
        events.iter().filter(|e| e["type"] == "response.output_item.done").map(|e| &e["item"]).collect();
    assert_eq!(done, whole["output"].as_array().unwrap().iter().collect::<Vec<_>>());
    let deltas = |name: &str| -> String {
        events.iter().filter(|e| e["type"] == name).map(|e| e["delta"].as_str().unwrap()).collect()
    };
    assert_eq!(deltas("response.output_text.delta"), text(whole));
    assert_eq!(deltas("response.reasoning_text.delta"), "let me see");
    let called = &whole["output"][2];
    assert_eq!(
        (&called["type"], &called["namespace"], &called["name"], &called["arguments"]),
        (&json!("function_call"), &json!("sums"), &json!("add"), &json!("{\"a\": 17}"))
    );
    assert_eq!(deltas("response.function_call_arguments.delta"), "{\"a\": 17}");
    for event in events.iter().filter(|e| e.get("item_id").is_some()) {
        assert_eq!(event["item_id"], whole["output"][event["output_index"].as_u64().unwrap() as usize]["id"]);
    }
    let tools = whole["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 2, "a search that nobody does is left out");
}

#[test]
fn a_client_that_keeps_everything_brings_it_back() {
    let server = server();
    let (tools, call) = weather();
    let stateless = json!({"store": false, "tools": tools, "include": ["reasoning.encrypted_content"],
        "client_metadata": {"x": "y"}, "prompt_cache_key": "k", "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "low"}});
    let first = answered(&server, with(say(&format!("SAY[hm, seventeen</think>\n\n{call}]")), stateless.clone()));
    assert_eq!(first["store"], false);
    let output = first["output"].as_array().unwrap();
    assert_eq!(output[0]["summary"], json!([{"type": "summary_text", "text": "hm, seventeen"}]));
    assert_eq!(get(server.addr, &format!("{RESPONSES}/{}", first["id"].as_str().unwrap())).status, 404);

    let mut thought = output[0].clone();
    thought["summary"] = json!([]);
    thought["content"] = Value::Null;
    let foreign = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABo"});
    let result = json!({"type": "function_call_output", "call_id": output[1]["call_id"], "output": "result 42"});
    let input = json!([
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
        {"role": "user", "content": "go"},
        foreign, thought, output[1], result,
        {"role": "developer", "content": "later rules"},
        {"role": "user", "content": [{"type": "input_text", "text": "SAY[it is</think>\n\n42]"}]},
    ]);
    let second = answered(&server, with(stateless, json!({"input": input})));
    assert_eq!(text(&second), "42");
    let told = server.fake.was_told();
    for said in ["rules", "<function=sums__add>", "result 42", "<system-reminder>\nlater rules\n"] {
        assert!(told.contains(said), "{said:?} in {told}");
    }
}

#[test]
fn a_response_goes_on_from_another_one_of_its_account_and_of_no_other() {
    let server = Server::start(Options { keys: keys("sk-a\nsk-b"), ..Options::default() });
    let asked = |key: &str, method: &str, path: &str, body: &Value| {
        let auth = format!("Bearer {key}");
        let body = if method == "POST" { body.to_string() } else { String::new() };
        request(server.addr, method, path, &[("Authorization", &auth)], body.as_bytes())
    };
    let first =
        asked("sk-a", "POST", RESPONSES, &with(say("SAY[my name is Ada]"), json!({"instructions": "once"}))).json();
    let path = format!("{RESPONSES}/{}", first["id"].as_str().unwrap());
    assert_eq!(asked("sk-a", "GET", &path, &Value::Null).json(), first);

    let on = with(say("SAY[Ada]"), json!({"previous_response_id": first["id"]}));
    let second = asked("sk-a", "POST", RESPONSES, &on).json();
    assert_eq!((text(&second), &second["previous_response_id"]), ("Ada", &first["id"]));
    let third = with(say("SAY[x]"), json!({"previous_response_id": second["id"]}));
    let before = server.fake.was_told().len();
    assert_eq!(text(&asked("sk-a", "POST", RESPONSES, &third).json()), "x");
    let told = server.fake.was_told()[before..].to_owned();
    assert!(told.contains("my name is Ada<|im_end|>") && told.contains("SAY[Ada]"), "{told}");
    assert!(!told.contains("once"), "instructions are for one response: {told}");

    for key in ["sk-b", "sk-a"] {
        let foreign =
            if key == "sk-b" { on.clone() } else { with(on.clone(), json!({"previous_response_id": "resp_0"})) };
        let reply = asked(key, "POST", RESPONSES, &foreign);
        let error = &reply.json()["error"];
        assert_eq!(
            (reply.status, &error["code"], &error["param"]),
            (404, &json!("previous_response_not_found"), &json!("previous_response_id")),
            "{error}"
        );
    }
    assert_eq!(asked("sk-b", "GET", &path, &Value::Null).status, 404);
    assert_eq!(asked("sk-b", "DELETE", &path, &Value::Null).status, 404);
    assert_eq!(asked("sk-a", "DELETE", &path, &Value::Null).json()["deleted"], true);
    assert_eq!(asked("sk-a", "GET", &path, &Value::Null).status, 404);
    // What goes on from it has all that was said itself.
    assert_eq!(text(&asked("sk-a", "POST", RESPONSES, &third).json()), "x");
}

#[test]
fn items_can_be_named_by_their_ids_and_what_was_said_is_listed() {
    let server = Server::start(Options { keys: keys("sk-a\nsk-b"), ..Options::default() });
    let asked = |key: &str, method: &str, path: &str, body: &str| {
        request(server.addr, method, path, &[("Authorization", &format!("Bearer {key}"))], body.as_bytes())
    };
    let create = |key: &str, body: Value| asked(key, "POST", RESPONSES, &body.to_string());
    let first = create("sk-a", say("SAY[my name is Ada]")).json();
    let item = first["output"].as_array().unwrap().last().unwrap()["id"].clone();
    let question = |text: &str| json!({"role": "user", "content": text});
    let on = |id: &Value| {
        let reference = json!({"type": "item_reference", "id": id});
        with(say("x"), json!({"input": [question("who?"), reference, question("SAY[Ada]")]}))
    };
    let second = create("sk-a", on(&item)).json();
    assert_eq!(text(&second), "Ada");
    assert!(server.fake.was_told().contains("my name is Ada<|im_end|>"));
    for (key, id) in [("sk-b", item.clone()), ("sk-a", json!("msg_0000")), ("sk-a", json!("ä_1"))] {
        let reply = create(key, on(&id));
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["param"]), (404, &json!("input[1].id")), "{error}");
    }

    let path = format!("{RESPONSES}/{}/input_items", second["id"].as_str().unwrap());
    let page = |query: &str| asked("sk-a", "GET", &format!("{path}{query}"), "").json();
    let texts = |page: &Value| -> Vec<String> {
        let items = page["data"].as_array().unwrap();
        items.iter().map(|item| item["content"][0]["text"].as_str().unwrap().to_owned()).collect()
    };
    let all = page("?order=asc");
    assert_eq!(texts(&all), ["who?", "my name is Ada", "SAY[Ada]"]);
    assert_eq!((&all["has_more"], &all["data"][1]["id"]), (&json!(false), &item));
    let newest = page("?limit=2");
    assert_eq!((texts(&newest).len(), &newest["has_more"]), (2, &json!(true)));
    assert_eq!(texts(&page(&format!("?after={}", newest["last_id"].as_str().unwrap()))), ["who?"]);
    assert_eq!(page("?limit=0")["error"]["param"], "limit");
    assert_eq!(asked("sk-b", "GET", &path, "").status, 404);
}

#[test]
fn what_is_kept_is_bounded_for_each_account() {
    let settings = chimere::responses::ResponseBounds { bytes_max: 1 << 20, account_bytes_max: 4000, seconds: 3600 };
    let server = Server::start(Options { responses: settings, ..Options::default() });
    let ids: Vec<String> =
        (0..6).map(|_| answered(&server, say("SAY[x]"))["id"].as_str().unwrap().to_owned()).collect();
    let there: Vec<bool> = ids.iter().map(|id| get(server.addr, &format!("{RESPONSES}/{id}")).status == 200).collect();
    assert_eq!((there[0], there[5]), (false, true), "the oldest goes: {there:?}");
}

#[test]
fn what_is_not_supported_is_refused_by_its_place() {
    let server = server();
    let image = json!([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]);
    let stray = json!([{"type": "function_call_output", "call_id": "c9", "output": "x"}]);
    let deep = json!([{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "a b"}]}]);
    for (more, said) in [
        (json!({"input": image}), "`input[0].content[0]`"),
        (json!({"input": stray}), "`input[0].call_id`"),
        (json!({"input": []}), "`input` must not be empty"),
        (json!({"input": [{"type": "item_reference"}]}), "`input[0].id`"),
        (json!({"tools": [{"type": "code_interpreter"}]}), "`tools[0].type`"),
        (json!({"tools": deep}), "tools[0].name"),
        (json!({"tools": weather().0, "tool_choice": {"type": "function", "name": "nobody"}}), "tool_choice"),
        (json!({"background": true}), "`background`"),
        (json!({"conversation": "conv_1"}), "previous_response_id"),
        (json!({"max_output_tokens": 0}), "`max_output_tokens`"),
        (json!({"reasoning": {"effort": "huge"}}), "`reasoning.effort`"),
        (json!({"temperature": 9}), "`temperature`"),
        (json!({"input": "word ".repeat(4000)}), "`input`"),
    ] {
        let reply = post(server.addr, RESPONSES, &with(say("x"), more.clone()));
        let error = reply.json()["error"].clone();
        assert_eq!(reply.status, 400, "{more}: {error}");
        let named = format!("{} {}", error["message"].as_str().unwrap(), error["param"]);
        assert!(named.contains(said) || named.contains(&said.replace('`', "\"")), "{more}: {error}");
    }
    let counted = post(server.addr, "/v1/responses/input_tokens", &say("hello")).json();
    assert!(counted["input_tokens"].as_u64() > Some(3), "{counted}");
}

#[test]
fn a_stream_that_breaks_ends_with_a_response_that_failed() {
    let server = server();
    server.fake.trouble(Trouble::StepFails);
    let events = events(&server, say("LOOP[a ]"));
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    assert!(last["response"]["error"]["message"].is_string(), "{last}");
}

#[test]
fn a_compaction_stands_for_the_conversation_before_it() {
    let server = server();
    let compact = |body: Value| post(server.addr, "/v1/responses/compact", &body);
    let asked = with(
        say("x"),
        json!({"input": [{"role": "user", "content": "Launch? SAY[Launch on Tuesday.]"},
            {"role": "assistant", "content": "Tuesday."}], "tools": weather().0}),
    );
    let reply = compact(asked).json();
    let item = reply["output"][0].clone();
    assert_eq!((&reply["object"], &item["type"]), (&json!("response.compaction"), &json!("compaction")), "{reply}");
    assert!(reply["usage"]["output_tokens"].as_u64().unwrap() > 0 && reply["created_at"].is_u64());
    let told = server.fake.was_told();
    assert!(told.contains("Summarise this conversation") && !told.contains("sums__add"), "{told}");
    let next = json!({"input": [item, {"role": "user", "content": "When? SAY[then]"}]});
    assert_eq!(text(&answered(&server, with(say("x"), next))), "then");
    let told = server.fake.was_told();
    let summary = told.rfind("A summary of the conversation so far:\n\nLaunch on Tuesday.").unwrap();
    assert!(told.rfind("Launch?").is_some_and(|before| before < summary), "the conversation itself is not told again");
    let first = answered(&server, with(say("One. SAY[Two.]"), json!({"store": true})));
    let behind = json!({"model": "tiny", "previous_response_id": first["id"]});
    assert_eq!(compact(behind).json()["object"], "response.compaction", "a response that was kept is compacted too");
    for (body, field, want) in [
        (json!({"input": "a"}), "model", "model"),
        (json!({"model": "tiny", "input": []}), "input", "there is nothing to compact"),
        (json!({"model": "tiny", "input": "a", "stream": true}), "stream", "a compaction comes in one piece"),
    ] {
        let (status, error) = (compact(body.clone()).status, compact(body).json()["error"].clone());
        assert_eq!((status, &error["param"]), (400, &json!(field)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(want), "{error}");
    }
    let foreign =
        json!({"input": [{"type": "compaction", "encrypted_content": "gAAAA"}, {"role": "user", "content": "x"}]});
    let error = post(server.addr, RESPONSES, &with(say("x"), foreign)).json()["error"].clone();
    let want = "`input[0].encrypted_content` is no compaction that this service made";
    assert_eq!((&error["param"], &error["message"]), (&json!("input[0].encrypted_content"), &json!(want)));
}
