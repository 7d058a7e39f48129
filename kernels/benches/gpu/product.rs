//! Times of products with few rows, for the released model's shapes: every tiling that might be best at one row, then
//! the best at more.

use crate::time::{copy_bandwidth, graph_time};
use crate::{Gpu, H200, Outcome};
use chimere_kernels::cuda::experts::{self, ExpertRows, ExpertShape, Experts, ExpertsKernels, Matrices, Routing};
use chimere_kernels::cuda::product::layout::Layout;
use chimere_kernels::cuda::product::sample::{Matrix, Random};
use chimere_kernels::cuda::product::{
    self, Activated, ActivatedRows, Activations, Epilogue, MatrixShape, NextRows, Norm, Output, Product, ProductTiling,
    Residual,
};
use chimere_kernels::cuda::quantized::{Planes, QuantizedRows};
use chimere_kernels::cuda::router::LayerWeights;
use chimere_kernels::cuda::stack::Stack;
use chimere_kernels::cuda::wide::Chip;
use chimere_kernels::cuda::{CudaError, Program};
use cudarc::driver::CudaSlice;
use std::collections::HashSet;
use std::error::Error;

const HIDDEN: usize = 2048;
/// Weights that are read in turn, so that none are still in the cache.
const ROTATED_BYTES: usize = 600 << 20;
const EXPERTS: usize = 256;
const USED: usize = 8;

struct Case {
    name: &'static str,
    layout: Layout,
    rows: usize,
    cols: usize,
    epilogue: Epilogue,
    /// Warps of a tile, tiles, blocks of a cluster, units ahead, registers: for one row.
    one: &'static [[usize; 5]],
    /// Warps of a tile, tiles, blocks of a cluster, units ahead and registers, for 2 to 8 rows.
    more: &'static [[usize; 5]],
}

const IN_PROJECTION: &[[usize; 5]] = &[
    [4, 1, 1, 2, 80],
    [4, 1, 1, 2, 64],
    [4, 1, 1, 4, 128],
    [4, 1, 1, 3, 96],
    [4, 2, 1, 2, 80],
    [2, 2, 1, 4, 128],
    [8, 1, 1, 2, 80],
];
const IN_PROJECTION_MORE: &[[usize; 5]] =
    &[[4, 1, 1, 2, 80], [4, 2, 1, 2, 80], [4, 2, 1, 2, 128], [4, 4, 1, 2, 80], [4, 4, 1, 2, 128]];
const OUT_PROJECTION: &[[usize; 5]] = &[
    [8, 2, 1, 4, 128],
    [8, 2, 2, 4, 128],
    [8, 2, 4, 4, 128],
    [8, 2, 1, 2, 80],
    [16, 2, 4, 2, 80],
    [4, 2, 1, 4, 128],
    [16, 2, 2, 2, 96],
];
const OUT_PROJECTION_MORE: &[[usize; 5]] = &[[8, 2, 1, 4, 128], [8, 2, 2, 4, 128], [8, 2, 1, 2, 80], [8, 2, 4, 2, 80]];
const GATED: &[[usize; 5]] = &[
    [2, 4, 1, 2, 80],
    [2, 4, 1, 2, 64],
    [2, 4, 1, 4, 128],
    [4, 4, 1, 2, 80],
    [4, 4, 1, 4, 128],
    [4, 4, 2, 2, 80],
    [1, 4, 1, 2, 80],
];
const GATED_MORE: &[[usize; 5]] = &[[2, 4, 1, 2, 80], [2, 4, 1, 4, 128], [4, 4, 1, 2, 80], [4, 4, 2, 2, 80]];
const HEAD: &[[usize; 5]] = &[
    [1, 4, 1, 2, 80],
    [1, 4, 1, 3, 96],
    [1, 4, 1, 4, 128],
    [2, 2, 1, 2, 80],
    [2, 2, 1, 2, 64],
    [4, 1, 1, 2, 80],
    [4, 1, 1, 4, 128],
    [4, 1, 1, 2, 64],
    [8, 1, 1, 2, 80],
];
const HEAD_MORE: &[[usize; 5]] = &[[4, 1, 1, 2, 80], [4, 2, 1, 2, 80], [4, 4, 1, 2, 80], [4, 4, 1, 2, 128]];

