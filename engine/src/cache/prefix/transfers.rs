//! Ways between the tiers of the prefix cache.
//!
//! What was kept on the device is copied to the host soon after, as long as it is still there. So giving up an entry on
//! the device moves nothing; an entry that is only on the host is loaded for the prompt that begins with it, into a
//! place and pages of the device like those of a new one.
//!
//! Copies run beside the steps. Memory that one of them still reads or writes may have a new owner by then: the plan
//! that gives it away says so ([`crate::step::StepPlan::settles`]), and its rows wait. A copy on the host is read when
//! it is known to be whole.

use super::{CacheTier, Hit, OnDevicePlan, PrefixCache, UNIT_PAGES};
use crate::CHUNK_TOKENS;
use crate::cache::Pages;
use crate::cache::host::OnHost;
use crate::cache::prompts::NodeId;
use crate::ids::{CacheScope, CheckpointId, HostBlockId, PageId, StepId, TokenId, TransferId};
use crate::step::{Direction, FinishedTransfer, HostProgress, Transfer, UnitPages};
use std::collections::VecDeque;

/// Entries that wait to be copied to the host; of more, the oldest are left out.
const OFFERS_MAX: usize = 64;
/// Copies to the host under way. They take turns on the bus, and a later one may not be wanted any more.
const SAVES_MAX: usize = 2;
/// What the bus is taken to carry, bytes a microsecond, where a load is weighed against computing: three quarters of
/// PCIe 3.0 with 16 lanes, so that no card does worse for it.
const BUS_BYTES_US: f64 = 12_000.0;

/// Copies that are wanted, planned or under way.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    next: u64,
    /// They are on the device: what leaves it is offered no more, and its node may be forgotten.
    offers: VecDeque<NodeId>,
    /// Of the step in the making.
    planned: Vec<Transfer>,
    under_way: Vec<PrefixTransfer>,
    settles: bool,
}

#[derive(Debug)]
struct PrefixTransfer {
    id: TransferId,
    direction: Direction,
    node: NodeId,
    /// Of a load: the units whose pages it brings.
    brings: Vec<NodeId>,
}

impl Transfers {
    /// The entry leaves the device, and others get its memory.
    pub(super) fn gives_up(&mut self, node: NodeId) {
        self.settles |= self.under_way.iter().any(|copy| copy.node == node);
        self.offers.retain(|offered| *offered != node);
    }

    /// Are the unit's pages still on their way from the host?
    pub(super) fn brings(&self, unit: NodeId) -> bool {
        self.under_way.iter().any(|copy| copy.brings.contains(&unit))
    }

    fn begin(&mut self, direction: Direction, node: NodeId, brings: Vec<NodeId>) -> TransferId {
        let id = TransferId(self.next);
        self.next += 1;
        self.under_way.push(PrefixTransfer { id, direction, node, brings });
        id
    }

    fn saves(&self) -> usize {
        self.under_way.iter().filter(|copy| copy.direction == Direction::Save).count()
    }
}

impl PrefixCache {
    /// The furthest entry on the host that a prompt begins with and that brings more than `cached` positions, if
    /// copying takes less time than computing would: `us` of `positions` from `cached` on.
    pub(crate) fn find_on_host(
        &self,
        (scope, prompt): (CacheScope, &[TokenId]),
        cached: u32,
        us: impl Fn(u32, u32) -> f64,
    ) -> Option<HostHit> {
        if !self.host.cut.is_some() {
            return None;
        }
        let path = self.prompts.path(scope, &prompt[..prompt.len().saturating_sub(1)]);
        let node = path.filter(|node| self.is_whole_on_host(*node)).last()?;
        let positions = self.prompts.depth(node) * CHUNK_TOKENS;
        let blocks = self.host.cut.checkpoint + self.units_to_load(node) * self.host.cut.unit;
        let load_us = f64::from(blocks) * self.host.cut.bytes as f64 / BUS_BYTES_US;
        (positions > cached && load_us < us(cached, positions)).then_some(HostHit { node, positions })
    }

    /// It is there to be loaded, and not on the device already.
    fn is_whole_on_host(&self, node: NodeId) -> bool {
        let entry = self.prompts.get(node).entry.as_ref().filter(|entry| entry.device.is_none());
        entry.and_then(|entry| entry.host.as_ref()).is_some_and(|place| place.saving.is_none())
    }

    fn units_to_load(&self, node: NodeId) -> u32 {
        self.prompts.up(node).filter(|node| self.prompts.get(*node).entries == 0).count() as u32
    }

