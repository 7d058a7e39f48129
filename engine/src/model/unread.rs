//! What of a file nobody has read: the first such key or tensor is an error, unless it is known to change nothing.

use super::harmless::{self, Harmless};
use super::reader::Reader;
use crate::format::{KeyValue, Problem, ReadNames};

/// That every one of these unread keys changes nothing. `harmless` has names without `prefix`.
pub(crate) fn check_keys(unread: &[(String, KeyValue)], prefix: &str, harmless: &[Harmless]) -> Result<(), Problem> {
    unread.iter().try_for_each(|(key, value)| {
        let own = key.strip_prefix(prefix).unwrap_or(key);
        match harmless.iter().find(|(keys, ..)| keys.contains(&own)) {
            Some((_, allowed, _)) if allowed.includes(value) => Ok(()),
            Some((_, allowed, because)) => Err(Problem::key(key, format_args!("{allowed}: {because}"), value)),
            None => Err(Problem::key(key, "no such key: it is not known in this family", value)),
        }
    })
}

/// That every one of these tensors was read but for those that `excused` names.
pub(crate) fn check_tensors<'n>(
    names: impl IntoIterator<Item = &'n str>,
    read: &ReadNames,
    excused: impl Fn(&str) -> bool,
) -> Result<(), Problem> {
    let unread = |name: &&str| !read.has(name) && !excused(name) && harmless::tensor(name).is_none();
    match names.into_iter().filter(unread).min() {
        None => Ok(()),
        Some(name) => Err(Problem::tensor(name, "no such tensor: it is not known in this family", "one")),
    }
}

/// Whether every tensor of the draft head was read. One that changes what the head computes makes its guesses bad but
/// no answer wrong, so that the head is left out and the model is not refused.
pub(super) fn draft_is_whole(reader: Reader<'_>, is_draft: impl Fn(&str) -> bool) -> bool {
    let whole = check_tensors(reader.names(), reader.record(), |name| !is_draft(name));
    whole.inspect_err(|e| tracing::warn!("the draft head is left out: {e}")).is_ok()
}
