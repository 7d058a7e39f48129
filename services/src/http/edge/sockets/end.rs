//! Why a socket ends, and what its client is told of it.

use crate::http::wire::error::ApiError;
use actix_http::ws::{CloseCode, CloseReason};

/// The end of a socket.
#[derive(Debug)]
pub(in crate::http) enum SocketEnd {
    /// The connection is gone, or nobody reads: there is nobody to tell.
    Gone,
    /// The client closes, which is answered in kind.
    Closed(Option<CloseReason>),
    /// A closing frame says it.
    Told(CloseReason),
    /// An error for the client's program, then a closing frame.
    Refused(Box<ApiError>, CloseReason),
}

impl SocketEnd {
    /// With a closing frame of this code and text.
    pub(in crate::http) fn told(code: CloseCode, text: &str) -> Self {
        Self::Told(reason(code, text))
    }

    /// With an error before the closing frame of this code and text.
    pub(in crate::http) fn refused(error: ApiError, code: CloseCode, text: &str) -> Self {
        Self::Refused(Box::new(error), reason(code, text))
    }
}

/// A frame's text has 123 bytes at most, which all texts here keep to.
fn reason(code: CloseCode, text: &str) -> CloseReason {
    debug_assert!(text.len() <= 123, "{text:?} is too long for a closing frame");
    CloseReason { code, description: Some(text.to_owned()) }
}
