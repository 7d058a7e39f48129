//! Products of many columns against the definition, alone and among others.

mod one_order;

use crate::support::{Gpu, Outcome, Test, f16, f16_bits, few_cases, in_order_of_values, of_f16_bits, pairs};
use chimere_kernels::cuda::product::layout::Layout;
use chimere_kernels::cuda::product::sample::{LAYOUTS, Matrix, Random};
use chimere_kernels::cuda::product::{self, Activations, Norm};
use chimere_kernels::cuda::quantized::{Planes, QuantizedRows};
use chimere_kernels::cuda::wide::halves::{HIDDEN_FACTOR, HalfRows, Halves};
use chimere_kernels::cuda::wide::{
    Columns, Epilogue, HalfPlace, Inputs, Many, Order, Output, Source, Wide, WideArithmetic, WideShape, WideTiling,
    warpgroup,
};
use chimere_kernels::cuda::{CudaError, Program};
use cudarc::driver::CudaSlice;
use std::error::Error;
use std::rc::Rc;

/// Every way to share work at least once: among groups, blocks of a cluster, warps along rows and columns.
const CHECKED: [WideTiling; 3] = [
    WideTiling {
        tiles: 1,
        warps_rows: 4,
        octets: 1,
        warps_columns: 1,
        groups: 1,
        units: 2,
        split: 1,
        stages: 3,
        order: None,
    },
    WideTiling {
        tiles: 2,
        warps_rows: 2,
        octets: 4,
        warps_columns: 2,
        groups: 2,
        units: 1,
        split: 1,
        stages: 3,
        order: None,
    },
    WideTiling {
        tiles: 2,
        warps_rows: 4,
        octets: 2,
        warps_columns: 1,
        groups: 1,
        units: 1,
        split: 2,
        stages: 2,
        order: None,
    },
];
/// Activation rows with very different magnitudes.
fn activations(rows: usize, cols: usize, planes: Planes, random: &mut Random) -> QuantizedRows {
    let values: Vec<f32> = (0..rows * cols).map(|i| random.signed() * 10f32.powi((i / 32 % 5) as i32 - 2)).collect();
    QuantizedRows::of(&values, planes)
}

const EPS: f32 = 1e-6;

fn shape(layout: Layout, rows: usize, cols: usize, epilogue: Epilogue, norm: Option<usize>, dense: bool) -> WideShape {
    let matrix = product::MatrixShape::new(layout, rows, cols).expect("legal");
    WideShape::new(matrix, epilogue, norm, dense).expect("legal")
}

struct Checked {
    shape: WideShape,
    form: WideArithmetic,
}

/// Multiprocessors of the chip that few rows in f16 are for.
const HOPPER_MULTIPROCESSORS: usize = 132;

/// What may be off in f16, which rounds a scale, a weight (and a minimum) and a value, each by 2^-11 at most.
const HALF_TOLERANCE: f64 = 1.5e-3;

/// What may be off, in shares of the sum of the products' magnitudes.
fn tolerance(form: WideArithmetic) -> f64 {
    match form {
        WideArithmetic::Int8(_) => 6e-7,
        WideArithmetic::F16(_) => HALF_TOLERANCE,
    }
}

