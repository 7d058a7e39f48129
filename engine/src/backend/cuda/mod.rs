//! The CUDA backend: quantised weights on one GPU, decode steps as captured graphs, sampling on the device.
//!
//! A step is enqueued and left alone: copies and clears, the prompt pieces, the decode graph of its bucket, the head,
//! the sampler, and the copy of the results to pinned memory. The host reads them when the stream has passed the step's
//! last mark, on the thread that waits for it. Sampled tokens stay on the device for the step after.
//!
//! What runs where: [`rows`] lays a plan out, `network` runs it through the layers, of which each operator knows its
//! own part (`blocks`), `sampling` the sampler's parameters and results, [`store`] what sequences leave behind. Kernels
//! are those of `chimere_kernels::cuda`.

mod activations;
mod blocks;
mod config;
mod encode;
mod error;
mod following;
mod gpu;
mod graphs;
mod history;
mod host;
mod laps;
mod late;
mod matrices;
mod mtp;
mod network;
mod pack;
mod pinned;
mod plan;
mod pooling;
mod programs;
mod residual;
mod rows;
mod sampling;
mod shape;
mod staging;
mod store;
mod stored;
mod tier;
#[cfg(test)]
mod unpack;
mod upload;
mod weights;
mod workspace;

pub use activations::Activations;
pub use chimere_kernels::cuda::wide::Chip;
pub use chimere_kernels::cuda::{Arch, Compiler, CudaError, KernelCache, Nvml, Program};
pub use config::{CudaConfig, CudaMemory, KvStorage};
pub use encode::{CudaEncoder, encoder_programs};
pub use error::CudaBackendError;
pub use gpu::{GpuInfo, probe};
pub use plan::matrix_bytes;
pub use programs::programs;

use crate::backend::steps::{self, AwaitedRules, Forward, StepDevice, UnfinishedSteps};
use crate::backend::{Backend, BackendError, BackendInfo, Pending};
use crate::cache::HostBlocks;
use crate::constraint::{Constraint, StepRules};
use crate::drafts::DRAFTS_MAX;
use crate::ids::{PageId, SlotId, StepId};
use crate::model::{Model, ModelConfig};
use crate::step::{Piece, StateCopy, StateStart, StepOutcome, StepPlan};
use chimere_kernels::cuda::Device;
use chimere_kernels::cuda::attention::{TileChip, tiles, tiles_max};
use chimere_kernels::cuda::carry::Carrier;
use chimere_kernels::cuda::draft_head::{BEHIND_WORDS, Behind, ROW_WORDS};
use chimere_kernels::cuda::gdn_prefill::chunks_max;
use cudarc::driver::{CudaSlice, sys};
use error::During;
use following::Leader;
use graphs::{Graphs, GuessShape, PassShape};
use history::History;
use host::HostTier;
use laps::Laps;
use late::LateRows;
use mtp::{GRAPH_PASSES, Guessing};
use network::{Network, Pass, Prompts};
use pooling::Pooling;
use rows::{PassRoom, PieceRows, Row, StepRows};
use sampling::{InFlight, Sampling, WantedOutputs};
use shape::{Counts, SLOTS_MAX, Widths, bucket, buckets, passes};
use staging::{Ring, Staging};
use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use store::{Store, StoreShape};
use stored::{Lacking, StoredStates};
use tier::{ExpertTier, PassKind};
use weights::DeviceWeights;
use workspace::{GIVEN_ROWS_MAX, Workspace};

/// Pinned bytes of a step beyond its rows: page tables and sampler's lists.
const STAGING_BYTES: usize = 8 << 20;

