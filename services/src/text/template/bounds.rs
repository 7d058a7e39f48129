//! What a template may make while it renders one conversation, in bytes: its output and all that it makes on the way.
//! The engine bounds steps and not memory, and one step can double a string or a list.
//!
//! Every value that grows is paid for from one purse, before it is made where a step can multiply and right after it
//! where a step can only add up what is there. Lists are made when they are asked for and not when they are read, since
//! lazy ones of lazy ones are read by recursion.

use crate::limits::TEMPLATE_BYTES_MAX;
use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// What an element of a list, or a value of its own, takes beside its characters.
const VALUE_BYTES: u64 = 32;
/// How deep values may be nested: as deep as a body's JSON may, and as much again for what a template adds.
const NESTED_MAX: u32 = 192;

/// What is left of the bytes.
struct Purse(u64);

/// Marks the error of a template that makes too much.
#[derive(Debug, thiserror::Error)]
#[error("too much")]
pub(super) struct Overrun;

/// Takes bytes from the purse.
pub(super) fn pay(state: &mut State<'_, '_>, bytes: u64) -> Result<(), Error> {
    let purse = state.get_or_insert_extension(Purse(TEMPLATE_BYTES_MAX));
    match purse.0.checked_sub(bytes) {
        Some(left) => purse.0 = left,
        None => return Err(Error::new(ErrorKind::InvalidOperation, "it makes too much").with_source(Overrun)),
    }
    Ok(())
}

/// Pays for all that a value shows, so that it can be written out, compared or taken into another.
pub(super) fn weigh(state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    weigh_nested(state, value, 0)
}

/// Pays for all that values show.
pub(super) fn weigh_all(state: &mut State<'_, '_>, values: &[Value]) -> Result<(), Error> {
    values.iter().try_for_each(|value| weigh(state, value))
}

fn weigh_nested(state: &mut State<'_, '_>, value: &Value, depth: u32) -> Result<(), Error> {
    pay(state, VALUE_BYTES + value.as_str().map_or(0, str::len) as u64)?;
    let listed = matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map);
    if !listed {
        return Ok(());
    }
    if depth == NESTED_MAX {
        let message = format!("values are nested more than {NESTED_MAX} times");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    for item in value.try_iter()? {
        if value.kind() == ValueKind::Map {
            let within = value.get_item(&item)?;
            check_holds_nothing(&within)?;
            weigh_nested(state, &within, depth + 1)?;
        }
        check_holds_nothing(&item)?;
        weigh_nested(state, &item, depth + 1)?;
    }
    Ok(())
}

/// The value that a step made, paid for; a lazy list is made now.
pub(super) fn kept(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => pay(state, VALUE_BYTES + value.as_str().map_or(0, str::len) as u64)?,
        ValueKind::Seq | ValueKind::Iterable => return listed(state, value),
        _ => {}
    }
    Ok(value)
}

fn listed(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    let made = value.downcast_object_ref::<Vec<Value>>().is_some() || value.downcast_object_ref::<Tuple>().is_some();
    // Before there are so many, where it is known how many there are.
    let known = value.len().map(|len| VALUE_BYTES.saturating_mul(len as u64));
    pay(state, known.unwrap_or(0))?;
    let mut items = Vec::new();
    for item in value.try_iter()?.checked() {
        let item = item?;
        check_holds_nothing(&item)?;
        if !made {
            pay(state, if known.is_none() { VALUE_BYTES } else { 0 })?;
            items.push(item);
        }
    }
    Ok(if made { value } else { Value::from(items) })
}

/// A tuple as a list, which is multiplied without making it at once.
pub(super) fn untupled(value: Value) -> Value {
    match value.downcast_object_ref::<Tuple>() {
        Some(tuple) => Value::from(tuple.iter().cloned().collect::<Vec<_>>()),
        None => value,
    }
}

/// Refuses what could come to hold itself: it would never be let go, or be walked for ever.
pub(super) fn check_holds_nothing(value: &Value) -> Result<(), Error> {
    if is_holder(value) {
        let message = "a namespace or a loop cannot be kept in another value";
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    Ok(())
}

/// Whether a value can be changed after it was made. The engine's types for that have no public name.
pub(super) fn is_holder(value: &Value) -> bool {
    let name = value.as_object().map_or("", |object| object.type_name());
    name.ends_with("::Namespace") || name.ends_with("::Loop")
}
