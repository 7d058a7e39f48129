//! Times of the released model's shapes, each in a graph over more data than the cache holds.

use crate::{Gpu, MULTIPROCESSORS, Outcome};
use chimere_kernels::cuda::gdn_decode::{self, GdnDecode, Heads, LayerWeights, Memory, StepRows};
use chimere_kernels::cuda::norm_quantize::{self, NormQuantize, Normed};
use chimere_kernels::cuda::product::layout::Layout;
use chimere_kernels::cuda::product::sample::{Matrix, Random};
use chimere_kernels::cuda::product::{self, Activations, Columns, Output, Product, Shape, Tiling};
use chimere_kernels::cuda::quantized::QuantizedRows;
use chimere_kernels::cuda::{CudaError, Program};
use cudarc::driver::{CudaSlice, sys};
use std::error::Error;

const HEADS: Heads = Heads { key_dim: 128, value_dim: 128, keys: 16, values: 32, grouped: false };
const HIDDEN: usize = 2048;
/// Weights that are read in turn, so that none are still in the cache.
const ROTATED_BYTES: usize = 400 << 20;
/// The same weights, side by side: experts of a layer.
const EXPERTS: usize = 256;

struct Case {
    name: &'static str,
    encoding: &'static str,
    layout: Layout,
    rows: usize,
    cols: usize,
    /// Of experts: how many a token uses.
    used: Option<usize>,
}

const CASES: [Case; 6] = [
    Case { name: "in-projection", encoding: "Q8_0", layout: Layout::Q8_0, rows: 12352, cols: 2048, used: None },
    Case { name: "out-projection", encoding: "Q8_0", layout: Layout::Q8_0, rows: 2048, cols: 4096, used: None },
    Case { name: "expert gate+up", encoding: "Q4_K", layout: Layout::Q4_K, rows: 1024, cols: 2048, used: Some(8) },
    Case { name: "expert down", encoding: "Q4_K", layout: Layout::Q4_K, rows: 2048, cols: 512, used: Some(8) },
    Case { name: "expert gate+up", encoding: "IQ4_XS", layout: Layout::IQ4_XS, rows: 1024, cols: 2048, used: Some(8) },
    Case { name: "head", encoding: "Q6_K", layout: Layout::Q6_K, rows: 248_320, cols: 2048, used: None },
];

impl Case {
    fn shape(&self) -> Shape {
        Shape::new(self.layout, self.rows, self.cols).expect("legal")
    }

    fn tiling(&self) -> Tiling {
        product::tiling(self.shape(), self.used.unwrap_or(1), MULTIPROCESSORS)
    }
}

/// What [`all`] loads.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    let mut programs = vec![norm_quantize::program(HIDDEN)?, gdn_decode::program(HEADS, HEADS.inputs())?];
    programs.extend(CASES.iter().map(|case| product::program(case.shape(), case.tiling())));
    Ok(programs)
}

/// Measures every kernel.
pub(crate) fn all(gpu: &Gpu) -> Outcome {
    let ceiling = copy_bandwidth(gpu)?;
    println!("copy: {:.0} GB/s, read and written\n", ceiling / 1e9);
    println!("| kernel | rows of the step | tiling | us | GB/s | % of copy |\n| --- | --- | --- | --- | --- | --- |");
    let row = |name: &str, n: usize, tiling: &str, seconds: f64, bytes: f64| {
        let rate = bytes / seconds;
        println!("| {name} | {n} | {tiling} | {:.2} | {:.0} | {:.0} |", seconds * 1e6, rate / 1e9, 100.0 * rate / ceiling);
    };
    for n in [1, 64] {
        row("norm_quantize 2048", n, "", norm(gpu, n)?, (n * HIDDEN) as f64 * 5.25);
    }
    for n in [1, 4, 16, 64, 256] {
        row("gdn_decode", n, "", gdn(gpu, n)?, (n * HEADS.state() * 8) as f64);
    }
    for case in &CASES {
        let (weights, tiling) = (weights(gpu, case)?, case.tiling());
        let name = format!("{} {} {} x {}", case.name, case.encoding, case.rows, case.cols);
        let label = format!("{} x {}, {} ahead", tiling.warps_k, tiling.tiles, tiling.depth);
        for n in [1, 2, 4, 8, 16, 32, 64] {
            let (seconds, bytes) = product(gpu, case, &weights, n)?;
            row(&name, n, &label, seconds, bytes);
        }
    }
    Ok(())
}

