//! Attention over a paged cache, between its projections. One call is some query heads of one key/value head,
//! over some consecutive rows of one piece.
//!
//! Keys of a page lie transposed, so that the scores of its 32 positions are two vectors and no sum crosses lanes.
//! Softmax runs online, page after page: a row's bytes depend on its position alone, not on the rows beside it. A page
//! is read once for all query vectors of the call. Cost a row, head and page: 2 * 32 * D multiply-adds, 4 * 32 * D
//! bytes in f16.

use crate::backend::cpu::simd::gemm::{Element, Gemm, Start};
use crate::backend::cpu::simd::norm::norm_row_in_place;
use crate::backend::cpu::simd::{Kernel, LANES, Lanes};
use crate::backend::cpu::store::PAGE;
use crate::model::{AttentionConfig, Rope};
use std::ops::Range;

/// Query vectors that share a reading of a page.
pub(super) const QUERIES_MAX: usize = 16;

const _: () = assert!(PAGE == 2 * LANES, "the scores of a page are two vectors");

/// Some query heads over some rows.
pub(super) struct AttentionJob<'a, E, S> {
    pub(super) config: &'a AttentionConfig,
    /// Absolute position of the first row.
    pub(super) start: usize,
    pub(super) rows: usize,
    /// The first position that is attended to; no row is before it.
    pub(super) from: usize,
    /// First query head, and how many; all share one key/value head.
    pub(super) first_head: usize,
    pub(super) heads: usize,
    /// `[rows, heads * 2 * D]` of the rows: queries after norm and rotation, and gates; `[rows, heads * D]` without
    /// gates.
    pub(super) qg: &'a [f32],
    pub(super) cache: S,
    pub(super) scratch: &'a mut AttentionScratch,
    pub(super) element: std::marker::PhantomData<E>,
}

/// Where the cache is and the results go.
///
/// # Safety
/// Implementations hand out pages that nobody writes and output rows that nobody else touches while the job runs.
pub(super) unsafe trait AttentionIo<E> {
    /// Keys of the `n`th page, `[D, 32]`.
    fn keys(&self, n: usize) -> &[E];
    /// Values of the `n`th page, `[32, D]`.
    fn values(&self, n: usize) -> &[E];
    /// Output of a row and query head, `[D]`.
    #[allow(clippy::mut_from_ref, reason = "the implementation divides the buffer")]
    fn out(&self, row: usize, head: usize) -> &mut [f32];
}

/// What one thread needs for any job of a model.
#[derive(Default)]
pub(super) struct AttentionScratch {
    /// Queries times the scale of scores, `[QUERIES_MAX, D]`.
    q: Vec<f32>,
    /// `[QUERIES_MAX, 32]`: scores, then weights.
    p: Vec<f32>,
    /// Weighted sums of values so far, `[QUERIES_MAX, D]`.
    acc: Vec<f32>,
    /// `[QUERIES_MAX]` each: largest score and sum of weights so far.
    best: Vec<f32>,
    sum: Vec<f32>,
}

impl AttentionScratch {
    pub(super) fn new(c: &AttentionConfig) -> Self {
        let zeros = |n: usize| vec![0.0; QUERIES_MAX * n];
        Self { q: zeros(c.head_dim), p: zeros(PAGE), acc: zeros(c.head_dim), best: zeros(1), sum: zeros(1) }
    }
}

impl<E: Element, S: AttentionIo<E>> Kernel for AttentionJob<'_, E, S> {
    type Output = ();

    #[inline(always)]
    unsafe fn call<L: Lanes>(mut self) {
        let queries = self.rows * self.heads;
        assert!(queries <= QUERIES_MAX, "{queries} query vectors, at most {QUERIES_MAX}");
        self.gather();
        let last = self.start + self.rows - 1;
        for page in self.from / PAGE..=last / PAGE {
            // SAFETY: the caller's.
            unsafe { self.page::<L>(page) };
        }
        // SAFETY: the caller's.
        unsafe { self.finish::<L>() };
    }
}

