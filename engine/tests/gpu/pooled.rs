//! Hidden states for those who want vectors.

use super::Test;
use super::driver::{Gpu, config, cpu_config};
use super::follow::nano_prompts;
use super::requests::scheduler_config;
use super::support;
use super::support::{Driver, Random, relative_rms};
use chimere_engine::backend::cpu::{CpuBackend, CpuConfig};
use chimere_engine::backend::{Backend, Pending};
use chimere_engine::ids::{Micros, PageId, RequestId, SeqId, SlotId, TokenId};
use chimere_engine::scheduler::{Event, Pooling, Request, Scheduler, SchedulerConfig, Spec};
use chimere_engine::step::{Form, Piece, PooledUnit, StepOutcome};
use std::collections::{BTreeMap, VecDeque};

/// Tests that want a device.
pub(super) const TESTS: &[Test] = &[(
    "hidden_states_follow_the_exact_path_and_do_not_depend_on_what_runs_beside_them",
    hidden_states_follow_the_exact_path_and_do_not_depend_on_what_runs_beside_them,
)];

/// Two steps of three prompts, of which two want the sum of all their hidden states and one its last; beside the second
/// step's runs a decode row. `together`: prompts share a step; else each piece of 64 has its own.
pub(super) fn pooled_steps(together: bool) -> Vec<Vec<Piece>> {
    let text: Vec<TokenId> = nano_prompts().concat();
    let piece = |seq: u32, start: usize, end: usize, pool_from: u32| Piece {
        seq: SeqId(u64::from(seq)),
        slot: SlotId(seq),
        pages: (0..16).map(|page| PageId(16 * seq + page)).collect(),
        pool_from: Some(pool_from),
        ..support::piece(Form::Chunked, start, &text[300 * seq as usize..][start..end])
    };
    if together {
        let decode = Piece { pool_from: None, form: Form::Recurrent, ..piece(3, 5, 6, 0) };
        return vec![
            vec![piece(0, 0, 128, 0), piece(1, 0, 70, 0), piece(2, 0, 128, 139)],
            vec![decode, piece(2, 128, 140, 139), piece(0, 128, 200, 0)],
        ];
    }
    let pieces = |seq: u32, len: usize, from: u32| {
        (0..len).step_by(64).map(move |at| vec![piece(seq, at, len.min(at + 64), from)])
    };
    pieces(0, 200, 0).chain(pieces(1, 70, 0)).chain(pieces(2, 140, 139)).collect()
}

/// Units in the order of sequences and positions.
pub(super) fn pooled_units(steps: Vec<Vec<Piece>>, mut run: impl FnMut(Vec<Piece>) -> StepOutcome) -> Vec<PooledUnit> {
    let mut units: Vec<PooledUnit> = steps.into_iter().flat_map(|pieces| run(pieces).pooled).collect();
    units.sort_by_key(|unit| (unit.seq, unit.positions.start));
    units
}

fn hidden_states_follow_the_exact_path_and_do_not_depend_on_what_runs_beside_them() {
    let model = support::nano();
    let mut cpu = Driver::recording(&model, &CpuConfig { slots: 4, ..cpu_config(true) });
    let want = pooled_units(pooled_steps(true), |pieces| cpu.step(pieces));
    let at = |units: &[PooledUnit]| units.iter().map(|u| (u.seq.0, u.positions.clone())).collect::<Vec<_>>();
    assert_eq!(
        at(&want),
        [(0, 0..64), (0, 64..128), (0, 128..192), (0, 192..200), (1, 0..64), (1, 64..70), (2, 139..140)]
    );
    let mut gpu = Gpu::new(&model, &config(4, 128));
    let got = pooled_units(pooled_steps(true), |pieces| gpu.step(pieces));
    assert_eq!(at(&got), at(&want));
    let values = |units: &[PooledUnit]| units.iter().flat_map(|u| u.sum.clone()).collect::<Vec<f32>>();
    let error = relative_rms(&values(&got), &values(&want));
    let each: Vec<String> =
        got.iter().zip(&want).map(|(g, w)| format!("{:.1e}", relative_rms(&g.sum, &w.sum))).collect();
    println!("hidden states: RMS {error:.2e}, by unit {each:?}");
    assert!(error <= 3e-2, "{error:.2e}");
    let apart = pooled_units(pooled_steps(false), |pieces| gpu.step(pieces));
    assert!(apart == got, "other pieces give other sums");
}

