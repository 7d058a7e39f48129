//! Drafts change no byte: the real scheduler drives the real backend with sources that are right, wrong or random, and
//! every token and log-probability is that of a run without drafts.

use crate::support::drafts::{CONTEXT, Setup, check, check_adapters, check_head, check_many};
use crate::support::{self, Driver};
use chimere_engine::PAGE_TOKENS;
use chimere_engine::adapter::{Adapter, ScaledAdapter};
use chimere_engine::backend::cpu::{CpuBackend, CpuConfig, KvType};
use chimere_engine::drafts::DraftMode;
use chimere_engine::ids::{PageId, SeqId, SlotId, TokenId};
use chimere_engine::model::{AdapterTargets, DraftIds, GdnConfig, Model, read_adapter};
use chimere_engine::sampling::SamplingParams;
use chimere_engine::step::{Form, Piece, SampleRow, StateStart};
use std::sync::Arc;

fn on_the_cpu(model: &Model, setup: &Setup, step_rows_max: u32) -> CpuBackend {
    let cpu = CpuConfig {
        threads: setup.threads,
        slots: setup.slots,
        pages: setup.pages,
        checkpoints: setup.checkpoints,
        kv_type: KvType::F16,
        exact: false,
        step_rows_max,
        context: CONTEXT,
        drafts: if setup.drafts == DraftMode::Off { 0 } else { 7 },
        draft_head: true,
    };
    let mut backend = CpuBackend::new(model, &cpu, &mut |_| {}).unwrap();
    backend.poison();
    backend
}

fn check_on_the_cpu(preset: &str) {
    let model = support::gguf(preset);
    check(preset, |setup, rows| on_the_cpu(&model, setup, rows));
}

#[test]
fn drafts_change_no_byte_of_a_mixture_of_experts() {
    check_on_the_cpu("moe");
}

#[test]
fn drafts_change_no_byte_of_short_convolutions() {
    check_on_the_cpu("lfm2_moe");
}

#[test]
fn drafts_change_no_byte_of_quantised_weights() {
    check_on_the_cpu("quant");
}

#[test]
fn a_hundred_thousand_tokens_are_those_without_drafts_while_requests_come_go_and_are_preempted() {
    let model = support::gguf("moe");
    check_many("moe", |setup, rows| on_the_cpu(&model, setup, rows));
}

#[test]
fn rows_with_an_adapter_have_their_bytes_when_they_are_drafted_cached_and_preempted() {
    let model = support::gguf("moe");
    let (file, targets) = (support::golden_dir("adapters").join("moe"), AdapterTargets::of(&model));
    let read = || Arc::new(read_adapter(&file, "a", &targets).unwrap());
    let (first, second) = (read(), read());
    let scaled = |adapter: &Arc<Adapter>, scale| ScaledAdapter { adapter: adapter.clone(), scale };
    let adapters = vec![scaled(&first, 1.0), scaled(&first, 0.5), scaled(&second, 2.0)];
    check_adapters("moe", adapters, |setup, rows| on_the_cpu(&model, setup, rows));
}

#[test]
fn guesses_of_a_draft_head_change_no_byte() {
    for (preset, model) in [("moe", support::gguf("moe")), ("nano", support::nano())] {
        check_head(preset, |setup, rows| on_the_cpu(&model, setup, rows));
    }
}

#[test]
fn guesses_among_few_ids_change_no_byte() {
    for ids in [DraftIds::First(128), DraftIds::Listed((0..512).rev().step_by(3).collect())] {
        let model = support::guessing_among(support::gguf("moe"), &ids);
        check_head("moe", |setup, rows| on_the_cpu(&model, setup, rows));
    }
}

#[test]
fn guesses_among_few_ids_are_those_of_all_where_these_are_listed() {
    let greedy = Arc::new(SamplingParams { temperature: 0.0, ..SamplingParams::default() });
    let prompt: Vec<TokenId> = (0..20).map(|i| i * 23 % 512).collect();
    let guessed = |model: &Model| {
        let config = CpuConfig { drafts: 3, draft_head: true, ..support::config(false, 1) };
        let mut driver = Driver::recording(model, &config);
        let samples = vec![SampleRow::new(SeqId(1), SlotId(0), greedy.clone())];
        let first = driver.step(vec![Piece { samples, ..support::piece(Form::Chunked, 0, &prompt) }]).samples[0].token;
        let piece = Piece { guesses: 3, ..drafted(20, 1, first, &[], &greedy) };
        let guesses = driver.step(vec![piece]).guesses.concat();
        (guesses, driver.backend.recording().guesses.clone())
    };
    let (all, logits) = guessed(&support::gguf("moe"));
    let vocab = support::gguf("moe").config.vocab;
    let with = DraftIds::Listed(all.iter().copied().chain([500]).collect());
    assert_eq!(guessed(&support::guessing_among(support::gguf("moe"), &with)).0, all);
    for ids in [DraftIds::First(64), DraftIds::Listed((400..464).filter(|id| *id != all[0]).collect())] {
        let model = support::guessing_among(support::gguf("moe"), &ids);
        let list = model.weights.draft_head.as_ref().unwrap().shortlist.clone().unwrap();
        let (among, _) = guessed(&model);
        let of = |id: &TokenId| logits[*id as usize];
        let best = (0..vocab as TokenId).filter(|id| list.place(*id).is_some()).max_by(|a, b| of(a).total_cmp(&of(b)));
        assert_eq!(among.first().copied(), best, "the best of those that are listed");
        assert!(among.iter().all(|id| list.place(*id).is_some()), "{among:?}");
    }
}

