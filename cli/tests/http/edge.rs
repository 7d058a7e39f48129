//! How clients are met: encrypted, from browsers, as administrators, and when they take too long.

use crate::support::client::connect;
use crate::support::server::data;
use crate::support::*;
use chimere::http::auth::{AcceptedKeys, hashed};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";

pub(crate) type Encrypted = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

/// An encrypted connection that trusts the certificate of these tests and no other.
pub(crate) fn encrypted(socket: TcpStream, name: &'static str) -> Encrypted {
    offering(socket, name, &[])
}

/// An encrypted connection of a client that offers these protocols.
fn offering(socket: TcpStream, name: &'static str, protocols: &[&str]) -> Encrypted {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(data("tls_certificate.pem")).unwrap()).unwrap();
    let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls_graviola::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let connection = rustls::ClientConnection::new(Arc::new(config), ServerName::try_from(name).unwrap()).unwrap();
    rustls::StreamOwned::new(connection, socket)
}

#[test]
fn with_a_certificate_the_service_answers_over_tls_and_to_nobody_else() {
    let server = Server::start(Options { tls: true, ..Options::default() });
    let body = ask("SAY[secret]").to_string();
    let bytes = client::bytes("POST", CHAT, &[], body.as_bytes());
    let mut stream = encrypted(connect(server.addr), "localhost");
    stream.write_all(&bytes).unwrap();
    let mut text = String::new();
    // Whether the end is announced is the server's business; the reply has its length.
    stream.read_to_string(&mut text).ok();
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("\"content\":\"secret\""), "{text}");

    let mut wrong = encrypted(connect(server.addr), "another.example");
    assert!(wrong.write_all(&bytes).and_then(|()| wrong.flush()).is_err(), "the certificate is not that host's");
    let mut plain = connect(server.addr);
    plain.write_all(&bytes).unwrap();
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).ok();
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&answer));
    // Half a handshake, and then nothing: others are served.
    let mut half = connect(server.addr);
    half.write_all(b"\x16\x03\x01\x02\x00\x01").unwrap();
    let mut again = encrypted(connect(server.addr), "localhost");
    again.write_all(&client::bytes("GET", "/metrics", &[], b"")).unwrap();
    let mut text = String::new();
    again.read_to_string(&mut text).ok();
    assert!(text.contains("chimere_tls_certificate_expiry_seconds 4948894074"), "{text}");
}

#[test]
fn over_tls_too_a_connection_has_one_request_at_a_time() {
    let server = Server::start(Options { tls: true, ..Options::default() });
    let mut both = offering(connect(server.addr), "localhost", &["h2", "http/1.1"]);
    both.write_all(&client::bytes("GET", "/health", &[], b"")).unwrap();
    let mut text = String::new();
    both.read_to_string(&mut text).ok();
    assert_eq!(both.conn.alpn_protocol(), Some(b"http/1.1".as_slice()));
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let mut other = offering(connect(server.addr), "localhost", &["h2"]);
    assert!(
        other.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").and_then(|()| other.flush()).is_err(),
        "it is told at the handshake"
    );
}

#[test]
fn pages_of_the_named_origins_may_call_and_no_others() {
    let keys = AcceptedKeys::one("k");
    let server = Server::start(Options { keys, origins: &["https://app.example"], ..Options::default() });
    let preflight = |origin: &str| {
        let headers = [
            ("Origin", origin),
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "authorization"),
        ];
        request(server.addr, "OPTIONS", CHAT, &headers, b"")
    };
    let allowed = preflight("https://app.example");
    assert_eq!(
        (allowed.status, allowed.header("access-control-allow-origin")),
        (200, Some("https://app.example")),
        "no key is asked for"
    );
    assert!(allowed.header("access-control-allow-headers").unwrap().contains("authorization"));
    // Tables and collections are put.
    assert!(allowed.header("access-control-allow-methods").unwrap().contains("PUT"));
    assert_eq!(preflight("https://other.example").header("access-control-allow-origin"), None);
    let headers = [("Origin", "https://app.example"), ("Authorization", "Bearer k")];
    let reply = request(server.addr, "GET", "/v1/models", &headers, b"");
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, Some("https://app.example")));
    let refused = request(server.addr, "GET", "/v1/models", &headers[..1], b"");
    assert_eq!(
        (refused.status, refused.header("access-control-allow-origin")),
        (401, Some("https://app.example")),
        "a page can read why"
    );
    let closed = Server::start(Options::default());
    let reply = request(closed.addr, "GET", "/v1/models", &headers[..1], b"");
    assert_eq!(reply.header("access-control-allow-origin"), None);
}

#[test]
fn a_hashed_key_lets_its_owner_in_and_the_hash_itself_nobody() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{} scope=admin\n", hashed("sk-real"))).unwrap();
    let server = Server::start(Options { keys: AcceptedKeys::read(file.path()).unwrap(), ..Options::default() });
    let status = |key: &str| {
        request(server.addr, "GET", "/v1/models", &[("Authorization", &format!("Bearer {key}"))], b"").status
    };
    assert_eq!((status("sk-real"), status(&hashed("sk-real"))), (200, 401));
}

#[test]
fn a_body_that_never_ends_is_given_up_and_takes_no_room_any_more() {
    let server =
        Server::start(Options { body_time: Duration::from_millis(400), bodies_bytes: 1 << 20, ..Options::default() });
    let mut socket = connect(server.addr);
    socket
        .write_all(format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n").as_bytes())
        .unwrap();
    let mut dripping = socket.try_clone().unwrap();
    let drip = std::thread::spawn(move || {
        // Ends with the connection, which the server closes.
        while dripping.write_all(b"1\r\n \r\n").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    // The answer comes while the client still sends; the connection is the client's to close.
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("body_too_slow") {
        let mut more = [0; 1024];
        let n = socket.read(&mut more).unwrap();
        assert!(n > 0, "{:?}", String::from_utf8_lossy(&said));
        said.extend(&more[..n]);
    }
    assert!(said.starts_with(b"HTTP/1.1 408"), "{:?}", String::from_utf8_lossy(&said));
    // All the room that bodies have is free again, to the last byte.
    let pad = (1 << 20) - ask("").to_string().len();
    let large = ask(&" ".repeat(pad)).to_string();
    let reply = request(server.addr, "POST", CHAT, &[], large.as_bytes());
    assert_ne!(reply.status, 429, "{}", reply.text());
    socket.shutdown(std::net::Shutdown::Both).unwrap();
    drip.join().unwrap();
    assert_eq!(post(server.addr, CHAT, &ask("SAY[next]")).content(), "next");
    server.wait_for_live(0);
}
