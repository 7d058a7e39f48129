//! The numbers of a schema, so that the library follows them.
//!
//! The library reads each number as a double, turns the ends of an integer range into `i64`, and negates them. A range
//! whose two ends become `i64::MIN` is its own negative there, and the library calls itself until the stack is full,
//! which ends the process (`rx_int_range` of llguidance 1.9.1). An integer that no double holds becomes another one. So
//! no number at or below -2^63 reaches the library, whatever it stands for: bounds that leave room are drawn in, and
//! what could not be kept exactly is refused.

use super::check::FormError;
use super::schema::HOLDS_NAMED;
use crate::limits::{GRAMMAR_COUNT_MAX, GRAMMAR_NUMBER_MAX};
use serde_json::{Map, Number, Value as Json};

/// From here on not every integer is a double, and a double and the next integer may be the same.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// The schema with numbers that the library follows. An error names the keyword whose number cannot be followed.
pub(super) fn followed(schema: &Json) -> Result<Json, FormError> {
    under("schema", schema)
}

/// What stands under a key that is no keyword about numbers.
fn under(key: &str, value: &Json) -> Result<Json, FormError> {
    match value {
        Json::Object(map) => of_object(map).map(Json::Object),
        Json::Array(items) => items.iter().map(|item| under(key, item)).collect(),
        // Nobody reads it here, but a reference may make a schema of what stands around it.
        Json::Number(number) if double(number) < -GRAMMAR_NUMBER_MAX => Err(beyond(key, number)),
        other => Ok(other.clone()),
    }
}

fn of_object(schema: &Map<String, Json>) -> Result<Map<String, Json>, FormError> {
    let mut out = Map::new();
    for (key, value) in schema {
        if let Some(value) = of_keyword(schema, key, value)? {
            out.insert(key.clone(), value);
        }
    }
    Ok(out)
}

/// What a keyword is to hold; `None` where it says nothing that an answer could break.
fn of_keyword(schema: &Map<String, Json>, key: &str, value: &Json) -> Result<Option<Json>, FormError> {
    match (key, value) {
        ("minimum" | "exclusiveMinimum" | "maximum" | "exclusiveMaximum", Json::Number(number)) => {
            bound(schema, key, number).map(|bound| Some(Json::Number(bound)))
        }
        ("minLength" | "minItems" | "minProperties" | "maxLength" | "maxItems" | "maxProperties", Json::Number(n)) => {
            count(key, n)
        }
        ("const" | "enum", value) => exactly(key, value).map(|()| Some(value.clone())),
        // A name is no keyword; what stands under it is one's schema, or nothing that a reference may make one.
        (_, Json::Object(named)) if HOLDS_NAMED.contains(&key) => {
            let of_name = |(name, schema): (&String, &Json)| match schema {
                Json::Object(_) => Ok((name.clone(), followed(schema)?)),
                other => exactly(key, other).map(|()| (name.clone(), other.clone())),
            };
            named.iter().map(of_name).collect::<Result<_, _>>().map(|named| Some(Json::Object(named)))
        }
        (key, value) => under(key, value).map(Some),
    }
}

/// The end of a range, drawn in to a double that the library reads as the same number or one further in.
fn bound(schema: &Map<String, Json>, key: &str, number: &Number) -> Result<Number, FormError> {
    let lower = key.ends_with("inimum");
    let exclusive = key.starts_with("exclusive")
        || schema.get(if lower { "exclusiveMinimum" } else { "exclusiveMaximum" }) == Some(&Json::Bool(true));
    // Of a bound from above the mirror image is one from below.
    let sign = if lower { 1.0 } else { -1.0 };
    let mut bound = sign * double(number);
    if integer(number).is_some_and(|integer| (bound as i128) < sign as i128 * integer) {
        bound = bound.next_up();
    }
    // Beside such a number the library would allow the number itself.
    if exclusive && bound.abs() >= EXACT_MAX {
        bound = bound.next_up();
    }
    if bound > GRAMMAR_NUMBER_MAX {
        return Err(beyond(key, number));
    }
    let bound = sign * bound.max(-GRAMMAR_NUMBER_MAX);
    Ok(if bound == double(number) { number.clone() } else { Number::from_f64(bound).unwrap_or(number.clone()) })
}

/// How many there may be. More than any answer has are no bound from above.
fn count(key: &str, number: &Number) -> Result<Option<Json>, FormError> {
    match number.as_u64() {
        Some(count) if count > GRAMMAR_COUNT_MAX && key.starts_with("max") => Ok(None),
        Some(count) if count > GRAMMAR_COUNT_MAX => Err(FormError {
            message: format!("its `{key}` is {count}, at most {GRAMMAR_COUNT_MAX} is taken"),
            too_large: true,
        }),
        _ => Ok(Some(Json::Number(number.clone()))),
    }
}

/// Whether all numbers of a value come out as they are.
fn exactly(key: &str, value: &Json) -> Result<(), FormError> {
    match value {
        Json::Number(number) if double(number).abs() > GRAMMAR_NUMBER_MAX => Err(beyond(key, number)),
        Json::Number(number) => match integer(number) {
            Some(integer) if double(number) as i128 != integer => Err(FormError {
                message: format!(
                    "its `{key}` has the integer {number}, and integers above 2^53 are followed only where a double holds them"
                ),
                too_large: true,
            }),
            _ => Ok(()),
        },
        Json::Array(items) => items.iter().try_for_each(|item| exactly(key, item)),
        Json::Object(members) => members.values().try_for_each(|member| exactly(key, member)),
        _ => Ok(()),
    }
}

