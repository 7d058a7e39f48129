//! The telemetry actor: figures that nobody else comes across, taken on a timer.

use crate::gpu::{Gpu, GpuFigures};
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
    /// Those that compute; empty without NVML.
    gpus: Vec<Gpu>,
    /// `None` where no metrics are kept.
    recorder: Option<PrometheusHandle>,
}

impl TelemetryActor {
    /// For this process, and for the GPUs of these identities.
    pub fn new(recorder: Option<PrometheusHandle>, gpus: &[String]) -> Self {
        let open = |uuid: &String| Gpu::open(uuid).map_err(|why| tracing::warn!(why, "no figures of the GPU")).ok();
        Self { system: System::new().ok(), gpus: gpus.iter().filter_map(open).collect(), recorder }
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
        GpuFigures::of_all(self.gpus.iter().map(Gpu::figures)).export();
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
