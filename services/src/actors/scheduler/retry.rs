//! When a refused caller should come back, and what the log keeps of the refusal.

use crate::limits::RETRY_AFTER_SECONDS;
use chimere_engine::ids::Micros;
use chimere_engine::scheduler::{Forecast, Rejected, Scheduler, Stats};
use std::time::Duration;

/// Part of the time by which callers are told to come back sooner or later than others.
const JITTER: f64 = 0.1;

/// Whether the reason of a refusal passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    /// The request can never run.
    Never,
    /// There is room in so many microseconds, as far as that is known.
    In(Option<u64>),
}

impl Passes {
    /// Of a request that was refused now.
    pub fn of(reason: &Rejected, scheduler: &Scheduler, now: Micros) -> Self {
        match *reason {
            Rejected::QueueFull { .. } | Rejected::QueueTokensFull { .. } | Rejected::KeyBusy { .. } => {
                Self::In(scheduler.room_in_us(reason, now))
            }
            Rejected::KeyRate { wait_us, .. } => Self::In(Some(wait_us)),
            Rejected::WaitTooLong { wait_us, max_us } => Self::In(Some(wait_us.saturating_sub(max_us))),
            Rejected::DeadlineUnreachable { needs_us, left_us } => Self::In(Some(needs_us.saturating_sub(left_us))),
            Rejected::EmptyPrompt
            | Rejected::PromptTooLong { .. }
            | Rejected::TooManyChoices { .. }
            | Rejected::TooManyPages { .. }
            | Rejected::Draining => Self::Never,
        }
    }
}

/// The predicted time until there is room, clamped, with `jitter` in -1..=1 for up to a tenth more or less, so that
/// those who were refused together do not come back together. The least where nothing is predicted yet.
pub fn after(room_in_us: Option<u64>, jitter: f64) -> Duration {
    let (least, most) = (*RETRY_AFTER_SECONDS.start() as f64, *RETRY_AFTER_SECONDS.end() as f64);
    let seconds = room_in_us.map_or(least, |us| us as f64 / 1e6).clamp(least, most);
    Duration::from_secs_f64((seconds * (1.0 + JITTER * jitter)).clamp(least, most))
}

/// Logs the state that led to a refusal, so that it can be judged later.
pub fn log(
    request: Option<&str>,
    reason: Rejected,
    stats: &Stats,
    foreseen: Option<Forecast>,
    room_in_us: Option<u64>,
) {
    tracing::info!(
        request,
        %reason,
        slots_free = stats.slots_free,
        pages_free = stats.pages_free,
        requests_waiting = stats.requests_new,
        prompt_tokens_waiting = stats.prompt_tokens_waiting,
        room_in_us,
        requests_ahead = foreseen.map(|f| f.ahead),
        ends_awaited = foreseen.map(|f| f.ends),
        start_us = foreseen.map(|f| f.start_us),
        start_us_min = foreseen.map(|f| f.start_us_min),
        prompt_token_us = foreseen.map(|f| f.rates.prompt_token_us),
        token_us = foreseen.map(|f| f.rates.token_us),
        "no room"
    );
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
