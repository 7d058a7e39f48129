//! The numbers of a schema, so that the library follows them.
//!
//! The library reads each number as a double, turns the ends of an integer range into `i64`, and negates them. A range
//! whose two ends become `i64::MIN` is its own negative there, and the library calls itself until the stack is full,
//! which ends the process (`rx_int_range` of llguidance 1.9.1). An integer that no double holds becomes another one. So
//! no number at or below -2^63 reaches the library, whatever it stands for: bounds that leave room are drawn in, values
//! that no double holds have stand-ins ([`ExactNumbers`]), and what could not be kept exactly is refused.

mod decimal;
mod exact;

pub(super) use exact::{ExactNumbers, held};

use super::check::FormError;
use super::schema::{HOLDS_NAMED, is_note};
use crate::limits::{GRAMMAR_COUNT_MAX, GRAMMAR_NUMBER_MAX};
use crate::text::template::written;
use decimal::Decimal;
use serde_json::{Map, Number, Value as Json, json};

/// From here on not every integer is a double, and a double and the next integer may be the same.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
/// A range of integers with fewer doubles in it is followed by its digits.
const NARROW: f64 = 65_536.0;

/// The schema with numbers that the library follows, and the numbers that have stand-ins in it. An error names the
/// keyword whose number cannot be followed.
pub(super) fn followed(schema: &Json, exact: &mut ExactNumbers) -> Result<Json, FormError> {
    under("schema", schema, exact)
}

/// What stands under a key that is no keyword about numbers.
fn under(key: &str, value: &Json, exact: &mut ExactNumbers) -> Result<Json, FormError> {
    match value {
        // Nobody reads it here, but a reference may make a schema of what stands around it.
        value if text(value).is_some() => match written::plain(value) {
            Json::Number(number) if double(&number) < -GRAMMAR_NUMBER_MAX => Err(beyond(key, &number.to_string())),
            other => Ok(other),
        },
        Json::Object(map) => of_object(map, exact),
        Json::Array(items) => items.iter().map(|item| under(key, item, exact)).collect(),
        other => Ok(other.clone()),
    }
}

fn of_object(schema: &Map<String, Json>, exact: &mut ExactNumbers) -> Result<Json, FormError> {
    if exact.wanted()
        && let Some(instead) = by_digits(schema, exact)?
    {
        return Ok(instead);
    }
    let mut out = Map::new();
    for (key, value) in schema {
        if let Some(value) = of_keyword(schema, key, value, exact)? {
            out.insert(key.clone(), value);
        }
    }
    Ok(Json::Object(out))
}

/// What stands for a schema whose numbers have to be followed by their digits; `None` for another schema.
fn by_digits(schema: &Map<String, Json>, exact: &mut ExactNumbers) -> Result<Option<Json>, FormError> {
    let around = |key: &str| is_note(key) || matches!(key, "$schema" | "$id" | "$defs" | "definitions");
    let alone = |says: &[&str]| schema.keys().all(|key| key == "type" || says.contains(&key.as_str()) || around(key));
    let instead = match (schema.get("const"), schema.get("enum")) {
        (Some(value), None) if alone(&["const"]) && has_inexact(value) => {
            Some(options(schema, std::slice::from_ref(value), exact))
        }
        (None, Some(Json::Array(values))) if alone(&["enum"]) && values.iter().any(has_inexact) => {
            Some(options(schema, values, exact))
        }
        (None, None) if alone(&["minimum", "maximum"]) => integers(schema, exact),
        _ => None,
    };
    let Some(Json::Object(mut instead)) = instead else { return Ok(instead) };
    for (key, value) in schema.iter().filter(|(key, _)| around(key)) {
        instead.extend(of_keyword(schema, key, value, exact)?.map(|value| (key.clone(), value)));
    }
    Ok(Some(Json::Object(instead)))
}

