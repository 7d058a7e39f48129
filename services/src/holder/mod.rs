//! On whose account something is done or held: what is shared is shared between these.

pub(crate) mod access;
mod tools;
mod watched;

pub use tools::ToolRights;
pub(crate) use watched::Watched;

use chimere_engine::ids::KeyId;
use sha2::{Digest, Sha256};
use std::net::{IpAddr, Ipv6Addr};

/// SHA-256 of an API key. A key itself is written nowhere.
pub type KeyHash = [u8; 32];

/// What the hash of a text begins with, where it is written down.
pub const HASHED: &str = "sha256:";

/// SHA-256 of a text, as files and the audit have it.
pub fn digest(text: &str) -> String {
    Sha256::digest(text).iter().fold(HASHED.to_owned(), |out, byte| out + &format!("{byte:02x}"))
}

/// A hash as operators write it in files, with or without [`HASHED`] before it.
///
/// # Errors
/// If it is not 64 hexadecimal digits. What it is instead is not repeated, because it may be a key.
pub fn key_hash(hex: &str) -> Result<KeyHash, String> {
    let hex = hex.strip_prefix(HASHED).unwrap_or(hex);
    let digits: Option<Vec<u8>> = hex.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    let bytes = digits.filter(|digits| digits.len() == 2 * size_of::<KeyHash>()).and_then(|digits| {
        let (pairs, _) = digits.as_chunks::<2>();
        pairs.iter().map(|[high, low]| high << 4 | low).collect::<Vec<u8>>().try_into().ok()
    });
    let got = hex.chars().count();
    bytes.ok_or_else(|| format!("wanted the SHA-256 of an API key, 64 hexadecimal digits, got {got} characters"))
}

/// In the place of keys: everybody.
const EVERYBODY: &str = "*";

/// Whom a file of an operator lets at something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyList {
    /// Everybody: `"*"` is among the keys.
    Everybody,
    /// The keys with these hashes.
    Keys(Vec<KeyHash>),
}

impl KeyList {
    /// A list as it is written: hashes of keys, and `"*"` for everybody.
    ///
    /// # Errors
    /// If a hash is none.
    pub fn of(keys: &[String]) -> Result<Self, String> {
        let hashes = keys.iter().filter(|key| *key != EVERYBODY).map(|key| key_hash(key)).collect::<Result<_, _>>()?;
        Ok(if keys.iter().any(|key| key == EVERYBODY) { Self::Everybody } else { Self::Keys(hashes) })
    }
}

/// The accounts that a file of an operator lets at something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmittedAccounts {
    /// The accounts of everybody.
    Everybody,
    /// Those of some keys.
    Of(Vec<KeyId>),
}

impl AdmittedAccounts {
    /// Of a list as it is written; see [`KeyList::of`].
    ///
    /// # Errors
    /// If a hash is none.
    pub fn of(keys: &[String]) -> Result<Self, String> {
        Ok(match KeyList::of(keys)? {
            KeyList::Everybody => Self::Everybody,
            KeyList::Keys(hashes) => Self::Of(hashes.iter().map(|hash| account(&[hash])).collect()),
        })
    }

    /// Whether this account is one of them.
    pub fn has(&self, account: KeyId) -> bool {
        match self {
            Self::Everybody => true,
            Self::Of(accounts) => accounts.contains(&account),
        }
    }
}

/// The account of a key, given its hash, or of another caller, given what sets it apart: a number from which neither
/// can be found. 0 is nobody's.
pub fn account(parts: &[&[u8]]) -> KeyId {
    let digest = parts.iter().fold(Sha256::new(), |digest, part| digest.chain_update(part)).finalize();
    let bytes: [u8; 8] = digest[..8].try_into().expect("a digest has 32 bytes");
    KeyId(u64::from_le_bytes(bytes).max(1))
}

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

    /// May it have so much of what is shared, where so much is left then? Whoever holds much leaves as much for the
    /// others; `least` each may have.
    pub fn may_have(self, own: usize, least: usize, left: usize) -> bool {
        self == Self::Many || own <= least.max(left)
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
