//! What the draft head reads late is what it reads at once, and behind a prompt's end it guesses as behind a decode row.

use super::Test;
use super::batches::{decode_rows, pages_of};
use super::driver::{Gpu, config};
use super::support::{self, Random, relative_rms};
use chimere_engine::constraint::{Effect, Rule, Source};
use chimere_engine::ids::{SeqId, TokenId};
use chimere_engine::sampling::SamplingParams;
use chimere_engine::step::{Form, Piece, SampleRow};
use std::sync::Arc;

/// Tests that want a device.
pub(super) const TESTS: &[Test] = &[
    ("rows_that_waited_are_guessed_behind_as_those_read_at_once", rows_that_waited_are_guessed_behind),
    ("prompts_ends_are_guessed_behind_as_decode_rows", prompts_ends_are_guessed_behind),
];

/// Sequences of the test.
const ROWS: usize = 2;

/// Logits of the guesses behind sequence 0 at some of the steps. `at_once`: the other sequence has a draft in every step,
/// so that all rows are read behind the pass that computes them, by what that left itself.
fn guessed(ids: &[Vec<TokenId>], asking: &[usize], at_once: bool) -> Vec<Vec<f32>> {
    let model = support::nano();
    let mut gpu = Gpu::new(&model, &config(ROWS as u32, 8));
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

/// Logits of the guess behind a prompt and `said` after it; the first `len` tokens run as a prompt, others as decode rows.
/// `beside` them another sequence decodes, and asks for a guess too.
fn guessed_behind(ids: &[TokenId], len: usize, said: TokenId, beside: bool) -> Vec<f32> {
    let model = support::nano();
    let mut gpu = Gpu::new(&model, &config(ROWS as u32, 8));
    let forms = std::iter::once((Form::Chunked, 0, &ids[..len]))
        .chain((len..ids.len()).map(|at| (Form::Recurrent, at, &ids[at..at + 1])));
    let steps = 1 + ids.len() - len;
    for (step, (form, start, part)) in forms.enumerate() {
        let rules = vec![Rule { source: Source::Forced, effect: Effect::Force(said) }];
        let mut piece = Piece { seq: SeqId(0), ..support::piece(form, start, part) };
        piece.pages = pages_of(0, piece.start + piece.len() + 1);
        if step + 1 == steps {
            let row = SampleRow::new(piece.seq, piece.slot, Arc::new(SamplingParams::greedy()));
            (piece.samples, piece.guesses) = (vec![SampleRow { rules, ..row }], 1);
        }
        let other = decode_rows(step as u32, Some(&[7, 7]), ROWS as u32, &SamplingParams::greedy());
        let guesses = piece.guesses;
        let other = other.into_iter().skip(1).filter(|_| beside).map(|other| Piece { guesses, ..other });
        gpu.step(std::iter::once(piece).chain(other).collect());
    }
    gpu.backend.logits(1).unwrap()
}

/// Prompts that end anywhere, alone and beside a decode row.
fn prompts_ends_are_guessed_behind() {
    let (vocab, mut random) = (support::nano().config.vocab as u64, Random(8));
    for len in [2, 63, 64, 65, 100] {
        let ids: Vec<_> = (0..len).map(|_| random.below(vocab) as TokenId).collect();
        let said = random.below(vocab) as TokenId;
        let want = guessed_behind(&ids, len - 1, said, false);
        for beside in [false, true] {
            let error = relative_rms(&guessed_behind(&ids, len, said, beside), &want);
            println!("a prompt of {len}: RMS {error:.2e}");
            assert!(error < 0.1, "a prompt of {len}, beside another {beside}: its guess is {error:.2e} off");
        }
    }
}
