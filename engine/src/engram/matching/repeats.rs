//! Notices that an output says once more what it has said before, so that tables do not drive it round in circles.

use crate::engram::order::ORDER_MAX;
use crate::engram::pages::prefetch;

/// Tokens in a row that count as said before when they come again: as far as any table looks back.
pub const RUN_TOKENS: usize = ORDER_MAX;
/// Runs that are remembered, the newest ones: a circle of more tokens than this is not noticed.
pub const RUNS_REMEMBERED: usize = 4096;

/// Runs that there is room for at first.
const ROOM_MIN: usize = 64;
/// Chains for each run that there is room for: most are empty, so that one read tells that a run is new.
const CHAINS_PER_RUN: usize = 4;
const _: () = assert!(
    ROOM_MIN.is_power_of_two() && RUNS_REMEMBERED.is_power_of_two() && CHAINS_PER_RUN.is_power_of_two(),
    "places are found by masks"
);

/// The runs of an output, by hash: a ring of the newest, and chains through it of those that share their last bits,
/// newest first. What is overwritten in the ring is not taken out of its chain: a chain ends where it gets too old.
///
/// Each of a step's outputs has its own places in memory, so a run is announced first and taken when all have been.
#[derive(Debug, Default)]
pub(in crate::engram) struct Repeats {
    /// Run number n, from 1, at n modulo the length.
    ring: Vec<RepeatedRun>,
    /// Number of the newest run of each chain; 0 if there is none.
    chains: Vec<u32>,
    /// Runs so far, and so the number of the newest.
    runs: u32,
    announced: Option<u64>,
    again: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct RepeatedRun {
    hash: u64,
    /// Number of the one before it in its chain.
    before: u32,
}

impl Repeats {
    /// Announces the hash of the output's last [`RUN_TOKENS`] tokens, its newest one included, and asks memory for what
    /// [`Repeats::take`] will read.
    pub(in crate::engram) fn announce(&mut self, run: u64) {
        self.take();
        self.announced = Some(run);
        prefetch(&self.chains, self.chain(run));
        prefetch(&self.ring, self.place(self.runs + 1));
    }

    /// Takes the run that was announced, if one was.
    pub(in crate::engram) fn take(&mut self) {
        let Some(hash) = self.announced.take() else { return };
        self.again = self.holds(hash);
        if self.runs as usize == self.ring.len() && self.ring.len() < RUNS_REMEMBERED {
            self.grow();
        }
        self.put(hash);
    }

    /// The output ends in a run that it had before.
    pub(in crate::engram) fn again(&self) -> bool {
        self.again
    }

    fn holds(&self, hash: u64) -> bool {
        let mut number = self.chains.get(self.chain(hash)).copied().unwrap_or(0);
        while number > 0 && ((self.runs - number) as usize) < self.ring.len() {
            let run = self.ring[self.place(number)];
            if run.hash == hash {
                return true;
            }
            number = run.before;
        }
        false
    }

    fn put(&mut self, hash: u64) {
        self.runs += 1;
        let (chain, place) = (self.chain(hash), self.place(self.runs));
        let before = std::mem::replace(&mut self.chains[chain], self.runs);
        self.ring[place] = RepeatedRun { hash, before };
    }

    /// Doubles the room of a ring that has just been filled for the first time.
    fn grow(&mut self) {
        let room = (2 * self.ring.len()).max(ROOM_MIN);
        let ring = std::mem::replace(&mut self.ring, vec![RepeatedRun::default(); room]);
        self.chains = vec![0; CHAINS_PER_RUN * room];
        let runs = std::mem::take(&mut self.runs) as usize;
        (1..=runs).for_each(|number| self.put(ring[number % ring.len()].hash));
    }

    fn place(&self, number: u32) -> usize {
        number as usize & self.ring.len().wrapping_sub(1)
    }

    fn chain(&self, hash: u64) -> usize {
        hash as usize & self.chains.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engram::context::Context;
    use crate::ids::TokenId;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn push(repeats: &mut Repeats, run: &[TokenId]) {
        Context::new(run).hash(RUN_TOKENS).into_iter().for_each(|hash| repeats.announce(hash));
        repeats.take();
    }

    /// Where in the output a run comes again.
    fn repeated(output: &[TokenId]) -> Vec<usize> {
        let mut repeats = Repeats::default();
        let mut places = Vec::new();
        for end in 1..=output.len() {
            push(&mut repeats, &output[end.saturating_sub(RUN_TOKENS)..end]);
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
        output.windows(RUN_TOKENS).for_each(|run| push(&mut repeats, run));
        assert_eq!((repeats.ring.len(), repeats.chains.len()), (RUNS_REMEMBERED, CHAINS_PER_RUN * RUNS_REMEMBERED));
        push(&mut repeats, &output[..RUN_TOKENS]);
        assert!(!repeats.again(), "too long ago");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Hashes that share their last bits share chains, and old ones come again just before and after they are
        /// forgotten.
        #[test]
        fn a_run_is_known_as_long_as_it_is_among_the_newest(runs in prop::collection::vec((0u64..6_000, 0u64..3), 1..14_000), round in any::<bool>()) {
            let (mut repeats, mut newest) = (Repeats::default(), VecDeque::new());
            let mut counts = std::collections::HashMap::<u64, u32>::new();
            for (i, (number, high)) in runs.iter().enumerate() {
                let hash = if round { i as u64 % (RUNS_REMEMBERED as u64 - 1 + number % 3) } else { high << 60 | number };
                repeats.announce(hash);
                repeats.take();
                prop_assert_eq!(repeats.again(), counts.get(&hash).is_some_and(|n| *n > 0), "run {}", i);
                *counts.entry(hash).or_default() += 1;
                newest.push_back(hash);
                if newest.len() > RUNS_REMEMBERED {
                    *counts.get_mut(&newest.pop_front().unwrap()).unwrap() -= 1;
                }
            }
        }
    }
}
