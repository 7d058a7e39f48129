//! Turns of several generations: the model writes the queries of a search, the service makes it, and the model goes on
//! with what was found.

use crate::documents::{Client, start};
use crate::support::client::{names_of_item, steps_of};
use crate::support::program::shipped_command;
use crate::support::*;
use chimere::clock::Clock;
use chimere::http::auth::AcceptedKeys;
use chimere::limits::{FILE_SEARCHES_MAX, TURN_ROUNDS_MAX};
use serde_json::{Value, json};
use std::path::Path;

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const QUOTE: &str = "It was built in 1871.";
/// What the model says once it has read the file.
const ANSWER: &str = "Grüße. It was built in 1871 [1]. It flies [1].";

const PORTS: &str = "The port of Kelm lies in the north. It was built in 1871.";

/// A service, its store with a file of facts and one that tells the model what to say, and the former's id.
fn service(dir: &Path, says: &str) -> (Server, String, Value) {
    with_store(start(dir, AcceptedKeys::Open), says)
}

fn with_store(server: Server, says: &str) -> (Server, String, Value) {
    let client = Client(server.addr, None);
    let (store, facts) = client.store_of("ports.txt", PORTS.as_bytes());
    let other = client.upload("words.txt", format!("Of Kelm many words are said, such as SAY{{{says}}}").as_bytes());
    client.post(&format!("/v1/vector_stores/{store}/files"), &json!({"file_id": other}));
    client.settled(&store, &other);
    (server, store, facts["id"].clone())
}

fn called(name: &str, argument: &str, value: &str) -> String {
    let argument = format!("<parameter={argument}>\n{value}\n</parameter>");
    format!("<tool_call>\n<function={name}>\n{argument}\n</function>\n</tool_call>")
}

fn search(query: &str) -> String {
    called("file_search", "query", query)
}

fn tool(store: &str) -> Value {
    json!({"type": "file_search", "vector_store_ids": [store], "queries": "written"})
}

fn add() -> Value {
    let parameters = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    json!({"type": "function", "function": {"name": "add", "parameters": parameters}})
}

/// A chat in which the model says this first.
fn chat(tools: &Value, says: &str) -> Value {
    let question = format!("When was it built? SAY{{{says}}}");
    json!({"model": "tiny", "max_tokens": 400, "messages": [{"role": "user", "content": question}], "tools": tools,
        "reasoning_effort": "none"})
}

fn annotation(file: &Value, text: &str) -> Value {
    let at = text[..text.find("[1]").unwrap()].chars().count();
    let begin = PORTS.find(QUOTE).unwrap();
    json!({"file_id": file, "filename": "ports.txt", "index": at, "start_index": at, "end_index": at + 3,
        "quote": QUOTE, "page": null, "source_start": begin, "source_end": begin + QUOTE.len(), "score": 1.0})
}

/// What a reply says of its turn, without the service's own time between generations, which is within that of all.
fn turn_of(reply: &Value) -> Value {
    let mut turn = reply["timings"]["turn"].clone();
    let own = turn.as_object_mut().unwrap().remove("own_ms").unwrap().as_f64().unwrap();
    assert!((0.0..=reply["timings"]["total_ms"].as_f64().unwrap() + 1.0).contains(&own), "{reply}");
    turn
}

#[test]
fn a_chat_s_model_searches_and_answers_with_citations_whole_and_streamed() {
    let dir = tempfile::tempdir().unwrap();
    let (server, store, file) = service(dir.path(), ANSWER);
    let text = format!("Let me look.\n\n{ANSWER}");
    let want = json!([{"type": "file_citation", "file_citation": annotation(&file, &text)}]);
    let body = chat(&json!([tool(&store)]), &format!("Let me look.{}", search("port of Kelm")));
    let reply = Client(server.addr, None).post(CHAT, &body);
    let choice = &reply["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(text), &json!("stop")), "{reply}");
    assert_eq!((&choice["message"]["annotations"], &choice["message"]["tool_calls"]), (&want, &Value::Null));
    assert_eq!(turn_of(&reply), json!({"rounds": 2, "searches": 1, "passages": 2}));
    let told = server.fake.was_told();
    let result = "<tool_response>\nAnswer from these passages and cite the number of each passage that you use, like \
                  [1]. If they do not have the answer, say so.\n\n[1] Title: ports.txt\nThe port of Kelm";
    assert!(told.contains(result) && told.contains("Searches the user's files"), "{told}");

    let chunks = Stream::open(server.addr, CHAT, &with(body, json!({"stream": true}))).chunks();
    let said: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(said, text);
    assert!(chunks.iter().all(|chunk| chunk["choices"][0]["delta"]["tool_calls"].is_null()), "{chunks:?}");
    let notes = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["annotations"].as_array());
    assert_eq!(json!(notes.flatten().collect::<Vec<_>>()), want);
    let last = chunks.last().unwrap();
    assert_eq!((&last["timings"]["turn"]["rounds"], &last["usage"]), (&json!(2), &reply["usage"]));
    assert_eq!(steps_of(&chunks), [""; 0], "nobody asked for them");
}

