//! What outlives a step: recurrent states and convolution tails by slot, keys and values by page.

use super::KvType;
use super::attention::PAGE;
use super::history::History;
use super::shared::Shared;
use crate::ids::TokenId;
use crate::model::{LayerKind, ModelConfig};
use std::ops::Range;

/// Sizes of one slot and one page, in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreShape {
    gdn_layers: usize,
    attention_layers: usize,
    /// `[Hv, K, V]` of a layer.
    pub(super) state: usize,
    /// `[taps - 1, channels]` of a layer.
    pub(super) tail: usize,
    kv_heads: usize,
    /// Keys or values of one page, layer and head.
    head: usize,
}

impl StoreShape {
    pub(super) fn of(c: &ModelConfig) -> Self {
        let gdn_layers = c.layers.iter().filter(|k| **k == LayerKind::Gdn).count();
        Self {
            gdn_layers,
            attention_layers: c.layers.len() - gdn_layers,
            state: c.gdn.state_len(),
            tail: (c.gdn.conv_taps - 1) * c.gdn.channels(),
            kv_heads: c.attention.kv_heads,
            head: PAGE * c.attention.head_dim,
        }
    }

    /// Bytes of one slot.
    pub(super) fn slot_bytes(&self) -> u64 {
        (self.gdn_layers * (self.state + self.tail) * 4) as u64
    }

    /// Bytes of one page.
    pub(super) fn page_bytes(&self, kv: KvType) -> u64 {
        (self.page_len() * kv.bytes()) as u64
    }

    fn page_len(&self) -> usize {
        self.attention_layers * self.kv_heads * 2 * self.head
    }

    /// Place of the state of a slot's `layer`th GDN layer.
    pub(super) fn state_at(&self, slot: usize, layer: usize) -> Range<usize> {
        let at = (slot * self.gdn_layers + layer) * self.state;
        at..at + self.state
    }

    /// Place of the tail of a slot's `layer`th GDN layer.
    pub(super) fn tail_at(&self, slot: usize, layer: usize) -> Range<usize> {
        let at = (slot * self.gdn_layers + layer) * self.tail;
        at..at + self.tail
    }

    /// Place of a page's keys `[D, 32]` in the `layer`th attention layer.
    pub(super) fn keys_at(&self, page: usize, layer: usize, head: usize) -> Range<usize> {
        let at = ((page * self.attention_layers + layer) * self.kv_heads + head) * 2 * self.head;
        at..at + self.head
    }

    /// Place of a page's values `[32, D]`.
    pub(super) fn values_at(&self, page: usize, layer: usize, head: usize) -> Range<usize> {
        let keys = self.keys_at(page, layer, head);
        keys.end..keys.end + self.head
    }
}

/// Keys and values.
pub(super) enum Kv {
    F32(Shared<f32>),
    F16(Shared<u16>),
}

/// The memory itself.
pub(super) struct Store {
    pub(super) shape: StoreShape,
    pub(super) states: Shared<f32>,
    pub(super) tails: Shared<f32>,
    pub(super) kv: Kv,
    pub(super) slots: Vec<Slot>,
}

/// What the host knows of a slot.
#[derive(Clone, Default)]
pub(super) struct Slot {
    pub(super) history: History,
    /// The token that was sampled into this slot last.
    pub(super) sampled: Option<TokenId>,
}

impl Store {
    pub(super) fn new(shape: StoreShape, slots: usize, pages: usize, kv: KvType) -> Self {
        let len = pages * shape.page_len();
        Self {
            shape,
            states: Shared::new(slots * shape.gdn_layers * shape.state),
            tails: Shared::new(slots * shape.gdn_layers * shape.tail),
            kv: match kv {
                KvType::F32 => Kv::F32(Shared::new(len)),
                KvType::F16 => Kv::F16(Shared::new(len)),
            },
            slots: vec![Slot::default(); slots],
        }
    }

    /// State, tail and history as before the first token.
    pub(super) fn clear_slot(&mut self, slot: usize) {
        let (states, tails) = self.slot_ranges(slot);
        // SAFETY: `&mut self` excludes everybody else.
        unsafe {
            self.states.get_mut(states).fill(0.0);
            self.tails.get_mut(tails).fill(0.0);
        }
        self.slots[slot] = Slot::default();
    }

    /// State, tail and history; not the sampled token.
    pub(super) fn copy_slot(&mut self, from: usize, to: usize) {
        let ((from_states, from_tails), (to_states, to_tails)) = (self.slot_ranges(from), self.slot_ranges(to));
        self.states.copy_within(from_states, to_states.start);
        self.tails.copy_within(from_tails, to_tails.start);
        self.slots[to].history = self.slots[from].history.clone();
    }

    /// One page in every attention layer.
    pub(super) fn copy_page(&mut self, from: usize, to: usize) {
        let len = self.shape.page_len();
        match &mut self.kv {
            Kv::F32(kv) => kv.copy_within(from * len..(from + 1) * len, to * len),
            Kv::F16(kv) => kv.copy_within(from * len..(from + 1) * len, to * len),
        }
    }

    /// Fills a slot and some pages from `next`, which gives values of -1 to 1.
    pub(super) fn fill(&mut self, slot: usize, pages: impl Iterator<Item = usize>, next: &mut dyn FnMut() -> f32) {
        let (states, tails) = self.slot_ranges(slot);
        let len = self.shape.page_len();
        // SAFETY: `&mut self` excludes everybody else.
        unsafe {
            self.states.get_mut(states).iter_mut().for_each(|x| *x = next() * 0.1);
            self.tails.get_mut(tails).iter_mut().for_each(|x| *x = next());
            for page in pages {
                let range = page * len..(page + 1) * len;
                match &self.kv {
                    Kv::F32(kv) => kv.get_mut(range).iter_mut().for_each(|x| *x = next()),
                    Kv::F16(kv) => kv.get_mut(range).iter_mut().for_each(|x| *x = half::f16::from_f32(next()).to_bits()),
                }
            }
        }
    }

    fn slot_ranges(&self, slot: usize) -> (Range<usize>, Range<usize>) {
        let s = &self.shape;
        let range = |len: usize| slot * s.gdn_layers * len..(slot + 1) * s.gdn_layers * len;
        (range(s.state), range(s.tail))
    }
}
