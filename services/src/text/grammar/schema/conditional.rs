//! Conditions (`if`, `then`, `else`) as choices: a value that matches the condition and its consequence, or one that
//! breaks the condition and matches the alternative. Conditions on the values of one field, as programs write them for
//! each kind of an object, are one choice with a case for each value: as choices of their own they would multiply.

use super::excluded::lists;
use super::idle::allows_all;
use super::negated::{Among, all_of, any_of, negated, size, unlisted, values, with_field};
use super::{Json, Map, broken_by, is_note, json, rewritten};

const KEYS: [&str; 3] = ["if", "then", "else"];
/// Values of all cases of one choice. A consequence may be part of several cases, so that nested ones would multiply.
const CASES_VALUES_MAX: usize = 20_000;

/// Whether a schema is a condition with its consequences, and nothing else.
pub(super) fn is_condition(schema: &Json) -> bool {
    let Json::Object(schema) = schema else { return false };
    schema.contains_key("if") && schema.keys().all(|key| KEYS.contains(&key.as_str()) || is_note(key))
}

/// Takes the conditions out of a schema and out of its `allOf`, and gives the choices that stand for them. Conditions
/// without words stay where they are.
pub(super) fn without_conditions(schema: &mut Map<String, Json>) -> Vec<Json> {
    let conditions = taken(schema);
    let among = Among::of(schema);
    let (mut choices, mut kept) = (Vec::new(), Vec::new());
    let mut rest: Vec<&Condition> = conditions.iter().collect();
    while let Some(first) = rest.first() {
        let field = first.asks(&among).map(|asked| asked.name);
        let alike = |one: &&Condition| field.is_some() && one.asks(&among).map(|asked| asked.name) == field;
        let (group, others): (Vec<&Condition>, Vec<&Condition>) = match field.is_some() {
            true => rest.iter().partition(|one| alike(one)),
            false => (vec![*first], rest[1..].to_vec()),
        };
        match if group.len() > 1 { cases(&group, &among) } else { None } {
            Some(choice) => choices.push(choice),
            None => group.iter().for_each(|one| match one.choice(&among) {
                Some(choice) => choices.push(choice),
                None => kept.push(one.schema.clone()),
            }),
        }
        rest = others;
    }
    put_back(schema, kept);
    choices
}

/// A condition with what it decides about.
struct Condition {
    schema: Map<String, Json>,
}

fn taken(schema: &mut Map<String, Json>) -> Vec<Condition> {
    let mut taken = Vec::new();
    if schema.contains_key("if") {
        let keys = KEYS.iter().filter_map(|key| Some(((*key).to_owned(), schema.shift_remove(*key)?)));
        taken.push(keys.collect());
    }
    if let Some(Json::Array(parts)) = schema.get_mut("allOf") {
        let (conditions, others): (Vec<Json>, Vec<Json>) = std::mem::take(parts).into_iter().partition(is_condition);
        *parts = others;
        let own = |condition: &Map<String, Json>| {
            KEYS.iter().filter_map(|key| Some(((*key).to_owned(), condition.get(*key)?.clone()))).collect()
        };
        taken.extend(conditions.iter().filter_map(Json::as_object).map(own));
        if parts.is_empty() && !taken.is_empty() {
            schema.shift_remove("allOf");
        }
    }
    taken.into_iter().map(|schema| Condition { schema }).collect()
}

fn put_back(schema: &mut Map<String, Json>, mut conditions: Vec<Map<String, Json>>) {
    if conditions.len() == 1 && !schema.contains_key("allOf") {
        schema.extend(conditions.remove(0));
    } else if !conditions.is_empty() {
        let parts = schema.entry("allOf").or_insert_with(|| json!([]));
        if let Json::Array(parts) = parts {
            parts.extend(conditions.into_iter().map(Json::Object));
        }
    }
}