const CASES: [Case; 10] = [
    Case::new("in-projection Q8_0", Layout::Q8_0, 12416, 2048, Epilogue::Plain, IN_PROJECTION, IN_PROJECTION_MORE),
    Case::new("attention in Q8_0", Layout::Q8_0, 9216, 2048, Epilogue::Plain, IN_PROJECTION, IN_PROJECTION_MORE),
    Case::new("in-projection Q6_K", Layout::Q6_K, 12416, 2048, Epilogue::Plain, IN_PROJECTION, IN_PROJECTION_MORE),
    Case::new("out-projection Q8_0", Layout::Q8_0, 2048, 4096, Epilogue::Residual, OUT_PROJECTION, OUT_PROJECTION_MORE),
    Case::new("out-projection Q6_K", Layout::Q6_K, 2048, 4096, Epilogue::Residual, OUT_PROJECTION, OUT_PROJECTION_MORE),
    // Falcon-H1 7B's dense part.
    Case::new("gate and up Q8_0", Layout::Q8_0, 24_576, 3072, Epilogue::Gated, GATED, GATED_MORE),
    Case::new("down Q8_0", Layout::Q8_0, 3072, 12_288, Epilogue::Residual, OUT_PROJECTION, OUT_PROJECTION_MORE),
    Case::new("head Q6_K", Layout::Q6_K, 248_320, 2048, Epilogue::Plain, HEAD, HEAD_MORE),
    // Of directories of few bits: their heads are multiplied in f16.
    Case::new("head NVFP4", Layout::NVFP4, 248_320, 2048, Epilogue::Plain, &[], &[]),
    Case::new("head W16", Layout::W16, 248_320, 2048, Epilogue::Plain, &[], &[]),
];

/// Of the chip that products in f16 are for.
const MULTIPROCESSORS: usize = 132;

impl Case {
    const fn new(
        name: &'static str,
        layout: Layout,
        rows: usize,
        cols: usize,
        epilogue: Epilogue,
        one: &'static [[usize; 5]],
        more: &'static [[usize; 5]],
    ) -> Self {
        Self { name, layout, rows, cols, epilogue, one, more }
    }

    /// The program of a tiling for up to `columns` rows.
    fn program(&self, columns: usize, tiling: ProductTiling) -> Program {
        match self.epilogue {
            Epilogue::Plain => product::program(self.shape(), self.norm(), columns, tiling),
            Epilogue::Residual => Residual::program(self.shape(), columns, tiling),
            epilogue => Activated::program(self.shape(), epilogue, self.norm(), columns, tiling),
        }
    }

    /// Width of the norm of what a block reads of the residual stream.
    fn norm(&self) -> Option<usize> {
        (self.epilogue != Epilogue::Residual).then_some(self.cols)
    }

    fn shape(&self) -> MatrixShape {
        MatrixShape::new(self.layout, self.rows, self.cols).expect("legal")
    }
}

fn tiling([warps_k, tiles, cluster, depth, registers]: [usize; 5]) -> ProductTiling {
    ProductTiling { warps_k, tiles, cluster, depth, registers }
}

fn mixes() -> [(&'static str, Experts); 5] {
    let of = |routed, shared| {
        let kind = |layout| ExpertShape { width: 512, gate_up: layout, down: layout };
        Experts::new(HIDDEN, EXPERTS, USED, kind(routed), kind(shared)).expect("legal")
    };
    [
        ("Q4_K and Q8_0", of(Layout::Q4_K, Layout::Q8_0)),
        ("IQ3_S and Q5_K", of(Layout::IQ3_S, Layout::Q5_K)),
        ("Q8_0", of(Layout::Q8_0, Layout::Q8_0)),
        ("NVFP4", of(Layout::NVFP4, Layout::NVFP4)),
        ("FP8", of(Layout::FP8_BLOCKS, Layout::FP8_BLOCKS)),
    ]
}

/// Builds the programs that [`time`] loads.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    let mut programs = Vec::new();
    for case in &CASES {
        programs.extend(case.one.iter().map(|t| case.program(1, tiling(*t))));
        programs.extend(case.more.iter().map(|t| case.program(product::ROWS_MAX, tiling(*t))));
    }
    for case in CASES.iter().filter(|case| case.epilogue == Epilogue::Plain) {
        programs.extend(product::halves::programs(case.shape(), case.norm(), MULTIPROCESSORS));
    }
    Ok(programs)
}

/// Builds the programs that [`experts`] loads.
pub(crate) fn experts_programs() -> Result<Vec<Program>, CudaError> {
    Ok(mixes().into_iter().filter_map(|(_, e)| Some(experts::program(e, experts::tiling(e, H200)?))).collect())
}

