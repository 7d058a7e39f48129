//! Attention against its definition, over ragged sequences in shuffled pages of a cache full of what is no number.

use crate::support::{Gpu, Outcome, Test, as_halves, f16, near_int8, pairs};
use chimere_kernels::cuda::attention::{
    self, Attention, AttentionRows, AttentionShape, Cache, DecodeScratch, KvType, Norms, Out, PAGE, TileChip, tiling,
};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::quantized::{Planes, QuantizedRows};
use chimere_kernels::cuda::wide::halves::HalfRows;
use chimere_kernels::cuda::{CudaError, Program};
use chimere_kernels::reference;
use cudarc::driver::CudaSlice;
use std::error::Error;

const KV_TYPES: [KvType; 3] = [KvType::F16, KvType::Q8, KvType::Q8Q4];
const RELEASED: AttentionShape = shape(256, 16, 2, 64);
const EPS: f32 = 1e-6;
/// Drafted rows behind one.
const DRAFTS: usize = 7;

/// Without gates and norms.
fn plain(dim: usize, heads: usize, kv_heads: usize, rotary: usize, scale: f32) -> AttentionShape {
    let stride = (heads + 2 * kv_heads) * dim + 2;
    AttentionShape { gated: false, normed: false, scale, stride, ..shape(dim, heads, kv_heads, rotary) }
}

const fn shape(dim: usize, heads: usize, kv_heads: usize, rotary: usize) -> AttentionShape {
    let stride = (2 * heads + 2 * kv_heads) * dim;
    let scale = match dim {
        64 => 1.0 / 8.0,
        256 => 1.0 / 16.0,
        _ => 1.0 / 11.313_708,
    };
    let (gated, normed) = (true, true);
    AttentionShape {
        dim,
        heads,
        kv_heads,
        rotary,
        theta: 1e7,
        yarn: None,
        eps: EPS,
        gated,
        normed,
        scale,
        stride,
        planes: Planes::One,
        drafts: 0,
    }
}

/// Shapes, and how many positions each sequence has.
fn cases() -> Vec<(AttentionShape, Vec<usize>)> {
    let long = vec![1, 31, 32, 33, 255, 256, 257, 5000];
    let short = vec![1, 33, 257, 600];
    let mut small = shape(64, 4, 2, 16);
    small.stride += 6;
    let two = AttentionShape { planes: Planes::Two, ..small };
    vec![
        (RELEASED, long.clone()),
        (small, long.clone()),
        (two, long),
        (shape(64, 2, 2, 16), short.clone()),
        (shape(256, 8, 2, 64), short.clone()),
        (shape(256, 12, 2, 64), short.clone()),
        (shape(256, 16, 1, 64), short.clone()),
        (shape(128, 8, 4, 0), short.clone()),
        (plain(128, 12, 4, 0, 1.0 / 64.0), short.clone()),
        (plain(128, 4, 2, 128, AttentionShape::usual_scale(128)), short.clone()),
        // Falcon-H1's and Nemotron-H's.
        (plain(128, 12, 2, 128, AttentionShape::usual_scale(128)), short.clone()),
        (plain(128, 32, 2, 0, AttentionShape::usual_scale(128)), short.clone()),
        (plain(64, 32, 2, 64, 0.3), short),
    ]
}

/// What the tests load.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    let (mut programs, hopper) = (Vec::new(), "sm_90a".parse()?);
    for kv in KV_TYPES {
        for (shape, _) in cases() {
            programs.push(attention::program(shape, kv, tiling(shape, kv, hopper))?);
            let drafting = AttentionShape { drafts: DRAFTS, ..shape };
            programs.push(attention::program(drafting, kv, tiling(drafting, kv, hopper))?);
        }
    }
    Ok(programs)
}

