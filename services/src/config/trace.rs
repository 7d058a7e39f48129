//! The section `trace`.

use super::check::{InvalidKey, within};
use super::documents::is_server;
use serde::{Deserialize, Serialize};

/// Spans of requests, for a collector of OpenTelemetry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// The collector; empty sends nothing.
    pub endpoint: String,
    /// Share of the requests that are traced whose caller does not say.
    pub share: f64,
}

impl Default for Trace {
    fn default() -> Self {
        Self { endpoint: String::new(), share: 1.0 }
    }
}

impl Trace {
    pub(super) fn check(&self) -> Result<(), InvalidKey> {
        if !self.endpoint.is_empty() && !is_server(&self.endpoint) {
            let why = format!("wants an address such as http://127.0.0.1:4318, unencrypted, got {:?}", self.endpoint);
            return Err(("endpoint", why));
        }
        within("share", self.share, 0.0..=1.0)
    }
}
