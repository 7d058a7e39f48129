//! The prefix cache: what prompts left behind that others begin with.
//!
//! An entry is a checkpoint of the recurrent state at a multiple of [`CHUNK_TOKENS`] and the KV pages of all positions
//! before it, so that a hit has both. Entries lie at nodes of a tree of prompts ([`super::prompts`]); pages belong to
//! the units of the tree, and are kept as long as an entry at or behind their unit needs them. Nodes without entries
//! only remember that a prompt went through: where a second one leaves it, an entry is worth its room.
//!
//! An entry lies on the device, on the host, or on both ([`transfers`]). In each tier the entry goes first that
//! saves least time for its bytes ([`super::order`]). Cached pages are given up before a sequence is preempted, and an
//! entry that finds no room is left out: nothing waits for it.

mod changes;
mod transfers;

use super::Pages;
use super::config::PrefixConfig;
use super::host::{HostTier, OnHost};
use super::order::{EvictionOrder, Priority};
use super::prompts::{NodeId, NodeValue, Prompts};
use crate::ids::{CacheScope, CheckpointId, HostBlockId, PageId, StepId, TokenId, TransferId};
use crate::{CHUNK_TOKENS, PAGE_TOKENS};
pub use changes::{CacheTier, FlushedEntries, PrefixChange, StoredUnit};
pub(crate) use transfers::HostHit;
use transfers::Transfers;

/// Pages of one unit of the tree.
const UNIT_PAGES: usize = (CHUNK_TOKENS / PAGE_TOKENS) as usize;
const _: () = assert!(CHUNK_TOKENS.is_multiple_of(PAGE_TOKENS), "a unit is whole pages");

/// What is kept at a unit of a prompt.
#[derive(Debug, Default)]
struct PrefixUnit {
    /// Entries on the device, here or further on in prompts that go through here.
    entries: u32,
    /// Of its positions; there as long as `entries` is positive.
    pages: [Option<PageId>; UNIT_PAGES],
    /// Entries on the host, likewise.
    host_entries: u32,
    /// Its KV on the host; there as long as `host_entries` is positive and a unit takes a block.
    block: Option<HostBlockId>,
    entry: Option<Entry>,
    /// Nobody is told of it.
    quiet: bool,
}

impl NodeValue for PrefixUnit {
    fn is_kept(&self) -> bool {
        self.entries > 0 || self.host_entries > 0
    }
}

/// It lies in one tier at least.
#[derive(Debug)]
struct Entry {
    /// Prompts that wanted it: the first that had it taken, and all that went on from it.
    hits: u32,
    worth: Worth,
    device: Option<OnDevice>,
    host: Option<OnHost>,
}

/// An entry's place on the device.
#[derive(Debug)]
struct OnDevice {
    checkpoint: CheckpointId,
    /// The step that takes the checkpoint, or with which it comes back from the host: those after it may use it.
    taken_in: StepId,
    priority: Priority,
    /// Sequences that will go on from it and have not done so yet.
    pins: u32,
    /// It is on its way here. Who goes on from it waits for that.
    loading: Option<TransferId>,
}

impl Entry {
    /// Microseconds saved a page, counted with how often it was wanted.
    fn value(&self) -> f64 {
        f64::from(self.hits) * self.worth.saved_us / self.worth.pages
    }
}

/// What an entry is good for and what it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Worth {
    /// Time that a hit saves over the one before it on the same path, microseconds.
    pub(crate) saved_us: f64,
    /// Room that it takes beyond that one's, in pages.
    pub(crate) pages: f64,
}

/// An entry that a prompt may go on from. It stays until [`PrefixCache::unpin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    node: NodeId,
    /// Positions that need not be computed.
    pub(crate) positions: u32,
    /// The state after them.
    pub(crate) checkpoint: CheckpointId,
}