/// Seconds of one of `launches` launches in a graph: the median of seven replays.
fn graph_time(gpu: &Gpu, launches: usize, mut launch: impl FnMut(usize) -> Result<(), CudaError>) -> Result<f64, Box<dyn Error>> {
    let stream = gpu.device.stream();
    launch(0)?;
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    (0..launches).try_for_each(&mut launch)?;
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags)?.ok_or("nothing was captured")?;
    graph.launch()?;
    let mut times = Vec::new();
    for _ in 0..7 {
        let with_timing = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let start = stream.record_event(with_timing)?;
        graph.launch()?;
        let end = stream.record_event(with_timing)?;
        times.push(f64::from(start.elapsed_ms(&end)?) * 1e-3 / launches as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[3])
}

fn copy_bandwidth(gpu: &Gpu) -> Result<f64, Box<dyn Error>> {
    let (stream, bytes) = (gpu.device.stream(), 2usize << 30);
    let from = stream.alloc_zeros::<u8>(bytes)?;
    let mut to = stream.alloc_zeros::<u8>(bytes)?;
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let with_timing = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let start = stream.record_event(with_timing)?;
        stream.memcpy_dtod(&from, &mut to)?;
        let end = stream.record_event(with_timing)?;
        best = best.min(f64::from(start.elapsed_ms(&end)?) * 1e-3);
    }
    Ok(2.0 * bytes as f64 / best)
}

fn norm(gpu: &Gpu, n: usize) -> Result<f64, Box<dyn Error>> {
    let stream = gpu.device.stream();
    let kernel = NormQuantize::load(&gpu.device, &gpu.cache, HIDDEN)?;
    let (x, w) = (stream.clone_htod(&Random(1).vector(n * HIDDEN))?, stream.clone_htod(&Random(2).vector(HIDDEN))?);
    let (mut codes, mut meta) = (stream.alloc_zeros::<i8>(n * HIDDEN)?, stream.alloc_zeros::<f32>(n * HIDDEN / 16)?);
    graph_time(gpu, 100, |_| {
        let out = Normed { values: None, codes: &mut codes.as_view_mut(), meta: &mut meta.as_view_mut() };
        kernel.launch(&gpu.device, n, &x.as_view(), &w.as_view(), 1e-6, out)
    })
}

/// A layer after another, as a step does, so that states are not in the cache.
fn gdn(gpu: &Gpu, n: usize) -> Result<f64, Box<dyn Error>> {
    let (stream, layers) = (gpu.device.stream(), 30);
    let kernel = GdnDecode::load(&gpu.device, &gpu.cache, HEADS, HEADS.inputs())?;
    let vector = |seed, n| stream.clone_htod(&Random(seed).vector(n));
    let (x, taps, norm) = (vector(1, n * HEADS.inputs())?, vector(2, HEADS.channels() * 4)?, vector(3, HEADS.value_dim)?);
    let (decay, dt_bias) = (stream.clone_htod(&vec![-0.1f32; HEADS.values])?, vector(4, HEADS.values)?);
    let mut states: Vec<CudaSlice<f32>> = (0..layers).map(|_| stream.alloc_zeros(n * HEADS.state())).collect::<Result<_, _>>()?;
    let mut tails: Vec<CudaSlice<f32>> = (0..layers).map(|_| stream.alloc_zeros(n * HEADS.tail())).collect::<Result<_, _>>()?;
    let (slots, positions) = (stream.clone_htod(&(0..n as i32).collect::<Vec<_>>())?, stream.clone_htod(&vec![5; n])?);
    let width = HEADS.values * HEADS.value_dim;
    let (mut codes, mut meta) = (stream.alloc_zeros::<i8>(n * width)?, stream.alloc_zeros::<f32>(n * width / 16)?);
    graph_time(gpu, layers, |i| {
        let rows = StepRows { count: n, slots: &slots.as_view(), positions: &positions.as_view() };
        let layer = LayerWeights {
            taps: &taps.as_view(),
            decay: &decay.as_view(),
            dt_bias: &dt_bias.as_view(),
            norm: &norm.as_view(),
            eps: 1e-6,
        };
        let memory = Memory { state: &mut states[i].as_view_mut(), tail: &mut tails[i].as_view_mut() };
        // SAFETY: slots are 0..n; each layer of a graph has its own state.
        unsafe { kernel.launch(&gpu.device, rows, &x.as_view(), layer, memory, &mut codes.as_view_mut(), &mut meta.as_view_mut()) }
    })
}

