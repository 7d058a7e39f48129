//! The ledger of keys: what each key was served and what it may ask for, over all schedulers that share the ledger.
//!
//! A process with several engines has a scheduler for each and one ledger for all of them, so a key's limits hold over
//! all engines, and a key that was served by one engine is behind on the others too. A scheduler takes the lock when a
//! request comes or goes. What it serves it adds to counters of the key without a lock, once a step ([`KeyAccount`]).

use crate::ids::{KeyId, Micros};
use crate::scheduler::Rejected;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Units of a token, so that weights divide well.
pub(super) const SCALE: u64 = 1 << 10;
/// Tokens that a key which rested may be ahead of the others: about a prompt of a conversation, so that somebody who
/// asks now and then does not share his prompt's time with whoever asks all the time.
pub(super) const RESTED_AHEAD: u64 = 4_096;
/// Largest weight that a key may have.
pub const WEIGHT_MAX: u32 = 1_000;
/// Keys without live requests whose accounts are kept.
pub(super) const IDLE_MAX: usize = 4_096;

const _: () = assert!(SCALE >= WEIGHT_MAX as u64, "a token served always counts");

/// On whose account a request runs, and by when it has to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The key that the request runs on account of; requests without a key share one.
    pub key: KeyId,
    /// What its key is entitled to.
    pub limits: KeyLimits,
    /// When the answer is of no use any more.
    pub deadline: Option<Micros>,
    /// The service's own, or a part of a call that was taken before: what others have waiting is no reason to refuse
    /// it, and it takes no place in the bounds of what may wait.
    pub exempt: bool,
    /// Idle work: it uses rows and memory that nobody else wants, behind all keys, and no account pays for it. Such a
    /// request has one choice and no adapter.
    pub idle: bool,
}

/// What a key is entitled to; a limit of 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLimits {
    /// Its share when keys compete, from 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// Requests it may have at once, running and waiting.
    pub requests: u32,
    /// Tokens a minute, prompts and outputs together. As many may be taken at once after a minute of rest.
    pub tokens_per_minute: u32,
}

impl Default for KeyLimits {
    fn default() -> Self {
        Self { weight: 1, requests: 0, tokens_per_minute: 0 }
    }
}

/// What the keys of a process have and were served. Schedulers of several engines share one
/// ([`crate::scheduler::Scheduler::with_ledger`]); a scheduler that is given none has its own.
#[derive(Debug, Default)]
pub struct KeyLedger {
    entries: Mutex<Entries>,
}

/// What a key was served, which its schedulers add to while it has a live request.
#[derive(Debug, Default)]
pub(super) struct KeyAccount {
    /// Tokens, each over the key's weight, in units of 1 / [`SCALE`].
    served: AtomicU64,
    /// Outputs that the allowance was not charged for yet.
    taken: AtomicU64,
}

/// The place of one live request among those that its key may have. Dropping it frees the place.
pub(in crate::scheduler) struct KeyPlace {
    key: KeyId,
    account: Arc<KeyAccount>,
    ledger: Arc<KeyLedger>,
}

#[derive(Debug, Default)]
struct Entries {
    all: BTreeMap<KeyId, LedgerEntry>,
    /// No active key was served less, ever: where a key starts that comes when nobody else is there.
    floor: u64,
}

#[derive(Debug, Default)]
struct LedgerEntry {
    account: Arc<KeyAccount>,
    limits: KeyLimits,
    /// Its live requests, on all engines.
    live: u32,
    /// Tokens it may take now. Prompts are taken at admission, or a burst of them would pass before the first is
    /// computed; outputs as they come, so it can be negative. Only kept for keys with a rate.
    allowance: f64,
    filled: Micros,
}

impl KeyLedger {
    /// May this key have one more request with a prompt of this many tokens?
    pub(super) fn check(&self, terms: &Terms, prompt: u32, now: Micros) -> Result<(), Rejected> {
        // Most keys have no limits, and their requests wait for nobody here.
        if terms.limits.requests == 0 && terms.limits.tokens_per_minute == 0 {
            return Ok(());
        }
        self.entries().check(terms, prompt, now)
    }

    /// Takes a place for a request of this key with a prompt of this many tokens. What [`Self::check`] says is asked
    /// again under the same lock: another scheduler may have taken the key's last place since.
    pub(super) fn enter(self: &Arc<Self>, terms: &Terms, prompt: u32, now: Micros) -> Result<KeyPlace, Rejected> {
        let mut entries = self.entries();
        entries.check(terms, prompt, now)?;
        let account = entries.enter(terms, prompt);
        Ok(KeyPlace { key: terms.key, account, ledger: self.clone() })
    }

