//! How clients are met: how long they may take, whether their words are encrypted, whose pages may call.

use crate::limits;
use std::net::{IpAddr, TcpListener};
use std::time::Duration;

/// How long clients may take before they are given up.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a request's head.
    pub head: Duration,
    /// For a request's body to arrive.
    pub body: Duration,
    /// Between two requests of a connection.
    pub idle: Duration,
    /// To read what was sent to them.
    pub unread: Duration,
    /// For their machine to say anything at all.
    pub silence: Duration,
    /// Between two requests of a WebSocket.
    pub socket_idle: Duration,
    /// For all requests of one WebSocket.
    pub socket_life: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            head: seconds(limits::HEAD_SECONDS),
            body: seconds(limits::BODY_SECONDS),
            idle: seconds(limits::IDLE_SECONDS),
            unread: seconds(limits::UNREAD_SECONDS),
            silence: seconds(limits::PEER_SILENCE_SECONDS),
            socket_idle: seconds(limits::SOCKET_IDLE_SECONDS),
            socket_life: seconds(limits::SOCKET_LIFE_SECONDS),
        }
    }
}

/// How clients are met.
#[derive(Debug, Default)]
pub struct Edge {
    /// How long they may take.
    pub patience: Patience,
    /// Certificate and key; without them the service speaks plain HTTP.
    pub tls: Option<rustls::ServerConfig>,
    /// Origins whose pages may call from a browser; `*` for all.
    pub origins: Vec<String>,
    /// Serve the web console.
    pub console: bool,
    /// Serve the Model Context Protocol.
    pub mcp: bool,
    /// Names, beside the address, under which the service is reached where no key is asked for.
    pub hosts: Vec<String>,
    /// Addresses that many come from, which no share by address bounds.
    pub proxies: Vec<IpAddr>,
    /// A socket for probes and scrapers alone.
    pub probes: Option<TcpListener>,
}
