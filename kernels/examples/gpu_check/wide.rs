//! Products of many columns: against the definition, alone and among others, then the time of what is chosen.

use crate::check::pairs;
use crate::time::{copy_bandwidth, graph_time};
use crate::{Gpu, H200, Outcome};
use chimere_kernels::cuda::product::layout::Layout;
use chimere_kernels::cuda::product::sample::{LAYOUTS, Matrix, Random};
use chimere_kernels::cuda::product::{self};
use chimere_kernels::cuda::quantized::{Planes, QuantizedRows};
use chimere_kernels::cuda::wide::{self, Chip, Columns, Epilogue, Inputs, Output, Shape, Tiling, Wide, program};
use chimere_kernels::cuda::{CudaError, Program};
use cudarc::driver::CudaSlice;
use std::error::Error;

/// Fields in their order.
const fn t([tiles, warps_rows, octets, warps_columns, groups, units, split, stages]: [usize; 8]) -> Tiling {
    Tiling { tiles, warps_rows, octets, warps_columns, groups, units, split, stages }
}

/// Every way to share work at least once: among groups, blocks of a cluster, warps along rows and columns.
const CHECKED: [Tiling; 3] = [t([1, 4, 1, 1, 1, 2, 1, 3]), t([2, 2, 4, 2, 2, 1, 1, 3]), t([2, 4, 2, 1, 1, 1, 2, 2])];
/// Activation rows with very different magnitudes.
fn activations(rows: usize, cols: usize, planes: Planes, random: &mut Random) -> QuantizedRows {
    let values: Vec<f32> = (0..rows * cols).map(|i| random.signed() * 10f32.powi((i / 32 % 5) as i32 - 2)).collect();
    QuantizedRows::of(&values, planes)
}

const EPS: f32 = 1e-6;

fn shape(layout: Layout, rows: usize, cols: usize, epilogue: Epilogue, norm: Option<usize>, dense: bool) -> Shape {
    let matrix = product::Shape::new(layout, rows, cols).expect("legal");
    Shape::new(matrix, epilogue, norm, dense).expect("legal")
}

struct Checked {
    shape: Shape,
    tiling: Tiling,
}

fn checked() -> Vec<Checked> {
    let mut all = Vec::new();
    for layout in LAYOUTS {
        for tiling in CHECKED {
            for (rows, cols) in [(40, 256), (1000, 768)] {
                all.push(Checked { shape: shape(layout, rows, cols, Epilogue::Plain, None, true), tiling });
            }
        }
    }
    for layout in LAYOUTS {
        let shape = shape(layout, 1000, 768, Epilogue::Plain, None, true).with_planes(Planes::Two);
        all.push(Checked { shape, tiling: CHECKED[1] });
    }
    // Of IQ3_S, tiles of 512 inputs begin at odd multiples of 64 bytes.
    for layout in [Layout::Q8_0, Layout::Q4_K, Layout::IQ3_S] {
        for tiling in CHECKED {
            for planes in Planes::ALL {
                let (gated, residual) = ((192, 512, Epilogue::Gated, false), (96, 512, Epilogue::Residual, true));
                for (rows, cols, epilogue, dense) in [gated, residual] {
                    all.push(Checked { shape: shape(layout, rows, cols, epilogue, Some(480), dense).with_planes(planes), tiling });
                }
            }
        }
    }
    all
}

/// What [`check`] and [`time`] load.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    let checked = checked().into_iter().map(|c| program(c.shape, c.tiling));
    let chip = H200;
    let timed = CASES.iter().flat_map(|case| case.steps().map(move |n| program(case.shape(), case.tiling(n, chip))));
    let mut programs: Vec<Program> = Vec::new();
    for program in checked.chain(timed) {
        let program = program?;
        if !programs.contains(&program) {
            programs.push(program);
        }
    }
    Ok(programs)
}

