//! Gated and squared products of few rows against their definition, and byte for byte as the kernel for many rows makes
//! them in the same order of sums.

use crate::support::{Gpu, H200, Outcome, Test, pairs};
use chimere_kernels::cuda::product::layout::Layout;
use chimere_kernels::cuda::product::sample::{LAYOUTS, Matrix, Random};
use chimere_kernels::cuda::product::{
    self, Activated, ActivatedRows, Activations, Epilogue, MatrixShape, Norm, ProductTiling,
};
use chimere_kernels::cuda::quantized::{BLOCK, Planes, QuantizedRows};
use chimere_kernels::cuda::wide::{self, Columns, Inputs, Order, Output, Wide, WideShape};
use chimere_kernels::cuda::{CudaError, Program};
use cudarc::driver::{CudaSlice, CudaView, CudaViewMut};
use std::error::Error;

/// How far sums in f32 may lie from the exact ones, as a part of the sum of magnitudes.
const TOLERANCE: f64 = 4e-7;
/// How far a value may be off by the norm's factor, exponentials and divisions.
const VALUE_TOLERANCE: f64 = 4e-6;
const EPS: f32 = 1e-6;
const FACTOR: f32 = 0.5;
/// Rows of activations: more than one launch takes.
const ROWS: usize = 19;
/// Values that rows lie further apart than they are long.
const GAP: usize = 64;

/// A matrix and what is made of its sums.
struct Case {
    shape: WideShape,
    tilings: Vec<(usize, ProductTiling)>,
}

/// Every layout as is chosen, and some in blocks of four tiles of two warps each, and of eight tiles of which the last
/// block has half. The last matrix is large enough to be given two warps a tile.
fn cases() -> Vec<Case> {
    let tile = |warps_k, tiles| ProductTiling { warps_k, tiles, cluster: 1, depth: 1, registers: 80 };
    let mut all = Vec::new();
    let sizes = [
        (Epilogue::Gated, 192, 512, Some(480)),
        (Epilogue::Squared, 160, 512, Some(480)),
        (Epilogue::Rounded, 160, 512, Some(480)),
    ];
    let large = [(Layout::Q8_0, Epilogue::Gated, 8512, 256, None)];
    let of_layouts = LAYOUTS.into_iter().flat_map(|l| sizes.map(|(e, rows, cols, norm)| (l, e, rows, cols, norm)));
    for (layout, epilogue, rows, cols, norm) in of_layouts.chain(large) {
        for planes in Planes::ALL {
            let matrix = MatrixShape::new(layout, rows, cols).expect("legal").with_planes(planes);
            let shape = WideShape::new(matrix, epilogue, norm, true).expect("legal");
            let chosen = Activated::tilings(matrix, epilogue, H200.multiprocessors);
            all.push(Case { shape, tilings: chosen });
            if planes == Planes::One && matches!(layout, Layout::Q8_0 | Layout::Q5_0 | Layout::IQ3_S) {
                let others = [tile(2, 4), tile(1, 8)].map(|t| product::COLUMNS.map(|c| (c, t)).to_vec());
                all.extend(others.map(|tilings| Case { shape, tilings }));
            }
        }
    }
    all
}

impl Case {
    /// The kernel for many rows whose sums have the same order.
    fn wide(&self) -> wide::WideTiling {
        let order = Order { segments: self.tilings[0].1.warps_k, by_halves: false };
        wide::tiling_in(order, self.shape, ROWS, H200)
    }

    fn programs(&self) -> Result<Vec<Program>, CudaError> {
        let (matrix, epilogue, norm) = (self.shape.matrix(), self.shape.epilogue(), self.shape.norm());
        let few = self.tilings.iter().map(|(c, t)| Activated::program(matrix, epilogue, norm, *c, *t));
        Ok(few.chain([wide::program(self.shape, self.wide())?]).collect())
    }

    fn values(&self) -> usize {
        let rows = self.shape.matrix().size().0;
        if self.shape.epilogue() == Epilogue::Gated { rows / 2 } else { rows }
    }
}

/// What the tests load.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    Ok(cases().iter().map(Case::programs).collect::<Result<Vec<_>, _>>()?.concat())
}

/// The tests of this file by their names, as `main` lists and filters them.
pub(crate) const TESTS: &[Test] =
    &[("activated::gated_and_squared_products_are_the_definition_s_and_those_of_many_rows", every_case)];

fn every_case(gpu: &Gpu) -> Outcome {
    for case in cases() {
        let worst = Bench::of(gpu, &case)?.check()?;
        let (matrix, tiling) = (case.shape.matrix(), case.tilings[0].1);
        let (layout, size, planes) = (matrix.layout(), matrix.size(), matrix.planes());
        let epilogue = case.shape.epilogue();
        println!("{epilogue:?} {layout:?} {size:?} {planes:?} {tiling:?}: {worst:.2} of tolerance, as many rows");
    }
    Ok(())
}

