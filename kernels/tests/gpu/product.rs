//! Products with few rows against their definition: plain, into the residual stream, and of experts.

use crate::support::{Gpu, H200, Outcome, Test, pairs, worst_ratio};
use chimere_kernels::cuda::experts::{self, ExpertRows, ExpertShape, Experts, ExpertsKernels, Matrices, Routing};
use chimere_kernels::cuda::product::layout::{Layout, Scales, UNIT};
use chimere_kernels::cuda::product::sample::{LAYOUTS, Matrix, Random};
use chimere_kernels::cuda::product::{self, Activations, MatrixShape, NextRows, Norm, Output, Product, Residual};
use chimere_kernels::cuda::quantized::{Planes, QuantizedRows};
use chimere_kernels::cuda::router::{self, Cuts, LayerWeights, Router, Variant, cut_words};
use chimere_kernels::cuda::stack::Stack;
use chimere_kernels::cuda::wide::Chip;
use chimere_kernels::cuda::{CudaError, Program};
use chimere_kernels::reference::ExpertCut;
use std::error::Error;

/// How far sums in f32 may lie from the exact ones, as a part of the sum of magnitudes.
const TOLERANCE: f64 = 4e-7;
/// How far a gate may be off, as a part of it: scores of a few units in f32, their exponential and a division.
const GATE_TOLERANCE: f64 = 2e-6;
const EPS: f32 = 1e-6;

/// Shapes that a layout is checked with, and whether a norm is folded; groups of 256 inputs want whole groups.
fn shapes(layout: Layout) -> Vec<(MatrixShape, Option<usize>)> {
    let grouped = !matches!(layout.scales, Scales::F16 | Scales::Bf16);
    let sizes: &[(usize, usize, Option<usize>)] = if grouped {
        &[(40, 256, None), (16, 2048, Some(2048)), (1000, 512, None)]
    } else {
        &[(40, 128, Some(96)), (16, 2048, Some(2048)), (1000, 384, None)]
    };
    let of = |planes: Planes| {
        sizes
            .iter()
            .map(move |(r, c, norm)| (MatrixShape::new(layout, *r, *c).expect("legal").with_planes(planes), *norm))
    };
    Planes::ALL.into_iter().flat_map(of).collect()
}

/// Outputs of a multiple of 32, few and many inputs; the last with more inputs than fit into shared memory for 8 rows.
fn residual_shapes(layout: Layout) -> Vec<MatrixShape> {
    let of = |planes: Planes| {
        [(32, 256), (96, 1024), (64, 5120)]
            .map(move |(r, c)| MatrixShape::new(layout, r, c).expect("legal").with_planes(planes))
    };
    Planes::ALL.into_iter().flat_map(of).collect()
}

const RESIDUAL_LAYOUTS: [Layout; 3] = [Layout::Q8_0, Layout::Q6_K, Layout::IQ3_S];

fn kind(width: usize, gate_up: Layout, down: Layout) -> ExpertShape {
    ExpertShape { width, gate_up, down }
}

