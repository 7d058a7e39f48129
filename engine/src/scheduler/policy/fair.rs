//! The accounts of keys: what each key was served, and what a key may ask for.
//!
//! Every key has an account of served tokens over its weight, which `ledger.rs` keeps for all schedulers; this is one
//! scheduler's view of it. Who was served least goes first: in the queue, among prompts that share a step's budget, and
//! where memory runs out its sequences are preempted last. A key that comes back after a pause starts a little ahead of
//! the least served of those that are active: enough for a prompt to go first, however long it stayed away, so nobody
//! saves up a claim (the virtual counters of fair queueing).

use super::ledger::{IDLE_MAX, KeyAccount, KeyLedger, KeyLimits, KeyPlace, SCALE, Terms, WEIGHT_MAX};
use crate::ids::{KeyId, Micros};
use crate::scheduler::Rejected;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a generated token counts, when a prompt token counts 1: it takes a row in a step of its own, whose pass over
/// the weights few share. A GPU takes five times as long for it (64 rows of the 35B's shape in 10 ms, a prompt of 2,000
/// in 67 ms), a CPU twice.
const OUTPUT_TOKEN: u64 = 4;
/// How long a key counts among those that come and go after its last request was admitted, microseconds.
const LATELY_US: u64 = 30_000_000;

/// A key as one scheduler has it.
#[derive(Debug)]
struct Account {
    limits: KeyLimits,
    /// What all schedulers have served it.
    shared: Arc<KeyAccount>,
    /// What this scheduler has served it since it last added that to `shared`, and the outputs among that. Added once a
    /// step: with each token, schedulers would wait for each other's caches.
    served: u64,
    outputs: u64,
    /// What it had been served when the last plan was made: what sequences are ordered by until the next.
    turn: u64,
    /// Its live requests on this scheduler.
    live: u32,
    /// The start of the pause that lasts yet.
    paused_since: Option<Micros>,
}

impl Account {
    /// Tells the other schedulers what this one has served.
    fn post(&mut self) {
        if self.served > 0 {
            self.shared.add(std::mem::take(&mut self.served), std::mem::take(&mut self.outputs));
        }
    }
}

/// The accounts of the keys that are active on one scheduler or were lately.
#[derive(Debug, Default)]
pub(in crate::scheduler) struct Accounts {
    ledger: Arc<KeyLedger>,
    all: BTreeMap<KeyId, Account>,
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

    /// Accounts of a scheduler that shares this ledger with others.
    pub(in crate::scheduler) fn sharing(ledger: Arc<KeyLedger>) -> Self {
        Self { ledger, ..Self::default() }
    }

    /// May this key have one more request with a prompt of this many tokens?
    pub(in crate::scheduler) fn check(&mut self, terms: &Terms, prompt: u32, now: Micros) -> Result<(), Rejected> {
        self.all.get_mut(&terms.key).into_iter().for_each(Account::post);
        self.ledger.check(terms, prompt, now)
    }

    /// Admits a request of this key, with a prompt of this many tokens. Refused where [`Self::check`] would refuse it
    /// by now: requests of the key may have come to another scheduler.
    pub(in crate::scheduler) fn enter(
        &mut self,
        terms: &Terms,
        prompt: u32,
        now: Micros,
    ) -> Result<KeyPlace, Rejected> {
        self.post();
        let place = self.ledger.enter(terms, prompt, now)?;
        self.join(&place, terms);
        Ok(place)
    }

    /// Takes a request over that another scheduler had admitted, whatever its key may have.
    pub(in crate::scheduler) fn take_over(&mut self, place: KeyPlace, terms: &Terms) -> KeyPlace {
        self.post();
        let place = self.ledger.take_over(place, terms);
        self.join(&place, terms);
        place
    }

    fn join(&mut self, place: &KeyPlace, terms: &Terms) {
        self.make_room();
        let shared = place.account();
        let fresh =
            || Account { limits: terms.limits, shared, served: 0, outputs: 0, turn: 0, live: 0, paused_since: None };
        let account = self.all.entry(terms.key).or_insert_with(fresh);
        account.limits = terms.limits;
        if account.live == 0 {
            // The ledger may have forgotten the key meanwhile, and begun again.
            account.shared = place.account();
            account.turn = account.shared.served();
        }
        account.live += 1;
    }

    /// The request that has this place is over.
    pub(in crate::scheduler) fn leave(&mut self, place: KeyPlace) {
        self.part(&place);
        drop(place);
    }

    /// The request that has this place goes to another scheduler, and keeps it.
    pub(in crate::scheduler) fn part(&mut self, place: &KeyPlace) {
        let account = self.all.get_mut(&place.key()).expect("a live request has an account");
        account.live -= 1;
        self.post();
    }

    pub(in crate::scheduler) fn prompt_served(&mut self, key: KeyId, tokens: u32) {
        self.charge(key, u64::from(tokens), 0);
    }

    pub(in crate::scheduler) fn output_served(&mut self, key: KeyId) {
        self.charge(key, OUTPUT_TOKEN, 1);
    }

    fn charge(&mut self, key: KeyId, cost: u64, outputs: u64) {
        let account = self.all.get_mut(&key).expect("a live request has an account");
        account.served = account.served.saturating_add(charge(cost, account.limits.weight));
        account.outputs += outputs;
    }

    fn post(&mut self) {
        self.all.values_mut().for_each(Account::post);
    }

