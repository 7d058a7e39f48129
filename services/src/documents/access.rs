//! Which accounts may read the stores of others: the file `access.toml` in the directory of documents. It is read again
//! when it changes; one with a mistake changes nothing.

use crate::holder::AdmittedAccounts;
use crate::holder::access::{AccessFile, parsed};
use chimere_engine::ids::KeyId;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// See the file's head.
pub(super) struct StoreAccess(AccessFile<SharedStores>);

/// The readers of each store that is shared.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SharedStores(HashMap<String, AdmittedAccounts>);

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawAccess {
    stores: HashMap<String, RawStore>,
    /// Those of Engram's tables, which may lie in the same directory.
    tables: IgnoredAny,
    keys: IgnoredAny,
    adapters: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStore {
    keys: Vec<String>,
}

impl StoreAccess {
    /// That of a directory; without a file nothing is shared.
    ///
    /// # Errors
    /// If the file has a mistake, with its place.
    pub(super) fn open(directory: &Path) -> Result<Self, String> {
        AccessFile::open(directory, SharedStores::parse).map(Self)
    }

    /// Who may read which store now.
    pub(super) fn shared(&self) -> Arc<SharedStores> {
        self.0.now()
    }
}

impl SharedStores {
    fn parse(text: &str) -> Result<Self, String> {
        let raw: RawAccess = parsed(text)?;
        let shared = raw.stores.into_iter().map(|(id, store)| {
            let readers = AdmittedAccounts::of(&store.keys).map_err(|e| format!("stores.{id}.keys: {e}"))?;
            Ok((id, readers))
        });
        shared.collect::<Result<_, String>>().map(Self)
    }

    /// Whether an account may read a store of another.
    pub(super) fn allows(&self, reader: KeyId, id: &str) -> bool {
        self.0.get(id).is_some_and(|readers| readers.has(reader))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::access::ACCESS_FILE as FILE;
    use crate::holder::account;

    #[test]
    fn a_store_is_read_by_those_that_the_file_names_and_a_mistake_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (account(&[&[0xAB; 32]]), account(&[&[1; 32]]));
        let access = StoreAccess::open(dir.path()).unwrap();
        let may = |access: &StoreAccess| {
            let shared = access.shared();
            [(ours, "vs_a"), (theirs, "vs_a"), (theirs, "vs_b"), (ours, "vs_c")].map(|(who, id)| shared.allows(who, id))
        };
        assert_eq!(may(&access), [false; 4]);
        let keys = format!("[stores.vs_a]\nkeys = [\"{}\"]\n[stores.vs_b]\nkeys = [\"*\"]\n", "aB".repeat(32));
        std::fs::write(dir.path().join(FILE), keys).unwrap();
        assert_eq!(may(&access), [true, false, true, false]);
        std::fs::write(dir.path().join(FILE), "[stores.vs_a]\nkeys = [\"1\"]").unwrap();
        assert_eq!(may(&access), [true, false, true, false]);
        let error = StoreAccess::open(dir.path()).err().unwrap();
        assert!(error.contains("access.toml: stores.vs_a.keys: wanted the SHA-256 of an API key"), "{error}");
        std::fs::remove_file(dir.path().join(FILE)).unwrap();
        assert_eq!(may(&access), [false; 4]);
        let beside =
            format!("[tables.t]\nkeys = [\"*\"]\n[keys.{}]\nlambda = 0.5\n[stores.a]\nkeys = [\"*\"]", "01".repeat(32));
        assert!(SharedStores::parse(&beside).unwrap().allows(ours, "a"));
        assert!(SharedStores::parse("[stores.a]\nkeys = [\"*\", \"1\"]").is_err(), "a mistake beside everybody");
        assert!(SharedStores::parse("[store.a]\nkeys = []").unwrap_err().contains("unknown field `store`"));
    }
}
