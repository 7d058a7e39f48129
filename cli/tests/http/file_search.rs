//! Answers from the files of vector stores: the service searches before it answers, and checks what is cited.

use crate::documents::{Client, start};
use crate::support::*;
use chimere::http::auth::AcceptedKeys;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const PORTS: &str =
    "# Ports\n\nThe port of Kelm lies in the north. It was built in 1871.\n\n# Ships\n\nDosh has red ships.";
const SAYS: &str = "It was built in 1871 [1]. It flies [1]. Grüße.";

/// A service, and the store and the file that it has.
fn service(dir: &tempfile::TempDir) -> (Server, String, String) {
    let server = start(dir.path(), AcceptedKeys::Open);
    let (store, member) = Client(server.addr, None).store_of("ports.md", PORTS.as_bytes());
    let file = member["id"].as_str().unwrap().to_owned();
    (server, store, file)
}

fn tool(store: &str) -> Value {
    json!({"type": "file_search", "vector_store_ids": [store]})
}

/// A chat whose answer is [`SAYS`] and whose question has words of the first section.
fn chat(tools: &Value) -> Value {
    let question = format!("When was the port of Kelm built? SAY{{{SAYS}}}");
    json!({"model": "tiny", "max_tokens": 200, "messages": [{"role": "user", "content": question}], "tools": tools,
        "reasoning_effort": "none"})
}

fn annotation(file: &str) -> Value {
    let (quote, mark) = ("It was built in 1871.", "[1]");
    let (begin, at) = (PORTS.find(quote).unwrap(), SAYS.find(mark).unwrap());
    json!({"file_id": file, "filename": "ports.md", "index": at, "start_index": at, "end_index": at + mark.len(),
        "quote": quote, "page": null, "source_start": begin, "source_end": begin + quote.len(), "score": 1.0})
}

