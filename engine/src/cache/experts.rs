//! Which experts lie in the device's memory where not all of them fit, and which in the host's: one order of last use,
//! and who changes places. Bookkeeping only; the bytes are the backend's.
//!
//! Every expert lies in exactly one place. One that was used outside the device takes the place of the one there whose
//! last use is longest ago, from its second use on: if its own use before that was later still. Only what decoding uses
//! counts: a long prompt uses every expert once, which says nothing about what comes next.
//!
//! How many change places at a time follows from how often decoding finds its experts on the device: where that is
//! no more often than their share of all, uses do not repeat, what comes is not used sooner than what goes, and copies
//! would only take the bus from those who read.
//!
//! A swap has two steps, because others read both experts meanwhile: the one that goes is copied to a spare place of
//! the host ([`ExpertPlaces::left`] from then on), then the one that comes is copied over it
//! ([`ExpertPlaces::arrived`]), and its own place of the host is spare ([`ExpertPlaces::freed`], once nobody reads it
//! any more).

/// Where an expert lies: a number of places of each memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpertPlace {
    /// In the device's memory.
    Device(u32),
    /// In the host's.
    Host(u32),
}

/// Two experts that change places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Swap {
    /// Which expert comes to the device.
    pub(crate) comes: u32,
    /// Which one goes.
    pub(crate) goes: u32,
    /// The place of the device.
    pub(crate) device: u32,
    /// The place of the host that the one that comes leaves.
    pub(crate) from: u32,
    /// The spare place of the host that the other one takes.
    pub(crate) to: u32,
}

/// Uses of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExpertUses {
    /// On the device.
    pub(crate) hits: u64,
    /// Outside.
    pub(crate) misses: u64,
}

/// Swaps at a time where uses spread evenly: so few that copies take little of the bus, and enough to notice when that
/// changes.
const SWAPS_FEW: usize = 8;
/// Swaps at a time, at most. With 8, a drawn trace of the 35B's shape, half of whose uses repeat within two tokens, found
/// 81 % of its experts on the device with room for 70 %, since new ones came faster than they were let in; with more than
/// 64 no more is found.
pub(crate) const SWAPS_MAX: usize = 64;
/// All of them are worth it where so large a part of what could be missed beyond evenly spread uses is found.
const FOUND_ENOUGH: f64 = 0.25;
/// Steps that the share of what was found is taken over.
const FOUND_STEPS: f64 = 64.0;

/// No expert, at the ends of the order.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Expert {
    place: ExpertPlace,
    /// Taking part in a swap.
    moves: bool,
    /// Step of the last use and of the one before, counted from 1; 0 for never.
    used: [u64; 2],
    /// Neighbours in the order of the device: used earlier, used later.
    near: [u32; 2],
}

/// Places of experts that are as large as one another.
#[derive(Debug)]
pub(crate) struct ExpertPlaces {
    experts: Vec<Expert>,
    /// Those of the device whose use is longest ago, and least.
    ends: [u32; 2],
    spare: Vec<u32>,
    /// What the last step used outside and may come, the most wanted last.
    wanted: Vec<u32>,
    step: u64,
    /// The share of all that lies on the device, and of decoding's uses that found theirs there, over the last steps.
    share: f64,
    found: f64,
}

impl ExpertPlaces {
    /// The first `device` experts begin in places of the device, the others in those of the host, which has `spare`
    /// more.
    pub(crate) fn new(experts: u32, device: u32, spare: u32) -> Self {
        let (device, host) = (device.min(experts), experts.saturating_sub(device));
        let place = |e: u32| if e < device { ExpertPlace::Device(e) } else { ExpertPlace::Host(e - device) };
        let expert = |e| Expert { place: place(e), moves: false, used: [0; 2], near: [NONE; 2] };
        let mut all = Self {
            experts: (0..experts).map(expert).collect(),
            ends: [NONE; 2],
            spare: (host..host + spare).collect(),
            wanted: Vec::new(),
            step: 0,
            share: f64::from(device) / f64::from(experts.max(1)),
            found: f64::from(device) / f64::from(experts.max(1)),
        };
        (0..device).for_each(|e| all.append(e));
        all
    }

    /// Where an expert lies.
    pub(crate) fn place(&self, expert: u32) -> ExpertPlace {
        self.experts[expert as usize].place
    }

