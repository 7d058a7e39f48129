//! Magnitudes four at a time from a code book, signs apart: IQ3_S and IQ3_XXS. A block of 256 has 8 groups of 32, whose
//! scales are odd multiples (1 to 31) of one factor.
//!
//! For every quad and every entry of the book `sum w x g` and `sum w g^2` are made once; the error of a quad at a scale
//! `s` is then the least `s (s gg - 2 xg)` over the book. From a group's errors at many scales the promising factors
//! are told; for each of them all sixteen multiples are tried, each with the entries that are best for it, so codes are
//! chosen at the scale that is stored. Then the factor is fitted to the entries, and the multiples are tried again.

use super::search::ScaledBlock;
use crate::format::blocks::grids;
use half::f16;

/// Values of a group.
const GROUP: usize = 32;
/// Values that share an entry of the book.
const QUAD: usize = 4;
/// Largest odd multiple of the factor.
const MULTIPLE_MAX: f32 = 31.0;
/// Scales at which a group's error is made before any factor is chosen, evenly from [`SCALE_MIN`] to [`SCALE_MAX`] of
/// the one that lets the largest entry meet the group's largest value.
const SCALES: usize = 72;
const SCALE_MIN: f32 = 0.5;
const SCALE_MAX: f32 = 1.5;
/// Factors that are weighed by those errors, evenly between two shares of the one at which the largest value of the
/// block is just within reach.
const FACTORS: usize = 192;
const SHARE_MIN: f32 = 0.55;
const SHARE_MAX: f32 = 1.25;
/// The best of them are tried.
const TRIED: usize = 4;
/// Fits of the factor to the entries that were chosen.
const ROUNDS: usize = 4;
/// Entries that are compared at once.
const LANES: usize = 8;

/// Products of one quad with the book, in lanes.
struct Quad<const N: usize> {
    /// `2 sum w x g`.
    xg: [f32; N],
    /// `sum w g^2` of each entry: the weighted square of its values.
    gg: [f32; N],
}

impl<const N: usize> Quad<N> {
    fn new(x: &[f32], w: &[f32], book: &[[f32; N]; QUAD]) -> Self {
        let mut quad = Self { xg: [0.0; N], gg: [0.0; N] };
        for ((x, w), g) in x.iter().zip(w).zip(book) {
            let (x2, w) = (2.0 * w * x, *w);
            for ((xg, gg), g) in quad.xg.iter_mut().zip(&mut quad.gg).zip(g) {
                *xg += x2 * g;
                *gg += w * (g * g);
            }
        }
        quad
    }

    /// `min (s gg - 2 xg)`; times `s` it is the quad's error but for `sum w x^2`.
    #[inline(always)]
    fn least(&self, s: f32) -> f32 {
        let mut best = [f32::INFINITY; LANES];
        for (xg, gg) in self.xg.as_chunks::<LANES>().0.iter().zip(self.gg.as_chunks::<LANES>().0) {
            for i in 0..LANES {
                let v = s * gg[i] - xg[i];
                best[i] = if v < best[i] { v } else { best[i] };
            }
        }
        best.iter().fold(f32::INFINITY, |m, v| if *v < m { *v } else { m })
    }

    /// The first entry that has it.
    fn entry(&self, s: f32) -> usize {
        let least = self.least(s);
        (0..N).find(|k| s * self.gg[*k] - self.xg[*k] == least).expect("the least is one of them")
    }
}

/// `sum over quads of least`, times the scale, with the widest instructions that there are. No product is contracted
/// with a sum, so the bits are the same.
fn group_error<const N: usize>(quads: &[Quad<N>], s: f32) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        return unsafe { group_error_avx2(quads, s) };
    }
    group_error_plain(quads, s)
}

