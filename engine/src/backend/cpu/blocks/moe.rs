//! Routed experts and a shared one.
//!
//! Every (row, expert) pair has its own row of scratch, and a row's experts are summed in the router's order, so the
//! grouping by expert, which reads each expert's weights once for all its rows, never shows in a result.

use super::mlp::{self, Mlp, check_expert};
use super::{BlockThread, Operator, Packing, supported};
use crate::backend::cpu::CpuError;
use crate::backend::cpu::batch::Batch;
use crate::backend::cpu::forward::columns;
use crate::backend::cpu::matmul::{PackedMatrix, matmul};
use crate::backend::cpu::rowops::{add_weighted, sigmoid_dot};
use crate::backend::cpu::shared::{PerThread, Shared};
use crate::backend::cpu::workspace::WorkspaceRoom;
use crate::model::{MoeConfig, MoeWeights, Router};
use crate::step::{ExpertCut, ExpertUse};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Cost of reading a unit's weights, in rows multiplied with it.
const WEIGHT_COST: u64 = 2;
/// Up to this many multiply-adds, a router is not worth a barrier of its own.
const ROUTER_SMALL: usize = 1 << 16;

/// Stands for an expert that a row does without.
const CUT: u32 = u32::MAX;

/// How many experts the rows of a step were given to, where that was cut.
#[derive(Default)]
pub(in crate::backend::cpu) struct ExpertCount {
    rows: AtomicU64,
    experts: AtomicU64,
}

impl ExpertCount {
    fn add(&self, kept: usize) {
        self.rows.fetch_add(1, Ordering::Relaxed);
        self.experts.fetch_add(kept as u64, Ordering::Relaxed);
    }

    pub(in crate::backend::cpu) fn taken(&self) -> ExpertUse {
        ExpertUse { rows: self.rows.load(Ordering::Relaxed), experts: self.experts.load(Ordering::Relaxed) }
    }
}

/// One thread's view of which rows go to which expert.
#[derive(Default)]
struct MoeScratch {
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

/// The experts' weights, packed for this processor.
pub(in crate::backend::cpu) struct Moe {
    /// In f32 whatever the file has: rounded router logits pick other experts.
    router: PackedMatrix,
    experts: Vec<Mlp>,
    shared: Mlp,
    shared_gate: Vec<f32>,
    used: usize,
}

/// What its rows are computed in.
pub(in crate::backend::cpu) struct Buffers {
    used: usize,
    plain: Plain,
    routed: mlp::Buffers,
    shared: mlp::Buffers,
    scratch: PerThread<MoeScratch>,
}

struct Plain {
    router: Shared<f32>,
    /// Experts of each row in the router's order, and their weights.
    picks: Shared<u32>,
    pick_weights: Shared<f32>,
    /// How much of the shared expert each row takes.
    shared_scale: Shared<f32>,
    /// Outputs of the routed experts, one row a pick.
    made: Shared<f32>,
}

/// The buffers in a step.
pub(in crate::backend::cpu) struct Step<'a> {
    plain: &'a Plain,
    routed: mlp::Step<'a>,
    shared: mlp::Step<'a>,
    scratch: &'a PerThread<MoeScratch>,
}

impl Operator for Moe {
    type Config = MoeConfig;
    type Weights = MoeWeights;
    type Buffers = Buffers;
    type Step<'a> = Step<'a>;

    fn check(config: &MoeConfig) -> Result<(), CpuError> {
        check_expert(&config.expert, "width of an expert")?;
        supported(config.router == Router::Softmax, "a router", format_args!("{:?}", config.router), "Softmax")?;
        let shared = config.shared.filter(|shared| shared.gated);
        let got = if config.shared.is_some() { "without a gate" } else { "absent" };
        supported(shared.is_some(), "the shared expert", got, "one with a gate")?;
        shared.map_or(Ok(()), |shared| check_expert(&shared.expert, "width of the shared expert"))
    }

    fn planned_bytes(w: &MoeWeights, exact: bool) -> u64 {
        let experts = [&w.experts].into_iter().chain(w.shared.iter().map(|s| &s.expert));
        PackedMatrix::planned_bytes(&w.router, true) + experts.map(|e| Mlp::planned_bytes(e, exact)).sum::<u64>()
    }

    fn pack(w: &MoeWeights, packing: Packing) -> Self {
        let shared = w.shared.as_ref().expect("`check` refused mixtures without a shared expert");
        Self {
            router: PackedMatrix::pack(&w.router, 0, true),
            experts: (0..w.config.experts).map(|e| Mlp::pack_one(&w.experts, e, packing.exact)).collect(),
            shared: Mlp::pack(&shared.expert, packing),
            shared_gate: shared.gate.clone().expect("`check` refused shared experts without a gate"),
            used: w.config.used,
        }
    }

    fn matrices(&self) -> Vec<&PackedMatrix> {
        let experts = self.experts.iter().chain([&self.shared]);
        [&self.router].into_iter().chain(experts.flat_map(Mlp::matrices)).collect()
    }

    fn buffers(config: &MoeConfig, room: &mut WorkspaceRoom) -> Buffers {
        let (used, hidden) = (config.used, room.hidden());
        // `check` refuses mixtures without a shared expert; their memory may be asked for before that.
        let shared_width = config.shared.map_or(0, |shared| shared.expert.width);
        Buffers {
            used,
            plain: Plain {
                router: room.floats(config.experts),
                picks: room.words(used),
                pick_weights: room.floats(used),
                shared_scale: room.floats(1),
                made: room.floats(used * hidden),
            },
            routed: mlp::Buffers::new(room, used, config.expert.width),
            shared: mlp::Buffers::new(room, 1, shared_width),
            scratch: room.per_thread(MoeScratch::default),
        }
    }

