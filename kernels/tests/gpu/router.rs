//! The router: what it chooses, how it weighs, and the lists by expert.

use crate::support::{Gpu, Outcome, Test};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::router::{
    self, ChosenExperts, Cuts, Groups, LayerWeights, Router, RouterRows, RouterShape, Variant, Workspace, cut_words,
};
use chimere_kernels::cuda::{CudaError, Program};
use chimere_kernels::reference::{self, ExpertCut};
use cudarc::driver::CudaSlice;
use std::error::Error;

const RELEASED: RouterShape = RouterShape { cols: 2048, experts: 256, used: 8, sigmoid: false };
const SHAPES: [RouterShape; 9] = [
    RELEASED,
    RouterShape { cols: 256, experts: 16, used: 4, sigmoid: false },
    RouterShape { cols: 32, experts: 16, used: 4, sigmoid: false },
    RouterShape { cols: 256, experts: 4, used: 2, sigmoid: false },
    RouterShape { cols: 4096, experts: 512, used: 10, sigmoid: false },
    RouterShape { cols: 2560, experts: 60, used: 3, sigmoid: false },
    RouterShape { cols: 2688, experts: 128, used: 6, sigmoid: true },
    RouterShape { cols: 32, experts: 16, used: 4, sigmoid: true },
    RouterShape { cols: 4096, experts: 512, used: 10, sigmoid: true },
];
/// How far scores may lie from the exact ones, as a part of the sum of magnitudes.
const TOLERANCE: f64 = 1e-6;
const EPS: f32 = 1e-6;

/// What the tests load.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    SHAPES.into_iter().map(router::program).collect()
}

/// The tests of this file by their names, as `main` lists and filters them.
pub(crate) const TESTS: &[Test] = &[
    ("router::choices_are_the_definition_s_and_the_same_alone_and_in_a_batch", every_choice),
    ("router::launches_of_few_and_many_rows_take_turns", launches_of_few_and_many_rows_take_turns),
    ("router::pairs_are_listed_by_expert", every_list),
];

fn every_choice(gpu: &Gpu) -> Outcome {
    for shape in SHAPES {
        for same_sign in [false, true] {
            choices_are_the_definition_s_and_the_same_alone_and_in_a_batch(gpu, shape, same_sign)?;
        }
    }
    Ok(())
}

fn every_list(gpu: &Gpu) -> Outcome {
    SHAPES.into_iter().try_for_each(|shape| pairs_are_listed_by_expert(gpu, shape))
}

/// A layer and rows for it, on both sides.
struct Sample {
    shape: RouterShape,
    x: Vec<f32>,
    norm: Vec<f32>,
    weights: Vec<f32>,
    gate: Vec<f32>,
    bias: Vec<f32>,
    squares: Vec<f32>,
    slots: Vec<i32>,
    cuts: Vec<Option<ExpertCut>>,
    device: OnDevice,
}

struct OnDevice {
    x: CudaSlice<f32>,
    norm: CudaSlice<f32>,
    weights: CudaSlice<f32>,
    gate: CudaSlice<f32>,
    bias: CudaSlice<f32>,
    squares: CudaSlice<f32>,
    slots: CudaSlice<i32>,
    cuts: CudaSlice<i32>,
}

/// Lists as they came back.
type Lists = (Vec<i32>, Vec<i32>, Vec<i32>);
/// Experts and gates with them.
type Routed = (Vec<i32>, Vec<f32>, Lists);

/// What a row's cut may be; `None` in every third row.
fn cut(row: usize, used: usize) -> Option<ExpertCut> {
    let used = used as u32;
    let mass = [0.0, 0.3, 0.5, 0.8, 0.95, 1.0][row % 6];
    let (min, max) =
        [(1, used), (1, used), (used, used), (used.div_ceil(2), used), (1, used.div_ceil(2)), (1, 99)][row / 6 % 6];
    (row % 3 != 2).then_some(ExpertCut { min, max, mass })
}

