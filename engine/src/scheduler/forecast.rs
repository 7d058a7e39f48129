//! When a request would start, give its first token and end: a simulation of what is running and waiting, with
//! predicted times of steps and lengths as they have been lately. An estimate, cheap enough to be made for every
//! request that comes.

use super::cost::Pace;
use super::fair::{Terms, charge_of};
use super::sequence::{Next, Role, Sequence};
use super::{Rejected, Request, Scheduler};
use crate::ids::{KeyId, Micros};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// How much of the past each ended choice keeps.
const KEEP: f64 = 0.9;
/// Tokens that a choice is taken to generate while none of its kind has ended; fewer if it may not have as many.
const UNKNOWN_LENGTH: u32 = 128;

/// How long outputs are, by what they may have at most: callers that ask for alike get alike.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    /// By the number of bits of the maximum.
    means: [Option<f64>; 32],
}

impl Lengths {
    pub(super) fn ended(&mut self, output_max: u32, tokens: u32) {
        let mean = &mut self.means[bits(output_max)];
        *mean = Some(mean.map_or(f64::from(tokens), |mean| KEEP * mean + (1.0 - KEEP) * f64::from(tokens)));
    }

    /// `None` while none of its kind has ended.
    fn known(&self, output_max: u32) -> Option<u32> {
        self.means[bits(output_max)].map(|mean| (mean.round() as u32).clamp(1, output_max.max(1)))
    }

    fn expected(&self, output_max: u32) -> u32 {
        self.known(output_max).unwrap_or(UNKNOWN_LENGTH.min(output_max))
    }

    /// How many more, after `have`. Who is past what was expected is expected to go on for a while.
    fn left(&self, output_max: u32, have: u32) -> u32 {
        let expected = self.expected(output_max);
        expected.saturating_sub(have).max(expected / 8).min(output_max.saturating_sub(have))
    }
}

fn bits(n: u32) -> usize {
    (u32::BITS - n.leading_zeros()).min(31) as usize
}

/// Times from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// To the first step, microseconds.
    pub start_us: u64,
    /// To the first token, microseconds.
    pub first_token_us: u64,
    /// To the last token, microseconds; the first where nobody knows yet how long such outputs are.
    pub end_us: u64,
}

/// How much there is to do for a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Tokens that it generates at most.
    pub(super) output_max: u32,
    /// Prompt tokens that the prefix cache spares.
    pub(super) cached: u32,
}

/// What waits, as far as the simulation needs it.
struct Waiting {
    /// Positions that a cache spares, and all of them.
    cached: u32,
    prompt: u32,
    outputs: u32,
    slots: u32,
    weight: u32,
}

/// A future that is run through in strides: from one end of an output, or of the prompts under way, to the next.
struct Future<'a> {
    pace: &'a Pace,
    step_tokens: u32,
    /// Positions that a decoding sequence attends to on average.
    context: u32,
    at_us: f64,
    /// Decode steps so far.
    steps: u64,
    /// Prompts under way, microseconds of computing.
    prompts_us: f64,
    free: u32,
    /// Ends of outputs in decode steps from now, and the slots and key that each frees.
    ends: BinaryHeap<Reverse<(u64, u32, KeyId)>>,
    decoding: u32,
    /// Slots that each key holds.
    held: BTreeMap<KeyId, u32>,
}

impl Future<'_> {
    fn decode_us(&self) -> f64 {
        if self.decoding == 0 { 0.0 } else { self.pace.cost.decode_us(self.decoding, self.context).unwrap_or(0.0) }
    }

    /// Microseconds of prompts that one step takes on.
    fn absorbed(&self) -> f64 {
        let cost = |tokens| self.pace.cost.prompt_us(0, tokens, true).unwrap_or(f64::MAX).max(1.0);
        let whole = cost(self.step_tokens.max(crate::CHUNK_TOKENS));
        if self.pace.target_us == 0 || self.decoding == 0 {
            return whole;
        }
        (self.pace.target_us as f64 - self.decode_us()).clamp(cost(crate::CHUNK_TOKENS).min(whole), whole)
    }

    /// Steps until the prompts under way are computed.
    fn prompt_steps(&self) -> u64 {
        (self.prompts_us / self.absorbed()).ceil() as u64
    }

    /// Goes on to the next end of something.
    fn stride(&mut self) {
        let next = self.ends.peek().map_or(u64::MAX, |Reverse((end, ..))| end - self.steps);
        let steps = if self.prompts_us > 0.0 { self.prompt_steps().min(next) } else { next };
        let prompts = self.prompts_us.min(steps as f64 * self.absorbed());
        self.at_us += steps as f64 * self.decode_us() + prompts;
        self.prompts_us = if self.prompts_us - prompts < 1.0 { 0.0 } else { self.prompts_us - prompts };
        self.steps += steps;
        while let Some(Reverse((end, slots, key))) = self.ends.peek().copied()
            && end <= self.steps
        {
            self.ends.pop();
            self.free += slots;
            self.decoding -= slots;
            self.held.entry(key).and_modify(|held| *held -= slots);
        }
    }

    fn prompt_us(&self, waiting: &Waiting) -> f64 {
        let (start, len) = (waiting.cached, waiting.prompt - waiting.cached);
        self.pace.cost.prompt_us(start, len, false).unwrap_or(0.0)
    }

    fn start(&mut self, waiting: &Waiting, key: KeyId) {
        self.prompts_us += self.prompt_us(waiting);
        let end = self.steps + self.prompt_steps() + u64::from(waiting.outputs.max(1));
        self.free = self.free.saturating_sub(waiting.slots);
        self.decoding += waiting.slots;
        *self.held.entry(key).or_default() += waiting.slots;
        self.ends.push(Reverse((end, waiting.slots, key)));
    }
}

