//! Random inputs, poisoned outputs, the definition on the host.

use crate::{Gpu, MULTIPROCESSORS, Outcome};
use chimere_kernels::cuda::gdn_decode::{self, GdnDecode, Heads, LayerWeights, Memory, StepRows};
use chimere_kernels::cuda::norm_quantize::{self, NormQuantize, Normed};
use chimere_kernels::cuda::product::layout::{Layout, Scales};
use chimere_kernels::cuda::product::sample::{LAYOUTS, Matrix, Random};
use chimere_kernels::cuda::product::{self, Activations, Columns, Output, Product, Shape};
use chimere_kernels::cuda::quantized::QuantizedRows;
use chimere_kernels::cuda::{CudaError, Program};
use chimere_kernels::reference::{self, GdnInputs};

const NORM_COLS: [usize; 3] = [2048, 256, 96];
const HEADS: [Heads; 2] = [
    Heads { key_dim: 128, value_dim: 128, keys: 2, values: 4, grouped: false },
    Heads { key_dim: 64, value_dim: 64, keys: 2, values: 6, grouped: true },
];

/// Shapes that a layout is checked with; groups of 256 inputs want whole groups.
fn shapes(layout: Layout) -> Vec<Shape> {
    let grouped = !matches!(layout.scales, Scales::F16 | Scales::Bf16);
    let sizes: &[(usize, usize)] =
        if grouped { &[(40, 256), (16, 2048), (1000, 512)] } else { &[(40, 128), (16, 2048), (1000, 384)] };
    sizes.iter().map(|(r, c)| Shape::new(layout, *r, *c).expect("legal")).collect()
}

/// What [`all`] loads.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    let mut programs: Vec<Program> = NORM_COLS.iter().map(|c| norm_quantize::program(*c)).collect::<Result<_, _>>()?;
    for heads in HEADS {
        programs.push(gdn_decode::program(heads, heads.inputs() + 3)?);
    }
    let shapes = LAYOUTS.into_iter().flat_map(shapes);
    programs.extend(shapes.map(|s| product::program(s, product::tiling(s, 1, MULTIPROCESSORS))));
    Ok(programs)
}

/// Checks every kernel.
pub(crate) fn all(gpu: &Gpu) -> Outcome {
    for cols in NORM_COLS {
        norm_quantize_gives_norms_and_their_int8_form(gpu, cols)?;
    }
    for layout in LAYOUTS {
        for shape in shapes(layout) {
            products_are_the_definition_s_and_the_same_alone_and_in_a_batch(gpu, shape)?;
        }
        listed_columns_go_through_their_own_matrix(gpu, layout)?;
    }
    for heads in HEADS {
        gdn_steps_follow_the_recurrence(gpu, heads)?;
    }
    Ok(())
}

fn norm_quantize_gives_norms_and_their_int8_form(gpu: &Gpu, cols: usize) -> Outcome {
    let (stream, rows) = (gpu.device.stream(), 5);
    let mut random = Random(cols as u64);
    let (mut x, w) = (random.vector(rows * cols), random.vector(cols));
    x[cols..2 * cols].fill(0.0);
    let kernel = NormQuantize::load(&gpu.device, &gpu.cache, cols)?;
    let (dx, dw) = (stream.clone_htod(&x)?, stream.clone_htod(&w)?);
    let mut values = stream.clone_htod(&vec![f32::NAN; rows * cols])?;
    let mut codes = stream.clone_htod(&vec![99i8; rows * cols])?;
    let mut meta = stream.clone_htod(&vec![f32::NAN; rows * cols / 16])?;
    let out = Normed { values: Some(&mut values.as_view_mut()), codes: &mut codes.as_view_mut(), meta: &mut meta.as_view_mut() };
    kernel.launch(&gpu.device, rows, &dx.as_view(), &dw.as_view(), 1e-6, out)?;
    let values = stream.clone_dtoh(&values)?;
    let want: Vec<f32> = x.chunks(cols).flat_map(|row| reference::rmsnorm(row, &w, 1e-6)).collect();
    let worst = worst_ratio(values.iter().zip(&want).map(|(got, want)| (got - want).abs() / (1e-6 * want.abs() + 1e-12)));
    assert!(worst <= 1.0, "norm of {cols}: {worst} times the tolerance");
    let got = QuantizedRows { codes: stream.clone_dtoh(&codes)?, meta: pairs(&stream.clone_dtoh(&meta)?) };
    assert!(got == QuantizedRows::of(&values), "int8 form of rows of {cols}");
    println!("norm_quantize {cols}: {worst:.2} of tolerance, int8 form equal");
    Ok(())
}

