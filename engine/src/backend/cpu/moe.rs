//! The feed-forward part: routed experts and a shared one, or a dense SwiGLU.
//!
//! Every (row, expert) pair has its own row of scratch, and a row's experts are summed in the router's order, so the grouping by
//! expert, which reads each expert's weights once for all its rows, never shows in a result.

use super::forward::{Pass, columns};
use super::matmul::{RowForm, RowsView, matmul};
use super::pool::Team;
use super::rowops::{add, add_weighted, sigmoid_dot, swiglu};
use super::shared::Shared;
use super::weights::{Moe, Swiglu};
use crate::step::{ExpertCut, ExpertUse};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Output features of gate and up that one unit of work has: one block of the int8 form.
const UNIT: usize = 32;
/// Cost of reading a unit's weights, in rows multiplied with it.
const WEIGHT_COST: u64 = 2;
/// Up to this many multiply-adds, a router is not worth a barrier of its own.
const ROUTER_SMALL: usize = 1 << 16;

/// Stands for an expert that a row does without.
const CUT: u32 = u32::MAX;

/// How many experts the rows of a step were given to, where that was cut.
#[derive(Default)]
pub(super) struct ExpertCount {
    rows: AtomicU64,
    experts: AtomicU64,
}

impl ExpertCount {
    fn add(&self, kept: usize) {
        self.rows.fetch_add(1, Ordering::Relaxed);
        self.experts.fetch_add(kept as u64, Ordering::Relaxed);
    }

    pub(super) fn taken(&self) -> ExpertUse {
        ExpertUse { rows: self.rows.load(Ordering::Relaxed), experts: self.experts.load(Ordering::Relaxed) }
    }
}

/// One thread's view of which rows go to which expert.
#[derive(Default)]
pub(super) struct MoeScratch {
    /// (row, pick) grouped by expert: input and output rows of the first products.
    rows: Vec<(u32, u32)>,
    /// (pick, pick): those of the last ones.
    picks: Vec<(u32, u32)>,
    /// Experts with rows, and their range in the lists.
    groups: Vec<(usize, Range<usize>)>,
    counts: Vec<usize>,
    costs: Vec<(usize, u64)>,
    /// (logit, expert) of a row's best.
    best: Vec<(f32, u32)>,
}

impl MoeScratch {
    /// Groups the picks of all rows by expert; those that were cut are in no group.
    fn group(&mut self, picks: &[u32], used: usize, experts: usize) {
        self.counts.clear();
        self.counts.resize(experts + 1, 0);
        let kept = || picks.iter().enumerate().filter(|(_, e)| **e != CUT);
        kept().for_each(|(_, e)| self.counts[*e as usize + 1] += 1);
        (0..experts).for_each(|e| self.counts[e + 1] += self.counts[e]);
        let ranges = (0..experts).map(|e| (e, self.counts[e]..self.counts[e + 1]));
        self.groups.clear();
        self.groups.extend(ranges.filter(|(_, r)| !r.is_empty()));
        self.rows.resize(picks.len(), (0, 0));
        self.picks.resize(picks.len(), (0, 0));
        for (pick, e) in kept() {
            let at = &mut self.counts[*e as usize];
            self.rows[*at] = ((pick / used) as u32, pick as u32);
            self.picks[*at] = (pick as u32, pick as u32);
            *at += 1;
        }
    }
}