impl Sample {
    /// Every seventh row is none; the last expert has the weights of the first.
    fn new(gpu: &Gpu, shape: RouterShape, rows: usize, same_sign: bool) -> Result<Self, Box<dyn Error>> {
        let (stream, mut random) = (gpu.device.stream(), Random(shape.cols as u64));
        let mut vector = |n: usize| -> Vec<f32> {
            let values = random.vector(n);
            if same_sign { values.iter().map(|v| v.abs()).collect() } else { values }
        };
        let small = 4.0 / (shape.cols as f32).sqrt();
        let (x, norm) = (vector(rows * shape.cols), vector(shape.cols));
        let mut weights: Vec<f32> = vector(shape.experts * shape.cols).iter().map(|v| v * small).collect();
        weights.copy_within(..shape.cols, (shape.experts - 1) * shape.cols);
        let gate: Vec<f32> = vector(shape.cols).iter().map(|v| v * small * 0.2).collect();
        let mut bias: Vec<f32> = vector(shape.experts).iter().map(|v| v * 0.2).collect();
        bias[shape.experts - 1] = bias[0];
        let squares = x.chunks_exact(32).map(|b| b.iter().map(|v| v * v).sum()).collect::<Vec<f32>>();
        let slots: Vec<i32> = (0..rows as i32).map(|r| if r % 7 == 5 { -1 } else { r }).collect();
        let cuts: Vec<_> = (0..rows).map(|row| cut(row, shape.used)).collect();
        let words: Vec<i32> = cuts.iter().flat_map(|c| cut_words(c.as_ref())).collect();
        let device = OnDevice {
            x: stream.clone_htod(&x)?,
            norm: stream.clone_htod(&norm)?,
            weights: stream.clone_htod(&weights)?,
            gate: stream.clone_htod(&gate)?,
            bias: stream.clone_htod(&bias)?,
            squares: stream.clone_htod(&squares)?,
            slots: stream.clone_htod(&slots)?,
            cuts: stream.clone_htod(&words)?,
        };
        Ok(Self { shape, x, norm, weights, gate, bias, squares, slots, cuts, device })
    }

    /// Rows `first..first + n`, with their cuts or without. With cuts lists have a place for each expert where they
    /// may, as those of decode steps have; they come back one after another all the same.
    fn run(
        &self,
        gpu: &Gpu,
        (router, variant): (&Router, Variant),
        work: &mut Workspace,
        (first, n): (usize, usize),
        cut: bool,
    ) -> Result<Routed, Box<dyn Error>> {
        let (stream, RouterShape { cols, experts, used, sigmoid }) = (gpu.device.stream(), self.shape);
        let mut chosen = stream.clone_htod(&vec![-9; n * used])?;
        let mut gates = stream.clone_htod(&vec![f32::NAN; n * (used + 1)])?;
        let mut slots = stream.clone_htod(&vec![-9; 4 * experts])?;
        let pitch = if cut && n <= router::GROUPED_ROWS { n + n % 2 } else { 0 };
        let places = if pitch > 0 { experts * pitch } else { n * used };
        let (mut in_rows, mut out_rows) =
            (stream.clone_htod(&vec![-9; places])?, stream.clone_htod(&vec![-9; places])?);
        let tally = stream.clone_htod(&[0u32])?;
        let d = &self.device;
        let (words, counted) = (d.cuts.slice(2 * first..), tally.as_view());
        let rows = RouterRows {
            count: n,
            slots: &d.slots.slice(first..),
            x: &d.x.slice(first * cols..),
            squares: &d.squares.slice(first * cols / 32..),
            cuts: cut.then_some(Cuts { words: &words, tally: &counted }),
        };
        let bias = d.bias.as_view();
        let layer = LayerWeights {
            norm: &d.norm.as_view(),
            experts: &d.weights.as_view(),
            shared_gate: &d.gate.as_view(),
            bias: sigmoid.then_some(&bias),
            eps: EPS,
        };
        let choice = ChosenExperts { experts: &mut chosen.as_view_mut(), gates: &mut gates.as_view_mut() };
        let groups = Groups {
            slots: &mut slots.as_view_mut(),
            in_rows: &mut in_rows.as_view_mut(),
            out_rows: &mut out_rows.as_view_mut(),
            pitch,
        };
        router.launch(&gpu.device, work, variant, rows, layer, choice, Some(groups))?;
        let lists = (stream.clone_dtoh(&slots)?, stream.clone_dtoh(&in_rows)?, stream.clone_dtoh(&out_rows)?);
        let lists = if pitch > 0 { one_after_another(&lists, pitch, n * used) } else { lists };
        let chosen = stream.clone_dtoh(&chosen)?;
        let counted = |row: &usize| cut && self.cuts[first + row].is_some();
        let want: usize = (0..n).filter(counted).map(|row| left(&chosen[row * used..][..used])).sum();
        assert_eq!(stream.clone_dtoh(&tally)?[0] as usize, want, "{:?}: experts counted of {n} rows", self.shape);
        Ok((chosen, stream.clone_dtoh(&gates)?, lists))
    }

