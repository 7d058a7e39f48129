//! Versions on the disk, in the database of examples: what is served is one field of one row, so that whoever is cut
//! short in the middle of a change leaves what was served before, or what is served after it, and nothing between.

use super::lineage::{Lineage, LineageError, NewVersion, Version};
use super::stage::{StageEvent, VersionStage};
use crate::database::{DatabaseError, ReopeningDatabase};
use crate::learning::artefacts::{self, Artefact};
use crate::learning::gate::{VaultBudget, VaultSpent, Verdict};
use crate::learning::stored::StoredExample;
use crate::limits::LEARNING_VERSION_BYTES_MAX;
use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// Name of what is learned to its lineage, as JSON.
const LINEAGES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("lineages");
/// (name, number of the version) to its bytes.
const PAYLOADS: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("payloads");
/// What the gate remembers from run to run, as JSON.
const GATE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("gate");
/// The vault's budget there.
const VAULT: &str = "vault";

/// Why a version cannot be kept, changed or read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum VersionError {
    /// The database that keeps them.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// What is known of it does not allow it.
    #[error(transparent)]
    Lineage(#[from] LineageError),
    /// It has more bytes than a version may have.
    #[error("a version has at most {LEARNING_VERSION_BYTES_MAX} bytes, this one has {got}")]
    TooLarge {
        /// How many it has.
        got: usize,
    },
    /// Its bytes are not those that were kept.
    #[error("version {number} of {name} is damaged: its bytes have another SHA-256 than when they were kept")]
    Damaged {
        /// What it is a version of.
        name: String,
        /// The number of the version.
        number: u64,
    },
    /// The vault may not be asked now.
    #[error(transparent)]
    VaultSpent(#[from] VaultSpent),
}

/// Under which name it is known what a version was made from.
fn artefact_name(name: &str, number: u64) -> String {
    format!("{name}@{number}")
}

/// The versions in a database of examples.
#[derive(Clone, Copy)]
pub struct Versions<'a> {
    db: &'a ReopeningDatabase,
}

impl<'a> Versions<'a> {
    pub(in crate::learning) fn of(db: &'a ReopeningDatabase) -> Self {
        Self { db }
    }

    /// Keeps a candidate for what has this name, made for a model from these examples, and returns its number.
    ///
    /// # Errors
    /// If it is too large, or the disk takes nothing.
    pub fn propose(
        self,
        name: &str,
        (bytes, base): (&[u8], &str),
        examples: &[StoredExample],
        now: u64,
    ) -> Result<u64, VersionError> {
        if bytes.len() > LEARNING_VERSION_BYTES_MAX {
            return Err(VersionError::TooLarge { got: bytes.len() });
        }
        let new = NewVersion { sha256: hash(bytes), bytes: bytes.len() as u64, base: base.to_owned() };
        let mut number = 0;
        self.db.write(|txn| {
            let mut lineage = read(&txn.open_table(LINEAGES)?, name)?;
            number = lineage.propose(new, now);
            txn.open_table(PAYLOADS)?.insert((name, number), bytes)?;
            artefacts::put(txn, &artefact_name(name, number), &Artefact::trained_on(examples, now))?;
            put(txn, name, lineage)
        })?;
        Ok(number)
    }

    /// Notes what the gate says of a candidate.
    ///
    /// # Errors
    /// If there is no such candidate, or the disk takes nothing.
    pub fn judged(self, name: &str, number: u64, verdict: Verdict) -> Result<VersionStage, VersionError> {
        self.change(name, |lineage| lineage.judged(number, verdict))
    }

    /// Moves a version on.
    ///
    /// # Errors
    /// If that cannot happen to it where it stands, or the disk takes nothing.
    pub fn advance(
        self,
        name: &str,
        number: u64,
        event: StageEvent,
        why: Option<&str>,
    ) -> Result<VersionStage, VersionError> {
        self.change(name, |lineage| lineage.advance(number, event, why))
    }

    /// Takes the version back that is served, and returns the number of the one that is served again.
    ///
    /// # Errors
    /// If none is served, or the disk takes nothing.
    pub fn roll_back(self, name: &str) -> Result<Option<u64>, VersionError> {
        self.change(name, Lineage::roll_back)
    }

