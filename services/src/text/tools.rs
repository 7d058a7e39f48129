//! The tools that a request declares, as far as they decide how the text of an argument becomes a JSON value.

use super::template::written;
use serde_json::Value as Json;
use std::cell::Cell;
use std::collections::HashMap;

/// Levels of references and alternatives that are followed in a schema.
const SCHEMA_DEPTH_MAX: u32 = 16;
/// Schemas that are looked at for one argument: alternatives that refer to each other are as many as one likes.
const SCHEMAS_MAX: u32 = 1024;

/// The declared tools of one request: how each argument is read. Schemas themselves are let go, since a request may
/// wait for long.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tools(HashMap<String, HashMap<String, Reading>>);

/// How a family writes calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallForm {
    /// `<function=NAME>` with a tag for each argument.
    #[default]
    Tags,
    /// One JSON object with `name` and `arguments`.
    Json,
}

impl CallForm {
    /// What a chat template shows the model: tags wherever it names them, for no template with objects does.
    pub fn of(template: &str) -> Self {
        let object = template.contains("<tool_call>") && template.contains("arguments");
        if object && !template.contains("<function=") { Self::Json } else { Self::Tags }
    }
}

/// A tool that the request declares.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Unique among the request's tools.
    pub name: String,
    /// JSON schema of the arguments.
    pub parameters: Json,
}

/// How an argument's text becomes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// As it stands, so it can be passed on while it comes.
    Verbatim,
    /// As JSON if it is JSON of another type than a string, else as it stands.
    JsonOrVerbatim {
        /// The schema also allows strings, so JSON must be of one of the other types.
        other: Types,
    },
    /// As JSON if it is JSON at all, else as it stands.
    Json,
}

/// A set of JSON types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    const STRING: Types = Types(1);
    const NULL: Types = Types(2);
    const BOOLEAN: Types = Types(4);
    const INTEGER: Types = Types(8);
    const NUMBER: Types = Types(16);
    const ARRAY: Types = Types(32);
    const OBJECT: Types = Types(64);
    const ALL: Types = Types(127);

    fn named(name: &str) -> Self {
        match name {
            "string" => Self::STRING,
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "integer" => Self::INTEGER,
            "number" => Self::NUMBER,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            _ => Self::default(),
        }
    }

    fn of(value: &Json) -> Self {
        match value {
            Json::Null => Self::NULL,
            Json::Bool(_) => Self::BOOLEAN,
            Json::Number(n) if n.is_f64() => Self::NUMBER,
            Json::Number(_) => Self::INTEGER,
            Json::String(_) => Self::STRING,
            Json::Array(_) => Self::ARRAY,
            Json::Object(map) => match written::number(map) {
                Some(number) if number.contains(['.', 'e', 'E']) => Self::NUMBER,
                Some(_) => Self::INTEGER,
                None => Self::OBJECT,
            },
        }
    }

    fn and(self, more: Self) -> Self {
        Types(self.0 | more.0)
    }

    fn without(self, other: Self) -> Self {
        Types(self.0 & !other.0)
    }

    /// Whether a value is of one of these types; every integer is a number.
    fn admit(self, value: &Json) -> bool {
        let own = Self::of(value);
        let own = if own == Self::INTEGER { own.and(Self::NUMBER) } else { own };
        self.0 & own.0 != 0
    }
}

impl Tools {
    /// Names must be unique.
    pub fn new(tools: Vec<Tool>) -> Self {
        Self(tools.into_iter().map(|tool| (tool.name, arguments(&tool.parameters))).collect())
    }

    /// Adds a tool, unless there is one of its name.
    pub fn add(&mut self, tool: Tool) -> bool {
        !self.0.contains_key(&tool.name) && self.0.insert(tool.name, arguments(&tool.parameters)).is_none()
    }

    /// Whether there is a tool of this name.
    pub(super) fn has(&self, tool: &str) -> bool {
        self.0.contains_key(tool)
    }

    /// Whether a tool's schema names this argument.
    pub(super) fn declares(&self, tool: &str, argument: &str) -> bool {
        self.0.get(tool).is_some_and(|arguments| arguments.contains_key(argument))
    }

    /// How to read an argument. One that no schema names is taken as it stands.
    pub(super) fn reading(&self, tool: &str, argument: &str) -> Reading {
        self.0.get(tool).and_then(|arguments| arguments.get(argument)).copied().unwrap_or(Reading::Verbatim)
    }
}

/// How the arguments that a schema names are read.
fn arguments(root: &Json) -> HashMap<String, Reading> {
    let properties = root.get("properties").and_then(Json::as_object).into_iter().flatten();
    properties
        .map(|(name, schema)| (name.clone(), reading(types(root, schema, SCHEMA_DEPTH_MAX, &Cell::new(SCHEMAS_MAX)))))
        .collect()
}

fn reading(types: Types) -> Reading {
    let other = types.without(Types::STRING);
    match (types == other, other == Types::default()) {
        (true, false) => Reading::Json,
        (_, true) => Reading::Verbatim,
        (false, false) => Reading::JsonOrVerbatim { other },
    }
}

/// The types that a schema allows, as far as it can be told; all of them where it says nothing.
fn types(root: &Json, schema: &Json, depth: u32, left: &Cell<u32>) -> Types {
    if depth == 0 || left.get() == 0 {
        return Types::ALL;
    }
    left.set(left.get() - 1);
    if let Some(target) = schema.get("$ref").and_then(Json::as_str).and_then(|r| root.pointer(r.strip_prefix('#')?)) {
        return types(root, target, depth - 1, left);
    }
    let union = |list: &[Json], one: &dyn Fn(&Json) -> Types| list.iter().map(one).fold(Types::default(), Types::and);
    let found = match schema.get("type") {
        Some(Json::String(name)) => Types::named(name),
        Some(Json::Array(names)) => union(names, &|name| Types::named(name.as_str().unwrap_or_default())),
        _ => Types::default(),
    };
    let alternatives = ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| schema.get(key)?.as_array());
    let found = alternatives.fold(found, |found, list| found.and(union(list, &|s| types(root, s, depth - 1, left))));
    let values = schema.get("enum").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    match found {
        Types(0) if schema.get("const").is_some() => Types::of(&schema["const"]),
        Types(0) if !values.is_empty() => union(values, &Types::of),
        Types(0) => Types::ALL,
        found => found,
    }
}

