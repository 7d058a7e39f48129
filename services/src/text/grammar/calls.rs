//! Calls of tools in the model's form, as a grammar: declared names, declared arguments, each once at most, the required
//! ones always. Few arguments may come in any order, as models were taught calls; many in that of their schema. In
//! families that write one JSON object a call, its schema is the grammar.
//!
//! An argument's value stands between tags as the parser of answers reads it: a string as it is, up to its closing tag,
//! anything else as JSON.

use super::check::{FormError, schema_within_limits};
use super::keys::{JsonArguments, OpenKeys, open_keys};
use super::numbers::{self, ExactNumbers};
use super::{Tokenizer, references, with_options};
use crate::limits;
use crate::text::parser::CALL;
use crate::text::template::written;
use crate::text::tools::{CallForm, Reading, Tool, Tools};
use serde_json::{Map, Value as Json, json};
use std::fmt::Write;

/// Has the library leave to the model in which tokens it writes a text that has to come. A call's form is what it was
/// taught, and not always in the tokens of the whole text: names may have been encoded apart from the markup before
/// them, as `=` and `get` where the tokenizer writes `=get`. In tokens that it never saw in that place it loses its
/// thread.
const ANY_TOKENS: &str = "%llguidance {\"no_forcing\": true}";
const CALL_END: &str = "</tool_call>";
/// Ends a value for the parser, so no string may have it inside.
const ENDS: &str = "<\\/parameter>|<\\/function>|<\\/tool_call>|<parameter=";
/// The most arguments of a tool that may come in any order: there is a rule for each set of those that came, so twice as
/// many with each argument more.
const ANY_ORDER_MAX: usize = 5;
/// References that are followed to see which texts a value may be.
const REFERENCES_MAX: usize = 16;

/// Which calls an output may have.
#[derive(Clone, Debug, PartialEq)]
pub struct Calls {
    /// The tools that may be called; at least one.
    pub tools: Vec<Tool>,
    /// There is at least one call, and no other answer.
    pub must: bool,
    /// There may be several.
    pub several: bool,
}

impl Calls {
    /// Rules of which `calls` is the first.
    pub(super) fn rules(&self, tokenizer: &Tokenizer, form: CallForm) -> Result<CallRules, FormError> {
        let mut rules = CallRules::default();
        rules.line(format_args!("{ANY_TOKENS}"));
        let names: Vec<String> = (0..self.tools.len()).map(|i| format!("f{i}")).collect();
        let end = match form {
            CallForm::Tags => "\"</function>\\n\"",
            CallForm::Json => "\"\\n\"",
        };
        let (open, close) = (markup(tokenizer, CALL), markup(tokenizer, CALL_END));
        let call = format!("{open} \"\\n\" ({}) {end} {close}", names.join(" | "));
        let more = if self.several { " (\"\\n\" call)*" } else { "" };
        rules.line(format_args!("calls: call{more}"));
        rules.line(format_args!("call: {call}"));
        for (name, tool) in names.iter().zip(&self.tools) {
            let rule = match form {
                CallForm::Tags => rules.function(name, tool),
                CallForm::Json => rules.object(name, tool),
            };
            rule.map_err(|e| of_tool(tool, e))?;
        }
        rules.finish()
    }

    /// An error of the library in the words of the tools: it names a line of the grammar, whose rule is that of an
    /// argument or a tool.
    pub(super) fn located(&self, grammar: &str, error: FormError) -> FormError {
        let place = || {
            let (line, cause) = error.message.strip_prefix("at ")?.split_once("): ")?;
            let line = grammar.lines().nth(line.split('(').next()?.parse::<usize>().ok()?.checked_sub(1)?)?;
            let mut numbers = line.split(':').next()?.strip_prefix('f')?.split('_').map(str::parse::<usize>);
            let tool = self.tools.get(numbers.next()?.ok()?)?;
            let argument = numbers.next().and_then(Result::ok).and_then(|at| {
                let properties = tool.parameters.get("properties").and_then(Json::as_object)?;
                properties.keys().nth(at)
            });
            // Behind the cause the library shows the lines around it.
            let cause = cause
                .split_once(" | ")
                .map_or(cause, |(cause, _)| cause.trim_end_matches(|c: char| c.is_ascii_digit()));
            Some((tool, argument, cause.trim_end()))
        };
        let Some((tool, argument, cause)) = place() else { return error };
        let message = match argument {
            Some(argument) => format!("its argument {argument:?}: {cause}"),
            None => cause.to_owned(),
        };
        of_tool(tool, FormError { message, ..error })
    }
}

/// A marker as its own token where it is one.
fn markup(tokenizer: &Tokenizer, marker: &str) -> String {
    if tokenizer.added().any(|(content, _)| content == marker) { marker.to_owned() } else { quoted(marker) }
}

fn of_tool(tool: &Tool, error: FormError) -> FormError {
    FormError { message: format!("the tool {:?}: {}", tool.name, error.message), ..error }
}

