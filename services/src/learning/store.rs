//! Examples on the disk: each once, found by account, with those that ask nearly the same in one set.

use super::example::Example;
use super::secrets::has_secret;
use super::similar::Signature;
use crate::database::{DatabaseError, ReopeningDatabase};
use chimere_engine::ids::KeyId;
use parking_lot::Mutex;
use redb::{MultimapTableDefinition, ReadableTable, TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Name of the database in its directory.
const FILE: &str = "learning.redb";
/// Id to what it is and who brought it, as JSON.
const EXAMPLES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("examples");
/// Id to the signature of its messages.
const SIGNATURES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("signatures");
/// A band of a signature to ids.
const BANDS: MultimapTableDefinition<'_, u64, &str> = MultimapTableDefinition::new("bands");
/// An account to the ids of what it brought.
const OWNERS: MultimapTableDefinition<'_, u64, &str> = MultimapTableDefinition::new("owners");

/// How much is kept, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreBounds {
    /// Bytes of all examples; the oldest go first.
    pub bytes_max: u64,
    /// Seconds that an example is kept.
    pub seconds: u64,
}

/// An example and who brought it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredExample {
    /// What it says.
    pub example: Example,
    /// The accounts that brought it, each once.
    pub accounts: Vec<u64>,
}

/// What became of an example that was brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is there, under this id.
    New(String),
    /// It was there already, under this id, and has the new account and the new sources too.
    Merged(String),
    /// It has something that looks like a secret, and is not kept.
    Secret,
}

/// The examples of a directory.
pub struct ExampleStore {
    db: ReopeningDatabase,
    bounds: StoreBounds,
    /// By age and id: the bytes of each.
    ages: Mutex<BTreeMap<(u64, String), u64>>,
}

