//! Which type each group gets: by measured divergence, by importance-weighted error, by the look of the weights, or one
//! for all.

use super::job::{QuantizeJob, menu};
use super::kept::KeptDivergences;
use super::sensitivity::{BaseAnswers, group_distortion};
use super::{Scheme, failed};
use crate::CliError;
use crate::figures::StepProgress;
use chimere_engine::format::{BlockType, Gguf};
use chimere_engine::quantize::{
    Distortion, EncodingChoice, Group, Importance, MENU, MatrixRole, allocate, fitting, weight_shape,
};
use std::collections::BTreeMap;

/// The type that divergences are measured with: its errors are of the size that targets lead to.
const PROBE: BlockType = BlockType::Q4K;
/// One row in so many tells a type's error.
const EVERY: usize = 16;
/// No group has fewer rows than this looked at.
const ROWS_MIN: usize = 64;
/// Sizes of which the best mix is drawn, less one.
const CURVE_STEPS: u64 = 24;

/// The chosen types, with the divergences that are expected of them.
pub(super) struct Choices {
    /// The chosen type of each group.
    pub(super) types: Vec<BlockType>,
    /// `t^2` of the group's type.
    pub(super) t2: Vec<f64>,
    /// Where divergences were measured: `alpha` of each group.
    pub(super) alpha: Option<Vec<f64>>,
    /// Where divergences were measured: what other sizes would have cost.
    pub(super) others: Option<Others>,
    /// Divergences of single groups in their types, where they were asked for.
    pub(super) measured: Option<Vec<f64>>,
}

/// Bits a weight over all matrices, and mean divergence.
pub(super) type Point = (f64, f64);

/// Expected divergences of files that were not written.
pub(super) struct Others {
    /// Of the best mixes, by size.
    pub(super) curve: Vec<Point>,
    /// Of one type for all groups, or what takes its place.
    pub(super) uniform: Vec<(BlockType, Point)>,
}

impl Choices {
    /// The divergence that is expected of all groups together.
    pub(super) fn expected(&self) -> Option<f64> {
        self.alpha.as_ref().map(|alpha| alpha.iter().zip(&self.t2).map(|(a, t2)| a * t2).sum())
    }

    pub(super) fn of(
        job: &QuantizeJob<'_>,
        importance: &Importance,
        answered: Option<&BaseAnswers>,
    ) -> Result<Self, CliError> {
        if let Scheme::Uniform(ty) = job.args.scheme {
            let types = vec![ty; job.groups.len()];
            let t2 = job.groups.iter().map(|g| sampled(job, g, ty, importance).map(|d| d.t2()));
            let t2 = t2.collect::<Result<_, _>>()?;
            return Ok(Self { types, t2, alpha: None, others: None, measured: None });
        }
        let budget = job.budget()?;
        let table = DistortionTable::measure(job, importance)?;
        let alpha = match job.args.scheme {
            Scheme::Kl => Some(alphas(job, importance, answered.expect("divergences are measured for this scheme"))?),
            _ => None,
        };
        let looks = match job.args.scheme {
            Scheme::Ramp => job.groups.iter().map(|g| look(job.source, g)).collect::<Result<Vec<_>, _>>()?,
            _ => Vec::new(),
        };
        let cost = |g: usize, d: &Distortion| match (&alpha, job.args.scheme) {
            (Some(alpha), _) => alpha[g] * d.t2(),
            (None, Scheme::Ramp) => looks[g] * d.plain_t2() * job.groups[g].weights as f64,
            (None, _) if d.signal > 0.0 => d.error,
            // Without importance all weights count alike.
            (None, _) => d.plain_error,
        };
        let choices: Vec<Vec<EncodingChoice>> = table
            .0
            .iter()
            .enumerate()
            .map(|(g, row)| {
                row.iter()
                    .map(|(ty, d)| EncodingChoice { bytes: job.bytes(&job.groups[g], *ty), cost: cost(g, d) })
                    .collect()
            })
            .collect();
        let picks = allocate(&choices, budget).expect("the budget holds the smallest types");
        let types: Vec<_> = table.0.iter().zip(&picks).map(|(row, p)| row[*p].0).collect();
        let t2 = table.0.iter().zip(&picks).map(|(row, p)| row[*p].1.t2()).collect();
        let others = alpha.is_some().then(|| Others::of(job, &table, &choices));
        let measured = match answered.filter(|_| job.args.measure_groups) {
            Some(answered) => Some(each_measured(job, &types, importance, answered)?),
            None => None,
        };
        Ok(Self { types, t2, alpha, others, measured })
    }
}

