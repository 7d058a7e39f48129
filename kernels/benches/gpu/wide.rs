//! Times of products of many columns, each as it is chosen.

use crate::time::{copy_bandwidth, graph_time};
use crate::{Gpu, H200, Outcome};
use chimere_kernels::cuda::experts;
use chimere_kernels::cuda::product;
use chimere_kernels::cuda::product::layout::Layout;
use chimere_kernels::cuda::product::sample::{Matrix, Random};
use chimere_kernels::cuda::quantized::{Planes, QuantizedRows};
use chimere_kernels::cuda::wide::halves::{self, HalfRows, Halves};
use chimere_kernels::cuda::wide::{
    self, Chip, Columns, Epilogue, HalfPlace, Inputs, Many, Output, Source, WideArithmetic, WideShape, WideTiling,
    warpgroup,
};
use chimere_kernels::cuda::{CudaError, Program};
use cudarc::driver::CudaSlice;
use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::rc::Rc;

const EPS: f32 = 1e-6;

/// What [`time`] loads on an H200.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    let tilings = |case: &Case, n| [case.tiling(n, H200), case.tiling_in_order(n, H200)];
    let steps = CASES.iter().flat_map(|case| case.steps().flat_map(move |n| tilings(case, n).map(|t| (case, t))));
    let mut all = steps.map(|(case, tiling)| wide::program(case.shape(), tiling)).collect::<Result<Vec<_>, _>>()?;
    for case in &CASES {
        for tiling in case.steps().filter_map(|n| case.in_halves(n, H200)) {
            all.extend(WideArithmetic::F16(tiling).programs(case.shape())?);
        }
        for (shape, tiling) in case.in_turns().chain(case.steps().filter_map(|n| case.half_rows(n, H200))) {
            all.extend(WideArithmetic::F16(tiling).programs(shape)?);
        }
        all.push(halves::program(case.cols, None)?);
    }
    Ok(all)
}

/// As the table says it.
struct Told(WideShape, WideArithmetic);

impl Display for Told {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.1 {
            WideArithmetic::Int8(WideTiling {
                tiles,
                warps_rows,
                octets,
                warps_columns,
                groups,
                units,
                split,
                stages,
                order,
            }) => {
                let by =
                    format!("{tiles}x{warps_rows}, {octets}x{warps_columns}, {groups}, {units}, {split}, {stages}");
                let ordered = order.map_or_else(String::new, |order| format!(", {} in order", order.segments));
                write!(f, "{by}{ordered}")
            }
            WideArithmetic::F16(t) => {
                let made = if self.0.makes_half_rows() { ", makes f16" } else { "" };
                write!(f, "f16: {} x {} x {}, {}, {}{made}", t.groups, 64 * t.tiles, t.columns, t.stages, t.turns)
            }
        }
    }
}

struct Case {
    name: &'static str,
    layout: Layout,
    rows: usize,
    cols: usize,
    epilogue: Epilogue,
    norm: Option<usize>,
    /// Of experts: how many a token uses.
    used: Option<usize>,
    /// Whether few rows have it done among a layer's experts.
    of_experts: bool,
}

const EXPERTS: usize = 256;
/// Weights that are read in turn, so that none are still in the cache.
const ROTATED_BYTES: usize = 300 << 20;

/// What the released model multiplies.
const CASES: [Case; 14] = [
    dense("in-projection Q8_0", Layout::Q8_0, 12416, 2048, Epilogue::Plain, Some(2048)),
    dense("out-projection Q8_0", Layout::Q8_0, 2048, 4096, Epilogue::Residual, None),
    dense("expert gate+up Q4_K", Layout::Q4_K, 1024, 2048, Epilogue::Gated, Some(2048)).routed(),
    dense("expert down Q4_K", Layout::Q4_K, 2048, 512, Epilogue::Plain, None).routed(),
    dense("expert gate+up Q8_0", Layout::Q8_0, 1024, 2048, Epilogue::Gated, Some(2048)).routed(),
    dense("expert down Q8_0", Layout::Q8_0, 2048, 512, Epilogue::Plain, None).routed(),
    dense("expert gate+up NVFP4", Layout::NVFP4, 1024, 2048, Epilogue::Gated, Some(2048)).routed(),
    dense("expert down NVFP4", Layout::NVFP4, 2048, 512, Epilogue::Plain, None).routed(),
    dense("expert gate+up FP8", Layout::FP8_BLOCKS, 1024, 2048, Epilogue::Gated, Some(2048)).routed(),
    dense("expert down FP8", Layout::FP8_BLOCKS, 2048, 512, Epilogue::Plain, None).routed(),
    dense("shared gate+up Q8_0", Layout::Q8_0, 1024, 2048, Epilogue::Gated, Some(2048)).of_experts(),
    dense("shared down Q8_0", Layout::Q8_0, 2048, 512, Epilogue::Plain, None).of_experts(),
    dense("head Q6_K", Layout::Q6_K, 248_320, 2048, Epilogue::Plain, Some(2048)),
    dense("head W16", Layout::W16, 248_320, 2048, Epilogue::Plain, Some(2048)),
];
/// Rows of a step.
const STEPS: [usize; 11] = [16, 24, 32, 48, 64, 128, 256, 512, 1024, 2048, 8192];
/// More are not sampled in a step.
const SAMPLED_MAX: usize = 256;