    /// From now on sequences are ordered by what was served up to here. The keys of `out` were paused in the step; the
    /// rows of others ran, if `decodes` says that decode rows did.
    pub(in crate::scheduler) fn settle(&mut self, out: &[KeyId], decodes: bool, now: Micros) {
        for (key, account) in &mut self.all {
            account.post();
            account.turn = account.shared.served();
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
        let here = self.all.get(&key).filter(|account| account.live > 0);
        here.map_or_else(|| self.ledger.standing_of_newcomer(key), |account| account.turn)
    }

    pub(in crate::scheduler) fn weight(&self, key: KeyId) -> u32 {
        self.all.get(&key).map_or(1, |account| account.limits.weight)
    }

    /// Keys with live requests.
    pub(in crate::scheduler) fn active_count(&self) -> usize {
        self.active().count()
    }

    fn active(&self) -> impl Iterator<Item = (&KeyId, &Account)> {
        self.all.iter().filter(|(_, account)| account.live > 0)
    }

    /// Forgets idle keys when there are too many. The ledger knows what they were served.
    fn make_room(&mut self) {
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
    use super::super::ledger::RESTED_AHEAD;
    use super::*;

    const A: KeyId = KeyId(1);
    const B: KeyId = KeyId(2);

    fn terms(key: KeyId, limits: KeyLimits) -> Terms {
        Terms { key, limits, ..Terms::default() }
    }

    fn plain(key: KeyId) -> Terms {
        terms(key, KeyLimits::default())
    }

    fn enter(accounts: &mut Accounts, terms: &Terms) -> KeyPlace {
        accounts.enter(terms, 0, Micros(0)).unwrap()
    }

    #[test]
    fn who_was_served_least_goes_first_and_a_weight_of_two_is_served_twice() {
        let mut accounts = Accounts::default();
        let _a = enter(&mut accounts, &plain(A));
        let _b = enter(&mut accounts, &terms(B, KeyLimits { weight: 2, ..KeyLimits::default() }));
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
        let _a = enter(&mut accounts, &plain(A));
        accounts.prompt_served(A, 1_000_000);
        accounts.settle(&[], true, Micros(0));
        let mut b = enter(&mut accounts, &plain(B));
        let mut ahead = 0;
        while accounts.turn(B) < accounts.turn(A) {
            accounts.prompt_served(B, 64);
            accounts.settle(&[], true, Micros(0));
            accounts.leave(b);
            b = enter(&mut accounts, &plain(B));
            ahead += 64;
        }
        assert_eq!(ahead, RESTED_AHEAD, "also with a pause after every request");
    }

    #[test]
    fn a_key_has_no_more_requests_at_once_than_it_may() {
        let mut accounts = Accounts::default();
        let limited = terms(A, KeyLimits { requests: 2, ..KeyLimits::default() });
        let mut places: Vec<_> = (0..2).map(|_| enter(&mut accounts, &limited)).collect();
        let busy = Err(Rejected::KeyBusy { live: 2, max: 2 });
        assert_eq!(accounts.check(&limited, 10, Micros(0)), busy);
        accounts.leave(places.pop().unwrap());
        accounts.check(&limited, 10, Micros(0)).unwrap();
    }

    #[test]
    fn outputs_are_taken_from_the_tokens_a_minute_as_they_come() {
        let mut accounts = Accounts::default();
        let limited = terms(A, KeyLimits { tokens_per_minute: 600, ..KeyLimits::default() });
        let _place = accounts.enter(&limited, 500, Micros(0)).unwrap();
        accounts.check(&limited, 100, Micros(0)).unwrap();
        accounts.output_served(A);
        assert_eq!(accounts.check(&limited, 100, Micros(0)), Err(Rejected::KeyRate { max: 600, wait_us: 100_000 }));
    }

    #[test]
    fn many_names_take_bounded_memory() {
        let mut accounts = Accounts::default();
        for id in 0..20_000 {
            let place = enter(&mut accounts, &plain(KeyId(id)));
            accounts.prompt_served(KeyId(id), 10);
            accounts.leave(place);
        }
        assert!(accounts.all.len() <= IDLE_MAX);
    }

    #[test]
    fn places_are_shared_by_weight_among_those_who_are_there() {
        let mut accounts = Accounts::default();
        let _a = enter(&mut accounts, &plain(A));
        assert_eq!(accounts.share(A, 16), 16);
        let _b = enter(&mut accounts, &terms(B, KeyLimits { weight: 3, ..KeyLimits::default() }));
        assert_eq!((accounts.share(A, 16), accounts.share(B, 16), accounts.share(A, 1)), (4, 12, 1));
    }

    #[test]
    fn a_key_that_another_scheduler_served_is_behind_here_and_does_not_compete_for_places() {
        let ledger = Arc::new(KeyLedger::default());
        let [mut here, mut there] = [Accounts::sharing(ledger.clone()), Accounts::sharing(ledger)];
        let _all = [enter(&mut here, &plain(A)), enter(&mut here, &plain(B)), enter(&mut there, &plain(B))];
        there.prompt_served(B, 10_000);
        there.settle(&[], true, Micros(0));
        here.settle(&[], true, Micros(0));
        assert_eq!((here.tokens_behind(A, B), here.turn(A)), (10_000, 0));
        assert_eq!((here.share(A, 16), there.share(B, 16)), (8, 16));
    }
}
