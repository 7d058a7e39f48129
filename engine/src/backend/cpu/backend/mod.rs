//! Runs plans on this machine's cores.

pub(crate) mod memory;

use crate::backend::cpu::backend::memory::{MemoryUse, Reservation};
use crate::backend::cpu::blocks::ExpertCount;
use crate::backend::cpu::isa::{Isa, IsaError};
use crate::backend::cpu::matmul::PackedMatrix;
use crate::backend::cpu::network::forward::{Pass, ThreadScratch};
use crate::backend::cpu::network::logits::Known;
use crate::backend::cpu::network::weights::CpuModel;
use crate::backend::cpu::network::workspace::Workspace;
use crate::backend::cpu::pass::batch::Batch;
use crate::backend::cpu::pass::probe::{Probe, Recorder, Recording};
use crate::backend::cpu::step::outputs::{Outputs, Results, Sampling};
use crate::backend::cpu::store::{Kv, Store, StoreShape};
use crate::backend::cpu::team::pool::Pool;
use crate::backend::steps::{self, AwaitedRules, Forward, StepDevice, UnfinishedSteps};
use crate::backend::{Backend, BackendError, BackendInfo, EarlyRules, Followed, Pending, Progress};
use crate::constraint::{Constraint, StepRules};
use crate::format::NotFinite;
use crate::ids::{PageId, SlotId};
use crate::model::{GdnConfig, Model, ModelConfig};
use crate::step::{DraftRoom, Sample, StateCopy, StateStart, StepOutcome, StepPlan, StepTiming};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Rows whose logits are held at once, when that is more than there are slots: prompt scores go in blocks of it.
const LOGIT_ROWS: usize = 32;
/// Drafted tokens of a step, of all sequences together, that there is room for at least where any are taken.
const STEP_DRAFTS_MIN: u32 = 16;
/// All widths are multiples of this, the block of an activation's int8 form.
pub(crate) const WIDTH: usize = 32;

/// How long the threads of a step that has computed its logits look out for deferred rules together. To part costs as
/// much: each is woken again for the samplers, and so is the thread that leads them.
const RULES_WAIT: Duration = Duration::from_micros(100);

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// 32 bits, the type that they are computed in.
    F32,
    /// Half the bytes; rounds to 11 bits.
    F16,
}

/// Sizes of a CPU backend; all counts are positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuConfig {
    /// Threads of a step, the launching one included.
    pub threads: usize,
    /// How many sequences can have state at once.
    pub slots: u32,
    /// How many states the prefix cache can keep.
    pub checkpoints: u32,
    /// How many pages of keys and values there are.
    pub pages: u32,
    /// Storage of the KV cache; `exact` takes `F32` whatever stands here.
    pub kv_type: KvType,
    /// Decoded weights and f32 activations, for comparisons.
    pub exact: bool,
    /// Rows one step may have.
    pub step_rows_max: u32,
    /// Positions a sequence may have.
    pub context: u32,
    /// Drafted tokens that may stand behind one sequence's own; 0 takes none.
    pub drafts: u32,
    /// Guesses of the model's draft head are wanted, where it has one.
    pub draft_head: bool,
}

impl CpuConfig {
    pub(crate) fn kv_type(&self) -> KvType {
        if self.exact { KvType::F32 } else { self.kv_type }
    }

    fn logit_rows(&self) -> usize {
        let drafts = if self.drafts == 0 { 0 } else { STEP_DRAFTS_MIN };
        LOGIT_ROWS.max(self.slots.saturating_add(drafts) as usize)
    }

    /// What is done of it for this model: one with a state that drafted rows would change for good takes none.
    pub fn of(&self, model: &ModelConfig) -> Self {
        let takes = model.blocks().all(|block| block.op.state().takes_drafts());
        let drafts = if takes { self.drafts } else { 0 };
        Self {
            drafts,
            draft_head: self.draft_head && drafts > 0 && crate::backend::cpu::draft_head::is_computed(model),
            ..*self
        }
    }

    /// The model as far as it is computed: without a draft head where its guesses are not wanted.
    fn computed(&self, model: &ModelConfig) -> ModelConfig {
        let draft = if self.draft_head { model.draft.clone() } else { Vec::new() };
        ModelConfig { draft, ..model.clone() }
    }

    /// Drafted tokens that steps may have. Each has a row of logits of its own.
    pub fn draft_room(&self) -> DraftRoom {
        if self.drafts == 0 {
            return DraftRoom::default();
        }
        let step_max = self.logit_rows() as u32 - self.slots;
        let rows_max = self.slots + step_max;
        let (piece_max, guesses, follow_rows_max) = (self.drafts, self.draft_head, rows_max);
        DraftRoom { piece_max, step_max, rows_max, penalties: true, guesses, follow_rows_max }
    }
}