    /// Takes over the place of a request that another scheduler had admitted; its prompt was taken there.
    pub(super) fn take_over(self: &Arc<Self>, place: KeyPlace, terms: &Terms) -> KeyPlace {
        if Arc::ptr_eq(self, &place.ledger) {
            return place;
        }
        let account = self.entries().enter(terms, 0);
        KeyPlace { key: terms.key, account, ledger: self.clone() }
    }

    /// Where a key stands, or would if it came now.
    pub(super) fn standing_of_newcomer(&self, key: KeyId) -> u64 {
        let entries = self.entries();
        let own = entries.all.get(&key);
        let served = own.map_or(0, |entry| entry.account.served());
        if own.is_some_and(|entry| entry.live > 0) { served } else { served.max(entries.level()) }
    }

    /// Live requests of a key, on all engines.
    pub fn live_requests(&self, key: KeyId) -> u32 {
        self.entries().all.get(&key).map_or(0, |entry| entry.live)
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        // Nothing panics between two changes that belong together.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyAccount {
    pub(super) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Adds what was served, in the units of [`Self::served`], and outputs.
    pub(super) fn add(&self, served: u64, outputs: u64) {
        self.served.fetch_add(served, Ordering::Relaxed);
        self.taken.fetch_add(outputs, Ordering::Relaxed);
    }
}

impl KeyPlace {
    pub(super) fn key(&self) -> KeyId {
        self.key
    }

    pub(super) fn account(&self) -> Arc<KeyAccount> {
        self.account.clone()
    }
}

impl Drop for KeyPlace {
    fn drop(&mut self) {
        self.ledger.entries().leave(self.key);
    }
}

impl std::fmt::Debug for KeyPlace {
    /// Without the ledger, which has all other keys too.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KeyPlace").field(&self.key).finish()
    }
}

impl Entries {
    fn check(&mut self, terms: &Terms, prompt: u32, now: Micros) -> Result<(), Rejected> {
        let limits = terms.limits;
        if limits.requests == 0 && limits.tokens_per_minute == 0 {
            return Ok(());
        }
        self.make_room();
        let entry = self.all.entry(terms.key).or_default();
        if limits.requests > 0 && entry.live >= limits.requests {
            return Err(Rejected::KeyBusy { live: entry.live, max: limits.requests });
        }
        if limits.tokens_per_minute > 0 {
            entry.fill(limits, now);
            let wait_us = entry.lacks(prompt);
            if wait_us > 0 {
                return Err(Rejected::KeyRate { max: limits.tokens_per_minute, wait_us });
            }
        }
        Ok(())
    }

    fn enter(&mut self, terms: &Terms, prompt: u32) -> Arc<KeyAccount> {
        self.make_room();
        let level = self.level();
        self.floor = self.floor.max(level);
        let entry = self.all.entry(terms.key).or_default();
        if terms.limits.tokens_per_minute == 0 {
            // With a rate it was asked about before, or it comes from another ledger and begins with a full minute.
            entry.limits = terms.limits;
        }
        if entry.live == 0 {
            entry.account.served.fetch_max(level, Ordering::Relaxed);
        }
        entry.live += 1;
        entry.allowance -= f64::from(prompt);
        entry.account.clone()
    }

    fn leave(&mut self, key: KeyId) {
        let entry = self.all.get_mut(&key).expect("a live request has an account");
        entry.live -= 1;
        let served = entry.account.served();
        self.floor = self.floor.max(served.min(self.least_served().unwrap_or(u64::MAX)));
    }

    /// Where a key without a past starts: ahead of the active ones.
    fn level(&self) -> u64 {
        self.least_served().map_or(self.floor, |least| least.saturating_sub(RESTED_AHEAD * SCALE))
    }

    /// What the key with live requests was served that was served least.
    fn least_served(&self) -> Option<u64> {
        self.all.values().filter(|entry| entry.live > 0).map(|entry| entry.account.served()).min()
    }

    /// Forgets idle keys when there are too many: first those whose account would be raised anyway when they come back.
    fn make_room(&mut self) {
        if self.all.len() < IDLE_MAX {
            return;
        }
        let floor = self.floor;
        self.all.retain(|_, entry| entry.live > 0 || entry.account.served() > floor);
        if self.all.len() >= IDLE_MAX {
            self.all.retain(|_, entry| entry.live > 0);
        }
    }
}