    /// The versions of one thing that is learned; none where nothing was.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn lineage(self, name: &str) -> Result<Lineage, DatabaseError> {
        self.db.read(|txn| read(&txn.open_table(LINEAGES)?, name))
    }

    /// Ids of the examples that a version was made from.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn made_from(self, name: &str, number: u64) -> Result<BTreeSet<String>, DatabaseError> {
        let artefacts = self.db.read(artefacts::all)?.into_iter();
        let own = artefacts.filter(|(artefact, _)| *artefact == artefact_name(name, number));
        Ok(own.flat_map(|(_, artefact)| artefact.examples.into_keys()).collect())
    }

    /// All that is learned and all versions of it, by name.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn lineages(self) -> Result<Vec<(String, Lineage)>, DatabaseError> {
        self.db.read(|txn| listed(&txn.open_table(LINEAGES)?))
    }

    /// The version that everybody of a model is answered by, and its bytes.
    ///
    /// # Errors
    /// If the database cannot be read, or the bytes are not those that were kept.
    pub fn served(self, name: &str, base: &str) -> Result<Option<(Version, Vec<u8>)>, VersionError> {
        let found = self.db.read(|txn| {
            let lineage = read(&txn.open_table(LINEAGES)?, name)?;
            let Some(version) = lineage.served(base).cloned() else { return Ok(None) };
            let bytes = txn.open_table(PAYLOADS)?.get((name, version.number))?;
            Ok(Some((version, bytes.map_or(Vec::new(), |bytes| bytes.value().to_vec()))))
        })?;
        match found {
            Some((version, bytes)) if hash(&bytes) != version.sha256 => {
                Err(VersionError::Damaged { name: name.to_owned(), number: version.number })
            }
            found => Ok(found),
        }
    }

    /// Spends one asking of the vault. It is on the disk when this returns, so that no crash gives it back.
    ///
    /// # Errors
    /// If the vault was asked as often as it may be in a year, or the disk takes nothing.
    pub fn spend_vault(self, now: u64) -> Result<(), VersionError> {
        let mut spent = Ok(());
        self.db.write(|txn| {
            let mut table = txn.open_table(GATE)?;
            let row = table.get(VAULT)?.map(|row| row.value().to_vec());
            // One that cannot be read might be spent: it is never taken for a new one, nor written over.
            let budget = row.map_or_else(|| Ok(VaultBudget::default()), |row| serde_json::from_slice(&row));
            let budget = budget.map_err(|e| unreadable("the vault's budget", &e))?;
            match budget.spend(now) {
                Ok(budget) => drop(table.insert(VAULT, json(&budget).as_slice())?),
                Err(error) => spent = Err(error),
            }
            Ok(())
        })?;
        Ok(spent?)
    }

    /// Writes another row in the place of the vault's budget, as a fault of the disk does.
    #[cfg(test)]
    pub(super) fn damage_vault(self, row: &[u8]) {
        let written = self.db.write(|txn| {
            txn.open_table(GATE)?.insert(VAULT, row)?;
            Ok(())
        });
        written.expect("the disk takes it");
    }

    fn change<T>(
        self,
        name: &str,
        change: impl FnOnce(&mut Lineage) -> Result<T, LineageError>,
    ) -> Result<T, VersionError> {
        let mut changed = Err(LineageError::NothingServed);
        self.db.write(|txn| {
            let mut lineage = read(&txn.open_table(LINEAGES)?, name)?;
            changed = change(&mut lineage);
            if changed.is_ok() { put(txn, name, lineage) } else { Ok(()) }
        })?;
        Ok(changed?)
    }
}

/// Makes the tables in a new database, and in one from before there were any.
pub(in crate::learning) fn make(txn: &WriteTransaction) -> Result<(), redb::Error> {
    txn.open_table(LINEAGES)?;
    txn.open_table(PAYLOADS)?;
    txn.open_table(GATE)?;
    Ok(())
}

/// Whether the tables are there.
pub(in crate::learning) fn are_made(txn: &ReadTransaction) -> Result<(), redb::Error> {
    txn.open_table(LINEAGES)?;
    txn.open_table(PAYLOADS)?;
    txn.open_table(GATE)?;
    Ok(())
}

/// Somebody took back what was used for these artefacts: versions among them are served no longer than they are now.
pub(in crate::learning) fn spoil(txn: &WriteTransaction, stale: &[String]) -> Result<(), redb::Error> {
    for artefact in stale {
        let Some((name, number)) = artefact.rsplit_once('@') else { continue };
        let mut lineage = read(&txn.open_table(LINEAGES)?, name)?;
        lineage.spoil(number.parse().unwrap_or_default());
        put(txn, name, lineage)?;
    }
    Ok(())
}

fn read(table: &impl ReadableTable<&'static str, &'static [u8]>, name: &str) -> Result<Lineage, redb::Error> {
    match table.get(name)? {
        None => Ok(Lineage::default()),
        // What cannot be read is never written over: that would lose what is served.
        Some(row) => serde_json::from_slice(row.value()).map_err(|e| unreadable_versions(name, &e)),
    }
}

fn unreadable_versions(name: &str, error: &serde_json::Error) -> redb::Error {
    unreadable(&format!("the row of versions of {name}"), error)
}

fn unreadable(what: &str, error: &serde_json::Error) -> redb::Error {
    redb::Error::Corrupted(format!("{what} cannot be read: {error}"))
}

/// The row, with the bytes of those versions alone that may be served.
fn put(txn: &WriteTransaction, name: &str, mut lineage: Lineage) -> Result<(), redb::Error> {
    for number in lineage.prune() {
        artefacts::remove(txn, &artefact_name(name, number))?;
    }
    let is_kept = |number: u64| lineage.version(number).is_ok_and(Version::has_bytes);
    txn.open_table(PAYLOADS)?.retain_in((name, 0)..=(name, u64::MAX), |key: (&str, u64), _| is_kept(key.1))?;
    txn.open_table(LINEAGES)?.insert(name, json(&lineage).as_slice())?;
    Ok(())
}

fn listed(table: &impl ReadableTable<&'static str, &'static [u8]>) -> Result<Vec<(String, Lineage)>, redb::Error> {
    let mut all = Vec::new();
    for row in table.iter()? {
        let (name, lineage) = row?;
        let read = serde_json::from_slice(lineage.value()).map_err(|e| unreadable_versions(name.value(), &e))?;
        all.push((name.value().to_owned(), read));
    }
    Ok(all)
}

fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("these values have no keys but strings")
}

/// The SHA-256 of a version as its row has it.
pub(super) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |out, byte| out + &format!("{byte:02x}"))
}
