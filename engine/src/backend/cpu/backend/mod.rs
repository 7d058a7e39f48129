//! Runs plans on this machine's cores.

mod effective_config;
mod guesses;
pub(crate) mod memory;
pub(crate) mod reservation;

use crate::adapter::ADAPTERS_MAX;
use crate::backend::cpu::backend::memory::{MemoryUse, take_buffers};
use crate::backend::cpu::backend::reservation::Reservation;
use crate::backend::cpu::config::CpuConfig;
use crate::backend::cpu::draft_head::CpuDraftHead;
use crate::backend::cpu::draft_head::pass::HeadPass;
use crate::backend::cpu::draft_head::weights::PackedDraftHead;
use crate::backend::cpu::error::CpuError;
use crate::backend::cpu::isa::Isa;
use crate::backend::cpu::matmul::PackedMatrix;
use crate::backend::cpu::network::forward::ModelPass;
use crate::backend::cpu::network::logits::KnownRules;
use crate::backend::cpu::network::weights::CpuModel;
use crate::backend::cpu::network::workspace::Workspace;
use crate::backend::cpu::pass::batch::RowBatch;
use crate::backend::cpu::pass::experts::ExpertCount;
use crate::backend::cpu::pass::forward::Pass;
use crate::backend::cpu::pass::probe::{Probe, Recorder, Recording};
use crate::backend::cpu::pass::room::WorkspaceRoom;
use crate::backend::cpu::sampler::SamplerScratch;
use crate::backend::cpu::step::outputs::{Results, StepOutputs, StepSampling};
use crate::backend::cpu::store::{Kv, Store, StoreShape};
use crate::backend::cpu::team::pool::ThreadPool;
use crate::backend::steps::{self, AwaitedRules, Forward, StepDevice, UnfinishedSteps};
use crate::backend::{Backend, BackendError, BackendInfo, EarlyRules, Followed, Pending, Progress};
use crate::constraint::{Constraint, StepRules};
use crate::ids::{PageId, SlotId};
use crate::model::{GdnConfig, Model, ModelConfig};
use crate::step::{Sample, StateCopy, StateStart, StepOutcome, StepPlan, StepTiming};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How long the threads of a step that has computed its logits look out for deferred rules together. To part costs as
/// much: each is woken again for the samplers, and so is the thread that leads them.
const RULES_WAIT: Duration = Duration::from_micros(100);

/// Computes steps on this machine's cores; the module's head says how.
pub struct CpuBackend {
    info: BackendInfo,
    model: CpuModel,
    /// Present where the model has one and its guesses are wanted.
    draft_head: Option<CpuDraftHead>,
    store: Store,
    workspace: Workspace,
    pool: ThreadPool,
    /// The samplers' buffers of each thread.
    scratch: Vec<Mutex<SamplerScratch>>,
    steps: UnfinishedSteps<Self>,
    /// What the last step left for pieces that follow it.
    followed: Followed,
    probe: Probe,
    recording: Recording,
    progress: Progress,
}

