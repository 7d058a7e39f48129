//! What a device says about itself.

use super::device::Device;
use super::error::{CudaError, DriverResult};
use cudarc::driver::sys;

/// Name, memory and driver of a device, as the driver tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The name that the vendor sells it by.
    pub name: String,
    /// `GPU-` and 32 hexadecimal digits in five groups: what NVML knows the device by, whatever `CUDA_VISIBLE_DEVICES`
    /// renumbers.
    pub uuid: String,
    /// Bytes of device memory.
    pub total_bytes: u64,
    /// Bytes that can be allocated now. This process's own context is there already and is not among them.
    pub free_bytes: u64,
    /// Newest CUDA release that the driver supports, major and minor.
    pub driver: (u32, u32),
}

impl Device {
    /// Asks the driver.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn info(&self) -> Result<DeviceInfo, CudaError> {
        let context = self.stream().context();
        let name = context.name().during("cuDeviceGetName")?;
        let uuid = context.uuid().during("cuDeviceGetUuid")?;
        let (free, total) = context.mem_get_info().during("cuMemGetInfo")?;
        let mut version = 0;
        // SAFETY: a device is open, so the library is there, and it has had this function in every release.
        unsafe { sys::cuDriverGetVersion(&mut version) }.result().during("cuDriverGetVersion")?;
        let version = u32::try_from(version).unwrap_or(0);
        Ok(DeviceInfo {
            name,
            uuid: uuid_text(uuid.bytes.map(|b| b as u8)),
            total_bytes: total as u64,
            free_bytes: free as u64,
            driver: (version / 1000, version % 1000 / 10),
        })
    }
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_reads_as_nvml_writes_it() {
        let bytes = [0x1b, 0x2c, 0x3d, 0x4e, 0x5f, 0x60, 0x71, 0x82, 0x93, 0xa4, 0xb5, 0xc6, 0xd7, 0xe8, 0xf9, 0x0a];
        assert_eq!(uuid_text(bytes), "GPU-1b2c3d4e-5f60-7182-93a4-b5c6d7e8f90a");
    }
}
