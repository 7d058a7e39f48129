//! Times of the released model's GDN layers, a layer after another, as a step does, so that states are not in the
//! cache.

use crate::time::{copy_bandwidth, graph_time};
use crate::{Gpu, Outcome};
use chimere_kernels::cuda::gdn_decode::{
    self, GdnDecode, GdnRows, GdnState, Heads, LayerWeights, Updates, pending_word, store_every, stores,
};
use chimere_kernels::cuda::gdn_prefill::{self, GdnPrefill, MixedRows, Pieces};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::{CudaError, Program};
use cudarc::driver::CudaSlice;
use std::error::Error;

const HEADS: Heads = Heads { key_dim: 128, value_dim: 128, keys: 16, values: 32, grouped: false };
/// Sequences and rows of each, of which all but the first are drafted.
const DRAFTED: [(usize, usize); 6] = [(1, 1), (1, 2), (1, 4), (4, 4), (16, 4), (64, 4)];
/// Drafted rows of one at most.
const DRAFTS: usize = 3;
/// Sequences and rows of each.
const PROMPTS: [(usize, usize); 7] = [(1, 64), (1, 512), (1, 2048), (1, 8192), (4, 2048), (8, 256), (32, 64)];

/// Builds the programs that [`time`] loads.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    Ok(vec![
        gdn_decode::program(HEADS, HEADS.inputs(), Planes::One, 0)?,
        gdn_decode::program(HEADS, HEADS.inputs(), Planes::One, DRAFTS)?,
        gdn_prefill::program(HEADS, HEADS.inputs(), Planes::One)?,
    ])
}

/// Measures decode and prefill in microseconds, with their share of the copy's bandwidth.
pub(crate) fn time(gpu: &Gpu) -> Outcome {
    let ceiling = copy_bandwidth(gpu)?;
    println!("copy: {:.0} GB/s\n\n| sequences | us | GB/s | % of copy |\n| --- | --- | --- | --- |", ceiling / 1e9);
    for n in [1, 2, 4, 8, 16, 24, 32, 64, 128, 256] {
        let (seconds, bytes) = (decode(gpu, (n, 1), 0)?, (n * HEADS.state() * 8) as f64);
        let rate = bytes / seconds;
        println!("| {n} | {:.2} | {:.0} | {:.0} |", seconds * 1e6, rate / 1e9, 100.0 * rate / ceiling);
    }
    println!(
        "\n| sequences, all at one position | lacks 0 | 3 | 6 | 7, and written |\n| --- | --- | --- | --- | --- |"
    );
    for n in [24, 64, 128, 256] {
        let times = [0, 3, 6, 7].map(|lacks| Ok(format!("{:.2}", at_once(gpu, n, lacks)? * 1e6))).into_iter();
        println!("| {n} | {} |", times.collect::<Result<Vec<_>, Box<dyn Error>>>()?.join(" | "));
    }
    println!("\n| sequences x rows with drafts | us |\n| --- | --- |");
    for (n, rows) in DRAFTED {
        println!("| {n} x {rows} | {:.2} |", decode(gpu, (n, rows), DRAFTS)? * 1e6);
    }
    println!("\n| sequences x rows | us a layer | ns a row |\n| --- | --- | --- |");
    for (n, rows) in PROMPTS {
        let seconds = prefill(gpu, n, rows)?;
        println!("| {n} x {rows} | {:.1} | {:.1} |", seconds * 1e6, seconds * 1e9 / (n * rows) as f64);
    }
    Ok(())
}

/// Weights, inputs, memory and outputs of layers.
struct Layers {
    weights: [CudaSlice<f32>; 4],
    x: CudaSlice<f32>,
    states: Vec<CudaSlice<f32>>,
    tails: Vec<CudaSlice<f32>>,
    updates: Vec<CudaSlice<f32>>,
    codes: CudaSlice<i8>,
    meta: CudaSlice<f32>,
}

impl Layers {
    fn new(gpu: &Gpu, layers: usize, sequences: usize, rows: usize, drafts: usize) -> Result<Self, Box<dyn Error>> {
        let stream = gpu.device.stream();
        let vector = |seed, n| stream.clone_htod(&Random(seed).vector(n));
        let width = HEADS.values * HEADS.value_dim;
        let decay = stream.clone_htod(&vec![-0.1f32; HEADS.values])?;
        let zeros = |n: usize| (0..layers).map(|_| stream.alloc_zeros(sequences * n)).collect::<Result<_, _>>();
        Ok(Self {
            weights: [vector(2, HEADS.channels() * 4)?, decay, vector(4, HEADS.values)?, vector(3, HEADS.value_dim)?],
            x: vector(1, rows * HEADS.inputs())?,
            states: zeros(HEADS.state())?,
            tails: zeros(HEADS.tail())?,
            updates: zeros(HEADS.updates(drafts))?,
            codes: stream.alloc_zeros(rows * width)?,
            meta: stream.alloc_zeros(rows * width / 16)?,
        })
    }
}

