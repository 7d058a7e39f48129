//! Products of packed weights: bytes per second for one row, operations per second for many.
//!
//! `cargo bench -p chimere-engine --bench matmul`, on one thread. Each product takes the next of several matrices, together
//! 64 MiB or as many as `CHIMERE_BENCH_MIB` says: 0 for a matrix that stays in the cache, 200 for weights from memory.

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
    (0..count).map(|_| PackedMatrix::pack(&tensor, 0, false)).collect()
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

fn packing(c: &mut Criterion) {
    for ty in [BlockType::Q8_0, BlockType::Q4K, BlockType::Q6K] {
        let (out, cols) = (512, 2048);
        let bytes = out * ty.row_bytes(cols).expect("whole blocks");
        let tensor =
            Tensor::owned("bench".into(), ty, vec![out, cols], vec![0x11; bytes]).expect("bytes fit the shape");
        let mut group = c.benchmark_group("pack");
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(ty.name(), |b| b.iter(|| PackedMatrix::pack(black_box(&tensor), 0, false)));
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

criterion_group! { name = benches; config = config(); targets = reading, packing, products }
criterion_main!(benches);
