//! A client of a WebSocket that writes and reads frames, so that tests see exactly what is on the wire.

use super::client::connect;
use serde_json::{Value, json};
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// The kinds that frames have.
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

/// A client's end of an open WebSocket.
pub struct Socket<S = TcpStream>(pub BufReader<S>);

/// A handshake as RFC 6455 shows it, with these headers.
pub fn handshake(path: &str, headers: &[(&str, &str)]) -> String {
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    )
}

/// A client's frame: masked, and the last of its message.
pub fn frame(kind: u8, bytes: &[u8]) -> Vec<u8> {
    part(0x80 | kind, bytes)
}

/// A client's frame that begins with this byte.
pub fn part(first: u8, bytes: &[u8]) -> Vec<u8> {
    let mask = [7u8, 1, 200, 33];
    let length = match bytes.len() {
        short @ 0..126 => vec![0x80 | short as u8],
        long => [&[0x80 | 127][..], &(long as u64).to_be_bytes()].concat(),
    };
    let masked = bytes.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    [&[first][..], &length, &mask].concat().into_iter().chain(masked).collect()
}

impl Socket {
    /// Opens one at `/v1/responses`.
    #[track_caller]
    pub fn open(addr: SocketAddr) -> Self {
        Self::on(connect(addr), &[])
    }
}

impl<S: Read + Write> Socket<S> {
    /// Opens one on a connection, with these headers.
    #[track_caller]
    pub fn on(mut stream: S, headers: &[(&str, &str)]) -> Self {
        stream.write_all(handshake("/v1/responses", headers).as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let head = head(&mut reader);
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        // What the key of RFC 6455's example is answered with.
        assert!(head.to_ascii_lowercase().contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
        Self(reader)
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// Asks for a response.
    pub fn ask(&mut self, body: &Value) {
        let mut body = body.clone();
        body["type"] = json!("response.create");
        self.write(&frame(TEXT, body.to_string().as_bytes()));
    }

    /// The next frame, whatever it is: its kind and what it carries.
    pub fn frame(&mut self) -> (u8, Vec<u8>) {
        let mut byte = || {
            let mut byte = [0; 1];
            self.0.read_exact(&mut byte).unwrap();
            byte[0]
        };
        let (first, second) = (byte(), byte());
        assert_eq!((first & 0xf0, second & 0x80), (0x80, 0), "whole and not masked");
        let length = match second {
            126 => (0..2).fold(0, |n, _| n << 8 | usize::from(byte())),
            127 => (0..8).fold(0, |n, _| n << 8 | usize::from(byte())),
            short => usize::from(short),
        };
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).unwrap();
        (first & 0xf, bytes)
    }

    /// The JSON of the next message; pings are passed over.
    #[track_caller]
    pub fn message(&mut self) -> Value {
        loop {
            match self.frame() {
                (TEXT, bytes) => return serde_json::from_slice(&bytes).unwrap(),
                (PING, _) => {}
                (kind, bytes) => panic!("a frame of kind {kind}: {:?}", String::from_utf8_lossy(&bytes)),
            }
        }
    }

    /// The messages of one answer, to its end.
    #[track_caller]
    pub fn answer(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            events.push(self.message());
            let kind = events.last().unwrap()["type"].as_str().unwrap();
            if ["response.completed", "response.incomplete", "response.failed", "error"].contains(&kind) {
                return events;
            }
        }
    }

    /// The code of the closing frame that comes next, after which the connection ends.
    #[track_caller]
    pub fn closed(mut self) -> u16 {
        let (kind, bytes) = loop {
            match self.frame() {
                (PING, _) => {}
                frame => break frame,
            }
        };
        assert_eq!(kind, CLOSE, "{:?}", String::from_utf8_lossy(&bytes));
        self.0.read_to_end(&mut Vec::new()).ok();
        u16::from_be_bytes([bytes[0], bytes[1]])
    }
}

fn head(reader: &mut impl Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0; 1];
        assert!(reader.read(&mut byte).unwrap() > 0, "it ended early: {:?}", String::from_utf8_lossy(&head));
        head.extend(byte);
    }
    String::from_utf8(head).unwrap()
}
