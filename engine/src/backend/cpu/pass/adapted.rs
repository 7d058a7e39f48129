//! What adapters add to products: `scale * B (A x)` for the rows of pieces that have one, and nothing for the others.
//!
//! Before the products of matrices that read one input, the team makes `A x` of all of them once: its threads divide
//! the adapters' rows, so that each reads the adapters of few. Then every thread adds its own columns of `B (A x)`. The
//! sums are those of one row, so neither threads nor the batch show in a result.

use crate::adapter::{AdaptedMatrix, Adapter, LINE, ResidentAdapter};
use crate::backend::cpu::matmul::RowsView;
use crate::backend::cpu::simd::low_rank::{Expand, Reduce};
use crate::backend::cpu::team::pool::Team;
use crate::backend::cpu::team::shared::SharedBuffer;
use std::ops::Range;
use std::sync::Arc;

/// The most matrices that read one input.
const MATRICES_MAX: usize = 4;

/// The rows of a pass that have an adapter.
pub(crate) struct AdaptedRows {
    /// The rows by their adapters.
    groups: Vec<AdapterRows>,
    /// `A x`, `[MATRICES_MAX, rows, lanes]`, the rows in the order of the groups.
    reduced: SharedBuffer<f32>,
    /// How many rows have one.
    rows: usize,
    /// Those of the largest rank, in whole lines.
    lanes: usize,
}

/// The rows of one adapter.
struct AdapterRows {
    adapter: Arc<Adapter>,
    /// How many rows the groups before it have.
    first: usize,
    /// Each with its request's factor.
    rows: Vec<(usize, f32)>,
}

/// A product of all rows with a matrix that adapters may change.
#[derive(Clone, Copy)]
pub(crate) struct AdaptedProduct<'a> {
    /// The block among all.
    pub(crate) block: usize,
    pub(crate) matrix: AdaptedMatrix,
    /// What was made, `[rows, out]`.
    pub(crate) made: &'a SharedBuffer<f32>,
}

impl AdaptedRows {
    /// Those of some pieces, each with its rows; `None` if no row has one.
    pub(crate) fn of<'a>(pieces: impl Iterator<Item = (Range<usize>, &'a ResidentAdapter)>) -> Option<Self> {
        let mut groups: Vec<AdapterRows> = Vec::new();
        for (rows, ResidentAdapter { adapter, scale, .. }) in pieces {
            let at = groups.iter().position(|group| group.adapter.number == adapter.number).unwrap_or_else(|| {
                groups.push(AdapterRows { adapter: adapter.clone(), first: 0, rows: Vec::new() });
                groups.len() - 1
            });
            groups[at].rows.extend(rows.map(|row| (row, *scale)));
        }
        let mut rows = 0;
        for group in &mut groups {
            group.first = rows;
            rows += group.rows.len();
        }
        let lanes = groups.iter().map(|group| group.adapter.rank_max()).max()?.next_multiple_of(LINE);
        Some(Self { groups, reduced: SharedBuffer::new(MATRICES_MAX * rows * lanes), rows, lanes })
    }

    /// This thread's share of `A x`, for the matrices of a block that read `x`. Before the next barrier nothing looks
    /// at it.
    pub(crate) fn reduce(&self, team: Team, block: usize, matrices: &[AdaptedMatrix], x: RowsView<'_>) {
        let items = self.groups.iter().flat_map(|group| matrices.iter().map(|_| (group.rows.len(), 1)));
        let items: Vec<_> = items.collect();
        let mut inputs = Vec::new();
        team.share_costs(&items, |item, units| {
            let (group, matrix) = (&self.groups[item / matrices.len()], matrices[item % matrices.len()]);
            let Some(part) = group.adapter.part(block, matrix) else { return };
            inputs.clear();
            // SAFETY: `x` was finished before the last barrier.
            inputs.extend(
                group.rows[units.clone()].iter().map(|(row, scale)| unsafe { (x.row(*row), part.scale * scale) }),
            );
            let at = self.place(matrix, group.first + units.start..group.first + units.end);
            // SAFETY: the rows of the matrix are this thread's share.
            let made = unsafe { self.reduced.get_mut(at) };
            Reduce { part, rows: &inputs, made, stride: self.lanes }.run();
        });
    }

    /// Where `A x` of some rows is.
    fn place(&self, matrix: AdaptedMatrix, rows: Range<usize>) -> Range<usize> {
        let first = place_of(matrix) * self.rows;
        (first + rows.start) * self.lanes..(first + rows.end) * self.lanes
    }
}

impl AdaptedProduct<'_> {
    /// Adds to the columns `cols`, which are this thread's, what the adapters of rows make of [`AdaptedRows::reduce`].
    pub(crate) fn add(&self, adapted: Option<&AdaptedRows>, cols: Range<usize>) {
        let Some(adapted) = adapted.filter(|_| !cols.is_empty()) else { return };
        let mut out = Vec::new();
        for group in &adapted.groups {
            let Some(part) = group.adapter.part(self.block, self.matrix) else { continue };
            out.clear();
            for (row, _) in &group.rows {
                let at = row * part.out();
                // SAFETY: the columns are this thread's, and a row has one adapter.
                out.push(unsafe { self.made.get_mut(at + cols.start..at + cols.end) });
            }
            let place = adapted.place(self.matrix, group.first..group.first + group.rows.len());
            // SAFETY: it was made before the last barrier.
            let reduced = unsafe { adapted.reduced.get(place) };
            Expand { part, cols: cols.clone(), reduced, stride: adapted.lanes, out: &mut out }.run();
        }
    }
}

/// The place of a matrix among those that read one input.
fn place_of(matrix: AdaptedMatrix) -> usize {
    match matrix {
        AdaptedMatrix::Qkv | AdaptedMatrix::Query | AdaptedMatrix::Gate => 0,
        AdaptedMatrix::Out | AdaptedMatrix::Down => 0,
        AdaptedMatrix::Z | AdaptedMatrix::Key | AdaptedMatrix::Up => 1,
        AdaptedMatrix::Beta | AdaptedMatrix::Value => 2,
        AdaptedMatrix::Alpha => MATRICES_MAX - 1,
    }
}
