//! Which API key may use which adapter: the file `access.toml` in the directory of adapters.

use crate::engram::Asker;
use crate::holder::KeyList;
use crate::holder::access::parsed;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::HashMap;

/// The keys of each adapter that the file names. One that it does not name is everybody's.
#[derive(Debug, Default, PartialEq)]
pub(super) struct AdapterAccess(HashMap<String, KeyList>);

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawAdapterAccess {
    adapters: HashMap<String, RawAdapter>,
    /// Those of tables and of documents, which may lie in the same directory.
    tables: IgnoredAny,
    keys: IgnoredAny,
    stores: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAdapter {
    keys: Vec<String>,
}

impl AdapterAccess {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let raw: RawAdapterAccess = parsed(text)?;
        let lists = raw.adapters.into_iter().map(|(name, adapter)| {
            let keys = KeyList::of(&adapter.keys).map_err(|e| format!("adapters.{name}.keys: {e}"))?;
            Ok((name, keys))
        });
        lists.collect::<Result<_, String>>().map(Self)
    }

    /// Whether all adapters are everybody's.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a caller may use an adapter. Administrators load adapters, so they may use all.
    pub(super) fn allows(&self, asker: &Asker, name: &str) -> bool {
        match self.0.get(name) {
            Some(KeyList::Keys(keys)) => asker.admin || asker.key.is_some_and(|key| keys.contains(&key)),
            Some(KeyList::Everybody) | None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_is_for_the_keys_that_the_file_names_or_for_everybody() {
        let text = format!("[adapters.ours]\nkeys = [\"{}\"]\n[adapters.all]\nkeys = [\"*\"]\n", "aB".repeat(32));
        let access = AdapterAccess::parse(&text).unwrap();
        let may = |key, admin| ["ours", "all", "other"].map(|name| access.allows(&Asker { key, admin }, name));
        assert_eq!(may(Some([0xAB; 32]), false), [true; 3]);
        assert_eq!(may(Some([1; 32]), false), [false, true, true]);
        assert_eq!(may(None, false), [false, true, true]);
        assert_eq!(may(None, true), [true; 3]);
        let error = AdapterAccess::parse("[adapters.ours]\nkeys = [\"1\"]").unwrap_err();
        assert!(error.contains("adapters.ours.keys: wanted the SHA-256 of an API key"), "{error}");
        assert!(AdapterAccess::parse("[adapter.ours]\nkeys = []").unwrap_err().contains("unknown field `adapter`"));
    }
}