impl ExampleStore {
    /// That of a directory, made if it is not there; its owner alone can read it.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(directory: &Path, bounds: StoreBounds) -> Result<Self, DatabaseError> {
        let file = directory.join(FILE);
        make_private(&file).map_err(|e| DatabaseError::failed(&file, e))?;
        Self::of(ReopeningDatabase::of_file(file)?, bounds)
    }

    fn of(db: ReopeningDatabase, bounds: StoreBounds) -> Result<Self, DatabaseError> {
        db.write(|txn| {
            txn.open_table(EXAMPLES)?;
            txn.open_table(SIGNATURES)?;
            txn.open_multimap_table(BANDS)?;
            txn.open_multimap_table(OWNERS)?;
            Ok(())
        })?;
        let store = Self { db, bounds, ages: Mutex::default() };
        let all = store.all()?;
        *store.ages.lock() = all.iter().map(|stored| (stored.age(), stored.bytes())).collect();
        Ok(store)
    }

    /// Keeps an example that an account brings. One that asks nearly what another one asks is in its set; with the same
    /// answer it is that one.
    ///
    /// # Errors
    /// If the disk takes nothing: then nothing of it is there.
    pub fn add(&self, account: KeyId, mut example: Example) -> Result<Kept, DatabaseError> {
        if example.texts().any(has_secret) {
            return Ok(Kept::Secret);
        }
        let mut ages = self.ages.lock();
        let signature = Signature::of(example.questions());
        let near = self.near(&signature)?;
        if let Some(set) = near.first().map(|near| near.example.set) {
            example.set = set;
        }
        let same = near.into_iter().find(|near| near.example.says_the_same(&example));
        let (kept, old, new) = match same {
            Some(old) => {
                let new = old.joined(account, &example);
                (Kept::Merged(old.example.id()), Some(old), new)
            }
            None => (Kept::New(example.id()), None, StoredExample { example, accounts: vec![account.0] }),
        };
        let gone = self.leaving(&ages, old.as_ref(), &new);
        self.db.write(|txn| {
            gone.iter().try_for_each(|(_, id)| remove(txn, id))?;
            put(txn, &new, &signature)
        })?;
        for age in gone.into_iter().chain(old.as_ref().map(StoredExample::age)) {
            ages.remove(&age);
        }
        ages.insert(new.age(), new.bytes());
        Ok(kept)
    }

    /// Lets go of all that an account brought, or of one example of it, and says how many. What others brought too stays
    /// theirs.
    ///
    /// # Errors
    /// If the disk takes nothing.
    pub fn forget(&self, account: KeyId, id: Option<&str>) -> Result<usize, DatabaseError> {
        let mut ages = self.ages.lock();
        let own: Vec<StoredExample> = self.of_account(account)?;
        let own: Vec<_> = own.into_iter().filter(|stored| id.is_none_or(|id| stored.example.id() == id)).collect();
        self.db.write(|txn| {
            for stored in &own {
                let id = stored.example.id();
                txn.open_multimap_table(OWNERS)?.remove(account.0, id.as_str())?;
                match stored.without(account) {
                    Some(left) => write_row(txn, &left)?,
                    None => remove(txn, &id)?,
                }
            }
            Ok(())
        })?;
        for stored in &own {
            ages.remove(&stored.age());
            if let Some(left) = stored.without(account) {
                ages.insert(left.age(), left.bytes());
            }
        }
        Ok(own.len())
    }

    /// All that an account brought, the oldest first.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn of_account(&self, account: KeyId) -> Result<Vec<StoredExample>, DatabaseError> {
        let mut found = self.db.read(|txn| {
            let (owners, rows) = (txn.open_multimap_table(OWNERS)?, txn.open_table(EXAMPLES)?);
            let mut found = Vec::new();
            for id in owners.get(account.0)? {
                let row = rows.get(id?.value())?;
                found.extend(row.and_then(|row| serde_json::from_slice::<StoredExample>(row.value()).ok()));
            }
            Ok(found)
        })?;
        found.sort_by_key(StoredExample::age);
        Ok(found)
    }

    /// All examples, the oldest first.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn all(&self) -> Result<Vec<StoredExample>, DatabaseError> {
        let mut all = self.db.read(|txn| {
            let mut all: Vec<StoredExample> = Vec::new();
            for row in txn.open_table(EXAMPLES)?.iter()? {
                all.extend(serde_json::from_slice::<StoredExample>(row?.1.value()).ok());
            }
            Ok(all)
        })?;
        all.sort_by_key(StoredExample::age);
        Ok(all)
    }

    /// Examples whose messages say nearly what these say, the oldest first.
    fn near(&self, signature: &Signature) -> Result<Vec<StoredExample>, DatabaseError> {
        let mut near = self.db.read(|txn| {
            let (bands, signatures) = (txn.open_multimap_table(BANDS)?, txn.open_table(SIGNATURES)?);
            let (rows, mut ids) = (txn.open_table(EXAMPLES)?, BTreeSet::new());
            for band in signature.bands() {
                for id in bands.get(band)? {
                    ids.insert(id?.value().to_owned());
                }
            }
            let mut near: Vec<StoredExample> = Vec::new();
            for id in ids {
                let own = signatures.get(id.as_str())?.and_then(|bytes| Signature::read(bytes.value()));
                if own.is_some_and(|own| own.is_near(signature)) {
                    near.extend(rows.get(id.as_str())?.and_then(|row| serde_json::from_slice(row.value()).ok()));
                }
            }
            Ok(near)
        })?;
        near.sort_by_key(StoredExample::age);
        Ok(near)
    }

    /// The oldest examples that go so that a new one has room, and those whose time is over.
    fn leaving(
        &self,
        ages: &BTreeMap<(u64, String), u64>,
        old: Option<&StoredExample>,
        new: &StoredExample,
    ) -> Vec<(u64, String)> {
        let own = old.map(StoredExample::age);
        let mut bytes = new.bytes() + ages.values().sum::<u64>() - old.map_or(0, StoredExample::bytes);
        let ends = new.example.at.saturating_sub(self.bounds.seconds);
        let mut gone = Vec::new();
        for (age, size) in ages.iter().filter(|(age, _)| Some(*age) != own.as_ref()) {
            if age.0 >= ends && bytes <= self.bounds.bytes_max {
                break;
            }
            bytes -= size;
            gone.push(age.clone());
        }
        gone
    }
}