/// Five requests that write, and four that want hidden states, the first of which is long.
pub(super) fn pooled_requests() -> Vec<Request> {
    let base = |id: u64, tokens: u64, spec: Spec| {
        let mut random = Random(id + 40);
        Request::new(RequestId(id), (0..tokens).map(|_| random.below(8192) as TokenId).collect::<Vec<_>>(), spec)
    };
    let pooled = |id, tokens, pool| base(id, tokens, Spec { pool: Some(pool), ..Spec::greedy(0) });
    let long = pooled(5, 2560, Pooling::Mean);
    let short = [pooled(6, 40, Pooling::Mean), pooled(7, 130, Pooling::Last), pooled(8, 64, Pooling::Mean)];
    (0..5).map(|id| base(id, 27, Spec::greedy(120))).chain([long]).chain(short).collect()
}

/// What [`pooled_requests`] get, and how often one of their prompts had to begin again.
pub(super) fn pooled(backend: &mut dyn Backend) -> (BTreeMap<u64, Vec<f32>>, usize) {
    let mut scheduler =
        Scheduler::new(SchedulerConfig { step_tokens: 64, ..scheduler_config(&backend.info().clone()) });
    pooled_requests().into_iter().for_each(|request| scheduler.admit(request, Micros(0)).map(drop).unwrap());
    let (mut states, mut begins, mut launched) = (BTreeMap::new(), 0, VecDeque::<Pending>::new());
    while !scheduler.is_idle() {
        while let Some(plan) = scheduler.plan(Micros(1)) {
            begins += plan.pieces.iter().filter(|p| p.pool_from.is_some() && p.start == 0).count();
            launched.push_back(backend.launch(plan).unwrap());
        }
        let outcome = launched.pop_front().expect("somebody runs").wait().unwrap();
        for (id, event) in scheduler.commit(outcome, Micros(2)) {
            if let Event::Pooled(state) = event {
                assert!(states.insert(id.0, state).is_none(), "request {} is told twice", id.0);
            }
        }
    }
    (states, begins - pooled_requests().iter().filter(|r| r.spec.pool.is_some()).count())
}

/// So few that a prompt gives its pages away and begins again.
pub(super) const FEW_PAGES: u32 = 92;

/// What [`pooled_requests`] get on the CPU, and how many prompts few pages have begin again there.
pub(super) fn pooled_on_the_cpu() -> (BTreeMap<u64, Vec<f32>>, usize) {
    let model = support::nano();
    let on_cpu = |pages| {
        let config = CpuConfig { slots: 8, pages, ..cpu_config(false) };
        pooled(&mut CpuBackend::new(&model, &config, &mut |_| {}).unwrap())
    };
    let (want, once) = on_cpu(512);
    let (again, twice) = on_cpu(FEW_PAGES);
    assert!(once == 0 && twice > 0 && want.len() == 4, "{once} and {twice} prompts begun again, {} states", want.len());
    assert!(again == want, "the CPU gives other bytes");
    (want, twice)
}

pub(super) fn hidden_states_count_once_on_a_gpu((want, twice): &(BTreeMap<u64, Vec<f32>>, usize)) {
    let mut gpu = Gpu::new(&support::nano(), &config(8, FEW_PAGES));
    let (got, restarts) = pooled(&mut gpu.backend);
    assert_eq!((restarts, got.len()), (*twice, want.len()));
    for (id, want) in want {
        let error = relative_rms(&got[id], want);
        println!("request {id}: hidden state RMS {error:.2e}");
        // One row alone has no others that its error could vanish among.
        assert!(error <= if *id == 7 { 1e-1 } else { 3e-2 }, "request {id}: {error:.2e}");
    }
}
