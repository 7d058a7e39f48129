//! Products of packed weights: bytes per second for one row, operations per second for many.
//!
//! `cargo bench -p chimere-engine --bench matmul`, on one thread. Each product takes the next of several matrices, together
//! 64 MiB or as many as `CHIMERE_BENCH_MIB` says: 0 for a matrix that stays in the cache, 200 for weights from memory.
//! Where there is AVX2, also what its four operations for 32 products of eight bits allow (`-- "four operations"`).

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use chimere_engine::backend::cpu::matmul::{ActivationRows, OutView, PackedMatrix, matmul};
use chimere_engine::format::{BlockType, Tensor};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;

const TYPES: [BlockType; 8] = {
    use BlockType::*;
    [Q8_0, Q4K, Q5K, Q6K, Iq4Xs, Q4_0, Bf16, F32]
};
/// Bytes that all matrices of a type hold together: by default so many that one row finds none in a private cache.
fn working_set() -> usize {
    std::env::var("CHIMERE_BENCH_MIB").map_or(64, |mib| mib.parse().expect("CHIMERE_BENCH_MIB is a number of MiB"))
        << 20
}

fn matrices(ty: BlockType, out: usize, cols: usize, count: usize) -> Vec<PackedMatrix> {
    let bytes = out * ty.row_bytes(cols).expect("whole blocks");
    // Any bytes do: the time does not depend on values, as long as none is denormal.
    let tensor =
        Tensor::owned("bench".into(), ty, vec![out, cols], (0..bytes).map(|i| 0x11 + (i * 7 % 40) as u8).collect());
    let tensor = tensor.expect("bytes fit the shape");
    (0..count).map(|_| PackedMatrix::pack(&tensor, 0, false).expect("finite weights")).collect()
}

fn products(c: &mut Criterion) {
    for ty in TYPES {
        for (out, cols) in [(512, 2048), (2048, 512)] {
            let one = matrices(ty, out, cols, 1)[0].bytes();
            let w = matrices(ty, out, cols, (working_set() / one).max(1));
            for rows in [1usize, 2, 3, 4, 8, 16, 64, 512] {
                let mut x = ActivationRows::with_capacity(rows, cols);
                x.set_len(rows, cols);
                (0..rows).for_each(|i| {
                    x.row_mut(i).iter_mut().enumerate().for_each(|(k, v)| *v = ((i + k) % 13) as f32 - 6.0)
                });
                x.quantize(0..rows);
                let pairs: Vec<(u32, u32)> = (0..rows as u32).map(|i| (i, i)).collect();
                let mut result = vec![0.0; rows * out];
                let mut group = c.benchmark_group(format!("{} {out}x{cols}", ty.name()));
                group.throughput(if rows == 1 {
                    Throughput::Bytes(one as u64)
                } else {
                    Throughput::Elements(2 * (rows * out * cols) as u64)
                });
                let mut turn = 0;
                group.bench_function(format!("{rows} rows"), |b| {
                    b.iter(|| {
                        turn = (turn + 1) % w.len();
                        matmul(
                            &w[turn],
                            x.view(),
                            black_box(&pairs),
                            0..w[turn].tiles(),
                            OutView::of(&mut result, out),
                        );
                    });
                });
            }
        }
    }
}