impl Scheduler {
    /// When this request would start and end if it were admitted now. `None` while too little is known of what steps
    /// take.
    pub fn forecast(&self, request: &Request, terms: &Terms, pace: &Pace) -> Option<Forecast> {
        let output_max = self.output_max(request).ok()?;
        let extent = Extent { output_max, cached: self.cached(request, pace) };
        let (forecast, _) = self.foresee(request, extent, terms, pace)?;
        Some(forecast)
    }

    /// Time until the first of those that wait starts, microseconds: when a full queue has room again.
    pub fn room_in_us(&self, pace: &Pace) -> Option<u64> {
        let mut future = self.future(pace)?;
        while future.free == 0 && !future.ends.is_empty() {
            future.stride();
        }
        Some(future.at_us as u64)
    }

    /// Refuses what would wait too long, or come too late.
    pub(super) fn check_times(
        &self,
        request: &Request,
        extent: Extent,
        terms: &Terms,
        now: Micros,
        pace: &Pace,
    ) -> Result<(), Rejected> {
        let bounded = (pace.wait_us_max > 0 && !terms.exempt) || terms.deadline.is_some();
        let foreseen = if bounded { self.foresee(request, extent, terms, pace) } else { None };
        let left_us = terms.deadline.map(|deadline| deadline.since(now).0);
        match (foreseen, left_us) {
            (_, Some(0)) => Err(Rejected::DeadlineUnreachable { needs_us: 0, left_us: 0 }),
            (Some((forecast, _)), Some(left_us)) if forecast.end_us > left_us => {
                Err(Rejected::DeadlineUnreachable { needs_us: forecast.end_us, left_us })
            }
            (Some((forecast, behind)), _) if behind && pace.wait_us_max > 0 && forecast.start_us > pace.wait_us_max => {
                Err(Rejected::WaitTooLong { wait_us: forecast.start_us, max_us: pace.wait_us_max })
            }
            _ => Ok(()),
        }
    }

    /// The forecast, and whether anything waits before the request.
    fn foresee(&self, request: &Request, extent: Extent, terms: &Terms, pace: &Pace) -> Option<(Forecast, bool)> {
        let mut future = self.future(pace)?;
        let mut line = Line::new(self, request, terms);
        let own = Waiting {
            cached: extent.cached,
            prompt: request.prompt.len() as u32,
            outputs: self.lengths.known(extent.output_max).unwrap_or(1),
            slots: request.spec.choices,
            weight: terms.limits.weight,
        };
        let behind = line.ahead() > 0;
        loop {
            let next = line.peek();
            let slots = next.map_or(own.slots, |(_, waiting)| waiting.slots);
            // A start needs room in the step for its first unit, so it comes when the prompts before it are nearly
            // computed.
            let crowded = future.prompts_us > 0.0 && future.prompt_steps() > 1;
            let key = next.map_or(terms.key, |(key, _)| key);
            if crowded || (future.free < slots && !future.ends.is_empty() && !self.makes_way(key, slots, &future.held))
            {
                future.stride();
                continue;
            }
            match line.pop() {
                Some((key, waiting)) => future.start(&waiting, key),
                None => break,
            }
        }
        let start_us = future.at_us;
        future.prompts_us += future.prompt_us(&own);
        let (steps, decode_us) = (future.prompt_steps() as f64, future.decode_us());
        let first_token_us = start_us + future.prompts_us + steps * decode_us;
        future.decoding += own.slots;
        let end_us = first_token_us + f64::from(own.outputs.saturating_sub(1)) * future.decode_us();
        let us = |time: f64| time as u64;
        Some((Forecast { start_us: us(start_us), first_token_us: us(first_token_us), end_us: us(end_us) }, behind))
    }

