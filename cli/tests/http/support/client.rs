//! A client that writes and reads bytes, so that tests see exactly what is on the wire.

use super::PATIENCE;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A reply, read to its end.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(k, _)| k.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", String::from_utf8_lossy(&self.body)))
    }

    /// The content of the first choice.
    #[track_caller]
    pub fn content(&self) -> String {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("{}", self.text())).to_owned()
    }
}

/// Bytes of a request; the connection closes after it.
pub fn bytes(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut out = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        out += &format!("{name}: {value}\r\n");
    }
    [format!("{out}\r\n").as_bytes(), body].concat()
}

pub fn connect(addr: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(addr).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

pub fn request(addr: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let mut socket = connect(addr);
    // A server that refuses early may close while we still write; its reply is there to be read all the same.
    socket.write_all(&bytes(method, path, headers, body)).ok();
    read_reply(socket)
}

pub fn read_reply(socket: TcpStream) -> Reply {
    let mut reader = BufReader::new(socket);
    let (status, headers) = read_head(&mut reader);
    let chunked = headers.iter().any(|(k, v)| k == "transfer-encoding" && v == "chunked");
    let mut body = Vec::new();
    if chunked {
        while let Some(chunk) = read_chunk(&mut reader) {
            body.extend(chunk);
        }
    } else {
        reader.read_to_end(&mut body).unwrap();
    }
    Reply { status, headers, body }
}

pub fn get(addr: SocketAddr, path: &str) -> Reply {
    request(addr, "GET", path, &[], b"")
}

pub fn post(addr: SocketAddr, path: &str, body: &Value) -> Reply {
    request(addr, "POST", path, &[("Content-Type", "application/json")], body.to_string().as_bytes())
}

/// A streamed reply, read as it comes.
pub struct Stream {
    pub reader: BufReader<TcpStream>,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// Bytes of the body that were not cut into events yet.
    rest: String,
    ended: bool,
}

impl Stream {
    pub fn open(addr: SocketAddr, path: &str, body: &Value) -> Self {
        let mut socket = connect(addr);
        socket
            .write_all(&bytes("POST", path, &[("Content-Type", "application/json")], body.to_string().as_bytes()))
            .unwrap();
        let mut reader = BufReader::new(socket);
        let (status, headers) = read_head(&mut reader);
        Self { reader, status, headers, rest: String::new(), ended: false }
    }

    /// The next event with all its lines, or `None` at the proper end of the body.
    pub fn event(&mut self) -> Option<String> {
        loop {
            if let Some((event, rest)) = self.rest.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.rest = rest;
                return Some(event);
            }
            if self.ended {
                assert_eq!(self.rest, "", "the body ends with a whole event");
                return None;
            }
            match read_chunk(&mut self.reader) {
                Some(chunk) => self.rest += std::str::from_utf8(&chunk).expect("chunks hold whole characters"),
                None => self.ended = true,
            }
        }
    }

    /// The next bytes of a body that is not one of events.
    pub fn piece(&mut self) -> Option<String> {
        read_chunk(&mut self.reader).map(|chunk| String::from_utf8(chunk).unwrap())
    }

    /// The JSON of the next event.
    #[track_caller]
    pub fn chunk(&mut self) -> Value {
        let event = self.event().expect("another event");
        let data = event.strip_prefix("data: ").unwrap_or_else(|| panic!("{event:?}"));
        serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data:?}"))
    }

    /// All events that are left.
    pub fn events(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.event()).collect()
    }

    /// The JSON of all events that are left, each of which has its name before its data and as `type` in it.
    #[track_caller]
    pub fn named_events(&mut self) -> Vec<Value> {
        assert_eq!(self.status, 200);
        let one = |event: String| -> Value {
            let (name, data) = event.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
            let data: Value = serde_json::from_str(data).unwrap();
            assert_eq!(data["type"], name);
            data
        };
        self.events().into_iter().map(one).collect()
    }

    /// All JSON chunks that are left; the stream ends with `[DONE]`.
    #[track_caller]
    pub fn chunks(&mut self) -> Vec<Value> {
        let mut events = self.events();
        assert_eq!(events.pop().as_deref(), Some("data: [DONE]"));
        events.iter().map(|e| serde_json::from_str(e.strip_prefix("data: ").unwrap()).unwrap()).collect()
    }
}

/// What the chunks of a chat tell of what the service did, in words: kind, status, and the tool or the step.
pub fn steps_of(chunks: &[Value]) -> Vec<String> {
    let steps = chunks.iter().map(|chunk| &chunk["step"]).filter(|step| step.is_object());
    let words = |step: &Value| {
        let named = ["name", "step"].map(|key| step[key].as_str().unwrap_or_default()).concat();
        format!("{} {} {named}", step["type"].as_str().unwrap(), step["status"].as_str().unwrap()).trim().to_owned()
    };
    steps.map(words).collect()
}

/// The names of a response's events about the item of this number, without what all names begin with.
pub fn names_of_item(events: &[Value], index: u64) -> Vec<&str> {
    let of = events.iter().filter(|event| event["output_index"] == index);
    of.map(|event| event["type"].as_str().unwrap().strip_prefix("response.").unwrap()).collect()
}

/// The body of a reply that all went well with.
#[track_caller]
pub fn done(reply: Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// The error of a reply that was refused with this status and code.
#[track_caller]
pub fn refused(reply: Reply, status: u16, code: &str) -> Value {
    let error = reply.json()["error"].clone();
    assert_eq!((reply.status, error["code"].as_str()), (status, Some(code)), "{error}");
    error
}

/// Text that the chunks of one choice add up to.
pub fn joined(chunks: &[Value], choice: u64, field: &str) -> String {
    let choices = chunks.iter().flat_map(|c| c["choices"].as_array().unwrap());
    let of_it = choices.filter(|c| c["index"] == choice);
    of_it
        .map(|c| c["delta"].get(field).or_else(|| c.get(field)).and_then(Value::as_str).unwrap_or("").to_owned())
        .collect()
}

fn read_head(reader: &mut BufReader<TcpStream>) -> (u16, Vec<(String, String)>) {
    let line = |reader: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let first = line(reader);
    let status = first.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {first:?}")).parse().unwrap();
    let mut headers = Vec::new();
    loop {
        let line = line(reader);
        if line.is_empty() {
            return (status, headers);
        }
        let (name, value) = line.split_once(": ").unwrap();
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
}

/// One chunk of a chunked body; `None` at its end.
fn read_chunk(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut size = String::new();
    reader.read_line(&mut size).unwrap();
    let size = usize::from_str_radix(size.trim_end(), 16).unwrap_or_else(|e| panic!("{e}: chunk size {size:?}"));
    let mut chunk = vec![0; size + 2];
    reader.read_exact(&mut chunk).unwrap();
    assert!(chunk.ends_with(b"\r\n"));
    chunk.truncate(size);
    (size > 0).then_some(chunk)
}

/// A connection from another address of this machine.
pub fn connect_from(source: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let socket: TcpStream = socket.into();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Opens `count` connections from another address of this machine and sends `head` on each. A connection that the
/// service ends for want of room may not take all of it.
pub fn opened(count: usize, source: [u8; 4], to: SocketAddr, head: &str) -> Vec<TcpStream> {
    let open = |_| {
        let mut socket = connect_from(source, to);
        socket.write_all(head.as_bytes()).ok();
        socket
    };
    (0..count).map(open).collect()
}
