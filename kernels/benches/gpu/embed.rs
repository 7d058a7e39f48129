//! Times of the token table's rows, in the device's memory and in the host's.

use crate::rows::Outputs;
use crate::tables::random_table;
use crate::time::{graph_time, table_head, table_row};
use crate::{Gpu, Outcome, TIMED};
use chimere_kernels::cuda::embed::{self, Embed, Table, TableEncoding, TableShape, TokenRows};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::rows::FoldedOut;
use chimere_kernels::cuda::{CudaError, Program};
use cudarc::driver::{DevicePtr, sys};

const RELEASED: usize = 248_320;

/// Builds the programs that [`time`] loads.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    let encodings = [TableEncoding::Q8_0, TableEncoding::Q6K, TableEncoding::Bf16];
    encodings
        .map(|encoding| TableShape { cols: 2048, vocab: RELEASED, encoding, planes: Planes::One })
        .into_iter()
        .map(embed::program)
        .collect()
}

pub(crate) fn time(gpu: &Gpu) -> Outcome {
    table_head("embed, 2048 wide");
    for (encoding, host) in [
        (TableEncoding::Q8_0, false),
        (TableEncoding::Q6K, false),
        (TableEncoding::Bf16, false),
        (TableEncoding::Q8_0, true),
        (TableEncoding::Q6K, true),
    ] {
        let shape = TableShape { cols: 2048, vocab: RELEASED, encoding, planes: Planes::One };
        let (row_bytes, rows_held) = (shape.bytes()? / RELEASED, if host { 20_000 } else { RELEASED });
        let sample = random_table(shape, 500, 3);
        let stream = gpu.device.stream();
        let mut on_device = stream.alloc_zeros::<u8>(if host { 16 } else { shape.bytes()? })?;
        // SAFETY: written below.
        let mut pinned = unsafe {
            stream.context().alloc_pinned_with_flags::<u8>(
                if host { rows_held * row_bytes } else { 16 },
                sys::CU_MEMHOSTALLOC_DEVICEMAP,
            )?
        };
        let address = if host {
            pinned.as_mut_slice()?.chunks_mut(sample.len()).for_each(|c| c.copy_from_slice(&sample[..c.len()]));
            pinned.as_ptr()? as u64
        } else {
            let d_sample = stream.clone_htod(&sample)?;
            for at in (0..on_device.len()).step_by(sample.len()) {
                let n = sample.len().min(on_device.len() - at);
                stream.memcpy_dtod(&d_sample.slice(..n), &mut on_device.slice_mut(at..at + n))?;
            }
            on_device.device_ptr(stream).0
        };
        let kernel = Embed::load(&gpu.device, &gpu.cache, shape)?;
        for n in TIMED {
            let mut random = Random(n as u64);
            let turns = if n > 256 { 4 } else { 32 };
            let tokens: Vec<i32> = (0..n * turns).map(|_| (random.bits() % rows_held as u64) as i32).collect();
            let tokens = stream.clone_htod(&tokens)?;
            let slots = stream.clone_htod(&(0..n as i32).map(|r| r % 256).collect::<Vec<_>>())?;
            let (zeros, sampled) = (stream.alloc_zeros::<i32>(n)?, stream.alloc_zeros::<i32>(256)?);
            let w = stream.clone_htod(&Random(2).vector(2048))?;
            let mut x = stream.alloc_zeros::<f32>(n * 2048)?;
            let mut history = stream.alloc_zeros::<u32>(shape.history(256))?;
            let mut out = Outputs::new(gpu, n, 2048, shape.planes)?;
            let seconds = graph_time(gpu, turns, |i| {
                let step = TokenRows {
                    count: n,
                    tokens: &tokens.slice(i * n..),
                    sampled: &sampled.as_view(),
                    slots: &slots.as_view(),
                    positions: &zeros.as_view(),
                    prompt_lens: &zeros.as_view(),
                };
                let (mut codes, mut meta, mut squares) =
                    (out.codes.as_view_mut(), out.meta.as_view_mut(), out.squares.as_view_mut());
                let folded = FoldedOut { codes: &mut codes, meta: &mut meta, squares: &mut squares };
                // The launcher wants the whole table; the rows that are named lie within what is there.
                let table = Table { address, bytes: RELEASED * row_bytes };
                // SAFETY: tokens name rows that are held, slots are below 256.
                unsafe {
                    let history = Some(&mut history.as_view_mut());
                    kernel.launch(&gpu.device, table, step, 1.0, &w.as_view(), history, &mut x.as_view_mut(), folded)
                }
            })?;
            let bytes = n * (row_bytes + 2048 * 21 / 4 + 2048 / 8);
            table_row(
                &format!("embed {encoding:?}{}", if host { ", host memory" } else { "" }),
                n,
                seconds,
                bytes as f64,
            );
        }
    }
    Ok(())
}
