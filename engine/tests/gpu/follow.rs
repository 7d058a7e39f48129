//! Logits of a GPU beside those of the exact path.

use super::Test;
use super::driver::{Gpu, config, cpu_config, divergence};
use super::support;
use super::support::{Driver, Golden, argmax_agreement, relative_rms};
use chimere_engine::backend::cuda::{Activations, CudaConfig};
use chimere_engine::format::synth::{Mix, SynthOptions, write};
use chimere_engine::ids::TokenId;
use chimere_engine::model::Model;
use chimere_engine::step::{Form, PieceTokens};
use std::path::Path;

/// Tests that want a device.
pub(super) const TESTS: &[Test] = &[
    ("the_golden_presets_follow_the_exact_path", the_golden_presets_follow_the_exact_path),
    ("synthetic_hybrids_follow_the_exact_path", synthetic_hybrids_follow_the_exact_path),
    ("the_shipped_model_follows_the_exact_path", the_shipped_model_follows_the_exact_path),
    ("greedy_tokens_part_only_where_the_best_two_are_close", greedy_tokens_part_only_where_the_best_two_are_close),
];

/// Compares logits of the exact path with the GPU's, one token at a time and in pieces; returns what went wrong.
pub(super) fn follow(
    name: &str,
    model: &Model,
    activations: Activations,
    ids: &[TokenId],
    rms_max: f64,
    agreement_min: f64,
) -> Vec<String> {
    let (vocab, name) = (model.config.vocab, format!("{name}, {}", activations.of(model).name()));
    let want = Driver::recording(model, &cpu_config(true)).prompt(ids, 512);
    let default = Driver::recording(model, &cpu_config(false)).prompt(ids, 512);
    let of_default = (relative_rms(&default, &want), argmax_agreement(&default, &want, vocab));
    println!("{name}: the CPU's default path: RMS {:.2e}, same best token {:.3}", of_default.0, of_default.1);
    let mut gpu = Gpu::new(model, &CudaConfig { activations, ..config(2, 128) });
    let got = gpu.decode(ids);
    let (rms, agreement) = (relative_rms(&got, &want), argmax_agreement(&got, &want, vocab));
    println!("{name}: decode RMS {rms:.2e}, KL {:.2e}, same best token {agreement:.3}", divergence(&got, &want, vocab));
    let both = (relative_rms(&got, &default), argmax_agreement(&got, &default, vocab));
    println!("{name}: decode against the CPU's default path: RMS {:.2e}, same best token {:.3}", both.0, both.1);
    let mut wrong = Vec::new();
    if rms.is_nan() || rms > rms_max || agreement < agreement_min {
        wrong.push(format!("{name}: RMS {rms:.2e}, same best token {agreement:.3}"));
    }
    let last = &want[want.len() - vocab..];
    for sizes in [&[512][..], &[64], &[128, 64]] {
        let (logits, _) = gpu.prompt(ids, sizes);
        let error = relative_rms(&logits, last);
        println!("{name}: prompt in pieces of {sizes:?}: RMS {error:.2e}");
        if error.is_nan() || error > 2.0 * rms_max {
            wrong.push(format!("{name}: prompt in pieces of {sizes:?}: {error:.2e}"));
        }
    }
    wrong
}