/// A decode piece of sequence 1 with drafts and their samples.
fn drafted(start: u32, output: u32, token: TokenId, drafts: &[TokenId], params: &Arc<SamplingParams>) -> Piece {
    let end = start + 1 + drafts.len() as u32;
    let row = |i| SampleRow { output_index: output + i, ..SampleRow::new(SeqId(1), SlotId(0), params.clone()) };
    Piece {
        drafts: drafts.to_vec(),
        pages: (0..end.div_ceil(PAGE_TOKENS)).map(PageId).collect(),
        prompt_len: 20,
        state: StateStart::Continue,
        samples: (0..=drafts.len() as u32).map(row).collect(),
        ..support::piece(Form::Recurrent, start as usize, &[token])
    }
}

/// Tokens of each text in [`states_and_tails_after_drafts_are_those_of_rows_of_their_own`].
const TEXT: usize = 60;

#[test]
fn states_and_tails_after_drafts_are_those_of_rows_of_their_own() {
    let model = support::gguf("moe");
    let config = CpuConfig { drafts: 7, ..support::config(false, 1) };
    let (mut plain, mut drafting) = (Driver::recording(&model, &config), Driver::recording(&model, &config));
    // One after another in the same slot, a hundred thousand tokens in all.
    for text in 0..100_000_u32.div_ceil(TEXT as u32) {
        decode_both(&mut plain, &mut drafting, text);
        for nth in 0..model.config.each::<GdnConfig>().count() {
            let want = plain.backend.state(SlotId(0), nth);
            let want = (want.0.to_vec(), want.1.to_vec());
            let got = drafting.backend.state(SlotId(0), nth);
            assert!(got.0 == want.0 && got.1 == want.1, "text {text}, block {nth}");
        }
    }
}

/// A text without drafts, then with some that are right and some that are not.
fn decode_both(plain: &mut Driver, drafting: &mut Driver, text: u32) {
    let sampling =
        SamplingParams { temperature: 0.5, seed: text.into(), repetition_penalty: 1.2, ..Default::default() };
    let params = Arc::new(sampling);
    let prompt: Vec<TokenId> = (0..20).map(|i| (i * 23 + text) % 512).collect();
    let mut first = Vec::new();
    for driver in [&mut *plain, &mut *drafting] {
        let samples = vec![SampleRow::new(SeqId(1), SlotId(0), params.clone())];
        let piece = Piece { samples, ..support::piece(Form::Chunked, 0, &prompt) };
        first.push(driver.step(vec![piece]).samples[0].token);
    }
    // Without drafts.
    let mut tokens = vec![first[0]];
    for i in 0..TEXT as u32 {
        tokens.push(plain.step(vec![drafted(20 + i, 1 + i, tokens[i as usize], &[], &params)]).samples[0].token);
    }
    let (mut at, mut round) = (0usize, text as usize);
    while at < TEXT {
        let k = (round * 5 % 8).min(TEXT - at - 1);
        let right = if k == 0 { 0 } else { round * 3 % (k + 1) };
        let mut drafts = tokens[at + 1..at + 1 + k].to_vec();
        if let Some(wrong) = drafts.get_mut(right) {
            *wrong = (*wrong + 1) % 512;
        }
        let outcome = drafting.step(vec![drafted(20 + at as u32, 1 + at as u32, tokens[at], &drafts, &params)]);
        let want = if k == 0 { vec![] } else { vec![right as u32] };
        assert_eq!(outcome.accepted, want, "round {round}");
        let got: Vec<_> = outcome.samples.iter().map(|sample| sample.token).collect();
        assert_eq!(got, tokens[at + 1..at + 2 + right], "round {round}");
        (at, round) = (at + 1 + right, round + 1);
    }
    // The last piece may have gone a row further or less: both are read where the plain run ended.
    while at < TEXT {
        drafting.step(vec![drafted(20 + at as u32, 1 + at as u32, tokens[at], &[], &params)]);
        at += 1;
    }
    assert_eq!(at, TEXT);
}
