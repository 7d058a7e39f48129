//! Whether a text that is there fits a schema: the same grammar that would have led to it reads it.

use super::{AnswerForm, FormError, Grammars, Structure, watch_over};
use serde_json::{Map, Value as Json};

/// Characters of the place before which a text left its schema.
const SHOWN_CHARS: usize = 40;

impl Grammars {
    /// Why a text is not JSON that a schema allows; `None` if it is. White space and the order of members do not
    /// count, as far as the schema names these itself (`properties`, `items` and local references).
    ///
    /// # Errors
    /// If no grammar can be made of the schema.
    pub fn misfit(&self, schema: &Json, text: &str) -> Result<Option<String>, FormError> {
        let value: Json = match serde_json::from_str(text.trim()) {
            Ok(value) => value,
            Err(error) => return Ok(Some(format!("it is not JSON: {error}"))),
        };
        let text = in_order(value, schema, schema).to_string();
        let form = AnswerForm::Json { schema: schema.clone(), compact: true, closed: false };
        let compiled = self.compile(&Structure { form: Some(form), calls: None })?;
        let ids = self.tokenizer.encode_plain(&text);
        let mut matcher = compiled.lexers.own();
        let watched = watch_over(&matcher, &compiled.watch);
        let read = watched.run(|| matcher.try_consume_tokens(&ids).and_then(|n| Ok((n, matcher.is_accepting()?))));
        let (taken, whole) = read.map_err(|e| FormError::of_library(&e))?;
        if taken == ids.len() && whole {
            return Ok(None);
        }
        let good = self.tokenizer.decode(&ids[..taken], true);
        let tail: String = good.chars().skip(good.chars().count().saturating_sub(SHOWN_CHARS)).collect();
        Ok(Some(format!("it does not fit the schema behind `{tail}`")))
    }
}

/// A value whose members stand as the schema names them, and the others behind these.
fn in_order(value: Json, schema: &Json, root: &Json) -> Json {
    let local = schema["$ref"].as_str().and_then(|path| path.strip_prefix('#')).and_then(|path| root.pointer(path));
    let schema = local.unwrap_or(schema);
    match value {
        Json::Array(items) => items.into_iter().map(|item| in_order(item, &schema["items"], root)).collect(),
        Json::Object(mut members) => {
            let mut ordered = Map::new();
            for (name, of) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(member) = members.shift_remove(name) {
                    ordered.insert(name.clone(), in_order(member, of, root));
                }
            }
            ordered.append(&mut members);
            Json::Object(ordered)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tokenizer::golden;
    use serde_json::json;

    #[test]
    fn a_text_fits_its_schema_in_any_order_and_white_space_or_is_told_where_it_does_not() {
        let tokenizer = golden();
        let end = tokenizer.id("<|im_end|>").unwrap();
        let grammars = Grammars::new(tokenizer, vec![end]);
        let point = json!({"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
            "required": ["x", "y"], "additionalProperties": false});
        let schema = json!({"type": "object", "properties": {"name": {"type": "string"}, "at": {"$ref": "#/$defs/p"}},
            "required": ["name", "at"], "additionalProperties": false, "$defs": {"p": point}});
        let misfit = |text: &str| grammars.misfit(&schema, text).unwrap();
        assert_eq!(misfit(r#"{"name":"a","at":{"x":1,"y":2}}"#), None);
        assert_eq!(misfit("\n{ \"at\": {\"y\": 2,\n            \"x\": 1},  \"name\": \"a\" }\n"), None);
        for (text, want) in [
            ("So: {}", "it is not JSON"),
            (r#"{"name":"a"}"#, "does not fit the schema behind `{\"name\":\"a\""),
            (r#"{"name":"a","at":{"x":"1","y":2}}"#, "does not fit the schema behind"),
        ] {
            let why = misfit(text).unwrap();
            assert!(why.contains(want), "{why}");
        }
    }
}
