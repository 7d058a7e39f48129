//! The start of a backend: weights are brought while kernels are compiled, memory is taken, graphs are captured.

use super::CudaBackend;
use super::laps::Laps;
use crate::backend::BackendInfo;
use crate::backend::cuda::draft_head::{self, DraftModel, ModelRank};
use crate::backend::cuda::error::{CudaBackendError, CudaResult, During};
use crate::backend::cuda::layout::config::CudaConfig;
use crate::backend::cuda::layout::draft_head::proposals_max;
use crate::backend::cuda::layout::operators;
use crate::backend::cuda::layout::operators::adapter_plan::AdapterPlan;
use crate::backend::cuda::layout::outputs::units_max;
use crate::backend::cuda::layout::programs::programs;
use crate::backend::cuda::layout::shape::{Counts, SLOTS_MAX, Widths, passes};
use crate::backend::cuda::layout::store::StoreShape;
use crate::backend::cuda::network::{BlockLoader, Network};
use crate::backend::cuda::rank::adapters::AdapterStore;
use crate::backend::cuda::rank::experts::ExpertTier;
use crate::backend::cuda::rank::graphs::Graphs;
use crate::backend::cuda::rank::memory::RankMemory;
use crate::backend::cuda::rank::staging::{Ring, STAGING_BYTES};
use crate::backend::cuda::rank::store::Store;
use crate::backend::cuda::rank::weights::DeviceWeights;
use crate::backend::cuda::rank::workspace::Workspace;
use crate::backend::cuda::step::history::HistoryKernel;
use crate::backend::cuda::step::host::HostCopies;
use crate::backend::cuda::step::pooling::HiddenSums;
use crate::backend::cuda::step::rows::columns;
use crate::backend::cuda::step::sampling::Sampling;
use crate::backend::cuda::step::stored::StoredStates;
use crate::backend::steps::UnfinishedSteps;
use crate::cache::HostBlocks;
use crate::model::{Model, ModelConfig};
use crate::step::SCORED_NEXT_MAX;
use chimere_kernels::cuda::attention::{TileChip, tiles_max};
use chimere_kernels::cuda::carry::Carrier;
use chimere_kernels::cuda::draft_head::ROW_WORDS;
use chimere_kernels::cuda::gdn_prefill::chunks_max;
use chimere_kernels::cuda::wide::Chip;
use chimere_kernels::cuda::{Device, KernelCache};
use std::sync::Arc;
use std::thread;

