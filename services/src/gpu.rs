//! The GPU as NVML sees it: memory, utilisation, power, temperature. NVML is looked for at run time; without it there
//! are no figures.

use crate::metrics;
use chimere_engine::backend::cuda::Nvml;

/// One GPU, looked at from outside.
#[derive(Debug)]
pub struct Gpu {
    nvml: Nvml,
    uuid: String,
}

/// What NVML told; `None` where this card or driver does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuFigures {
    /// Memory of the GPU, in bytes.
    pub total: Option<u64>,
    /// Of them taken, by all processes.
    pub used: Option<u64>,
    /// Of them taken by this process. Absent in most containers, whose process numbers NVML does not know.
    pub process: Option<u64>,
    /// Share of the last moments in which a kernel ran, 0 to 1.
    pub utilization: Option<f64>,
    /// Power that it draws, in watts.
    pub power: Option<f64>,
    /// Temperature, in degrees Celsius.
    pub temperature: Option<f64>,
}

impl Gpu {
    /// Loads NVML and finds the device of this identity. The error is one line.
    pub fn open(uuid: &str) -> Result<Self, String> {
        let nvml = Nvml::load().map_err(|e| format!("NVML: {e}"))?;
        nvml.device(uuid).map_err(|e| format!("NVML: device {uuid}: {e}"))?;
        Ok(Self { nvml, uuid: uuid.to_owned() })
    }

    /// How it is now.
    pub fn figures(&self) -> GpuFigures {
        let Ok(device) = self.nvml.device(&self.uuid) else { return GpuFigures::default() };
        let memory = device.memory();
        GpuFigures {
            total: memory.map(|m| m.total),
            used: memory.map(|m| m.used),
            process: device.process_bytes(std::process::id()),
            utilization: device.utilization().map(|percent| f64::from(percent) / 100.0),
            power: device.power().map(|milliwatts| f64::from(milliwatts) / 1e3),
            temperature: device.temperature().map(f64::from),
        }
    }
}

impl GpuFigures {
    /// The figures of several GPUs as one: bytes and watts in all, mean utilisation, highest temperature.
    pub fn of_all(each: impl Iterator<Item = Self>) -> Self {
        let all: Vec<Self> = each.collect();
        let bytes = |of: fn(&Self) -> Option<u64>| all.iter().filter_map(of).reduce(|sum, one| sum + one);
        let figures = |of: fn(&Self) -> Option<f64>| all.iter().filter_map(of).collect::<Vec<f64>>();
        let utilization = figures(|gpu| gpu.utilization);
        Self {
            total: bytes(|gpu| gpu.total),
            used: bytes(|gpu| gpu.used),
            process: bytes(|gpu| gpu.process),
            utilization: (!utilization.is_empty()).then(|| utilization.iter().sum::<f64>() / utilization.len() as f64),
            power: figures(|gpu| gpu.power).into_iter().reduce(|sum, one| sum + one),
            temperature: figures(|gpu| gpu.temperature).into_iter().reduce(f64::max),
        }
    }

    /// Sets the gauges of what is known.
    pub fn export(&self) {
        for (of, bytes) in [("total", self.total), ("used", self.used), ("process", self.process)] {
            if let Some(bytes) = bytes {
                ::metrics::gauge!(metrics::GPU_MEMORY_BYTES, "of" => of).set(bytes as f64);
            }
        }
        let others = [
            (metrics::GPU_UTILIZATION, self.utilization),
            (metrics::GPU_POWER_WATTS, self.power),
            (metrics::GPU_TEMPERATURE, self.temperature),
        ];
        for (name, value) in others {
            if let Some(value) = value {
                ::metrics::gauge!(name).set(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_is_not_there_is_one_line() {
        let error = Gpu::open("GPU-00000000-0000-0000-0000-000000000000").unwrap_err();
        assert!(error.starts_with("NVML: ") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn several_gpus_are_told_of_as_one_and_what_none_tells_stays_away() {
        let one = |used, utilization, temperature| GpuFigures {
            used: Some(used),
            utilization: Some(utilization),
            temperature: Some(temperature),
            ..GpuFigures::default()
        };
        let all = GpuFigures::of_all([one(3, 1.0, 50.0), GpuFigures::default(), one(4, 0.5, 70.0)].into_iter());
        assert_eq!(all, one(7, 0.75, 70.0));
        assert_eq!(GpuFigures::of_all([].into_iter()), GpuFigures::default());
    }

    #[test]
    fn what_is_told_is_exported_and_what_is_not_told_stays_away() {
        let handle = metrics::install();
        GpuFigures { total: Some(16), power: Some(250.5), ..GpuFigures::default() }.export();
        let text = handle.render();
        assert!(text.contains("chimere_gpu_memory_bytes{of=\"total\"} 16"), "{text}");
        assert!(text.contains("chimere_gpu_power_watts 250.5"), "{text}");
        assert!(!text.contains("chimere_gpu_temperature_celsius "), "{text}");
    }
}
