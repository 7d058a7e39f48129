//! The telemetry actor: figures that nobody else comes across, taken on a timer.

use crate::gpu::Gpu;
use crate::metrics;
use actix::prelude::*;
use metrics_exporter_prometheus::PrometheusHandle;
use std::time::Duration;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// Time between two looks at the process and the GPU.
const PERIOD: Duration = Duration::from_secs(5);

/// Reads the process's memory, asks NVML about the GPU, and lets the metrics recorder drain its histograms.
pub struct TelemetryActor {
    /// `None` where the system gives no figures.
    system: Option<System>,
    /// `None` without a GPU, or without NVML.
    gpu: Option<Gpu>,
    /// `None` where no metrics are kept.
    recorder: Option<PrometheusHandle>,
}

impl TelemetryActor {
    /// For this process, and for the GPU of this identity where one computes.
    pub fn new(recorder: Option<PrometheusHandle>, gpu: Option<String>) -> Self {
        let opened =
            gpu.and_then(|uuid| Gpu::open(&uuid).map_err(|why| tracing::warn!(why, "no figures of the GPU")).ok());
        Self { system: System::new().ok(), gpu: opened, recorder }
    }

    fn measure(&mut self) {
        let pid = Pid::from_u32(std::process::id());
        let what = ProcessRefreshKind::nothing().with_memory();
        if let Some(system) = &mut self.system {
            system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), false, what);
            if let Some(process) = system.process(pid) {
                ::metrics::gauge!(metrics::MEMORY_BYTES, "use" => "process").set(process.memory() as f64);
            }
        }
        if let Some(gpu) = &self.gpu {
            gpu.figures().export();
        }
        if let Some(recorder) = &self.recorder {
            recorder.run_upkeep();
        }
    }
}

impl Actor for TelemetryActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.measure();
        ctx.run_interval(PERIOD, |this, _| this.measure());
    }
}