/// Computes steps on one GPU; the module's head says how.
pub struct CudaBackend {
    info: BackendInfo,
    counts: Counts,
    store: Store,
    stored: StoredStates,
    /// If there is a draft head whose guesses are wanted.
    late: Option<LateRows>,
    /// If there is a second tier of the prefix cache.
    host: Option<HostTier>,
    /// If not all experts lie on the device.
    experts: Option<ExpertTier>,
    work: Workspace,
    /// Experts of the next step's decode rows, if they are given.
    given: Option<Vec<i32>>,
    /// Arrays of a decode pass's bucket, as [`columns`] lays them out.
    decode_rows: CudaSlice<i32>,
    /// Likewise of the prompts.
    prefill_rows: CudaSlice<i32>,
    /// `[pieces][4]`.
    pieces: CudaSlice<i32>,
    /// `[tiles][2]` of the prompts' attention.
    tiles: CudaSlice<i32>,
    /// `[chunks]`: where states are kept on the way.
    exports: CudaSlice<i32>,
    history: History,
    /// By what the rows of prompts are put into tiles, if a layer attends.
    tiled: Option<chimere_kernels::cuda::attention::AttentionShape>,
    /// Rows whose logits are wanted.
    wanted: CudaSlice<i32>,
    sampling: Sampling,
    pooling: Pooling,
    graphs: Graphs,
    /// The first layers of passes with drafts. Such a step is launched when the device has nothing to do, and launching
    /// a graph takes the longer the more it has: the device begins while the host launches the others.
    first_graphs: Graphs,
    /// Passes of the draft head, and what they read, if there is one and its guesses are wanted.
    guess_graphs: Graphs<GuessShape>,
    guessing: Option<Guessing>,
    network: Network,
    ring: Ring,
    device: Arc<Device>,
    /// Rows of the last forward.
    last_rows: usize,
    /// The last step, if it asked for guesses that another can go on with.
    leader: Option<Leader>,
    steps: UnfinishedSteps<Self>,
}

/// A step whose logits are on their way.
pub(in crate::backend) struct Forwarded {
    id: StepId,
    staging: Arc<Staging>,
    wanted: WantedOutputs,
}

/// Whether the kernels compute such a model, by its shape alone; the error names what they do not. Needs no GPU.
pub fn check(model: &ModelConfig) -> Result<(), CudaBackendError> {
    blocks::check(model, KvStorage::F16.into())
}

/// Brings the weights to the device while the kernels are compiled that the cache lacks: a first start waits for the
/// longer of the two.
fn load(
    model: &Model,
    config: &CudaConfig,
    device: &Device,
    cache: &KernelCache,
    progress: &mut dyn FnMut(f32),
) -> Result<(DeviceWeights, Option<ExpertTier>), CudaBackendError> {
    let arch = device.arch();
    let programs = programs(model, config, arch, Some(Chip::of(device)))?;
    cache.can_build(&programs, arch)?;
    let (mut compiling, mut loading) = (Laps::begin(), Laps::begin());
    thread::scope(|scope| {
        let built = scope.spawn(|| {
            cache.build(&programs, &[arch])?;
            compiling.end("kernels are compiled");
            // Who wants them later finds them.
            programs.iter().try_for_each(|program| device.module(cache, program).map(drop))
        });
        let loaded = DeviceWeights::load(device, cache, model, config.placement(), progress);
        loading.end("weights are on the device");
        built.join().expect("compiling does not panic")?;
        loaded
    })
}

