//! Rows of the residual stream in their folded form: poisoned before, checked after. With the two kernels that only
//! move rows.

use crate::support::{Gpu, Outcome, Test, as_halves, f16};
use chimere_kernels::cuda::combine::{self, Combine, CombineShape, ExpertOutputs};
use chimere_kernels::cuda::gather::{self, Gather};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::quantized::{Planes, QuantizedRows};
use chimere_kernels::cuda::rows::{Folded, FoldedOut, lengths, padded};
use chimere_kernels::cuda::wide::Inputs;
use chimere_kernels::cuda::wide::halves::{self, HalfRows, Halves};
use chimere_kernels::cuda::{CudaError, Program};
use chimere_kernels::reference;
use cudarc::driver::{CudaSlice, CudaView, CudaViewMut};
use std::error::Error;

/// Codes, and the bits of floats.
type Bytes = (Vec<i8>, [Vec<u32>; 2]);

const CODE_POISON: i8 = 99;
const EPS: f32 = 1e-6;

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Outputs that hold what no kernel writes.
pub(crate) struct Poisoned {
    pub(crate) codes: CudaSlice<i8>,
    pub(crate) meta: CudaSlice<f32>,
    pub(crate) squares: CudaSlice<f32>,
    planes: Planes,
}

impl Poisoned {
    pub(crate) fn new(gpu: &Gpu, rows: usize, cols: usize, planes: Planes) -> Result<Self, Box<dyn Error>> {
        let (stream, [codes, meta, squares]) = (gpu.device.stream(), lengths(rows, cols, planes));
        Ok(Self {
            codes: stream.clone_htod(&vec![CODE_POISON; codes])?,
            meta: stream.clone_htod(&vec![-5.0f32; meta])?,
            squares: stream.clone_htod(&vec![-5.0f32; squares])?,
            planes,
        })
    }

    /// All of it: codes, then the bits of what stands beside them and of squares.
    fn bytes(&self, gpu: &Gpu) -> Result<Bytes, Box<dyn Error>> {
        let stream = gpu.device.stream();
        let floats = [stream.clone_dtoh(&self.meta)?, stream.clone_dtoh(&self.squares)?];
        Ok((stream.clone_dtoh(&self.codes)?, floats.map(|values| bits(&values))))
    }

    /// Against the rows `x` as the device has them: int8 form of `x * w` equal, squares to rounding, padding untouched;
    /// rows that are not `written`, too.
    pub(crate) fn check(
        &self,
        gpu: &Gpu,
        x: &[f32],
        w: &[f32],
        cols: usize,
        written: impl Fn(usize) -> bool,
        what: &str,
    ) -> Outcome {
        let (stream, planes) = (gpu.device.stream(), self.planes.count());
        let wide = padded(cols) * planes;
        let (codes, meta) = (stream.clone_dtoh(&self.codes)?, stream.clone_dtoh(&self.meta)?);
        let squares = stream.clone_dtoh(&self.squares)?;
        for (row, x) in x.chunks_exact(cols).enumerate() {
            let (codes, meta) = (&codes[row * wide..][..wide], &meta[row * wide / 16..][..wide / 16]);
            let squares = &squares[row * cols / 32..][..cols / 32];
            let own = if written(row) { cols * planes } else { 0 };
            assert!(
                codes[own..].iter().all(|c| *c == CODE_POISON),
                "{what}: row {row} writes codes that are not its own"
            );
            assert!(meta[own / 16..].iter().all(|c| *c == -5.0), "{what}: row {row} writes meta that is not its own");
            if own == 0 {
                assert!(squares.iter().all(|s| *s == -5.0), "{what}: row {row} is none and has squares");
                continue;
            }
            let want = QuantizedRows::of(&x.iter().zip(w).map(|(x, w)| x * w).collect::<Vec<_>>(), self.planes);
            assert!(codes[..own] == want.codes, "{what}: codes of row {row}");
            let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(meta[..own / 16].iter().zip(want.meta.as_flattened()).all(same), "{what}: meta of row {row}");
            for (b, (got, x)) in squares.iter().zip(x.chunks_exact(32)).enumerate() {
                let want: f64 = x.iter().map(|v| f64::from(*v).powi(2)).sum();
                let near =
                    (f64::from(*got) - want).abs() <= 1e-6 * want || want > 3e38 || want.is_nan() && got.is_nan();
                assert!(near, "{what}: squares of row {row}, block {b}: {got} for {want}");
            }
        }
        Ok(())
    }
}