/// A schema of these values, as far as they are of its types.
fn options(schema: &Map<String, Json>, values: &[Json], exact: &mut ExactNumbers) -> Json {
    let of_types = |value: &&Json| match schema.get("type") {
        Some(Json::Array(kinds)) => kinds.iter().any(|kind| is_of(kind, value)),
        Some(kind) => is_of(kind, value),
        None => true,
    };
    let (digits, plain): (Vec<&Json>, Vec<&Json>) =
        values.iter().filter(of_types).partition(|value| has_inexact(value));
    let mut options: Vec<Json> = digits.into_iter().map(|value| constant(value, exact)).collect();
    if !plain.is_empty() {
        options.push(json!({"enum": plain}));
    }
    match options.len() {
        0 => Json::Bool(false),
        1 => options.remove(0),
        _ => json!({"anyOf": options}),
    }
}

/// Whether a value is of a type.
fn is_of(kind: &Json, value: &Json) -> bool {
    let integer = || text(value).and_then(|text| Decimal::read(&text)?.integer()).is_some();
    match (kind.as_str(), value) {
        (Some("number"), value) => text(value).is_some(),
        (Some("integer"), _) => integer(),
        (Some("string"), value) => value.is_string(),
        (Some("boolean"), value) => value.is_boolean(),
        (Some("null"), value) => value.is_null(),
        (Some("array"), value) => value.is_array(),
        (Some("object"), value) => written::is_object(value),
        _ => false,
    }
}

/// A schema of one value, some number in which has to be followed by its digits.
fn constant(value: &Json, exact: &mut ExactNumbers) -> Json {
    match (inexact(value), value) {
        (Some(text), _) => exact.constant(&text),
        (None, Json::Array(items)) if has_inexact(value) => {
            let items: Vec<Json> = items.iter().map(|item| constant(item, exact)).collect();
            let count = items.len();
            json!({"type": "array", "prefixItems": items, "items": false, "minItems": count, "maxItems": count})
        }
        (None, Json::Object(members)) if has_inexact(value) => {
            let names: Vec<&String> = members.keys().collect();
            let members: Map<String, Json> =
                members.iter().map(|(name, value)| (name.clone(), constant(value, exact))).collect();
            json!({"type": "object", "properties": members, "required": names, "additionalProperties": false})
        }
        (None, value) => json!({"const": value}),
    }
}

/// A schema of the integers between two bounds, where the doubles between them are too few.
fn integers(schema: &Map<String, Json>, exact: &mut ExactNumbers) -> Option<Json> {
    let [least, most] = ["minimum", "maximum"].map(|key| schema.get(key).map(|value| (key, value)));
    let says = |key: &str| schema.contains_key(key);
    if schema.get("type")? != "integer" || says("exclusiveMinimum") || says("exclusiveMaximum") || says("multipleOf") {
        return None;
    }
    let bounds: Vec<_> = least.into_iter().chain(most).collect();
    let decimals: Vec<Decimal> = bounds.iter().filter_map(|(_, value)| Decimal::read(&text(value)?)).collect();
    if decimals.len() != bounds.len() || !bounds.iter().any(|(_, value)| inexact(value).is_some()) {
        return None;
    }
    if let [least, most] = &decimals[..]
        && least > most
    {
        return Some(Json::Bool(false));
    }
    let narrow = bounds.len() == 2 && as_double(bounds[1].1) - as_double(bounds[0].1) < NARROW;
    let beyond = bounds.iter().any(|(key, value)| bound(schema, key, value).is_err());
    let mut decimals = decimals.iter();
    let (least, most) = (least.and_then(|_| decimals.next()), most.and_then(|_| decimals.next()));
    (narrow || beyond).then(|| exact.range(least, most)).flatten()
}