/// Checks every way to share work with every layout, and every epilogue.
pub(crate) fn check(gpu: &Gpu) -> Outcome {
    // With a third argument only some, for tools that are slow.
    let step = if std::env::args().nth(3).is_some() { 7 } else { 1 };
    for case in checked().into_iter().step_by(step) {
        let worst = columns_are_the_definition_s_and_the_same_alone(gpu, &case)?;
        let matrix = case.shape.matrix();
        let (layout, size, planes) = (matrix.layout(), matrix.size(), matrix.planes());
        println!("wide {layout:?} {size:?} {planes:?} {:?}: {worst:.2} of tolerance, alone = in a batch", case.tiling);
    }
    Ok(())
}

/// Everything that a launch wrote, as bits.
#[derive(Clone, Debug, Default, PartialEq)]
struct Written {
    values: Vec<u32>,
    codes: Vec<i8>,
    meta: Vec<u32>,
    squares: Vec<u32>,
}

/// A kernel with the data of a check: three matrices if rows are listed, else one.
struct Bench<'a> {
    gpu: &'a Gpu,
    kernel: Wide,
    epilogue: Epilogue,
    rows: usize,
    cols: usize,
    planes: Planes,
    weights: CudaSlice<u8>,
    codes: CudaSlice<i8>,
    meta: CudaSlice<f32>,
    squares: CudaSlice<f32>,
    norm: usize,
    next: CudaSlice<f32>,
}

/// Of what is there already.
const OLD: f32 = 0.25;

impl Bench<'_> {
    fn outputs(&self) -> usize {
        if self.epilogue == Epilogue::Gated { self.rows / 2 } else { self.rows }
    }

    fn stride(&self) -> usize {
        if self.epilogue == Epilogue::Plain { self.rows + 5 } else { self.outputs().next_multiple_of(128) }
    }

    /// Columns `first..first + n` densely, or with `listed`: by slots over all columns.
    fn run(&self, first: usize, n: usize, listed: Option<&[Vec<i32>; 3]>) -> Result<Written, Box<dyn Error>> {
        let (stream, stride, planes) = (self.gpu.device.stream(), self.stride(), self.planes.count());
        let poison = if self.epilogue == Epilogue::Residual { OLD } else { f32::NAN };
        let mut values = stream.clone_htod(&vec![poison; n * stride])?;
        let mut codes = stream.clone_htod(&vec![99i8; n * stride * planes])?;
        let mut meta = stream.clone_htod(&vec![f32::NAN; n * stride / 16 * planes + 2])?;
        let mut squares = stream.clone_htod(&vec![f32::NAN; n * stride / 32 + 2])?;
        let lists = listed.map(|l| l.each_ref().map(|l| stream.clone_htod(l)));
        let lists = match lists {
            Some([a, b, c]) => Some([a?, b?, c?]),
            None => None,
        };
        let views = lists.as_ref().map(|l| l.each_ref().map(|l| l.as_view()));
        let columns = match &views {
            Some([slots, in_rows, out_rows]) => Columns::Listed { slots, in_rows, out_rows },
            None => Columns::First(n),
        };
        let from_squares = self.squares.slice(first * self.norm / 32..);
        let x = Inputs {
            codes: &self.codes.slice(first * self.cols * planes..),
            meta: &self.meta.slice(first * self.cols / 16 * planes..),
            squares: Some(&from_squares),
            eps: EPS,
            factor: 0.5,
        };
        let next = self.next.as_view();
        let (mut v, mut c, mut m, mut s) = (values.as_view_mut(), codes.as_view_mut(), meta.as_view_mut(), squares.as_view_mut());
        let out = match self.epilogue {
            Epilogue::Plain => Output::Plain { values: &mut v, stride },
            Epilogue::Residual => {
                Output::Residual { x: &mut v, weight: &next, codes: &mut c, meta: &mut m, squares: &mut s, stride }
            }
            Epilogue::Gated => Output::Gated { codes: &mut c, meta: &mut m, stride },
        };
        // SAFETY: lists are those of `lists` below, which name three matrices and rows that there are, each output once.
        unsafe { self.kernel.launch(&self.gpu.device, &self.weights.as_view(), x, columns, out)? };
        let bits = |v: Vec<f32>| v.into_iter().map(f32::to_bits).collect();
        Ok(Written {
            values: bits(stream.clone_dtoh(&values)?),
            codes: stream.clone_dtoh(&codes)?,
            meta: bits(stream.clone_dtoh(&meta)?),
            squares: bits(stream.clone_dtoh(&squares)?),
        })
    }

    /// What a launch wrote of column `c`.
    fn column(&self, all: &Written, c: usize) -> Written {
        let (stride, n, planes) = (self.stride(), self.outputs(), self.planes.count());
        let part = |v: &[u32], each: usize, len: usize| v[c * each..][..len].to_vec();
        match self.epilogue {
            Epilogue::Plain => Written { values: part(&all.values, stride, stride), ..Written::default() },
            epilogue => Written {
                values: if epilogue == Epilogue::Residual { part(&all.values, n, n) } else { Vec::new() },
                codes: all.codes[c * stride * planes..][..stride * planes].to_vec(),
                meta: part(&all.meta, stride / 16 * planes, stride / 16 * planes),
                squares: if epilogue == Epilogue::Residual { part(&all.squares, n / 32, n / 32) } else { Vec::new() },
            },
        }
    }
}