const SHAPES: [CombineShape; 10] = [
    CombineShape { cols: 2048, used: 8, shared: true, stream: true, planes: Planes::One },
    CombineShape { cols: 256, used: 4, shared: true, stream: true, planes: Planes::One },
    CombineShape { cols: 32, used: 4, shared: false, stream: true, planes: Planes::One },
    CombineShape { cols: 5120, used: 1, shared: true, stream: true, planes: Planes::One },
    CombineShape { cols: 96, used: 10, shared: true, stream: true, planes: Planes::One },
    CombineShape { cols: 256, used: 4, shared: true, stream: true, planes: Planes::Two },
    CombineShape { cols: 96, used: 3, shared: false, stream: true, planes: Planes::Two },
    // More than are on their way at a time; sums alone.
    CombineShape { cols: 64, used: 22, shared: true, stream: true, planes: Planes::One },
    CombineShape { cols: 1024, used: 22, shared: false, stream: false, planes: Planes::One },
    CombineShape { cols: 96, used: 2, shared: false, stream: false, planes: Planes::Two },
];

/// What the tests load.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    let combined = SHAPES.into_iter().map(combine::program);
    let halved = SHAPES.into_iter().filter(CombineShape::brings_halves);
    let combined = combined.chain(halved.map(|s| halves::program(s.cols, Some(s.cols))));
    combined.chain(SHAPES.iter().map(|s| gather::program(s.cols, s.planes))).collect()
}

/// The tests of this file by their names, as `main` lists and filters them.
pub(crate) const TESTS: &[Test] =
    &[("combine::terms_are_added_and_padding_rows_stay", every_shape), ("gather::rows_are_gathered", every_width)];

fn every_shape(gpu: &Gpu) -> Outcome {
    for shape in SHAPES {
        for (n, halves) in [(1, false), (5, false), (5, true), (70, false), (600, true), (600, false)] {
            if shape.stream {
                terms_are_added_and_padding_rows_stay(gpu, shape, n, halves)?;
            } else {
                a_sum_alone_is_in_int8_and_padding_rows_stay(gpu, shape, n, halves)?;
            }
        }
    }
    Ok(())
}

fn every_width(gpu: &Gpu) -> Outcome {
    SHAPES.into_iter().try_for_each(|shape| rows_are_gathered(gpu, shape.cols, shape.planes))
}

/// `halves`: what the experts made is f16.
fn terms_are_added_and_padding_rows_stay(gpu: &Gpu, shape: CombineShape, n: usize, halves: bool) -> Outcome {
    let (stream, CombineShape { cols, used, shared, planes, .. }) = (gpu.device.stream(), shape);
    let mut random = Random(n as u64);
    let slots: Vec<i32> = (0..n as i32).map(|r| if r % 5 == 3 { -1 } else { r }).collect();
    let (x, w, mut gates) = (random.vector(n * cols), random.vector(cols), random.vector(n * (used + 1)));
    let (mut experts, own) = (random.vector(n * used * cols), random.vector(n * cols));
    if halves {
        experts.iter_mut().for_each(|v| *v = f16(*v));
    }
    for row in (0..n).filter(|r| slots[*r] < 0) {
        experts[row * used * cols..(row + 1) * used * cols].fill(f32::NAN);
    }
    // Rows that do without half of their experts.
    let left = |row: usize| if row % 5 == 1 { used / 2 } else { used };
    for row in 0..n {
        gates[row * (used + 1)..][left(row)..used].fill(0.0);
        experts[(row * used + left(row)) * cols..(row + 1) * used * cols].fill(f32::NAN);
    }
    let (d_slots, d_gates, d_experts, d_own) = (
        stream.clone_htod(&slots)?,
        stream.clone_htod(&gates)?,
        stream.clone_htod(&if halves { as_halves(&experts) } else { experts.clone() })?,
        stream.clone_htod(&own)?,
    );
    let (mut dx, dw, mut out) = (stream.clone_htod(&x)?, stream.clone_htod(&w)?, Poisoned::new(gpu, n, cols, planes)?);
    let kernel = Combine::load(&gpu.device, &gpu.cache, shape)?;
    let mut dx_by_row = stream.clone_htod(&x)?;
    let (v_gates, v_experts, v_own) = (d_gates.as_view(), d_experts.as_view(), d_own.as_view());
    let terms = ExpertOutputs {
        slots: &d_slots.as_view(),
        gates: &v_gates,
        experts: &v_experts,
        halves,
        shared: shared.then_some(&v_own),
    };
    let (mut codes, mut meta, mut squares) =
        (out.codes.as_view_mut(), out.meta.as_view_mut(), out.squares.as_view_mut());
    let folded = FoldedOut { codes: &mut codes, meta: &mut meta, squares: &mut squares };
    kernel.launch(&gpu.device, n, terms, &dw.as_view(), &mut dx.as_view_mut(), folded)?;
    let got = stream.clone_dtoh(&dx)?;
    if kernel.brings_halves() {
        let by_row = (&dw.as_view(), &mut dx_by_row.as_view_mut());
        halves_are_those_of_the_int8_rows(gpu, &kernel, (shape, &slots), terms, by_row, &out)?;
        assert!(bits(&got) == bits(&stream.clone_dtoh(&dx_by_row)?), "{shape:?}: the stream differs by row");
    }
    let mut worst = 0.0f32;
    for row in 0..n {
        let (x, got) = (&x[row * cols..][..cols], &got[row * cols..][..cols]);
        if slots[row] < 0 {
            assert!(x == got, "{shape:?}: row {row} is none and changed");
            continue;
        }
        let mut g = gates[row * (used + 1)..][..used + usize::from(shared)].to_vec();
        g.drain(left(row)..used);
        let y: Vec<&[f32]> = (0..left(row)).map(|k| &experts[(row * used + k) * cols..][..cols]).collect();
        let want = reference::combine(x, &g, &y, shared.then_some(&own[row * cols..][..cols]));
        for (c, (got, want)) in got.iter().zip(want).enumerate() {
            let ratio = (got - want).abs() / (1e-6 * (1.0 + used as f32));
            assert!(ratio <= 1.0, "{shape:?} row {row} column {c}: {got} for {want}");
            worst = worst.max(ratio);
        }
    }
    out.check(gpu, &got, &w, cols, |row| slots[row] >= 0, &format!("{shape:?}"))?;
    println!("combine {shape:?}, {n} rows, halves {halves}: {worst:.2} of tolerance, int8 form equal");
    Ok(())
}

