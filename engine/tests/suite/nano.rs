//! The shipped model against the reference implementation on 200 prompts (made by `models/nano/check_reference.py`).

use crate::support::{Driver, Golden, max_abs, relative_rms, shipped_config};
use chimere_engine::ids::TokenId;
use chimere_engine::model::{self, Model};
use std::path::PathBuf;

/// Of each row the golden file holds every fourth logit, from the row's number on.
const COLUMN_STEP: usize = 4;

struct Reference {
    prompts: Vec<Vec<TokenId>>,
    /// The best token at every position of all prompts, one prompt after another.
    top: Vec<TokenId>,
    /// (prompt, position) whose logits are there, and these.
    rows: Vec<(usize, usize)>,
    logits: Vec<Vec<f32>>,
    std: f32,
}

fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../models/nano")
}

fn reference() -> Reference {
    let golden = Golden::read(&dir().join("reference/golden.safetensors"));
    let (ids, mut at) = (golden.ids("ids"), 0);
    let prompts =
        golden.ids("lengths").iter().map(|n| (at += *n as usize, ids[at - *n as usize..at].to_vec()).1).collect();
    let rows = golden.ids("rows").chunks(2).map(|r| (r[0] as usize, r[1] as usize)).collect();
    let (shape, logits) = golden.array("logits");
    let logits = logits.chunks(shape[1]).map(<[f32]>::to_vec).collect();
    Reference { prompts, top: golden.ids("top"), rows, logits, std: golden.array("std").1[0] }
}

/// What one path makes of all prompts.
struct Computed {
    /// The logits that the reference has.
    logits: Vec<Vec<f32>>,
    /// Whether the best token is the reference's, at every position of every prompt.
    same: Vec<Vec<bool>>,
}

impl Computed {
    /// The share of positions with the reference's best token.
    fn agreement(&self) -> f64 {
        let all = self.same.concat();
        all.iter().filter(|same| **same).count() as f64 / all.len() as f64
    }

    /// The share of prompts whose next token is the reference's.
    fn next_agreement(&self) -> f64 {
        self.same.iter().filter(|same| same[same.len() - 1]).count() as f64 / self.same.len() as f64
    }
}

fn computed(model: &Model, reference: &Reference, exact: bool) -> Computed {
    let config = shipped_config(exact, 2);
    let mut driver = Driver::recording(model, &config);
    let vocab = model.config.vocab;
    let mut top = reference.top.iter();
    let mut all = Computed { logits: vec![Vec::new(); reference.rows.len()], same: Vec::new() };
    for (i, prompt) in reference.prompts.iter().enumerate() {
        let logits = driver.prompt(prompt, 512);
        let best = |row: &[f32]| row.iter().enumerate().fold(0, |b, (j, l)| if *l > row[b] { j } else { b }) as TokenId;
        all.same.push(logits.chunks(vocab).map(|row| best(row) == *top.next().unwrap()).collect());
        for (r, (_, position)) in reference.rows.iter().enumerate().filter(|(_, (p, _))| *p == i) {
            all.logits[r] = logits[position * vocab..][..vocab]
                .iter()
                .skip(r % COLUMN_STEP)
                .step_by(COLUMN_STEP)
                .copied()
                .collect();
        }
    }
    all
}

/// Where a router's fourth and fifth expert are all but equal, rounding decides between them, in the reference as well
/// as here, and one position is further off than the sums explain. In this prompt it is position 259, by 3.7e-4;
/// position 517 is close.
const TIED_PROMPTS: [usize; 1] = [55];

#[test]
fn the_exact_path_gives_the_references_logits() {
    let (model, reference) = (model::load(&dir().join("nano-q8_0.gguf")).unwrap(), reference());
    let found = computed(&model, &reference, true);
    let mut over = Vec::new();
    for ((got, want), (prompt, position)) in found.logits.iter().zip(&reference.logits).zip(&reference.rows) {
        let error = max_abs(got, want) / reference.std;
        let bound = if TIED_PROMPTS.contains(prompt) { 2e-3 } else { 2e-4 };
        if error >= bound {
            over.push(format!("prompt {prompt}, position {position}: off by {error:e} standard deviations"));
        }
    }
    assert!(over.is_empty(), "{over:#?}");
    assert!(found.agreement() > 0.9999, "the best token agrees in {} of positions", found.agreement());
}

#[test]
fn the_default_path_stays_close_to_the_reference() {
    let (model, reference) = (model::load(&dir().join("nano-q8_0.gguf")).unwrap(), reference());
    let found = computed(&model, &reference, false);
    let error = relative_rms(&found.logits.concat(), &reference.logits.concat());
    assert!(error <= 3e-2, "relative error {error:e}");
    assert!(found.next_agreement() >= 0.99, "the next token agrees after {} of prompts", found.next_agreement());
    // Inside a prompt most tokens are not the model's own, and near ties are many.
    assert!(found.agreement() >= 0.97, "the best token agrees in {} of positions", found.agreement());
}
