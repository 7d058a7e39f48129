//! The `tojson` filter as Hugging Face's tools define it: `json.dumps` with its arguments.

use super::python::{float, invalid, text};
use super::written::WrittenNumber;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, Value};
use std::fmt::Write;

/// Characters of an indent, for each level of each line.
const INDENT_MAX: usize = 16;

/// How a value is written.
struct JsonStyle {
    /// Stands before each element of a line of its own, once for each level.
    indent: Option<String>,
    between: String,
    after_key: String,
    ascii: bool,
    sorted: bool,
}

impl JsonStyle {
    fn new(ascii: Option<Value>, kwargs: &Kwargs) -> Result<Self, Error> {
        let ascii = ascii.or(kwargs.get("ensure_ascii")?);
        let indent = indent(kwargs.get("indent")?)?;
        let separators: Option<Value> = kwargs.get("separators")?;
        let sorted: Option<Value> = kwargs.get("sort_keys")?;
        kwargs.assert_all_used()?;
        let [between, after_key] = match separators.filter(|v| !v.is_none()) {
            None => [if indent.is_some() { "," } else { ", " }, ": "].map(str::to_owned),
            Some(pair) => {
                let pair = pair.try_iter()?.map(|v| v.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
                let pair = pair.and_then(|pair| <[String; 2]>::try_from(pair).ok());
                pair.ok_or_else(|| invalid("tojson takes separators of two strings"))?
            }
        };
        if between.len().max(after_key.len()) > INDENT_MAX {
            return Err(invalid(format!("tojson takes separators of at most {INDENT_MAX} bytes")));
        }
        let is_true = |v: Option<Value>| v.is_some_and(|v| v.is_true());
        Ok(Self { indent, between, after_key, ascii: is_true(ascii), sorted: is_true(sorted) })
    }

    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => write!(out, "{value}")?,
            ValueKind::Number => out.push_str(&number(f64::try_from(value.clone())?)),
            ValueKind::String => self.write_string(value.as_str().unwrap_or_default(), out)?,
            ValueKind::Seq | ValueKind::Iterable => {
                self.write_all(['[', ']'], value.try_iter()?, depth, out, |item, out| {
                    self.write(&item, depth + 1, out)
                })?;
            }
            ValueKind::Map => {
                let mut keys = value.try_iter()?.collect::<Vec<_>>();
                if self.sorted {
                    keys.sort();
                }
                self.write_all(['{', '}'], keys.into_iter(), depth, out, |key, out| {
                    self.write_string(&key_text(&key), out)?;
                    out.push_str(&self.after_key);
                    self.write(&value.get_item(&key)?, depth + 1, out)
                })?;
            }
            ValueKind::Plain if let Some(number) = WrittenNumber::of(value) => write!(out, "{number}")?,
            other => return Err(invalid(format!("{other} is not JSON serializable"))),
        }
        Ok(())
    }

    /// Elements between brackets: `[1, 2]`, or one a line when indented.
    fn write_all(
        &self,
        [open, close]: [char; 2],
        elements: impl Iterator<Item = Value>,
        depth: usize,
        out: &mut String,
        mut write_one: impl FnMut(Value, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let line = |out: &mut String, depth: usize| {
            if let Some(indent) = &self.indent {
                out.push('\n');
                out.extend(std::iter::repeat_n(indent.as_str(), depth));
            }
        };
        out.push(open);
        let mut any = false;
        for element in elements {
            if any {
                out.push_str(&self.between);
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

    fn write_string(&self, text: &str, out: &mut String) -> Result<(), Error> {
        let json = serde_json::to_string(text).map_err(|e| invalid(e.to_string()))?;
        if !self.ascii {
            out.push_str(&json);
            return Ok(());
        }
        for c in json.chars() {
            if c.is_ascii() {
                out.push(c);
            } else {
                c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))?;
            }
        }
        Ok(())
    }
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(value: &Value, ascii: Option<Value>, kwargs: &Kwargs) -> Result<Value, Error> {
    let style = JsonStyle::new(ascii, kwargs)?;
    let mut out = String::new();
    style.write(value, 0, &mut out)?;
    Ok(Value::from(out))
}

/// An indent is a count of blanks or the text itself.
fn indent(given: Option<Value>) -> Result<Option<String>, Error> {
    let Some(given) = given.filter(|v| !v.is_none()) else { return Ok(None) };
    let text = match given.as_str() {
        Some(text) => text.to_owned(),
        None => {
            let width = given.as_i64().ok_or_else(|| invalid("tojson takes an indent that is a number or a string"))?;
            " ".repeat(usize::try_from(width).unwrap_or(0).min(INDENT_MAX + 1))
        }
    };
    if text.len() > INDENT_MAX {
        return Err(invalid(format!("tojson takes an indent of at most {INDENT_MAX}, got {given}")));
    }
    Ok(Some(text))
}

fn number(x: f64) -> String {
    match x {
        x if x.is_nan() => "NaN".into(),
        x if x.is_infinite() => if x > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        x => float(x),
    }
}

/// Keys of JSON are strings, so others are written as JSON first.
fn key_text(key: &Value) -> String {
    match key.kind() {
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.into(),
        ValueKind::None => "null".into(),
        _ => text(key),
    }
}
