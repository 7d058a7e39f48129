//! Which API key may use which table, and with what settings: the file `access.toml` beside the tables.

use super::defaults::{Defaults, Overrides};
use super::name::TableName;
use crate::holder::access::{ACCESS_FILE_BYTES_MAX, parsed};
use crate::holder::{KeyHash, KeyList, key_hash};
use chimere_engine::files::read_regular_text;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::HashMap;
use std::path::Path;

// The suffix of the file's name is not that of a table.
pub(super) use crate::holder::access::ACCESS_FILE as FILE;

/// Who asks for tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// With which API key.
    pub key: Option<KeyHash>,
    /// Whether the caller has the rights of an administrator.
    pub admin: bool,
}

/// What the file says. Tables that it does not name are administrators' alone, keys that it does not name have the
/// service's settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Access {
    /// Without a file every table is everybody's.
    restricted: bool,
    /// The keys that may use each table that the file names.
    tables: HashMap<String, KeyList>,
    keys: HashMap<KeyHash, Overrides>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    tables: HashMap<String, RawTable>,
    keys: HashMap<String, Overrides>,
    /// Those of documents, which may lie in the same directory.
    stores: IgnoredAny,
    adapters: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTable {
    keys: Vec<String>,
}

impl Access {
    /// The file of a directory; without one everybody may use every table.
    pub(super) fn read(directory: &Path, below: &Defaults) -> Result<Self, String> {
        let path = directory.join(FILE);
        match read_regular_text(&path, ACCESS_FILE_BYTES_MAX) {
            Ok(text) => Self::parse(&text, below).map_err(|e| format!("{}: {e}", path.display())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(format!("{}: {e}", path.display())),
        }
    }

    fn parse(text: &str, below: &Defaults) -> Result<Self, String> {
        let raw: Raw = parsed(text)?;
        let mut access = Self { restricted: true, ..Self::default() };
        for (name, table) in raw.tables {
            TableName::new(&name).map_err(|e| format!("tables: {e}"))?;
            let keys = KeyList::of(&table.keys).map_err(|e| format!("tables.{name}.keys: {e}"))?;
            access.tables.insert(name, keys);
        }
        for (key, settings) in raw.keys {
            settings.over(below).check().map_err(|(field, why)| format!("keys.{key}.{field} {why}"))?;
            access.keys.insert(key_hash(&key).map_err(|e| format!("keys: {e}"))?, settings);
        }
        Ok(access)
    }

    /// May he use, or as an administrator change, that table?
    pub fn allows(&self, asker: &Asker, table: &str) -> bool {
        match self.tables.get(table) {
            Some(KeyList::Keys(keys)) => asker.key.is_some_and(|key| keys.contains(&key)),
            Some(KeyList::Everybody) => true,
            None => asker.admin || !self.restricted,
        }
    }

    /// The settings of a key's requests.
    pub fn defaults(&self, key: Option<&KeyHash>, below: &Defaults) -> Defaults {
        key.and_then(|key| self.keys.get(key)).map_or_else(|| below.clone(), |own| own.over(below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engram::ModeName;

    fn parse(text: &str) -> Result<Access, String> {
        Access::parse(text, &Defaults::default())
    }

    #[test]
    fn a_table_is_for_its_keys_or_for_everybody_and_one_without_a_word_for_administrators() {
        let keys = format!("[tables.ours]\nkeys = [\"{}\"]\n[tables.all]\nkeys = [\"*\"]\n", "aB".repeat(32));
        let access = parse(&keys).unwrap();
        let asker = |key, admin| Asker { key, admin };
        let allowed = |asker| ["ours", "all", "other"].map(|table| access.allows(&asker, table));
        assert_eq!(allowed(asker(Some([0xAB; 32]), false)), [true, true, false]);
        assert_eq!(allowed(asker(Some([1; 32]), false)), [false, true, false]);
        assert_eq!(allowed(asker(None, false)), [false, true, false]);
        assert_eq!(allowed(asker(Some([1; 32]), true)), [false, true, true], "an administrator too");
        assert!(Access::default().allows(&asker(None, false), "any"), "without a file");
    }

    #[test]
    fn a_key_s_settings_lie_over_the_service_s() {
        let access = parse(&format!("[keys.{}]\nmode = \"bias\"\ntables = [\"a\"]\n", "01".repeat(32))).unwrap();
        let below = Defaults::default();
        let own = access.defaults(Some(&[1; 32]), &below);
        assert_eq!(
            (own.mode, own.tables.as_slice(), own.lambda),
            (ModeName::Bias, &["a".to_owned()][..], below.lambda)
        );
        assert_eq!(access.defaults(Some(&[2; 32]), &below), below);
    }

    #[test]
    fn mistakes_name_their_place() {
        let key = "01".repeat(32);
        for (text, want) in [
            ("[tables.a]\nkeys = [\"01\"]\n".to_owned(), "tables.a.keys: wanted the SHA-256 of an API key"),
            ("[tables.\"a/b\"]\nkeys = []\n".to_owned(), "tables: wanted 1 to 64"),
            (format!("[keys.{key}]\nlambda = 0.96\n"), "lambda must lie between 0 and 0.95, got 0.96"),
            (format!("[stores.vs_1]\nkeys = [\"*\"]\n[keys.{key}]\nlamda = 0.5\n"), "unknown field `lamda`"),
            ("[table.a]\nkeys = []\n".to_owned(), "unknown field `table`"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }
}
