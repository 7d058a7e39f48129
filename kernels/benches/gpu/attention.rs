//! Times of the released model's attention layers.

use crate::time::graph_time;
use crate::{Gpu, Outcome};
use chimere_kernels::cuda::attention::{
    self, Attention, AttentionRows, AttentionShape, Cache, DecodeScratch, DecodeTiling, KvType, Norms, Out, PAGE,
    TileChip, tiling,
};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::{CudaError, Program};
use cudarc::driver::CudaSlice;
use std::error::Error;

const KV_TYPES: [KvType; 3] = [KvType::F16, KvType::Q8, KvType::Q8Q4];
const RELEASED: AttentionShape = AttentionShape {
    dim: 256,
    heads: 16,
    kv_heads: 2,
    rotary: 64,
    theta: 1e7,
    yarn: None,
    eps: 1e-6,
    gated: true,
    normed: true,
    scale: 1.0 / 16.0,
    stride: 9216,
    planes: Planes::One,
    drafts: 0,
};

/// Builds the programs that [`time`] loads.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    let of = |kv| tilings(kv).into_iter().map(move |tiling| attention::program(RELEASED, kv, tiling));
    KV_TYPES.into_iter().flat_map(of).collect()
}

/// Measured; the first is what a large chip uses.
fn tilings(kv: KvType) -> Vec<DecodeTiling> {
    let others: &[(usize, usize, usize)] = if kv == KvType::F16 { &[(2, 2, 8), (4, 1, 8)] } else { &[(8, 1, 16)] };
    let of = |&(round, resident, warps): &(usize, usize, usize)| DecodeTiling { round, resident, warps };
    let used = tiling(RELEASED, kv, "sm_90a".parse().expect("an architecture"));
    std::iter::once(used).chain(others.iter().map(of)).collect()
}

/// Measures the released model's layer.
pub(crate) fn time(gpu: &Gpu) -> Outcome {
    println!(
        "\n| attention | rows | context | us by (pages a round, blocks, warps) | GB/s of the first |\n\
         | --- | --- | --- | --- | --- |"
    );
    for kv in KV_TYPES {
        for context in [64, 1024, 16384] {
            for n in [1, 4, 16, 64, 256] {
                if n * context > 64 * 16384 {
                    continue;
                }
                decode_time(gpu, kv, n, context)?;
            }
        }
        for (pieces, rows, start) in
            [(8, 256, 0), (8, 256, 1024), (1, 512, 0), (1, 2048, 0), (1, 8192, 0), (1, 16, 16384)]
        {
            let seconds = prefill_time(gpu, kv, pieces, rows, start)?;
            let keys: usize = pieces * (0..rows).map(|i| start + i + 1).sum::<usize>();
            let rate = (keys * RELEASED.heads * RELEASED.dim * 4) as f64 / seconds;
            println!(
                "| prefill {kv:?} | {pieces} x {rows} | {start} + | {:.1} | {:.0} TFLOP/s |",
                seconds * 1e6,
                rate / 1e12
            );
        }
    }
    Ok(())
}

struct Timed {
    keys: CudaSlice<u8>,
    values: CudaSlice<u8>,
    table: CudaSlice<i32>,
    pages_max: usize,
    layers: usize,
    pages: usize,
    norm: CudaSlice<f32>,
    x: CudaSlice<f32>,
    codes: CudaSlice<i8>,
    meta: CudaSlice<f32>,
}

/// Caches of `layers` layers for `sequences` of `context` positions each, more bytes than the chip's cache holds.
fn timed(gpu: &Gpu, kv: KvType, sequences: usize, context: usize, rows: usize) -> Result<Timed, Box<dyn Error>> {
    let (stream, (k_page, v_page)) = (gpu.device.stream(), RELEASED.page_bytes(kv));
    let pages_max = context.div_ceil(PAGE);
    let pages = sequences * pages_max;
    let layers = ((300 << 20) / (pages * (k_page + v_page))).clamp(2, 20);
    let mut table: Vec<i32> = (0..pages as i32).collect();
    let mut random = Random(5);
    (1..pages).rev().for_each(|i| table.swap(i, random.bits() as usize % (i + 1)));
    Ok(Timed {
        keys: stream.alloc_zeros(layers * pages * k_page)?,
        values: stream.alloc_zeros(layers * pages * v_page)?,
        table: stream.clone_htod(&table)?,
        pages_max,
        layers,
        pages,
        norm: stream.clone_htod(&vec![1.0f32; RELEASED.dim])?,
        x: stream.clone_htod(&Random(1).vector(rows * RELEASED.stride))?,
        codes: stream.alloc_zeros(rows * RELEASED.out_stride())?,
        meta: stream.alloc_zeros(rows * RELEASED.out_stride() / 16)?,
    })
}

