//! Mamba-2 layers: single tokens and pieces of prompts against the recurrence in f64; pieces give the same bytes
//! however they are cut.

use crate::support::{Gpu, Outcome, Test, pairs};
use chimere_kernels::cuda::gdn_prefill::{MixedRows, Pieces, chunk_number, chunks_max};
use chimere_kernels::cuda::mamba2::{self, Counters, LayerWeights, Mamba2, Mamba2Rows, Mamba2Shape, Mamba2State, TAPS};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::quantized::{Planes, QuantizedRows};
use chimere_kernels::cuda::rows::padded;
use chimere_kernels::cuda::{CudaError, Program};
use chimere_kernels::reference::{Mamba2Inputs, mamba2_recurrent};
use cudarc::driver::{CudaSlice, CudaView};
use std::error::Error;

const EPS: f32 = 1e-5;
/// A small one, Nemotron's, a wide state in several blocks, one group whose norm spans blocks, none.
const SHAPES: [Mamba2Shape; 5] = [
    Mamba2Shape { heads: 4, head_dim: 32, state_dim: 32, groups: 2, normed: true, planes: Planes::Two },
    Mamba2Shape { heads: 8, head_dim: 64, state_dim: 128, groups: 2, normed: true, planes: Planes::One },
    Mamba2Shape { heads: 3, head_dim: 128, state_dim: 256, groups: 1, normed: true, planes: Planes::One },
    Mamba2Shape { heads: 12, head_dim: 64, state_dim: 128, groups: 1, normed: true, planes: Planes::Two },
    Mamba2Shape { heads: 4, head_dim: 128, state_dim: 64, groups: 4, normed: false, planes: Planes::One },
];
/// Slot, first position and rows of each sequence: one that is new, one that goes on.
const SEQUENCES: [(i32, i32, usize); 2] = [(2, 0, 150), (0, 64, 70)];
const SLOTS: usize = 7;
/// Places behind the slots of sequences, where states are kept on the way.
const KEPT: [i32; 3] = [4, 5, 6];
/// Products of a chunk are good to 2^-16: what outputs and states of prompts may be off.
const PROMPT_SLACK: f64 = 2e-4;
const PROMPT_STATES: f64 = 3e-5;

/// What the tests load.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    SHAPES.into_iter().map(mamba2::program).collect()
}

/// The tests of this file by their names, as `main` lists and filters them.
pub(crate) const TESTS: &[Test] = &[
    ("mamba2::steps_follow_the_recurrence", every_step),
    ("mamba2::prompts_follow_the_recurrence_however_they_are_cut", every_prompt),
];

fn every_step(gpu: &Gpu) -> Outcome {
    SHAPES.into_iter().try_for_each(|shape| Case::new(gpu, shape)?.steps_follow_the_recurrence())
}

fn every_prompt(gpu: &Gpu) -> Outcome {
    SHAPES.into_iter().try_for_each(|shape| Case::new(gpu, shape)?.prompts_follow_the_recurrence_however_they_are_cut())
}

/// A layer with inputs of all rows, those of one sequence after those of the other.
struct Case<'a> {
    gpu: &'a Gpu,
    shape: Mamba2Shape,
    kernel: Mamba2,
    /// Convolution, its bias, decay, d, bias of the step sizes, norm.
    host: [Vec<f32>; 6],
    device: [CudaSlice<f32>; 6],
    x: Vec<f32>,
    before: [Vec<f32>; 2],
}

/// States and convolution rings of a layer on the device.
struct Kept {
    state: CudaSlice<f32>,
    tail: CudaSlice<f32>,
}

/// Everything that all rows leave.
struct Made {
    rows: QuantizedRows,
    state: Vec<f32>,
    tail: Vec<f32>,
}

