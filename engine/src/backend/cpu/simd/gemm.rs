//! Small products in `f32`: scores, values, and the state of the delta rule.
//!
//! Every output element is one chain of fused multiply-adds over `k` in order, whatever the tile, so that a row's bytes
//! do not depend on the rows beside it.

use crate::backend::cpu::simd::{LANES, Lanes};

/// An element type that vectors are loaded from.
pub(crate) trait Element: Copy + Default + Send {
    /// Loads [`LANES`] elements.
    ///
    /// # Safety
    /// `p` is valid for them, and the instruction set of `L` exists.
    unsafe fn load<L: Lanes>(p: *const Self) -> L;
    /// Stores [`LANES`] elements, rounded to this type.
    ///
    /// # Safety
    /// As for [`Element::load`].
    unsafe fn store<L: Lanes>(values: L, p: *mut Self);
}

impl Element for f32 {
    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const Self) -> L {
        // SAFETY: the caller's.
        unsafe { L::load(p) }
    }

    #[inline(always)]
    unsafe fn store<L: Lanes>(values: L, p: *mut Self) {
        // SAFETY: the caller's.
        unsafe { values.store(p) }
    }
}

/// Bits of an `f16`.
impl Element for u16 {
    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const Self) -> L {
        // SAFETY: the caller's.
        unsafe { L::load_f16(p) }
    }

    #[inline(always)]
    unsafe fn store<L: Lanes>(values: L, p: *mut Self) {
        // SAFETY: the caller's.
        unsafe { values.store_f16(p) }
    }
}

/// What the sums start from.
#[derive(Clone, Copy)]
pub(crate) enum Start {
    /// Sums begin at zero.
    Zero,
    /// What stands in `c`.
    Keep,
    /// What stands in `c`, times this.
    Scaled(f32),
}

/// `c[m, n] = start + a[m, k] b[k, n]`, each with its own row stride; `n` is a multiple of [`LANES`].
pub(crate) struct Gemm<'a, E> {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: &'a [f32],
    pub(crate) lda: usize,
    pub(crate) b: &'a [E],
    pub(crate) ldb: usize,
    pub(crate) c: &'a mut [f32],
    pub(crate) ldc: usize,
    pub(crate) start: Start,
}

