//! Agents that people have, unchanged, against a scripted engine behind the real HTTP layer: their prompts are larger
//! than the shipped model's context. CHIMERE_PROGRAMS names a directory in whose `node_modules` they are installed, all
//! of them or some: `npm install --prefix DIRECTORY @anthropic-ai/claude-code@2.1.332 @openai/codex@0.171.0
//! opencode-ai@1.18.33 cline@3.0.65 @continuedev/cli@1.5.47`.

use crate::documents::Client;
use crate::support::*;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the model does in its first turn: it looks into a file. What it says in the second stands in there.
fn script(call: &str) -> String {
    format!("SAY[let me look</think>\n\n<tool_call>\n{call}\n</tool_call>]")
}

/// A program of the directory, if there is one.
fn program(name: &str) -> Option<PathBuf> {
    let Some(directory) = std::env::var_os("CHIMERE_PROGRAMS") else {
        println!("skipped: CHIMERE_PROGRAMS names no directory");
        return None;
    };
    let program = Path::new(&directory).join("node_modules/.bin").join(name);
    if !program.exists() {
        println!("skipped: {} is not there", program.display());
        return None;
    }
    Some(program)
}

fn server() -> Server {
    Server::start(Options { context: 600_000, pages: 40_000, queue_tokens: 1 << 20, ..Options::default() })
}

/// Runs it where the file is, away from all that its user has, and gives what it said.
fn said(mut command: Command, home: &Path) -> String {
    std::fs::write(home.join("files.txt"), "SAY[</think>\n\nThere are apples and pears.]\n").unwrap();
    let command = command.current_dir(home).env("HOME", home).env("NO_COLOR", "1").stdin(std::process::Stdio::null());
    let out = command.output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{text}\n{errors}");
    text.into_owned()
}

/// Claude Code with the service as its model.
fn claude_code(program: PathBuf, server: &Server) -> Command {
    let mut command = Command::new(program);
    command
        .env("ANTHROPIC_BASE_URL", format!("http://{}", server.addr))
        .env("ANTHROPIC_AUTH_TOKEN", "none")
        .env("ANTHROPIC_MODEL", "tiny")
        .env("ANTHROPIC_DEFAULT_HAIKU_MODEL", "tiny")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        // Else its model is told of a server's tools once it has searched for them.
        .env("ENABLE_TOOL_SEARCH", "false");
    command
}

#[test]
fn claude_code_takes_a_turn_with_a_tool() {
    let Some(program) = program("claude") else { return };
    let (server, home) = (server(), tempfile::tempdir().unwrap());
    let look = "<parameter=description>\nlook\n</parameter>";
    let call = format!("<function=Bash>\n<parameter=command>\ncat files.txt\n</parameter>\n{look}\n</function>");
    let mut command = claude_code(program, &server);
    command.args(["-p", &script(&call), "--allowedTools", "Bash(cat:*)"]);
    let text = said(command, home.path());
    assert!(text.contains("There are apples and pears."), "{text}");
    assert!(server.fake.was_told().contains("cat files.txt"));
}

/// Codex with the service as its model, and these lines in its configuration.
fn codex(program: PathBuf, server: &Server, home: &Path, lines: &str) -> Command {
    let provider = format!(
        "model = \"tiny\"\nmodel_provider = \"chimere\"\n[model_providers.chimere]\nname = \"chimere\"\n\
         base_url = \"http://{}/v1\"\nenv_key = \"CHIMERE_API_KEY\"\nwire_api = \"responses\"\n{lines}",
        server.addr
    );
    std::fs::create_dir(home.join(".codex")).unwrap();
    std::fs::write(home.join(".codex/config.toml"), provider).unwrap();
    let mut command = Command::new(program);
    command
        .args(["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"])
        .env("CHIMERE_API_KEY", "none")
        .env("CODEX_HOME", home.join(".codex"));
    command
}

#[test]
fn codex_takes_a_turn_with_a_tool() {
    let Some(program) = program("codex") else { return };
    let (server, home) = (server(), tempfile::tempdir().unwrap());
    let call = "<function=exec_command>\n<parameter=cmd>\ncat files.txt\n</parameter>\n</function>";
    let mut command = codex(program, &server, home.path(), "");
    command.arg(script(call));
    let text = said(command, home.path());
    assert!(text.contains("There are apples and pears."), "{text}");
    assert!(server.fake.was_told().contains("cat files.txt"));
}

/// A service whose own MCP server searches a file, in which the second turn's answer stands.
fn searched(directory: &Path) -> Server {
    let documents = Some(directory.join("documents"));
    let options =
        Options { context: 600_000, pages: 40_000, queue_tokens: 1 << 20, mcp: true, documents, ..Options::default() };
    let server = Server::start(options);
    let text = b"The port of Kelm lies in the north. SAY[</think>The port lies in the north.]";
    Client(server.addr, None).store_of("ports.txt", text);
    server
}

/// What the model does in its first turn: it calls the server's search by the name that the program gives it.
const SEARCH: &str = "<function=mcp__chimere__search_documents>\n<parameter=query>\nKelm\n</parameter>\n</function>";

