//! A tool of an MCP server that a step has run: its name, and arguments in whose texts `{name}` stands for the text of
//! an earlier step.

use super::template::Template;
use crate::hosted::{SEPARATOR, shown_name};
use serde_json::{Map, Value as Json};
use std::collections::HashMap;
use std::sync::Arc;

/// A tool, and its arguments as a file has them.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolUse {
    /// The server, as the operator's file of tools names it.
    pub server: Arc<str>,
    /// The tool's name there.
    pub tool: Arc<str>,
    arguments: Arguments,
}

/// A tool that is to be run now.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolPlan {
    /// The server, as the operator's file of tools names it.
    pub server: Arc<str>,
    /// The tool's name there.
    pub tool: Arc<str>,
    /// Its arguments; an error says in words why the texts of earlier steps make none.
    pub arguments: Result<Map<String, Json>, String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Arguments {
    /// A text that is an object as JSON once its places are filled.
    Written(Template),
    Fields(Vec<(String, Argument)>),
}

#[derive(Clone, Debug, PartialEq)]
enum Argument {
    Text(Template),
    Plain(Json),
    List(Vec<Argument>),
    Fields(Vec<(String, Argument)>),
}

impl ToolUse {
    /// Reads a tool's name and its arguments. `known` are the texts that there are at this place.
    ///
    /// # Errors
    /// Names the key, what was wanted and what came.
    pub(super) fn parse(
        path: &str,
        (name, arguments): (&str, Option<toml::Value>),
        known: &[Arc<str>],
    ) -> Result<Self, String> {
        let parts = name.split_once(SEPARATOR).filter(|(server, tool)| !server.is_empty() && !tool.is_empty());
        let (server, tool) = parts.ok_or_else(|| {
            let shown: String = name.chars().take(40).collect();
            format!("{path}.tool wants the name that models call it by, SERVER{SEPARATOR}TOOL, got {shown:?}")
        })?;
        let path = format!("{path}.arguments");
        let arguments = match arguments {
            None => Arguments::Fields(Vec::new()),
            Some(toml::Value::String(text)) => Arguments::Written(template(&path, &text, known)?),
            Some(toml::Value::Table(table)) => Arguments::Fields(fields(&path, table, known)?),
            Some(other) => return Err(format!("{path} wants a table, or a text that is one in JSON, got {other}")),
        };
        Ok(Self { server: server.into(), tool: tool.into(), arguments })
    }

    /// The name that models call it by.
    pub fn shown(&self) -> String {
        shown_name(&self.server, &self.tool)
    }

    /// With the texts that the steps before it have.
    pub(super) fn fill(&self, said: &HashMap<Arc<str>, String>) -> ToolPlan {
        let arguments = match &self.arguments {
            Arguments::Fields(fields) => Ok(filled(fields, said)),
            Arguments::Written(text) => serde_json::from_str(&text.fill(said))
                .map_err(|error| format!("the arguments of {} are no object in JSON: {error}", self.shown())),
        };
        ToolPlan { server: self.server.clone(), tool: self.tool.clone(), arguments }
    }
}

fn template(path: &str, text: &str, known: &[Arc<str>]) -> Result<Template, String> {
    Template::parse(text, known).map_err(|why| format!("{path} {why}"))
}

fn fields(path: &str, table: toml::Table, known: &[Arc<str>]) -> Result<Vec<(String, Argument)>, String> {
    let one = |(key, value): (String, toml::Value)| {
        let read = argument(&format!("{path}.{key}"), value, known)?;
        Ok((key, read))
    };
    table.into_iter().map(one).collect()
}

fn argument(path: &str, value: toml::Value, known: &[Arc<str>]) -> Result<Argument, String> {
    Ok(match value {
        toml::Value::String(text) => Argument::Text(template(path, &text, known)?),
        toml::Value::Integer(n) => Argument::Plain(n.into()),
        toml::Value::Float(x) if x.is_finite() => Argument::Plain(x.into()),
        toml::Value::Boolean(b) => Argument::Plain(b.into()),
        toml::Value::Array(all) => {
            let one = |(at, value)| argument(&format!("{path}[{at}]"), value, known);
            Argument::List(all.into_iter().enumerate().map(one).collect::<Result<_, _>>()?)
        }
        toml::Value::Table(table) => Argument::Fields(fields(path, table, known)?),
        other => return Err(format!("{path} wants a value that JSON has, got {other}")),
    })
}

fn filled(fields: &[(String, Argument)], said: &HashMap<Arc<str>, String>) -> Map<String, Json> {
    fields.iter().map(|(key, argument)| (key.clone(), json(argument, said))).collect()
}

fn json(argument: &Argument, said: &HashMap<Arc<str>, String>) -> Json {
    match argument {
        Argument::Text(text) => text.fill(said).into(),
        Argument::Plain(value) => value.clone(),
        Argument::List(all) => all.iter().map(|argument| json(argument, said)).collect(),
        Argument::Fields(fields) => filled(fields, said).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(arguments: &str) -> Result<ToolUse, String> {
        let table: toml::Table = arguments.parse().unwrap();
        ToolUse::parse("call", ("files__read", table.get("arguments").cloned()), &["plan".into()])
    }

    #[test]
    fn texts_of_arguments_read_earlier_steps_and_other_values_stay() {
        let said = HashMap::from([("plan".into(), "a \"b\" {c}".to_owned())]);
        let tool = parse("arguments = { path = \"x/{plan}\", n = 3, deep = [{ t = \"{plan}\" }, true, 0.5] }").unwrap();
        let ToolPlan { server, tool, arguments } = tool.fill(&said);
        assert_eq!((&*server, &*tool), ("files", "read"));
        let want = json!({"path": "x/a \"b\" {c}", "n": 3, "deep": [{"t": "a \"b\" {c}"}, true, 0.5]});
        assert_eq!(Json::Object(arguments.unwrap()), want);
        assert_eq!(parse("").unwrap().fill(&said).arguments, Ok(Map::new()));
    }

    #[test]
    fn a_text_may_be_all_arguments_and_one_that_is_no_object_is_told_in_words() {
        let tool = parse("arguments = \"{plan}\"").unwrap();
        let with = |text: &str| tool.fill(&HashMap::from([("plan".into(), text.to_owned())])).arguments;
        assert_eq!(with(r#"{"a": 1}"#).map(Json::Object), Ok(json!({"a": 1})));
        let wrong = with("[1]").unwrap_err();
        assert!(wrong.starts_with("the arguments of files__read are no object in JSON: "), "{wrong}");
    }

    #[test]
    fn wrong_names_and_values_are_refused_by_their_place() {
        for (arguments, want) in [
            ("arguments = { a = [\"{code}\"] }", "call.arguments.a[0] reads `{code}`, which no earlier step is called"),
            ("arguments = { a = 1979-05-27 }", "call.arguments.a wants a value that JSON has, got 1979-05-27"),
            ("arguments = 3", "call.arguments wants a table, or a text that is one in JSON, got 3"),
        ] {
            let error = parse(arguments).unwrap_err();
            assert!(error.starts_with(want), "{error}");
        }
        let error = ToolUse::parse("call", ("read", None), &[]).unwrap_err();
        assert_eq!(error, "call.tool wants the name that models call it by, SERVER__TOOL, got \"read\"");
    }
}