    fn step<'a>(buffers: &'a mut Buffers, batch: &Batch, _threads: usize) -> Step<'a> {
        let Buffers { used, plain, routed, shared, scratch } = buffers;
        Step { plain, routed: routed.step(batch.rows() * *used), shared: shared.step(batch.rows()), scratch }
    }

    fn run(&self, step: &Step<'_>, at: BlockThread<'_>) {
        let s = &mut *step.scratch.of(at.team);
        self.route(step, at, s);
        // SAFETY: the router is behind a barrier.
        s.group(unsafe { step.plain.picks.get(0..at.pass.batch.rows() * self.used) }, self.used, self.experts.len());
        self.gate_and_up(step, at, s);
        at.team.wait();
        self.down(step, at, s);
    }
}

impl Moe {
    /// Norm, router logits and picks of every row, and how much of the shared expert it takes. Ends with a barrier.
    fn route(&self, step: &Step<'_>, BlockThread { pass, team, norm, .. }: BlockThread<'_>, s: &mut MoeScratch) {
        let (rows, p) = (pass.batch.rows(), step.plain);
        let (router, q8) = (&self.router, self.experts.iter().chain([&self.shared]).any(Mlp::reads_q8));
        let own = team.share(rows);
        own.clone().for_each(|row| pass.norm_row(row, norm, q8));
        let out = pass.out(&p.router, rows, router.rows());
        if rows >= 2 * team.threads || router.rows() * router.cols() <= ROUTER_SMALL {
            matmul(router, pass.ws.normed, &pass.batch.pairs[own.clone()], 0..router.tiles(), out);
        } else {
            team.wait();
            matmul(router, pass.ws.normed, &pass.batch.pairs, team.share(router.tiles()), out);
            team.wait();
        }
        for row in own {
            // SAFETY: the row is this thread's share, and its logits are this thread's or behind a barrier.
            unsafe {
                let logits = p.router.get(row * router.rows()..(row + 1) * router.rows());
                let picks = row * self.used..(row + 1) * self.used;
                let cut = pass.batch.piece_of(row).experts;
                let kept =
                    pick(logits, cut, p.picks.get_mut(picks.clone()), p.pick_weights.get_mut(picks), &mut s.best);
                if cut.is_some() {
                    pass.experts.add(kept);
                }
                p.shared_scale.get_mut(row..row + 1)[0] = sigmoid_dot(pass.ws.normed.row(row), &self.shared_gate);
            }
        }
        team.wait();
    }

    fn gate_and_up(&self, step: &Step<'_>, BlockThread { pass, team, .. }: BlockThread<'_>, s: &mut MoeScratch) {
        s.costs.clear();
        s.costs.extend(s.groups.iter().map(|(e, r)| (self.experts[*e].units(), cost(&self.experts[*e], r.len()))));
        s.costs.push((self.shared.units(), cost(&self.shared, pass.batch.rows())));
        team.share_costs(&s.costs, |item, units| match s.groups.get(item) {
            Some((e, range)) => self.experts[*e].activate(pass, &s.rows[range.clone()], units, step.routed),
            None => self.shared.activate(pass, &pass.batch.pairs, units, step.shared),
        });
    }

    /// Second products, and each row's sum in the router's order, for this thread's columns.
    fn down(&self, step: &Step<'_>, BlockThread { pass, team, .. }: BlockThread<'_>, s: &MoeScratch) {
        let (rows, hidden, p, x) = (pass.batch.rows(), self.shared.down.rows(), step.plain, &pass.ws.plain.x);
        let tiles = team.share(self.shared.down.tiles());
        let out = pass.out(&p.made, rows * self.used, hidden);
        for (e, range) in &s.groups {
            matmul(&self.experts[*e].down, step.routed.act, &s.picks[range.clone()], tiles.clone(), out);
        }
        let cols = columns(&tiles, hidden);
        for row in 0..rows {
            let first = row * self.used;
            // SAFETY: these columns are this thread's in both buffers; weights are behind a barrier.
            unsafe {
                let x = x.get_mut(row * hidden + cols.start..row * hidden + cols.end);
                let kept = p.picks.get(first..first + self.used).iter().take_while(|e| **e != CUT).count();
                let weights = p.pick_weights.get(first..first + kept);
                let picked = p.made.part(first * hidden + cols.start..(first + kept - 1) * hidden + cols.end);
                add_weighted(x, weights, picked, hidden);
            }
        }
        matmul(
            &self.shared.down,
            step.shared.act,
            &pass.batch.pairs,
            tiles.clone(),
            pass.out(&pass.ws.plain.made, rows, hidden),
        );
        for row in 0..rows {
            let part = row * hidden + cols.start..row * hidden + cols.end;
            // SAFETY: these columns are this thread's in both buffers; the factor is behind a barrier.
            unsafe {
                let factor = p.shared_scale.get(row..row + 1);
                add_weighted(x.get_mut(part.clone()), factor, pass.ws.plain.made.part(part), hidden);
            }
        }
    }
}

fn cost(w: &Mlp, rows: usize) -> u64 {
    w.gate.cols() as u64 * (WEIGHT_COST + rows as u64)
}

/// The best experts of a row, ties by lower id, and their softmax. What is cut away is [`CUT`] and weighs nothing.
/// Returns how many are left.
fn pick(
    logits: &[f32],
    cut: Option<ExpertCut>,
    picks: &mut [u32],
    weights: &mut [f32],
    best: &mut Vec<(f32, u32)>,
) -> usize {
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
