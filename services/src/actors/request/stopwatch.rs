//! Times of one request, as it is answered.

use super::output::Timings;
use crate::metrics;
use crate::metrics::gateway::Gateway;
use crate::traces::Moments;
use chimere_engine::ids::Micros;
use chimere_engine::scheduler::RequestTimes;
use std::sync::Arc;
use std::time::Duration;

/// Collects moments; the metrics hear of each as it comes.
pub struct Stopwatch {
    gateway: Arc<Gateway>,
    admitted: Option<Micros>,
    moments: Moments,
    /// The last token of each choice.
    lasts: Vec<Option<Micros>>,
    gaps: Vec<u32>,
}

impl Stopwatch {
    /// For this many choices.
    pub fn new(choices: usize, gateway: Arc<Gateway>) -> Self {
        Self { gateway, admitted: None, moments: Moments::default(), lasts: vec![None; choices], gaps: Vec::new() }
    }

    /// The scheduler said yes, as far as is known while nothing has started.
    pub fn taken(&mut self, now: Micros) {
        self.moments.taken = Some(now);
    }

    /// What was seen so far.
    pub fn moments(&self) -> &Moments {
        &self.moments
    }

    /// One prompt of the request has started. Of several, the earliest counts.
    pub fn started(&mut self, times: RequestTimes) {
        let Some(started) = times.started else { return };
        let queue = seconds(started.since(times.admitted));
        ::metrics::histogram!(metrics::QUEUE_SECONDS).record(queue);
        self.gateway.started(queue);
        self.admitted = Some(self.admitted.map_or(times.admitted, |t| t.min(times.admitted)));
        // The scheduler's own word: its yes may be heard here only after the first step began.
        self.moments.taken = self.admitted;
        self.moments.started = Some(self.moments.started.map_or(started, |t| t.min(started)));
    }

    /// A token of a choice has come.
    pub fn token(&mut self, choice: usize, now: Micros) {
        match self.lasts[choice].replace(now) {
            Some(before) => {
                let gap = now.since(before);
                ::metrics::histogram!(metrics::ITL_SECONDS).record(seconds(gap));
                self.gateway.next_token(seconds(gap));
                self.gaps.push(u32::try_from(gap.0).unwrap_or(u32::MAX));
            }
            None if self.moments.first.is_none() => {
                self.moments.first = Some(now);
                let ttft = seconds(now.since(self.admitted.unwrap_or(now)));
                ::metrics::histogram!(metrics::TTFT_SECONDS).record(ttft);
                self.gateway.first_token(ttft);
            }
            None => {}
        }
        self.moments.last = Some(now);
    }

    /// The request is over.
    pub fn end(&mut self, now: Micros) -> Timings {
        let admitted = self.admitted.unwrap_or(now);
        ::metrics::histogram!(metrics::E2E_SECONDS).record(seconds(now.since(admitted)));
        let between = |from: Option<Micros>, to: Option<Micros>| match (from, to) {
            (Some(from), Some(to)) => duration(to.since(from)),
            _ => Duration::ZERO,
        };
        let sum: u64 = self.gaps.iter().map(|&g| u64::from(g)).sum();
        Timings {
            queue: between(self.admitted, self.moments.started),
            prefill: between(self.moments.started, self.moments.first),
            ttft: between(self.admitted, self.moments.first),
            itl_mean: Duration::from_micros(sum.checked_div(self.gaps.len() as u64).unwrap_or(0)),
            itl_p95: percentile_95(&mut self.gaps),
            decode: between(self.moments.first, self.moments.last),
            total: duration(now.since(admitted)),
        }
    }
}

/// The nearest-rank percentile: the smallest value that at least 95 of 100 do not exceed.
fn percentile_95(gaps: &mut [u32]) -> Duration {
    let rank = (gaps.len() * 95).div_ceil(100);
    if rank == 0 {
        return Duration::ZERO;
    }
    let (_, value, _) = gaps.select_nth_unstable(rank - 1);
    Duration::from_micros(u64::from(*value))
}

fn duration(t: Micros) -> Duration {
    Duration::from_micros(t.0)
}

fn seconds(t: Micros) -> f64 {
    t.0 as f64 / 1e6
}

#[cfg(test)]
pub(in crate::actors) mod tests {
    use super::*;
    use chimere_engine::scheduler::{PrefixConfig, SchedulerConfig};

    /// Of a service that has room for one sequence.
    pub(in crate::actors) fn config_of_one() -> SchedulerConfig {
        SchedulerConfig {
            slots: 1,
            pages: 1,
            step_tokens: 64,
            context: 64,
            queue_requests_max: 1,
            queue_prompt_tokens_max: 1,
            steps_in_flight_max: 1,
            adapter_slots: 0,
            prefix: PrefixConfig::OFF,
        }
    }

    fn stopwatch(choices: usize) -> Stopwatch {
        Stopwatch::new(choices, Arc::new(Gateway::new("a stopwatch", &config_of_one())))
    }

    #[test]
    fn times_lie_between_the_moments_that_they_are_named_for() {
        let mut watch = stopwatch(2);
        watch.started(RequestTimes { admitted: Micros(1_000), started: Some(Micros(3_000)), first_token: None });
        for (choice, at) in [(0, 10_000), (1, 11_000), (0, 14_000), (1, 17_000)] {
            watch.token(choice, Micros(at));
        }
        let got = watch.end(Micros(20_000));
        let ms = Duration::from_millis;
        assert_eq!((got.queue, got.prefill, got.ttft), (ms(2), ms(7), ms(9)));
        assert_eq!((got.itl_mean, got.itl_p95, got.decode, got.total), (ms(5), ms(6), ms(7), ms(19)));
    }

    #[test]
    fn the_95th_percentile_of_a_hundred_is_the_95th_of_them() {
        let mut gaps: Vec<u32> = (1..=100).rev().collect();
        assert_eq!(percentile_95(&mut gaps), Duration::from_micros(95));
        assert_eq!(percentile_95(&mut [7]), Duration::from_micros(7));
        assert_eq!(percentile_95(&mut []), Duration::ZERO);
    }

    #[test]
    fn a_request_that_never_started_took_no_time_to_anything() {
        let got = stopwatch(1).end(Micros(5));
        assert_eq!(got, Timings::default());
    }
}
