//! Sums of hidden states over units of rows.

use crate::support::{Gpu, Outcome, Test};
use chimere_kernels::cuda::pool::{self, HiddenRows, Pool};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::{CudaError, Program};
use chimere_kernels::reference;

const COLS: [usize; 5] = [2048, 256, 32, 5120, 96];
const EPS: f32 = 1e-6;

/// What the tests load.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    COLS.into_iter().map(pool::program).collect()
}

/// First row and rows of units: whole ones, parts, single rows, not in their order and not next to each other.
fn units(n: usize) -> Vec<[i32; 2]> {
    let of = |u: usize| [(u * 70) as i32, [64, 1, 63, 37][u % 4]];
    (0..n).rev().map(of).collect()
}

/// The tests of this file by their names, as `main` lists and filters them.
pub(crate) const TESTS: &[Test] = &[("pool::units_are_summed_and_do_not_notice_those_beside_them", every_width)];

fn every_width(gpu: &Gpu) -> Outcome {
    for cols in COLS {
        let alone = units_are_summed(gpu, cols, 1)?;
        for n in [5, if cols > 256 { 30 } else { 300 }] {
            let sums = units_are_summed(gpu, cols, n)?;
            // Unit 0 stands last.
            assert!(sums.ends_with(&alone), "{cols} columns: {n} units beside it change a sum");
        }
    }
    Ok(())
}

fn units_are_summed(gpu: &Gpu, cols: usize, n: usize) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
    let (stream, units, rows) = (gpu.device.stream(), units(n), n * 70);
    let (mut random, w) = (Random(7), Random(8).vector(cols));
    // Rows of very different size, which the norm makes equal.
    let x: Vec<f32> = (0..rows)
        .flat_map(|row| random.vector(cols).into_iter().map(move |v| v * 4f32.powi(row as i32 % 7 - 3)))
        .collect();
    let squares: Vec<f32> = x.chunks_exact(32).map(|b| b.iter().map(|v| v * v).sum()).collect();
    let (dx, d_squares, dw) = (stream.clone_htod(&x)?, stream.clone_htod(&squares)?, stream.clone_htod(&w)?);
    let d_units = stream.clone_htod(units.as_flattened())?;
    let mut sums = stream.clone_htod(&vec![f32::NAN; (n + 1) * cols])?;
    let from = HiddenRows { x: dx.as_view(), squares: d_squares.as_view(), weight: dw.as_view(), eps: EPS };
    let kernel = Pool::load(&gpu.device, &gpu.cache, cols)?;
    // SAFETY: unit `u` has at most 64 of the 70 rows from `70 u` on.
    unsafe { kernel.launch(&gpu.device, n, &d_units.as_view(), from, &mut sums.as_view_mut())? };
    let mut got = stream.clone_dtoh(&sums)?;
    assert!(got.split_off(n * cols).iter().all(|v| v.is_nan()), "{cols} columns: written beyond {n} units");
    let mut worst = 0.0f32;
    for (sum, [first, count]) in got.chunks_exact(cols).zip(&units) {
        let rows: Vec<&[f32]> = x.chunks_exact(cols).skip(*first as usize).take(*count as usize).collect();
        let normed: Vec<Vec<f32>> = rows.iter().map(|row| reference::rmsnorm(row, &w, EPS)).collect();
        for (c, (got, want)) in sum.iter().zip(reference::pool(&rows, &w, EPS)).enumerate() {
            let size: f32 = normed.iter().map(|row| row[c].abs()).sum();
            let ratio = (got - want).abs() / (1e-6 * (1.0 + size));
            assert!(ratio <= 1.0, "{cols} columns, unit of {count} rows from {first}, column {c}: {got} for {want}");
            worst = worst.max(ratio);
        }
    }
    println!("pool {cols}, {n} units: {worst:.2} of tolerance");
    Ok(got)
}