impl CudaBackend {
    /// Compiles or loads the kernels, brings the weights to the device and takes all memory the backend will use.
    /// `progress` hears the share done, 0 to 1.
    ///
    /// # Errors
    /// If there is no usable device, a kernel does not compile, memory does not suffice, or the model has sizes that no
    /// kernel takes.
    pub fn new(model: &Model, config: &CudaConfig, progress: &mut dyn FnMut(f32)) -> Result<Self, CudaBackendError> {
        if config.slots as usize > SLOTS_MAX {
            let (got, need) = (config.slots.to_string(), format!("at most {SLOTS_MAX}"));
            return Err(CudaBackendError::Unsupported { what: "the number of sequences at once", got, need });
        }
        let config = &config.of(&model.config);
        let mut laps = Laps::begin();
        let device = Arc::new(Device::open(config.ordinal)?);
        laps.end("the device is open");
        let cache = KernelCache::new(config.kernel_cache.clone().unwrap_or_else(KernelCache::default_dir));
        let c = &config.computed(&model.config);
        blocks::check(c, config.kv.into())?;
        let tiled = blocks::tiled(c);
        let chip = TileChip::of(&device);
        let (counts, widths, planes) = (Counts::of(config), Widths::of(c), config.activations.planes(model));
        let (weights, experts) = load(model, config, &device, &cache, progress)?;
        laps.end("kernels and weights are there");
        let shortlist = mtp::shortlist(model);
        let network = Network::new(&device, &cache, c, config, planes, (weights, shortlist))?;
        laps.end("the network is put together");
        let stream = device.stream();
        let words = |n: usize| stream.alloc_zeros::<i32>(n.max(1)).during("allocating a step's inputs");
        let sampling = Sampling::new(&device, &cache, widths.vocab, counts)?;
        let carrier = Arc::new(Carrier::load(&device, &cache)?);
        let pooling = Pooling::new(&device, &cache, widths.hidden, counts)?;
        let rows_bytes = ROW_WORDS * 4 * (2 * counts.prefill + counts.decode);
        let sums = (pooling::units_max(counts), widths.hidden);
        let guesses = if config.mtp { DRAFTS_MAX * bucket(counts.slots) } else { 0 };
        let results = (counts.prefill + counts.logits + 1, guesses);
        let shape = StoreShape::of(c, config);
        let cut = HostBlocks::of(shape.checkpoint_bytes() * u64::from(config.checkpoints > 0), shape.page_bytes());
        let host = HostTier::new(stream.context(), cut, config.host_cache_bytes)?;
        let mut work = Workspace::new(&device, c, counts, planes)?;
        if config.replayed {
            work.replay(&device, c)?;
        }
        let mut backend = Self {
            info: BackendInfo {
                device: "cuda",
                slots: config.slots,
                pages: config.pages,
                checkpoints: config.checkpoints,
                host_blocks: host.as_ref().map_or(0, HostTier::blocks_max),
                step_rows_max: config.step_rows_max,
                vocab: widths.vocab as u32,
                context: config.context,
                drafts: config.draft_room(),
                threads: 0,
            },
            counts,
            store: Store::new(&device, shape)?,
            stored: StoredStates::new(config.slots),
            late: config.mtp.then(|| LateRows::new(config.slots)),
            host,
            experts,
            work,
            given: None,
            decode_rows: words(ROW_WORDS * counts.decode)?,
            prefill_rows: words(ROW_WORDS * counts.prefill)?,
            pieces: words(4 * counts.slots)?,
            tiles: words(2 * tiled.map_or(0, |shape| tiles_max(shape, chip, counts.prefill, counts.slots)))?,
            exports: words(chunks_max(counts.prefill, counts.slots))?,
            history: History::new(&device, &cache, widths.vocab, config.context as usize)?,
            tiled,
            wanted: words(counts.logits)?,
            sampling,
            pooling,
            graphs: Graphs::default(),
            first_graphs: Graphs::default(),
            guess_graphs: Graphs::default(),
            guessing: config.mtp.then(|| Guessing::new(&device, &cache, model, counts)).transpose()?,
            network,
            ring: Ring::new((stream.context(), &carrier), rows_bytes + STAGING_BYTES, results, sums)?,
            device,
            last_rows: 0,
            leader: None,
            steps: UnfinishedSteps::default(),
        };
        laps.end("memory is taken");
        backend.capture()?;
        laps.end("graphs are captured");
        Ok(backend)
    }

    /// Runs every decode graph's kernels once over rows that are none, then captures them.
    fn capture(&mut self) -> Result<(), CudaBackendError> {
        for pass in passes(self.counts) {
            self.device
                .stream()
                .memcpy_htod(&columns(&[], pass.rows), &mut self.decode_rows)
                .during("sending a step's inputs")?;
            self.enqueue_first(pass)?;
            self.enqueue_decode(pass)?;
            self.device.stream().synchronize().during("running the kernels for the first time")?;
            // The closures need all of `self` but the graphs.
            let (mut first, mut graphs) = (std::mem::take(&mut self.first_graphs), std::mem::take(&mut self.graphs));
            let device = self.device.clone();
            let captured = match pass.drafts {
                true => first.capture(&device, pass, || self.enqueue_first(pass)),
                false => Ok(()),
            };
            let captured = captured.and_then(|()| graphs.capture(&device, pass, || self.enqueue_decode(pass)));
            (self.first_graphs, self.graphs) = (first, graphs);
            captured?;
        }
        if self.guessing.is_some() {
            self.capture_guesses()?;
        }
        self.device.stream().synchronize().during("capturing graphs")
    }

    /// The same for passes of guesses.
    fn capture_guesses(&mut self) -> Result<(), CudaBackendError> {
        for rows in buckets(self.counts.slots) {
            self.enqueue_guesses(GuessShape { rows, passes: GRAPH_PASSES })?;
            self.device.stream().synchronize().during("running the kernels for the first time")?;
            for passes in 1..=GRAPH_PASSES {
                let shape = GuessShape { rows, passes };
                let mut graphs = std::mem::take(&mut self.guess_graphs);
                let device = self.device.clone();
                let captured = graphs.capture(&device, shape, || self.enqueue_guesses(shape));
                self.guess_graphs = graphs;
                captured?;
            }
        }
        Ok(())
    }

