//! Which experts lie in the device's memory where not all of them fit, and which in the host's: one order of last use,
//! and who goes. Bookkeeping only; the bytes are the backend's.
//!
//! Every expert lies in exactly one place. The device keeps a few places in reserve, and what it reads in the host's
//! memory comes to one of these as it is read ([`ExpertPlaces::came`]). So that there are others for what comes next,
//! those leave the device whose last use is longest ago ([`ExpertPlaces::go`]): each is copied to a spare place of the
//! host, while others still read it, and lies there from then on ([`ExpertPlaces::gone`]).
//!
//! Only what decoding uses counts: a long prompt uses every expert once, which says nothing about what comes next.
//!
//! How many leave at a time follows from how often decoding finds its experts on the device. Where that is no more
//! often than their share of all, uses do not repeat, what came is not used sooner than what left, and copies only slow
//! those who read over the same bus.

/// Where an expert lies: a number of places of each memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertPlace {
    /// In the device's memory.
    Device(u32),
    /// At this place of the host's memory.
    Host(u32),
}

/// An expert on its way from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Going {
    /// Number of the expert in its block.
    pub expert: u32,
    /// The place of the device that it leaves.
    pub from: u32,
    /// The spare place of the host that it takes.
    pub to: u32,
}

/// Uses of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertUses {
    /// Uses of experts that lay on the device.
    pub hits: u64,
    /// Uses of experts that lay on the host.
    pub misses: u64,
}

/// Experts that leave at a time where uses spread evenly: so few that their copies slow nobody, and enough to notice
/// when that changes.
const GOING_FEW: usize = 8;
/// Experts that leave at a time, at most.
pub(crate) const GOING_MAX: usize = 128;
/// All of them are worth it where so large a part of what could be missed beyond evenly spread uses is found.
const FOUND_ENOUGH: f64 = 0.25;
/// Steps that the share of what was found is taken over.
const FOUND_STEPS: f64 = 64.0;

/// Places that a block has in reserve, at most.
pub(crate) const RESERVES_MAX: usize = 8;

/// Places that are kept in reserve of `device` ones for so many blocks: few where there are few.
pub fn reserves(device: usize, blocks: usize) -> usize {
    (device / 8).clamp(blocks.min(device.div_ceil(2)), blocks * RESERVES_MAX)
}

/// No expert, at the ends of the order.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Expert {
    place: ExpertPlace,
    /// In the order of the device: it lies there and does not leave.
    stays: bool,
    /// Neighbours in that order: used earlier, used later.
    near: [u32; 2],
}

/// Places of experts that are as large as one another.
#[derive(Debug)]
pub struct ExpertPlaces {
    experts: Vec<Expert>,
    /// Those of the device whose use is longest ago, and least.
    ends: [u32; 2],
    /// Places of the host that hold nothing.
    spare: Vec<u32>,
    /// The share of all that has room on the device, and of decoding's uses that found theirs there over the last
    /// steps.
    share: f64,
    found: f64,
}

impl ExpertPlaces {
    /// The first `device` experts begin in places of the device, which has `reserves` more, the others in those of the
    /// host, which has `spare` more.
    pub fn new(experts: u32, (device, reserves): (u32, u32), spare: u32) -> Self {
        let share = f64::from(device + reserves) / f64::from(experts.max(1));
        let (device, host) = (device.min(experts), experts.saturating_sub(device));
        let place = |e: u32| if e < device { ExpertPlace::Device(e) } else { ExpertPlace::Host(e - device) };
        let expert = |e| Expert { place: place(e), stays: false, near: [NONE; 2] };
        let mut all = Self {
            experts: (0..experts).map(expert).collect(),
            ends: [NONE; 2],
            spare: (host..host + spare).collect(),
            share,
            found: share,
        };
        (0..device).for_each(|e| all.append(e));
        all
    }

    /// Where an expert lies.
    pub fn place(&self, expert: u32) -> ExpertPlace {
        self.experts[expert as usize].place
    }

    /// How many of these uses are on the device.
    pub fn count(&self, used: impl Iterator<Item = u32>) -> ExpertUses {
        let mut uses = ExpertUses::default();
        for e in used {
            match self.place(e) {
                ExpertPlace::Device(_) => uses.hits += 1,
                ExpertPlace::Host(_) => uses.misses += 1,
            }
        }
        uses
    }

