//! What a card finds of a trace on which not all experts have room, by the rule that the engine follows.

use super::file::ExpertTrace;
use chimere_engine::{ExpertPlace, ExpertPlaces, Going, expert_reserves};
use std::collections::{BTreeSet, VecDeque};

/// Steps until the host learns that a place in reserve was taken: it does behind the step, when others are under way.
const LEARNED_AFTER: usize = 2;
/// Steps that it takes to leave.
const LEFT_AFTER: usize = 2;

/// Experts of a step by where they are found, on average over the second half of a trace; before that the card fills.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CardHits {
    /// Experts that lie on the card.
    pub(super) hits: f64,
    /// Those that are read in the host's memory.
    pub(super) misses: f64,
    /// Of these, those that stay on the card.
    pub(super) came: f64,
}

impl CardHits {
    pub(super) fn share(self) -> f64 {
        self.hits / (self.hits + self.misses).max(f64::MIN_POSITIVE)
    }
}

/// A card as the engine's tier of experts sees it.
struct SimulatedCard {
    layers: usize,
    places: ExpertPlaces,
    /// Places in reserve of each layer.
    reserves: Vec<Vec<u32>>,
    /// When the host learns whose reserve was taken.
    owed: VecDeque<(usize, usize)>,
    /// When they have left, and whose reserve their places become.
    leaving: VecDeque<(usize, usize, Going)>,
}

impl SimulatedCard {
    fn new(trace: &ExpertTrace, resident: f64) -> Self {
        let (layers, experts) = (trace.head.layers, trace.head.experts);
        let device = (resident * (layers * experts) as f64) as usize;
        let kept = expert_reserves(device, layers);
        let mut reserves = vec![Vec::new(); layers];
        (0..kept).for_each(|n| reserves[n % layers].push((device - kept + n) as u32));
        let there = ((device - kept) as u32, kept as u32);
        let places = ExpertPlaces::new((layers * experts) as u32, there, (layers * experts) as u32);
        Self { layers, places, reserves, owed: VecDeque::new(), leaving: VecDeque::new() }
    }

    /// Experts are numbered so that the first ones are a few of every layer, as in the engine.
    fn number(&self, (layer, expert): (usize, u16)) -> u32 {
        (expert as usize * self.layers + layer) as u32
    }

    /// A step that uses these: how many were found, missed, and came.
    fn step(&mut self, step: usize, used: &BTreeSet<(usize, u16)>) -> [u64; 3] {
        while let Some((_, layer, going)) = self.leaving.pop_front_if(|l| l.0 <= step) {
            self.places.gone(&going);
            self.reserves[layer].push(going.from);
        }
        let numbers: Vec<u32> = used.iter().map(|of| self.number(*of)).collect();
        let uses = self.places.used(&numbers);
        let mut came = 0;
        for (of, n) in used.iter().zip(numbers) {
            let outside = matches!(self.places.place(n), ExpertPlace::Host(_));
            if let Some(to) = self.reserves[of.0].pop_if(|_| outside) {
                self.places.came(n, to);
                self.owed.push_back((step + LEARNED_AFTER, of.0));
                came += 1;
            }
        }
        while self.leaving.len() < self.places.going_max() && self.owed.front().is_some_and(|o| o.0 <= step) {
            let Some(going) = self.places.go() else { break };
            let (_, layer) = self.owed.pop_front().expect("one is owed");
            self.leaving.push_back((step + LEFT_AFTER, layer, going));
        }
        [uses.hits, uses.misses, came]
    }
}

/// The first `sequences` side by side, a step a token, where `resident` of all experts have room.
pub(super) fn found(trace: &ExpertTrace, sequences: usize, resident: f64) -> CardHits {
    let (mut card, steps) = (SimulatedCard::new(trace, resident), trace.tokens(sequences));
    let mut all = [0; 3];
    for step in 0..steps {
        let uses = (0..sequences).flat_map(|s| trace.token(s, step).iter().enumerate());
        let of_step = card.step(step, &uses.map(|(i, e)| (i / trace.head.used, *e)).collect());
        if step >= steps / 2 {
            all.iter_mut().zip(of_step).for_each(|(all, n)| *all += n);
        }
    }
    let [hits, misses, came] = all.map(|n| n as f64 / (steps - steps / 2).max(1) as f64);
    CardHits { hits, misses, came }
}

#[cfg(test)]
mod tests {
    use super::super::file::TraceHead;
    use super::*;

    #[test]
    fn what_repeats_is_found_where_it_has_room_and_everything_is_where_all_have() {
        let pairs = |t: u16| [t / 8 % 4 * 2, t / 8 % 4 * 2 + 1];
        let trace = ExpertTrace {
            head: TraceHead::new(1, 32, 2, "by hand".into()),
            sequences: vec![(0..512).flat_map(pairs).collect()],
        };
        let (half, none) = (found(&trace, 1, 0.5), found(&trace, 1, 0.0));
        assert_eq!((none.hits, none.came), (0.0, 0.0));
        assert_eq!(half.misses, 0.0, "all eight have come");
        let scarce = found(&trace, 1, 0.15);
        assert!(
            scarce.misses > 0.0 && scarce.share() > 0.5,
            "four have room, and two are used eight times: {scarce:?}"
        );
        assert_eq!(found(&trace, 1, 1.0).misses, 0.0);
    }
}
