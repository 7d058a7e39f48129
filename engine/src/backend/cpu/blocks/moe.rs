//! Routed experts and a shared one.
//!
//! Where the routed ones read rows of another width, one phase more brings the rows to it, and one more their sums
//! back.
//!
//! Every (row, expert) pair has its own row of scratch, and a row's experts are summed in the router's order, so the
//! grouping by expert, which reads each expert's weights once for all its rows, never shows in a result.

use super::mlp::{self, Mlp, MlpBuffers, MlpStep};
use super::{BlockThread, Operator, Packing, whole_blocks};
use crate::adapter::AdaptedMatrix;
use crate::backend::cpu::error::CpuError;
use crate::backend::cpu::matmul::{ActivationRows, PackedMatrix, RowForm, RowsView, matmul, matmul_before, prefetch};
use crate::backend::cpu::pass::adapted::AdaptedProduct;
use crate::backend::cpu::pass::batch::RowBatch;
use crate::backend::cpu::pass::forward::{Pass, columns};
use crate::backend::cpu::pass::room::WorkspaceRoom;
use crate::backend::cpu::simd::rowops::{add_weighted, sigmoid_dot};
use crate::backend::cpu::team::shared::{PerThread, SharedBuffer};
use crate::format::{NotFinite, Tensor};
use crate::model::{LatentWeights, MoeConfig, MoeWeights, Router, SharedWeights};
use crate::step::ExpertCut;
use std::ops::Range;

/// Cost of reading a unit's weights, in rows multiplied with it.
const WEIGHT_COST: u64 = 4;
/// Up to this many multiply-adds, a router is not worth a barrier of its own.
const ROUTER_SMALL: usize = 1 << 16;

/// Stands for an expert that a row does without.
const CUT: u32 = u32::MAX;

/// One thread's view of which rows go to which expert.
#[derive(Default)]
struct MoeScratch {
    /// (row, place) grouped by expert: input and output rows of the first products. What stands between the products
    /// lies in this order, so that a thread, which has neighbouring experts, writes about the same lines in every
    /// layer.
    rows: Vec<(u32, u32)>,
    /// (place, pick): those of the last ones.
    picks: Vec<(u32, u32)>,
    /// Experts with rows, and their range in the lists.
    groups: Vec<(usize, Range<usize>)>,
    counts: Vec<usize>,
    costs: Vec<(usize, u64)>,
    /// (logit, expert) of a row's best.
    best: Vec<(f32, u32)>,
    /// By what the experts of a row are chosen, where that is not the logits.
    chosen: Vec<f32>,
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
            self.rows[*at] = ((pick / used) as u32, *at as u32);
            self.picks[*at] = (*at as u32, pick as u32);
            *at += 1;
        }
    }
}

/// The experts' weights, packed for this processor.
pub(crate) struct Moe {
    /// In f32 whatever the file has: rounded router logits pick other experts.
    router: PackedMatrix,
    experts: Vec<Mlp>,
    latent: Option<Latent>,
    shared: Option<SharedExpert>,
    choice: ExpertChoice,
    used: usize,
}

/// What stands before and behind experts that read rows of another width.
struct Latent {
    into: PackedMatrix,
    back: PackedMatrix,
}

/// The expert that every row takes.
struct SharedExpert {
    expert: Mlp,
    /// Where its output is scaled by the row.
    gate: Option<Vec<f32>>,
}

/// How experts are chosen and weighed.
enum ExpertChoice {
    Softmax,
    /// By sigmoid and bias; weights have the sum `scale`.
    Sigmoid {
        bias: Vec<f32>,
        scale: f32,
    },
}

/// What its rows are computed in.
pub(crate) struct MoeBuffers {
    used: usize,
    plain: MoeRows,
    latent: Option<LatentBuffers>,
    routed: MlpBuffers,
    shared: Option<MlpBuffers>,
    scratch: PerThread<MoeScratch>,
}

/// Rows of the experts' width.
struct LatentBuffers {
    width: usize,
    made: SharedBuffer<f32>,
    /// What the experts read, and the sums of what they make.
    rows: ActivationRows,
    sums: ActivationRows,
}