/// What a keyword is to hold; `None` where it says nothing that an answer could break.
fn of_keyword(
    schema: &Map<String, Json>,
    key: &str,
    value: &Json,
    exact: &mut ExactNumbers,
) -> Result<Option<Json>, FormError> {
    match (key, value) {
        ("minimum" | "exclusiveMinimum" | "maximum" | "exclusiveMaximum", value) if text(value).is_some() => {
            bound(schema, key, value).map(|bound| Some(Json::Number(bound)))
        }
        ("minLength" | "minItems" | "minProperties" | "maxLength" | "maxItems" | "maxProperties", Json::Number(n)) => {
            count(key, n)
        }
        ("const" | "enum", value) => exactly(key, value).map(|()| Some(value.clone())),
        // A name is no keyword; what stands under it is one's schema, or nothing that a reference may make one.
        (_, Json::Object(named)) if HOLDS_NAMED.contains(&key) => {
            let of_name = |(name, schema): (&String, &Json)| match schema {
                schema if written::is_object(schema) => Ok((name.clone(), followed(schema, exact)?)),
                other => exactly(key, other).map(|()| (name.clone(), other.clone())),
            };
            named.iter().map(of_name).collect::<Result<_, _>>().map(|named| Some(Json::Object(named)))
        }
        (key, value) => under(key, value, exact).map(Some),
    }
}

/// The end of a range, drawn in to a double that the library reads as the same number or one further in.
fn bound(schema: &Map<String, Json>, key: &str, value: &Json) -> Result<Number, FormError> {
    let lower = key.ends_with("inimum");
    let exclusive = key.starts_with("exclusive")
        || schema.get(if lower { "exclusiveMinimum" } else { "exclusiveMaximum" }) == Some(&Json::Bool(true));
    let written = text(value).unwrap_or_default();
    let limit = Decimal::read(&written).ok_or_else(|| beyond(key, &written))?;
    // Of a bound from above the mirror image is one from below.
    let sign = if lower { 1.0 } else { -1.0 };
    let mut bound = sign * as_double(value);
    while bound.abs() <= GRAMMAR_NUMBER_MAX && is_outside(sign * bound, &limit, lower) {
        bound = bound.next_up();
    }
    // Beside such a number the library would allow the number itself.
    if exclusive && bound.abs() >= EXACT_MAX {
        bound = bound.next_up();
    }
    if bound > GRAMMAR_NUMBER_MAX {
        return Err(beyond(key, &written));
    }
    let bound = sign * bound.max(-GRAMMAR_NUMBER_MAX);
    Ok(match value {
        Json::Number(number) if bound == double(number) => number.clone(),
        _ => Number::from_f64(bound).ok_or_else(|| beyond(key, &written))?,
    })
}

/// Whether a double that the library takes for a bound lies beyond it: as an integer, of which it takes the value.
fn is_outside(bound: f64, limit: &Decimal, lower: bool) -> bool {
    let read = if bound.abs() < EXACT_MAX { bound.to_string() } else { format!("{bound:.0}") };
    Decimal::read(&read).is_some_and(|read| if lower { read < *limit } else { read > *limit })
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
    match (inexact(value), value) {
        (Some(number), value) if as_double(value).abs() > GRAMMAR_NUMBER_MAX => Err(beyond(key, &number)),
        (Some(number), _) => Err(FormError {
            message: format!(
                "its `{key}` has the number {number}, and beside other keywords one is followed where a double holds it"
            ),
            too_large: true,
        }),
        (None, Json::Array(items)) => items.iter().try_for_each(|item| exactly(key, item)),
        (None, Json::Object(members)) => members.values().try_for_each(|member| exactly(key, member)),
        _ => Ok(()),
    }
}

fn beyond(key: &str, number: &str) -> FormError {
    let message = format!(
        "its `{key}` has the number {number}, and numbers are followed from -{GRAMMAR_NUMBER_MAX} to {GRAMMAR_NUMBER_MAX}"
    );
    FormError { message, too_large: true }
}

