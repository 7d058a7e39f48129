//! Scenes with made-up names, and servers that are scripts: nothing here opens a socket.

use super::network::{ByteStream, Connector, Resolver};
use super::*;
use flate2::{Compression, write::GzEncoder};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const BOUNDS: OutboundBounds = OutboundBounds { time: Duration::from_secs(10), bytes: 1000 };
/// The public address of every name that nothing else is said of.
const PUBLIC: &str = "93.184.216.34";

/// Says for a name and the number of times it was asked which addresses it has.
type Names = fn(&str, usize) -> Vec<&'static str>;

/// A network that writes down whom it was asked to connect to.
#[derive(Clone)]
struct Scene {
    names: Names,
    /// What the server says on each connection, the last on all further ones.
    says: Arc<Vec<Vec<u8>>>,
    asked: Arc<Mutex<Vec<String>>>,
    connected: Arc<Mutex<Vec<SocketAddr>>>,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Resolver for Scene {
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let mut asked = self.asked.lock();
        asked.push(name.to_owned());
        let times = asked.iter().filter(|one| *one == name).count();
        let found = (self.names)(name, times - 1);
        let found = found.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), port)).collect();
        Box::pin(async move { Ok(found) })
    }
}

impl Connector for Scene {
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn ByteStream>>> {
        let mut connected = self.connected.lock();
        let says = self.says.get(connected.len()).or(self.says.last()).unwrap().clone();
        connected.push(address);
        let heard = self.heard.clone();
        Box::pin(async move {
            let (ours, mut theirs) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let bytes = theirs.read(&mut request).await.unwrap_or(0);
                heard.lock().push(String::from_utf8_lossy(&request[..bytes]).into_owned());
                theirs.write_all(&says).await.ok();
            });
            Ok(Box::new(ours) as Box<dyn ByteStream>)
        })
    }
}

impl Scene {
    fn new(names: Names, says: &[&str]) -> Self {
        Self::of_bytes(names, says.iter().map(|said| said.as_bytes().to_vec()).collect())
    }

    fn of_bytes(names: Names, says: Vec<Vec<u8>>) -> Self {
        let (asked, connected, heard) = Default::default();
        Self { names, says: Arc::new(says), asked, connected, heard }
    }

    fn get(&self, destination: Destination) -> Result<(u16, String), OutboundError> {
        self.send(destination, &OutboundRequest::default(), BOUNDS)
    }

    fn send(
        &self,
        to: Destination,
        request: &OutboundRequest,
        bounds: OutboundBounds,
    ) -> Result<(u16, String), OutboundError> {
        let out = Outbound { resolver: Box::new(self.clone()), connector: Box::new(self.clone()) };
        let (status, body) = out.wait(to, request, bounds)?;
        Ok((status, String::from_utf8(body.to_vec()).unwrap()))
    }

    /// Reads a page that a stranger names.
    fn read(&self, url: &str) -> Result<(u16, String), OutboundError> {
        self.get(Destination::public(url, &Arc::new(PublicReach::everywhere()))?)
    }

    fn connections(&self) -> Vec<String> {
        self.connected.lock().iter().map(SocketAddr::to_string).collect()
    }
}

