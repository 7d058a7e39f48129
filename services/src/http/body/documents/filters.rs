//! The field `filters` of a search.

use super::values::attribute;
use crate::documents::{Attribute, AttributeFilter, Comparison};
use crate::http::body::fields::{Fields, at_most, missing};
use crate::http::wire::error::ApiError;
use crate::limits::{ATTRIBUTE_KEY_CHARS_MAX, FILTER_CONDITIONS_MAX, FILTER_LEVELS_MAX};

#[derive(Clone, Copy)]
enum FilterKind {
    Compare(Comparison),
    OneOf(bool),
    And,
    Or,
}

const KINDS: [(&str, FilterKind); 10] = [
    ("eq", FilterKind::Compare(Comparison::Eq)),
    ("ne", FilterKind::Compare(Comparison::Ne)),
    ("gt", FilterKind::Compare(Comparison::Gt)),
    ("gte", FilterKind::Compare(Comparison::Gte)),
    ("lt", FilterKind::Compare(Comparison::Lt)),
    ("lte", FilterKind::Compare(Comparison::Lte)),
    ("in", FilterKind::OneOf(true)),
    ("nin", FilterKind::OneOf(false)),
    ("and", FilterKind::And),
    ("or", FilterKind::Or),
];

/// Takes the condition that a body has, if it has one.
pub(in crate::http) fn filter(fields: &mut Fields) -> Result<Option<AttributeFilter>, ApiError> {
    let path = fields.path("filters");
    let Some(nested) = fields.fields("filters")? else { return Ok(None) };
    let mut left = FILTER_CONDITIONS_MAX;
    condition(nested, &path, 1, &mut left).map(Some)
}

fn condition(mut fields: Fields, path: &str, level: usize, left: &mut usize) -> Result<AttributeFilter, ApiError> {
    if level > FILTER_LEVELS_MAX || *left == 0 {
        let message = format!(
            "`filters` may have {FILTER_CONDITIONS_MAX} conditions on {FILTER_LEVELS_MAX} levels, `{path}` is one more"
        );
        return Err(ApiError::invalid(path, message));
    }
    *left -= 1;
    let kind = fields.choice("type", KINDS)?.ok_or_else(|| missing(&fields.path("type"), "a comparison"))?;
    let filter = match kind {
        FilterKind::Compare(how) => {
            let key = key(&mut fields)?;
            let value = fields.any("value").ok_or_else(|| missing(&fields.path("value"), "a value"))?;
            AttributeFilter::Compare(key, how, attribute(&fields.path("value"), value)?)
        }
        FilterKind::OneOf(wanted) => {
            let (key, path) = (key(&mut fields)?, fields.path("value"));
            let values = fields.list("value")?.ok_or_else(|| missing(&path, "an array of values"))?;
            at_most(&path, values.len(), FILTER_CONDITIONS_MAX)?;
            let values = values.into_iter().enumerate().map(|(i, value)| attribute(&format!("{path}[{i}]"), value));
            AttributeFilter::OneOf(key, values.collect::<Result<Vec<Attribute>, _>>()?, wanted)
        }
        FilterKind::And | FilterKind::Or => {
            let path = fields.path("filters");
            let list = fields.list("filters")?.ok_or_else(|| missing(&path, "an array of conditions"))?;
            let mut some = Vec::new();
            for (i, value) in list.into_iter().enumerate() {
                let path = format!("{path}[{i}]");
                some.push(condition(Fields::nested(path.clone(), value)?, &path, level + 1, left)?);
            }
            if matches!(kind, FilterKind::And) { AttributeFilter::And(some) } else { AttributeFilter::Or(some) }
        }
    };
    fields.finish()?;
    Ok(filter)
}

fn key(fields: &mut Fields) -> Result<String, ApiError> {
    let path = fields.path("key");
    let key = fields.string("key")?.ok_or_else(|| missing(&path, "the key of an attribute"))?;
    if key.chars().count() > ATTRIBUTE_KEY_CHARS_MAX {
        let message = format!("`{path}` has more than {ATTRIBUTE_KEY_CHARS_MAX} characters, as no attribute has");
        return Err(ApiError::invalid(path, message));
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn parse(filters: &Value) -> Result<Option<AttributeFilter>, ApiError> {
        filter(&mut Fields::of_body(json!({"filters": filters}).to_string().as_bytes())?)
    }

    #[test]
    fn conditions_are_read_with_all_that_they_hold() {
        let one = json!({"type": "gte", "key": "year", "value": 2020});
        let several = json!({"type": "and", "filters": [one, {"type": "in", "key": "kind", "value": ["a", true]}]});
        let year = AttributeFilter::Compare("year".into(), Comparison::Gte, Attribute::Number(2020.0));
        let kinds = vec![Attribute::Text("a".into()), Attribute::Flag(true)];
        assert_eq!(
            parse(&several),
            Ok(Some(AttributeFilter::And(vec![year, AttributeFilter::OneOf("kind".into(), kinds, true)])))
        );
        assert_eq!(parse(&Value::Null), Ok(None));
    }

    #[test]
    fn a_condition_that_is_none_is_refused_by_its_path() {
        let deep = (0..9)
            .fold(json!({"type": "eq", "key": "a", "value": 1}), |inner, _| json!({"type": "or", "filters": [inner]}));
        let wide = json!({"type": "or", "filters": vec![json!({"type": "eq", "key": "a", "value": 1}); 128]});
        for (filters, param) in [
            (json!({"type": "like", "key": "a", "value": 1}), "filters.type"),
            (json!({"type": "eq", "key": "a"}), "filters.value"),
            (json!({"type": "eq", "key": "a", "value": [1]}), "filters.value"),
            (json!({"type": "in", "key": "a", "value": 1}), "filters.value"),
            (json!({"type": "and", "filters": [{"type": "eq", "value": 1}]}), "filters.filters[0].key"),
            (json!({"type": "eq", "key": "a", "value": 1, "b": 1}), "filters.b"),
        ] {
            assert_eq!(parse(&filters).unwrap_err().param.as_deref(), Some(param), "{filters}");
        }
        assert!(parse(&deep).unwrap_err().message.contains("8 levels"));
        assert!(parse(&wide).unwrap_err().message.contains("128 conditions"));
    }
}
