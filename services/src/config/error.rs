//! Why a configuration was refused.

/// Messages name the layer, the key, and what was wanted.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// The system's words.
        why: String,
    },
    /// The file is not TOML.
    #[error("{path} is not TOML: {why}")]
    NotToml {
        /// The file.
        path: String,
        /// The parser's words.
        why: String,
    },
    /// No such key.
    #[error("{origin}: no key {key}{}", nearest.as_ref().map(|n| format!(", did you mean {n}?")).unwrap_or_default())]
    UnknownKey {
        /// File or environment variable.
        origin: String,
        /// The key as written.
        key: String,
        /// The known key that reads most like it.
        nearest: Option<String>,
    },
    /// A value of the wrong type, or out of range.
    #[error("{origin}: {key} {why}")]
    BadValue {
        /// File, environment variable, or flags.
        origin: String,
        /// The key.
        key: String,
        /// What was wanted and what came.
        why: String,
    },
}