/// In f16: every number of warpgroups, of columns in which the 75 of the tests come out even or not, every layout and
/// every epilogue.
fn in_halves() -> Vec<Checked> {
    let tiling = |groups, tiles, columns| warpgroup::WarpgroupTiling {
        groups,
        tiles,
        columns,
        stages: 3,
        turns: 0,
        segments: 1,
    };
    let mut all = Vec::new();
    for layout in LAYOUTS {
        let sizes = [
            (72, 256, tiling(1, 1, 32)),
            (1000, 768, tiling(2, 1, 64)),
            (520, 640, tiling(2, 2, 128)),
            (300, 896, tiling(4, 1, 64)),
            (264, 384, tiling(4, 1, 128)),
        ];
        for ((rows, cols, mut tiling), dense) in sizes.into_iter().flat_map(|s| [(s, true), (s, false)]) {
            if dense {
                // Four warpgroups are for lists alone, columns that are no power of two for all others.
                tiling.groups = tiling.groups.min(2);
                tiling.columns = if tiling.columns == 64 { 96 } else { tiling.columns };
            }
            let shape = shape(layout, rows, cols, Epilogue::Plain, Some(128), dense);
            // Three stages of so many weights of 16 bits may have no room.
            if layout != Layout::W16 || tiling.check(shape).is_ok() {
                all.push(Checked { shape, form: WideArithmetic::F16(tiling) });
            }
        }
    }
    for layout in [Layout::Q8_0, Layout::Q4_K, Layout::IQ3_S] {
        let ways =
            [(192, tiling(1, 2, 64)), (192, tiling(2, 1, 128)), (320, tiling(2, 2, 64)), (320, tiling(3, 1, 128))];
        for (rows, tiling) in ways {
            let epilogues = [
                (Epilogue::Gated, false),
                (Epilogue::Residual, true),
                (Epilogue::Squared, false),
                (Epilogue::Squared, true),
                (Epilogue::Rounded, true),
            ];
            // Three warpgroups are for columns that lie beside one another.
            for (epilogue, dense) in epilogues.into_iter().filter(|e| e.1 || tiling.groups != 3) {
                let shape = shape(layout, rows, 512, epilogue, Some(480), dense);
                all.push(Checked { shape, form: WideArithmetic::F16(tiling) });
            }
        }
    }
    all.extend(half_rows());
    all
}

/// What is made of such products at once: rows of f16.
fn half_rows() -> impl Iterator<Item = Checked> {
    let tiling = |groups, tiles, columns, turns| warpgroup::WarpgroupTiling {
        groups,
        tiles,
        columns,
        stages: 3,
        turns,
        segments: 1,
    };
    let of = move |(layout, cols, epilogue, tiling)| {
        let shape = shape(layout, 512, cols, epilogue, Some(384), false).with_half_rows(true);
        Checked { shape, form: WideArithmetic::F16(tiling) }
    };
    [
        (Layout::Q4_K, 512, Epilogue::Gated, tiling(1, 2, 32, 0)),
        (Layout::IQ3_S, 512, Epilogue::Gated, tiling(2, 1, 64, 0)),
        (Layout::Q8_0, 512, Epilogue::Squared, tiling(2, 1, 64, 0)),
        (Layout::Q4_K, 512, Epilogue::Squared, tiling(4, 1, 128, 0)),
        (Layout::Q4_K, 768, Epilogue::Gated, tiling(4, 1, 128, 2)),
        (Layout::Q8_0, 384, Epilogue::Gated, tiling(4, 1, 128, 1)),
        (Layout::Q6_K, 640, Epilogue::Gated, tiling(4, 1, 128, 1)),
    ]
    .map(of)
    .into_iter()
}

fn checked() -> Vec<Checked> {
    let mut all = Vec::new();
    for layout in LAYOUTS {
        for tiling in CHECKED {
            for (rows, cols) in [(40, 256), (1000, 768)] {
                all.push(Checked {
                    shape: shape(layout, rows, cols, Epilogue::Plain, None, true),
                    form: WideArithmetic::Int8(tiling),
                });
            }
        }
    }
    for layout in LAYOUTS {
        let shape = shape(layout, 1000, 768, Epilogue::Plain, None, true).with_planes(Planes::Two);
        all.push(Checked { shape, form: WideArithmetic::Int8(CHECKED[1]) });
    }
    // Of IQ3_S, tiles of 512 inputs begin at odd multiples of 64 bytes.
    for layout in [Layout::Q8_0, Layout::Q4_K, Layout::IQ3_S] {
        for tiling in CHECKED {
            for planes in Planes::ALL {
                let (gated, residual) = ((192, 512, Epilogue::Gated, false), (96, 512, Epilogue::Residual, true));
                let squared = [true, false].map(|dense| (160, 512, Epilogue::Squared, dense));
                let rounded = (160, 512, Epilogue::Rounded, true);
                for (rows, cols, epilogue, dense) in [gated, residual, rounded].into_iter().chain(squared) {
                    all.push(Checked {
                        shape: shape(layout, rows, cols, epilogue, Some(480), dense).with_planes(planes),
                        form: WideArithmetic::Int8(tiling),
                    });
                }
            }
        }
    }
    all
}

