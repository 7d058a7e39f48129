//! Decides what runs next. Data in, data out: no clock, no device, no channel.
//!
//! A sequence has known tokens and computed positions, and nothing else sets prefill apart from decode.
//! [`Scheduler::plan`] hands out positions, [`Scheduler::commit`] takes sampled tokens back; up to
//! `steps_in_flight_max` plans may lie between the two. The rules are in `docs/internals/scheduler.md`. A request's
//! choices are sequences (`sequence.rs`), which the scheduler alone owns.
//!
//! The rooms stand on floors, each of which names only those below it. `policy/` and `speculation/` hold measured
//! numbers and the choices that follow from them; they know no sequence, because sequences own a part of speculation.
//! So everything that looks at sequences to decide stands above: who pauses and what is drafted in `plan/`, when a
//! request will start in `forecast.rs`. `commit.rs` applies an outcome. [`Pipeline`] drives a scheduler for one engine:
//! it knows the steps in flight, when to plan the next one, and what a finished one teaches.

mod commit;
mod config;
mod forecast;
mod idle;
mod launched;
mod load;
mod migration;
mod pipeline;
mod plan;
mod policy;
mod queue;
mod request;
mod sequence;
mod spec;
mod speculation;
mod stats;
#[cfg(test)]
mod tests;

pub use crate::cache::{
    CacheTier, FlushedEntries, HostBlocks, PrefixChange, PrefixConfig, PrefixStats, PrefixTotals, StoredUnit, unit_hash,
};
pub use config::SchedulerConfig;
pub use forecast::Forecast;
pub use idle::{IdleStats, IdleTotals};
pub use load::ReplicaLoad;
pub use migration::{MigratedChoice, MigratedRequest};
pub use pipeline::{FinishedStep, NextStep, Pipeline, StepInFlight};
pub use policy::cost::{CostModel, Pace, Recompute, StepShape};
pub use policy::ledger::{KeyLedger, KeyLimits, Terms, WEIGHT_MAX};
pub use policy::throughput::Rates;
pub use request::{Event, FinishReason, NOT_FINITE, Rejected, Request, RequestTimes, Usage};
pub use spec::{Pooling, PromptScores, Spec};
pub use speculation::{DraftSettings, DraftTotals, MakeSource};
pub use stats::{Stats, WaitReason};

use crate::cache::{AdapterSlots, Pages, PrefixCache, Slots, pages_for};
use crate::ids::{Micros, RequestId, SeqId};
use forecast::Extent;
use idle::IdleWork;
use launched::LaunchedStep;
use plan::builder::Fork;
use plan::pause::RowKinds;
use policy::fair::Accounts;
use policy::ledger::KeyPlace;
use policy::lengths::Lengths;
use policy::throughput::Throughput;
use queue::Queue;
use sequence::{Rank, Sequence};
use speculation::Speculation;
use stats::Totals;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// All requests of one engine. Every sequence is owned by `running` or by `queue`, every slot by a running sequence,
/// every page by running sequences, by the prefix cache, or by both.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    door: Door,
    pages: Pages,
    slots: Slots,
    adapters: AdapterSlots,
    prefix: PrefixCache,
    /// Sequences with a slot: those of the key that was served least first, within a key by rank.
    running: Vec<Sequence>,
    queue: Queue,
    /// What the two above know nothing of.
    idle: IdleWork,
    accounts: Accounts,
    lengths: Lengths,
    throughput: Throughput,
    /// What the choices of a request share. Removed with the last choice.
    live: BTreeMap<RequestId, LiveRequest>,
    /// Choices that left their leader in the last launched step; their copies go with the next one.
    forks: Vec<Fork>,
    /// Launched and not committed, oldest first.
    in_flight: VecDeque<LaunchedStep>,
    next_seq: u64,
    next_step: u64,
    /// Which rows the last step took.
    last_kinds: RowKinds,
    /// When the last step was committed.
    committed: Micros,
    speculation: Speculation,
    totals: Totals,
}

/// Who may still come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Open,
    Draining,
    /// The engine is lost; outcomes that still arrive mean nothing.
    Failed,
}

/// A request from admission to the end of its last choice.
#[derive(Debug)]
struct LiveRequest {
    /// Its first choice, which computes the prompt's scores.
    first: SeqId,
    terms: Terms,
    /// Its place among the requests that its key may have. Idle work has none: no account knows of it.
    place: Option<KeyPlace>,
    prompt_len: u32,
    unfinished: u32,
    times: RequestTimes,
    /// Position of the last prompt token whose score was delivered.
    scored: u32,
    pooled: Pooled,
}

