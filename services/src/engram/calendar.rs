//! The time that what is learned fades by. It goes on evenly while the service runs and cannot jump: a wall clock that
//! is set wrong for a moment would make everything that was learned a year old, and what is forgotten is gone for good.

use super::unix_seconds;
use parking_lot::Mutex;
use std::time::Duration;

/// What the wall clock may differ from an even clock by, as one that is set right by a little does.
const SLACK_S: u32 = 3600;
/// How long a service may have been off: a clock that is further ahead of the last thing that was done is doubtful.
const PAUSE_S: u32 = 30 * 24 * 3600;

/// See the file's head.
#[derive(Debug)]
pub(super) struct Calendar(Mutex<CalendarState>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CalendarState {
    /// The time at the last look, seconds since 1970.
    time: u32,
    /// The even clock then.
    even: Duration,
    /// The wall clock was in doubt, and it was told.
    doubted: bool,
}

impl Calendar {
    /// `last_seen` is when something was last done here by an earlier process, 0 if never.
    pub(super) fn start(last_seen: u32) -> Self {
        let wall = unix_seconds();
        let time = begin(wall, last_seen);
        if time != wall {
            tell(wall, time);
        }
        Self(Mutex::new(CalendarState { time, even: even(), doubted: time != wall }))
    }

    /// Seconds since 1970. They go on evenly while the wall clock is set forward or back.
    pub(super) fn now(&self) -> u32 {
        let (wall, mut state) = (unix_seconds(), self.0.lock());
        let before = *state;
        *state = next(before, wall, even());
        if state.doubted && !before.doubted {
            tell(wall, state.time);
        }
        state.time
    }
}

fn tell(wall: u32, time: u32) {
    tracing::warn!(
        wall,
        time,
        "the clock of this machine jumped or was wrong before; what is learned fades by an even one"
    );
}

/// The first time of a process: the wall clock's, if it can be that of a service that was off for a while.
fn begin(wall: u32, last_seen: u32) -> u32 {
    let plausible = last_seen == 0 || (last_seen..=last_seen.saturating_add(PAUSE_S)).contains(&wall);
    if plausible { wall } else { last_seen }
}

/// The time after the even clock went on to `even`.
fn next(before: CalendarState, wall: u32, even: Duration) -> CalendarState {
    let passed = u32::try_from(even.saturating_sub(before.even).as_secs()).unwrap_or(u32::MAX);
    let expected = before.time.saturating_add(passed);
    let doubted = wall.abs_diff(expected) > SLACK_S;
    let time = if doubted { expected } else { wall.max(before.time) };
    // Whole seconds only, so that nothing is lost between two looks.
    let even = if doubted { before.even + Duration::from_secs(passed.into()) } else { even };
    CalendarState { time, even, doubted }
}

/// A clock that nobody sets and that goes on while the machine sleeps.
#[cfg(target_os = "linux")]
fn even() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(not(target_os = "linux"))]
fn even() -> Duration {
    static BEGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    BEGIN.get_or_init(std::time::Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u32 = 24 * 3600;
    const NOW: u32 = 20_000 * DAY;

    fn seconds(n: u32) -> Duration {
        Duration::from_secs(n.into())
    }

    #[test]
    fn an_even_clock_and_small_corrections_are_followed() {
        let start = CalendarState { time: NOW, even: seconds(10), doubted: false };
        let later = next(start, NOW + DAY, seconds(10 + DAY));
        assert_eq!((later.time, later.doubted), (NOW + DAY, false));
        let corrected = next(later, NOW + DAY + 600, seconds(11 + DAY));
        assert_eq!((corrected.time, corrected.doubted), (NOW + DAY + 600, false));
        let back = next(corrected, NOW + DAY, seconds(12 + DAY));
        assert_eq!(back.time, corrected.time, "it never goes back");
    }

    #[test]
    fn a_jump_changes_nothing_and_when_the_clock_is_right_again_it_is_followed() {
        let start = CalendarState { time: NOW, even: seconds(0), doubted: false };
        let jumped = next(start, NOW + 400 * DAY, seconds(60));
        assert_eq!((jumped.time, jumped.doubted), (NOW + 60, true));
        let still = next(jumped, NOW + 400 * DAY + 60, seconds(120));
        assert_eq!((still.time, still.doubted), (NOW + 120, true));
        let right = next(still, NOW + 181, seconds(180));
        assert_eq!((right.time, right.doubted), (NOW + 181, false));
        assert_eq!(next(start, 0, seconds(60)).time, NOW + 60, "nor does a clock that fell back");
    }

    #[test]
    fn a_service_that_was_off_believes_a_clock_that_is_weeks_ahead_and_not_one_that_is_months() {
        assert_eq!(begin(NOW, 0), NOW);
        assert_eq!(begin(NOW + 20 * DAY, NOW), NOW + 20 * DAY);
        assert_eq!(begin(NOW + 91 * DAY, NOW), NOW);
        assert_eq!(begin(NOW - DAY, NOW), NOW);
    }
}
