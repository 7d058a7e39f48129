//! Heads of requests that are arriving, bounded in bytes over all connections: one may be 128 KiB long, and thousands
//! may be sent at once by clients that never come to their end.

use super::shares::{Room, Share};
use crate::holder::Holder;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What the head of an ordinary request takes, which its connection has room for anyway.
const FREE_BYTES: usize = 8 << 10;
/// Room is taken by so much at a time.
const STEP_BYTES: usize = 8 << 10;
/// What ends a head.
const END: &[u8; 4] = b"\r\n\r\n";

/// A connection that holds room for what it has of an unfinished head.
pub(super) struct Heads<S> {
    stream: S,
    room: Arc<Room>,
    holder: Holder,
    /// Bytes since the last answer, as long as their head has no end.
    read: usize,
    /// How much of [`END`] the last of them are; all of it when the head was whole.
    matched: usize,
    share: Option<Share>,
}

impl<S> Heads<S> {
    /// Of a connection from somewhere.
    pub(super) fn new(stream: S, room: Arc<Room>, holder: Holder) -> Self {
        Self { stream, room, holder, read: 0, matched: 0, share: None }
    }

    /// The connection itself.
    pub(super) fn stream(&self) -> &S {
        &self.stream
    }

    /// Counts what came. False if there is no room for it.
    fn came(&mut self, bytes: &[u8]) -> bool {
        if self.matched == END.len() {
            return true;
        }
        for &byte in bytes {
            self.matched = match byte {
                byte if byte == END[self.matched] => self.matched + 1,
                b'\r' => 1,
                _ => 0,
            };
            if self.matched == END.len() {
                // What follows is a body, which has a room of its own.
                self.share = None;
                return true;
            }
        }
        self.read += bytes.len();
        self.hold()
    }

    /// Holds room for all steps that were begun beyond what is free.
    fn hold(&mut self) -> bool {
        let wanted = self.read.saturating_sub(FREE_BYTES).div_ceil(STEP_BYTES) * STEP_BYTES;
        let held = self.share.as_ref().map_or(0, Share::units);
        match &mut self.share {
            _ if wanted <= held => true,
            Some(share) => share.grow(wanted - held),
            none => {
                *none = self.room.take(self.holder, wanted);
                none.is_some()
            }
        }
    }

    /// An answer was begun: what comes now is the next head.
    fn answered(&mut self) {
        (self.read, self.matched, self.share) = (0, 0, None);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heads<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if self.came(&buf.filled()[before..]) {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(Err(io::Error::new(io::ErrorKind::QuotaExceeded, "there is no room for more of this head")))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heads<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.answered();
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.answered();
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_engine::ids::KeyId;

    fn heads(room: &Arc<Room>, of: u64) -> Heads<()> {
        Heads::new((), room.clone(), Holder::Key(KeyId(of)))
    }

    #[test]
    fn an_unfinished_head_holds_room_and_a_whole_one_gives_it_back() {
        let room = Room::new(64 << 10, 0);
        let mut long = heads(&room, 1);
        assert!(long.came(&[b'a'; FREE_BYTES]) && long.share.is_none(), "an ordinary one takes none");
        assert!((0..3).all(|_| long.came(&[b'a'; STEP_BYTES])) && long.came(&[b'a'; STEP_BYTES - 3]));
        assert!(!heads(&room, 1).came(&[b'a'; FREE_BYTES + 1]), "half of the room is for others");
        assert!(heads(&room, 2).came(&[b'a'; FREE_BYTES + STEP_BYTES]));
        assert!(long.came(b"\r\n\r") && long.came(b"\n"), "its end needs no room of its own");
        assert!(long.share.is_none() && long.came(&[b'a'; 1 << 20]), "a body is counted elsewhere");
        long.answered();
        assert!((0..5).all(|_| long.came(&[b'a'; STEP_BYTES])) && !long.came(b"a"), "the next head counts anew");
    }

    #[test]
    fn the_end_of_a_head_is_found_wherever_it_is_cut() {
        let room = Room::new(0, 0);
        let text = b"GET / HTTP/1.1\r\nA: b\r\r\n\r\n";
        for cut in 0..=text.len() {
            let mut head = heads(&room, 1);
            assert!(head.came(&text[..cut]) && head.came(&text[cut..]));
            assert_eq!(head.matched, END.len(), "cut at {cut}");
        }
    }
}
