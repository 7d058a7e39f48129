//! Values written as Python writes them, because templates were made and models trained with Python's.

use super::written::WrittenNumber;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;
use std::fmt::Write;

/// Blanks of an indent, for each level of each line.
const INDENT_MAX: usize = 16;

/// What Python's `str(value)` gives.
pub(super) fn text(value: &Value) -> String {
    match value.as_str() {
        Some(s) => s.to_owned(),
        None if value.is_undefined() => String::new(),
        None => repr(value),
    }
}

/// What Python's `repr(value)` gives.
fn repr(value: &Value) -> String {
    match value.kind() {
        ValueKind::String => quoted(value.as_str().unwrap_or_default()),
        ValueKind::Number if !value.is_integer() => {
            f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
        }
        ValueKind::Seq => format!("[{}]", items(value).map(|v| repr(&v)).collect::<Vec<_>>().join(", ")),
        ValueKind::Map => {
            let pairs =
                items(value).map(|k| format!("{}: {}", repr(&k), repr(&value.get_item(&k).unwrap_or_default())));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        _ => value.to_string(),
    }
}

/// Elements of a list, keys of a map.
fn items(value: &Value) -> impl Iterator<Item = Value> {
    value.try_iter().into_iter().flatten()
}

/// A string literal: in single quotes, unless only double ones spare escapes.
fn quoted(s: &str) -> String {
    let quote = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in s.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if c < ' ' || c == '\x7f' => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

/// `repr` of a float: the shortest digits that read back, in exponents from 1e16 up and below 1e-4.
pub(super) fn float(x: f64) -> String {
    if !x.is_finite() {
        return if x.is_nan() {
            "nan".into()
        } else if x > 0.0 {
            "inf".into()
        } else {
            "-inf".into()
        };
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').expect("`e` formatting writes an exponent");
    let exponent: i32 = exponent.parse().expect("and it is a small number");
    if (-4..16).contains(&exponent) {
        let plain = x.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// The `tojson` filter: `json.dumps(value, ensure_ascii=False, indent=indent)`.
pub(super) fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let ascii: Option<bool> = kwargs.get("ensure_ascii")?;
    kwargs.assert_all_used()?;
    if let Some(indent) = indent.filter(|indent| *indent > INDENT_MAX) {
        let message = format!("tojson takes an indent of at most {INDENT_MAX}, got {indent}");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    if ascii == Some(true) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson(ensure_ascii=true) is not supported"));
    }
    let mut out = String::new();
    write_json(value, indent, 0, &mut out)?;
    Ok(Value::from(out))
}

fn write_json(value: &Value, indent: Option<usize>, depth: usize, out: &mut String) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => write!(out, "{value}")?,
        ValueKind::Number => out.push_str(&float(f64::try_from(value.clone())?)),
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), out)?,
        ValueKind::Seq | ValueKind::Iterable => {
            write_all(['[', ']'], value.try_iter()?, indent, depth, out, |item, out| {
                write_json(&item, indent, depth + 1, out)
            })?;
        }
        ValueKind::Map => {
            write_all(['{', '}'], value.try_iter()?, indent, depth, out, |key, out| {
                write_string(&text(&key), out)?;
                out.push_str(": ");
                write_json(&value.get_item(&key)?, indent, depth + 1, out)
            })?;
        }
        ValueKind::Plain if let Some(number) = WrittenNumber::of(value) => write!(out, "{number}")?,
        other => return Err(Error::new(ErrorKind::InvalidOperation, format!("{other} is not JSON serializable"))),
    }
    Ok(())
}

/// Elements between brackets: `[1, 2]`, or one a line when indented.
fn write_all(
    [open, close]: [char; 2],
    elements: impl Iterator<Item = Value>,
    indent: Option<usize>,
    depth: usize,
    out: &mut String,
    mut write_one: impl FnMut(Value, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    let line = |out: &mut String, depth: usize| {
        if let Some(width) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', width * depth));
        }
    };
    out.push(open);
    let mut any = false;
    for element in elements {
        if any {
            out.push_str(if indent.is_some() { "," } else { ", " });
        }
        any = true;
        line(out, depth + 1);
        write_one(element, out)?;
    }
    if any {
        line(out, depth);
    }
    out.push(close);
    Ok(())
}