    /// How many of these uses are on the device.
    pub(crate) fn count(&self, used: impl Iterator<Item = u32>) -> ExpertUses {
        let mut uses = ExpertUses::default();
        for e in used {
            match self.place(e) {
                ExpertPlace::Device(_) => uses.hits += 1,
                ExpertPlace::Host(_) => uses.misses += 1,
            }
        }
        uses
    }

    /// Notes what a step of decoding used, each expert once.
    pub(crate) fn used(&mut self, used: impl Iterator<Item = u32>) {
        self.step += 1;
        self.wanted.clear();
        let (mut hits, mut all) = (0u32, 0u32);
        for e in used {
            all += 1;
            hits += u32::from(matches!(self.place(e), ExpertPlace::Device(_)));
            let expert = &mut self.experts[e as usize];
            expert.used = [self.step, expert.used[0]];
            match expert.place {
                ExpertPlace::Device(_) if !expert.moves => {
                    self.unlink(e);
                    self.append(e);
                }
                ExpertPlace::Device(_) => {}
                ExpertPlace::Host(_) => self.wanted.push(e),
            }
        }
        let experts = &self.experts;
        self.wanted.sort_by_key(|e| experts[*e as usize].used[1]);
        if all > 0 {
            self.found += (f64::from(hits) / f64::from(all) - self.found) / FOUND_STEPS;
        }
    }

    /// How many swaps at a time are worth their copies.
    pub(crate) fn swaps(&self) -> usize {
        let beyond = (self.found - self.share) / (1.0 - self.share).max(f64::MIN_POSITIVE);
        let worth = (beyond / FOUND_ENOUGH).clamp(0.0, 1.0);
        SWAPS_FEW + ((SWAPS_MAX - SWAPS_FEW) as f64 * worth) as usize
    }

    /// The next two that should change places, if there is a spare place for the one that goes.
    pub(crate) fn swap(&mut self) -> Option<Swap> {
        let goes = self.ends[0];
        let to = *self.spare.last().filter(|_| goes != NONE)?;
        let comes = loop {
            let e = self.wanted.pop()?;
            let Expert { place, moves, used: [_, before], .. } = self.experts[e as usize];
            // It may have come since it was wanted.
            if moves || !matches!(place, ExpertPlace::Host(_)) {
                continue;
            }
            if before == 0 || before <= self.experts[goes as usize].used[0] {
                // All others that are wanted were used before even earlier.
                self.wanted.clear();
                return None;
            }
            break e;
        };
        let (ExpertPlace::Device(device), ExpertPlace::Host(from)) = (self.place(goes), self.place(comes)) else {
            unreachable!("the order has those of the device, and the other one lies outside");
        };
        self.spare.pop();
        self.unlink(goes);
        [goes, comes].into_iter().for_each(|e| self.experts[e as usize].moves = true);
        Some(Swap { comes, goes, device, from, to })
    }

    /// The one that goes lies in the host's memory from now on.
    pub(crate) fn left(&mut self, swap: &Swap) {
        let expert = &mut self.experts[swap.goes as usize];
        (expert.place, expert.moves) = (ExpertPlace::Host(swap.to), false);
    }

    /// The one that comes lies on the device from now on.
    pub(crate) fn arrived(&mut self, swap: &Swap) {
        let expert = &mut self.experts[swap.comes as usize];
        (expert.place, expert.moves) = (ExpertPlace::Device(swap.device), false);
        self.append(swap.comes);
    }

    /// Nobody reads the place that it left any more.
    pub(crate) fn freed(&mut self, swap: &Swap) {
        self.spare.push(swap.from);
    }

    fn append(&mut self, e: u32) {
        let last = self.ends[1];
        self.experts[e as usize].near = [last, NONE];
        match last {
            NONE => self.ends[0] = e,
            last => self.experts[last as usize].near[1] = e,
        }
        self.ends[1] = e;
    }