fn pairs(flat: &[f32]) -> Vec<[f32; 2]> {
    flat.as_chunks::<2>().0.to_vec()
}

/// The largest, NaN being larger than all.
fn worst_ratio(ratios: impl Iterator<Item = f32>) -> f32 {
    ratios.fold(0.0, |worst, r| if r.is_nan() || r > worst { if r.is_nan() { f32::INFINITY } else { r } } else { worst })
}

/// Activation rows with very different magnitudes.
fn activations(rows: usize, cols: usize, random: &mut Random) -> QuantizedRows {
    let values: Vec<f32> = (0..rows * cols).map(|i| random.signed() * 10f32.powi((i / 32 % 5) as i32 - 2)).collect();
    QuantizedRows::of(&values)
}

/// How far sums in f32 may lie from the exact ones, as a part of the sum of magnitudes.
const TOLERANCE: f64 = 4e-7;

fn products_are_the_definition_s_and_the_same_alone_and_in_a_batch(gpu: &Gpu, shape: Shape) -> Outcome {
    let (stream, (rows, cols)) = (gpu.device.stream(), shape.size());
    let matrix = Matrix::random(shape.layout(), rows, cols, 3);
    let weights = stream.clone_htod(&matrix.packed())?;
    let kernel = Product::load(&gpu.device, &gpu.cache, shape, 1)?;
    let (n_max, stride) = (70, rows + 5);
    let x = activations(n_max, cols, &mut Random(11));
    let (codes, meta) = (stream.clone_htod(&x.codes)?, stream.clone_htod(x.meta.as_flattened())?);
    let run = |first: usize, n: usize, add: bool| -> Result<Vec<f32>, Box<dyn std::error::Error>> {
        let poison = if add { 1.5 } else { f32::NAN };
        let mut out = stream.clone_htod(&vec![poison; n * stride])?;
        let x = Activations { codes: &codes.slice(first * cols..), meta: &meta.slice(first * cols / 16..) };
        let output = Output { values: &mut out.as_view_mut(), stride, factor: 0.5, add };
        // SAFETY: nothing is listed.
        unsafe { kernel.launch(&gpu.device, &weights.as_view(), x, Columns::First(n), output)? };
        Ok(stream.clone_dtoh(&out)?)
    };
    let alone: Vec<Vec<f32>> = (0..n_max).map(|c| run(c, 1, false)).collect::<Result<_, _>>()?;
    let mut worst = 0.0f64;
    for (c, got) in alone.iter().enumerate() {
        for r in (0..rows).step_by(if c < 3 { 1 } else { 37 }) {
            let (want, size) = matrix.dot(r, &x, c);
            let ratio = (f64::from(got[r]) - 0.5 * want).abs() / (0.5 * size * TOLERANCE);
            assert!(ratio <= 1.0, "{shape:?} row {r} column {c}: {} for {}", got[r], 0.5 * want);
            worst = worst.max(ratio);
        }
        assert!(got[rows..].iter().all(|v| v.is_nan()), "{shape:?} writes beyond its row");
    }
    for n in [2, 7, 8, 9, 16, 17, 33, 70] {
        let (got, added) = (run(0, n, false)?, run(0, n, true)?);
        for c in 0..n {
            let (got, added) = (&got[c * stride..][..rows], &added[c * stride..][..rows]);
            let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same(got, &alone[c][..rows]), "{shape:?}: column {c} of {n} differs from itself alone");
            let near = |(a, b): (&f32, &f32)| (a - (b + 1.5)).abs() <= 1e-6 * (a.abs() + b.abs() + 1.5);
            assert!(added.iter().zip(got).all(near), "{shape:?}: column {c} of {n} added");
        }
    }
    println!("product {:?} {rows} x {cols}: {worst:.2} of tolerance, alone = in a batch", shape.layout());
    Ok(())
}

