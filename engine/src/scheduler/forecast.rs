//! When a request would start and end: a walk through the line with two measured rates ([`super::policy::throughput`]) and the
//! lengths of outputs that ended lately ([`super::policy::lengths`]). Prompts are computed one after another. A sequence holds
//! its slot and its pages until its output ends. A request starts when the prompts before it are computed and a slot
//! and memory are free. `docs/internals/scheduler.md` has it in half a page.
//!
//! A forecast is right or silent: `None` before rates and lengths were measured, and nobody is refused by it who would
//! find a slot and memory free.

use super::policy::cost::Pace;
use super::policy::fair::charge_of;
use super::policy::ledger::Terms;
use super::policy::throughput::Rates;
use super::sequence::{ChoiceRole, NextRows, Sequence};
use super::{Rejected, Request, Scheduler};
use crate::cache::pages_for;
use crate::ids::{KeyId, Micros};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Part of a predicted wait that is taken to be error, at least: rates change while a request waits.
const ERROR_MIN: f64 = 0.2;
/// Standard deviations of the sum of the outputs that a request waits for: one of a thousand sums is smaller still.
const DEVIATIONS: f64 = 3.0;
/// Multiples of the golden ratio spread evenly over 0 to 1, however many are taken.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// Times from now on, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forecast {
    /// To the first step, as far as one can tell.
    pub start_us: u64,
    /// To the first step, if lengths and rates come out as favourably as one time in a thousand.
    pub start_us_min: u64,
    /// To the last token, if besides the output is as short as the shortest of late.
    pub end_us_min: u64,
    /// Slots and pages are free for it and for all that start before it.
    pub room: bool,
    /// Sequences that have to end before it starts.
    pub ends: u32,
    /// Requests that start before it.
    pub ahead: u32,
    /// What it was made with.
    pub rates: Rates,
}

/// How much there is to do for a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Tokens that it generates at most.
    pub(super) output_max: u32,
    /// Prompt tokens that the prefix cache spares.
    pub(super) cached: u32,
}

/// A request that waits, as far as the walk needs it.
struct WaitingRequest {
    /// Positions to compute before it generates.
    prompt: u32,
    outputs: u32,
    slots: u32,
    pages: u32,
    weight: u32,
    /// Whether it counts against the bounds of what may wait for a first step.
    takes_place: bool,
}

/// The end of a sequence, or of a request's sequences, and what becomes free with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SequenceEnd {
    at_us: u64,
    slots: u32,
    pages: u32,
    key: KeyId,
}

/// The time to come, up to some moment.
struct Future {
    rates: Rates,
    at_us: u64,
    /// When the prompts under way are computed.
    read_us: u64,
    slots: u32,
    pages: u32,
    ends: BinaryHeap<Reverse<SequenceEnd>>,
    /// Number of sequences that have ended so far.
    ended: u32,
    /// Slots that each key holds.
    held: BTreeMap<KeyId, u32>,
}

impl Future {
    /// One more prompt is computed, behind those under way; says when its output of so many tokens will end.
    fn read(&mut self, prompt: u32, outputs: u32) -> u64 {
        self.read_us = self.read_us.max(self.at_us) + (f64::from(prompt) * self.rates.prompt_token_us) as u64;
        self.read_us + (f64::from(outputs.saturating_sub(1)) * self.rates.token_us) as u64
    }

    /// Goes on to when the prompts under way are computed and `waiting` finds a slot and pages; a key for which others
    /// are preempted need not wait for a slot.
    fn wait_for(&mut self, waiting: &WaitingRequest, makes_way: impl Fn(&BTreeMap<KeyId, u32>) -> bool) {
        self.at_us = self.at_us.max(self.read_us);
        while let Some(Reverse(end)) = self.ends.peek().copied() {
            let fits = self.slots >= waiting.slots && self.pages >= waiting.pages;
            if end.at_us > self.at_us && (fits || makes_way(&self.held)) {
                return;
            }
            self.ends.pop();
            self.at_us = self.at_us.max(end.at_us);
            self.slots += end.slots;
            self.pages += end.pages;
            self.ended += end.slots;
            self.held.entry(end.key).and_modify(|held| *held -= end.slots);
        }
    }

    fn start(&mut self, waiting: &WaitingRequest, key: KeyId) {
        let at_us = self.read(waiting.prompt, waiting.outputs);
        self.slots = self.slots.saturating_sub(waiting.slots);
        self.pages = self.pages.saturating_sub(waiting.pages);
        *self.held.entry(key).or_default() += waiting.slots;
        self.ends.push(Reverse(SequenceEnd { at_us, slots: waiting.slots, pages: waiting.pages, key }));
    }
}