#[derive(Clone, Copy)]
struct LatentStep<'a> {
    made: &'a SharedBuffer<f32>,
    rows: RowsView<'a>,
    sums: RowsView<'a>,
}

struct MoeRows {
    router: SharedBuffer<f32>,
    /// Experts of each row in the router's order, and their weights.
    picks: SharedBuffer<u32>,
    pick_weights: SharedBuffer<f32>,
    /// How much of the shared expert each row takes.
    shared_scale: SharedBuffer<f32>,
    /// Outputs of the routed experts, one row a pick.
    made: SharedBuffer<f32>,
}

/// The buffers in a step.
pub(crate) struct MoeStep<'a> {
    plain: &'a MoeRows,
    latent: Option<LatentStep<'a>>,
    routed: MlpStep<'a>,
    shared: Option<MlpStep<'a>>,
    scratch: &'a PerThread<MoeScratch>,
}

impl Operator for Moe {
    type Config = MoeConfig;
    type Weights = MoeWeights;
    type Buffers = MoeBuffers;
    type Step<'a> = MoeStep<'a>;

    fn check(config: &MoeConfig) -> Result<(), CpuError> {
        whole_blocks("width of an expert", config.expert.width)?;
        config.latent.map_or(Ok(()), |width| whole_blocks("width of the rows of experts", width))?;
        config.shared.map_or(Ok(()), |shared| whole_blocks("width of the shared expert", shared.expert.width))
    }

    fn planned_bytes(w: &MoeWeights, exact: bool) -> u64 {
        let experts = [&w.experts].into_iter().chain(w.shared.iter().map(|s| &s.expert));
        let latent = w.latent.iter().flat_map(|l| [&l.into, &l.back]);
        PackedMatrix::planned_bytes(&w.router, true)
            + latent.map(|t| PackedMatrix::planned_bytes(t, exact)).sum::<u64>()
            + experts.map(|e| Mlp::planned_bytes(e, exact)).sum::<u64>()
    }

    fn pack(w: &MoeWeights, packing: Packing) -> Result<Self, NotFinite> {
        let shared =
            |s: &SharedWeights| Ok(SharedExpert { expert: Mlp::pack(&s.expert, packing)?, gate: s.gate.clone() });
        let one = |t: &Tensor| PackedMatrix::pack(t, 0, packing.exact);
        let latent = |l: &LatentWeights| Ok(Latent { into: one(&l.into)?, back: one(&l.back)? });
        let experts = (0..w.config.experts).map(|e| Mlp::pack_one(&w.experts, e, packing.exact));
        Ok(Self {
            router: PackedMatrix::pack(&w.router, 0, true)?,
            experts: experts.collect::<Result<_, _>>()?,
            latent: w.latent.as_ref().map(latent).transpose()?,
            shared: w.shared.as_ref().map(shared).transpose()?,
            choice: match w.config.router {
                Router::Softmax => ExpertChoice::Softmax,
                Router::SigmoidBias { scale } => {
                    let bias = w.bias.clone().expect("a router with a bias is read with it");
                    ExpertChoice::Sigmoid { bias, scale }
                }
            },
            used: w.config.used,
        })
    }

    fn matrices(&self) -> Vec<&PackedMatrix> {
        let latent = self.latent.iter().flat_map(|l| [&l.into, &l.back]);
        [&self.router].into_iter().chain(latent).chain(self.mlps().flat_map(Mlp::matrices)).collect()
    }

    fn buffers(config: &MoeConfig, room: &mut WorkspaceRoom) -> MoeBuffers {
        let (used, width) = (config.used, config.latent.unwrap_or(room.hidden()));
        MoeBuffers {
            used,
            plain: MoeRows {
                router: room.floats(config.experts),
                picks: room.words(used),
                pick_weights: room.floats(used),
                shared_scale: room.floats(1),
                made: room.floats(used * width),
            },
            latent: config.latent.map(|width| LatentBuffers {
                width,
                made: room.floats(width),
                rows: room.activations(1, width),
                sums: room.activations(1, width),
            }),
            routed: MlpBuffers::new(room, used, &config.expert),
            shared: config.shared.map(|shared| MlpBuffers::new(room, 1, &shared.expert)),
            scratch: room.per_thread(MoeScratch::default),
        }
    }

