//! What outlives a step: recurrent states and convolution tails by slot, keys and values by page. How much of each,
//! every block says.

pub(crate) mod drafted;
pub(crate) mod head;

use crate::PAGE_TOKENS;
use crate::backend::cpu::config::{CpuConfig, KvType};
use crate::backend::cpu::sampler::history::History;
use crate::backend::cpu::store::drafted::{DraftedRows, DraftedShape};
use crate::backend::cpu::store::head::{HeadSlot, LATE_MAX};
use crate::backend::cpu::team::shared::SharedBuffer;
use crate::ids::{CheckpointId, TokenId};
use crate::model::ModelConfig;
use std::ops::Range;

/// Positions of a page.
pub(crate) const PAGE: usize = PAGE_TOKENS as usize;

/// Sizes of one slot and one page, and where in them each block has its part, in elements.
#[derive(Clone, Debug)]
pub(crate) struct StoreShape {
    blocks: Vec<BlockRanges>,
    /// Recurrent states of a slot.
    states: usize,
    /// Convolution tails of a slot.
    tails: usize,
    /// Keys and values of a page.
    page: usize,
    /// Hidden state of a slot's last position, which a draft head reads; nothing without one.
    hidden: usize,
    drafted: DraftedShape,
}

/// What one block has of a slot and of a page.
#[derive(Clone, Debug)]
struct BlockRanges {
    state: Range<usize>,
    tail: Range<usize>,
    /// Where its keys and values begin in a page.
    kv: usize,
    /// Keys, or values, of one page and head.
    head: usize,
    cached: bool,
}

impl StoreShape {
    pub(crate) fn of(c: &ModelConfig) -> Self {
        let hidden = if c.draft.is_empty() { 0 } else { c.hidden };
        let drafted = DraftedShape::default();
        let mut shape = Self { blocks: Vec::new(), states: 0, tails: 0, page: 0, hidden, drafted };
        for block in c.blocks().chain(&c.draft) {
            let s = block.op.state();
            let (state, tail) = (shape.states..shape.states + s.recurrent, shape.tails..shape.tails + s.tail);
            (shape.states, shape.tails) = (state.end, tail.end);
            let (kv, head) = (shape.page, PAGE * s.kv_dim);
            shape.page += s.kv_heads * 2 * head;
            shape.drafted.push(s);
            shape.blocks.push(BlockRanges { state, tail, kv, head, cached: s.is_cached() });
        }
        shape
    }

    /// Bytes of one slot.
    pub(crate) fn slot_bytes(&self) -> u64 {
        ((self.states + self.tails + self.hidden) * 4) as u64
    }

    /// Bytes of hidden states that one slot keeps until the draft head reads them.
    pub(crate) fn late_bytes(&self) -> u64 {
        (LATE_MAX * self.hidden * 4) as u64
    }

    /// Bytes of what one drafted row leaves until it counts.
    pub(crate) fn drafted_bytes(&self) -> u64 {
        self.drafted.row_bytes()
    }

    /// Bytes of one page.
    pub(crate) fn page_bytes(&self, kv: KvType) -> u64 {
        (self.page * kv.bytes()) as u64
    }

    /// The `n`th block that has recurrent state.
    ///
    /// # Panics
    /// If there are fewer.
    pub(crate) fn recurrent_block(&self, n: usize) -> usize {
        let mut all = (0..self.blocks.len()).filter(|i| !self.blocks[*i].state.is_empty());
        all.nth(n).expect("a model has as many recurrent blocks as are asked for")
    }

    /// The `n`th block that has keys and values.
    ///
    /// # Panics
    /// If there are fewer.
    pub(crate) fn cached_block(&self, n: usize) -> usize {
        let mut all = (0..self.blocks.len()).filter(|i| self.blocks[*i].cached);
        all.nth(n).expect("a model has as many attention blocks as are asked for")
    }

    /// Place of a slot's state in a block.
    pub(crate) fn state_at(&self, slot: usize, block: usize) -> Range<usize> {
        moved(&self.blocks[block].state, slot * self.states)
    }