/// Why a backend could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// The kernels work on whole blocks.
    #[error("{what} is {got}, this backend needs a multiple of {WIDTH}")]
    Width {
        /// The width that is not a multiple.
        what: &'static str,
        /// What the model has it at.
        got: usize,
    },
    /// A count was zero.
    #[error("{0} is 0, at least 1 is needed")]
    Zero(&'static str),
    /// The instruction set that was asked for is not there.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// Weights that no answer can be made of.
    #[error(transparent)]
    NotFinite(#[from] NotFinite),
    /// The operating system gave no threads.
    #[error("threads could not be started: {0}")]
    Threads(#[from] std::io::Error),
    /// The operating system does not give the memory that was planned.
    #[error("the system does not give the {0} bytes of memory that were planned")]
    Memory(u64),
}

/// Computes steps on this machine's cores; the module's head says how.
pub struct CpuBackend {
    pub(crate) info: BackendInfo,
    pub(crate) model: CpuModel,
    pub(crate) store: Store,
    pub(crate) workspace: Workspace,
    pub(crate) pool: Pool,
    pub(crate) scratch: Vec<Mutex<ThreadScratch>>,
    steps: UnfinishedSteps<Self>,
    /// What the last step left for pieces that follow it.
    pub(crate) followed: Followed,
    pub(crate) probe: Probe,
    pub(crate) recording: Recording,
    pub(crate) progress: Progress,
}

/// A step whose logits lie in the workspace.
pub(in crate::backend) struct Forwarded {
    outputs: Outputs,
    outcome: StepOutcome,
}

/// Whether this backend computes such a model, by its shape alone; the error names what it does not.
pub fn check(model: &ModelConfig) -> Result<(), CpuError> {
    crate::backend::cpu::blocks::check(model)
}

impl CpuBackend {
    /// Packs a model's weights and takes all memory the backend will use. `progress` hears the share done, 0 to 1.
    pub fn new(model: &Model, config: &CpuConfig, progress: &mut dyn FnMut(f32)) -> Result<Self, CpuError> {
        Isa::chosen()?;
        crate::backend::cpu::blocks::check(&model.config)?;
        for (name, value) in [("slots", config.slots), ("pages", config.pages), ("step rows", config.step_rows_max)] {
            if value == 0 {
                return Err(CpuError::Zero(name));
            }
        }
        let config = &config.of(&model.config);
        let pool = Pool::new(config.threads)?;
        let planned =
            MemoryUse::weight_bytes(model, config).saturating_add(MemoryUse::of(&model.config, config).total());
        Reservation::of(planned).ok_or(CpuError::Memory(planned))?;
        let packed = CpuModel::pack(model, config.exact, config.draft_head, progress)?;
        let shape = StoreShape::of(&packed.config);
        Ok(Self {
            info: BackendInfo {
                device: "cpu",
                slots: config.slots,
                pages: config.pages,
                checkpoints: config.checkpoints,
                host_blocks: 0,
                step_rows_max: config.step_rows_max,
                vocab: packed.config.vocab as u32,
                context: config.context,
                drafts: config.draft_room(),
                threads: config.threads as u32,
            },
            store: Store::new(shape, config),
            workspace: Workspace::new(
                &packed.config,
                config.step_rows_max as usize,
                config.logit_rows(),
                pool.threads(),
            ),
            scratch: (0..pool.threads()).map(|_| Mutex::default()).collect(),
            pool,
            model: packed,
            steps: UnfinishedSteps::default(),
            followed: Followed::default(),
            probe: Probe::default(),
            recording: Recording::default(),
            progress: Progress::default(),
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

    /// All matrices that it multiplies with. [`PackedMatrix::watch`] lets one say what its inputs are.
    pub fn matrices(&self) -> impl Iterator<Item = &PackedMatrix> {
        self.model.matrices()
    }

    /// Recurrent state `[Hv, K, V]` and convolution tail `[taps - 1, channels]` of a slot in the `nth` block that has
    /// such.
    pub fn state(&mut self, slot: SlotId, nth: usize) -> (&[f32], &[f32]) {
        self.fold(slot.0 as usize);
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

    /// Fills state, tails and pages with values of a working sequence's size, so that a benchmark need not compute a
    /// context.
    pub fn fill_context(&mut self, slot: SlotId, pages: &[PageId]) {
        let mut word = 0x9E37_79B9_u32;
        let mut next = || {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (word >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        self.store.fill(slot.0 as usize, pages.iter().map(|p| p.0 as usize), &mut next);
    }

    /// Fills all states, checkpoints, pages and logits with NaN, so that a test sees it if one is read before it was
    /// written.
    pub fn poison(&mut self) {
        self.store.poison();
        let logits = &self.workspace.plain.logits;
        // SAFETY: `&mut self` excludes everybody else.
        unsafe { logits.get_mut(0..logits.len()).fill(f32::NAN) };
    }

    /// Copies, clears, forward, and the samplers unless one waits and its rules are not found on time.
    fn run(&mut self, plan: &StepPlan, rules: &AwaitedRules<'_>) -> Result<Forward<Self>, BackendError> {
        let begin = Instant::now();
        self.prepare(plan);
        let batch = Batch::new(plan, &self.store)?;
        self.note_rows(plan, &batch);
        let outputs = Outputs::of(plan, &batch);
        let (results, recorder, forward_us) =
            (Results::default(), Recorder::new(self.probe.clone()), AtomicU64::new(0));
        let vocab = self.model.config.vocab;
        let (ws, steps) = self.workspace.views(&batch, self.pool.threads());
        let experts = ExpertCount::default();
        let (model, store, routes, progress) = (&self.model, &self.store, &outputs.routes, &self.progress);
        let (batch, steps) = (&batch, &steps);
        let pass = Pass { model, batch, store, ws, steps, recorder: &recorder, experts: &experts, routes, progress };
        let sampling = Sampling { outputs: &outputs, logits: &ws.plain.logits, vocab, slots: &self.store.slots };
        let (looks, known) = (rules.may_come(), OnceLock::new());
        let keep = |all: Option<Vec<_>>| all.map(|all| known.set(Known::of(all, &outputs, vocab)));
        keep(rules.now());
        self.pool.run(|team| {
            let scratch = &mut *self.scratch[team.index].lock().expect("no thread panicked before");
            pass.layers(team);
            pass.reports(team, scratch, &outputs, &results);
            pass.sampled_logits(team, &outputs, &known, || {
                if looks {
                    keep(rules.here());
                }
            });
            pass.read(team, &outputs);
            if team.index == 0 {
                forward_us.store(begin.elapsed().as_micros() as u64, Ordering::Relaxed);
                if looks && known.get().is_none() {
                    keep(rules.within(RULES_WAIT));
                }
            }
            // The first thread, which has the rules, samples a single row.
            if looks && outputs.samples.len() > 1 {
                team.wait();
            }
            if let Some(known) = known.get() {
                sampling.run(team, scratch, &known.constraints, &results);
            }
        });
        let waits = known.get().is_none();
        self.recording = recorder.finish();
        let (samples, scores, pooled) = results.into_parts();
        let forward_us = forward_us.into_inner();
        let sample_us = begin.elapsed().as_micros() as u64 - forward_us;
        let timing = StepTiming { forward_us, sample_us, guess_us: 0 };
        let mut outcome = StepOutcome {
            id: Some(plan.id),
            scores,
            timing,
            experts: experts.taken(),
            pooled,
            ..StepOutcome::default()
        };
        if waits {
            return Ok(Forward::Waits(Forwarded { outputs, outcome }));
        }
        self.accept(&outputs, samples, &mut outcome);
        Ok(Forward::Finished(outcome))
    }

    fn prepare(&mut self, plan: &StepPlan) {
        for copy in &plan.copies {
            match copy {
                StateCopy::Slot { from, to } => self.store.copy_slot(from.0 as usize, to.0 as usize),
                StateCopy::Page { from, to } => self.store.copy_page(from.0 as usize, to.0 as usize),
            }
        }
        for piece in &plan.pieces {
            let slot = piece.slot.0 as usize;
            match &piece.state {
                StateStart::Clear => self.store.clear_slot(slot),
                StateStart::Continue => {}
                StateStart::Restore { from, prompt, .. } => {
                    self.store.restore(*from, slot, &prompt[..piece.start as usize]);
                }
            }
        }
    }

    /// What slots know of the rows that are about to be computed: their tokens, but for drafted ones, and that their
    /// states will hold what was drafted before.
    fn note_rows(&mut self, plan: &StepPlan, batch: &Batch) {
        for (piece, rows) in plan.pieces.iter().zip(&batch.pieces) {
            let slot = &mut self.store.slots[rows.slot];
            slot.unfolded = 0;
            for row in rows.first_row..rows.first_row + rows.certain() {
                slot.history.push(batch.tokens[row], batch.positions[row], piece.prompt_len);
            }
        }
    }

    /// Keeps what was sampled as far as it counts; says how many drafts of each piece do, and what the draft head guesses
    /// behind it.
    fn accept(&mut self, outputs: &Outputs, mut samples: Vec<Sample>, outcome: &mut StepOutcome) {
        outputs.report(&mut samples);
        let store = &mut self.store;
        let (kept, accepted) = outputs.accept(samples, |slot, drafts, start, prompt_len| {
            let history = &mut store.slots[slot].history;
            (start..).zip(drafts).for_each(|(position, token)| history.push(*token, position, prompt_len));
            store.keep_drafted(slot, drafts.len());
        });
        for (slot, sample) in &kept {
            store.slots[*slot].sampled = Some(sample.token);
        }
        outcome.samples = kept.into_iter().map(|(_, sample)| sample).collect();
        outcome.accepted = accepted;
        self.keep_for_head(outputs);
        self.read_late(outputs);
        // What waited is the work of the steps before.
        let begin = Instant::now();
        outcome.guesses = self.guess(outputs);
        outcome.timing.guess_us = begin.elapsed().as_micros() as u64;
    }

    /// Brings a slot's states to where the last row that counts left them.
    fn fold(&mut self, slot: usize) {
        let shapes: Vec<_> = self.model.config.each::<GdnConfig>().copied().collect();
        let count = std::mem::take(&mut self.store.slots[slot].unfolded);
        for (nth, c) in shapes.iter().enumerate() {
            let block = self.store.shape.recurrent_block(nth);
            let all = self.store.shape.state_at(slot, block);
            // SAFETY: no step runs while `self` is borrowed mutably, and the two buffers are apart.
            let states = unsafe { self.store.states.get_mut(all) };
            for (h, state) in states.chunks_exact_mut(c.key_dim * c.value_dim).enumerate() {
                for row in 0..count {
                    // SAFETY: as above.
                    let factors = unsafe { self.store.drafted.factors(slot, row, block, (h, c.value_heads)) };
                    let (key, rest) = factors.split_at(c.key_dim);
                    for (s, k) in state.chunks_exact_mut(c.value_dim).zip(key) {
                        s.iter_mut().zip(rest).for_each(|(s, delta)| *s = k.mul_add(*delta, *s * rest[c.value_dim]));
                    }
                }
            }
        }
    }
}

impl StepDevice for CpuBackend {
    type Forwarded = Forwarded;
    type Finished = StepOutcome;

    const COMPUTES: bool = true;

    fn capacity(&self) -> &BackendInfo {
        &self.info
    }

    fn steps(&mut self) -> &mut UnfinishedSteps<Self> {
        &mut self.steps
    }

    fn forward(&mut self, plan: &StepPlan, rules: &AwaitedRules<'_>) -> Result<Forward<Self>, BackendError> {
        let settled = self.followed.settle(plan)?;
        let plan = settled.as_ref().unwrap_or(plan);
        let forward = self.run(plan, rules)?;
        // Who waits for rules is followed by nobody.
        self.followed = match &forward {
            Forward::Finished(outcome) => Followed::of(&plan.pieces, outcome),
            Forward::Waits(_) => Followed::default(),
        };
        Ok(forward)
    }

    fn finish(&mut self, forwarded: Forwarded, constraints: &[Constraint]) -> Result<StepOutcome, BackendError> {
        let Forwarded { outputs, mut outcome } = forwarded;
        let (begin, results) = (Instant::now(), Results::default());
        let logits = &self.workspace.plain.logits;
        let (slots, vocab) = (&self.store.slots, self.model.config.vocab);
        let sampling = Sampling { outputs: &outputs, logits, vocab, slots };
        self.pool.run(|team| {
            let scratch = &mut self.scratch[team.index].lock().expect("no thread panicked before");
            sampling.run(team, scratch, constraints, &results);
        });
        let samples = results.into_parts().0;
        outcome.timing.sample_us = begin.elapsed().as_micros() as u64;
        self.accept(&outputs, samples, &mut outcome);
        Ok(outcome)
    }

    fn outcome(finished: StepOutcome) -> Result<StepOutcome, BackendError> {
        Ok(finished)
    }
}

impl Backend for CpuBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    fn launch(&mut self, plan: StepPlan) -> Result<Pending, BackendError> {
        steps::launch(self, plan)
    }

    fn constrain(&mut self, rules: StepRules) -> Result<(), BackendError> {
        steps::constrain(self, rules)
    }

    fn look_for_rules(&mut self, early: Arc<EarlyRules>) {
        self.steps.look_for_rules(early);
    }

    fn progress(&self) -> Progress {
        self.progress.clone()
    }
}
