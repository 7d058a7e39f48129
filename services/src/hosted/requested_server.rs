//! A server as a request names it: its address, and what it is told of its caller, which lives as long as the request
//! and is shown nowhere.

use std::fmt;
use std::sync::Arc;

/// A server that a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedServer {
    /// The address that it is spoken to at.
    pub url: String,
    /// The value of its `authorization` header.
    pub authorization: Option<Secret>,
}

/// A text that is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Keeps a text from being shown.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// As the header `authorization` has it: a token alone is a bearer's.
    pub(super) fn header(&self) -> String {
        if self.0.contains(' ') { self.0.to_string() } else { format!("Bearer {}", self.0) }
    }

    /// A text of somebody who was told it, without it.
    pub(super) fn left_out_of(&self, text: String) -> String {
        let token = self.0.rsplit(' ').next().unwrap_or_default();
        if token.is_empty() { text } else { text.replace(token, "[authorization]") }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
