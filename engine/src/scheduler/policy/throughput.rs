//! What the service gets done while requests wait: prompt tokens a second, and the time between two tokens of a stream.
//! Both are measured by the clock, so whatever makes steps slower or faster is in them.

use crate::ids::Micros;
use std::collections::VecDeque;

/// Steps are put together until they have taken this long, microseconds, so that one slice is like another.
const SLICE_US: u64 = 100_000;
/// Slices that are remembered.
const SLICES: usize = 64;
/// Slices before anything is said.
const SLICES_MIN: usize = 16;
/// One of so many slices is left out, the longest first: the machine slept, or something was compiled.
const OUTLIERS: usize = 16;
/// A slice is forgotten after this time, microseconds.
const FORGOTTEN_US: u64 = 60_000_000;

/// What one step did, or several.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::scheduler) struct ComputedWork {
    /// Time that it took, microseconds.
    pub(in crate::scheduler) us: u64,
    /// Of that, time in which a prompt was being computed.
    pub(in crate::scheduler) reading_us: u64,
    /// Prompt tokens that were computed.
    pub(in crate::scheduler) prompt_tokens: u64,
    /// Microseconds that streams waited for a token after their first, all streams together.
    pub(in crate::scheduler) stream_us: u64,
    /// Tokens that they got.
    pub(in crate::scheduler) tokens: u64,
}

impl ComputedWork {
    fn add(&mut self, other: &Self) {
        // A clock that jumps must not overflow them.
        self.us = self.us.saturating_add(other.us);
        self.reading_us = self.reading_us.saturating_add(other.reading_us);
        self.stream_us = self.stream_us.saturating_add(other.stream_us);
        self.prompt_tokens += other.prompt_tokens;
        self.tokens += other.tokens;
    }
}

/// How fast the service works while requests wait.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Microseconds for each prompt token, prompts being computed one after another.
    pub prompt_token_us: f64,
    /// Microseconds between two tokens of a stream.
    pub token_us: f64,
}

/// The work of the recent past during which requests waited.
#[derive(Clone, Debug, Default)]
pub(in crate::scheduler) struct Throughput {
    /// Each with the time of its end, oldest first.
    slices: VecDeque<(Micros, ComputedWork)>,
    /// The slice that is not complete yet.
    open: ComputedWork,
}

impl Throughput {
    /// A step after whose planning requests were left waiting has ended.
    pub(in crate::scheduler) fn note(&mut self, now: Micros, work: &ComputedWork) {
        self.open.add(work);
        if self.open.us < SLICE_US {
            return;
        }
        if self.slices.len() == SLICES {
            self.slices.pop_front();
        }
        self.slices.push_back((now, std::mem::take(&mut self.open)));
    }

    /// `None` before enough was seen of late: then nothing can be predicted.
    pub(in crate::scheduler) fn rates(&self, now: Micros) -> Option<Rates> {
        let mut recent: Vec<_> = self.slices.iter().filter(|(at, _)| now.since(*at).0 < FORGOTTEN_US).collect();
        if recent.len() < SLICES_MIN {
            return None;
        }
        recent.sort_by_key(|(_, work)| work.us);
        recent.truncate(recent.len() - recent.len() / OUTLIERS);
        let sum = recent.iter().fold(ComputedWork::default(), |mut sum, (_, work)| {
            sum.add(work);
            sum
        });
        let rate = |us: u64, n: u64| if n > 0 { us as f64 / n as f64 } else { 0.0 };
        Some(Rates {
            prompt_token_us: rate(sum.reading_us, sum.prompt_tokens),
            token_us: rate(sum.stream_us, sum.tokens),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of 50 ms with 8 streams that get a token each, and 100 prompt tokens.
    fn steps(throughput: &mut Throughput, now: &mut u64, count: usize, slowness: u64) {
        for _ in 0..count {
            let us = 50_000 * slowness;
            *now += us;
            let work = ComputedWork { us, reading_us: us, prompt_tokens: 100, stream_us: 8 * us, tokens: 8 };
            throughput.note(Micros(*now), &work);
        }
    }

    fn rates(prompt_token_us: f64, token_us: f64) -> Option<Rates> {
        Some(Rates { prompt_token_us, token_us })
    }

    #[test]
    fn nothing_is_said_before_enough_was_measured_nor_long_after() {
        let (mut throughput, mut now) = (Throughput::default(), 0);
        steps(&mut throughput, &mut now, 2 * SLICES_MIN - 1, 1);
        assert_eq!(throughput.rates(Micros(now)), None);
        steps(&mut throughput, &mut now, 1, 1);
        assert_eq!(throughput.rates(Micros(now)), rates(500.0, 50_000.0));
        assert_eq!(throughput.rates(Micros(now + FORGOTTEN_US)), None);
    }

    #[test]
    fn a_machine_that_slept_or_was_cold_changes_nothing() {
        for first in [true, false] {
            let (mut throughput, mut now) = (Throughput::default(), 0);
            steps(&mut throughput, &mut now, if first { 0 } else { 40 }, 1);
            steps(&mut throughput, &mut now, 1, 500);
            steps(&mut throughput, &mut now, 40, 1);
            assert_eq!(throughput.rates(Micros(now)), rates(500.0, 50_000.0));
        }
    }

    #[test]
    fn a_machine_that_became_slower_is_followed_within_seconds() {
        let (mut throughput, mut now) = (Throughput::default(), 0);
        steps(&mut throughput, &mut now, 1_000, 1);
        steps(&mut throughput, &mut now, SLICES, 5);
        assert_eq!(throughput.rates(Micros(now)), rates(2_500.0, 250_000.0));
    }
}