    /// Kernels of passes of guesses with their samplers, and between two of what the next one reads.
    fn enqueue_guesses(&mut self, GuessShape { rows, passes }: GuessShape) -> Result<(), CudaBackendError> {
        let Self { device, network, guessing: Some(guessing), store, work, .. } = self else { return Ok(()) };
        for nth in 0..passes {
            if nth > 0 {
                network.next_guesses(device, None, guessing, (rows, nth - 1))?;
            }
            network.guess(device, &Pass::guesses(rows, guessing.room, &guessing.rows), store, work)?;
            guessing.draw(device, (work, store), (rows, nth))?;
        }
        Ok(())
    }

    /// The first kernels of a decode pass with drafts.
    fn enqueue_first(&mut self, PassShape { rows, drafts }: PassShape) -> Result<(), CudaBackendError> {
        if !drafts {
            return Ok(());
        }
        let pass = Pass::decode(rows, &self.decode_rows, drafts);
        self.network.begin(&self.device, &pass, &mut self.store, &mut self.work)
    }

    /// Kernels of a decode pass, but for the first of one with drafts, up to its rows' logits.
    fn enqueue_decode(&mut self, PassShape { rows, drafts }: PassShape) -> Result<(), CudaBackendError> {
        let pass = Pass::decode(rows, &self.decode_rows, drafts);
        match drafts {
            true => self.network.go_on(&self.device, &pass, &mut self.store, &mut self.work)?,
            false => self.network.forward(&self.device, &pass, &mut self.store, &mut self.work)?,
        }
        self.network.decode_head(&self.device, rows, &mut self.work)?;
        match drafts {
            true => self.network.remember(&self.device, &pass, &mut self.store, &mut self.work)?,
            false => self.network.keep_rows(&self.device, &pass, &mut self.store, &mut self.work)?,
        }
        self.note_experts(PassKind::Decode, rows)
    }

    /// Enqueues that the experts are noted that a pass of `rows` rows has read.
    fn note_experts(&mut self, pass: PassKind, rows: usize) -> Result<(), CudaBackendError> {
        let used = self.network.used();
        let Some(experts) = &mut self.experts else { return Ok(()) };
        experts.note(&self.device, pass, &self.work.experts, (rows * used, self.counts.rows() * used))
    }

    /// Copies, clears, page tables, forward. The logits of the wanted rows lie in the workspace afterwards, in stream
    /// order.
    fn enqueue(&mut self, plan: &StepPlan) -> Result<Forwarded, CudaBackendError> {
        let staging = match self.ring.take() {
            Some(staging) => staging,
            None => {
                return Err(CudaBackendError::Unsupported {
                    what: "the number of steps in flight",
                    got: "more than 3".into(),
                    need: "at most 2 that nobody has waited for".into(),
                });
            }
        };
        let stream = self.device.stream().clone();
        staging.begin.record(&stream).during("marking a step")?;
        if let Some(experts) = &mut self.experts {
            experts.begin(&self.device, &staging)?;
        }
        self.prepare(plan, &staging)?;
        if let Some(host) = &mut self.host {
            host.grow();
        }
        self.stored.begin(plan);
        self.late.iter_mut().for_each(|late| late.begin(plan));
        let leader = self.leader.take();
        let room = PassRoom { rows: self.counts.decode, drafts: self.counts.drafts };
        let rows = StepRows::of(plan, room, &mut self.stored, leader.as_ref())?;
        self.stored.prompts_were_computed(rows.pieces.iter().map(PieceRows::end));
        let mut wanted = WantedOutputs::default();
        let prompts = rows.sampled_prefill();
        self.decode(&rows.before, &staging)?;
        if !rows.prefill.is_empty() {
            self.prefill(&rows, &prompts, &staging, &mut wanted)?;
        }
        if let (Some(given), Some(to)) = (self.given.take(), &mut self.work.given) {
            stage(&self.device, &staging, to, 0, &given)?;
        }
        let decoded = match &leader {
            Some(leader) if !rows.behind.is_empty() => self.follow(&rows, leader, &staging)?,
            _ => self.decode(&rows.passes, &staging)?,
        };
        let asking = plan.pieces.iter().filter(|piece| piece.guesses > 0);
        self.read_late(asking.map(|piece| piece.slot), &staging)?;
        if !prompts.is_empty() {
            self.network.head(&self.device, prompts.len(), decoded, &mut self.work)?;
        }
        wanted.expert_rows = (rows.cut_rows * self.network.routed_blocks()) as u64;
        wanted.place(rows, &prompts, decoded);
        if let Some(experts) = &mut self.experts {
            experts.end(&stream)?;
        }
        staging.forward.record(&stream).during("marking a step")?;
        Ok(Forwarded { id: plan.id, staging, wanted })
    }

