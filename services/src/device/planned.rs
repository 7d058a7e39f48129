//! The replicas of a service before they are built: each with its device and the plan of its part of the memory.

use super::{DeviceError, DeviceRequest, EarlyLook, ReplicaDevice, Setup, cards, context, missing_prefix_cache};
use crate::config::{Config, PrefixCacheMode};
use crate::memory::{MemoryPlan, free_bytes};
use chimere_engine::model::Model;

/// A replica that can be built.
#[derive(Clone, Debug)]
pub struct PlannedReplica {
    /// The device, with the room that was planned.
    pub setup: Setup,
    /// How its part of the memory is split.
    pub plan: MemoryPlan,
}

/// Decides where to compute and what for. `say` is told what an operator reads, a line or a table at a time.
///
/// # Errors
/// If no device can be used, or a plan does not fit into its memory.
pub fn plan_replicas(
    config: &Config,
    model: &Model,
    look: EarlyLook,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<PlannedReplica>, DeviceError> {
    let engine = &config.engine;
    let context = context(engine, model).map_err(DeviceError::Usage)?;
    let wanted = DeviceRequest { adapters: config.adapters.room(), ..DeviceRequest::of(engine, context) };
    let (devices, notes) = cards::choose_replicas(&wanted, engine.replicas, model, look)?;
    notes.iter().for_each(|note| say(note));
    let replicas = devices.len() as u32;
    let planned: Vec<_> =
        devices.into_iter().map(|device| planned(device, replicas, config, model, say)).collect::<Result<_, _>>()?;
    let plans: Vec<_> = planned.iter().map(|one| one.plan).collect();
    cards::host_suffices(&plans, free_bytes()).map_err(DeviceError::Unusable)?;
    Ok(planned)
}

fn planned(
    device: ReplicaDevice,
    replicas: u32,
    config: &Config,
    model: &Model,
    say: &mut dyn FnMut(&str),
) -> Result<PlannedReplica, DeviceError> {
    let ReplicaDevice { mut setup, shares, said } = device;
    if let Some(said) = &said {
        say(said);
    }
    let prefix = config.cache.prefix;
    // Beside others, the message has to say which of the cards it is about.
    let of_card = |why: String| {
        let card = setup.gpu().filter(|_| replicas > 1).map(|gpu| format!("GPU {}: ", gpu.ordinal));
        DeviceError::Unusable(card.unwrap_or_default() + &why)
    };
    let budget = setup.budget(config.engine.vram_budget, shares).map_err(of_card)?;
    let plan = setup.plan(budget, model, prefix != PrefixCacheMode::Off).map_err(of_card)?;
    let plan = setup.with_host_cache(plan, config.cache.host_budget, replicas).map_err(of_card)?;
    let missing = missing_prefix_cache(&plan, prefix).map_err(of_card)?;
    if said.is_some() {
        say(&plan.to_string());
        missing.iter().for_each(|note| say(note));
    }
    setup.set_room(&plan);
    Ok(PlannedReplica { setup, plan })
}