    fn unlink(&mut self, e: u32) {
        let [earlier, later] = self.experts[e as usize].near;
        match earlier {
            NONE => self.ends[0] = later,
            earlier => self.experts[earlier as usize].near[1] = later,
        }
        match later {
            NONE => self.ends[1] = earlier,
            later => self.experts[later as usize].near[0] = earlier,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::blocks::SplitMix;
    use proptest::prelude::*;
    use std::collections::{HashSet, VecDeque};

    /// Swaps at once, without anybody who reads meanwhile.
    fn run(places: &mut ExpertPlaces, used: &[u32]) -> Vec<(u32, u32)> {
        places.used(used.iter().copied());
        let mut swaps = Vec::new();
        while let Some(swap) = places.swap() {
            places.left(&swap);
            places.arrived(&swap);
            places.freed(&swap);
            swaps.push((swap.comes, swap.goes));
        }
        swaps
    }

    /// Steps that use 20 of 256 experts, `kept` of them those of the step before, with swaps that take two steps as
    /// copies do: the share that was found in the second half, and how many swaps at a time there were in the end.
    fn found(kept: usize) -> (f64, usize) {
        let (mut places, mut rng) = (ExpertPlaces::new(256, 96, SWAPS_MAX as u32), SplitMix::new(7, 1));
        let (mut last, mut moves, mut uses) = (Vec::new(), VecDeque::new(), ExpertUses::default());
        for step in 0..800 {
            last.truncate(kept);
            while last.len() < 20 {
                let e = (rng.next_u64() % 256) as u32;
                if !last.contains(&e) {
                    last.insert(0, e);
                }
            }
            if step >= 400 {
                let of = places.count(last.iter().copied());
                uses = ExpertUses { hits: uses.hits + of.hits, misses: uses.misses + of.misses };
            }
            places.used(last.iter().copied());
            while moves.front().is_some_and(|(at, _): &(i32, Swap)| at + 2 <= step) {
                let (_, swap) = moves.pop_front().unwrap();
                places.left(&swap);
                places.arrived(&swap);
                places.freed(&swap);
            }
            while moves.len() < places.swaps() {
                let Some(swap) = places.swap() else { break };
                moves.push_back((step, swap));
            }
        }
        (uses.hits as f64 / (uses.hits + uses.misses) as f64, places.swaps())
    }

    #[test]
    fn many_come_at_a_time_where_uses_repeat_and_few_where_they_do_not() {
        let (even, repeated) = (found(0), found(16));
        assert!((0.33..0.42).contains(&even.0) && even.1 < 16, "{even:?}");
        assert!(repeated.0 > 0.45 && repeated.1 > 32, "{repeated:?}");
    }

    #[test]
    fn one_comes_with_its_second_use_and_the_longest_unused_goes() {
        let mut places = ExpertPlaces::new(5, 3, 1);
        assert_eq!(run(&mut places, &[3]), [], "a first use is no reason");
        assert_eq!(run(&mut places, &[1, 2]), []);
        assert_eq!(run(&mut places, &[3]), [(3, 0)], "0 was never used");
        assert_eq!(run(&mut places, &[4]), []);
        assert_eq!(run(&mut places, &[3, 2]), []);
        assert_eq!(run(&mut places, &[4]), [(4, 1)], "used again while 1 was not");
        assert_eq!(places.count([0, 1, 2, 3, 4].into_iter()), ExpertUses { hits: 3, misses: 2 });
    }

    #[test]
    fn a_use_longer_ago_than_that_of_all_on_the_device_is_no_reason_either() {
        let mut places = ExpertPlaces::new(3, 2, 1);
        run(&mut places, &[2]);
        run(&mut places, &[0, 1]);
        assert_eq!(run(&mut places, &[2]), [], "both were used since");
        assert_eq!(run(&mut places, &[2]), [(2, 0)]);
    }

    #[test]
    fn those_that_move_are_left_alone_and_without_a_spare_place_nobody_does() {
        let mut places = ExpertPlaces::new(4, 2, 1);
        places.used([2, 3].into_iter());
        places.used([2, 3].into_iter());
        let first = places.swap().unwrap();
        assert_eq!((first.comes, first.goes, first.to), (3, 0, 2));
        assert_eq!(places.swap(), None, "the spare place is taken");
        places.used([0, 3].into_iter());
        assert_eq!(places.swap(), None);
        assert_eq!(places.place(0), ExpertPlace::Device(0), "it has not left yet");
        places.left(&first);
        assert_eq!((places.place(0), places.place(3)), (ExpertPlace::Host(2), ExpertPlace::Host(first.from)));
        places.arrived(&first);
        assert_eq!(places.place(3), ExpertPlace::Device(0));
        places.freed(&first);
        places.used([0].into_iter());
        assert_eq!(places.swap().map(|s| (s.comes, s.goes)), Some((0, 1)));
    }

    /// The rule in so many words: every expert's last two uses, a search over all.
    struct Naive {
        device: Vec<u32>,
        used: Vec<[u64; 2]>,
        /// When each was brought up to the end of the order, to break ties.
        order: Vec<u64>,
        clock: u64,
        step: u64,
    }

    impl Naive {
        fn touch(&mut self, e: u32) {
            self.clock += 1;
            self.order[e as usize] = self.clock;
        }

        fn run(&mut self, used: &[u32]) -> Vec<(u32, u32)> {
            self.step += 1;
            for e in used {
                self.used[*e as usize] = [self.step, self.used[*e as usize][0]];
                if self.device.contains(e) {
                    self.touch(*e);
                }
            }
            let mut wanted: Vec<u32> = used.iter().copied().filter(|e| !self.device.contains(e)).collect();
            wanted.sort_by_key(|e| self.used[*e as usize][1]);
            let mut swaps = Vec::new();
            while let Some(comes) = wanted.pop() {
                let Some(at) = (0..self.device.len()).min_by_key(|i| self.order[self.device[*i] as usize]) else {
                    break;
                };
                let (goes, before) = (self.device[at], self.used[comes as usize][1]);
                if before == 0 || before <= self.used[goes as usize][0] {
                    break;
                }
                self.device[at] = comes;
                self.touch(comes);
                swaps.push((comes, goes));
            }
            swaps
        }
    }

    /// What may come between one step of a swap and the next.
    #[derive(Clone, Debug)]
    enum Action {
        Use(HashSet<u32>),
        Begin,
        GoOn(prop::sample::Index),
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            prop::collection::hash_set(0u32..12, 0..6).prop_map(Action::Use),
            Just(Action::Begin),
            any::<prop::sample::Index>().prop_map(Action::GoOn),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_between_the_steps_of_a_swap_every_expert_has_a_place_of_its_own(
            device in 0u32..12,
            actions in prop::collection::vec(action(), 0..200),
        ) {
            let (experts, spare) = (12, 3);
            let mut places = ExpertPlaces::new(experts, device, spare);
            let mut moving: Vec<(Swap, u8)> = Vec::new();
            for action in actions {
                match action {
                    Action::Use(used) => places.used(used.into_iter()),
                    Action::Begin => {
                        if let Some(swap) = places.swap() {
                            prop_assert_eq!(places.place(swap.goes), ExpertPlace::Device(swap.device));
                            prop_assert_eq!(places.place(swap.comes), ExpertPlace::Host(swap.from));
                            prop_assert!((0..experts).all(|e| places.place(e) != ExpertPlace::Host(swap.to)));
                            let theirs = [swap.comes, swap.goes];
                            prop_assert!(moving.iter().all(|(m, at)| *at > 1 || !theirs.contains(&m.comes)));
                            moving.push((swap, 0));
                        }
                    }
                    Action::GoOn(which) if !moving.is_empty() => {
                        let at = which.index(moving.len());
                        let (swap, step) = moving[at];
                        match step {
                            0 => places.left(&swap),
                            1 => places.arrived(&swap),
                            _ => places.freed(&swap),
                        }
                        moving[at].1 += 1;
                        moving.retain(|m| m.1 < 3);
                    }
                    Action::GoOn(_) => {}
                }
                let all: HashSet<_> = (0..experts).map(|e| format!("{:?}", places.place(e))).collect();
                prop_assert_eq!(all.len(), experts as usize);
            }
        }

        #[test]
        fn swaps_are_the_rule_s_and_no_two_experts_share_a_place(
            experts in 1u32..24,
            device in 0u32..24,
            steps in prop::collection::vec(prop::collection::hash_set(0u32..24, 0..8), 0..60),
        ) {
            let device = device.min(experts);
            let mut places = ExpertPlaces::new(experts, device, 2);
            let mut naive = Naive {
                device: (0..device).collect(),
                used: vec![[0; 2]; experts as usize],
                order: (0..u64::from(experts)).collect(),
                clock: u64::from(experts),
                step: 0,
            };
            for used in steps {
                let mut used: Vec<u32> = used.into_iter().filter(|e| *e < experts).collect();
                used.sort_unstable();
                prop_assert_eq!(run(&mut places, &used), naive.run(&used));
                let all: HashSet<_> = (0..experts).map(|e| format!("{:?}", places.place(e))).collect();
                prop_assert_eq!(all.len(), experts as usize);
                let there = |e: &u32| matches!(places.place(*e), ExpertPlace::Device(_));
                prop_assert_eq!((0..experts).filter(there).count(), device as usize);
            }
        }
    }
}
