//! Whoever tries keys waits longer each time, by the address he comes from. A few mistakes cost nothing, and a right
//! key never waits.

use super::app::App;
use super::auth::Keys;
use super::reply::RequestName;
use crate::audit::Record;
use crate::limits::{WRONG_KEY_ADDRESSES_MAX, WRONG_KEY_DELAY_MS_MAX, WRONG_KEY_REST_SECONDS};
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
    count: u32,
    last: Instant,
}

impl WrongKeys {
    /// Counts one more, and says how long its answer has to wait.
    pub fn another(&self, from: IpAddr, now: Instant) -> Duration {
        let rest = Duration::from_secs(WRONG_KEY_REST_SECONDS);
        let mut all = self.0.lock();
        if all.len() >= WRONG_KEY_ADDRESSES_MAX && !all.contains_key(&from) {
            all.retain(|_, tries| now.saturating_duration_since(tries.last) < rest);
            // Of that many at once none has anything to lose by a new start.
            if all.len() >= WRONG_KEY_ADDRESSES_MAX {
                all.clear();
            }
        }
        let tries = all.entry(from.to_canonical()).or_insert(Tries { count: 0, last: now });
        if now.saturating_duration_since(tries.last) >= rest {
            tries.count = 0;
        }
        *tries = Tries { count: tries.count.saturating_add(1), last: now };
        delay(tries.count)
    }
}

/// Notes a request without a known key, and waits where its address has tried many. One without any key tries nothing.
pub(super) async fn hold_up(app: &web::Data<App>, request: &HttpRequest) {
    let address = request.peer_addr().map(|peer| peer.ip());
    let tried = Keys::hash_of(request).is_some();
    let action = if tried { "key.unknown" } else { "key.missing" };
    let name = RequestName::of(request);
    app.audit.record(&Record { action, on: None, account: None, address, request: Some(&name), outcome: "401" });
    if let Some(address) = address.filter(|_| tried) {
        actix_rt::time::sleep(app.wrong_keys.another(address, Instant::now())).await;
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
        let waits: Vec<u64> = (0..12).map(|_| wrong.another(a, begin).as_millis() as u64).collect();
        assert_eq!(waits[..6], [0, 0, 0, 125, 250, 500]);
        assert_eq!(*waits.last().unwrap(), WRONG_KEY_DELAY_MS_MAX);
        assert_eq!(wrong.another(b, begin), Duration::ZERO, "another address is another's");
        let later = begin + Duration::from_secs(WRONG_KEY_REST_SECONDS);
        assert_eq!(wrong.another(a, later), Duration::ZERO);
    }

    #[test]
    fn so_many_addresses_are_kept_and_no_more() {
        let (wrong, now) = (WrongKeys::default(), Instant::now());
        for n in 0..2 * WRONG_KEY_ADDRESSES_MAX as u32 {
            wrong.another(IpAddr::from(n.to_be_bytes()), now);
        }
        assert!(wrong.0.lock().len() <= WRONG_KEY_ADDRESSES_MAX);
    }
}
