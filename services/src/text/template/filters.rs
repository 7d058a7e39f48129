//! Filters, functions and methods of templates: the engine's own, each paid for before it runs, and those of ours.

use super::bounds::{check_holds_nothing, is_holder, kept, pay, untupled, weigh, weigh_all};
use super::{jinja, json, methods, python};
use minijinja::value::{Kwargs, Rest, Tuple, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters, functions};

/// Names that no template can write, for the checks between its steps.
pub(super) const KEPT: &str = "~kept";
pub(super) const MADE: &str = "~made";
pub(super) const TEXT: &str = "~text";
pub(super) const LISTED: &str = "~listed";
pub(super) const HELD: &str = "~held";
pub(super) const METHOD: &str = "~method";
pub(super) const REM: &str = "~rem";
pub(super) const SLICED: &str = "~sliced";

/// Puts the engine's filters and functions behind what they cost: all that they are given, before, and what they made,
/// after. So what one makes must be no more than a few times what it is given.
macro_rules! paid {
    ($environment:ident.$add:ident: $($name:literal = $function:expr),* $(,)?) => {$(
        $environment.$add($name, |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            weigh_all(state, &args)?;
            let made = Value::from_function($function).call(state, &args)?;
            kept(state, made)
        });
    )*};
}

/// Makes all that templates may call. What is not here only looks at a value or picks a part of it.
pub(super) fn add(environment: &mut Environment<'_>) {
    paid!(environment.add_filter:
        "safe" = filters::safe, "escape" = filters::escape, "e" = filters::escape, "upper" = filters::upper,
        "lower" = filters::lower, "title" = filters::title, "capitalize" = filters::capitalize,
        "dictsort" = filters::dictsort, "reverse" = filters::reverse,
        "split" = filters::split, "lines" = filters::lines, "sum" = filters::sum, "min" = filters::min,
        "max" = filters::max, "sort" = filters::sort, "list" = filters::list, "slice" = filters::slice,
        "batch" = filters::batch, "select" = filters::select, "reject" = filters::reject,
        "selectattr" = filters::selectattr, "rejectattr" = filters::rejectattr, "map" = filters::map,
        "groupby" = filters::groupby, "unique" = filters::unique, "chain" = filters::chain, "zip" = filters::zip,
    );
    paid!(environment.add_function: "dict" = functions::dict, "namespace" = functions::namespace);
    environment.add_filter("tojson", tojson);
    environment.add_filter("trim", trim);
    environment.add_filter("string", text);
    environment.add_filter("replace", jinja::replace);
    environment.add_filter("items", jinja::items);
    environment.add_filter("join", join_filter);
    environment.add_filter("indent", |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
        let args = args.into_values();
        weigh_all(state, &args)?;
        pay_indent(state, &args)?;
        Value::from_function(filters::indent).call(state, &args)
    });
    environment.add_filter("format", jinja::format_filter);
    jinja::add(environment);
    // For those who write a template, and as large as all that there is.
    environment.remove_filter("pprint");
    environment.remove_global("debug");
    environment.add_filter(KEPT, |state: &mut State<'_, '_>, value: Value| kept(state, value));
    environment.add_filter(MADE, |state: &mut State<'_, '_>, value: Value| weigh(state, &value).map(|()| value));
    environment.add_filter(TEXT, text);
    environment.add_filter(LISTED, |value: Value| untupled(value));
    environment.add_filter(HELD, |value: Value| check_holds_nothing(&value).map(|()| value));
    environment.add_filter(METHOD, method);
    environment.add_filter(REM, jinja::rem);
    environment.add_filter(SLICED, sliced);
}

/// `value[start:stop:step]`, as Python takes it; nothing of nothing.
fn sliced(state: &mut State<'_, '_>, value: Value, start: Value, stop: Value, step: Value) -> Result<Value, Error> {
    let bound = |v: Value| if v.is_none() { Ok(None) } else { i64::try_from(v).map(Some) };
    let (start, stop, step) = (bound(start)?, bound(stop)?, bound(step)?.unwrap_or(1));
    if step == 0 {
        return Err(Error::new(ErrorKind::InvalidOperation, "cannot slice by step size of 0"));
    }
    let made = match (value.kind(), value.as_str()) {
        (_, Some(text)) => {
            Value::from(python::slice(&text.chars().collect::<Vec<_>>(), start, stop, step).collect::<String>())
        }
        (ValueKind::Undefined | ValueKind::None, _) => Value::from(Vec::<Value>::new()),
        (ValueKind::Seq | ValueKind::Iterable, _) => {
            let items = value.try_iter()?.collect::<Vec<_>>();
            let taken = python::slice(&items, start, stop, step).collect::<Vec<_>>();
            let tuple = value.downcast_object_ref::<Tuple>().is_some();
            if tuple { Value::from(Tuple::from(taken)) } else { Value::from(taken) }
        }
        (kind, _) => {
            return Err(Error::new(ErrorKind::InvalidOperation, format!("value of type {kind} cannot be sliced")));
        }
    };
    kept(state, made)
}