/// What the tests load.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    let mut all: Vec<Program> = Vec::new();
    for case in checked() {
        all.extend(case.form.programs(case.shape)?);
    }
    Ok(all)
}

/// What the tests of f16 load, on the one architecture that has it.
pub(crate) fn half_programs() -> Result<Vec<Program>, CudaError> {
    let mut all: Vec<Program> = Vec::new();
    for case in in_halves().into_iter().chain(tilings().into_iter().flatten()) {
        all.extend(case.form.programs(case.shape)?);
    }
    for (shape, tiling) in one_order::few_in_halves(HOPPER_MULTIPROCESSORS) {
        all.extend(WideArithmetic::F16(tiling).programs(shape)?);
        all.extend(product::halves::programs(shape.matrix(), shape.norm(), HOPPER_MULTIPROCESSORS));
    }
    all.extend(staged_programs()?);
    Ok(all)
}

/// A test of a product whose stages are fed by warps of their own, and how many warps its blocks have.
pub(crate) const STAGED: &str = "wide::fed_stages_give_the_bytes_of_few_rows";
pub(crate) const STAGED_WARPS: u32 = 8;

/// What that test loads.
pub(crate) fn staged_programs() -> Result<Vec<Program>, CudaError> {
    let (shape, tiling) = one_order::staged(HOPPER_MULTIPROCESSORS);
    let mut all = WideArithmetic::F16(tiling).programs(shape)?;
    all.extend(product::halves::programs(shape.matrix(), shape.norm(), HOPPER_MULTIPROCESSORS));
    Ok(all)
}

/// The tests of this file by their names, as `main` lists and filters them.
pub(crate) const TESTS: &[Test] = &[
    ("wide::columns_are_the_definition_s_and_the_same_alone", every_layout),
    ("wide::columns_in_f16_are_near_the_definition_s_and_the_same_alone", every_layout_in_halves),
    (STAGED, one_order::staged_as_few),
    ("wide::few_rows_in_f16_have_the_bytes_of_many", one_order::few_rows_in_halves),
    ("wide::listed_columns_have_the_same_bytes_in_any_tiles", any_tiles),
    ("wide::sums_in_order_are_those_of_the_kernels_for_few_rows", one_order::in_order),
];

/// Every way to share work with every layout, and every epilogue.
fn every_layout(gpu: &Gpu) -> Outcome {
    check_all(gpu, checked())
}

fn every_layout_in_halves(gpu: &Gpu) -> Outcome {
    if gpu.device.arch().has_warpgroups() {
        return check_all(gpu, in_halves());
    }
    println!("skipped: {} has no matrix instructions of warpgroups", gpu.device.arch());
    Ok(())
}

