//! Encoders: a device finds the bytes that the threads find.

use super::Test;
use chimere_engine::backend::cuda::CudaEncoder;
use chimere_engine::format::blocks::SplitMix;
use chimere_engine::format::{BlockType, Tensor};
use chimere_engine::quantize::{Encoder, Importance, MENU, Threads};

/// Tests that want a device.
pub(super) const TESTS: &[Test] = &[("encoders_find_the_bytes_of_the_threads", encoders_find_the_bytes_of_the_threads)];

/// Matrices, rows of each, and their width: a width of few blocks, so that rows end within what warps take at a time.
const SHAPE: [usize; 3] = [3, 40, 768];
const SHOWN: usize = 4;

/// Rows of every kind that a search may stumble over.
fn rows(seed: u64) -> Tensor {
    let (mut rng, [matrices, rows, cols]) = (SplitMix::new(seed, 0), SHAPE);
    let mut values = Vec::with_capacity(matrices * rows * cols);
    for row in 0..matrices * rows {
        for i in 0..cols {
            let bell = (0..6).map(|_| rng.signed_unit()).sum::<f32>() * 0.7;
            values.push(match row % 12 {
                0 => 0.0,
                1 => 0.037,
                2 => -1.5,
                3 => bell * 3e37,
                4 => bell * 1e-30,
                5 => bell * 1e-42,
                6 => bell.abs(),
                7 => -bell.abs(),
                8 if i % 97 > 0 => 0.0,
                9 => bell * bell * bell,
                10 => (bell * 3.0).round(),
                _ => bell * 0.02,
            });
        }
    }
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Tensor::owned("w".into(), BlockType::F32, SHAPE.to_vec(), bytes).unwrap()
}

/// Of the first matrix little and of the second nothing is known.
fn importance() -> Importance {
    let (mut all, mut rng) = (Importance::default(), SplitMix::new(7, 1));
    let sums: Vec<f64> = (0..SHAPE[2]).map(|_| f64::from(rng.signed_unit()).powi(4) * 1e3).collect();
    all.add("w", 2, 9, &sums);
    all.add("w", 0, 1, &sums.iter().enumerate().map(|(i, s)| if i % 5 == 0 { *s } else { 0.0 }).collect::<Vec<_>>());
    all
}

fn encoders_find_the_bytes_of_the_threads() {
    let gpu = CudaEncoder::open(0).unwrap();
    let (tensor, some) = (rows(1), importance());
    let all: Vec<usize> = (0..SHAPE[0] * SHAPE[1]).collect();
    let few: Vec<usize> = all.iter().copied().step_by(7).collect();
    for ty in MENU.into_iter().chain([BlockType::Q4_0]) {
        for (what, importance, rows) in
            [("none", &Importance::default(), &all), ("some", &some, &all), ("some, of few rows", &some, &few)]
        {
            let [want, got] =
                [&Threads as &dyn Encoder, &gpu].map(|e| e.encode(&tensor, rows, ty, importance).unwrap());
            let blocks = want.chunks_exact(ty.bytes()).zip(got.chunks_exact(ty.bytes())).enumerate();
            let differing: Vec<usize> = blocks.filter(|(_, (a, b))| a != b).map(|(i, _)| i).collect();
            println!(
                "{}, importance {what}: {} of {} blocks differ",
                ty.name(),
                differing.len(),
                want.len() / ty.bytes()
            );
            for i in differing.iter().take(SHOWN) {
                let at = i * ty.bytes()..(i + 1) * ty.bytes();
                println!(
                    "  block {i}, row {}: {:?} for {:?}",
                    rows[i * ty.elements() / SHAPE[2]],
                    &got[at.clone()],
                    &want[at]
                );
            }
            assert_eq!(differing, [0usize; 0], "{}, importance {what}", ty.name());
        }
    }
}
