//! The scopes of the prefix cache, which say from which prompts a request may go on. What a prompt of another scope
//! left behind is never found, neither by what it says nor by how soon an answer comes.

use chimere_engine::ids::CacheScope;
use sha2::{Digest, Sha256};

/// Of requests without a key, where none is asked for.
pub(super) fn of_nobody() -> CacheScope {
    scope("nobody", &[])
}

/// Of one key, of which this is the hash.
pub(super) fn of_key(hash: &[u8; 32]) -> CacheScope {
    scope("key", &[hash])
}

/// Of all keys that an operator put into this group.
pub(super) fn of_group(name: &str) -> CacheScope {
    scope("group", &[name.as_bytes()])
}

/// Of one of those for whom a gateway sends.
pub(super) fn of_user(gateway: CacheScope, id: &[u8]) -> CacheScope {
    scope("user", &[&gateway.0.to_le_bytes(), id])
}

/// Of a request, given its caller's and what it says: `None` if it is not `on`, and wants neither to find anything nor
/// to leave anything.
pub(in crate::http) fn of_request(caller: CacheScope, on: bool, salt: Option<&str>) -> Option<CacheScope> {
    let salted = |salt: &str| scope("salt", &[&caller.0.to_le_bytes(), salt.as_bytes()]);
    on.then(|| salt.map_or(caller, salted))
}

/// A number that nobody finds another input for. Of the parts all but the last have a fixed length.
fn scope(kind: &str, parts: &[&[u8]]) -> CacheScope {
    let digest = Sha256::new().chain_update(kind).chain_update([0]);
    let digest = parts.iter().fold(digest, |digest, part| digest.chain_update(part)).finalize();
    let bytes: [u8; 16] = digest[..16].try_into().expect("a digest has 32 bytes");
    CacheScope(u128::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_salt_is_a_scope_of_its_own_within_its_caller_s() {
        let (a, b) = (of_key(&[1; 32]), of_key(&[2; 32]));
        let salted = |caller, salt: Option<&str>| of_request(caller, true, salt).unwrap();
        assert_eq!(salted(a, None), a);
        assert_eq!(salted(a, Some("x")), salted(a, Some("x")));
        let all = [a, b, salted(a, Some("x")), salted(a, Some("y")), salted(b, Some("x")), of_nobody()];
        let different: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(of_request(a, false, Some("x")), None);
    }
}