    fn prepare(&mut self, plan: &StepPlan, staging: &Staging) -> Result<(), CudaBackendError> {
        for copy in &plan.copies {
            match copy {
                StateCopy::Slot { from, to } => self.store.copy_slot(&self.device, from.0 as usize, to.0 as usize)?,
                StateCopy::Page { from, to } => self.store.copy_page(&self.device, from.0 as usize, to.0 as usize)?,
            }
        }
        // A load of this plan may take the place of a checkpoint that a piece reads before, or bring what one reads.
        let planned = |piece: &&Piece| plan.transfers.iter().any(|transfer| piece.state.load() == Some(transfer.id));
        let (late, now): (Vec<_>, Vec<_>) = plan.pieces.iter().partition(planned);
        if let Some(host) = &self.host {
            host.wait_for(&now, self.device.stream())?;
        }
        self.begin_pieces(&now, staging)?;
        if let Some(host) = &mut self.host {
            host.begin(plan, &mut self.store, self.device.stream())?;
            host.wait_for(&late, self.device.stream())?;
        }
        self.begin_pieces(&late, staging)
    }

    /// What slots hold before their pieces' rows, and page tables.
    fn begin_pieces(&mut self, pieces: &[&Piece], staging: &Staging) -> Result<(), CudaBackendError> {
        for piece in pieces {
            let slot = piece.slot.0 as usize;
            match &piece.state {
                StateStart::Clear => self.store.clear_slot(&self.device, slot)?,
                StateStart::Continue => {}
                StateStart::Restore { from, prompt, .. } => {
                    self.store.restore(&self.device, *from, slot)?;
                    let tokens = &prompt[..piece.start as usize];
                    self.history.note(&self.device, tokens, slot, &mut self.store, staging)?;
                }
            }
            if let Some((at, pages)) = self.store.table_change(piece.slot.0 as usize, &piece.pages) {
                stage(&self.device, staging, &mut self.store.table, at, &pages)?;
            }
        }
        Ok(())
    }

    /// Prompt rows through all layers; scores on the way, and the rows to sample gathered for the head.
    fn prefill(
        &mut self,
        rows: &StepRows,
        prompts: &[i32],
        staging: &Staging,
        wanted: &mut WantedOutputs,
    ) -> Result<(), CudaBackendError> {
        self.read_late(rows.pieces.iter().map(PieceRows::slot), staging)?;
        let n = rows.prefill.len();
        stage(&self.device, staging, &mut self.prefill_rows, 0, &columns(&rows.prefill, n))?;
        let pieces: Vec<i32> = rows.pieces.iter().flat_map(|p| [p.slot, p.start, p.first_row, p.rows]).collect();
        stage(&self.device, staging, &mut self.pieces, 0, &pieces)?;
        let lengths: Vec<usize> = rows.pieces.iter().map(|p| p.rows as usize).collect();
        let chip = TileChip::of(&self.device);
        let tiles = self.tiled.map_or_else(Vec::new, |shape| tiles(shape, chip, &lengths));
        stage(&self.device, staging, &mut self.tiles, 0, tiles.as_flattened())?;
        let exports = self.stage_exports(rows, staging)?;
        let exports = exports.then(|| self.exports.as_view());
        let prompts_of = Prompts {
            pieces: &self.pieces.as_view(),
            count: rows.pieces.len(),
            tiles: &self.tiles.as_view(),
            tile_count: tiles.len(),
            exports: exports.as_ref(),
        };
        let pass = Pass::prompts(n, &self.prefill_rows, prompts_of);
        self.last_rows = n;
        self.network.forward(&self.device, &pass, &mut self.store, &mut self.work)?;
        self.note_experts(PassKind::Prompts, n)?;
        self.pooling.launch(&self.device, &rows.pooled, self.network.hidden_rows(&self.work), staging)?;
        for scores in rows.scores.chunks(self.counts.logits) {
            let at: Vec<i32> = scores.iter().map(|s| s.row as i32).collect();
            self.gather(&at, staging)?;
            self.network.head(&self.device, at.len(), 0, &mut self.work)?;
            self.sampling.score(&self.device, scores, &self.work.logits, &mut self.store, staging, wanted)?;
        }
        self.gather(prompts, staging)?;
        let prompts_of = Prompts {
            pieces: &self.pieces.as_view(),
            count: rows.pieces.len(),
            tiles: &self.tiles.as_view(),
            tile_count: tiles.len(),
            exports: None,
        };
        let pass = Pass::prompts(n, &self.prefill_rows, prompts_of);
        self.network.remember(&self.device, &pass, &mut self.store, &mut self.work)
    }