/// What Python's `str(value)` gives.
fn text(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::String {
        return Ok(value);
    }
    weigh(state, &value)?;
    Ok(Value::from(python::text(&value)))
}

fn tojson(state: &mut State<'_, '_>, value: &Value, ascii: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    weigh(state, value)?;
    json::tojson(value, ascii, &kwargs)
}

fn trim(state: &mut State<'_, '_>, value: &Value, chars: Option<String>) -> Result<String, Error> {
    weigh(state, value)?;
    Ok(python::trim(value, chars))
}

/// Pays for what comes out, since each place may become longer.
pub(super) fn replaced(
    state: &mut State<'_, '_>,
    text: &str,
    from: &str,
    to: &str,
    most: Option<usize>,
) -> Result<Value, Error> {
    let most = most.unwrap_or(usize::MAX);
    let count = text.matches(from).take(most).count() as u64;
    pay(state, (text.len() as u64).saturating_add(count.saturating_mul(to.len() as u64)))?;
    Ok(Value::from(text.replacen(from, to, most)))
}

fn join_filter(
    state: &mut State<'_, '_>,
    value: &Value,
    between: Option<String>,
    attribute: Option<String>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let between = between.or(kwargs.get("d")?).unwrap_or_default();
    let attribute = attribute.or(kwargs.get("attribute")?);
    kwargs.assert_all_used()?;
    let all = match attribute {
        None => value.clone(),
        Some(name) => {
            state.apply_filter("map", &[value.clone(), Kwargs::from_iter([("attribute", name.into())]).into()])?
        }
    };
    join(state, &between, &all)
}

fn join(state: &mut State<'_, '_>, between: &str, values: &Value) -> Result<Value, Error> {
    let mut out = String::new();
    for (i, value) in values.try_iter()?.checked().enumerate() {
        let value = value?;
        weigh(state, &value)?;
        if i > 0 {
            pay(state, between.len() as u64)?;
            out.push_str(between);
        }
        out.push_str(&python::text(&value));
    }
    Ok(Value::from(out))
}

/// Every line may become longer by the width, and the blanks are there once where there is no text at all.
fn pay_indent(state: &mut State<'_, '_>, args: &[Value]) -> Result<(), Error> {
    let lines = args.first().and_then(Value::as_str).map_or(1, |text| text.split('\n').count() as u64);
    let named = args.last().filter(|last| last.is_kwargs()).and_then(|kwargs| kwargs.get_attr("width").ok());
    let width = named.iter().chain(args.get(1)).filter_map(Value::as_usize).max().unwrap_or(4);
    pay(state, lines.saturating_add(1).saturating_mul(width as u64))
}

/// Each place may show each argument, as wide as the largest number that stands in the text or is given.
pub(super) fn pay_format(state: &mut State<'_, '_>, args: &[Value]) -> Result<(), Error> {
    weigh_all(state, args)?;
    let Some(text) = args.first().and_then(Value::as_str) else { return Ok(()) };
    let places = text.matches(['%', '{']).count();
    let widths = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let written = widths.map(|digits| digits.parse().unwrap_or(u64::MAX));
    let given = args.iter().filter_map(Value::as_i64).map(i64::unsigned_abs);
    pay(state, (places as u64).saturating_mul(written.chain(given).max().unwrap_or(0)))?;
    (1..places).try_for_each(|_| weigh_all(state, args))
}

/// Calls a method: the value, its arguments, and last the method's name.
fn method(state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = args.into_values();
    let [value, args @ .., name] = args.as_slice() else { unreachable!("a method has a value and a name") };
    let name = name.as_str().unwrap_or_default();
    if is_holder(value) {
        args.iter().try_for_each(check_holds_nothing)?;
        if name == "cycle" && args.is_empty() {
            return Err(Error::new(ErrorKind::MissingArgument, "loop.cycle takes at least one value"));
        }
    }
    let made = match (value.as_str(), name, args) {
        (Some(text), "replace", [from, to, rest @ ..]) => {
            let most = rest.first().and_then(Value::as_i64).and_then(|n| usize::try_from(n).ok());
            weigh_all(state, &[from.clone(), to.clone()])?;
            return replaced(state, text, &python::text(from), &python::text(to), most);
        }
        (Some(between), "join", [values]) => return join(state, between, values),
        (Some(_), "format", _) => {
            pay_format(state, &[std::slice::from_ref(value), args].concat())?;
            methods::str_format(state, value, args)?
        }
        (Some(text), ..) => {
            // In other letters it may be three times as long.
            pay(state, 3 * text.len() as u64)?;
            value.call_method(state, name, args)?
        }
        _ => value.call_method(state, name, args)?,
    };
    kept(state, made)
}