    /// Place of a slot's tail in a block.
    pub(crate) fn tail_at(&self, slot: usize, block: usize) -> Range<usize> {
        moved(&self.blocks[block].tail, slot * self.tails)
    }

    /// Place of a page's keys `[D, 32]` in a block.
    pub(crate) fn keys_at(&self, page: usize, block: usize, head: usize) -> Range<usize> {
        let place = &self.blocks[block];
        let at = page * self.page + place.kv + head * 2 * place.head;
        at..at + place.head
    }

    /// Place of a page's values `[32, D]`.
    pub(crate) fn values_at(&self, page: usize, block: usize, head: usize) -> Range<usize> {
        let keys = self.keys_at(page, block, head);
        keys.end..keys.end + self.blocks[block].head
    }
}

fn moved(range: &Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

/// Keys and values in the type that they are kept in.
pub(crate) enum Kv {
    F32(SharedBuffer<f32>),
    F16(SharedBuffer<u16>),
}

/// What sequences leave behind, for all slots and pages.
pub(crate) struct Store {
    pub(crate) shape: StoreShape,
    pub(crate) states: SharedBuffer<f32>,
    pub(crate) tails: SharedBuffer<f32>,
    pub(crate) kv: Kv,
    /// Of each slot's last position, after the final norm, for a draft head.
    pub(crate) hidden: SharedBuffer<f32>,
    /// What the head's next rows of each slot read, [`LATE_MAX`] a slot.
    pub(crate) late: SharedBuffer<f32>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) drafted: DraftedRows,
}

/// What the host knows of a slot.
#[derive(Clone, Default)]
pub(crate) struct Slot {
    pub(crate) history: History,
    /// The token that was sampled into this slot last.
    pub(crate) sampled: Option<TokenId>,
    /// Drafted rows of its last piece that count and that its recurrent states do not hold yet.
    pub(crate) unfolded: usize,
    pub(crate) head: HeadSlot,
}

impl Store {
    /// Checkpoints lie behind the slots: the `n`th is as a slot with number `slots + n`.
    pub(crate) fn new(shape: StoreShape, config: &CpuConfig) -> Self {
        let (slots, checkpoints, pages) = (config.slots as usize, config.checkpoints as usize, config.pages as usize);
        let len = pages * shape.page;
        Self {
            states: SharedBuffer::new((slots + checkpoints) * shape.states),
            tails: SharedBuffer::new((slots + checkpoints) * shape.tails),
            kv: match config.kv_type() {
                KvType::F32 => Kv::F32(SharedBuffer::new(len)),
                KvType::F16 => Kv::F16(SharedBuffer::new(len)),
            },
            hidden: SharedBuffer::new((slots + checkpoints) * shape.hidden),
            late: SharedBuffer::new(slots * LATE_MAX * shape.hidden),
            slots: vec![Slot::default(); slots],
            drafted: DraftedRows::new(shape.drafted.clone(), slots, config.draft_room().piece_max as usize),
            shape,
        }
    }

    /// State, tail and history as before the first token.
    pub(crate) fn clear_slot(&mut self, slot: usize) {
        let (states, tails) = self.slot_ranges(slot);
        // SAFETY: `&mut self` excludes everybody else.
        unsafe {
            self.states.get_mut(states).fill(0.0);
            self.tails.get_mut(tails).fill(0.0);
            self.hidden.get_mut(self.hidden_at(slot)).fill(0.0);
        }
        self.slots[slot] = Slot::default();
    }

    /// State, tail and history; not the sampled token.
    pub(crate) fn copy_slot(&mut self, from: usize, to: usize) {
        assert_eq!(self.slots[from].unfolded, 0, "nobody goes on from behind drafts");
        self.copy_state(from, to);
        self.slots[to].history = self.slots[from].history.clone();
        self.slots[to].unfolded = 0;
        assert!(self.slots[from].head.late.is_empty(), "a prompt's rows are read at once");
        self.slots[to].head = HeadSlot { late: Vec::new(), ..self.slots[from].head };
    }