fn columns_are_the_definition_s_and_the_same_alone(gpu: &Gpu, case: &Checked) -> Result<f64, Box<dyn Error>> {
    const COLUMNS: usize = 75;
    let (stream, shape) = (gpu.device.stream(), case.shape);
    let (layout, (rows, cols)) = (shape.matrix().layout(), shape.matrix().size());
    let epilogue = shape.epilogue();
    let norm = shape.norm().unwrap_or(0);
    let mut random = Random(11);
    let matrices: Vec<Matrix> = (0..3).map(|e| Matrix::random(layout, rows, cols, 20 + e)).collect();
    let x = activations(COLUMNS, cols, shape.matrix().planes(), &mut random);
    let squares: Vec<f32> = random.vector(COLUMNS * norm / 32 + 1).into_iter().map(|v| v.abs() * 1e6).collect();
    let next = random.vector(rows);
    let bench = Bench {
        gpu,
        kernel: Wide::load(&gpu.device, &gpu.cache, shape, case.tiling)?,
        epilogue,
        rows,
        cols,
        planes: shape.matrix().planes(),
        weights: stream.clone_htod(&matrices.iter().flat_map(Matrix::packed).collect::<Vec<u8>>())?,
        codes: stream.clone_htod(&x.codes)?,
        meta: stream.clone_htod(x.meta.as_flattened())?,
        squares: stream.clone_htod(&squares)?,
        norm,
        next: stream.clone_htod(&next)?,
    };
    let want = Want { x: &x, norm, squares: &squares, next: &next, epilogue };
    let all = bench.run(0, COLUMNS, None)?;
    let mut worst = 0.0f64;
    for c in 0..COLUMNS {
        let got = bench.column(&all, c);
        let step = if c < 3 { 1 } else { 37 };
        worst = worst.max(want.compare(&matrices[0], &got, rows, c, step).map_err(|e| format!("{case:?} column {c}: {e}"))?);
        if c % 8 == 0 || c > 70 {
            assert!(got == bench.column(&bench.run(c, 1, None)?, 0), "{case:?}: column {c} differs from itself alone");
        }
    }
    for n in [2, 9, 17, 33, 64] {
        let some = bench.run(0, n, None)?;
        for c in 0..n {
            assert!(bench.column(&some, c) == bench.column(&all, c), "{case:?}: column {c} of {n}");
        }
    }
    // Few slots with many columns are spread over blocks, many with few are not; then matrix 2 has 41 columns, 0 has 11, 1 has one.
    for padding in [0, 200] {
        let mut slots = vec![2, 0, 41, 0, 0, 41, 0, 0, 0, 41, 11, 0, 1, 52, 1, 0];
        slots.resize(slots.len() + 4 * padding, 0);
        let n = 53;
        let in_rows: Vec<i32> = (0..n).map(|c| c * 7 % n).collect();
        let out_rows: Vec<i32> = (0..n).map(|c| (c * 5 + 3) % n).collect();
        let matrix_of = |c: usize| {
            if c < 41 {
                2
            } else if c < 52 {
                0
            } else {
                1
            }
        };
        let got = bench.run(0, n as usize, Some(&[slots, in_rows.clone(), out_rows.clone()]))?;
        for c in 0..n as usize {
            let (from, got) = (in_rows[c] as usize, bench.column(&got, out_rows[c] as usize));
            if matrix_of(c) == 0 {
                assert!(got == bench.column(&all, from), "{case:?}: column {from} listed with {padding} empty slots");
            }
            want.compare(&matrices[matrix_of(c)], &got, rows, from, 29).map_err(|e| format!("{case:?} listed {c}: {e}"))?;
        }
    }
    Ok(worst)
}