#[test]
fn a_chat_that_asks_for_steps_is_told_of_a_search_as_it_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let (server, store, _) = service(dir.path(), ANSWER);
    let says = format!("Let me look.{}", search("port of Kelm"));
    let options = json!({"stream": true, "stream_options": {"include_steps": true}});
    let chunks = Stream::open(server.addr, CHAT, &with(chat(&json!([tool(&store)]), &says), options)).chunks();
    assert_eq!(steps_of(&chunks), ["file_search_call in_progress", "file_search_call completed"]);
    let at = chunks.iter().rposition(|chunk| chunk["step"].is_object()).unwrap();
    let step = &chunks[at]["step"];
    assert_eq!((&step["queries"], &step["passages"]), (&json!(["port of Kelm"]), &json!(2)));
    let said = |chunks: &[Value]| {
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect::<String>()
    };
    assert!(said(&chunks[..at]).starts_with("Let me look.") && said(&chunks[at..]).contains("Grüße"), "{chunks:?}");
}

#[test]
fn a_later_prompt_begins_with_the_tokens_of_the_earlier_one_and_its_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (server, store, _) = service(dir.path(), ANSWER);
    let body = chat(&json!([tool(&store)]), &format!("So. {}", search("Kelm")));
    let prompts = prompts_of(&server, &body);
    assert_eq!(prompts.len(), 2);
    assert!(prompts[1].starts_with(&prompts[0]) && prompts[1].len() > prompts[0].len() + 40);
    assert_eq!(prompts, prompts_of(&server, &body), "equal results give equal bytes");
}

/// The prompts that are read for a chat. A step in flight when an answer was over may still end after it, so a sequence
/// without a prompt is one of the chat before.
fn prompts_of(server: &Server, body: &Value) -> Vec<Vec<u32>> {
    let before = server.fake.launched();
    Client(server.addr, None).post(CHAT, body);
    let plans = server.fake.plans().split_off(before);
    let read = |seq| {
        let pieces = plans.iter().flat_map(|plan| &plan.pieces).filter(|piece| piece.seq == seq);
        let known = pieces.filter_map(|piece| match &piece.tokens {
            chimere_engine::step::PieceTokens::Known(tokens) => Some(tokens.to_vec()),
            _ => None,
        });
        known.flatten().collect::<Vec<_>>()
    };
    let seqs: std::collections::BTreeSet<_> = plans.iter().flat_map(|plan| &plan.pieces).map(|p| p.seq).collect();
    seqs.into_iter().map(read).filter(|prompt| !prompt.is_empty()).collect()
}

#[test]
fn a_template_that_ends_turns_with_plain_text_is_rendered_anew_for_each_round() {
    let dir = tempfile::tempdir().unwrap();
    let plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:";
    let options = Options { documents: Some(dir.path().to_owned()), template: Some(plain), ..Options::default() };
    let (server, store, _) = with_store(Server::start(options), ANSWER);
    let body = json!({"model": "tiny", "max_tokens": 400, "tools": [tool(&store)],
        "messages": [{"role": "user", "content": format!("When? SAY{{So.{}}}", search("port of Kelm"))}]});
    let reply = Client(server.addr, None).post(CHAT, &body);
    assert_eq!(reply["choices"][0]["message"]["content"], format!("So.\n\n{ANSWER}"), "{reply}");
    let told = server.fake.was_told();
    assert!(told.contains("\nassistant: So.\ntool: Answer from these passages"), "{told}");
}