fn experts_cases() -> Vec<Experts> {
    let of = |hidden, count, used, routed, shared| Experts::new(hidden, count, used, routed, shared).expect("legal");
    let without = |experts: Experts| experts.without_gates().expect("legal").with_sigmoids(true);
    let all = [
        of(32, 5, 2, kind(32, Layout::Q8_0, Layout::Q8_0), kind(96, Layout::W16, Layout::W16)),
        of(256, 9, 4, kind(128, Layout::Q8_0, Layout::Q4_0), kind(128, Layout::Q8_0, Layout::Q8_0)),
        of(512, 12, 8, kind(256, Layout::Q4_K, Layout::Q6_K), kind(512, Layout::Q8_0, Layout::Q5_K)),
        of(1024, 11, 10, kind(256, Layout::IQ3_S, Layout::IQ3_S), kind(256, Layout::Q5_K, Layout::IQ4_XS)),
        // As in the released shape, where down's tiles begin at odd multiples of 64 bytes.
        of(2048, 12, 8, kind(512, Layout::IQ3_S, Layout::IQ3_S), kind(512, Layout::Q5_K, Layout::Q5_K)),
        // Codes that are floats, alone and beside others.
        of(512, 12, 8, kind(256, Layout::NVFP4, Layout::NVFP4), kind(512, Layout::NVFP4, Layout::FP8_ROWS)),
        of(1024, 12, 8, kind(256, Layout::FP8_BLOCKS, Layout::FP8_BLOCKS), kind(256, Layout::Q8_0, Layout::NVFP4)),
        // Without gates, chosen by sigmoids: widths that are no multiples of 128, and the released shape's.
        without(of(96, 5, 2, kind(64, Layout::Q8_0, Layout::Q8_0), kind(192, Layout::W16, Layout::W16))),
        without(of(384, 12, 6, kind(192, Layout::Q5_0, Layout::Q8_0), kind(320, Layout::Q8_0, Layout::Q5_0))),
        without(of(2688, 9, 6, kind(1856, Layout::Q5_0, Layout::Q5_0), kind(3712, Layout::Q8_0, Layout::Q5_0))),
        of(512, 12, 8, kind(256, Layout::Q4_K, Layout::Q6_K), kind(512, Layout::Q8_0, Layout::Q5_K))
            .with_sigmoids(true),
    ];
    Planes::ALL.into_iter().flat_map(|planes| all.iter().map(move |e| e.with_planes(planes))).collect()
}

/// What the tests load.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    let plain = LAYOUTS.into_iter().flat_map(shapes);
    let mut programs: Vec<Program> =
        plain.flat_map(|(s, norm)| product::programs(s, norm, H200.multiprocessors)).collect();
    let residual = RESIDUAL_LAYOUTS.into_iter().flat_map(residual_shapes);
    programs.extend(residual.flat_map(|s| Residual::programs(s, H200.multiprocessors)));
    programs.extend(experts_cases().into_iter().filter_map(|e| Some(experts::program(e, experts::tiling(e, H200)?))));
    Ok(programs)
}

/// The tests of this file by their names, as `main` lists and filters them.
pub(crate) const TESTS: &[Test] = &[
    ("product::products_are_the_definition_s_and_the_same_alone_and_in_a_batch", every_layout),
    ("product::out_projections_leave_the_stream_and_what_is_read_of_it_next", every_residual),
    ("experts::experts_of_each_row_are_summed_in_order", every_expert),
];

fn every_layout(gpu: &Gpu) -> Outcome {
    for layout in LAYOUTS {
        for (shape, norm) in shapes(layout) {
            products_are_the_definition_s_and_the_same_alone_and_in_a_batch(gpu, shape, norm)?;
        }
    }
    Ok(())
}

fn every_residual(gpu: &Gpu) -> Outcome {
    let shapes = RESIDUAL_LAYOUTS.into_iter().flat_map(residual_shapes);
    shapes.into_iter().try_for_each(|shape| out_projections_leave_the_stream_and_what_is_read_of_it_next(gpu, shape))
}

fn every_expert(gpu: &Gpu) -> Outcome {
    experts_cases().into_iter().try_for_each(|experts| experts_of_each_row_are_summed_in_order(gpu, experts))
}

/// Activation rows with very different magnitudes, `cols` of them true and the rest of `padded` zero.
fn activations(rows: usize, cols: usize, padded: usize, planes: Planes, random: &mut Random) -> QuantizedRows {
    let value = |i: usize, random: &mut Random| {
        if i % padded < cols { random.signed() * 10f32.powi((i / 32 % 5) as i32 - 2) } else { 0.0 }
    };
    let values: Vec<f32> = (0..rows * padded).map(|i| value(i, random)).collect();
    QuantizedRows::of(&values, planes)
}

/// Sums of squares of `rows` rows, and the factor that they are read as.
fn squares(rows: usize, blocks: usize, random: &mut Random) -> (Vec<f32>, Vec<f64>) {
    let squares: Vec<f32> = (0..rows * blocks).map(|_| 50.0 * random.signed().abs()).collect();
    let factors = factors(&squares, blocks);
    (squares, factors)
}

/// What rows are multiplied by whose squares these are.
fn factors(squares: &[f32], blocks: usize) -> Vec<f64> {
    let mean = |row: &[f32]| row.iter().map(|s| f64::from(*s)).sum::<f64>() / (32 * row.len()) as f64;
    squares.chunks(blocks.max(1)).map(|row| (mean(row) + f64::from(EPS)).sqrt().recip()).collect()
}

