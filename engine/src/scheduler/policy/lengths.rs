//! How long outputs have been lately: what a forecast goes by where a request says only how long its output may be.

use std::collections::VecDeque;

/// Outputs of a kind that are remembered.
const REMEMBERED: usize = 64;
/// Outputs of a kind that must have ended before anything is said of it.
const ENDED_MIN: u64 = 8;
/// Numbers of bits that a maximum can have.
const KINDS: usize = u32::BITS as usize + 1;

/// Lengths of the outputs that ended lately, by kind: callers that allow about the same number of tokens get alike, so
/// a kind is the number of bits of that maximum.
#[derive(Clone, Debug)]
pub(in crate::scheduler) struct Lengths {
    kinds: [Kind; KINDS],
    /// Over all kinds, of late; 0 before any output ended.
    mean: f64,
}

impl Default for Lengths {
    fn default() -> Self {
        Self { kinds: std::array::from_fn(|_| Kind::default()), mean: 0.0 }
    }
}

#[derive(Clone, Debug, Default)]
struct Kind {
    ended: u64,
    /// The last that ended, oldest first, and the same ones ascending.
    recent: VecDeque<u32>,
    sorted: Vec<u32>,
    /// Standard deviation over mean.
    spread: f64,
}

impl Lengths {
    /// An output that could have had `output_max` tokens ended after `tokens`; one that was never begun says nothing.
    pub(in crate::scheduler) fn note(&mut self, output_max: u32, tokens: u32) {
        if tokens > 0 || output_max == 0 {
            self.kinds[kind_of(output_max)].ended(tokens);
            let tokens = f64::from(tokens);
            self.mean = if self.mean > 0.0 { self.mean + (tokens - self.mean) / REMEMBERED as f64 } else { tokens };
        }
    }

    /// Mean length of the outputs that ended lately, in tokens; 0 before any did.
    pub(in crate::scheduler) fn mean(&self) -> f64 {
        self.mean
    }

    /// Did enough outputs of this kind end, and no fewer than are running? The first that end after a start are the
    /// shortest of those that run, and say little of the others. An output that may be shorter is like one of a larger
    /// kind that is cut off.
    pub(in crate::scheduler) fn knows(&self, output_max: u32, running: u64) -> bool {
        // One that wants no token, or a single one, leaves nothing to learn.
        output_max <= 1 || self.kinds[kind_of(output_max)..].iter().any(|kind| kind.ended >= running.max(ENDED_MIN))
    }

    /// Whether the lengths of all kinds that are running are known, by their largest outputs.
    pub(in crate::scheduler) fn know_all(&self, running: impl Iterator<Item = u32>) -> bool {
        let mut counts = [(0, 0); KINDS];
        for output_max in running {
            let (max, count) = &mut counts[kind_of(output_max)];
            (*max, *count) = (output_max, *count + 1);
        }
        counts.iter().all(|(max, count)| *count == 0 || self.knows(*max, *count))
    }

    /// Tokens still to come after the first `have`: those of a remembered output that was longer than that, the
    /// `quantile`-th of them (0 to 1). Who is longer than all of them is taken to be half done.
    pub(in crate::scheduler) fn left(&self, output_max: u32, have: u32, quantile: f64) -> u32 {
        let sorted = &self.kind(output_max).sorted;
        let longer = &sorted[sorted.partition_point(|tokens| *tokens <= have)..];
        let at = (quantile * longer.len() as f64) as usize;
        let left = longer.get(at.min(longer.len().saturating_sub(1))).map_or(have.max(1), |tokens| tokens - have);
        left.min(output_max.saturating_sub(have))
    }

    /// Standard deviation over mean of the remembered lengths of a kind.
    pub(in crate::scheduler) fn spread(&self, output_max: u32) -> f64 {
        self.kind(output_max).spread
    }

    /// The kind itself if it is known, or the next larger one that is.
    fn kind(&self, output_max: u32) -> &Kind {
        let own = kind_of(output_max);
        self.kinds[own..].iter().find(|kind| kind.ended >= ENDED_MIN).unwrap_or(&self.kinds[own])
    }
}

impl Kind {
    fn ended(&mut self, tokens: u32) {
        self.ended += 1;
        if self.recent.len() == REMEMBERED
            && let Some(oldest) = self.recent.pop_front()
        {
            self.sorted.remove(self.sorted.partition_point(|other| *other < oldest));
        }
        self.recent.push_back(tokens);
        self.sorted.insert(self.sorted.partition_point(|other| *other < tokens), tokens);
        let n = self.sorted.len() as f64;
        let mean = self.sorted.iter().map(|tokens| f64::from(*tokens)).sum::<f64>() / n;
        let variance = self.sorted.iter().map(|tokens| (f64::from(*tokens) - mean).powi(2)).sum::<f64>() / n;
        self.spread = if mean > 0.0 { variance.sqrt() / mean } else { 0.0 };
    }
}

fn kind_of(output_max: u32) -> usize {
    (u32::BITS - output_max.leading_zeros()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(tokens: impl IntoIterator<Item = u32>) -> Lengths {
        let mut lengths = Lengths::default();
        tokens.into_iter().for_each(|tokens| lengths.kinds[kind_of(100)].ended(tokens));
        lengths
    }

    #[test]
    fn what_is_left_is_that_of_outputs_that_were_longer() {
        let lengths = learned([10, 40, 20, 30].into_iter().cycle().take(8));
        let left = |have| [0.0, 0.3, 0.6, 0.99].map(|quantile| lengths.left(100, have, quantile));
        assert_eq!(left(0), [10, 20, 30, 40]);
        assert_eq!(left(20), [10, 10, 20, 20]);
        assert_eq!(left(50), [50; 4], "who is longer than all is half done");
        assert_eq!(left(90), [10; 4], "and never goes beyond its maximum");
        assert_eq!([0.0, 0.9].map(|quantile| lengths.left(15, 0, quantile)), [10, 15], "a small one is one cut off");
    }

    #[test]
    fn a_kind_is_known_when_as_many_have_ended_as_run() {
        let lengths = learned([10; 20]);
        assert!(lengths.knows(100, 20) && !lengths.knows(100, 21));
        assert!(!lengths.knows(1_000, 0) && lengths.knows(9, 20) && lengths.knows(1, 50) && lengths.knows(0, 50));
        assert!(!learned([10; 7]).knows(100, 0));
        assert!(lengths.know_all([100; 20].into_iter()) && !lengths.know_all([100, 1_000].into_iter()));
    }

    #[test]
    fn what_ended_long_ago_is_forgotten() {
        let lengths = learned((0..64).map(|i| i % 7).chain([50; 64]));
        assert_eq!((lengths.left(100, 0, 0.0), lengths.spread(100)), (50, 0.0));
    }
}
