//! Tries of keys, by the address that they come from. A few mistakes cost nothing; then each wrong key makes its
//! address wait longer, whether or not its client waits for the answer, and while an address has to wait no other key
//! of its clients is looked at. A key that was let in from there before is always let in at once.

use crate::holder::network;
use crate::limits::{
    KNOWN_KEYS_MAX, WRONG_KEY_ADDRESSES_MAX, WRONG_KEY_DELAY_MS_MAX, WRONG_KEY_REST_SECONDS, WRONG_KEYS_TOLD,
};
use chimere_engine::ids::KeyId;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Wrong keys that are answered at once.
const FREE: u32 = 3;
/// What the first one after these waits; each further one twice as long as the one before.
const FIRST: Duration = Duration::from_millis(125);
/// The most that one of them waits, and the longest line of those that wait: a key that comes when it is longer is
/// refused unseen.
const LONGEST: Duration = Duration::from_millis(WRONG_KEY_DELAY_MS_MAX);

/// Where keys were tried lately that nobody has, and from where known ones came.
#[derive(Debug, Default)]
pub struct WrongKeys(Mutex<AttemptsByAddress>);

#[derive(Debug, Default)]
struct AttemptsByAddress {
    tries: HashMap<IpAddr, Tries>,
    /// Keys that were let in, each with the address that it came from.
    known: HashSet<(IpAddr, KeyId)>,
}

#[derive(Clone, Copy, Debug)]
struct Tries {
    /// With a key, and without one.
    counts: [u32; 2],
    last: Instant,
    /// When the address has waited for all of them.
    free_at: Instant,
}

/// When a request's key is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyTurn {
    /// The key is looked at immediately.
    Now,
    /// When its address has waited so long.
    After(Duration),
    /// Not at all: too many wait already, for so long.
    Never(Duration),
}

/// One more request without a known key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongKey {
    /// How many of its kind there were from there lately.
    pub(in crate::http::edge) count: u32,
    /// When it is answered.
    pub(in crate::http::edge) turn: KeyTurn,
}

impl WrongKey {
    /// Whether it is written down: each of the first ones, then as often as their number has doubled. Whoever has no
    /// key must not be able to fill the disk.
    pub(in crate::http::edge) fn is_told(self) -> bool {
        self.count <= WRONG_KEYS_TOLD || self.count.is_power_of_two()
    }
}

impl WrongKeys {
    /// Counts one more, with a key or without any. From an address that stands for many clients each waits for itself.
    pub fn another(&self, from: IpAddr, tried: bool, of_many: bool, now: Instant) -> WrongKey {
        let (from, rest) = (network(from), Duration::from_secs(WRONG_KEY_REST_SECONDS));
        let tries = &mut self.0.lock().tries;
        if tries.len() >= WRONG_KEY_ADDRESSES_MAX && !tries.contains_key(&from) {
            tries.retain(|_, tries| now.saturating_duration_since(tries.last) < rest);
            // Of that many at once none has anything to lose by a new start.
            if tries.len() >= WRONG_KEY_ADDRESSES_MAX {
                tries.clear();
            }
        }
        let tries = tries.entry(from).or_insert(Tries { counts: [0; 2], last: now, free_at: now });
        if now.saturating_duration_since(tries.last) >= rest {
            tries.counts = [0; 2];
        }
        tries.last = now;
        let count = &mut tries.counts[usize::from(!tried)];
        *count = count.saturating_add(1);
        let (count, mut turn) = (*count, KeyTurn::Now);
        if tried && of_many {
            turn = after(delay(count));
        } else if tried {
            turn = tries.turn(now);
            if !matches!(turn, KeyTurn::Never(_)) {
                tries.free_at = tries.free_at.max(now) + delay(count);
                turn = after(tries.free_at - now);
            }
        }
        WrongKey { count, turn }
    }

    /// When a known key is let in.
    pub fn known(&self, from: IpAddr, key: KeyId, now: Instant) -> KeyTurn {
        let from = network(from);
        let addresses = self.0.lock();
        let turn = addresses.tries.get(&from).map_or(KeyTurn::Now, |tries| tries.turn(now));
        if turn == KeyTurn::Now || addresses.known.contains(&(from, key)) { KeyTurn::Now } else { turn }
    }

    /// A known key was let in.
    pub fn let_in(&self, from: IpAddr, key: KeyId) {
        let (known, one) = (&mut self.0.lock().known, (network(from), key));
        if known.contains(&one) {
            return;
        }
        // Those that still come are back with their next request.
        if known.len() >= KNOWN_KEYS_MAX {
            known.clear();
        }
        known.insert(one);
    }
}

impl Tries {
    /// When the next key is looked at.
    fn turn(&self, now: Instant) -> KeyTurn {
        match self.free_at.saturating_duration_since(now) {
            wait if wait > LONGEST => KeyTurn::Never(wait),
            wait => after(wait),
        }
    }
}

fn after(wait: Duration) -> KeyTurn {
    if wait.is_zero() { KeyTurn::Now } else { KeyTurn::After(wait) }
}