impl Others {
    /// `choices` are the table's entries with what each takes and costs.
    fn of(job: &QuantizeJob<'_>, table: &DistortionTable, choices: &[Vec<EncodingChoice>]) -> Self {
        let weights: u64 = job.groups.iter().map(|g| g.weights).sum();
        let point = |picks: &[usize]| -> Point {
            let each = || picks.iter().enumerate();
            let bytes: u64 = each().map(|(g, p)| job.groups[g].bytes(job.source, table.0[g][*p].0)).sum();
            (8.0 * bytes as f64 / weights as f64, each().map(|(g, p)| choices[g][*p].cost).sum())
        };
        let sum = |of: fn(u64, u64) -> u64| -> u64 {
            let of_group =
                |g: &Vec<EncodingChoice>| g.iter().map(|c| c.bytes).reduce(of).expect("a group has a choice");
            choices.iter().map(of_group).sum()
        };
        let (least, most) = (sum(u64::min), sum(u64::max));
        let budgets = (0..=CURVE_STEPS).map(|i| least + (most - least) * i / CURVE_STEPS);
        let curve = budgets.filter_map(|budget| allocate(choices, budget)).map(|picks| point(&picks)).collect();
        let place = |g: usize, ty: BlockType| table.0[g].iter().position(|entry| entry.0 == ty);
        let in_its_place = |ty: BlockType| fitting(ty, 32).expect("every type has one with blocks of 32");
        let fits = |ty: &BlockType| (0..choices.len()).any(|g| place(g, *ty).is_some());
        let uniform = MENU.into_iter().filter(fits).filter_map(|ty| {
            let of_group = |g| place(g, ty).or_else(|| place(g, in_its_place(ty)));
            let picks: Option<Vec<usize>> = (0..choices.len()).map(of_group).collect();
            Some((ty, point(&picks?)))
        });
        Self { curve, uniform: uniform.collect() }
    }
}

/// The divergence of every group alone in its type.
fn each_measured(
    job: &QuantizeJob<'_>,
    types: &[BlockType],
    importance: &Importance,
    answered: &BaseAnswers,
) -> Result<Vec<f64>, CliError> {
    let mut kept = KeptDivergences::open(job);
    let mut progress = StepProgress::new("measuring groups");
    let mut all = Vec::new();
    for (group, ty) in job.groups.iter().zip(types) {
        // What was measured to choose is kept under the group's name alone.
        let name = if *ty == PROBE { group.name() } else { format!("{} as {}", group.name(), ty.name()) };
        all.push(kept.or_measure(&name, || answered.of_group((job.source, job.encoder), group, *ty, importance))?.0);
        progress.show(all.len(), types.len());
    }
    progress.end();
    Ok(all)
}

fn sampled(
    job: &QuantizeJob<'_>,
    group: &Group,
    ty: BlockType,
    importance: &Importance,
) -> Result<Distortion, CliError> {
    let rows = |name: &String| job.source.tensor(name).map_or(0, |t| t.rows() * t.matrices());
    let rows: usize = group.tensors.iter().map(rows).sum();
    group_distortion((job.source, job.encoder), group, ty, importance, EVERY.min(rows / ROWS_MIN).max(1))
}

/// Of each group, its types with what they do to it.
struct DistortionTable(Vec<Vec<(BlockType, Distortion)>>);