impl<'a> Case<'a> {
    fn new(gpu: &'a Gpu, shape: Mamba2Shape) -> Result<Self, Box<dyn Error>> {
        let mut random = Random(shape.state_dim as u64);
        let decay = (0..shape.heads).map(|_| -2.0 * random.signed().abs()).collect();
        let host = [
            random.vector(shape.channels() * TAPS),
            random.vector(shape.channels()),
            decay,
            random.vector(shape.heads),
            random.vector(shape.heads),
            random.vector(shape.values()),
        ];
        let copy = |v: &Vec<f32>| gpu.device.stream().clone_htod(v);
        let [a, b, c, d, e, f] = &host;
        let device = [copy(a)?, copy(b)?, copy(c)?, copy(d)?, copy(e)?, copy(f)?];
        let rows = SEQUENCES.iter().map(|s| s.2).sum::<usize>();
        let mut before = [random.vector(SLOTS * shape.state()), random.vector(SLOTS * shape.tail())];
        // The first sequence is new.
        let new = SEQUENCES[0].0 as usize;
        before[0][new * shape.state()..][..shape.state()].fill(0.0);
        before[1][new * shape.tail()..][..shape.tail()].fill(0.0);
        let x = random.vector(rows * shape.inputs());
        Ok(Self { gpu, shape, kernel: Mamba2::load(&gpu.device, &gpu.cache, shape)?, host, device, x, before })
    }

    fn kept(&self) -> Result<Kept, Box<dyn Error>> {
        let stream = self.gpu.device.stream();
        Ok(Kept { state: stream.clone_htod(&self.before[0])?, tail: stream.clone_htod(&self.before[1])? })
    }

    /// Codes of a row.
    fn codes(&self) -> usize {
        padded(self.shape.values()) * self.shape.planes.count()
    }

    /// Launches over inputs of `rows` rows; what they leave of each row, 99 and NaN where nothing was written.
    fn launch(
        &self,
        x: &[f32],
        rows: usize,
        run: impl FnOnce(&CudaView<'_, f32>, LayerWeights<'_>, MixedRows<'_, '_>) -> Result<(), CudaError>,
    ) -> Result<QuantizedRows, Box<dyn Error>> {
        let (stream, codes) = (self.gpu.device.stream(), rows * self.codes());
        let x = stream.clone_htod(x)?;
        let (mut all, mut meta) =
            (stream.clone_htod(&vec![99i8; codes])?, stream.clone_htod(&vec![f32::NAN; codes / 16])?);
        let [taps, conv_bias, a_neg, d, dt_bias, norm] = &self.device;
        let (taps, conv_bias, a_neg) = (taps.as_view(), conv_bias.as_view(), a_neg.as_view());
        let (d, dt_bias, norm) = (d.as_view(), dt_bias.as_view(), norm.as_view());
        let layer = LayerWeights {
            taps: &taps,
            conv_bias: &conv_bias,
            a_neg: &a_neg,
            d: &d,
            dt_bias: &dt_bias,
            norm: &norm,
            eps: EPS,
        };
        run(&x.as_view(), layer, MixedRows { codes: &mut all.as_view_mut(), meta: &mut meta.as_view_mut() })?;
        let (codes, meta) = (stream.clone_dtoh(&all)?, pairs(&stream.clone_dtoh(&meta)?));
        Ok(QuantizedRows { codes, meta, planes: self.shape.planes })
    }

    /// A step of these rows, `(slot, position, row of the inputs)`.
    fn step(&self, rows: &[(i32, i32, usize)], kept: &mut Kept) -> Result<QuantizedRows, Box<dyn Error>> {
        let (stream, width) = (self.gpu.device.stream(), self.shape.inputs());
        let x: Vec<f32> = rows.iter().flat_map(|row| &self.x[row.2 * width..][..width]).copied().collect();
        let list = |of: fn(&(i32, i32, usize)) -> i32| stream.clone_htod(&rows.iter().map(of).collect::<Vec<_>>());
        let (slots, positions) = (list(|row| row.0)?, list(|row| row.1)?);
        let mut counters = Counters::new(&self.gpu.device, self.shape, rows.len())?;
        let mut scratch = stream.clone_htod(&vec![f32::NAN; mamba2::scratch(self.shape, rows.len(), 0)])?;
        self.launch(&x, rows.len(), |x, layer, out| {
            let rows = Mamba2Rows { count: rows.len(), slots: &slots.as_view(), positions: &positions.as_view() };
            let memory = Mamba2State { state: &mut kept.state.as_view_mut(), tail: &mut kept.tail.as_view_mut() };
            let (device, scratch) = (&self.gpu.device, &mut scratch.as_view_mut());
            // SAFETY: slots differ and are below SLOTS; the copies above are not launched early.
            unsafe { self.kernel.decode(device, rows, x, layer, memory, &mut counters, scratch, out) }
        })
    }

