//! The gated delta rule between its projections: convolution, gates, state, gated norm. One call is one key head of one
//! piece.
//!
//! Prompt positions go in chunks that end at absolute multiples of [`CHUNK`]; every later position steps the state by
//! itself. Columns of the state are independent and every sum is one chain in order, so neither the batch nor the
//! instruction set shows. Cost of a token and value head in vector products of [`LANES`], K = V = 128: 3 K V / 16 +
//! CHUNK V / 16, read from the first-level cache; a recurrent step reads the state (64 KiB) twice and writes it once.

use crate::backend::cpu::blocks::conv::{Convolution, softplus};
use crate::backend::cpu::simd::gemm::{Gemm, Start};
use crate::backend::cpu::simd::norm::{gated_norm, l2norm};
use crate::backend::cpu::simd::{Kernel, LANES, Lanes};
use crate::drafts::ByPlace;
use crate::model::GdnConfig;
use crate::step::Form;
use std::ops::Range;

/// Positions that one triangular solve covers. A divisor of [`crate::CHUNK_TOKENS`]: smaller ones spend less on the
/// solve, larger ones read the state less often.
pub(super) const CHUNK: usize = 32;
const _: () = assert!((crate::CHUNK_TOKENS as usize).is_multiple_of(CHUNK), "pieces end where chunks end");

/// What the rule takes of a layer beside its rows.
pub(super) struct GdnParams {
    pub(super) config: GdnConfig,
    pub(super) conv: Convolution,
    pub(super) a_neg: Vec<f32>,
    pub(super) dt_bias: Vec<f32>,
    pub(super) norm: Vec<f32>,
    pub(super) eps: f32,
}

/// One key head of one piece, with some of its value heads.
pub(super) struct GdnJob<'a, S> {
    pub(super) params: &'a GdnParams,
    pub(super) form: Form,
    /// Absolute position of the first row.
    pub(super) start: usize,
    /// Rows of the piece.
    pub(super) rows: usize,
    /// Of these the first ones, that count whatever is sampled; the others are drafted and change no state.
    pub(super) certain: usize,
    /// Drafted rows of the piece before that count, and which the state does not hold yet.
    pub(super) unfolded: usize,
    pub(super) key_head: usize,
    pub(super) value_heads: &'a [usize],
    /// `[rows, channels]` of the piece, before the convolution.
    pub(super) qkv: &'a [f32],
    /// `[taps - 1, channels]`: the rows before `start`, oldest first.
    pub(super) tail: &'a [f32],
    /// Gate of the output, `[rows, Hv * V]`.
    pub(super) z: &'a [f32],
    /// Strength of the update before its sigmoid, `[rows, Hv]`.
    pub(super) b: &'a [f32],
    /// Step size of the decay before its bias and softplus, `[rows, Hv]`.
    pub(super) a: &'a [f32],
    /// What the thread does after it.
    pub(super) next: Option<NextJob<'a>>,
    pub(super) scratch: &'a mut GdnScratch,
    pub(super) sink: S,
}

/// What a job will read that nobody has touched since the last token, so that it can be asked for early.
pub(super) struct NextJob<'a> {
    /// `[Hv, K, V]`: the states of its slot.
    pub(super) states: *const f32,
    /// `[taps - 1, channels]`.
    pub(super) tail: &'a [f32],
    pub(super) key_head: usize,
    pub(super) value_heads: &'a [usize],
}

/// Where a job's state is and its results go. The state of a value head is `[K, V]`.
///
/// # Safety
/// Implementations hand out memory that nobody else touches while the job runs.
pub(super) unsafe trait GdnSink<'a>: Copy {
    /// The state of value head `h`.
    fn state(self, h: usize) -> &'a mut [f32];
    /// Output of row `row` (of the piece) and value head `h`, `[V]`.
    fn out(self, row: usize, h: usize) -> &'a mut [f32];
    /// Keeps the state of value head `h` where it is wanted as it is after so many rows of the piece.
    fn export(self, rows: usize, h: usize);
    /// Key, delta and decay of a drafted row and value head, `[K + V + 1]`: of the piece before until they are folded,
    /// then of this one.
    fn factors(self, row: usize, h: usize) -> &'a mut [f32];
}

