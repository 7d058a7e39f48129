//! Collections on the disk: one database, whose transactions are there to stay when they end. What is in memory is read
//! from it at the start.

use super::error::CollectionError;
use super::index::{Index, Item};
use super::self_test::SelfTest;
use crate::database::{self, DatabaseError, OpenDatabase};
use chimere_engine::ids::KeyId;
use redb::{ReadableTable, TableDefinition, TableError, WriteTransaction};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Name of the database in the directory of tables.
const FILE: &str = "collections.redb";
/// (account, collection) to (model, seconds since 1970 when it was made).
const COLLECTIONS: TableDefinition<'_, (u64, &str), (&str, u64)> = TableDefinition::new("collections");
const ITEMS: TableDefinition<'_, ItemKey, ItemValue> = TableDefinition::new("items");
/// (account, collection) to how many items were ever put into it and to its last self-test as JSON. A collection of a
/// service that had no self-tests has no row here, and gets one with its next items or its first test.
const TESTS: TableDefinition<'_, (u64, &str), (u64, Option<&str>)> = TableDefinition::new("self_tests");

/// Account, name of the collection, id of the item.
type ItemKey = (u64, &'static str, &'static str);
/// Text, answer, vector as little-endian f32.
type ItemValue = (&'static str, Option<&'static str>, &'static [u8]);

/// The database; its file is made with the first write.
pub(super) struct Store {
    file: PathBuf,
    /// Open from the first write on, or from the start where there is a file.
    db: Option<OpenDatabase>,
}

/// A collection as it was found.
pub(super) struct StoredCollection {
    pub(super) model: String,
    pub(super) created: u64,
    pub(super) index: Index,
    pub(super) history: TestHistory,
}

/// How a collection has changed, and how it was tested last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TestHistory {
    /// How many items were ever put into it.
    pub(super) changes: u64,
    pub(super) test: Option<SelfTest>,
}

impl Store {
    /// Of this directory. A file that cannot be read is an error that names it.
    pub(super) fn open(directory: &Path) -> Result<Self, CollectionError> {
        let mut store = Self { file: directory.join(FILE), db: None };
        if store.file.exists() {
            store.db = Some(database::open_checked(&store.file).map_err(|e| store.broke(e))?);
        }
        Ok(store)
    }

    fn failed(&self, why: impl std::fmt::Display) -> CollectionError {
        DatabaseError::failed(&self.file, why).into()
    }

    fn broke(&self, why: impl Into<redb::Error>) -> CollectionError {
        DatabaseError::of(&self.file, why).into()
    }

