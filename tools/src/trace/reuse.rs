//! How soon uses of experts repeat, and how often they would find theirs where there is room for some.

use super::file::ExpertTrace;
use std::collections::{BTreeSet, HashMap};

/// Uses by their reuse distance: how many tokens ago the layer used the expert last, in the same sequence.
pub(super) struct Reuse {
    /// From distance 1 on.
    counts: Vec<u64>,
    first: u64,
}

impl Reuse {
    pub(super) fn of(trace: &ExpertTrace) -> Self {
        let mut all = Self { counts: Vec::new(), first: 0 };
        for sequence in &trace.sequences {
            let mut last: HashMap<(usize, u16), usize> = HashMap::new();
            for (at, token) in sequence.chunks_exact(trace.head.choices()).enumerate() {
                for (i, expert) in token.iter().enumerate() {
                    match last.insert((i / trace.head.used, *expert), at) {
                        Some(before) => all.count(at - before),
                        None => all.first += 1,
                    }
                }
            }
        }
        all
    }

    fn count(&mut self, distance: usize) {
        if self.counts.len() < distance {
            self.counts.resize(distance, 0);
        }
        self.counts[distance - 1] += 1;
    }

    fn share(&self, uses: u64) -> f64 {
        uses as f64 / (self.counts.iter().sum::<u64>() + self.first).max(1) as f64
    }

    /// The share of all uses, first ones too, that repeat one at most `distance` tokens ago.
    pub(super) fn within(&self, distance: usize) -> f64 {
        self.share(self.counts.iter().take(distance).sum())
    }

    /// The share that repeats none.
    pub(super) fn first(&self) -> f64 {
        self.share(self.first)
    }

    /// The distance that half of all uses do not exceed; first ones exceed every one.
    pub(super) fn median(&self) -> Option<usize> {
        (1..=self.counts.len()).find(|d| self.within(*d) >= 0.5)
    }
}

/// The share of uses that find their expert where `resident` of all experts have room, over all layers together: the
/// first `sequences` side by side, a step a token. What is used comes, what was used longest ago leaves. Of the second
/// half of the steps; before that the place fills.
pub(super) fn hits(trace: &ExpertTrace, sequences: usize, resident: f64) -> f64 {
    let room = (resident * (trace.head.layers * trace.head.experts) as f64) as usize;
    let (mut last, mut order) = (HashMap::new(), BTreeSet::new());
    let (mut found, mut all, steps) = (0u64, 0u64, trace.tokens(sequences));
    for step in 0..steps {
        let uses = (0..sequences).flat_map(|s| trace.token(s, step).iter().enumerate());
        let uses: BTreeSet<(usize, u16)> = uses.map(|(i, e)| (i / trace.head.used, *e)).collect();
        for of in uses {
            let before = last.insert(of, step);
            if step >= steps / 2 {
                all += 1;
                found += u64::from(before.is_some());
            }
            before.map(|before| order.remove(&(before, of)));
            order.insert((step, of));
        }
        while order.len() > room {
            let (_, of) = order.pop_first().expect("it is longer than the room");
            last.remove(&of);
        }
    }
    found as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::file::TraceHead;
    use super::*;

    fn trace(sequences: Vec<Vec<u16>>) -> ExpertTrace {
        ExpertTrace { head: TraceHead::new(1, 8, 2, "by hand".into()), sequences }
    }

    #[test]
    fn distances_are_counted_by_sequence_and_first_uses_apart() {
        let reuse = Reuse::of(&trace(vec![vec![0, 1, 0, 2, 3, 1], vec![0, 1]]));
        assert_eq!((reuse.counts.clone(), reuse.first), (vec![1, 1], 6));
        assert_eq!((reuse.within(1), reuse.within(2), reuse.median()), (0.125, 0.25, None));
        let reuse = Reuse::of(&trace(vec![vec![0, 1, 0, 1, 0, 1, 0, 1]]));
        assert_eq!(reuse.median(), Some(1));
    }

    #[test]
    fn what_has_room_is_found_and_what_was_used_longest_ago_leaves() {
        let pairs = |of: &[u16]| of.iter().flat_map(|e| [*e, *e + 1]).collect::<Vec<_>>();
        let by_turns = trace(vec![pairs(&[0, 2, 0, 2, 0, 2, 0, 2])]);
        assert_eq!(hits(&by_turns, 1, 0.5), 1.0, "four of eight have room");
        assert_eq!(hits(&by_turns, 1, 0.25), 0.0, "two have room, and two others always come between");
    }
}
