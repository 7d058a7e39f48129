//! What a sequence takes from the prefix cache when it starts, and what its prompt leaves there.

use crate::CHUNK_TOKENS;
use crate::cache::{FlushedEntries, Hit, HostHit, PrefixChange, pages_for};
use crate::ids::{CacheScope, PageId, StepId, TokenId};
use crate::scheduler::policy::cost::Pace;
use crate::scheduler::sequence::Sequence;
use crate::scheduler::{Request, Scheduler};
use crate::step::{StateExport, StateStart};

/// A junction closer than this behind what is cached anyway is not worth a checkpoint.
const JUNCTION_TOKENS_MIN: u32 = 2 * CHUNK_TOKENS;

impl Scheduler {
    /// Prompt tokens that the cache would spare this request if it started now.
    pub(in crate::scheduler) fn cached(&self, request: &Request, pace: &Pace) -> u32 {
        let here = self.find(request).map_or(0, |hit| hit.positions);
        self.find_on_host(request, here, pace).map_or(here, |hit| hit.positions)
    }

    fn find(&self, request: &Request) -> Option<Hit> {
        let (scope, prompt) = self.sought(request)?;
        self.prefix.find(scope, prompt, StepId(self.next_step))
    }

    /// The scope whose cache entries the request may go on from, if any, and the part of its prompt that they may have,
    /// with the token behind it.
    fn sought<'a>(&self, request: &'a Request) -> Option<(CacheScope, &'a [TokenId])> {
        let scope = request.spec.cache_scope().filter(|_| self.prefix.is_on())?;
        let silent = request.spec.silent_rows(request.prompt.len() as u32) as usize;
        Some((scope, request.prompt.get(..=silent)?))
    }

    /// An entry on the host that is worth its way, beyond `cached` positions.
    fn find_on_host(&self, request: &Request, cached: u32, pace: &Pace) -> Option<HostHit> {
        // While nobody knows what computing takes, copying is taken to be faster.
        let us = |from: u32, to: u32| pace.cost.prompt_us(from, to - from, false).unwrap_or(f64::INFINITY);
        self.prefix.find_on_host(self.sought(request)?, cached, us)
    }

    /// Does it wait for its state from the host?
    pub(super) fn waits_for_load(&self, seq: &Sequence) -> bool {
        seq.restore.is_some_and(|hit| self.prefix.loading(hit).is_some())
    }

    /// Of the pages that it would begin with, those that running sequences have.
    pub(super) fn pages_shared_by(&self, head: &Sequence) -> u32 {
        self.find(&head.request).map_or(0, |hit| self.prefix.owned_pages(hit, &self.pages))
    }

    /// Lets a sequence that has just got its slot go on from the cache, and decides where its prompt leaves
    /// checkpoints. One that was preempted finds its own.
    pub(super) fn look_up(&mut self, seq: &mut Sequence, pace: &Pace) {
        let first_start = !seq.resumes;
        let here = self.find(&seq.request);
        let on_host = self.find_on_host(&seq.request, here.map_or(0, |hit| hit.positions), pace);
        let loaded = on_host.and_then(|hit| self.prefix.load(hit, StepId(self.next_step), &mut self.pages));
        // What a load in vain made room for may have been the entry here.
        seq.restore = if on_host.is_some() { loaded.or_else(|| self.find(&seq.request)) } else { here };
        let cached = seq.restore.map_or(0, |hit| hit.positions);
        if let Some(hit) = seq.restore {
            seq.pages = self.prefix.pin(hit, &mut self.pages);
            assert_eq!(seq.pages.len() as u32, pages_for(cached));
            seq.computed = cached;
            // Nobody pays for what was not computed.
            seq.charged = seq.charged.max(cached);
        }
        if first_start {
            seq.cached = cached;
            let here = here.map_or(0, |hit| hit.positions);
            self.prefix.note_loaded(loaded.map_or(0, |hit| hit.positions - here));
        }
        seq.exports = self.worth_keeping(&seq.request, cached, first_start);
        seq.last_export = seq.exports.first().copied().unwrap_or(0);
        if let Some(hit) = seq.restore.filter(|_| seq.last_export > cached) {
            self.prefix.pass(hit);
        }
    }

    /// Positions behind the cached ones at which a checkpoint may serve others: before each turn, and where this prompt
    /// parts from one that was read before. Descending.
    fn worth_keeping(&mut self, request: &Request, cached: u32, is_new: bool) -> Vec<u32> {
        let Some(scope) = request.spec.cache_scope().filter(|_| self.prefix.is_on()) else { return Vec::new() };
        let end = request.prompt.len() as u32 - 1;
        let junction = if is_new { self.prefix.note(scope, &request.prompt, cached).min(end) } else { 0 };
        let junction = Some(junction).filter(|at| *at >= cached + JUNCTION_TOKENS_MIN);
        let whole = request.turns.is_empty().then_some(end);
        let mut all: Vec<u32> = request.turns.iter().copied().chain(whole).chain(junction).collect();
        all.iter_mut().for_each(|at| *at = (*at).min(end) / CHUNK_TOKENS * CHUNK_TOKENS);
        all.retain(|at| *at > cached);
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.dedup();
        all
    }

    /// What the next prompt piece of the sequence at `at` goes on from.
    pub(super) fn state_start(&mut self, at: usize) -> StateStart {
        let seq = &mut self.running[at];
        match seq.restore.take() {
            Some(hit) => {
                let load = self.prefix.loading(hit);
                // The copy comes before whatever this or a later step writes there.
                self.prefix.unpin(hit);
                StateStart::Restore { from: hit.checkpoint, prompt: seq.request.prompt.clone(), load }
            }
            None => StateStart::at(seq.computed),
        }
    }

    /// Checkpoints of the piece that ends at `end`, as far as they find room.
    pub(super) fn exports(&mut self, at: usize, end: u32, pace: &Pace) -> Vec<StateExport> {
        let now = StepId(self.next_step);
        let saved_us = |from: u32, to: u32| pace.cost.prompt_us(from, to - from, false).unwrap_or(f64::from(to - from));
        let seq = &mut self.running[at];
        let Some(scope) = seq.request.spec.cache_scope() else { return Vec::new() };
        let mut positions = Vec::new();
        while let Some(position) = seq.exports.pop_if(|position| *position <= end) {
            positions.push(position);
        }
        let nodes = self.prefix.nodes(scope, &seq.request.prompt, &positions);
        if seq.request.spec.adapter.is_some() {
            self.prefix.keep_quiet(&nodes);
        }
        // The last first: an answer is followed by the next question far more often than anything before is branched.
        let places = positions.into_iter().zip(nodes).rev().filter_map(|(position, node)| {
            let at = (node, position == seq.last_export);
            let to = self.prefix.take(at, &seq.pages, now, saved_us, &mut self.pages)?;
            Some(StateExport { position, to })
        });
        places.collect()
    }

    /// Gives up what the prefix cache keeps and nobody is about to go on from.
    pub fn flush_prefix(&mut self) -> FlushedEntries {
        self.prefix.flush(StepId(self.next_step), &mut self.pages)
    }

    /// Notes from now on what changes in the prefix cache, for [`Self::take_prefix_changes`].
    pub fn note_prefix_changes(&mut self) {
        self.prefix.note_changes();
    }

    /// What changed in the prefix cache since the last time; always nothing where it is not noted.
    pub fn take_prefix_changes(&mut self) -> Vec<PrefixChange> {
        self.prefix.take_changes()
    }

    /// A free page, for which the cache gives up entries if it must.
    pub(in crate::scheduler) fn claim_page(&mut self) -> Option<PageId> {
        self.prefix.free_a_page(StepId(self.next_step), &mut self.pages);
        self.pages.claim()
    }
}