/// The tests of this file by their names, as `main` lists and filters them.
pub(crate) const TESTS: &[Test] = &[
    ("attention::rows_attend_to_their_own_sequence_alone_and_among_others", every_cache),
    ("attention::drafted_rows_have_the_bytes_of_rows_of_their_own", every_draft),
    ("attention::a_late_position_turns_as_exactly_as_an_early_one", a_late_position_turns_as_exactly_as_an_early_one),
];

fn every_cache(gpu: &Gpu) -> Outcome {
    for kv in KV_TYPES {
        for (shape, contexts) in cases() {
            rows_attend_to_their_own_sequence(gpu, shape, kv, &contexts)?;
        }
    }
    Ok(())
}

fn every_draft(gpu: &Gpu) -> Outcome {
    for kv in KV_TYPES {
        for (shape, _) in cases() {
            drafted_rows_have_the_bytes_of_rows_of_their_own(gpu, shape, kv)?;
        }
    }
    Ok(())
}

/// The orthonormal Hadamard transform.
fn hadamard(v: &[f32]) -> Vec<f32> {
    let n = v.len();
    let sign = |i: usize, j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    (0..n).map(|i| ((0..n).map(|j| sign(i, j) * f64::from(v[j])).sum::<f64>() / (n as f64).sqrt()) as f32).collect()
}

fn eight_bits(v: &[f32]) -> Vec<f32> {
    let block = |b: &[f32]| {
        let d = f16(b.iter().fold(0.0f32, |m, v| m.max(v.abs())) / 127.0);
        b.iter().map(|v| (v / d).round_ties_even().clamp(-127.0, 127.0) * d).collect::<Vec<_>>()
    };
    v.chunks(32).flat_map(block).collect()
}

fn four_bits(v: &[f32]) -> Vec<f32> {
    let block = |b: &[f32]| {
        let (top, bottom) = b.iter().fold((f32::MIN, f32::MIN), |(t, l), v| (t.max(*v), l.max(-*v)));
        let d = f16(if bottom > top { bottom } else { -top } * 0.125);
        b.iter().map(|v| (v / d).round_ties_even().clamp(-8.0, 7.0) * d).collect::<Vec<_>>()
    };
    v.chunks(32).flat_map(block).collect()
}

/// A sequence on the host: its input rows, and keys and values as the cache holds them, by head.
struct Sequence {
    x: Vec<f32>,
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

struct Model {
    shape: AttentionShape,
    kv: KvType,
    q_norm: Vec<f32>,
    k_norm: Vec<f32>,
}

impl Model {
    fn random(shape: AttentionShape, kv: KvType) -> Self {
        let mut random = Random(7);
        let mut norm = || random.vector(shape.dim).iter().map(|w| 1.0 + 0.5 * w).collect();
        Self { shape, kv, q_norm: norm(), k_norm: norm() }
    }

    /// From the query of a head to the next.
    fn query_stride(&self) -> usize {
        (1 + usize::from(self.shape.gated)) * self.shape.dim
    }

    fn turned(&self, v: &[f32], norm: &[f32], position: usize) -> Vec<f32> {
        let mut v = if self.shape.normed { reference::rmsnorm(v, norm, EPS) } else { v.to_vec() };
        reference::rope(&mut v, position as u32, self.shape.rotary, self.shape.theta);
        v
    }

    fn sequence(&self, positions: usize, seed: u64) -> Sequence {
        let AttentionShape { dim, heads, kv_heads, stride, .. } = self.shape;
        let first = heads * self.query_stride();
        let x: Vec<f32> = Random(seed).vector(positions * stride).into_iter().map(f16).collect();
        let (mut keys, mut values) = (vec![Vec::new(); kv_heads], vec![Vec::new(); kv_heads]);
        for (p, row) in x.chunks(stride).enumerate() {
            for h in 0..kv_heads {
                let k = self.turned(&row[first + h * dim..][..dim], &self.k_norm, p);
                let v = &row[first + (kv_heads + h) * dim..][..dim];
                keys[h].extend(match self.kv {
                    KvType::F16 => k.into_iter().map(f16).collect(),
                    KvType::Q8 | KvType::Q8Q4 => eight_bits(&hadamard(&k)),
                });
                values[h].extend(match self.kv {
                    KvType::F16 => v.iter().copied().map(f16).collect(),
                    KvType::Q8 => eight_bits(v),
                    KvType::Q8Q4 => four_bits(v),
                });
            }
        }
        Sequence { x, keys, values }
    }

