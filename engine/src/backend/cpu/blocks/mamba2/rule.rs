//! Mamba-2 between convolution and norm: one head over some rows of one sequence.
//!
//! The state lies as `[N, P]`, so that its columns are independent and every sum over N is one chain in order: a tile
//! of the state stays in registers while all rows go past it, and tiles of any size give the same bytes. Cost of a
//! token and head in vector operations of [`LANES`]: 3 P N / 16, with the state read and written once a segment.

use crate::backend::cpu::simd::{Kernel, LANES, Lanes};
use crate::model::Mamba2Config;

/// Rows that go past a tile of the state before the next tile's turn. What they need of the first-level cache is
/// their inputs and sums, 2 P floats a row.
pub(super) const SEGMENT: usize = 32;

/// One head over up to [`SEGMENT`] rows. The rows of x, B and C lie a row of channels apart, those of z a row of
/// values.
pub(super) struct Mamba2Head<'a> {
    pub(super) config: &'a Mamba2Config,
    pub(super) rows: usize,
    /// `[rows, P]` of the head, from its first column on.
    pub(super) x: &'a [f32],
    /// `[rows, N]` of its group.
    pub(super) b: &'a [f32],
    /// `[rows, N]` of its group.
    pub(super) c: &'a [f32],
    /// `[rows, P]` of the head.
    pub(super) z: &'a [f32],
    /// What of x goes past the state.
    pub(super) d: f32,
    /// The head's state, `[N, P]`.
    pub(super) state: &'a mut [f32],
    /// Holds step sizes and decays; takes the gated output.
    pub(super) scratch: &'a mut Mamba2Scratch,
}

/// What one thread needs for any head of a model.
#[derive(Default)]
pub(super) struct Mamba2Scratch {
    /// `[SEGMENT]` each: step sizes, and what the state is multiplied with.
    pub(super) dt: Vec<f32>,
    pub(super) decay: Vec<f32>,
    /// `[SEGMENT, P]`: x times its step size.
    u: Vec<f32>,
    /// `[SEGMENT, P]`: what is read from the state, then the gated output.
    pub(super) y: Vec<f32>,
}

impl Mamba2Scratch {
    pub(super) fn new(c: &Mamba2Config) -> Self {
        let zeros = |n: usize| vec![0.0; SEGMENT * n];
        Self { dt: zeros(1), decay: zeros(1), u: zeros(c.head_dim), y: zeros(c.head_dim) }
    }
}

impl Kernel for Mamba2Head<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call<L: Lanes>(mut self) {
        let (pd, nd) = (self.config.head_dim, self.config.state_dim);
        self.check();
        // SAFETY: the instruction set is the caller's promise; sizes were just checked.
        unsafe {
            self.begin::<L>();
            let mut col = 0;
            while col < pd {
                let (vectors, values) = match (pd - col) / LANES {
                    2.. if L::TILE.1 > 1 => (2, 8),
                    _ => (1, 4),
                };
                for n in (0..nd).step_by(values) {
                    match vectors {
                        2 => self.tile::<L, 2, 8>(n, col),
                        _ => self.tile::<L, 1, 4>(n, col),
                    }
                }
                col += vectors * LANES;
            }
            self.end::<L>();
        }
    }
}

