//! The one clock of a service. The scheduler is told the time by it; tests tell their own.

use chimere_engine::ids::Micros;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Seconds of a day.
const DAY: u64 = 86_400;

/// Counts from the moment it was made. Copies agree.
#[derive(Clone, Debug)]
pub struct Clock {
    /// `None` for a clock that stands still.
    start: Option<Instant>,
    /// Microseconds that it is wrong by.
    skew: Arc<AtomicI64>,
}

impl Clock {
    /// A clock that reads 0 now.
    pub fn start() -> Self {
        Self { start: Some(Instant::now()), skew: Arc::default() }
    }

    /// Stands at 0 and moves only when it is made to jump: whoever is told the time by it takes no time for anything.
    pub fn stopped() -> Self {
        Self { start: None, skew: Arc::default() }
    }

    /// Time since the start.
    pub fn now(&self) -> Micros {
        // 2^64 microseconds are half a million years.
        let elapsed = self.start.map_or(0, |start| start.elapsed().as_micros() as u64);
        Micros(elapsed.saturating_add_signed(self.skew.load(Ordering::Relaxed)))
    }

    /// Jumps, as a clock of a suspended or badly virtualised machine does; backwards at most to 0.
    pub fn jump(&self, micros: i64) {
        self.skew.fetch_add(micros, Ordering::Relaxed);
    }
}

/// The wall clock as whole seconds since 1970; 0 if it stands before that.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// The wall clock in seconds since 1970, with the parts of a second; 0 if it stands before that.
pub fn unix_seconds_f64() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// A time of each day, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOfDay {
    /// Minutes since midnight, in UTC.
    minutes: u64,
}

impl TimeOfDay {
    /// Whether it came between two moments in seconds since 1970, the second one included. A clock that went back has
    /// passed nothing.
    pub fn came(self, before: u64, now: u64) -> bool {
        let at = self.minutes * 60;
        let days = |moment: u64| (moment + DAY - at) / DAY;
        now > before && days(now) > days(before)
    }
}

impl FromStr for TimeOfDay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str, most: u64| {
            let is_plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            is_plain.then(|| text.parse::<u64>().ok()).flatten().filter(|number| *number <= most)
        };
        let parsed = text.split_once(':').and_then(|(hour, minute)| Some((number(hour, 23)?, number(minute, 59)?)));
        let shown = || text.chars().take(40).collect::<String>();
        let (hour, minute) = parsed.ok_or_else(|| format!("must be a time such as 03:00, got {:?}", shown()))?;
        Ok(Self { minutes: hour * 60 + minute })
    }
}

/// A moment in seconds since 1970, as RFC 3339 writes it in UTC.
pub fn rfc3339(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Days from the first of 1970 to a date of the Gregorian calendar; `None` for what is no date. Years begin in March
/// here, so that the leap day is the last.
pub fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some(days.saturating_sub(719_468))
}

/// Year, month and day, so many days after the first of 1970. Counted in years that begin in March, whose months have
/// the same lengths every year.
pub fn date(days: u64) -> (u64, u64, u64) {
    const ERA_DAYS: u64 = 146_097;
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / ERA_DAYS, shifted % ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_agree_also_after_a_jump_and_never_show_less_than_nothing() {
        let clock = Clock::start();
        let copy = clock.clone();
        clock.jump(3_600_000_000);
        assert!(copy.now() >= Micros(3_600_000_000));
        copy.jump(-7_200_000_000);
        assert_eq!(clock.now(), Micros(0));
    }

    #[test]
    fn a_stopped_clock_moves_by_its_jumps_alone() {
        let clock = Clock::stopped();
        clock.jump(5);
        assert_eq!((clock.now(), clock.now()), (Micros(5), Micros(5)));
    }

    #[test]
    fn a_time_of_day_comes_once_a_day_whenever_it_is_looked_at() {
        let at: TimeOfDay = "03:00".parse().unwrap();
        let three = 20_000 * DAY + 3 * 3600;
        assert!(!at.came(three - 60, three - 1) && at.came(three - 1, three) && !at.came(three, three + DAY - 1));
        assert!(at.came(three, three + DAY) && at.came(three - 5 * DAY, three + 7), "also when it was missed");
        assert!(!at.came(three + 60, three - 60), "a clock that goes back makes nothing due");
        let looks: Vec<u64> = (0..3 * 288).map(|n| three + 1 + n * 300).collect();
        assert_eq!(looks.windows(2).filter(|pair| at.came(pair[0], pair[1])).count(), 2);
        assert!("00:00".parse::<TimeOfDay>().unwrap().came(DAY - 1, DAY));
        for wrong in ["", "3:00", "24:00", "12:60", "12", "aa:bb", "+1:00"] {
            let error = wrong.parse::<TimeOfDay>().unwrap_err();
            assert!(error.starts_with("must be a time such as 03:00, got "), "{error}");
        }
    }

    #[test]
    fn a_moment_is_written_as_clients_read_it() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_795_392_061, "2026-11-23T00:01:01Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }
}
