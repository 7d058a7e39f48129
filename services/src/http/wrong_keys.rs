//! Whoever tries keys waits longer each time, by the address he comes from. A few mistakes cost nothing, and a right
//! key never waits.

use super::app::App;
use super::auth::Keys;
use super::reply::RequestName;
use crate::audit::Record;
use crate::holder::network;
use crate::limits::{WRONG_KEY_ADDRESSES_MAX, WRONG_KEY_DELAY_MS_MAX, WRONG_KEY_REST_SECONDS, WRONG_KEYS_TOLD};
use actix_web::{HttpRequest, web};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Wrong keys that are answered at once.
const FREE: u32 = 3;
/// What the first one after these waits; each further one twice as long as the one before.
const FIRST: Duration = Duration::from_millis(125);

/// Who tried keys that nobody has, lately.
#[derive(Debug, Default)]
pub struct WrongKeys(Mutex<HashMap<IpAddr, Tries>>);

#[derive(Clone, Copy, Debug)]
struct Tries {
    /// With a key, and without one.
    counts: [u32; 2],
    last: Instant,
}

/// One more request without a known key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongKey {
    /// How many of its kind there were from there lately.
    count: u32,
    /// How long its answer has to wait.
    delay: Duration,
}

impl WrongKey {
    /// Whether it is written down: each of the first ones, then as often as their number has doubled. Whoever has no
    /// key must not be able to fill the disk.
    fn is_told(self) -> bool {
        self.count <= WRONG_KEYS_TOLD || self.count.is_power_of_two()
    }
}

impl WrongKeys {
    /// Counts one more, with a key or without any.
    pub fn another(&self, from: IpAddr, tried: bool, now: Instant) -> WrongKey {
        let (from, rest) = (network(from), Duration::from_secs(WRONG_KEY_REST_SECONDS));
        let mut all = self.0.lock();
        if all.len() >= WRONG_KEY_ADDRESSES_MAX && !all.contains_key(&from) {
            all.retain(|_, tries| now.saturating_duration_since(tries.last) < rest);
            // Of that many at once none has anything to lose by a new start.
            if all.len() >= WRONG_KEY_ADDRESSES_MAX {
                all.clear();
            }
        }
        let tries = all.entry(from).or_insert(Tries { counts: [0; 2], last: now });
        if now.saturating_duration_since(tries.last) >= rest {
            tries.counts = [0; 2];
        }
        tries.last = now;
        let count = &mut tries.counts[usize::from(!tried)];
        *count = count.saturating_add(1);
        WrongKey { count: *count, delay: if tried { delay(*count) } else { Duration::ZERO } }
    }
}

/// Notes a request without a known key, and waits where its address has tried many. One without any key tries nothing.
pub(super) async fn hold_up(app: &web::Data<App>, request: &HttpRequest) {
    let address = request.peer_addr().map(|peer| peer.ip());
    let tried = Keys::hash_of(request).is_some();
    let action = if tried { "key.unknown" } else { "key.missing" };
    let name = RequestName::of(request);
    let one = address.map(|from| app.wrong_keys.another(from, tried, Instant::now()));
    if one.is_none_or(WrongKey::is_told) {
        let times = one.map(|one| one.count);
        tracing::warn!(request = &*name, times, "no known API key");
        let (request, outcome) = (Some(&*name), "401");
        app.audit.record(&Record { action, on: None, account: None, address, times, request, outcome });
    }
    if let Some(one) = one {
        actix_rt::time::sleep(one.delay).await;
    }
}

fn delay(count: u32) -> Duration {
    match count.checked_sub(FREE + 1) {
        None => Duration::ZERO,
        Some(doublings) => {
            FIRST.saturating_mul(1 << doublings.min(16)).min(Duration::from_millis(WRONG_KEY_DELAY_MS_MAX))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_by_address_up_to_a_bound_and_are_forgotten_after_a_rest() {
        let (wrong, begin) = (WrongKeys::default(), Instant::now());
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let waits: Vec<u64> = (0..12).map(|_| wrong.another(a, true, begin).delay.as_millis() as u64).collect();
        assert_eq!(waits[..6], [0, 0, 0, 125, 250, 500]);
        assert_eq!(*waits.last().unwrap(), WRONG_KEY_DELAY_MS_MAX);
        assert_eq!(wrong.another(b, true, begin).delay, Duration::ZERO, "another address is another's");
        let of_one_machine = |n: u16| std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 1, n, 0, 0, n).into();
        let waits: Vec<u64> =
            (0..5).map(|n| wrong.another(of_one_machine(n), true, begin).delay.as_millis() as u64).collect();
        assert_eq!(waits, [0, 0, 0, 125, 250]);
        let later = begin + Duration::from_secs(WRONG_KEY_REST_SECONDS);
        assert_eq!(wrong.another(a, true, later).delay, Duration::ZERO);
    }

    #[test]
    fn who_has_no_key_waits_for_nothing_and_fills_no_disk() {
        let (wrong, now, from) = (WrongKeys::default(), Instant::now(), "10.0.0.1".parse().unwrap());
        let all: Vec<WrongKey> = (0..100_000).map(|_| wrong.another(from, false, now)).collect();
        assert!(all.iter().all(|one| one.delay == Duration::ZERO));
        let told: Vec<u32> = all.iter().filter(|one| one.is_told()).map(|one| one.count).collect();
        assert_eq!((&told[..16], &told[16..20]), (&(1..=16).collect::<Vec<_>>()[..], &[32, 64, 128, 256][..]));
        assert_eq!(told.len(), 28);
        assert_eq!(wrong.another(from, true, now).count, 1, "keys that are tried are counted apart");
    }

    #[test]
    fn so_many_addresses_are_kept_and_no_more() {
        let (wrong, now) = (WrongKeys::default(), Instant::now());
        for n in 0..2 * WRONG_KEY_ADDRESSES_MAX as u32 {
            wrong.another(IpAddr::from(n.to_be_bytes()), true, now);
        }
        assert!(wrong.0.lock().len() <= WRONG_KEY_ADDRESSES_MAX);
    }
}