    /// State and tail of a checkpoint, and the history that goes with them.
    pub(crate) fn restore(&mut self, checkpoint: CheckpointId, to: usize, tokens: &[TokenId]) {
        self.copy_state(self.place_of(checkpoint), to);
        self.slots[to] = Slot { history: History::of_prompt(tokens), ..Slot::default() };
    }

    /// From now on the first `count` drafted rows of a slot's last piece belong to its past: the convolutions' tails at
    /// once, recurrent states when its next piece reads them.
    pub(crate) fn keep_drafted(&mut self, slot: usize, count: usize) {
        self.slots[slot].unfolded = count;
        for block in 0..self.shape.blocks.len() {
            let range = self.shape.tail_at(slot, block);
            // SAFETY: `&mut self` excludes everybody else.
            self.drafted.advance_tail(slot, count, block, unsafe { self.tails.get_mut(range) });
        }
    }

    /// Where a checkpoint lies, as if it were a slot.
    pub(crate) fn place_of(&self, checkpoint: CheckpointId) -> usize {
        self.slots.len() + checkpoint.0 as usize
    }

    fn copy_state(&mut self, from: usize, to: usize) {
        let ((from_states, from_tails), (to_states, to_tails)) = (self.slot_ranges(from), self.slot_ranges(to));
        self.states.copy_within(from_states, to_states.start);
        self.tails.copy_within(from_tails, to_tails.start);
        let (from, to) = (self.hidden_at(from), self.hidden_at(to));
        self.hidden.copy_within(from, to.start);
    }

    fn hidden_at(&self, slot: usize) -> Range<usize> {
        slot * self.shape.hidden..(slot + 1) * self.shape.hidden
    }

    /// One page in every block.
    pub(crate) fn copy_page(&mut self, from: usize, to: usize) {
        let len = self.shape.page;
        match &mut self.kv {
            Kv::F32(kv) => kv.copy_within(from * len..(from + 1) * len, to * len),
            Kv::F16(kv) => kv.copy_within(from * len..(from + 1) * len, to * len),
        }
    }

    /// Fills a slot and some pages from `next`, which gives values of -1 to 1.
    pub(crate) fn fill(&mut self, slot: usize, pages: impl Iterator<Item = usize>, next: &mut dyn FnMut() -> f32) {
        let (states, tails) = self.slot_ranges(slot);
        let len = self.shape.page;
        // SAFETY: `&mut self` excludes everybody else.
        unsafe {
            self.states.get_mut(states).iter_mut().for_each(|x| *x = next() * 0.1);
            self.tails.get_mut(tails).iter_mut().for_each(|x| *x = next());
            for page in pages {
                let range = page * len..(page + 1) * len;
                match &self.kv {
                    Kv::F32(kv) => kv.get_mut(range).iter_mut().for_each(|x| *x = next()),
                    Kv::F16(kv) => {
                        kv.get_mut(range).iter_mut().for_each(|x| *x = half::f16::from_f32(next()).to_bits())
                    }
                }
            }
        }
    }

    /// Fills everything with NaN, as memory that was never written.
    pub(crate) fn poison(&mut self) {
        let (states, tails) = (0..self.states.len(), 0..self.tails.len());
        // SAFETY: `&mut self` excludes everybody else.
        unsafe {
            self.states.get_mut(states).fill(f32::NAN);
            self.tails.get_mut(tails).fill(f32::NAN);
            self.hidden.get_mut(0..self.hidden.len()).fill(f32::NAN);
            self.late.get_mut(0..self.late.len()).fill(f32::NAN);
            self.drafted.poison();
            match &self.kv {
                Kv::F32(kv) => kv.get_mut(0..kv.len()).fill(f32::NAN),
                Kv::F16(kv) => kv.get_mut(0..kv.len()).fill(half::f16::NAN.to_bits()),
            }
        }
    }

    fn slot_ranges(&self, slot: usize) -> (Range<usize>, Range<usize>) {
        let range = |len: usize| slot * len..(slot + 1) * len;
        (range(self.shape.states), range(self.shape.tails))
    }
}
