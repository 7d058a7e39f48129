//! A step's plan, checked and laid out in rows.

use super::attention::{PAGE, QUERIES_MAX};
use super::store::Store;
use crate::backend::BackendError;
use crate::ids::{SeqId, TokenId};
use crate::model::{AttentionConfig, GdnConfig, ModelConfig};
use crate::step::{ExpertCut, Form, Piece, PieceTokens, StepPlan};

/// All rows of a step and how its work divides.
pub(super) struct Batch {
    /// Token of each row.
    pub(super) tokens: Vec<TokenId>,
    /// Absolute position of each row.
    pub(super) positions: Vec<u32>,
    pub(super) pieces: Vec<BatchPiece>,
    /// `(i, i)` of each row: the pairs of a dense product.
    pub(super) pairs: Vec<(u32, u32)>,
    pub(super) gdn_jobs: Vec<GdnPart>,
    pub(super) attention_jobs: Vec<AttentionPart>,
    /// Units and cost of each job, for sharing.
    pub(super) gdn_costs: Vec<(usize, u64)>,
    pub(super) attention_costs: Vec<(usize, u64)>,
}

/// Consecutive rows of one sequence.
pub(super) struct BatchPiece {
    pub(super) seq: SeqId,
    pub(super) first_row: usize,
    pub(super) rows: usize,
    pub(super) start: usize,
    pub(super) form: Form,
    pub(super) slot: usize,
    pub(super) pages: Vec<usize>,
    pub(super) experts: Option<ExpertCut>,
}

/// Value heads `heads` (a range of `GdnHeads::order`) of a piece; all share a key head.
pub(super) struct GdnPart {
    pub(super) piece: usize,
    pub(super) key_head: usize,
    pub(super) heads: std::ops::Range<usize>,
}

/// Some rows and query heads of a piece.
pub(super) struct AttentionPart {
    pub(super) piece: usize,
    pub(super) row: usize,
    pub(super) rows: usize,
    pub(super) kv_head: usize,
    pub(super) first_head: usize,
    pub(super) heads: usize,
}

/// Value heads sorted by key head.
pub(super) fn heads_by_key(c: &GdnConfig) -> Vec<usize> {
    let mut order: Vec<usize> = (0..c.value_heads).collect();
    order.sort_by_key(|h| c.key_head(*h));
    order
}

impl Batch {
    /// Lays out a plan that [`check`] has passed and that has its tokens.
    pub(super) fn new(plan: &StepPlan, store: &Store, c: &ModelConfig, threads: usize) -> Result<Self, BackendError> {
        let mut batch = Batch {
            tokens: Vec::new(),
            positions: Vec::new(),
            pieces: Vec::with_capacity(plan.pieces.len()),
            pairs: Vec::new(),
            gdn_jobs: Vec::new(),
            attention_jobs: Vec::new(),
            gdn_costs: Vec::new(),
            attention_costs: Vec::new(),
        };
        for piece in &plan.pieces {
            batch.push(piece, store).map_err(|why| BackendError::Plan { step: plan.id, why })?;
        }
        batch.pairs = (0..batch.rows() as u32).map(|i| (i, i)).collect();
        batch.divide_gdn(&c.gdn, threads);
        batch.divide_attention(&c.attention);
        Ok(batch)
    }

    /// Rows of the step.
    pub(super) fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// The piece that a row belongs to.
    pub(super) fn piece_of(&self, row: usize) -> &BatchPiece {
        &self.pieces[self.pieces.partition_point(|p| p.first_row <= row) - 1]
    }

    fn push(&mut self, piece: &Piece, store: &Store) -> Result<(), String> {
        let (first_row, slot) = (self.rows(), piece.slot.0 as usize);
        match &piece.tokens {
            PieceTokens::Known(ids) => self.tokens.extend(ids),
            PieceTokens::Sampled => {
                let sampled = store.slots[slot].sampled;
                self.tokens.push(sampled.ok_or_else(|| format!("slot {slot} of sequence {} has sampled no token", piece.seq))?);
            }
        }
        self.positions.extend((piece.start..).take(self.tokens.len() - first_row));
        self.pieces.push(BatchPiece {
            seq: piece.seq,
            first_row,
            rows: self.tokens.len() - first_row,
            start: piece.start as usize,
            form: piece.form,
            slot,
            pages: piece.pages.iter().map(|p| p.0 as usize).collect(),
            experts: piece.experts,
        });
        Ok(())
    }

    fn divide_gdn(&mut self, c: &GdnConfig, threads: usize) {
        let ratio = c.value_heads / c.key_heads;
        // Value heads of one key head share its convolution; they part only where there would be too little to share.
        let step = if self.pieces.len() * c.key_heads < 2 * threads { 1 } else { ratio };
        for (i, piece) in self.pieces.iter().enumerate() {
            for key_head in 0..c.key_heads {
                for first in (0..ratio).step_by(step) {
                    let heads = key_head * ratio + first..key_head * ratio + first + step;
                    self.gdn_costs.push((1, (piece.rows * heads.len()) as u64));
                    self.gdn_jobs.push(GdnPart { piece: i, key_head, heads });
                }
            }
        }
    }

    fn divide_attention(&mut self, c: &AttentionConfig) {
        let group = c.heads / c.kv_heads;
        for (i, piece) in self.pieces.iter().enumerate() {
            // A lone row parts its heads among threads; rows of a prompt read each page together.
            let heads = if piece.rows == 1 { group.min(4) } else { group.min(QUERIES_MAX) };
            let rows = (QUERIES_MAX / heads).max(1);
            for kv_head in 0..c.kv_heads {
                for row in (0..piece.rows).step_by(rows) {
                    for first in (0..group).step_by(heads) {
                        let (rows, heads) = (rows.min(piece.rows - row), heads.min(group - first));
                        let first_head = kv_head * group + first;
                        self.attention_costs.push((1, (rows * heads * ((piece.start + row) / PAGE + 1)) as u64));
                        self.attention_jobs.push(AttentionPart { piece: i, row, rows, kv_head, first_head, heads });
                    }
                }
            }
        }
    }
}