/// Brings the weights to the device while the kernels are compiled that the cache lacks: a first start waits for the
/// longer of the two.
fn load(
    model: &Model,
    config: &CudaConfig,
    device: &Device,
    cache: &KernelCache,
    progress: &mut dyn FnMut(f32),
) -> CudaResult<(DeviceWeights, Option<ExpertTier>)> {
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

/// The sizes of a backend as its callers see them.
fn info(config: &CudaConfig, vocab: usize, host: Option<&HostCopies>) -> BackendInfo {
    BackendInfo {
        device: "cuda",
        slots: config.slots,
        pages: config.pages,
        checkpoints: config.checkpoints,
        host_blocks: host.map_or(0, HostCopies::blocks_max),
        step_rows_max: config.step_rows_max,
        vocab: vocab as u32,
        context: config.context,
        drafts: config.draft_room(),
        threads: 0,
        adapter_slots: config.adapters.slots,
    }
}

/// Puts the layers together, and the draft model where its proposals are wanted.
fn layers(
    device: &Device,
    cache: &KernelCache,
    (model, c): (&Model, &ModelConfig),
    config: &CudaConfig,
    mut weights: DeviceWeights,
) -> CudaResult<(Network, Option<Box<dyn DraftModel>>)> {
    let (own, planes) = (weights.draft.take(), config.activations.planes(model));
    let mut loader = BlockLoader::new(device, cache, c, config, (planes, weights.embed.ty))?;
    let mut network = Network::new(&mut loader, c, weights)?;
    if let Some(plan) = AdapterPlan::of(c, config.adapters) {
        let counts = Counts::of(config);
        network.adapters = Some(AdapterStore::new(device, cache, plan, (counts.rows(), counts.slots), planes)?);
    }
    let draft_model = own.map(|own| draft_head::load(&mut loader, &network, model, &c.draft, own)).transpose()?;
    Ok((network, draft_model))
}

impl CudaBackend {
    /// Compiles or loads the kernels, brings the weights to the device and takes all memory the backend will use.
    /// `progress` hears the share done, 0 to 1.
    ///
    /// # Errors
    /// If there is no usable device, a kernel does not compile, memory does not suffice, or the model has sizes that no
    /// kernel takes.
    pub fn new(model: &Model, config: &CudaConfig, progress: &mut dyn FnMut(f32)) -> CudaResult<Self> {
        if config.slots as usize > SLOTS_MAX {
            let (got, need) = (config.slots.to_string(), format!("at most {SLOTS_MAX}"));
            return Err(CudaBackendError::Unsupported { what: "the number of sequences at once", got, need });
        }
        let config = &config.of(&model.config);
        let mut laps = Laps::begin();
        let open = if config.own_context { Device::open_apart } else { Device::open };
        let device = Arc::new(open(config.ordinal)?);
        laps.end("the device is open");
        let cache = KernelCache::new(config.kernel_cache.clone().unwrap_or_else(KernelCache::default_dir));
        let c = &config.computed(&model.config);
        operators::check(c, config.kv.into())?;
        let tiled = operators::tiled(c);
        let chip = TileChip::of(&device);
        let (counts, widths, planes) = (Counts::of(config), Widths::of(c), config.activations.planes(model));
        let (weights, experts) = load(model, config, &device, &cache, progress)?;
        laps.end("kernels and weights are there");
        let (network, draft_model) = layers(&device, &cache, (model, c), config, weights)?;
        laps.end("the network is put together");
        let stream = device.stream();
        let words = |n: usize| stream.alloc_zeros::<i32>(n.max(1)).during("allocating a step's inputs");
        let sampling = Sampling::new(&device, &cache, widths.vocab, counts)?;
        let carrier = Arc::new(Carrier::load(&device, &cache)?);
        let pooling = HiddenSums::new(&device, &cache, widths.hidden, counts)?;
        let rows_bytes = ROW_WORDS * 4 * (2 * counts.prefill + counts.decode);
        let sums = (units_max(counts), widths.hidden);
        let scored_next = counts.slots * SCORED_NEXT_MAX;
        let results = (counts.prefill + scored_next + counts.logits + 1, proposals_max(config));
        let shape = StoreShape::of(c, config);
        let cut = HostBlocks::of(shape.checkpoint_bytes() * u64::from(config.checkpoints > 0), shape.page_bytes());
        let host = HostCopies::new(stream.context(), cut, config.host_cache_bytes)?;
        let mut work = Workspace::new(&device, c, counts, planes)?;
        if config.replayed {
            work.replay(&device, c)?;
        }
        let mut backend = Self {
            info: info(config, widths.vocab, host.as_ref()),
            counts,
            store: Store::new(&device, shape)?,
            stored: StoredStates::new(config.slots),
            draft_model,
            host,
            experts,
            work,
            given: None,
            decode_rows: words(ROW_WORDS * counts.decode)?,
            prefill_rows: words(ROW_WORDS * counts.prefill)?,
            pieces: words(4 * counts.slots)?,
            tiles: words(2 * tiled.map_or(0, |shape| tiles_max(shape, chip, counts.prefill, counts.slots)))?,
            exports: words(chunks_max(counts.prefill, counts.slots))?,
            history: HistoryKernel::new(&device, &cache, widths.vocab, config.context as usize)?,
            tiled,
            wanted: words(counts.logits)?,
            sampling,
            pooling,
            graphs: Graphs::default(),
            first_graphs: Graphs::default(),
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
    fn capture(&mut self) -> CudaResult<()> {
        for pass in passes(self.counts, self.network.adapters.is_some()) {
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
        let Self { device, network, store, work, draft_model, .. } = self;
        if let Some(model) = draft_model {
            model.capture(&mut ModelRank { device, network, memory: RankMemory { store, work } }, self.counts.slots)?;
        }
        self.device.stream().synchronize().during("capturing graphs")
    }
}