/// What one thread needs for any job of a model.
#[derive(Default)]
pub(super) struct GdnScratch {
    /// `[2 * CHUNK, K]`: k, then q.
    kq: Vec<f32>,
    /// Keys of a chunk, transposed, `[K, CHUNK]`.
    kt: Vec<f32>,
    /// `[K, CHUNK]`: k with the decay to the chunk's end.
    kd: Vec<f32>,
    /// `[2 * CHUNK, CHUNK]`: k k^T, then q k^T.
    products: Vec<f32>,
    /// `[CHUNK]`: one row of a product with its decays.
    row: Vec<f32>,
    /// `[2 * CHUNK, V]`: k S, then q S.
    reads: Vec<f32>,
    /// Values of a chunk, `[CHUNK, V]`.
    v: Vec<f32>,
    /// Updates of a chunk's rows, `[CHUNK, V]`.
    delta: Vec<f32>,
    /// Output of one row, `[V]`.
    o: Vec<f32>,
    /// `[Hv / Hk, K, V]`: states behind drafted rows.
    ahead: Vec<f32>,
    /// Strength of each row's update, and its decay, `[CHUNK]` each.
    beta: Vec<f32>,
    decay: Vec<f32>,
}

impl GdnScratch {
    pub(super) fn new(c: &GdnConfig) -> Self {
        let (k, v) = (c.key_dim, c.value_dim);
        let zeros = |n: usize| vec![0.0; n];
        Self {
            kq: zeros(2 * CHUNK * k),
            kt: zeros(k * CHUNK),
            kd: zeros(k * CHUNK),
            products: zeros(2 * CHUNK * CHUNK),
            row: zeros(CHUNK),
            reads: zeros(2 * CHUNK * v),
            v: zeros(CHUNK * v),
            delta: zeros(CHUNK * v),
            o: zeros(v),
            ahead: zeros(c.value_heads / c.key_heads * k * v),
            beta: zeros(CHUNK),
            decay: zeros(CHUNK),
        }
    }
}

impl<'a, S: GdnSink<'a>> Kernel for GdnJob<'a, S> {
    type Output = ();

    #[inline(always)]
    unsafe fn call<L: Lanes>(mut self) {
        for h in self.value_heads {
            // SAFETY: the caller's.
            unsafe { self.fold::<L>(*h) };
        }
        // SAFETY: the caller's.
        unsafe { self.prefetch_tail::<L>() };
        let mut row = 0;
        while row < self.rows {
            let n = match self.form {
                Form::Chunked => CHUNK - (self.start + row) % CHUNK,
                Form::Recurrent => CHUNK,
            };
            let n = n.min(self.rows - row);
            // SAFETY: the caller's.
            unsafe {
                self.keys_and_queries::<L>(row..row + n);
                match self.form {
                    Form::Chunked => {
                        self.chunk::<L>(row..row + n);
                        for h in self.value_heads {
                            self.sink.export(row + n, *h);
                        }
                    }
                    Form::Recurrent => self.tokens::<L>(row..row + n),
                }
            }
            row += n;
        }
    }
}