    /// Would somebody be preempted for a request of this key? As `Scheduler::make_way` decides it, roughly: with its
    /// slots the key has no more than its part of them, and others have more.
    fn makes_way(&self, key: KeyId, slots: u32, held: &BTreeMap<KeyId, u32>) -> bool {
        let share = |of: KeyId| self.accounts.share_with(key, of, self.slots.total());
        let own = held.get(&key).copied().unwrap_or(0);
        own + slots <= share(key) && held.iter().any(|(other, held)| *other != key && *held > share(*other))
    }

    /// What is running now.
    fn future<'a>(&self, pace: &'a Pace) -> Option<Future<'a>> {
        pace.cost.decode_us(1, 1)?;
        let positions: u64 = self.running.iter().map(|seq| u64::from(seq.len())).sum();
        let mut future = Future {
            pace,
            step_tokens: self.config.step_tokens,
            context: (positions / (self.running.len() as u64).max(1)) as u32,
            at_us: 0.0,
            steps: 0,
            prompts_us: 0.0,
            free: self.slots.free(),
            ends: BinaryHeap::new(),
            decoding: self.running.len() as u32,
            held: BTreeMap::new(),
        };
        for seq in &self.running {
            *future.held.entry(seq.key).or_default() += 1;
            if seq.next() == Next::Prompt {
                let (start, len) = (seq.computed, seq.prompt_len() - seq.computed);
                future.prompts_us += pace.cost.prompt_us(start, len, false).unwrap_or(0.0);
            }
        }
        for seq in &self.running {
            let left = u64::from(self.lengths.left(seq.output_max, seq.sampled()).max(1));
            let prompts = if seq.next() == Next::Prompt { future.prompt_steps() } else { 0 };
            future.ends.push(Reverse((left + prompts, 1, seq.key)));
        }
        Some(future)
    }
}

/// Who starts before a request, in the order in which keys would be served.
struct Line {
    own: KeyId,
    /// What each key will have been served, and what of it waits.
    keys: BTreeMap<KeyId, (u64, VecDeque<Waiting>)>,
}

impl Line {
    fn new(scheduler: &Scheduler, request: &Request, terms: &Terms) -> Self {
        let accounts = &scheduler.accounts;
        let mut keys = BTreeMap::new();
        for (key, sequences) in scheduler.queue.by_key() {
            // A later request of the same key goes behind what is as urgent.
            let before = |seq: &&Sequence| key != terms.key || seq.rank.priority <= request.spec.priority;
            let waiting: VecDeque<_> = sequences
                .filter(|seq| seq.role != Role::Follower)
                .filter(before)
                .map(|seq| scheduler.waiting(seq))
                .collect();
            keys.insert(key, (accounts.turn(key), waiting));
        }
        keys.entry(terms.key).or_insert_with(|| (accounts.turn_of_newcomer(terms.key), VecDeque::new()));
        Self { own: terms.key, keys }
    }

    fn ahead(&self) -> usize {
        self.keys.values().map(|(_, waiting)| waiting.len()).sum()
    }

    /// The key that is next, while the request itself is not.
    fn next_key(&self) -> Option<KeyId> {
        let open = self.keys.iter().filter(|(key, (_, waiting))| !waiting.is_empty() || **key == self.own);
        let key = *open.min_by_key(|(key, (turn, _))| (*turn, **key))?.0;
        (!self.keys[&key].1.is_empty()).then_some(key)
    }

    fn peek(&self) -> Option<(KeyId, &Waiting)> {
        let key = self.next_key()?;
        self.keys[&key].1.front().map(|waiting| (key, waiting))
    }

    fn pop(&mut self) -> Option<(KeyId, Waiting)> {
        let key = self.next_key()?;
        let (turn, waiting) = self.keys.get_mut(&key)?;
        let first = waiting.pop_front()?;
        *turn = turn.saturating_add(charge_of(first.prompt, first.outputs, first.weight));
        Some((key, first))
    }
}

impl Scheduler {
    fn waiting(&self, seq: &Sequence) -> Waiting {
        let slots = seq.slots_wanted();
        Waiting {
            cached: if seq.is_new() { seq.cached } else { 0 },
            // What was preempted is computed again, outputs too.
            prompt: seq.len(),
            outputs: self.lengths.left(seq.output_max, seq.sampled()),
            slots,
            weight: self.accounts.weight(seq.key),
        }
    }
}