/// What is listed, in every way in which it is cut up.
fn tilings() -> Vec<Vec<Checked>> {
    let ways =
        [(4, 1, 128), (2, 1, 128), (4, 1, 64), (2, 1, 64), (1, 1, 64), (2, 1, 32), (1, 1, 32), (1, 2, 32), (2, 2, 32)];
    let tiling = |(groups, tiles, columns)| {
        WideArithmetic::F16(warpgroup::WarpgroupTiling { groups, tiles, columns, stages: 3, turns: 0, segments: 1 })
    };
    let mut all = Vec::new();
    for (layout, rows, epilogue, norm) in [
        (Layout::Q4_K, 1024, Epilogue::Gated, Some(512)),
        (Layout::Q8_0, 2040, Epilogue::Plain, None),
        (Layout::Q5_0, 928, Epilogue::Squared, Some(512)),
        (Layout::IQ3_S, 1000, Epilogue::Plain, None),
    ] {
        let shape = shape(layout, rows, 512, epilogue, norm, false);
        all.push(ways.map(|way| Checked { shape, form: tiling(way) }).into());
    }
    // And with columns that go through several blocks of rows, those of few inputs kept.
    for (layout, rows, cols, turns, stages, epilogue) in [
        (Layout::Q4_K, 2048, 512, 4, 3, Epilogue::Plain),
        (Layout::Q8_0, 512, 384, 2, 2, Epilogue::Plain),
        (Layout::Q6_K, 768, 128, 3, 3, Epilogue::Plain),
        (Layout::IQ3_S, 512, 256, 1, 4, Epilogue::Plain),
        (Layout::Q5_K, 512, 768, 2, 3, Epilogue::Plain),
        (Layout::Q4_K, 1024, 2048, 4, 4, Epilogue::Gated),
        (Layout::IQ3_S, 1024, 1024, 2, 3, Epilogue::Gated),
        (Layout::Q8_0, 512, 384, 1, 3, Epilogue::Gated),
    ] {
        let half_rows = epilogue == Epilogue::Gated;
        let shape = shape(layout, rows, cols, epilogue, half_rows.then_some(128), false).with_half_rows(half_rows);
        let in_turns = WideArithmetic::F16(warpgroup::WarpgroupTiling {
            groups: 4,
            tiles: 1,
            columns: 128,
            stages,
            turns,
            segments: 1,
        });
        let others = [(2, 1, 64), (1, 2, 32)].map(tiling);
        all.push(others.into_iter().chain([in_turns]).map(|form| Checked { shape, form }).collect());
    }
    all
}

/// How lists are cut up changes no byte. Slots are empty, or have fewer or more columns than a tile.
fn any_tiles(gpu: &Gpu) -> Outcome {
    if !gpu.device.arch().has_warpgroups() {
        println!("skipped: {} has no matrix instructions of warpgroups", gpu.device.arch());
        return Ok(());
    }
    let (mut slots, mut columns) = (Vec::new(), 0);
    for (s, count) in [0, 1, 5, 33, 2, 0, 8, 130, 17].into_iter().cycle().take(300).enumerate() {
        slots.extend([s as i32 % 3, columns, count, 0]);
        columns += count;
    }
    let rows: Vec<i32> = (0..columns).map(|c| (c * 7 + 3) % columns).collect();
    let listed = Listed { lists: [slots, rows.clone(), rows], pitch: 0, early: false };
    for cases in tilings() {
        let (rows, cols) = cases[0].shape.matrix().size();
        let mut random = Random(7);
        let matrices: Vec<Matrix> =
            (0..3).map(|e| Matrix::random(cases[0].shape.matrix().layout(), rows, cols, 30 + e).lowered()).collect();
        let x = activations(columns as usize, cols, Planes::One, &mut random);
        let squares: Vec<f32> =
            random.vector(columns as usize * cols / 32).into_iter().map(|v| v.abs() * 1e6).collect();
        let next = random.vector(rows);
        let bench = |case| Bench::of(gpu, case, &matrices, (&x, &squares), &next);
        let of = |case| bench(case)?.run(0, columns as usize, Some(&listed));
        let want = of(&cases[0])?;
        for case in &cases[1..] {
            assert!(of(case)? == want, "{case:?}: other bytes than those of {:?}", cases[0].form);
        }
        for case in cases.iter().filter(|case| case.shape.epilogue() == Epilogue::Plain) {
            let bench = bench(case)?;
            let got = bench.run_to(true, 0, columns as usize, Some(&listed))?;
            same_in_halves(&got, &want, rows, [bench.half_stride(), bench.stride()]);
        }
    }
    Ok(())
}

