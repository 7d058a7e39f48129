//! What sections check their values with.

use crate::limits;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// A key of a section, and what is wrong with its value.
pub(super) type InvalidKey = (&'static str, String);

pub(super) fn not_zero(key: &'static str, got: u64) -> Result<(), InvalidKey> {
    if got == 0 { Err((key, "must be at least 1, got 0".into())) } else { Ok(()) }
}

pub(super) fn within<T: PartialOrd + Display>(
    key: &'static str,
    got: T,
    range: RangeInclusive<T>,
) -> Result<(), InvalidKey> {
    if range.contains(&got) {
        return Ok(());
    }
    Err((key, format!("must lie between {} and {}, got {got}", range.start(), range.end())))
}

/// A time to wait, which is never none.
pub(super) fn seconds(key: &'static str, got: u64) -> Result<(), InvalidKey> {
    within(key, got, 1..=limits::SECONDS_MAX)
}

pub(super) fn threads(key: &'static str, got: u32) -> Result<(), InvalidKey> {
    if got <= limits::THREADS_MAX {
        Ok(())
    } else {
        Err((key, format!("must be at most {}, got {got}", limits::THREADS_MAX)))
    }
}
