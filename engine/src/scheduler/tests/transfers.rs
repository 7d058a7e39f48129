//! A device's copies to and from the host, at the latest time that a plan allows.
//!
//! A copy is noted with what it would read and overwrite, and made some steps later. Whatever has changed there
//! meanwhile had a new owner that should have waited, and the test fails. Each direction has an order of its own, and
//! they do not wait for each other.

use super::device::{Memory, mix};
use crate::ids::{HostBlockId, PageId, TransferId};
use crate::scheduler::SchedulerConfig;
use crate::step::{Direction, FinishedTransfer, StepOutcome, StepPlan, Transfer};
use std::collections::VecDeque;

/// Steps that a transfer takes are fewer.
const DELAY_MAX: u64 = 12;

/// A block: a unit's hashes, or a part of a checkpoint, which here is all of it.
type Block = Vec<u64>;

/// The host's blocks, and transfers that have not run.
pub(super) struct Copier {
    blocks: Vec<Block>,
    /// Transfers that wait, by direction.
    waiting: [VecDeque<Waiting>; 2],
    /// What delays are drawn from.
    salt: u64,
    done: Vec<FinishedTransfer>,
}

struct Waiting {
    transfer: Transfer,
    /// Steps until it runs.
    steps: u64,
    /// What it reads, and what is overwritten.
    seen: (Vec<Block>, Vec<Block>),
}

impl Copier {
    pub(super) fn new(config: &SchedulerConfig) -> Self {
        // Less than the device has, so that the host gives up entries too.
        let blocks = if config.prefix.host.is_some() { config.pages } else { 0 };
        let salt = mix(u64::from(config.pages), u64::from(config.step_tokens));
        Self { blocks: vec![Block::new(); blocks as usize], waiting: Default::default(), salt, done: Vec::new() }
    }

    /// Runs a load, if it has not run, and those before it.
    pub(super) fn wait_for(&mut self, load: TransferId, memory: &mut Memory<'_>) {
        while self.waiting[Direction::Load as usize].iter().any(|waiting| waiting.transfer.id == load) {
            self.run_first(Direction::Load, memory);
        }
    }

    /// Notes a plan's transfers. If it settles, all that are under way run before them, and they before its rows.
    pub(super) fn begin(&mut self, plan: &StepPlan, memory: &mut Memory<'_>) {
        self.waiting.iter_mut().flatten().for_each(|waiting| waiting.steps = waiting.steps.saturating_sub(1));
        if plan.settles {
            self.run_all(memory);
        }
        for transfer in &plan.transfers {
            let blocks = transfer.blocks.iter().chain(transfer.units.iter().map(|(_, block)| block));
            assert!(blocks.into_iter().all(|block| block.0 < self.grown(plan)), "{transfer:?} is beyond the host");
            let (seen, steps) = (self.seen(transfer, memory), mix(self.salt, transfer.id.0) % DELAY_MAX);
            self.waiting[transfer.direction as usize].push_back(Waiting { transfer: transfer.clone(), steps, seen });
        }
        if plan.settles {
            self.run_all(memory);
        }
        self.run(memory);
    }

    /// Runs what is due, and tells what ran: sometimes a step later.
    pub(super) fn report(&mut self, plan: &StepPlan, memory: &mut Memory<'_>, outcome: &mut StepOutcome) {
        if !plan.id.0.is_multiple_of(3) {
            outcome.host.finished = std::mem::take(&mut self.done);
        }
        self.run(memory);
        outcome.host.blocks = self.grown(plan);
    }

    /// It comes in pieces of five, one a step.
    fn grown(&self, plan: &StepPlan) -> u32 {
        (plan.id.0 as u32 * 5).min(self.blocks.len() as u32)
    }

    fn run(&mut self, memory: &mut Memory<'_>) {
        for direction in [Direction::Save, Direction::Load] {
            while self.waiting[direction as usize].front().is_some_and(|waiting| waiting.steps == 0) {
                self.run_first(direction, memory);
            }
        }
    }

    fn run_all(&mut self, memory: &mut Memory<'_>) {
        for direction in [Direction::Load, Direction::Save] {
            while !self.waiting[direction as usize].is_empty() {
                self.run_first(direction, memory);
            }
        }
    }

    fn run_first(&mut self, direction: Direction, memory: &mut Memory<'_>) {
        let Some(Waiting { transfer, seen, .. }) = self.waiting[direction as usize].pop_front() else { return };
        assert!(self.seen(&transfer, memory) == seen, "memory of {transfer:?} changed under it");
        match direction {
            Direction::Save => self.save(&transfer, seen.0),
            Direction::Load => self.load(&transfer, memory),
        }
        self.done.push(FinishedTransfer { id: transfer.id, direction, micros: 1 });
    }

    fn seen(&self, transfer: &Transfer, memory: &Memory<'_>) -> (Vec<Block>, Vec<Block>) {
        let device = self.on_device(transfer, memory);
        let host = transfer.blocks.iter().chain(transfer.units.iter().map(|(_, block)| block));
        let host = host.map(|block| self.blocks[block.0 as usize].clone()).collect();
        match transfer.direction {
            Direction::Save => (device, host),
            Direction::Load => (host, device),
        }
    }

    fn on_device(&self, transfer: &Transfer, memory: &Memory<'_>) -> Vec<Block> {
        let checkpoint = memory.checkpoints[transfer.checkpoint.0 as usize].clone();
        let unit = |pages: &[PageId]| pages.iter().flat_map(|page| memory.pages[page.0 as usize]).collect();
        let units = transfer.units.iter().map(|(pages, _)| unit(pages));
        std::iter::repeat_n(checkpoint, transfer.blocks.len()).chain(units).collect()
    }

    fn save(&mut self, transfer: &Transfer, read: Vec<Block>) {
        let blocks = transfer.blocks.iter().chain(transfer.units.iter().map(|(_, block)| block));
        blocks.zip(read).for_each(|(block, bytes)| self.blocks[block.0 as usize] = bytes);
    }

    fn load(&mut self, transfer: &Transfer, memory: &mut Memory<'_>) {
        let block = |block: &HostBlockId| self.blocks[block.0 as usize].clone();
        let parts: Vec<_> = transfer.blocks.iter().map(block).collect();
        assert!(parts.windows(2).all(|two| two[0] == two[1]), "a checkpoint's blocks are its own");
        memory.checkpoints[transfer.checkpoint.0 as usize] = parts[0].clone();
        for (pages, from) in &transfer.units {
            let unit = block(from);
            for (page, hashes) in pages.iter().zip(unit.chunks_exact(unit.len() / pages.len())) {
                memory.pages[page.0 as usize] = hashes.try_into().expect("a page's hashes");
            }
        }
    }
}