impl std::fmt::Debug for Checked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?}", self.shape, self.tiling)
    }
}

/// The definition.
struct Want<'a> {
    x: &'a QuantizedRows,
    norm: usize,
    squares: &'a [f32],
    next: &'a [f32],
    epilogue: Epilogue,
}

impl Want<'_> {
    fn dot(&self, matrix: &Matrix, row: usize, c: usize) -> (f64, f64) {
        let blocks = self.norm / 32;
        let sum: f64 = self.squares[c * blocks..][..blocks].iter().map(|v| f64::from(*v)).sum();
        let factor = 0.5 * if blocks > 0 { 1.0 / (sum / self.norm as f64 + f64::from(EPS)).sqrt() } else { 1.0 };
        let (dot, size) = matrix.dot(row, self.x, c);
        (dot * factor, size * factor)
    }

    /// How much of the tolerance the worst value of every `step`-th row or block takes.
    fn compare(&self, matrix: &Matrix, got: &Written, rows: usize, c: usize, step: usize) -> Result<f64, String> {
        const TOLERANCE: f64 = 6e-7;
        let mut worst = 0.0f64;
        let mut near = |got: f64, want: f64, tolerance: f64, what: &str| {
            let ratio = (got - want).abs() / tolerance;
            worst = worst.max(ratio);
            if ratio <= 1.0 { Ok(()) } else { Err(format!("{what}: {got} for {want}, tolerance {tolerance:e}")) }
        };
        let value = |r: usize| f64::from(f32::from_bits(got.values[r]));
        if self.epilogue == Epilogue::Plain {
            for r in (0..rows).step_by(step) {
                let (want, size) = self.dot(matrix, r, c);
                near(value(r), want, size * TOLERANCE, &format!("row {r}"))?;
            }
            return if got.values[rows..].iter().all(|v| f32::from_bits(*v).is_nan()) { Ok(worst) } else { Err("tail".into()) };
        }
        let n = if self.epilogue == Epilogue::Gated { rows / 2 } else { rows };
        let meta: Vec<f32> = got.meta.iter().map(|m| f32::from_bits(*m)).collect();
        let int8 = QuantizedRows { codes: got.codes.clone(), meta: pairs(&meta), planes: self.x.planes };
        let planes = self.x.planes.count();
        for b in (0..n / 32).step_by(step.min(2)) {
            let (mut values, mut slack) = ([0.0f64; 32], [0.0f64; 32]);
            for i in 0..32 {
                let r = 32 * b + i;
                (values[i], slack[i]) = if self.epilogue == Epilogue::Residual {
                    let (want, size) = self.dot(matrix, r, c);
                    near(value(r), want + f64::from(OLD), (size + 1.0) * TOLERANCE, &format!("x {r}"))?;
                    let next = f64::from(self.next[r]);
                    ((want + f64::from(OLD)) * next, (size + 1.0) * TOLERANCE)
                } else {
                    let (gate, up) = (r / 8 * 16 + r % 8, r / 8 * 16 + r % 8 + 8);
                    let ((gate, g_size), (up, u_size)) = (self.dot(matrix, gate, c), self.dot(matrix, up, c));
                    (
                        gate / (1.0 + (-gate).exp()) * up,
                        (g_size * up.abs() * 1.1 + u_size * gate.abs()) * TOLERANCE + 1e-6 * (gate * up).abs(),
                    )
                };
            }
            for plane in b * planes..(b + 1) * planes {
                let [_, sum] = int8.meta[plane];
                if sum != int8.block(plane).iter().map(|c| f32::from(*c)).sum::<f32>() {
                    return Err(format!("block {b}: sum {sum}"));
                }
            }
            let stored = int8.values(b);
            for i in 0..32 {
                near(stored[i], values[i], 1.004 * int8.error_max(b) + slack[i], &format!("code {i} of block {b}"))?;
            }
            if self.epilogue == Epilogue::Residual {
                let want: f64 = (0..32).map(|i| value(32 * b + i).powi(2)).sum();
                near(f64::from(f32::from_bits(got.squares[b])), want, want * 1e-6, &format!("squares {b}"))?;
            }
        }
        if int8.codes[n * planes..].iter().any(|c| *c != 99) {
            return Err("padding written".into());
        }
        Ok(worst)
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
}