    /// Notes what a step of decoding used, each expert once, and says how many of it lie on the device.
    pub fn used(&mut self, used: &[u32]) -> ExpertUses {
        let uses = self.count(used.iter().copied());
        if !used.is_empty() {
            self.found += (uses.hits as f64 / used.len() as f64 - self.found) / FOUND_STEPS;
        }
        for e in used {
            if self.experts[*e as usize].stays {
                self.unlink(*e);
                self.append(*e);
            }
        }
        uses
    }

    /// How many leaving at a time are worth their copies. Squared, so that chance does not count for much.
    pub fn going_max(&self) -> usize {
        let beyond = (self.found - self.share) / (1.0 - self.share).max(f64::MIN_POSITIVE);
        let worth = (beyond / FOUND_ENOUGH).clamp(0.0, 1.0).powi(2);
        GOING_FEW + ((GOING_MAX - GOING_FEW) as f64 * worth) as usize
    }

    /// An expert of the host lies in this place of the device since the last step, and nobody reads it where it was.
    pub fn came(&mut self, expert: u32, to: u32) {
        match std::mem::replace(&mut self.experts[expert as usize].place, ExpertPlace::Device(to)) {
            ExpertPlace::Host(from) => self.spare.push(from),
            ExpertPlace::Device(_) => unreachable!("only what lies elsewhere comes"),
        }
        self.append(expert);
    }

    /// The next one that is to leave the device, if the host has a place for it.
    pub fn go(&mut self) -> Option<Going> {
        let expert = self.ends[0];
        if expert == NONE {
            return None;
        }
        let to = self.spare.pop()?;
        let ExpertPlace::Device(from) = self.place(expert) else { unreachable!("the order has those of the device") };
        self.unlink(expert);
        Some(Going { expert, from, to })
    }

    /// It lies in the host's memory from now on.
    pub fn gone(&mut self, going: &Going) {
        self.experts[going.expert as usize].place = ExpertPlace::Host(going.to);
    }

    fn append(&mut self, e: u32) {
        let last = self.ends[1];
        let expert = &mut self.experts[e as usize];
        (expert.stays, expert.near) = (true, [last, NONE]);
        match last {
            NONE => self.ends[0] = e,
            last => self.experts[last as usize].near[1] = e,
        }
        self.ends[1] = e;
    }

    fn unlink(&mut self, e: u32) {
        let expert = &mut self.experts[e as usize];
        expert.stays = false;
        let [earlier, later] = expert.near;
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

    #[test]
    fn the_longest_unused_goes_and_what_came_stays_longest() {
        let mut places = ExpertPlaces::new(6, (3, 1), 2);
        assert_eq!(places.used(&[0, 4]), ExpertUses { hits: 1, misses: 1 });
        assert_eq!(places.count(0..6), ExpertUses { hits: 3, misses: 3 });
        let first = places.go().unwrap();
        assert_eq!(first, Going { expert: 1, from: 1, to: 4 }, "0 was used, 2 comes later in the order");
        assert_eq!(places.place(1), ExpertPlace::Device(1), "others read it until it has gone");
        places.gone(&first);
        assert_eq!(places.place(1), ExpertPlace::Host(4));
        places.came(4, 1);
        assert_eq!(places.place(4), ExpertPlace::Device(1));
        let rest: Vec<Going> = std::iter::from_fn(|| places.go()).collect();
        assert_eq!(rest.iter().map(|g| (g.expert, g.to)).collect::<Vec<_>>(), [(2, 1), (0, 3)], "two places are spare");
    }

    #[test]
    fn what_is_used_while_it_leaves_leaves() {
        let mut places = ExpertPlaces::new(3, (2, 0), 2);
        let going = places.go().unwrap();
        places.used(&[going.expert, 1]);
        places.gone(&going);
        assert_eq!(places.place(going.expert), ExpertPlace::Host(going.to));
        assert_eq!(places.go().map(|g| g.expert), Some(1));
        assert_eq!(places.go(), None, "nobody is left there");
    }

    #[test]
    fn without_a_spare_place_nobody_goes() {
        let mut places = ExpertPlaces::new(4, (2, 1), 0);
        assert_eq!(places.go(), None);
        places.came(3, 2);
        assert_eq!(places.go(), Some(Going { expert: 0, from: 0, to: 1 }), "in the place of who came");
    }

    /// Steps that use 20 of 256 experts, `kept` of them those of the step before, where 96 have room and who leaves
    /// takes two steps: the share that was found in the second half, and how many may leave at a time in the end.
    fn found(kept: usize) -> (f64, usize) {
        let (mut places, mut rng) = (ExpertPlaces::new(256, (80, 16), GOING_MAX as u32 + 16), SplitMix::new(7, 1));
        let (mut last, mut leaving, mut uses) = (Vec::new(), VecDeque::new(), ExpertUses::default());
        let (mut reserves, mut owed) = ((80..96).collect::<Vec<u32>>(), 0);
        for step in 0..800 {
            last.truncate(kept);
            while last.len() < 20 {
                let e = (rng.next_u64() % 256) as u32;
                if !last.contains(&e) {
                    last.insert(0, e);
                }
            }
            let of = places.used(&last);
            if step >= 400 {
                uses = ExpertUses { hits: uses.hits + of.hits, misses: uses.misses + of.misses };
            }
            for e in &last {
                let outside = matches!(places.place(*e), ExpertPlace::Host(_));
                if let Some(to) = reserves.pop_if(|_| outside) {
                    places.came(*e, to);
                    owed += 1;
                }
            }
            while let Some((_, going)) = leaving.pop_front_if(|(at, _): &mut (i32, Going)| *at + 2 <= step) {
                places.gone(&going);
                reserves.push(going.from);
            }
            while owed > 0 && leaving.len() < places.going_max() {
                leaving.push_back((step, places.go().unwrap()));
                owed -= 1;
            }
        }
        (uses.hits as f64 / (uses.hits + uses.misses) as f64, places.going_max())
    }

    #[test]
    fn many_leave_at_a_time_where_uses_repeat_and_few_where_they_do_not() {
        let (even, repeated) = (found(0), found(16));
        assert!((0.30..0.40).contains(&even.0) && even.1 < 16, "{even:?}");
        assert!(repeated.0 > 0.7 && repeated.1 == GOING_MAX, "{repeated:?}");
    }

    #[derive(Clone, Debug)]
    enum Action {
        Use(HashSet<u32>),
        /// One of the host's takes a reserve, if there is any.
        Come(prop::sample::Index),
        Go,
        Gone,
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            prop::collection::hash_set(0u32..12, 0..6).prop_map(Action::Use),
            any::<prop::sample::Index>().prop_map(Action::Come),
            Just(Action::Go),
            Just(Action::Gone),
        ]
    }

