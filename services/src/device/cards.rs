//! Which device each replica has: the cores of this machine, or which of the GPUs that the driver shows.

use super::{ChosenDevice, DeviceError, DeviceRequest, Setup, cuda_needs, decide, gpu_budget, left_out};
use crate::config::{Device, Devices, shares};
use crate::limits::REPLICAS_MAX;
use crate::memory::{Bytes, MemoryPlan};
use chimere_engine::backend::cpu::CpuConfig;
use chimere_engine::backend::cuda::{self, Compiler, CudaConfig, GpuInfo, KernelCache};
use chimere_engine::model::Model;
use std::thread;

/// The device of one replica.
#[derive(Clone, Debug)]
pub struct ReplicaDevice {
    /// What the backend is to be on it.
    pub setup: Setup,
    /// Replicas that share it, this one among them.
    pub shares: u32,
    /// A line that says what it is; the first of those that share a device has it.
    pub said: Option<String>,
}

/// GPUs by their numbers, each with what was found of it, or why it cannot be used.
type FoundGpus<G> = Vec<(usize, Result<G, String>)>;

/// A GPU that can be used, and the backend's sizes on it.
type Usable = (CudaConfig, GpuInfo);

/// A look at GPUs that goes on while a model is read: opening a device takes the driver a while.
pub struct EarlyLook {
    devices: Devices,
    looking: Option<thread::JoinHandle<Result<FoundGpus<GpuInfo>, String>>>,
}

impl EarlyLook {
    /// Begins it, where such devices could be chosen.
    pub fn begin(device: Device, devices: &Devices) -> Self {
        let of_thread = devices.clone();
        let looking = (device != Device::Cpu).then(|| thread::spawn(move || look(&of_thread)));
        Self { devices: devices.clone(), looking }
    }

    /// For whoever has nothing else to do meanwhile, and takes the first device.
    pub fn later() -> Self {
        Self { devices: Devices::First, looking: None }
    }

    fn end(self) -> Result<FoundGpus<GpuInfo>, String> {
        match self.looking {
            Some(looking) => looking.join().unwrap_or_else(|_| Err("looking for a GPU panicked".into())),
            None => look(&self.devices),
        }
    }
}

/// Opens the devices that are wanted, all at once.
fn look(devices: &Devices) -> Result<FoundGpus<GpuInfo>, String> {
    let probe = |ordinal: usize| (ordinal, cuda::probe(ordinal).map_err(|e| e.to_string()));
    let all = numbers(devices, cuda::device_count().map_err(|e| e.to_string())?)?;
    Ok(thread::scope(|scope| {
        let probes: Vec<_> = all.into_iter().map(|ordinal| (ordinal, scope.spawn(move || probe(ordinal)))).collect();
        let panicked = |ordinal| (ordinal, Err("looking at it panicked".into()));
        probes.into_iter().map(|(ordinal, probe)| probe.join().unwrap_or_else(|_| panicked(ordinal))).collect()
    }))
}

