//! The Model Context Protocol at `/mcp`: both revisions over a socket, its tools, and what is refused.

use crate::documents::Client;
use crate::support::client::{bytes, connect, refused};
use crate::support::*;
use chimere::http::auth::AcceptedKeys;
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

const PORTS: &str =
    "# Ports\n\nKelm has an old port.\n\n## Tides\n\nHigh water is at noon in Kelm.\n\n# Songs\n\nDosh sings.";

fn start(dir: &Path, keys: AcceptedKeys) -> Server {
    Server::start(Options { documents: Some(dir.to_owned()), keys, mcp: true, ..Options::default() })
}

/// A client of one of the revisions, with a key if there is one.
#[derive(Clone, Copy)]
struct Agent<'a> {
    addr: SocketAddr,
    key: Option<&'a str>,
    stateless: bool,
}

impl Agent<'_> {
    fn send(self, headers: &[(&str, &str)], body: &Value) -> Reply {
        let bearer = self.key.map(|key| format!("Bearer {key}"));
        let mut all = vec![("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
        all.extend(bearer.iter().map(|value| ("Authorization", value.as_str())));
        all.extend(headers);
        request(self.addr, "POST", "/mcp", &all, body.to_string().as_bytes())
    }

    /// A request in the agent's revision.
    fn ask(self, method: &str, mut params: Value) -> Reply {
        if self.stateless {
            params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {}});
        }
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let mut headers = vec![("MCP-Protocol-Version", if self.stateless { "2026-07-28" } else { "2025-11-25" })];
        if self.stateless {
            headers.extend([("Mcp-Method", method), ("Mcp-Name", &name)]);
        }
        self.send(&headers, &body)
    }

    /// The result of a request.
    #[track_caller]
    fn result(self, method: &str, params: Value) -> Value {
        let reply = self.ask(method, params);
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")), "{}", reply.text());
        let answer = reply.json();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)), "{answer}");
        assert_eq!(answer.get("error"), None, "{answer}");
        answer["result"].clone()
    }

    #[track_caller]
    fn call(self, tool: &str, arguments: Value) -> Value {
        let result = self.result("tools/call", json!({"name": tool, "arguments": arguments}));
        assert_eq!(result["isError"], false, "{result}");
        result["structuredContent"].clone()
    }

    /// Why a tool failed.
    #[track_caller]
    fn failure(self, tool: &str, arguments: Value) -> String {
        let result = self.result("tools/call", json!({"name": tool, "arguments": arguments}));
        assert_eq!((&result["isError"], result.get("structuredContent")), (&json!(true), None), "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Status, code and words of an error.
    fn error(self, method: &str, params: Value) -> (u16, i64, String) {
        let reply = self.ask(method, params);
        let error = reply.json()["error"].clone();
        (reply.status, error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
    }
}

fn both(addr: SocketAddr, key: Option<&str>) -> [Agent<'_>; 2] {
    [false, true].map(|stateless| Agent { addr, key, stateless })
}

#[test]
fn an_agent_of_either_revision_searches_reads_and_decides() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), AcceptedKeys::Open);
    let (store, member) = Client(server.addr, None).store_of("ports.md", PORTS.as_bytes());
    let file = member["id"].as_str().unwrap();
    for agent in both(server.addr, None) {
        for named in [json!({}), json!({"stores": [store]}), json!({"stores": ["ours"]}), json!({"stores": []})] {
            let found = agent.call("search_documents", with(json!({"query": "When is high water?"}), named));
            assert_eq!(found["stores"], json!([{"id": store, "name": "ours"}]));
            let best = &found["results"][0];
            assert_eq!((&best["file_id"], &best["filename"]), (&json!(file), &json!("ports.md")));
            assert_eq!(best["text"], "## Tides\n\nHigh water is at noon in Kelm.");
            assert_eq!((&best["headings"], &best["score"]), (&json!(["Ports", "Tides"]), &json!(1.0)));
        }
        let found = agent.call("search_documents", json!({"query": "Kelm", "max_results": 1}));
        assert_eq!(found["results"].as_array().unwrap().len(), 1);
        let best = agent.call("search_documents", json!({"query": "noon"}))["results"][0].clone();
        let alone = agent.call("read_passage", json!({"passage_id": best["passage_id"], "context": 0}));
        for field in ["file_id", "filename", "headings", "start", "end", "text"] {
            assert_eq!(alone[field], best[field], "{field}");
        }
        let around = agent.call("read_passage", json!({"passage_id": best["passage_id"], "context": 11}));
        assert_eq!(around["text"], "old port.\n\n## Tides\n\nHigh water is at noon in Kelm.\n\n# Songs\n\n");
        let whole = agent.call("read_passage", json!({"file_id": file, "end": 0}));
        assert_eq!((&whole["text"], &whole["text_bytes"]), (&json!(PORTS), &json!(PORTS.len())));
        let questions = json!([{"type": "predicate", "name": "wet", "instructions": "Water is wet."},
            {"type": "choice", "instructions": "Which?", "choices": ["a", {"value": true, "description": "yes"}]}]);
        let decided = agent.call("decide", json!({"input": "Kelm", "questions": questions}));
        let plain = post(server.addr, "/v1/decisions", &json!({"input": "Kelm", "questions": questions})).json();
        assert_eq!(decided["answers"], plain["answers"]);
    }
}