    fn step<'a>(buffers: &'a mut MoeBuffers, batch: &RowBatch, _threads: usize) -> MoeStep<'a> {
        let MoeBuffers { used, plain, latent, routed, shared, scratch } = buffers;
        let shared = shared.as_mut().map(|shared| shared.step(batch.rows()));
        let latent = latent.as_mut().map(|latent| latent.step(batch.rows()));
        MoeStep { plain, latent, routed: routed.step(batch.rows() * *used), shared, scratch }
    }

    fn run(&self, step: &MoeStep<'_>, at: BlockThread<'_>) {
        let s = &mut *step.scratch.of(at.team);
        self.route(step, at, s);
        // SAFETY: the router is behind a barrier.
        s.group(unsafe { step.plain.picks.get(0..at.pass.batch.rows() * self.used) }, self.used, self.experts.len());
        if let Some((latent, own)) = self.latent.as_ref().zip(step.latent) {
            latent.enter(own, at, self.experts[0].reads_q8());
        }
        if self.shared.is_some() {
            at.pass.reduce(at.team, at.block, &mlp::GATE_AND_UP, at.pass.stream.normed);
        }
        self.gate_and_up(step, at, s);
        // The first of what it reads behind the barrier.
        if let Some((e, _)) = s.groups.first() {
            let down = &self.experts[*e].down;
            prefetch(down, at.team.share(down.tiles()));
        }
        at.team.wait();
        self.down(step, at, s);
    }
}

impl Moe {
    /// Whether something reads the int8 form of a row.
    fn reads_q8(&self) -> bool {
        let latent = self.latent.as_ref().map(|latent| latent.into.input() == RowForm::Q8);
        let routed = || self.experts.iter().any(Mlp::reads_q8);
        latent.unwrap_or_else(routed) || self.shared.iter().any(|shared| shared.expert.reads_q8())
    }

    /// All feed-forward parts, the shared one last.
    fn mlps(&self) -> impl Iterator<Item = &Mlp> {
        self.experts.iter().chain(self.shared.iter().map(|shared| &shared.expert))
    }

    /// Norm, router logits and picks of every row, and how much of the shared expert it takes. Ends with a barrier.
    fn route(&self, step: &MoeStep<'_>, at: BlockThread<'_>, s: &mut MoeScratch) {
        let BlockThread { pass, team, norm, scale, .. } = at;
        let (rows, p) = (pass.batch.rows(), step.plain);
        let (router, q8) = (&self.router, self.reads_q8());
        let own = team.share(rows);
        own.clone().for_each(|row| pass.norm_row(row, norm, q8));
        // SAFETY: the rows are this thread's share, or else the tiles are.
        let out = unsafe { pass.out(&p.router, rows, router.rows()) };
        if rows >= 2 * team.threads || router.rows() * router.cols() <= ROUTER_SMALL {
            matmul(router, pass.stream.normed, &pass.batch.pairs[own.clone()], 0..router.tiles(), out);
        } else {
            team.wait();
            matmul(router, pass.stream.normed, &pass.batch.pairs, team.share(router.tiles()), out);
            team.wait();
        }
        for row in own {
            // SAFETY: the row is this thread's share, and its logits are this thread's or behind a barrier.
            unsafe {
                let logits = p.router.get(row * router.rows()..(row + 1) * router.rows());
                let picks = row * self.used..(row + 1) * self.used;
                let cut = pass.batch.piece_of(row).experts;
                let (experts, weights) = (p.picks.get_mut(picks.clone()), p.pick_weights.get_mut(picks));
                let kept = match &self.choice {
                    ExpertChoice::Softmax => pick(logits, cut, experts, weights, &mut s.best),
                    ExpertChoice::Sigmoid { bias, scale } => {
                        pick_sigmoid(logits, bias, *scale, cut, experts, weights, s)
                    }
                };
                if cut.is_some() {
                    pass.experts.add(kept);
                }
                pass.routes.note(row, &experts[..kept]);
                if scale != 1.0 {
                    weights.iter_mut().for_each(|w| *w *= scale);
                }
                if let Some(shared) = &self.shared {
                    let gate = shared.gate.as_ref().map_or(1.0, |gate| sigmoid_dot(pass.stream.normed.row(row), gate));
                    p.shared_scale.get_mut(row..row + 1)[0] = gate * scale;
                }
            }
        }
        team.wait();
    }