/// `ip-A-B-C-D.test` has the address A.B.C.D; `inside.test` is inside, `both.test` half.
fn names(name: &str, _: usize) -> Vec<&'static str> {
    match name {
        "inside.test" => vec!["10.0.0.7"],
        "both.test" => vec![PUBLIC, "192.168.1.1"],
        "metadata.test" => vec!["169.254.169.254"],
        "six.test" => vec!["::1"],
        "mapped.test" => vec!["::ffff:10.0.0.1"],
        "nat.test" => vec!["64:ff9b::c0a8:101"],
        "local.test" => vec!["fd00::1"],
        "localhost" | "localhost.localdomain" => vec!["127.0.0.1"],
        "nowhere.test" => vec![],
        _ => vec![PUBLIC],
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

/// Addresses that no connection may be made for.
const FORMS: &str = "\
    http://127.0.0.1/ http://127.1/ http://127.0.1/ http://2130706433/ http://0x7f000001/ http://0x7f.0.0.1/ \
    http://0x7f.1/ http://0177.0.0.1/ http://017700000001/ http://127.0.0.1./ http://127.000.000.001/ http://0/ \
    http://0.0.0.0/ http://00.0.0.0/ http://localhost/ http://LOCALHOST/ http://localhost./ \
    http://localhost.localdomain/ http://127.9.8.7/ http://10.0.0.1/ http://10.1/ http://167772161/ \
    http://172.16.0.1/ http://172.31.255.254/ http://192.168.0.1/ http://192.168.1/ http://3232235777/ \
    http://169.254.169.254/latest/meta-data/ http://2852039166/ http://0xa9fea9fe/ http://0xA9.0xFE.0xA9.0xFE/ \
    http://0251.0376.0251.0376/ http://100.64.0.1/ http://100.100.100.200/ http://192.0.0.192/ http://192.0.2.1/ \
    http://198.18.0.1/ http://203.0.113.1/ http://224.0.0.1/ http://240.0.0.1/ http://255.255.255.255/ \
    http://[::]/ http://[::1]/ http://[0:0:0:0:0:0:0:1]/ http://[::ffff:127.0.0.1]/ http://[::ffff:7f00:1]/ \
    http://[::127.0.0.1]/ http://[64:ff9b::127.0.0.1]/ http://[64:ff9b::a00:1]/ http://[2002:7f00:1::]/ \
    http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/ http://[fe80::1]/ http://[fe80::1%25eth0]/ http://[fc00::1]/ \
    http://[fd00:ec2::254]/ http://[ff02::1]/ http://[2001:db8::1]/ http://[::ffff:8.8.8.8]/ http://[::1 \
    http://[127.0.0.1]/ http://user@127.0.0.1/ http://a:b@example.com/ http://example.com@127.0.0.1/ \
    http://127.0.0.1#@example.com/ http://127.0.0.1?@example.com/ http://example.com%40127.0.0.1/ \
    http://example.com:22/ http://example.com:8080/ http://example.com:0/ http://example.com:00080/ \
    http://example.com:80a/ http://example.com:+80/ http://example.com:65616/ http://example.com:80:80/ \
    http:/example.com/ http:example.com //example.com/ example.com ftp://example.com/ file:///etc/passwd \
    gopher://127.0.0.1:6379/_ dict://127.0.0.1/ data:text/plain,a javascript:1 unix:///run/docker.sock http:// \
    http:///etc https:// http://127。0。0。1/ http://①②⑦.⓪.⓪.①/ http://%31%32%37.0.0.1/ http://.example.com/ \
    http://example..com/ http://1.2.3.4.5/ http://1.2.3/ http://256.256.256.256/ http://inside.test/ \
    http://both.test/ http://metadata.test/ http://six.test/ http://mapped.test/ http://nat.test/ \
    http://local.test/ http://nowhere.test/";
/// Others with blanks, backslashes or nothing in them.
const ODD_FORMS: [&str; 8] = [
    "",
    "http://\\\\127.0.0.1/",
    "http:\\\\127.0.0.1\\",
    "http://example.com\\@127.0.0.1/",
    "http://127.0.0.1\\example.com/",
    "http://exam ple.com/",
    "http://example.com\r\nx: y/",
    "http://127.0.0.1\t/",
];

#[test]
fn no_form_of_an_address_that_is_not_public_makes_a_connection() {
    let forms: Vec<&str> = FORMS.split_whitespace().chain(ODD_FORMS).collect();
    assert!(forms.len() > 60);
    let scene = Scene::new(names, &[OK]);
    for form in forms {
        let got = scene.read(form);
        assert!(got.is_err(), "{form}: {got:?}");
        assert_eq!(scene.connections(), [""; 0], "{form}");
    }
}

#[test]
fn a_public_page_is_read_over_the_address_that_was_looked_at() {
    let scene = Scene::new(names, &[OK]);
    for url in ["http://example.com/a?b#c", "HTTP://Example.COM.:80/a?b", "http://8.8.8.8", "http://[2606:4700::1]/"] {
        assert_eq!(scene.read(url).unwrap(), (200, "hi".into()), "{url}");
    }
    let address = format!("{PUBLIC}:80");
    assert_eq!(scene.connections(), [&address, &address, "8.8.8.8:80", "[2606:4700::1]:80"]);
    let heard = scene.heard.lock();
    assert!(
        heard[0].starts_with("GET /a?b HTTP/1.1\r\nhost: example.com\r\nconnection: close\r\n\r\n"),
        "{}",
        heard[0]
    );
    assert!(!heard.iter().any(|request| request.to_ascii_lowercase().contains("cookie")));
}

#[test]
fn a_name_that_has_another_address_the_second_time_gets_no_connection_there() {
    let first_public: Names = |_, times| if times == 0 { vec![PUBLIC] } else { vec!["127.0.0.1"] };
    let sends_on = "HTTP/1.1 302 Found\r\nlocation: /again\r\n\r\n";
    let scene = Scene::new(first_public, &[sends_on, OK]);
    let refused = scene.read("http://rebinding.test/").unwrap_err();
    assert!(matches!(refused, OutboundError::Refused(Refused::Address { .. })), "{refused}");
    assert_eq!(scene.connections(), [format!("{PUBLIC}:80")]);
    assert_eq!(scene.asked.lock().len(), 2, "each request looks its name up once");
}

#[test]
fn a_redirect_is_looked_at_as_the_first_address_was() {
    for location in [
        "http://127.0.0.1/",
        "http://localhost/",
        "//10.0.0.1/",
        "http://inside.test/",
        "http://both.test/",
        "http://example.com:8080/",
        "ftp://example.com/",
        "http://user@example.com/",
        "http://[::1]/",
        "/\\127.0.0.1",
        "http://2130706433/",
        "file:///etc/passwd",
        "http://metadata.test/latest",
    ] {
        let scene = Scene::new(names, &[&format!("HTTP/1.1 301 Moved\r\nlocation: {location}\r\n\r\n"), OK]);
        let got = scene.read("http://example.com/");
        let inside = scene.connections().into_iter().find(|address| *address != format!("{PUBLIC}:80"));
        assert!(inside.is_none(), "{location}: {inside:?}");
        assert!(got.is_err() || location.starts_with('/'), "{location}: {got:?}");
    }
}

#[test]
fn at_most_three_redirects_are_followed() {
    let sends_on = "HTTP/1.1 307 On\r\nlocation: next\r\n\r\n";
    let three = Scene::new(names, &[sends_on, sends_on, sends_on, OK]);
    assert_eq!(three.read("http://example.com/a/b?c").unwrap(), (200, "hi".into()));
    assert!(three.heard.lock()[3].starts_with("GET /a/next HTTP/1.1"));
    let round = Scene::new(names, &[sends_on]);
    assert!(round.read("http://example.com/").unwrap_err().to_string().contains("more than 3 times"));
    assert_eq!(round.connections().len(), 4);
}

#[test]
fn the_operator_s_server_may_stand_anywhere_and_no_redirect_leaves_it() {
    let server = OperatorsServer::configured("http://127.0.0.1:8888/base/").unwrap();
    let there = || Destination::operators(&server, "/search?q=a").unwrap();
    let scene = Scene::new(names, &[OK]);
    assert_eq!(scene.get(there()).unwrap(), (200, "hi".into()));
    assert_eq!(scene.connections(), ["127.0.0.1:8888"]);
    assert!(scene.heard.lock()[0].starts_with("GET /base/search?q=a HTTP/1.1\r\nhost: 127.0.0.1:8888\r\n"));
    for location in
        ["http://127.0.0.1:8889/", "http://127.0.0.2:8888/", "https://127.0.0.1:8888/", "http://example.com/"]
    {
        let scene = Scene::new(names, &[&format!("HTTP/1.1 302 On\r\nlocation: {location}\r\n\r\n"), OK]);
        assert!(scene.get(there()).unwrap_err().to_string().contains("out of the server"), "{location}");
        assert_eq!(scene.connections().len(), 1, "{location}");
    }
}

#[test]
fn where_hosts_are_listed_others_are_refused() {
    let mut reach = PublicReach::listed();
    for entry in ["docs.test", "127.0.0.1:8091"] {
        reach.allow(entry).unwrap();
    }
    let reach = Arc::new(reach);
    let scene = Scene::new(names, &[OK]);
    let read = |url: &str| Destination::public(url, &reach).map_err(OutboundError::from).and_then(|to| scene.get(to));
    for url in ["http://docs.test/a", "http://www.docs.test/", "http://127.0.0.1:8091/x"] {
        assert_eq!(read(url).unwrap().0, 200, "{url}");
    }
    assert_eq!(scene.connections()[2], "127.0.0.1:8091");
    for url in [
        "http://evildocs.test/",
        "http://docs.test.evil/",
        "http://127.0.0.1:8092/",
        "http://127.0.0.1/",
        "http://127.0.0.2:8091/",
        "http://8.8.8.8/",
        "http://docs.test:8091/",
        "https://127.0.0.1:8091/",
    ] {
        assert!(read(url).is_err(), "{url}");
    }
    assert_eq!(scene.connections().len(), 3);
}

#[test]
fn a_body_is_read_within_its_bounds_however_its_length_is_told() {
    let read = |said: &str| Scene::new(names, &[said]).read("http://example.com/");
    let whole = |said: &str| read(said).unwrap().1;
    assert_eq!(
        whole("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"),
        "abc0123456789"
    );
    assert_eq!(whole("HTTP/1.0 200 OK\r\n\r\nto the end"), "to the end");
    assert_eq!(whole("HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na"), "a");
    let many = "x".repeat(BOUNDS.bytes + 1);
    for bad in [
        String::new(),
        "HTTP/1.1 200 OK\r\n".into(),
        "SSH-2.0 200\r\n\r\n".into(),
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab".into(),
        "HTTP/1.1 200 OK\r\ncontent-length: -3\r\n\r\nab".into(),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab".into(),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n".into(),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-1\r\na".into(),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\na".into(),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: brotli\r\n\r\na".into(),
        "HTTP/1.1 200 OK\r\ncontent-encoding: br\r\n\r\na".into(),
        format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(40 << 10)),
        format!("HTTP/1.1 200 OK\r\n\r\n{many}"),
    ] {
        assert!(read(&bad).is_err(), "{:?}", &bad[..bad.len().min(100)]);
    }
}