    /// All rows one token after another, both sequences in a step; beside them a row that is none.
    fn stepped(&self) -> Result<Made, Box<dyn Error>> {
        let (mut kept, codes) = (self.kept()?, self.codes());
        let all: usize = SEQUENCES.iter().map(|s| s.2).sum();
        let mut rows = QuantizedRows {
            codes: vec![0; all * codes],
            meta: vec![[0.0; 2]; all * codes / 32],
            planes: self.shape.planes,
        };
        for t in 0..SEQUENCES.iter().map(|s| s.2).max().unwrap_or(0) {
            let mut first = 0;
            let mut step = vec![(-1, 0, 0)];
            for (slot, start, n) in SEQUENCES {
                step.extend((t < n).then_some((slot, start + t as i32, first + t)));
                first += n;
            }
            let made = self.step(&step, &mut kept)?;
            assert!(made.codes[..codes].iter().all(|c| *c == 99), "a row that is none was written");
            for (i, (.., row)) in step.iter().enumerate().skip(1) {
                rows.codes[row * codes..][..codes].copy_from_slice(&made.codes[i * codes..][..codes]);
                rows.meta[row * codes / 32..][..codes / 32].copy_from_slice(&made.meta[i * codes / 32..][..codes / 32]);
            }
        }
        let stream = self.gpu.device.stream();
        Ok(Made { rows, state: stream.clone_dtoh(&kept.state)?, tail: stream.clone_dtoh(&kept.tail)? })
    }

    /// Pieces `[slot, start, first row, rows]`, with where states are kept by the number of a chunk.
    fn prompted(
        &self,
        pieces: &[[i32; 4]],
        exports: Option<&[i32]>,
        kept: &mut Kept,
    ) -> Result<QuantizedRows, Box<dyn Error>> {
        let stream = self.gpu.device.stream();
        let rows = self.x.len() / self.shape.inputs();
        let list = stream.clone_htod(pieces.as_flattened())?;
        let exports = exports.map(|e| stream.clone_htod(e)).transpose()?;
        let exports = exports.as_ref().map(CudaSlice::as_view);
        let mut scratch = stream.clone_htod(&vec![f32::NAN; mamba2::scratch(self.shape, rows, pieces.len())])?;
        self.launch(&self.x, rows, |x, layer, out| {
            let pieces = Pieces { list: &list.as_view(), count: pieces.len(), rows, exports: exports.as_ref() };
            let memory = Mamba2State { state: &mut kept.state.as_view_mut(), tail: &mut kept.tail.as_view_mut() };
            // SAFETY: pieces follow one another and have slots of their own, below SLOTS.
            unsafe { self.kernel.prefill(&self.gpu.device, pieces, x, layer, memory, &mut scratch.as_view_mut(), out) }
        })
    }

