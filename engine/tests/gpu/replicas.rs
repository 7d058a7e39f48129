//! Two backends on one device, the second in a context of its own: they compute the bytes of one, and a trap in one
//! leaves the other alone.
//!
//! A trap may take more with it than it should, so it runs in a process of its own: this program again, told to
//! (`main.rs`).

use super::Test;
use super::driver::{Gpu, config};
use super::support;
use chimere_engine::backend::Backend;
use chimere_engine::backend::cuda::CudaConfig;
use chimere_engine::ids::{SlotId, StepId};
use chimere_engine::step::{Form, StepPlan};
use std::process::Command;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// Tests that want a device.
pub(super) const TESTS: &[Test] = &[
    ("two_backends_on_a_device_compute_at_once_what_one_does", two_backends_compute_at_once_what_one_does),
    ("a_trap_in_one_backend_leaves_the_other_of_the_device", a_trap_in_one_backend_leaves_the_other),
];

/// Rounds of the prompt that two backends compute at once.
const ROUNDS: usize = 8;
/// Bound of the wait that ends in a trap, in ticks of 67 ms.
const TICKS: u32 = 3;

fn backend(own_context: bool) -> Gpu {
    Gpu::new(&support::nano(), &CudaConfig { own_context, ..config(2, 64) })
}

/// Logits of a prompt and of steps behind it.
fn logits(gpu: &mut Gpu) -> Vec<f32> {
    let ids: Vec<u32> = (0..200).map(|i| 17 + i * 31 % 1009).collect();
    let mut all = gpu.prompt(&ids, &[64, 128]).0;
    all.extend(gpu.decode(&ids[..40]));
    all
}

fn two_backends_compute_at_once_what_one_does() {
    let (alone, together) = (logits(&mut backend(false)), Barrier::new(2));
    thread::scope(|scope| {
        let run = |own_context| {
            let (alone, together) = (&alone, &together);
            scope.spawn(move || {
                let mut gpu = backend(own_context);
                together.wait();
                (0..ROUNDS).for_each(|round| assert!(logits(&mut gpu) == *alone, "round {round}, own {own_context}"));
            })
        };
        let both = [run(false), run(true)];
        both.into_iter().for_each(|one| one.join().unwrap());
    });
}

fn a_trap_in_one_backend_leaves_the_other() {
    for lost in ["primary", "own"] {
        let output = Command::new(std::env::current_exe().unwrap()).args(["trap", lost]).output().unwrap();
        let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat();
        eprintln!("{lost}: {said}");
        assert!(output.status.success(), "the {lost} context is lost: {said}");
    }
}

/// In a process of its own: one of two backends traps while the other computes; then it is dropped, and the other goes
/// on.
pub(super) fn trap(lost: &str) {
    let (own, alone, together) = (lost == "own", logits(&mut backend(false)), Barrier::new(2));
    thread::scope(|scope| {
        let (alone, together) = (&alone, &together);
        let lost = scope.spawn(move || {
            let mut gpu = backend(own);
            together.wait();
            gpu.backend.trap(TICKS).unwrap();
            let begin = Instant::now();
            let why = failure(&mut gpu).expect("the step behind the trap fails");
            eprintln!("after {:.2} s: {why}", begin.elapsed().as_secs_f32());
            assert!(why.contains("ENDLESS"), "it names the wait: {why}");
            assert!(failure(&mut gpu).is_some(), "and so does every later one");
            let begin = Instant::now();
            drop(gpu);
            eprintln!("dropped within {:.2} s", begin.elapsed().as_secs_f32());
            together.wait();
        });
        let living = scope.spawn(move || {
            let mut gpu = backend(!own);
            together.wait();
            (0..ROUNDS).for_each(|round| assert!(logits(&mut gpu) == *alone, "round {round} beside the trap"));
            together.wait();
            assert!(logits(&mut gpu) == *alone, "after the other was dropped");
        });
        living.join().unwrap();
        lost.join().unwrap();
    });
}

/// Why a step of one token fails, if it does.
fn failure(gpu: &mut Gpu) -> Option<String> {
    let mut piece = support::piece(Form::Chunked, 0, &[1]);
    piece.slot = SlotId(1);
    let id = StepId(gpu.next);
    gpu.next += 1;
    let pending = gpu.backend.launch(StepPlan::new(id, vec![piece]));
    pending.and_then(|pending| pending.wait()).err().map(|e| e.to_string())
}