/// What a number says, as it was written where a value does not hold it.
fn text(value: &Json) -> Option<String> {
    match value {
        Json::Number(number) => Some(number.to_string()),
        Json::Object(map) => written::number(map).map(str::to_owned),
        _ => None,
    }
}

/// A number that the library would read as another one, or not at all.
fn inexact(value: &Json) -> Option<String> {
    match value {
        Json::Number(number) => {
            let other = integer(number).is_some_and(|integer| double(number) as i128 != integer);
            (other || double(number).abs() > GRAMMAR_NUMBER_MAX).then(|| number.to_string())
        }
        Json::Object(map) => written::number(map).map(str::to_owned),
        _ => None,
    }
}

fn has_inexact(value: &Json) -> bool {
    inexact(value).is_some()
        || match value {
            Json::Array(items) => items.iter().any(has_inexact),
            Json::Object(members) => members.values().any(has_inexact),
            _ => false,
        }
}

/// As the library reads it; infinite where it is beyond all doubles.
fn as_double(value: &Json) -> f64 {
    text(value).and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

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
        assert_eq!(followed(&schema, &mut ExactNumbers::default()).unwrap(), wanted, "{schema}");
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
            (json!({"const": i64::MIN, "minimum": -5}), "`const` has the number -9223372036854775808"),
            (json!({"const": -i64::MAX, "multipleOf": 1}), "`const`"),
            (json!({"enum": [1, wrapped(json!(i64::MIN))], "minItems": 1}), "`enum`"),
            (json!({"const": 9_007_199_254_740_993_i64, "enum": [1]}), "`const` has the number 9007199254740993"),
            (json!({"const": 1e300, "minimum": 1}), "`const` has the number 1e+300"),
            (json!({"minimum": -1e19, "maximum": -1e19}), "`maximum` has the number -1e+19"),
            (json!({"maximum": i64::MIN, "exclusiveMinimum": -1e100}), "`maximum`"),
            (json!({"exclusiveMaximum": -9.3e18}), "`exclusiveMaximum`"),
            (json!({"minimum": 1e19}), "`minimum`"),
            (json!({"minLength": 5_000_000_000_u64}), "`minLength` is 5000000000, at most 1000000000"),
            // What a reference could make a schema of, wherever it stands.
            (json!({"$defs": {"const": i64::MIN}}), "`$defs`"),
            (json!({"properties": {"const": {"a": i64::MIN}}}), "`a`"),
            (json!({"other": {"deep": [{"const": i64::MIN, "minimum": 0}]}}), "`const`"),
            (json!({"other": [i64::MIN]}), "`other`"),
        ] {
            let error = followed(&schema, &mut ExactNumbers::default()).expect_err(&schema.to_string());
            assert!(error.message.contains(names) && error.too_large, "{schema}: {error}");
        }
    }

    #[test]
    fn numbers_that_no_double_holds_have_stand_ins() {
        let read = |text: &str| held(&written::parse(text).unwrap());
        for text in [
            r#"{"const": 9007199254740993, "title": "x"}"#,
            r#"{"type": "integer", "enum": [-9223372036854775808, 12345678901234567890123]}"#,
            r#"{"const": {"a": [1, 0.1000000000000000055511]}}"#,
            r#"{"type": "integer", "minimum": 18446744073709551617}"#,
            r#"{"type": "integer", "minimum": 9007199254740993, "maximum": 9007199254740995}"#,
            r#"{"const": 1e400}"#,
        ] {
            let mut exact = ExactNumbers::default();
            let mut schema = followed(&read(text), &mut exact).expect(text);
            assert!(exact.define(&mut schema) && !exact.is_empty() && schema["$defs"].is_object(), "{schema}");
        }
        assert_eq!(read("[1e2, 1.50, -0, 1e-7]").to_string(), "[100.0,1.5,-0.0,1e-7]");
        assert!(read("[0.1000000000000000055511]")[0].is_object());
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
