//! The CPU backend: exact and the reference, but a product too.
//!
//! A step runs as one team of threads through a fixed sequence of phases (`forward`). Weights are read once for all rows of a
//! step; a row's bytes depend on its sequence's tokens and the form of each position alone, never on the rows beside it or the
//! number of threads. What the operations are stands in `chimere_kernels::reference`; products are in [`matmul`].

mod batch;
mod blocks;
mod forward;
mod gemm;
mod history;
pub mod matmul;
mod memory;
mod norm;
mod output;
mod patch;
mod pool;
mod probe;
mod rowops;
mod sampler;
mod shared;
mod simd;
mod store;
mod weights;
mod workspace;

pub use memory::MemoryUse;
pub use probe::{Perturbation, Probe, Recording};

use crate::backend::check::check;
use crate::backend::{Backend, BackendError, BackendInfo, EarlyEdits, Pending};
use crate::ids::{PageId, SlotId, StepId};
use crate::model::Model;
use crate::step::{LogitEdits, PieceTokens, Sample, StateCopy, StepOutcome, StepPlan, StepTiming};
use batch::Batch;
use blocks::ExpertCount;
use crossbeam::channel::{Sender, bounded};
use forward::{Pass, ThreadScratch};
use output::{Outputs, Results, Sampling};
use pool::Pool;
use probe::Recorder;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use store::{Kv, Store, StoreShape};
use weights::CpuModel;
use workspace::Workspace;

/// Rows whose logits are held at once, when that is more than there are slots: prompt scores go in blocks of it.
const LOGIT_ROWS: usize = 32;
/// All widths are multiples of this, the block of an activation's int8 form.
const WIDTH: usize = 32;

/// How long the threads of a step that has computed its logits look out for its edits together. To part costs as much: each is woken again
/// for the samplers, and so is the thread that leads them.
const EDITS_WAIT: Duration = Duration::from_micros(100);

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// As computed.
    F32,
    /// Half the bytes; rounds to 11 bits.
    F16,
}

/// Sizes of a CPU backend; all counts are positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuConfig {
    /// Threads of a step, the launching one included.
    pub threads: usize,
    /// Live sequences.
    pub slots: u32,
    /// KV pages.
    pub pages: u32,
    /// Storage of the KV cache; `exact` takes `F32` whatever stands here.
    pub kv_type: KvType,
    /// Decoded weights and f32 activations, for comparisons.
    pub exact: bool,
    /// Rows one step may have.
    pub step_rows_max: u32,
    /// Positions a sequence may have.
    pub context: u32,
}

impl CpuConfig {
    fn kv_type(&self) -> KvType {
        if self.exact { KvType::F32 } else { self.kv_type }
    }

    fn logit_rows(&self) -> usize {
        LOGIT_ROWS.max(self.slots as usize)
    }
}

