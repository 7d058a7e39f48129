//! The section `limits`.

use super::check::{InvalidKey, not_zero, seconds, within};
use crate::limits;
use serde::{Deserialize, Serialize};

/// Bounds that an operator can change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Requests that may wait.
    pub queue_requests: u32,
    /// Prompt tokens that may wait, all requests together.
    pub queue_prompt_tokens: u64,
    /// Seconds that a request may be predicted to wait; 0 sets no bound.
    pub predicted_wait_seconds: u64,
    /// Requests that a key may have at once, unless its line says otherwise; 0 sets no bound.
    pub key_requests: u32,
    /// Tokens that a key may take in a minute, unless its line says otherwise; 0 sets no bound.
    pub key_tokens_per_minute: u32,
    /// Bytes of a request body.
    pub body_bytes: usize,
    /// Bytes of all request bodies in flight.
    pub bodies_bytes: usize,
    /// Seconds that a client may take for its request's head.
    pub head_seconds: u64,
    /// Seconds that a body may take to arrive.
    pub body_seconds: u64,
    /// Seconds that an idle connection is kept.
    pub idle_seconds: u64,
    /// Seconds that a client may leave its reply unread.
    pub unread_seconds: u64,
    /// Seconds that a connection is kept whose peer neither takes what was sent to it nor says that it is still there.
    pub peer_silence_seconds: u64,
    /// Connections open at once.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue_requests: limits::QUEUE_REQUESTS_MAX,
            queue_prompt_tokens: limits::QUEUE_PROMPT_TOKENS_MAX,
            predicted_wait_seconds: limits::PREDICTED_WAIT_SECONDS,
            key_requests: 0,
            key_tokens_per_minute: 0,
            body_bytes: limits::BODY_BYTES_MAX,
            bodies_bytes: limits::BODIES_BYTES_MAX,
            head_seconds: limits::HEAD_SECONDS,
            body_seconds: limits::BODY_SECONDS,
            idle_seconds: limits::IDLE_SECONDS,
            unread_seconds: limits::UNREAD_SECONDS,
            peer_silence_seconds: limits::PEER_SILENCE_SECONDS,
            connections: limits::CONNECTIONS_MAX,
        }
    }
}

impl Limits {
    pub(super) fn check(&self) -> Result<(), InvalidKey> {
        for (key, value) in [
            ("queue_requests", self.queue_requests.into()),
            ("queue_prompt_tokens", self.queue_prompt_tokens),
            ("body_bytes", self.body_bytes as u64),
        ] {
            not_zero(key, value)?;
        }
        for (key, value) in [
            ("head_seconds", self.head_seconds),
            ("body_seconds", self.body_seconds),
            ("idle_seconds", self.idle_seconds),
            ("unread_seconds", self.unread_seconds),
            ("peer_silence_seconds", self.peer_silence_seconds),
        ] {
            seconds(key, value)?;
        }
        if self.bodies_bytes < self.body_bytes {
            let why = format!("must be at least limits.body_bytes, {}, got {}", self.body_bytes, self.bodies_bytes);
            return Err(("bodies_bytes", why));
        }
        within("connections", self.connections, 1..=limits::CONNECTIONS_MAX)
    }
}
