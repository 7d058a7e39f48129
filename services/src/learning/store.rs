//! Examples on the disk: each once, found by account, with those that ask nearly the same in one set, and what was
//! trained on them.

use super::artefacts::{self, Artefact};
use super::example::{Example, ExampleSet};
use super::secrets::has_secret;
use super::similar::Signature;
use super::sizes::ExampleSizes;
use super::stored::StoredExample;
use super::versions::{self, Versions};
use crate::database::{DatabaseError, ReopeningDatabase};
use crate::metrics::learning::tell_examples;
use chimere_engine::ids::KeyId;
use parking_lot::Mutex;
use redb::{MultimapTableDefinition, ReadTransaction, ReadableMultimapTable, ReadableTable};
use redb::{TableDefinition, WriteTransaction};
use std::collections::BTreeSet;
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

/// What became of an example that was brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BroughtExample {
    /// It is there, under this id and in this set.
    New(String, ExampleSet),
    /// It was there already, under this id and in this set, and has the new account and the new sources too.
    Merged(String, ExampleSet),
    /// It has something that looks like a secret, and is not kept.
    Secret,
}

/// What an account took back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Withdrawal {
    /// Examples that are the account's no longer.
    pub examples: usize,
    /// Names of what was trained on one of them that nobody else brought: to be trained again without it.
    pub stale: Vec<String>,
}

/// The examples of a directory.
pub struct ExampleStore {
    db: ReopeningDatabase,
    bounds: StoreBounds,
    sizes: Mutex<ExampleSizes>,
}

impl ExampleStore {
    /// That of a directory, made if it is not there; its owner alone can read it.
    ///
    /// # Errors
    /// If it cannot be opened, or is damaged.
    pub fn open(directory: &Path, bounds: StoreBounds, now: u64) -> Result<Self, DatabaseError> {
        let file = directory.join(FILE);
        make_private(&file).map_err(|e| DatabaseError::failed(&file, e))?;
        Self::of(ReopeningDatabase::of_file(file)?, bounds, now)
    }

    pub(super) fn of(db: ReopeningDatabase, bounds: StoreBounds, now: u64) -> Result<Self, DatabaseError> {
        // A disk without room holds up nothing that is there.
        if db.read(|txn| Ok(txn.open_table(EXAMPLES).map(drop)?)).and_then(|()| db.read(versions::are_made)).is_err() {
            db.write(make)?;
        }
        let store = Self { db, bounds, sizes: Mutex::default() };
        let mut sizes = ExampleSizes::default();
        store.db.read(|txn| each(txn, |stored| sizes.insert(stored.age(), (stored.bytes(), stored.example.set))))?;
        sizes.settle(true);
        *store.sizes.lock() = sizes;
        if let Err(error) = store.expire(now) {
            tracing::error!(%error, "examples whose time is over could not be removed; it is tried again");
        }
        store.export();
        Ok(store)
    }

    /// Tells the metrics what there is.
    pub(super) fn export(&self) {
        tell_examples(&self.sizes.lock().counts());
    }

    /// Keeps examples that accounts bring, all of them or none. One that asks nearly what another one asks is in its
    /// set; with the same answer it is that one, if the account brought that too or it says the same to the letter.
    ///
    /// # Errors
    /// If the disk takes nothing: then nothing of them is there.
    pub fn add(&self, brought: Vec<(KeyId, Example)>, now: u64) -> Result<Vec<BroughtExample>, DatabaseError> {
        let mut outcomes = Vec::with_capacity(brought.len());
        let mut sizes = self.sizes.lock();
        let written = self.db.write(|txn| {
            for (account, example) in brought {
                let outcome = match has_secrets(&example) {
                    true => BroughtExample::Secret,
                    false => add_one(txn, &mut sizes, account, example)?,
                };
                outcomes.push(outcome);
            }
            for age in sizes.leaving(self.bounds.bytes_max, now.saturating_sub(self.bounds.seconds)) {
                remove(txn, &age.1)?;
            }
            Ok(())
        });
        sizes.settle(written.is_ok());
        tell_examples(&sizes.counts());
        written.map(|()| outcomes)
    }

    /// Lets go of examples whose time is over.
    ///
    /// # Errors
    /// If the disk takes nothing.
    pub fn expire(&self, now: u64) -> Result<(), DatabaseError> {
        let ends = now.saturating_sub(self.bounds.seconds);
        if self.sizes.lock().oldest().is_none_or(|at| at >= ends) {
            return Ok(());
        }
        self.add(Vec::new(), now).map(drop)
    }

