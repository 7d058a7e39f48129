//! A step's plan, checked and laid out in rows. How operators divide them among threads, each says itself.

use crate::backend::BackendError;
use crate::backend::cpu::pass::adapted::AdaptedRows;
use crate::backend::cpu::store::Store;
use crate::ids::{SeqId, TokenId};
use crate::step::{ExpertCut, Form, Piece, PieceTokens, StepPlan};

/// All rows of a step.
#[derive(Default)]
pub(crate) struct RowBatch {
    /// Token of each row.
    pub(crate) tokens: Vec<TokenId>,
    /// Absolute position of each row.
    pub(crate) positions: Vec<u32>,
    pub(crate) pieces: Vec<BatchPiece>,
    /// `(i, i)` of each row: the pairs of a dense product.
    pub(crate) pairs: Vec<(u32, u32)>,
    /// Those that have an adapter, if any have.
    pub(crate) adapted: Option<AdaptedRows>,
}

/// Consecutive rows of one sequence.
pub(crate) struct BatchPiece {
    pub(crate) seq: SeqId,
    pub(crate) first_row: usize,
    pub(crate) rows: usize,
    /// Of these the last ones, whose tokens are drafted.
    pub(crate) drafted: usize,
    /// Drafted rows of the slot's piece before that count, and which its recurrent states do not hold yet.
    pub(crate) unfolded: usize,
    pub(crate) start: usize,
    /// The first position that its rows attend to.
    pub(crate) from: usize,
    pub(crate) form: Form,
    pub(crate) slot: usize,
    pub(crate) pages: Vec<usize>,
    pub(crate) experts: Option<ExpertCut>,
    /// Rows after which the state is kept, and where, as if it were a slot.
    pub(crate) exports: Vec<(usize, usize)>,
}

/// Consecutive rows of one slot that the draft head reads.
pub(crate) struct HeadPiece<'a> {
    pub(crate) seq: SeqId,
    pub(crate) slot: usize,
    pub(crate) start: usize,
    /// The first position that they attend to.
    pub(crate) from: usize,
    pub(crate) tokens: &'a [TokenId],
    pub(crate) pages: &'a [usize],
}

impl BatchPiece {
    /// Rows that count whatever is sampled.
    pub(crate) fn certain(&self) -> usize {
        self.rows - self.drafted
    }
}

impl RowBatch {
    /// Lays out a plan that [`check`](crate::backend::check::check) has passed and that has its tokens.
    pub(crate) fn new(plan: &StepPlan, store: &Store) -> Result<Self, BackendError> {
        let mut batch = Self { pieces: Vec::with_capacity(plan.pieces.len()), ..Self::default() };
        for piece in &plan.pieces {
            batch.push(piece, store).map_err(|why| BackendError::Plan { step: plan.id, why })?;
        }
        batch.pairs = (0..batch.rows() as u32).map(|i| (i, i)).collect();
        let adapted = plan.pieces.iter().zip(&batch.pieces).filter_map(|(piece, rows)| {
            piece.adapter.as_ref().map(|adapter| (rows.first_row..rows.first_row + rows.rows, adapter))
        });
        batch.adapted = AdaptedRows::of(adapted);
        Ok(batch)
    }

    /// Rows of the draft head.
    pub(crate) fn of_head<'a>(pieces: impl Iterator<Item = HeadPiece<'a>>) -> Self {
        let mut batch = Self::default();
        for piece in pieces {
            let (first_row, rows) = (batch.rows(), piece.tokens.len());
            batch.tokens.extend(piece.tokens);
            batch.positions.extend((piece.start as u32..).take(rows));
            batch.pieces.push(BatchPiece {
                seq: piece.seq,
                first_row,
                rows,
                drafted: 0,
                unfolded: 0,
                start: piece.start,
                from: piece.from,
                form: Form::Recurrent,
                slot: piece.slot,
                pages: piece.pages.to_vec(),
                experts: None,
                exports: Vec::new(),
            });
        }
        batch.pairs = (0..batch.rows() as u32).map(|i| (i, i)).collect();
        batch
    }

    /// Rows of the step.
    pub(crate) fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// The piece that a row belongs to.
    pub(crate) fn piece_of(&self, row: usize) -> &BatchPiece {
        &self.pieces[self.pieces.partition_point(|p| p.first_row <= row) - 1]
    }

    fn push(&mut self, piece: &Piece, store: &Store) -> Result<(), String> {
        let (first_row, slot) = (self.rows(), piece.slot.0 as usize);
        match &piece.tokens {
            PieceTokens::Known(ids) => self.tokens.extend(ids),
            PieceTokens::Sampled => {
                let sampled = store.slots[slot].sampled;
                self.tokens.push(
                    sampled.ok_or_else(|| format!("slot {slot} of sequence {} has sampled no token", piece.seq))?,
                );
            }
        }
        self.tokens.extend(&piece.drafts);
        self.positions.extend((piece.start..).take(self.tokens.len() - first_row));
        self.pieces.push(BatchPiece {
            seq: piece.seq,
            first_row,
            rows: self.tokens.len() - first_row,
            drafted: piece.drafts.len(),
            unfolded: store.slots[slot].unfolded,
            start: piece.start as usize,
            from: 0,
            form: piece.form,
            slot,
            pages: piece.pages.iter().map(|p| p.0 as usize).collect(),
            experts: piece.experts,
            exports: piece
                .exports
                .iter()
                .map(|e| ((e.position - piece.start) as usize, store.place_of(e.to)))
                .collect(),
        });
        Ok(())
    }
}