#[test]
fn the_service_says_who_it_is_and_lists_its_tools_in_the_words_of_each_revision() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), AcceptedKeys::Open);
    let [old, new] = both(server.addr, None);
    for (wanted, got) in [("2025-11-25", "2025-11-25"), ("2025-06-18", "2025-06-18"), ("2024-01-01", "2025-11-25")] {
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": {"protocolVersion": wanted, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
        let reply = old.send(&[], &body);
        let result = reply.json()["result"].clone();
        assert_eq!((reply.status, &result["protocolVersion"]), (200, &json!(got)));
        assert_eq!(
            (&result["serverInfo"]["name"], &result["capabilities"]),
            (&json!("chimere"), &json!({"tools": {}}))
        );
        assert_eq!(reply.header("mcp-session-id"), None);
    }
    let reply = old.send(&[], &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert_eq!((reply.status, reply.body.len()), (202, 0));
    assert_eq!(old.result("ping", json!({})), json!({}));
    let found = new.result("server/discover", json!({}));
    assert_eq!(found["supportedVersions"], json!(["2025-06-18", "2025-11-25", "2026-07-28"]));
    assert_eq!(found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "chimere");
    assert_eq!((&found["resultType"], &found["cacheScope"]), (&json!("complete"), &json!("public")));
    let (before, listed) = (old.result("tools/list", json!({})), new.result("tools/list", json!({})));
    let names: Vec<&Value> = listed["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["search_documents", "read_passage", "decide"]);
    for tool in listed["tools"].as_array().unwrap() {
        assert_eq!(tool["annotations"]["readOnlyHint"], true);
        assert!(tool["inputSchema"]["type"] == "object" && tool["outputSchema"]["type"] == "object", "{tool}");
    }
    assert_eq!((&listed["resultType"], &listed["ttlMs"]), (&json!("complete"), &json!(3_600_000)));
    assert_eq!(before, json!({"tools": listed["tools"]}));
}

#[test]
fn what_is_no_request_of_a_revision_is_an_error_that_names_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), AcceptedKeys::Open);
    let [old, new] = both(server.addr, None);
    for (agent, method, params, want, words) in [
        (old, "tools/rename", json!({}), (200, -32601), "\"tools/rename\""),
        (new, "tools/rename", json!({}), (404, -32601), "\"tools/rename\""),
        (new, "ping", json!({}), (404, -32601), "\"ping\""),
        (new, "initialize", json!({}), (404, -32601), "\"initialize\""),
        (old, "server/discover", json!({}), (200, -32601), "\"server/discover\""),
        (old, "initialize", json!({}), (200, -32602), "`params.protocolVersion`"),
        (new, "tools/list", json!({"cursor": "2"}), (400, -32602), "`params.cursor`"),
        (old, "tools/call", json!({}), (200, -32602), "`params.name`"),
        (new, "tools/call", json!({"name": "rm"}), (400, -32602), "search_documents, read_passage, decide, got \"rm\""),
        (new, "tools/call", json!({"name": "decide", "arguments": 1}), (400, -32602), "`arguments` must be an object"),
    ] {
        let (status, code, message) = agent.error(method, params.clone());
        assert_eq!((status, code), want, "{method} {params}: {message}");
        assert!(message.contains(words), "{method} {params}: {message}");
    }
    let list = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"});
    let reply = old.send(&[("MCP-Protocol-Version", "2031-01-01")], &list);
    let error = reply.json()["error"].clone();
    assert_eq!(
        (reply.status, &error["code"], &error["data"]["requested"]),
        (400, &json!(-32022), &json!("2031-01-01"))
    );
    let reply = old.send(&[("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "ping")], &list);
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!(-32602)));
    let reply = request(server.addr, "POST", "/mcp", &[("Content-Type", "application/json")], b"{");
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!(-32700)));
    for method in ["GET", "DELETE"] {
        let reply = request(server.addr, method, "/mcp", &[("Accept", "text/event-stream")], b"");
        assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    }
    let large = json!({"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {"x": "x".repeat(2 << 20)}});
    assert_eq!(old.send(&[], &large).status, 413);
    let elsewhere = old.send(&[("Origin", "https://evil.example")], &list);
    refused(elsewhere, 403, "origin_not_allowed");
}

#[test]
fn a_tool_that_fails_says_which_argument_is_wrong_in_its_result() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), AcceptedKeys::Open);
    let (_, member) = Client(server.addr, None).store_of("ports.md", PORTS.as_bytes());
    let file = member["id"].as_str().unwrap();
    for agent in both(server.addr, None) {
        for (tool, arguments, words) in [
            ("search_documents", json!({}), "`arguments.query` is missing"),
            ("search_documents", json!({"query": ""}), "`arguments.query` must not be empty"),
            ("search_documents", json!({"query": "x".repeat(20_000)}), "at most 16384 bytes, got 20000"),
            ("search_documents", json!({"query": "x", "max_results": 51}), "between 1 and 50, got 51"),
            ("search_documents", json!({"query": "x", "max_result": 5}), "did you mean `arguments.max_results`?"),
            (
                "search_documents",
                json!({"query": "x", "stores": ["theirs"]}),
                "there is no vector store \"theirs\" here",
            ),
            ("search_documents", json!({"query": "x", "stores": [1]}), "`arguments.stores[0]` must be"),
            ("search_documents", json!({"query": "x", "stores": vec!["a"; 9]}), "9 entries, at most 8"),
            ("read_passage", json!({"passage_id": "file-0:0-4"}), "there is no file \"file-0\" here"),
            ("read_passage", json!({"file_id": file, "start": 4000, "end": 4001}), "no passage begins at 4000"),
            ("decide", json!({"input": "x"}), "`arguments.questions` is missing"),
            ("decide", json!({"input": "x", "questions": []}), "must have 1 to 64 entries, got 0"),
        ] {
            let why = agent.failure(tool, arguments.clone());
            assert!(why.contains(words), "{tool} {arguments}: {why}");
        }
    }
}

