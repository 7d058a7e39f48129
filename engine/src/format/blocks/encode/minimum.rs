//! Groups with a scale and a minimum: Q4_K and Q5_K, 8 groups of 32 whose scales and minima are 6-bit multiples of two
//! f16 factors. The multiples around the best real numbers are all tried with the factors as stored, then the factors
//! are fitted to the codes and the multiples tried again.

use super::codes::put_all;
use super::search::{ScaleGroup, ScaledBlock, round};
use crate::format::BlockType;
use half::f16;

/// Values of a group.
const GROUP: usize = 32;
/// Largest multiple of a factor.
const MULTIPLE_MAX: f32 = 63.0;
/// So far from the nearest multiple others are tried.
const REACH: i32 = 3;
/// Fits of the two factors.
const ROUNDS: usize = 3;

/// `x = scale q + min`, `q` from 0 to `q_max`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScaleMin {
    pub(super) scale: f32,
    pub(super) min: f32,
}

/// Sums of weighted products, from which least squares make a scale and a minimum.
#[derive(Default)]
struct WeightedSums {
    w: f32,
    x: f32,
    q: f32,
    qq: f32,
    qx: f32,
}

impl WeightedSums {
    fn of(group: ScaleGroup<'_>, q: &[f32; GROUP]) -> Self {
        let mut m = Self::default();
        for ((x, w), q) in group.x.iter().zip(group.w).zip(q) {
            m.w += w;
            m.x += w * x;
            m.q += w * q;
            m.qq += w * q * q;
            m.qx += w * q * x;
        }
        m
    }

    /// The scale and a minimum of at most `min_max`.
    fn solve(&self, min_max: f32) -> Option<ScaleMin> {
        let det = self.w * self.qq - self.q * self.q;
        if det <= 0.0 {
            return None;
        }
        let min = (self.qq * self.x - self.q * self.qx) / det;
        let scale = (self.w * self.qx - self.x * self.q) / det;
        if min <= min_max {
            return Some(ScaleMin { scale, min });
        }
        (self.qq > 0.0).then(|| ScaleMin { scale: (self.qx - min_max * self.q) / self.qq, min: min_max })
    }
}

impl ScaleMin {
    /// The best of 37 trial scales with least squares after each, as ggml's files are made; the minimum is at most
    /// `min_max`.
    pub(super) fn fit(group: ScaleGroup<'_>, q_max: f32, min_max: f32) -> Self {
        // Compared, not `min`: which zero that gives is the processor's choice.
        let low = group.x.iter().fold(f32::INFINITY, |m, x| m.min(*x));
        let low = if min_max < low { min_max } else { low };
        let high = group.x.iter().fold(f32::NEG_INFINITY, |m, x| m.max(*x));
        if high <= low {
            return Self { scale: 0.0, min: low };
        }
        let first = Self { scale: (high - low) / q_max, min: low };
        let mut best = (first.codes(group, q_max).1, first);
        for i in 0..=36 {
            let trial = Self { scale: (high - low) / (q_max - 0.9 + 0.05 * i as f32), min: low };
            let (q, _) = trial.codes(group, q_max);
            if let Some(fit) = WeightedSums::of(group, &q).solve(min_max).filter(|fit| fit.scale > 0.0) {
                let error = fit.error_of(group, &q);
                if error < best.0 {
                    best = (error, fit);
                }
            }
        }
        best.1
    }

    fn error_of(self, group: ScaleGroup<'_>, q: &[f32; GROUP]) -> f32 {
        let mut sum = 0.0;
        for ((x, w), q) in group.x.iter().zip(group.w).zip(q) {
            let off = x - (self.scale * q + self.min);
            sum += w * off * off;
        }
        sum
    }

    /// The nearest codes and their error.
    fn codes(self, group: ScaleGroup<'_>, q_max: f32) -> ([f32; GROUP], f32) {
        let inverse = if self.scale == 0.0 { 0.0 } else { 1.0 / self.scale };
        let mut q = [0.0; GROUP];
        let mut sum = 0.0;
        for ((q, x), w) in q.iter_mut().zip(group.x).zip(group.w) {
            *q = round(((x - self.min) * inverse).max(0.0).min(q_max));
            let off = x - (self.scale * *q + self.min);
            sum += w * off * off;
        }
        (q, sum)
    }
}

/// A block's codes with the factors that they belong to.
#[derive(Clone)]
struct MinimumBlock {
    error: f32,
    factors: [f16; 2],
    /// Multiples of scale and minimum of each group.
    multiples: [(f32, f32); 8],
    codes: [[f32; GROUP]; 8],
}