fn the_golden_presets_follow_the_exact_path() {
    // The specification allows 3e-2 for dense models and 6e-2 for mixtures; 16 bits keep 3e-4, and would show if a
    // kernel lost a plane.
    let bounds = [
        ("dense", Activations::Int16, 5e-3, 0.99),
        ("moe", Activations::Int16, 5e-3, 0.99),
        ("next", Activations::Int16, 5e-3, 0.99),
        ("quant", Activations::Int16, 5e-3, 0.99),
        ("mamba2", Activations::Int16, 5e-3, 0.99),
        ("mamba2", Activations::Int8, 3e-2, 0.9),
        // Attention heads of 32, which end with zeros there.
        ("granitehybrid", Activations::Int16, 5e-3, 0.99),
        ("falcon_h1", Activations::Int16, 5e-3, 0.99),
        ("nemotron_h", Activations::Int16, 5e-3, 0.99),
        ("nemotron_super", Activations::Int16, 5e-3, 0.99),
        ("qwen3", Activations::Int16, 5e-3, 0.99),
        ("granite", Activations::Int16, 5e-3, 0.99),
        // Experts without a shared one, and heads that YaRN rotates.
        ("qwen3_moe", Activations::Int16, 5e-3, 0.99),
        ("qwen3_moe", Activations::Int8, 6e-2, 0.9),
        ("quant", Activations::Int8, 6e-2, 0.9),
    ];
    let all = bounds.map(|(preset, activations, rms, agreement)| {
        let ids = Golden::of(preset).ids("input_ids");
        follow(preset, &support::gguf(preset), activations, &ids, rms, agreement)
    });
    assert_eq!(all.concat(), [""; 0]);
}

/// A file of any size, where `CHIMERE_TEST_MODEL` names one: a synthetic one of the released shape has its widths and
/// encodings.
pub(super) fn a_given_model_follows_the_cpu(path: &Path) {
    let model = chimere_engine::model::load(path).unwrap();
    let ids: Vec<TokenId> = (0..70).map(|i| (i * 337 + 11) % model.config.vocab as TokenId).collect();
    assert_eq!(follow("given", &model, Activations::Auto, &ids, 6e-2, 0.9), [""; 0]);
}

/// Hybrids with the sizes of a release but for few layers, experts and tokens.
///
/// With bounds for activations of 16 and of 8 bits: of granite's weights the embedding outweighs what all blocks add,
/// so a block that is wrong moves its logits little; others have keys and values in f16 beside that.
pub(super) const SYNTHETIC: [(&str, usize, [f64; 2]); 6] = [
    ("granite-4-h-tiny", 6, [5e-5, 5e-3]),
    ("falcon-h1-7b", 2, [2e-3, 4e-2]),
    ("nemotron-3-nano-30b-a3b", 7, [1e-3, 3e-2]),
    // Experts with rows of a width of their own.
    ("nemotron-3-super-120b-a12b", 4, [1e-3, 3e-2]),
    ("nemotron-h-8b", 2, [3e-4, 2.5e-2]),
    // Experts without a shared one.
    ("qwen3-30b-a3b", 2, [1e-3, 4e-2]),
];

pub(super) fn small(shape: &str, layers: usize) -> SynthOptions {
    let experts = match shape {
        "granite-4-h-tiny" | "nemotron-3-nano-30b-a3b" | "qwen3-30b-a3b" => Some(8),
        "qwen3.5-35b-a3b" => Some(16),
        // A token uses 22.
        "nemotron-3-super-120b-a12b" => Some(24),
        _ => None,
    };
    let (layers, vocab) = (Some(layers), Some(512));
    SynthOptions { shape: shape.into(), mix: Mix::Q4, layers, experts, vocab, draft_head: false, seed: 3 }
}

pub(super) fn synthetic(shape: &str, layers: usize) -> Model {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("model.gguf");
    write(&file, &small(shape, layers), |_, _| ()).unwrap();
    // The file is mapped: its folder may go.
    chimere_engine::model::load(&file).unwrap()
}

fn synthetic_hybrids_follow_the_exact_path() {
    let ids: Vec<TokenId> = (0..150).map(|i| (i * 337 + 11) % 512).collect();
    let follow = |(shape, layers, [wide, narrow]): (&str, usize, [f64; 2])| {
        let model = synthetic(shape, layers);
        [(Activations::Int16, wide, 0.98), (Activations::Int8, narrow, 0.9)]
            .map(|(activations, rms, agreement)| follow(shape, &model, activations, &ids, rms, agreement))
            .concat()
    };
    assert_eq!(SYNTHETIC.map(follow).concat(), [""; 0]);
}

