//! What pipelines and their steps may be called.

/// Whether this can be a pipeline's name: a model's name that every client can send and every file system keep.
pub(super) fn is_pipeline_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    (1..=64).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.')
}

/// Whether this can be a step's name, which stands between braces and in labels of metrics.
pub(super) fn is_step_name(name: &str) -> bool {
    (1..=32).contains(&name.len()) && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
