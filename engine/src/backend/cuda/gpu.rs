//! The device before there is a backend: is there one that can be used, and how much memory has it?

use chimere_kernels::cuda::wide::Chip;
use chimere_kernels::cuda::{Arch, CudaError, Device, DeviceInfo};
use std::sync::Arc;

/// A device that was opened. Its context lives as long as this does, so that whoever opens the device next finds it
/// warm.
#[derive(Clone, Debug)]
pub struct GpuInfo {
    /// Which of the devices that the driver shows.
    pub ordinal: usize,
    /// The name that the vendor sells it by.
    pub name: String,
    /// What NVML knows it by.
    pub uuid: String,
    /// Bytes of device memory.
    pub total_bytes: u64,
    /// Bytes that can be allocated now, this process's context not among them.
    pub free_bytes: u64,
    /// What machine code it runs.
    pub arch: Arch,
    /// Newest CUDA release that the driver supports, major and minor.
    pub driver: (u32, u32),
    device: Arc<Device>,
}

impl GpuInfo {
    /// What the choice of tiles has to know of it.
    pub fn chip(&self) -> Chip {
        Chip::of(&self.device)
    }
}

/// How many devices the driver shows.
///
/// # Errors
/// If there is no driver, or it is too old.
pub fn device_count() -> Result<usize, CudaError> {
    Device::count()
}

/// Opens device `ordinal` and asks what it is.
///
/// # Errors
/// If there is no driver, it is too old, there is no such device, or no code is made for it.
pub fn probe(ordinal: usize) -> Result<GpuInfo, CudaError> {
    let device = Device::open(ordinal)?;
    let DeviceInfo { name, uuid, total_bytes, free_bytes, driver } = device.info()?;
    Ok(GpuInfo { ordinal, name, uuid, total_bytes, free_bytes, arch: device.arch(), driver, device: Arc::new(device) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_an_error_and_no_panic() {
        let error = probe(4096).unwrap_err().to_string();
        assert!(!error.is_empty());
    }
}
