//! What the draft head reads late is what it reads at once.

use super::Test;
use super::batches::{decode_rows, pages_of};
use super::driver::{Gpu, config};
use super::support::{self, Random, relative_rms};
use chimere_engine::ids::TokenId;
use chimere_engine::sampling::SamplingParams;
use chimere_engine::step::{Piece, SampleRow};

/// Tests that want a device.
pub(super) const TESTS: &[Test] =
    &[("rows_that_waited_are_guessed_behind_as_those_read_at_once", rows_that_waited_are_guessed_behind)];

/// Sequences of the test.
const ROWS: usize = 2;

/// Logits of the guesses behind sequence 0 at some of the steps. `at_once`: the other sequence has a draft in every step,
/// so that all rows are read behind the pass that computes them, by what that left itself.
fn guessed(ids: &[Vec<TokenId>], asking: &[usize], at_once: bool) -> Vec<Vec<f32>> {
    let model = support::nano();
    let mut gpu = Gpu::new(&model, &config(ROWS as u32, 8, false));
    let mut all = Vec::new();
    for (step, ids) in ids.iter().enumerate() {
        let mut pieces = decode_rows(step as u32, Some(ids), ROWS as u32, &SamplingParams::greedy());
        pieces[0].guesses = u32::from(asking.contains(&step));
        if at_once {
            draft(&mut pieces[1], vec![1]);
        }
        if (20..23).contains(&step) {
            draft(&mut pieces[0], vec![1, 2, 3]);
        }
        gpu.step(pieces);
        if asking.contains(&step) {
            all.push(gpu.backend.logits(1).unwrap());
        }
    }
    all
}

/// Puts drafts behind a row.
fn draft(piece: &mut Piece, drafts: Vec<TokenId>) {
    let first = piece.samples[0].clone();
    let behind = |i: u32| SampleRow { output_index: first.output_index + i, ..first.clone() };
    piece.samples.extend((1..=drafts.len() as u32).map(behind));
    piece.drafts = drafts;
    piece.pages = pages_of(piece.slot.0, piece.start + piece.len());
}

/// Rows that wait singly, as many as a slot keeps, and more; behind drafts that did not count, too.
fn rows_that_waited_are_guessed_behind() {
    let (vocab, mut random) = (support::nano().config.vocab as u64, Random(3));
    let mut token = || random.below(vocab) as TokenId;
    let ids: Vec<Vec<TokenId>> = (0..120).map(|_| (0..ROWS).map(|_| token()).collect()).collect();
    let asking = [1, 19, 23, 63, 85, 86, 118];
    let pairs = guessed(&ids, &asking, false).into_iter().zip(guessed(&ids, &asking, true));
    for (step, (late, at_once)) in asking.iter().zip(pairs) {
        let error = relative_rms(&late, &at_once);
        println!("step {step}: RMS {error:.2e}");
        assert!(error < 1e-2, "step {step}: guesses behind rows that waited are {error:.2e} off");
    }
}
