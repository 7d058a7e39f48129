//! Values written as Python writes them, because templates were made and models trained with Python's.

use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use std::borrow::Cow;

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
        ValueKind::Undefined => "Undefined".into(),
        ValueKind::Number if !value.is_integer() => {
            f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
        }
        ValueKind::Seq if let Some(tuple) = value.downcast_object_ref::<Tuple>() => {
            let only = if tuple.len() == 1 { "," } else { "" };
            format!("({}{only})", tuple.iter().map(repr).collect::<Vec<_>>().join(", "))
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
            '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", c as u32)),
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

/// The error of an operation on values that it is not for.
pub(super) fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Whether Python takes a character for a blank: those of Unicode and four separators of ASCII.
pub(super) fn is_blank(c: char) -> bool {
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

/// The whole number that Python's `int(text, base)` reads.
pub(super) fn parse_int(text: &str, base: u32) -> Option<i128> {
    let text = text.trim_matches(is_blank);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let prefix = [(2, "0b"), (8, "0o"), (16, "0x")].into_iter().find(|(own, _)| *own == base).map(|(_, p)| p);
    let bare = prefix.and_then(|prefix| digits.get(..2).filter(|start| start.eq_ignore_ascii_case(prefix)));
    let digits = without_underscores(if bare.is_some() { &digits[2..] } else { digits })?;
    let valid = (2..=36).contains(&base) && !digits.starts_with(['+', '-']);
    let number = i128::from_str_radix(&digits, base.clamp(2, 36)).ok().filter(|_| valid)?;
    Some(if negative { -number } else { number })
}

/// The number that Python's `float(text)` reads.
pub(super) fn parse_float(text: &str) -> Option<f64> {
    without_underscores(text.trim_matches(is_blank))?.parse().ok()
}

/// Underscores may stand between two digits alone.
fn without_underscores(text: &str) -> Option<String> {
    let misplaced = text.starts_with('_') || text.ends_with('_') || text.contains("__");
    (!misplaced).then(|| text.replace('_', ""))
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
