//! Which responses there are, and what the disk does not know yet.

use super::{KeptResponse, RESPONSE_BYTES, RESPONSES_KEPT, Removed, ResponseKey, dropped};
use crate::database::DatabaseError;
use crate::limits::RESPONSES_UNWRITTEN_BYTES;
use chimere_engine::ids::KeyId;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// See the file's head.
#[derive(Default)]
pub(super) struct KeptIndex {
    accounts: HashMap<KeyId, KeptAccount>,
    bytes: u64,
    /// Responses that are not written yet.
    unwritten: HashMap<ResponseKey, Unwritten>,
    unwritten_bytes: u64,
    /// Responses that are there no longer and may be on the disk.
    gone: HashSet<ResponseKey>,
    /// Removals that somebody waits for: the responses are there until it is done.
    removals: Vec<(ResponseKey, Removed)>,
    /// The last write failed, and what it was to keep waits.
    stuck: bool,
}

struct Unwritten {
    stored: KeptResponse,
    ends: u64,
    /// A write has begun, so it may be on the disk.
    begun: bool,
}

/// What an account has, the oldest first.
#[derive(Default)]
struct KeptAccount {
    bytes: u64,
    all: VecDeque<KeptEntry>,
}

struct KeptEntry {
    id: Arc<str>,
    bytes: u64,
    ends: u64,
}

/// What is to be written, in this order.
pub(super) struct Changes {
    /// Each with the time when it ends.
    pub(super) puts: Vec<(ResponseKey, u64, KeptResponse)>,
    pub(super) gone: Vec<ResponseKey>,
    pub(super) removals: Vec<(ResponseKey, Removed)>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.gone.is_empty() && self.removals.is_empty()
    }
}

impl KeptIndex {
    /// Of what is on the disk: when each ends, whose it is, its bytes.
    pub(super) fn of(rows: &[(u64, ResponseKey, u64)]) -> Self {
        let mut rows: Vec<_> = rows.iter().collect();
        rows.sort();
        let mut index = Self::default();
        rows.into_iter().for_each(|(ends, key, bytes)| index.add(key, *bytes, *ends));
        index
    }