/// The bound of AVX2: what turns a weight's sign, both multiplications and the sum, for 4 rows by 16 outputs, over and over.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::asm;
    use std::arch::x86_64::*;

    /// Products of one pass.
    pub(super) const PRODUCTS: u64 = 4 * 16 * 32;

    /// Has the compiler know nothing of a vector, so that it neither moves nor leaves out what is done with it.
    macro_rules! opaque {
        ($v:ident) => {
            // SAFETY: no instruction.
            unsafe { asm!("/* {0} */", inout(ymm_reg) $v, options(nomem, nostack, preserves_flags)) }
        };
    }

    /// `passes` of them with all operands in registers.
    ///
    /// # Safety
    /// The host has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn in_registers(passes: u64) -> __m256i {
        let (ones, sign, magnitude) = (_mm256_set1_epi16(1), _mm256_set1_epi8(5), _mm256_set1_epi8(7));
        let (mut w, mut sums) = (_mm256_set1_epi8(3), [_mm256_setzero_si256(); 8]);
        for _ in 0..passes * 8 {
            for sum in &mut sums {
                opaque!(w);
                let mut pairs = _mm256_maddubs_epi16(magnitude, _mm256_xor_si256(w, sign));
                opaque!(pairs);
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
            }
        }
        together(&sums)
    }

    /// `passes` of them with weights, magnitudes and signs from the first-level cache, each loaded as often as a kernel
    /// has to.
    ///
    /// # Safety
    /// The host has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn with_loads(passes: u64, weights: &[[u8; 512]; 8], rows: &[[i32; 16]; 4]) -> __m256i {
        let (ones, mut all) = (_mm256_set1_epi16(1), _mm256_setzero_si256());
        for pass in 0..passes {
            let block = &weights[pass as usize % 8];
            let mut sums = [_mm256_setzero_si256(); 8];
            for quad in 0..8 {
                // SAFETY: 64 of the block's bytes.
                let w: [__m256i; 2] = unsafe { block.as_ptr().add(quad * 64).cast::<[__m256i; 2]>().read_unaligned() };
                for r in 0..4 {
                    let (magnitude, sign) = (_mm256_set1_epi32(rows[r][quad]), _mm256_set1_epi32(rows[r][8 + quad]));
                    for half in 0..2 {
                        let mut pairs = _mm256_maddubs_epi16(magnitude, _mm256_xor_si256(w[half], sign));
                        opaque!(pairs);
                        let sum = &mut sums[2 * r + half];
                        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
                    }
                }
            }
            all = _mm256_xor_si256(all, together(&sums));
        }
        all
    }

    #[target_feature(enable = "avx2")]
    fn together(sums: &[__m256i; 8]) -> __m256i {
        let mut all = sums[0];
        for sum in &sums[1..] {
            all = _mm256_xor_si256(all, *sum);
        }
        all
    }
}

#[cfg(target_arch = "x86_64")]
fn four_operations(c: &mut Criterion) {
    if !is_x86_feature_detected!("avx2") {
        return;
    }
    const PASSES: u64 = 4096;
    let (weights, rows) = ([[0x35; 512]; 8], [[0x0102_0304; 16]; 4]);
    let mut group = c.benchmark_group("AVX2, four operations");
    group.throughput(Throughput::Elements(2 * PASSES * avx2::PRODUCTS));
    group.bench_function("in registers", |b| {
        // SAFETY: the host has AVX2.
        b.iter(|| unsafe { avx2::in_registers(black_box(PASSES)) });
    });
    group.bench_function("with loads", |b| {
        // SAFETY: the host has AVX2.
        b.iter(|| unsafe { avx2::with_loads(black_box(PASSES), black_box(&weights), black_box(&rows)) });
    });
}

#[cfg(not(target_arch = "x86_64"))]
fn four_operations(_: &mut Criterion) {}

fn packing(c: &mut Criterion) {
    for ty in [BlockType::Q8_0, BlockType::Q4K, BlockType::Q6K] {
        let (out, cols) = (512, 2048);
        let bytes = out * ty.row_bytes(cols).expect("whole blocks");
        let tensor =
            Tensor::owned("bench".into(), ty, vec![out, cols], vec![0x11; bytes]).expect("bytes fit the shape");
        let mut group = c.benchmark_group("pack");
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(ty.name(), |b| {
            b.iter(|| PackedMatrix::pack(black_box(&tensor), 0, false).expect("finite weights"))
        });
    }
}

/// What memory gives one thread: the bound for one row.
fn reading(c: &mut Criterion) {
    let memory = vec![1u64; 256 << 17];
    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Bytes(8 * memory.len() as u64));
    group.bench_function("256 MiB", |b| b.iter(|| black_box(&memory).iter().fold(0u64, |a, v| a ^ v)));
}

fn config() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .sample_size(10)
}

criterion_group! { name = benches; config = config(); targets = reading, packing, four_operations, products }
criterion_main!(benches);