    fn gate_and_up(&self, step: &MoeStep<'_>, at: BlockThread<'_>, s: &mut MoeScratch) {
        let BlockThread { pass, team, block, .. } = at;
        s.costs.clear();
        s.costs.extend(s.groups.iter().map(|(e, r)| (self.experts[*e].units(), cost(&self.experts[*e], r.len()))));
        let shared = self.shared.as_ref().zip(step.shared);
        s.costs.extend(shared.map(|(own, _)| (own.expert.units(), cost(&own.expert, pass.batch.rows()))));
        team.share_costs(&s.costs, |item, units| {
            let next = s.groups.get(item + 1).map(|(e, _)| &self.experts[*e]);
            let next = next.or(shared.map(|(own, _)| &own.expert)).map(|next| (next.first(), 0));
            match (s.groups.get(item), shared) {
                (Some((e, range)), _) => {
                    let x = step.latent.map_or(pass.stream.normed, |latent| latent.rows);
                    self.experts[*e].activate(pass, x, &s.rows[range.clone()], units, step.routed, (next, None));
                }
                (None, Some((own, step))) => {
                    own.expert.activate(pass, pass.stream.normed, &pass.batch.pairs, units, step, (None, Some(block)));
                }
                (None, None) => unreachable!("what is no group's is the shared expert's"),
            }
        });
    }

    /// Second products, and each row's sum in the router's order, for this thread's columns.
    fn down(&self, step: &MoeStep<'_>, at: BlockThread<'_>, s: &MoeScratch) {
        let BlockThread { pass, team, .. } = at;
        match self.latent.as_ref().zip(step.latent) {
            None => {
                let tiles = team.share(self.experts[0].down.tiles());
                self.make(step, pass, s, &tiles);
                // SAFETY: these columns of the stream are this thread's.
                let x = |part: Range<usize>| unsafe { pass.stream.x.get_mut(part) };
                let hidden = self.experts[0].down.rows();
                let cols = columns(&tiles, hidden);
                (0..pass.batch.rows()).for_each(|row| {
                    self.add_picked(step, row, &cols, x(row * hidden + cols.start..row * hidden + cols.end));
                });
            }
            Some((latent, own)) => {
                self.sum_latent(step, own, at, s);
                team.wait();
                pass.mix(team, &latent.back, own.sums, 1.0, None);
            }
        }
        self.add_shared(step, at);
    }

    /// What the experts make of their rows, for some tiles of columns.
    fn make(&self, step: &MoeStep<'_>, pass: &Pass<'_>, s: &MoeScratch, tiles: &Range<usize>) {
        let (rows, width) = (pass.batch.rows() * self.used, self.experts[0].down.rows());
        // SAFETY: the tiles are this thread's share.
        let mut out = unsafe { pass.out(&step.plain.made, rows, width) };
        for (i, (e, range)) in s.groups.iter().enumerate() {
            let next = s.groups.get(i + 1).map(|(e, _)| &self.experts[*e].down);
            let next = next.or(self.shared.as_ref().map(|shared| &shared.expert.down)).map(|w| (w, tiles.start));
            let pairs = &s.picks[range.clone()];
            matmul_before(next, &self.experts[*e].down, step.routed.act, pairs, tiles.clone(), out.reborrow());
        }
    }