fn write_string(s: &str, out: &mut String) -> Result<(), Error> {
    let json = serde_json::to_string(s);
    out.push_str(&json.map_err(|e| Error::new(ErrorKind::InvalidOperation, e.to_string()))?);
    Ok(())
}

/// Whether Python takes a character for a blank: those of Unicode and four separators of ASCII.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// The `trim` filter: `str(value).strip(chars)`.
pub(super) fn trim(value: &Value, chars: Option<String>) -> String {
    let text = text(value);
    match chars {
        Some(chars) => text.trim_matches(|c| chars.contains(c)).to_owned(),
        None => text.trim_matches(is_blank).to_owned(),
    }
}

/// Methods that Python's values have. Those that strip blanks strip what Python takes for one.
pub(super) fn method(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match (value.as_str(), name, args) {
        (Some(text), "strip", []) => Ok(text.trim_matches(is_blank).into()),
        (Some(text), "lstrip", []) => Ok(text.trim_start_matches(is_blank).into()),
        (Some(text), "rstrip", []) => Ok(text.trim_end_matches(is_blank).into()),
        _ => pycompat::unknown_method_callback(state, value, name, args),
    }
}

/// The test `number`, which holds for truth values too.
pub(super) fn is_number(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Number | ValueKind::Bool) || WrittenNumber::of(value).is_some()
}

/// The items that Python's `items[start:stop:step]` takes; `step` is not 0.
pub(super) fn slice<T: Clone>(
    items: &[T],
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
) -> impl Iterator<Item = T> + use<'_, T> {
    let (len, step) = (items.len() as i128, i128::from(step));
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let place = |bound: i64| match i128::from(bound) {
        bound if bound < 0 => (bound + len).max(low),
        bound => bound.min(high),
    };
    let (first, last) = if step > 0 { (low, high) } else { (high, low) };
    let (first, last) = (start.map_or(first, place), stop.map_or(last, place));
    let within = move |at: &i128| if step > 0 { *at < last } else { *at > last };
    let places = std::iter::successors(Some(first), move |at| Some(at + step)).take_while(within);
    places.filter_map(|at| items.get(usize::try_from(at).ok()?).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_spelled_as_in_python() {
        let cases = [
            (1.0, "1.0"),
            (-0.5, "-0.5"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.2345e-5, "1.2345e-05"),
            (0.0001, "0.0001"),
            (1e300, "1e+300"),
            (0.1 + 0.2, "0.30000000000000004"),
            (f64::NAN, "nan"),
        ];
        for (x, spelled) in cases {
            assert_eq!(float(x), spelled);
        }
    }

    #[test]
    fn blanks_are_those_of_python() {
        assert_eq!(trim(&Value::from("\u{1c}\u{1d} a\u{85}b \u{1e}\u{1f}\u{a0}\n"), None), "a\u{85}b");
        assert_eq!(trim(&Value::from("\u{200b}a\u{feff}"), None), "\u{200b}a\u{feff}", "these are none");
        assert_eq!(trim(&Value::from("12a21"), Some("12".into())), "a");
    }

    #[test]
    fn values_are_spelled_as_in_python() {
        let list = Value::from(vec![
            Value::from("it's"),
            Value::from("a\"'\n"),
            Value::from(true),
            Value::from(()),
            Value::from(2),
        ]);
        assert_eq!(text(&list), r#"["it's", 'a"\'\n', True, None, 2]"#);
        assert_eq!(text(&Value::from_pairs([("k", list)])), r#"{'k': ["it's", 'a"\'\n', True, None, 2]}"#);
        assert_eq!(text(&Value::UNDEFINED), "");
    }
}