/// Counters of the prefix cache since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixTotals {
    /// Prompts that were looked up.
    pub queries: u64,
    /// Tokens of the prompts that were looked up.
    pub query_tokens: u64,
    /// Prompts that went on from an entry.
    pub hits: u64,
    /// Tokens that these did not have to compute.
    pub hit_tokens: u64,
    /// Of these, tokens of entries that came back from the host for it.
    pub host_hit_tokens: u64,
    /// Tokens that looked-up prompts share with ones read before, whether or not an entry helped: what an unbounded
    /// cache could have spared.
    pub known_tokens: u64,
    /// Checkpoints that were taken.
    pub taken: u64,
    /// Entries given up because something else needed their room.
    pub evicted: u64,
    /// Checkpoints not taken because all places had one that was wanted right then.
    pub skipped: u64,
    /// Entries copied to the host.
    pub saved: u64,
    /// Entries that came back from the host.
    pub loaded: u64,
    /// Entries that the host gave up for others.
    pub host_evicted: u64,
}

/// The cache at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixStats {
    /// Entries on the device.
    pub entries: u32,
    /// Places for checkpoints on the device.
    pub checkpoints: u32,
    /// KV pages that entries need.
    pub pages: u32,
    /// Of these, pages that no running sequence has.
    pub pages_reclaimable: u32,
    /// Entries on the host.
    pub host_entries: u32,
    /// Blocks of the host's memory that these take.
    pub host_blocks: u32,
    /// Blocks that there are.
    pub host_blocks_total: u32,
    /// Counters since the start.
    pub totals: PrefixTotals,
}

impl PrefixStats {
    /// The figures of two caches together, without their counters.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            entries: self.entries + other.entries,
            checkpoints: self.checkpoints + other.checkpoints,
            pages: self.pages + other.pages,
            pages_reclaimable: self.pages_reclaimable + other.pages_reclaimable,
            host_entries: self.host_entries + other.host_entries,
            host_blocks: self.host_blocks + other.host_blocks,
            host_blocks_total: self.host_blocks_total + other.host_blocks_total,
            totals: PrefixTotals::default(),
        }
    }
}

/// The prefix cache: entries by prompt, on the device and on the host, and what each of them keeps.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    prompts: Prompts<PrefixUnit>,
    /// Of entries on the device.
    order: EvictionOrder,
    free: Vec<CheckpointId>,
    /// Places of entries that went before the step that takes their checkpoint was launched: free after it.
    cooling: Vec<(StepId, CheckpointId)>,
    checkpoints: u32,
    /// A checkpoint's bytes, in pages.
    checkpoint_pages: f64,
    pages: u32,
    host: HostTier,
    transfers: Transfers,
    totals: PrefixTotals,
    /// What changed since somebody was told last, where somebody is told.
    changes: Option<Vec<PrefixChange>>,
}