impl Condition {
    fn branch(&self, name: &str) -> Json {
        self.schema.get(name).cloned().unwrap_or(Json::Bool(true))
    }

    fn consequence(&self, holds: bool) -> Json {
        self.branch(if holds { "then" } else { "else" })
    }

    fn choice(&self, among: &Among<'_>) -> Option<Json> {
        let (then, alternative) = (self.branch("then"), self.branch("else"));
        if allows_all(&then) && allows_all(&alternative) {
            return Some(Json::Bool(true));
        }
        let condition = self.branch("if");
        let breaks = broken_by(&condition, among)?;
        Some(any_of(vec![all_of(vec![rewritten(&condition, false), then]), all_of(vec![breaks, alternative])]))
    }

    /// What the condition asks for, if that is a value of one field.
    fn asks(&self, among: &Among<'_>) -> Option<FieldCondition> {
        let condition = self.schema.get("if")?.as_object()?;
        let known = |(key, value): (&String, &Json)| match key.as_str() {
            "properties" | "required" => true,
            "type" => among.are_objects() && value == "object",
            key => is_note(key),
        };
        let mut fields = condition.get("properties")?.as_object()?.iter().filter(|(_, schema)| !allows_all(schema));
        let (Some((name, schema)), None, true) = (fields.next(), fields.next(), condition.iter().all(known)) else {
            return None;
        };
        let required = condition.get("required").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
        let listed = values(schema.as_object()?)?;
        let plain = !listed.iter().any(|value| value.is_array() || value.is_object());
        let own = required.iter().all(|one| one == name || one.as_str().is_some_and(|one| among.requires(one)));
        let must = required.iter().any(|one| one == name);
        (plain && own).then(|| FieldCondition { name: name.clone(), values: listed, must })
    }
}

/// Whether a field has one of these values.
struct FieldCondition {
    name: String,
    values: Vec<Json>,
    /// An object without the field does not meet the condition.
    must: bool,
}

/// One choice for conditions on the values of one field: a case for each set of values that the conditions tell apart.
fn cases(conditions: &[&Condition], among: &Among<'_>) -> Option<Json> {
    let questions: Vec<FieldCondition> = conditions.iter().map(|one| one.asks(among)).collect::<Option<_>>()?;
    let name = questions.first()?.name.as_str();
    let mut sets: Vec<(Vec<bool>, Vec<Json>)> = Vec::new();
    let mut all: Vec<Json> = Vec::new();
    for value in questions.iter().flat_map(|question| &question.values) {
        if lists(&all, value) {
            continue;
        }
        all.push(value.clone());
        let holds: Vec<bool> = questions.iter().map(|question| lists(&question.values, value)).collect();
        match sets.iter_mut().find(|(other, _)| *other == holds) {
            Some((_, values)) => values.push(value.clone()),
            None => sets.push((holds, vec![value.clone()])),
        }
    }
    let listed = sets.into_iter().map(|(holds, values)| (with_field(name, json!({"enum": values})), holds));
    let other = with_field(name, unlisted(&all, &among.field(name))?);
    let mut cases: Vec<(Json, Vec<bool>)> = listed.collect();
    cases.push((other, vec![false; questions.len()]));
    if !among.requires(name) {
        let lacks = json!({"type": "object", "properties": {name: false}});
        cases.push((lacks, questions.iter().map(|question| !question.must).collect()));
    }
    if !among.are_objects() {
        let others = negated(&json!({"type": "object"}), among)?;
        cases.push((others, vec![true; questions.len()]));
    }
    let (mut options, mut values) = (Vec::new(), 0);
    for (case, holds) in cases {
        let consequences = conditions.iter().zip(holds).map(|(one, holds)| one.consequence(holds));
        let option = all_of(std::iter::once(case).chain(consequences).collect());
        values += size(&option);
        if values > CASES_VALUES_MAX {
            return None;
        }
        options.push(option);
    }
    Some(any_of(options))
}
