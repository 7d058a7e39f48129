//! On whose account something is done or held: what is shared is shared between these.

use chimere_engine::ids::KeyId;
use std::net::{IpAddr, Ipv6Addr};

/// On whose account something is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// The account of an API key.
    Key(KeyId),
    /// Of whoever comes from there.
    Address(IpAddr),
    /// Of many, as behind a proxy that is trusted: only what there is for all bounds it.
    Many,
}

impl Holder {
    /// Of a connection from this address.
    pub fn at(address: IpAddr, proxies: &[IpAddr]) -> Self {
        let address = address.to_canonical();
        if proxies.contains(&address) { Self::Many } else { Self::Address(network(address)) }
    }
}

/// What stands for a machine in counts by address: an IPv4 address, of IPv6 the network of 64 bits, of which every
/// machine has as many addresses as it likes.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_machine_is_one_holder_by_either_kind_of_address() {
        let at = |text: &str| Holder::at(text.parse().unwrap(), &["10.0.0.9".parse().unwrap()]);
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_eq!(at("::ffff:10.0.0.9"), Holder::Many);
        assert_eq!(at("2001:db8:0:1::1"), at("2001:db8:0:1:ffff::2"), "a machine takes what address it likes");
        assert_ne!(at("2001:db8:0:1::1"), at("2001:db8:0:2::1"));
    }
}
