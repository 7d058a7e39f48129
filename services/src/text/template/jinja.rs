//! Filters and tests that answer as Jinja2 does in Python where the engine's own answer otherwise.

use super::bounds::{kept, weigh, weigh_all};
use super::filters::pay_format;
use super::python::{self, invalid};
use super::written::WrittenNumber;
use minijinja::value::{Kwargs, Rest, Tuple, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, State, Value, filters};

/// Adds these filters and tests. None of them makes more than it is given.
pub(super) fn add(environment: &mut Environment<'_>) {
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_filter("first", first);
    environment.add_filter("int", int);
    environment.add_filter("float", float);
    environment.add_test("number", is_number);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_sequence);
}

/// `len(value)`, which is 0 for a value that is not there.
fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    value.len().ok_or_else(|| invalid(format!("object of type {} has no length", value.kind())))
}

/// The first element, if there is one.
fn first(value: &Value) -> Result<Value, Error> {
    if value.is_undefined() { Ok(Value::UNDEFINED) } else { filters::first(value) }
}

/// The whole number that a value is or spells, else `default`.
fn int(value: &Value, default: Option<Value>, base: Option<u32>, kwargs: Kwargs) -> Result<Value, Error> {
    let default = default.or(kwargs.get("default")?).unwrap_or_else(|| Value::from(0));
    let base = base.or(kwargs.get("base")?).unwrap_or(10);
    kwargs.assert_all_used()?;
    if let Some(text) = value.as_str() {
        let spelled = python::parse_int(text, base).map(Value::from);
        return Ok(spelled.or_else(|| whole(python::parse_float(text)?)).unwrap_or(default));
    }
    Ok(match value.kind() {
        ValueKind::Bool => Value::from(i64::from(value.is_true())),
        ValueKind::Number if value.is_integer() => value.clone(),
        ValueKind::Number => f64::try_from(value.clone()).ok().and_then(whole).unwrap_or(default),
        _ => written(value).and_then(whole).unwrap_or(default),
    })
}

/// The number that a value is or spells, else `default`.
fn float(value: &Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let default = default.or(kwargs.get("default")?).unwrap_or_else(|| Value::from(0.0));
    kwargs.assert_all_used()?;
    let number = match (value.as_str(), value.kind()) {
        (Some(text), _) => python::parse_float(text),
        (None, ValueKind::Bool) => Some(if value.is_true() { 1.0 } else { 0.0 }),
        (None, ValueKind::Number) => f64::try_from(value.clone()).ok(),
        (None, _) => written(value),
    };
    Ok(number.map_or(default, Value::from))
}

fn whole(x: f64) -> Option<Value> {
    x.is_finite().then(|| Value::from(x as i128))
}

fn written(value: &Value) -> Option<f64> {
    WrittenNumber::of(value)?.to_string().parse().ok()
}

/// The test `number`, which holds for truth values too.
fn is_number(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Number | ValueKind::Bool) || WrittenNumber::of(value).is_some()
}

/// What has no elements cannot be iterated over, but a value that is not there can.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Whatever has a length and elements: strings and maps too.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map)
}

/// `left % right`: the remainder of numbers, and what a string's places are filled with.
pub(super) fn rem(state: &mut State<'_, '_>, left: Value, right: Value) -> Result<Value, Error> {
    if left.as_str().is_some() {
        let args = match right.downcast_object_ref::<Tuple>() {
            Some(tuple) => tuple.iter().cloned().collect(),
            None => vec![right],
        };
        return format(state, &[vec![left], args].concat());
    }
    let bit = |v: &Value| if v.kind() == ValueKind::Bool { Value::from(i64::from(v.is_true())) } else { v.clone() };
    let (left, right) = (bit(&left), bit(&right));
    if left.is_integer() && right.is_integer() {
        let (a, b) = (i128::try_from(left)?, i128::try_from(right)?);
        let rest = a.checked_rem(b).ok_or_else(|| invalid("modulo by zero"))?;
        return Ok(Value::from(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }));
    }
    let (a, b) = (f64::try_from(left)?, f64::try_from(right)?);
    if b == 0.0 {
        return Err(invalid("modulo by zero"));
    }
    let rest = a % b;
    Ok(Value::from(if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }))
}

/// The filter `format`: the places of a string, `%s` and the like, filled with values.
pub(super) fn format_filter(state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    format(state, &args.into_values())
}

/// Values are shown as Python shows them; numbers are left to their places, which may ask for a width.
fn format(state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
    pay_format(state, args)?;
    let shown = |v: &Value| match v.kind() {
        _ if v.is_kwargs() => v.clone(),
        ValueKind::Number | ValueKind::String => v.clone(),
        _ => Value::from(python::text(v)),
    };
    let args: Vec<Value> = args.iter().map(shown).collect();
    Value::from_function(filters::format).call(state, &args)
}

/// The filter `replace`: all places, or as many as are asked for.
pub(super) fn replace(state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = args.into_values();
    weigh_all(state, &args)?;
    let (text, from, to, most, kwargs): (&Value, &Value, &Value, Option<i64>, Kwargs) = from_args(&args)?;
    let most = most.or(kwargs.get("count")?).and_then(|n| usize::try_from(n).ok());
    kwargs.assert_all_used()?;
    super::filters::replaced(state, &python::text(text), &python::text(from), &python::text(to), most)
}

/// The filter `items`: pairs of a map, and none of a value that is not there.
pub(super) fn items(state: &mut State<'_, '_>, value: &Value) -> Result<Value, Error> {
    if value.is_undefined() {
        return Ok(Value::from(Vec::<Value>::new()));
    }
    weigh(state, value)?;
    let made = Value::from_function(filters::items).call(state, std::slice::from_ref(value))?;
    kept(state, made)
}