    /// The definition: all heads of one position.
    fn row(&self, sequence: &Sequence, position: usize) -> Vec<f32> {
        let AttentionShape { dim, heads, kv_heads, stride, .. } = self.shape;
        let x = &sequence.x[position * stride..][..stride];
        let head = |h: usize| {
            let (kv, end) = (h / (heads / kv_heads), (position + 1) * dim);
            let at = h * self.query_stride();
            let mut q = self.turned(&x[at..][..dim], &self.q_norm, position);
            // The definition's scale is the usual one.
            let scale = self.shape.scale / AttentionShape::usual_scale(dim);
            q.iter_mut().for_each(|q| *q *= scale);
            if self.kv != KvType::F16 {
                q = hadamard(&q);
            }
            let o = reference::attention(&q, &sequence.keys[kv][..end], &sequence.values[kv][..end]);
            if !self.shape.gated {
                return o;
            }
            let gate = &x[at + dim..][..dim];
            o.iter().zip(gate).map(|(o, g)| o / (1.0 + (-g).exp())).collect::<Vec<f32>>()
        };
        (0..heads).flat_map(head).collect()
    }
}

/// Everything on the device.
struct Bench<'a> {
    gpu: &'a Gpu,
    shape: AttentionShape,
    kernel: Attention,
    norms: [CudaSlice<f32>; 2],
    keys: CudaSlice<u8>,
    values: CudaSlice<u8>,
    scratch: DecodeScratch,
    table: CudaSlice<i32>,
    pages_max: usize,
}

type Bytes = (Vec<i8>, Vec<f32>);