/// Numbers of the devices that are wanted of `count`, each once.
fn numbers(devices: &Devices, count: usize) -> Result<Vec<usize>, String> {
    let mut all = match devices {
        Devices::First => vec![0],
        Devices::All => (0..count.min(REPLICAS_MAX as usize)).collect(),
        Devices::These(these) => these.clone(),
    };
    if count == 0 {
        return Err("the driver shows no GPU (CUDA_VISIBLE_DEVICES decides which)".into());
    }
    if let Some(missing) = all.iter().find(|ordinal| **ordinal >= count) {
        return Err(format!(
            "engine.devices {devices}: there is no GPU {missing}: the driver shows {count}, numbered from 0 \
             (CUDA_VISIBLE_DEVICES decides which)"
        ));
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Chooses a device for one replica, and gives a line that says what was chosen and, where that could surprise, why.
///
/// # Errors
/// If nothing can be chosen.
pub fn choose(wanted: &DeviceRequest, model: &Model, look: EarlyLook) -> Result<(Setup, String), DeviceError> {
    let (mut all, _) = choose_replicas(wanted, 1, model, look)?;
    let ReplicaDevice { setup, said, .. } = all.swap_remove(0);
    Ok((setup, said.unwrap_or_default()))
}

/// Chooses the device of each replica: GPUs as they are named or looked at, else so many `replicas` that share the
/// cores. The lines say which GPUs were left out, and why.
///
/// # Errors
/// If nothing can be chosen, or the cores cannot be shared among so many.
pub fn choose_replicas(
    wanted: &DeviceRequest,
    replicas: u32,
    model: &Model,
    look: EarlyLook,
) -> Result<(Vec<ReplicaDevice>, Vec<String>), DeviceError> {
    let devices = look.devices.clone();
    let wanted = &of_gpus(wanted, &devices)?;
    match decide(wanted, || kept(&devices, usable_of(model, wanted, &devices, look.end()?), kind))? {
        ChosenDevice::Cpu(cpu, why) => {
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            let more = if replicas > 1 { format!(", {replicas} replicas") } else { String::new() };
            let said = format!("computing on the CPU{why}{more}");
            Ok((on_cores(cpu, replicas, said).map_err(DeviceError::Usage)?, Vec::new()))
        }
        ChosenDevice::Gpu((cards, notes)) => {
            let ordinals: Vec<usize> = cards.iter().map(|(ordinal, _)| *ordinal).collect();
            let places = places(&devices, &ordinals);
            agree(&devices, replicas, places.len()).map_err(DeviceError::Usage)?;
            Ok((places.into_iter().map(|place| on_card(place, &cards, wanted, model)).collect(), notes))
        }
    }
}

/// A request for GPUs alone, where some are named.
fn of_gpus(wanted: &DeviceRequest, devices: &Devices) -> Result<DeviceRequest, DeviceError> {
    match (devices, wanted.device) {
        (Devices::First, _) => Ok(wanted.clone()),
        (_, Device::Cpu) => {
            Err(DeviceError::Usage(format!("engine.devices {devices}: these are GPUs, and engine.device is cpu")))
        }
        (_, Device::Auto | Device::Cuda) => Ok(DeviceRequest { device: Device::Cuda, ..wanted.clone() }),
    }
}

/// That the number of replicas, where one was asked for, is that of the GPUs.
fn agree(devices: &Devices, replicas: u32, found: usize) -> Result<(), String> {
    match devices {
        _ if replicas <= 1 || replicas as usize == found && *devices != Devices::First => Ok(()),
        Devices::First => Err(format!(
            "engine.replicas is {replicas}: GPUs have the replicas that engine.devices names, such as 0,1, or 0,0 for \
             two that share a card"
        )),
        _ => Err(format!(
            "engine.replicas is {replicas}, and engine.devices {devices} gives {found}: leave engine.replicas out"
        )),
    }
}

/// The cores of this machine, shared evenly.
fn on_cores(cpu: CpuConfig, replicas: u32, said: String) -> Result<Vec<ReplicaDevice>, String> {
    if cpu.threads < replicas as usize {
        return Err(format!(
            "engine.replicas is {replicas}, and {} threads cannot be shared among so many; at most that number",
            cpu.threads
        ));
    }
    let setup = Setup::Cpu(CpuConfig { threads: cpu.threads / replicas as usize, ..cpu });
    let one =
        |number| ReplicaDevice { setup: setup.clone(), shares: replicas, said: (number == 0).then(|| said.clone()) };
    Ok((0..replicas).map(one).collect())
}

/// The device of a replica among GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CardPlace {
    ordinal: usize,
    /// Replicas on that device.
    shares: u32,
    /// No replica before it is on that device.
    first: bool,
}

/// Where replicas are, by the GPUs that were kept.
fn places(devices: &Devices, kept: &[usize]) -> Vec<CardPlace> {
    let all = match devices {
        Devices::These(these) => these.as_slice(),
        Devices::First | Devices::All => kept,
    };
    let place = |(n, ordinal): (usize, &usize)| CardPlace {
        ordinal: *ordinal,
        shares: shares(all, *ordinal),
        first: !all[..n].contains(ordinal),
    };
    all.iter().enumerate().map(place).collect()
}

/// The replica at a place. Beside others on its card it has a context of its own: two kernels of a whole grid that
/// shared the chip would wait for one another's blocks.
fn on_card(place: CardPlace, cards: &[(usize, Usable)], wanted: &DeviceRequest, model: &Model) -> ReplicaDevice {
    let CardPlace { ordinal, shares, first } = place;
    let (_, (config, gpu)) =
        cards.iter().find(|(card, _)| *card == ordinal).expect("a place is on a card that is kept");
    let said = first.then(|| about(config, gpu, shares, left_out(wanted, model, config)));
    let config = CudaConfig { own_context: !first, ..config.clone() };
    ReplicaDevice { setup: Setup::Cuda(config, gpu.clone()), shares, said }
}

fn about(config: &CudaConfig, gpu: &GpuInfo, shares: u32, drafts: &str) -> String {
    let (free, total) = (Bytes(gpu.free_bytes), Bytes(gpu.total_bytes));
    let (major, minor) = gpu.driver;
    let GpuInfo { name, arch, ordinal, .. } = gpu;
    let activations = config.activations.name();
    let each = if shares > 1 { format!(", {shares} replicas that share it") } else { String::new() };
    format!(
        "computing on GPU {ordinal}, {name} ({free} of {total} free, {arch}, driver for CUDA {major}.{minor}), \
         activations {activations}{drafts}{each}"
    )
}

/// What has to be equal for replicas to compute equal bytes.
fn kind((_, gpu): &Usable) -> String {
    gpu.arch.to_string()
}

/// Those of the devices that have replicas, and a line for each that is left out. A device that was named and cannot be
/// used is an error. All are of one kind, because an answer goes on at another replica when one is lost.
#[allow(clippy::type_complexity, reason = "the devices, and what is said of others")]
fn kept<G>(
    devices: &Devices,
    found: FoundGpus<G>,
    kind: impl Fn(&G) -> String,
) -> Result<(Vec<(usize, G)>, Vec<String>), String> {
    let (mut kept, mut out) = (Vec::<(usize, G)>::new(), Vec::new());
    for (ordinal, found) in found {
        let other = |found: G| match kept.first() {
            Some((first, one)) if kind(one) != kind(&found) => Err(format!(
                "it is of {}, and GPU {first} of {}: replicas have to compute the same bytes",
                kind(&found),
                kind(one)
            )),
            _ => Ok(found),
        };
        match found.and_then(other) {
            Ok(found) => kept.push((ordinal, found)),
            // With a single one there is none to tell it from.
            Err(why) if *devices == Devices::First => return Err(why),
            Err(why) => out.push((ordinal, why)),
        }
    }
    let lines: Vec<String> = out.iter().map(|(ordinal, why)| format!("GPU {ordinal} has no replica: {why}")).collect();
    match devices {
        Devices::These(_) if !out.is_empty() => {
            let (ordinal, why) = &out[0];
            Err(format!("engine.devices {devices}: GPU {ordinal}: {why}"))
        }
        _ if kept.is_empty() => Err(lines.join("; ")),
        _ => Ok((kept, lines)),
    }
}

/// Which of the devices can run this model, with code that is there or can be compiled.
fn usable_of(model: &Model, wanted: &DeviceRequest, devices: &Devices, found: FoundGpus<GpuInfo>) -> FoundGpus<Usable> {
    let of_these = |ordinal| match devices {
        Devices::These(these) => shares(these, ordinal),
        Devices::First | Devices::All => 1,
    };
    let holds = |usable: Usable| match devices {
        Devices::All => fits(model, wanted, &usable).map(|()| usable),
        // What does not fit is the plan's to refuse.
        Devices::First | Devices::These(_) => Ok(usable),
    };
    let one = |(ordinal, gpu): (usize, Result<GpuInfo, String>)| {
        (ordinal, gpu.and_then(|gpu| usable(model, wanted, gpu, of_these(ordinal))).and_then(holds))
    };
    found.into_iter().map(one).collect()
}

fn fits(model: &Model, wanted: &DeviceRequest, (config, gpu): &Usable) -> Result<(), String> {
    let bytes = gpu_budget(wanted.budget, gpu.free_bytes, gpu.total_bytes)?;
    MemoryPlan::new(bytes, cuda_needs(model, config)).map(|_| ()).map_err(|e| e.to_string())
}

/// Whether a GPU whose memory so many replicas share can run this model.
fn usable(model: &Model, wanted: &DeviceRequest, gpu: GpuInfo, shares: u32) -> Result<Usable, String> {
    // A budget that cannot be had is the plan's to refuse.
    let bytes = gpu_budget(wanted.budget, gpu.free_bytes, gpu.total_bytes).map(|bytes| bytes / u64::from(shares));
    let any = || {
        let config = wanted.cuda().of(&model.config);
        CudaConfig { activations: config.activations.of(model), ..config }
    };
    let config = bytes.map_or_else(|_| any(), |bytes| wanted.cuda_on(bytes, model));
    let config = CudaConfig { ordinal: gpu.ordinal, ..config };
    let programs = cuda::programs(model, &config, gpu.arch, Some(gpu.chip())).map_err(|e| e.to_string())?;
    if KernelCache::new(KernelCache::default_dir()).missing(&programs, gpu.arch) > 0 {
        Compiler::load().map_err(|e| e.to_string())?;
    }
    Ok((config, gpu))
}

/// That the host has the memory that GPUs read there, for all replicas together.
///
/// # Errors
/// If it has not.
pub fn host_suffices(plans: &[MemoryPlan], free: Option<u64>) -> Result<(), String> {
    let wanted = plans.iter().fold(0u64, |sum, plan| sum.saturating_add(plan.needs.host));
    match free {
        Some(free) if plans.len() > 1 && wanted > free => Err(format!(
            "{} replicas take {} of the host's memory beside their GPUs, of which {} are free; name fewer in \
             engine.devices, or take a smaller file",
            plans.len(),
            Bytes(wanted),
            Bytes(free)
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Engine;
    use crate::memory::Needs;

    fn devices(text: &str) -> Devices {
        text.parse().unwrap()
    }

    /// The numbers of GPUs that are kept of those found, and what is said of others; a GPU is its kind here.
    fn kept_of(text: &str, found: FoundGpus<&str>) -> Result<(Vec<usize>, Vec<String>), String> {
        let (kept, lines) = kept(&devices(text), found, |kind| kind.to_string())?;
        Ok((kept.into_iter().map(|(ordinal, _)| ordinal).collect(), lines))
    }

    #[test]
    fn gpus_are_looked_at_once_each_and_one_that_is_not_there_is_named_with_their_number() {
        let of = |text: &str, count| numbers(&devices(text), count);
        assert_eq!(of("", 4), Ok(vec![0]));
        assert_eq!(of("all", 3), Ok(vec![0, 1, 2]));
        assert_eq!(of("2,0,2,0", 3), Ok(vec![0, 2]));
        let why = of("0,3", 2).unwrap_err();
        assert!(why.starts_with("engine.devices 0,3: there is no GPU 3: the driver shows 2, numbered from 0"), "{why}");
        for text in ["", "all", "0"] {
            assert!(of(text, 0).unwrap_err().starts_with("the driver shows no GPU"), "{text}");
        }
    }

    #[test]
    fn replicas_stand_where_they_are_named_and_share_a_card_that_is_named_again() {
        let place = |ordinal, shares, first| CardPlace { ordinal, shares, first };
        assert_eq!(places(&devices(""), &[0]), [place(0, 1, true)]);
        assert_eq!(places(&devices("all"), &[0, 2]), [place(0, 1, true), place(2, 1, true)]);
        assert_eq!(places(&devices("1,0,1"), &[0, 1]), [place(1, 2, true), place(0, 1, true), place(1, 2, false)]);
    }

    #[test]
    fn all_leaves_out_what_cannot_compute_the_same_and_a_card_that_is_named_has_to() {
        let found = || vec![(0, Err("too small".into())), (1, Ok("sm_90a")), (2, Ok("sm_89")), (3, Ok("sm_90a"))];
        let (kept, lines) = kept_of("all", found()).unwrap();
        assert_eq!(kept, [1, 3]);
        assert_eq!(lines[0], "GPU 0 has no replica: too small");
        assert!(lines[1].starts_with("GPU 2 has no replica: it is of sm_89, and GPU 1 of sm_90a: "), "{lines:?}");
        let why = kept_of("1,0", found()[..2].to_vec()).unwrap_err();
        assert_eq!(why, "engine.devices 1,0: GPU 0: too small");
        let why = kept_of("1,2", found()[1..3].to_vec()).unwrap_err();
        assert!(why.starts_with("engine.devices 1,2: GPU 2: it is of sm_89, and GPU 1 of sm_90a"), "{why}");
        assert_eq!(kept_of("all", found()[..1].to_vec()), Err("GPU 0 has no replica: too small".into()));
        assert_eq!(kept_of("", found()[..1].to_vec()), Err("too small".into()));
    }

    #[test]
    fn a_number_of_replicas_has_to_be_that_of_the_gpus_that_are_named() {
        assert_eq!(agree(&devices("0,1"), 1, 2), Ok(()));
        assert_eq!(agree(&devices("all"), 2, 2), Ok(()));
        let why = agree(&devices("0,1"), 3, 2).unwrap_err();
        assert!(why.starts_with("engine.replicas is 3, and engine.devices 0,1 gives 2"), "{why}");
        let why = agree(&devices(""), 2, 1).unwrap_err();
        assert!(why.starts_with("engine.replicas is 2: ") && why.contains("0,0 for two"), "{why}");
    }

    #[test]
    fn gpus_that_are_named_are_never_replaced_by_the_cpu() {
        let wanted = |device| DeviceRequest { device, ..DeviceRequest::of(&Engine::default(), 4096) };
        let two = devices("0,1");
        assert_eq!(of_gpus(&wanted(Device::Auto), &two).unwrap().device, Device::Cuda);
        assert_eq!(of_gpus(&wanted(Device::Auto), &Devices::First).unwrap().device, Device::Auto);
        let why = of_gpus(&wanted(Device::Cpu), &two).unwrap_err();
        assert_eq!(why.to_string(), "engine.devices 0,1: these are GPUs, and engine.device is cpu");
    }

    #[test]
    fn the_cores_are_shared_evenly_and_not_among_more_replicas_than_there_are() {
        let cpu = CpuConfig { threads: 7, ..DeviceRequest::of(&Engine::default(), 64).cpu(None).unwrap() };
        let all = on_cores(cpu, 3, "said".into()).unwrap();
        let threads = |device: &ReplicaDevice| match &device.setup {
            Setup::Cpu(c) => c.threads,
            Setup::Cuda(..) => 0,
        };
        assert_eq!(all.iter().map(threads).collect::<Vec<_>>(), [2; 3]);
        assert_eq!(all.iter().filter_map(|device| device.said.as_deref()).collect::<Vec<_>>(), ["said"]);
        assert!(all.iter().all(|device| device.shares == 3));
        let why = on_cores(cpu, 8, String::new()).unwrap_err();
        assert!(why.starts_with("engine.replicas is 8, and 7 threads"), "{why}");
    }

    #[test]
    fn what_gpus_read_in_the_host_s_memory_is_counted_for_all_replicas_together() {
        let needs = Needs {
            weights: 1,
            workspace: 0,
            reserve: 0,
            slot: 1,
            page: 1,
            checkpoint: None,
            host: 10 << 30,
            experts: None,
            seqs: 1,
            context: 32,
        };
        let plan = MemoryPlan::new(1 << 20, needs).unwrap();
        assert_eq!(host_suffices(&[plan, plan], Some(20 << 30)), Ok(()));
        assert_eq!(host_suffices(&[plan], Some(0)), Ok(()), "the plan of one has refused it already");
        let why = host_suffices(&[plan, plan], Some(19 << 30)).unwrap_err();
        assert!(why.starts_with("2 replicas take 20.0 GiB of the host's memory"), "{why}");
    }
}