const EXPERTS: usize = 256;
/// Weights that are read in turn, so that none are still in the cache.
const ROTATED_BYTES: usize = 300 << 20;

/// What the released model multiplies.
const CASES: [Case; 7] = [
    dense("in-projection Q8_0", Layout::Q8_0, 12416, 2048, Epilogue::Plain, Some(2048)),
    dense("out-projection Q8_0", Layout::Q8_0, 2048, 4096, Epilogue::Residual, None),
    experts("expert gate+up Q4_K", Layout::Q4_K, 1024, 2048, Epilogue::Gated, Some(2048)),
    experts("expert down Q4_K", Layout::Q4_K, 2048, 512, Epilogue::Plain, None),
    dense("shared gate+up Q8_0", Layout::Q8_0, 1024, 2048, Epilogue::Gated, Some(2048)),
    dense("shared down Q8_0", Layout::Q8_0, 2048, 512, Epilogue::Plain, None),
    dense("head Q6_K", Layout::Q6_K, 248_320, 2048, Epilogue::Plain, Some(2048)),
];
/// Rows of a step.
const STEPS: [usize; 6] = [16, 32, 64, 128, 256, 2048];
/// More are not sampled in a step.
const SAMPLED_MAX: usize = 256;

const fn dense(name: &'static str, layout: Layout, rows: usize, cols: usize, epilogue: Epilogue, norm: Option<usize>) -> Case {
    Case { name, layout, rows, cols, epilogue, norm, used: None }
}

const fn experts(name: &'static str, layout: Layout, rows: usize, cols: usize, epilogue: Epilogue, norm: Option<usize>) -> Case {
    Case { name, layout, rows, cols, epilogue, norm, used: Some(8) }
}

impl Case {
    fn shape(&self) -> Shape {
        shape(self.layout, self.rows, self.cols, self.epilogue, self.norm, self.used.is_none())
    }

    fn steps(&self) -> impl Iterator<Item = usize> {
        let most = if self.rows > 100_000 { SAMPLED_MAX } else { usize::MAX };
        STEPS.into_iter().filter(move |n| *n <= most)
    }

    fn tiling(&self, n: usize, chip: Chip) -> Tiling {
        wide::tiling(self.shape(), self.used.map_or(n, |used| (n * used).div_ceil(EXPERTS)), chip)
    }
}