/// The sum of a prompt's hidden states so far. Units are added in the order of positions, so the steps that they came
/// from do not show.
#[derive(Debug, Default)]
struct Pooled {
    /// Positions up to here are in.
    end: u32,
    sum: Vec<f32>,
}

impl Scheduler {
    /// An idle scheduler; all counts of `config` are positive.
    pub fn new(config: SchedulerConfig) -> Self {
        config.assert_positive();
        Self {
            config,
            door: Door::Open,
            pages: Pages::new(config.pages),
            slots: Slots::new(config.slots),
            adapters: AdapterSlots::new(config.adapter_slots),
            prefix: PrefixCache::new(&config.prefix),
            running: Vec::with_capacity(config.slots as usize),
            queue: Queue::default(),
            idle: IdleWork::default(),
            accounts: Accounts::default(),
            lengths: Lengths::default(),
            throughput: Throughput::default(),
            live: BTreeMap::new(),
            forks: Vec::new(),
            in_flight: VecDeque::new(),
            next_seq: 0,
            next_step: 0,
            last_kinds: RowKinds::Both,
            committed: Micros(0),
            speculation: Speculation::new(DraftSettings::default()),
            totals: Totals::default(),
        }
    }

    /// This scheduler with keys whose limits and shares hold over all schedulers of the ledger. Before anything is
    /// admitted.
    #[must_use]
    pub fn with_ledger(self, ledger: Arc<KeyLedger>) -> Self {
        assert!(self.live.is_empty(), "requests were admitted already");
        Self { accounts: Accounts::sharing(ledger), ..self }
    }

    /// Takes a request of nobody in particular into the queue, or says why not. Nothing that is accepted can fail to
    /// run.
    pub fn admit(&mut self, request: Request, now: Micros) -> Result<(), Rejected> {
        self.admit_under(request, &Terms::default(), now, &Pace::default())
    }

    /// As [`Self::admit`], for a request of a certain key: it is refused too where its key asks for more than it may
    /// have, or where it would wait longer than `pace` and `terms` allow.
    pub fn admit_under(&mut self, request: Request, terms: &Terms, now: Micros, pace: &Pace) -> Result<(), Rejected> {
        self.assert_sound(&request, terms);
        if self.door != Door::Open {
            return Err(Rejected::Draining);
        }
        if request.prompt.is_empty() {
            return Err(Rejected::EmptyPrompt);
        }
        if terms.idle {
            return self.admit_idle(request, terms, now);
        }
        let output_max = self.output_max(&request)?;
        self.accounts.check(terms, request.prompt.len() as u32, now)?;
        if !terms.exempt {
            self.queue.check(&request, terms.key, &self.config)?;
        }
        let cached = self.cached(&request, pace);
        self.check_times(&request, Extent { output_max, cached }, terms, now, pace)?;
        let place = self.accounts.enter(terms, request.prompt.len() as u32, now)?;
        self.accounts.visited(terms.key, now);
        let first = self.enter(&request, terms, Some(place), now);
        for choice in 0..request.spec.choices {
            let seq = Sequence::new(request.clone(), terms.key, (now, first), choice, output_max);
            self.queue.push(Sequence { cached, exempt: terms.exempt, ..seq });
        }
        Ok(())
    }

    /// Takes idle work in, or says why not.
    fn admit_idle(&mut self, request: Request, terms: &Terms, now: Micros) -> Result<(), Rejected> {
        let output_max = self.idle_output_max(&request)?;
        self.idle.check(&request, &self.config)?;
        let first = self.enter(&request, terms, None, now);
        self.idle.push(Sequence::new(request, terms.key, (now, first), 0, output_max));
        Ok(())
    }

    /// A request lives from now on. Says which sequence its first choice is.
    fn enter(&mut self, request: &Request, terms: &Terms, place: Option<KeyPlace>, now: Micros) -> SeqId {
        let first = SeqId(self.next_seq);
        self.next_seq += u64::from(request.spec.choices);
        let live = LiveRequest {
            first,
            terms: *terms,
            place,
            prompt_len: request.prompt.len() as u32,
            unfinished: request.spec.choices,
            times: RequestTimes { admitted: now, ..RequestTimes::default() },
            scored: 0,
            pooled: Pooled::default(),
        };
        self.live.insert(request.id, live);
        first
    }

    /// Whoever makes requests has checked these.
    fn assert_sound(&self, request: &Request, terms: &Terms) {
        let (id, spec) = (request.id, &request.spec);
        assert!(spec.choices > 0, "request {id} has no choice");
        assert!(!self.live.contains_key(&id), "request {id} is live already");
        let reads_only = spec.max_tokens == Some(0) && spec.choices == 1;
        assert!(spec.pool.is_none() || reads_only, "request {id} wants tokens beside its hidden state");
        let slots = self.config.adapter_slots;
        assert!(spec.adapter.is_none() || slots > 0, "request {id} has an adapter, and there is no slot for one");
        let plain = spec.choices == 1 && spec.adapter.is_none();
        assert!(!terms.idle || plain, "idle request {id} has several choices or an adapter");
    }

