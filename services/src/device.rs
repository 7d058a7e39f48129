//! Which device computes: what was asked for, what this machine has, and why not. Then the backend's sizes on it, and
//! the backend.
//!
//! The choice itself is a pure function; that there may be no driver, no run-time compiler or no such device is found
//! out in `cards.rs`.

mod card;
mod cards;
mod planned;
mod setup;

pub use card::{CardPlan, plan_for_card};
pub use cards::{EarlyLook, ReplicaDevice, choose, choose_replicas, host_suffices};
pub use planned::{PlannedReplica, plan_replicas};
pub use setup::Setup;

use crate::config::{Activations, Budget, Device, Embedding, Engine, KvType, PrefixCacheMode, Residents};
use crate::limits;
use crate::memory::{Bytes, MemoryPlan, Needs, free_bytes};
use chimere_engine::backend::Backend;
use chimere_engine::backend::cpu::{CpuBackend, CpuConfig, KvType as CpuKvType};
use chimere_engine::backend::cuda::{self, CudaBackend, CudaBackendError, CudaConfig, CudaMemory, GpuInfo, KvStorage};
use chimere_engine::model::{Model, OpConfig};
use chimere_engine::{CHUNK_TOKENS, PAGE_TOKENS};

/// The device of commands that use a single one: the first that the driver shows, which `CUDA_VISIBLE_DEVICES` decides.
pub const ORDINAL: usize = 0;
/// Never planned with when the budget is what is free on a GPU: for other programs, and for the driver later.
const GPU_MARGIN_BYTES: u64 = 256 << 20;
/// Lines of a message that are shown: a compiler can say the same thing a thousand times.
const MESSAGE_LINES_MAX: usize = 12;

/// Why no device computes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// What was asked for cannot be.
    #[error("{0}")]
    Usage(String),
    /// It could be, but not on this machine as it is.
    #[error("{0}")]
    Unusable(String),
}

/// What a caller asks of the backend; 0 takes the device's own default, where the field says so.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceRequest {
    /// The kind of device to compute on.
    pub device: Device,
    /// Threads on a CPU; 0 takes every core.
    pub threads: u32,
    /// Live sequences; 0 takes the default.
    pub seqs: u32,
    /// Positions a sequence may have.
    pub context: u32,
    /// Positions of a step; 0 takes the default.
    pub step_tokens: u32,
    /// Type of keys and values.
    pub kv_type: KvType,
    /// Bits of activations on a GPU.
    pub activations: Activations,
    /// Where the embedding's rows lie.
    pub embedding: Embedding,
    /// Which routed experts lie in a GPU's own memory.
    pub experts_resident: Residents,
    /// The yardstick, on the CPU only.
    pub exact: bool,
    /// Decode rows are told which experts they take: for benchmarks, on a GPU only.
    pub replayed: bool,
    /// Drafted tokens that may stand behind one.
    pub drafts: u32,
    /// The model's own draft head drafts too.
    pub draft_head: bool,
    /// Low-rank adapters that a GPU holds; none by default.
    pub adapters: cuda::AdapterRoom,
    /// Memory for all that the process takes on its device.
    pub budget: Budget,
}

impl DeviceRequest {
    /// As the configuration has it, with this many positions a sequence.
    pub fn of(engine: &Engine, context: u32) -> Self {
        Self {
            device: engine.device,
            threads: engine.threads,
            seqs: engine.max_seqs,
            context,
            step_tokens: engine.step_tokens,
            kv_type: engine.kv_type,
            activations: engine.activations,
            embedding: engine.embedding,
            experts_resident: engine.experts_resident,
            exact: engine.exact,
            replayed: false,
            drafts: engine.drafts.0.drafts_max(),
            draft_head: engine.draft_sources.0.have_head(),
            adapters: cuda::AdapterRoom::default(),
            budget: engine.vram_budget,
        }
    }

