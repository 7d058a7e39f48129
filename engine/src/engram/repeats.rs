//! Notices that an output says once more what it has said before, so that tables do not drive it round in circles.

use super::ORDER_MAX;
use super::context::Context;
use super::hasher::ByNumber;
use crate::ids::TokenId;
use std::collections::VecDeque;

/// Tokens in a row that count as said before when they come again: as far as any table looks back.
pub const RUN_TOKENS: usize = ORDER_MAX;
/// Runs that are remembered, the newest ones: a circle of more tokens than this is not noticed.
pub const RUNS_REMEMBERED: usize = 4096;

/// The runs of an output.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    recent: VecDeque<u64>,
    counts: ByNumber<u64, u32>,
    again: bool,
}

impl Repeats {
    /// Takes the output's last tokens, its newest one included; fewer than [`RUN_TOKENS`] are no run yet.
    pub(super) fn push(&mut self, last: &[TokenId]) {
        let Some(hash) = Context::new(last).hash(RUN_TOKENS) else { return };
        let count = self.counts.entry(hash).or_default();
        self.again = *count > 0;
        *count += 1;
        self.recent.push_back(hash);
        if self.recent.len() > RUNS_REMEMBERED {
            self.forget_oldest();
        }
    }

    /// The output ends in a run that it had before.
    pub(super) fn again(&self) -> bool {
        self.again
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.recent.pop_front() else { return };
        if let Some(count) = self.counts.get_mut(&oldest) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where in the output a run comes again.
    fn repeated(output: &[TokenId]) -> Vec<usize> {
        let mut repeats = Repeats::default();
        let mut places = Vec::new();
        for end in 1..=output.len() {
            repeats.push(&output[end.saturating_sub(RUN_TOKENS)..end]);
            places.extend(repeats.again().then_some(end));
        }
        places
    }

    #[test]
    fn a_run_of_eight_tokens_is_noticed_when_it_comes_again_and_shorter_ones_are_not() {
        let once: Vec<TokenId> = (0..20).collect();
        assert_eq!(repeated(&once), Vec::<usize>::new());
        let again: Vec<TokenId> = (0..10).chain(100..103).chain(0..10).chain([50]).collect();
        assert_eq!(repeated(&again), [21, 22, 23], "the second 0..8 ends at 21, and 50 ends the copy");
        let shorter: Vec<TokenId> = (0..7).chain([100]).chain(0..7).collect();
        assert_eq!(repeated(&shorter), Vec::<usize>::new());
    }

    #[test]
    fn a_circle_is_noticed_within_its_second_round() {
        let circle: Vec<TokenId> = (0..3).cycle().take(30).collect();
        assert_eq!(repeated(&circle), (11..=30).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut repeats = Repeats::default();
        let output: Vec<TokenId> = (0..3 * RUNS_REMEMBERED as TokenId).collect();
        output.windows(RUN_TOKENS).for_each(|run| repeats.push(run));
        assert_eq!((repeats.recent.len(), repeats.counts.len()), (RUNS_REMEMBERED, RUNS_REMEMBERED));
        repeats.push(&output[..RUN_TOKENS]);
        assert!(!repeats.again(), "too long ago");
    }
}