    /// Exact score of a column for a row, and how far it may be off.
    fn score(&self, row: usize, weights: &[f32]) -> (f64, f64) {
        let cols = self.shape.cols;
        let squares: f64 = self.squares[row * cols / 32..][..cols / 32].iter().map(|s| f64::from(*s)).sum();
        let factor = 1.0 / (squares / cols as f64 + f64::from(EPS)).sqrt();
        let terms = self.x[row * cols..][..cols].iter().zip(&self.norm).zip(weights);
        let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), ((x, n), w)| {
            let term = f64::from(*x) * f64::from(*n) * f64::from(*w);
            (sum + term, size + term.abs())
        });
        (sum * factor, size * factor * TOLERANCE)
    }
}

fn choices_are_the_definition_s_and_the_same_alone_and_in_a_batch(
    gpu: &Gpu,
    shape: RouterShape,
    same_sign: bool,
) -> Outcome {
    let (rows, compared) = (2600, 40);
    let sample = Sample::new(gpu, shape, rows, same_sign)?;
    let router = Router::load(&gpu.device, &gpu.cache, shape)?;
    let mut work = router.workspace(&gpu.device, rows)?;
    let (mut worst, used, mut kept) = (0.0f64, shape.used, (0, 0));
    let mut few = (Vec::new(), Vec::new());
    let many = [Variant::Tiled, router.for_prompts()];
    for variant in [Variant::Few, Variant::Ordered].into_iter().chain(many) {
        let mut alone = (Vec::new(), Vec::new());
        for row in 0..compared {
            let (chosen, gates, _) = sample.run(gpu, (&router, variant), &mut work, (row, 1), false)?;
            worst = worst.max(row_is_right(&sample, row, &chosen, &gates));
            alone.0.extend(chosen);
            alone.1.extend(gates);
        }
        match variant {
            Variant::Few => few = alone.clone(),
            Variant::Ordered => {
                assert!(alone.0 == few.0, "{shape:?}: experts in order differ from those of few rows");
                assert!(bits(&alone.1) == bits(&few.1), "{shape:?}: gates in order differ from those of few rows");
            }
            Variant::Tiled | Variant::Prompts => {}
        }
        let batches: &[usize] = match variant {
            Variant::Few => &[2, 5, 40, 256],
            Variant::Ordered => &[2, 30, 40, 64, 200, 300],
            Variant::Tiled | Variant::Prompts => &[2, 30, 40, 64, 200, 300, 1100, 2600],
        };
        for n in batches {
            let (chosen, gates, lists) = sample.run(gpu, (&router, variant), &mut work, (0, *n), false)?;
            let same = (compared.min(*n)) * used;
            assert!(
                chosen[..same] == alone.0[..same],
                "{shape:?} {variant:?}: experts of {n} rows differ from a row's alone"
            );
            assert!(
                bits(&gates[..compared.min(*n) * (used + 1)]) == bits(&alone.1[..compared.min(*n) * (used + 1)]),
                "{shape:?} {variant:?}: gates of {n} rows differ from a row's alone"
            );
            lists_are_right(&chosen, shape, &lists);
            let whole = (chosen, gates);
            let (chosen, gates, lists) = sample.run(gpu, (&router, variant), &mut work, (0, *n), true)?;
            let (cut, of) = cuts_are_the_definition_s(&sample, &whole, (&chosen, &gates));
            kept = (kept.0 + cut, kept.1 + of);
            lists_are_right(&chosen, shape, &lists);
        }
    }
    println!(
        "router {shape:?}{}: {worst:.2} of tolerance, alone = in a batch; cuts leave {} of {} experts",
        if same_sign { ", one sign" } else { "" },
        kept.0,
        kept.1
    );
    Ok(())
}