    proptest! {
        /// The rule in so many words: a clock of last uses, a search over all.
        #[test]
        fn the_longest_unused_of_the_device_goes_and_no_two_share_a_place(
            device in 0u32..12,
            actions in prop::collection::vec(action(), 0..200),
        ) {
            let (experts, mut spare) = (12, 3);
            let mut places = ExpertPlaces::new(experts, (device, 2), spare);
            let mut last: Vec<u64> = (0..u64::from(experts)).collect();
            let (mut clock, mut reserves) = (u64::from(experts), vec![device, device + 1]);
            let mut going: Vec<Going> = Vec::new();
            for action in actions {
                let there = |places: &ExpertPlaces, e| matches!(places.place(e), ExpertPlace::Device(_));
                match action {
                    Action::Use(used) => {
                        places.used(&used.iter().copied().collect::<Vec<_>>());
                        for e in used {
                            clock += 1;
                            last[e as usize] = clock;
                        }
                    }
                    Action::Come(which) => {
                        let outside: Vec<u32> = (0..experts).filter(|e| !there(&places, *e)).collect();
                        if let (false, Some(to)) = (outside.is_empty(), reserves.pop()) {
                            let e = outside[which.index(outside.len())];
                            places.came(e, to);
                            spare += 1;
                            clock += 1;
                            last[e as usize] = clock;
                        }
                    }
                    Action::Go => {
                        let stay = (0..experts).filter(|e| there(&places, *e) && going.iter().all(|g| g.expert != *e));
                        let longest = stay.min_by_key(|e| last[*e as usize]);
                        let one = places.go();
                        if let Some(g) = one {
                            prop_assert_eq!(Some(g.expert), longest);
                            prop_assert_eq!(places.place(g.expert), ExpertPlace::Device(g.from));
                            prop_assert!((0..experts).all(|e| places.place(e) != ExpertPlace::Host(g.to)));
                        } else {
                            prop_assert!(longest.is_none() || spare == 0);
                        }
                        spare -= u32::from(one.is_some());
                        going.extend(one);
                    }
                    Action::Gone if !going.is_empty() => {
                        let one = going.remove(0);
                        places.gone(&one);
                        reserves.push(one.from);
                    }
                    Action::Gone => {}
                }
                let all: HashSet<_> = (0..experts).map(|e| format!("{:?}", places.place(e))).collect();
                prop_assert_eq!(all.len(), experts as usize);
            }
        }
    }
}
