//! Why a pipeline's file is not taken.

/// A mistake in a file: the key, the bound that it breaks, and what stands there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {message}")]
pub struct PipelineError {
    /// Name of the file.
    pub file: String,
    /// Names the key, says what was wanted and what came.
    pub message: String,
}