    /// What only a CPU does.
    fn needs_cpu(&self) -> Option<&'static str> {
        match (self.exact, self.kv_type) {
            (true, _) => Some("--exact is there on the CPU only"),
            (_, KvType::F32) => Some("kv-type f32 is there on the CPU only, a GPU keeps f16, q8_0:q8_0 or q8_0:q4_0"),
            _ => None,
        }
    }

    fn seqs_or(&self, default: u32) -> u32 {
        if self.seqs == 0 { default } else { self.seqs }
    }

    fn step_tokens_or(&self, default: u32) -> u32 {
        if self.step_tokens == 0 { default } else { self.step_tokens }
    }

    /// `no_gpu` is why a GPU that would have been taken is not.
    fn cpu(&self, no_gpu: Option<&str>) -> Result<CpuConfig, DeviceError> {
        let slots = self.seqs_or(limits::SEQS_MAX_CPU);
        let kv_type = match self.kv_type {
            KvType::F32 => CpuKvType::F32,
            KvType::F16 => CpuKvType::F16,
            other => {
                let why = no_gpu.map(|why| format!(" (no GPU is used: {why})")).unwrap_or_default();
                let message = format!("kv-type {}: the CPU keeps keys and values as f32 or f16{why}", other.name());
                return Err(DeviceError::Usage(message));
            }
        };
        Ok(CpuConfig {
            threads: if self.threads == 0 { cores() } else { self.threads as usize },
            slots,
            pages: 1,
            checkpoints: 0,
            kv_type,
            exact: self.exact,
            step_rows_max: step_rows(self.step_tokens_or(limits::STEP_TOKENS_CPU), slots),
            context: self.context,
            drafts: self.drafts,
            draft_head: self.draft_head,
        })
    }

    /// What a GPU would be asked for, with the fewest positions of a step unless they are named.
    pub fn cuda(&self) -> CudaConfig {
        let slots = self.seqs_or(limits::SEQS_MAX_GPU);
        CudaConfig {
            ordinal: ORDINAL,
            own_context: false,
            slots,
            pages: 1,
            checkpoints: 0,
            host_cache_bytes: 0,
            kv: match self.kv_type {
                KvType::F32 | KvType::F16 => KvStorage::F16,
                KvType::Q8_0 => KvStorage::Q8Q8,
                KvType::Q8_0Q4_0 => KvStorage::Q8Q4,
            },
            activations: self.activations.into(),
            step_rows_max: step_rows(self.step_tokens_or(STEP_TOKENS_FEWEST), slots),
            context: self.context,
            drafts: self.drafts,
            draft_head: self.draft_head,
            host_embedding: self.embedding == Embedding::Host,
            expert_bytes: None,
            replayed: self.replayed,
            adapters: self.adapters,
            kernel_cache: None,
        }
    }

    /// The configuration for a GPU whose steps have as many positions as fit in this many bytes.
    fn cuda_within(&self, bytes: u64, model: &Model) -> CudaConfig {
        let few = self.cuda();
        let with = |step_tokens| CudaConfig { step_rows_max: step_rows(step_tokens, few.slots), ..few.clone() };
        let workspace = |c: &CudaConfig| CudaMemory::of(model, &CudaConfig { drafts: 0, ..c.clone() }).workspace;
        let fits = |c: &CudaConfig| workspace(c) <= bytes / limits::STEP_MEMORY_SHARE;
        let chosen = limits::STEP_TOKENS_GPU.into_iter().filter(|_| self.step_tokens == 0).map(with).find(fits);
        chosen.unwrap_or(few)
    }

    /// What a GPU with this much memory is asked for: experts in two memories where they do not fit, and drafts or a
    /// draft head where they leave sequences and experts what they had without.
    fn cuda_on(&self, bytes: u64, model: &Model) -> CudaConfig {
        let mut config = self.cuda_within(bytes, model);
        config.activations = config.activations.of(model);
        let with_experts = |config: CudaConfig| {
            // Where experts lie in two memories there is no draft head.
            let without_head = CudaConfig { draft_head: false, ..config.clone() };
            let expert_bytes = expert_bytes(self.experts_resident, Some(bytes), model, &without_head);
            CudaConfig { expert_bytes, ..config }.of(&model.config)
        };
        let with = |drafts, draft_head| with_experts(CudaConfig { drafts, draft_head, ..config.clone() });
        let without = with(0, false);
        let room = |c: &CudaConfig| {
            let plan = MemoryPlan::new(bytes, cuda_needs(model, c)).ok()?;
            Some((u64::from(plan.pages), c.expert_bytes.unwrap_or(u64::MAX)))
        };
        // What does not fit is the plan's to refuse.
        let Some((pages, experts)) = room(&without) else { return without };
        let all = u64::from(config.slots) * u64::from(config.context.div_ceil(PAGE_TOKENS));
        let most_of = |n: u64| n - n / limits::DRAFTS_MEMORY_SHARE;
        let least = (if pages >= all { all } else { most_of(pages) }, most_of(experts));
        let fits = |c: &CudaConfig| room(c).is_some_and(|(pages, experts)| pages >= least.0 && experts >= least.1);
        [with(config.drafts, config.draft_head), with(config.drafts, false)].into_iter().find(fits).unwrap_or(without)
    }
}

