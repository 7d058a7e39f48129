//! GDN layers: single tokens and pieces of prompts against the recurrence in f64, token by token.

use crate::support::{Gpu, Outcome, Test, as_halves, f16, near_int8, pairs};
use chimere_kernels::cuda::gdn_decode::{
    self, GdnDecode, GdnRows, GdnState, Heads, LayerWeights, STORE_EVERY, Updates, stores,
};
use chimere_kernels::cuda::gdn_prefill::{self, GdnPrefill, MixedRows, Pieces};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::quantized::{Planes, QuantizedRows};
use chimere_kernels::cuda::wide::halves::HalfRows;
use chimere_kernels::cuda::{CudaError, Program};
use chimere_kernels::reference::{self, GdnInputs};
use cudarc::driver::CudaSlice;
use std::error::Error;

const HEADS: [Heads; 6] = [
    Heads { key_dim: 128, value_dim: 128, keys: 2, values: 4, grouped: false },
    Heads { key_dim: 128, value_dim: 128, keys: 2, values: 6, grouped: false },
    Heads { key_dim: 64, value_dim: 64, keys: 4, values: 8, grouped: false },
    Heads { key_dim: 64, value_dim: 64, keys: 2, values: 6, grouped: true },
    Heads { key_dim: 128, value_dim: 64, keys: 1, values: 4, grouped: true },
    Heads { key_dim: 64, value_dim: 128, keys: 3, values: 3, grouped: false },
];
/// So many that a chip has no room for a block for each of [`MANY`] sequences.
const MANY_HEADS: [Heads; 3] = [
    Heads { key_dim: 128, value_dim: 128, keys: 16, values: 32, grouped: false },
    Heads { key_dim: 64, value_dim: 64, keys: 32, values: 64, grouped: true },
    Heads { key_dim: 96, value_dim: 32, keys: 64, values: 64, grouped: false },
];
const MANY: usize = 21;
const EPS: f32 = 1e-6;
/// Drafted rows behind one.
const DRAFTS: usize = 7;
/// Room for them in a step that has none.
const UNTAKEN: gdn_decode::DraftRoom = gdn_decode::DraftRoom { room: DRAFTS, taken: false };

/// Rows lie a little further apart than they are long.
fn stride(heads: Heads) -> usize {
    heads.inputs() + 4
}

/// All heads with one plane, one with two.
fn cases() -> impl Iterator<Item = (Heads, Planes)> {
    HEADS.into_iter().map(|heads| (heads, Planes::One)).chain([(HEADS[1], Planes::Two)])
}

/// What the tests load.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    let decode = |(heads, planes)| {
        [
            gdn_decode::program(heads, stride(heads), planes, 0),
            gdn_decode::program(heads, stride(heads), planes, DRAFTS),
            gdn_decode::program(heads, stride(heads), planes, UNTAKEN),
        ]
    };
    let many = MANY_HEADS.into_iter().map(|heads| (heads, Planes::One));
    let prefill = cases().map(|(heads, planes)| gdn_prefill::program(heads, stride(heads), planes));
    cases().chain(many).flat_map(decode).chain(prefill).collect()
}

/// The tests of this file by their names, as `main` lists and filters them.
pub(crate) const TESTS: &[Test] = &[
    ("gdn::steps_follow_the_recurrence", every_step),
    ("gdn::rows_have_the_same_bytes_where_a_block_has_several", every_batch),
    ("gdn::drafted_rows_have_the_bytes_of_rows_of_their_own", every_draft),
    ("gdn::pieces_follow_the_recurrence", every_piece),
    ("gdn::a_prompt_gives_the_same_bytes_however_it_is_cut", every_cut),
    ("gdn::a_state_that_is_kept_on_the_way_is_that_of_a_prompt_that_ends_there", every_kept),
];

fn every_kept(gpu: &Gpu) -> Outcome {
    cases().try_for_each(|(heads, planes)| {
        a_state_that_is_kept_on_the_way_is_that_of_a_prompt_that_ends_there(gpu, heads, planes)
    })
}

fn every_step(gpu: &Gpu) -> Outcome {
    cases().try_for_each(|(heads, planes)| steps_follow_the_recurrence(gpu, heads, planes))
}

fn every_batch(gpu: &Gpu) -> Outcome {
    MANY_HEADS.into_iter().try_for_each(|heads| rows_have_the_same_bytes_where_a_block_has_several(gpu, heads))
}

fn every_draft(gpu: &Gpu) -> Outcome {
    cases().try_for_each(|(heads, planes)| drafted_rows_have_the_bytes_of_rows_of_their_own(gpu, heads, planes))
}

fn every_piece(gpu: &Gpu) -> Outcome {
    for (heads, planes) in cases() {
        pieces_follow_the_recurrence(gpu, heads, planes, false)?;
        pieces_follow_the_recurrence(gpu, heads, planes, true)?;
    }
    Ok(())
}

fn every_cut(gpu: &Gpu) -> Outcome {
    cases().try_for_each(|(heads, planes)| a_prompt_gives_the_same_bytes_however_it_is_cut(gpu, heads, planes))
}

/// A layer's weights, on both sides.
struct Layer {
    heads: Heads,
    planes: Planes,
    host: [Vec<f32>; 4],
    device: [CudaSlice<f32>; 4],
}