fn beyond(key: &str, number: &Number) -> FormError {
    let message = format!(
        "its `{key}` has the number {number}, and numbers are followed from -{GRAMMAR_NUMBER_MAX} to {GRAMMAR_NUMBER_MAX}"
    );
    FormError { message, too_large: true }
}

/// As the library reads it.
fn double(number: &Number) -> f64 {
    number.as_f64().unwrap_or(f64::NAN)
}

/// What an integer is, of which a double may be another one.
fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn becomes(schema: Json, wanted: Json) {
        assert_eq!(followed(&schema).unwrap(), wanted, "{schema}");
    }

    #[test]
    fn bounds_that_leave_room_are_drawn_in_to_doubles_that_the_library_can_negate() {
        let most = 9_223_372_036_854_774_784.0;
        becomes(json!({"minimum": i64::MIN, "maximum": i64::MAX}), json!({"minimum": -most, "maximum": most}));
        becomes(
            json!({"exclusiveMinimum": -1e100, "maximum": u64::MAX}),
            json!({"exclusiveMinimum": -most, "maximum": most}),
        );
        becomes(json!({"minimum": f64::MIN, "maximum": f64::MAX}), json!({"minimum": -most, "maximum": most}));
        becomes(json!({"minimum": -5, "maximum": 1e6}), json!({"minimum": -5, "maximum": 1e6}));
    }

    #[test]
    fn a_bound_that_no_double_holds_moves_inwards_and_so_does_an_exclusive_one_beside_which_none_lies() {
        let above = 9_007_199_254_740_993_i64;
        becomes(json!({"minimum": above}), json!({"minimum": 9_007_199_254_740_994.0}));
        becomes(json!({"maximum": above}), json!({"maximum": above}));
        becomes(json!({"maximum": -above}), json!({"maximum": -9_007_199_254_740_994.0}));
        becomes(json!({"minimum": -above}), json!({"minimum": -above}));
        becomes(json!({"exclusiveMinimum": above - 1}), json!({"exclusiveMinimum": 9_007_199_254_740_994.0}));
        becomes(json!({"exclusiveMaximum": above - 1}), json!({"exclusiveMaximum": 9_007_199_254_740_991.0}));
        becomes(
            json!({"minimum": above - 1, "exclusiveMinimum": true}),
            json!({"minimum": 9_007_199_254_740_994.0, "exclusiveMinimum": true}),
        );
        becomes(json!({"exclusiveMinimum": 0.5}), json!({"exclusiveMinimum": 0.5}));
    }

    #[test]
    fn what_cannot_be_kept_exactly_is_refused_by_its_keyword() {
        let wrapped = |value: Json| json!({"a": [{"b": value}]});
        for (schema, names) in [
            (json!({"const": i64::MIN}), "`const` has the number -9223372036854775808"),
            (json!({"const": -i64::MAX}), "`const`"),
            (json!({"enum": [1, wrapped(json!(i64::MIN))]}), "`enum`"),
            (json!({"const": 9_007_199_254_740_993_i64}), "`const` has the integer 9007199254740993"),
            (json!({"const": 1e300}), "`const` has the number 1e+300"),
            (json!({"minimum": -1e19, "maximum": -1e19}), "`maximum` has the number -1e+19"),
            (json!({"maximum": i64::MIN, "exclusiveMinimum": -1e100}), "`maximum`"),
            (json!({"exclusiveMaximum": -9.3e18}), "`exclusiveMaximum`"),
            (json!({"minimum": 1e19}), "`minimum`"),
            (json!({"minLength": 5_000_000_000_u64}), "`minLength` is 5000000000, at most 1000000000"),
            // What a reference could make a schema of, wherever it stands.
            (json!({"$defs": {"const": i64::MIN}}), "`$defs`"),
            (json!({"properties": {"const": {"a": i64::MIN}}}), "`a`"),
            (json!({"other": {"deep": [{"const": i64::MIN}]}}), "`const`"),
            (json!({"other": [i64::MIN]}), "`other`"),
        ] {
            let error = followed(&schema).expect_err(&schema.to_string());
            assert!(error.message.contains(names) && error.too_large, "{schema}: {error}");
        }
    }

    #[test]
    fn names_and_notes_are_no_keywords_and_numbers_that_a_double_holds_stay() {
        for schema in [
            json!({"properties": {"const": {"type": "integer"}, "minimum": {"type": "string"}, "enum": true}}),
            json!({"const": {"minimum": -3, "id": 4_611_686_018_427_387_904_i64}, "default": u64::MAX}),
            json!({"enum": [1.5, 0, -0.0, "x", 9_007_199_254_740_992_i64]}),
            json!({"items": {"minLength": 3, "maxLength": 1_000_000_000}, "multipleOf": 0.25, "example": 1e300}),
        ] {
            becomes(schema.clone(), schema);
        }
        becomes(json!({"maxLength": u64::MAX, "maxItems": 9e18 as u64, "minItems": 1}), json!({"minItems": 1}));
    }
}
