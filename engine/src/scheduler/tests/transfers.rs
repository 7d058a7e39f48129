//! A device's copies to and from the host, at the latest time that a plan allows.
//!
//! A copy is noted with what it would read and overwrite, and made some steps later. Whatever has changed there meanwhile
//! had a new owner that should have waited, and the test fails.

use super::device::Memory;
use crate::ids::{CheckpointId, HostBlockId, PageId};
use crate::scheduler::SchedulerConfig;
use crate::step::{Direction, FinishedTransfer, StepOutcome, StepPlan, Transfer};
use std::collections::VecDeque;

/// A block: a unit's hashes, or a part of a checkpoint, which here is all of it.
type Block = Vec<u64>;

/// The host's blocks, and transfers that have not run.
pub(super) struct Copier {
    blocks: Vec<Block>,
    waiting: VecDeque<Waiting>,
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
        Self { blocks: vec![Block::new(); blocks as usize], waiting: VecDeque::new(), done: Vec::new() }
    }

    /// Is a checkpoint on its way, or with this plan?
    pub(super) fn loads(&self, checkpoint: CheckpointId, plan: &StepPlan) -> bool {
        let all = self.waiting.iter().map(|waiting| &waiting.transfer).chain(&plan.transfers);
        all.into_iter().any(|transfer| transfer.direction == Direction::Load && transfer.checkpoint == checkpoint)
    }

    /// Notes a plan's transfers; runs those whose time has come, or all.
    pub(super) fn begin(&mut self, plan: &StepPlan, all: bool, memory: &mut Memory<'_>) {
        self.waiting.iter_mut().for_each(|waiting| waiting.steps = waiting.steps.saturating_sub(1));
        for transfer in &plan.transfers {
            let blocks = transfer.blocks.iter().chain(transfer.units.iter().map(|(_, block)| block));
            assert!(blocks.into_iter().all(|block| block.0 < self.grown(plan)), "{transfer:?} is beyond the host");
            let (seen, steps) = (self.seen(transfer, memory), transfer.id.0 * 7 % 5);
            self.waiting.push_back(Waiting { transfer: transfer.clone(), steps, seen });
        }
        self.run(all, memory);
    }

    /// Runs what is due, and tells what ran: sometimes a step later.
    pub(super) fn report(&mut self, plan: &StepPlan, memory: &mut Memory<'_>, outcome: &mut StepOutcome) {
        if !plan.id.0.is_multiple_of(3) {
            outcome.host.finished = std::mem::take(&mut self.done);
        }
        self.run(false, memory);
        outcome.host.blocks = self.grown(plan);
    }

    /// It comes in pieces of five, one a step.
    fn grown(&self, plan: &StepPlan) -> u32 {
        (plan.id.0 as u32 * 5).min(self.blocks.len() as u32)
    }

    fn run(&mut self, all: bool, memory: &mut Memory<'_>) {
        while let Some(waiting) = self.waiting.pop_front_if(|waiting| all || waiting.steps == 0) {
            let Waiting { transfer, seen, .. } = waiting;
            assert!(self.seen(&transfer, memory) == seen, "memory of {transfer:?} changed under it");
            match transfer.direction {
                Direction::Save => self.save(&transfer, seen.0),
                Direction::Load => self.load(&transfer, memory),
            }
            self.done.push(FinishedTransfer { id: transfer.id, direction: transfer.direction, micros: 1 });
        }
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