impl Bench<'_> {
    /// With a cache full of what is no number, and pages in no order, one more than is used; the sequence of row i is
    /// in slot i + 1.
    fn of<'a>(gpu: &'a Gpu, model: &Model, contexts: &[usize]) -> Result<Bench<'a>, Box<dyn Error>> {
        let (stream, shape, kv) = (gpu.device.stream(), model.shape, model.kv);
        let context_max = *contexts.iter().max().expect("some");
        let pages_max = context_max.div_ceil(PAGE);
        let used: usize = contexts.iter().map(|n| n.div_ceil(PAGE)).sum();
        let mut free: Vec<i32> = (0..=used as i32).collect();
        let mut random = Random(5);
        (1..free.len()).rev().for_each(|i| free.swap(i, random.bits() as usize % (i + 1)));
        let mut table = vec![-1; (contexts.len() + 1) * pages_max];
        for (i, n) in contexts.iter().enumerate() {
            let pages = table[(i + 1) * pages_max..].iter_mut().take(n.div_ceil(PAGE));
            pages.for_each(|page| *page = free.pop().expect("enough"));
        }
        let (k_page, v_page) = shape.page_bytes(kv);
        let rows = contexts.len() * (2 + shape.drafts) + 2;
        Ok(Bench {
            gpu,
            shape,
            kernel: Attention::load(&gpu.device, &gpu.cache, shape, kv)?,
            norms: [stream.clone_htod(&model.q_norm)?, stream.clone_htod(&model.k_norm)?],
            keys: stream.clone_htod(&vec![0xffu8; (used + 1) * k_page])?,
            values: stream.clone_htod(&vec![0xffu8; (used + 1) * v_page])?,
            scratch: DecodeScratch::new(&gpu.device, shape, rows, context_max)?,
            table: stream.clone_htod(&table)?,
            pages_max,
        })
    }

    /// Rows are {slot, position, input row}.
    fn run(&mut self, rows: &[(i32, usize, &[f32])], pieces: Option<&[usize]>) -> Result<Bytes, Box<dyn Error>> {
        let (stream, n, stride) = (self.gpu.device.stream(), rows.len(), codes_of(self.shape));
        let slots = stream.clone_htod(&rows.iter().map(|r| r.0).collect::<Vec<_>>())?;
        let positions = stream.clone_htod(&rows.iter().map(|r| r.1 as i32).collect::<Vec<_>>())?;
        let x: Vec<f32> = rows.iter().flat_map(|r| r.2.iter().copied()).collect();
        let (x, half_x) = (stream.clone_htod(&x)?, stream.clone_htod(&as_halves(&x))?);
        let mut codes = stream.clone_htod(&vec![99i8; n * stride])?;
        let mut meta = stream.clone_htod(&vec![f32::NAN; n * stride / 16])?;
        let rows = AttentionRows {
            count: n,
            slots: &slots.as_view(),
            positions: &positions.as_view(),
            page_table: &self.table.as_view(),
            pages_max: self.pages_max,
            half_inputs: false,
        };
        let norms = Norms { query: &self.norms[0].as_view(), key: &self.norms[1].as_view() };
        let [mut keys, mut values] = [&mut self.keys, &mut self.values].map(|part| part.as_view_mut());
        let device = &self.gpu.device;
        let Some(pieces) = pieces else {
            let cache = Cache { keys: &mut keys, values: &mut values };
            let out = Out { codes: &mut codes.as_view_mut(), meta: &mut meta.as_view_mut(), halves: None };
            // SAFETY: slots differ, and the table names pages of the cache for all their positions; copies do not start
            // early.
            unsafe { self.kernel.decode(device, rows, &x.as_view(), norms, cache, &mut self.scratch, out)? };
            return Ok((stream.clone_dtoh(&codes)?, stream.clone_dtoh(&meta)?));
        };
        let tiles = attention::tiles(self.shape, TileChip::of(device), pieces);
        let d_tiles = stream.clone_htod(tiles.as_flattened())?;
        // As f16 first, if there is such a form.
        let width = self.shape.heads * self.shape.dim;
        let made = (self.shape.planes == Planes::One && width == self.shape.out_stride())
            .then(|| HalfRows::of_hidden(device, n, n * width))
            .transpose()?;
        // And of rows that come as f16, which has all of their values: the same bytes.
        let mut before: Option<Vec<i8>> = None;
        for (halves, half_inputs) in
            made.as_ref().map(|made| (Some(made), true)).into_iter().chain([(None, true), (None, false)])
        {
            let (cache, x) = (Cache { keys: &mut keys, values: &mut values }, if half_inputs { &half_x } else { &x });
            let out = Out { codes: &mut codes.as_view_mut(), meta: &mut meta.as_view_mut(), halves };
            let (tiles, rows) = ((&d_tiles.as_view(), tiles.len()), AttentionRows { half_inputs, ..rows });
            // SAFETY: as above; the callers' pieces are of one slot each.
            unsafe { self.kernel.prefill(device, rows, tiles, &x.as_view(), norms, cache, out)? };
            let written = stream.clone_dtoh(&codes)?;
            assert!(halves.is_none() || written.iter().all(|code| *code == 99), "no int8 beside f16");
            assert!(half_inputs || before.is_none_or(|before| before == written), "inputs of f16 make other bytes");
            before = Some(written).filter(|_| halves.is_none());
        }
        if let Some(made) = &made {
            let meta = pairs(&stream.clone_dtoh(&meta)?);
            let int8 = QuantizedRows { codes: stream.clone_dtoh(&codes)?, meta, planes: Planes::One };
            near_int8(self.gpu, made, &int8, width)?;
        }
        Ok((stream.clone_dtoh(&codes)?, stream.clone_dtoh(&meta)?))
    }
}

/// From an output row to the next, in codes.
fn codes_of(shape: AttentionShape) -> usize {
    shape.out_stride() * shape.planes.count()
}