impl<E: Element> Gemm<'_, E> {
    /// Computes it.
    ///
    /// # Safety
    /// The instruction set of `L` exists.
    #[inline(always)]
    pub(crate) unsafe fn run<L: Lanes>(self) {
        if self.m == 0 {
            return;
        }
        assert!(self.n.is_multiple_of(LANES) && self.n <= self.ldc, "columns come in whole vectors");
        assert!(self.k == 0 || (self.m - 1) * self.lda + self.k <= self.a.len(), "a holds m rows of k");
        assert!(self.k == 0 || (self.k - 1) * self.ldb + self.n <= self.b.len(), "b holds k rows of n");
        assert!((self.m - 1) * self.ldc + self.n <= self.c.len(), "c holds m rows of n");
        let mut this = self;
        let vectors = this.n / LANES;
        let mut v = 0;
        // SAFETY: the asserts above bound every access of a tile inside m x n and k.
        unsafe {
            while v < vectors {
                v += match vectors - v {
                    rest if this.m == 1 && rest >= 8 && L::TILE.1 > 1 => this.column::<L, 1, 8>(v),
                    rest if this.m == 1 && rest >= 4 && L::TILE.0 > 1 => this.column::<L, 1, 4>(v),
                    // Few rows have few sums, and one sum waits for itself.
                    rest if this.m < 4 && rest >= 4 && L::TILE.1 > 1 => this.column::<L, 2, 4>(v),
                    rest if this.m < 4 && rest >= 2 && L::TILE.0 > 1 => this.column::<L, 2, 2>(v),
                    rest if rest >= 2 && L::TILE.1 == 2 => this.column::<L, 8, 2>(v),
                    _ if L::TILE.0 == 8 => this.column::<L, 8, 1>(v),
                    _ if L::TILE.0 == 4 => this.column::<L, 4, 1>(v),
                    _ => this.column::<L, 1, 1>(v),
                };
            }
        }
    }

    /// All rows of `N` vectors of columns from vector `v`, `M` rows at a time, then four, then one.
    #[inline(always)]
    unsafe fn column<L: Lanes, const M: usize, const N: usize>(&mut self, v: usize) -> usize {
        let mut row = 0;
        // SAFETY: the caller's.
        unsafe {
            while row + M <= self.m {
                self.tile::<L, M, N>(row, v * LANES);
                row += M;
            }
            while M > 4 && row + 4 <= self.m {
                self.tile::<L, 4, N>(row, v * LANES);
                row += 4;
            }
            while row < self.m {
                self.tile::<L, 1, N>(row, v * LANES);
                row += 1;
            }
        }
        N
    }

    #[inline(always)]
    unsafe fn tile<L: Lanes, const M: usize, const N: usize>(&mut self, row: usize, col: usize) {
        // SAFETY: the caller's: rows row..row+M and columns col..col+N*LANES lie inside the arrays.
        unsafe {
            let c = self.c.as_mut_ptr().add(row * self.ldc + col);
            let mut acc = [[L::splat(0.0); N]; M];
            for (i, acc) in acc.iter_mut().enumerate() {
                for (j, acc) in acc.iter_mut().enumerate() {
                    let old = c.add(i * self.ldc + j * LANES);
                    match self.start {
                        Start::Zero => {}
                        Start::Keep => *acc = L::load(old),
                        Start::Scaled(f) => *acc = L::load(old).mul(L::splat(f)),
                    }
                }
            }
            let (mut a, mut b) = (self.a.as_ptr().add(row * self.lda), self.b.as_ptr().add(col));
            for _ in 0..self.k {
                let mut bv = [L::splat(0.0); N];
                for (j, bv) in bv.iter_mut().enumerate() {
                    *bv = E::load(b.add(j * LANES));
                }
                for (i, acc) in acc.iter_mut().enumerate() {
                    let av = L::splat(*a.add(i * self.lda));
                    for (acc, bv) in acc.iter_mut().zip(bv) {
                        *acc = av.mul_add(bv, *acc);
                    }
                }
                a = a.add(1);
                b = b.wrapping_add(self.ldb);
            }
            for (i, acc) in acc.iter().enumerate() {
                for (j, acc) in acc.iter().enumerate() {
                    acc.store(c.add(i * self.ldc + j * LANES));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::simd::{Kernel, run};

    struct Whole<'a, E>(Gemm<'a, E>);
    impl<E: Element> Kernel for Whole<'_, E> {
        type Output = ();
        #[inline(always)]
        unsafe fn call<L: Lanes>(self) {
            // SAFETY: the caller's.
            unsafe { self.0.run::<L>() }
        }
    }

    fn check<E: Element>(m: usize, n: usize, k: usize, encode: impl Fn(f32) -> E, decode: impl Fn(E) -> f32) {
        let wave = |len: usize, f: f32| -> Vec<f32> { (0..len).map(|i| (i as f32 * f).sin()).collect() };
        let (lda, ldb, ldc) = (k + 3, n + 16, n + 5);
        let (a, c0) = (wave(m * lda, 0.7), wave(m * ldc, 0.3));
        let b: Vec<E> = wave(k * ldb, 1.1).into_iter().map(encode).collect();
        let mut c = c0.clone();
        run(Whole(Gemm { m, n, k, a: &a, lda, b: &b, ldb, c: &mut c, ldc, start: Start::Scaled(0.5) }));
        for i in 0..m {
            for j in 0..n {
                let want = (0..k).fold(c0[i * ldc + j] * 0.5, |s, r| a[i * lda + r].mul_add(decode(b[r * ldb + j]), s));
                assert_eq!(c[i * ldc + j].to_bits(), want.to_bits(), "m {m} n {n} k {k} at {i},{j}");
            }
            assert_eq!(c[i * ldc + n..(i + 1) * ldc], c0[i * ldc + n..(i + 1) * ldc]);
        }
    }

    #[test]
    fn every_tile_gives_the_chain_of_its_definition() {
        for m in [1, 2, 3, 4, 7, 13, 32] {
            for n in [16, 32, 48, 64, 128, 256] {
                check::<f32>(m, n, 19, |x| x, |x| x);
                let encode = |x| half::f16::from_f32(x).to_bits();
                check::<u16>(m, n, 9, encode, |x| half::f16::from_bits(x).to_f32());
            }
        }
    }
}
