//! An example as it is stored: with its id and the accounts that brought it.

use super::example::Example;
use super::sizes::Age;
use crate::limits::LEARNING_LABELS_MAX;
use chimere_engine::ids::KeyId;
use serde::{Deserialize, Serialize};

/// An example and who brought it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredExample {
    /// Its id, of what it said when it came.
    pub id: String,
    /// The conversation, its answer and their source of truth.
    pub example: Example,
    /// The accounts that brought it, each once.
    pub accounts: Vec<u64>,
}

impl Example {
    /// Whether the other one wants the same answer in the place of the same one; case and space do not count.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        let rejected = |example: &Self| example.rejected.as_deref().map(plain);
        plain(&self.answer) == plain(&other.answer) && rejected(self) == rejected(other)
    }
}

impl StoredExample {
    /// From its row, if that can be read.
    pub(super) fn read(row: &[u8]) -> Option<Self> {
        serde_json::from_slice(row).ok()
    }

    /// When it came, and its id.
    pub(super) fn age(&self) -> Age {
        (self.example.at, self.id.clone())
    }

    /// Bytes of its row.
    pub(super) fn bytes(&self) -> u64 {
        serde_json::to_vec(self).map_or(0, |bytes| bytes.len() as u64)
    }

    /// With what another account, or the same one once more, says of it.
    pub(super) fn joined(&self, account: KeyId, more: &Example) -> Self {
        let mut joined = self.clone();
        joined.accounts.push(account.0);
        joined.accounts.sort_unstable();
        joined.accounts.dedup();
        joined.example.truth.extend(&more.truth);
        joined.example.truth.sort_unstable();
        joined.example.truth.dedup();
        joined.example.rating = more.rating.or(joined.example.rating);
        joined.example.reason = more.reason.clone().or(joined.example.reason);
        joined.example.family = more.family.clone().or(joined.example.family);
        joined.example.labels.extend(more.labels.iter().cloned());
        joined.example.labels.sort_unstable();
        joined.example.labels.dedup();
        joined.example.labels.truncate(LEARNING_LABELS_MAX);
        joined
    }

    /// What is left of it without an account; nothing if nobody else brought it. Nobody knows which of them rated it
    /// and said why, so that goes too.
    pub(super) fn without(&self, account: KeyId) -> Option<Self> {
        let accounts: Vec<u64> = self.accounts.iter().copied().filter(|other| *other != account.0).collect();
        let example = Example { rating: None, reason: None, labels: Vec::new(), ..self.example.clone() };
        (!accounts.is_empty()).then(|| Self { accounts, example, id: self.id.clone() })
    }
}