impl Scheduler {
    /// When this request would start and end if it were admitted now. `None` before enough was measured.
    pub fn forecast(&self, request: &Request, terms: &Terms, now: Micros, pace: &Pace) -> Option<Forecast> {
        let output_max = self.output_max(request).ok()?;
        let extent = Extent { output_max, cached: self.cached(request, pace) };
        self.foresee(request, extent, terms, now)
    }

    /// Time until the queue has room for what was refused, microseconds. `None` before enough was measured, and for
    /// refusals that have nothing to do with the queue.
    pub fn room_in_us(&self, refused: &Rejected, now: Micros) -> Option<u64> {
        let (requests, tokens) = match *refused {
            Rejected::QueueFull { waiting, max } => (u64::from((waiting + 1).saturating_sub(max)), 0),
            Rejected::QueueTokensFull { waiting, got, max } => (1, (waiting + got).saturating_sub(max)),
            Rejected::KeyBusy { .. } => (1, 0),
            _ => return None,
        };
        let mut line = ServiceOrder::new(self, None);
        let mut future = self.future(&line, now)?;
        let (mut started, mut read) = (0, 0);
        while (started < requests || read < tokens)
            && let Some((key, waiting)) = line.pop()
        {
            future.wait_for(&waiting, |held| self.makes_way(key, waiting.slots, held));
            future.start(&waiting, key);
            started += u64::from(waiting.takes_place);
            read += if waiting.takes_place { u64::from(waiting.prompt) } else { 0 };
        }
        Some(future.at_us)
    }

    /// Refuses what would wait too long, or come too late. Nobody is refused for whom a slot and memory are free.
    pub(super) fn check_times(
        &self,
        request: &Request,
        extent: Extent,
        terms: &Terms,
        now: Micros,
        pace: &Pace,
    ) -> Result<(), Rejected> {
        let left_us = terms.deadline.map(|deadline| deadline.since(now).0);
        if left_us == Some(0) {
            return Err(Rejected::DeadlineUnreachable { needs_us: 0, left_us: 0 });
        }
        let max_us = if terms.exempt { 0 } else { pace.wait_us_max };
        if max_us == 0 && left_us.is_none() {
            return Ok(());
        }
        let Some(forecast) = self.foresee(request, extent, terms, now).filter(|forecast| !forecast.room) else {
            return Ok(());
        };
        match left_us {
            Some(left_us) if forecast.end_us_min > left_us => {
                Err(Rejected::DeadlineUnreachable { needs_us: forecast.end_us_min, left_us })
            }
            _ if max_us > 0 && forecast.start_us_min > max_us => {
                Err(Rejected::WaitTooLong { wait_us: forecast.start_us, max_us })
            }
            _ => Ok(()),
        }
    }

    /// Pages that are free and that no running sequence needs for its known tokens.
    fn pages_unclaimed(&self) -> u32 {
        let owed: u32 = self.running.iter().map(|seq| seq.pages_lacking(seq.len())).sum();
        self.pages.available().saturating_sub(owed)
    }

    fn foresee(&self, request: &Request, extent: Extent, terms: &Terms, now: Micros) -> Option<Forecast> {
        let mut line = ServiceOrder::new(self, Some((request, terms)));
        let mut future = self.future(&line, now)?;
        let (mut ahead, mut slots, mut pages) = (0, 0, 0);
        while let Some((key, waiting)) = line.pop() {
            future.wait_for(&waiting, |held| self.makes_way(key, waiting.slots, held));
            future.start(&waiting, key);
            (ahead, slots, pages) = (ahead + 1, slots + waiting.slots, pages + waiting.pages);
        }
        let prompt = request.prompt.len() as u32 - extent.cached;
        let own = WaitingRequest {
            prompt,
            outputs: self.lengths.left(extent.output_max, 0, 0.0),
            slots: request.spec.choices,
            pages: pages_for(prompt).min(self.pages.total()),
            weight: terms.limits.weight,
            takes_place: true,
        };
        let room = self.slots.free() >= slots + own.slots && self.pages_unclaimed() >= pages + own.pages;
        future.wait_for(&own, |held| self.makes_way(terms.key, own.slots, held));
        let start_us = future.at_us;
        let start_us_min = (start_us as f64 * (1.0 - self.error(future.ended)).max(0.0)) as u64;
        let end_us_min = start_us_min + (future.read(own.prompt, own.outputs) - start_us);
        Some(Forecast { start_us, start_us_min, end_us_min, room, ends: future.ended, ahead, rates: future.rates })
    }

    /// By which part a wait for so many ends may be too long.
    fn error(&self, ends: u32) -> f64 {
        let spreads: f64 = self.running.iter().map(|seq| self.lengths.spread(seq.output_max)).sum();
        let spread = spreads / (self.running.len() as f64).max(1.0);
        ERROR_MIN.max(DEVIATIONS * spread / f64::from(ends).max(1.0).sqrt())
    }