impl PrefixCache {
    /// An empty cache. Without room for checkpoints it finds nothing.
    pub(crate) fn new(config: &PrefixConfig) -> Self {
        Self {
            prompts: Prompts::default(),
            order: EvictionOrder::default(),
            free: (0..config.checkpoints).rev().map(CheckpointId).collect(),
            cooling: Vec::new(),
            checkpoints: config.checkpoints,
            checkpoint_pages: config.checkpoint_pages(),
            pages: 0,
            host: HostTier::new(config.host),
            transfers: Transfers::default(),
            totals: PrefixTotals::default(),
            changes: None,
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.checkpoints > 0
    }

    /// Positions at the beginning of a prompt that an entry has, for a step `now` that is not launched yet. The last
    /// token of a prompt is always computed: its row gives the first output.
    pub(crate) fn find(&self, scope: CacheScope, prompt: &[TokenId], now: StepId) -> Option<Hit> {
        let path = self.prompts.path(scope, &prompt[..prompt.len().saturating_sub(1)]);
        path.filter_map(|node| self.hit(node, now)).last()
    }

    fn hit(&self, node: NodeId, now: StepId) -> Option<Hit> {
        let place = self.on_device(node).filter(|place| place.taken_in < now)?;
        let positions = self.prompts.depth(node) * CHUNK_TOKENS;
        Some(Hit { node, positions, checkpoint: place.checkpoint })
    }

    fn on_device(&self, node: NodeId) -> Option<&OnDevice> {
        self.prompts.get(node).entry.as_ref()?.device.as_ref()
    }

    fn entry_mut(&mut self, node: NodeId) -> &mut Entry {
        self.prompts.get_mut(node).entry.as_mut().expect("an entry that is named is there")
    }

    fn device_mut(&mut self, node: NodeId) -> &mut OnDevice {
        self.entry_mut(node).device.as_mut().expect("what is pinned stays on the device")
    }

    /// Takes a found entry for a sequence: its pages, of which the sequence becomes an owner. The checkpoint stays as
    /// it is until [`Self::unpin`].
    pub(crate) fn pin(&mut self, hit: Hit, pages: &mut Pages) -> Vec<PageId> {
        let entry = self.entry_mut(hit.node);
        entry.hits = entry.hits.saturating_add(1);
        let unsaved = entry.host.is_none();
        self.renew(hit.node, Entry::value);
        self.device_mut(hit.node).pins += 1;
        if unsaved {
            self.offer(hit.node);
        }
        let path = self.path_to(hit.node);
        let all = path.iter().flat_map(|node| self.prompts.get(*node).pages);
        let all: Vec<_> = all.map(|page| page.expect("a unit before an entry has pages")).collect();
        all.iter().for_each(|page| pages.share(*page));
        all
    }

    /// A sequence that was let go on from an entry will leave one further on. Unless prompts part behind this one, as
    /// behind a common system prompt, the conversation will not come back to it: it is the next to go.
    pub(crate) fn pass(&mut self, hit: Hit) {
        if !self.prompts.parts(hit.node) {
            self.entry_mut(hit.node).hits = 1;
            self.renew(hit.node, |_| 0.0);
        }
    }

    /// Gives an entry its place anew in the orders of the tiers where it is.
    fn renew(&mut self, node: NodeId, worth: impl Fn(&Entry) -> f64) {
        let entry = self.prompts.get_mut(node).entry.as_mut().expect("an entry that is named is there");
        let worth = worth(entry);
        if let Some(place) = &mut entry.device {
            self.order.renew(node, &mut place.priority, worth);
        }
        if let Some(place) = &mut entry.host {
            self.host.order.renew(node, &mut place.priority, worth);
        }
    }

    /// The nodes from the first unit to this one.
    fn path_to(&self, node: NodeId) -> Vec<NodeId> {
        let mut path: Vec<_> = self.prompts.up(node).collect();
        path.reverse();
        path
    }

    /// How many of its pages running sequences have.
    pub(crate) fn owned_pages(&self, hit: Hit, pages: &Pages) -> u32 {
        let all = self.prompts.up(hit.node).flat_map(|node| self.prompts.get(node).pages).flatten();
        all.filter(|page| pages.is_owned(*page)).count() as u32
    }

    /// The sequence has its copy, or does not want it any more.
    pub(crate) fn unpin(&mut self, hit: Hit) {
        self.device_mut(hit.node).pins -= 1;
    }

    /// Notes a prompt that starts with `cached` positions from an entry. Returns where it parts from those that were
    /// read before, if it does before its end.
    pub(crate) fn note(&mut self, scope: CacheScope, prompt: &[TokenId], cached: u32) -> u32 {
        let (_, known) = self.prompts.read(scope, prompt);
        let known = known * CHUNK_TOKENS;
        self.totals.queries += 1;
        self.totals.query_tokens += prompt.len() as u64;
        self.totals.hits += u64::from(cached > 0);
        self.totals.hit_tokens += u64::from(cached);
        self.totals.known_tokens += u64::from(known.min(prompt.len() as u32 - 1));
        known
    }

    /// The nodes at these positions of a prompt, ascending multiples of a unit; in their order.
    pub(crate) fn nodes(&mut self, scope: CacheScope, prompt: &[TokenId], positions: &[u32]) -> Vec<NodeId> {
        let Some(last) = positions.last() else { return Vec::new() };
        let (node, _) = self.prompts.read(scope, &prompt[..*last as usize]);
        let at = |node: &NodeId| positions.contains(&(self.prompts.depth(*node) * CHUNK_TOKENS));
        let mut nodes: Vec<_> = node.into_iter().flat_map(|node| self.prompts.up(node)).filter(at).collect();
        nodes.reverse();
        nodes
    }

    /// A place for the checkpoint that step `now` takes at a node, where the pages of all positions before it are
    /// `held`; `last` says that of its prompt's checkpoints it is the furthest, where the next turn goes on. `None` if
    /// there is one already, if the same positions are on their way from the host for somebody else, or if others are
    /// wanted right now in all places. `saved_us`: what computing the positions between two entries takes.
    pub(crate) fn take(
        &mut self,
        (node, last): (NodeId, bool),
        held: &[PageId],
        now: StepId,
        saved_us: impl Fn(u32, u32) -> f64,
        pages: &mut Pages,
    ) -> Option<CheckpointId> {
        if self.on_device(node).is_some() || self.others_still_come(node, held) {
            return None;
        }
        let worth = self.worth(node, last, saved_us);
        let checkpoint = self.room_for(now, pages)?;
        self.settle_on_device(node, held, OnDevicePlan { checkpoint, now, loading: None, worth }, pages);
        self.totals.taken += 1;
        self.offer(node);
        Some(checkpoint)
    }

    /// Are pages before this node still on their way from the host that are not those that are `held`? They cannot be
    /// kept for an entry here, from which others would go on without waiting for them, nor given up for the others:
    /// whoever waits for the load has a page table that names them, and what is pinned must have an owner.
    fn others_still_come(&self, node: NodeId, held: &[PageId]) -> bool {
        let comes = |unit: NodeId| {
            let first = (self.prompts.depth(unit) as usize - 1) * UNIT_PAGES;
            let kept = self.prompts.get(unit).pages.iter().zip(&held[first..]);
            kept.into_iter().any(|(kept, held)| kept.is_some_and(|kept| kept != *held)) && self.transfers.brings(unit)
        };
        self.prompts.up(node).any(comes)
    }

    /// The entry at a node lies on the device from now on, where its sequence holds the pages before it.
    fn settle_on_device(&mut self, node: NodeId, held: &[PageId], plan: OnDevicePlan, pages: &mut Pages) {
        self.keep_pages(node, held, pages);
        let OnDevicePlan { checkpoint, now, loading, worth } = plan;
        let entry = self.prompts.get_mut(node).entry.get_or_insert(Entry { hits: 1, worth, device: None, host: None });
        let priority = self.order.enter(node, entry.value());
        entry.device = Some(OnDevice { checkpoint, taken_in: now, priority, pins: 0, loading });
    }

    /// Of the furthest checkpoint of a prompt against the last one before it that others need too: those between will
    /// be passed. Of another against the one before it.
    fn worth(&self, node: NodeId, last: bool, saved_us: impl Fn(u32, u32) -> f64) -> Worth {
        let depth = self.prompts.depth(node);
        let stays = |node: &NodeId| self.prompts.get(*node).entry.is_some() && (!last || self.prompts.parts(*node));
        let before = self.prompts.up(node).skip(1).find(stays);
        let before = before.map_or(0, |node| self.prompts.depth(node));
        let pages = f64::from(depth - before) * UNIT_PAGES as f64 + self.checkpoint_pages;
        Worth { saved_us: saved_us(before * CHUNK_TOKENS, depth * CHUNK_TOKENS), pages }
    }

    fn keep_pages(&mut self, node: NodeId, held: &[PageId], pages: &mut Pages) {
        let path: Vec<_> = self.prompts.up(node).collect();
        let mut new = Vec::new();
        for node in path {
            let first = (self.prompts.depth(node) as usize - 1) * UNIT_PAGES;
            let unit = self.prompts.get_mut(node);
            unit.entries += 1;
            let held = &held[first..first + UNIT_PAGES];
            if unit.entries > 1 {
                // Who computed the same positions at the same time has pages of its own with the same bytes.
                continue;
            }
            for (place, page) in unit.pages.iter_mut().zip(held) {
                pages.keep(*page);
                *place = Some(*page);
                self.pages += 1;
            }
            new.push(node);
        }
        new.reverse();
        self.note_stored(CacheTier::Device, &new);
    }

    /// A free place, or that of the entry that is worth least. A newcomer always comes in: if it is never wanted, it is
    /// the next to go, so prompts that come once take one place from those that come again.
    fn room_for(&mut self, now: StepId, pages: &mut Pages) -> Option<CheckpointId> {
        self.free.extend(self.cooling.extract_if(.., |(step, _)| *step < now).map(|(_, place)| place));
        if self.free.is_empty() {
            // What this very step takes must stay: its place would be written twice.
            let Some(node) =
                self.by_priority().find(|node| self.on_device(*node).is_some_and(|place| place.taken_in < now))
            else {
                self.totals.skipped += 1;
                return None;
            };
            self.evict(node, now, pages);
        }
        self.free.pop()
    }

    /// Entries on the device that nobody waits for, those that are worth least first.
    fn by_priority(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.order.ascending().filter(|node| self.on_device(*node).is_some_and(|place| place.pins == 0))
    }

    /// Gives up entries until a page is free beside the spare ones, or none can be had: each time the one that is worth
    /// least of those that need a page that no sequence has. One exists as long as there is such a page: a pinned
    /// entry's pages all have the owner who pinned it.
    pub(crate) fn free_a_page(&mut self, now: StepId, pages: &mut Pages) {
        while pages.reclaimable() > 0 && pages.free() <= pages.spare() {
            let frees = |node: &NodeId| self.frees_pages(*node, pages);
            let found = self.by_priority().find(frees).or_else(|| self.by_priority().next());
            let node = found.expect("a page that is kept for nobody's sake is needed by an entry");
            self.evict(node, now, pages);
        }
    }

    /// Would a page be free without this entry?
    fn frees_pages(&self, node: NodeId, pages: &Pages) -> bool {
        let mut alone = self.prompts.up(node).map(|node| self.prompts.get(node)).take_while(|unit| unit.entries == 1);
        alone.any(|unit| unit.pages.iter().flatten().any(|page| !pages.is_owned(*page)))
    }

    fn evict(&mut self, node: NodeId, now: StepId, pages: &mut Pages) {
        let priority = self.let_go(node, now, pages);
        self.order.age(priority);
        self.totals.evicted += 1;
    }

    /// An entry leaves the device, and its room can be had: the checkpoint's once the step that takes it is launched.
    fn let_go(&mut self, node: NodeId, now: StepId, pages: &mut Pages) -> Priority {
        self.transfers.gives_up(node);
        let place = self.leave_device(node, pages);
        if place.taken_in < now {
            self.free.push(place.checkpoint);
        } else {
            self.cooling.push((place.taken_in, place.checkpoint));
        }
        place.priority
    }

    fn leave_device(&mut self, node: NodeId, pages: &mut Pages) -> OnDevice {
        let unit = self.prompts.get_mut(node);
        let entry = unit.entry.as_mut().expect("an entry that is named is there");
        let place = entry.device.take().expect("it leaves once");
        if entry.host.is_none() {
            unit.entry = None;
        }
        self.order.leave(node, place.priority);
        let mut gone = Vec::new();
        for node in self.path_to(node) {
            let unit = self.prompts.get_mut(node);
            unit.entries -= 1;
            if unit.entries == 0 {
                for page in unit.pages.iter_mut().filter_map(Option::take) {
                    pages.give_up(page);
                    self.pages -= 1;
                }
                gone.push(node);
            }
        }
        self.note_removed(CacheTier::Device, &gone);
        place
    }

    /// Forgets everything, pinned or not: nothing will be computed any more.
    pub(crate) fn clear(&mut self, pages: &mut Pages) {
        for node in self.order.ascending().collect::<Vec<_>>() {
            let place = self.leave_device(node, pages);
            self.free.push(place.checkpoint);
        }
        self.free.extend(self.cooling.drain(..).map(|(_, place)| place));
        self.transfers = Transfers::default();
        for node in self.host.order.ascending().collect::<Vec<_>>() {
            self.leave_host(node);
        }
        self.prompts = Prompts::default();
    }

    pub(crate) fn stats(&self, pages: &Pages) -> PrefixStats {
        PrefixStats {
            entries: self.order.len(),
            checkpoints: self.checkpoints,
            pages: self.pages,
            pages_reclaimable: pages.reclaimable(),
            host_entries: self.host.order.len(),
            host_blocks: self.host.used(),
            host_blocks_total: self.host.total(),
            totals: self.totals,
        }
    }

    /// Pages that entries need, all places of checkpoints, how many pins there are, and all blocks of the host, for
    /// tests that count them again.
    #[cfg(test)]
    pub(crate) fn audit(&self) -> (Vec<PageId>, Vec<CheckpointId>, u32, Vec<HostBlockId>) {
        let (mut kept, mut blocks) = (Vec::new(), self.host.free().to_vec());
        for node in self.prompts.nodes() {
            let unit = self.prompts.get(node);
            let behind = |entry: &NodeId| self.prompts.up(*entry).any(|up| up == node);
            let counts = [&self.order, &self.host.order].map(|order| order.ascending().filter(behind).count());
            assert_eq!([unit.entries, unit.host_entries].map(|n| n as usize), counts, "a unit counts who needs it");
            assert_eq!(unit.pages.iter().flatten().count(), if counts[0] > 0 { UNIT_PAGES } else { 0 });
            assert_eq!(unit.block.is_some(), counts[1] > 0 && self.host.cut.unit > 0);
            kept.extend(unit.pages.iter().flatten());
            blocks.extend(unit.block);
            let Some(entry) = &unit.entry else { continue };
            assert!(entry.device.is_some() || entry.host.is_some(), "an entry lies somewhere");
            blocks.extend(entry.host.iter().flat_map(|place| &place.blocks));
        }
        assert_eq!(kept.len() as u32, self.pages);
        let places = || self.order.ascending().filter_map(|node| self.on_device(node));
        let taken = places().map(|place| place.checkpoint);
        let all = taken.chain(self.cooling.iter().map(|(_, place)| *place)).chain(self.free.iter().copied());
        (kept, all.collect(), places().map(|place| place.pins).sum(), blocks)
    }
}

/// How an entry comes to lie on the device.
struct OnDevicePlan {
    checkpoint: CheckpointId,
    now: StepId,
    loading: Option<TransferId>,
    /// Of an entry that is new.
    worth: Worth,
}

#[cfg(test)]
mod tests {
    use super::super::host::HostBlocks;
    use super::super::prompts::{NODES_MAX, tests::prompt};
    use super::*;
    use crate::step::{FinishedTransfer, HostProgress};