/// That f16 outputs are the others, rounded; rows of them are as far apart as `strides` say.
fn same_in_halves(got: &Written, want: &Written, rows: usize, strides: [usize; 2]) {
    let half = |at: usize| (got.values[at / 2] >> (at % 2 * 16)) as u16;
    for (column, want) in want.values.chunks_exact(strides[1]).enumerate() {
        for (r, want) in want[..rows].iter().enumerate() {
            let (got, want) = (half(column * strides[0] + r), f16_bits(f16(f32::from_bits(*want))));
            assert!(got == want, "column {column}, row {r}: f16 {got:#x} for {want:#x}");
        }
    }
}

fn check_all(gpu: &Gpu, cases: Vec<Checked>) -> Outcome {
    let step = if few_cases() { 7 } else { 1 };
    for case in cases.into_iter().step_by(step) {
        let worst = columns_are_the_definition_s_and_the_same_alone(gpu, &case)?;
        let matrix = case.shape.matrix();
        let (layout, size, planes) = (matrix.layout(), matrix.size(), matrix.planes());
        println!("wide {layout:?} {size:?} {planes:?} {:?}: {worst:.2} of tolerance, alone = in a batch", case.form);
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
    /// Rows of f16, `[rows, outputs]`, where the shape makes such.
    halves: Vec<u16>,
}

/// A kernel with the data of a check: three matrices if rows are listed, else one.
struct Bench<'a> {
    gpu: &'a Gpu,
    kernel: Many,
    epilogue: Epilogue,
    dense: bool,
    half_rows: bool,
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

/// Slots, rows and output rows of [`Columns::Listed`].
struct Listed {
    lists: [Vec<i32>; 3],
    pitch: usize,
    early: bool,
}

impl Listed {
    /// The first matrix with columns `0..n`.
    fn all(n: usize) -> Self {
        let rows: Vec<i32> = (0..n as i32).collect();
        Self { lists: [vec![0, 0, n as i32, 0], rows.clone(), rows], pitch: 0, early: false }
    }

    /// Copies the columns, each slot's from a multiple of `pitch` on. The entries between name no row.
    fn pitched(&self, pitch: usize) -> Self {
        let mut slots = self.lists[0].clone();
        let mut rows = [(); 2].map(|()| vec![i32::MAX / 2; slots.len() / 4 * pitch]);
        for (s, slot) in slots.chunks_exact_mut(4).enumerate() {
            let (first, count) = (slot[1] as usize, slot[2] as usize);
            for (to, from) in rows.iter_mut().zip(&self.lists[1..]) {
                to[s * pitch..][..count].copy_from_slice(&from[first..][..count]);
            }
            slot[1] = (s * pitch) as i32;
        }
        let [in_rows, out_rows] = rows;
        Self { lists: [slots, in_rows, out_rows], pitch, early: self.early }
    }
}

impl<'a> Bench<'a> {
    /// With `x`, and the sums of its rows' squares.
    fn of(
        gpu: &'a Gpu,
        case: &Checked,
        matrices: &[Matrix],
        (x, squares): (&QuantizedRows, &[f32]),
        next: &[f32],
    ) -> Result<Self, Box<dyn Error>> {
        let (stream, shape) = (gpu.device.stream(), case.shape);
        let ((rows, cols), planes) = (shape.matrix().size(), shape.matrix().planes());
        let values = x.codes.len() / planes.count();
        let place = Rc::new(HalfPlace::new(HalfRows::new(&gpu.device, values / cols, values)?));
        Ok(Self {
            gpu,
            kernel: Many::load(&gpu.device, &gpu.cache, shape, case.form, &place)?,
            epilogue: shape.epilogue(),
            dense: shape.dense(),
            half_rows: shape.makes_half_rows(),
            rows,
            cols,
            planes,
            weights: stream.clone_htod(&matrices.iter().flat_map(Matrix::packed).collect::<Vec<u8>>())?,
            codes: stream.clone_htod(&x.codes)?,
            meta: stream.clone_htod(x.meta.as_flattened())?,
            squares: stream.clone_htod(squares)?,
            norm: shape.norm().unwrap_or(0),
            next: stream.clone_htod(next)?,
        })
    }

    fn outputs(&self) -> usize {
        if self.epilogue == Epilogue::Gated { self.rows / 2 } else { self.rows }
    }

    /// From a row of f16 to the next: as those of experts, so that four values are stored at once.
    fn half_stride(&self) -> usize {
        self.rows + 8
    }

    fn stride(&self) -> usize {
        if self.epilogue == Epilogue::Plain { self.rows + 5 } else { self.outputs().next_multiple_of(128) }
    }

    /// Columns `first..first + n` densely, or with `listed`: by slots over all columns.
    fn run(&self, first: usize, n: usize, listed: Option<&Listed>) -> Result<Written, Box<dyn Error>> {
        self.run_to(false, first, n, listed)
    }

    /// Runs the columns, to f16 with `halves` where plain outputs may be f16.
    fn run_to(&self, halves: bool, first: usize, n: usize, listed: Option<&Listed>) -> Result<Written, Box<dyn Error>> {
        let (stream, stride, planes) = (self.gpu.device.stream(), self.stride(), self.planes.count());
        let poison = if self.epilogue == Epilogue::Residual { OLD } else { f32::NAN };
        let mut values = stream.clone_htod(&vec![poison; n * stride])?;
        let mut codes = stream.clone_htod(&vec![99i8; n * stride * planes])?;
        let mut meta = stream.clone_htod(&vec![f32::NAN; n * stride / 16 * planes + 2])?;
        let mut squares = stream.clone_htod(&vec![f32::NAN; n * stride / 32 + 2])?;
        let all = Listed::all(n);
        let listed = listed.or((!self.dense && matches!(self.kernel, Many::F16(..))).then_some(&all));
        let lists = listed.map(|l| l.lists.each_ref().map(|l| stream.clone_htod(l)));
        let lists = match lists {
            Some([a, b, c]) => Some([a?, b?, c?]),
            None => None,
        };
        let views = lists.as_ref().map(|l| l.each_ref().map(|l| l.as_view()));
        let columns = match &views {
            Some([slots, in_rows, out_rows]) => {
                let (pitch, early) = listed.map_or((0, false), |l| (l.pitch, l.early));
                Columns::Listed { rows: n, slots, in_rows, out_rows, pitch, early }
            }
            None => Columns::First(n),
        };
        let from_squares = self.squares.slice(first * self.norm / 32..);
        let x = Inputs {
            codes: &self.codes.slice(first * self.cols * planes..),
            meta: &self.meta.slice(first * self.cols / 16 * planes..),
            squares: Some(&from_squares),
            eps: EPS,
            factor: 0.5,
            lora: None,
        };
        let made = HalfRows::of_hidden(&self.gpu.device, n, n * self.outputs())?;
        let next = self.next.as_view();
        let (mut v, mut c, mut m, mut s) =
            (values.as_view_mut(), codes.as_view_mut(), meta.as_view_mut(), squares.as_view_mut());
        let out = match self.epilogue {
            _ if self.half_rows => Output::HalfRows { rows: &made, count: n },
            Epilogue::Plain if halves => Output::Halves { values: &mut v, stride: self.half_stride() },
            Epilogue::Plain => Output::Plain { values: &mut v, stride },
            Epilogue::Residual => {
                Output::Residual { x: &mut v, weight: &next, codes: &mut c, meta: &mut m, squares: &mut s, stride }
            }
            Epilogue::Gated | Epilogue::Squared | Epilogue::Rounded => {
                Output::Activated { codes: &mut c, meta: &mut m, stride }
            }
        };
        // SAFETY: lists are those of `lists` below, which name three matrices and rows that there are, each output
        // once.
        unsafe {
            self.kernel.launch(&self.gpu.device, &self.weights.as_view(), (&Source::new(x), 0.5), columns, out)?;
        }
        let bits = |v: Vec<f32>| v.into_iter().map(f32::to_bits).collect();
        Ok(Written {
            values: bits(stream.clone_dtoh(&values)?),
            codes: stream.clone_dtoh(&codes)?,
            meta: bits(stream.clone_dtoh(&meta)?),
            squares: bits(stream.clone_dtoh(&squares)?),
            halves: match self.half_rows {
                true => in_order_of_values(&made.on_host(&self.gpu.device)?.0, n, self.outputs()),
                false => Vec::new(),
            },
        })
    }

    /// What a launch wrote of column `c`.
    fn column(&self, all: &Written, c: usize) -> Written {
        let (stride, n, planes) = (self.stride(), self.outputs(), self.planes.count());
        let part = |v: &[u32], each: usize, len: usize| v[c * each..][..len].to_vec();
        match self.epilogue {
            _ if self.half_rows => Written { halves: all.halves[c * n..][..n].to_vec(), ..Written::default() },
            Epilogue::Plain => Written { values: part(&all.values, stride, stride), ..Written::default() },
            epilogue => Written {
                values: if epilogue == Epilogue::Residual { part(&all.values, n, n) } else { Vec::new() },
                codes: all.codes[c * stride * planes..][..stride * planes].to_vec(),
                meta: part(&all.meta, stride / 16 * planes, stride / 16 * planes),
                squares: if epilogue == Epilogue::Residual { part(&all.squares, n / 32, n / 32) } else { Vec::new() },
                ..Written::default()
            },
        }
    }
}

fn columns_are_the_definition_s_and_the_same_alone(gpu: &Gpu, case: &Checked) -> Result<f64, Box<dyn Error>> {
    const COLUMNS: usize = 75;
    let (shape, epilogue) = (case.shape, case.shape.epilogue());
    let (layout, (rows, cols)) = (shape.matrix().layout(), shape.matrix().size());
    let norm = shape.norm().unwrap_or(0);
    let mut random = Random(11);
    let lower = |m: Matrix| if let WideArithmetic::F16(_) = case.form { m.lowered() } else { m };
    let matrices: Vec<Matrix> = (0..3).map(|e| Matrix::random(layout, rows, cols, 20 + e)).map(lower).collect();
    let x = activations(COLUMNS, cols, shape.matrix().planes(), &mut random);
    let squares: Vec<f32> = random.vector(COLUMNS * norm / 32 + 1).into_iter().map(|v| v.abs() * 1e6).collect();
    let next = random.vector(rows);
    let bench = Bench::of(gpu, case, &matrices, (&x, &squares), &next)?;
    let want = Want { x: &x, norm, squares: &squares, next: &next, epilogue, tolerance: tolerance(case.form) };
    let all = bench.run(0, COLUMNS, None)?;
    let mut worst = 0.0f64;
    for c in 0..COLUMNS {
        let got = bench.column(&all, c);
        let step = if c < 3 { 1 } else { 37 };
        worst = worst
            .max(want.compare(&matrices[0], &got, rows, c, step).map_err(|e| format!("{case:?} column {c}: {e}"))?);
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
    if let (WideArithmetic::F16(_), true) = (case.form, shape.dense()) {
        return Ok(worst);
    }
    // Few slots with many columns are spread over blocks, many with few are not, nor those with a pitch; then matrix 2
    // has 41 columns, 0 has 11, 1 has one.
    for (padding, pitch, early) in [(0, 0, false), (200, 0, false), (0, 44, false), (200, 0, true), (0, 44, true)] {
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
        let dense = Listed { lists: [slots, in_rows.clone(), out_rows.clone()], pitch: 0, early };
        let got = bench.run(0, n as usize, Some(&if pitch == 0 { dense } else { dense.pitched(pitch) }))?;
        for c in 0..n as usize {
            let (from, got) = (in_rows[c] as usize, bench.column(&got, out_rows[c] as usize));
            if matrix_of(c) == 0 {
                assert!(got == bench.column(&all, from), "{case:?}: column {from} listed with {padding} empty slots");
            }
            want.compare(&matrices[matrix_of(c)], &got, rows, from, 29)
                .map_err(|e| format!("{case:?} listed {c}: {e}"))?;
        }
    }
    Ok(worst)
}

impl std::fmt::Debug for Checked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?}", self.shape, self.form)
    }
}