/// The launch that has a block for each row leaves the bytes of the other, and the f16 rows that are made of those.
fn halves_are_those_of_the_int8_rows(
    gpu: &Gpu,
    kernel: &Combine,
    (shape, slots): (CombineShape, &[i32]),
    terms: ExpertOutputs<'_>,
    (weight, x): (&CudaView<'_, f32>, &mut CudaViewMut<'_, f32>),
    whole: &Poisoned,
) -> Outcome {
    let (n, CombineShape { cols, planes, .. }) = (slots.len(), shape);
    let (device, mut out) = (&gpu.device, Poisoned::new(gpu, n, cols, planes)?);
    let [made, want] = [(); 2].map(|()| HalfRows::new(device, n, n * cols));
    let (made, want) = (made?, want?);
    let (mut codes, mut meta, mut squares) =
        (out.codes.as_view_mut(), out.meta.as_view_mut(), out.squares.as_view_mut());
    let folded = FoldedOut { codes: &mut codes, meta: &mut meta, squares: &mut squares };
    kernel.launch_with_halves(device, n, terms, weight, x, folded, (&made, EPS))?;
    assert!(whole.bytes(gpu)? == out.bytes(gpu)?, "{shape:?}: int8 rows differ by row");
    let halves = Halves::load(device, &gpu.cache, cols, Some(cols))?;
    let (codes, meta, squares) = (whole.codes.as_view(), whole.meta.as_view(), whole.squares.as_view());
    let inputs = Inputs { codes: &codes, meta: &meta, squares: Some(&squares), eps: EPS, factor: 1.0, lora: None };
    halves.launch(device, n, inputs, &want)?;
    let ((made, made_scales), (want, want_scales)) = (made.on_host(device)?, want.on_host(device)?);
    for row in (0..n).filter(|row| slots[*row] >= 0) {
        assert!(made_scales[row].to_bits() == want_scales[row].to_bits(), "{shape:?}: scale of row {row}");
        for part in (0..cols / 64).map(|c| (c * n + row) * 64) {
            assert!(made[part..part + 64] == want[part..part + 64], "{shape:?}: f16 of row {row}");
        }
    }
    Ok(())
}