    /// Sends where states are kept on the way, if any are.
    fn stage_exports(&mut self, rows: &StepRows, staging: &Staging) -> Result<bool, CudaBackendError> {
        if rows.exports.is_empty() {
            return Ok(false);
        }
        let mut places = vec![-1; chunks_max(rows.prefill.len(), rows.pieces.len())];
        for (chunk, checkpoint) in &rows.exports {
            places[*chunk] = self.store.place_of(*checkpoint) as i32;
        }
        stage(&self.device, staging, &mut self.exports, 0, &places)?;
        Ok(true)
    }

    /// Brings some prefill rows together, ready for the head.
    fn gather(&mut self, rows: &[i32], staging: &Staging) -> Result<(), CudaBackendError> {
        if rows.is_empty() {
            return Ok(());
        }
        stage(&self.device, staging, &mut self.wanted, 0, rows)?;
        self.network.gather(&self.device, rows.len(), &self.wanted, &mut self.work)
    }

    /// Decode passes; returns the rows of logits that the last one left.
    fn decode(&mut self, passes: &[Vec<Row>], staging: &Staging) -> Result<usize, CudaBackendError> {
        let mut decoded = 0;
        for pass in passes {
            if self.late.as_ref().is_some_and(|late| late.is_due(pass)) {
                self.read_late(pass.iter().map(Row::slot), staging)?;
            }
            decoded = bucket(pass.len());
            stage(&self.device, staging, &mut self.decode_rows, 0, &columns(pass, decoded))?;
            let shape = PassShape { rows: decoded, drafts: rows::takes_drafts(pass) };
            self.launch_pass(shape)?;
            if let (Some(late), false) = (&mut self.late, shape.drafts) {
                late.wait(pass);
            }
        }
        Ok(decoded)
    }

    /// A decode pass that follows the step before, whose outcome the device alone knows; returns the rows of logits that it
    /// left.
    fn follow(&mut self, rows: &StepRows, leader: &Leader, staging: &Staging) -> Result<usize, CudaBackendError> {
        let (Some(guessing), Some(pass)) = (&mut self.guessing, rows.passes.last()) else { return Ok(0) };
        let count = bucket(pass.len());
        stage(&self.device, staging, &mut guessing.planned, 0, &columns(pass, count))?;
        let mut behind = rows.behind.clone();
        behind.resize(BEHIND_WORDS * count, -1);
        stage(&self.device, staging, &mut guessing.behind, 0, &behind)?;
        let behind = (count, leader);
        self.network.follow(&self.device, guessing, behind, &mut self.decode_rows, &mut self.sampling)?;
        self.launch_pass(PassShape { rows: count, drafts: true })?;
        Ok(count)
    }

    fn launch_pass(&mut self, shape: PassShape) -> Result<(), CudaBackendError> {
        if shape.drafts {
            self.first_graphs.launch(shape)?;
        }
        self.graphs.launch(shape)?;
        self.last_rows = shape.rows;
        Ok(())
    }

    /// Has the draft head read what waits of these slots.
    fn read_late(&mut self, slots: impl Iterator<Item = SlotId>, staging: &Staging) -> Result<(), CudaBackendError> {
        let Some(late) = &mut self.late else { return Ok(()) };
        for rows in late.take(slots).chunks(self.counts.prefill) {
            stage(&self.device, staging, &mut self.prefill_rows, 0, &columns(rows, rows.len()))?;
            let pass = Pass::late(rows.len(), &self.prefill_rows);
            self.network.remember_late(&self.device, &pass, &mut self.store, &mut self.work)?;
        }
        Ok(())
    }

    /// The sampler, and the way back of its results.
    fn sample(&mut self, step: Forwarded, constraints: &[Constraint]) -> Result<InFlight, CudaBackendError> {
        let Forwarded { id, staging, mut wanted } = step;
        // Between kernels a copy takes the device longer than either: none stands between the samples and the guesses.
        if let Some(guessing) = &mut self.guessing {
            guessing.ask(&self.device, &staging, &wanted.asked(), &self.sampling)?;
        }
        self.sampling.sample(&self.device, &self.work, &mut self.store, constraints, &staging, &mut wanted)?;
        staging.sampled.record(self.device.stream()).during("marking a step")?;
        self.guess(&staging, &mut wanted)?;
        self.sampling.fetch(&self.device, &staging, &mut wanted)?;
        staging.end.record(self.device.stream()).during("marking a step")?;
        let experts = self.experts.as_ref().map(ExpertTier::counts);
        let device = self.device.clone();
        Ok(InFlight::new((device, id), staging, wanted, (self.host.as_ref().map(HostTier::watch), experts)))
    }