/// Measures what is chosen for every case.
pub(crate) fn time(gpu: &Gpu) -> Outcome {
    println!("copy: {:.0} GB/s", copy_bandwidth(gpu)? / 1e9);
    println!("| product | rows | tiles x warps, octets x warps, groups, units, split, stages | us | GB/s of weights | TOPS |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for case in &CASES {
        let weights = weights(gpu, case)?;
        for n in case.steps() {
            let chosen = case.tiling(n, Chip::of(&gpu.device));
            let (seconds, bytes) = product_time(gpu, case, &weights, n, chosen)?;
            let operations = 2.0 * (case.rows * case.cols * n * case.used.unwrap_or(1)) as f64;
            let Tiling { tiles, warps_rows, octets, warps_columns, groups, units, split, stages } = chosen;
            println!(
                "| {} | {n} | {tiles}x{warps_rows}, {octets}x{warps_columns}, {groups}, {units}, {split}, {stages} | {:.2} | {:.0} | {:.0} |",
                case.name,
                seconds * 1e6,
                bytes / seconds / 1e9,
                operations / seconds / 1e12
            );
        }
    }
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

fn product_time(gpu: &Gpu, case: &Case, weights: &CudaSlice<u8>, n: usize, tiling: Tiling) -> Result<(f64, f64), Box<dyn Error>> {
    let (stream, shape) = (gpu.device.stream(), case.shape());
    let kernel = Wide::load(&gpu.device, &gpu.cache, shape, tiling)?;
    let pairs = n * case.used.unwrap_or(1);
    let in_rows = if case.epilogue == Epilogue::Gated { n } else { pairs };
    let x = QuantizedRows::of(&Random(5).vector(in_rows * case.cols), Planes::One);
    let (codes, meta) = (stream.clone_htod(&x.codes)?, stream.clone_htod(x.meta.as_flattened())?);
    let squares = stream.clone_htod(&vec![1.0f32; in_rows * case.cols / 32])?;
    let next = stream.clone_htod(&vec![1.0f32; case.rows])?;
    let mut values = stream.alloc_zeros::<f32>(pairs * case.rows)?;
    let mut out_codes = stream.alloc_zeros::<i8>(pairs * case.rows)?;
    let mut out_meta = stream.alloc_zeros::<f32>(pairs * case.rows / 16)?;
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
    let seconds = graph_time(gpu, launches, |i| {
        let squares = squares.as_view();
        let x = Inputs { codes: &codes.as_view(), meta: &meta.as_view(), squares: Some(&squares), eps: EPS, factor: 1.0 };
        let (mut v, mut c, mut m, mut s) =
            (values.as_view_mut(), out_codes.as_view_mut(), out_meta.as_view_mut(), out_squares.as_view_mut());
        let next = next.as_view();
        let out = match case.epilogue {
            Epilogue::Plain => Output::Plain { values: &mut v, stride: case.rows },
            Epilogue::Residual => {
                Output::Residual { x: &mut v, weight: &next, codes: &mut c, meta: &mut m, squares: &mut s, stride: case.rows }
            }
            Epilogue::Gated => Output::Gated { codes: &mut c, meta: &mut m, stride: case.rows / 2 },
        };
        if case.used.is_none() {
            let matrix = weights.slice(i % copies * bytes..(i % copies + 1) * bytes);
            // SAFETY: nothing is listed.
            return unsafe { kernel.launch(&gpu.device, &matrix, x, Columns::First(n), out) };
        }
        let (slots, rows, pairs) = (slots[i % 8].as_view(), rows[i % 8].as_view(), out_rows.as_view());
        let in_rows = if case.epilogue == Epilogue::Gated { &rows } else { &pairs };
        let columns = Columns::Listed { slots: &slots, in_rows, out_rows: &pairs };
        // SAFETY: the lists name experts below 256 and rows below the number of tokens or pairs.
        unsafe { kernel.launch(&gpu.device, &weights.as_view(), x, columns, out) }
    })?;
    Ok((seconds, if case.used.is_some() { distinct * bytes as f64 } else { bytes as f64 }))
}

/// Slots for `n` tokens that each use `used` experts at random, padded with empty ones to the most there can be, the token of each
/// column, and how many experts are used.
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