impl MinimumBlock {
    /// The best multiples near `fits` for factors near these.
    fn search(block: &ScaledBlock, q_max: f32, fits: &[ScaleMin; 8], factors: [f32; 2]) -> Self {
        let ((stored_d, d), (stored_m, m)) = (block.factor(factors[0]), block.factor(factors[1]));
        let mut all =
            Self { error: 0.0, factors: [stored_d, stored_m], multiples: [(0.0, 0.0); 8], codes: [[0.0; GROUP]; 8] };
        for (g, fit) in fits.iter().enumerate() {
            let group = block.group(g, GROUP);
            let mut best = f32::INFINITY;
            for l in around(fit.scale, d) {
                for lm in around(-fit.min, m) {
                    let (q, error) = ScaleMin { scale: d * l, min: -(m * lm) }.codes(group, q_max);
                    if error < best {
                        (best, all.multiples[g], all.codes[g]) = (error, (l, lm), q);
                    }
                }
            }
            all.error += best;
        }
        all
    }

    /// The factors for which the error of these codes is least: 2 x 2 least squares over the whole block.
    fn fitted(&self, block: &ScaledBlock) -> Option<[f32; 2]> {
        let (mut aa, mut ab, mut bb, mut ax, mut bx) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (g, (l, lm)) in self.multiples.iter().enumerate() {
            let group = block.group(g, GROUP);
            for ((x, w), q) in group.x.iter().zip(group.w).zip(&self.codes[g]) {
                let (a, b) = (l * q, -lm);
                aa += w * a * a;
                ab += w * a * b;
                bb += w * b * b;
                ax += w * a * x;
                bx += w * b * x;
            }
        }
        let det: f32 = aa * bb - ab * ab;
        if bb == 0.0 {
            return (aa > 0.0).then(|| [ax / aa, 0.0]);
        }
        (det > 0.0).then(|| [(ax * bb - bx * ab) / det, (bx * aa - ax * ab) / det])
    }
}

/// Multiples of `unit` around `x`.
fn around(x: f32, unit: f32) -> impl Iterator<Item = f32> {
    let middle = if unit == 0.0 { 0 } else { (x / unit).clamp(0.0, MULTIPLE_MAX).round() as i32 };
    let reach = if unit == 0.0 { 0 } else { REACH };
    ((middle - reach).max(0)..=(middle + reach).min(MULTIPLE_MAX as i32)).map(|l| l as f32)
}

fn coded(block: &ScaledBlock, q_max: f32) -> MinimumBlock {
    let fits: [ScaleMin; 8] = std::array::from_fn(|g| ScaleMin::fit(block.group(g, GROUP), q_max, 0.0));
    let top = |of: fn(&ScaleMin) -> f32| fits.iter().map(of).fold(0.0, |m, v| if v > m { v } else { m }) / MULTIPLE_MAX;
    let mut best = MinimumBlock::search(block, q_max, &fits, [top(|f| f.scale), top(|f| -f.min)]);
    for _ in 0..ROUNDS {
        let Some(factors) = best.fitted(block) else { break };
        let next = MinimumBlock::search(block, q_max, &fits, factors);
        if next.error >= best.error {
            break;
        }
        best = next;
    }
    best
}

/// Factors, and the 12 bytes of eight 6-bit scales and minima.
fn put_head(coded: &MinimumBlock, out: &mut [u8]) {
    out[..2].copy_from_slice(&coded.factors[0].to_le_bytes());
    out[2..4].copy_from_slice(&coded.factors[1].to_le_bytes());
    let s = &mut out[4..16];
    for (g, (l, m)) in coded.multiples.iter().enumerate() {
        let (l, m) = (*l as u8, *m as u8);
        if g < 4 {
            s[g] |= l;
            s[g + 4] |= m;
        } else {
            s[g + 4] = l & 15 | m << 4;
            s[g - 4] |= l >> 4 << 6;
            s[g] |= m >> 4 << 6;
        }
    }
}

fn put_block(ty: BlockType, coded: &MinimumBlock, out: &mut [u8]) {
    put_head(coded, out);
    put_all(ty, coded.codes.iter().flatten().map(|q| *q as u8), out);
}

pub(super) fn q4_k(block: &ScaledBlock, out: &mut [u8]) {
    put_block(BlockType::Q4K, &coded(block, 15.0), out);
}

pub(super) fn q5_k(block: &ScaledBlock, out: &mut [u8]) {
    put_block(BlockType::Q5K, &coded(block, 31.0), out);
}