    /// Lets go of all that an account brought, or of one example of it. What others brought too stays theirs.
    ///
    /// # Errors
    /// If the disk takes nothing: then all is there as before.
    pub fn forget(&self, account: KeyId, id: Option<&str>, now: u64) -> Result<Withdrawal, DatabaseError> {
        let (mut sizes, mut withdrawal) = (self.sizes.lock(), Withdrawal::default());
        let own: Vec<StoredExample> = self.of_account(account)?;
        let own: Vec<_> = own.into_iter().filter(|stored| id.is_none_or(|id| stored.id == id)).collect();
        withdrawal.examples = own.len();
        let written = self.db.write(|txn| {
            for stored in &own {
                sizes.remove(&stored.age());
                txn.open_multimap_table(OWNERS)?.remove(account.0, stored.id.as_str())?;
                match stored.without(account) {
                    Some(left) => {
                        sizes.insert(left.age(), (left.bytes(), left.example.set));
                        write_row(txn, &left)?;
                    }
                    None => remove(txn, &stored.id)?,
                }
            }
            withdrawal.stale = artefacts::withdraw(txn, account, id, now)?;
            versions::spoil(txn, &withdrawal.stale)
        });
        sizes.settle(written.is_ok());
        tell_examples(&sizes.counts());
        written.map(|()| withdrawal)
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
                found.extend(row.and_then(|row| StoredExample::read(row.value())));
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
        let mut all = Vec::new();
        self.db.read(|txn| each(txn, |stored| all.push(stored)))?;
        all.sort_by_key(StoredExample::age);
        Ok(all)
    }

    /// Versions of what was learned from them.
    pub fn versions(&self) -> Versions<'_> {
        Versions::of(&self.db)
    }

    /// All that was trained on examples, by name.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn artefacts(&self) -> Result<Vec<(String, Artefact)>, DatabaseError> {
        self.db.read(artefacts::all)
    }
}

fn make(txn: &WriteTransaction) -> Result<(), redb::Error> {
    txn.open_table(EXAMPLES)?;
    txn.open_table(SIGNATURES)?;
    txn.open_multimap_table(BANDS)?;
    txn.open_multimap_table(OWNERS)?;
    versions::make(txn)?;
    artefacts::make(txn)
}

/// Whether one of an example's texts looks like a secret, also where a name and its value are apart in its JSON.
fn has_secrets(example: &Example) -> bool {
    let whole = || serde_json::json!([example.messages, example.tools]).to_string();
    example.texts().any(has_secret) || has_secret(&whole())
}

/// Each example that can be read; a row that cannot be is left as it is.
fn each(txn: &ReadTransaction, mut take: impl FnMut(StoredExample)) -> Result<(), redb::Error> {
    let mut unread = 0;
    for row in txn.open_table(EXAMPLES)?.iter()? {
        match StoredExample::read(row?.1.value()) {
            Some(stored) => take(stored),
            None => unread += 1,
        }
    }
    if unread > 0 {
        tracing::warn!(unread, "examples of another version are in the store and cannot be read");
    }
    Ok(())
}

fn add_one(
    txn: &WriteTransaction,
    sizes: &mut ExampleSizes,
    account: KeyId,
    mut example: Example,
) -> Result<BroughtExample, redb::Error> {
    let signature = Signature::of(example.questions());
    let near = near(txn, &signature)?;
    // Near to examples of several sets, it is where it trains least.
    example.set = near.iter().map(|near| near.example.set).max().unwrap_or(example.set);
    // What somebody else said nearly so stays apart: whoever takes it back leaves nothing of it with others.
    let id = example.id();
    let own = |near: &StoredExample| near.accounts == [account.0] && near.example.says_the_same(&example);
    let same = near.into_iter().find(|near| near.id == id || own(near));
    if let Some(old) = same {
        let new = old.joined(account, &example);
        sizes.insert(new.age(), (new.bytes(), new.example.set));
        put(txn, &new, &signature)?;
        return Ok(BroughtExample::Merged(new.id, new.example.set));
    }
    let new = StoredExample { id, example, accounts: vec![account.0] };
    sizes.insert(new.age(), (new.bytes(), new.example.set));
    put(txn, &new, &signature)?;
    Ok(BroughtExample::New(new.id, new.example.set))
}

/// Examples whose messages say nearly what these say, the oldest first.
fn near(txn: &WriteTransaction, signature: &Signature) -> Result<Vec<StoredExample>, redb::Error> {
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
            near.extend(rows.get(id.as_str())?.and_then(|row| StoredExample::read(row.value())));
        }
    }
    near.sort_by_key(StoredExample::age);
    Ok(near)
}

fn write_row(txn: &WriteTransaction, stored: &StoredExample) -> Result<(), redb::Error> {
    let bytes = serde_json::to_vec(stored).expect("JSON values have no keys but strings");
    txn.open_table(EXAMPLES)?.insert(stored.id.as_str(), bytes.as_slice())?;
    Ok(())
}

fn put(txn: &WriteTransaction, stored: &StoredExample, signature: &Signature) -> Result<(), redb::Error> {
    let id = stored.id.as_str();
    write_row(txn, stored)?;
    let mut owners = txn.open_multimap_table(OWNERS)?;
    for account in &stored.accounts {
        owners.insert(account, id)?;
    }
    let mut signatures = txn.open_table(SIGNATURES)?;
    if signatures.get(id)?.is_none() {
        signatures.insert(id, signature.bytes().as_slice())?;
        let mut bands = txn.open_multimap_table(BANDS)?;
        for band in signature.bands() {
            bands.insert(band, id)?;
        }
    }
    Ok(())
}

fn remove(txn: &WriteTransaction, id: &str) -> Result<(), redb::Error> {
    let row = txn.open_table(EXAMPLES)?.remove(id)?.map(|row| row.value().to_vec());
    let stored = row.and_then(|row| StoredExample::read(&row));
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