/// A step whose logits lie in the workspace.
pub(in crate::backend) struct Forwarded {
    outputs: StepOutputs,
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
        let pool = ThreadPool::new(config.threads)?;
        let planned =
            MemoryUse::weight_bytes(model, config).saturating_add(MemoryUse::of(&model.config, config).total());
        Reservation::of(planned).ok_or(CpuError::Memory(planned))?;
        let head = model.weights.draft_head.as_ref().filter(|_| config.draft_head);
        let head = head.map(|w| PackedDraftHead::pack(model, w, config.exact)).transpose()?;
        let packed = CpuModel::pack(model, config.computed(&model.config), config.exact, progress)?;
        let mut room = WorkspaceRoom::new(config.step_rows_max as usize, packed.config.hidden, pool.threads());
        let (workspace, head_buffers) = take_buffers(&packed.config, config.logit_rows(), &mut room);
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
                adapter_slots: ADAPTERS_MAX,
            },
            store: Store::new(shape, config),
            workspace,
            draft_head: head.zip(head_buffers).map(|(weights, buffers)| CpuDraftHead { weights, buffers }),
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
        let head = self.draft_head.iter().flat_map(|head| head.weights.matrices());
        self.model.bytes() + head.map(|m| m.bytes() as u64).sum::<u64>()
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
        self.model.matrices().chain(self.draft_head.iter().flat_map(|head| head.weights.matrices()))
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
        let logits = &self.workspace.logits;
        // SAFETY: `&mut self` excludes everybody else.
        unsafe { logits.get_mut(0..logits.len()).fill(f32::NAN) };
    }

    /// Copies, clears, forward, and the samplers unless one waits and its rules are not found on time.
    fn run(&mut self, plan: &StepPlan, rules: &AwaitedRules<'_>) -> Result<Forward<Self>, BackendError> {
        let begin = Instant::now();
        self.prepare(plan);
        let batch = RowBatch::new(plan, &self.store)?;
        self.note_rows(plan, &batch);
        let outputs = StepOutputs::of(plan, &batch);
        let (results, recorder, forward_us) =
            (Results::default(), Recorder::new(self.probe.clone()), AtomicU64::new(0));
        let vocab = self.model.config.vocab;
        let ws = &self.workspace.views(&batch, self.pool.threads());
        let head = self.draft_head.as_mut().map(|head| head.views(batch.rows(), self.model.config.hidden));
        let experts = ExpertCount::default();
        let (model, store, batch) = (&self.model, &self.store, &batch);
        let (stream, routes) = (ws.stream, &outputs.routes);
        let pass = Pass { config: &model.config, batch, store, stream, experts: &experts, routes };
        let pass = ModelPass { pass, model, ws, recorder: &recorder, progress: &self.progress };
        let head_pass = head.map(|(weights, views)| HeadPass { network: &pass, weights, views });
        let sampling = StepSampling { outputs: &outputs, logits: ws.logits, vocab, slots: &self.store.slots };
        let (looks, known) = (rules.may_come(), OnceLock::new());
        let rules_of = |all: Vec<_>| KnownRules { read: outputs.logits_read(&all, vocab), constraints: all };
        let keep = |all: Option<Vec<_>>| all.map(|all| known.set(rules_of(all)));
        keep(rules.now());
        self.pool.run(|team| {
            let scratch = &mut *self.scratch[team.index].lock().expect("no thread panicked before");
            pass.layers(team);
            pass.reports(team, scratch, &outputs, &results);
            pass.sampled_logits(team, &outputs.rows, &known, || {
                if looks {
                    keep(rules.here());
                }
            });
            head_pass.iter().for_each(|head| head.read(team, &outputs.head));
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
    fn note_rows(&mut self, plan: &StepPlan, batch: &RowBatch) {
        for (piece, rows) in plan.pieces.iter().zip(&batch.pieces) {
            let slot = &mut self.store.slots[rows.slot];
            slot.unfolded = 0;
            for row in rows.first_row..rows.first_row + rows.certain() {
                slot.history.push(batch.tokens[row], batch.positions[row], piece.prompt_len);
            }
        }
    }

    /// Keeps what was sampled as far as it counts; says how many drafts of each piece do, and what the draft head
    /// guesses behind it.
    fn accept(&mut self, outputs: &StepOutputs, mut samples: Vec<Sample>, outcome: &mut StepOutcome) {
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
        self.keep_for_head(&outputs.head);
        self.read_late(&outputs.head.requests);
        // What waited is the work of the steps before.
        let begin = Instant::now();
        outcome.guesses = self.guess(&outputs.head.requests);
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
        let logits = &self.workspace.logits;
        let (slots, vocab) = (&self.store.slots, self.model.config.vocab);
        let sampling = StepSampling { outputs: &outputs, logits, vocab, slots };
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
