//! The last norm and the head of rows. Of rows whose samplers read few logits only these are computed: under a grammar
//! that is most of the time, and the head is a sixth and more of a model's products.

use crate::backend::cpu::matmul::{PackedMatrix, RowForm, TILE_ROWS, matmul};
use crate::backend::cpu::network::forward::ModelPass;
use crate::backend::cpu::pass::forward::columns;
use crate::backend::cpu::simd::norm::norm_row;
use crate::backend::cpu::team::pool::Team;
use crate::constraint::Constraint;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The rules of a step's samples, once all of them are there.
pub(crate) struct KnownRules {
    /// The constraint of each sample.
    pub(crate) constraints: Vec<Constraint>,
    /// Masks of the tokens whose logits are read, one for each row of logits; `None` stands for all tokens.
    pub(crate) read: Vec<Option<Arc<[u32]>>>,
}

/// The first rows of a head's matrix, in tiles.
#[derive(Clone, Copy)]
pub(crate) struct HeadTiles<'a> {
    pub(crate) matrix: &'a PackedMatrix,
    pub(crate) tiles: usize,
}

impl ModelPass<'_> {
    /// The logits of the rows to sample, which stay in the workspace. The first thread calls `look` shortly before it
    /// has to be known which of them are read.
    pub(crate) fn sampled_logits(&self, team: Team, rows: &[usize], known: &OnceLock<KnownRules>, look: impl FnOnce()) {
        if rows.is_empty() {
            return;
        }
        self.last_rows(team, rows, &self.model.norm);
        if team.index == 0 {
            look();
        }
        team.wait();
        self.head(team, self.whole_head(), rows.len(), known.get().map_or(&[], |known| &known.read));
        team.wait();
    }

    /// A final norm and the head of some rows, into the first rows of logits. Ends with a barrier.
    pub(crate) fn logits(&self, team: Team, rows: &[usize], norm: &[f32]) {
        self.logits_of(team, self.whole_head(), rows, norm);
    }

    /// [`ModelPass::logits`] of some tiles of a head.
    pub(crate) fn logits_of(&self, team: Team, head: HeadTiles<'_>, rows: &[usize], norm: &[f32]) {
        self.last_rows(team, rows, norm);
        team.wait();
        self.head(team, head, rows.len(), &[]);
        team.wait();
    }

    pub(crate) fn whole_head(&self) -> HeadTiles<'_> {
        HeadTiles { matrix: &self.model.head, tiles: self.model.head.tiles() }
    }

    /// A final norm of this thread's share of some rows, as the head reads them.
    fn last_rows(&self, team: Team, rows: &[usize], norm: &[f32]) {
        let c = &self.model.config;
        for i in team.share(rows.len()) {
            let at = rows[i] * c.hidden;
            // SAFETY: row `i` is this thread's share; the residual stream is finished.
            unsafe {
                norm_row(self.pass.stream.x.get(at..at + c.hidden), norm, c.rms_eps, self.ws.last.row_mut(i));
                if self.model.head.input() == RowForm::Q8 {
                    self.ws.last.quantize(i..i + 1);
                }
            }
        }
    }

    /// The head of the first `rows` rows, this thread's columns of it. `read` says of each of them which logits are
    /// read, of those behind its end all are; the others are not defined.
    fn head(&self, team: Team, head: HeadTiles<'_>, rows: usize, read: &[Option<Arc<[u32]>>]) {
        let (c, pairs) = (&self.model.config, &self.pass.batch.pairs[..rows]);
        let tiles = team.share(head.tiles);
        let whole: Vec<_> = pairs.iter().copied().filter(|(row, _)| wanted(read, *row).is_none()).collect();
        self.head_tiles(head, &whole, tiles.clone(), rows);
        if whole.len() < rows {
            let mut some = Vec::with_capacity(rows);
            for tile in tiles.clone() {
                let reads = |row: u32| wanted(read, row).is_some_and(|mask| reads_tile(mask, tile));
                some.clear();
                some.extend(pairs.iter().copied().filter(|(row, _)| reads(*row)));
                self.head_tiles(head, &some, tile..tile + 1, rows);
            }
        }
        if c.logit_scale != 1.0 {
            let cols = columns(&tiles, c.vocab);
            for row in 0..rows {
                // SAFETY: these columns are this thread's, as they were in the product.
                let logits = unsafe { self.ws.logits.get_mut(row * c.vocab + cols.start..row * c.vocab + cols.end) };
                logits.iter_mut().for_each(|logit| *logit *= c.logit_scale);
            }
        }
    }

    /// Logits of some rows and tiles, which are this thread's share.
    fn head_tiles(&self, head: HeadTiles<'_>, pairs: &[(u32, u32)], tiles: Range<usize>, rows: usize) {
        if !pairs.is_empty() {
            // SAFETY: the tiles are this thread's share.
            let out = unsafe { self.pass.out(self.ws.logits, rows, self.model.config.vocab) };
            matmul(head.matrix, self.ws.last, pairs, tiles, out);
        }
    }
}

/// What is read of a row, if that is not all.
fn wanted(read: &[Option<Arc<[u32]>>], row: u32) -> Option<&[u32]> {
    read.get(row as usize)?.as_deref()
}

/// Whether a mask allows a token of a tile.
fn reads_tile(mask: &[u32], tile: usize) -> bool {
    const { assert!(TILE_ROWS == 16, "half a word of a mask") };
    mask.get(tile / 2).is_some_and(|word| word >> (16 * (tile % 2)) & 0xffff != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_is_read_if_one_of_its_sixteen_tokens_is_allowed() {
        let mask = [1 << 15, 0, 1 << 16 | 1];
        assert_eq!((0..8).filter(|tile| reads_tile(&mask, *tile)).collect::<Vec<_>>(), [0, 4, 5]);
    }
}
