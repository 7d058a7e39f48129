//! What was trained on examples: by whom each was brought, so that who takes one back makes stale what was trained on
//! it.

use super::stored::StoredExample;
use chimere_engine::ids::KeyId;
use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name to what it was trained on, as JSON.
const ARTEFACTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("artefacts");

/// Something that was trained: a table, a prompt or an adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artefact {
    /// Seconds since 1970 when it was trained.
    pub at: u64,
    /// Ids of its examples, each with the accounts that had brought it and have not taken it back.
    pub examples: BTreeMap<String, Vec<u64>>,
    /// When the last account took an example back; what is stale is trained again without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<u64>,
}

impl Artefact {
    pub(super) fn trained_on(examples: &[StoredExample], at: u64) -> Self {
        let examples = examples.iter().map(|stored| (stored.id.clone(), stored.accounts.clone())).collect();
        Self { at, examples, stale: None }
    }

    /// Whether it was trained on something that an account brought.
    pub fn is_of(&self, account: KeyId) -> bool {
        self.examples.values().any(|accounts| accounts.contains(&account.0))
    }

    /// Takes an account's examples out of it, or one of them; whether this made it stale.
    fn withdraw(&mut self, account: KeyId, id: Option<&str>, now: u64) -> bool {
        let mut left_alone = false;
        for (example, accounts) in &mut self.examples {
            let before = accounts.len();
            if id.is_none_or(|id| id == example) {
                accounts.retain(|other| *other != account.0);
            }
            left_alone |= accounts.is_empty() && before > 0;
        }
        if left_alone {
            self.stale.get_or_insert(now);
        }
        left_alone
    }
}

/// Makes the table in a new database.
pub(super) fn make(txn: &WriteTransaction) -> Result<(), redb::Error> {
    txn.open_table(ARTEFACTS)?;
    Ok(())
}

pub(super) fn put(txn: &WriteTransaction, name: &str, artefact: &Artefact) -> Result<(), redb::Error> {
    let bytes = serde_json::to_vec(artefact).expect("JSON values have no keys but strings");
    txn.open_table(ARTEFACTS)?.insert(name, bytes.as_slice())?;
    Ok(())
}

/// Forgets what something was trained on that is gone.
pub(super) fn remove(txn: &WriteTransaction, name: &str) -> Result<(), redb::Error> {
    txn.open_table(ARTEFACTS)?.remove(name)?;
    Ok(())
}

/// All of them, by name.
pub(super) fn all(txn: &ReadTransaction) -> Result<Vec<(String, Artefact)>, redb::Error> {
    listed(&txn.open_table(ARTEFACTS)?)
}

/// Takes an account's examples out of each, or one of them, and says which became stale.
pub(super) fn withdraw(
    txn: &WriteTransaction,
    account: KeyId,
    id: Option<&str>,
    now: u64,
) -> Result<Vec<String>, redb::Error> {
    let artefacts = listed(&txn.open_table(ARTEFACTS)?)?;
    let mut stale = Vec::new();
    for (name, mut artefact) in artefacts.into_iter().filter(|(_, artefact)| artefact.is_of(account)) {
        let became = artefact.withdraw(account, id, now);
        put(txn, &name, &artefact)?;
        stale.extend(became.then_some(name));
    }
    Ok(stale)
}

fn listed(table: &impl ReadableTable<&'static str, &'static [u8]>) -> Result<Vec<(String, Artefact)>, redb::Error> {
    let mut all = Vec::new();
    for row in table.iter()? {
        let (name, artefact) = row?;
        all.extend(serde_json::from_slice(artefact.value()).ok().map(|artefact| (name.value().to_owned(), artefact)));
    }
    Ok(all)
}