#[test]
fn a_response_has_each_search_as_an_item_where_it_was_made() {
    let dir = tempfile::tempdir().unwrap();
    let (server, store, file) = service(dir.path(), ANSWER);
    let question = format!("When? SAY{{Let me look.{}{}}}", search("nothing"), search("port of Kelm"));
    let body = json!({"input": question, "tools": [tool(&store)], "include": ["file_search_call.results"],
        "reasoning": {"effort": "none"}, "tool_choice": "auto"});
    let reply = Client(server.addr, None).post(RESPONSES, &body);
    let output = reply["output"].as_array().unwrap();
    let kinds: Vec<&str> = output.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "file_search_call", "file_search_call", "message"], "{reply}");
    assert_eq!((&output[1]["queries"], &output[1]["results"]), (&json!(["nothing"]), &json!([])));
    let found = &output[2]["results"][0];
    assert_eq!((&output[2]["queries"], &found["file_id"]), (&json!(["port of Kelm"]), &file));
    assert_eq!((&found["score"], found.get("attributes")), (&json!(1.0), None));
    let mut want = annotation(&file, ANSWER);
    want["type"] = "file_citation".into();
    assert_eq!(output[3]["content"][0]["annotations"], json!([want]));
    assert!(server.fake.was_told().contains("No passage was found."));

    let events = Stream::open(server.addr, RESPONSES, &with(body, json!({"stream": true}))).named_events();
    let states = ["file_search_call.in_progress", "file_search_call.searching", "file_search_call.completed"];
    let wanted = [&["output_item.added"], &states[..], &["output_item.done"]].concat();
    assert_eq!(names_of_item(&events, 2), wanted);
    let streamed = events.last().unwrap()["response"]["output"].as_array().unwrap();
    assert_eq!(streamed.len(), 4);
    assert_eq!(streamed[3]["content"], output[3]["content"]);

    let next = json!({"input": "SAY{so}", "previous_response_id": reply["id"], "reasoning": {"effort": "none"}});
    let next = Client(server.addr, None).post(RESPONSES, &next);
    assert_eq!(next["output"][0]["content"][0]["text"], "so", "its searches are no hindrance to going on");
}

#[test]
fn each_round_thinks_for_itself_and_its_thoughts_stay_in_the_next_prompt() {
    let dir = tempfile::tempdir().unwrap();
    let (server, store, _) = service(dir.path(), &format!("so</think>\n\n{ANSWER}"));
    let says = format!("hm</think>\n\n{}", search("port of Kelm"));
    let body =
        json!({"input": format!("When? SAY{{{says}}}"), "tools": [tool(&store)], "reasoning": {"effort": "high"}});
    let reply = Client(server.addr, None).post(RESPONSES, &body);
    let output = reply["output"].as_array().unwrap();
    let kinds: Vec<&str> = output.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning", "file_search_call", "reasoning", "message"], "{reply}");
    let thoughts = [0, 2].map(|at| output[at]["content"][0]["text"].as_str().unwrap().trim());
    assert_eq!((thoughts, output[3]["content"][0]["text"].as_str().unwrap().trim()), (["hm", "so"], ANSWER));
    assert!(server.fake.was_told().contains("<think>\nhm</think>\n\n<tool_call>"), "{}", server.fake.was_told());
}

#[test]
fn a_message_is_the_text_of_all_rounds_whole_and_streamed() {
    let dir = tempfile::tempdir().unwrap();
    let (server, store, file) = service(dir.path(), ANSWER);
    let question = format!("When? SAY{{{}}}", search("port of Kelm"));
    let body = json!({"model": "tiny", "max_tokens": 400, "messages": [{"role": "user", "content": question}],
        "tools": [tool(&store)]});
    let reply = Client(server.addr, None).post(MESSAGES, &body);
    let content = reply["content"].as_array().unwrap();
    let text: String = content.iter().map(|block| block["text"].as_str().unwrap()).collect();
    assert_eq!((text.as_str(), &reply["stop_reason"]), (ANSWER, &json!("end_turn")), "{reply}");
    let cited = &content[0]["citations"][0];
    assert_eq!((&cited["type"], &cited["source"]), (&json!("search_result_location"), &file));
    assert_eq!(cited["cited_text"], QUOTE);

    let events = Stream::open(server.addr, MESSAGES, &with(body, json!({"stream": true}))).named_events();
    let begun: Vec<u64> = events
        .iter()
        .filter(|event| event["type"] == "content_block_start")
        .map(|event| event["index"].as_u64().unwrap())
        .collect();
    assert_eq!(begun, (0..content.len() as u64).collect::<Vec<_>>(), "blocks are numbered without a gap");
    let usage = &events[events.len() - 2]["usage"];
    assert_eq!(usage["output_tokens"], reply["usage"]["output_tokens"]);
}