    /// Adds up what the experts of a row made, in the router's order, for columns that this thread made.
    fn add_picked(&self, step: &MoeStep<'_>, row: usize, cols: &Range<usize>, sum: &mut [f32]) {
        let (first, width, p) = (row * self.used, self.experts[0].down.rows(), step.plain);
        // SAFETY: the columns are this thread's; weights are behind a barrier.
        unsafe {
            let kept = p.picks.get(first..first + self.used).iter().take_while(|e| **e != CUT).count();
            let weights = p.pick_weights.get(first..first + kept);
            let picked = p.made.part(first * width + cols.start..(first + kept - 1) * width + cols.end);
            add_weighted(sum, weights, picked, width);
        }
    }

    /// The sums of rows of the experts' width, for this thread's columns of whole blocks.
    fn sum_latent(&self, step: &MoeStep<'_>, own: LatentStep<'_>, at: BlockThread<'_>, s: &MoeScratch) {
        let (cols, tiles) = whole_columns(at, self.experts[0].down.rows());
        self.make(step, at.pass, s, &tiles);
        let q8 = self.latent.as_ref().is_some_and(|latent| latent.back.input() == RowForm::Q8);
        for row in 0..at.pass.batch.rows() {
            // SAFETY: these columns are this thread's.
            unsafe {
                let sum = own.sums.part_mut(row, cols.clone());
                sum.fill(0.0);
                self.add_picked(step, row, &cols, sum);
                if q8 {
                    own.sums.quantize_part(row, cols.clone());
                }
            }
        }
    }

    /// What the shared expert makes, for this thread's columns of the stream.
    fn add_shared(&self, step: &MoeStep<'_>, BlockThread { pass, team, block, .. }: BlockThread<'_>) {
        let Some((shared, own)) = self.shared.as_ref().zip(step.shared) else { return };
        let (down, rows, x) = (&shared.expert.down, pass.batch.rows(), pass.stream.x);
        let (hidden, tiles) = (down.rows(), team.share(down.tiles()));
        let cols = columns(&tiles, hidden);
        pass.reduce(team, block, &[AdaptedMatrix::Down], own.act);
        // SAFETY: the tiles are this thread's share.
        let out = unsafe { pass.out(pass.stream.made, rows, hidden) };
        matmul(down, own.act, &pass.batch.pairs, tiles, out);
        let product = AdaptedProduct { block, matrix: AdaptedMatrix::Down, made: pass.stream.made };
        product.add(pass.batch.adapted.as_ref(), cols.clone());
        for row in 0..rows {
            let part = row * hidden + cols.start..row * hidden + cols.end;
            // SAFETY: these columns are this thread's in both buffers; the factor is behind a barrier.
            unsafe {
                let factor = step.plain.shared_scale.get(row..row + 1);
                add_weighted(x.get_mut(part.clone()), factor, pass.stream.made.part(part), hidden);
            }
        }
    }
}

impl LatentBuffers {
    /// For so many rows.
    fn step(&mut self, rows: usize) -> LatentStep<'_> {
        self.rows.set_len(rows, self.width);
        self.sums.set_len(rows, self.width);
        LatentStep { made: &self.made, rows: self.rows.view(), sums: self.sums.view() }
    }
}

impl Latent {
    /// Brings this thread's columns of all rows to the experts' width, in int8 too if these read that. Ends with a
    /// barrier.
    fn enter(&self, own: LatentStep<'_>, at: BlockThread<'_>, q8: bool) {
        let (pass, width) = (at.pass, self.into.rows());
        let (cols, tiles) = whole_columns(at, width);
        // SAFETY: the tiles are this thread's share.
        let out = unsafe { pass.out(own.made, pass.batch.rows(), width) };
        matmul(&self.into, pass.stream.normed, &pass.batch.pairs, tiles, out);
        for row in 0..pass.batch.rows() {
            // SAFETY: these columns are this thread's in both buffers.
            unsafe {
                let made = own.made.get(row * width + cols.start..row * width + cols.end);
                own.rows.part_mut(row, cols.clone()).copy_from_slice(made);
                if q8 {
                    own.rows.quantize_part(row, cols.clone());
                }
            }
        }
        at.team.wait();
    }
}

/// This thread's share of so many columns in whole blocks of the int8 form, and their tiles.
fn whole_columns(at: BlockThread<'_>, width: usize) -> (Range<usize>, Range<usize>) {
    mlp::columns_of(at.team.share(mlp::units(width)), width)
}