/// A case with random data, here and on the device.
struct Bench<'a> {
    gpu: &'a Gpu,
    case: &'a Case,
    few: Activated,
    many: Wide,
    matrix: Matrix,
    x: QuantizedRows,
    squares: Vec<f32>,
    weights: CudaSlice<u8>,
    codes: CudaSlice<i8>,
    meta: CudaSlice<f32>,
    d_squares: CudaSlice<f32>,
}

/// Codes and what stands beside them, to be written.
type Views<'a, 'b> = (&'a mut CudaViewMut<'b, i8>, &'a mut CudaViewMut<'b, f32>);

/// Rows of activations on the device.
struct Given<'a> {
    codes: &'a CudaView<'a, i8>,
    meta: &'a CudaView<'a, f32>,
    squares: &'a CudaView<'a, f32>,
}

impl<'a> Bench<'a> {
    fn of(gpu: &'a Gpu, case: &'a Case) -> Result<Self, Box<dyn Error>> {
        let (device, cache, shape) = (&gpu.device, &gpu.cache, case.shape);
        let (matrix, (rows, cols)) = (shape.matrix(), shape.matrix().size());
        let few = Activated::load_tiled(device, cache, matrix, shape.epilogue(), shape.norm(), &case.tilings)?;
        let mut random = Random(21);
        let value = |i: usize, random: &mut Random| random.signed() * 10f32.powi((i / 32 % 5) as i32 - 2);
        let values: Vec<f32> = (0..ROWS * cols).map(|i| value(i, &mut random)).collect();
        let x = QuantizedRows::of(&values, matrix.planes());
        // So that gates come where silu is neither linear nor one-sided.
        let squares: Vec<f32> = random.vector(ROWS * cols / 32).into_iter().map(|v| 5e5 * v.abs() + 1.0).collect();
        let (stream, matrix) = (device.stream(), Matrix::random(matrix.layout(), rows, cols, 6));
        Ok(Self {
            gpu,
            case,
            few,
            many: Wide::load(device, cache, shape, case.wide())?,
            weights: stream.clone_htod(&matrix.packed())?,
            codes: stream.clone_htod(&x.codes)?,
            meta: stream.clone_htod(x.meta.as_flattened())?,
            d_squares: stream.clone_htod(&squares)?,
            matrix,
            x,
            squares,
        })
    }

