//! Why a request did not go out, or what became of it.

use std::time::Duration;

/// A destination that no connection is made to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Something other than `http://` or `https://`, or no address at all.
    #[error("wants an address that begins with http:// or https://, got {got:?}")]
    Scheme {
        /// The address or its part that came.
        got: String,
    },
    /// A name or a password before the host.
    #[error("wants an address without a user in it, got {got:?}")]
    User {
        /// The address or its part that came.
        got: String,
    },
    /// A port that pages are not served from.
    #[error("wants port 80 or 443, got {got:?}")]
    Port {
        /// The address or its part that came.
        got: String,
    },
    /// A host that is no name and no address in its usual form.
    #[error("wants a host's name, or an address in its usual form, got {got:?}")]
    Host {
        /// The address or its part that came.
        got: String,
    },
    /// A host that the operator did not list.
    #[error("{host:?} is not among the hosts that the operator lists (web.allow, mcp.request_hosts)")]
    Unlisted {
        /// The host that came.
        host: String,
    },
    /// The host is not in the public internet.
    #[error("{host:?} is not a public host")]
    Address {
        /// What came. Its address stays untold, because it says something about the network here.
        host: String,
    },
    /// One redirect too many, or out of an operator's server.
    #[error("the server sends on: {why}")]
    Redirect {
        /// Where, or how often.
        why: String,
    },
}

impl Refused {
    /// The label of the metric, one of [`crate::metrics::REFUSALS`].
    pub fn why(&self) -> &'static str {
        match self {
            Self::Scheme { .. } => "scheme",
            Self::User { .. } => "user",
            Self::Port { .. } => "port",
            Self::Host { .. } => "host",
            Self::Unlisted { .. } => "unlisted",
            Self::Address { .. } => "address",
            Self::Redirect { .. } => "redirect",
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    /// No connection was made.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The name has no address, or nobody answers there.
    #[error("cannot connect to {host}: {why}")]
    Unconnected {
        /// Host as the destination spells it.
        host: String,
        /// In the words of the system.
        why: String,
    },
    /// There is a server, and no TLS with it.
    #[error("no TLS with {host}: {why}")]
    Tls {
        /// Host as the destination spells it.
        host: String,
        /// In the words of the library.
        why: String,
    },
    /// It broke off, or is not HTTP.
    #[error("the answer is broken: {0}")]
    Broken(String),
    /// It took too long.
    #[error("no whole answer within {} s", .0.as_secs_f32())]
    Late(Duration),
    /// It has more bytes than are read.
    #[error("the answer has more than {0} bytes")]
    Long(usize),
    /// A header of the request has a character that none may have.
    #[error("the header {0} has a character that is not allowed")]
    Header(String),
}
