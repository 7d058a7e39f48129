//! Why a configuration was refused.

/// Messages name the layer, the key, and what was wanted.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {why}")]
    Unreadable {
        /// Path of the configuration file.
        path: String,
        /// What was wrong, in the words of the system or the parser.
        why: String,
    },
    /// The file is not TOML.
    #[error("{path} is not TOML: {why}")]
    NotToml {
        /// Path of the configuration file.
        path: String,
        /// What was wrong, in the words of the system or the parser.
        why: String,
    },
    /// A key that no part of the configuration has.
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
        /// The key, with its section.
        key: String,
        /// What was wanted and what came.
        why: String,
    },
}
