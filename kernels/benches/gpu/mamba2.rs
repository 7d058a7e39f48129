//! Times of Mamba-2 layers of two releases, a layer after another, as a step does, so that states are not in the cache.

use crate::time::{copy_bandwidth, graph_time};
use crate::{Gpu, Outcome};
use chimere_kernels::cuda::gdn_prefill::{MixedRows, Pieces};
use chimere_kernels::cuda::mamba2::{self, Counters, LayerWeights, Mamba2, Mamba2Rows, Mamba2Shape, Mamba2State, TAPS};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::rows::padded;
use chimere_kernels::cuda::{CudaError, Program};
use cudarc::driver::CudaSlice;
use std::error::Error;

/// Those of `mamba2-2.7b` and of `granite-4-h-tiny`.
const SHAPES: [(&str, Mamba2Shape); 2] = [("mamba2-2.7b", of_heads(80)), ("granite-4-h-tiny", of_heads(48))];
/// Sequences and rows of each.
const PROMPTS: [(usize, usize); 5] = [(1, 64), (1, 512), (1, 2048), (8, 256), (32, 64)];

const fn of_heads(heads: usize) -> Mamba2Shape {
    Mamba2Shape { heads, head_dim: 64, state_dim: 128, groups: 1, normed: true, planes: Planes::One }
}

/// Builds the programs that [`time`] loads.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    SHAPES.into_iter().map(|(_, shape)| mamba2::program(shape)).collect()
}

/// Measures decode and prefill of each shape.
pub(crate) fn time(gpu: &Gpu) -> Outcome {
    let ceiling = copy_bandwidth(gpu)?;
    println!("copy: {:.0} GB/s", ceiling / 1e9);
    SHAPES.into_iter().try_for_each(|(name, shape)| time_shape(gpu, name, shape, ceiling))
}

fn time_shape(gpu: &Gpu, name: &str, shape: Mamba2Shape, ceiling: f64) -> Outcome {
    println!("\n{name}\n\n| sequences | us | GB/s | % of copy |\n| --- | --- | --- | --- |");
    for n in [1, 2, 4, 8, 16, 64, 256] {
        let (seconds, bytes) = (decode(gpu, shape, n)?, (n * shape.state() * 8) as f64);
        let rate = bytes / seconds;
        println!("| {n} | {:.2} | {:.0} | {:.0} |", seconds * 1e6, rate / 1e9, 100.0 * rate / ceiling);
    }
    println!("\n| sequences x rows | us a layer | ns a row |\n| --- | --- | --- |");
    for (n, rows) in PROMPTS {
        let seconds = prefill(gpu, shape, n, rows)?;
        println!("| {n} x {rows} | {:.1} | {:.1} |", seconds * 1e6, seconds * 1e9 / (n * rows) as f64);
    }
    Ok(())
}

/// Weights, inputs, memory and outputs of layers.
struct Layers {
    weights: [CudaSlice<f32>; 6],
    x: CudaSlice<f32>,
    states: Vec<CudaSlice<f32>>,
    tails: Vec<CudaSlice<f32>>,
    scratch: CudaSlice<f32>,
    codes: CudaSlice<i8>,
    meta: CudaSlice<f32>,
}

impl Layers {
    fn new(
        gpu: &Gpu,
        shape: Mamba2Shape,
        (layers, sequences, rows): (usize, usize, usize),
    ) -> Result<Self, Box<dyn Error>> {
        let stream = gpu.device.stream();
        let vector = |seed, n| stream.clone_htod(&Random(seed).vector(n));
        let zeros = |n: usize| (0..layers).map(|_| stream.alloc_zeros(sequences * n)).collect::<Result<_, _>>();
        let (taps, bias) = (vector(2, shape.channels() * TAPS)?, vector(3, shape.channels())?);
        let a_neg = stream.clone_htod(&vec![-0.5f32; shape.heads])?;
        let (d, dt_bias, norm) = (vector(4, shape.heads)?, vector(5, shape.heads)?, vector(6, shape.values())?);
        Ok(Self {
            weights: [taps, bias, a_neg, d, dt_bias, norm],
            x: vector(1, rows * shape.inputs())?,
            states: zeros(shape.state())?,
            tails: zeros(shape.tail())?,
            scratch: stream.alloc_zeros(mamba2::scratch(shape, rows, sequences))?,
            codes: stream.alloc_zeros(rows * padded(shape.values()))?,
            meta: stream.alloc_zeros(rows * padded(shape.values()) / 16)?,
        })
    }
}