#[test]
fn a_client_s_function_ends_the_turn_and_a_search_beside_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (server, store, _) = service(dir.path(), &called("add", "a", "7"));
    let tools = json!([tool(&store), add()]);
    let check = |says: &str, rounds: u64, searches: u64| {
        let body = chat(&tools, says);
        let reply = Client(server.addr, None).post(CHAT, &body);
        let (choice, turn) = (&reply["choices"][0], &reply["timings"]["turn"]);
        let calls = choice["message"]["tool_calls"].as_array().unwrap();
        assert_eq!((calls.len(), &choice["finish_reason"]), (1, &json!("tool_calls")), "{reply}");
        assert_eq!(calls[0]["function"], json!({"name": "add", "arguments": "{\"a\": 7}"}));
        assert_eq!((&turn["rounds"], &turn["searches"]), (&json!(rounds), &json!(searches)));
        let chunks = Stream::open(server.addr, CHAT, &with(body, json!({"stream": true}))).chunks();
        let deltas = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array());
        let deltas: Vec<&Value> = deltas.flatten().collect();
        assert!(deltas.iter().all(|delta| delta["index"] == 0) && !deltas.is_empty(), "{deltas:?}");
        assert_eq!(deltas[0]["function"]["name"], "add");
    };
    check(&format!("{}\n{}", search("Kelm"), called("add", "a", "7")), 1, 0);
    check(&search("Kelm"), 2, 1);
}

#[test]
fn a_wrong_call_and_the_fifth_search_are_refused_in_words_to_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let (server, store, _) = service(dir.path(), ANSWER);
    let wrong = format!("{}\n{}", called("file_search", "words", "x"), search("Kelm"));
    let reply = Client(server.addr, None).post(CHAT, &chat(&json!([tool(&store)]), &wrong));
    assert_eq!(reply["choices"][0]["message"]["content"], ANSWER, "{reply}");
    let told = server.fake.was_told();
    assert!(
        told.contains("Error: file_search takes one argument, `query`, which is a string, got \"words\""),
        "{told}"
    );

    let many = vec![search("Kelm"); FILE_SEARCHES_MAX as usize + 1].join("\n");
    let reply = Client(server.addr, None).post(CHAT, &chat(&json!([tool(&store)]), &many));
    assert_eq!(turn_of(&reply), json!({"rounds": 2, "searches": 4, "passages": 8}), "{reply}");
    assert_eq!(reply["choices"][0]["message"]["content"], ANSWER);
    let told = server.fake.was_told();
    assert!(told.contains("Error: an answer may call file_search 4 times, and did; answer from what was found"));
    assert!(told.contains("[7] Title: ports.txt"), "numbers go on over all searches");
}

#[test]
fn a_model_that_never_stops_calling_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let (server, store, _) = service(dir.path(), ANSWER);
    let endless = with(chat(&json!([tool(&store)]), &called("file_search", "a", "b")), json!({"max_tokens": 1000}));
    let reply = Client(server.addr, None).post(CHAT, &endless);
    assert_eq!(reply["choices"][0]["finish_reason"], "length", "{reply}");
    assert_eq!(turn_of(&reply), json!({"rounds": TURN_ROUNDS_MAX, "searches": 0, "passages": 0}));
    // The tokens of all rounds are the answer's.
    let few = with(chat(&json!([tool(&store)]), &search("Kelm")), json!({"max_tokens": 30}));
    let reply = Client(server.addr, None).post(CHAT, &few);
    assert_eq!(
        (&reply["usage"]["completion_tokens"], &reply["choices"][0]["finish_reason"]),
        (&json!(30), &json!("length"))
    );
}