/// Positions that a sequence may have, with the model's word where the configuration has none.
pub fn context(engine: &Engine, model: &Model) -> Result<u32, String> {
    match (engine.max_context, model.config.context) {
        (0, most) => Ok(most),
        (n, most) if n > most => {
            Err(format!("max-context {n} is more than the {most} tokens that the model was made for"))
        }
        (n, _) => Ok(n),
    }
}

/// What a step computes on a GPU whatever its memory.
const STEP_TOKENS_FEWEST: u32 = limits::STEP_TOKENS_GPU[limits::STEP_TOKENS_GPU.len() - 1];

/// What the scheduler's steps have at most: decode rows do not displace the one unit of prefill that every step grants.
fn step_rows(step_tokens: u32, slots: u32) -> u32 {
    step_tokens.max(slots.saturating_add(CHUNK_TOKENS))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A backend with its weights loaded, ready for steps.
#[allow(clippy::large_enum_variant, reason = "there is one of these, and it is moved once")]
pub enum Built {
    /// The backend that computes on the cores of this machine.
    Cpu(CpuBackend),
    /// The backend that computes on a GPU.
    Cuda(CudaBackend),
}

impl Built {
    /// For a caller to whom they are all the same.
    pub fn boxed(self) -> Box<dyn Backend> {
        match self {
            Built::Cpu(backend) => Box::new(backend),
            Built::Cuda(backend) => Box::new(backend),
        }
    }
}

/// What of drafts was asked for, could be done for the model, and has no room.
fn left_out(wanted: &DeviceRequest, model: &Model, config: &CudaConfig) -> &'static str {
    let could = wanted.cuda().of(&model.config);
    match (could.drafts > config.drafts, could.draft_head && !config.draft_head) {
        (true, _) => ", no drafts: sequences and experts need the memory",
        (false, true) => ", no draft head: sequences and experts need the memory",
        (false, false) => "",
    }
}

/// Why a plan has no prefix cache, if it lacks one for want of room.
///
/// # Errors
/// If the prefix cache was asked for.
pub fn missing_prefix_cache(plan: &MemoryPlan, wanted: PrefixCacheMode) -> Result<Option<String>, String> {
    match (plan.no_checkpoint(), wanted) {
        (None, _) => Ok(None),
        (Some(why), PrefixCacheMode::On) => Err(format!("prefix-cache on: {why}, or give --prefix-cache off")),
        (Some(why), _) => Ok(Some(format!("no prefix cache: {why}"))),
    }
}

#[derive(Debug, PartialEq)]
enum ChosenDevice<G> {
    /// With the reason why it is not a GPU, where one would have been taken.
    Cpu(CpuConfig, Option<String>),
    Gpu(G),
}