fn quoted(text: &str) -> String {
    Json::from(text).to_string()
}

/// The text of a grammar as it grows.
#[derive(Default)]
pub(super) struct CallRules {
    pub(super) text: String,
    /// The terminal of any string is there.
    any_string: bool,
    /// The arguments in JSON between tags.
    pub(super) in_json: JsonArguments,
    /// How objects in arguments leave their keys open.
    pub(super) open_keys: Option<OpenKeys>,
    /// The numbers of arguments in JSON that no double holds.
    pub(super) numbers: ExactNumbers,
}

impl CallRules {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.text.write_fmt(line).expect("a string takes all that is written");
        self.text.push('\n');
    }

    fn finish(self) -> Result<Self, FormError> {
        match self.text.len() {
            len if len > limits::GRAMMAR_TOOLS_BYTES_MAX => Err(FormError {
                message: format!(
                    "the tools make a grammar of {len} bytes, at most {} are taken",
                    limits::GRAMMAR_TOOLS_BYTES_MAX
                ),
                too_large: true,
            }),
            _ => Ok(self),
        }
    }

    /// `<function=NAME>` and its arguments, without its end.
    fn function(&mut self, rule: &str, tool: &Tool) -> Result<(), FormError> {
        let parameters = numbers::held(&tool.parameters);
        let parameters = references::decoded(&parameters);
        schema_within_limits(&parameters)?;
        let root = parameters.into_owned();
        let open = quoted(&format!("<function={}>\n", tool.name));
        let Some(properties) = root.get("properties").and_then(Json::as_object) else {
            // A schema that names none leaves them free; no schema at all means that there are none.
            let free = root.as_object().is_some_and(|root| !root.is_empty());
            let any = if free { format!(" {rule}_any*") } else { String::new() };
            self.line(format_args!("{rule}: {open}{any}"));
            if free {
                let value = self.string(rule, None);
                self.line(format_args!(
                    "{rule}_any: \"<parameter=\" /[A-Za-z_][A-Za-z0-9_.\\-]{{0,63}}/ \">\\n\" {value}"
                ));
            }
            return Ok(());
        };
        let readings = Tools::new(vec![tool.clone()]);
        let required: Vec<&str> =
            root.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect();
        if let Some(missing) = required.iter().find(|name| !properties.contains_key(**name)) {
            return Err(FormError::unusable(format!("`required` names {missing:?}, which `properties` has not")));
        }
        let mut arguments = Vec::new();
        for (i, (key, schema)) in properties.iter().enumerate() {
            let must = required.contains(&key.as_str());
            if !can_be_written(key) {
                if must {
                    return Err(FormError::unusable(format!(
                        "the argument {key:?} has a name that a call cannot carry"
                    )));
                }
                continue;
            }
            let argument = format!("{rule}_{i}");
            let value = self.value(
                (tool.name.as_str(), key.as_str()),
                &argument,
                (&root, schema),
                readings.reading(&tool.name, key),
            );
            let value =
                value.map_err(|e| FormError { message: format!("its argument {key:?}: {}", e.message), ..e })?;
            self.line(format_args!("{argument}: {} {value}", quoted(&format!("<parameter={key}>\n"))));
            arguments.push((argument, must));
        }
        let rest = self.arguments(rule, &arguments);
        self.line(format_args!("{rule}: {open} {rest}"));
        Ok(())
    }

    /// What may stand for a call's arguments, of which each has a rule and whether it must come.
    fn arguments(&mut self, rule: &str, arguments: &[(String, bool)]) -> String {
        if arguments.len() > ANY_ORDER_MAX {
            let part = |(argument, must): &(String, bool)| format!("{argument}{} ", if *must { "" } else { "?" });
            return arguments.iter().map(part).collect();
        }
        // A set of arguments that came is a number with a bit for each.
        for came in 0..1_usize << arguments.len() {
            let left = || arguments.iter().enumerate().filter(|(i, _)| came >> i & 1 == 0);
            let next: Vec<_> =
                left().map(|(i, (argument, _))| format!("{argument} {rule}_had{}", came | 1 << i)).collect();
            let enough = if left().any(|(_, (_, must))| *must) { "" } else { "?" };
            match next.len() {
                0 => self.line(format_args!("{rule}_had{came}: \"\"")),
                _ => self.line(format_args!("{rule}_had{came}: ({}){enough}", next.join(" | "))),
            }
        }
        format!("{rule}_had0")
    }

    /// A call as one JSON object.
    fn object(&mut self, rule: &str, tool: &Tool) -> Result<(), FormError> {
        let parameters = numbers::held(&tool.parameters);
        let parameters = references::decoded(&parameters);
        schema_within_limits(&parameters)?;
        let mut arguments = match parameters.into_owned() {
            Json::Object(schema) if !schema.is_empty() => schema,
            _ => Map::from_iter([("additionalProperties".to_owned(), Json::Bool(false))]),
        };
        arguments.insert("type".into(), "object".into());
        check_references(&arguments)?;
        let mut schema = json!({"type": "object", "required": ["name", "arguments"], "additionalProperties": false});
        for definitions in ["$defs", "definitions"] {
            if let Some(known) = arguments.remove(definitions) {
                schema[definitions] = known;
            }
        }
        schema["properties"] = json!({"name": {"const": tool.name}, "arguments": arguments});
        let schema = with_options(&schema, false, true, &mut self.numbers)?;
        self.open_keys = self.open_keys.max(open_keys(&schema));
        self.line(format_args!("{rule}: %json {schema}"));
        Ok(())
    }

    /// What stands between the tags, the closing one with it.
    fn value(
        &mut self,
        (tool, key): (&str, &str),
        rule: &str,
        (root, schema): (&Json, &Json),
        reading: Reading,
    ) -> Result<String, FormError> {
        let end = quoted("\n</parameter>\n");
        if let Some(texts) = texts(root, schema) {
            let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
            return Ok(format!("({}) {end}", texts.join(" | ")));
        }
        if reading != Reading::Json {
            let longest = resolved(root, schema).get("maxLength").and_then(Json::as_u64);
            return Ok(self.string(rule, longest.filter(|_| reading == Reading::Verbatim)));
        }
        let mut schema = schema.as_object().cloned().unwrap_or_default();
        check_references(&schema)?;
        for definitions in ["$defs", "definitions"] {
            if let Some(known) = root.get(definitions) {
                schema.entry(definitions).or_insert_with(|| known.clone());
            }
        }
        let json = with_options(&Json::Object(schema), false, true, &mut self.numbers)?;
        self.in_json.insert((tool.to_owned(), key.to_owned()));
        self.open_keys = self.open_keys.max(open_keys(&json));
        self.line(format_args!("{rule}_json: %json {json}"));
        Ok(format!("{rule}_json {end}"))
    }

    /// Any text without a tag that would end it, up to its closing tag. One of at most `longest` characters is a
    /// terminal of its own.
    fn string(&mut self, rule: &str, longest: Option<u64>) -> String {
        let (terminal, count) = match longest {
            Some(longest) => (format!("{}_STRING", rule.to_ascii_uppercase()), format!("{{0,{longest}}}")),
            None => ("ANY_STRING".to_owned(), "*".to_owned()),
        };
        if longest.is_some() || !self.any_string {
            self.any_string |= longest.is_none();
            let (value, inside) =
                (format!("/(?s:.{count}\\n<\\/parameter>\\n)/"), format!("/(?s:.*({ENDS}).*\\n<\\/parameter>\\n)/"));
            self.line(format_args!("{terminal}: {value} & ~{inside}"));
        }
        terminal
    }
}

