//! Conditions (`if`, `then`, `else`) as choices: a value that matches the condition and its consequence, or one that
//! breaks the condition and matches the alternative. That needs words for the values that break a condition. They exist
//! where it asks about fields of an object that have finitely many values.

use super::idle::allows_all;
use super::{Json, Map, difference, is_note, json, listed, negated, without};

/// Takes a condition out of a schema, and gives the choice that stands for it; `None` where there are no words.
pub(super) fn without_condition(schema: &mut Map<String, Json>) -> Option<Json> {
    let condition = schema.get("if")?;
    let breaks = negated(condition).or_else(|| broken(schema, condition))?;
    let branch = |name: &str| schema.get(name).cloned().unwrap_or(Json::Bool(true));
    let choices = [both(condition.clone(), branch("then")), both(breaks, branch("else"))];
    let choices: Vec<Json> = choices.into_iter().filter(|choice| *choice != Json::Bool(false)).collect();
    ["if", "then", "else"].iter().for_each(|key| drop(schema.shift_remove(*key)));
    Some(if choices.is_empty() { Json::Bool(false) } else { json!({"anyOf": choices}) })
}

fn both(one: Json, other: Json) -> Json {
    match (allows_all(&one), allows_all(&other)) {
        _ if one == false || other == false => Json::Bool(false),
        (true, _) => other,
        (_, true) => one,
        _ => json!({"allOf": [one, other]}),
    }
}

/// The objects of `schema` that break a condition on their fields. Only objects may be among the schema's values, since
/// a condition on fields says nothing of other values, which therefore match it.
fn broken(schema: &Map<String, Json>, condition: &Json) -> Option<Json> {
    let condition = condition.as_object().filter(|_| schema.get("type").is_some_and(|kind| kind == "object"))?;
    let known = |(key, value): (&String, &Json)| match key.as_str() {
        "properties" | "required" => true,
        "type" => value == "object",
        key => is_note(key),
    };
    if !condition.iter().all(known) {
        return None;
    }
    let names = |of: &Map<String, Json>| -> Vec<String> {
        let names = of.get("required").and_then(Json::as_array).into_iter().flatten();
        names.filter_map(Json::as_str).map(str::to_owned).collect()
    };
    let always = names(schema);
    let mut choices: Vec<Json> =
        names(condition).iter().filter(|name| !always.contains(name)).map(|name| without(name)).collect();
    for (name, of_condition) in condition.get("properties").and_then(Json::as_object).into_iter().flatten() {
        if allows_all(of_condition) {
            continue;
        }
        let others = difference(&values(schema.get("properties")?.get(name)?)?, &values(of_condition)?)?;
        if !others.is_empty() {
            choices.push(json!({"required": [name], "properties": {name: {"enum": others}}}));
        }
    }
    Some(if choices.is_empty() { Json::Bool(false) } else { json!({"anyOf": choices}) })
}

/// The values that match a schema of a field, where it lists them.
fn values(schema: &Json) -> Option<Vec<Json>> {
    let schema = schema.as_object()?;
    let mut says = schema.iter().filter(|(key, _)| !is_note(key));
    match (says.next()?, says.next(), says.next()) {
        ((key, value), None, None) if key == "type" && value == "boolean" => Some(vec![false.into(), true.into()]),
        ((key, value), None, None) if key == "const" || key == "enum" => Some(listed(value, key == "const")),
        (a, Some(b), None) => {
            let (kind, list) = if a.0 == "type" { (a, b) } else { (b, a) };
            let strings = kind.0 == "type" && kind.1 == "string" && (list.0 == "const" || list.0 == "enum");
            let values = listed(list.1, list.0 == "const");
            (strings && values.iter().all(Json::is_string)).then_some(values)
        }
        _ => None,
    }
}