    /// Brings an entry back to the device with step `now`: a place for its checkpoint, and pages for what is not there.
    /// `None` if there is no room, or everything in it is wanted right now.
    pub(crate) fn load(&mut self, found: HostHit, now: StepId, pages: &mut Pages) -> Option<Hit> {
        let path = self.path_to(found.node);
        // Nothing that is there already is given up for the rest.
        let there: Vec<_> = path.iter().map(|node| self.prompts.get(*node).pages).collect();
        there.iter().flatten().flatten().for_each(|page| pages.share(*page));
        let checkpoint = self.room_for(now, pages);
        let held: Vec<PageId> =
            there.iter().flatten().map_while(|page| page.or_else(|| self.claim_page(now, pages))).collect();
        let fits = held.len() == there.as_flattened().len();
        if let Some(checkpoint) = checkpoint {
            if fits {
                let units = self.units_to_load_of(&path, &held, &there);
                self.begin_load(found.node, (checkpoint, units), &held, now, pages);
            } else {
                self.free.push(checkpoint);
            }
        }
        held.iter().for_each(|page| pages.release(*page));
        let checkpoint = checkpoint.filter(|_| fits)?;
        Some(Hit { node: found.node, positions: found.positions, checkpoint })
    }

    fn begin_load(
        &mut self,
        node: NodeId,
        (checkpoint, units): (CheckpointId, Vec<(NodeId, UnitPages, HostBlockId)>),
        held: &[PageId],
        now: StepId,
        pages: &mut Pages,
    ) {
        let id = self.transfers.begin(Direction::Load, node, units.iter().map(|unit| unit.0).collect());
        let units = units.into_iter().map(|(_, pages, block)| (pages, block)).collect();
        let entry = self.entry_mut(node);
        let worth = entry.worth;
        let place = entry.host.as_mut().expect("a hit on the host lies there");
        place.loads += 1;
        let blocks = place.blocks.clone();
        self.transfers.planned.push(Transfer { id, direction: Direction::Load, checkpoint, blocks, units });
        self.settle_on_device(node, held, OnDevicePlan { checkpoint, now, loading: Some(id), worth }, pages);
    }

    /// The units that are not on the device, with their pages and blocks.
    fn units_to_load_of(
        &self,
        path: &[NodeId],
        held: &[PageId],
        there: &[[Option<PageId>; UNIT_PAGES]],
    ) -> Vec<(NodeId, UnitPages, HostBlockId)> {
        let all = path.iter().zip(held.as_chunks().0).zip(there);
        let missing = all.filter(|(_, there)| there.iter().any(Option::is_none));
        missing.filter_map(|((node, pages), _)| Some((*node, *pages, self.prompts.get(*node).block?))).collect()
    }

    fn claim_page(&mut self, now: StepId, pages: &mut Pages) -> Option<PageId> {
        self.free_a_page(now, pages);
        pages.claim()
    }

    /// A prompt that starts goes on from this many positions of which the host had the state.
    pub(crate) fn note_loaded(&mut self, positions: u32) {
        self.totals.host_hit_tokens += u64::from(positions);
    }

    /// The copy that brings the entry from the host, if it is not known to have ended.
    pub(crate) fn loading(&self, hit: Hit) -> Option<TransferId> {
        self.on_device(hit.node)?.loading
    }

    /// An entry on the device that is to be copied to the host when there is time.
    pub(super) fn offer(&mut self, node: NodeId) {
        if !self.host.cut.is_some() {
            return;
        }
        let offers = &mut self.transfers.offers;
        if offers.len() == OFFERS_MAX {
            offers.pop_front();
        }
        offers.push_back(node);
    }

    /// The copies that begin with step `now`, and whether its rows wait for all that are under way.
    pub(crate) fn begin_transfers(&mut self, now: StepId) -> (Vec<Transfer>, bool) {
        while self.transfers.saves() < SAVES_MAX {
            let Some(node) = self.transfers.offers.pop_front() else { break };
            let Some(place) = self.on_device(node) else { continue };
            if place.taken_in >= now {
                self.transfers.offers.push_front(node);
                break;
            }
            self.save(node);
        }
        (std::mem::take(&mut self.transfers.planned), std::mem::take(&mut self.transfers.settles))
    }