const fn dense(
    name: &'static str,
    layout: Layout,
    rows: usize,
    cols: usize,
    epilogue: Epilogue,
    norm: Option<usize>,
) -> Case {
    Case { name, layout, rows, cols, epilogue, norm, used: None, of_experts: false }
}

impl Case {
    const fn of_experts(self) -> Self {
        Self { of_experts: true, ..self }
    }

    const fn routed(self) -> Self {
        Self { used: Some(8), ..self.of_experts() }
    }

    /// Whether it is the first product of an expert: of listed columns it reads tokens and not pairs.
    fn activates(&self) -> bool {
        !matches!(self.epilogue, Epilogue::Plain | Epilogue::Residual)
    }

    fn shape(&self) -> WideShape {
        let matrix = product::MatrixShape::new(self.layout, self.rows, self.cols).expect("legal");
        WideShape::new(matrix, self.epilogue, self.norm, self.used.is_none()).expect("legal")
    }

    fn steps(&self) -> impl Iterator<Item = usize> {
        let most = if self.rows > 100_000 { SAMPLED_MAX } else { usize::MAX };
        STEPS.into_iter().filter(move |n| *n <= most)
    }

    fn tiling(&self, n: usize, chip: Chip) -> WideTiling {
        wide::tiling(self.shape(), self.columns(n), chip)
    }

    /// Columns that one matrix gets of `n` rows: all, or an expert's share.
    fn columns(&self, n: usize) -> usize {
        self.used.map_or(n, |used| (n * used).div_ceil(EXPERTS))
    }

    /// How it is cut up in f16, where that is done.
    fn in_halves(&self, n: usize, chip: Chip) -> Option<warpgroup::WarpgroupTiling> {
        warpgroup::tiling(self.shape(), self.columns(n), chip)
    }

    /// Shape and tiling in f16 where activated rows become f16 at once.
    fn half_rows(&self, n: usize, chip: Chip) -> Option<(WideShape, warpgroup::WarpgroupTiling)> {
        let shape = self.shape().with_half_rows(true);
        let made = self.used.is_some() && shape.may_make_half_rows();
        warpgroup::tiling(shape, self.columns(n), chip).filter(|_| made).map(|t| (shape, t))
    }

    /// And in turns of 1 to 8 blocks of rows.
    fn in_turns(&self) -> impl Iterator<Item = (WideShape, warpgroup::WarpgroupTiling)> {
        let shape = self.shape().with_half_rows(self.shape().may_make_half_rows());
        let of = move |(turns, stages)| {
            (shape, warpgroup::WarpgroupTiling { groups: 4, tiles: 1, columns: 128, stages, turns, segments: 1 })
        };
        [(1, 4), (2, 4), (4, 4), (4, 5), (8, 5)]
            .map(of)
            .into_iter()
            .filter(|(shape, t)| self.used.is_some() && t.check(*shape).is_ok())
    }

    /// In the order of the kernels for few rows.
    fn tiling_in_order(&self, n: usize, chip: Chip) -> WideTiling {
        let order = experts::order_of_few(self.shape(), self.of_experts, chip.multiprocessors);
        wide::tiling_in(order, self.shape(), self.columns(n), chip)
    }
}

