//! Connections by where they come from: one machine that opens thousands and says nothing leaves as many for the
//! others.

use super::heads::Heads;
use super::shares::{Room, Share};
use crate::holder::Holder;
use crate::limits::HEADS_BYTES_MAX;
use crate::metrics;
use actix_http::Extensions;
use actix_rt::net::TcpStream;
use rustix::net::{Shutdown, shutdown};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Who comes in by a listener.
#[derive(Clone, Debug)]
pub(super) struct Door {
    room: Arc<Room>,
    heads: Arc<Room>,
    /// Many come from these addresses.
    proxies: Arc<[IpAddr]>,
}

/// A connection that counts until it is over.
struct Inside(#[expect(dead_code, reason = "held for its end")] Share);

impl Door {
    /// For so many connections at once.
    pub(super) fn new(connections: usize, proxies: &[IpAddr]) -> Self {
        let heads = Room::new(HEADS_BYTES_MAX, 0);
        Self { room: Room::new(connections, 1), heads, proxies: proxies.into() }
    }

    /// A connection whose heads are bounded with those of all others.
    pub(super) fn bounded<S>(&self, stream: S, peer: Option<SocketAddr>) -> Heads<S> {
        Heads::new(stream, self.heads.clone(), self.holder(peer))
    }

    fn holder(&self, peer: Option<SocketAddr>) -> Holder {
        peer.map_or(Holder::Many, |peer| Holder::at(peer.ip(), &self.proxies))
    }

    /// Counts a new connection, or ends it at once: it has said nothing yet, and to answer it would take what is
    /// scarce.
    pub(super) fn enter(&self, socket: &TcpStream, connection: &mut Extensions) {
        match self.room.take(self.holder(socket.peer_addr().ok()), 1) {
            Some(share) => drop(connection.insert(Inside(share))),
            None => {
                ::metrics::counter!(metrics::CONNECTIONS_REFUSED).increment(1);
                // One that is gone already is what was wanted.
                let _gone = shutdown(socket, Shutdown::Both);
            }
        }
    }
}