/// In one workspace, where both leave words with the number of their launch: nobody takes those of a launch before.
fn launches_of_few_and_many_rows_take_turns(gpu: &Gpu) -> Outcome {
    let turns = [1, 64, 8, 17, 256, 16, 130, 33];
    for shape in [RELEASED, SHAPES[3], SHAPES[6]] {
        let router = Router::load(&gpu.device, &gpu.cache, shape)?;
        let mut work = router.workspace(&gpu.device, 256)?;
        for same_sign in [false, true] {
            let sample = Sample::new(gpu, shape, 256, same_sign)?;
            let mut turn = |rows| sample.run(gpu, (&router, router::decode_variant(rows)), &mut work, (0, rows), true);
            let first = turns.map(&mut turn);
            for round in 1..4 {
                for (rows, first) in turns.into_iter().zip(&first) {
                    let (got, first) = (turn(rows)?, first.as_ref().map_err(ToString::to_string)?);
                    lists_are_right(&got.0, shape, &got.2);
                    let same = got.0 == first.0 && bits(&got.1) == bits(&first.1);
                    assert!(same, "{shape:?}: {rows} rows differ in round {round}");
                }
            }
        }
    }
    println!("router: few and many rows in turns, equal each time");
    Ok(())
}

/// Experts of a row that are one.
fn left(chosen: &[i32]) -> usize {
    chosen.iter().filter(|e| **e >= 0).count()
}