fn cost(w: &Mlp, rows: usize) -> u64 {
    w.up.cols() as u64 * (WEIGHT_COST + rows as u64)
}

/// The experts of a row with the largest sum of sigmoid and bias, ties by lower id, and their sigmoids as shares of
/// `scale`. What is cut away is as in [`pick`].
fn pick_sigmoid(
    logits: &[f32],
    bias: &[f32],
    scale: f32,
    cut: Option<ExpertCut>,
    picks: &mut [u32],
    weights: &mut [f32],
    s: &mut MoeScratch,
) -> usize {
    let sigmoid = |l: f32| 1.0 / (1.0 + chimere_kernels::reference::exp(-l));
    s.chosen.clear();
    s.chosen.extend(logits.iter().zip(bias).map(|(l, b)| sigmoid(*l) + b));
    best_of(&s.chosen, picks.len(), &mut s.best);
    for ((_, e), (pick, weight)) in s.best.iter().zip(picks.iter_mut().zip(weights.iter_mut())) {
        (*pick, *weight) = (*e, sigmoid(logits[*e as usize]));
    }
    let kept = cut.map_or(picks.len(), |cut| cut.kept(weights));
    picks[kept..].fill(CUT);
    weights[kept..].fill(0.0);
    let sum: f32 = weights[..kept].iter().sum();
    weights.iter_mut().for_each(|w| *w *= scale / sum);
    kept
}

/// The largest of some values with their places, ties by lower place. What is no number comes last.
fn best_of(values: &[f32], count: usize, best: &mut Vec<(f32, u32)>) {
    best.clear();
    for (e, l) in values.iter().enumerate() {
        let l = if l.is_nan() { f32::NEG_INFINITY } else { *l };
        if best.len() < count {
            best.push((l, e as u32));
        } else if best.last().is_none_or(|last| l <= last.0) {
            continue;
        }
        let mut at = best.len() - 1;
        while at > 0 && best[at - 1].0 < l {
            best[at] = best[at - 1];
            at -= 1;
        }
        best[at] = (l, e as u32);
    }
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
    best_of(logits, used, best);
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
    fn picks_by_sigmoid_and_bias_are_those_of_the_definition() {
        for seed in 0..200u32 {
            let wave = |i: u32, m: u32| ((i * m + seed * 11) % 23) as f32 * 0.3 - 2.0;
            let (logits, bias): (Vec<f32>, Vec<f32>) = (0..64).map(|i| (wave(i, 37), wave(i, 5) / 10.0)).unzip();
            let (mut picks, mut weights) = ([0; 6], [0.0; 6]);
            let scratch = &mut MoeScratch::default();
            assert_eq!(pick_sigmoid(&logits, &bias, 2.5, None, &mut picks, &mut weights, scratch), 6);
            let want = reference::route_sigmoid(&logits, &bias, 6, 2.5);
            // Sums that are equal but for rounding may be in either order.
            for (e, w) in picks.iter().zip(weights) {
                let found = want.iter().find(|want| want.0 == *e as usize);
                assert!(found.is_some_and(|want| (w - want.1).abs() < 1e-5), "{picks:?} {weights:?} {want:?}");
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
        assert_eq!(s.rows[..4], [(2, 0), (0, 1), (1, 2), (1, 3)]);
        assert_eq!(s.picks[..4], [(0, 4), (1, 0), (2, 2), (3, 3)]);
    }

    #[test]
    fn rows_are_grouped_by_expert_in_their_own_order() {
        let mut s = MoeScratch::default();
        s.group(&[2, 0, 2, 3, 0, 2], 2, 5);
        assert_eq!(s.groups, [(0, 0..2), (2, 2..5), (3, 5..6)]);
        assert_eq!(s.rows, [(0, 0), (2, 1), (0, 2), (1, 3), (2, 4), (1, 5)]);
        assert_eq!(s.picks, [(0, 1), (1, 4), (2, 0), (3, 2), (4, 5), (5, 3)]);
    }
}