/// Matrices one after another, enough of them that the cache does not hold them.
fn weights(gpu: &Gpu, case: &Case) -> Result<CudaSlice<u8>, Box<dyn Error>> {
    let stream = gpu.device.stream();
    let sample_rows = 256;
    let sample = stream.clone_htod(&Matrix::random(case.layout, sample_rows, case.cols, 9).packed())?;
    let bytes = case.shape().bytes();
    let copies = if case.used.is_some() { EXPERTS } else { ROTATED_BYTES.div_ceil(bytes) };
    let mut all = stream.alloc_zeros::<u8>(copies * bytes)?;
    let mut at = 0;
    while at < all.len() {
        let n = sample.len().min(all.len() - at);
        stream.memcpy_dtod(&sample.slice(..n), &mut all.slice_mut(at..at + n))?;
        at += n;
    }
    Ok(all)
}

fn product(gpu: &Gpu, case: &Case, weights: &CudaSlice<u8>, n: usize) -> Result<(f64, f64), Box<dyn Error>> {
    let (stream, shape) = (gpu.device.stream(), case.shape());
    let kernel = Product::load(&gpu.device, &gpu.cache, shape, case.used.unwrap_or(1))?;
    let pairs = n * case.used.unwrap_or(1);
    let x = QuantizedRows::of(&Random(5).vector(pairs * case.cols));
    let (codes, meta) = (stream.clone_htod(&x.codes)?, stream.clone_htod(x.meta.as_flattened())?);
    let mut out = stream.alloc_zeros::<f32>(pairs * case.rows)?;
    let copies = weights.len() / shape.bytes();
    if case.used.is_none() {
        let launches = (2 * copies).max(4);
        let seconds = graph_time(gpu, launches, |i| {
            let matrix = weights.slice(i % copies * shape.bytes()..(i % copies + 1) * shape.bytes());
            let x = Activations { codes: &codes.as_view(), meta: &meta.as_view() };
            let output = Output { values: &mut out.as_view_mut(), stride: case.rows, factor: 1.0, add: false };
            // SAFETY: nothing is listed.
            unsafe { kernel.launch(&gpu.device, &matrix, x, Columns::First(n), output) }
        })?;
        return Ok((seconds, shape.bytes() as f64));
    }
    let lists: Vec<(Vec<i32>, usize)> = (0..16).map(|i| slots(n, 8, i)).collect();
    let distinct = lists.iter().map(|l| l.1).sum::<usize>() as f64 / lists.len() as f64;
    let d_lists: Vec<CudaSlice<i32>> = lists.iter().map(|l| stream.clone_htod(&l.0)).collect::<Result<_, _>>()?;
    let rows = stream.clone_htod(&(0..pairs as i32).collect::<Vec<_>>())?;
    let seconds = graph_time(gpu, 64, |i| {
        let (slots, rows) = (d_lists[i % 16].as_view(), rows.as_view());
        let columns = Columns::Listed { slots: &slots, in_rows: &rows, out_rows: &rows, expected: n.div_ceil(16).max(1) };
        let x = Activations { codes: &codes.as_view(), meta: &meta.as_view() };
        let output = Output { values: &mut out.as_view_mut(), stride: case.rows, factor: 1.0, add: false };
        // SAFETY: the lists name experts below 256 and rows below the number of pairs.
        unsafe { kernel.launch(&gpu.device, &weights.as_view(), x, columns, output) }
    })?;
    Ok((seconds, distinct * shape.bytes() as f64))
}

/// Slots for `n` tokens that each use `used` experts at random, padded with empty ones to the most there can be; and how many are used.
fn slots(n: usize, used: usize, seed: u64) -> (Vec<i32>, usize) {
    let mut random = Random(seed);
    let mut count = vec![0; EXPERTS];
    for _ in 0..n {
        let mut chosen: Vec<usize> = Vec::new();
        while chosen.len() < used {
            let e = (random.bits() % EXPERTS as u64) as usize;
            if !chosen.contains(&e) {
                chosen.push(e);
                count[e] += 1;
            }
        }
    }
    let (mut slots, mut first) = (Vec::new(), 0);
    for (e, n) in count.iter().enumerate().filter(|(_, n)| **n > 0) {
        slots.extend([e as i32, first, *n, 0]);
        first += n;
    }
    let distinct = slots.len() / 4;
    slots.resize(4 * (n * used).min(EXPERTS), 0);
    (slots, distinct)
}