fn row_of(bytes: &Bytes, row: usize, stride: usize) -> (&[i8], Vec<u32>) {
    (
        &bytes.0[row * stride..][..stride],
        bytes.1[row * stride / 16..][..stride / 16].iter().map(|v| v.to_bits()).collect(),
    )
}

/// By how much more than half a code the row is off, as a part of its largest value.
fn excess(bytes: &Bytes, row: usize, shape: AttentionShape, want: &[f32]) -> f32 {
    let stride = codes_of(shape);
    let meta = bytes.1.as_chunks::<2>().0;
    let rows = QuantizedRows {
        codes: bytes.0[row * stride..][..stride].to_vec(),
        meta: meta[row * stride / 32..][..stride / 32].to_vec(),
        planes: shape.planes,
    };
    let top = want.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let mut worst = 0.0f32;
    for (b, want) in want.chunks(32).enumerate() {
        for (got, want) in rows.values(b).into_iter().zip(want) {
            let off = ((got - f64::from(*want)).abs() - rows.error_max(b)) as f32 / top;
            // What is no number is the worst of all.
            worst = if off <= worst {
                worst
            } else if off.is_nan() {
                f32::INFINITY
            } else {
                off
            };
        }
    }
    worst
}

fn rows_attend_to_their_own_sequence(gpu: &Gpu, shape: AttentionShape, kv: KvType, contexts: &[usize]) -> Outcome {
    let stride = codes_of(shape);
    let model = Model::random(shape, kv);
    let sequences: Vec<Sequence> =
        contexts.iter().enumerate().map(|(i, n)| model.sequence(*n, 100 + i as u64)).collect();
    let mut bench = Bench::of(gpu, &model, contexts)?;
    let input = |s: usize, p: usize| &sequences[s].x[p * shape.stride..][..shape.stride];
    let (mut worst, nothing) = ([0.0f32; 2], vec![f32::NAN; shape.stride]);

    // All positions but the last: first some of each sequence, then the rest, with a row that is none between them.
    let part = |n: usize, second: bool| {
        let (all, cut) = (n - 1, (n - 1) * 2 / 5);
        if second { cut..all } else { 0..cut }
    };
    let mut outputs: Vec<Vec<(Vec<i8>, Vec<u32>)>> = vec![Vec::new(); contexts.len()];
    for second in [false, true] {
        let (mut rows, mut pieces) = (Vec::new(), Vec::new());
        for (s, n) in contexts.iter().enumerate() {
            rows.extend(part(*n, second).map(|p| (s as i32 + 1, p, input(s, p))));
            rows.push((-1, 0, nothing.as_slice()));
            pieces.extend([part(*n, second).len(), 1]);
        }
        let got = bench.run(&rows, Some(&pieces))?;
        for (r, (slot, p, _)) in rows.iter().enumerate() {
            if *slot < 0 {
                assert!(got.0[r * stride..][..stride].iter().all(|c| *c == 99), "a row that is none was written");
                continue;
            }
            let s = *slot as usize - 1;
            outputs[s].push((row_of(&got, r, stride).0.to_vec(), row_of(&got, r, stride).1));
            if *p < 70 || p % 389 == 0 {
                worst[0] = worst[0].max(excess(&got, r, shape, &model.row(&sequences[s], *p)));
            }
        }
    }
    // A whole sequence by itself has the same bytes.
    for (s, n) in contexts.iter().enumerate().filter(|(_, n)| **n > 1) {
        let rows: Vec<_> = (0..n - 1).map(|p| (s as i32 + 1, p, input(s, p))).collect();
        let got = bench.run(&rows, Some(&[n - 1]))?;
        for (p, want) in outputs[s].iter().enumerate() {
            let same = row_of(&got, p, stride) == (want.0.as_slice(), want.1.clone());
            assert!(same, "{shape:?} {kv:?}: position {p} of {n} differs from itself in pieces among others");
        }
    }
    // The last position of each.
    let mut rows: Vec<_> = contexts.iter().enumerate().map(|(s, n)| (s as i32 + 1, n - 1, input(s, n - 1))).collect();
    rows.insert(2, (-1, 0, nothing.as_slice()));
    rows.push((-1, 0, nothing.as_slice()));
    let got = bench.run(&rows, None)?;
    for (r, row) in rows.iter().enumerate() {
        if row.0 < 0 {
            assert!(got.0[r * stride..][..stride].iter().all(|c| *c == 99), "a row that is none was written");
            continue;
        }
        worst[1] = worst[1].max(excess(&got, r, shape, &model.row(&sequences[row.0 as usize - 1], row.1)));
        let alone = bench.run(&rows[r..=r], None)?;
        let same = row_of(&alone, 0, stride) == row_of(&got, r, stride);
        assert!(same, "{shape:?} {kv:?}: position {} differs from itself alone", row.1);
    }
    println!(
        "attention {kv:?} {} of {}, {} kv heads, {:?}: off by {:.1e} (prefill) and {:.1e} (decode) \
         of a row's largest beyond half a code; alone = among others",
        shape.heads, shape.dim, shape.kv_heads, shape.planes, worst[0], worst[1]
    );
    assert!(worst[0] < 2e-3 && worst[1] < 2e-3, "{shape:?} {kv:?}: off by {worst:?}");
    Ok(())
}