fn delay(count: u32) -> Duration {
    match count.checked_sub(FREE + 1) {
        None => Duration::ZERO,
        Some(doublings) => FIRST.saturating_mul(1 << doublings.min(16)).min(LONGEST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: KeyId = KeyId(7);

    fn millis(turn: KeyTurn) -> u64 {
        match turn {
            KeyTurn::Now => 0,
            KeyTurn::After(wait) | KeyTurn::Never(wait) => wait.as_millis() as u64,
        }
    }

    /// Tries so many keys, each when the one before was answered; how long each waits.
    fn patient(wrong: &WrongKeys, from: IpAddr, tries: usize, now: &mut Instant) -> Vec<u64> {
        let one = |_| {
            let wait = millis(wrong.another(from, true, false, *now).turn);
            *now += Duration::from_millis(wait);
            wait
        };
        (0..tries).map(one).collect()
    }

    #[test]
    fn delays_grow_by_address_up_to_a_bound_and_are_forgotten_after_a_rest() {
        let (wrong, mut now) = (WrongKeys::default(), Instant::now());
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let waits = patient(&wrong, a, 12, &mut now);
        assert_eq!(waits[..6], [0, 0, 0, 125, 250, 500]);
        assert_eq!(*waits.last().unwrap(), WRONG_KEY_DELAY_MS_MAX);
        assert_eq!(wrong.another(b, true, false, now).turn, KeyTurn::Now, "another address is another's");
        let of_one_machine = |n: u16| std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 1, n, 0, 0, n).into();
        let waits: Vec<u64> = (0..5).flat_map(|n| patient(&wrong, of_one_machine(n), 1, &mut now)).collect();
        assert_eq!(waits, [0, 0, 0, 125, 250]);
        now += Duration::from_secs(WRONG_KEY_REST_SECONDS);
        assert_eq!(patient(&wrong, a, 1, &mut now), [0]);
    }

    #[test]
    fn whoever_hangs_up_waits_as_long_as_one_that_listens() {
        let (wrong, begin, from) = (WrongKeys::default(), Instant::now(), "10.0.0.1".parse().unwrap());
        // Two thousand a second for a minute, none of which waits for its answer.
        let looked_at = (0..120_000u64).filter(|i| {
            let now = begin + Duration::from_micros(500 * i);
            !matches!(wrong.another(from, true, false, now).turn, KeyTurn::Never(_))
        });
        let looked_at = looked_at.count();
        assert!((10..20).contains(&looked_at), "{looked_at} of them were looked at");
        let now = begin + Duration::from_secs(60);
        assert!(millis(wrong.known(from, KEY, now)) > 0, "a right guess is not told earlier than a wrong one");
        wrong.let_in(from, KEY);
        assert_eq!(wrong.known(from, KEY, now), KeyTurn::Now, "one that was let in before is no guess");
        assert!(millis(wrong.known(from, KeyId(8), now)) > 0);
        assert_eq!(wrong.known("10.0.0.2".parse().unwrap(), KeyId(8), now), KeyTurn::Now);
    }

    #[test]
    fn clients_behind_one_address_wait_each_for_itself() {
        let (wrong, now, from) = (WrongKeys::default(), Instant::now(), "10.0.0.1".parse().unwrap());
        let waits: Vec<KeyTurn> = (0..1000).map(|_| wrong.another(from, true, true, now).turn).collect();
        assert!(waits.iter().all(|turn| !matches!(turn, KeyTurn::Never(_))));
        assert_eq!(wrong.known(from, KEY, now), KeyTurn::Now);
    }

    #[test]
    fn who_has_no_key_waits_for_nothing_and_fills_no_disk() {
        let (wrong, now, from) = (WrongKeys::default(), Instant::now(), "10.0.0.1".parse().unwrap());
        let all: Vec<WrongKey> = (0..100_000).map(|_| wrong.another(from, false, false, now)).collect();
        assert!(all.iter().all(|one| one.turn == KeyTurn::Now));
        let told: Vec<u32> = all.iter().filter(|one| one.is_told()).map(|one| one.count).collect();
        assert_eq!((&told[..16], &told[16..20]), (&(1..=16).collect::<Vec<_>>()[..], &[32, 64, 128, 256][..]));
        assert_eq!(told.len(), 28);
        assert_eq!(wrong.another(from, true, false, now).count, 1, "keys that are tried are counted apart");
    }

    #[test]
    fn so_many_addresses_are_kept_and_no_more() {
        let (wrong, now) = (WrongKeys::default(), Instant::now());
        for n in 0..2 * WRONG_KEY_ADDRESSES_MAX.max(KNOWN_KEYS_MAX) as u32 {
            wrong.another(IpAddr::from(n.to_be_bytes()), true, false, now);
            wrong.let_in(IpAddr::from(n.to_be_bytes()), KEY);
        }
        let kept = wrong.0.lock();
        assert!(kept.tries.len() <= WRONG_KEY_ADDRESSES_MAX && kept.known.len() <= KNOWN_KEYS_MAX);
    }
}