    /// Would somebody be preempted for a request of this key? As `Scheduler::make_way` decides it, roughly: with its
    /// slots the key has no more than its part of them, and others have more.
    fn makes_way(&self, key: KeyId, slots: u32, held: &BTreeMap<KeyId, u32>) -> bool {
        let share = |of: KeyId| self.accounts.share_with(key, of, self.slots.total());
        let own = held.get(&key).copied().unwrap_or(0);
        own + slots <= share(key) && held.iter().any(|(other, held)| *other != key && *held > share(*other))
    }

    /// What is running now, before anybody of the line starts. `None` before enough was measured to tell when it ends.
    fn future(&self, line: &ServiceOrder, now: Micros) -> Option<Future> {
        let rates = self.throughput.rates(now)?;
        let running = self.running.iter().map(|seq| seq.output_max);
        if !line.known || !self.lengths.know_all(running) {
            return None;
        }
        let mut future = Future {
            rates,
            at_us: 0,
            read_us: 0,
            slots: self.slots.free(),
            pages: self.pages_unclaimed(),
            ends: BinaryHeap::with_capacity(self.running.len()),
            ended: 0,
            held: BTreeMap::new(),
        };
        for (i, seq) in self.running.iter().enumerate() {
            let outputs = self.lengths.left(seq.output_max, seq.output.len() as u32, quantile(i));
            let at_us = match seq.next() {
                NextRows::Prompt => future.read(seq.prompt_len() - seq.computed, outputs),
                _ => (f64::from(outputs) * rates.token_us) as u64,
            };
            *future.held.entry(seq.key).or_default() += 1;
            let pages = pages_for(seq.len() - seq.cached);
            future.ends.push(Reverse(SequenceEnd { at_us, slots: 1, pages, key: seq.key }));
        }
        Some(future)
    }

    fn waiting(&self, seq: &Sequence, at: usize) -> WaitingRequest {
        let outputs = self.lengths.left(seq.output_max, seq.output.len() as u32, quantile(at));
        // What was preempted is computed again, outputs too.
        let prompt = seq.len() - if seq.is_new() { seq.cached } else { 0 };
        WaitingRequest {
            prompt,
            outputs,
            slots: seq.slots_wanted(),
            // While it runs, half of its output on average.
            pages: pages_for(prompt + outputs / 2).min(self.pages.total()),
            weight: self.accounts.weight(seq.key),
            takes_place: seq.takes_place(),
        }
    }
}

/// Which of the remembered lengths the sequence at a place is given: all parts of them in turn.
fn quantile(at: usize) -> f64 {
    ((at as f64 + 0.5) * GOLDEN).fract()
}

/// Who starts before a request, in the order in which keys would be served.
struct ServiceOrder {
    /// Owner of the request that is forecast, if there is one.
    own: Option<KeyId>,
    /// What each key will have been served, and what of it waits.
    keys: BTreeMap<KeyId, (u64, VecDeque<WaitingRequest>)>,
    /// Lengths of outputs like theirs are known.
    known: bool,
}

impl ServiceOrder {
    /// Who waits, before a request if one is given.
    fn new(scheduler: &Scheduler, request: Option<(&Request, &Terms)>) -> Self {
        let accounts = &scheduler.accounts;
        let own = request.map(|(_, terms)| terms.key);
        let (mut keys, mut known, mut place) = (BTreeMap::new(), true, scheduler.running.len());
        for (key, sequences) in scheduler.queue.by_key() {
            // A later request of the same key goes behind what is as urgent.
            let before = |seq: &&Sequence| {
                request.is_none_or(|(r, terms)| key != terms.key || seq.rank.priority <= r.spec.priority)
            };
            let mut waiting = VecDeque::new();
            for seq in sequences.filter(|seq| seq.role != ChoiceRole::Follower).filter(before) {
                known &= scheduler.lengths.knows(seq.output_max, 0);
                waiting.push_back(scheduler.waiting(seq, place));
                place += 1;
            }
            keys.insert(key, (accounts.turn(key), waiting));
        }
        if let Some(own) = own {
            keys.entry(own).or_insert_with(|| (accounts.turn_of_newcomer(own), VecDeque::new()));
        }
        Self { own, keys, known }
    }

    /// The next to start; `None` where it is the request's turn.
    fn pop(&mut self) -> Option<(KeyId, WaitingRequest)> {
        let open = self.keys.iter_mut().filter(|(key, (_, waiting))| !waiting.is_empty() || self.own == Some(**key));
        let (key, (turn, waiting)) = open.min_by_key(|(key, (turn, _))| (*turn, **key))?;
        let first = waiting.pop_front()?;
        *turn = turn.saturating_add(charge_of(first.prompt, first.outputs, first.weight));
        Some((*key, first))
    }
}
