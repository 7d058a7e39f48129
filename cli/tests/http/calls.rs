//! Pipelines that run tools: what they read of a result, what a check by a tool brings about, and the tools that no
//! pipeline runs.

use crate::documents::Client;
use crate::pipelines::{asked, steps};
use crate::support::client::refused;
use crate::support::*;
use crate::tools::Bench;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

/// A service with the tools of a bench, whose directory has this pipeline, `p`.
fn start(bench: &Bench, directory: &tempfile::TempDir, file: &str) -> Server {
    std::fs::write(directory.path().join("p.toml"), file).unwrap();
    let pipelines = Some(directory.path().to_owned());
    Server::start(Options { tools: Some(bench.file()), pipelines, context: 4096, ..Options::default() })
}

#[test]
fn later_steps_read_the_result_of_a_call_and_the_client_is_told_of_it() {
    let bench = Bench::new("read_only = [\"read\", \"fail\"]");
    bench.says("so");
    let directory = tempfile::tempdir().unwrap();
    let file = r#"steps = [
        { name = "notes", call = { tool = "files__read", arguments = { text = "of {question}" } } },
        { name = "more", call = { tool = "files__fail", else = "nothing more" } },
        { generate = { suffix = "{more}; {notes}" } },
    ]"#;
    let server = start(&bench, &directory, file);
    let reply = Client(server.addr, None).post(CHAT, &asked("tea"));
    assert_eq!(reply["choices"][0]["message"]["content"], "so");
    assert_eq!(steps(&reply), "notes answered, more failed, generate stop");
    let told = server.fake.was_told();
    assert!(told.contains("tea\n\nnothing more; of tea SAY{so}"), "{told}");
    let calls = reply["timings"]["turn"]["calls"].as_array().unwrap();
    let called = |call: &Value| (call["tool"].as_str().unwrap().to_owned(), call["error"].clone());
    let want = [("files__read".to_owned(), json!(false)), ("files__fail".to_owned(), json!(true))];
    assert_eq!(calls.iter().map(called).collect::<Vec<_>>(), want);
    let body = json!({"model": "p", "input": "tea", "reasoning": {"effort": "none"}});
    let response = Client(server.addr, None).post(RESPONSES, &body);
    let output = response["output"].as_array().unwrap();
    assert_eq!(
        output.iter().map(|item| item["type"].as_str().unwrap()).collect::<Vec<_>>(),
        ["mcp_call", "mcp_call", "message"]
    );
    assert_eq!((&output[0]["output"], &output[1]["name"]), (&json!("of tea SAY{so}"), &json!("fail")));
    let metrics = get(server.addr, "/metrics").text().to_owned();
    let counted = "chimere_tool_calls_total{server=\"files\",tool=\"read\",outcome=\"answered\"}";
    assert!(metrics.contains(counted), "{metrics}");
}

#[test]
fn a_text_that_a_tool_refuses_is_written_once_more_with_the_tool_s_words() {
    let bench = Bench::new("read_only = [\"read\", \"fail\"]");
    bench.says("again");
    let directory = tempfile::tempdir().unwrap();
    let check = |tool: &str| {
        format!(
            r#"
            [[steps]]
            generate = {{}}
            [[steps]]
            check = {{ tool = "files__{tool}", arguments = {{ text = "{{generate}}" }}, retry = 1, else = "No." }}"#
        )
    };
    let server = start(&bench, &directory, &check("fail"));
    let reply = Client(server.addr, None).post(CHAT, &asked("SAY[first]"));
    assert_eq!(steps(&reply), "generate stop, check failed, generate stop, check failed");
    assert_eq!(reply["choices"][0]["message"]["content"], "No.");
    assert!(server.fake.was_told().contains("the disk is full"), "the second try hears why");
    drop(server);
    let server = start(&bench, &directory, &check("read"));
    let reply = Client(server.addr, None).post(CHAT, &asked("SAY[first]"));
    assert_eq!(
        (steps(&reply), &reply["choices"][0]["message"]["content"]),
        ("generate stop, check passed".to_owned(), &json!("first"))
    );
}

#[test]
fn a_tool_that_may_write_or_is_not_there_is_no_step_of_a_pipeline() {
    let bench = Bench::new("read_only = [\"read\"]\napproval = \"never\"");
    let directory = tempfile::tempdir().unwrap();
    for (tool, code, want) in [
        (
            "files__write",
            "mcp_tool_asks",
            "`files__write`, and a pipeline runs only tools of `read_only` whose calls wait for no approval",
        ),
        ("files__none", "mcp_tool_not_found", "`files__none`, which is not offered, or not as it was accepted"),
        ("other__read", "mcp_server_not_found", "`other__read`, and this key may use no MCP server of this name"),
    ] {
        let file = format!("steps = [{{ call = {{ tool = \"{tool}\" }} }}, {{ generate = {{}} }}]");
        let server = start(&bench, &directory, &file);
        let error = refused(Client(server.addr, None).json("POST", CHAT, &asked("SAY[so]")), 400, code);
        assert!(error["message"].as_str().unwrap().contains(want), "{error}");
        assert_eq!(error["param"], "model");
        assert!(bench.done().is_empty(), "{tool}");
    }
}