fn same(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

fn products_are_the_definition_s_and_the_same_alone_and_in_a_batch(
    gpu: &Gpu,
    shape: MatrixShape,
    norm: Option<usize>,
) -> Outcome {
    let (stream, (rows, cols)) = (gpu.device.stream(), shape.size());
    let matrix = Matrix::random(shape.layout(), rows, cols, 3);
    let weights = stream.clone_htod(&matrix.packed())?;
    let kernel = Product::load(&gpu.device, &gpu.cache, shape, norm)?;
    let (n_max, stride, blocks) = (33, rows + 5, norm.unwrap_or(0) / 32);
    let mut random = Random(11);
    let (x, codes_each) = (activations(n_max, cols, cols, shape.planes(), &mut random), cols * shape.planes().count());
    let (squares, factors) = squares(n_max, blocks, &mut random);
    let (codes, meta) = (stream.clone_htod(&x.codes)?, stream.clone_htod(x.meta.as_flattened())?);
    let d_squares = if blocks > 0 { Some(stream.clone_htod(&squares)?) } else { None };
    let run = |first: usize, n: usize| -> Result<Vec<f32>, Box<dyn Error>> {
        let mut out = stream.clone_htod(&vec![f32::NAN; n * stride])?;
        let x = Activations {
            codes: &codes.slice(first * codes_each..),
            meta: &meta.slice(first * codes_each / 16..),
            lora: None,
        };
        let output = Output { values: &mut out.as_view_mut(), stride, factor: 0.5 };
        let of_row = d_squares.as_ref().map(|s| s.slice(first * blocks..));
        let norm = of_row.as_ref().map(|squares| Norm { squares, eps: EPS });
        kernel.launch(&gpu.device, &weights.as_view(), x, norm, n, output)?;
        Ok(stream.clone_dtoh(&out)?)
    };
    let alone: Vec<Vec<f32>> = (0..n_max).map(|c| run(c, 1)).collect::<Result<_, _>>()?;
    let mut worst = 0.0f64;
    for (c, got) in alone.iter().enumerate() {
        let factor = 0.5 * factors.get(c).copied().unwrap_or(1.0);
        for r in (0..rows).step_by(if c < 3 { 1 } else { 37 }) {
            let (want, size) = matrix.dot(r, &x, c);
            let ratio = (f64::from(got[r]) - factor * want).abs() / (factor * size * TOLERANCE);
            assert!(ratio <= 1.0, "{shape:?} row {r} column {c}: {} for {}", got[r], factor * want);
            worst = worst.max(ratio);
        }
        assert!(got[rows..].iter().all(|v| v.is_nan()), "{shape:?} writes beyond its row");
    }
    for n in [2, 7, 8, 9, 16, 17, 33] {
        let got = run(0, n)?;
        for c in 0..n {
            let got = &got[c * stride..][..rows];
            assert!(same(got, &alone[c][..rows]), "{shape:?}: column {c} of {n} differs from itself alone");
        }
    }
    println!(
        "product {:?} {rows} x {cols} {:?}: {worst:.2} of tolerance, alone = in a batch",
        shape.layout(),
        shape.planes()
    );
    Ok(())
}

/// What a launch leaves of the residual stream.
struct Stream {
    x: Vec<f32>,
    next: QuantizedRows,
    squares: Vec<f32>,
}

impl Stream {
    /// Whether what is read next is what `x` and the weight of the norm say, and nothing else was written.
    fn check(&self, what: &str, values: usize, weight: &[f32], rows: impl Iterator<Item = usize>) {
        let planes = self.next.planes;
        let (padded, own) = (values.next_multiple_of(UNIT) * planes.count(), values * planes.count());
        for row in rows {
            let x = &self.x[row * values..][..values];
            let want = QuantizedRows::of(&x.iter().zip(weight).map(|(x, w)| x * w).collect::<Vec<_>>(), planes);
            let (codes, meta) =
                (&self.next.codes[row * padded..][..padded], &self.next.meta[row * padded / 32..][..padded / 32]);
            assert!(codes[..own] == want.codes && meta[..own / 32] == want.meta, "{what}: int8 form of row {row}");
            assert!(codes[own..].iter().all(|c| *c == 99), "{what}: padding of row {row} was written");
            for (block, got) in x.chunks(32).zip(&self.squares[row * values / 32..]) {
                let want: f64 = block.iter().map(|v| f64::from(*v).powi(2)).sum();
                assert!((f64::from(*got) - want).abs() <= 1e-6 * want, "{what}: squares {got} for {want}");
            }
        }
    }

    fn row(&self, row: usize, values: usize) -> (&[f32], &[i8], &[f32]) {
        let padded = values.next_multiple_of(UNIT) * self.next.planes.count();
        (
            &self.x[row * values..][..values],
            &self.next.codes[row * padded..][..padded],
            &self.squares[row * values / 32..][..values / 32],
        )
    }
}

/// Runs `launch` on a copy of `x` and poisoned outputs.
fn with_stream(
    gpu: &Gpu,
    x: &[f32],
    (values, planes): (usize, Planes),
    weight: &[f32],
    launch: impl FnOnce(&mut cudarc::driver::CudaViewMut<'_, f32>, NextRows<'_, '_>) -> Result<(), CudaError>,
) -> Result<Stream, Box<dyn Error>> {
    let (stream, rows, padded) =
        (gpu.device.stream(), x.len() / values, values.next_multiple_of(UNIT) * planes.count());
    let (mut dx, weight) = (stream.clone_htod(x)?, stream.clone_htod(weight)?);
    let mut codes = stream.clone_htod(&vec![99i8; rows * padded])?;
    let mut meta = stream.clone_htod(&vec![f32::NAN; rows * padded / 16])?;
    let mut squares = stream.clone_htod(&vec![f32::NAN; rows * values / 32])?;
    let next = NextRows {
        weight: &weight.as_view(),
        codes: &mut codes.as_view_mut(),
        meta: &mut meta.as_view_mut(),
        squares: &mut squares.as_view_mut(),
    };
    launch(&mut dx.as_view_mut(), next)?;
    let next = QuantizedRows { codes: stream.clone_dtoh(&codes)?, meta: pairs(&stream.clone_dtoh(&meta)?), planes };
    Ok(Stream { x: stream.clone_dtoh(&dx)?, next, squares: stream.clone_dtoh(&squares)? })
}

fn out_projections_leave_the_stream_and_what_is_read_of_it_next(gpu: &Gpu, shape: MatrixShape) -> Outcome {
    let (stream, (rows, cols)) = (gpu.device.stream(), shape.size());
    let matrix = Matrix::random(shape.layout(), rows, cols, 4);
    let weights = stream.clone_htod(&matrix.packed())?;
    let kernel = Residual::load(&gpu.device, &gpu.cache, shape)?;
    let n_max = 19;
    let mut random = Random(12);
    let y = activations(n_max, cols, cols, shape.planes(), &mut random);
    let codes_each = cols * shape.planes().count();
    let (old, weight) = (random.vector(n_max * rows), random.vector(rows));
    let (codes, meta) = (stream.clone_htod(&y.codes)?, stream.clone_htod(y.meta.as_flattened())?);
    let run = |first: usize, n: usize| {
        with_stream(gpu, &old[first * rows..(first + n) * rows], (rows, shape.planes()), &weight, |x, next| {
            let y = Activations {
                codes: &codes.slice(first * codes_each..),
                meta: &meta.slice(first * codes_each / 16..),
                lora: None,
            };
            kernel.launch(&gpu.device, &weights.as_view(), y, 0.25, n, x, next)
        })
    };
    let alone: Vec<Stream> = (0..n_max).map(|c| run(c, 1)).collect::<Result<_, _>>()?;
    let mut worst = 0.0f64;
    for (c, got) in alone.iter().enumerate() {
        for r in 0..rows {
            let (dot, size) = matrix.dot(r, &y, c);
            let (old, got) = (f64::from(old[c * rows + r]), f64::from(got.x[r]));
            let ratio = (got - (old + 0.25 * dot)).abs() / (0.25 * size * TOLERANCE + 1e-7 * got.abs());
            assert!(ratio <= 1.0, "{shape:?} row {r} column {c}: {got} for {}", old + 0.25 * dot);
            worst = worst.max(ratio);
        }
        got.check("residual", rows, &weight, 0..1);
    }
    for n in [2, 8, 9, 16, 19] {
        let got = run(0, n)?;
        for (c, alone) in alone.iter().enumerate().take(n) {
            assert!(got.row(c, rows) == alone.row(0, rows), "{shape:?}: column {c} of {n} differs from itself alone");
        }
    }
    println!(
        "residual {:?} {rows} x {cols} {:?}: {worst:.2} of tolerance, alone = in a batch",
        shape.layout(),
        shape.planes()
    );
    Ok(())
}

/// Matrices of one kind of expert, on the host and on the device. Gate and up: rows in tiles of 8 and 8.
struct Side {
    /// Whether there are no gates.
    squared: bool,
    gate_up: Vec<Matrix>,
    down: Vec<Matrix>,
}

impl Side {
    fn random(squared: bool, [gate_up, down]: [MatrixShape; 2], count: usize, seed: u64) -> Self {
        let of = |shape: MatrixShape, seed: u64| {
            let ((rows, cols), layout) = (shape.size(), shape.layout());
            (0..count as u64).map(|e| Matrix::random(layout, rows, cols, seed + e)).collect()
        };
        Self { squared, gate_up: of(gate_up, seed), down: of(down, seed + 100) }
    }

    fn packed(matrices: &[Matrix]) -> Vec<u8> {
        matrices.iter().flat_map(Matrix::packed).collect()
    }

    /// Value `j` of expert `e`'s hidden row for row `column` of `y`, and how far off it may be.
    fn hidden(&self, e: usize, j: usize, y: &QuantizedRows, column: usize, factor: f64) -> (f64, f64) {
        if self.squared {
            let (up, size) = self.gate_up[e].dot(j, y, column);
            let (up, off) = ((up * factor).max(0.0), factor * TOLERANCE * size);
            // The norm's factor is off by more than the sum.
            return (up * up, (2.0 * up + off) * off + 4e-6 * up * up);
        }
        let at = j / 8 * 16 + j % 8;
        let ((gate, gate_size), (up, up_size)) =
            (self.gate_up[e].dot(at, y, column), self.gate_up[e].dot(at + 8, y, column));
        let (gate, up) = (gate * factor, up * factor);
        let silu = gate / (1.0 + (-gate).exp());
        let off = factor * TOLERANCE * (1.2 * gate_size * up.abs() + up_size * silu.abs());
        (silu * up, off + 4e-6 * (silu * up).abs())
    }
}

/// Whether the int8 form of block `index` of values is that of `want` to what it may be off.
fn is_int8_form(rows: &QuantizedRows, index: usize, want: &[(f64, f64)]) -> bool {
    let most = rows.error_max(index);
    let near = rows.values(index).iter().zip(want).all(|(got, (want, off))| (got - want).abs() <= 1.002 * most + off);
    let planes = index * rows.planes.count()..(index + 1) * rows.planes.count();
    near && planes
        .into_iter()
        .all(|p| rows.meta[p][1] == rows.block(p).iter().map(|c| i32::from(*c)).sum::<i32>() as f32)
}

/// What products of down are multiplied with, of routed experts and of the shared one.
const FACTORS: [f32; 2] = [0.7, 1.3];

fn experts_of_each_row_are_summed_in_order(gpu: &Gpu, experts: Experts) -> Outcome {
    let stream = gpu.device.stream();
    let (gate_up, down) = (experts.gate_up(), experts.down());
    let (hidden, used, count) = (down[0].size().0, experts.used(), experts.count());
    let planes = experts.planes();
    let each = if experts.squared() { 1 } else { 2 };
    let (padded, [width, shared_width]) = (hidden.next_multiple_of(UNIT), gate_up.map(|s| s.size().0 / each));
    let [h_cols, shared_cols] = down.map(|s| s.size().1);
    let side = |i: usize, count, seed| Side::random(experts.squared(), [gate_up[i], down[i]], count, seed);
    let (routed, shared) = (side(0, count, 30), side(1, 1, 60));
    let upload = |matrices: &[Matrix]| stream.clone_htod(&Side::packed(matrices));
    let d_gate_up = (upload(&routed.gate_up)?, upload(&shared.gate_up)?);
    let d_down = (upload(&routed.down)?, upload(&shared.down)?);
    let n_max = 19;
    let mut random = Random(13);
    let (y, codes_each) = (activations(n_max, hidden, padded, planes, &mut random), padded * planes.count());
    let (squares, _) = squares(n_max, hidden / 32, &mut random);
    // As a real norm would be: products of a size where silu is neither linear nor one-sided.
    let squares: Vec<f32> = squares.iter().map(|s| s * 1e4).collect();
    let factors = factors(&squares, hidden / 32);
    let (mut old, weight) = (random.vector(n_max * hidden), random.vector(hidden));
    let none = 4;
    // Rows do with all experts, or with fewer: none of what was cut away may be read.
    let left = |row: usize| if row == none { 0 } else { [used, 1, used.div_ceil(2), used - 1][row % 4] };
    let expert = |row: usize, k: usize| if k < left(row) { ((row * 3 + k * 7) % count) as i32 } else { -1 };
    let chosen: Vec<i32> = (0..n_max * used).map(|i| expert(i / used, i % used)).collect();
    // Scores by which just these are the best, in this order; what the others have is far below, and would win where no
    // factor is applied.
    let step = |row: usize, k: usize| -0.2 * k as f64 - 0.01 * ((row * 5 + k * 3) % 7) as f64;
    // A row alone has something where only its scores are.
    let place = |row: usize| (row * 13 + 5) % hidden;
    let mut router = vec![0f32; (count + 1) * hidden];
    (0..n_max * n_max)
        .for_each(|i| old[i / n_max * hidden + place(i % n_max)] = f32::from(u8::from(i / n_max == i % n_max)));
    let mut gates = vec![0f64; n_max * (used + 1)];
    for row in 0..n_max {
        let gates = &mut gates[row * (used + 1)..][..=used];
        // Half a score in the weights: the norm's weight is 2.
        let mut score = |e: usize, score: f64| router[e * hidden + place(row)] = (0.5 * score / factors[row]) as f32;
        (0..count).for_each(|e| score(e, -40.0 - 0.1 * (e % 5) as f64));
        (0..used).for_each(|k| score((row * 3 + k * 7) % count, step(row, k)));
        score(count, 0.3);
        let weight = |score: f64| if experts.sigmoid() { 1.0 / (1.0 + (-score).exp()) } else { score.exp() };
        let raised: Vec<f64> = (0..left(row)).map(|k| weight(step(row, k))).collect();
        (0..left(row)).for_each(|k| gates[k] = raised[k] / raised.iter().sum::<f64>());
        gates[used] = 1.0 / (1.0 + (-0.3f64).exp());
    }
    let cut =
        |row: usize| (left(row) < used).then(|| ExpertCut { min: left(row) as u32, max: left(row) as u32, mass: 1.0 });
    let words: Vec<i32> = (0..n_max).flat_map(|row| cut_words(cut(row).as_ref())).collect();
    let slots: Vec<i32> = (0..n_max).map(|row| if row == none { -1 } else { row as i32 }).collect();
    let (codes, meta) = (stream.clone_htod(&y.codes)?, stream.clone_htod(y.meta.as_flattened())?);
    let (d_squares, d_router) = (stream.clone_htod(&squares)?, stream.clone_htod(&router)?);
    let router_norm = stream.clone_htod(&vec![2f32; hidden])?;
    // Equal ones change no choice, and would show in the weights.
    let equal_biases = stream.clone_htod(&vec![0.5f32; count])?;
    let random_biases = stream.clone_htod(&random.vector(count))?;
    let (d_words, d_slots) = (stream.clone_htod(&words)?, stream.clone_htod(&slots)?);
    let tiling = experts::tiling(experts, Chip::of(&gpu.device)).expect("enough shared memory");
    let kernels = ExpertsKernels::load(&gpu.device, &gpu.cache, experts, tiling)?;
    type Run = (Stream, QuantizedRows, QuantizedRows, Vec<i32>);
    type Values = cudarc::driver::CudaSlice<f32>;
    let run = |(router, bias): (&Values, &Values), first: usize, n: usize| -> Result<Run, Box<dyn Error>> {
        let stale = |pair: usize| if expert(first + pair / used, pair % used) < 0 { f32::NAN } else { 0.0 };
        let [h_codes, s_codes] = [h_cols, shared_cols].map(|cols| cols * planes.count());
        let h_meta: Vec<f32> = (0..n * used).flat_map(|pair| std::iter::repeat_n(stale(pair), h_codes / 16)).collect();
        let mut h = (stream.clone_htod(&vec![0i8; n * used * h_codes])?, stream.clone_htod(&h_meta)?);
        let mut s = (stream.clone_htod(&vec![0i8; n * s_codes])?, stream.clone_htod(&vec![0f32; n * s_codes / 16])?);
        let (mut d_chosen, tally) = (stream.clone_htod(&vec![-9; n * used])?, stream.clone_htod(&[0u32])?);
        let result =
            with_stream(gpu, &old[first * hidden..(first + n) * hidden], (hidden, planes), &weight, |x, next| {
                let (words, counted) = (d_words.slice(2 * first..), tally.as_view());
                let cuts = Some(Cuts { words: &words, tally: &counted });
                let (slots, shared_gate) = (d_slots.slice(first..), router.slice(count * hidden..));
                let bias = bias.as_view();
                let weights = LayerWeights {
                    norm: &router_norm.as_view(),
                    experts: &router.as_view(),
                    shared_gate: &shared_gate,
                    bias: experts.sigmoid().then_some(&bias),
                    eps: EPS,
                };
                let soon = d_gate_up.0.as_view();
                let routing =
                    Routing { weights, slots: &slots, cuts, chosen: &mut d_chosen.as_view_mut(), given: None };
                let y = Activations {
                    codes: &codes.slice(first * codes_each..),
                    meta: &meta.slice(first * codes_each / 16..),
                    lora: None,
                };
                let norm = Norm { squares: &d_squares.slice(first * hidden / 32..), eps: EPS };
                let between = ExpertRows {
                    codes: &mut h.0.as_view_mut(),
                    meta: &mut h.1.as_view_mut(),
                    shared_codes: &mut s.0.as_view_mut(),
                    shared_meta: &mut s.1.as_view_mut(),
                    lora: None,
                };
                let gate_up = Matrices {
                    routed: Stack::Packed(d_gate_up.0.as_view()),
                    shared: &d_gate_up.1.as_view(),
                    factors: [1.0; 2],
                };
                let down = Matrices {
                    routed: Stack::Packed(d_down.0.as_view()),
                    shared: &d_down.1.as_view(),
                    factors: FACTORS,
                };
                kernels.launch(&gpu.device, gate_up, down, routing, y, norm, n, between, x, next, &soon)
            })?;
        let kept: usize = (first..first + n).filter(|row| *row != none && left(*row) < used).map(left).sum();
        assert!(stream.clone_dtoh(&tally)?[0] as usize == kept, "{experts:?}: experts counted");
        let rows = |codes, meta: Vec<f32>| QuantizedRows { codes, meta: pairs(&meta), planes };
        let h = rows(stream.clone_dtoh(&h.0)?, stream.clone_dtoh(&h.1)?);
        Ok((result, h, rows(stream.clone_dtoh(&s.0)?, stream.clone_dtoh(&s.1)?), stream.clone_dtoh(&d_chosen)?))
    };
    let (got, h, s, taken) = run((&d_router, &equal_biases), 0, n_max)?;
    assert!(taken == chosen, "{experts:?}: other experts");
    let real = || (0..n_max).filter(|row| *row != none);
    for row in real() {
        for p in (0..left(row)).chain([used]) {
            let (side, e, rows, index, width, cols) = if p < used {
                (&routed, chosen[row * used + p] as usize, &h, row * used + p, width, h_cols)
            } else {
                (&shared, 0, &s, row, shared_width, shared_cols)
            };
            for block in 0..width / 32 {
                let want: Vec<(f64, f64)> =
                    (block * 32..block * 32 + 32).map(|j| side.hidden(e, j, &y, row, factors[row])).collect();
                let at = index * cols / 32 + block;
                assert!(
                    is_int8_form(rows, at, &want),
                    "{experts:?} row {row} expert {p} block {block}: {:?} {:?} for {want:?}",
                    rows.values(at),
                    rows.error_max(at)
                );
            }
        }
    }
    let off = real().flat_map(|row| (0..hidden).map(move |r| (row, r))).map(|(row, r)| {
        let (mut want, mut size) = (f64::from(old[row * hidden + r]), 0.0);
        for k in (0..left(row)).chain([used]) {
            let (dot, dot_size) = if k < used {
                routed.down[chosen[row * used + k] as usize].dot(r, &h, row * used + k)
            } else {
                shared.down[0].dot(r, &s, row)
            };
            let gate = gates[row * (used + 1) + k] * f64::from(FACTORS[usize::from(k == used)]);
            (want, size) = (want + gate * dot, size + gate.abs() * dot_size);
        }
        let got = f64::from(got.x[row * hidden + r]);
        ((got - want).abs() / (size * (TOLERANCE + GATE_TOLERANCE) + 1e-7 * got.abs())) as f32
    });
    let worst = worst_ratio(off);
    assert!(worst <= 1.0, "{experts:?}: {worst} times the tolerance");
    got.check("experts", hidden, &weight, real());
    let untouched = got.row(none, hidden);
    assert!(
        untouched.0 == &old[none * hidden..][..hidden] && untouched.1.iter().all(|c| *c == 99),
        "a row that is none was written"
    );
    for n in [1, 2, 3, 8, 9, 16] {
        for first in [0, 3] {
            let part = run((&d_router, &equal_biases), first, n)?;
            for row in (first..first + n).filter(|row| *row != none) {
                assert!(
                    part.0.row(row - first, hidden) == got.row(row, hidden),
                    "{experts:?}: row {row} differs among {n}"
                );
            }
        }
    }
    // Scores are the router's, to the bit, however many rows there are: of random ones the same are the best.
    let d_random = stream.clone_htod(&random.vector((count + 1) * hidden))?;
    let d_old = stream.clone_htod(&old)?;
    let shape = router::RouterShape { cols: hidden, experts: count, used, sigmoid: experts.sigmoid() };
    for n in [1, 4, 8, 16] {
        let tally = stream.clone_htod(&[0u32])?;
        let (words, tally) = (d_words.as_view(), tally.as_view());
        let (slots, x, squares) = (d_slots.as_view(), d_old.as_view(), d_squares.as_view());
        let rows = router::RouterRows {
            count: n,
            slots: &slots,
            x: &x,
            squares: &squares,
            cuts: Some(Cuts { words: &words, tally: &tally }),
        };
        let (norm, experts_of, gate) = (router_norm.as_view(), d_random.as_view(), d_random.slice(count * hidden..));
        let bias = random_biases.as_view();
        let bias = experts.sigmoid().then_some(&bias);
        let layer = LayerWeights { norm: &norm, experts: &experts_of, shared_gate: &gate, bias, eps: EPS };
        let same = run((&d_random, &random_biases), 0, n)?.3 == choices_of_the_router(gpu, shape, rows, layer)?;
        assert!(same, "{experts:?}: others than the router's, {n} rows");
    }
    println!("experts {experts:?}: {worst:.2} of tolerance, alone = in a batch");
    Ok(())
}

/// What the router's own launch for few rows chooses.
fn choices_of_the_router(
    gpu: &Gpu,
    shape: router::RouterShape,
    rows: router::RouterRows<'_>,
    layer: LayerWeights<'_>,
) -> Result<Vec<i32>, Box<dyn Error>> {
    let stream = gpu.device.stream();
    let router = Router::load(&gpu.device, &gpu.cache, shape)?;
    let mut work = router.workspace(&gpu.device, rows.count)?;
    let mut experts = stream.alloc_zeros::<i32>(rows.count * shape.used)?;
    let mut gates = stream.alloc_zeros::<f32>(rows.count * (shape.used + 1))?;
    let choice = router::ChosenExperts { experts: &mut experts.as_view_mut(), gates: &mut gates.as_view_mut() };
    router.launch(&gpu.device, &mut work, Variant::Few, rows, layer, choice, None)?;
    Ok(stream.clone_dtoh(&experts)?)
}