#[test]
fn it_is_off_by_default_and_shows_each_key_its_own_files_alone() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(Options::default());
    let error = refused(post(server.addr, "/mcp", &json!({})), 404, "mcp_off");
    assert!(error["message"].as_str().unwrap().contains("mcp.serve"), "{error}");
    drop(server);
    let server = start(dir.path(), keys("ann\nben"));
    let (store, member) = Client(server.addr, Some("ann")).store_of("ports.md", PORTS.as_bytes());
    let passage = format!("{}:0-10", member["id"].as_str().unwrap());
    for (ann, ben) in both(server.addr, Some("ann")).into_iter().zip(both(server.addr, Some("ben"))) {
        assert_eq!(ann.call("search_documents", json!({"query": "Kelm"}))["stores"][0]["id"], json!(store));
        assert_eq!(ben.call("search_documents", json!({"query": "Kelm"})), json!({"stores": [], "results": []}));
        for named in [store.as_str(), "ours"] {
            let why = ben.failure("search_documents", json!({"query": "Kelm", "stores": [named]}));
            assert!(why.contains("there is no vector store"), "{why}");
        }
        ann.call("read_passage", json!({"passage_id": passage}));
        assert!(ben.failure("read_passage", json!({"passage_id": passage})).contains("there is no file"));
    }
    let nobody = Agent { addr: server.addr, key: None, stateless: true };
    assert_eq!(nobody.ask("tools/list", json!({})).status, 401);
}

#[test]
fn a_client_that_leaves_takes_its_call_along() {
    let server = Server::start(Options { slots: 2, mcp: true, ..Options::default() });
    server.fake.allow(1);
    let choices: Vec<String> = (0..30).map(|i| format!("choice {i}")).collect();
    let question = json!({"type": "choice", "instructions": "Which?", "choices": choices});
    let call = json!({"name": "decide", "arguments": {"input": "a", "questions": [question]}});
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call}).to_string();
    let mut socket = connect(server.addr);
    socket.write_all(&bytes("POST", "/mcp", &[], body.as_bytes())).unwrap();
    server.wait_for_live(1);
    drop(socket);
    server.wait_for_live(0);
    server.fake.allow_all();
    let counted = r#"chimere_mcp_calls_total{tool="decide",outcome="cancelled"} 1"#;
    eventually("the call is counted", || get(server.addr, "/metrics").text().contains(counted));
}
