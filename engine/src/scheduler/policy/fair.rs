//! The accounts of keys: what each key was served, and what a key may ask for.
//!
//! Every key has an account of served tokens over its weight. Who was served least goes first: in the queue, among
//! prompts that share a step's budget, and where memory runs out its sequences are preempted last. A key that comes
//! back after a pause starts a little ahead of the least served of those that are active: enough for a prompt to go
//! first, however long it stayed away, so nobody saves up a claim (the virtual counters of fair queueing).

use crate::ids::{KeyId, Micros};
use crate::scheduler::Rejected;
use std::collections::BTreeMap;

/// What a generated token counts, when a prompt token counts 1: it takes a row in a step of its own, whose pass over
/// the weights few share. A GPU takes five times as long for it (64 rows of the 35B's shape in 10 ms, a prompt of 2,000
/// in 67 ms), a CPU twice.
const OUTPUT_TOKEN: u64 = 4;
/// Units of a token, so that weights divide well.
const SCALE: u64 = 1 << 10;
/// Tokens that a key which rested may be ahead of the others: about a prompt of a conversation, so that somebody who
/// asks now and then does not share his prompt's time with whoever asks all the time.
const RESTED_AHEAD: u64 = 4_096;
/// How long a key counts among those that come and go after its last request was admitted, microseconds.
const LATELY_US: u64 = 30_000_000;
/// Largest weight that a key may have.
pub const WEIGHT_MAX: u32 = 1_000;
/// Keys without live requests whose accounts are kept.
const IDLE_MAX: usize = 4_096;

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

/// What one key was served.
#[derive(Clone, Debug, Default)]
struct Account {
    limits: KeyLimits,
    /// Tokens that the key was served, each over the key's weight, in units of 1 / [`SCALE`].
    served: u64,
    /// `served` when the last plan was made: what sequences are ordered by until the next.
    turn: u64,
    live: u32,
    /// The start of the pause that lasts yet.
    paused_since: Option<Micros>,
    /// Tokens it may take now. Prompts are taken at admission, or a burst of them would pass before the first is
    /// computed; outputs as they come, so it can be negative. Only kept for keys with a rate.
    allowance: f64,
    filled: Micros,
}