    /// The draft head's guesses behind what was sampled.
    fn guess(&mut self, staging: &Staging, wanted: &mut WantedOutputs) -> Result<(), CudaBackendError> {
        let (asked, passes) = wanted.guesses();
        let Self { device, network, guessing: Some(guessing), sampling, .. } = self else { return Ok(()) };
        if asked.is_empty() {
            return Ok(());
        }
        let rows = bucket(asked.len());
        let settled = wanted.will_guess(GuessShape { rows, passes }, guessing.listed_ids());
        let (mut done, mut last) = (0, 0);
        while done < passes {
            // Behind a prompt alone no row of it is looked up.
            let step = Pass::decode(wanted.decoded.max(1), &self.decode_rows, false);
            let (results, ahead) = sampling.results();
            let (rows_of_step, ahead) = (mtp::rows_of(&step), wanted.follows.then_some(&ahead));
            let behind = (done == 0).then_some(Behind { results: &results, rows: rows_of_step, ahead });
            network.next_guesses(device, behind, guessing, (rows, last))?;
            let shape = GuessShape { rows, passes: (passes - done).min(GRAPH_PASSES) };
            self.guess_graphs.launch(shape)?;
            guessing.fetch(device, staging, shape, done)?;
            (done, last) = (done + shape.passes, shape.passes - 1);
        }
        // There the guesses of all passes lie one behind another; nobody takes the place before the next step is done.
        let guessed = staging.guesses_address();
        self.leader = Some(Leader { asked, guessed, guess_rows: rows, settled });
        Ok(())
    }

    /// Logits that the last step left, `[rows, vocab]`: those of its decode bucket first, then those of sampled
    /// prompts.
    ///
    /// # Errors
    /// If the device failed.
    pub fn logits(&mut self, rows: usize) -> Result<Vec<f32>, CudaBackendError> {
        let n = rows * self.info.vocab as usize;
        self.device.stream().clone_dtoh(&self.work.logits.slice(0..n)).during("reading logits")
    }

    /// Distinct routed experts that the rows of the last finished forward picked, one entry a block that chooses; empty
    /// for a dense model or if the device failed.
    pub fn expert_counts(&mut self) -> Vec<u32> {
        let distinct = |block: &Vec<i32>| block.iter().filter(|e| **e >= 0).collect::<HashSet<_>>().len() as u32;
        self.expert_choices().iter().map(distinct).collect()
    }

    /// The experts that the rows of the last finished forward picked: of each block that chooses, row by row, below 0
    /// where there is none; empty for a dense model or if the device failed.
    pub fn expert_choices(&mut self) -> Vec<Vec<i32>> {
        let used = self.network.used();
        let pairs = self.last_rows * used;
        let Ok(all) = self.device.stream().clone_dtoh(&self.work.experts) else { return Vec::new() };
        if pairs == 0 {
            return Vec::new();
        }
        let blocks = all.chunks_exact(self.counts.rows() * used).take(self.network.routed_blocks());
        blocks.map(|block| block[..pairs].to_vec()).collect()
    }

    /// Says which experts the decode rows of the next step take, where the backend was made to be told: of each block
    /// that chooses `rows` times as many as a row uses, all of a row different.
    ///
    /// # Panics
    /// If there are others than so many, of more than 16 rows, or the backend was made to choose.
    pub fn give_experts(&mut self, rows: usize, experts: &[u32]) {
        let (used, blocks) = (self.network.used(), self.network.routed_blocks());
        assert!(self.work.given.is_some(), "the configuration says that experts are given");
        assert!(rows <= GIVEN_ROWS_MAX && experts.len() == blocks * rows * used, "{rows} rows of each block");
        let mut all = vec![0; blocks * GIVEN_ROWS_MAX * used];
        for (to, from) in all.chunks_exact_mut(GIVEN_ROWS_MAX * used).zip(experts.chunks_exact((rows * used).max(1))) {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from as i32);
        }
        self.given = Some(all);
    }

    /// Overwrites a slot's state and these pages with values of a working sequence's size, so that a benchmark need not
    /// compute a context.
    pub fn fill_context(&mut self, slot: SlotId, pages: &[PageId]) {
        // A benchmark of a device that fails here fails at its first step too, with a better message.
        let _ = self.store.fill(&self.device, slot.0 as usize, pages);
    }

    /// Fills all states, checkpoints and pages with NaN, so that a test sees it if one is read before it was written.
    ///
    /// # Errors
    /// If the device failed.
    pub fn poison(&mut self) -> Result<(), CudaBackendError> {
        self.store.poison(&self.device)
    }

    /// Bytes a second that a large copy inside the device's memory reads and writes together, measured now; `None` if
    /// memory does not suffice for two buffers of a gibibyte.
    pub fn copy_bandwidth(&mut self) -> Option<f64> {
        const BYTES: usize = 1 << 30;
        const COPIES: usize = 8;
        let stream = self.device.stream();
        let event = || stream.context().new_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT)).ok();
        let (from, mut to) = (stream.alloc_zeros::<u8>(BYTES).ok()?, stream.alloc_zeros::<u8>(BYTES).ok()?);
        let (begin, end) = (event()?, event()?);
        stream.memcpy_dtod(&from, &mut to).ok()?;
        begin.record(stream).ok()?;
        (0..COPIES).try_for_each(|_| stream.memcpy_dtod(&from, &mut to)).ok()?;
        end.record(stream).ok()?;
        end.synchronize().ok()?;
        Some((2 * BYTES * COPIES) as f64 / f64::from(begin.elapsed_ms(&end).ok()?) * 1e3)
    }
}