/// The int8 form of a sum is that of its terms added one after another.
fn a_sum_alone_is_in_int8_and_padding_rows_stay(gpu: &Gpu, shape: CombineShape, n: usize, halves: bool) -> Outcome {
    let (stream, CombineShape { cols, used, planes, .. }) = (gpu.device.stream(), shape);
    let mut random = Random(n as u64);
    let slots: Vec<i32> = (0..n as i32).map(|r| if r % 5 == 3 { -1 } else { r }).collect();
    let (mut gates, mut experts) = (random.vector(n * (used + 1)), random.vector(n * used * cols));
    if halves {
        experts.iter_mut().for_each(|v| *v = f16(*v));
    }
    // Rows that do without their last expert.
    for row in (1..n).step_by(5) {
        gates[row * (used + 1) + used - 1] = 0.0;
        experts[((row + 1) * used - 1) * cols..(row + 1) * used * cols].fill(f32::NAN);
    }
    let (d_slots, d_gates) = (stream.clone_htod(&slots)?, stream.clone_htod(&gates)?);
    let d_experts = stream.clone_htod(&if halves { as_halves(&experts) } else { experts.clone() })?;
    let (v_gates, v_experts) = (d_gates.as_view(), d_experts.as_view());
    let terms = ExpertOutputs { slots: &d_slots.as_view(), gates: &v_gates, experts: &v_experts, halves, shared: None };
    let (kernel, mut out) = (Combine::load(&gpu.device, &gpu.cache, shape)?, Poisoned::new(gpu, n, cols, planes)?);
    kernel.sum(&gpu.device, n, terms, &mut out.codes.as_view_mut(), &mut out.meta.as_view_mut())?;
    let wide = padded(cols) * planes.count();
    let (codes, meta) = (stream.clone_dtoh(&out.codes)?, stream.clone_dtoh(&out.meta)?);
    for row in 0..n {
        let term = |c: usize, k: usize| (gates[row * (used + 1) + k], experts[(row * used + k) * cols + c]);
        let sum = |c: usize| {
            let terms = (0..used).map(|k| term(c, k)).filter(|(gate, _)| *gate != 0.0);
            terms.fold(0.0f32, |sum, (gate, y)| gate.mul_add(y, sum))
        };
        let want = QuantizedRows::of(&(0..cols).map(sum).collect::<Vec<_>>(), planes);
        let own = if slots[row] < 0 { 0 } else { cols * planes.count() };
        let (codes, meta) = (&codes[row * wide..][..wide], &meta[row * wide / 16..][..wide / 16]);
        assert!(codes[..own] == want.codes[..own], "{shape:?}: codes of row {row}");
        assert!(meta[..own / 16] == want.meta.as_flattened()[..own / 16], "{shape:?}: meta of row {row}");
        assert!(codes[own..].iter().all(|c| *c == CODE_POISON), "{shape:?}: row {row} writes what is not its own");
    }
    println!("combine {shape:?}, {n} rows, halves {halves}: int8 form equal");
    Ok(())
}

fn rows_are_gathered(gpu: &Gpu, cols: usize, planes: Planes) -> Outcome {
    let (stream, rows, list) = (gpu.device.stream(), 6, [4, 0, -1, 5, 4]);
    let [codes, meta, squares] = lengths(rows, cols, planes);
    let mut random = Random(cols as u64);
    let codes: Vec<i8> = (0..codes).map(|_| random.bits() as i8).collect();
    let (meta, squares) = (random.vector(meta), random.vector(squares));
    let (d_codes, d_meta, d_squares) =
        (stream.clone_htod(&codes)?, stream.clone_htod(&meta)?, stream.clone_htod(&squares)?);
    let (d_list, mut out) = (stream.clone_htod(&list)?, Poisoned::new(gpu, list.len(), cols, planes)?);
    let kernel = Gather::load(&gpu.device, &gpu.cache, cols, planes)?;
    let from = Folded { codes: &d_codes.as_view(), meta: &d_meta.as_view(), squares: &d_squares.as_view() };
    let (mut to_codes, mut to_meta, mut to_squares) =
        (out.codes.as_view_mut(), out.meta.as_view_mut(), out.squares.as_view_mut());
    let folded = FoldedOut { codes: &mut to_codes, meta: &mut to_meta, squares: &mut to_squares };
    // SAFETY: the list names rows below 6.
    unsafe { kernel.launch(&gpu.device, list.len(), &d_list.as_view(), from, folded)? };
    fn chosen<T: Copy + Default>(from: &[T], rows: usize, list: &[i32]) -> Vec<T> {
        let each = from.len() / rows;
        let row = |r: &i32| if *r < 0 { vec![T::default(); each] } else { from[*r as usize * each..][..each].to_vec() };
        list.iter().flat_map(row).collect()
    }
    assert!(stream.clone_dtoh(&out.codes)? == chosen(&codes, rows, &list), "gathered codes of {cols}");
    assert!(stream.clone_dtoh(&out.meta)? == chosen(&meta, rows, &list), "gathered meta of {cols}");
    assert!(stream.clone_dtoh(&out.squares)? == chosen(&squares, rows, &list), "gathered squares of {cols}");
    println!("gather {cols} {planes:?}: equal");
    Ok(())
}
