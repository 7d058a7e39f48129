//! Weights with a NaN or an infinity are refused by their tensor's name, and rows whose numbers overflow are told from
//! others.

use super::support::{self, Driver};
use chimere_engine::backend::cpu::{CpuBackend, CpuConfig};
use chimere_engine::constraint::{Effect, Rule, Source};
use chimere_engine::format::{Gguf, Tensor};
use chimere_engine::ids::{SeqId, SlotId};
use chimere_engine::model::{Model, load_gguf};
use chimere_engine::sampling::SamplingParams;
use chimere_engine::step::{Form, Piece, SampleRow, ScoreRows};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The tensor with ones for all bits of its last row: whatever its type, no finite numbers.
fn broken(tensor: &Tensor) -> Tensor {
    let (mut bytes, row) = (tensor.bytes().to_vec(), tensor.ty.row_bytes(tensor.cols()).unwrap());
    let start = bytes.len() - row;
    bytes[start..].fill(0xff);
    Tensor::owned(tensor.name.clone(), tensor.ty, tensor.shape.clone(), bytes).unwrap()
}

fn refusal(file: &Gguf, config: &CpuConfig) -> Option<String> {
    match load_gguf(file) {
        Err(error) => Some(error.to_string()),
        Ok(model) => CpuBackend::new(&model, config, &mut |_| {}).err().map(|error| error.to_string()),
    }
}

#[test]
fn a_tensor_that_is_no_finite_numbers_is_refused_by_its_name_whatever_it_is() {
    let config = CpuConfig { draft_head: false, ..support::config(false, 1) };
    for preset in ["dense", "moe", "quant", "falcon_h1", "mamba2", "nemotron_super", "qwen3_moe", "lfm2"] {
        let file = Gguf::open(&support::golden_dir(preset).join("model.gguf")).unwrap();
        let layers = load_gguf(&file).unwrap().config.layers.len();
        let mut seen = BTreeSet::new();
        for tensor in file.tensors_in_order() {
            // Tensors that differ in their layer alone are read in one way.
            let (layer, part) = tensor.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).unzip();
            let is_draft = layer.is_some_and(|layer| layer.parse() == Ok(layers));
            if is_draft || !seen.insert((part.unwrap_or(&tensor.name).to_owned(), tensor.ty.name())) {
                continue;
            }
            let error = refusal(&file.with([broken(tensor)]), &config);
            let error = error.unwrap_or_else(|| panic!("{preset}: {tensor:?} was taken"));
            assert!(error.contains(&format!("`{}`", tensor.name)) && error.contains("finite"), "{preset}: {error}");
        }
        assert_eq!(refusal(&file, &config), None, "{preset}");
    }
}

/// Steps of a model: whether what came out of its rows is finite. A plain row, one with a mask that leaves two tokens,
/// one with penalties, one whose tokens are scored.
fn finite(model: &Model) -> [bool; 4] {
    let mut cpu = Driver::recording(model, &CpuConfig { slots: 1, ..support::config(false, 1) });
    let greedy = SamplingParams::greedy();
    let penalised = SamplingParams { presence_penalty: 0.5, ..greedy.clone() };
    let mask: Arc<[u32]> = (0..model.config.vocab.div_ceil(32)).map(|word| u32::from(word < 2)).collect();
    let two = Rule { source: Source::MinTokens, effect: Effect::Allow(mask) };
    let row =
        |params: SamplingParams, rules| SampleRow { rules, ..SampleRow::new(SeqId(1), SlotId(0), Arc::new(params)) };
    let rows = [row(greedy.clone(), vec![]), row(greedy.clone(), vec![two]), row(penalised, vec![])];
    let prompt = || Piece { prompt_len: 3, ..support::piece(Form::Chunked, 0, &[1, 2, 3]) };
    let [plain, masked, penalised] =
        rows.map(|row| cpu.step(vec![Piece { samples: vec![row], ..prompt() }]).samples[0].finite);
    let scored = Piece { score: Some(ScoreRows { top: 1, ..ScoreRows::default() }), ..prompt() };
    let scored = cpu.step(vec![scored]).scores.iter().all(|score| score.finite);
    [plain, masked, penalised, scored]
}

#[test]
fn rows_whose_logits_overflow_are_told_from_others() {
    let mut model = support::gguf("moe");
    assert_eq!(finite(&model), [true; 4]);
    // As if every product overflowed.
    model.config.logit_scale = f32::INFINITY;
    assert_eq!(finite(&model), [false; 4]);
}