/// Measures every case, or those whose name has the second argument in it, for one row and for more, in microseconds.
pub(crate) fn time(gpu: &Gpu) -> Outcome {
    let ceiling = copy_bandwidth(gpu)?;
    println!("copy: {:.0} GB/s, read and written\n", ceiling / 1e9);
    let wanted = std::env::args().skip(2).find(|a| !a.starts_with("--")).unwrap_or_default();
    for case in CASES.iter().filter(|case| case.name.contains(&wanted)) {
        let floor = case.shape().bytes() as f64 / ceiling;
        let weights = weights(gpu, case.shape(), ROTATED_BYTES.div_ceil(case.shape().bytes()))?;
        println!("{} {} x {}: floor {:.2} us", case.name, case.rows, case.cols, floor * 1e6);
        for t in case.one {
            println!("  {t:?}: {:.2}", 1e6 * time_of(gpu, case, tiling(*t), &weights, 1)?);
        }
        for t in case.more {
            let more: Vec<String> = [2, 4, 8]
                .into_iter()
                .map(|n| Ok(format!("{n}: {:.2}", 1e6 * time_of(gpu, case, tiling(*t), &weights, n)?)))
                .collect::<Result<_, Box<dyn Error>>>()?;
            println!("  {t:?} by rows  {}", more.join("  "));
        }
        if case.epilogue == Epilogue::Plain && gpu.device.arch().has_warpgroups() {
            in_halves(gpu, case, &weights)?;
        }
    }
    Ok(())
}

/// Measures a plain product in f16.
fn in_halves(gpu: &Gpu, case: &Case, weights: &CudaSlice<u8>) -> Outcome {
    let (shape, bytes, copies) = (case.shape(), case.shape().bytes(), weights.len() / case.shape().bytes());
    let kernel = Product::in_halves(&gpu.device, &gpu.cache, shape, case.norm())?;
    for n in [1, 2, 4, 8, 16] {
        let (y, mut out) = (ResidualRows::new(gpu, n, case.cols)?, gpu.device.stream().alloc_zeros(n * case.rows)?);
        let activations = Activations { codes: &y.codes.as_view(), meta: &y.meta.as_view(), lora: None };
        let squares = y.squares.as_view();
        let time = graph_time(gpu, (2 * copies).max(4), |i| {
            let matrix = weights.slice(i % copies * bytes..(i % copies + 1) * bytes);
            let output = Output { values: &mut out.as_view_mut(), stride: case.rows, factor: 1.0 };
            kernel.launch(&gpu.device, &matrix, activations, Some(Norm { squares: &squares, eps: 1e-6 }), n, output)
        })?;
        println!("  in f16, {n} rows: {:.2}", 1e6 * time);
    }
    Ok(())
}

/// Measures the experts' kernels.
pub(crate) fn experts(gpu: &Gpu) -> Outcome {
    let ceiling = copy_bandwidth(gpu)?;
    for (name, experts) in mixes() {
        let layer = Layer::new(gpu, experts)?;
        for n in [1, 2, 4, 8, 12, 16] {
            println!(
                "experts {name}, {n} rows: {:.2}, floor {:.2}",
                1e6 * layer.time(gpu, n)?,
                1e6 * layer.bytes(n) / ceiling
            );
        }
    }
    Ok(())
}

/// `copies` matrices, one after another.
fn weights(gpu: &Gpu, shape: MatrixShape, copies: usize) -> Result<CudaSlice<u8>, Box<dyn Error>> {
    let (stream, (_, cols)) = (gpu.device.stream(), shape.size());
    let sample = stream.clone_htod(&Matrix::random(shape.layout(), 256, cols, 9).packed())?;
    let mut all = stream.alloc_zeros::<u8>(copies * shape.bytes())?;
    let mut at = 0;
    while at < all.len() {
        let n = sample.len().min(all.len() - at);
        stream.memcpy_dtod(&sample.slice(..n), &mut all.slice_mut(at..at + n))?;
        at += n;
    }
    Ok(all)
}

/// Device buffers of `n` rows of the residual stream.
struct ResidualRows {
    x: CudaSlice<f32>,
    weight: CudaSlice<f32>,
    codes: CudaSlice<i8>,
    meta: CudaSlice<f32>,
    squares: CudaSlice<f32>,
}