/// Why a backend could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// The kernels work on whole blocks.
    #[error("{what} is {got}, this backend needs a multiple of {WIDTH}")]
    Width {
        /// Which width.
        what: &'static str,
        /// Its value.
        got: usize,
    },
    /// The model has what this backend does not compute.
    #[error("{what} is {got}, this backend computes {need}")]
    Unsupported {
        /// What it is about.
        what: &'static str,
        /// What the model has.
        got: String,
        /// What is computed.
        need: &'static str,
    },
    /// A count was zero.
    #[error("{0} is 0, at least 1 is needed")]
    Zero(&'static str),
    /// The instruction set that was asked for is not there.
    #[error(transparent)]
    Isa(#[from] matmul::IsaError),
    /// The operating system gave no threads.
    #[error("threads could not be started: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

/// See the module.
pub struct CpuBackend {
    info: BackendInfo,
    model: CpuModel,
    store: Store,
    workspace: Workspace,
    pool: Pool,
    scratch: Vec<Mutex<ThreadScratch>>,
    last: Option<StepId>,
    /// Steps that wait: the first for its edits, the others for the first.
    waiting: VecDeque<Waiting>,
    early: Option<Arc<EarlyEdits>>,
    probe: Probe,
    recording: Recording,
}

/// A step whose outcome is not there yet.
struct Waiting {
    state: WaitingState,
    outcome: Sender<Result<StepOutcome, BackendError>>,
}

enum WaitingState {
    /// The forward is done, its sampler waits for edits.
    Edits { id: StepId, outputs: Outputs, outcome: StepOutcome },
    /// Nothing is done: its tokens depend on a step that waits.
    Planned(StepPlan),
}

/// A forward pass and what is left to do.
enum Ran {
    Done(StepOutcome),
    AwaitsEdits(Outputs, StepOutcome),
}

impl CpuBackend {
    /// Packs a model's weights and takes all memory the backend will use. `progress` hears the share done, 0 to 1.
    pub fn new(model: &Model, config: &CpuConfig, progress: &mut dyn FnMut(f32)) -> Result<Self, CpuError> {
        matmul::Isa::chosen()?;
        blocks::check(&model.config)?;
        for (name, value) in [("slots", config.slots), ("pages", config.pages), ("step rows", config.step_rows_max)] {
            if value == 0 {
                return Err(CpuError::Zero(name));
            }
        }
        let pool = Pool::new(config.threads)?;
        let packed = CpuModel::pack(model, config.exact, progress);
        let shape = StoreShape::of(&packed.config);
        Ok(Self {
            info: BackendInfo {
                device: "cpu",
                slots: config.slots,
                pages: config.pages,
                step_rows_max: config.step_rows_max,
                vocab: packed.config.vocab as u32,
                context: config.context,
            },
            store: Store::new(shape, config.slots as usize, config.pages as usize, config.kv_type()),
            workspace: Workspace::new(&packed.config, config.step_rows_max as usize, config.logit_rows(), pool.threads()),
            scratch: (0..pool.threads()).map(|_| Mutex::default()).collect(),
            pool,
            model: packed,
            last: None,
            waiting: VecDeque::new(),
            early: None,
            probe: Probe::default(),
            recording: Recording::default(),
        })
    }

    /// Bytes of packed weights.
    pub fn weight_bytes(&self) -> u64 {
        self.model.bytes()
    }

    /// What to watch or disturb from now on.
    pub fn set_probe(&mut self, probe: Probe) {
        self.probe = probe;
    }

    /// What the last step computed, if it was recorded.
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Recurrent state `[Hv, K, V]` and convolution tail `[taps - 1, channels]` of a slot in the `nth` block that has such.
    pub fn state(&mut self, slot: SlotId, nth: usize) -> (&[f32], &[f32]) {
        let (s, slot, block) = (&self.store, slot.0 as usize, self.store.shape.recurrent_block(nth));
        // SAFETY: no step runs while `self` is borrowed mutably.
        unsafe { (s.states.get(s.shape.state_at(slot, block)), s.tails.get(s.shape.tail_at(slot, block))) }
    }

    /// Keys `[D, 32]` and values `[32, D]` of a page in the `nth` block that has such, as f32.
    pub fn page(&mut self, page: PageId, nth: usize, kv_head: usize) -> (Vec<f32>, Vec<f32>) {
        let (s, page, block) = (&self.store, page.0 as usize, self.store.shape.cached_block(nth));
        let ranges = (s.shape.keys_at(page, block, kv_head), s.shape.values_at(page, block, kv_head));
        let widen = |bits: &[u16]| bits.iter().map(|b| half::f16::from_bits(*b).to_f32()).collect();
        // SAFETY: no step runs while `self` is borrowed mutably.
        unsafe {
            match &s.kv {
                Kv::F32(kv) => (kv.get(ranges.0).to_vec(), kv.get(ranges.1).to_vec()),
                Kv::F16(kv) => (widen(kv.get(ranges.0)), widen(kv.get(ranges.1))),
            }
        }
    }

    /// Fills state, tails and pages with values of a working sequence's size, so that a benchmark need not compute a context.
    pub fn fill_context(&mut self, slot: SlotId, pages: &[PageId]) {
        let mut word = 0x9E37_79B9_u32;
        let mut next = || {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (word >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        self.store.fill(slot.0 as usize, pages.iter().map(|p| p.0 as usize), &mut next);
    }

    /// Copies, clears, forward, and the samplers unless one waits.
    fn run(&mut self, plan: StepPlan) -> Result<Ran, BackendError> {
        let begin = Instant::now();
        self.prepare(&plan);
        let batch = Batch::new(&plan, &self.store)?;
        self.note_history(&plan, &batch);
        let outputs = Outputs::of(&plan);
        let (results, recorder, forward_us) = (Results::default(), Recorder::new(self.probe.clone()), AtomicU64::new(0));
        let waits = outputs.await_edits();
        let vocab = self.model.config.vocab;
        let (ws, steps) = self.workspace.views(&batch, self.pool.threads());
        let experts = ExpertCount::default();
        let (model, store) = (&self.model, &self.store);
        let pass = Pass { model, batch: &batch, store, ws, steps: &steps, recorder: &recorder, experts: &experts };
        let sampling = Sampling { outputs: &outputs, logits: &ws.plain.logits, vocab, slots: &self.store.slots };
        let (early, edits) = (self.early.as_deref().filter(|_| waits), OnceLock::new());
        self.pool.run(|team| {
            let scratch = &mut *self.scratch[team.index].lock().expect("no thread panicked before");
            pass.layers(team);
            pass.outputs(team, scratch, &outputs, &results);
            if team.index == 0 {
                forward_us.store(begin.elapsed().as_micros() as u64, Ordering::Relaxed);
                early.and_then(|early| early.take_within(plan.id, EDITS_WAIT)).map(|found| edits.set(found));
            }
            // The first thread, which has the edits, samples a single row.
            if early.is_some() && outputs.samples.len() > 1 {
                team.wait();
            }
            match edits.get() {
                Some(LogitEdits { rows }) => sampling.run(team, scratch, rows, &results),
                None if waits => {}
                None => sampling.run(team, scratch, &[], &results),
            }
        });
        let waits = waits && edits.get().is_none();
        self.recording = recorder.finish();
        let (samples, scores, pooled) = results.into_parts();
        self.keep_samples(&outputs, &samples);
        let forward_us = forward_us.into_inner();
        let timing = StepTiming { forward_us, sample_us: begin.elapsed().as_micros() as u64 - forward_us };
        let outcome =
            StepOutcome { id: Some(plan.id), samples, scores, timing, experts: experts.taken(), pooled, graph_replays: 0 };
        Ok(if waits { Ran::AwaitsEdits(outputs, outcome) } else { Ran::Done(outcome) })
    }

    fn prepare(&mut self, plan: &StepPlan) {
        for copy in &plan.copies {
            match copy {
                StateCopy::Slot { from, to } => self.store.copy_slot(from.0 as usize, to.0 as usize),
                StateCopy::Page { from, to } => self.store.copy_page(from.0 as usize, to.0 as usize),
            }
        }
        for piece in plan.pieces.iter().filter(|p| p.start == 0 && p.tokens != PieceTokens::Sampled) {
            self.store.clear_slot(piece.slot.0 as usize);
        }
    }

    fn note_history(&mut self, plan: &StepPlan, batch: &Batch) {
        for (piece, rows) in plan.pieces.iter().zip(&batch.pieces) {
            let history = &mut self.store.slots[rows.slot].history;
            for row in rows.first_row..rows.first_row + rows.rows {
                history.push(batch.tokens[row], batch.positions[row], piece.prompt_len);
            }
        }
    }

    fn keep_samples(&mut self, outputs: &Outputs, samples: &[Sample]) {
        for (wanted, sample) in outputs.samples.iter().zip(samples) {
            self.store.slots[wanted.row.slot.0 as usize].sampled = Some(sample.token);
        }
    }

    /// The samplers of a step whose edits came.
    fn finish(&mut self, outputs: &Outputs, mut outcome: StepOutcome, edits: &LogitEdits) -> StepOutcome {
        let (begin, results) = (Instant::now(), Results::default());
        let logits = &self.workspace.plain.logits;
        let (slots, vocab) = (&self.store.slots, self.model.config.vocab);
        let sampling = Sampling { outputs, logits, vocab, slots };
        self.pool.run(|team| {
            let scratch = &mut self.scratch[team.index].lock().expect("no thread panicked before");
            sampling.run(team, scratch, &edits.rows, &results);
        });
        outcome.samples = results.into_parts().0;
        outcome.timing.sample_us = begin.elapsed().as_micros() as u64;
        self.keep_samples(outputs, &outcome.samples);
        outcome
    }

    /// Runs the planned steps at the head of the queue, up to one that awaits edits.
    fn run_planned(&mut self) {
        while matches!(self.waiting.front(), Some(Waiting { state: WaitingState::Planned(_), .. })) {
            let Some(Waiting { state: WaitingState::Planned(plan), outcome }) = self.waiting.pop_front() else { return };
            let id = plan.id;
            match self.run(plan) {
                // A receiver that went away wants no outcome.
                Ok(Ran::Done(done)) => drop(outcome.send(Ok(done))),
                Err(error) => drop(outcome.send(Err(error))),
                Ok(Ran::AwaitsEdits(outputs, done)) => {
                    let state = WaitingState::Edits { id, outputs, outcome: done };
                    return self.waiting.push_front(Waiting { state, outcome });
                }
            }
        }
    }
}

impl Backend for CpuBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    fn look_for_edits(&mut self, early: Arc<EarlyEdits>) {
        early.look();
        self.early = Some(early);
    }

    fn launch(&mut self, plan: StepPlan) -> Result<Pending, BackendError> {
        let id = plan.id;
        if let Some(last) = self.last.filter(|last| *last >= id) {
            return Err(BackendError::Plan { step: id, why: format!("launched after step {last}") });
        }
        check(&plan, &self.info)?;
        self.last = Some(id);
        let (state, done) = if self.waiting.is_empty() {
            match self.run(plan)? {
                Ran::Done(outcome) => return Ok(Pending::ready(id, outcome)),
                Ran::AwaitsEdits(outputs, outcome) => (WaitingState::Edits { id, outputs, outcome }, bounded(1)),
            }
        } else {
            (WaitingState::Planned(plan), bounded(1))
        };
        let (sender, receiver) = done;
        self.waiting.push_back(Waiting { state, outcome: sender });
        Ok(Pending::new(id, move || receiver.recv().unwrap_or(Err(BackendError::Lost { step: id }))))
    }

    fn sample(&mut self, step: StepId, edits: LogitEdits) -> Result<(), BackendError> {
        match self.waiting.pop_front() {
            Some(Waiting { state: WaitingState::Edits { id, outputs, outcome }, outcome: sender }) if id == step => {
                let outcome = self.finish(&outputs, outcome, &edits);
                // A receiver that went away wants no outcome.
                drop(sender.send(Ok(outcome)));
                self.run_planned();
                Ok(())
            }
            other => {
                other.into_iter().for_each(|w| self.waiting.push_front(w));
                Err(BackendError::Plan { step, why: "no such step awaits edits".into() })
            }
        }
    }
}