/// Measures what is chosen for every case.
pub(crate) fn time(gpu: &Gpu) -> Outcome {
    println!("copy: {:.0} GB/s", copy_bandwidth(gpu)? / 1e9);
    println!(
        "| product | rows | tiles x warps, octets x warps, groups, units, split, stages | us | GB/s of weights | TOPS |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut wanted = std::env::args().skip(2).filter(|a| !a.starts_with("--"));
    let (product, rows) = (wanted.next().unwrap_or_default(), wanted.next());
    for case in CASES.iter().filter(|case| case.name.contains(&product)) {
        let weights = weights(gpu, case)?;
        for n in case.steps().filter(|n| rows.as_ref().is_none_or(|rows| *rows == n.to_string())) {
            let chip = Chip::of(&gpu.device);
            // Prompts have no order that other rows have too.
            let in_order = (n <= SAMPLED_MAX).then(|| case.tiling_in_order(n, chip));
            let halves = case.in_halves(n, chip);
            let int8 = [case.tiling(n, chip)].into_iter().chain(in_order).map(WideArithmetic::Int8);
            let plain = int8.chain(halves.map(WideArithmetic::F16)).map(|form| (case.shape(), form));
            let made = case.half_rows(n, chip).into_iter().chain(case.in_turns().filter(|_| n >= 1024));
            for chosen in plain.chain(made.map(|(shape, t)| (shape, WideArithmetic::F16(t)))) {
                time_one(gpu, case, &weights, n, chosen)?;
            }
        }
    }
    if Chip::of(&gpu.device).warpgroups { time_halves(gpu) } else { Ok(()) }
}

/// Rows of int8 to rows of f16.
fn time_halves(gpu: &Gpu) -> Outcome {
    println!("| rows | values | us as f16 |\n| --- | --- | --- |");
    for (rows, cols) in [(64, 2048), (256, 2048), (2048, 2048), (2048, 4096), (16384, 512)] {
        let x = QuantizedRows::of(&Random(5).vector(rows * cols), Planes::One);
        let stream = gpu.device.stream();
        let (codes, meta) = (stream.clone_htod(&x.codes)?, stream.clone_htod(x.meta.as_flattened())?);
        let (kernel, out) =
            (Halves::load(&gpu.device, &gpu.cache, cols, None)?, HalfRows::new(&gpu.device, rows, rows * cols)?);
        let (codes, meta) = (codes.as_view(), meta.as_view());
        let x = Inputs { codes: &codes, meta: &meta, squares: None, eps: 0.0, factor: 1.0, lora: None };
        let seconds = graph_time(gpu, 16, |_| kernel.launch(&gpu.device, rows, x, &out))?;
        println!("| {rows} | {cols} | {:.2} |", seconds * 1e6);
    }
    Ok(())
}

fn time_one(gpu: &Gpu, case: &Case, weights: &CudaSlice<u8>, n: usize, chosen: (WideShape, WideArithmetic)) -> Outcome {
    let (seconds, bytes) = product_time(gpu, case, weights, n, chosen)?;
    let operations = 2.0 * (case.rows * case.cols * n * case.used.unwrap_or(1)) as f64;
    println!(
        "| {} | {n} | {} | {:.2} | {:.0} | {:.0} |",
        case.name,
        Told(chosen.0, chosen.1),
        seconds * 1e6,
        bytes / seconds / 1e9,
        operations / seconds / 1e12
    );
    Ok(())
}

fn weights(gpu: &Gpu, case: &Case) -> Result<CudaSlice<u8>, Box<dyn Error>> {
    let stream = gpu.device.stream();
    let sample = stream.clone_htod(&Matrix::random(case.layout, 256, case.cols, 9).packed())?;
    let bytes = case.shape().matrix().bytes();
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

fn product_time(
    gpu: &Gpu,
    case: &Case,
    weights: &CudaSlice<u8>,
    n: usize,
    (shape, form): (WideShape, WideArithmetic),
) -> Result<(f64, f64), Box<dyn Error>> {
    let stream = gpu.device.stream();
    let pairs = n * case.used.unwrap_or(1);
    let in_count = if case.activates() { n } else { pairs };
    let x = QuantizedRows::of(&Random(5).vector(in_count * case.cols), Planes::One);
    let (codes, meta) = (stream.clone_htod(&x.codes)?, stream.clone_htod(x.meta.as_flattened())?);
    let squares = stream.clone_htod(&vec![1.0f32; in_count * case.cols / 32])?;
    let next = stream.clone_htod(&vec![1.0f32; case.rows])?;
    let mut values = stream.alloc_zeros::<f32>(pairs * case.rows)?;
    let mut out_codes = stream.alloc_zeros::<i8>(pairs * case.rows)?;
    let mut out_meta = stream.alloc_zeros::<f32>(pairs * case.rows / 16)?;
    let made = HalfRows::of_hidden(&gpu.device, pairs, pairs * case.rows)?;
    let mut out_squares = stream.alloc_zeros::<f32>(pairs * case.rows / 32)?;
    let bytes = shape.matrix().bytes();
    let copies = weights.len() / bytes;
    let lists: Vec<(Vec<i32>, Vec<i32>, usize)> = (0..8).map(|i| lists(n, case.used.unwrap_or(0), i)).collect();
    let distinct = lists.iter().map(|l| l.2).sum::<usize>() as f64 / lists.len() as f64;
    let mut slots = Vec::new();
    let mut rows = Vec::new();
    for (s, r, _) in &lists {
        slots.push(stream.clone_htod(s)?);
        rows.push(stream.clone_htod(r)?);
    }
    let out_rows = stream.clone_htod(&(0..pairs as i32).collect::<Vec<_>>())?;
    let launches = if case.used.is_some() { 32.min(32768 / n) } else { copies.clamp(4, 32.max(4096 / n)) };
    let (codes, meta, squares) = (codes.as_view(), meta.as_view(), squares.as_view());
    let x = Inputs { codes: &codes, meta: &meta, squares: Some(&squares), eps: EPS, factor: 1.0, lora: None };
    // Made of the rows once, and not timed.
    let place = Rc::new(HalfPlace::new(HalfRows::new(&gpu.device, in_count, in_count * case.cols)?));
    let (kernel, x) = (Many::load(&gpu.device, &gpu.cache, shape, form, &place)?, Source::new(x));
    let seconds = graph_time(gpu, launches, |i| {
        let (mut v, mut c, mut m, mut s) =
            (values.as_view_mut(), out_codes.as_view_mut(), out_meta.as_view_mut(), out_squares.as_view_mut());
        let next = next.as_view();
        let out = match case.epilogue {
            // As of experts.
            Epilogue::Plain if case.used.is_some() && matches!(form, WideArithmetic::F16(_)) => {
                Output::Halves { values: &mut v, stride: case.rows }
            }
            Epilogue::Plain => Output::Plain { values: &mut v, stride: case.rows },
            Epilogue::Residual => Output::Residual {
                x: &mut v,
                weight: &next,
                codes: &mut c,
                meta: &mut m,
                squares: &mut s,
                stride: case.rows,
            },
            _ if shape.makes_half_rows() => Output::HalfRows { rows: &made, count: pairs },
            Epilogue::Gated => Output::Activated { codes: &mut c, meta: &mut m, stride: case.rows / 2 },
            Epilogue::Squared | Epilogue::Rounded => {
                Output::Activated { codes: &mut c, meta: &mut m, stride: case.rows }
            }
        };
        if case.used.is_none() {
            let matrix = weights.slice(i % copies * bytes..(i % copies + 1) * bytes);
            // SAFETY: nothing is listed.
            return unsafe { kernel.launch(&gpu.device, &matrix, (&x, 1.0), Columns::First(n), out) };
        }
        let (slots, rows, pairs) = (slots[i % 8].as_view(), rows[i % 8].as_view(), out_rows.as_view());
        let in_rows = if case.activates() { &rows } else { &pairs };
        let columns =
            Columns::Listed { rows: in_count, slots: &slots, in_rows, out_rows: &pairs, pitch: 0, early: false };
        // SAFETY: the lists name experts below 256 and rows below the number of tokens or pairs.
        unsafe { kernel.launch(&gpu.device, &weights.as_view(), (&x, 1.0), columns, out) }
    })?;
    Ok((seconds, if case.used.is_some() { distinct * bytes as f64 } else { bytes as f64 }))
}

/// Slots for `n` tokens that each use `used` experts at random, padded with empty ones to the most there can be, the
/// token of each column, and how many experts are used.
fn lists(n: usize, used: usize, seed: u64) -> (Vec<i32>, Vec<i32>, usize) {
    let mut random = Random(seed);
    let mut tokens: Vec<Vec<i32>> = vec![Vec::new(); EXPERTS];
    for token in 0..n {
        let mut chosen: Vec<usize> = Vec::new();
        while chosen.len() < used {
            let e = (random.bits() % EXPERTS as u64) as usize;
            if !chosen.contains(&e) {
                chosen.push(e);
                tokens[e].push(token as i32);
            }
        }
    }
    let (mut slots, mut rows) = (Vec::new(), Vec::new());
    for (e, of) in tokens.iter().enumerate().filter(|(_, of)| !of.is_empty()) {
        slots.extend([e as i32, rows.len() as i32, of.len() as i32, 0]);
        rows.extend(of);
    }
    let distinct = slots.len() / 4;
    slots.resize(4 * (n * used).min(EXPERTS), 0);
    (slots, rows, distinct)
}
