//! Tokens that are drawn on the device, beside the definition.

use super::Test;
use super::batches::{decode_rows, decode_together};
use super::driver::{Gpu, config};
use super::support;
use super::support::Random;
use chimere_engine::backend::Backend;
use chimere_engine::constraint::{Constraint, Effect, RowRule, Rule, Source, Sources, StepRules};
use chimere_engine::ids::{SeqId, TokenId};
use chimere_engine::sampling::SamplingParams;
use chimere_kernels::reference::sampler as definition;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tests that want a device.
pub(super) const TESTS: &[Test] = &[
    (
        "rows_with_constraints_sample_the_definition_s_tokens_and_say_which_they_changed",
        rows_with_constraints_sample_the_definition_s_tokens_and_say_which_they_changed,
    ),
    ("rows_under_masks_of_their_own_say_what_these_leave", rows_under_masks_of_their_own_say_what_these_leave),
    ("rows_report_what_their_tokens_are_drawn_from", rows_report_what_their_tokens_are_drawn_from),
    (
        "rows_sample_the_tokens_that_the_definition_gives_for_their_logits",
        rows_sample_the_tokens_that_the_definition_gives_for_their_logits,
    ),
];

/// The definition's token for a row of [`decode_rows`] with neutral parameters.
pub(super) fn defined(logits: &[f32], row: usize, step: u32, constraint: &Constraint) -> TokenId {
    definition_of(row, step, (logits.len(), constraint), |p, c| definition::sample(logits, p, c))
}

/// Something of a row of so many logits, as the definition has its parameters.
pub(super) fn definition_of<T>(
    row: usize,
    step: u32,
    (vocab, constraint): (usize, &Constraint),
    of: impl FnOnce(&definition::Sampling, &definition::Context) -> T,
) -> T {
    let sampling = definition::Sampling {
        temperature: 1.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
        seed: 1000 + row as u64,
        repetition_penalty: 1.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        logit_bias: &[],
        // What is forbidden is there what may not come before so many tokens.
        min_tokens: step + 1,
        end_ids: &constraint.forbidden,
    };
    let (prompt, counts) = (vec![false; vocab], vec![0; vocab]);
    let context = definition::Context {
        in_prompt: &prompt,
        output_counts: &counts,
        edits: &constraint.bias,
        mix: &constraint.mix,
        mask: constraint.mask.as_deref(),
        output_index: step,
        choice: 0,
    };
    of(&sampling, &context)
}

