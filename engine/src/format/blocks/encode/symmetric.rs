//! Groups with a signed scale and no minimum, whose scales are whole multiples of one f16 factor: Q3_K and Q6_K (16
//! groups of 16, evenly spaced levels), IQ4_XS (8 groups of 32, a table of levels). The multiples around the best real
//! scale are tried with the factor as stored, then the factor is fitted to the codes and the multiples tried again.

use super::codes::put_all;
use super::levels::{IQ4, code_in, ends, iq4_ends};
use super::search::{LevelSet, LevelTable, ScaledBlock, WholeNumbers};
use crate::format::BlockType;
use half::f16;

/// Fits of the factor.
const ROUNDS: usize = 3;

/// The levels and multiples that a type allows.
#[derive(Clone, Copy)]
struct SymmetricGrid<L> {
    levels: L,
    /// Values of a group.
    group: usize,
    /// The multiples go from `-multiples` to `multiples - 1`.
    multiples: i32,
    /// So far from the nearest multiple others are tried.
    reach: i32,
}

/// A block's codes with the factor that they belong to.
struct SymmetricBlock {
    error: f32,
    factor: f16,
    multiples: Vec<i32>,
    levels: Vec<f32>,
}

impl<L: LevelSet> SymmetricGrid<L> {
    fn coded(self, block: &ScaledBlock, ends: impl Iterator<Item = f32> + Clone) -> SymmetricBlock {
        let groups = block.x.len() / self.group;
        let scales: Vec<f32> =
            (0..groups).map(|g| block.group(g, self.group).scale(self.levels, ends.clone())).collect();
        let top = scales.iter().fold(0.0f32, |m, s| if s.abs() > m.abs() { *s } else { m });
        // The largest scale gets the outermost multiple, which is negative.
        let mut best = self.search(block, &scales, -top / self.multiples as f32);
        for _ in 0..ROUNDS {
            let Some(d) = self.fitted(block, &best) else { break };
            let next = self.search(block, &scales, d);
            if next.error >= best.error {
                break;
            }
            best = next;
        }
        best
    }

    /// The best multiples near `scales` for a factor near `d`.
    fn search(self, block: &ScaledBlock, scales: &[f32], d: f32) -> SymmetricBlock {
        let (factor, d) = block.factor(d);
        let mut all = SymmetricBlock { error: 0.0, factor, multiples: Vec::new(), levels: Vec::new() };
        for (g, scale) in scales.iter().enumerate() {
            let group = block.group(g, self.group);
            let (least, most) = (-self.multiples, self.multiples - 1);
            let middle = if d == 0.0 { 0 } else { (scale / d).round().clamp(least as f32, most as f32) as i32 };
            let tried = (middle - self.reach).max(least)..=(middle + self.reach).min(most);
            let errors = tried.map(|l| (group.error(self.levels, d * l as f32), l));
            let (error, l) = errors.reduce(|a, b| if b.0 < a.0 { b } else { a }).expect("the middle is tried");
            let scale = d * l as f32;
            let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
            all.error += error;
            all.multiples.push(l);
            all.levels.extend(group.x.iter().map(|x| self.levels.nearest(x * inverse)));
        }
        all
    }

    /// The factor for which the error of these codes is least.
    fn fitted(self, block: &ScaledBlock, coded: &SymmetricBlock) -> Option<f32> {
        let (mut xa, mut aa) = (0.0, 0.0);
        for (e, ((x, w), level)) in block.x.iter().zip(&block.w).zip(&coded.levels).enumerate() {
            let a = level * coded.multiples[e / self.group] as f32;
            xa += w * x * a;
            aa += w * a * a;
        }
        (aa > 0.0).then(|| xa / aa)
    }
}

pub(super) fn q6_k(block: &ScaledBlock, out: &mut [u8]) {
    let form = SymmetricGrid { levels: WholeNumbers { min: -32.0, max: 31.0 }, group: 16, multiples: 128, reach: 12 };
    let coded = form.coded(block, (-9..=9).flat_map(|i| [-32.0 - 0.1 * i as f32, 32.0 + 0.1 * i as f32]));
    put_all(BlockType::Q6K, coded.levels.iter().map(|level| (level + 32.0) as u8), out);
    out[192..208].iter_mut().zip(&coded.multiples).for_each(|(out, l)| *out = *l as i8 as u8);
    out[208..].copy_from_slice(&coded.factor.to_le_bytes());
}

pub(super) fn q3_k(block: &ScaledBlock, out: &mut [u8]) {
    let form = SymmetricGrid { levels: WholeNumbers { min: -4.0, max: 3.0 }, group: 16, multiples: 32, reach: 8 };
    let coded = form.coded(block, ends(4.0).collect::<Vec<_>>().into_iter());
    put_all(BlockType::Q3K, coded.levels.iter().map(|level| (level + 4.0) as u8), out);
    for (j, l) in coded.multiples.iter().enumerate() {
        let s = (l + 32) as u8;
        out[96 + j % 8] |= (s & 15) << (4 * (j / 8));
        out[104 + j % 4] |= (s >> 4) << (2 * (j / 4));
    }
    out[108..].copy_from_slice(&coded.factor.to_le_bytes());
}

pub(super) fn iq4_xs(block: &ScaledBlock, out: &mut [u8]) {
    let form = SymmetricGrid { levels: LevelTable(&IQ4), group: 32, multiples: 32, reach: 4 };
    let coded = form.coded(block, iq4_ends().collect::<Vec<_>>().into_iter());
    out[..2].copy_from_slice(&coded.factor.to_le_bytes());
    let mut high = 0u16;
    for (g, l) in coded.multiples.iter().enumerate() {
        let s = (l + 32) as u8;
        high |= u16::from(s >> 4) << (2 * g);
        out[4 + g / 2] |= (s & 15) << (4 * (g % 2));
    }
    out[2..4].copy_from_slice(&high.to_le_bytes());
    put_all(BlockType::Iq4Xs, coded.levels.iter().map(|level| code_in(&IQ4, *level)), out);
}
