//! A backend and one sequence in its slot 0, driven by hand, and how far two rows of logits are apart.

use super::support;
use chimere_engine::backend::Backend;
use chimere_engine::backend::Pending;
use chimere_engine::backend::cpu::CpuConfig;
use chimere_engine::backend::cuda::{Activations, AdapterRoom, CudaBackend, CudaConfig, KvStorage};
use chimere_engine::ids::{PageId, SeqId, SlotId, StepId, TokenId};
use chimere_engine::model::Model;
use chimere_engine::sampling::SamplingParams;
use chimere_engine::step::{Form, Piece, PieceTokens, SampleRow, StepOutcome, StepPlan};
use std::sync::Arc;
use std::time::Instant;

pub(super) fn config(slots: u32, pages: u32) -> CudaConfig {
    CudaConfig {
        ordinal: 0,
        own_context: false,
        slots,
        pages,
        checkpoints: 0,
        host_cache_bytes: 0,
        kv: KvStorage::F16,
        // Of models as small as those here, 16 bits.
        activations: Activations::Auto,
        step_rows_max: 512,
        context: 4096,
        drafts: 7,
        draft_head: true,
        host_embedding: false,
        expert_bytes: None,
        replayed: false,
        adapters: AdapterRoom::default(),
        kernel_cache: None,
    }
}

/// One sequence in slot 0, driven by hand.
pub(super) struct Gpu {
    pub(super) backend: CudaBackend,
    pub(super) next: u64,
    pub(super) vocab: usize,
}

impl Gpu {
    pub(super) fn new(model: &Model, config: &CudaConfig) -> Self {
        let begin = Instant::now();
        let backend = CudaBackend::new(model, config, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
        eprintln!("{}: ready after {:.1} s", model.config.name, begin.elapsed().as_secs_f32());
        Self { backend, next: 0, vocab: model.config.vocab }
    }

    /// Launches a step; whoever waits for it may have to send its deferred rules first.
    pub(super) fn launch(&mut self, pieces: Vec<Piece>) -> (StepId, Pending) {
        let id = StepId(self.next);
        self.next += 1;
        (id, self.backend.launch(StepPlan::new(id, pieces)).unwrap())
    }

    /// A step from beginning to end.
    pub(super) fn step(&mut self, pieces: Vec<Piece>) -> StepOutcome {
        self.launch(pieces).1.wait().unwrap()
    }

    /// Logits after the last of these positions, and what was sampled greedily.
    pub(super) fn run(
        &mut self,
        form: Form,
        start: usize,
        tokens: PieceTokens,
        prompt_len: usize,
    ) -> (Vec<f32>, TokenId) {
        let row = SampleRow::new(SeqId(1), SlotId(0), Arc::new(SamplingParams::greedy()));
        let mut piece = support::piece(form, start, &[0]);
        piece.tokens = tokens;
        let end = start as u32 + piece.len();
        piece.pages = (0..end.div_ceil(chimere_engine::PAGE_TOKENS)).map(PageId).collect();
        piece.prompt_len = prompt_len as u32;
        piece.samples = vec![row];
        let outcome = self.step(vec![piece]);
        let logits = self.backend.logits(2).unwrap();
        // A decode row's logits come first; a prompt's too, if no decode row is in the step.
        (logits[..self.vocab].to_vec(), outcome.samples[0].token)
    }

    pub(super) fn prompt(&mut self, ids: &[TokenId], sizes: &[usize]) -> (Vec<f32>, TokenId) {
        let (mut at, mut last) = (0, None);
        for size in sizes.iter().copied().cycle() {
            let end = (at + size).min(ids.len());
            last = Some(self.run(Form::Chunked, at, PieceTokens::Known(ids[at..end].to_vec()), ids.len()));
            at = end;
            if at == ids.len() {
                break;
            }
        }
        last.unwrap()
    }

    /// Logits at every position, one token at a time.
    pub(super) fn decode(&mut self, ids: &[TokenId]) -> Vec<f32> {
        let step =
            |(i, id): (usize, &TokenId)| self.run(Form::Recurrent, i, PieceTokens::Known(vec![*id]), ids.len()).0;
        ids.iter().enumerate().flat_map(step).collect()
    }
}

pub(super) fn cpu_config(exact: bool) -> CpuConfig {
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(16);
    support::shipped_config(exact, threads)
}

/// Mean Kullback-Leibler divergence of rows of logits.
pub(super) fn divergence(got: &[f32], want: &[f32], vocab: usize) -> f64 {
    let log_softmax = |row: &[f32]| {
        let best = row.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
        let sum: f64 = row.iter().map(|l| f64::from(l - best).exp()).sum();
        row.iter().map(|l| f64::from(l - best) - sum.ln()).collect::<Vec<f64>>()
    };
    let rows = got.chunks(vocab).zip(want.chunks(vocab));
    let all: f64 =
        rows.map(|(g, w)| log_softmax(w).iter().zip(log_softmax(g)).map(|(w, g)| w.exp() * (w - g)).sum::<f64>()).sum();
    all / (got.len() / vocab) as f64
}