impl Pass<'_> {
    pub(super) fn moe(&self, team: Team, layer: &Moe, norm: &[f32], s: &mut MoeScratch) {
        self.route(team, layer, norm, s);
        let (rows, p) = (self.batch.rows(), self.ws.plain);
        let (shared, experts) = layer.experts.split_last().expect("the shared expert comes last");
        // SAFETY: the router is behind a barrier.
        s.group(unsafe { p.picks.get(0..rows * layer.used) }, layer.used, experts.len());
        self.gate_and_up(team, experts, shared, s);
        team.wait();
        self.down(team, layer, experts, shared, s);
    }

    /// Norm, router logits and picks of every row, and how much of the shared expert it takes. Ends with a barrier.
    fn route(&self, team: Team, layer: &Moe, norm: &[f32], s: &mut MoeScratch) {
        let (rows, p) = (self.batch.rows(), self.ws.plain);
        let (router, q8) = (&layer.router, layer.experts.iter().any(reads_q8));
        let own = team.share(rows);
        own.clone().for_each(|row| self.norm_row(row, norm, q8));
        let out = self.out(&p.router, rows, router.rows());
        if rows >= 2 * team.threads || router.rows() * router.cols() <= ROUTER_SMALL {
            matmul(router, self.ws.normed, &self.batch.pairs[own.clone()], 0..router.tiles(), out);
        } else {
            team.wait();
            matmul(router, self.ws.normed, &self.batch.pairs, team.share(router.tiles()), out);
            team.wait();
        }
        for row in own {
            // SAFETY: the row is this thread's share, and its logits are this thread's or behind a barrier.
            unsafe {
                let logits = p.router.get(row * router.rows()..(row + 1) * router.rows());
                let picks = row * layer.used..(row + 1) * layer.used;
                let cut = self.batch.piece_of(row).experts;
                let kept = pick(logits, cut, p.picks.get_mut(picks.clone()), p.pick_weights.get_mut(picks), &mut s.best);
                if cut.is_some() {
                    self.experts.add(kept);
                }
                p.shared_scale.get_mut(row..row + 1)[0] = sigmoid_dot(self.ws.normed.row(row), &layer.shared_gate);
            }
        }
        team.wait();
    }

    fn gate_and_up(&self, team: Team, experts: &[Swiglu], shared: &Swiglu, s: &mut MoeScratch) {
        let (rows, p) = (self.batch.rows(), self.ws.plain);
        s.costs.clear();
        s.costs.extend(s.groups.iter().map(|(e, r)| (units(&experts[*e]), cost(&experts[*e], r.len()))));
        s.costs.push((units(shared), cost(shared, rows)));
        team.share_costs(&s.costs, |item, units| match s.groups.get(item) {
            Some((e, range)) => {
                self.activate(&experts[*e], &s.rows[range.clone()], units, [&p.gate, &p.up], self.ws.act);
            }
            None => self.activate_shared(shared, units),
        });
    }

    fn activate_shared(&self, shared: &Swiglu, units: Range<usize>) {
        let p = self.ws.plain;
        self.activate(shared, &self.batch.pairs, units, [&p.shared_gate, &p.shared_up], self.ws.shared_act);
    }

    /// `silu(gate x) * (up x)` for some units of an expert and its rows.
    fn activate(&self, w: &Swiglu, pairs: &[(u32, u32)], units: Range<usize>, buffers: [&Shared<f32>; 2], act: RowsView<'_>) {
        let (width, q8) = (w.gate.rows(), w.down.input() == RowForm::Q8);
        let cols = (units.start * UNIT).min(width)..(units.end * UNIT).min(width);
        let tiles = cols.start / super::matmul::TILE_ROWS..cols.end.div_ceil(super::matmul::TILE_ROWS);
        for (m, buffer) in [&w.gate, &w.up].into_iter().zip(buffers) {
            matmul(m, self.ws.normed, pairs, tiles.clone(), self.out(buffer, act.len(), width));
        }
        for (_, out) in pairs {
            let row = *out as usize;
            let part = row * width + cols.start..row * width + cols.end;
            // SAFETY: these columns of the expert's rows are this thread's alone.
            unsafe {
                let [gate, up] = buffers.map(|b| b.get(part.clone()));
                swiglu(gate, up, act.part_mut(row, cols.clone()));
                if q8 {
                    act.quantize_part(row, cols.clone());
                }
            }
        }
    }

    /// Second products, and each row's sum in the router's order, for this thread's columns.
    fn down(&self, team: Team, layer: &Moe, experts: &[Swiglu], shared: &Swiglu, s: &MoeScratch) {
        let (rows, hidden, p) = (self.batch.rows(), self.model.config.hidden, self.ws.plain);
        let routed = rows * layer.used;
        let tiles = team.share(shared.down.tiles());
        let out = self.out(&p.down, routed, hidden);
        for (e, range) in &s.groups {
            matmul(&experts[*e].down, self.ws.act, &s.picks[range.clone()], tiles.clone(), out);
        }
        let cols = columns(&tiles, hidden);
        for row in 0..rows {
            let first = row * layer.used;
            // SAFETY: these columns are this thread's in both buffers; weights are behind a barrier.
            unsafe {
                let x = p.x.get_mut(row * hidden + cols.start..row * hidden + cols.end);
                let kept = p.picks.get(first..first + layer.used).iter().take_while(|e| **e != CUT).count();
                let weights = p.pick_weights.get(first..first + kept);
                let picked = p.down.part(first * hidden + cols.start..(first + kept - 1) * hidden + cols.end);
                add_weighted(x, weights, picked, hidden);
            }
        }
        self.add_shared(shared, tiles, |row| {
            // SAFETY: behind a barrier.
            unsafe { p.shared_scale.get(row..row + 1)[0] }
        });
    }

    /// The second product of the shared or dense part, times a factor a row, added to the residual stream.
    fn add_shared(&self, shared: &Swiglu, tiles: Range<usize>, factor: impl Fn(usize) -> f32) {
        let (rows, hidden, p) = (self.batch.rows(), self.model.config.hidden, self.ws.plain);
        matmul(&shared.down, self.ws.shared_act, &self.batch.pairs, tiles.clone(), self.out(&p.down, rows, hidden));
        let cols = columns(&tiles, hidden);
        for row in 0..rows {
            let part = row * hidden + cols.start..row * hidden + cols.end;
            // SAFETY: these columns are this thread's in both buffers.
            unsafe { add_weighted(p.x.get_mut(part.clone()), &[factor(row)], p.down.part(part), hidden) };
        }
    }

    pub(super) fn dense(&self, team: Team, layer: &Swiglu, norm: &[f32]) {
        self.norm(team, norm, reads_q8(layer));
        let items = [(units(layer), 1)];
        team.share_costs(&items, |_, units| self.activate_shared(layer, units));
        team.wait();
        let (rows, hidden, p) = (self.batch.rows(), self.model.config.hidden, self.ws.plain);
        let tiles = team.share(layer.down.tiles());
        matmul(&layer.down, self.ws.shared_act, &self.batch.pairs, tiles.clone(), self.out(&p.down, rows, hidden));
        let cols = columns(&tiles, hidden);
        for row in 0..rows {
            let part = row * hidden + cols.start..row * hidden + cols.end;
            // SAFETY: these columns are this thread's in both buffers.
            unsafe { add(p.x.get_mut(part.clone()), p.down.get(part)) };
        }
    }
}

