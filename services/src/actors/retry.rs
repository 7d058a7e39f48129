//! When a refused caller should come back.

use crate::limits::RETRY_AFTER_SECONDS;
use std::time::Duration;

/// Part of the time by which callers are told to come back sooner or later than others.
const JITTER: f64 = 0.1;

/// The predicted time until there is room, clamped, with `jitter` in -1..=1 for up to a tenth more or less, so that
/// those who were refused together do not come back together. The least where nothing is predicted yet.
pub fn after(room_in_us: Option<u64>, jitter: f64) -> Duration {
    let (least, most) = (*RETRY_AFTER_SECONDS.start() as f64, *RETRY_AFTER_SECONDS.end() as f64);
    let seconds = room_in_us.map_or(least, |us| us as f64 / 1e6).clamp(least, most);
    Duration::from_secs_f64((seconds * (1.0 + JITTER * jitter)).clamp(least, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_come_back_when_there_is_room_some_a_little_sooner_or_later() {
        assert_eq!(after(Some(30_000_000), 0.0), Duration::from_secs(30));
        assert_eq!(after(Some(30_000_000), -1.0), Duration::from_secs(27));
        assert_eq!(after(Some(30_000_000), 1.0), Duration::from_secs(33));
    }

    #[test]
    fn it_stays_between_a_second_and_a_minute_also_when_nothing_is_known() {
        assert_eq!(after(Some(u64::MAX), 1.0), Duration::from_secs(60));
        assert_eq!(after(Some(0), -1.0), Duration::from_secs(1));
        assert_eq!(after(None, 1.0), Duration::from_secs_f64(1.1));
    }
}