/// The last eight positions of each sequence, one a step, and as a row with seven drafted ones behind it: first with
/// wrong ones, of which the next step must find nothing.
fn drafted_rows_have_the_bytes_of_rows_of_their_own(gpu: &Gpu, shape: AttentionShape, kv: KvType) -> Outcome {
    const CONTEXTS: [usize; 7] = [10, 33, 40, 70, 257, 264, 600];
    let (model, stride) = (Model::random(shape, kv), codes_of(shape));
    let drafting = Model { shape: AttentionShape { drafts: DRAFTS, ..shape }, ..Model::random(shape, kv) };
    let sequences: Vec<Sequence> =
        CONTEXTS.iter().enumerate().map(|(i, n)| model.sequence(*n, 100 + i as u64)).collect();
    let input = |s: usize, p: usize| &sequences[s].x[p * shape.stride..][..shape.stride];
    let first = |n: usize| n - DRAFTS - 1;
    let mut benches = [Bench::of(gpu, &model, &CONTEXTS)?, Bench::of(gpu, &drafting, &CONTEXTS)?];
    for bench in &mut benches {
        let rows = CONTEXTS.iter().enumerate().flat_map(|(s, n)| (0..first(*n)).map(move |p| (s, p)));
        let rows: Vec<_> = rows.map(|(s, p)| (s as i32 + 1, p, input(s, p))).collect();
        bench.run(&rows, Some(&CONTEXTS.map(first)))?;
    }
    let [alone, drafts] = &mut benches;
    let mut want = Vec::new();
    for n in 0..=DRAFTS {
        let row = |(s, len): (usize, &usize)| (s as i32 + 1, first(*len) + n, input(s, first(*len) + n));
        want.push(alone.run(&CONTEXTS.iter().enumerate().map(row).collect::<Vec<_>>(), None)?);
    }
    let wrong = Random(9).vector(DRAFTS * shape.stride);
    // Of the eight so many are right in the first step, and the others follow in the second.
    for right in [1, 3] {
        for (from, wrong_from) in [(0, right), (right, DRAFTS + 1)] {
            let (mut rows, mut places) = (Vec::new(), Vec::new());
            for (s, len) in CONTEXTS.iter().enumerate() {
                rows.push((-1, 0, &wrong[..shape.stride]));
                for n in from..=DRAFTS {
                    let x = if n < wrong_from {
                        input(s, first(*len) + n)
                    } else {
                        &wrong[(n - 1) * shape.stride..][..shape.stride]
                    };
                    if n < wrong_from {
                        places.push((rows.len(), n, s));
                    }
                    rows.push((s as i32 + 1, first(*len) + n, x));
                }
            }
            let got = drafts.run(&rows, None)?;
            for (row, n, s) in places {
                let same = row_of(&got, row, stride) == row_of(&want[n], s, stride);
                assert!(same, "{shape:?} {kv:?}: row {n} of {} from {from} on", CONTEXTS[s]);
            }
        }
    }
    println!("attention {kv:?} {} of {}: drafted rows have the bytes of rows of their own", shape.heads, shape.dim);
    Ok(())
}