impl Mamba2Head<'_> {
    /// What the unchecked accesses below rely on.
    fn check(&self) {
        let (c, rows) = (self.config, self.rows);
        let last = |width: usize, stride: usize| (rows - 1) * stride + width;
        assert!((1..=SEGMENT).contains(&rows), "{rows} rows of at most {SEGMENT}");
        assert!(c.head_dim.is_multiple_of(LANES) && c.state_dim.is_multiple_of(8), "whole vectors and tiles");
        assert!(self.x.len() >= last(c.head_dim, c.channels()) && self.z.len() >= last(c.head_dim, c.values()));
        assert!(self.b.len().min(self.c.len()) >= last(c.state_dim, c.channels()), "a state of B and C a row");
        assert_eq!(self.state.len(), c.head_dim * c.state_dim, "a state is [N, P]");
        assert!(self.scratch.u.len().min(self.scratch.y.len()) >= rows * c.head_dim, "scratch of the model's shape");
    }

    /// `u = dt x`, and sums of nothing.
    #[inline(always)]
    unsafe fn begin<L: Lanes>(&mut self) {
        let (pd, channels, s) = (self.config.head_dim, self.config.channels(), &mut *self.scratch);
        s.y[..self.rows * pd].fill(0.0);
        for t in 0..self.rows {
            for p in (0..pd).step_by(LANES) {
                // SAFETY: the caller's; `check` has the lengths.
                unsafe {
                    let u = L::load(self.x.as_ptr().add(t * channels + p)).mul(L::splat(s.dt[t]));
                    u.store(s.u.as_mut_ptr().add(t * pd + p));
                }
            }
        }
    }

    /// `h = e^(dt a) h + u B` and `y += h C` for all rows and `V` vectors of columns of `R` rows of the state.
    #[inline(always)]
    unsafe fn tile<L: Lanes, const V: usize, const R: usize>(&mut self, n: usize, col: usize) {
        let (pd, channels, s) = (self.config.head_dim, self.config.channels(), &mut *self.scratch);
        // SAFETY: the caller's; `check` has the lengths, and R divides N.
        unsafe {
            let state = self.state.as_mut_ptr().add(n * pd + col);
            let mut h = [[L::splat(0.0); V]; R];
            for (r, h) in h.iter_mut().enumerate() {
                for (v, h) in h.iter_mut().enumerate() {
                    *h = L::load(state.add(r * pd + v * LANES));
                }
            }
            for t in 0..self.rows {
                let (b, c) = (self.b.as_ptr().add(t * channels + n), self.c.as_ptr().add(t * channels + n));
                let (u, y) = (s.u.as_ptr().add(t * pd + col), s.y.as_mut_ptr().add(t * pd + col));
                let decay = L::splat(s.decay[t]);
                let mut sums = [L::splat(0.0); V];
                let mut inputs = [L::splat(0.0); V];
                for v in 0..V {
                    (sums[v], inputs[v]) = (L::load(y.add(v * LANES)), L::load(u.add(v * LANES)));
                }
                for (r, h) in h.iter_mut().enumerate() {
                    let (br, cr) = (L::splat(*b.add(r)), L::splat(*c.add(r)));
                    for v in 0..V {
                        h[v] = br.mul_add(inputs[v], h[v].mul(decay));
                        sums[v] = cr.mul_add(h[v], sums[v]);
                    }
                }
                for (v, sum) in sums.iter().enumerate() {
                    sum.store(y.add(v * LANES));
                }
            }
            for (r, h) in h.iter().enumerate() {
                for (v, h) in h.iter().enumerate() {
                    h.store(state.add(r * pd + v * LANES));
                }
            }
        }
    }

    /// `y = (y + d x) silu(z)`: the gate comes before the norm.
    #[inline(always)]
    unsafe fn end<L: Lanes>(&mut self) {
        let (pd, channels, values) = (self.config.head_dim, self.config.channels(), self.config.values());
        for t in 0..self.rows {
            for p in (0..pd).step_by(LANES) {
                // SAFETY: the caller's; `check` has the lengths.
                unsafe {
                    let at = self.scratch.y.as_mut_ptr().add(t * pd + p);
                    let x = L::load(self.x.as_ptr().add(t * channels + p));
                    let y = L::splat(self.d).mul_add(x, L::load(at));
                    y.mul(L::load(self.z.as_ptr().add(t * values + p)).silu()).store(at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::blocks::conv::softplus;
    use crate::backend::cpu::simd::run;
    use chimere_kernels::reference::{Mamba2Inputs, exp, mamba2_recurrent};

    const ROWS: usize = 70;

    fn config(head_dim: usize) -> Mamba2Config {
        Mamba2Config { heads: 4, head_dim, state_dim: 32, groups: 2, conv_taps: 4, normed: true }
    }

    fn wave(len: usize, f: f32) -> Vec<f32> {
        (0..len).map(|i| (i as f32 * f).sin()).collect()
    }

    /// Inputs of every head, as the block has them.
    struct Case {
        config: Mamba2Config,
        convolved: Vec<f32>,
        z: Vec<f32>,
        dt: Vec<f32>,
    }

    const A: f32 = -0.7;
    const D: f32 = 0.4;

    fn case(head_dim: usize) -> Case {
        let config = config(head_dim);
        let (convolved, z) = (wave(ROWS * config.channels(), 0.71), wave(ROWS * config.values(), 0.37));
        Case { config, convolved, z, dt: wave(ROWS, 1.3) }
    }

    /// Gated outputs and state of head `h`, in pieces that end at `ends`.
    fn computed(case: &Case, h: usize, ends: &[usize]) -> (Vec<f32>, Vec<f32>) {
        let c = &case.config;
        let (mut state, mut out, mut at) = (vec![0.0; c.head_dim * c.state_dim], Vec::new(), 0);
        let mut scratch = Mamba2Scratch::new(c);
        let group = c.group(h) * c.state_dim;
        for end in ends {
            while at < *end {
                let rows = SEGMENT.min(end - at);
                for i in 0..rows {
                    scratch.dt[i] = softplus(case.dt[at + i]);
                    scratch.decay[i] = exp(scratch.dt[i] * A);
                }
                let convolved = &case.convolved[at * c.channels()..];
                run(Mamba2Head {
                    config: c,
                    rows,
                    x: &convolved[h * c.head_dim..],
                    b: &convolved[c.values() + group..],
                    c: &convolved[c.values() + c.groups * c.state_dim + group..],
                    z: &case.z[at * c.values() + h * c.head_dim..],
                    d: D,
                    state: &mut state,
                    scratch: &mut scratch,
                });
                out.extend_from_slice(&scratch.y[..rows * c.head_dim]);
                at += rows;
            }
        }
        (out, state)
    }

    fn defined(case: &Case, h: usize) -> Vec<f32> {
        let c = &case.config;
        let group = c.group(h) * c.state_dim;
        let part = |first: usize, n: usize| -> Vec<f32> {
            case.convolved.chunks(c.channels()).flat_map(|row| &row[first..first + n]).copied().collect()
        };
        let inputs = Mamba2Inputs {
            x: &part(h * c.head_dim, c.head_dim),
            b: &part(c.values() + group, c.state_dim),
            c: &part(c.values() + c.groups * c.state_dim + group, c.state_dim),
            dt: &case.dt,
            dt_bias: 0.0,
            a: A,
            d: D,
            head_dim: c.head_dim,
            state_dim: c.state_dim,
        };
        let y = mamba2_recurrent(&inputs, &mut vec![0.0; c.head_dim * c.state_dim]);
        let z = case.z.chunks(c.values()).flat_map(|row| &row[h * c.head_dim..(h + 1) * c.head_dim]);
        y.iter().zip(z).map(|(y, z)| y * z / (1.0 + (-z).exp())).collect()
    }

    #[test]
    fn every_head_agrees_with_the_definition() {
        for head_dim in [16, 32, 48, 64] {
            let case = case(head_dim);
            for h in 0..case.config.heads {
                let (got, want) = (computed(&case, h, &[ROWS]).0, defined(&case, h));
                let worst = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst < 1e-4, "width {head_dim}, head {h}: {worst}");
            }
        }
    }

    #[test]
    fn no_split_changes_a_byte() {
        let case = case(48);
        let whole = computed(&case, 3, &[ROWS]);
        assert_eq!(whole, computed(&case, 3, &[1, 2, 33, 64, ROWS]));
        assert_eq!(whole, computed(&case, 3, &(1..=ROWS).collect::<Vec<_>>()));
    }
}
