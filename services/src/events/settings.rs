//! Where events are published, and in which form.

use super::payload::EventEncoding;
use crate::limits::EVENT_TOPIC_BYTES_MAX;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// What a publisher is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSettings {
    /// The address where subscribers connect.
    pub listen: Endpoint,
    /// Where those connect who missed some.
    pub replay: Option<Endpoint>,
    /// The first part of each message, which subscribers choose by.
    pub topic: String,
    /// How an event is written.
    pub encoding: EventEncoding,
}

/// An address as ZeroMQ writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint(pub SocketAddr);

impl Endpoint {
    /// Reads `tcp://ADDRESS:PORT`; a `*` in the place of the address means all of the machine's.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wanted = || format!("wants an address such as tcp://127.0.0.1:5557 or tcp://*:5557, got {text:?}");
        let (host, port) = text.strip_prefix("tcp://").and_then(|rest| rest.rsplit_once(':')).ok_or_else(wanted)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let all = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let address = if host == "*" { all } else { host.parse().map_err(|_| wanted())? };
        Ok(Self(SocketAddr::new(address, port.parse().map_err(|_| wanted())?)))
    }
}

/// Whether this can be the topic of messages.
pub fn check_topic(topic: &str) -> Result<(), String> {
    match topic.len() {
        bytes if bytes <= EVENT_TOPIC_BYTES_MAX => Ok(()),
        got => Err(format!("has {got} bytes, at most {EVENT_TOPIC_BYTES_MAX} are taken")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_read_as_zeromq_writes_it() {
        for (text, wanted) in [
            ("tcp://127.0.0.1:5557", Some("127.0.0.1:5557")),
            ("tcp://*:5557", Some("0.0.0.0:5557")),
            ("tcp://[::1]:1", Some("[::1]:1")),
            ("127.0.0.1:5557", None),
            ("tcp://localhost:5557", None),
            ("ipc:///tmp/x", None),
            ("tcp://127.0.0.1:70000", None),
        ] {
            let read = Endpoint::parse(text);
            assert_eq!(read.as_ref().ok().map(|endpoint| endpoint.0), wanted.map(|w| w.parse().unwrap()), "{text}");
            assert!(read.err().is_none_or(|why| why.contains(text)));
        }
    }
}