    /// Everything. Collections of other models are empty here: their vectors are of no use.
    pub(super) fn read(
        &self,
        model: &str,
        width: usize,
    ) -> Result<BTreeMap<(KeyId, String), StoredCollection>, CollectionError> {
        let mut all = BTreeMap::new();
        let Some(db) = &self.db else { return Ok(all) };
        let txn = db.begin_read().map_err(|e| self.broke(e))?;
        let collections = match txn.open_table(COLLECTIONS) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(all),
            Err(e) => return Err(self.broke(e)),
        };
        let items = txn.open_table(ITEMS).map_err(|e| self.broke(e))?;
        let tests = match txn.open_table(TESTS) {
            Err(TableError::TableDoesNotExist(_)) => None,
            table => Some(table.map_err(|e| self.broke(e))?),
        };
        for row in collections.iter().map_err(|e| self.broke(e))? {
            let (key, value) = row.map_err(|e| self.broke(e))?;
            let ((owner, name), (made_with, created)) = (key.value(), value.value());
            let (mut index, mut history) = (Index::new(width), TestHistory::default());
            if made_with == model {
                self.read_items(&items, (owner, name), width, &mut index)?;
            }
            if let Some(tests) = &tests {
                history = self.read_history(tests, (owner, name))?;
            }
            let stored = StoredCollection { model: made_with.to_owned(), created, index, history };
            all.insert((KeyId(owner), name.to_owned()), stored);
        }
        Ok(all)
    }

    /// A test that cannot be read, as another version may have written it, is no test: the next takes its place.
    fn read_history(
        &self,
        tests: &impl ReadableTable<(u64, &'static str), (u64, Option<&'static str>)>,
        key: (u64, &str),
    ) -> Result<TestHistory, CollectionError> {
        let Some(row) = tests.get(key).map_err(|e| self.broke(e))? else { return Ok(TestHistory::default()) };
        let (changes, test) = row.value();
        Ok(TestHistory { changes, test: test.and_then(|json| serde_json::from_str(json).ok()) })
    }

    fn read_items(
        &self,
        items: &impl ReadableTable<ItemKey, ItemValue>,
        (owner, name): (u64, &str),
        width: usize,
        index: &mut Index,
    ) -> Result<(), CollectionError> {
        for row in items.range((owner, name, "")..).map_err(|e| self.broke(e))? {
            let (key, value) = row.map_err(|e| self.broke(e))?;
            let (of, within, id) = key.value();
            if (of, within) != (owner, name) {
                break;
            }
            let (text, answer, bytes) = value.value();
            let vector = numbers(bytes).filter(|v| v.len() == width);
            let vector = vector.ok_or_else(|| {
                self.failed(format!("wanted {width} numbers of {name:?}, {id:?}, got {} bytes", bytes.len()))
            })?;
            index.put(Item { id: id.to_owned(), text: text.to_owned(), answer: answer.map(str::to_owned) }, &vector);
        }
        Ok(())
    }

    /// Makes a collection. It is on the disk when this returns, as after each of the calls below.
    pub(super) fn create(
        &mut self,
        owner: KeyId,
        name: &str,
        model: &str,
        created: u64,
    ) -> Result<(), CollectionError> {
        self.write(|txn| {
            txn.open_table(ITEMS)?;
            txn.open_table(COLLECTIONS)?.insert((owner.0, name), (model, created))?;
            Ok(())
        })
    }

    /// Removes a collection with its items.
    pub(super) fn remove(&mut self, owner: KeyId, name: &str) -> Result<(), CollectionError> {
        self.write(|txn| {
            txn.open_table(COLLECTIONS)?.remove((owner.0, name))?;
            txn.open_table(TESTS)?.remove((owner.0, name))?;
            // A name has no zero byte, so every item of the collection and no other lies before it with one.
            let next = format!("{name}\0");
            txn.open_table(ITEMS)?.retain_in((owner.0, name, "")..(owner.0, next.as_str(), ""), |_, _| false)?;
            Ok(())
        })
    }

    /// Adds items to a collection, all of them or none; `history` counts them already.
    pub(super) fn add(
        &mut self,
        owner: KeyId,
        name: &str,
        items: &[(Item, Vec<f32>)],
        history: &TestHistory,
    ) -> Result<(), CollectionError> {
        self.write(|txn| {
            put_history(txn, (owner.0, name), history)?;
            let mut table = txn.open_table(ITEMS)?;
            for (item, vector) in items {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                table.insert(
                    (owner.0, name, item.id.as_str()),
                    (item.text.as_str(), item.answer.as_deref(), bytes.as_slice()),
                )?;
            }
            Ok(())
        })
    }

    /// Keeps how a collection was tested.
    pub(super) fn put_test(&mut self, owner: KeyId, name: &str, history: &TestHistory) -> Result<(), CollectionError> {
        self.write(|txn| put_history(txn, (owner.0, name), history))
    }

    fn write(
        &mut self,
        work: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), CollectionError> {
        let db = self.db.take().map_or_else(|| database::open(&self.file), Ok).map_err(|e| self.broke(e))?;
        let written = commit(&db, work).map_err(|e| self.broke(e));
        // After a write that failed a database does nothing more; one that is opened anew does.
        self.db = if written.is_ok() { Some(db) } else { reopened(db, &self.file) };
        written
    }
}

fn put_history(txn: &WriteTransaction, key: (u64, &str), history: &TestHistory) -> Result<(), redb::Error> {
    let test = history.test.as_ref().map(|test| serde_json::to_string(test).expect("numbers and lists are JSON"));
    txn.open_table(TESTS)?.insert(key, (history.changes, test.as_deref()))?;
    Ok(())
}

/// At once, so that no other process takes the file meanwhile; what stands in the way is the next write's to say.
fn reopened(db: OpenDatabase, file: &Path) -> Option<OpenDatabase> {
    drop(db);
    database::open(file).ok()
}

fn commit(
    db: &OpenDatabase,
    work: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
) -> Result<(), redb::Error> {
    let txn = db.begin_write()?;
    work(&txn)?;
    Ok(txn.commit()?)
}

fn numbers(bytes: &[u8]) -> Option<Vec<f32>> {
    let (words, rest) = bytes.as_chunks::<4>();
    rest.is_empty().then(|| words.iter().map(|word| f32::from_le_bytes(*word)).collect())
}