fn rows_with_constraints_sample_the_definition_s_tokens_and_say_which_they_changed() {
    let model = support::nano();
    let (vocab, mut gpu) = (model.config.vocab, Gpu::new(&model, &config(64, 256)));
    let mut changed = 0;
    for rows in [1, 3, 16, 40usize] {
        let mut random = Random(rows as u64);
        let first: Vec<TokenId> = (0..rows).map(|i| (i * 131 % vocab) as TokenId).collect();
        for step in 0..6u32 {
            let mut ids = |n: u64| -> Vec<(TokenId, f32)> {
                let ids: BTreeMap<_, _> =
                    (0..n).map(|_| (random.below(vocab as u64) as TokenId, random.below(100) as f32 / 400.0)).collect();
                ids.into_iter().collect()
            };
            let mask: Arc<[u32]> = (0..vocab.div_ceil(32) as u32).map(|w| w.wrapping_mul(2_654_435_761) | 1).collect();
            // Rows with biases, mixtures, both, a mask alone, and rows that wait for nothing but may not say their
            // first token.
            let mut rules: Vec<Vec<Rule>> = Vec::new();
            for i in 0..rows {
                let tables = |effect| Rule { source: Source::Tables, effect };
                let bias = (i % 5 == 0 || i % 5 == 2).then(|| tables(Effect::Bias(ids(20))));
                let mix = (i % 5 < 2).then(|| tables(Effect::Mix(ids(64))));
                let allow = || Rule { source: Source::Grammar, effect: Effect::Allow(mask.clone()) };
                let forbid = || Rule { source: Source::MinTokens, effect: Effect::Forbid([first[i], first[0]].into()) };
                let others = [(i % 5 == 1 || i % 5 == 3).then(allow), (i % 5 == 4).then(forbid)];
                rules.push([bias, mix].into_iter().chain(others).flatten().collect());
            }
            let mut pieces =
                decode_rows(step, (step == 0).then_some(&first[..]), rows as u32, &SamplingParams::default());
            for (piece, rules) in pieces.iter_mut().zip(&rules) {
                let row = &mut piece.samples[0];
                row.rules = rules.iter().filter(|rule| !rule.source.is_deferred()).cloned().collect();
                row.waits_for = rules.iter().map(|rule| rule.source).filter(|source| source.is_deferred()).collect();
            }
            let waits_for = pieces.iter().fold(Sources::NONE, |all, piece| all.with(piece.samples[0].waits_for));
            let (id, pending) = gpu.launch(pieces);
            for source in waits_for.iter() {
                let of_row = |(i, rules): (usize, &Vec<Rule>)| {
                    let said = rules.iter().filter(|rule| rule.source == source);
                    said.map(|rule| RowRule { seq: SeqId(i as u64), output: step, effect: rule.effect.clone() })
                        .collect::<Vec<_>>()
                };
                let said = rules.iter().enumerate().flat_map(of_row).collect();
                gpu.backend.constrain(StepRules { step: id, source, rows: said }).unwrap();
            }
            let samples = pending.wait().unwrap().samples;
            let logits = gpu.backend.logits(rows).unwrap();
            for (i, (sample, row)) in samples.iter().zip(logits.chunks(vocab)).enumerate() {
                let all = Constraint::of(rules[i].clone(), vocab as u32);
                let plain = Constraint { bias: Vec::new(), mix: Vec::new(), ..all.clone() };
                let (token, plain) = (defined(row, i, step, &all), defined(row, i, step, &plain));
                assert_eq!(
                    (sample.token, sample.changed),
                    (token, Some(token != plain)),
                    "row {i} of {rows}, step {step}"
                );
                changed += usize::from(token != plain);
            }
        }
    }
    println!("{changed} tokens changed");
    assert!(changed > 20, "{changed}");
}

/// Every row has its own mask of the whole vocabulary, so that their words do not fit into one batch of lists; half of
/// the masks leave one token, which a step later is what the row goes on from.
fn rows_under_masks_of_their_own_say_what_these_leave() {
    let model = support::nano();
    let (vocab, mut gpu) = (model.config.vocab, Gpu::new(&model, &config(64, 256)));
    let mut random = Random(7);
    for rows in [1, 16, 64usize] {
        let first: Vec<TokenId> = (0..rows).map(|i| (i * 131 % vocab) as TokenId).collect();
        for step in 0..4u32 {
            let left: Vec<Vec<TokenId>> =
                (0..rows).map(|i| (0..=i % 2 * 3).map(|_| random.below(vocab as u64) as TokenId).collect()).collect();
            let mut pieces =
                decode_rows(step, (step == 0).then_some(&first[..]), rows as u32, &SamplingParams::default());
            pieces.iter_mut().for_each(|piece| piece.samples[0].waits_for = Sources::only(Source::Grammar));
            let (id, pending) = gpu.launch(pieces);
            let rule = |(i, ids): (usize, &Vec<TokenId>)| {
                let mut words = vec![0u32; vocab.div_ceil(32)];
                ids.iter().for_each(|id| words[*id as usize / 32] |= 1 << (id % 32));
                RowRule { seq: SeqId(i as u64), output: step, effect: Effect::Allow(words.into()) }
            };
            let rules = left.iter().enumerate().map(rule).collect();
            gpu.backend.constrain(StepRules { step: id, source: Source::Grammar, rows: rules }).unwrap();
            for (i, (sample, ids)) in pending.wait().unwrap().samples.iter().zip(&left).enumerate() {
                assert!(ids.contains(&sample.token), "row {i} of {rows}, step {step}: {} of {ids:?}", sample.token);
                assert!(sample.yielded.is_empty());
            }
        }
    }
}

