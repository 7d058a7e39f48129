//! What steps of pipelines may be called.

/// Whether this can be a step's name, which stands between braces and in labels of metrics.
pub(super) fn is_step_name(name: &str) -> bool {
    (1..=32).contains(&name.len()) && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