#[inline(always)]
fn group_error_plain<const N: usize>(quads: &[Quad<N>], s: f32) -> f32 {
    let mut sum = 0.0;
    for quad in quads {
        sum += quad.least(s);
    }
    s * sum
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn group_error_avx2<const N: usize>(quads: &[Quad<N>], s: f32) -> f32 {
    group_error_plain(quads, s)
}

/// The multiples of a block's groups at a factor, and the error but for `sum w x^2`.
#[derive(Clone, Debug, PartialEq)]
struct Scaled {
    error: f32,
    stored: f16,
    d: f32,
    /// 0 to 15: the multiple is `2 l + 1`.
    multiples: [u8; 8],
}

impl Scaled {
    /// The best of all multiples. `unit` is what the stored factor is multiplied with beside the odd number.
    fn search<const N: usize>(block: &ScaledBlock, quads: &[Quad<N>], factor: f32, unit: f32) -> Self {
        let (stored, d) = block.factor(factor / unit);
        let d = d * unit;
        let mut all = Self { error: 0.0, stored, d, multiples: [0; 8] };
        for (g, quads) in quads.chunks_exact(GROUP / QUAD).enumerate() {
            let mut best = f32::INFINITY;
            for l in 0..16u8 {
                let error = group_error(quads, d * f32::from(2 * l + 1));
                if error < best {
                    (best, all.multiples[g]) = (error, l);
                }
            }
            all.error += best;
        }
        all
    }

    /// Entry of each quad.
    fn entries<const N: usize>(&self, quads: &[Quad<N>]) -> Vec<usize> {
        quads.iter().enumerate().map(|(i, quad)| quad.entry(self.scale(i))).collect()
    }

    fn scale(&self, quad: usize) -> f32 {
        self.d * f32::from(2 * self.multiples[quad * QUAD / GROUP] + 1)
    }

    /// The factor for which the error of these entries is least.
    fn fitted<const N: usize>(&self, quads: &[Quad<N>]) -> f32 {
        let (mut xa, mut aa) = (0.0, 0.0);
        for (i, (quad, k)) in quads.iter().zip(self.entries(quads)).enumerate() {
            let odd = f32::from(2 * self.multiples[i * QUAD / GROUP] + 1);
            xa += odd * quad.xg[k] * 0.5;
            aa += odd * odd * quad.gg[k];
        }
        if aa > 0.0 { xa / aa } else { self.d }
    }
}

/// A group's errors at [`SCALES`] scales.
struct Curve {
    first: f32,
    steps_per_scale: f32,
    errors: [f32; SCALES],
}

impl Curve {
    fn new<const N: usize>(x: &[f32], quads: &[Quad<N>], top: f32) -> Self {
        let whole = x.iter().fold(0.0f32, |m, x| m.max(x.abs())) / top;
        let step = whole * (SCALE_MAX - SCALE_MIN) / (SCALES - 1) as f32;
        let first = whole * SCALE_MIN;
        let errors = std::array::from_fn(|i| group_error(quads, first + step * i as f32));
        Self { first, steps_per_scale: if step > 0.0 { 1.0 / step } else { 0.0 }, errors }
    }

    /// At the nearest scale that is known.
    fn at(&self, s: f32) -> f32 {
        let i = ((s - self.first) * self.steps_per_scale + 0.5).max(0.0).min((SCALES - 1) as f32);
        self.errors[i as usize]
    }
}

/// The factors for which the sum over the groups of the best multiple's error is least, by the groups' curves.
fn promising<const N: usize>(x: &[f32], quads: &[Quad<N>], top: f32) -> Vec<f32> {
    let groups = x.chunks_exact(GROUP).zip(quads.chunks_exact(GROUP / QUAD));
    let curves: Vec<Curve> = groups.map(|(x, quads)| Curve::new(x, quads, top)).collect();
    let share = |i: usize| SHARE_MIN + (SHARE_MAX - SHARE_MIN) * i as f32 / (FACTORS - 1) as f32;
    let error = |d: f32| {
        let best = |curve: &Curve| (0..16).map(|l| curve.at(d * (2 * l + 1) as f32)).fold(f32::INFINITY, f32::min);
        curves.iter().map(best).sum::<f32>()
    };
    let factors = (0..FACTORS).map(|i| share(i) / (top * MULTIPLE_MAX));
    let mut all: Vec<(f32, f32)> = factors.map(|d| (error(d), d)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.iter().take(TRIED).map(|(_, d)| *d).collect()
}

/// Multiples and entries of a block whose signs are taken off.
fn coded<const N: usize>(block: &ScaledBlock, x: &[f32], book: &[[f32; N]; QUAD], unit: f32) -> (Scaled, Vec<usize>) {
    let quads: Vec<Quad<N>> =
        x.chunks_exact(QUAD).zip(block.w.chunks_exact(QUAD)).map(|(x, w)| Quad::new(x, w, book)).collect();
    let top = book.iter().flatten().fold(0.0f32, |m, g| m.max(*g));
    let first = promising(x, &quads, top).into_iter().map(|d| Scaled::search(block, &quads, d, unit));
    let mut best = first.reduce(|a, b| if b.error < a.error { b } else { a }).expect("some factors are tried");
    for _ in 0..ROUNDS {
        let next = Scaled::search(block, &quads, best.fitted(&quads), unit);
        if next.error >= best.error {
            break;
        }
        best = next;
    }
    let entries = best.entries(&quads);
    (best, entries)
}

/// A book by component.
const fn by_component<const N: usize>(book: &[[u8; 4]; N]) -> [[f32; N]; QUAD] {
    let (mut out, mut k) = ([[0.0; N]; QUAD], 0);
    while k < N {
        let mut j = 0;
        while j < QUAD {
            out[j][k] = book[k][j] as f32;
            j += 1;
        }
        k += 1;
    }
    out
}

static IQ3_S: [[f32; 512]; QUAD] = by_component(&grids::IQ3_S);
static IQ3_XXS: [[f32; 256]; QUAD] = by_component(&grids::IQ3_XXS);

pub(super) fn iq3_s(block: &ScaledBlock, out: &mut [u8]) {
    let magnitudes: Vec<f32> = block.x.iter().map(|x| x.abs()).collect();
    let (scaled, entries) = coded(block, &magnitudes, &IQ3_S, 1.0);
    out[..2].copy_from_slice(&scaled.stored.to_le_bytes());
    for (quad, k) in entries.iter().enumerate() {
        out[2 + quad] = *k as u8;
        out[66 + quad / 8] |= ((k >> 8) as u8) << (quad % 8);
    }
    for (e, x) in block.x.iter().enumerate() {
        out[74 + e / 8] |= u8::from(*x < 0.0) << (e % 8);
    }
    for (g, l) in scaled.multiples.iter().enumerate() {
        out[106 + g / 2] |= l << (4 * (g % 2));
    }
}

/// Minus signs come in even numbers among eight values: where they do not, the value that weighs least gets the other
/// one, and is to be met by a magnitude as small as can be. The seven stored bits of each eight, and the values without
/// their signs.
fn even_signs(block: &ScaledBlock) -> (Vec<u32>, Vec<f32>) {
    let mut x: Vec<f32> = block.x.iter().map(|x| x.abs()).collect();
    let eights = block.x.chunks_exact(8).zip(block.w.chunks_exact(8)).zip(x.chunks_exact_mut(8));
    let stored = eights.map(|((x, w), out)| {
        let mut signs = x.iter().enumerate().fold(0u32, |s, (i, x)| s | u32::from(*x < 0.0) << i);
        if signs.count_ones() % 2 == 1 {
            let cost = |i: usize| w[i] * x[i] * x[i];
            let least = (1..8).fold(0, |m, i| if cost(i) < cost(m) { i } else { m });
            signs ^= 1 << least;
            out[least] = -out[least];
        }
        signs & 127
    });
    (stored.collect(), x)
}

pub(super) fn iq3_xxs(block: &ScaledBlock, out: &mut [u8]) {
    let (signs, magnitudes) = even_signs(block);
    // Scales are d (l + 1/2) / 2, a quarter of d times an odd number.
    let (scaled, entries) = coded(block, &magnitudes, &IQ3_XXS, 0.25);
    out[..2].copy_from_slice(&scaled.stored.to_le_bytes());
    entries.iter().enumerate().for_each(|(quad, k)| out[2 + quad] = *k as u8);
    for (g, (l, signs)) in scaled.multiples.iter().zip(signs.chunks_exact(4)).enumerate() {
        let word = signs.iter().enumerate().fold(u32::from(*l) << 28, |word, (i, s)| word | s << (7 * i));
        out[66 + 4 * g..70 + 4 * g].copy_from_slice(&word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::search::WeightedRow;
    use super::*;
    use crate::format::blocks::{BlockType, SplitMix, decode_row, quantize_row};

    fn values(seed: u64) -> (Vec<f32>, Vec<f32>) {
        let mut rng = SplitMix::new(seed, 0);
        let x = (0..256).map(|_| (0..6).map(|_| rng.signed_unit()).sum::<f32>()).collect();
        (x, (0..256).map(|_| 1.0 + rng.signed_unit()).collect())
    }

    /// The definition: every multiple with every entry, value by value.
    fn scalar<const N: usize>(block: &ScaledBlock, x: &[f32], book: &[[f32; N]; QUAD], d: f32) -> [u8; 8] {
        let quad_least = |at: usize, s: f32| {
            let mut least = f32::INFINITY;
            for k in 0..N {
                let (mut xg, mut gg) = (0.0, 0.0);
                for (j, book) in book.iter().enumerate() {
                    xg += 2.0 * block.w[at + j] * x[at + j] * book[k];
                    gg += block.w[at + j] * (book[k] * book[k]);
                }
                let v = s * gg - xg;
                if v < least {
                    least = v;
                }
            }
            least
        };
        std::array::from_fn(|g| {
            let error = |l: u8| {
                let s = d * f32::from(2 * l + 1);
                s * (0..8).fold(0.0, |sum, quad| sum + quad_least(g * GROUP + quad * QUAD, s))
            };
            (0..16).fold((0, f32::INFINITY), |best, l| if error(l) < best.1 { (l, error(l)) } else { best }).0
        })
    }

    #[test]
    fn the_fast_search_takes_the_multiples_of_the_scalar_one() {
        for seed in 0..4 {
            let (x, w) = values(seed);
            let block = WeightedRow::new(&x, Some(&w)).block(0..256).unwrap();
            let magnitudes: Vec<f32> = block.x.iter().map(|x| x.abs()).collect();
            let (scaled, _) = coded(&block, &magnitudes, &IQ3_S, 1.0);
            assert_eq!(scaled.multiples, scalar(&block, &magnitudes, &IQ3_S, scaled.d), "seed {seed}");
            let (_, magnitudes) = even_signs(&block);
            let (scaled, _) = coded(&block, &magnitudes, &IQ3_XXS, 0.25);
            assert_eq!(scaled.multiples, scalar(&block, &magnitudes, &IQ3_XXS, scaled.d), "seed {seed}");
        }
    }

    #[test]
    fn every_instruction_set_finds_the_same_errors() {
        let (x, w) = values(9);
        let quads: Vec<_> = x.chunks_exact(4).zip(w.chunks_exact(4)).map(|(x, w)| Quad::new(x, w, &IQ3_S)).collect();
        for i in 1..200 {
            let s = i as f32 * 0.003;
            assert_eq!(group_error(&quads, s).to_bits(), group_error_plain(&quads, s).to_bits(), "{s}");
        }
    }

    #[test]
    fn eight_values_have_an_even_number_of_minus_signs() {
        let (x, w) = values(3);
        let mut bytes = vec![0; 98];
        quantize_row(BlockType::Iq3Xxs, &x, Some(&w), &mut bytes);
        let mut back = vec![0.0; 256];
        decode_row(BlockType::Iq3Xxs, &bytes, &mut back);
        assert!(back.chunks(8).all(|b| b.iter().filter(|x| **x < 0.0).count() % 2 == 0));
        let wrong = x.iter().zip(&back).filter(|(x, back)| **x * **back < 0.0);
        assert!(wrong.clone().count() <= 32, "one a group of eight at most");
    }
}