    /// One sequence by the definition: its rows before the int8 form, and its state.
    fn defined(&self, s: usize) -> (Vec<f32>, Vec<f64>) {
        let (shape, [taps, conv_bias, a_neg, d, dt_bias, norm]) = (self.shape, &self.host);
        let (slot, start, n) = SEQUENCES[s];
        let first: usize = SEQUENCES[..s].iter().map(|s| s.2).sum();
        let (values, channels, width) = (shape.values(), shape.channels(), shape.inputs());
        let row = |t: usize| &self.x[(first + t) * width..][..width];
        let ring = &self.before[1][slot as usize * shape.tail()..][..shape.tail()];
        let input = |t: i32, ch: usize| match usize::try_from(t) {
            Ok(t) => row(t)[values + ch],
            Err(_) => ring[((start + t) & 3) as usize * channels + ch],
        };
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let convolved = |t: usize, ch: usize| {
            let taps = (0..TAPS).map(|j| f64::from(taps[ch * TAPS + j]) * f64::from(input((t + j) as i32 - 3, ch)));
            silu(taps.sum::<f64>() + f64::from(conv_bias[ch])) as f32
        };
        let part = |from: usize, len: usize| -> Vec<f32> {
            (0..n).flat_map(|t| (from..from + len).map(move |ch| (t, ch))).map(|(t, ch)| convolved(t, ch)).collect()
        };
        let mut state: Vec<f64> =
            self.before[0][slot as usize * shape.state()..][..shape.state()].iter().map(|v| f64::from(*v)).collect();
        let (p, states, mut out) = (shape.head_dim, shape.state_dim, vec![0.0f32; n * values]);
        for (h, state) in state.chunks_exact_mut(p * states).enumerate() {
            let group = h / (shape.heads / shape.groups);
            let (b_at, c_at) = (values + group * states, values + (shape.groups + group) * states);
            let inputs = Mamba2Inputs {
                x: &part(h * p, p),
                b: &part(b_at, states),
                c: &part(c_at, states),
                dt: &(0..n).map(|t| row(t)[values + channels + h]).collect::<Vec<_>>(),
                dt_bias: dt_bias[h],
                a: a_neg[h],
                d: d[h],
                head_dim: p,
                state_dim: states,
            };
            for (t, y) in mamba2_recurrent(&inputs, state).chunks_exact(p).enumerate() {
                out[t * values + h * p..][..p].copy_from_slice(y);
            }
        }
        for (t, out) in out.chunks_exact_mut(values).enumerate() {
            out.iter_mut().zip(row(t)).for_each(|(y, z)| *y = (f64::from(*y) * silu(f64::from(*z))) as f32);
            if shape.normed {
                let of_group = values / shape.groups;
                for (group, norm) in out.chunks_exact_mut(of_group).zip(norm.chunks_exact(of_group)) {
                    let mean = group.iter().map(|y| f64::from(*y).powi(2)).sum::<f64>() / of_group as f64;
                    let scale = 1.0 / (mean + f64::from(EPS)).sqrt();
                    group.iter_mut().zip(norm).for_each(|(y, w)| *y = (f64::from(*y) * scale * f64::from(*w)) as f32);
                }
            }
        }
        (out, state)
    }

    fn steps_follow_the_recurrence(&self) -> Outcome {
        self.follow(&self.stepped()?, "steps", 3e-5, 1e-5)
    }