    const SCOPE: CacheScope = CacheScope(1);

    fn config(checkpoints: u32) -> PrefixConfig {
        PrefixConfig { checkpoints, checkpoint_bytes: 1, page_bytes: 1, ..PrefixConfig::OFF }
    }

    struct World {
        cache: PrefixCache,
        pages: Pages,
        step: u64,
    }

    impl World {
        fn new(checkpoints: u32, pages: u32) -> Self {
            Self { cache: PrefixCache::new(&config(checkpoints)), pages: Pages::new(pages), step: 0 }
        }

        /// Computes these units, keeps a checkpoint at their end if there is room, and goes.
        fn compute(&mut self, units: &[u32]) -> Option<CheckpointId> {
            let held: Vec<_> = (0..units.len() * UNIT_PAGES).map(|_| self.claim()).collect();
            let now = StepId(self.step);
            self.step += 1;
            let saved = |from: u32, to: u32| f64::from(to - from);
            let end = units.len() as u32 * CHUNK_TOKENS;
            let node = self.cache.nodes(SCOPE, &prompt(units), &[end])[0];
            let taken = self.cache.take((node, true), &held, now, saved, &mut self.pages);
            held.iter().for_each(|page| self.pages.release(*page));
            taken
        }

        fn claim(&mut self) -> PageId {
            self.cache.free_a_page(StepId(self.step), &mut self.pages);
            self.pages.claim().unwrap()
        }