/// A row of each of `n` sequences that lack the same number of positions, as in a step of `bench step`.
fn at_once(gpu: &Gpu, n: usize, lacks: i32) -> Result<f64, Box<dyn Error>> {
    decode_at(gpu, (n, 1), 0, |_| 64 + lacks)
}

/// Measures `each` rows of each of `sequences` sequences, by a kernel that has room for `drafts` drafts. Sequences are
/// at different positions, as where they began at any time.
fn decode(gpu: &Gpu, (sequences, each): (usize, usize), drafts: usize) -> Result<f64, Box<dyn Error>> {
    decode_at(gpu, (sequences, each), drafts, |slot| 64 + slot)
}

/// Measures `each` rows of each sequence, the first row of slot `s` at `position(s)`.
fn decode_at(
    gpu: &Gpu,
    (sequences, each): (usize, usize),
    drafts: usize,
    position: impl Fn(i32) -> i32,
) -> Result<f64, Box<dyn Error>> {
    let (stream, layers, n) = (gpu.device.stream(), 30, sequences * each);
    let kernel = GdnDecode::load(&gpu.device, &gpu.cache, HEADS, HEADS.inputs(), Planes::One, drafts)?;
    let mut l = Layers::new(gpu, layers, sequences, n, drafts)?;
    let rows = (0..sequences as i32).flat_map(|slot| (0..each as i32).map(move |row| (slot, row)));
    let slots = stream.clone_htod(&rows.clone().map(|(slot, _)| slot).collect::<Vec<_>>())?;
    let positions = stream.clone_htod(&rows.clone().map(|(slot, row)| position(slot) + row).collect::<Vec<_>>())?;
    // Behind drafts that count a state lacks as many positions as it may; else those since the last that wrote it.
    let every = store_every(sequences);
    let word = |slot: i32| {
        let pending = if drafts > 0 { DRAFTS as u32 } else { position(slot) as u32 % every as u32 };
        pending_word(pending, stores(position(slot) as u32, pending, every))
    };
    let pending = stream.clone_htod(&rows.clone().map(|(slot, _)| word(slot)).collect::<Vec<_>>())?;
    let drafted = stream.clone_htod(&vec![drafts as i32; n])?;
    graph_time(gpu, layers, |i| {
        let rows = GdnRows {
            count: n,
            slots: &slots.as_view(),
            positions: &positions.as_view(),
            pending: &pending.as_view(),
            drafted: &drafted.as_view(),
        };
        let [taps, decay, dt_bias, norm] = &l.weights;
        let layer = LayerWeights {
            taps: &taps.as_view(),
            decay: &decay.as_view(),
            dt_bias: &dt_bias.as_view(),
            norm: &norm.as_view(),
            eps: 1e-6,
        };
        let memory = GdnState { state: &mut l.states[i].as_view_mut(), tail: &mut l.tails[i].as_view_mut() };
        let updates = Updates(&mut l.updates[i].as_view_mut());
        let (codes, meta) = (&mut l.codes.as_view_mut(), &mut l.meta.as_view_mut());
        // SAFETY: slots are 0..n; each layer of a graph has its own memory.
        unsafe { kernel.launch(&gpu.device, rows, &l.x.as_view(), layer, memory, updates, codes, meta) }
    })
}

fn prefill(gpu: &Gpu, sequences: usize, rows: usize) -> Result<f64, Box<dyn Error>> {
    let (stream, layers) = (gpu.device.stream(), 6);
    let kernel = GdnPrefill::load(&gpu.device, &gpu.cache, HEADS, HEADS.inputs(), Planes::One)?;
    let mut l = Layers::new(gpu, layers, sequences, sequences * rows, 0)?;
    let list: Vec<i32> = (0..sequences as i32).flat_map(|p| [p, 64, p * rows as i32, rows as i32]).collect();
    let list = stream.clone_htod(&list)?;
    let mut scratch = stream.alloc_zeros::<f32>(gdn_prefill::scratch(HEADS, sequences * rows, sequences))?;
    graph_time(gpu, layers, |i| {
        let pieces = Pieces { list: &list.as_view(), count: sequences, rows: sequences * rows, exports: None };
        let [taps, decay, dt_bias, norm] = &l.weights;
        let layer = LayerWeights {
            taps: &taps.as_view(),
            decay: &decay.as_view(),
            dt_bias: &dt_bias.as_view(),
            norm: &norm.as_view(),
            eps: 1e-6,
        };
        let memory = GdnState { state: &mut l.states[i].as_view_mut(), tail: &mut l.tails[i].as_view_mut() };
        let out = (MixedRows { codes: &mut l.codes.as_view_mut(), meta: &mut l.meta.as_view_mut() }, None);
        // SAFETY: pieces follow each other, slots are 0..sequences.
        unsafe { kernel.launch(&gpu.device, pieces, &l.x.as_view(), layer, memory, &mut scratch.as_view_mut(), out) }
    })
}
