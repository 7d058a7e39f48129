//! ZeroMQ's protocol on a connection, ZMTP 3.0 without encryption: how it begins, and how messages are framed.
//!
//! A peer that speaks 3.1 goes back to 3.0, in which a subscription is a message and nobody asks for heartbeats.

use std::io::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes of a part of what a peer says.
pub(super) const FRAME_BYTES_MAX: usize = 1024;
/// Parts of a message of a peer.
const FRAMES_MAX: usize = 8;
const GREETING_BYTES: usize = 64;
/// Where a greeting names the major version of the protocol, and behind it the mechanism that proves who one is.
const MAJOR_AT: usize = 10;
const MECHANISM_AT: usize = 12;
const MECHANISM: &[u8; 5] = b"NULL\0";
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// The kinds of sockets that events need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketKind {
    /// Sends to those who subscribed.
    Pub,
    /// Answers whoever asks for messages.
    Router,
}

/// What a peer says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FromPeer {
    /// A message in its parts.
    Message(Vec<Vec<u8>>),
    /// A command of the protocol: its name, and what it says.
    Command(Vec<u8>),
}

/// Greets a peer as a socket of this kind, and is greeted.
pub(super) async fn greet(peer: &mut (impl AsyncRead + AsyncWrite + Unpin), kind: SocketKind) -> Result<()> {
    peer.write_all(&greeting()).await?;
    let mut came = [0; GREETING_BYTES];
    peer.read_exact(&mut came).await?;
    if came[0] != 0xff || came[9] != 0x7f || came[MAJOR_AT] < 3 {
        return Err(malformed("no greeting of ZMTP 3"));
    }
    if !came[MECHANISM_AT..].starts_with(MECHANISM) {
        return Err(malformed("another mechanism than NULL"));
    }
    peer.write_all(&ready(kind)).await?;
    match read(peer).await? {
        FromPeer::Command(command) if command.starts_with(b"\x05READY") => Ok(()),
        _ => Err(malformed("no READY")),
    }
}

fn greeting() -> [u8; GREETING_BYTES] {
    let mut greeting = [0; GREETING_BYTES];
    (greeting[0], greeting[9], greeting[MAJOR_AT]) = (0xff, 0x7f, 3);
    greeting[MECHANISM_AT..MECHANISM_AT + MECHANISM.len()].copy_from_slice(MECHANISM);
    greeting
}

fn ready(kind: SocketKind) -> Vec<u8> {
    let name: &[u8] = if kind == SocketKind::Pub { b"PUB" } else { b"ROUTER" };
    let property = [b"\x0bSocket-Type", &(name.len() as u32).to_be_bytes()[..], name].concat();
    let body = [b"\x05READY", &property[..]].concat();
    [&[COMMAND, body.len() as u8][..], &body].concat()
}

/// The frames of a message of these parts, ready to be sent.
pub(super) fn framed(parts: &[&[u8]]) -> Vec<u8> {
    let mut frames = Vec::with_capacity(parts.iter().map(|part| part.len() + 9).sum());
    for (i, part) in parts.iter().enumerate() {
        let more = if i + 1 < parts.len() { MORE } else { 0 };
        match u8::try_from(part.len()) {
            Ok(bytes) => frames.extend([more, bytes]),
            Err(_) => {
                frames.push(more | LONG);
                frames.extend((part.len() as u64).to_be_bytes());
            }
        }
        frames.extend(*part);
    }
    frames
}

/// The next message or command of a peer. Peers of these sockets have little to say, so a long one is refused.
pub(super) async fn read(peer: &mut (impl AsyncRead + Unpin)) -> Result<FromPeer> {
    let mut parts = Vec::new();
    loop {
        let flags = peer.read_u8().await?;
        let bytes = if flags & LONG != 0 { peer.read_u64().await? } else { peer.read_u8().await?.into() };
        if bytes > FRAME_BYTES_MAX as u64 || parts.len() == FRAMES_MAX {
            return Err(malformed("a message that is too long"));
        }
        let mut part = vec![0; bytes as usize];
        peer.read_exact(&mut part).await?;
        if flags & COMMAND != 0 {
            return Ok(FromPeer::Command(part));
        }
        parts.push(part);
        if flags & MORE == 0 {
            return Ok(FromPeer::Message(parts));
        }
    }
}

fn malformed(why: &str) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[actix_rt::test]
    async fn what_is_framed_is_read_as_it_was() {
        let long = vec![7; 300];
        let bytes = framed(&[b"topic", &[], &long]);
        assert_eq!(bytes[..7], [1, 5, b't', b'o', b'p', b'i', b'c']);
        assert_eq!(bytes[7..9], [1, 0]);
        assert_eq!(bytes[9..18], [2, 0, 0, 0, 0, 0, 0, 1, 44]);
        let read = read(&mut &bytes[..]).await.unwrap();
        assert_eq!(read, FromPeer::Message(vec![b"topic".to_vec(), Vec::new(), long]));
    }

    #[actix_rt::test]
    async fn a_frame_or_a_message_that_is_too_long_is_refused_before_it_is_read() {
        let long = [&[LONG][..], &(FRAME_BYTES_MAX as u64 + 1).to_be_bytes()].concat();
        assert_eq!(read(&mut &long[..]).await.unwrap_err().kind(), ErrorKind::InvalidData);
        let many = framed(&[&[][..]; FRAMES_MAX + 1]);
        assert_eq!(read(&mut &many[..]).await.unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
