//! An address of a page, read strictly: what two readers could understand differently is no address.

use super::error::Refused;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of an address.
pub(super) const URL_BYTES_MAX: usize = 4096;
/// Bytes of a host's name.
const NAME_BYTES_MAX: usize = 253;

/// A page on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageAddress {
    pub(super) encrypted: bool,
    pub(super) host: Host,
    pub(super) port: u16,
    /// With its query; begins with a slash.
    pub(super) path: String,
}

/// Who serves a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// In small letters, without a dot at its end.
    Name(String),
    Address(IpAddr),
}

impl PageAddress {
    /// Reads an absolute address.
    pub(super) fn read(url: &str) -> Result<Self, Refused> {
        let shown = || url.chars().take(200).collect::<String>();
        let scheme = || Refused::Scheme { got: shown() };
        if url.len() > URL_BYTES_MAX || url.chars().any(char::is_control) {
            return Err(scheme());
        }
        let (name, rest) = url.split_once("://").ok_or_else(scheme)?;
        let encrypted = match name.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(scheme()),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(Refused::User { got: shown() });
        }
        let (host, port) = parted(authority).ok_or_else(|| Refused::Host { got: authority.to_owned() })?;
        let port = match port {
            None | Some("") => usual_port(encrypted),
            Some(digits) => number(digits).ok_or_else(|| Refused::Port { got: digits.to_owned() })?,
        };
        Ok(Self { encrypted, host: Host::read(host)?, port, path: path_of(path) })
    }

    /// The page that this one sends to.
    pub(super) fn joined(&self, location: &str) -> Result<Self, Refused> {
        let location = location.trim();
        let scheme = location.split(['/', '?', '#']).next().unwrap_or_default();
        if scheme.contains(':') {
            return Self::read(location);
        }
        if location.starts_with("//") {
            return Self::read(&format!("{}:{location}", self.scheme()));
        }
        // A backslash is a slash to some readers.
        if location.contains('\\') || location.chars().any(char::is_control) || location.len() > URL_BYTES_MAX {
            return Err(Refused::Redirect { why: "its location is no address".into() });
        }
        let own = self.path.split('?').next().unwrap_or("/");
        let path = match location.as_bytes().first() {
            Some(b'/') => path_of(location),
            Some(b'?') => path_of(&format!("{own}{location}")),
            None | Some(b'#') => self.path.clone(),
            Some(_) => path_of(&format!("{}{location}", &own[..=own.rfind('/').unwrap_or(0)])),
        };
        Ok(Self { path, ..self.clone() })
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.encrypted { "https" } else { "http" }
    }

    /// The host as a request names it, with the port where that is not the usual one.
    pub(super) fn authority(&self) -> String {
        if self.port == usual_port(self.encrypted) {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    pub(super) fn url(&self) -> String {
        format!("{}://{}{}", self.scheme(), self.authority(), self.path)
    }
}

impl Host {
    /// A name, or an address in the one form that all readers agree on.
    pub(super) fn read(host: &str) -> Result<Self, Refused> {
        let wrong = || Refused::Host { got: host.chars().take(200).collect() };
        if let Some(inner) = host.strip_prefix('[') {
            let six: Ipv6Addr = inner.strip_suffix(']').and_then(|six| six.parse().ok()).ok_or_else(wrong)?;
            return Ok(Self::Address(six.into()));
        }
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let last = name.rsplit('.').next().unwrap_or_default();
        if last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x") {
            // It ends in a number: readers take it for an address, in many forms of which one is usual.
            return host.parse::<Ipv4Addr>().map(|four| Self::Address(four.into())).map_err(|_| wrong());
        }
        let is_label = |label: &str| {
            let bytes = label.as_bytes();
            (1..=63).contains(&bytes.len())
                && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        if name.len() > NAME_BYTES_MAX || !name.split('.').all(is_label) {
            return Err(wrong());
        }
        Ok(Self::Name(name))
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(four)) => four.fmt(f),
            Self::Address(IpAddr::V6(six)) => write!(f, "[{six}]"),
        }
    }
}

/// Host and port of an authority.
pub(super) fn parted(authority: &str) -> Option<(&str, Option<&str>)> {
    let after = if authority.starts_with('[') {
        authority.find(']')? + 1
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, port) = authority.split_at(after);
    match port.strip_prefix(':') {
        None if port.is_empty() => Some((host, None)),
        None => None,
        port => Some((host, port)),
    }
}

/// A number in digits alone, without a sign and without zeros before it.
pub(super) fn number(digits: &str) -> Option<u16> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    if plain { digits.parse().ok() } else { None }
}

/// The port of a scheme where an address names none.
fn usual_port(encrypted: bool) -> u16 {
    if encrypted { 443 } else { 80 }
}

/// A path as a request has it: no fragment, and no byte that ends a line or a word.
fn path_of(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let mut out = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        out.push('/');
    }
    for byte in path.bytes() {
        match byte {
            b'!'..=b'~' if !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}') => {
                out.push(byte as char);
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}
