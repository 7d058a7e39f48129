//! The stream of a connection as the parser of HTTP has it: it gets the bytes of one request, then nothing before that
//! one is answered, and the end of the stream where the client is late. Which bytes and how late, the
//! [`Exchange`] knows.

use super::exchange::{Exchange, FREE_BYTES, Late, Wanted};
use super::faults::{self, ClientFault};
use actix_rt::time::{Sleep, sleep_until};
use bytes::BytesMut;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are read at a time while a request is at work: what there is to come is the client's end.
const LOOK_BYTES: usize = 1 << 10;
/// The answer to a head that did not come to its end.
const TOO_SLOW: &[u8] = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// A stream that brings one request at a time.
pub(super) struct Connection<S> {
    stream: S,
    exchange: Rc<Exchange>,
    /// What came of the next request while the present one was at work.
    ahead: BytesMut,
    timer: Option<Pin<Box<Sleep>>>,
    /// Nothing is read any more.
    over: bool,
    /// What is still to be said before the stream ends.
    last_words: &'static [u8],
}

impl<S> Connection<S> {
    pub(super) fn new(stream: S, exchange: Exchange) -> Self {
        let exchange = Rc::new(exchange);
        Self { stream, exchange, ahead: BytesMut::new(), timer: None, over: false, last_words: b"" }
    }

    /// The exchange of the request that the connection carries now.
    pub(super) fn exchange(&self) -> &Rc<Exchange> {
        &self.exchange
    }

    /// Ends the reading when the client is late.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Late> {
        let Some(deadline) = self.exchange.deadline() else { return Poll::Pending };
        if Instant::now() < deadline {
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline.into())));
            if timer.deadline() != deadline.into() {
                timer.as_mut().reset(deadline.into());
            }
            ready!(timer.as_mut().poll(cx));
        }
        self.over = true;
        let late = self.exchange.late();
        match late {
            Late::Head => {
                self.last_words = TOO_SLOW;
                faults::count(ClientFault::SlowHead, None);
            }
            Late::Body => faults::count(ClientFault::SlowBody, None),
            Late::Answer => faults::count(ClientFault::Unread, None),
            Late::Idle | Late::Rest => {}
        }
        Poll::Ready(late)
    }
}

impl<S: AsyncRead + Unpin> Connection<S> {
    /// Gives the parser bytes of the present request, and keeps those of the next one.
    fn pass_on(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>, most: usize) -> Poll<io::Result<()>> {
        let most = most.min(buf.remaining());
        let before = buf.filled().len();
        if self.ahead.is_empty() {
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
            let came = part.filled().len();
            buf.advance(came);
        } else {
            let came = most.min(self.ahead.len());
            buf.put_slice(&self.ahead.split_to(came));
        }
        let came = &buf.filled()[before..];
        let Ok(own) = self.exchange.came(came, Instant::now()) else {
            faults::count(ClientFault::NoRoom, None);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::QuotaExceeded, "there is no room for this head")));
        };
        if own < came.len() {
            // What was taken from there is its beginning.
            let mut next = BytesMut::from(&came[own..]);
            next.unsplit(std::mem::take(&mut self.ahead));
            self.ahead = next;
        }
        buf.set_filled(before + own);
        Poll::Ready(Ok(()))
    }

    /// Finds out whether the client has left while its request is at work. What it sends meanwhile is kept, up to what
    /// is free; then it waits in the socket.
    fn look_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.ahead.len() < FREE_BYTES {
            let mut bytes = [0; LOOK_BYTES];
            let mut part = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
            if part.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.ahead.extend_from_slice(part.filled());
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.over {
            return Poll::Ready(Ok(()));
        }
        this.exchange.wait(cx);
        let polled = match this.exchange.wanted() {
            Wanted::Bytes(most) => this.pass_on(cx, buf, most),
            // It is the service's turn, not the client's.
            Wanted::Nothing => return Poll::Pending,
            Wanted::End => this.look_ahead(cx),
        };
        match polled {
            Poll::Ready(read) => Poll::Ready(read),
            Poll::Pending => this.poll_late(cx).map(|_| Ok(())),
        }
    }
}

impl<S: AsyncWrite + Unpin> Connection<S> {
    /// An answer that is whole and that nobody takes ends with its time.
    fn in_time<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() || !self.exchange.is_answered() {
            return polled;
        }
        self.poll_late(cx).map(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    fn say_last_words(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.last_words.is_empty() {
            let said = ready!(Pin::new(&mut self.stream).poll_write(cx, self.last_words))?;
            if said == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.last_words = &self.last_words[said..];
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.in_time(cx, polled)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.say_last_words(cx))?;
        let polled = Pin::new(&mut this.stream).poll_flush(cx);
        ready!(this.in_time(cx, polled))?;
        this.exchange.sent(Instant::now());
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.say_last_words(cx))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}