fn decode_time(gpu: &Gpu, kv: KvType, n: usize, context: usize) -> Outcome {
    let stream = gpu.device.stream();
    let (k_page, v_page) = RELEASED.page_bytes(kv);
    let mut t = timed(gpu, kv, n, context, n)?;
    let mut scratch = DecodeScratch::new(&gpu.device, RELEASED, n, context)?;
    let (slots, positions) =
        (stream.clone_htod(&(0..n as i32).collect::<Vec<_>>())?, stream.clone_htod(&vec![context as i32 - 1; n])?);
    let (mut times, mut first) = (Vec::new(), 0.0);
    for tiling in tilings(kv) {
        let kernel = Attention::load_tiled(&gpu.device, &gpu.cache, RELEASED, kv, tiling)?;
        let seconds = graph_time(gpu, 20, |i| {
            let at = i % t.layers * t.pages;
            let rows = AttentionRows {
                count: n,
                slots: &slots.as_view(),
                positions: &positions.as_view(),
                page_table: &t.table.as_view(),
                pages_max: t.pages_max,
                half_inputs: false,
            };
            let norms = Norms { query: &t.norm.as_view(), key: &t.norm.as_view() };
            let cache =
                Cache { keys: &mut t.keys.slice_mut(at * k_page..), values: &mut t.values.slice_mut(at * v_page..) };
            let out = Out { codes: &mut t.codes.as_view_mut(), meta: &mut t.meta.as_view_mut(), halves: None };
            // SAFETY: slots differ, the table names pages of each layer's part.
            unsafe { kernel.decode(&gpu.device, rows, &t.x.as_view(), norms, cache, &mut scratch, out) }
        })?;
        times.push(format!("{:.2} ({}, {}, {})", seconds * 1e6, tiling.round, tiling.resident, tiling.warps));
        if first == 0.0 {
            first = seconds;
        }
    }
    let rate = (n * context) as f64 * (k_page + v_page) as f64 / PAGE as f64 / first;
    println!("| decode {kv:?} | {n} | {context} | {} | {:.0} |", times.join(", "), rate / 1e9);
    Ok(())
}

fn prefill_time(gpu: &Gpu, kv: KvType, pieces: usize, rows: usize, start: usize) -> Result<f64, Box<dyn Error>> {
    let stream = gpu.device.stream();
    let (k_page, v_page) = RELEASED.page_bytes(kv);
    let n = pieces * rows;
    let mut t = timed(gpu, kv, pieces, start + rows, n)?;
    let slots: Vec<i32> = (0..n).map(|r| (r / rows) as i32).collect();
    let positions: Vec<i32> = (0..n).map(|r| (start + r % rows) as i32).collect();
    let (slots, positions) = (stream.clone_htod(&slots)?, stream.clone_htod(&positions)?);
    let tiles = attention::tiles(RELEASED, TileChip::of(&gpu.device), &vec![rows; pieces]);
    let d_tiles = stream.clone_htod(tiles.as_flattened())?;
    let kernel = Attention::load(&gpu.device, &gpu.cache, RELEASED, kv)?;
    graph_time(gpu, 4, |i| {
        let at = i % t.layers * t.pages;
        let rows = AttentionRows {
            count: n,
            slots: &slots.as_view(),
            positions: &positions.as_view(),
            page_table: &t.table.as_view(),
            pages_max: t.pages_max,
            half_inputs: false,
        };
        let norms = Norms { query: &t.norm.as_view(), key: &t.norm.as_view() };
        let cache =
            Cache { keys: &mut t.keys.slice_mut(at * k_page..), values: &mut t.values.slice_mut(at * v_page..) };
        let out = Out { codes: &mut t.codes.as_view_mut(), meta: &mut t.meta.as_view_mut(), halves: None };
        // SAFETY: pieces are of one slot each, the table names pages of each layer's part.
        unsafe {
            kernel.prefill(&gpu.device, rows, (&d_tiles.as_view(), tiles.len()), &t.x.as_view(), norms, cache, out)
        }
    })
}