#[test]
fn a_chat_s_answer_cites_the_files_that_bear_it_out_whole_and_streamed() {
    let dir = tempfile::tempdir().unwrap();
    let (server, store, file) = service(&dir);
    let want = json!([{"type": "file_citation", "file_citation": annotation(&file)}]);
    for tool in [tool(&store), json!({"type": "file_search", "file_search": {"vector_store_ids": [store]}})] {
        let reply = Client(server.addr, None).post(CHAT, &chat(&json!([tool])));
        let message = &reply["choices"][0]["message"];
        assert_eq!((&message["content"], &message["annotations"]), (&json!(SAYS), &want), "{reply}");
    }
    let told = server.fake.was_told();
    let shown = "say so.\n\n[1] Title: Ports\nThe port of Kelm lies in the north. It was built in 1871.";
    assert!(told.contains(shown) && told.contains("Kelm built? SAY{"), "{told}");
    let chunks = Stream::open(server.addr, CHAT, &with(chat(&json!([tool(&store)])), json!({"stream": true}))).events();
    let chunks = chunks.iter().filter_map(|event| event.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    let chunks: Vec<Value> = chunks.map(|data| serde_json::from_str(data).unwrap()).collect();
    let notes = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["annotations"].as_array());
    assert_eq!(json!(notes.flatten().collect::<Vec<_>>()), want);
    for choice in [json!("required"), json!({"type": "file_search"})] {
        let reply =
            Client(server.addr, None).post(CHAT, &with(chat(&json!([tool(&store)])), json!({"tool_choice": choice})));
        assert_eq!(reply["choices"][0]["message"]["annotations"], want, "the search was made before in any case");
    }
    // Other tools are the client's, and its own.
    let function = json!({"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}});
    let reply = Client(server.addr, None).post(CHAT, &chat(&json!([function, tool(&store)])));
    assert_eq!(reply["choices"][0]["message"]["annotations"], want);
    assert!(server.fake.was_told().contains("\"add\""));
}

#[test]
fn a_response_has_the_search_as_an_item_before_its_message() {
    let dir = tempfile::tempdir().unwrap();
    let (server, store, file) = service(&dir);
    let question = format!("When was the port of Kelm built? SAY{{{SAYS}}}");
    let still = json!({"effort": "none"});
    let body = json!({"input": question, "tools": [tool(&store)], "include": ["file_search_call.results"],
        "reasoning": still});
    let reply = Client(server.addr, None).post(RESPONSES, &body);
    let (search, message) = (&reply["output"][0], &reply["output"][1]);
    assert_eq!((&search["type"], &search["status"]), (&json!("file_search_call"), &json!("completed")), "{reply}");
    assert_eq!(search["queries"], json!([question]));
    assert_eq!(
        (&search["results"][0]["file_id"], &search["results"][0]["filename"]),
        (&json!(file), &json!("ports.md"))
    );
    let mut want = annotation(&file);
    want["type"] = "file_citation".into();
    assert_eq!(message["content"][0]["annotations"], json!([want]));
    assert_eq!(reply["tools"], json!([tool(&store)]));

    let plain = json!({"input": question, "tools": [tool(&store)], "stream": true, "reasoning": still});
    let events = Stream::open(server.addr, RESPONSES, &plain).named_events();
    let names: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let before = ["output_item.added", "file_search_call.in_progress", "file_search_call.searching"];
    let after = ["file_search_call.completed", "output_item.done", "output_item.added"];
    let wanted: Vec<String> = before.iter().chain(&after).map(|name| format!("response.{name}")).collect();
    assert_eq!(names[2..8], wanted);
    assert_eq!(events[2]["item"]["results"], Value::Null, "nobody asked for them");
    let added = events.iter().find(|event| event["type"] == "response.output_text.annotation.added").unwrap();
    assert_eq!(
        (&added["annotation"], &added["output_index"], &added["annotation_index"]),
        (&want, &json!(1), &json!(0))
    );
    let last = &events.last().unwrap()["response"]["output"];
    assert_eq!(
        (last[1]["content"][0]["annotations"].clone(), last[0]["type"].clone()),
        (json!([want]), json!("file_search_call"))
    );
}

#[test]
fn an_answer_is_told_to_say_what_is_missing_where_passages_hardly_suffice() {
    let dir = tempfile::tempdir().unwrap();
    let (server, store, _) = service(&dir);
    let ask = |question: &str, least: f64| {
        let tool = with(tool(&store), json!({"sufficiency_min": least}));
        let reply = Client(server.addr, None).post(RESPONSES, &json!({"input": question, "tools": [tool]}));
        let (told, sufficiency) = (server.fake.was_told(), reply["output"][0]["sufficiency"].as_f64());
        (told[told.rfind("<|im_start|>user").unwrap()..].to_owned(), sufficiency)
    };
    let (missing, nothing) = ("say what is missing, and do not guess.", "no passage was found for this.");
    let (told, probability) = ask("When was the port of Kelm built?", 1.0);
    assert!(told.contains("built?\n\nThe passages may not") && told.contains(missing), "{told}");
    assert!((0.0..1.0).contains(&probability.unwrap()));
    let (told, again) = ask("When was the port of Kelm built?", probability.unwrap());
    assert!(!told.contains(missing) && again == probability, "{told}");
    let (told, unasked) = ask("When was the port of Kelm built?", 0.0);
    assert!(!told.contains(missing) && !told.contains(nothing) && unasked.is_none());
    let tool = json!({"type": "file_search", "vector_store_ids": [store], "sufficiency_min": 2.0});
    let text = json!({"input": "a", "tools": [tool]}).to_string().replace("2.0", "1e999");
    let reply = crate::support::client::request(
        server.addr,
        "POST",
        RESPONSES,
        &[("Content-Type", "application/json")],
        text.as_bytes(),
    );
    assert_eq!(reply.status, 400);
    let (told, unasked) = ask("Xyzzy?", 1.0);
    assert!(told.contains(&format!("Xyzzy?\n\nThe files were searched, and {nothing}")) && unasked.is_none(), "{told}");
}

#[test]
fn tokens_of_a_prompt_are_counted_with_the_passages_that_it_would_have() {
    let dir = tempfile::tempdir().unwrap();
    let (server, store, _) = service(&dir);
    let client = Client(server.addr, None);
    let body = chat(&json!([tool(&store)]));
    let prompt_tokens = client.post(CHAT, &body)["usage"]["prompt_tokens"].as_u64().unwrap();
    let plain = client.post("/v1/chat/completions/input_tokens", &chat(&json!([])));
    assert!(plain["input_tokens"].as_u64().unwrap() + 20 < prompt_tokens, "{plain} {prompt_tokens}");
    let counted = client.post("/v1/chat/completions/input_tokens", &body);
    assert_eq!(counted["input_tokens"], prompt_tokens);
    let question = body["messages"][0]["content"].clone();
    let asked = json!({"input": question, "tools": [tool(&store)], "reasoning": {"effort": "none"}});
    let counted = client.post("/v1/responses/input_tokens", &asked);
    assert_eq!(counted["input_tokens"], client.post(RESPONSES, &asked)["usage"]["input_tokens"]);
}

#[test]
fn a_store_that_fits_is_read_as_a_whole_and_a_larger_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (server, store, _) = service(&dir);
    let whole = json!({"type": "file_search", "vector_store_ids": [store], "mode": "whole"});
    Client(server.addr, None).post(CHAT, &chat(&json!([whole])));
    assert!(server.fake.was_told().contains("[1] Title: ports.md\n"), "{}", server.fake.was_told());
    let client = Client(server.addr, None);
    let (large, _) = client.store_of("large.txt", "word after word. ".repeat(20_000).as_bytes());
    let whole = json!({"type": "file_search", "vector_store_ids": [large], "mode": "whole"});
    let reply = client.json("POST", CHAT, &chat(&json!([whole])));
    let error = &reply.json()["error"];
    assert_eq!((reply.status, &error["code"]), (400, &json!("context_length_exceeded")), "{error}");
    assert_eq!(error["param"], "tools[0].mode");
    // Passages that do not fit are left out, the worst first.
    let all = json!({"type": "file_search", "vector_store_ids": [large], "max_num_results": 50});
    client.post(CHAT, &chat(&json!([all])));
}

#[test]
fn what_cannot_be_searched_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (server, store, _) = service(&dir);
    let refused = |tools: Value, more: Value, param: &str, said: &str| {
        let reply = Client(server.addr, None).json("POST", CHAT, &with(chat(&tools), more));
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, error["param"].as_str()), (400, Some(param)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(said), "{said} in {error}");
    };
    let none = json!({});
    refused(json!([tool("vs_none")]), none.clone(), "tools[0]", "no vector store \"vs_none\"");
    refused(json!([tool(&store), tool(&store)]), none.clone(), "tools[1]", "second file_search");
    let odd = |field: &str, value: Value| json!([with(tool(&store), json!({field: value}))]);
    refused(odd("vector_store_ids", json!([])), none.clone(), "tools[0].vector_store_ids", "must name a store");
    let list = odd("vector_store_ids", json!([store, 7]));
    refused(list, none.clone(), "tools[0].vector_store_ids[1]", "must be a string, got");
    refused(odd("max_num_results", json!(51)), none.clone(), "tools[0].max_num_results", "50");
    refused(odd("filters", json!({"type": "like"})), none.clone(), "tools[0].filters.type", "like");
    refused(odd("ranker", json!("auto")), none.clone(), "tools[0].ranker", "unknown");
    let form = json!({"response_format": {"type": "json_object"}});
    refused(odd("quotes", json!("verbatim")), form, "tools[0].quotes", "beside a form");
}