impl<'a, S: GdnSink<'a>> GdnJob<'a, S> {
    /// Convolved and normalised keys and queries of some rows.
    #[inline(always)]
    unsafe fn keys_and_queries<L: Lanes>(&mut self, rows: Range<usize>) {
        let c = &self.params.config;
        let (kd, scale) = (c.key_dim, 1.0 / (c.key_dim as f32).sqrt());
        for (i, row) in rows.enumerate() {
            let (k, q) = self.scratch.kq.split_at_mut(CHUNK * kd);
            let (k, q) = (&mut k[i * kd..][..kd], &mut q[i * kd..][..kd]);
            // SAFETY: the caller's.
            unsafe {
                self.params.conv.at::<L>(self.qkv, self.tail, row, self.key_head * kd, q);
                self.params.conv.at::<L>(self.qkv, self.tail, row, (c.key_heads + self.key_head) * kd, k);
                l2norm::<L>(q, scale);
                l2norm::<L>(k, 1.0);
            }
        }
    }

    /// Asks for the inputs before the next job's rows.
    #[inline(always)]
    unsafe fn prefetch_tail<L: Lanes>(&self) {
        let Some(next) = &self.next else { return };
        let (c, conv) = (&self.params.config, &self.params.conv);
        // SAFETY: the caller's.
        unsafe {
            conv.prefetch::<L>(next.tail, next.key_head * c.key_dim, c.key_dim);
            conv.prefetch::<L>(next.tail, (c.key_heads + next.key_head) * c.key_dim, c.key_dim);
            for h in next.value_heads {
                conv.prefetch::<L>(next.tail, 2 * c.key_heads * c.key_dim + h * c.value_dim, c.value_dim);
            }
        }
    }

    #[inline(always)]
    unsafe fn value<L: Lanes>(&mut self, row: usize, h: usize, i: usize) {
        let c = &self.params.config;
        let first = 2 * c.key_heads * c.key_dim + h * c.value_dim;
        let out = &mut self.scratch.v[i * c.value_dim..][..c.value_dim];
        // SAFETY: the caller's.
        unsafe { self.params.conv.at::<L>(self.qkv, self.tail, row, first, out) }
    }

    /// (beta, log decay) of a row and head.
    #[inline(always)]
    fn gates(&self, row: usize, h: usize) -> (f32, f32) {
        let at = row * self.params.config.value_heads + h;
        let beta = 1.0 / (1.0 + (-self.b[at]).exp());
        (beta, self.params.a_neg[h] * softplus(self.a[at] + self.params.dt_bias[h]))
    }

    /// Brings a value head's state to where the piece begins: `S = decay S + k delta^T` for every drafted row of the
    /// piece before that counts, with the operations of [`GdnJob::columns`].
    #[inline(always)]
    unsafe fn fold<L: Lanes>(&mut self, h: usize) {
        if self.unfolded == 0 {
            return;
        }
        let (kd, vd) = (self.params.config.key_dim, self.params.config.value_dim);
        let state = self.sink.state(h);
        assert_eq!(state.len(), kd * vd, "a state is [K, V]");
        let mut all: ByPlace<_> = std::array::from_fn(|_| std::ptr::null::<f32>());
        for (row, factors) in all.iter_mut().enumerate().take(self.unfolded) {
            let of_row = self.sink.factors(row, h);
            assert!(of_row.len() > kd + vd, "a row leaves K + V + 1 factors");
            *factors = of_row.as_ptr();
        }
        let all = &all[..self.unfolded];
        // SAFETY: the instruction set is the caller's promise; a row of V is whole vectors, and factors are as many as
        // was just checked.
        unsafe {
            for r in 0..kd {
                for col in (0..vd).step_by(LANES) {
                    let at = state.as_mut_ptr().add(r * vd + col);
                    let mut s = L::load(at);
                    for factors in all {
                        let (key, decay) = (L::splat(*factors.add(r)), L::splat(*factors.add(kd + vd)));
                        s = key.mul_add(L::load(factors.add(kd + col)), s.mul(decay));
                    }
                    s.store(at);
                }
            }
        }
    }

    /// Recurrent steps of every value head, whose state stays in the first-level cache from row to row. A drafted row
    /// leaves the state alone: it goes on from what the rows before it made, on a copy, and keeps the factors. The last
    /// one makes no state, since nobody goes on from it; and the last row asks for what is read next.
    #[inline(always)]
    unsafe fn tokens<L: Lanes>(&mut self, rows: Range<usize>) {
        for i in 0..self.value_heads.len() {
            for (at, row) in rows.clone().enumerate() {
                let (last, drafted) = (row + 1 == self.rows, row >= self.certain);
                // SAFETY: the caller's.
                unsafe {
                    match (last, drafted) {
                        (true, true) => self.token::<L, true, false>((at, row), i),
                        (true, false) => self.token::<L, true, true>((at, row), i),
                        (false, _) => self.token::<L, false, true>((at, row), i),
                    }
                }
                self.sink.export(row + 1, self.value_heads[i]);
            }
        }
    }

    /// A recurrent step of the job's `i`th value head at a row, whose keys are at place `at`.
    #[inline(always)]
    unsafe fn token<L: Lanes, const ASKS: bool, const KEEPS: bool>(&mut self, (at, row): (usize, usize), i: usize) {
        let (kd, vd) = (self.params.config.key_dim, self.params.config.value_dim);
        let h = self.value_heads[i];
        let (beta, g) = self.gates(row, h);
        let next = self.states_after(i);
        let (drafted, decay) = (row.checked_sub(self.certain), g.exp());
        let state = self.sink.state(h);
        assert_eq!(state.len(), kd * vd, "a state is [K, V]");
        let ahead = self.scratch.ahead[i * kd * vd..][..kd * vd].as_mut_ptr();
        let (from, to) = match drafted {
            None => (state.as_ptr(), state.as_mut_ptr()),
            Some(0) => (state.as_ptr(), ahead),
            Some(_) => (ahead.cast_const(), ahead),
        };
        // SAFETY: the caller's; `from` and `to` have K rows of V, and are the same or apart.
        unsafe {
            self.value::<L>(row, h, 0);
            let mut col = 0;
            while col < vd {
                let (all, place) = ((from, to, next), (at, col));
                col += match (vd - col) / LANES {
                    8.. if L::TILE.1 > 1 => self.columns::<L, 8, ASKS, KEEPS>(all, place, beta, decay),
                    4.. if L::TILE.0 > 1 => self.columns::<L, 4, ASKS, KEEPS>(all, place, beta, decay),
                    _ => self.columns::<L, 1, ASKS, KEEPS>(all, place, beta, decay),
                };
            }
            self.finish::<L>(row, h);
        }
        if let Some(drafted) = drafted {
            let factors = self.sink.factors(drafted, h);
            factors[..kd].copy_from_slice(&self.scratch.kq[at * kd..][..kd]);
            factors[kd..kd + vd].copy_from_slice(&self.scratch.delta[..vd]);
            factors[kd + vd] = decay;
        }
    }

    /// The states that are read after that of the job's `i`th value head, and then: where nobody knows, that one
    /// itself, whose address is mapped and whose lines are there.
    #[inline(always)]
    fn states_after(&self, i: usize) -> (*const f32, *const f32) {
        let own = self.sink.state(self.value_heads[i]).as_ptr();
        (self.state_ahead(i + 1).unwrap_or(own), self.state_ahead(i + 2).unwrap_or(own))
    }

    /// The state of the `i`th value head from the job's first one on, also of the next job.
    #[inline(always)]
    fn state_ahead(&self, i: usize) -> Option<*const f32> {
        if let Some(h) = self.value_heads.get(i) {
            return Some(self.sink.state(*h).as_ptr());
        }
        let next = self.next.as_ref()?;
        let size = self.params.config.key_dim * self.params.config.value_dim;
        next.value_heads.get(i - self.value_heads.len()).map(|h| next.states.wrapping_add(h * size))
    }

    /// `S' = e^g S + k delta^T` and `o = S'^T q` for `N` vectors of columns, where `delta = beta (v - e^g S^T k)`,
    /// which stays in the scratch. `S` and `S'` may be the same; who `KEEPS` nothing makes no `S'`. States come from
    /// beyond the second-level cache: who `ASKS` has the same columns of the one after the next on their way there
    /// while these are computed, and those of the next to the first level.
    #[inline(always)]
    unsafe fn columns<L: Lanes, const N: usize, const ASKS: bool, const KEEPS: bool>(
        &mut self,
        (from, to, (next, far)): (*const f32, *mut f32, (*const f32, *const f32)),
        (at, col): (usize, usize),
        beta: f32,
        decay: f32,
    ) -> usize {
        let (kd, vd) = (self.params.config.key_dim, self.params.config.value_dim);
        let (k, q) = (self.scratch.kq[at * kd..].as_ptr(), self.scratch.kq[(CHUNK + at) * kd..].as_ptr());
        // SAFETY: the instruction set is the caller's promise; columns col..col+N*LANES lie inside rows of V, and there
        // are K rows.
        unsafe {
            let (s, to, next, far) = (from.add(col), to.add(col), next.wrapping_add(col), far.wrapping_add(col));
            let mut p = [L::splat(0.0); N];
            for r in 0..kd {
                let kr = L::splat(*k.add(r));
                for (j, p) in p.iter_mut().enumerate() {
                    if ASKS {
                        L::prefetch_far(far.wrapping_add(r * vd + j * LANES));
                    }
                    *p = kr.mul_add(L::load(s.add(r * vd + j * LANES)), *p);
                }
            }
            let (decay, beta) = (L::splat(decay), L::splat(beta));
            let mut delta = p;
            for (j, d) in delta.iter_mut().enumerate() {
                *d = beta.mul(L::load(self.scratch.v.as_ptr().add(col + j * LANES)).sub(decay.mul(p[j])));
                d.store(self.scratch.delta.as_mut_ptr().add(col + j * LANES));
            }
            let mut o = [L::splat(0.0); N];
            for r in 0..kd {
                let (kr, qr) = (L::splat(*k.add(r)), L::splat(*q.add(r)));
                for j in 0..N {
                    if ASKS {
                        L::prefetch(next.wrapping_add(r * vd + j * LANES));
                    }
                    let new = kr.mul_add(delta[j], L::load(s.add(r * vd + j * LANES)).mul(decay));
                    if KEEPS {
                        new.store(to.add(r * vd + j * LANES));
                    }
                    o[j] = qr.mul_add(new, o[j]);
                }
            }
            for (j, o) in o.iter().enumerate() {
                o.store(self.scratch.o.as_mut_ptr().add(col + j * LANES));
            }
        }
        N * LANES
    }

    /// A chunk of every value head (`spec/model.md` 2.7): `delta` by forward substitution, then outputs and state from
    /// it.
    #[inline(always)]
    unsafe fn chunk<L: Lanes>(&mut self, rows: Range<usize>) {
        let (n, kd) = (rows.len(), self.params.config.key_dim);
        for r in 0..kd {
            for i in 0..n {
                self.scratch.kt[r * CHUNK + i] = self.scratch.kq[i * kd + r];
            }
        }
        // SAFETY: the caller's.
        unsafe {
            for half in 0..2 {
                Gemm {
                    m: n,
                    n: CHUNK,
                    k: kd,
                    a: &self.scratch.kq[half * CHUNK * kd..],
                    lda: kd,
                    b: &self.scratch.kt,
                    ldb: CHUNK,
                    c: &mut self.scratch.products[half * CHUNK * CHUNK..],
                    ldc: CHUNK,
                    start: Start::Zero,
                }
                .run::<L>();
            }
            for h in self.value_heads {
                self.chunk_head::<L>(rows.clone(), *h);
            }
        }
    }

    #[inline(always)]
    unsafe fn chunk_head<L: Lanes>(&mut self, rows: Range<usize>, h: usize) {
        let (n, kd, vd) = (rows.len(), self.params.config.key_dim, self.params.config.value_dim);
        let mut sum = 0.0;
        for (i, row) in rows.clone().enumerate() {
            let (beta, g) = self.gates(row, h);
            sum += g;
            self.scratch.beta[i] = beta;
            self.scratch.decay[i] = sum;
            // SAFETY: the caller's.
            unsafe { self.value::<L>(row, h, i) };
        }
        self.scratch.decay[n..].fill(0.0);
        // SAFETY: the caller's.
        unsafe {
            let state = self.sink.state(h);
            for half in 0..2 {
                let (a, c) = (&self.scratch.kq[half * CHUNK * kd..], &mut self.scratch.reads[half * CHUNK * vd..]);
                Gemm { m: n, n: vd, k: kd, a, lda: kd, b: state, ldb: vd, c, ldc: vd, start: Start::Zero }.run::<L>();
            }
            for i in 0..n {
                self.solve_row::<L>(i);
            }
            for (i, row) in rows.enumerate() {
                self.output_row::<L>(i);
                self.finish::<L>(row, h);
            }
            self.advance::<L>(state, n);
        }
    }

    /// `delta_i = beta_i (v_i - e^G_i k_i S - sum_{j<i} e^(G_i-G_j) (k_i k_j) delta_j)`.
    #[inline(always)]
    unsafe fn solve_row<L: Lanes>(&mut self, i: usize) {
        let vd = self.params.config.value_dim;
        // SAFETY: the caller's; rows of V and of CHUNK are whole vectors.
        unsafe {
            self.decayed_row::<L>(i, 0, -self.scratch.beta[i]);
            let s = &mut *self.scratch;
            let (before, this) = s.delta.split_at_mut(i * vd);
            let (beta, decay) = (L::splat(s.beta[i]), L::splat(chimere_kernels::reference::exp(s.decay[i])));
            for col in (0..vd).step_by(LANES) {
                let (v, read) = (L::load(s.v.as_ptr().add(i * vd + col)), L::load(s.reads.as_ptr().add(i * vd + col)));
                beta.mul(v.sub(decay.mul(read))).store(this.as_mut_ptr().add(col));
            }
            Gemm { m: 1, n: vd, k: i, a: &s.row, lda: CHUNK, b: before, ldb: vd, c: this, ldc: vd, start: Start::Keep }
                .run::<L>();
        }
    }

    /// `o_i = e^G_i q_i S + sum_{j<=i} e^(G_i-G_j) (q_i k_j) delta_j`.
    #[inline(always)]
    unsafe fn output_row<L: Lanes>(&mut self, i: usize) {
        let vd = self.params.config.value_dim;
        // SAFETY: the caller's.
        unsafe {
            self.decayed_row::<L>(i, 1, 1.0);
            let s = &mut *self.scratch;
            let decay = L::splat(chimere_kernels::reference::exp(s.decay[i]));
            for col in (0..vd).step_by(LANES) {
                decay.mul(L::load(s.reads.as_ptr().add((CHUNK + i) * vd + col))).store(s.o.as_mut_ptr().add(col));
            }
            let (a, b, c) = (&s.row, &s.delta, &mut s.o);
            Gemm { m: 1, n: vd, k: i + 1, a, lda: CHUNK, b, ldb: vd, c, ldc: vd, start: Start::Keep }.run::<L>();
        }
    }

    /// Row `i` of a product, each column with its decay to row `i` and a factor. Columns beyond `i` are never read.
    #[inline(always)]
    unsafe fn decayed_row<L: Lanes>(&mut self, i: usize, half: usize, factor: f32) {
        let s = &mut *self.scratch;
        let product = &s.products[(half * CHUNK + i) * CHUNK..][..CHUNK];
        // SAFETY: the instruction set is the caller's promise; all three rows have CHUNK elements.
        unsafe {
            for j in (0..=i).step_by(LANES) {
                // The difference first: either exponential alone may overflow.
                let gap = L::splat(s.decay[i]).sub(L::load(s.decay.as_ptr().add(j))).min(L::splat(0.0));
                L::load(product.as_ptr().add(j)).mul(gap.exp()).mul(L::splat(factor)).store(s.row.as_mut_ptr().add(j));
            }
        }
    }

    /// `S = e^G_n S + sum_j e^(G_n-G_j) k_j delta_j^T`.
    #[inline(always)]
    unsafe fn advance<L: Lanes>(&mut self, state: &mut [f32], n: usize) {
        let (kd, vd) = (self.params.config.key_dim, self.params.config.value_dim);
        let s = &mut *self.scratch;
        let last = s.decay[n - 1];
        // SAFETY: the instruction set is the caller's promise; rows of CHUNK are whole vectors.
        unsafe {
            for j in (0..CHUNK).step_by(LANES) {
                let rest = L::splat(last).sub(L::load(s.decay.as_ptr().add(j))).min(L::splat(0.0)).exp();
                for r in 0..kd {
                    L::load(s.kt.as_ptr().add(r * CHUNK + j)).mul(rest).store(s.kd.as_mut_ptr().add(r * CHUNK + j));
                }
            }
            let start = Start::Scaled(chimere_kernels::reference::exp(last));
            Gemm { m: kd, n: vd, k: n, a: &s.kd, lda: CHUNK, b: &s.delta, ldb: vd, c: state, ldc: vd, start }
                .run::<L>();
        }
    }

    /// Gated norm of the output in scratch, into its place.
    #[inline(always)]
    unsafe fn finish<L: Lanes>(&mut self, row: usize, h: usize) {
        let c = &self.params.config;
        let z = &self.z[(row * c.value_heads + h) * c.value_dim..][..c.value_dim];
        // SAFETY: the caller's.
        unsafe { gated_norm::<L>(&self.scratch.o, &self.params.norm, z, self.params.eps, self.sink.out(row, h)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::simd::run;
    use crate::model::HeadOrder;
    use chimere_kernels::reference::{self, GdnInputs};
    use std::cell::RefCell;

    const CONFIG: GdnConfig = GdnConfig {
        key_heads: 1,
        value_heads: 2,
        key_dim: 32,
        value_dim: 48,
        conv_taps: 4,
        head_order: HeadOrder::Grouped,
    };

    struct Memory {
        state: RefCell<Vec<f32>>,
        out: RefCell<Vec<f32>>,
        factors: RefCell<Vec<f32>>,
        first_row: usize,
    }

    // SAFETY: one thread; the job never asks twice for the same range at a time.
    unsafe impl<'a> GdnSink<'a> for &'a Memory {
        fn state(self, h: usize) -> &'a mut [f32] {
            let n = 32 * 48;
            // SAFETY: as above; the vector is never resized.
            unsafe {
                std::slice::from_raw_parts_mut(self.state.as_ptr().as_mut().unwrap()[h * n..][..n].as_mut_ptr(), n)
            }
        }
        fn out(self, row: usize, h: usize) -> &'a mut [f32] {
            let at = ((self.first_row + row) * 2 + h) * 48;
            // SAFETY: as above.
            unsafe { std::slice::from_raw_parts_mut(self.out.as_ptr().as_mut().unwrap()[at..][..48].as_mut_ptr(), 48) }
        }
        fn export(self, _: usize, _: usize) {}
        fn factors(self, row: usize, h: usize) -> &'a mut [f32] {
            let (at, len) = ((row * 2 + h) * 81, 81);
            // SAFETY: as above.
            unsafe {
                std::slice::from_raw_parts_mut(self.factors.as_ptr().as_mut().unwrap()[at..][..len].as_mut_ptr(), len)
            }
        }
    }

    struct Case {
        params: GdnParams,
        qkv: Vec<f32>,
        z: Vec<f32>,
        a: Vec<f32>,
        b: Vec<f32>,
    }

    const ROWS: usize = 80;

    fn wave(len: usize, f: f32) -> Vec<f32> {
        (0..len).map(|i| (i as f32 * f).sin()).collect()
    }

    fn case() -> Case {
        let channels = CONFIG.channels();
        let params = GdnParams {
            config: CONFIG,
            conv: Convolution::new(&wave(4 * channels, 1.3), None, 4),
            a_neg: vec![-0.4, -3.0],
            dt_bias: vec![0.1, 0.5],
            norm: wave(48, 2.3),
            eps: 1e-6,
        };
        Case {
            params,
            qkv: wave(ROWS * channels, 0.71),
            z: wave(ROWS * 96, 0.37),
            a: wave(ROWS * 2, 1.7),
            b: wave(ROWS * 2, 2.9),
        }
    }

    /// Runs the rows in pieces that end at `ends`; returns outputs and state.
    fn computed(case: &Case, form: Form, ends: &[usize]) -> (Vec<f32>, Vec<f32>) {
        let pieces: Vec<_> = ends.iter().map(|end| (*end, 0, 0)).collect();
        computed_with_drafts(case, form, &pieces)
    }

    /// Outputs and state of the rows in pieces with drafted rows behind each end, of which some count: `(end, drafted,
    /// counting)`.
    fn computed_with_drafts(case: &Case, form: Form, pieces: &[(usize, usize, usize)]) -> (Vec<f32>, Vec<f32>) {
        let channels = CONFIG.channels();
        let mut memory = Memory {
            state: vec![0.0; 2 * 32 * 48].into(),
            out: vec![0.0; (ROWS + 8) * 96].into(),
            factors: vec![f32::NAN; 8 * 2 * 81].into(),
            first_row: 0,
        };
        let mut tail = vec![0.0; 3 * channels];
        let (mut start, mut unfolded) = (0, 0);
        for &(end, drafted, counting) in pieces {
            memory.first_row = start;
            run(GdnJob {
                params: &case.params,
                form,
                start,
                rows: end - start + drafted,
                certain: end - start,
                unfolded,
                key_head: 0,
                value_heads: &[0, 1],
                qkv: &case.qkv[start * channels..],
                tail: &tail,
                z: &case.z[start * 96..],
                b: &case.b[start * 2..],
                a: &case.a[start * 2..],
                next: None,
                scratch: &mut GdnScratch::new(&CONFIG),
                sink: &memory,
            });
            (start, unfolded) = (end + counting, counting);
            for i in 0..3 {
                match (start + i).checked_sub(3) {
                    Some(r) => tail[i * channels..][..channels].copy_from_slice(&case.qkv[r * channels..][..channels]),
                    None => tail[i * channels..][..channels].fill(0.0),
                }
            }
        }
        memory.out.borrow_mut().truncate(ROWS * 96);
        (memory.out.into_inner(), memory.state.into_inner())
    }

    #[test]
    fn drafted_rows_that_count_leave_the_bytes_of_rows_of_their_own() {
        let case = case();
        let each: Vec<usize> = (1..=ROWS).collect();
        let want = computed(&case, Form::Recurrent, &each);
        let (mut pieces, mut at, mut i) = (Vec::new(), 0, 0usize);
        while at < ROWS {
            let drafted = (i * 5 % 8).min(ROWS - at - 1);
            let counting = if drafted == 0 { 0 } else { i * 3 % (drafted + 1) };
            pieces.push((at + 1, drafted, counting));
            (at, i) = (at + 1 + counting, i + 1);
        }
        assert!(pieces.iter().any(|p| p.2 > 1) && pieces.iter().any(|p| p.1 > p.2), "{pieces:?}");
        // The last piece's own rows are in the state, the drafted ones behind it are not.
        let last = pieces.last_mut().unwrap();
        (last.1, last.2) = (0, 0);
        let end = last.0;
        let ends: Vec<usize> = (1..=end).collect();
        let state = computed(&case, Form::Recurrent, &ends).1;
        let got = computed_with_drafts(&case, Form::Recurrent, &pieces);
        assert_eq!(got.0[..end * 96], want.0[..end * 96]);
        assert_eq!(got.1, state);
    }

    /// The outputs by the definitions of the parts.
    fn defined(case: &Case) -> Vec<f32> {
        let (channels, p) = (CONFIG.channels(), &case.params);
        let weights = wave(4 * channels, 1.3);
        let conv = |t: usize, ch: usize| {
            let at = |j: usize| (t + j).checked_sub(3).map_or(0.0, |r| case.qkv[r * channels + ch]);
            reference::conv_silu(&[at(0), at(1), at(2), at(3)], &weights[4 * ch..4 * ch + 4])
        };
        let head =
            |t: usize, first: usize, n: usize| -> Vec<f32> { (first..first + n).map(|ch| conv(t, ch)).collect() };
        let mut out = vec![0.0; ROWS * 96];
        for h in 0..2 {
            let q: Vec<f32> =
                (0..ROWS).flat_map(|t| reference::l2norm(&head(t, 0, 32))).map(|q| q / 32f32.sqrt()).collect();
            let k: Vec<f32> = (0..ROWS).flat_map(|t| reference::l2norm(&head(t, 32, 32))).collect();
            let v: Vec<f32> = (0..ROWS).flat_map(|t| head(t, 64 + h * 48, 48)).collect();
            let beta: Vec<f32> = (0..ROWS).map(|t| 1.0 / (1.0 + (-case.b[t * 2 + h]).exp())).collect();
            let gate = |t: usize| reference::softplus(f64::from(case.a[t * 2 + h] + p.dt_bias[h])) as f32;
            let g: Vec<f32> = (0..ROWS).map(|t| p.a_neg[h] * gate(t)).collect();
            let x = GdnInputs { q: &q, k: &k, v: &v, g: &g, beta: &beta, key_dim: 32, value_dim: 48 };
            let o = reference::gdn_recurrent(&x, &mut vec![0.0; 32 * 48]);
            for t in 0..ROWS {
                let z = &case.z[(t * 2 + h) * 48..][..48];
                out[(t * 2 + h) * 48..][..48].copy_from_slice(&reference::gated_norm(
                    &o[t * 48..][..48],
                    &p.norm,
                    z,
                    1e-6,
                ));
            }
        }
        out
    }

    #[test]
    fn both_forms_and_any_split_agree_with_the_definition() {
        let case = case();
        let want = defined(&case);
        for (form, ends) in [
            (Form::Chunked, vec![80]),
            (Form::Chunked, vec![64, 80]),
            (Form::Chunked, vec![1, 2, 7, 40, 80]),
            (Form::Recurrent, vec![80]),
            (Form::Recurrent, (1..=80).collect()),
        ] {
            let (out, _) = computed(&case, form, &ends);
            let worst = out.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 1e-4, "{form:?} {ends:?}: {worst}");
        }
    }

    #[test]
    fn pieces_that_end_where_chunks_end_change_no_byte() {
        let case = case();
        assert_eq!(computed(&case, Form::Chunked, &[80]), computed(&case, Form::Chunked, &[32, 64, 80]));
        assert_eq!(computed(&case, Form::Recurrent, &[80]), computed(&case, Form::Recurrent, &[3, 50, 80]));
    }
}