    /// Ends a request whatever it is doing, without further events. Rows of it that are in flight are ignored when they
    /// arrive. False if it is not live.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        let Some(live) = self.live.remove(&id) else { return false };
        self.running
            .iter()
            .filter(|seq| seq.request.id == id)
            .for_each(|seq| self.lengths.note(seq.output_max, seq.output.len() as u32));
        self.leave(live);
        self.remove_all(id);
        true
    }

    /// Ends one choice that has all it wants, as after a stop string, without further events for it; the request's
    /// other choices go on. False if that choice is not live or nothing was generated for it.
    pub fn cancel_choice(&mut self, id: RequestId, choice: u32) -> bool {
        let Some(live) = self.live.get(&id) else { return false };
        let seq = SeqId(live.first.0 + u64::from(choice));
        let running = self.running.iter().find(|s| s.rank.seq == seq);
        let others = running.or_else(|| self.queue.find(seq));
        let Some(found) = others.or_else(|| self.idle.iter().find(|s| s.rank.seq == seq)) else { return false };
        if found.output.is_empty() {
            return false;
        }
        let rank = found.rank;
        if !live.terms.idle {
            self.lengths.note(found.output_max, found.output.len() as u32);
        }
        self.remove(rank);
        self.choice_ended(id);
        true
    }

    /// When things happened to a live request so far; `None` if it is not live.
    pub fn times(&self, id: RequestId) -> Option<RequestTimes> {
        self.live.get(&id).map(|live| live.times)
    }

    /// Prompt tokens that the prefix cache spared a live request that has started, also while it is preempted.
    pub fn cached_tokens(&self, id: RequestId) -> Option<u32> {
        let mut all = self.running.iter().chain(self.queue.iter()).chain(self.idle.iter());
        all.find(|seq| seq.request.id == id).map(|seq| seq.cached)
    }

    /// The sequence of a live request's first choice; those of the others follow it.
    pub fn first_sequence(&self, id: RequestId) -> Option<SeqId> {
        self.live.get(&id).map(|live| live.first)
    }

    /// From now on nothing is admitted. What was admitted goes on, but for idle work, which nobody waits for: it fails.
    pub fn drain(&mut self, why: &str) -> Vec<(RequestId, Event)> {
        if self.door == Door::Open {
            self.door = Door::Draining;
        }
        let idle: Vec<_> = self.idle.iter().map(|seq| seq.request.id).collect();
        let ended = idle.into_iter().filter(|id| self.cancel(*id));
        ended.map(|id| (id, Event::Failed(why.to_owned()))).collect()
    }

    /// The engine is lost, or the time to drain is over: every live request fails, and nothing is planned or admitted
    /// any more.
    pub fn fail(&mut self, why: &str) -> Vec<(RequestId, Event)> {
        self.close();
        let live = std::mem::take(&mut self.live);
        let end = |(id, live): (RequestId, LiveRequest)| {
            self.leave(live);
            (id, Event::Failed(why.to_owned()))
        };
        live.into_iter().map(end).collect()
    }

    /// Plans and admits nothing any more, and frees what sequences hold. Gives them, in any order.
    fn close(&mut self) -> Vec<Sequence> {
        self.door = Door::Failed;
        self.in_flight.clear();
        self.forks.clear();
        let mut sequences: Vec<_> = self.queue.take_all().collect();
        sequences.extend(self.idle.take_all(&mut self.pages, &mut self.slots));
        while let Some(seq) = self.running.pop() {
            sequences.push(self.release(seq));
        }
        self.prefix.clear(&mut self.pages);
        sequences
    }

    /// No request is live and no step is in flight.
    pub fn is_idle(&self) -> bool {
        self.live.is_empty() && self.in_flight.is_empty()
    }

    /// A request lives that is not idle work: then a step is in flight, or can be planned.
    pub fn has_to_work(&self) -> bool {
        self.live.len() > self.idle.len()
    }

    /// The most tokens each choice can generate, or why the request can never run.
    ///
    /// What the caller asked for must fit even if nothing else runs. Who asks for "the rest" (`max_tokens` absent) gets
    /// what fits: the rest of the context or of all pages, whichever ends first. The last token is never fed, so it
    /// needs no position.
    fn output_max(&self, request: &Request) -> Result<u32, Rejected> {
        let got = u32::try_from(request.prompt.len()).unwrap_or(u32::MAX);
        let room = self.config.context.saturating_sub(u32::from(request.spec.max_tokens != Some(0)));
        if got > room {
            return Err(Rejected::PromptTooLong { got, max: room });
        }
        if request.spec.choices > self.slots.total() {
            return Err(Rejected::TooManyChoices { got: request.spec.choices, max: self.slots.total() });
        }
        let rest = self.config.context - got;
        let asked = request.spec.max_tokens.map_or(1, |tokens| tokens.min(rest));
        let worst = pages_for(got + asked.saturating_sub(1));
        if worst > self.pages.total() {
            return Err(Rejected::TooManyPages { got: worst, max: self.pages.total() });
        }
        let fits = self.pages.total().saturating_mul(crate::PAGE_TOKENS).saturating_add(1) - got;
        Ok(request.spec.max_tokens.unwrap_or(u32::MAX).min(rest).min(fits))
    }

    /// As [`Self::output_max`], for idle work: it may have as many pages as the prefix cache leaves free, so that it
    /// runs some day however full that is.
    fn idle_output_max(&self, request: &Request) -> Result<u32, Rejected> {
        let output_max = self.output_max(request)?;
        let max = if self.prefix.is_on() { self.pages.spare() } else { self.pages.total() };
        let prompt = request.prompt.len() as u32;
        let asked = request.spec.max_tokens.map_or(1, |_| output_max);
        let got = pages_for(prompt + asked.saturating_sub(1));
        if got > max {
            return Err(Rejected::TooManyPages { got, max });
        }
        Ok(output_max.min(max.saturating_mul(crate::PAGE_TOKENS).saturating_add(1) - prompt))
    }

    /// Takes a sequence out of wherever it is and frees what it holds.
    fn remove(&mut self, rank: Rank) -> Option<Sequence> {
        let Some(at) = self.place_of(rank) else {
            let Self { queue, idle, pages, slots, .. } = self;
            return queue.remove(rank).or_else(|| idle.remove(rank, pages, slots));
        };
        let seq = self.running.remove(at);
        Some(self.release(seq))
    }

    /// Where a sequence is among the running ones. They are few, and their order changes with what their keys were
    /// served.
    fn place_of(&self, rank: Rank) -> Option<usize> {
        self.running.iter().position(|seq| seq.rank == rank)
    }

    fn remove_all(&mut self, id: RequestId) {
        let running = self.running.iter().filter(|seq| seq.request.id == id).map(|seq| seq.rank);
        let others = self.queue.ranks_of(id).into_iter().chain(self.idle.ranks_of(id));
        for rank in running.chain(others).collect::<Vec<_>>() {
            self.remove(rank);
        }
    }

    /// Frees slot and pages of a sequence that does not run any more.
    ///
    /// They may be claimed by the very next plan although steps in flight still name them, because the device runs
    /// plans in order:
    /// - a row in flight has read its pages and its slot before the next plan's copies and rows run;
    /// - a wasted row (launched before its sequence was known to have ended) writes its page, its state and the slot's
    ///   last token before the next owner writes, and the next owner reads nothing that it has not written: before its
    ///   first row the backend clears the slot or copies a checkpoint over it, and a page's positions are written
    ///   before they are read;
    /// - a page in which a launched row writes has one owner and is not kept by the cache (a prompt's full pages are
    ///   shared, the part-filled one is copied), so a wasted row cannot reach another sequence's positions.
    ///
    /// The prefix cache has had its pages and checkpoints since the plan that computes them; they outlive the sequence.
    ///
    /// The same holds for a fork's copies: they run before any row of the next plan, so they find the leader's state as
    /// the prompt's last piece left it, even if the leader has ended meanwhile and its slot and pages have new owners.
    fn release(&mut self, mut seq: Sequence) -> Sequence {
        for page in seq.pages.drain(..) {
            self.pages.release(page);
        }
        if let Some(slot) = seq.slot.take() {
            self.slots.release(slot);
        }
        self.forks.retain(|fork| fork.rank != seq.rank);
        if let Some(hit) = seq.restore.take() {
            self.prefix.unpin(hit);
        }
        // Drafts in flight may still be right; what they computed is gone.
        (seq.computed, seq.drafted, seq.guesses_due) = (0, 0, 0);
        seq
    }

    fn choice_ended(&mut self, id: RequestId) {
        let live = self.live.get_mut(&id).expect("a request lives as long as a choice of it");
        live.unfinished -= 1;
        if live.unfinished == 0 {
            let live = self.live.remove(&id).expect("it was found just now");
            self.leave(live);
        }
    }

    /// A request lives no more.
    fn leave(&mut self, live: LiveRequest) {
        if let Some(place) = live.place {
            self.accounts.leave(place);
        }
    }
}