        fn find(&self, units: &[u32]) -> u32 {
            let prompt = [prompt(units), vec![9]].concat();
            self.cache.find(SCOPE, &prompt, StepId(self.step)).map_or(0, |hit| hit.positions)
        }
    }

    #[test]
    fn a_prompt_goes_on_from_the_last_entry_that_it_begins_with() {
        let mut world = World::new(4, 40);
        world.compute(&[1, 2]);
        world.compute(&[1, 2, 3, 4]);
        assert_eq!([&[1, 2, 3][..], &[1, 2, 3, 4, 5], &[1], &[2, 2]].map(|units| world.find(units)), [128, 256, 0, 0]);
        let exact = prompt(&[1, 2]);
        assert_eq!(world.cache.find(SCOPE, &exact, StepId(9)), None, "the last token is computed");
        assert_eq!(world.cache.find(CacheScope(2), &prompt(&[1, 2, 3]), StepId(9)), None, "another's");
        assert_eq!(world.cache.find(SCOPE, &prompt(&[1, 2, 3]), StepId(0)), None, "not taken yet");
        assert_eq!(world.cache.stats(&world.pages).pages, 8, "the shared units are kept once");
    }

    #[test]
    fn a_pinned_entry_and_its_pages_stay_until_it_is_used() {
        let mut world = World::new(1, 10);
        let first = world.compute(&[1]).unwrap();
        let hit = world.cache.find(SCOPE, &prompt(&[1, 5]), StepId(world.step)).unwrap();
        assert_eq!(hit.checkpoint, first);
        let held = world.cache.pin(hit, &mut world.pages);
        assert_eq!((held.len(), world.compute(&[2])), (2, None), "there is one place, and it is pinned");
        world.cache.unpin(hit);
        assert_eq!(world.compute(&[2, 3, 4]), Some(first));
        assert_eq!(world.find(&[1]), 0);
        assert!(held.iter().all(|page| world.pages.is_owned(*page)), "the sequence has its pages still");
        held.iter().for_each(|page| world.pages.release(*page));
        assert_eq!(world.pages.reclaimable(), 6);
    }