#[test]
fn passages_that_the_context_has_no_room_for_are_left_out_and_the_model_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), AcceptedKeys::Open);
    let client = Client(server.addr, None);
    let (store, _) = client.store_of("large.txt", "word after word. ".repeat(3_000).as_bytes());
    let body = with(chat(&json!([tool(&store)]), &search("word")), json!({"max_tokens": 1_600}));
    let turn = client.post(CHAT, &body)["timings"]["turn"].clone();
    let (searches, passages) = (turn["searches"].as_u64().unwrap(), turn["passages"].as_u64().unwrap());
    assert!(searches > 0 && passages < 8 * searches, "{turn}");
    assert!(server.fake.was_told().contains("There is no room for more passages"), "{turn}");
}

#[test]
fn a_stop_string_ends_the_turn_in_whichever_round_it_comes() {
    let dir = tempfile::tempdir().unwrap();
    let (server, store, _) = service(dir.path(), ANSWER);
    let body = with(chat(&json!([tool(&store)]), &search("Kelm")), json!({"stop": ["built"]}));
    let reply = Client(server.addr, None).post(CHAT, &body);
    let choice = &reply["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("Grüße. It was "), &json!("stop")));
    let body = with(chat(&json!([tool(&store)]), &format!("so built {}", search("Kelm"))), json!({"stop": ["built"]}));
    let reply = Client(server.addr, None).post(CHAT, &body);
    assert_eq!(reply["choices"][0]["message"]["content"], "so ", "{reply}");
    assert_eq!(reply["timings"]["turn"]["rounds"], 1);
}

/// A service whose second round hangs for the next turn like the one that this ran.
fn hanging_in_the_second_round(dir: &Path) -> (Server, Value) {
    let long = "word ".repeat(80);
    let server = Options { documents: Some(dir.to_owned()), clock: Clock::stopped(), ..Options::default() };
    let (server, store, _) = with_store(Server::start(server), &long);
    let body = chat(&json!([tool(&store)]), &search("Kelm"));
    let before = server.fake.launched();
    let reply = Client(server.addr, None).post(CHAT, &body);
    assert_eq!(reply["timings"]["turn"]["rounds"], 2, "{reply}");
    server.wait_for_live(0);
    server.fake.allow((server.fake.launched() - before) as u64 - 40);
    (server, body)
}

#[test]
fn a_client_that_leaves_in_a_later_round_frees_all_that_the_turn_held() {
    let dir = tempfile::tempdir().unwrap();
    let (server, body) = hanging_in_the_second_round(dir.path());
    let stream = Stream::open(server.addr, CHAT, &with(body, json!({"stream": true})));
    server.wait_for_standstill();
    assert_eq!(server.live(), 2, "the turn, and its generation");
    drop(stream);
    server.wait_for_live(0);
    server.fake.allow_all();
    assert_eq!(post(server.addr, CHAT, &ask("SAY[next]")).content(), "next");
}

#[test]
fn a_turn_that_has_begun_goes_before_those_that_have_not() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { documents: Some(dir.path().to_owned()), slots: 1, context: 4096, ..Options::default() };
    let (server, store, _) = with_store(Server::start(options), "done");
    server.wait_for_live(0);
    let before = server.fake.plans().len();
    let streamed = |body: Value| Stream::open(server.addr, CHAT, &with(body, json!({"stream": true})));
    server.fake.allow(0);
    let turn = streamed(chat(&json!([tool(&store)]), &search("Kelm")));
    server.wait_for_live(2);
    // One that takes the slot while the turn searches and never ends, and one that waits.
    let endless = streamed(with(ask("LOOP[on and on ]"), json!({"max_tokens": 3000})));
    server.wait_for_live(3);
    let waiting = streamed(ask("SAY[next]"));
    server.wait_for_live(4);
    let entered = server.entered();
    server.fake.allow_all();
    let begun = || {
        let plans = server.fake.plans();
        let mut seqs: Vec<_> = plans[before..].iter().flat_map(|plan| &plan.pieces).map(|piece| piece.seq).collect();
        let mut seen = std::collections::HashSet::new();
        seqs.retain(|seq| seen.insert(*seq));
        seqs
    };
    eventually("the next one has the slot", || begun().len() == 2);
    // It keeps the slot until the later round has come. Of that the count of live requests says nothing: it falls and
    // rises again.
    server.fake.allow(0);
    eventually("the later round waits", || server.entered() == entered + 1);
    assert_eq!(server.live(), 4, "the turn and its round, the one that has the slot and the one that waits");
    drop(endless);
    server.fake.allow_all();
    server.wait_for_live(0);
    drop((turn, waiting));
    let begun = begun();
    assert!(begun.len() == 4 && begun[2] > begun[3], "the round came last and goes first: {begun:?}");
}