    /// Outputs and states beside the definition's: `slack` is what outputs may be off beside their int8 form, as a part
    /// of a block's largest or of 1, `states` what states may, as a part of their largest.
    fn follow(&self, made: &Made, what: &str, slack: f64, states: f64) -> Outcome {
        let shape = self.shape;
        let (blocks, mut first, mut worst, mut off) = (padded(shape.values()) / 32, 0, 0.0f64, 0.0f64);
        for (s, (slot, _, n)) in SEQUENCES.into_iter().enumerate() {
            let (want, state) = self.defined(s);
            for (t, want) in want.chunks_exact(shape.values()).enumerate() {
                for (b, want) in want.chunks_exact(32).enumerate() {
                    let most = made.rows.error_max((first + t) * blocks + b);
                    let top = want.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())));
                    for (got, want) in made.rows.values((first + t) * blocks + b).into_iter().zip(want) {
                        let error = (got - f64::from(*want)).abs();
                        worst = worst.max((error - 1.02 * most) / top.max(1.0));
                        let allowed = 1.02 * most + slack * top.max(1.0);
                        assert!(error <= allowed, "{shape:?} {what} {s} token {t} block {b}: {got} for {want}");
                    }
                }
            }
            let got = &made.state[slot as usize * shape.state()..][..shape.state()];
            let top = state.iter().fold(1e-30f64, |m, v| m.max(v.abs()));
            for (got, want) in got.iter().zip(&state) {
                let error = (f64::from(*got) - want).abs() / top;
                off = if error.is_nan() { f64::INFINITY } else { off.max(error) };
            }
            first += n;
        }
        assert!(off < states, "{shape:?} {what}: a state is off by {off:e} of its largest value");
        let untouched = shape.state()..2 * shape.state();
        assert!(made.state[untouched.clone()] == self.before[0][untouched], "a slot in no row changed");
        println!("mamba2 {shape:?} {what}: outputs to {worst:.1e} beside their int8 form, states to {off:.1e}");
        Ok(())
    }

    fn prompts_follow_the_recurrence_however_they_are_cut(&self) -> Outcome {
        let (shape, stream) = (self.shape, self.gpu.device.stream());
        let [(a, a_start, a_rows), (b, b_start, b_rows)] = SEQUENCES.map(|(slot, start, n)| (slot, start, n as i32));
        let pieces = [[a, a_start, 0, a_rows], [b, b_start, a_rows, b_rows]];
        // After 64 and 128 tokens of the first sequence, after 64 of the second.
        let keeps = [(0, 64, KEPT[0]), (0, 128, KEPT[1]), (1, 64, KEPT[2])];
        let mut exports = vec![-1; chunks_max((a_rows + b_rows) as usize, 2)];
        for (s, n, place) in keeps {
            exports[chunk_number(s, pieces[s][2] as usize, n / 64 - 1)] = place;
        }
        let mut kept = self.kept()?;
        let rows = self.prompted(&pieces, Some(&exports), &mut kept)?;
        let (state, tail) = (stream.clone_dtoh(&kept.state)?, stream.clone_dtoh(&kept.tail)?);
        let made = Made { rows, state, tail };
        self.follow(&made, "prompts", PROMPT_SLACK, PROMPT_STATES)?;
        let part = |all: &[f32], slot: i32, len: usize| all[slot as usize * len..][..len].to_vec();
        // In pieces of a chunk, each in launches of its own: states on the way are those that were kept.
        let (mut kept, mut found) = (self.kept()?, 0);
        for n in 0..3 {
            let piece = |s: usize| {
                let [slot, start, first, rows] = pieces[s];
                let left = (rows - 64 * n).min(64);
                (left > 0).then_some([slot, start + 64 * n, first + 64 * n, left])
            };
            let list: Vec<[i32; 4]> = (0..2).filter_map(piece).collect();
            let cut = self.prompted(&list, None, &mut kept)?;
            for [_, _, first, rows] in &list {
                self.same_rows(&cut, &made, *first as usize..(first + rows) as usize, "cut")?;
            }
            let (state, tail) = (stream.clone_dtoh(&kept.state)?, stream.clone_dtoh(&kept.tail)?);
            for (s, _, place) in keeps.into_iter().filter(|keep| keep.1 == 64 * (n as usize + 1)) {
                let slot = SEQUENCES[s].0;
                let same = part(&state, slot, shape.state()) == part(&made.state, place, shape.state());
                assert!(same, "{shape:?}: state kept at {place}");
                assert!(part(&tail, slot, shape.tail()) == part(&made.tail, place, shape.tail()), "{shape:?}: ring");
                found += 1;
            }
            if n == 0 {
                let free = 64 * self.codes()..a_rows as usize * self.codes();
                assert!(cut.codes[free].iter().all(|c| *c == 99), "{shape:?}: rows in no piece were written");
            }
        }
        assert_eq!(found, keeps.len());
        self.same_memory(&made, &kept, "cut")?;
        // What was kept is what a second one goes on from.
        let mut kept = Kept { state: stream.clone_htod(&made.state)?, tail: stream.clone_htod(&made.tail)? };
        let rest = self.prompted(&[[KEPT[0], a_start + 64, 64, a_rows - 64]], None, &mut kept)?;
        self.same_rows(&rest, &made, 64..a_rows as usize, "from a kept state")
    }

    fn same_rows(&self, rows: &QuantizedRows, want: &Made, of: std::ops::Range<usize>, what: &str) -> Outcome {
        let (shape, width) = (self.shape, padded(self.shape.values()) / 32);
        // Beyond a row's own values nothing is written.
        for block in of.flat_map(|row| row * width..row * width + shape.values() / 32) {
            let planes = shape.planes.count();
            let (codes, meta) = (block * 32 * planes..(block + 1) * 32 * planes, block * planes..(block + 1) * planes);
            let equal =
                rows.codes[codes.clone()] == want.rows.codes[codes] && rows.meta[meta.clone()] == want.rows.meta[meta];
            assert!(equal, "{shape:?} {what}: block {block} differs");
        }
        Ok(())
    }

    fn same_memory(&self, want: &Made, kept: &Kept, what: &str) -> Outcome {
        let (shape, stream) = (self.shape, self.gpu.device.stream());
        let (state, tail) = (stream.clone_dtoh(&kept.state)?, stream.clone_dtoh(&kept.tail)?);
        for (slot, ..) in SEQUENCES {
            let part = |all: &[f32], len: usize| all[slot as usize * len..][..len].to_vec();
            let equal = part(&state, shape.state()) == part(&want.state, shape.state());
            assert!(equal, "{shape:?} {what}: state of slot {slot}");
            let equal = part(&tail, shape.tail()) == part(&want.tail, shape.tail());
            assert!(equal, "{shape:?} {what}: ring of slot {slot}");
        }
        Ok(())
    }
}