    #[test]
    fn what_saves_least_for_its_bytes_goes_first_and_what_is_never_hit_ages() {
        let mut world = World::new(2, 100);
        world.compute(&[1, 1, 1, 1, 1, 1, 1, 1]);
        world.compute(&[2]);
        assert!(world.compute(&[3, 3]).is_some(), "it is worth more than the single unit");
        assert_eq!((world.find(&[2]), world.find(&[1; 8])), (0, 512));
        assert_eq!(world.cache.stats(&world.pages).totals.evicted, 1);
        for other in 10..40 {
            world.compute(&[other, other]);
        }
        assert_eq!(world.find(&[1; 8]), 0, "thirty others later nobody has asked for it");
    }

    #[test]
    fn pages_come_free_behind_entries_that_alone_need_them() {
        let mut world = World::new(4, 8);
        world.compute(&[1, 2]);
        world.compute(&[1, 2, 3]);
        assert_eq!((world.pages.free(), world.pages.reclaimable()), (2, 6));
        let held: Vec<_> = (0..8).map(|_| world.claim()).collect();
        assert_eq!(world.cache.stats(&world.pages).entries, 0);
        held.iter().for_each(|page| world.pages.release(*page));
        assert_eq!(world.pages.free(), 8);
    }

    #[test]
    fn an_entry_that_left_before_it_was_copied_may_be_forgotten() {
        let host = HostBlocks { bytes: 1, checkpoint: 1, unit: 1 };
        let config = PrefixConfig { host, ..config(1) };
        let mut world = World { cache: PrefixCache::new(&config), pages: Pages::new(8), step: 0 };
        world.compute(&[1]);
        world.compute(&[2]);
        // So many that room is made once, and that the places which that made are not taken again.
        for other in 0..NODES_MAX as u32 {
            world.cache.note(SCOPE, &prompt(&[other + 10]), 0);
        }
        world.cache.transferred(&HostProgress { blocks: 8, ..HostProgress::default() });
        let (copies, _) = world.cache.begin_transfers(StepId(world.step));
        assert_eq!(copies.len(), 1, "only what is on the device is copied");
    }

