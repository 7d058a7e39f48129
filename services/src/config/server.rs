//! The sections `server` and `mcp`: who may connect, and which of the ways in are open.

use super::check::{InvalidKey, seconds, threads, within};
use crate::hosted::RequestHosts;
use crate::limits;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Section `[server]`: the address to listen on, the keys that are asked for, and how a shutdown goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Address to listen on.
    pub host: String,
    /// Port to listen on; 0 takes a free one.
    pub port: u16,
    /// HTTP threads; 0 takes one for every two cores, at least 1 and at most 8.
    pub workers: u32,
    /// File of API keys; empty asks for none.
    pub api_key_file: String,
    /// Listen beyond loopback without keys.
    pub allow_open: bool,
    /// PEM file with the certificate and those that vouch for it; empty serves plain HTTP.
    pub tls_certificate: String,
    /// PEM file with the certificate's private key.
    pub tls_key: String,
    /// Origins whose pages may call the service from a browser, with commas between them; `*` lets all.
    pub cors_origins: String,
    /// Names under which the service is reached where no key is asked for, with commas between them; the address it
    /// listens on and localhost need not be named.
    pub hosts: String,
    /// Addresses of proxies, with commas between them: many come from there, so no share by address bounds them.
    pub trusted_proxies: String,
    /// Port of a listener of its own for /health, /ready and /metrics; 0 for none.
    pub admin_port: u16,
    /// Take the id that a gateway sends with a request for whose it is.
    pub trust_gateway: bool,
    /// Seconds that running streams may take after a signal.
    pub drain_seconds: u64,
    /// Seconds of silence before a stream gets a comment.
    pub keep_alive_seconds: u64,
    /// Serve the web console at `/`.
    pub console: bool,
    /// Keep metrics and show them under `/metrics`.
    pub metrics: bool,
}

/// What agents reach by the Model Context Protocol.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mcp {
    /// Serve it at `/mcp`.
    pub serve: bool,
    /// Hosts, with commas between them, whose servers a request may name by their address; with a port, servers that
    /// may stand anywhere. Empty for none.
    pub request_hosts: String,
    /// Which calls of such servers wait for an approval.
    pub request_approval: RequestApproval,
}

/// Which calls of servers that requests name wait for an approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestApproval {
    /// All of them, whatever the request says.
    #[default]
    Always,
    /// Those that the request does not except.
    Request,
}

impl Mcp {
    pub(super) fn check(&self) -> Result<(), InvalidKey> {
        self.request_hosts().map(|_| ())
    }

    /// What the service makes of it.
    ///
    /// # Errors
    /// If an entry of the list is no host.
    pub fn request_hosts(&self) -> Result<RequestHosts, InvalidKey> {
        let trusts = self.request_approval == RequestApproval::Request;
        RequestHosts::of(&self.request_hosts, trusts).map_err(|e| ("request_hosts", e.to_string()))
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".into(),
            port: 8080,
            workers: 0,
            api_key_file: String::new(),
            allow_open: false,
            tls_certificate: String::new(),
            tls_key: String::new(),
            cors_origins: String::new(),
            hosts: String::new(),
            trusted_proxies: String::new(),
            admin_port: 0,
            trust_gateway: false,
            drain_seconds: limits::DRAIN_SECONDS,
            keep_alive_seconds: limits::KEEP_ALIVE_SECONDS,
            console: true,
            metrics: true,
        }
    }
}

/// Tools that the service runs for models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolKeys {
    /// File of the MCP servers whose tools may be called; empty runs none.
    pub file: String,
}

impl Server {
    pub(super) fn check(&self) -> Result<(), InvalidKey> {
        threads("workers", self.workers)?;
        if self.tls_certificate.is_empty() != self.tls_key.is_empty() {
            let (have, lacks) =
                if self.tls_key.is_empty() { ("tls_certificate", "tls_key") } else { ("tls_key", "tls_certificate") };
            return Err((lacks, format!("must be given with server.{have}, got nothing")));
        }
        if let Some(origin) = items(&self.cors_origins).find(|origin| !is_origin(origin)) {
            return Err((
                "cors_origins",
                format!("wants * or origins such as https://app.example.org, got {origin:?}"),
            ));
        }
        if let Some(text) = items(&self.trusted_proxies).find(|text| text.parse::<IpAddr>().is_err()) {
            return Err(("trusted_proxies", format!("wants addresses such as 10.0.0.1, got {text:?}")));
        }
        within("drain_seconds", self.drain_seconds, 0..=limits::SECONDS_MAX)?;
        seconds("keep_alive_seconds", self.keep_alive_seconds)
    }
}

/// What stands between the commas of a list.
pub fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|origin| !origin.is_empty())
}

/// Scheme and host, without a path: a browser sends no more, so anything else would never match.
fn is_origin(origin: &str) -> bool {
    let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    origin == "*"
        || host
            .is_some_and(|host| !host.is_empty() && host.bytes().all(|b| b.is_ascii_graphic() && !b"/?#*".contains(&b)))
}
