//! How a question is put to the model, and how its answers would look: a JSON object with one member. Models are made
//! to fill in schemas, the closing quote says where an option ends, and `true` is another answer than `"true"`.
//! `docs/using/decisions.md` has the form, and what it was measured against.

use super::question::{DecisionQuestion, OptionValue};
use serde_json::Value as Json;

/// The member's name for a question without one.
const UNNAMED: &str = "answer";
/// What stands between the question and its schema.
const REQUEST: &str = "Return JSON for this schema, nothing else:";

/// The question behind its input, with the options in this order.
pub fn ask(question: &DecisionQuestion, order: &[usize]) -> String {
    let described = |at: &usize| {
        let option = &question.options[*at];
        option.description.as_ref().map(|description| format!("{}: {description}\n", json(&option.value)))
    };
    let descriptions: String = order.iter().filter_map(described).collect();
    format!("{}\n{descriptions}{REQUEST}\n{}", question.instructions, schema(question, order))
}

/// What the model would say to choose an option. The value is followed by one byte.
pub fn answer(question: &DecisionQuestion, option: usize) -> String {
    format!("{{{}: {}}}", member(question), json(&question.options[option].value))
}

fn schema(question: &DecisionQuestion, order: &[usize]) -> String {
    let values: Vec<String> = order.iter().map(|at| json(&question.options[*at].value)).collect();
    let texts = question.options.iter().all(|option| matches!(option.value, OptionValue::Text(_)));
    let of_value = match (question.is_boolean(), texts) {
        (true, _) => r#"{"type": "boolean"}"#.to_owned(),
        (_, true) => format!(r#"{{"type": "string", "enum": [{}]}}"#, values.join(", ")),
        _ => format!(r#"{{"enum": [{}]}}"#, values.join(", ")),
    };
    let member = member(question);
    format!(r#"{{"type": "object", "properties": {{{member}: {of_value}}}, "required": [{member}]}}"#)
}

fn member(question: &DecisionQuestion) -> String {
    Json::from(question.name.as_deref().unwrap_or(UNNAMED)).to_string()
}

fn json(value: &OptionValue) -> String {
    match value {
        OptionValue::Text(text) => Json::from(text.as_str()).to_string(),
        OptionValue::Flag(flag) => flag.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::question::{DecisionOption, QuestionKind};

    #[test]
    fn a_question_is_a_schema_and_its_answers_fill_it_in() {
        let option =
            |value, description: Option<&str>| DecisionOption { value, description: description.map(str::to_owned) };
        let text = |text: &str| OptionValue::Text(text.into());
        let options = vec![
            option(text("a \"b\""), Some("the first")),
            option(OptionValue::Flag(true), None),
            option(text("true"), None),
        ];
        let asked = DecisionQuestion {
            name: Some("kind".into()),
            instructions: "Which?".into(),
            kind: QuestionKind::Choice,
            options,
        };
        let schema =
            r#"{"type": "object", "properties": {"kind": {"enum": ["true", true, "a \"b\""]}}, "required": ["kind"]}"#;
        let shown = format!("Which?\n\"a \\\"b\\\"\": the first\n{REQUEST}\n{schema}");
        assert_eq!(ask(&asked, &[2, 1, 0]), shown);
        let answers = [0, 1, 2].map(|option| answer(&asked, option));
        assert_eq!(answers, [r#"{"kind": "a \"b\""}"#, r#"{"kind": true}"#, r#"{"kind": "true"}"#]);
        let predicate = DecisionQuestion::predicate(None, "It is so.".into());
        assert!(ask(&predicate, &[0, 1]).ends_with(r#"{"answer": {"type": "boolean"}}, "required": ["answer"]}"#));
    }
}