fn rows_sample_the_tokens_that_the_definition_gives_for_their_logits() {
    let model = std::env::var_os("CHIMERE_TEST_MODEL")
        .map_or_else(support::nano, |path| chimere_engine::model::load(path.as_ref()).unwrap());
    let (vocab, mut gpu) = (model.config.vocab, Gpu::new(&model, &config(64, 256)));
    for rows in [1, 3, 16, 64usize] {
        let first: Vec<TokenId> = (0..rows).map(|i| (i * 131 % vocab) as TokenId).collect();
        for step in 0..8u32 {
            let tokens = (step == 0).then_some(&first[..]);
            let got = decode_together(&mut gpu, step, tokens, rows as u32, &SamplingParams::default());
            let logits = gpu.backend.logits(rows).unwrap();
            // The definition takes what is no number for minus infinity, so it would not tell dead rows.
            assert!(logits.iter().all(|l| l.is_finite()), "{rows} rows, step {step}");
            for (i, (token, row)) in got.iter().zip(logits.chunks(vocab)).enumerate() {
                assert_eq!(*token, defined(row, i, step, &Constraint::default()), "row {i} of {rows}, step {step}");
            }
            // Random weights give nearly uniform distributions, a trained model's may be sharp.
            if rows >= 16 && std::env::var_os("CHIMERE_TEST_MODEL").is_some() {
                let distinct = got.iter().collect::<std::collections::HashSet<_>>().len();
                assert!(2 * distinct > rows, "{distinct} distinct tokens of {rows} rows: {got:?}");
            }
        }
    }
}

/// With rows beside them that report log-probabilities of the model's own logits.
fn rows_report_what_their_tokens_are_drawn_from() {
    let model = support::nano();
    let (vocab, mut gpu) = (model.config.vocab, Gpu::new(&model, &config(16, 64)));
    let own = SamplingParams { logprobs: Some(3), ..SamplingParams::default() };
    for step in 0..4u32 {
        let first: Vec<TokenId> = (0..16).map(|i| i * 131 % vocab as TokenId).collect();
        let mut pieces = decode_rows(step, (step == 0).then_some(&first[..]), 16, &own);
        for sample in pieces.iter_mut().skip(1).step_by(2).flat_map(|piece| &mut piece.samples) {
            sample.params = Arc::new(SamplingParams { top_p: 0.5, processed: true, ..(*sample.params).clone() });
        }
        let got = gpu.step(pieces).samples;
        let logits = gpu.backend.logits(16).unwrap();
        for (i, (sample, row)) in got.iter().zip(logits.chunks(vocab)).enumerate() {
            let told = sample.logprobs.as_ref().expect("all rows asked for them");
            let top_p = if i % 2 == 1 { 0.5 } else { 1.0 };
            // Without filters and at temperature 1 what is drawn from are the model's own logits.
            let of_draw = definition_of(i, step, (vocab, &Constraint::default()), |p, c| {
                definition::drawn_logprobs(row, &definition::Sampling { top_p, ..*p }, c)
            });
            let near = |(a, b): (&(u32, f32), &(u32, f32))| a.0 == b.0 && (a.1 - b.1).abs() < 1e-4;
            assert!(
                told.top.len() == of_draw.len().min(3) && told.top.iter().zip(&of_draw).all(near),
                "row {i}, step {step}: {told:?}"
            );
            let own = of_draw.iter().find(|(id, _)| *id == sample.token).expect("a token that can be drawn");
            assert!((own.1 - told.logprob).abs() < 1e-4, "row {i}, step {step}: {own:?} {told:?}");
        }
    }
}
