//! Requests and their answers, with every redirect looked at as the first address was.

use super::destination::Destination;
use super::error::{OutboundError, Refused};
use super::network::{ByteStream, Connector, Resolver, System, encrypted};
use super::reply::{Head, ReplyReader};
use super::unpacked::unpacked;
use crate::limits::OUTBOUND_REDIRECTS_MAX;
use crate::metrics;
use bytes::{Bytes, BytesMut};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout_at};

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;

/// The way out of the process.
pub struct Outbound {
    pub(super) resolver: Box<dyn Resolver>,
    pub(super) connector: Box<dyn Connector>,
}

/// What a request is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Reads a page; follows redirects.
    #[default]
    Get,
    /// Sends a body, and follows nothing.
    Post,
    /// Ends what the address stands for.
    Delete,
}

/// A request, without its address.
#[derive(Clone, Debug, Default)]
pub struct OutboundRequest {
    /// What it is to do.
    pub method: Method,
    /// Headers beside those that every request has.
    pub headers: Vec<(String, String)>,
    /// What is sent with it.
    pub body: Bytes,
}

/// Bounds of one request and its answer.
#[derive(Clone, Copy, Debug)]
pub struct OutboundBounds {
    /// From looking up the name to the last byte, with all redirects.
    pub time: Duration,
    /// Bytes of the answer's body, packed and unpacked.
    pub bytes: usize,
}

/// An answer whose head is there.
pub struct OutboundReply {
    head: Head,
    reader: ReplyReader,
    destination: Destination,
    bounds: OutboundBounds,
    deadline: Instant,
    /// Bytes of the body so far.
    heard: usize,
}

impl Default for Outbound {
    /// By the system's names and sockets.
    fn default() -> Self {
        Self { resolver: Box::new(System), connector: Box::new(System) }
    }
}

impl std::fmt::Debug for Outbound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outbound")
    }
}

impl Outbound {
    /// Sends a request, follows at most three redirects of a `GET`, and reads the head of the answer. Its body is read
    /// within what is left of the time.
    pub async fn open(
        &self,
        destination: Destination,
        request: &OutboundRequest,
        bounds: OutboundBounds,
    ) -> Result<OutboundReply, OutboundError> {
        let deadline = Instant::now() + bounds.time;
        let opened = timeout_at(deadline, self.follow(destination, request)).await;
        let (destination, head, reader) = opened.map_err(|_| OutboundError::Late(bounds.time))??;
        Ok(OutboundReply { head, reader, destination, bounds, deadline, heard: 0 })
    }

    /// Opens and reads the whole body, for a thread that has nothing else to do.
    pub fn wait(
        &self,
        destination: Destination,
        request: &OutboundRequest,
        bounds: OutboundBounds,
    ) -> Result<(u16, Bytes), OutboundError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| OutboundError::Broken(e.to_string()))?;
        let answer = runtime.block_on(async {
            let reply = self.open(destination, request, bounds).await?;
            Ok((reply.status(), reply.whole().await?))
        });
        // A name that is still being looked up is nobody's any more.
        runtime.shutdown_background();
        answer
    }

    async fn follow(
        &self,
        mut destination: Destination,
        request: &OutboundRequest,
    ) -> Result<(Destination, Head, ReplyReader), OutboundError> {
        let mut request = Cow::Borrowed(request);
        for _ in 0..=OUTBOUND_REDIRECTS_MAX {
            let (head, reader) = self.exchange(&destination, &request).await?;
            let location = head.get("location").filter(|_| request.method == Method::Get && is_redirect(head.status));
            let Some(location) = location else { return Ok((destination, head, reader)) };
            let next = destination.redirected(location)?;
            if !next.is_same_server(&destination) {
                // Who may read it says nothing of another server.
                request.to_mut().headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
            }
            destination = next;
        }
        let why = format!("more than {OUTBOUND_REDIRECTS_MAX} times");
        Err(Refused::Redirect { why }.counted().into())
    }

    async fn exchange(
        &self,
        destination: &Destination,
        request: &OutboundRequest,
    ) -> Result<(Head, ReplyReader), OutboundError> {
        let written = written(destination, request)?;
        let mut stream = self.connect(destination).await?;
        let broken = |e: std::io::Error| OutboundError::Broken(e.to_string());
        stream.write_all(&written).await.map_err(broken)?;
        stream.flush().await.map_err(broken)?;
        ReplyReader::begin(stream).await
    }

    /// A connection to an address that was looked at, and to no other: the name is looked up once.
    async fn connect(&self, destination: &Destination) -> Result<Box<dyn ByteStream>, OutboundError> {
        let target = destination.target();
        let unconnected = |why: String| OutboundError::Unconnected { host: destination.host(), why };
        let addresses = match destination.literal() {
            Some(address) => vec![SocketAddr::new(address, target.port)],
            None => {
                let found = self.resolver.resolve(&destination.host(), target.port).await;
                found.map_err(|e| unconnected(e.to_string()))?
            }
        };
        destination.looked_at(&addresses).map_err(Refused::counted)?;
        let mut last = "it has no address".to_owned();
        for address in addresses.into_iter().take(ADDRESSES_MAX) {
            match self.connector.connect(address).await {
                Ok(stream) if target.encrypted => return encrypted(stream, &destination.host()).await,
                Ok(stream) => return Ok(stream),
                Err(e) => last = e.to_string(),
            }
        }
        Err(unconnected(last))
    }
}

impl OutboundReply {
    /// The status of the answer.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// The value of the first header of this name, which is in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.get(name)
    }

    /// Where the answer came from, behind all redirects.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// The next piece of the body as it came, or `None` at its end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, OutboundError> {
        let late = |_| OutboundError::Late(self.bounds.time);
        let piece = timeout_at(self.deadline, self.reader.next()).await.map_err(late)??;
        self.heard += piece.as_ref().map_or(0, Bytes::len);
        if self.heard > self.bounds.bytes { Err(OutboundError::Long(self.bounds.bytes)) } else { Ok(piece) }
    }

    /// All of the body, unpacked.
    pub async fn whole(mut self) -> Result<Bytes, OutboundError> {
        let mut body = BytesMut::new();
        while let Some(piece) = self.next().await? {
            body.extend_from_slice(&piece);
        }
        unpacked(body.freeze(), self.header("content-encoding"), self.bounds.bytes)
    }
}

fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// A request as it is sent. No header of it comes from elsewhere: neither cookies nor who asked.
fn written(destination: &Destination, request: &OutboundRequest) -> Result<Vec<u8>, OutboundError> {
    let target = destination.target();
    let method = match request.method {
        Method::Get => "GET",
        Method::Post => "POST",
        Method::Delete => "DELETE",
    };
    let mut out = format!("{method} {} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", target.path, target.authority());
    for (name, value) in &request.headers {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(is_name) || value.chars().any(|c| c.is_control() && c != '\t') {
            return Err(OutboundError::Header(name.escape_debug().to_string()));
        }
        out.push_str(&format!("{name}: {value}\r\n"));
    }
    if request.method == Method::Post || !request.body.is_empty() {
        out.push_str(&format!("content-length: {}\r\n", request.body.len()));
    }
    out.push_str("\r\n");
    let mut out = out.into_bytes();
    out.extend_from_slice(&request.body);
    Ok(out)
}

impl Refused {
    /// Counts a refusal once, where it is made.
    pub(super) fn counted(self) -> Self {
        ::metrics::counter!(metrics::OUTBOUND_REFUSED, "why" => self.why()).increment(1);
        tracing::warn!(why = self.why(), "no connection is made: {self}");
        self
    }
}