    /// What `launch` leaves for `n` rows from `first` on; it is given what it reads and where to write.
    fn written(
        &self,
        (first, n): (usize, usize),
        launch: impl FnOnce(Given<'_>, Views<'_, '_>) -> Result<(), CudaError>,
    ) -> Result<QuantizedRows, Box<dyn Error>> {
        let (stream, planes) = (self.gpu.device.stream(), self.x.planes);
        let (codes_each, blocks) = (self.x.codes.len() / ROWS, self.blocks());
        let mut codes = stream.clone_htod(&vec![99i8; n * self.stride() * planes.count()])?;
        let mut meta = stream.clone_htod(&vec![f32::NAN; codes.len() / 16])?;
        let given = Given {
            codes: &self.codes.slice(first * codes_each..),
            meta: &self.meta.slice(first * codes_each / 16..),
            squares: &self.d_squares.slice(first * blocks..),
        };
        launch(given, (&mut codes.as_view_mut(), &mut meta.as_view_mut()))?;
        Ok(QuantizedRows { codes: stream.clone_dtoh(&codes)?, meta: pairs(&stream.clone_dtoh(&meta)?), planes })
    }

    fn few(&self, first: usize, n: usize) -> Result<QuantizedRows, Box<dyn Error>> {
        let normed = self.case.shape.norm().is_some();
        self.written((first, n), |given, (out_codes, out_meta)| {
            let norm = normed.then_some(Norm { squares: given.squares, eps: EPS });
            let out = ActivatedRows { codes: out_codes, meta: out_meta, stride: self.stride(), factor: FACTOR };
            let x = Activations { codes: given.codes, meta: given.meta, lora: None };
            self.few.launch(&self.gpu.device, &self.weights.as_view(), x, norm, n, out)
        })
    }

    fn many(&self) -> Result<QuantizedRows, Box<dyn Error>> {
        self.written((0, ROWS), |given, (out_codes, out_meta)| {
            let Given { codes, meta, squares } = given;
            let x = Inputs { codes, meta, squares: Some(squares), eps: EPS, factor: FACTOR, lora: None };
            let out = Output::Activated { codes: out_codes, meta: out_meta, stride: self.stride() };
            // SAFETY: the columns are not listed.
            unsafe { self.many.launch(&self.gpu.device, &self.weights.as_view(), x, Columns::First(ROWS), out) }
        })
    }

    fn stride(&self) -> usize {
        self.case.values() + GAP
    }

    /// Squares of a row.
    fn blocks(&self) -> usize {
        self.case.shape.norm().unwrap_or(0) / BLOCK
    }

    /// How much of the tolerance the worst value takes.
    fn check(&self) -> Result<f64, Box<dyn Error>> {
        let all = self.few(0, ROWS)?;
        let mut worst = 0f64;
        for c in 0..ROWS {
            self.is_alone(&all, c, &self.few(c, 1)?, 0);
            let step = if c < 2 { 1 } else { 5 };
            for b in (0..self.case.values() / BLOCK).step_by(step) {
                worst = worst.max(self.compare(&all, c, b));
            }
        }
        for n in [2, 3, 4, 5, 6, 7, 8, 9] {
            let some = self.few(0, n)?;
            (0..n).for_each(|c| self.is_alone(&all, c, &some, c));
        }
        let many = self.many()?;
        (0..ROWS).for_each(|c| self.is_alone(&all, c, &many, c));
        Ok(worst)
    }

    /// That column `c` of one launch has the bytes of column `d` of another, whose gap is as it was.
    fn is_alone(&self, a: &QuantizedRows, c: usize, b: &QuantizedRows, d: usize) {
        let (each, own) = (self.stride() * a.planes.count(), self.case.values() * a.planes.count());
        let codes = |rows: &QuantizedRows, c: usize| rows.codes[c * each..][..own].to_vec();
        let meta = |rows: &QuantizedRows, c: usize| {
            let pairs = &rows.meta[c * each / BLOCK..][..own / BLOCK];
            pairs.as_flattened().iter().map(|m| m.to_bits()).collect::<Vec<_>>()
        };
        let what = format!("{:?} {:?}: column {c}", self.case.shape, self.case.tilings[0].1);
        assert!(codes(a, c) == codes(b, d) && meta(a, c) == meta(b, d), "{what} has other bytes elsewhere");
        assert!(b.codes[d * each..][own..each].iter().all(|code| *code == 99), "{what} writes beyond its values");
    }

    /// Block `b` of column `c`: how much of the tolerance its worst value takes.
    fn compare(&self, got: &QuantizedRows, c: usize, b: usize) -> f64 {
        let block = c * self.stride() / BLOCK + b;
        for plane in block * got.planes.count()..(block + 1) * got.planes.count() {
            let sum: i32 = got.block(plane).iter().map(|code| i32::from(*code)).sum();
            assert!(got.meta[plane][1] == sum as f32, "{:?}: sum of block {b}", self.case.shape);
        }
        let mut worst = 0f64;
        for (i, value) in got.values(block).iter().enumerate() {
            let (want, off) = self.want(b * BLOCK + i, c);
            let ratio = (value - want).abs() / (1.002 * got.error_max(block) + off);
            assert!(ratio <= 1.0, "{:?} column {c} block {b}: {value} for {want}", self.case.shape);
            worst = worst.max(ratio);
        }
        worst
    }

    /// The definition of value `j` for row `c`, and how far off it may be.
    fn want(&self, j: usize, c: usize) -> (f64, f64) {
        let factor = f64::from(FACTOR) * self.norm_factor(c);
        let dot = |row: usize| {
            let (dot, size) = self.matrix.dot(row, &self.x, c);
            (dot * factor, size * factor * TOLERANCE)
        };
        if self.case.shape.epilogue() == Epilogue::Squared {
            let (up, off) = dot(j);
            let up = up.max(0.0);
            return (up * up, (2.0 * up + off) * off + VALUE_TOLERANCE * up * up);
        }
        if self.case.shape.epilogue() == Epilogue::Rounded {
            return dot(j);
        }
        let at = j / 8 * 16 + j % 8;
        let ((gate, gate_off), (up, up_off)) = (dot(at), dot(at + 8));
        let silu = gate / (1.0 + (-gate).exp());
        (silu * up, 1.2 * gate_off * up.abs() + up_off * silu.abs() + VALUE_TOLERANCE * (silu * up).abs())
    }

    fn norm_factor(&self, c: usize) -> f64 {
        let blocks = self.blocks();
        if blocks == 0 {
            return 1.0;
        }
        let sum: f64 = self.squares[c * blocks..][..blocks].iter().map(|s| f64::from(*s)).sum();
        (sum / (blocks * BLOCK) as f64 + f64::from(EPS)).sqrt().recip()
    }
}