impl ResidualRows {
    fn new(gpu: &Gpu, n: usize, values: usize) -> Result<Self, Box<dyn Error>> {
        let stream = gpu.device.stream();
        let form = QuantizedRows::of(&Random(5).vector(n * values), Planes::One);
        Ok(Self {
            x: stream.clone_htod(&Random(6).vector(n * values))?,
            // Small, so that what is added in many replays stays finite.
            weight: stream.clone_htod(&vec![1e-6; values])?,
            codes: stream.clone_htod(&form.codes)?,
            meta: stream.clone_htod(form.meta.as_flattened())?,
            squares: stream.clone_htod(&vec![1.0; n * values / 32])?,
        })
    }
}

fn time_of(
    gpu: &Gpu,
    case: &Case,
    tiling: ProductTiling,
    weights: &CudaSlice<u8>,
    n: usize,
) -> Result<f64, Box<dyn Error>> {
    let (stream, bytes) = (gpu.device.stream(), case.shape().bytes());
    let y = ResidualRows::new(gpu, n, case.cols)?;
    let columns = product::COLUMNS.into_iter().find(|c| n <= *c).expect("few rows");
    let copies = weights.len() / bytes;
    let matrix = |i: usize| weights.slice(i % copies * bytes..(i % copies + 1) * bytes);
    let activations = Activations { codes: &y.codes.as_view(), meta: &y.meta.as_view(), lora: None };
    let launches = (2 * copies).max(4);
    let (shape, device, cache) = (case.shape(), &gpu.device, &gpu.cache);
    let tilings = [(columns, tiling)];
    let squares = y.squares.as_view();
    let norm = || Some(Norm { squares: &squares, eps: 1e-6 });
    match case.epilogue {
        Epilogue::Residual => {
            let kernel = Residual::load_tiled(device, cache, shape, &tilings)?;
            let mut x = ResidualRows::new(gpu, n, case.rows)?;
            graph_time(gpu, launches, |i| {
                let next = NextRows {
                    weight: &x.weight.as_view(),
                    codes: &mut x.codes.as_view_mut(),
                    meta: &mut x.meta.as_view_mut(),
                    squares: &mut x.squares.as_view_mut(),
                };
                kernel.launch(device, &matrix(i), activations, 1.0, n, &mut x.x.as_view_mut(), next)
            })
        }
        Epilogue::Plain => {
            let kernel = Product::load_tiled(device, cache, shape, case.norm(), &tilings)?;
            let mut out = stream.alloc_zeros::<f32>(n * case.rows)?;
            graph_time(gpu, launches, |i| {
                let output = Output { values: &mut out.as_view_mut(), stride: case.rows, factor: 1.0 };
                kernel.launch(device, &matrix(i), activations, norm(), n, output)
            })
        }
        epilogue => {
            let kernel = Activated::load_tiled(device, cache, shape, epilogue, case.norm(), &tilings)?;
            let mut x = ResidualRows::new(gpu, n, case.rows)?;
            graph_time(gpu, launches, |i| {
                let (codes, meta) = (&mut x.codes.as_view_mut(), &mut x.meta.as_view_mut());
                let out = ActivatedRows { codes, meta, stride: case.rows, factor: 1.0 };
                kernel.launch(device, &matrix(i), activations, norm(), n, out)
            })
        }
    }
}

/// Copies of the shared expert, so that the cache does not hold it.
const SHARED_COPIES: usize = 64;

/// A layer's experts, the same weights for all.
struct Layer {
    experts: Experts,
    gate_up: (CudaSlice<u8>, CudaSlice<u8>),
    down: (CudaSlice<u8>, CudaSlice<u8>),
}

impl Layer {
    fn new(gpu: &Gpu, experts: Experts) -> Result<Self, Box<dyn Error>> {
        let of = |[routed, shared]: [MatrixShape; 2]| -> Result<_, Box<dyn Error>> {
            Ok((weights(gpu, routed, EXPERTS)?, weights(gpu, shared, SHARED_COPIES)?))
        };
        Ok(Self { experts, gate_up: of(experts.gate_up())?, down: of(experts.down())? })
    }

    /// Bytes that `n` rows read, on average.
    fn bytes(&self, n: usize) -> f64 {
        let distinct: usize = (0..64).map(|i| chosen(n, i).into_iter().collect::<HashSet<_>>().len()).sum();
        let [routed, shared] =
            [0, 1].map(|i| (self.experts.gate_up()[i].bytes() + self.experts.down()[i].bytes()) as f64);
        distinct as f64 / 64.0 * routed + shared
    }

