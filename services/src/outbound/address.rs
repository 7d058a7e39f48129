//! Which addresses are the public internet's. All others belong to this machine, to its network, or to nobody.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Nets of version 4 that no public page is served from: address and length of the prefix.
const CLOSED_4: [(Ipv4Addr, u32); 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // Clouds answer questions about a machine and its secrets here.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
    (Ipv4Addr::new(255, 255, 255, 255), 32),
];

/// Nets within 2000::/3, the only public one of version 6, that are not public: protocol assignments with Teredo and
/// benchmarks, documentation, 6to4, documentation again.
const CLOSED_6: [(Ipv6Addr, u32); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];
const PUBLIC_6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// Addresses of version 4 as networks without it show them.
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);
/// Before an address of version 4 in the second half of a tunnel's address (ISATAP), the universal bit aside.
const ISATAP: u32 = 0x0000_5efe;
const UNIVERSAL_BIT: u32 = 0x0200_0000;

/// True for an address that a stranger may send this service to.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => is_public_4(four),
        IpAddr::V6(six) if is_in_6(six, NAT64) => is_public_4(last_four(six)),
        IpAddr::V6(six) => is_in_6(six, PUBLIC_6) && !CLOSED_6.iter().any(|net| is_in_6(six, *net)) && !is_isatap(six),
    }
}

fn is_public_4(four: Ipv4Addr) -> bool {
    let is_in = |(net, bits): &(Ipv4Addr, u32)| (four.to_bits() ^ net.to_bits()) >> (32 - bits) == 0;
    !CLOSED_4.iter().any(is_in)
}

fn is_in_6(six: Ipv6Addr, (net, bits): (Ipv6Addr, u32)) -> bool {
    (six.to_bits() ^ net.to_bits()) >> (128 - bits) == 0
}

fn is_isatap(six: Ipv6Addr) -> bool {
    (six.to_bits() >> 32) as u32 & !UNIVERSAL_BIT == ISATAP
}

fn last_four(six: Ipv6Addr) -> Ipv4Addr {
    Ipv4Addr::from_bits(six.to_bits() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLIC: &str = "1.1.1.1 8.8.8.8 172.15.0.1 172.32.0.1 100.128.0.1 192.0.1.1 198.20.0.1 223.255.255.255 \
        2606:4700::1111 2a00:1450:4001::1 64:ff9b::808:808";

    const CLOSED: &str = "0.0.0.0 0.1.2.3 10.255.0.1 100.64.0.1 100.127.255.255 127.0.0.1 127.9.9.9 169.254.169.254 \
        172.16.0.1 172.31.255.255 192.0.0.8 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.19.255.255 \
        198.51.100.7 203.0.113.7 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 168.63.129.16 :: ::1 \
        ::7f00:1 ::ffff:127.0.0.1 ::ffff:8.8.8.8 ::808:808 fe80::1 fec0::1 fc00::1 fd12::1 ff02::1 \
        64:ff9b::7f00:1 64:ff9b::a00:1 64:ff9b:1::1 100::1 2001::1 2001:0:7f00:1::1 2001:2::1 2001:10::1 \
        2001:db8::1 2002:7f00:1::1 2002:808:808::1 3fff::1 5f00::1 4000::1 2a00:1450::5efe:a00:1 \
        2a00:1450::200:5efe:a00:1";

    #[test]
    fn the_public_internet_is_public_and_nothing_else_is() {
        for public in PUBLIC.split_whitespace() {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for closed in CLOSED.split_whitespace() {
            assert!(!is_public(closed.parse().unwrap()), "{closed}");
        }
    }
}