impl Layer {
    fn new(gpu: &Gpu, heads: Heads, planes: Planes, random: &mut Random, decay: f32) -> Result<Self, Box<dyn Error>> {
        let decay = (0..heads.values).map(|_| decay * random.signed().abs()).collect();
        let host =
            [random.vector(heads.channels() * 4), decay, random.vector(heads.values), random.vector(heads.value_dim)];
        let [a, b, c, d] = &host;
        let copy = |v: &Vec<f32>| gpu.device.stream().clone_htod(v);
        Ok(Self { heads, planes, device: [copy(a)?, copy(b)?, copy(c)?, copy(d)?], host })
    }

    /// Codes of a row.
    fn width(&self) -> usize {
        self.heads.values * self.heads.value_dim * self.planes.count()
    }
}

/// Calls `$run` with the layer's weights as views.
macro_rules! with_weights {
    ($layer:expr, |$weights:ident| $run:expr) => {{
        let [taps, decay, dt_bias, norm] = &$layer.device;
        let (taps, decay, dt_bias, norm) = (taps.as_view(), decay.as_view(), dt_bias.as_view(), norm.as_view());
        let $weights = LayerWeights { taps: &taps, decay: &decay, dt_bias: &dt_bias, norm: &norm, eps: EPS };
        $run
    }};
}

/// One sequence's state and ring on the host.
#[derive(Clone)]
struct Sequence {
    state: Vec<f64>,
    ring: Vec<f32>,
}

impl Sequence {
    fn random(heads: Heads, random: &mut Random) -> Self {
        let state = random.vector(heads.state()).into_iter().map(f64::from).collect();
        Self { state, ring: random.vector(heads.tail()) }
    }

    fn fresh(heads: Heads) -> Self {
        Self { state: vec![0.0; heads.state()], ring: vec![0.0; heads.tail()] }
    }
}

/// Sequences' states and rings on the device.
struct Slots {
    state: CudaSlice<f32>,
    tail: CudaSlice<f32>,
    updates: CudaSlice<f32>,
    /// Drafted rows behind one that there is room for.
    drafts: usize,
    /// Positions that each slot's state lacks, up to its next one.
    lacks: Vec<std::ops::Range<i32>>,
    /// After how many positions it is written.
    every: usize,
}

/// A slot's state with the updates that it lacks, `S = decay * S + k delta^T` with the kernel's own operations.
fn applied(heads: Heads, state: &mut [f32], updates: &[f32], drafts: usize, lacks: &std::ops::Range<i32>) {
    let (k, v, kept) = (heads.key_dim, heads.value_dim, STORE_EVERY - 1 + drafts);
    let each = k + v + 4;
    for (head, state) in state.chunks_exact_mut(k * v).enumerate() {
        for position in lacks.clone() {
            let update = &updates[(head * kept + position as usize % kept) * each..][..each];
            for (row, key) in state.chunks_exact_mut(v).zip(update) {
                for (s, delta) in row.iter_mut().zip(&update[k..]) {
                    *s = key.mul_add(*delta, update[k + v] * *s);
                }
            }
        }
    }
}

impl Slots {
    fn new(gpu: &Gpu, heads: Heads, sequences: &[Sequence], drafts: usize) -> Result<Self, Box<dyn Error>> {
        let state: Vec<f32> = sequences.iter().flat_map(|s| s.state.iter().map(|v| *v as f32)).collect();
        let tail: Vec<f32> = sequences.iter().flat_map(|s| s.ring.clone()).collect();
        let stream = gpu.device.stream();
        let updates = stream.clone_htod(&vec![f32::NAN; sequences.len() * heads.updates(drafts)])?;
        let lacks = vec![0..0; sequences.len()];
        Ok(Self {
            state: stream.clone_htod(&state)?,
            tail: stream.clone_htod(&tail)?,
            updates,
            drafts,
            lacks,
            every: STORE_EVERY,
        })
    }

    /// Single tokens of these slots begin at these positions, behind states that are whole.
    fn begin(&mut self, slots: &[i32], positions: &[i32]) {
        for (slot, position) in slots.iter().zip(positions).filter(|(slot, _)| **slot >= 0) {
            self.lacks[*slot as usize] = *position..*position;
        }
    }

    fn apply(&self, heads: Heads, states: &mut [f32], updates: &[f32]) {
        let of_slots = updates.chunks_exact(heads.updates(self.drafts)).zip(&self.lacks);
        for (state, (updates, lacks)) in states.chunks_exact_mut(heads.state()).zip(of_slots) {
            applied(heads, state, updates, self.drafts, lacks);
        }
    }

    /// States that lack nothing, and rings.
    fn whole(&self, gpu: &Gpu, heads: Heads) -> Result<[Vec<f32>; 2], Box<dyn Error>> {
        let stream = gpu.device.stream();
        let mut state = stream.clone_dtoh(&self.state)?;
        self.apply(heads, &mut state, &stream.clone_dtoh(&self.updates)?);
        Ok([state, stream.clone_dtoh(&self.tail)?])
    }