impl LedgerEntry {
    /// Charges the allowance for what was taken, and lets it grow to `now`.
    fn fill(&mut self, limits: KeyLimits, now: Micros) {
        let rate = f64::from(limits.tokens_per_minute);
        let fresh = self.limits.tokens_per_minute == 0;
        self.limits = limits;
        self.allowance -= self.account.taken.swap(0, Ordering::Relaxed) as f64;
        self.allowance =
            if fresh { rate } else { (self.allowance + rate * now.since(self.filled).0 as f64 / 60e6).min(rate) };
        // Also backwards: a clock that jumped ahead and came back must not keep a key out until it gets there again.
        self.filled = now;
    }

    /// Microseconds until `tokens` may be taken; a request that asks for more than a minute's worth waits for a full
    /// minute's.
    fn lacks(&self, tokens: u32) -> u64 {
        let rate = f64::from(self.limits.tokens_per_minute);
        ((f64::from(tokens).min(rate) - self.allowance).max(0.0) / rate * 60e6) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: KeyId = KeyId(1);

    fn terms(key: KeyId, limits: KeyLimits) -> Terms {
        Terms { key, limits, ..Terms::default() }
    }

    #[test]
    fn a_key_has_no_more_requests_at_once_than_it_may_however_many_threads_ask() {
        let ledger = Arc::new(KeyLedger::default());
        let limited = terms(A, KeyLimits { requests: 5, ..KeyLimits::default() });
        let ask = || {
            let of_thread = (0..200).filter_map(|_| {
                // Each has asked before it enters, as a scheduler does.
                ledger.check(&limited, 10, Micros(0)).ok()?;
                std::thread::yield_now();
                let place = ledger.enter(&limited, 10, Micros(0)).ok()?;
                assert!(ledger.live_requests(A) <= 5);
                Some(place)
            });
            of_thread.collect::<Vec<_>>()
        };
        let held: Vec<KeyPlace> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!((held.len(), ledger.live_requests(A)), (5, 5));
        drop(held);
        assert_eq!(ledger.live_requests(A), 0);
    }

    #[test]
    fn tokens_a_minute_come_back_with_time_and_a_clock_that_jumps_gives_no_more_than_a_minute() {
        let ledger = Arc::new(KeyLedger::default());
        let limited = terms(A, KeyLimits { tokens_per_minute: 600, ..KeyLimits::default() });
        let check = |prompt, now| ledger.check(&limited, prompt, Micros(now));
        check(600, 0).unwrap();
        let place = ledger.enter(&limited, 600, Micros(0)).unwrap();
        place.account().add(600 * SCALE, 0);
        assert_eq!(check(100, 0), Err(Rejected::KeyRate { max: 600, wait_us: 10_000_000 }));
        check(100, 10_000_000).unwrap();
        check(600, u64::MAX).unwrap();
        let other = ledger.enter(&limited, 500, Micros(u64::MAX)).unwrap();
        other.account().add(800 * SCALE, 200);
        assert!(check(1, 0).is_err(), "a clock that goes back gives nothing");
        check(5_000, 70_000_000).expect("a prompt above the rate is not told to come back for ever");
    }

    #[test]
    fn many_names_take_bounded_memory() {
        let ledger = Arc::new(KeyLedger::default());
        for id in 0..20_000 {
            let place = ledger.enter(&terms(KeyId(id), KeyLimits::default()), 10, Micros(0)).unwrap();
            place.account().add(10 * SCALE, 0);
        }
        assert!(ledger.entries().all.len() <= IDLE_MAX);
    }

    #[test]
    fn a_request_that_goes_to_another_scheduler_keeps_its_place() {
        let (ledger, other) = (Arc::new(KeyLedger::default()), Arc::new(KeyLedger::default()));
        let limited = terms(A, KeyLimits { requests: 1, tokens_per_minute: 600, ..KeyLimits::default() });
        let place = ledger.enter(&limited, 500, Micros(0)).unwrap();
        let place = ledger.take_over(place, &limited);
        assert_eq!(ledger.live_requests(A), 1);
        let place = other.take_over(place, &limited);
        assert_eq!((ledger.live_requests(A), other.live_requests(A)), (0, 1));
        assert!(other.check(&limited, 1, Micros(0)).is_err());
        drop(place);
        other.check(&limited, 600, Micros(0)).expect("its prompt was taken where it was admitted");
    }
}