/// A lone position far out sees its own value alone where all before it are the same: so only the scores' equality is
/// used. Keys that are equal before their turns are told apart by them, which the definition's f64 angles decide.
fn a_late_position_turns_as_exactly_as_an_early_one(gpu: &Gpu) -> Outcome {
    let (shape, kv, first, n) = (shape(64, 2, 1, 64), KvType::F16, 262_080usize, 64usize);
    let (stream, model) = (gpu.device.stream(), Model::random(shape, KvType::F16));
    // One page for all that is long ago, as if the sequence repeated itself; it is full of zeros, whose scores are 0.
    let pages_max = (first + n) / PAGE;
    let mut table = vec![0; pages_max];
    (0..n / PAGE).for_each(|i| table[first / PAGE + i] = 1 + i as i32);
    let (k_page, v_page) = shape.page_bytes(kv);
    let mut bench = Bench {
        gpu,
        shape,
        kernel: Attention::load(&gpu.device, &gpu.cache, shape, kv)?,
        norms: [stream.clone_htod(&model.q_norm)?, stream.clone_htod(&model.k_norm)?],
        keys: stream.alloc_zeros(3 * k_page)?,
        values: stream.alloc_zeros(3 * v_page)?,
        scratch: DecodeScratch::new(&gpu.device, shape, 1, first + n)?,
        table: stream.clone_htod(&table)?,
        pages_max,
    };
    // Values a thousand times larger than those of a short sequence, so that 64 of them show among 262,080 zeros.
    let mut x = Random(3).vector(n * shape.stride);
    x.chunks_mut(shape.stride).for_each(|row| row[5 * shape.dim..].iter_mut().for_each(|v| *v *= 3e4));
    x.iter_mut().for_each(|v| *v = f16(*v));
    let mut got = Vec::new();
    for (i, row) in x.chunks(shape.stride).enumerate() {
        got = vec![bench.run(&[(0, first + i, row)], None)?];
    }
    let rows: Vec<_> = x.chunks(shape.stride).enumerate().map(|(i, row)| (0, first + i, row)).collect();
    got.push(bench.run(&rows[n - 1..], Some(&[1]))?);
    let (mut keys, mut values) = (vec![0.0; first * shape.dim], vec![0.0; first * shape.dim]);
    for (i, row) in x.chunks(shape.stride).enumerate() {
        keys.extend(model.turned(&row[4 * shape.dim..][..shape.dim], &model.k_norm, first + i).into_iter().map(f16));
        values.extend(row[5 * shape.dim..][..shape.dim].iter().copied().map(f16));
    }
    let row = &x[(n - 1) * shape.stride..];
    let want: Vec<f32> = (0..2)
        .flat_map(|h| {
            let q = model.turned(&row[2 * h * shape.dim..][..shape.dim], &model.q_norm, first + n - 1);
            let o = reference::attention(&q, &keys, &values);
            let gate = &row[(2 * h + 1) * shape.dim..][..shape.dim];
            o.iter().zip(gate).map(|(o, g)| o / (1.0 + (-g).exp())).collect::<Vec<f32>>()
        })
        .collect();
    let off = [0, 1].map(|i| excess(&got[i], 0, shape, &want));
    println!("attention at position 262143: off by {:.1e} (decode) and {:.1e} (prefill)", off[0], off[1]);
    assert!(off[0] < 3e-3 && off[1] < 3e-3, "{off:?}");
    Ok(())
}