impl<E: Element, S: AttentionIo<E>> AttentionJob<'_, E, S> {
    fn gather(&mut self) {
        let dim = self.config.head_dim;
        for i in 0..self.rows * self.heads {
            let (row, head) = (i / self.heads, self.first_head + i % self.heads);
            let q = &self.qg[self.query_at(row, head)..][..dim];
            self.scratch.q[i * dim..][..dim].iter_mut().zip(q).for_each(|(to, q)| *to = q * self.config.scale);
        }
        let queries = self.rows * self.heads;
        self.scratch.acc[..queries * dim].fill(0.0);
        self.scratch.best[..queries].fill(f32::NEG_INFINITY);
        self.scratch.sum[..queries].fill(0.0);
    }

    /// Where the query of a row and head begins.
    #[inline(always)]
    fn query_at(&self, row: usize, head: usize) -> usize {
        row * self.config.query_rows() + head * self.config.query_rows() / self.config.heads
    }

    /// How many positions of a page a query may see.
    fn visible(&self, query: usize, page: usize) -> usize {
        (self.start + query / self.heads + 1).saturating_sub(page * PAGE).min(PAGE)
    }

    #[inline(always)]
    unsafe fn page<L: Lanes>(&mut self, page: usize) {
        let (dim, m) = (self.config.head_dim, self.rows * self.heads);
        // SAFETY: the caller's.
        unsafe {
            let (a, b, c) = (&self.scratch.q, self.cache.keys(page), &mut self.scratch.p);
            Gemm { m, n: PAGE, k: dim, a, lda: dim, b, ldb: PAGE, c, ldc: PAGE, start: Start::Zero }.run::<L>();
            // Positions before the first are not looked at, and those beyond a query's own are not multiplied with
            // zero, for they may hold anything.
            let left_out = self.from.saturating_sub(page * PAGE);
            for i in 0..m {
                self.scratch.p[i * PAGE..][..left_out].fill(f32::NEG_INFINITY);
                self.weigh::<L>(i, self.visible(i, page));
            }
            if self.visible(0, page) == PAGE {
                self.gather_values::<L>(page, 0, m, left_out..PAGE);
            } else {
                for i in 0..m {
                    self.gather_values::<L>(page, i, 1, left_out..self.visible(i, page));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn gather_values<L: Lanes>(&mut self, page: usize, first: usize, m: usize, places: Range<usize>) {
        let dim = self.config.head_dim;
        let (a, c) = (&self.scratch.p[first * PAGE + places.start..], &mut self.scratch.acc[first * dim..]);
        let (b, k) = (&self.cache.values(page)[places.start * dim..], places.len());
        // SAFETY: the caller's.
        unsafe { Gemm { m, n: dim, k, a, lda: PAGE, b, ldb: dim, c, ldc: dim, start: Start::Keep }.run::<L>() }
    }

    /// Turns the scores of query `i` into weights against the largest score so far, and brings what was summed to that.
    #[inline(always)]
    unsafe fn weigh<L: Lanes>(&mut self, i: usize, visible: usize) {
        if visible == 0 {
            return;
        }
        let (dim, s) = (self.config.head_dim, &mut *self.scratch);
        let p = &mut s.p[i * PAGE..][..PAGE];
        p[visible..].fill(f32::NEG_INFINITY);
        // SAFETY: the instruction set is the caller's promise; `p` is two vectors, heads are whole vectors.
        unsafe {
            let (low, high) = (L::load(p.as_ptr()), L::load(p.as_ptr().add(LANES)));
            let best = low.max(high).largest().max(s.best[i]);
            let (low, high) = (low.sub(L::splat(best)).exp(), high.sub(L::splat(best)).exp());
            low.store(p.as_mut_ptr());
            high.store(p.as_mut_ptr().add(LANES));
            let fade = chimere_kernels::reference::exp(s.best[i] - best);
            s.sum[i] = s.sum[i].mul_add(fade, low.add(high).sum());
            s.best[i] = best;
            if fade != 1.0 {
                for at in s.acc[i * dim..][..dim].chunks_exact_mut(LANES) {
                    L::load(at.as_ptr()).mul(L::splat(fade)).store(at.as_mut_ptr());
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn finish<L: Lanes>(&mut self) {
        let dim = self.config.head_dim;
        for i in 0..self.rows * self.heads {
            let (row, head) = (i / self.heads, self.first_head + i % self.heads);
            let at = self.query_at(row, head) + dim;
            let gate = self.config.gated.then(|| &self.qg[at..at + dim]);
            let out = self.cache.out(row, head);
            assert_eq!(out.len(), dim, "an output is as wide as a head");
            // SAFETY: the instruction set is the caller's promise; all three have D elements, in whole vectors.
            unsafe {
                let scale = L::splat(1.0 / self.scratch.sum[i]);
                for d in (0..dim).step_by(LANES) {
                    let o = L::load(self.scratch.acc.as_ptr().add(i * dim + d)).mul(scale);
                    let o = match gate {
                        Some(gate) => o.mul(L::load(gate.as_ptr().add(d)).sigmoid()),
                        None => o,
                    };
                    o.store(out.as_mut_ptr().add(d));
                }
            }
        }
    }
}

/// A position's key and value, rounded into its page, of which the caller alone has these places.
pub(super) struct Keep<'a, E> {
    pub(super) key: &'a [f32],
    pub(super) value: &'a [f32],
    /// The first element of the key; the others lie [`PAGE`] apart.
    pub(super) keys: *mut E,
    /// The first element of the value.
    pub(super) values: *mut E,
}

impl<E: Element> Kernel for Keep<'_, E> {
    type Output = ();

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) {
        assert!(self.key.len() == self.value.len() && self.key.len().is_multiple_of(LANES), "heads are whole vectors");
        for d in (0..self.key.len()).step_by(LANES) {
            let mut rounded = [E::default(); LANES];
            // SAFETY: the instruction set is the caller's promise, as are the places of a head.
            unsafe {
                E::store(L::load(self.key.as_ptr().add(d)), rounded.as_mut_ptr());
                for (i, key) in rounded.iter().enumerate() {
                    self.keys.add((d + i) * PAGE).write(*key);
                }
                E::store(L::load(self.value.as_ptr().add(d)), self.values.add(d));
            }
        }
    }
}

/// Cosines and sines of one position, `[rotary / 2]` each.
#[derive(Clone, Copy)]
pub(super) struct Angles<'a> {
    pub(super) cos: &'a [f32],
    pub(super) sin: &'a [f32],
}

/// How the pairs of a head are rotated.
pub(super) struct HeadRotation {
    /// Radians of each pair from one position to the next.
    pub(super) frequencies: Vec<f64>,
    /// What cosines and sines are multiplied with.
    magnitude: f64,
}

impl HeadRotation {
    /// Of heads without positions.
    pub(super) const NONE: Self = Self { frequencies: Vec::new(), magnitude: 1.0 };

    pub(super) fn of(rope: &Rope) -> Self {
        let frequencies = (0..rope.dim / 2).map(|i| rope.frequency(i)).collect();
        Self { frequencies, magnitude: rope.magnitude() }
    }
}

/// Fills the angles of a position.
pub(super) fn angles(rotation: &HeadRotation, position: u32, cos: &mut [f32], sin: &mut [f32]) {
    for ((frequency, cos), sin) in rotation.frequencies.iter().zip(cos).zip(sin) {
        let angle = f64::from(position) * frequency;
        (*cos, *sin) = ((angle.cos() * rotation.magnitude) as f32, (angle.sin() * rotation.magnitude) as f32);
    }
}

/// Norm, if there is one, and rotation of one head in place.
pub(super) fn norm_and_rotate(head: &mut [f32], w: Option<&[f32]>, eps: f32, angles: Angles) {
    if let Some(w) = w {
        norm_row_in_place(head, w, eps);
    }
    let half = angles.cos.len();
    let (first, second) = head.split_at_mut(half);
    for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(angles.cos).zip(angles.sin) {
        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::simd::run;
    use chimere_kernels::reference;
    use std::cell::UnsafeCell;
    use std::marker::PhantomData;

    const ROPE: Rope = Rope { dim: 8, theta: 1e4, yarn: None };

    fn config() -> AttentionConfig {
        let scale = AttentionConfig::usual_scale(32);
        AttentionConfig { heads: 4, kv_heads: 1, head_dim: 32, gated: true, qk_norm: true, rope: Some(ROPE), scale }
    }

    struct Cache {
        keys: Vec<Vec<f32>>,
        values: Vec<Vec<f32>>,
        out: UnsafeCell<Vec<f32>>,
    }

    // SAFETY: one thread, one job at a time.
    unsafe impl AttentionIo<f32> for &Cache {
        fn keys(&self, n: usize) -> &[f32] {
            &self.keys[n]
        }
        fn values(&self, n: usize) -> &[f32] {
            &self.values[n]
        }
        fn out(&self, row: usize, head: usize) -> &mut [f32] {
            // SAFETY: as above.
            unsafe { &mut (&mut *self.out.get())[(row * 4 + head) * 32..][..32] }
        }
    }

    fn wave(len: usize, f: f32) -> Vec<f32> {
        (0..len).map(|i| (i as f32 * f).sin() * 2.0).collect()
    }

    fn attend((from, start): (usize, usize), rows: usize, first_head: usize, heads: usize, qg: &[f32], cache: &Cache) {
        let scratch = &mut AttentionScratch::new(&config());
        run(AttentionJob {
            config: &config(),
            start,
            rows,
            from,
            first_head,
            heads,
            qg,
            cache,
            scratch,
            element: PhantomData,
        });
    }

    #[test]
    fn any_block_of_rows_and_heads_gives_the_definition_and_the_same_bytes() {
        let (start, rows, dim) = (61, 4, 32);
        let total = start + rows;
        let (k, v, qg) = (wave(total * dim, 0.71), wave(total * dim, 0.37), wave(rows * 4 * 2 * dim, 0.53));
        let mut cache = Cache { keys: Vec::new(), values: Vec::new(), out: UnsafeCell::new(vec![0.0; rows * 4 * dim]) };
        for page in 0..total.div_ceil(PAGE) {
            // What lies beyond the last position must not matter, whatever it is.
            let at = |x: &[f32], t: usize, d: usize| x.get((page * PAGE + t) * dim + d).copied().unwrap_or(f32::NAN);
            cache.keys.push((0..dim * PAGE).map(|i| at(&k, i % PAGE, i / PAGE)).collect());
            cache.values.push((0..dim * PAGE).map(|i| at(&v, i / dim, i % dim)).collect());
        }
        attend((0, start), rows, 0, 4, &qg, &cache);
        let whole = cache.out.get_mut().clone();
        for row in 0..rows {
            for head in 0..4 {
                let q = &qg[(row * 4 + head) * 2 * dim..];
                let n = (start + row + 1) * dim;
                let want = reference::attention(&q[..dim], &k[..n], &v[..n]);
                for d in 0..dim {
                    let want = f64::from(want[d]) / (1.0 + f64::from(-q[dim + d]).exp());
                    assert!(
                        (f64::from(whole[(row * 4 + head) * dim + d]) - want).abs() < 2e-6,
                        "row {row} head {head}"
                    );
                }
            }
            cache.out.get_mut().fill(0.0);
            attend((0, start + row), 1, 1, 2, &qg[row * 4 * 2 * dim..], &cache);
            let alone = &cache.out.get_mut()[dim..3 * dim];
            assert_eq!(alone, &whole[(row * 4 + 1) * dim..(row * 4 + 3) * dim]);
        }
    }

    #[test]
    fn positions_before_the_first_are_not_looked_at() {
        let (start, dim) = (61, 32);
        let (k, v, qg) = (wave((start + 1) * dim, 0.71), wave((start + 1) * dim, 0.37), wave(4 * 2 * dim, 0.53));
        for from in [1, 31, 32, 40, 61] {
            let at = |x: &[f32], t: usize, d: usize| match x.get(t * dim + d) {
                Some(x) if t >= from => *x,
                _ => f32::NAN,
            };
            let pages = || (0..2 * PAGE).step_by(PAGE);
            let mut cache = Cache {
                keys: pages().map(|p| (0..dim * PAGE).map(|i| at(&k, p + i % PAGE, i / PAGE)).collect()).collect(),
                values: pages().map(|p| (0..dim * PAGE).map(|i| at(&v, p + i / dim, i % dim)).collect()).collect(),
                out: UnsafeCell::new(vec![0.0; 4 * dim]),
            };
            attend((from, start), 1, 0, 4, &qg, &cache);
            for (head, got) in cache.out.get_mut().chunks(dim).enumerate() {
                let q = &qg[head * 2 * dim..];
                let want = reference::attention(&q[..dim], &k[from * dim..], &v[from * dim..]);
                for (d, got) in got.iter().enumerate() {
                    let want = f64::from(want[d]) / (1.0 + f64::from(-q[dim + d]).exp());
                    assert!((f64::from(*got) - want).abs() < 2e-6, "from {from}, head {head}");
                }
            }
        }
    }

    #[test]
    fn rotation_agrees_with_its_definition() {
        let (mut head, w) = (wave(32, 0.9), vec![1.0; 32]);
        let mut want = reference::rmsnorm(&head, &w, 1e-6);
        reference::rope(&mut want, 77, 8, 1e4);
        let (mut cos, mut sin) = ([0.0; 4], [0.0; 4]);
        angles(&HeadRotation::of(&ROPE), 77, &mut cos, &mut sin);
        norm_and_rotate(&mut head, Some(&w), 1e-6, Angles { cos: &cos, sin: &sin });
        assert!(head.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-6));
    }
}
