//! The product of some tiles with some rows: integer sums of a block, and their terms in the order of `scalar.rs`.

use super::super::ahead::PrefetchStream;
use super::super::qblock::QBlock;
use super::codes::CodeReader;
use super::scales::{BlockScales, ScaleReader, none};
use std::arch::x86_64::*;

/// Code and scale planes of the tiles that a kernel works on.
#[derive(Clone, Copy)]
pub(super) struct Tiles<const T: usize> {
    pub(super) codes: [*const u8; T],
    pub(super) scales: [*const u8; T],
    pub(super) blocks: usize,
    /// What is asked for meanwhile: into the first-level cache a stream of each tile, since they are read side by side,
    /// and into the second one for all, in the order in which it lies in memory.
    pub(super) near: [PrefetchStream; T],
    pub(super) far: PrefetchStream,
}

/// `T` tiles times `R` rows.
#[inline(always)]
pub(super) unsafe fn kernel<C: CodeReader, S: ScaleReader, const R: usize, const T: usize>(
    reader: C,
    w: &Tiles<T>,
    x: &[*const QBlock; R],
) -> [[__m512; R]; T] {
    // SAFETY: block and group indices stay below the counts that the planes were made for; rows have as many blocks.
    unsafe {
        let mut acc = [[_mm512_setzero_ps(); R]; T];
        let (per, group_bytes) = S::GROUP;
        let mut b = 0;
        while b < w.blocks {
            let mut scales = w.scales;
            let mut shared = [none(); T];
            for t in 0..T {
                scales[t] = scales[t].add(b / per * group_bytes);
                shared[t] = S::group(scales[t]);
            }
            for j in 0..per {
                let sums = block_sums::<C, S, R, T>(reader, w, x, b);
                for t in 0..T {
                    let scales = S::block(shared[t], scales[t], j);
                    for r in 0..R {
                        acc[t][r] = add_block::<S>(acc[t][r], sums[t][r], &scales, &*x[r].add(b));
                    }
                }
                b += 1;
            }
        }
        acc
    }
}

/// Integer sums of block `b` by tile and row: of the whole block in the first place, or of its two halves.
#[inline(always)]
unsafe fn block_sums<C: CodeReader, S: ScaleReader, const R: usize, const T: usize>(
    reader: C,
    w: &Tiles<T>,
    x: &[*const QBlock; R],
    b: usize,
) -> [[[__m512i; 2]; R]; T] {
    // SAFETY: the caller's, for every pointer.
    unsafe {
        let mut sums = [[[_mm512_setzero_si512(); 2]; R]; T];
        let other = usize::from(S::HALVES);
        for t in 0..T {
            w.near[t].ask::<_MM_HINT_T0>(b);
        }
        w.far.ask::<_MM_HINT_T1>(b);
        for t in 0..T {
            for r in 0..R {
                sums[t][r] = start::<S>(&*x[r].add(b));
            }
        }
        for v in 0..4 {
            let mut codes = [(_mm512_setzero_si512(), _mm512_setzero_si512()); T];
            for t in 0..T {
                codes[t] = reader.pair(w.codes[t].add(b * C::BYTES), v);
            }
            for r in 0..R {
                let q = (&raw const (*x[r].add(b)).q).cast::<i32>();
                let (low, high) = (_mm512_set1_epi32(q.add(v).read()), _mm512_set1_epi32(q.add(v + 4).read()));
                for t in 0..T {
                    sums[t][r][0] = _mm512_dpbusd_epi32(sums[t][r][0], codes[t].0, low);
                    sums[t][r][other] = _mm512_dpbusd_epi32(sums[t][r][other], codes[t].1, high);
                }
            }
        }
        sums
    }
}

/// What integer sums start with: signed codes are stored plus 128, which is taken back here.
#[inline(always)]
unsafe fn start<S: ScaleReader>(x: &QBlock) -> [__m512i; 2] {
    // SAFETY: registers only.
    unsafe {
        match (S::MIN, S::HALVES) {
            (true, _) => [_mm512_setzero_si512(); 2],
            (_, true) => [_mm512_set1_epi32(x.offset_half[0]), _mm512_set1_epi32(x.offset_half[1])],
            _ => [_mm512_set1_epi32(x.offset), _mm512_setzero_si512()],
        }
    }
}

/// Adds a block's term to the output, in the one order that `scalar.rs` defines.
#[inline(always)]
unsafe fn add_block<S: ScaleReader>(acc: __m512, sums: [__m512i; 2], w: &BlockScales, x: &QBlock) -> __m512 {
    // SAFETY: registers only.
    unsafe {
        let sum = _mm512_cvtepi32_ps(sums[0]);
        let term = if S::MIN {
            _mm512_fmsub_ps(sum, w.scale, _mm512_mul_ps(w.min, _mm512_set1_ps(x.sum)))
        } else if S::HALVES {
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[1]), w.second, _mm512_mul_ps(sum, w.scale))
        } else {
            _mm512_mul_ps(sum, w.scale)
        };
        _mm512_fmadd_ps(term, _mm512_set1_ps(x.d), acc)
    }
}
