//! Documents on the disk: one database of what is known of files and stores. The bytes and texts of files lie beside
//! it.

use super::members::{BatchInfo, FileInfo, MemberInfo, StoreRow};
use crate::semantic::SelfTest;
use chimere_engine::ids::KeyId;
use redb::{ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// (account, file) to the file as JSON.
const FILES: TableDefinition<'_, (u64, &str), &str> = TableDefinition::new("files");
/// (account, store) to the store as JSON.
const STORES: TableDefinition<'_, (u64, &str), &str> = TableDefinition::new("stores");
/// (account, store, file) to the file's state there as JSON, and its passages as pairs of little-endian u32.
const MEMBERS: TableDefinition<'_, Key3, (&str, &[u8])> = TableDefinition::new("store_files");
/// (account, store, batch) to the batch as JSON.
const BATCHES: TableDefinition<'_, Key3, &str> = TableDefinition::new("batches");
/// (account, store, file) to the maker of the file's vectors there and to these, a byte a number: those of all its
/// passages in their order.
const VECTORS: TableDefinition<'_, Key3, (&str, &[u8])> = TableDefinition::new("store_vectors");
/// (account, store) to the maker of the vectors that were tested, and to the store's last self-test as JSON.
const TESTS: TableDefinition<'_, (u64, &str), (&str, &str)> = TableDefinition::new("self_tests");

type Key3 = (u64, &'static str, &'static str);
type Written = Result<(), redb::Error>;

/// A passage of a text, by its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PassageSpan {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// All that was kept.
#[derive(Debug, Default)]
pub(super) struct StoredDocuments {
    pub(super) files: Vec<(KeyId, FileInfo)>,
    pub(super) stores: Vec<(KeyId, StoreRow)>,
    /// Each with its store.
    pub(super) members: Vec<(KeyId, String, MemberInfo)>,
    /// Each with its store.
    pub(super) batches: Vec<(KeyId, String, BatchInfo)>,
    /// The last self-test of each store, with the maker of the vectors that were tested.
    pub(super) tests: Vec<(KeyId, String, String, SelfTest)>,
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("structures of texts and numbers are JSON")
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, redb::Error> {
    serde_json::from_str(text).map_err(|e| redb::Error::Corrupted(e.to_string()))
}

/// A database without a table has nothing in it.
fn opened<T>(table: Result<T, TableError>) -> Result<Option<T>, redb::Error> {
    match table {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        table => Ok(Some(table?)),
    }
}

/// Reads all but the passages.
pub(super) fn read_all(txn: &ReadTransaction) -> Result<StoredDocuments, redb::Error> {
    let mut all = StoredDocuments::default();
    if let Some(table) = opened(txn.open_table(FILES))? {
        for row in table.iter()? {
            let (key, value) = row?;
            all.files.push((KeyId(key.value().0), read(value.value())?));
        }
    }
    if let Some(table) = opened(txn.open_table(STORES))? {
        for row in table.iter()? {
            let (key, value) = row?;
            all.stores.push((KeyId(key.value().0), read(value.value())?));
        }
    }
    if let Some(table) = opened(txn.open_table(MEMBERS))? {
        for row in table.iter()? {
            let (key, value) = row?;
            let (owner, store, _) = key.value();
            all.members.push((KeyId(owner), store.to_owned(), read(value.value().0)?));
        }
    }
    if let Some(table) = opened(txn.open_table(BATCHES))? {
        for row in table.iter()? {
            let (key, value) = row?;
            let (owner, store, _) = key.value();
            all.batches.push((KeyId(owner), store.to_owned(), read(value.value())?));
        }
    }
    if let Some(table) = opened(txn.open_table(TESTS))? {
        for row in table.iter()? {
            let (key, value) = row?;
            let ((owner, store), (maker, test)) = (key.value(), value.value());
            // One that cannot be read, as another version may have written it, is none: the next takes its place.
            let test = serde_json::from_str(test).ok();
            all.tests.extend(test.map(|test| (KeyId(owner), store.to_owned(), maker.to_owned(), test)));
        }
    }
    Ok(all)
}

/// The vectors of a file in a store, if this maker's are there.
pub(super) fn vectors(
    txn: &ReadTransaction,
    key: (KeyId, &str, &str),
    maker: &str,
) -> Result<Option<Vec<u8>>, redb::Error> {
    let Some(table) = opened(txn.open_table(VECTORS))? else { return Ok(None) };
    let row = table.get((key.0.0, key.1, key.2))?;
    Ok(row.filter(|row| row.value().0 == maker).map(|row| row.value().1.to_vec()))
}

/// Keeps the vectors of a file in a store in the place of all that it had.
pub(super) fn put_vectors(txn: &WriteTransaction, key: (KeyId, &str, &str), maker: &str, codes: &[u8]) -> Written {
    txn.open_table(VECTORS)?.insert((key.0.0, key.1, key.2), (maker, codes))?;
    Ok(())
}

/// Keeps the self-test of a store.
pub(super) fn put_test(txn: &WriteTransaction, (owner, store): (KeyId, &str), maker: &str, test: &SelfTest) -> Written {
    txn.open_table(TESTS)?.insert((owner.0, store), (maker, json(test).as_str()))?;
    Ok(())
}

/// The passages of a file in a store.
pub(super) fn spans(txn: &ReadTransaction, key: (KeyId, &str, &str)) -> Result<Vec<PassageSpan>, redb::Error> {
    let Some(table) = opened(txn.open_table(MEMBERS))? else { return Ok(Vec::new()) };
    let Some(row) = table.get((key.0.0, key.1, key.2))? else { return Ok(Vec::new()) };
    let (_, bytes) = row.value();
    let (pairs, _) = bytes.as_chunks::<8>();
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, byte| n << 8 | u32::from(*byte));
    Ok(pairs.iter().map(|pair| PassageSpan { start: number(&pair[..4]), end: number(&pair[4..]) }).collect())
}

pub(super) fn put_file(txn: &WriteTransaction, owner: KeyId, file: &FileInfo) -> Written {
    txn.open_table(FILES)?.insert((owner.0, file.id.as_str()), json(file).as_str())?;
    Ok(())
}

pub(super) fn remove_file(txn: &WriteTransaction, owner: KeyId, file: &str) -> Written {
    txn.open_table(FILES)?.remove((owner.0, file))?;
    Ok(())
}

pub(super) fn put_store(txn: &WriteTransaction, owner: KeyId, store: &StoreRow) -> Written {
    txn.open_table(STORES)?.insert((owner.0, store.id.as_str()), json(store).as_str())?;
    Ok(())
}

/// Removes a store with its files and batches; the files stay the account's.
pub(super) fn remove_store(txn: &WriteTransaction, owner: KeyId, store: &str) -> Written {
    txn.open_table(STORES)?.remove((owner.0, store))?;
    // An id has no zero byte, so all of the store and nothing else lies before the id with one.
    let next = format!("{store}\0");
    let range = (owner.0, store, "")..(owner.0, next.as_str(), "");
    txn.open_table(TESTS)?.remove((owner.0, store))?;
    txn.open_table(VECTORS)?.retain_in(range.clone(), |_, _| false)?;
    txn.open_table(MEMBERS)?.retain_in(range.clone(), |_, _| false)?;
    txn.open_table(BATCHES)?.retain_in(range, |_, _| false)?;
    Ok(())
}

/// Keeps a file of a store. `spans` are its passages if they have just been found, and then the vectors of those before
/// them go; else it keeps what it has.
pub(super) fn put_member(
    txn: &WriteTransaction,
    (owner, store): (KeyId, &str),
    member: &MemberInfo,
    spans: Option<&[PassageSpan]>,
) -> Written {
    let mut table = txn.open_table(MEMBERS)?;
    let key = (owner.0, store, member.file_id.as_str());
    let bytes: Vec<u8> = match spans {
        Some(spans) => spans.iter().flat_map(|s| [s.start.to_le_bytes(), s.end.to_le_bytes()]).flatten().collect(),
        None => table.get(key)?.map_or_else(Vec::new, |row| row.value().1.to_vec()),
    };
    table.insert(key, (json(member).as_str(), bytes.as_slice()))?;
    if spans.is_some() {
        txn.open_table(VECTORS)?.remove(key)?;
    }
    Ok(())
}

pub(super) fn remove_member(txn: &WriteTransaction, (owner, store): (KeyId, &str), file: &str) -> Written {
    txn.open_table(VECTORS)?.remove((owner.0, store, file))?;
    txn.open_table(MEMBERS)?.remove((owner.0, store, file))?;
    Ok(())
}

pub(super) fn put_batch(txn: &WriteTransaction, (owner, store): (KeyId, &str), batch: &BatchInfo) -> Written {
    txn.open_table(BATCHES)?.insert((owner.0, store, batch.id.as_str()), json(batch).as_str())?;
    Ok(())
}

pub(super) fn remove_batch(txn: &WriteTransaction, (owner, store): (KeyId, &str), batch: &str) -> Written {
    txn.open_table(BATCHES)?.remove((owner.0, store, batch))?;
    Ok(())
}