impl Reading {
    /// The JSON text of a complete argument.
    pub(super) fn read(self, text: &str) -> String {
        let trimmed = text.trim();
        // Templates show constants in Python's spelling, so models write them so.
        let json = match trimmed {
            "True" => "true",
            "False" => "false",
            "None" => "null",
            other => other,
        };
        let value: Option<Json> = serde_json::from_str(json).ok();
        let taken = match self {
            Reading::Verbatim => false,
            Reading::Json => value.is_some(),
            Reading::JsonOrVerbatim { other } => value.is_some_and(|value| other.admit(&value)),
        };
        // JSON is passed on as it was written: parsing and writing it again would round long numbers.
        if taken { json.to_owned() } else { Json::from(text).to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: Json, cases: &[(&str, Json)]) {
        let parameters = json!({"properties": {"x": schema}, "$defs": {"unit": {"enum": ["C", "F"]}, "loop": {"$ref": "#/$defs/loop"}}});
        let tools = Tools::new(vec![Tool { name: "f".into(), parameters }]);
        for (text, value) in cases {
            let read = tools.reading("f", "x").read(text);
            assert_eq!(serde_json::from_str::<Json>(&read).unwrap(), *value, "{text:?}");
        }
    }

    #[test]
    fn a_template_s_markup_says_how_calls_are_written() {
        assert_eq!(CallForm::of("<tool_call>{\"name\": n, \"arguments\": a}</tool_call>"), CallForm::Json);
        assert_eq!(CallForm::of("<tool_call><function=f> each of the arguments"), CallForm::Tags);
        assert_eq!(CallForm::of("no tools"), CallForm::Tags);
    }

    #[test]
    fn alternatives_that_refer_to_each_other_come_to_an_end() {
        let itself = json!({"$ref": "#/$defs/all"});
        let parameters = json!({"properties": {"x": itself}, "$defs": {"all": {"anyOf": vec![itself.clone(); 1000]}}});
        let tools = Tools::new(vec![Tool { name: "f".into(), parameters }]);
        assert_eq!(tools.reading("f", "x").read("5"), "5");
    }

    #[test]
    fn strings_are_taken_as_they_stand() {
        check(
            json!({"type": "string"}),
            &[("5", json!("5")), ("true", json!("true")), (" a\n", json!(" a\n")), ("{\"a\": 1}", json!("{\"a\": 1}"))],
        );
    }

    #[test]
    fn other_types_are_read_as_json_or_else_taken_as_they_stand() {
        check(json!({"type": "integer"}), &[("5", json!(5)), (" 5 ", json!(5)), ("five", json!("five"))]);
        check(json!({"type": "boolean"}), &[("true", json!(true)), ("False", json!(false)), ("yes", json!("yes"))]);
        check(json!({"type": "null"}), &[("None", json!(null)), ("null", json!(null))]);
        check(json!({"type": "array"}), &[("[1,\n 2]", json!([1, 2])), ("[1, True]", json!("[1, True]"))]);
        check(json!({"type": "object"}), &[("{\"a\": {}}", json!({"a": {}})), ("{'a': 1}", json!("{'a': 1}"))]);
    }

    #[test]
    fn a_string_or_something_else_is_told_by_its_form() {
        check(json!({"type": ["string", "null"]}), &[("None", json!(null)), ("5", json!("5")), ("x", json!("x"))]);
        check(
            json!({"anyOf": [{"type": "string"}, {"type": "number"}]}),
            &[("5", json!(5)), ("5.5", json!(5.5)), ("true", json!("true"))],
        );
        check(json!({}), &[("5", json!(5)), ("x y", json!("x y"))]);
    }

    #[test]
    fn types_are_found_behind_references_and_values() {
        check(json!({"$ref": "#/$defs/unit"}), &[("C", json!("C")), ("5", json!("5"))]);
        check(json!({"$ref": "#/$defs/loop"}), &[("5", json!(5))]);
        check(json!({"enum": [1, 2]}), &[("2", json!(2))]);
        check(json!({"const": true}), &[("True", json!(true))]);
    }

    #[test]
    fn arguments_that_nobody_declared_are_taken_as_they_stand() {
        let tools = Tools::new(vec![]);
        assert_eq!(tools.reading("f", "x").read("5"), "\"5\"");
        assert!(!tools.declares("f", "x"));
    }

    #[test]
    fn a_value_of_an_enumeration_is_a_number_however_it_was_written() {
        let parameters = written::parse(r#"{"properties": {"x": {"enum": [1e2, 2e2]}, "y": {"enum": [-0]}}}"#).unwrap();
        let tools = Tools::new(vec![Tool { name: "f".into(), parameters }]);
        assert_eq!(tools.reading("f", "x").read("1e2"), "1e2");
        assert_eq!(tools.reading("f", "y").read("-0"), "-0");
    }

    #[test]
    fn long_numbers_keep_their_digits() {
        let parameters = json!({"properties": {"x": {"type": "integer"}}});
        let tools = Tools::new(vec![Tool { name: "f".into(), parameters }]);
        assert_eq!(tools.reading("f", "x").read("123456789012345678901234567890"), "123456789012345678901234567890");
    }
}