fn listed_columns_go_through_their_own_matrix(gpu: &Gpu, layout: Layout) -> Outcome {
    let (stream, shape) = (gpu.device.stream(), shapes(layout)[0]);
    let (rows, cols) = shape.size();
    let matrices: Vec<Matrix> = (0..5).map(|e| Matrix::random(layout, rows, cols, 20 + e)).collect();
    let weights = stream.clone_htod(&matrices.iter().flat_map(Matrix::packed).collect::<Vec<u8>>())?;
    let kernel = Product::load(&gpu.device, &gpu.cache, shape, 1)?;
    let x = activations(6, cols, &mut Random(5));
    let (codes, meta) = (stream.clone_htod(&x.codes)?, stream.clone_htod(x.meta.as_flattened())?);
    // Matrix 3 has one column, matrix 0 none, matrix 4 eleven, matrix 1 two; rows of the output in no order.
    let slots = [3, 0, 1, 0, 0, 1, 0, 0, 4, 1, 11, 0, 1, 12, 2, 0];
    let in_rows: Vec<i32> = (0..14).map(|c| c * 5 % 6).collect();
    let out_rows: Vec<i32> = (0..14).map(|c| (c * 5 + 3) % 14).collect();
    let (d_slots, d_in, d_out) = (stream.clone_htod(&slots)?, stream.clone_htod(&in_rows)?, stream.clone_htod(&out_rows)?);
    let mut out = stream.clone_htod(&vec![f32::NAN; 14 * rows])?;
    let columns = Columns::Listed { slots: &d_slots.as_view(), in_rows: &d_in.as_view(), out_rows: &d_out.as_view(), expected: 1 };
    let x_view = Activations { codes: &codes.as_view(), meta: &meta.as_view() };
    let output = Output { values: &mut out.as_view_mut(), stride: rows, factor: 1.0, add: false };
    // SAFETY: the lists above name 5 matrices, 6 rows of activations and 14 of outputs, which is what there is.
    unsafe { kernel.launch(&gpu.device, &weights.as_view(), x_view, columns, output)? };
    let out = stream.clone_dtoh(&out)?;
    for slot in slots.as_chunks::<4>().0 {
        for c in slot[1]..slot[1] + slot[2] {
            let (from, to) = (in_rows[c as usize] as usize, out_rows[c as usize] as usize);
            for r in 0..rows {
                let (want, size) = matrices[slot[0] as usize].dot(r, &x, from);
                let got = out[to * rows + r];
                assert!(
                    (f64::from(got) - want).abs() <= size * TOLERANCE,
                    "{shape:?} matrix {} column {c} row {r}: {got} for {want}",
                    slot[0]
                );
            }
        }
    }
    Ok(())
}

/// One sequence's state and ring on the host.
#[derive(Clone)]
struct Sequence {
    state: Vec<f64>,
    ring: Vec<f32>,
}

