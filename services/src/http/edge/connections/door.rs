//! Connections by where they come from, counted before anything is read from them or written to them: one machine that
//! opens thousands and says nothing leaves as many for the others.

use super::connection::Connection;
use super::exchange::Exchange;
use super::faults::{self, ClientFault};
use crate::holder::Holder;
use crate::http::edge::settings::Patience;
use crate::http::edge::shares::{Room, Share};
use crate::limits::{HANDSHAKE_BYTES_MAX, HEADS_BYTES_MAX};
use crate::metrics;
use actix_rt::net::{ActixStream, Ready, TcpStream};
use std::cell::Cell;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The entrance of one listener.
#[derive(Clone, Debug)]
pub(super) struct ConnectionLimit {
    room: Arc<Room>,
    heads: Arc<Room>,
    patience: Patience,
    /// Many come from these addresses.
    proxies: Arc<[IpAddr]>,
}

/// A connection that counts until it is over.
#[derive(Debug)]
pub(super) struct Admitted {
    socket: TcpStream,
    peer: Option<SocketAddr>,
    /// Bytes that may come before it is encrypted, if it is to be.
    handshake: Cell<Option<usize>>,
    _share: Share,
}

impl ConnectionLimit {
    /// For so many connections at once, with clients that may take so long.
    pub(super) fn new(connections: usize, patience: Patience, proxies: &[IpAddr]) -> Self {
        let heads = Room::new(HEADS_BYTES_MAX, 0);
        Self { room: Room::new(connections, 1), heads, patience, proxies: proxies.into() }
    }

    /// Counts a new connection, or ends it at once: to answer it would take what is scarce.
    pub(super) fn admit(&self, socket: TcpStream) -> Result<Admitted, ()> {
        let peer = socket.peer_addr().ok();
        match self.room.take(self.holder(peer), 1) {
            Some(share) => Ok(Admitted { socket, peer, handshake: Cell::new(None), _share: share }),
            None => {
                ::metrics::counter!(metrics::CONNECTIONS_REFUSED).increment(1);
                Err(())
            }
        }
    }

    /// The stream of a connection as HTTP has it, and where it comes from.
    pub(super) fn connection<S>(&self, stream: S, peer: Option<SocketAddr>) -> (Connection<S>, Option<SocketAddr>) {
        let exchange = Exchange::new(self.patience, self.heads.clone(), self.holder(peer), Instant::now());
        (Connection::new(stream, exchange), peer)
    }

    fn holder(&self, peer: Option<SocketAddr>) -> Holder {
        peer.map_or(Holder::Many, |peer| Holder::at(peer.ip(), &self.proxies))
    }
}

impl Admitted {
    /// Where it comes from.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// From now on a handshake is on its way, which is kept until it is whole.
    pub(super) fn begin_handshake(self) -> Self {
        self.handshake.set(Some(HANDSHAKE_BYTES_MAX));
        self
    }

    /// The connection is encrypted. Where it comes from.
    pub(super) fn end_handshake(&self) -> Option<SocketAddr> {
        self.handshake.set(None);
        self.peer
    }
}

impl AsyncRead for Admitted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.socket).poll_read(cx, buf);
        if let Some(left) = self.handshake.get() {
            let Some(left) = left.checked_sub(buf.filled().len() - before) else {
                faults::count(ClientFault::Handshake, Some(&"it is too long"));
                return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
            };
            self.handshake.set(Some(left));
        }
        polled
    }
}

impl AsyncWrite for Admitted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

impl ActixStream for Admitted {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        ActixStream::poll_read_ready(&self.socket, cx)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        ActixStream::poll_write_ready(&self.socket, cx)
    }
}