fn decide<G>(wanted: &DeviceRequest, gpu: impl FnOnce() -> Result<G, String>) -> Result<ChosenDevice<G>, DeviceError> {
    match (wanted.device, wanted.needs_cpu()) {
        (Device::Cpu, _) => Ok(ChosenDevice::Cpu(wanted.cpu(None)?, None)),
        (Device::Cuda, Some(what)) => Err(DeviceError::Usage(format!("device cuda: {what}"))),
        (Device::Cuda, None) => {
            gpu().map(ChosenDevice::Gpu).map_err(|why| DeviceError::Unusable(format!("device cuda: {why}")))
        }
        (Device::Auto, Some(what)) => Ok(ChosenDevice::Cpu(wanted.cpu(None)?, Some(what.into()))),
        (Device::Auto, None) => gpu().map(ChosenDevice::Gpu).or_else(|why| {
            // One line: whoever wants the rest asks for cuda.
            let why = why.lines().next().unwrap_or_default().to_owned();
            Ok(ChosenDevice::Cpu(wanted.cpu(Some(&why))?, Some(why)))
        }),
    }
}

fn cuda_needs(model: &Model, config: &CudaConfig) -> Needs {
    needs_of(CudaMemory::of(model, config), config)
}

fn needs_of(memory: CudaMemory, config: &CudaConfig) -> Needs {
    let CudaMemory { weights, workspace, reserve, slot, checkpoint, page, host, residents, .. } = memory;
    Needs {
        weights,
        workspace,
        reserve,
        slot,
        page,
        checkpoint: Some(checkpoint),
        host,
        experts: residents.map(|(there, all)| (there as u64, all as u64)),
        seqs: config.slots,
        context: config.context,
    }
}

/// How many bytes of a GPU's memory the routed experts have, where they cannot all be there.
fn expert_bytes(wanted: Residents, budget: Option<u64>, model: &Model, config: &CudaConfig) -> Option<u64> {
    let each = model.config.blocks().find_map(|block| match &block.op {
        OpConfig::Moe(moe) => Some(moe.experts as u64),
        _ => None,
    })?;
    let memory = CudaMemory::of(model, config);
    let experts = memory.experts;
    let bytes = match wanted {
        Residents::Auto => needs_of(memory, config).experts_beside(budget?, experts)?,
        // With what rounding down would take.
        Residents::Each(n) => (experts * u64::from(n)).div_ceil(each),
        Residents::Bytes(bytes) => bytes,
    };
    (bytes < experts).then_some(bytes)
}

/// That the host has the memory for the experts that the device has not.
fn experts_of_the_host(needs: &Needs, free: Option<u64>) -> Result<(), String> {
    match (needs.experts, free) {
        (Some((there, all)), Some(free)) if needs.host > free => Err(format!(
            "{there} of {all} experts fit into the device's memory, and the others take {} of the host's, of which {} are \
             free; raise --vram-budget, or take a smaller file",
            Bytes(needs.host),
            Bytes(free)
        )),
        _ => Ok(()),
    }
}

fn host_budget(budget: Budget) -> Result<u64, String> {
    match budget {
        Budget::Bytes(n) => Ok(n),
        Budget::Auto => {
            free_bytes().ok_or_else(|| "the system does not tell how much memory is free: give --vram-budget".into())
        }
    }
}

/// A budget counts all that the process takes of the device, its context included, which exists already and is not
/// among the free bytes.
fn gpu_budget(budget: Budget, free: u64, total: u64) -> Result<u64, String> {
    let most = free.saturating_add(CudaMemory::CONTEXT_BYTES).min(total);
    match budget {
        Budget::Auto => Ok(most.saturating_sub(GPU_MARGIN_BYTES.max(free / 50))),
        Budget::Bytes(n) if n > most => Err(format!(
            "a memory budget of {} is more than the {} that can be had: {} of the device's {} are free; lower --vram-budget, or end what \
             else runs there",
            Bytes(n),
            Bytes(most),
            Bytes(free),
            Bytes(total)
        )),
        Budget::Bytes(n) => Ok(n),
    }
}

/// What to tell when a backend does not start: the compiler's or the driver's first lines, and what to do.
fn start_error(error: &CudaBackendError, gpu: &GpuInfo) -> String {
    let said = first_lines(&error.to_string());
    if error.is_out_of_memory() {
        let free = Bytes(gpu.free_bytes);
        return format!(
            "GPU {}, {}, ran out of memory ({said}), although the plan above fits into the {free} that were \
             free when it was made: something else took memory meanwhile; end it, or lower --vram-budget",
            gpu.ordinal, gpu.name
        );
    }
    format!("GPU {}, {}: {said}", gpu.ordinal, gpu.name)
}