/// What columns are compared with: the definition's inputs, and how far sums may be off.
struct Want<'a> {
    x: &'a QuantizedRows,
    norm: usize,
    squares: &'a [f32],
    next: &'a [f32],
    epilogue: Epilogue,
    tolerance: f64,
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
        let tolerance = self.tolerance;
        let mut worst = 0.0f64;
        let mut near = |got: f64, want: f64, slack: f64, what: &str| {
            let ratio = (got - want).abs() / slack;
            worst = worst.max(ratio);
            if ratio <= 1.0 { Ok(()) } else { Err(format!("{what}: {got} for {want}, tolerance {slack:e}")) }
        };
        let value = |r: usize| f64::from(f32::from_bits(got.values[r]));
        if self.epilogue == Epilogue::Plain {
            for r in (0..rows).step_by(step) {
                let (want, size) = self.dot(matrix, r, c);
                near(value(r), want, size * tolerance, &format!("row {r}"))?;
            }
            return if got.values[rows..].iter().all(|v| f32::from_bits(*v).is_nan()) {
                Ok(worst)
            } else {
                Err("tail".into())
            };
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
                    near(value(r), want + f64::from(OLD), (size + 1.0) * tolerance, &format!("x {r}"))?;
                    let next = f64::from(self.next[r]);
                    ((want + f64::from(OLD)) * next, (size + 1.0) * tolerance)
                } else if self.epilogue == Epilogue::Rounded {
                    let (want, size) = self.dot(matrix, r, c);
                    (want, size * tolerance)
                } else if self.epilogue == Epilogue::Squared {
                    let (want, size) = self.dot(matrix, r, c);
                    let (up, off) = (want.max(0.0), size * tolerance);
                    (up * up, (2.0 * up + off) * off + 1e-6 * up * up)
                } else {
                    let (gate, up) = (r / 8 * 16 + r % 8, r / 8 * 16 + r % 8 + 8);
                    let ((gate, g_size), (up, u_size)) = (self.dot(matrix, gate, c), self.dot(matrix, up, c));
                    (
                        gate / (1.0 + (-gate).exp()) * up,
                        (g_size * up.abs() * 1.1 + u_size * gate.abs()) * tolerance + 1e-6 * (gate * up).abs(),
                    )
                };
            }
            if !got.halves.is_empty() {
                for i in 0..32 {
                    // Rounded to eleven bits, or to what is left of them among the smallest.
                    let (stored, step) = (f64::from(of_f16_bits(got.halves[32 * b + i])), HIDDEN_FACTOR as f64);
                    let rounded = values[i].abs() * 0.5f64.powi(11) + 0.5f64.powi(25) * step;
                    near(stored * step, values[i], 1.004 * rounded + slack[i], &format!("value {i} of block {b}"))?;
                }
                continue;
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
        if got.halves.is_empty() && int8.codes[n * planes..].iter().any(|c| *c != 99) {
            return Err("padding written".into());
        }
        Ok(worst)
    }
}