fn gdn_steps_follow_the_recurrence(gpu: &Gpu, heads: Heads) -> Outcome {
    let stream = gpu.device.stream();
    let stride = heads.inputs() + 3;
    let mut random = Random(heads.value_dim as u64);
    let kernel = GdnDecode::load(&gpu.device, &gpu.cache, heads, stride)?;
    let taps = random.vector(heads.channels() * 4);
    let decay: Vec<f32> = (0..heads.values).map(|_| -4.0 * random.signed().abs()).collect();
    let (dt_bias, norm) = (random.vector(heads.values), random.vector(heads.value_dim));
    let (d_taps, d_decay, d_dt, d_norm) =
        (stream.clone_htod(&taps)?, stream.clone_htod(&decay)?, stream.clone_htod(&dt_bias)?, stream.clone_htod(&norm)?);
    // Three sequences in four slots, one row of the step is none.
    let slots = [2, -1, 0, 3];
    let start = [0, 0, 6, 1001];
    let fresh = |random: &mut Random, zero: bool| {
        let ring = if zero { vec![0.0; heads.tail()] } else { random.vector(heads.tail()) };
        let state = if zero { vec![0.0; heads.state()] } else { random.vector(heads.state()).into_iter().map(f64::from).collect() };
        Sequence { state, ring }
    };
    let mut host: Vec<Sequence> = (0..4).map(|slot| fresh(&mut random, slot == 2)).collect();
    let untouched = host[1].state.clone();
    let mut state = stream.clone_htod(&host.iter().flat_map(|s| s.state.iter().map(|v| *v as f32)).collect::<Vec<f32>>())?;
    let mut tail = stream.clone_htod(&host.iter().flat_map(|s| s.ring.clone()).collect::<Vec<f32>>())?;
    let d_slots = stream.clone_htod(&slots)?;
    let width = heads.values * heads.value_dim;
    let mut worst = 0.0f32;
    for step in 0..6 {
        let positions = start.map(|p| p + step);
        let x = random.vector(4 * stride);
        let (dx, d_positions) = (stream.clone_htod(&x)?, stream.clone_htod(&positions)?);
        let mut codes = stream.clone_htod(&vec![99i8; 4 * width])?;
        let mut meta = stream.clone_htod(&vec![f32::NAN; 4 * width / 16])?;
        let layer = LayerWeights {
            taps: &d_taps.as_view(),
            decay: &d_decay.as_view(),
            dt_bias: &d_dt.as_view(),
            norm: &d_norm.as_view(),
            eps: 1e-6,
        };
        let rows = StepRows { count: 4, slots: &d_slots.as_view(), positions: &d_positions.as_view() };
        let memory = Memory { state: &mut state.as_view_mut(), tail: &mut tail.as_view_mut() };
        // SAFETY: slots are below 4 and differ; the copies above are not launched early.
        unsafe {
            kernel.launch(&gpu.device, rows, &dx.as_view(), layer, memory, &mut codes.as_view_mut(), &mut meta.as_view_mut())?
        };
        let got = QuantizedRows { codes: stream.clone_dtoh(&codes)?, meta: pairs(&stream.clone_dtoh(&meta)?) };
        for (row, slot) in slots.into_iter().enumerate() {
            let at = row * width..(row + 1) * width;
            if slot < 0 {
                assert!(got.codes[at.clone()].iter().all(|c| *c == 99), "a row that is none was written");
                continue;
            }
            let want =
                step_on_host(heads, &x[row * stride..], &mut host[slot as usize], positions[row], (&taps, &decay, &dt_bias, &norm));
            for b in 0..width / 32 {
                let index = row * width / 32 + b;
                let d = got.meta[index][0];
                for (code, want) in got.block(index).into_iter().zip(&want[32 * b..]) {
                    let error = (f32::from(code) * d - want).abs();
                    worst = worst.max(error / (0.5 * d));
                    // Half a step of the int8 form, and what sums in f32 and fast exponentials differ by.
                    assert!(
                        error <= 0.51 * d + 1e-5,
                        "{heads:?} step {step} row {row} block {b}: {} for {want}",
                        f32::from(code) * d
                    );
                }
            }
        }
    }
    let (state, tail) = (stream.clone_dtoh(&state)?, stream.clone_dtoh(&tail)?);
    let mut state_error = 0.0f64;
    for (slot, host) in host.iter().enumerate() {
        let got = &state[slot * heads.state()..][..heads.state()];
        let top = host.state.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        state_error = host.state.iter().zip(got).fold(state_error, |m, (h, g)| m.max((h - f64::from(*g)).abs() / top));
        assert!(tail[slot * heads.tail()..][..heads.tail()] == host.ring, "ring of slot {slot}");
    }
    assert!(state_error < 3e-6, "{heads:?}: state is off by {state_error:e} of its largest value");
    assert!(
        state[heads.state()..2 * heads.state()].iter().zip(&untouched).all(|(a, b)| f64::from(*a) == *b),
        "a slot in no row changed"
    );
    println!("gdn_decode {heads:?}: outputs within {worst:.3} of half a code, state to {state_error:.1e}");
    Ok(())
}

/// The definition of one step, all heads of a sequence.
fn step_on_host(
    heads: Heads,
    x: &[f32],
    sequence: &mut Sequence,
    position: i32,
    (taps, decay, dt_bias, norm): (&[f32], &[f32], &[f32], &[f32]),
) -> Vec<f32> {
    let Heads { key_dim: kd, value_dim: vd, keys, values, grouped } = heads;
    let channels = heads.channels();
    let entry = |back: i32| ((position + 4 - back) % 4) as usize;
    sequence.ring[entry(0) * channels..][..channels].copy_from_slice(&x[..channels]);
    let conv: Vec<f32> = (0..channels)
        .map(|c| reference::conv_silu(&[3, 2, 1, 0].map(|back| sequence.ring[entry(back) * channels + c]), &taps[4 * c..4 * c + 4]))
        .collect();
    let mut out = Vec::new();
    for h in 0..values {
        let kh = if grouped { h / (values / keys) } else { h % keys };
        let q: Vec<f32> = reference::l2norm(&conv[kh * kd..][..kd]).iter().map(|q| q / (kd as f32).sqrt()).collect();
        let k = reference::l2norm(&conv[(keys + kh) * kd..][..kd]);
        let z_at = channels + h * vd;
        let (b, a) = (x[channels + values * vd + h], x[channels + values * vd + values + h]);
        let g = f64::from(decay[h]) * reference::softplus(f64::from(a) + f64::from(dt_bias[h]));
        let beta = 1.0 / (1.0 + (-f64::from(b)).exp());
        let inputs = GdnInputs {
            q: &q,
            k: &k,
            v: &conv[2 * keys * kd + h * vd..][..vd],
            g: &[g as f32],
            beta: &[beta as f32],
            key_dim: kd,
            value_dim: vd,
        };
        let o = reference::gdn_recurrent(&inputs, &mut sequence.state[h * kd * vd..][..kd * vd]);
        out.extend(reference::gated_norm(&o, norm, &x[z_at..z_at + vd], 1e-6));
    }
    out
}
