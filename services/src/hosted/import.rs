//! Servers in the words of other programs: the `mcpServers` of a JSON file, made into lines of `tools.toml`.

use crate::limits;
use serde_json::{Map, Value as Json};
use std::collections::HashMap;

/// The lines for all servers of such a file. Secrets stay where they are: of an environment only the names are told.
///
/// # Errors
/// If the text is no such file.
pub fn imported(text: &str) -> Result<String, String> {
    let json: Json = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
    let servers = json.get("mcpServers").or_else(|| json.get("servers")).and_then(Json::as_object);
    let servers = servers.ok_or("it has no object `mcpServers`")?;
    let mut names = HashMap::new();
    for name in servers.keys() {
        if let Some(other) = names.insert(own_name(name), name) {
            return Err(format!(
                "mcpServers has {other:?} and {name:?}, which would both be {:?} here",
                own_name(name)
            ));
        }
    }
    let all: Result<Vec<String>, String> = servers.iter().map(|(name, server)| lines(name, server)).collect();
    Ok(all?.join("\n"))
}

fn lines(name: &str, server: &Json) -> Result<String, String> {
    let server = server.as_object().ok_or_else(|| format!("mcpServers.{name} must be an object"))?;
    let own = own_name(name);
    let mut out = if own == name { String::new() } else { format!("# {name:?} there\n") };
    out += &format!("[mcp.{own}]\n");
    match (text(server, "command"), text(server, "url").or_else(|| text(server, "serverUrl"))) {
        (Some(command), _) => {
            let args = server.get("args").and_then(Json::as_array).into_iter().flatten();
            let argv = std::iter::once(Json::from(command)).chain(args.cloned());
            out += &format!("argv = {}\n", strings(argv)?);
        }
        (None, Some(url)) => out += &format!("url = {}\n", toml::Value::from(url)),
        (None, None) => return Err(format!("mcpServers.{name} has neither `command` nor `url`")),
    }
    if let Some(env) = server.get("env").and_then(Json::as_object).filter(|env| !env.is_empty()) {
        // In a comment, which a line break would end.
        let names = env.keys().map(|name| name.escape_debug().to_string()).collect::<Vec<_>>().join(", ");
        out += &format!("# {own}.env, mode 600, has a line NAME=value for each of: {names}\n");
        out += &format!("env_files = [{}]\n", toml::Value::from(format!("{own}.env")));
    }
    if server.get("headers").and_then(Json::as_object).is_some_and(|headers| !headers.is_empty()) {
        out += "# its headers are left out: no server that wants some is spoken to\n";
    }
    Ok(out)
}

fn text<'a>(server: &'a Map<String, Json>, key: &str) -> Option<&'a str> {
    server.get(key).and_then(Json::as_str).filter(|text| !text.is_empty())
}

fn strings(words: impl Iterator<Item = Json>) -> Result<toml::Value, String> {
    let word = |word: Json| match word {
        Json::String(text) => Ok(toml::Value::from(text)),
        other => Err(format!("`args` must be strings, got {other}")),
    };
    words.map(word).collect::<Result<Vec<_>, _>>().map(toml::Value::from)
}

/// The name in letters that a name here may have.
fn own_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let own: String = name.chars().map(plain).take(limits::MCP_SERVER_NAME_CHARS_MAX).collect();
    if own.is_empty() { "server".into() } else { own }
}

#[cfg(test)]
mod tests {
    use super::super::file::ToolsFile;
    use super::*;
    use std::path::Path;

    #[test]
    fn what_is_imported_is_read_and_has_no_secrets() {
        let lines = imported(
            r#"{"mcpServers": {"my files": {"command": "npx", "args": ["-y", "say \"hi\""], "env": {"TOKEN": "s3cret"}},
                "wiki": {"url": "http://wiki:8000/mcp", "headers": {"Authorization": "s3cret"}}}}"#,
        )
        .unwrap();
        assert!(!lines.contains("s3cret") && lines.contains("for each of: TOKEN"), "{lines}");
        let file = ToolsFile::parse(&lines, Path::new("/x")).unwrap();
        assert_eq!(file.servers.keys().collect::<Vec<_>>(), ["my-files", "wiki"]);
        let lines = imported(r#"{"mcpServers": {"a": {"command": "x", "env": {"A\nargv = 1": ""}}}}"#).unwrap();
        assert!(ToolsFile::parse(&lines, Path::new("/x")).is_ok(), "{lines}");
        let twice = imported(r#"{"mcpServers": {"a b": {"command": "x"}, "a-b": {"command": "y"}}}"#).unwrap_err();
        assert!(twice.contains(r#""a b" and "a-b""#), "{twice}");
        assert!(imported("{}").unwrap_err().contains("mcpServers"));
        assert!(imported(r#"{"mcpServers": {"a": {}}}"#).unwrap_err().contains("neither"));
    }
}
