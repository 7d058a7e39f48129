//! The replicas of a service: where each computes, in how much memory, and how its backend is built.

use super::ServeError;
use super::log::ProcessLog;
use crate::actors::engine::Build;
use crate::config::Config;
use crate::device::{self, DeviceError, EarlyLook, PlannedReplica, Setup};
use crate::limits;
use crate::memory::MemoryPlan;
use crate::replicas::ReplicaBuild;
use chimere_engine::backend::cpu::Reservation;
use chimere_engine::model::Model;
use chimere_engine::scheduler::{Pace, PrefixConfig, Recompute, SchedulerConfig};
use std::io::IsTerminal;
use std::sync::Arc;

/// A replica that can be built, with the addresses that are kept for one that computes on the CPU.
pub(super) struct ReservedReplica {
    pub(super) setup: Setup,
    plan: MemoryPlan,
    reserved: Option<Reservation>,
}

/// Decides where to compute and what for, and tells.
pub(super) fn set_up(
    config: &Config,
    model: &Model,
    look: EarlyLook,
    log: &ProcessLog,
) -> Result<Vec<ReservedReplica>, ServeError> {
    let planned = device::plan_replicas(config, model, look, &mut |line| log.say(line)).map_err(|e| match e {
        DeviceError::Usage(why) => ServeError::Usage(why),
        DeviceError::Unusable(why) => ServeError::Start(why),
    })?;
    MemoryPlan::export(planned.iter().map(|one| &one.plan));
    let reserve = |PlannedReplica { setup, plan }| {
        let reserved = setup.gpu().is_none().then(|| plan.reserve()).transpose().map_err(ServeError::Start)?;
        Ok(ReservedReplica { setup, plan, reserved })
    };
    planned.into_iter().map(reserve).collect()
}

/// What NVML knows the GPUs by that compute, each once.
pub(super) fn gpus(planned: &[ReservedReplica]) -> Vec<String> {
    let mut all: Vec<_> = planned.iter().filter_map(|one| one.setup.gpu()).collect();
    all.sort_by_key(|gpu| gpu.ordinal);
    all.dedup_by_key(|gpu| gpu.ordinal);
    all.into_iter().map(|gpu| gpu.uuid.clone()).collect()
}

/// What makes the backend of each replica, and what its scheduler goes by. They share the model's file; each packs
/// weights of its own.
pub(super) fn builds(
    config: &Config,
    model: Model,
    planned: Vec<ReservedReplica>,
    log: &ProcessLog,
) -> Vec<ReplicaBuild> {
    let (model, core) = (Arc::new(model), config.engine.core);
    let each =
        planned.into_iter().enumerate().map(|(number, ReservedReplica { setup, plan, reserved })| ReplicaBuild {
            config: scheduler_config(config, &setup, plan.prefix()),
            pace: pace(config, &setup),
            build: build(model.clone(), setup, reserved, log.clone()),
            core: usize::try_from(core).ok().map(|core| core + number),
        });
    each.collect()
}

fn build(model: Arc<Model>, setup: Setup, reserved: Option<Reservation>, log: ProcessLog) -> Build {
    Box::new(move || {
        // What was kept for the backend is its own now.
        drop(reserved);
        let mut progress = LoadProgress::new(log);
        let backend = setup.build(&model, &mut |share| progress.show(share))?;
        progress.end();
        Ok(backend.boxed())
    })
}

fn scheduler_config(config: &Config, setup: &Setup, prefix: PrefixConfig) -> SchedulerConfig {
    SchedulerConfig {
        slots: setup.slots(),
        pages: setup.pages(),
        step_tokens: if config.engine.step_tokens == 0 { setup.step_tokens() } else { config.engine.step_tokens },
        context: setup.context(),
        queue_requests_max: config.limits.queue_requests,
        queue_prompt_tokens_max: config.limits.queue_prompt_tokens,
        steps_in_flight_max: limits::STEPS_IN_FLIGHT_MAX,
        adapter_slots: setup.adapter_slots().min(config.adapters.slots_used()),
        prefix,
    }
}

/// Targets and bounds in time.
pub fn pace(config: &Config, setup: &Setup) -> Pace {
    Pace {
        target_us: 1_000 * u64::from(config.engine.itl_target_ms),
        wait_us_max: config.limits.predicted_wait_seconds.saturating_mul(1_000_000),
        recompute: setup.pass_rows().map(|rows| Recompute { rows, passes_max: limits::RECOMPUTED_PASSES_MAX }),
        // Beside prompts a GPU's decode rows are graphs of their own; a CPU's go through every matrix with the prompts.
        apart: setup.gpu().is_some(),
        ahead_us: limits::PLAN_AHEAD_US,
        ..Pace::default()
    }
}

/// One line that says how far loading is, on a terminal only: a log has no use for it.
struct LoadProgress {
    log: ProcessLog,
    shown: Option<u32>,
    terminal: bool,
}

impl LoadProgress {
    fn new(log: ProcessLog) -> Self {
        Self { log, shown: None, terminal: std::io::stderr().is_terminal() }
    }

    fn show(&mut self, share: f32) {
        let percent = (share.clamp(0.0, 1.0) * 100.0) as u32;
        if self.terminal && self.shown.replace(percent) != Some(percent) {
            self.log.show(&format!("\rloading {percent:3} %"));
        }
    }

    fn end(&self) {
        if self.terminal && self.shown.is_some() {
            self.log.show("\n");
        }
    }
}