impl DistortionTable {
    fn measure(job: &QuantizeJob<'_>, importance: &Importance) -> Result<Self, CliError> {
        let mut progress = StepProgress::new("trying types");
        let mut rows = Vec::new();
        for (i, group) in job.groups.iter().enumerate() {
            let each = menu(job.source, group).map(|ty| Ok((ty, sampled(job, group, ty, importance)?)));
            rows.push(each.collect::<Result<Vec<_>, CliError>>()?);
            progress.show(i + 1, job.groups.len());
        }
        progress.end();
        Ok(Self(rows))
    }
}

/// Kurtosis times rank of a group's first tensor.
fn look(source: &Gguf, group: &Group) -> Result<f64, CliError> {
    weight_shape(source.tensor(&group.tensors[0]).expect("a group's tensors are the file's")).map_err(failed)
}

/// `alpha` of every group: measured at some depths of each role, between them interpolated in its logarithm.
fn alphas(job: &QuantizeJob<'_>, importance: &Importance, answered: &BaseAnswers) -> Result<Vec<f64>, CliError> {
    let mut roles: BTreeMap<MatrixRole, Vec<usize>> = BTreeMap::new();
    job.groups.iter().enumerate().for_each(|(i, g)| roles.entry(g.role).or_default().push(i));
    let depths = job.args.depths as usize;
    let probes: Vec<Vec<usize>> = roles.values().map(|all| spread(all, depths)).collect();
    let mut kept = KeptDivergences::open(job);
    let (all, mut done) = (probes.iter().map(Vec::len).sum(), 0);
    let mut progress = StepProgress::new("measuring divergences");
    let mut alpha = vec![0.0; job.groups.len()];
    for (role, probes) in roles.values().zip(&probes) {
        let mut known = Vec::new();
        for i in probes {
            let group = &job.groups[*i];
            let (kl, t2) = kept
                .or_measure(&group.name(), || answered.of_group((job.source, job.encoder), group, PROBE, importance))?;
            known.push((*i, kl.max(f64::MIN_POSITIVE) / t2.max(f64::MIN_POSITIVE)));
            done += 1;
            progress.show(done, all);
        }
        role.iter().for_each(|i| alpha[*i] = between(&known, *i));
    }
    progress.end();
    Ok(alpha)
}

/// At most `count` of them, evenly, the first and the last among them.
fn spread(all: &[usize], count: usize) -> Vec<usize> {
    if all.len() <= count {
        return all.to_vec();
    }
    let last = all.len() - 1;
    let mut picked: Vec<usize> = (0..count).map(|i| all[i * last / (count - 1).max(1)]).collect();
    picked.dedup();
    picked
}

/// The value at `at` of points in ascending order, linear in the logarithm, constant beyond the ends.
fn between(known: &[(usize, f64)], at: usize) -> f64 {
    let after = known.partition_point(|k| k.0 < at);
    match (after.checked_sub(1).map(|i| known[i]), known.get(after)) {
        (_, Some((x, y))) if *x == at => *y,
        (Some((x0, y0)), Some((x1, y1))) => {
            let share = (at - x0) as f64 / (x1 - x0) as f64;
            (y0.ln() * (1.0 - share) + y1.ln() * share).exp()
        }
        (Some((_, y)), None) | (None, Some(&(_, y))) => y,
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_are_spread_and_what_lies_between_is_interpolated() {
        assert_eq!(spread(&[3, 4, 5], 5), [3, 4, 5]);
        assert_eq!(spread(&(0..40).collect::<Vec<_>>(), 5), [0, 9, 19, 29, 39]);
        assert_eq!(spread(&[1, 2, 3], 1), [1]);
        let known = [(2, 1.0), (4, 4.0)];
        assert_eq!(between(&known, 0), 1.0);
        assert!((between(&known, 3) - 2.0).abs() < 1e-12);
        assert_eq!(between(&known, 4), 4.0);
        assert_eq!(between(&known, 9), 4.0);
    }
}