    /// Copies an entry to the host, unless it is there or finds no room.
    fn save(&mut self, node: NodeId) {
        let Some(checkpoint) = self.saved_from(node) else { return };
        let path = self.path_to(node);
        let unknown: Vec<_> = path.iter().copied().filter(|node| self.prompts.get(*node).host_entries == 0).collect();
        // None of them goes to make room for the rest.
        path.iter().for_each(|node| self.prompts.get_mut(*node).host_entries += 1);
        let new: Vec<_> = path.iter().copied().filter(|node| self.prompts.get(*node).block.is_none()).collect();
        if !self.make_room_on_host(self.host.cut.checkpoint + new.len() as u32 * self.host.cut.unit) {
            self.forget_path_on_host(&path);
            return;
        }
        let units = if self.host.cut.unit > 0 { self.save_units(&new) } else { Vec::new() };
        let blocks: Vec<_> = (0..self.host.cut.checkpoint).map(|_| self.host.claim()).collect();
        let id = self.transfers.begin(Direction::Save, node, Vec::new());
        let entry = self.prompts.get_mut(node).entry.as_mut().expect("it was looked at above");
        let priority = self.host.order.enter(node, entry.value());
        entry.host = Some(OnHost { blocks: blocks.clone(), priority, saving: Some(id), loads: 0 });
        self.note_stored(CacheTier::Host, &unknown);
        self.transfers.planned.push(Transfer { id, direction: Direction::Save, checkpoint, blocks, units });
    }

    /// The checkpoint of an entry that is on the device whole, and not on the host.
    fn saved_from(&self, node: NodeId) -> Option<CheckpointId> {
        let entry = self.prompts.get(node).entry.as_ref().filter(|entry| entry.host.is_none())?;
        entry.device.as_ref().filter(|place| place.loading.is_none()).map(|place| place.checkpoint)
    }

    fn save_units(&mut self, nodes: &[NodeId]) -> Vec<(UnitPages, HostBlockId)> {
        let each = nodes.iter().map(|node| {
            let block = self.host.claim();
            let unit = self.prompts.get_mut(*node);
            unit.block = Some(block);
            (unit.pages.map(|page| page.expect("a unit before an entry has pages")), block)
        });
        each.collect()
    }

    /// Gives up entries on the host, those that are worth least first, until so many blocks are free.
    fn make_room_on_host(&mut self, blocks: u32) -> bool {
        if blocks > self.host.total() {
            return false;
        }
        while !self.host.has_free(blocks) {
            let idle = |node: &NodeId| self.on_host(*node).is_idle();
            let Some(node) = self.host.order.ascending().find(idle) else { return false };
            let place = self.leave_host(node);
            self.host.order.age(place.priority);
            self.totals.host_evicted += 1;
        }
        true
    }

    pub(super) fn on_host(&self, node: NodeId) -> &OnHost {
        let entry = self.prompts.get(node).entry.as_ref().expect("an entry that is named is there");
        entry.host.as_ref().expect("an entry in the host's order lies there")
    }

    pub(super) fn leave_host(&mut self, node: NodeId) -> OnHost {
        let unit = self.prompts.get_mut(node);
        let entry = unit.entry.as_mut().expect("an entry that is named is there");
        let place = entry.host.take().expect("it leaves once");
        if entry.device.is_none() {
            unit.entry = None;
        }
        self.host.order.leave(node, place.priority);
        place.blocks.iter().for_each(|block| self.host.release(*block));
        let path = self.path_to(node);
        let gone: Vec<_> = path.iter().copied().filter(|node| self.prompts.get(*node).host_entries == 1).collect();
        self.note_removed(CacheTier::Host, &gone);
        self.forget_path_on_host(&path);
        place
    }

    /// One entry less needs these units on the host.
    fn forget_path_on_host(&mut self, path: &[NodeId]) {
        for node in path {
            let unit = self.prompts.get_mut(*node);
            unit.host_entries -= 1;
            if unit.host_entries == 0
                && let Some(block) = unit.block.take()
            {
                self.host.release(block);
            }
        }
    }

    /// What is known of transfers and of the host's memory after a step.
    pub(crate) fn transferred(&mut self, progress: &HostProgress) {
        self.host.grow(progress.blocks);
        for FinishedTransfer { id, .. } in &progress.finished {
            let Some(at) = self.transfers.under_way.iter().position(|copy| copy.id == *id) else { continue };
            let copy = self.transfers.under_way.remove(at);
            let entry = self.entry_mut(copy.node);
            let place = entry.host.as_mut().expect("nothing is given up while it is copied");
            match copy.direction {
                Direction::Save => {
                    place.saving = None;
                    self.totals.saved += 1;
                }
                Direction::Load => {
                    place.loads -= 1;
                    if let Some(place) = entry.device.as_mut().filter(|place| place.loading == Some(*id)) {
                        place.loading = None;
                    }
                    self.totals.loaded += 1;
                }
            }
        }
    }
}

/// An entry that a prompt may go on from once it is back on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostHit {
    node: NodeId,
    /// Positions that need not be computed.
    pub(crate) positions: u32,
}
