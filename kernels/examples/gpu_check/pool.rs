//! Sums of hidden states over units of rows.

use crate::rows::TIMED;
use crate::time::{graph_time, table_head, table_row};
use crate::{Gpu, Outcome};
use chimere_kernels::cuda::pool::{self, HiddenRows, Pool, UNIT_ROWS_MAX};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::{CudaError, Program};
use chimere_kernels::reference;

const COLS: [usize; 5] = [2048, 256, 32, 5120, 96];
const EPS: f32 = 1e-6;

pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    COLS.into_iter().map(pool::program).collect()
}

/// First row and rows of units: whole ones, parts, single rows, not in their order and not next to each other.
fn units(n: usize) -> Vec<[i32; 2]> {
    let of = |u: usize| [(u * 70) as i32, [64, 1, 63, 37][u % 4]];
    (0..n).rev().map(of).collect()
}

pub(crate) fn check(gpu: &Gpu) -> Outcome {
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
    let x: Vec<f32> =
        (0..rows).flat_map(|row| random.vector(cols).into_iter().map(move |v| v * 4f32.powi(row as i32 % 7 - 3))).collect();
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

pub(crate) fn time(gpu: &Gpu) -> Outcome {
    table_head("pool, 2048 wide");
    let (stream, cols) = (gpu.device.stream(), COLS[0]);
    let kernel = Pool::load(&gpu.device, &gpu.cache, cols)?;
    for rows in TIMED.into_iter().chain([16384]) {
        let units: Vec<[i32; 2]> =
            (0..rows).step_by(UNIT_ROWS_MAX).map(|r| [r as i32, (rows - r).min(UNIT_ROWS_MAX) as i32]).collect();
        let (n, w) = (units.len(), stream.clone_htod(&Random(1).vector(cols))?);
        // More than the cache holds.
        let sets = (256usize << 20).div_ceil(4 * rows * cols).min(64);
        let x = (0..sets).map(|_| stream.clone_htod(&vec![0.5f32; rows * cols])).collect::<Result<Vec<_>, _>>()?;
        let squares = stream.clone_htod(&vec![8.0f32; rows * cols / 32])?;
        let (d_units, mut sums) = (stream.clone_htod(units.as_flattened())?, stream.alloc_zeros::<f32>(n * cols)?);
        let seconds = graph_time(gpu, if rows > 256 { 8 } else { 64 }, |i| {
            let from = HiddenRows { x: x[i % sets].as_view(), squares: squares.as_view(), weight: w.as_view(), eps: EPS };
            // SAFETY: the units part `rows` rows.
            unsafe { kernel.launch(&gpu.device, n, &d_units.as_view(), from, &mut sums.as_view_mut()) }
        })?;
        table_row("pool", rows, seconds, 4.0 * ((rows * cols) as f64 * (1.0 + 1.0 / 32.0) + (n * cols) as f64));
    }
    Ok(())
}
