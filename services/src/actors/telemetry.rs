//! The telemetry actor: figures that nobody else comes across, taken on a timer.

use crate::metrics;
use actix::prelude::*;
use metrics_exporter_prometheus::PrometheusHandle;
use std::time::Duration;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// How often.
const PERIOD: Duration = Duration::from_secs(5);

/// Reads the process's memory and lets the metrics recorder drain its histograms.
pub struct TelemetryActor {
    /// `None` where the system gives no figures.
    system: Option<System>,
    recorder: PrometheusHandle,
}

impl TelemetryActor {
    /// For this process.
    pub fn new(recorder: PrometheusHandle) -> Self {
        Self { system: System::new().ok(), recorder }
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
        self.recorder.run_upkeep();
    }
}

impl Actor for TelemetryActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.measure();
        ctx.run_interval(PERIOD, |this, _| this.measure());
    }
}
