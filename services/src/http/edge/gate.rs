//! What decides at the gate whether a request is let in: its key, where its page is from, how often its address has
//! tried keys. [`admission`](super::admission) goes by it.

use super::keys::auth::Caller;
use super::keys::ring::KeyFile;
use super::keys::wrong_keys::WrongKeys;
use super::origin::Origins;
use super::shares::Room;
use crate::audit::Audit;
use crate::clock::Clock;
use crate::holder::Holder;
use actix_web::HttpRequest;
use actix_web::http::Method;
use actix_web::http::header::HeaderMap;
use chimere_engine::ids::KeyId;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Paths that need no key: probes and scrapers have none.
pub(in crate::http) const OPEN_PATHS: [&str; 4] = ["/", "/health", "/ready", "/metrics"];
/// Below it are the files of the console. They hold no secret, so they need no key.
pub(in crate::http) const CONSOLE_FILES: &str = "/console/";

/// What the gate knows of those who come.
#[derive(Debug)]
pub struct Gatekeeper {
    /// Who may come in.
    pub keys: Arc<KeyFile>,
    /// How long whoever brings keys that are not known has to wait.
    pub wrong_keys: WrongKeys,
    /// From where pages may call, and by which names.
    pub origins: Origins,
    /// Addresses that many come from.
    pub proxies: Vec<IpAddr>,
    /// A gateway says whose a request is.
    pub trust_gateway: bool,
    /// The log of who changed what.
    pub audit: Audit,
    /// Tells when a request arrived.
    pub clock: Clock,
    /// Bytes that all large whole replies may take until they are read.
    pub replies: Arc<Room>,
    /// How long a client may leave its reply unread.
    pub unread: Duration,
}

impl Gatekeeper {
    /// The account on which a request takes of what is shared: its key's, else that of the machine that it came from.
    pub(in crate::http) fn holder(&self, request: &HttpRequest) -> Holder {
        match Caller::of(request).key {
            key if key != KeyId::default() => Holder::Key(key),
            _ => request.peer_addr().map_or(Holder::Many, |peer| Holder::at(peer.ip(), &self.proxies)),
        }
    }

    /// A caller whose key was checked, as one that sends a request now.
    pub(in crate::http) fn arrived(&self, caller: Caller, request: &HttpRequest) -> Caller {
        let caller = if self.trust_gateway { caller.on_behalf(request) } else { caller };
        Caller { arrived: self.clock.now(), ..caller }
    }

    /// Nothing in the head of a request is a reason to turn it away.
    pub(in crate::http) fn admits(&self, method: &Method, path: &str, headers: &HeaderMap) -> bool {
        let known = !needs_key(path) || self.keys.keys().check(headers).is_ok();
        known && self.origins.check(method, headers).is_ok()
    }
}

/// Closed unless a path is known to be open, so that a new route cannot be forgotten.
pub(super) fn needs_key(path: &str) -> bool {
    !OPEN_PATHS.contains(&path) && !path.starts_with(CONSOLE_FILES)
}