impl Example {
    /// Whether the other one wants the same answer in the place of the same one; case and space do not count.
    fn says_the_same(&self, other: &Self) -> bool {
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        let rejected = |example: &Self| example.rejected.as_deref().map(plain);
        plain(&self.answer) == plain(&other.answer) && rejected(self) == rejected(other)
    }
}

impl StoredExample {
    /// When it came, and its id.
    fn age(&self) -> (u64, String) {
        (self.example.at, self.example.id())
    }

    fn bytes(&self) -> u64 {
        serde_json::to_vec(self).map_or(0, |bytes| bytes.len() as u64)
    }

    /// With what another account, or the same one once more, says of it.
    fn joined(&self, account: KeyId, more: &Example) -> Self {
        let mut joined = self.clone();
        joined.accounts.push(account.0);
        joined.accounts.sort_unstable();
        joined.accounts.dedup();
        joined.example.truth.extend(&more.truth);
        joined.example.truth.sort_unstable();
        joined.example.truth.dedup();
        joined.example.rating = more.rating.or(joined.example.rating);
        joined.example.reason = more.reason.clone().or(joined.example.reason);
        joined
    }

    /// What is left of it without an account; nothing if nobody else brought it.
    fn without(&self, account: KeyId) -> Option<Self> {
        let accounts: Vec<u64> = self.accounts.iter().copied().filter(|other| *other != account.0).collect();
        (!accounts.is_empty()).then(|| Self { accounts, ..self.clone() })
    }
}

fn write_row(txn: &WriteTransaction, stored: &StoredExample) -> Result<(), redb::Error> {
    let bytes = serde_json::to_vec(stored).expect("JSON values have no keys but strings");
    txn.open_table(EXAMPLES)?.insert(stored.example.id().as_str(), bytes.as_slice())?;
    Ok(())
}

fn put(txn: &WriteTransaction, stored: &StoredExample, signature: &Signature) -> Result<(), redb::Error> {
    let id = stored.example.id();
    write_row(txn, stored)?;
    let mut owners = txn.open_multimap_table(OWNERS)?;
    for account in &stored.accounts {
        owners.insert(account, id.as_str())?;
    }
    let mut signatures = txn.open_table(SIGNATURES)?;
    if signatures.get(id.as_str())?.is_none() {
        signatures.insert(id.as_str(), signature.bytes().as_slice())?;
        let mut bands = txn.open_multimap_table(BANDS)?;
        for band in signature.bands() {
            bands.insert(band, id.as_str())?;
        }
    }
    Ok(())
}

fn remove(txn: &WriteTransaction, id: &str) -> Result<(), redb::Error> {
    let row = txn.open_table(EXAMPLES)?.remove(id)?.map(|row| row.value().to_vec());
    let stored = row.and_then(|row| serde_json::from_slice::<StoredExample>(&row).ok());
    let mut owners = txn.open_multimap_table(OWNERS)?;
    for account in stored.iter().flat_map(|stored| &stored.accounts) {
        owners.remove(account, id)?;
    }
    let signature = txn.open_table(SIGNATURES)?.remove(id)?.and_then(|bytes| Signature::read(bytes.value()));
    let mut bands = txn.open_multimap_table(BANDS)?;
    for band in signature.iter().flat_map(Signature::bands) {
        bands.remove(band, id)?;
    }
    Ok(())
}

/// Makes a file that its owner alone can read, if there is none.
fn make_private(file: &Path) -> std::io::Result<()> {
    let mut options = std::fs::File::options();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file).map(drop)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