/// Rows with a cut keep the first of their experts, as many as the definition says; all others are as they were. How
/// many are left, of how many.
///
/// Of a row's scores the gates are known: ratios of the softmax's weights. Where these lie within rounding of the
/// target, one expert more or less is right too.
fn cuts_are_the_definition_s(sample: &Sample, whole: &(Vec<i32>, Vec<f32>), cut: (&[i32], &[f32])) -> (usize, usize) {
    let used = sample.shape.used;
    let (mut kept, mut of) = (0, 0);
    for row in 0..cut.0.len() / used {
        let (all, got) = (&whole.0[row * used..][..used], &cut.0[row * used..][..used]);
        let (gates, got_gates) = (&whole.1[row * (used + 1)..][..used + 1], &cut.1[row * (used + 1)..][..used + 1]);
        let Some(c) = sample.cuts[row].filter(|_| sample.slots[row] >= 0) else {
            assert!(all == got && bits(gates) == bits(got_gates), "row {row} has no cut and is another");
            continue;
        };
        let n = left(got);
        assert!(got[..n] == all[..n] && got[n..].iter().all(|e| *e == -1), "row {row}, {c:?}: {got:?} of {all:?}");
        let [least, most] =
            [1.0 - 1e-5, 1.0 + 1e-5].map(|near| ExpertCut { mass: c.mass * near, ..c }.kept(&gates[..used]));
        assert!((least..=most).contains(&n), "row {row}, {c:?}: {n} experts for {least} to {most}, weights {gates:?}");
        let sum: f64 = gates[..n].iter().map(|g| f64::from(*g)).sum();
        for k in 0..used {
            let want = if k < n { f64::from(gates[k]) / sum } else { 0.0 };
            assert!(
                (f64::from(got_gates[k]) - want).abs() <= 1e-6 * want,
                "row {row}, {c:?}: gate {k} is {}",
                got_gates[k]
            );
        }
        assert!(gates[used].to_bits() == got_gates[used].to_bits(), "row {row}: the shared expert's gate");
        (kept, of) = (kept + n, of + used);
    }
    (kept, of)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn lists_are_right(chosen: &[i32], shape: RouterShape, (slots, in_rows, out_rows): &Lists) {
    let want = reference::group(chosen, shape.used, shape.experts);
    let n = want.in_rows.len();
    assert!(slots == want.slots.as_flattened(), "{shape:?}: groups of {} pairs", chosen.len());
    assert!(
        in_rows[..n] == want.in_rows && out_rows[..n] == want.out_rows,
        "{shape:?}: lists of {} pairs",
        chosen.len()
    );
    assert!(in_rows[n..].iter().chain(&out_rows[n..]).all(|v| *v == -9), "{shape:?}: lists are too long");
}

/// Lists with a place for each expert, where pairs may stand in any order, as those without have them.
fn one_after_another((slots, in_rows, out_rows): &Lists, pitch: usize, pairs: usize) -> Lists {
    let (mut dense_slots, mut listed) = (Vec::new(), Vec::new());
    for (e, slot) in slots.chunks_exact(4).enumerate() {
        let (at, count) = (e * pitch, slot[2] as usize);
        assert_eq!(slot, [e as i32, at as i32, count as i32, 0], "pitch {pitch}");
        let places = in_rows[at..at + pitch].iter().copied().zip(out_rows[at..at + pitch].iter().copied());
        let (mut own, free): (Vec<_>, Vec<_>) = (places.clone().take(count).collect(), places.skip(count).collect());
        assert!(free.iter().all(|place| *place == (-9, -9)), "expert {e}: its list is too long");
        own.sort_by_key(|place| place.1);
        dense_slots.extend([e as i32, listed.len() as i32, count as i32, 0]);
        listed.extend(own);
    }
    listed.resize(pairs, (-9, -9));
    let (in_rows, out_rows) = listed.into_iter().unzip();
    (dense_slots, in_rows, out_rows)
}

/// How much of the tolerance is used.
fn row_is_right(sample: &Sample, row: usize, chosen: &[i32], gates: &[f32]) -> f64 {
    let RouterShape { cols, experts, used, sigmoid } = sample.shape;
    if sample.slots[row] < 0 {
        assert!(chosen.iter().all(|e| *e == -1) && gates.iter().all(|g| *g == 0.0), "row {row} is none");
        return 0.0;
    }
    let scores: Vec<(f64, f64)> =
        (0..experts).map(|e| sample.score(row, &sample.weights[e * cols..][..cols])).collect();
    let exact: Vec<f32> = scores.iter().map(|s| s.0 as f32).collect();
    let want = if sigmoid {
        reference::route_sigmoid(&exact, &sample.bias, used, 1.0)
    } else {
        reference::route(&exact, used)
    };
    let raised = |score: f64| 1.0 / (1.0 + (-score).exp());
    // By what experts are compared, and how far that may be off.
    let compared = |e: usize| match scores[e] {
        (score, off) if sigmoid => (raised(score) + f64::from(sample.bias[e]), 0.25 * off + 2e-7),
        of => of,
    };
    for (k, ((e, want), gate)) in chosen.iter().zip(&want).zip(gates).enumerate() {
        let ((score, off), other) = (compared(*e as usize), compared(want.0));
        let near = (score - other.0).abs() <= off + other.1;
        assert!(near, "row {row}: place {k} has expert {e} with {score}, not {want:?}");
        assert!(!chosen[..k].contains(e), "row {row}: expert {e} twice");
        assert!(gate.is_finite());
    }
    let twins = [0, experts as i32 - 1].map(|e| chosen.iter().position(|c| *c == e));
    assert!(
        twins[1].is_none() || twins[0].is_some_and(|first| Some(first + 1) == twins[1]),
        "row {row}: equal scores {twins:?}"
    );
    // Weights of exactly the chosen, so that a swap of near ones does not count.
    let best = scores[chosen[0] as usize].0;
    let weight = |score: f64| if sigmoid { raised(score) } else { (score - best).exp() };
    let weights: Vec<f64> = chosen.iter().map(|e| weight(scores[*e as usize].0)).collect();
    let sum: f64 = weights.iter().sum();
    let mut worst = 0.0f64;
    for (k, weight) in weights.iter().enumerate() {
        let off = scores[chosen[k] as usize].1 + scores.iter().map(|s| s.1).fold(0.0, f64::max) + 1e-6;
        worst = worst.max((f64::from(gates[k]) / (weight / sum) - 1.0).abs() / off);
    }
    let (score, off) = sample.score(row, &sample.gate);
    let want = 1.0 / (1.0 + (-score).exp());
    worst = worst.max((f64::from(gates[used]) - want).abs() / ((off + 1e-6) * want.max(1e-3)));
    assert!(worst <= 1.0, "row {row}: gates are {worst} times the tolerance off");
    worst
}

fn pairs_are_listed_by_expert(gpu: &Gpu, shape: RouterShape) -> Outcome {
    let (stream, RouterShape { experts, used, .. }) = (gpu.device.stream(), shape);
    let router = Router::load(&gpu.device, &gpu.cache, shape)?;
    for rows in [1, 3, 64, 257, 500, 512, 513, 1000, 6000] {
        let mut work = router.workspace(&gpu.device, rows)?;
        let mut random = Random(rows as u64);
        let chosen: Vec<i32> = (0..rows)
            .flat_map(|row| {
                let first = random.bits() as usize % if row % 3 == 0 { 2 } else { experts };
                (0..used).map(move |k| if row % 9 == 4 { -1 } else { ((first + k) % experts) as i32 })
            })
            .collect();
        let d_chosen = stream.clone_htod(&chosen)?;
        let mut slots = stream.clone_htod(&vec![-9; 4 * experts])?;
        let n = chosen.len();
        let (mut in_rows, mut out_rows) = (stream.clone_htod(&vec![-9; n])?, stream.clone_htod(&vec![-9; n])?);
        let groups = Groups {
            slots: &mut slots.as_view_mut(),
            in_rows: &mut in_rows.as_view_mut(),
            out_rows: &mut out_rows.as_view_mut(),
            pitch: 0,
        };
        // SAFETY: ids are below the number of experts.
        unsafe { router.group(&gpu.device, &mut work, rows, &d_chosen.as_view(), groups)? };
        let dense = (stream.clone_dtoh(&slots)?, stream.clone_dtoh(&in_rows)?, stream.clone_dtoh(&out_rows)?);
        lists_are_right(&chosen, shape, &dense);
        if rows <= router::GROUPED_ROWS {
            let pitch = rows + rows % 2;
            let mut lists = [(); 2].map(|()| stream.alloc_zeros::<i32>(experts * pitch));
            let [Ok(in_rows), Ok(out_rows)] = &mut lists else { return Err("no memory for lists".into()) };
            let groups = Groups {
                slots: &mut slots.as_view_mut(),
                in_rows: &mut in_rows.as_view_mut(),
                out_rows: &mut out_rows.as_view_mut(),
                pitch,
            };
            // SAFETY: as above.
            unsafe { router.group(&gpu.device, &mut work, rows, &d_chosen.as_view(), groups)? };
            let got = (stream.clone_dtoh(&slots)?, stream.clone_dtoh(in_rows)?, stream.clone_dtoh(out_rows)?);
            same_with_a_pitch(&dense, &got, pitch);
        }
    }
    println!("router {shape:?}: lists equal, with a pitch too");
    Ok(())
}

/// Each expert's pairs stand where the pitch says, in the order that lists without one have.
fn same_with_a_pitch(dense: &Lists, got: &Lists, pitch: usize) {
    for (e, (dense_slot, slot)) in dense.0.chunks_exact(4).zip(got.0.chunks_exact(4)).enumerate() {
        let (first, count) = (dense_slot[1] as usize, dense_slot[2] as usize);
        assert_eq!(slot, [e as i32, (e * pitch) as i32, count as i32, 0]);
        for (dense, got) in [(&dense.1, &got.1), (&dense.2, &got.2)] {
            assert_eq!(dense[first..][..count], got[e * pitch..][..count], "expert {e}, pitch {pitch}");
        }
    }
}
