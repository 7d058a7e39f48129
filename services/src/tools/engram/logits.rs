//! The model's logits at every position of given tokens, on the CPU. Prompt scores name the best 255 tokens at most,
//! and a bias changes what all listed tokens weigh: so whole rows are read, from what the backend records.

use chimere_engine::PAGE_TOKENS;
use chimere_engine::backend::cpu::{CpuBackend, CpuConfig, KvType, Probe};
use chimere_engine::backend::{Backend, BackendError};
use chimere_engine::ids::{PageId, SeqId, SlotId, StepId, TokenId};
use chimere_engine::model::Model;
use chimere_engine::step::{Form, Piece, PieceTokens, StateStart, StepPlan};

/// Positions a step: whole chunks, and few enough that their logits take less memory than most models.
const STEP_TOKENS: u32 = 128;
const _: () = assert!(STEP_TOKENS.is_multiple_of(chimere_engine::CHUNK_TOKENS), "pieces end at chunks");

/// Reads one window of tokens after the other.
pub(super) struct LogitReader {
    backend: CpuBackend,
    next: u64,
}

impl LogitReader {
    /// For windows of at most this many tokens.
    pub(super) fn new(model: &Model, window: u32, threads: usize) -> Result<Self, String> {
        let config = CpuConfig {
            threads,
            slots: 1,
            pages: window.div_ceil(PAGE_TOKENS),
            checkpoints: 0,
            kv_type: KvType::F16,
            exact: false,
            step_rows_max: STEP_TOKENS,
            context: window,
        };
        let mut backend = CpuBackend::new(model, &config, &mut |_| {}).map_err(|e| e.to_string())?;
        backend.set_probe(Probe { record: true, ..Probe::default() });
        Ok(Self { backend, next: 0 })
    }

    /// Hands over, position by position, the logits of the token that follows it.
    pub(super) fn read(&mut self, window: &[TokenId], mut each: impl FnMut(usize, &[f32])) -> Result<(), BackendError> {
        for (i, tokens) in window.chunks(STEP_TOKENS as usize).enumerate() {
            let start = i * STEP_TOKENS as usize;
            let id = StepId(self.next);
            self.next += 1;
            let plan = StepPlan::new(id, vec![piece(tokens, start, window.len())]);
            self.backend.launch(plan)?.wait()?;
            let rows = self.backend.recording().logits.chunks_exact(self.backend.info().vocab as usize);
            assert_eq!(rows.len(), tokens.len(), "every row was recorded");
            rows.enumerate().for_each(|(row, logits)| each(start + row, logits));
        }
        Ok(())
    }
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
        pages: (0..end.div_ceil(PAGE_TOKENS)).map(PageId).collect(),
        prompt_len: prompt_len as u32,
        samples: Vec::new(),
        score: None,
        experts: None,
        pool_from: None,
        exports: Vec::new(),
    }
}