    #[test]
    fn who_waits_for_a_load_has_the_pages_that_are_kept_for_it() {
        let host = HostBlocks { bytes: 1, checkpoint: 1, unit: 1 };
        let config = PrefixConfig { host, ..config(2) };
        let mut world = World { cache: PrefixCache::new(&config), pages: Pages::new(8), step: 0 };
        world.cache.transferred(&HostProgress { blocks: 8, ..HostProgress::default() });
        world.compute(&[1, 2]);
        let (copies, _) = world.cache.begin_transfers(StepId(world.step));
        let finished = copies.iter().map(|copy| FinishedTransfer { id: copy.id, direction: copy.direction, micros: 1 });
        world.cache.transferred(&HostProgress { finished: finished.collect(), blocks: 8 });
        let all: Vec<_> = (0..8).map(|_| world.claim()).collect();
        all.iter().for_each(|page| world.pages.release(*page));
        let wanted = [prompt(&[1, 2]), vec![9]].concat();
        let found = world.cache.find_on_host((SCOPE, &wanted), 0, |_, _| f64::INFINITY).unwrap();
        let hit = world.cache.load(found, StepId(world.step), &mut world.pages).unwrap();
        world.cache.pin(hit, &mut world.pages);
        // Somebody else computes what is on its way, as whoever wants the scores of all of a prompt.
        assert_eq!(world.compute(&[1]), None);
        let available = world.pages.available();
        let had: Vec<_> = (0..available).map(|_| world.claim()).collect();
        assert_eq!((had.len(), world.pages.claim()), (available as usize, None), "what is available can be had");
    }