/// Gate and up may be of different types.
fn reads_q8(w: &Swiglu) -> bool {
    [&w.gate, &w.up].iter().any(|m| m.input() == RowForm::Q8)
}

fn units(w: &Swiglu) -> usize {
    w.gate.rows().div_ceil(UNIT)
}

fn cost(w: &Swiglu, rows: usize) -> u64 {
    w.gate.cols() as u64 * (WEIGHT_COST + rows as u64)
}

/// The best experts of a row, ties by lower id, and their softmax. What is cut away is [`CUT`] and weighs nothing. Returns how many are left.
fn pick(logits: &[f32], cut: Option<ExpertCut>, picks: &mut [u32], weights: &mut [f32], best: &mut Vec<(f32, u32)>) -> usize {
    let used = picks.len();
    best.clear();
    for (e, l) in logits.iter().enumerate() {
        let l = if l.is_nan() { f32::NEG_INFINITY } else { *l };
        if best.len() < used || best.last().is_some_and(|last| l > last.0) {
            best.truncate(used - 1);
            let at = best.partition_point(|b| b.0 >= l);
            best.insert(at, (l, e as u32));
        }
    }
    for ((l, e), (pick, weight)) in best.iter().zip(picks.iter_mut().zip(weights.iter_mut())) {
        (*pick, *weight) = (*e, chimere_kernels::reference::exp(l - best[0].0));
    }
    let kept = cut.map_or(used, |cut| cut.kept(weights));
    picks[kept..].fill(CUT);
    weights[kept..].fill(0.0);
    let sum: f32 = weights[..kept].iter().sum();
    weights.iter_mut().for_each(|w| *w /= sum);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_kernels::reference;

    #[test]
    fn picks_are_those_of_the_definition_ties_included() {
        for seed in 0..200u32 {
            let logits: Vec<f32> = (0..64).map(|i| ((i * 37 + seed * 11) % 23) as f32 * 0.3 - 2.0).collect();
            let (mut picks, mut weights) = ([0; 8], [0.0; 8]);
            assert_eq!(pick(&logits, None, &mut picks, &mut weights, &mut Vec::new()), 8);
            for ((e, w), want) in picks.iter().zip(weights).zip(reference::route(&logits, 8)) {
                assert_eq!(*e as usize, want.0);
                assert!((w - want.1).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn picks_after_a_cut_are_those_of_the_definition() {
        for seed in 0..200u32 {
            let logits: Vec<f32> = (0..64).map(|i| ((i * 37 + seed * 11) % 23) as f32 * 0.3 - 2.0).collect();
            let cut = ExpertCut { min: 1 + seed % 3, max: 4 + seed % 5, mass: (seed % 11) as f32 / 10.0 };
            let (mut picks, mut weights) = ([0; 8], [0.0; 8]);
            let kept = pick(&logits, Some(cut), &mut picks, &mut weights, &mut Vec::new());
            let want = reference::route_cut(&logits, 8, &cut);
            assert_eq!(kept, want.len(), "{cut:?}");
            for ((e, w), want) in picks.iter().zip(weights).zip(want) {
                assert_eq!(*e as usize, want.0);
                assert!((w - want.1).abs() < 1e-6);
            }
            assert!(picks[kept..].iter().all(|e| *e == CUT) && weights[kept..].iter().all(|w| *w == 0.0));
        }
    }

    #[test]
    fn a_cut_pick_is_in_no_group() {
        let mut s = MoeScratch::default();
        s.group(&[2, CUT, 2, 3, 0, CUT], 2, 5);
        assert_eq!(s.groups, [(0, 0..1), (2, 1..3), (3, 3..4)]);
        assert_eq!(s.rows[..4], [(2, 4), (0, 0), (1, 2), (1, 3)]);
    }

    #[test]
    fn rows_are_grouped_by_expert_in_their_own_order() {
        let mut s = MoeScratch::default();
        s.group(&[2, 0, 2, 3, 0, 2], 2, 5);
        assert_eq!(s.groups, [(0, 0..2), (2, 2..5), (3, 5..6)]);
        assert_eq!(s.rows, [(0, 1), (2, 4), (0, 0), (1, 2), (2, 5), (1, 3)]);
        assert_eq!(s.picks.iter().map(|p| p.0).collect::<Vec<_>>(), [1, 4, 0, 2, 5, 3]);
    }
}