impl Account {
    /// Lets the allowance grow to `now`.
    fn fill(&mut self, limits: KeyLimits, now: Micros) {
        let rate = f64::from(limits.tokens_per_minute);
        let fresh = self.limits.tokens_per_minute == 0;
        self.limits = limits;
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

/// The accounts of all keys that are active or were lately.
#[derive(Clone, Debug, Default)]
pub(in crate::scheduler) struct Accounts {
    all: BTreeMap<KeyId, Account>,
    /// No active key was served less, ever: where a key starts that comes when nobody else is there.
    floor: u64,
    visits: Visits,
}

/// Who came last, and when somebody else did before.
#[derive(Clone, Copy, Debug, Default)]
struct Visits {
    last: Option<(KeyId, Micros)>,
    other: Option<Micros>,
}

impl Accounts {
    /// A request of this key was admitted at that time.
    pub(in crate::scheduler) fn visited(&mut self, key: KeyId, now: Micros) {
        let before = self.visits.last.replace((key, now));
        if let Some((_, at)) = before.filter(|(last, _)| *last != key) {
            self.visits.other = Some(at);
        }
    }

    /// Do several keys compete, or did they a moment ago? Who asks, reads and asks again is between two requests most
    /// of the time.
    pub(in crate::scheduler) fn several_lately(&self, now: Micros) -> bool {
        self.visits.other.is_some_and(|other| now.since(other).0 < LATELY_US) || self.active_count() > 1
    }

    /// May this key have one more request with a prompt of this many tokens?
    pub(in crate::scheduler) fn check(&mut self, terms: &Terms, prompt: u32, now: Micros) -> Result<(), Rejected> {
        let limits = terms.limits;
        if limits.requests == 0 && limits.tokens_per_minute == 0 {
            return Ok(());
        }
        self.make_room();
        let account = self.all.entry(terms.key).or_default();
        if limits.requests > 0 && account.live >= limits.requests {
            return Err(Rejected::KeyBusy { live: account.live, max: limits.requests });
        }
        if limits.tokens_per_minute > 0 {
            account.fill(limits, now);
            let wait_us = account.lacks(prompt);
            if wait_us > 0 {
                return Err(Rejected::KeyRate { max: limits.tokens_per_minute, wait_us });
            }
        }
        Ok(())
    }

    /// A request of this key was admitted, with a prompt of this many tokens.
    pub(in crate::scheduler) fn enter(&mut self, terms: &Terms, prompt: u32) {
        self.make_room();
        let level = self.level();
        self.floor = self.floor.max(level);
        let account = self.all.entry(terms.key).or_default();
        account.limits = terms.limits;
        if account.live == 0 {
            account.served = account.served.max(level);
            account.turn = account.served;
        }
        account.live += 1;
        account.allowance -= f64::from(prompt);
    }

    /// A request of this key is over.
    pub(in crate::scheduler) fn leave(&mut self, key: KeyId) {
        let account = self.all.get_mut(&key).expect("a live request has an account");
        account.live -= 1;
        self.floor = self.floor.max(account.served.min(self.active().map(|(_, a)| a.served).min().unwrap_or(u64::MAX)));
    }

    pub(in crate::scheduler) fn prompt_served(&mut self, key: KeyId, tokens: u32) {
        self.charge(key, u64::from(tokens), 0);
    }

    pub(in crate::scheduler) fn output_served(&mut self, key: KeyId) {
        self.charge(key, OUTPUT_TOKEN, 1);
    }

    fn charge(&mut self, key: KeyId, cost: u64, taken: u32) {
        let account = self.all.get_mut(&key).expect("a live request has an account");
        account.served = account.served.saturating_add(charge(cost, account.limits.weight));
        account.allowance -= f64::from(taken);
    }

    /// From now on sequences are ordered by what was served up to here. The keys of `out` were paused in the step; the
    /// rows of others ran, if `decodes` says that decode rows did.
    pub(in crate::scheduler) fn settle(&mut self, out: &[KeyId], decodes: bool, now: Micros) {
        for (key, account) in &mut self.all {
            account.turn = account.served;
            if out.contains(key) {
                account.paused_since.get_or_insert(now);
            } else if decodes {
                account.paused_since = None;
            }
        }
    }

    pub(in crate::scheduler) fn paused_since(&self, key: KeyId) -> Option<Micros> {
        self.all.get(&key)?.paused_since
    }

    /// Prompt tokens of `key` until it was served as much as `other`.
    pub(in crate::scheduler) fn tokens_behind(&self, key: KeyId, other: KeyId) -> u32 {
        let behind = self.turn(other).saturating_sub(self.turn(key));
        u32::try_from(behind.saturating_mul(u64::from(self.weight(key))) / SCALE).unwrap_or(u32::MAX)
    }

    /// Order of the key when the last plan was made: the key with the smaller value goes first.
    pub(in crate::scheduler) fn turn(&self, key: KeyId) -> u64 {
        self.all.get(&key).map_or(0, |account| account.turn)
    }

    /// This key's part of `places`, at least 1, while it and the active keys compete.
    pub(in crate::scheduler) fn share(&self, key: KeyId, places: u32) -> u32 {
        self.share_with(key, key, places)
    }

    /// This active key's part of `places`, rounded up.
    pub(in crate::scheduler) fn share_rounded_up(&self, key: KeyId, places: u32) -> u32 {
        let total: u64 = self.active().map(|(_, account)| u64::from(account.limits.weight)).sum();
        (u64::from(places) * u64::from(self.weight(key))).div_ceil(total.max(1)) as u32
    }

    /// The part of `of`'s places while it, the active keys and `newcomer` compete.
    pub(in crate::scheduler) fn share_with(&self, newcomer: KeyId, of: KeyId, places: u32) -> u32 {
        let there = self.all.get(&newcomer).is_some_and(|account| account.live > 0);
        let more = if there { 0 } else { self.all.get(&newcomer).map_or(1, |account| account.limits.weight.max(1)) };
        let total: u64 =
            self.active().map(|(_, account)| u64::from(account.limits.weight)).sum::<u64>() + u64::from(more);
        ((u64::from(places) * u64::from(self.weight(of)) / total.max(1)) as u32).max(1)
    }

    /// Where a key stands, or would if it came now.
    pub(in crate::scheduler) fn turn_of_newcomer(&self, key: KeyId) -> u64 {
        let own = self.all.get(&key);
        if own.is_some_and(|account| account.live > 0) {
            self.turn(key)
        } else {
            own.map_or(0, |a| a.served).max(self.level())
        }
    }

    pub(in crate::scheduler) fn weight(&self, key: KeyId) -> u32 {
        self.all.get(&key).map_or(1, |account| account.limits.weight)
    }

    /// Where a key without a past starts: ahead of the active ones.
    fn level(&self) -> u64 {
        let least = self.active().map(|(_, account)| account.served).min();
        least.map_or(self.floor, |least| least.saturating_sub(RESTED_AHEAD * SCALE))
    }

    /// Keys with live requests.
    pub(in crate::scheduler) fn active_count(&self) -> usize {
        self.active().count()
    }

    fn active(&self) -> impl Iterator<Item = (&KeyId, &Account)> {
        self.all.iter().filter(|(_, account)| account.live > 0)
    }

    /// Forgets idle keys when there are too many: first those whose account would be raised anyway when they come back.
    fn make_room(&mut self) {
        if self.all.len() < IDLE_MAX {
            return;
        }
        let floor = self.floor;
        self.all.retain(|_, account| account.live > 0 || account.served > floor);
        if self.all.len() >= IDLE_MAX {
            self.all.retain(|_, account| account.live > 0);
        }
    }
}

/// What a request of this size will be charged, in the units of [`Accounts::turn`].
pub(in crate::scheduler) fn charge_of(prompt: u32, outputs: u32, weight: u32) -> u64 {
    charge(u64::from(prompt) + OUTPUT_TOKEN * u64::from(outputs), weight)
}

fn charge(cost: u64, weight: u32) -> u64 {
    cost.saturating_mul(SCALE) / u64::from(weight.clamp(1, WEIGHT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: KeyId = KeyId(1);
    const B: KeyId = KeyId(2);

    fn terms(key: KeyId, limits: KeyLimits) -> Terms {
        Terms { key, limits, ..Terms::default() }
    }

    fn plain(key: KeyId) -> Terms {
        terms(key, KeyLimits::default())
    }

    #[test]
    fn who_was_served_least_goes_first_and_a_weight_of_two_is_served_twice() {
        let mut accounts = Accounts::default();
        accounts.enter(&plain(A), 0);
        accounts.enter(&terms(B, KeyLimits { weight: 2, ..KeyLimits::default() }), 0);
        let mut served = [0u32; 2];
        for _ in 0..3_000 {
            let first = if accounts.turn(A) < accounts.turn(B) { A } else { B };
            accounts.prompt_served(first, 64);
            served[(first.0 - 1) as usize] += 1;
            accounts.settle(&[], true, Micros(0));
        }
        assert!((served[1] as f64 / served[0] as f64 - 2.0).abs() < 0.01, "{served:?}");
    }

    #[test]
    fn a_key_that_comes_back_goes_first_for_a_prompt_and_gains_nothing_by_leaving() {
        let mut accounts = Accounts::default();
        accounts.enter(&plain(A), 0);
        accounts.prompt_served(A, 1_000_000);
        accounts.settle(&[], true, Micros(0));
        accounts.enter(&plain(B), 0);
        let mut ahead = 0;
        while accounts.turn(B) < accounts.turn(A) {
            accounts.prompt_served(B, 64);
            accounts.settle(&[], true, Micros(0));
            accounts.leave(B);
            accounts.enter(&plain(B), 0);
            ahead += 64;
        }
        assert_eq!(ahead, RESTED_AHEAD, "also with a pause after every request");
    }

    #[test]
    fn a_key_has_no_more_requests_at_once_than_it_may() {
        let mut accounts = Accounts::default();
        let limited = terms(A, KeyLimits { requests: 2, ..KeyLimits::default() });
        for _ in 0..2 {
            accounts.check(&limited, 10, Micros(0)).unwrap();
            accounts.enter(&limited, 10);
        }
        assert_eq!(accounts.check(&limited, 10, Micros(0)), Err(Rejected::KeyBusy { live: 2, max: 2 }));
        accounts.leave(A);
        accounts.check(&limited, 10, Micros(0)).unwrap();
    }

    #[test]
    fn tokens_a_minute_come_back_with_time_and_a_clock_that_jumps_gives_no_more_than_a_minute() {
        let mut accounts = Accounts::default();
        let limited = terms(A, KeyLimits { tokens_per_minute: 600, ..KeyLimits::default() });
        accounts.check(&limited, 600, Micros(0)).unwrap();
        accounts.enter(&limited, 600);
        accounts.prompt_served(A, 600);
        assert_eq!(accounts.check(&limited, 100, Micros(0)), Err(Rejected::KeyRate { max: 600, wait_us: 10_000_000 }));
        accounts.check(&limited, 100, Micros(10_000_000)).unwrap();
        accounts.check(&limited, 600, Micros(u64::MAX)).unwrap();
        accounts.enter(&limited, 500);
        (0..200).for_each(|_| accounts.output_served(A));
        assert!(accounts.check(&limited, 1, Micros(0)).is_err(), "a clock that goes back gives nothing");
        accounts
            .check(&limited, 5_000, Micros(70_000_000))
            .expect("a prompt above the rate is not told to come back for ever");
    }

    #[test]
    fn many_names_take_bounded_memory() {
        let mut accounts = Accounts::default();
        for id in 0..20_000 {
            accounts.enter(&plain(KeyId(id)), 10);
            accounts.prompt_served(KeyId(id), 10);
            accounts.leave(KeyId(id));
        }
        assert!(accounts.all.len() <= IDLE_MAX);
    }

    #[test]
    fn places_are_shared_by_weight_among_those_who_are_there() {
        let mut accounts = Accounts::default();
        accounts.enter(&plain(A), 0);
        assert_eq!(accounts.share(A, 16), 16);
        accounts.enter(&terms(B, KeyLimits { weight: 3, ..KeyLimits::default() }), 0);
        assert_eq!((accounts.share(A, 16), accounts.share(B, 16), accounts.share(A, 1)), (4, 12, 1));
    }
}