/// What a program must have done that is connected to the service's MCP server.
fn check_search(server: &Server, text: &str) {
    assert!(text.contains("The port lies in the north."), "{text}");
    let metrics = get(server.addr, "/metrics").text().to_owned();
    // Counters are the process's, so other tests count too.
    let calls = metrics.lines().find(|line| line.contains("calls_total{tool=\"search_documents\",outcome=\"ok\"}"));
    assert!(calls.is_some_and(|line| !line.ends_with(" 0")), "{calls:?}");
    for tool in ["search_documents", "read_passage", "decide"] {
        assert!(server.fake.was_told().contains(tool), "the model was not told of {tool}");
    }
}

#[test]
fn claude_code_searches_by_the_service_s_mcp_server() {
    let Some(program) = program("claude") else { return };
    let home = tempfile::tempdir().unwrap();
    let server = searched(home.path());
    let servers = json!({"chimere": {"type": "http", "url": format!("http://{}/mcp", server.addr)}});
    let mut command = claude_code(program, &server);
    command.args(["-p", &script(SEARCH), "--mcp-config", &json!({"mcpServers": servers}).to_string()]);
    command.args(["--strict-mcp-config", "--allowedTools", "mcp__chimere__search_documents"]);
    check_search(&server, &said(command, home.path()));
}

#[test]
fn codex_searches_by_the_service_s_mcp_server() {
    let Some(program) = program("codex") else { return };
    let home = tempfile::tempdir().unwrap();
    let server = searched(home.path());
    let lines = format!("[mcp_servers.chimere]\nurl = \"http://{}/mcp\"\n", server.addr);
    let mut command = codex(program, &server, home.path(), &lines);
    command.arg(script(SEARCH));
    check_search(&server, &said(command, home.path()));
}

/// What chats are sent to, and the model there.
fn base(server: &Server) -> String {
    format!("http://{}/v1", server.addr)
}

#[test]
fn opencode_takes_a_turn_with_a_tool() {
    let Some(program) = program("opencode") else { return };
    let (server, home) = (server(), tempfile::tempdir().unwrap());
    let call = "<function=bash>\n<parameter=command>\ncat files.txt\n</parameter>\n</function>";
    let settings = json!({
        "model": "chimere/tiny", "small_model": "chimere/tiny", "autoupdate": false, "permission": {"bash": "allow"},
        "provider": {"chimere": {
            "npm": "@ai-sdk/openai-compatible", "name": "chimere",
            "options": {"baseURL": base(&server), "apiKey": "none"},
            "models": {"tiny": {"name": "tiny", "tool_call": true, "limit": {"context": 500_000, "output": 32_000}}}}},
    });
    std::fs::write(home.path().join("opencode.json"), settings.to_string()).unwrap();
    let mut command = Command::new(program);
    command.args(["run", &script(call)]).env("OPENCODE_DISABLE_MODELS_FETCH", "1").env("PWD", home.path());
    let text = said(command, home.path());
    assert!(text.contains("There are apples and pears."), "{text}");
    assert!(server.fake.was_told().contains("cat files.txt"));
}

#[test]
fn continue_takes_a_turn_with_a_tool() {
    let Some(program) = program("cn") else { return };
    let (server, home) = (server(), tempfile::tempdir().unwrap());
    let call = "<function=Bash>\n<parameter=command>\ncat files.txt\n</parameter>\n</function>";
    let model = json!({"name": "tiny", "provider": "openai", "model": "tiny", "apiBase": base(&server), "apiKey": "none",
        "roles": ["chat"], "capabilities": ["tool_use"]});
    let settings = json!({"name": "chimere", "version": "0.0.1", "schema": "v1", "models": [model]});
    std::fs::write(home.path().join("config.yaml"), settings.to_string()).unwrap();
    let mut command = Command::new(program);
    command.args(["-p", "--auto", "--config", "config.yaml", &script(call)]).env("CONTINUE_TELEMETRY_ENABLED", "0");
    let text = said(command, home.path());
    assert!(text.contains("There are apples and pears."), "{text}");
    assert!(server.fake.was_told().contains("cat files.txt"));
}

#[test]
fn cline_takes_a_turn_with_a_tool() {
    let Some(program) = program("cline") else { return };
    let (server, home) = (server(), tempfile::tempdir().unwrap());
    let call = "<function=run_commands>\n<parameter=commands>\ncat files.txt\n</parameter>\n</function>";
    let data = home.path().join("data").display().to_string();
    let mut settings = Command::new(&program);
    settings.args(["auth", "-p", "openai-compatible", "-k", "none", "-m", "tiny", "-b", &base(&server)]);
    settings.args(["--data-dir", &data]);
    said(settings, home.path());
    let mut command = Command::new(program);
    command.args(["--data-dir", &data, "-P", "openai-compatible", "-m", "tiny", &script(call)]);
    let text = said(command, home.path());
    assert!(text.contains("There are apples and pears."), "{text}");
    assert!(server.fake.was_told().contains("cat files.txt"));
}