impl StepDevice for CudaBackend {
    type Forwarded = Forwarded;
    type Finished = InFlight;

    const COMPUTES: bool = false;

    fn capacity(&self) -> &BackendInfo {
        &self.info
    }

    fn steps(&mut self) -> &mut UnfinishedSteps<Self> {
        &mut self.steps
    }

    fn forward(&mut self, plan: &StepPlan, rules: &AwaitedRules<'_>) -> Result<Forward<Self>, BackendError> {
        let forwarded = self.enqueue(plan).map_err(|e| lost(&self.device, plan.id, &e))?;
        Ok(match rules.now() {
            Some(constraints) => Forward::Finished(self.finish(forwarded, &constraints)?),
            None => Forward::Waits(forwarded),
        })
    }

    fn finish(&mut self, forwarded: Forwarded, constraints: &[Constraint]) -> Result<InFlight, BackendError> {
        let step = forwarded.id;
        self.sample(forwarded, constraints).map_err(|e| lost(&self.device, step, &e))
    }

    fn outcome(finished: InFlight) -> Result<StepOutcome, BackendError> {
        finished.wait()
    }
}

impl Backend for CudaBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    fn launch(&mut self, plan: StepPlan) -> Result<Pending, BackendError> {
        steps::launch(self, plan)
    }

    fn constrain(&mut self, rules: StepRules) -> Result<(), BackendError> {
        steps::constrain(self, rules)
    }
}

/// Rows as arrays one after another, filled up to `n` with rows that are none.
fn columns(rows: &[Row], n: usize) -> Vec<i32> {
    let none = Row { token: 0, slot: -1, position: 0, prompt_len: 0, lacking: Lacking::default(), cut: [0; 2] };
    let all = || rows.iter().copied().chain(std::iter::repeat_n(none, n - rows.len()));
    let mut words = Vec::with_capacity(ROW_WORDS * n);
    words.extend(all().map(|r| r.token));
    words.extend(all().map(|r| r.slot));
    words.extend(all().map(|r| r.position));
    words.extend(all().map(|r| r.prompt_len));
    words.extend(all().flat_map(|r| r.cut));
    words.extend(all().map(|r| r.lacking.word()));
    words.extend(all().map(|r| r.lacking.drafted));
    words
}

/// Copies values through the step's pinned memory to the device.
fn stage<T: Copy>(
    device: &Device,
    staging: &Staging,
    to: &mut CudaSlice<T>,
    at: usize,
    values: &[T],
) -> Result<(), CudaBackendError> {
    // A step may have more page tables to send than there is room for: rare, and worth a wait.
    let mut sent = 0;
    while sent < values.len() {
        let room = staging.take::<T>((values.len() - sent).min(STAGING_BYTES / 2 / size_of::<T>()));
        let Some(room) = room else {
            device.stream().synchronize().during("waiting for a step's inputs")?;
            staging.rewind();
            continue;
        };
        room.copy_from_slice(&values[sent..sent + room.len()]);
        // SAFETY: the room is the step's own until its results are read.
        unsafe { staging.send(device, (to, at + sent), room) }?;
        sent += room.len();
    }
    Ok(())
}

fn lost(device: &Device, step: StepId, error: &CudaBackendError) -> BackendError {
    BackendError::Device { step, why: device.explain(error) }
}
