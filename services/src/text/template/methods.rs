//! Methods that Python's strings, lists and maps have.

use super::python::{invalid, is_blank, text};
use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Error, State, Value};
use minijinja_contrib::pycompat;

/// Calls a method by its name. What is not here is the engine's, whose answers are Python's.
pub(super) fn method(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let own = match (value.as_str(), value.kind()) {
        (Some(text), _) => of_string(text, name, args)?,
        (None, ValueKind::Seq) => of_list(value, name, args)?,
        (None, ValueKind::Map) => of_map(value, name, args)?,
        _ => None,
    };
    own.map_or_else(|| pycompat::unknown_method_callback(state, value, name, args), Ok)
}

fn of_string(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let stripped = |text: &str| Ok(Some(Value::from(text)));
    // Nothing given and `None` ask for blanks.
    let blanks = args.iter().all(Value::is_none);
    match name {
        "strip" if blanks => stripped(text.trim_matches(is_blank)),
        "lstrip" if blanks => stripped(text.trim_start_matches(is_blank)),
        "rstrip" if blanks => stripped(text.trim_end_matches(is_blank)),
        "removeprefix" => {
            from_args(args).map(|(affix,): (&str,)| Some(text.strip_prefix(affix).unwrap_or(text).into()))
        }
        "removesuffix" => {
            from_args(args).map(|(affix,): (&str,)| Some(text.strip_suffix(affix).unwrap_or(text).into()))
        }
        "split" | "rsplit" => split(text, name == "rsplit", args).map(Some),
        "splitlines" => splitlines(text, args).map(Some),
        "partition" | "rpartition" => partition(text, name == "rpartition", args).map(Some),
        "startswith" | "endswith" if args.len() > 1 => affixed_within(text, name, args).map(Some),
        "index" | "rindex" => {
            let (part,): (&str,) = from_args(args)?;
            let at = if name == "index" { text.find(part) } else { text.rfind(part) };
            let at = at.ok_or_else(|| invalid("substring not found"))?;
            Ok(Some(Value::from(text[..at].chars().count())))
        }
        "casefold" => Ok(Some(text.to_lowercase().into())),
        "swapcase" => {
            let swapped =
                |c: char| if c.is_lowercase() { c.to_uppercase().to_string() } else { c.to_lowercase().to_string() };
            Ok(Some(text.chars().map(swapped).collect::<String>().into()))
        }
        "isspace" => Ok(Some((!text.is_empty() && text.chars().all(is_blank)).into())),
        "isdecimal" | "isdigit" => Ok(Some((!text.is_empty() && text.chars().all(|c| c.is_ascii_digit())).into())),
        _ => Ok(None),
    }
}

/// Positional and named arguments of `split`: the separator, and how often to split at most.
fn split_args(args: &[Value]) -> Result<(Option<String>, Option<usize>), Error> {
    let (separator, most, kwargs): (Option<Value>, Option<Value>, Kwargs) = from_args(args)?;
    let separator = separator.or(kwargs.get("sep")?).filter(|v| !v.is_none());
    let most = most.or(kwargs.get("maxsplit")?);
    kwargs.assert_all_used()?;
    let separator = separator.map(|v| v.as_str().map(str::to_owned).ok_or_else(|| invalid("must be str or None")));
    let separator = separator.transpose()?;
    if separator.as_deref() == Some("") {
        return Err(invalid("empty separator"));
    }
    Ok((separator, most.and_then(|n| n.as_i64()).and_then(|n| usize::try_from(n).ok())))
}

fn split(text: &str, from_end: bool, args: &[Value]) -> Result<Value, Error> {
    let (separator, most) = split_args(args)?;
    let parts: Vec<&str> = match (separator.as_deref(), most.map(|n| n.saturating_add(1)), from_end) {
        (Some(separator), None, _) => text.split(separator).collect(),
        (Some(separator), Some(n), false) => text.splitn(n, separator).collect(),
        (Some(separator), Some(n), true) => {
            let mut parts: Vec<&str> = text.rsplitn(n, separator).collect();
            parts.reverse();
            parts
        }
        (None, n, from_end) => words(text, n.unwrap_or(usize::MAX), from_end),
    };
    Ok(Value::from(parts.into_iter().map(Value::from).collect::<Vec<_>>()))
}

/// Words between blanks; of more than `most` the last, or from the end the first, is all that is left.
fn words(text: &str, most: usize, from_end: bool) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = if from_end { text.trim_end_matches(is_blank) } else { text.trim_start_matches(is_blank) };
    while !rest.is_empty() {
        let cut = if from_end { rest.rfind(is_blank) } else { rest.find(is_blank) };
        let Some(at) = cut.filter(|_| words.len() + 1 < most) else {
            words.push(rest);
            break;
        };
        if from_end {
            let len = rest[at..].chars().next().map_or(1, char::len_utf8);
            words.push(&rest[at + len..]);
            rest = rest[..at].trim_end_matches(is_blank);
        } else {
            words.push(&rest[..at]);
            rest = rest[at..].trim_start_matches(is_blank);
        }
    }
    if from_end {
        words.reverse();
    }
    words
}

/// Lines, which end at each of the characters that Python takes for a line's end.
fn splitlines(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (keep, kwargs): (Option<bool>, Kwargs) = from_args(args)?;
    let keep = keep.or(kwargs.get("keepends")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    let ends =
        |c: char| matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let (mut lines, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find(ends) {
        let len = if rest[at..].starts_with("\r\n") { 2 } else { rest[at..].chars().next().map_or(1, char::len_utf8) };
        lines.push(Value::from(&rest[..if keep { at + len } else { at }]));
        rest = &rest[at + len..];
    }
    if !rest.is_empty() {
        lines.push(Value::from(rest));
    }
    Ok(Value::from(lines))
}

fn partition(text: &str, from_end: bool, args: &[Value]) -> Result<Value, Error> {
    let (separator,): (&str,) = from_args(args)?;
    let parts = match (if from_end { text.rsplit_once(separator) } else { text.split_once(separator) }, from_end) {
        (Some((before, after)), _) => [before, separator, after],
        (None, false) => [text, "", ""],
        (None, true) => ["", "", text],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

/// `startswith` and `endswith` of a part of the text.
fn affixed_within(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (affix, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
    let within: String = super::python::slice(&text.chars().collect::<Vec<_>>(), start, end, 1).collect();
    Ok(Value::from(if name == "startswith" { within.starts_with(affix) } else { within.ends_with(affix) }))
}

fn of_list(value: &Value, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    if name != "index" {
        return Ok(None);
    }
    let (wanted,): (&Value,) = from_args(args)?;
    let at = value.try_iter()?.position(|item| item == *wanted);
    at.map(|at| Some(Value::from(at))).ok_or_else(|| invalid(format!("{} is not in list", text(wanted))))
}

fn of_map(value: &Value, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    if name != "copy" {
        return Ok(None);
    }
    from_args::<()>(args)?;
    Ok(Some(value.clone()))
}

/// `text.format(...)`, whose places without a form of their own show values as Python shows them.
pub(super) fn str_format(state: &mut State<'_, '_>, value: &Value, args: &[Value]) -> Result<Value, Error> {
    let shown = |v: &Value| match v.kind() {
        ValueKind::Bool | ValueKind::None | ValueKind::Undefined => Value::from(text(v)),
        _ => v.clone(),
    };
    value.call_method(state, "format", &args.iter().map(shown).collect::<Vec<_>>())
}