    /// Seconds for `n` rows that each use experts at random.
    fn time(&self, gpu: &Gpu, n: usize) -> Result<f64, Box<dyn Error>> {
        let stream = gpu.device.stream();
        let tiling = experts::tiling(self.experts, Chip::of(&gpu.device)).expect("enough shared memory");
        let kernels = ExpertsKernels::load(&gpu.device, &gpu.cache, self.experts, tiling)?;
        let mut x = ResidualRows::new(gpu, n, HIDDEN)?;
        let y = ResidualRows::new(gpu, n, HIDDEN)?;
        let [h_cols, s_cols] = self.experts.down().map(|s| s.size().1);
        let mut h = (stream.alloc_zeros::<i8>(n * USED * h_cols)?, stream.alloc_zeros::<f32>(n * USED * h_cols / 16)?);
        let mut s = (stream.alloc_zeros::<i8>(n * s_cols)?, stream.alloc_zeros::<f32>(n * s_cols / 16)?);
        let routers: Vec<CudaSlice<f32>> =
            (0..ROUTERS).map(|i| stream.clone_htod(&router(i))).collect::<Result<_, _>>()?;
        let ones = stream.clone_htod(&vec![1f32; HIDDEN])?;
        let slots = stream.clone_htod(&(0..n as i32).collect::<Vec<_>>())?;
        let mut taken = stream.alloc_zeros::<i32>(n * USED)?;
        let sizes = [self.experts.gate_up()[1].bytes(), self.experts.down()[1].bytes()];
        graph_time(gpu, 64, |i| {
            let between = ExpertRows {
                codes: &mut h.0.as_view_mut(),
                meta: &mut h.1.as_view_mut(),
                shared_codes: &mut s.0.as_view_mut(),
                shared_meta: &mut s.1.as_view_mut(),
                lora: None,
            };
            let [shared_gate_up, shared_down] = [&self.gate_up.1, &self.down.1]
                .map(|w| (w, i % SHARED_COPIES))
                .into_iter()
                .zip(sizes)
                .map(|((w, i), size)| w.slice(i * size..(i + 1) * size))
                .collect::<Vec<_>>()
                .try_into()
                .expect("two");
            let gate_up = Matrices {
                routed: Stack::Packed(self.gate_up.0.as_view()),
                shared: &shared_gate_up,
                factors: [1.0; 2],
            };
            let down =
                Matrices { routed: Stack::Packed(self.down.0.as_view()), shared: &shared_down, factors: [1.0; 2] };
            let (router, gate) = (routers[i % ROUTERS].as_view(), routers[i % ROUTERS].slice(EXPERTS * HIDDEN..));
            let weights =
                LayerWeights { norm: &ones.as_view(), experts: &router, shared_gate: &gate, bias: None, eps: 1e-6 };
            let activations = Activations { codes: &y.codes.as_view(), meta: &y.meta.as_view(), lora: None };
            let norm = Norm { squares: &y.squares.as_view(), eps: 1e-6 };
            let next = NextRows {
                weight: &x.weight.as_view(),
                codes: &mut x.codes.as_view_mut(),
                meta: &mut x.meta.as_view_mut(),
                squares: &mut x.squares.as_view_mut(),
            };
            let (chosen, x) = (&mut taken.as_view_mut(), &mut x.x.as_view_mut());
            let soon = shared_gate_up.slice(0..0);
            let routing = Routing { weights, slots: &slots.as_view(), cuts: None, chosen, given: None };
            kernels.launch(&gpu.device, gate_up, down, routing, activations, norm, n, between, x, next, &soon)
        })
    }
}

/// Routers that launches take in turn: more than the cache holds.
const ROUTERS: usize = 32;

/// `[EXPERTS + 1, HIDDEN]` at random.
fn router(seed: usize) -> Vec<f32> {
    Random(seed as u64 + 1).vector((EXPERTS + 1) * HIDDEN)
}

/// `[n, USED]` experts at random, different ones within a row.
fn chosen(n: usize, seed: u64) -> Vec<i32> {
    let mut random = Random(seed);
    let mut all: Vec<i32> = Vec::new();
    for row in 0..n {
        while all.len() < (row + 1) * USED {
            let e = (random.bits() % EXPERTS as u64) as i32;
            if !all[row * USED..].contains(&e) {
                all.push(e);
            }
        }
    }
    all
}