#[test]
fn a_packed_body_is_unpacked_to_its_bound_and_no_further() {
    let packed = |bytes: usize| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&vec![b'a'; bytes]).unwrap();
        let body = gzip.finish().unwrap();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", body.len());
        Scene::of_bytes(names, vec![[head.as_bytes(), &body].concat()]).read("http://example.com/")
    };
    assert_eq!(packed(BOUNDS.bytes).unwrap().1.len(), BOUNDS.bytes);
    let bomb = packed(200 << 10).unwrap_err();
    assert!(matches!(bomb, OutboundError::Long(_)), "{bomb}");
}

#[test]
fn a_server_that_says_nothing_is_waited_for_no_longer_than_the_bound() {
    struct Silent;
    impl Connector for Silent {
        fn connect(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn ByteStream>>> {
            let (ours, theirs) = tokio::io::duplex(1 << 10);
            std::mem::forget(theirs);
            Box::pin(async move { Ok(Box::new(ours) as Box<dyn ByteStream>) })
        }
    }
    let out = Outbound { resolver: Box::new(Scene::new(names, &[OK])), connector: Box::new(Silent) };
    let bounds = OutboundBounds { time: Duration::from_millis(20), ..BOUNDS };
    let page = Destination::public("http://example.com/", &Arc::default()).unwrap();
    let late = out.wait(page, &OutboundRequest::default(), bounds).unwrap_err();
    assert!(matches!(late, OutboundError::Late(_)), "{late}");
}

#[test]
fn a_header_cannot_begin_another_line() {
    let server = OperatorsServer::configured("http://10.0.0.7/").unwrap();
    let scene = Scene::new(names, &[OK]);
    for (name, value) in [("x", "a\r\ny: b"), ("x\r\ny", "a"), ("", "a"), ("x:", "a")] {
        let request = OutboundRequest { headers: vec![(name.into(), value.into())], ..OutboundRequest::default() };
        let got = scene.send(Destination::operators(&server, "").unwrap(), &request, BOUNDS);
        assert!(matches!(got, Err(OutboundError::Header(_))), "{name:?} {value:?}: {got:?}");
    }
    assert_eq!(scene.connections(), [""; 0]);
    let request =
        OutboundRequest { method: Method::Post, headers: vec![("a-b".into(), "c".into())], body: "{}".into() };
    scene.send(Destination::operators(&server, "").unwrap(), &request, BOUNDS).unwrap();
    assert_eq!(
        scene.heard.lock()[0],
        "POST / HTTP/1.1\r\nhost: 10.0.0.7\r\nconnection: close\r\na-b: c\r\ncontent-length: 2\r\n\r\n{}"
    );
}