fn decode(gpu: &Gpu, shape: Mamba2Shape, n: usize) -> Result<f64, Box<dyn Error>> {
    let (stream, layers) = (gpu.device.stream(), 30);
    let kernel = Mamba2::load(&gpu.device, &gpu.cache, shape)?;
    let mut l = Layers::new(gpu, shape, (layers, n, n))?;
    let slots = stream.clone_htod(&(0..n as i32).collect::<Vec<_>>())?;
    let positions = stream.clone_htod(&(0..n as i32).map(|row| 64 + row).collect::<Vec<_>>())?;
    let mut counters = Counters::new(&gpu.device, shape, n)?;
    graph_time(gpu, layers, |i| {
        let rows = Mamba2Rows { count: n, slots: &slots.as_view(), positions: &positions.as_view() };
        let [taps, conv_bias, a_neg, d, dt_bias, norm] = l.weights.each_ref().map(CudaSlice::as_view);
        let (taps, conv_bias, a_neg, d, dt_bias, norm) = (&taps, &conv_bias, &a_neg, &d, &dt_bias, &norm);
        let layer = LayerWeights { taps, conv_bias, a_neg, d, dt_bias, norm, eps: 1e-5 };
        let memory = Mamba2State { state: &mut l.states[i].as_view_mut(), tail: &mut l.tails[i].as_view_mut() };
        let out = MixedRows { codes: &mut l.codes.as_view_mut(), meta: &mut l.meta.as_view_mut() };
        let (x, scratch) = (&l.x.as_view(), &mut l.scratch.as_view_mut());
        // SAFETY: slots are 0..n; each layer of a graph has its own memory.
        unsafe { kernel.decode(&gpu.device, rows, x, layer, memory, &mut counters, scratch, out) }
    })
}

fn prefill(gpu: &Gpu, shape: Mamba2Shape, sequences: usize, rows: usize) -> Result<f64, Box<dyn Error>> {
    let (stream, layers) = (gpu.device.stream(), 6);
    let kernel = Mamba2::load(&gpu.device, &gpu.cache, shape)?;
    let mut l = Layers::new(gpu, shape, (layers, sequences, sequences * rows))?;
    let list: Vec<i32> = (0..sequences as i32).flat_map(|p| [p, 64, p * rows as i32, rows as i32]).collect();
    let list = stream.clone_htod(&list)?;
    graph_time(gpu, layers, |i| {
        let pieces = Pieces { list: &list.as_view(), count: sequences, rows: sequences * rows, exports: None };
        let [taps, conv_bias, a_neg, d, dt_bias, norm] = l.weights.each_ref().map(CudaSlice::as_view);
        let (taps, conv_bias, a_neg, d, dt_bias, norm) = (&taps, &conv_bias, &a_neg, &d, &dt_bias, &norm);
        let layer = LayerWeights { taps, conv_bias, a_neg, d, dt_bias, norm, eps: 1e-5 };
        let memory = Mamba2State { state: &mut l.states[i].as_view_mut(), tail: &mut l.tails[i].as_view_mut() };
        let out = MixedRows { codes: &mut l.codes.as_view_mut(), meta: &mut l.meta.as_view_mut() };
        let (x, scratch) = (&l.x.as_view(), &mut l.scratch.as_view_mut());
        // SAFETY: pieces follow each other, slots are 0..sequences.
        unsafe { kernel.prefill(&gpu.device, pieces, x, layer, memory, scratch, out) }
    })
}