#[test]
fn the_deadline_of_a_request_is_that_of_all_its_rounds() {
    let dir = tempfile::tempdir().unwrap();
    let (server, body) = hanging_in_the_second_round(dir.path());
    let deadline = [("x-chimere-deadline-ms", "1500"), ("Content-Type", "application/json")];
    let reply = request(server.addr, "POST", CHAT, &deadline, body.to_string().as_bytes());
    let error = reply.json()["error"].clone();
    assert_eq!((reply.status, &error["code"]), (504, &json!("deadline_passed")), "{error}");
    server.wait_for_live(0);
}

#[test]
fn a_later_round_that_is_not_taken_is_refused_as_a_request_is() {
    let dir = tempfile::tempdir().unwrap();
    // As many tokens as the first prompt alone uses up.
    let server = start(dir.path(), keys("a tokens_per_minute=100"));
    let client = Client(server.addr, Some("a"));
    let (store, _) = client.store_of("ports.txt", PORTS.as_bytes());
    let body = chat(&json!([tool(&store)]), &search("Kelm"));
    let reply = client.json("POST", CHAT, &body);
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (429, &json!("key_rate")), "{}", reply.text());
    assert!(reply.header("retry-after").is_some());
    server.wait_for_live(0);
}

#[test]
fn what_a_turn_of_rounds_cannot_do_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (server, store, _) = service(dir.path(), ANSWER);
    let refused = |tool: Value, more: Value, param: &str, said: &str| {
        let reply = Client(server.addr, None).json("POST", CHAT, &with(chat(&json!([tool]), "x"), more));
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, error["param"].as_str()), (400, Some(param)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(said), "{said} in {error}");
    };
    let (ours, queries) = (tool(&store), "tools[0].queries");
    refused(with(ours.clone(), json!({"queries": "model"})), json!({}), queries, "\"question\" or \"written\"");
    refused(with(ours.clone(), json!({"mode": "whole"})), json!({}), queries, "beside `tools[0].mode`: \"whole\"");
    refused(with(ours.clone(), json!({"quotes": "verbatim"})), json!({}), queries, "beside `tools[0].quotes`");
    refused(ours.clone(), json!({"n": 2}), queries, "beside `n` above 1");
    refused(ours.clone(), json!({"response_format": {"type": "json_object"}}), queries, "beside a form");
    refused(tool("vs_none"), json!({}), "tools[0]", "no vector store \"vs_none\"");
    let namesake = json!({"type": "function", "function": {"name": "file_search"}});
    refused(ours, json!({"tools": [tool(&store), namesake]}), "tools", "the name of the one that the service runs");
}

#[test]
fn a_later_round_finds_what_the_earlier_one_read_in_the_prefix_cache() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = shipped_command(&["--prefix-cache", "on"]);
    command.env("CHIMERE_DOCUMENTS__DIRECTORY", dir.path());
    let program = Program::run(command);
    let client = Client(program.addr, None);
    let (store, _) = client.store_of("kelm.txt", b"The port of Kelm was built in 1871.");
    let rules = "You are the clerk of a small harbour. You answer in one sentence and you never guess. ".repeat(150);
    let body = json!({"instructions": rules, "input": "When was the port of Kelm built?", "tools": [tool(&store)],
        "tool_choice": {"type": "file_search"}, "temperature": 0, "max_output_tokens": 200,
        "reasoning": {"effort": "none"}});
    let first = client.post("/v1/responses/input_tokens", &body)["input_tokens"].as_u64().unwrap();
    let reply = client.post(RESPONSES, &body);
    assert_eq!(reply["output"][0]["type"], "file_search_call", "{}", reply["output"]);
    let usage = &reply["usage"];
    // Nobody was here before, so all that was cached is a later round's.
    let (cached, second) = (&usage["input_tokens_details"]["cached_tokens"], usage["input_tokens"].as_u64().unwrap());
    let (cached, second) = (cached.as_u64().unwrap(), second - first);
    assert!(cached * 100 >= second * 95, "{cached} of {second} tokens, after a prompt of {first}");
}
