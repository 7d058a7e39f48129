//! The model's logits at every position of given tokens, on the CPU. Prompt scores name the best 255 tokens at most,
//! and a bias changes what all listed tokens weigh: so whole rows are read, from what the backend records.

use chimere_engine::PAGE_TOKENS;
use chimere_engine::backend::cpu::{CpuBackend, CpuConfig, KvType, Probe};
use chimere_engine::backend::{Backend, BackendError};
use chimere_engine::ids::{PageId, SeqId, SlotId, StepId, TokenId};
use chimere_engine::model::Model;
use chimere_engine::step::{Form, Piece, PieceTokens, StateStart, StepPlan};
use std::sync::Arc;

/// Positions a step: whole chunks, and few enough that their logits take less memory than most models.
const STEP_TOKENS: u32 = 128;
const _: () = assert!(STEP_TOKENS.is_multiple_of(chimere_engine::CHUNK_TOKENS), "pieces end at chunks");

/// Reads one window of tokens after the other.
pub(crate) struct LogitReader {
    backend: CpuBackend,
    next: u64,
}

impl LogitReader {
    /// For windows of at most this many tokens.
    pub(crate) fn new(model: &Model, window: u32, threads: usize) -> Result<Self, String> {
        Self::with(model, window, threads, false)
    }

    /// A reader on decoded weights and float activations, so that nothing but the weights makes a difference.
    pub(crate) fn exact(model: &Model, window: u32, threads: usize) -> Result<Self, String> {
        Self::with(model, window, threads, true)
    }

    fn with(model: &Model, window: u32, threads: usize, exact: bool) -> Result<Self, String> {
        let config = CpuConfig {
            threads,
            slots: 1,
            pages: window.div_ceil(PAGE_TOKENS),
            checkpoints: 0,
            kv_type: KvType::F16,
            exact,
            step_rows_max: STEP_TOKENS,
            context: window,
            drafts: 0,
            draft_head: false,
        };
        let mut backend = CpuBackend::new(model, &config, &mut |_| {}).map_err(|e| e.to_string())?;
        backend.set_probe(Probe { record: true, ..Probe::default() });
        Ok(Self { backend, next: 0 })
    }

    /// Hands over, position by position, the logits of the token that follows it.
    pub(crate) fn read(&mut self, window: &[TokenId], mut each: impl FnMut(usize, &[f32])) -> Result<(), BackendError> {
        let vocab = self.backend.info().vocab as usize;
        for start in Self::starts(window) {
            self.step(window, start)?.chunks_exact(vocab).enumerate().for_each(|(row, l)| each(start + row, l));
        }
        Ok(())
    }

    /// Where the steps of a window begin.
    pub(crate) fn starts(window: &[TokenId]) -> impl Iterator<Item = usize> + use<> {
        (0..window.len()).step_by(STEP_TOKENS as usize)
    }

    /// The logits of one step's rows; the steps of a window come in order.
    pub(crate) fn step(&mut self, window: &[TokenId], start: usize) -> Result<&[f32], BackendError> {
        let tokens = &window[start..window.len().min(start + STEP_TOKENS as usize)];
        let id = StepId(self.next);
        self.next += 1;
        let plan = StepPlan::new(id, vec![piece(tokens, start, window.len())]);
        self.backend.launch(plan)?.wait()?;
        let logits = &self.backend.recording().logits;
        assert_eq!(logits.len(), tokens.len() * self.backend.info().vocab as usize, "every row was recorded");
        Ok(logits)
    }

    /// The backend, to watch its matrices.
    pub(crate) fn backend(&self) -> &CpuBackend {
        &self.backend
    }
}

/// As many threads as were asked for; 0 is one a core.
pub(crate) fn threads(asked: usize) -> usize {
    if asked == 0 { std::thread::available_parallelism().map_or(1, usize::from) } else { asked }
}

fn piece(tokens: &[TokenId], start: usize, prompt_len: usize) -> Piece {
    let end = (start + tokens.len()) as u32;
    Piece {
        seq: SeqId(0),
        slot: SlotId(0),
        state: StateStart::at(start as u32),
        form: Form::Chunked,
        start: start as u32,
        tokens: PieceTokens::Known(tokens.to_vec()),
        drafts: Vec::new(),
        guesses: 0,
        pages: (0..end.div_ceil(PAGE_TOKENS)).map(PageId).collect(),
        prompt_len: prompt_len as u32,
        samples: Vec::new(),
        score: None,
        experts: None,
        adapter: None,
        follows: None,
        ends: Arc::default(),
        pool_from: None,
        exports: Vec::new(),
    }
}