pub(super) fn nano_prompts() -> Vec<Vec<TokenId>> {
    let golden = Golden::read(&support::data_dir().join("models/nano/reference/golden.safetensors"));
    let (ids, mut at) = (golden.ids("ids"), 0);
    golden.ids("lengths").iter().map(|n| (at += *n as usize, ids[at - *n as usize..at].to_vec()).1).collect()
}

fn the_shipped_model_follows_the_exact_path() {
    let model = support::nano();
    let prompts = nano_prompts();
    let ids = |n| prompts.iter().flatten().copied().take(n).collect::<Vec<TokenId>>();
    assert_eq!(follow("nano", &model, Activations::Int16, &ids(1200), 5e-3, 0.99), [""; 0]);
    assert_eq!(follow("nano", &model, Activations::Int8, &ids(400), 3e-2, 0.95), [""; 0]);
}

fn greedy_tokens_part_only_where_the_best_two_are_close() {
    let (model, vocab) = (support::nano(), 8192);
    let mut gpu = Gpu::new(&model, &config(2, 128));
    let (mut cpu, mut default) =
        (Driver::recording(&model, &cpu_config(true)), Driver::recording(&model, &cpu_config(false)));
    // Where the best two of the CPU are how far apart, as a part of the logits' RMS; squares of errors, and of what
    // they are errors of.
    let (mut gaps, mut squares, mut compared, mut parted_default) = (Vec::new(), (0.0, 0.0), 0, 0);
    for (p, prompt) in nano_prompts().iter().take(20).enumerate() {
        let mut ids = prompt.clone();
        let (first, mut token) = gpu.prompt(prompt, &[512]);
        let mut rows = vec![first];
        for _ in 0..256 {
            ids.push(token);
            let (row, next) = gpu.run(Form::Recurrent, ids.len() - 1, PieceTokens::Sampled, prompt.len());
            rows.push(row);
            token = next;
        }
        let best_of = |row: &[f32]| (0..vocab).max_by(|a, b| row[*a].total_cmp(&row[*b]).then(b.cmp(a))).unwrap();
        let (logits, of_default) = (cpu.prompt(&ids, 512), default.prompt(&ids, 512));
        let parts = |at: &usize| best_of(&of_default[(at - 1) * vocab..at * vocab]) as TokenId != ids[*at];
        parted_default += usize::from((prompt.len()..ids.len()).any(|at| parts(&at)));
        for at in prompt.len()..ids.len() {
            let (row, got) = (&logits[(at - 1) * vocab..at * vocab], &rows[at - prompt.len()]);
            let size = |v: &[f32]| v.iter().map(|l| f64::from(*l).powi(2)).sum::<f64>();
            let error: Vec<f32> = got.iter().zip(row).map(|(a, b)| a - b).collect();
            squares = (squares.0 + size(&error), squares.1 + size(row));
            compared += 1;
            let best = best_of(row);
            if best as TokenId != ids[at] {
                let gap = f64::from(row[best] - row[ids[at] as usize]) / (size(row) / vocab as f64).sqrt();
                println!(
                    "prompt {p}, token {}: the CPU's best is {gap:.4} of the logits' RMS above the GPU's",
                    at - prompt.len()
                );
                gaps.push(gap);
                break;
            }
        }
    }
    let rms = (squares.0 / squares.1).sqrt();
    let far = gaps.iter().filter(|gap| **gap > 4.0 * rms).count();
    println!("{} of 20 prompts part, {far} far from a tie; {compared} tokens compared, RMS {rms:.2e}", gaps.len());
    println!("{parted_default} of 20 prompts part from the CPU's default path");
    assert!(
        rms < 5e-3 && far == 0,
        "{far} of 20 prompts part where the best two differ by more than four times the RMS {rms:.2e}"
    );
}