fn first_lines(text: &str) -> String {
    let more = text.trim_end().lines().count().saturating_sub(MESSAGE_LINES_MAX);
    let mut shown = text.trim_end().lines().take(MESSAGE_LINES_MAX).collect::<Vec<_>>().join("\n");
    if more > 0 {
        shown += &format!("\n... and {more} more lines");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(device: Device) -> DeviceRequest {
        DeviceRequest { device, ..DeviceRequest::of(&Engine::default(), 4096) }
    }

    fn no_gpu() -> Result<u8, String> {
        Err("no NVIDIA driver found\nand more".into())
    }

    #[test]
    fn auto_takes_a_gpu_and_falls_back_with_one_line_of_reason() {
        assert_eq!(decide(&wanted(Device::Auto), || Ok(7)), Ok(ChosenDevice::Gpu(7)));
        let Ok(ChosenDevice::Cpu(cpu, why)) = decide(&wanted(Device::Auto), no_gpu) else { panic!("the CPU is left") };
        assert_eq!(why.as_deref(), Some("no NVIDIA driver found"));
        assert_eq!((cpu.slots, cpu.step_rows_max), (16, 512));
    }

    #[test]
    fn cuda_without_a_gpu_fails_with_the_whole_reason_and_cpu_asks_for_none() {
        let error = decide(&wanted(Device::Cuda), no_gpu).unwrap_err();
        assert_eq!(error, DeviceError::Unusable("device cuda: no NVIDIA driver found\nand more".into()));
        let never = || -> Result<u8, String> { panic!("nobody asked for a GPU") };
        assert!(matches!(decide(&wanted(Device::Cpu), never), Ok(ChosenDevice::Cpu(_, None))));
    }

    #[test]
    fn what_only_a_cpu_does_decides_for_it_and_against_a_gpu() {
        let never = || -> Result<u8, String> { panic!("a GPU cannot do it") };
        for exact in [
            DeviceRequest { exact: true, ..wanted(Device::Auto) },
            DeviceRequest { kv_type: KvType::F32, ..wanted(Device::Auto) },
        ] {
            let Ok(ChosenDevice::Cpu(_, Some(why))) = decide(&exact, never) else { panic!("{exact:?}") };
            assert!(why.contains("on the CPU only"), "{why}");
            let error = decide(&DeviceRequest { device: Device::Cuda, ..exact }, never).unwrap_err();
            assert!(matches!(&error, DeviceError::Usage(why) if why.starts_with("device cuda: ")), "{error}");
        }
    }

    #[test]
    fn a_type_that_only_a_gpu_keeps_is_refused_on_the_cpu_with_those_it_has() {
        let quantised = |device| DeviceRequest { kv_type: KvType::Q8_0Q4_0, ..wanted(device) };
        let error = decide(&quantised(Device::Cpu), no_gpu).unwrap_err().to_string();
        assert_eq!(error, "kv-type q8_0:q4_0: the CPU keeps keys and values as f32 or f16");
        let error = decide(&quantised(Device::Auto), no_gpu).unwrap_err().to_string();
        assert!(error.ends_with("(no GPU is used: no NVIDIA driver found)"), "{error}");
        assert_eq!(quantised(Device::Cuda).cuda().kv, KvStorage::Q8Q4);
    }

    #[test]
    fn a_gpu_runs_more_at_once_unless_told_otherwise() {
        let config = wanted(Device::Cuda).cuda();
        assert_eq!((config.slots, config.step_rows_max), (64, 2048));
        let config = DeviceRequest { seqs: 256, step_tokens: 128, ..wanted(Device::Cuda) }.cuda();
        assert_eq!((config.slots, config.step_rows_max), (256, 256 + 64));
    }

    #[test]
    fn a_gpu_s_budget_counts_the_context_and_never_more_than_can_be_had() {
        let (gib, context) = (1u64 << 30, CudaMemory::CONTEXT_BYTES);
        assert_eq!(gpu_budget(Budget::Auto, 15 * gib, 16 * gib).unwrap(), 15 * gib + context - 15 * gib / 50);
        assert_eq!(gpu_budget(Budget::Auto, gib, 16 * gib).unwrap(), gib + context - GPU_MARGIN_BYTES);
        assert_eq!(gpu_budget(Budget::Bytes(15 * gib), 15 * gib, 16 * gib).unwrap(), 15 * gib);
        let error = gpu_budget(Budget::Bytes(14 * gib), 4 * gib, 16 * gib).unwrap_err();
        for part in ["14.0 GiB", "4.0 GiB of the device's 16.0 GiB are free", "--vram-budget"] {
            assert!(error.contains(part), "{part:?} in {error}");
        }
    }

    /// The released shape in the smallest mix, its weights left out.
    fn released() -> Model {
        use chimere_engine::format::synth::{Mix, SynthOptions, write_outline};
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("outline.gguf");
        let shape = SynthOptions::shapes().next().unwrap().to_owned();
        write_outline(
            &file,
            &SynthOptions {
                shape,
                mix: Mix::Iq3,
                layers: None,
                experts: None,
                vocab: None,
                draft_head: false,
                seed: 1,
            },
        )
        .unwrap();
        chimere_engine::model::load(&file).unwrap()
    }

    #[test]
    fn a_step_is_as_large_as_the_memory_has_room_for_unless_its_size_is_named() {
        let model = released();
        let rows = |wanted: &DeviceRequest, gib: u64| wanted.cuda_within(gib << 30, &model).step_rows_max;
        let unnamed = wanted(Device::Cuda);
        assert_eq!([137, 78, 30, 24].map(|gib| rows(&unnamed, gib)), [8192, 8192, 4096, 2048]);
        let named = DeviceRequest { step_tokens: 512, ..unnamed };
        assert_eq!([137, 15].map(|gib| rows(&named, gib)), [512, 512]);
    }

    /// A budget that leaves a card of 16 GB to its screen: on an H200 the process takes 15.26 and 15.32 GiB.
    #[test]
    fn the_released_shape_fits_a_card_of_16_gb() {
        let model = released();
        for (seqs, context) in [(4, 8 << 10), (1, 64 << 10)] {
            let wanted = DeviceRequest {
                seqs,
                context,
                kv_type: KvType::Q8_0Q4_0,
                embedding: Embedding::Host,
                step_tokens: 128,
                ..wanted(Device::Cuda)
            };
            let config = wanted.cuda_on(31 << 29, &model);
            let plan = MemoryPlan::new(31 << 29, cuda_needs(&model, &config)).unwrap();
            assert_eq!(plan.pages, seqs * context / 32, "every sequence may be of full length:\n{plan}");
        }
    }

    #[test]
    fn drafts_give_way_to_sequences_of_full_length_and_the_start_says_so() {
        let (model, context) = (released(), 8 << 10);
        let wanted = DeviceRequest { seqs: 4, context, embedding: Embedding::Host, ..wanted(Device::Cuda) };
        let pages =
            |bytes, config: &CudaConfig| MemoryPlan::new(bytes, cuda_needs(&model, config)).map(|p| p.pages).ok();
        let full = |bytes: &u64| {
            let without = CudaConfig { drafts: 0, ..wanted.cuda_within(*bytes, &model) };
            pages(*bytes, &without) == Some(4 * context / 32)
        };
        let least = (0..).map(|i: u64| (24 << 30) - (i << 25)).take_while(full).last().unwrap();
        let [little, more] = [least, 24 << 30].map(|bytes| wanted.cuda_on(bytes, &model));
        assert_eq!((little.drafts, more.drafts), (0, 7));
        assert_eq!(pages(least, &little), Some(4 * context / 32));
        assert!(left_out(&wanted, &model, &little).starts_with(", no drafts"));
        assert!(left_out(&wanted, &model, &more).is_empty());
    }

    #[test]
    fn a_compiler_s_flood_of_messages_is_cut() {
        let log = (0..40).map(|i| format!("line {i}\n")).collect::<String>();
        let shown = first_lines(&log);
        assert!(shown.starts_with("line 0\n") && shown.ends_with("line 11\n... and 28 more lines"), "{shown}");
        assert_eq!(first_lines("one\n"), "one");
    }
}