    /// Bytes of all accounts.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn account_bytes(&self, owner: KeyId) -> u64 {
        self.accounts.get(&owner).map_or(0, |account| account.bytes)
    }

    /// Whether so many bytes may wait to be written too.
    pub(super) fn can_take(&self, bytes: u64) -> bool {
        !self.stuck && self.unwritten_bytes + bytes <= RESPONSES_UNWRITTEN_BYTES
    }

    pub(super) fn has(&self, owner: KeyId, id: &str, now: u64) -> bool {
        let all = self.accounts.get(&owner).into_iter().flat_map(|account| &account.all);
        all.into_iter().any(|entry| *entry.id == *id && entry.ends > now)
    }

    pub(super) fn unwritten(&self, owner: KeyId, id: &str) -> Option<KeptResponse> {
        self.unwritten.get(&(owner, id.into())).map(|unwritten| unwritten.stored.clone())
    }

    pub(super) fn put(&mut self, key: ResponseKey, stored: KeptResponse, ends: u64) {
        self.add(&key, stored.bytes(), ends);
        self.unwritten_bytes += stored.bytes();
        self.unwritten.insert(key, Unwritten { stored, ends, begun: false });
    }

    fn add(&mut self, (owner, id): &ResponseKey, bytes: u64, ends: u64) {
        let account = self.accounts.entry(*owner).or_default();
        account.all.push_back(KeptEntry { id: id.clone(), bytes, ends });
        account.bytes += bytes;
        self.bytes += bytes;
    }

    /// Removes one when the disk has heard of it, and tells `removed`; at once where the disk knows nothing of it. False
    /// if there is none.
    pub(super) fn remove(&mut self, owner: KeyId, id: &str, removed: Removed) -> bool {
        let all = self.accounts.get(&owner).into_iter().flat_map(|account| &account.all);
        let Some(id) = all.into_iter().find(|entry| *entry.id == *id).map(|entry| entry.id.clone()) else {
            return false;
        };
        let key = (owner, id);
        if self.unwritten.get(&key).is_some_and(|unwritten| !unwritten.begun) {
            self.forget(|entry| entry.id == key.1, owner);
            // Nobody may wait for it any more.
            removed.send(Ok(())).ok();
        } else {
            self.removals.push((key, removed));
        }
        true
    }

    pub(super) fn forget_oldest(&mut self, owner: KeyId) {
        self.forget(|_| true, owner);
    }

    /// The oldest of the account that has most.
    pub(super) fn forget_oldest_of_most(&mut self) {
        let most = self.accounts.iter().max_by_key(|(_, account)| account.bytes).map(|(owner, _)| *owner);
        most.into_iter().for_each(|owner| self.forget_oldest(owner));
    }

    /// Forgets those whose time is over, and says how many.
    pub(super) fn forget_old(&mut self, now: u64) -> usize {
        let owners: Vec<KeyId> = self.accounts.keys().copied().collect();
        let old = |entry: &KeptEntry| entry.ends <= now;
        owners.into_iter().map(|owner| std::iter::from_fn(|| self.forget(old, owner)).count()).sum()
    }

    /// Forgets the first of an account for which this holds.
    fn forget(&mut self, which: impl Fn(&KeptEntry) -> bool, owner: KeyId) -> Option<()> {
        let key = self.take_out(owner, which)?;
        match self.unwritten.remove(&key) {
            Some(unwritten) => {
                self.unwritten_bytes -= unwritten.stored.bytes();
                if unwritten.begun {
                    self.gone.insert(key);
                }
            }
            None => {
                self.gone.insert(key);
            }
        }
        Some(())
    }

    fn take_out(&mut self, owner: KeyId, which: impl Fn(&KeptEntry) -> bool) -> Option<ResponseKey> {
        let account = self.accounts.get_mut(&owner)?;
        let entry = account.all.iter().position(which).and_then(|at| account.all.remove(at))?;
        account.bytes -= entry.bytes;
        self.bytes -= entry.bytes;
        if account.all.is_empty() {
            self.accounts.remove(&owner);
        }
        Some((owner, entry.id))
    }

    /// All that the disk does not know yet. Its write begins.
    pub(super) fn changes(&mut self) -> Changes {
        let put = |(key, unwritten): (&ResponseKey, &mut Unwritten)| {
            unwritten.begun = true;
            (key.clone(), unwritten.ends, unwritten.stored.clone())
        };
        Changes {
            puts: self.unwritten.iter_mut().map(put).collect(),
            gone: self.gone.iter().cloned().collect(),
            removals: std::mem::take(&mut self.removals),
        }
    }

    /// These changes were written, or were not; who waits for a removal is told.
    pub(super) fn settle(&mut self, changes: Changes, written: &Result<(), DatabaseError>) {
        self.stuck = written.is_err() && !changes.puts.is_empty();
        if written.is_ok() {
            for (key, ..) in &changes.puts {
                if let Some(unwritten) = self.unwritten.remove(key) {
                    self.unwritten_bytes -= unwritten.stored.bytes();
                }
            }
            for key in &changes.gone {
                self.gone.remove(key);
            }
        }
        for (key, removed) in changes.removals {
            if written.is_ok() {
                self.take_out(key.0, |entry| entry.id == key.1);
            }
            // Nobody may wait for it any more.
            removed.send(written.clone()).ok();
        }
        self.tell();
    }

    /// What is not written will not be.
    pub(super) fn give_up(&mut self) {
        let lost = self.unwritten.len();
        if lost > 0 {
            tracing::error!(lost, "responses could not be written before the end");
            (0..lost).for_each(|_| dropped("write"));
        }
    }

    /// Says how much there is.
    pub(super) fn tell(&self) {
        let count: usize = self.accounts.values().map(|account| account.all.len()).sum();
        ::metrics::gauge!(RESPONSES_KEPT).set(count as f64);
        ::metrics::gauge!(RESPONSE_BYTES).set(self.bytes as f64);
    }
}