    fn told(world: &mut World) -> Vec<String> {
        let one = |change| match change {
            PrefixChange::Stored { parent, units, .. } => {
                let tokens: Vec<_> = units.iter().map(|unit| unit.tokens[0].to_string()).collect();
                format!("stored {} {}", tokens.join(" "), if parent.is_some() { "behind" } else { "first" })
            }
            PrefixChange::Removed { units, .. } => format!("removed {}", units.len()),
        };
        world.cache.take_changes().into_iter().map(one).collect()
    }

    #[test]
    fn units_are_told_of_while_an_entry_at_or_behind_them_can_be_gone_on_from() {
        let mut world = World::new(2, 100);
        world.compute(&[9]);
        assert_eq!(told(&mut world), Vec::<String>::new(), "nobody has asked");
        world.cache.note_changes();
        world.compute(&[1, 2]);
        world.compute(&[1, 2, 3, 4]);
        assert_eq!(told(&mut world), ["stored 1 2 first", "removed 1", "stored 3 4 behind"]);
        world.cache.flush(StepId(world.step), &mut world.pages);
        assert_eq!(
            told(&mut world),
            ["removed 4"],
            "the shorter prompt's entry went first, and they stayed for the other"
        );
        let nodes = world.cache.nodes(SCOPE, &prompt(&[5, 6]), &[2 * CHUNK_TOKENS]);
        world.cache.keep_quiet(&nodes);
        world.compute(&[5, 6]);
        assert_eq!(told(&mut world), Vec::<String>::new(), "of these nobody is told");
    }

    #[test]
    fn a_flush_gives_up_all_but_what_somebody_is_about_to_go_on_from() {
        let mut world = World::new(4, 40);
        world.compute(&[1, 2]);
        world.compute(&[3]);
        let hit = world.cache.find(SCOPE, &prompt(&[1, 2, 5]), StepId(world.step)).unwrap();
        let held = world.cache.pin(hit, &mut world.pages);
        let flushed = world.cache.flush(StepId(world.step), &mut world.pages);
        assert_eq!(flushed, FlushedEntries { flushed: 1, kept: 1 });
        assert_eq!((world.find(&[1, 2]), world.find(&[3])), (128, 0));
        world.cache.unpin(hit);
        assert_eq!(world.cache.flush(StepId(world.step), &mut world.pages).kept, 0);
        held.iter().for_each(|page| world.pages.release(*page));
        assert_eq!((world.pages.free(), world.cache.audit().1.len()), (40, 4), "all room is there again");
    }

    #[test]
    fn junctions_are_where_a_prompt_leaves_what_was_read_before() {
        let mut cache = PrefixCache::new(&config(1));
        assert_eq!(cache.note(SCOPE, &prompt(&[1, 2, 3]), 0), 0);
        assert_eq!(cache.note(SCOPE, &prompt(&[1, 2, 4]), 0), 128);
        assert_eq!(cache.note(CacheScope(7), &prompt(&[1, 2, 4]), 0), 0);
        assert_eq!(cache.totals.known_tokens, 128);
    }
}