/// A name that a tag can carry, and that the parser reads back as it is.
fn can_be_written(key: &str) -> bool {
    let plain = !key.contains(['<', '>', '\n', '\r']) && key.trim() == key;
    plain && (1..=limits::TOOL_ARGUMENT_BYTES_MAX).contains(&key.len())
}

/// What a schema's reference refers to, or the schema itself.
fn resolved<'a>(root: &'a Json, schema: &'a Json) -> &'a Json {
    let mut at = schema;
    for _ in 0..REFERENCES_MAX {
        let target = at.get("$ref").and_then(Json::as_str).and_then(|r| root.pointer(r.strip_prefix('#')?));
        match target {
            Some(target) => at = target,
            None => break,
        }
    }
    at
}

/// The texts that a value may be, where the schema lists its values and a tag ends none of them.
fn texts(root: &Json, schema: &Json) -> Option<Vec<String>> {
    let schema = resolved(root, schema);
    let values = match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => std::slice::from_ref(value),
        (None, Some(Json::Array(values))) if !values.is_empty() => values,
        _ => return None,
    };
    let text = |value: &Json| value.as_str().map_or_else(|| written::text(value), str::to_owned);
    let texts: Vec<String> = values.iter().map(text).collect();
    texts.iter().all(|text| !text.contains('<')).then_some(texts)
}

/// Beside an argument's schema stand the definitions of the tool's, and nothing else of it.
fn check_references(schema: &Map<String, Json>) -> Result<(), FormError> {
    let mut open: Vec<&Json> = schema.values().collect();
    let check = |target: &Json| match target.as_str() {
        Some(target) if target.starts_with("#/$defs/") || target.starts_with("#/definitions/") => Ok(()),
        _ => Err(FormError::unusable(format!("`$ref` {target}: references to `#/$defs/` are supported"))),
    };
    if let Some(target) = schema.get("$ref") {
        check(target)?;
    }
    while let Some(value) = open.pop() {
        match value {
            Json::Array(items) => open.extend(items),
            Json::Object(map) => {
                if let Some(target) = map.get("$ref").filter(|target| target.is_string()) {
                    check(target)?;
                }
                open.extend(map.values());
            }
            _ => {}
        }
    }
    Ok(())
}
