//! Where a request may go. A server that the operator named is known by the configuration alone; everything else is
//! public, and the two cannot be taken for each other.

use super::address::is_public;
use super::error::Refused;
use super::target::{Host, PageAddress, number, parted};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Ports of the public internet's pages.
const PUBLIC_PORTS: [u16; 2] = [80, 443];

/// A server that the operator named, by its exact host and port: it may stand anywhere. Only what reads the operator's
/// own files makes one (a test looks through the source).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorsServer {
    base: PageAddress,
}

impl OperatorsServer {
    /// Reads an address of the configuration, such as `http://10.0.0.7:8000/v1`.
    pub fn configured(url: &str) -> Result<Self, Refused> {
        PageAddress::read(url).map(|base| Self { base })
    }

    /// The address as it was configured, without a slash at its end.
    pub fn url(&self) -> String {
        self.base.url().trim_end_matches('/').to_owned()
    }

    fn serves(&self, target: &PageAddress) -> bool {
        self.base.host == target.host && self.base.port == target.port && self.base.encrypted == target.encrypted
    }
}

/// What the operator says of pages that a stranger names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicReach {
    /// Hosts that may be read, with all below them; `None` for every public one.
    hosts: Option<Vec<Host>>,
    /// Servers that may be read wherever they stand.
    servers: Vec<OperatorsServer>,
}

impl PublicReach {
    /// Every public host, and no other.
    pub fn everywhere() -> Self {
        Self::default()
    }

    /// Only what is allowed by name.
    pub fn listed() -> Self {
        Self { hosts: Some(Vec::new()), servers: Vec::new() }
    }

    /// Adds an entry of the configuration's list: a host's name stands for that host and those below it, at public
    /// addresses; a name or an address with a port for exactly that server, wherever it stands.
    pub fn allow(&mut self, entry: &str) -> Result<(), Refused> {
        let wrong = || Refused::Host { got: entry.to_owned() };
        let (host, port) = parted(entry).ok_or_else(wrong)?;
        match port {
            None => {
                let host = Host::read(host)?;
                if let Some(hosts) = &mut self.hosts {
                    hosts.push(host);
                }
            }
            Some(digits) => {
                number(digits).ok_or_else(|| Refused::Port { got: digits.to_owned() })?;
                let scheme = if digits == "443" { "https" } else { "http" };
                self.servers.push(OperatorsServer::configured(&format!("{scheme}://{entry}"))?);
            }
        }
        Ok(())
    }

    fn lists(&self, host: &Host) -> bool {
        let Some(hosts) = &self.hosts else { return true };
        let is_below = |listed: &Host| match (listed, host) {
            (Host::Name(listed), Host::Name(name)) => {
                name.strip_suffix(listed.as_str()).is_some_and(|rest| rest.ends_with('.'))
            }
            _ => false,
        };
        hosts.iter().any(|listed| listed == host || is_below(listed))
    }
}

/// A page that a request may go to.
#[derive(Clone, Debug)]
pub struct Destination {
    target: PageAddress,
    reach: Reach,
}

#[derive(Clone, Debug)]
enum Reach {
    /// Wherever this server stands, and nowhere else.
    Operators(OperatorsServer),
    /// What strangers may name.
    Public(Arc<PublicReach>),
}

impl Destination {
    /// The operator's server, at this path and query behind the path that the configuration has.
    pub fn operators(server: &OperatorsServer, path: &str) -> Result<Self, Refused> {
        let target =
            if path.is_empty() { server.base.clone() } else { PageAddress::read(&format!("{}{path}", server.url()))? };
        Self { target, reach: Reach::Operators(server.clone()) }.checked()
    }

    /// A page that a stranger named: a client, a model, or another page.
    pub fn public(url: &str, reach: &Arc<PublicReach>) -> Result<Self, Refused> {
        let page =
            PageAddress::read(url).and_then(|target| Self { target, reach: Reach::Public(reach.clone()) }.checked());
        page.map_err(Refused::counted)
    }

    /// Where this page sends on, under the same rules.
    pub(super) fn redirected(&self, location: &str) -> Result<Self, Refused> {
        let target = self.target.joined(location);
        target.and_then(|target| Self { target, reach: self.reach.clone() }.checked()).map_err(Refused::counted)
    }

    fn checked(self) -> Result<Self, Refused> {
        let target = &self.target;
        match &self.reach {
            Reach::Operators(server) if server.serves(target) => {}
            Reach::Operators(_) => {
                return Err(Refused::Redirect {
                    why: format!("out of the server that the operator named, to {}", target.authority()),
                });
            }
            Reach::Public(_) if self.is_operators() => {}
            Reach::Public(reach) => {
                if !reach.lists(&target.host) {
                    return Err(Refused::Unlisted { host: target.host.to_string() });
                }
                if !PUBLIC_PORTS.contains(&target.port) {
                    return Err(Refused::Port { got: target.port.to_string() });
                }
                if let Host::Address(address) = target.host {
                    self.looked_at(&[SocketAddr::new(address, target.port)])?;
                }
            }
        }
        Ok(self)
    }

    /// Looks at every address that the host's name has, and says whether a connection may go there.
    pub(super) fn looked_at(&self, addresses: &[SocketAddr]) -> Result<(), Refused> {
        let is_closed = |address: &SocketAddr| !is_public(address.ip()) || address.port() != self.target.port;
        if !self.is_operators() && addresses.iter().any(is_closed) {
            return Err(Refused::Address { host: self.target.host.to_string() });
        }
        Ok(())
    }

    /// True for a server that may stand anywhere.
    fn is_operators(&self) -> bool {
        match &self.reach {
            Reach::Operators(server) => server.serves(&self.target),
            Reach::Public(reach) => reach.servers.iter().any(|server| server.serves(&self.target)),
        }
    }

    /// Whether it is the same server, spoken to in the same way.
    pub(super) fn is_same_server(&self, other: &Self) -> bool {
        let of = |page: &PageAddress| (page.host.clone(), page.port, page.encrypted);
        of(&self.target) == of(&other.target)
    }

    pub(super) fn target(&self) -> &PageAddress {
        &self.target
    }

    /// The whole address of the page.
    pub fn url(&self) -> String {
        self.target.url()
    }

    /// The host, for log lines.
    pub fn host(&self) -> String {
        self.target.host.to_string()
    }

    /// The address of a host that is one.
    pub(super) fn literal(&self) -> Option<IpAddr> {
        match self.target.host {
            Host::Address(address) => Some(address),
            Host::Name(_) => None,
        }
    }
}
