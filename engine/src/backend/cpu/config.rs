//! Sizes of a CPU backend, and what follows from them for any model.

use crate::step::DraftRoom;

/// Rows whose logits are held at once, when that is more than there are slots: prompt scores go in blocks of it.
const LOGIT_ROWS: usize = 32;
/// Drafted tokens of a step, of all sequences together, that there is room for at least where any are taken.
const STEP_DRAFTS_MIN: u32 = 16;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// 32 bits, the type that they are computed in.
    F32,
    /// Half the bytes; rounds to 11 bits.
    F16,
}

impl KvType {
    /// Bytes of one key or value element.
    pub(crate) fn bytes(self) -> usize {
        match self {
            KvType::F32 => 4,
            KvType::F16 => 2,
        }
    }
}

/// Sizes of a CPU backend; all counts are positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuConfig {
    /// Threads of a step, the launching one included.
    pub threads: usize,
    /// How many sequences can have state at once.
    pub slots: u32,
    /// How many states the prefix cache can keep.
    pub checkpoints: u32,
    /// How many pages of keys and values there are.
    pub pages: u32,
    /// Storage of the KV cache; `exact` takes `F32` whatever stands here.
    pub kv_type: KvType,
    /// Decoded weights and f32 activations, for comparisons.
    pub exact: bool,
    /// Rows one step may have.
    pub step_rows_max: u32,
    /// Positions a sequence may have.
    pub context: u32,
    /// Drafted tokens that may stand behind one sequence's own; 0 takes none.
    pub drafts: u32,
    /// Guesses of the model's draft head are wanted, where it has one.
    pub draft_head: bool,
}

impl CpuConfig {
    /// Storage of the KV cache, `exact` considered.
    pub(crate) fn kv_type(&self) -> KvType {
        if self.exact { KvType::F32 } else { self.kv_type }
    }

    /// Rows whose logits are held at once.
    pub(crate) fn logit_rows(&self) -> usize {
        let drafts = if self.drafts == 0 { 0 } else { STEP_DRAFTS_MIN };
        LOGIT_ROWS.max(self.slots.saturating_add(drafts) as usize)
    }

    /// Drafted tokens that steps may have. Each has a row of logits of its own.
    pub fn draft_room(&self) -> DraftRoom {
        if self.drafts == 0 {
            return DraftRoom::default();
        }
        let step_max = self.logit_rows() as u32 - self.slots;
        let rows_max = self.slots + step_max;
        let (piece_max, guesses, follow_rows_max) = (self.drafts, self.draft_head, rows_max);
        DraftRoom { piece_max, step_max, rows_max, penalties: true, guesses, follow_rows_max }
    }
}
