//! Times of sums of hidden states.

use crate::time::{graph_time, table_head, table_row};
use crate::{Gpu, Outcome, TIMED};
use chimere_kernels::cuda::pool::{self, HiddenRows, Pool, UNIT_ROWS_MAX};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::{CudaError, Program};

const COLS: usize = 2048;
const EPS: f32 = 1e-6;

/// Builds the programs that [`time`] loads.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    Ok(vec![pool::program(COLS)?])
}

pub(crate) fn time(gpu: &Gpu) -> Outcome {
    table_head("pool, 2048 wide");
    let (stream, cols) = (gpu.device.stream(), COLS);
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
            let from =
                HiddenRows { x: x[i % sets].as_view(), squares: squares.as_view(), weight: w.as_view(), eps: EPS };
            // SAFETY: the units part `rows` rows.
            unsafe { kernel.launch(&gpu.device, n, &d_units.as_view(), from, &mut sums.as_view_mut()) }
        })?;
        table_row("pool", rows, seconds, 4.0 * ((rows * cols) as f64 * (1.0 + 1.0 / 32.0) + (n * cols) as f64));
    }
    Ok(())
}