    /// The largest difference of states as a part of the largest value, head by head; rings must be equal.
    fn difference(&self, gpu: &Gpu, heads: Heads, sequences: &[Sequence]) -> Result<f64, Box<dyn Error>> {
        let stream = gpu.device.stream();
        let (mut state, tail) = (stream.clone_dtoh(&self.state)?, stream.clone_dtoh(&self.tail)?);
        let updates = stream.clone_dtoh(&self.updates)?;
        self.apply(heads, &mut state, &updates);
        let want: Vec<f64> = sequences.iter().flat_map(|s| s.state.clone()).collect();
        for (slot, sequence) in sequences.iter().enumerate() {
            assert!(tail[slot * heads.tail()..][..heads.tail()] == sequence.ring, "{heads:?}: ring of slot {slot}");
        }
        Ok(difference(&state, &want, heads.key_dim * heads.value_dim))
    }
}

/// The largest of differences within `size` values, each as a part of the largest value among those; infinite where one
/// is no number.
fn difference(got: &[f32], want: &[f64], size: usize) -> f64 {
    let one = |(got, want): (&[f32], &[f64])| {
        let top = want.iter().fold(1e-30f64, |m, v| m.max(v.abs()));
        got.iter().zip(want).fold(0.0, |m: f64, (g, w)| {
            let d = (f64::from(*g) - w).abs() / top;
            if d.is_nan() { f64::INFINITY } else { m.max(d) }
        })
    };
    got.chunks(size).zip(want.chunks(size)).map(one).fold(0.0, f64::max)
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// Everything that a step of single tokens leaves.
struct Stepped {
    rows: QuantizedRows,
    slots: Slots,
}

/// `drafted`: by slot, how many of the positions before its row were drafted ones of its last step.
fn step(
    gpu: &Gpu,
    kernel: &GdnDecode,
    layer: &Layer,
    lists: [&[i32]; 2],
    x: &[f32],
    (before, drafted): (&Slots, &[i32]),
) -> Result<Stepped, Box<dyn Error>> {
    let (stream, n, width) = (gpu.device.stream(), lists[0].len(), layer.width());
    let mut after = Slots {
        state: before.state.try_clone()?,
        tail: before.tail.try_clone()?,
        updates: before.updates.try_clone()?,
        drafts: before.drafts,
        lacks: before.lacks.clone(),
        every: before.every,
    };
    let (mut lack, mut last) = (Vec::new(), -1);
    for (slot, position) in lists[0].iter().zip(lists[1]) {
        // Those behind a slot's first row are drafted.
        let lacks = usize::try_from(*slot).ok().filter(|_| *slot != last).map(|slot| &mut after.lacks[slot]);
        last = *slot;
        lack.push(lacks.map_or(0, |lacks| {
            assert_eq!(lacks.end, *position, "a slot's positions follow one another");
            let pending = lacks.len() as u32;
            let stores = stores(*position as u32, pending, before.every);
            *lacks = if stores { position + 1 } else { lacks.start }..position + 1;
            gdn_decode::pending_word(pending, stores)
        }));
    }
    let drafted: Vec<i32> = lists[0].iter().map(|slot| drafted.get(*slot as usize).copied().unwrap_or(0)).collect();
    let (slots, positions, x) = (stream.clone_htod(lists[0])?, stream.clone_htod(lists[1])?, stream.clone_htod(x)?);
    let (lack, drafted) = (stream.clone_htod(&lack)?, stream.clone_htod(&drafted)?);
    let mut codes = stream.clone_htod(&vec![99i8; n * width])?;
    let mut meta = stream.clone_htod(&vec![f32::NAN; n * width / 16])?;
    let (slots, positions, x) = (slots.as_view(), positions.as_view(), x.as_view());
    let (pending, drafted) = (&lack.as_view(), &drafted.as_view());
    let rows = GdnRows { count: n, slots: &slots, positions: &positions, pending, drafted };
    let memory = GdnState { state: &mut after.state.as_view_mut(), tail: &mut after.tail.as_view_mut() };
    // SAFETY: callers' slots differ and are those of `before`; the copies above are not launched early.
    with_weights!(layer, |weights| unsafe {
        let (codes, meta) = (&mut codes.as_view_mut(), &mut meta.as_view_mut());
        let updates = Updates(&mut after.updates.as_view_mut());
        kernel.launch(&gpu.device, rows, &x, weights, memory, updates, codes, meta)?;
    });
    let rows = QuantizedRows {
        codes: stream.clone_dtoh(&codes)?,
        meta: pairs(&stream.clone_dtoh(&meta)?),
        planes: layer.planes,
    };
    Ok(Stepped { rows, slots: after })
}

/// How far the int8 form of a row is from `want`, as a part of what it may be; that and what f32 sums and fast
/// exponentials differ by is allowed.
fn codes_are_near(rows: &QuantizedRows, first_block: usize, want: &[f32], slack: f32, what: &str) -> f32 {
    let mut worst = 0.0f32;
    for (b, want) in want.chunks(32).enumerate() {
        let most = rows.error_max(first_block + b) as f32;
        for (got, want) in rows.values(first_block + b).into_iter().zip(want) {
            let error = (got - f64::from(*want)).abs() as f32;
            worst = worst.max(error / most);
            assert!(error <= 1.02 * most + slack, "{what} block {b}: {got} for {want}");
        }
    }
    worst
}

fn steps_follow_the_recurrence(gpu: &Gpu, heads: Heads, planes: Planes) -> Outcome {
    let (mut random, stride) = (Random(heads.value_dim as u64), stride(heads));
    let kernel = GdnDecode::load(&gpu.device, &gpu.cache, heads, stride, planes, 0)?;
    let layer = Layer::new(gpu, heads, planes, &mut random, -4.0)?;
    // Three sequences in four slots, one row of the step is none.
    let (slots, start) = ([2, -1, 0, 3], [0, 0, 6, 1001]);
    let mut host: Vec<Sequence> = (0..4).map(|_| Sequence::random(heads, &mut random)).collect();
    host[2] = Sequence::fresh(heads);
    let untouched = host[1].state.clone();
    let mut device = Slots::new(gpu, heads, &host, 0)?;
    device.begin(&slots, &start);
    let (mut worst, blocks_each, width) = (0.0f32, heads.values * heads.value_dim / 32, layer.width());
    for n in 0..STORE_EVERY as i32 + 6 {
        let positions = start.map(|p| p + n);
        let x = random.vector(4 * stride);
        let after = step(gpu, &kernel, &layer, [&slots, &positions], &x, (&device, &[]))?;
        for (row, slot) in slots.into_iter().enumerate().filter(|(_, slot)| *slot >= 0) {
            let x = &x[row * stride..(row + 1) * stride];
            let alone = step(gpu, &kernel, &layer, [&[slot], &[positions[row]]], x, (&device, &[]))?.rows;
            let (blocks, codes) = (row * width / 32..(row + 1) * width / 32, row * width..(row + 1) * width);
            let same = alone.meta[..] == after.rows.meta[blocks] && alone.codes[..] == after.rows.codes[codes];
            assert!(same, "{heads:?}: row {row} differs from itself alone");
        }
        for (row, slot) in slots.into_iter().enumerate() {
            if slot < 0 {
                let codes = &after.rows.codes[row * width..(row + 1) * width];
                assert!(codes.iter().all(|c| *c == 99), "a row that is none was written");
                continue;
            }
            let want = step_on_host(&layer, &x[row * stride..], &mut host[slot as usize], positions[row]);
            let what = format!("{heads:?} step {n} row {row}");
            worst = worst.max(codes_are_near(&after.rows, row * blocks_each, &want.mixed, 1e-5, &what));
        }
        device = after.slots;
    }
    let state_error = device.difference(gpu, heads, &host)?;
    assert!(state_error < 3e-6, "{heads:?}: state is off by {state_error:e} of its largest value");
    let state = gpu.device.stream().clone_dtoh(&device.state)?;
    let kept = state[heads.state()..2 * heads.state()].iter().zip(&untouched).all(|(a, b)| f64::from(*a) == *b);
    assert!(kept, "a slot in no row changed");
    println!(
        "gdn_decode {heads:?} {planes:?}: outputs within {worst:.3} of what their int8 form may be off, \
         state to {state_error:.1e}, rows the same alone"
    );
    Ok(())
}

/// A step of many sequences leaves the bytes of as many steps of one: outputs, states, rings and updates.
fn rows_have_the_same_bytes_where_a_block_has_several(gpu: &Gpu, heads: Heads) -> Outcome {
    let (mut random, stride, stream) = (Random(heads.values as u64), stride(heads), gpu.device.stream());
    let kernel = GdnDecode::load(&gpu.device, &gpu.cache, heads, stride, Planes::One, UNTAKEN)?;
    let layer = Layer::new(gpu, heads, Planes::One, &mut random, -4.0)?;
    // Padding rows come first, last, one after another, and beside those of a block.
    let none = [0, 5, 6, 9, 20];
    let slots: Vec<i32> = (0..MANY as i32).map(|row| if none.contains(&row) { -1 } else { 20 - row }).collect();
    let host: Vec<Sequence> = (0..MANY).map(|_| Sequence::random(heads, &mut random)).collect();
    let start: Vec<i32> = (0..MANY as i32).map(|row| row * 37).collect();
    let (mut device, width) = (Slots::new(gpu, heads, &host, DRAFTS)?, layer.width());
    device.begin(&slots, &start);
    let bits = |memory: &CudaSlice<f32>| -> Result<Vec<u32>, Box<dyn Error>> {
        Ok(stream.clone_dtoh(memory)?.into_iter().map(f32::to_bits).collect())
    };
    for n in 0..STORE_EVERY as i32 + 1 {
        let positions: Vec<i32> = start.iter().map(|p| p + n).collect();
        let x = random.vector(MANY * stride);
        let all = step(gpu, &kernel, &layer, [&slots, &positions], &x, (&device, &[]))?;
        for (row, slot) in slots.iter().enumerate().filter(|(_, slot)| **slot >= 0) {
            let x = &x[row * stride..(row + 1) * stride];
            let alone = step(gpu, &kernel, &layer, [&[*slot], &[positions[row]]], x, (&device, &[]))?;
            let (codes, meta) = (row * width..(row + 1) * width, row * width / 32..(row + 1) * width / 32);
            let same = alone.rows.codes[..] == all.rows.codes[codes] && alone.rows.meta[..] == all.rows.meta[meta];
            assert!(same, "{heads:?} step {n}: row {row} differs from itself alone");
            device = alone.slots;
        }
        let memory = |slots: &Slots| -> Result<_, Box<dyn Error>> {
            Ok([bits(&slots.state)?, bits(&slots.tail)?, bits(&slots.updates)?])
        };
        assert!(memory(&device)? == memory(&all.slots)?, "{heads:?} step {n}: the memory differs");
    }
    println!("gdn_decode {heads:?}: {MANY} rows have the bytes of each alone, and leave its memory");
    Ok(())
}

/// Codes of a row, and what stands beside them.
type CodedRow = (Vec<i8>, Vec<[f32; 2]>);

/// Two sequences say the same twice: a token a step, and with up to seven drafted rows behind each, of which some are
/// right. Rows that count have equal bytes, and so have the states at the end.
fn drafted_rows_have_the_bytes_of_rows_of_their_own(gpu: &Gpu, heads: Heads, planes: Planes) -> Outcome {
    const LENGTH: usize = 70;
    let (mut random, stride) = (Random(5 + heads.value_dim as u64), stride(heads));
    let load = |drafts: gdn_decode::DraftRoom| GdnDecode::load(&gpu.device, &gpu.cache, heads, stride, planes, drafts);
    let (alone, drafting, without) = (load(0.into())?, load(DRAFTS.into())?, load(UNTAKEN)?);
    let layer = Layer::new(gpu, heads, planes, &mut random, -4.0)?;
    let host: Vec<Sequence> = (0..2).map(|_| Sequence::random(heads, &mut random)).collect();
    let said: Vec<Vec<f32>> = (0..2).map(|_| random.vector((LENGTH + DRAFTS) * stride)).collect();
    let of = |slot: usize, n: usize| &said[slot][n * stride..(n + 1) * stride];
    let start = [6, 1001];
    let (blocks, width) = (layer.width() / 32, layer.width());

    // The states of these slots are written more often, which changes no byte.
    let mut device = Slots { every: STORE_EVERY / 2, ..Slots::new(gpu, heads, &host, 0)? };
    device.begin(&[0, 1], &start);
    let mut want: [Vec<CodedRow>; 2] = Default::default();
    for n in 0..LENGTH as i32 {
        let x = [of(0, n as usize), of(1, n as usize)].concat();
        let after = step(gpu, &alone, &layer, [&[0, 1], &start.map(|p| p + n)], &x, (&device, &[]))?;
        for (slot, want) in want.iter_mut().enumerate() {
            let codes = after.rows.codes[slot * width..][..width].to_vec();
            want.push((codes, after.rows.meta[slot * blocks..][..blocks].to_vec()));
        }
        device = after.slots;
    }

    let mut drafted = Slots::new(gpu, heads, &host, DRAFTS)?;
    drafted.begin(&[0, 1], &start);
    let (mut done, mut right) = ([0usize; 2], [0i32; 2]);
    let (mut most, mut steps, mut steps_without) = (0, 0, 0);
    while done.iter().any(|n| *n < LENGTH) {
        let (mut slots, mut positions, mut x, mut firsts) = (vec![-1], vec![0], vec![0.0; stride], Vec::new());
        let mut accepted = [0; 2];
        for slot in [1, 0] {
            if done[slot] == LENGTH {
                continue;
            }
            let room = DRAFTS.min(LENGTH - done[slot] - 1);
            let pick =
                |random: &mut Random, n: usize| ((f64::from(random.signed()) + 1.0) / 2.0 * (n + 1) as f64) as usize;
            // In turn all, of which all are right, so that the rings are filled, some, of which some are, and twice
            // none.
            let drafts = [room, pick(&mut random, room).min(room), 0, 0][steps % 4];
            accepted[slot] = if steps % 4 == 1 { pick(&mut random, drafts).min(drafts) } else { drafts };
            firsts.push((slot, slots.len()));
            for n in 0..=drafts {
                slots.push(slot as i32);
                positions.push(start[slot] + (done[slot] + n) as i32);
                let wrong = random.vector(stride);
                x.extend_from_slice(if n <= accepted[slot] { of(slot, done[slot] + n) } else { &wrong });
            }
        }
        let lacks = |slot: usize| gdn_decode::DraftRoom::does_without(drafted.lacks[slot].len(), right[slot] as usize);
        let none = firsts.iter().all(|(slot, _)| lacks(*slot)) && slots.len() == 1 + firsts.len();
        let kernel = if none { &without } else { &drafting };
        (steps, steps_without) = (steps + 1, steps_without + usize::from(none));
        let mut after = step(gpu, kernel, &layer, [&slots, &positions], &x, (&drafted, &right))?;
        for (slot, first) in firsts {
            for n in 0..=accepted[slot] {
                let (codes, meta) = &want[slot][done[slot] + n];
                let row = first + n;
                let same = after.rows.codes[row * width..][..width] == codes[..]
                    && after.rows.meta[row * blocks..][..blocks] == meta[..];
                assert!(same, "{heads:?}: position {} of slot {slot}, {n} behind its first row", done[slot] + n);
            }
            done[slot] += accepted[slot] + 1;
            right[slot] = accepted[slot] as i32;
            after.slots.lacks[slot].end += accepted[slot] as i32;
            most = most.max(after.slots.lacks[slot].len());
        }
        drafted = after.slots;
    }
    let ([state, _], [got, _]) = (device.whole(gpu, heads)?, drafted.whole(gpu, heads)?);
    assert!(same_bits(&state, &got), "{heads:?}: states differ");
    assert!(steps_without > 2, "the kernel for steps without drafts had {steps_without} of {steps}");
    assert!(most > DRAFTS, "states lack {most} positions at most: the rings were not filled");
    println!("gdn_decode {heads:?} {planes:?}: drafted rows have the same bytes; states lacked up to {most} positions");
    Ok(())
}

/// What one token gives.
struct Token {
    /// `[value heads, V]`, before the gated norm.
    raw: Vec<f32>,
    mixed: Vec<f32>,
}

/// The definition of one step, all heads of a sequence.
fn step_on_host(layer: &Layer, x: &[f32], sequence: &mut Sequence, position: i32) -> Token {
    let (Heads { key_dim: kd, value_dim: vd, keys, values, grouped }, [taps, decay, dt_bias, norm]) =
        (layer.heads, &layer.host);
    let channels = layer.heads.channels();
    let entry = |back: i32| ((position + 4 - back) % 4) as usize;
    sequence.ring[entry(0) * channels..][..channels].copy_from_slice(&x[..channels]);
    let conv: Vec<f32> = (0..channels)
        .map(|c| {
            reference::conv_silu(
                &[3, 2, 1, 0].map(|back| sequence.ring[entry(back) * channels + c]),
                &taps[4 * c..4 * c + 4],
            )
        })
        .collect();
    let mut token = Token { raw: Vec::new(), mixed: Vec::new() };
    for h in 0..values {
        let kh = if grouped { h / (values / keys) } else { h % keys };
        let q: Vec<f32> = reference::l2norm(&conv[kh * kd..][..kd]).iter().map(|q| q / (kd as f32).sqrt()).collect();
        let k = reference::l2norm(&conv[(keys + kh) * kd..][..kd]);
        let z_at = channels + h * vd;
        let gate = |n: usize| f64::from(x[channels + values * vd + n * values + h]);
        let (b, a) = (gate(0) + gate(2), gate(1) + gate(3));
        let g = f64::from(decay[h]) * reference::softplus(a + f64::from(dt_bias[h]));
        let beta = 1.0 / (1.0 + (-b).exp());
        let v = &conv[2 * keys * kd + h * vd..][..vd];
        let inputs = GdnInputs { q: &q, k: &k, v, g: &[g as f32], beta: &[beta as f32], key_dim: kd, value_dim: vd };
        let o = reference::gdn_recurrent(&inputs, &mut sequence.state[h * kd * vd..][..kd * vd]);
        token.mixed.extend(reference::gated_norm(&o, norm, &x[z_at..z_at + vd], EPS));
        token.raw.extend(o);
    }
    token
}

/// Everything that a prefill step leaves.
struct Prefilled {
    rows: QuantizedRows,
    raw: Vec<f32>,
}

/// Runs `list` (slot, start, first row, rows) with poisoned outputs.
/// Input rows, whose values f16 has.
fn inputs(random: &mut Random, values: usize) -> Vec<f32> {
    random.vector(values).into_iter().map(f16).collect()
}

fn prefill(
    gpu: &Gpu,
    kernel: &GdnPrefill,
    layer: &Layer,
    list: &[[i32; 4]],
    rows: usize,
    x: &[f32],
    slots: &mut Slots,
) -> Result<Prefilled, Box<dyn Error>> {
    prefill_keeping(gpu, kernel, layer, (list, rows), x, &[], slots)
}

/// Runs pieces and keeps states on the way: `kept` says after which chunk and in which slot.
fn prefill_keeping(
    gpu: &Gpu,
    kernel: &GdnPrefill,
    layer: &Layer,
    (list, rows): (&[[i32; 4]], usize),
    x: &[f32],
    kept: &[(usize, i32)],
    slots: &mut Slots,
) -> Result<Prefilled, Box<dyn Error>> {
    let (stream, heads) = (gpu.device.stream(), layer.heads);
    let width = layer.width();
    // Rows of one plane come as f16.
    let x = if kernel.half_inputs() { as_halves(x) } else { x.to_vec() };
    let (pieces, x) = (stream.clone_htod(list.as_flattened())?, stream.clone_htod(&x)?);
    let mut places = vec![-1; gdn_prefill::chunks_max(rows, list.len())];
    kept.iter().for_each(|(chunk, slot)| places[*chunk] = *slot);
    let places = stream.clone_htod(&places)?;
    let exports = (!kept.is_empty()).then(|| places.as_view());
    let mut scratch = stream.clone_htod(&vec![f32::NAN; gdn_prefill::scratch(heads, rows, list.len())])?;
    let mut codes = stream.clone_htod(&vec![99i8; rows * width])?;
    let mut meta = stream.clone_htod(&vec![f32::NAN; rows * width / 16])?;
    let (list_view, x) = (pieces.as_view(), x.as_view());
    let pieces = Pieces { list: &list_view, count: list.len(), rows, exports: exports.as_ref() };
    // The rows are also made as f16, from the same memory, if there is such a form.
    let made = (layer.planes == Planes::One && width.is_multiple_of(128))
        .then(|| HalfRows::of_hidden(&gpu.device, rows, rows * width))
        .transpose()?;
    if let Some(made) = &made {
        let (mut state, mut tail) = (slots.state.clone(), slots.tail.clone());
        let memory = GdnState { state: &mut state.as_view_mut(), tail: &mut tail.as_view_mut() };
        let out = (MixedRows { codes: &mut codes.as_view_mut(), meta: &mut meta.as_view_mut() }, Some(made));
        // SAFETY: callers' pieces are in order, with slots of `slots`.
        with_weights!(layer, |weights| unsafe {
            kernel.launch(&gpu.device, pieces, &x, weights, memory, &mut scratch.as_view_mut(), out)?
        });
        assert!(stream.clone_dtoh(&meta)?.iter().all(|v| v.is_nan()), "no int8 beside f16");
    }
    let memory = GdnState { state: &mut slots.state.as_view_mut(), tail: &mut slots.tail.as_view_mut() };
    let out = (MixedRows { codes: &mut codes.as_view_mut(), meta: &mut meta.as_view_mut() }, None);
    // SAFETY: as above.
    with_weights!(layer, |weights| unsafe {
        kernel.launch(&gpu.device, pieces, &x, weights, memory, &mut scratch.as_view_mut(), out)?
    });
    let raw = stream.clone_dtoh(&scratch.slice(gdn_prefill::raw_outputs(heads, rows, list.len())))?;
    let rows = QuantizedRows {
        codes: stream.clone_dtoh(&codes)?,
        meta: pairs(&stream.clone_dtoh(&meta)?),
        planes: layer.planes,
    };
    if let Some(made) = &made {
        near_int8(gpu, made, &rows, width)?;
    }
    Ok(Prefilled { rows, raw })
}

/// Pieces of all kinds: ragged, from the start and from later on, of one row, none at all. With `hard`, keys are much
/// alike and states fade slowly, so that errors add up.
fn pieces_follow_the_recurrence(gpu: &Gpu, heads: Heads, planes: Planes, hard: bool) -> Outcome {
    const LIST: [[i32; 4]; 7] = [
        [2, 0, 1, 150],
        [-1, 0, 151, 20],
        [0, 64, 171, 64],
        [4, 128, 236, 1],
        [1, 0, 237, 0],
        [3, 192, 237, 259],
        [5, 0, 496, 3],
    ];
    const ROWS: usize = 502;
    let (mut random, stride, width) = (Random(77 + heads.values as u64), stride(heads), heads.values * heads.value_dim);
    let kernel = GdnPrefill::load(&gpu.device, &gpu.cache, heads, stride, planes)?;
    let decoder = GdnDecode::load(&gpu.device, &gpu.cache, heads, stride, planes, 0)?;
    let layer = Layer::new(gpu, heads, planes, &mut random, if hard { -0.01 } else { -4.0 })?;
    let mut host: Vec<Sequence> = (0..6).map(|_| Sequence::random(heads, &mut random)).collect();
    for slot in [2, 5] {
        host[slot] = Sequence::fresh(heads);
    }
    let mut device = Slots::new(gpu, heads, &host, 0)?;
    let mut x = random.vector(ROWS * stride);
    for row in x.chunks_mut(stride) {
        let keys = heads.keys * heads.key_dim;
        row[keys..2 * keys].iter_mut().for_each(|k| *k += if hard { 3.0 } else { 0.0 });
        row.iter_mut().for_each(|v| *v = f16(*v));
    }
    let real = |row: usize| LIST.iter().find(|p| p[0] >= 0 && (p[2]..p[2] + p[3]).contains(&(row as i32)));
    for row in (0..ROWS).filter(|row| real(*row).is_none()) {
        x[row * stride..][..stride].fill(f32::NAN);
    }
    let got = prefill(gpu, &kernel, &layer, &LIST, ROWS, &x, &mut device)?;
    let (mut worst, mut raw_error) = (0.0f32, 0.0f64);
    for row in 0..ROWS {
        let Some([slot, start, first, _]) = real(row) else {
            assert!(
                got.rows.codes[row * layer.width()..][..layer.width()].iter().all(|c| *c == 99),
                "{heads:?}: row {row} in no piece was written"
            );
            continue;
        };
        let want = step_on_host(&layer, &x[row * stride..], &mut host[*slot as usize], start + row as i32 - first);
        let raw: Vec<f64> = want.raw.iter().map(|v| f64::from(*v)).collect();
        let error = difference(&got.raw[row * width..][..width], &raw, width);
        assert!(error < 2e-4, "{heads:?} hard {hard}: outputs of row {row} are off by {error:e} of the largest");
        raw_error = raw_error.max(error);
        let top = want.mixed.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        worst = worst.max(codes_are_near(
            &got.rows,
            row * width / 32,
            &want.mixed,
            2e-3 * top,
            &format!("{heads:?} row {row}"),
        ));
    }
    let state_error = device.difference(gpu, heads, &host)?;
    assert!(state_error < 1e-4, "{heads:?} hard {hard}: state is off by {state_error:e} of its largest value");
    // Single tokens go on from there.
    let x = inputs(&mut random, 4 * stride);
    let (slots, positions) = ([2, 4, 3, 5], [150, 129, 451, 3]);
    device.begin(&slots, &positions);
    let after = step(gpu, &decoder, &layer, [&slots, &positions], &x, (&device, &[]))?;
    for (row, slot) in slots.into_iter().enumerate() {
        let want = step_on_host(&layer, &x[row * stride..], &mut host[slot as usize], positions[row]).mixed;
        let top = want.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        codes_are_near(
            &after.rows,
            row * width / 32,
            &want,
            2e-3 * top,
            &format!("{heads:?} row {row} after its prompt"),
        );
    }
    let hard = if hard { ", hard" } else { "" };
    println!(
        "gdn_prefill {heads:?} {planes:?}{hard}: outputs to {raw_error:.1e}, \
         {worst:.3} of what their int8 form may be off, \
         state to {state_error:.1e}"
    );
    Ok(())
}

fn a_prompt_gives_the_same_bytes_however_it_is_cut(gpu: &Gpu, heads: Heads, planes: Planes) -> Outcome {
    const ROWS: usize = 300;
    let (mut random, stride) = (Random(5), stride(heads));
    let kernel = GdnPrefill::load(&gpu.device, &gpu.cache, heads, stride, planes)?;
    let layer = Layer::new(gpu, heads, planes, &mut random, -0.5)?;
    let width = layer.width();
    let x = inputs(&mut random, ROWS * stride);
    let fresh = [Sequence::fresh(heads), Sequence::random(heads, &mut random)];
    let mut whole = Slots::new(gpu, heads, &fresh, 0)?;
    let want = prefill(gpu, &kernel, &layer, &[[0, 0, 0, ROWS as i32]], ROWS, &x, &mut whole)?;
    let mut cut = Slots::new(gpu, heads, &fresh, 0)?;
    for part in [0..128, 128..192, 192..ROWS] {
        // Another sequence's rows come first, so that everything lies elsewhere.
        let (others, n) = (37, part.len());
        let mut rows = inputs(&mut random, others * stride);
        rows.extend(&x[part.start * stride..part.end * stride]);
        // Pieces that are none make blocks of the scan more than multiprocessors, so that it holds one chunk and not
        // two.
        let mut list = vec![[1, 64, 0, others as i32], [0, part.start as i32, others as i32, n as i32]];
        list.resize(50, [-1, 0, (others + n) as i32, 0]);
        let got = prefill(gpu, &kernel, &layer, &list, others + n, &rows, &mut cut)?;
        assert!(
            got.rows.codes[others * width..] == want.rows.codes[part.start * width..part.end * width],
            "{heads:?}: codes of {part:?}"
        );
        let blocks = part.start * width / 32..part.end * width / 32;
        assert!(got.rows.meta[others * width / 32..] == want.rows.meta[blocks], "{heads:?}: scales of {part:?}");
    }
    let first = |slots: &Slots| -> Result<_, Box<dyn Error>> {
        Ok(gpu.device.stream().clone_dtoh(&slots.state.slice(..heads.state()))?)
    };
    assert!(same_bits(&first(&whole)?, &first(&cut)?), "{heads:?}: states differ");
    println!("gdn_prefill {heads:?}: a prompt of {ROWS} gives the same bytes in three pieces");
    Ok(())
}

fn a_state_that_is_kept_on_the_way_is_that_of_a_prompt_that_ends_there(
    gpu: &Gpu,
    heads: Heads,
    planes: Planes,
) -> Outcome {
    const ROWS: usize = 300;
    const OTHERS: usize = 37;
    let (mut random, stride) = (Random(6), stride(heads));
    let kernel = GdnPrefill::load(&gpu.device, &gpu.cache, heads, stride, planes)?;
    let layer = Layer::new(gpu, heads, planes, &mut random, -0.5)?;
    let x = inputs(&mut random, (OTHERS + ROWS) * stride);
    let nan = || Sequence { state: vec![f64::NAN; heads.state()], ring: vec![f32::NAN; heads.tail()] };
    let begin = || [Sequence::fresh(heads), Sequence::fresh(heads), nan(), nan(), nan()];
    let mut whole = Slots::new(gpu, heads, &begin(), 0)?;
    // The piece is the second, behind another sequence's rows.
    let list = [[1, 0, 0, OTHERS as i32], [0, 0, OTHERS as i32, ROWS as i32]];
    let number = |end: usize| gdn_prefill::chunk_number(1, OTHERS, end / 64 - 1);
    let kept = [(number(64), 2), (number(192), 3), (number(256), 4)];
    let all = prefill_keeping(gpu, &kernel, &layer, (&list, OTHERS + ROWS), &x, &kept, &mut whole)?;
    let plain = prefill(gpu, &kernel, &layer, &list, OTHERS + ROWS, &x, &mut Slots::new(gpu, heads, &begin(), 0)?)?;
    assert!(all.rows.codes == plain.rows.codes, "{heads:?}: rows do not know of what is kept");
    let part = |values: &[f32], slot: usize, len: usize| values[slot * len..(slot + 1) * len].to_vec();
    let read = |slots: &Slots| -> Result<_, Box<dyn Error>> {
        Ok((gpu.device.stream().clone_dtoh(&slots.state)?, gpu.device.stream().clone_dtoh(&slots.tail)?))
    };
    let (states, rings) = read(&whole)?;
    for (end, slot) in [(64, 2), (192, 3), (256, 4)] {
        let mut cut = Slots::new(gpu, heads, &begin(), 0)?;
        prefill(gpu, &kernel, &layer, &[[0, 0, 0, end as i32]], end, &x[OTHERS * stride..], &mut cut)?;
        let (state, ring) = read(&cut)?;
        assert!(
            same_bits(&part(&states, slot, heads.state()), &part(&state, 0, heads.state())),
            "{heads:?}: the state after {end}"
        );
        assert!(same_bits(&part(&rings, slot, heads.tail()), &part(&ring, 0, heads.tail())), "{heads:?}: the ring");
    }
    println!("gdn_prefill {heads:?}: states kept on the way are those of prompts that end there");
    Ok(())
}
