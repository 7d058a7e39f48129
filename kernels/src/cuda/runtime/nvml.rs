//! What the driver's management library says about a GPU from outside: seven functions of it, looked up at run time, so
//! that neither building nor starting needs it. All of it may be absent; what a card or driver does not tell is `None`.

use libloading::Library;
use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

/// Where it may be: by the name that drivers bring, and by that of development packages.
const NAMES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];
/// Room for processes that begin between the question how many there are and the one which.
const PROCESSES_MORE: u32 = 5;

/// Codes that functions return: `NVML_SUCCESS`, `NVML_ERROR_INSUFFICIENT_SIZE` and `NVML_ERROR_FUNCTION_NOT_FOUND`.
const SUCCESS: c_int = 0;
const INSUFFICIENT_SIZE: c_int = 7;
const FUNCTION_NOT_FOUND: c_int = 13;
/// Stands for a number that the driver does not know: `NVML_VALUE_NOT_AVAILABLE`.
const NOT_AVAILABLE: u64 = u64::MAX;
/// Names the sensor of the chip itself: `NVML_TEMPERATURE_GPU`.
const SENSOR_OF_THE_CHIP: c_int = 0;
/// Version of [`MemoryCall`] as the library wants it: `NVML_STRUCT_VERSION(Memory, 2)`.
const MEMORY_VERSION: c_uint = size_of::<MemoryCall>() as c_uint | 2 << 24;

/// The library, initialised until it is dropped.
#[derive(Debug)]
pub struct Nvml {
    library: Library,
}

/// Why it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NvmlError {
    /// It cannot be loaded.
    #[error("{0}")]
    Absent(String),
    /// A function of the library returned an error.
    #[error("{call}: {why}")]
    Refused {
        /// Name of the function that was called.
        call: &'static str,
        /// The library's own words, or the number of its error.
        why: String,
    },
}

/// A device that the library knows.
#[derive(Clone, Copy)]
pub struct NvmlDevice<'a> {
    nvml: &'a Nvml,
    handle: *mut c_void,
}

/// Bytes of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmlMemory {
    /// All that there is.
    pub total: u64,
    /// Taken by all processes, without what the driver keeps for itself.
    pub used: u64,
}

/// Memory of a device in bytes, laid out as the library's `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Default)]
struct MemoryCall {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// Utilisation of a device in per cent, laid out as the library's `nvmlUtilization_t`.
#[repr(C)]
#[derive(Default)]
struct UtilizationCall {
    gpu: c_uint,
    memory: c_uint,
}

/// Memory of one process in bytes, laid out as the library's `nvmlProcessInfo_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessCall {
    pid: c_uint,
    used_bytes: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

type Plain = unsafe extern "C" fn() -> c_int;
type ErrorText = unsafe extern "C" fn(c_int) -> *const c_char;
type DeviceByUuid = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type MemoryOf = unsafe extern "C" fn(*mut c_void, *mut MemoryCall) -> c_int;
type UtilizationOf = unsafe extern "C" fn(*mut c_void, *mut UtilizationCall) -> c_int;
type PowerOf = unsafe extern "C" fn(*mut c_void, *mut c_uint) -> c_int;
type TemperatureOf = unsafe extern "C" fn(*mut c_void, c_int, *mut c_uint) -> c_int;
type ProcessesOf = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut ProcessCall) -> c_int;

impl Nvml {
    /// Loads and initialises it.
    ///
    /// # Errors
    /// If there is none, or it finds no driver.
    pub fn load() -> Result<Self, NvmlError> {
        // SAFETY: the library is the driver's; its initialisers do nothing that depends on our state.
        let load = |name: &str| unsafe { Library::new(name) };
        let library = load(NAMES[0]).or_else(|first| load(NAMES[1]).map_err(|_| first));
        let library =
            library.map_err(|e| NvmlError::Absent(e.source().map_or_else(|| e.to_string(), |e| e.to_string())))?;
        // SAFETY: the type is the header's.
        unsafe { ask::<Plain>(&library, "nvmlInit_v2", |initialise| initialise()) }?;
        Ok(Self { library })
    }

    /// The device of this identity, `GPU-` and hexadecimal digits.
    ///
    /// # Errors
    /// If there is none.
    pub fn device(&self, uuid: &str) -> Result<NvmlDevice<'_>, NvmlError> {
        let call = "nvmlDeviceGetHandleByUUID";
        let text = CString::new(uuid).map_err(|e| NvmlError::Refused { call, why: e.to_string() })?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the type is the header's; the text ends in zero and outlives the call.
        unsafe { ask::<DeviceByUuid>(&self.library, call, |find| find(text.as_ptr(), &mut handle)) }?;
        Ok(NvmlDevice { nvml: self, handle })
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: the type is the header's; devices borrow `self`, so none is left. Nothing is to be done if it fails.
        let _ = unsafe { ask::<Plain>(&self.library, "nvmlShutdown", |shut_down| shut_down()) };
    }
}

impl NvmlDevice<'_> {
    /// How its memory is taken.
    pub fn memory(&self) -> Option<NvmlMemory> {
        let mut told = MemoryCall { version: MEMORY_VERSION, ..MemoryCall::default() };
        // SAFETY: the structure is that of its version.
        self.ask::<MemoryOf>("nvmlDeviceGetMemoryInfo_v2", |of| unsafe { of(self.handle, &mut told) })?;
        Some(NvmlMemory { total: told.total, used: told.used })
    }

    /// Share of the last moments in which a kernel ran, in per cent.
    pub fn utilization(&self) -> Option<u32> {
        let mut told = UtilizationCall::default();
        // SAFETY: the structure is the header's.
        self.ask::<UtilizationOf>("nvmlDeviceGetUtilizationRates", |of| unsafe { of(self.handle, &mut told) })?;
        Some(told.gpu)
    }

    /// Power that it draws, in milliwatts.
    pub fn power(&self) -> Option<u32> {
        let mut told = 0;
        // SAFETY: it writes one number.
        self.ask::<PowerOf>("nvmlDeviceGetPowerUsage", |of| unsafe { of(self.handle, &mut told) })?;
        Some(told)
    }

    /// Temperature of the chip, in degrees Celsius.
    pub fn temperature(&self) -> Option<u32> {
        let mut told = 0;
        let call = "nvmlDeviceGetTemperature";
        // SAFETY: as above.
        self.ask::<TemperatureOf>(call, |of| unsafe { of(self.handle, SENSOR_OF_THE_CHIP, &mut told) })?;
        Some(told)
    }

    /// Bytes of its memory that a process with a compute context has. Absent in most containers, whose process numbers
    /// the library does not know.
    pub fn process_bytes(&self, pid: u32) -> Option<u64> {
        let own = self.processes()?.into_iter().find(|process| process.pid == pid)?;
        (own.used_bytes != NOT_AVAILABLE).then_some(own.used_bytes)
    }

    fn processes(&self) -> Option<Vec<ProcessCall>> {
        let (call, mut count, mut all) = ("nvmlDeviceGetComputeRunningProcesses_v3", 0, Vec::new());
        self.ask::<ProcessesOf>(call, |of| {
            // SAFETY: without room it writes the count alone.
            match unsafe { of(self.handle, &mut count, std::ptr::null_mut()) } {
                INSUFFICIENT_SIZE => {
                    count += PROCESSES_MORE;
                    all.resize(count as usize, ProcessCall::default());
                    // SAFETY: there is room for as many as `count` says.
                    unsafe { of(self.handle, &mut count, all.as_mut_ptr()) }
                }
                code => code,
            }
        })?;
        all.truncate(count as usize);
        Some(all)
    }

    /// Asks something that cards and drivers need not know. What `call` writes to outlives it.
    fn ask<F: Copy>(&self, name: &'static str, call: impl FnOnce(F) -> c_int) -> Option<()> {
        // SAFETY: the callers' types are the header's, and the handle is of a library that is still loaded.
        unsafe { ask(&self.nvml.library, name, call) }.ok()
    }
}

/// Calls the function `name`.
///
/// # Safety
/// `F` is its type, and `call` calls it with what it takes.
unsafe fn ask<F: Copy>(library: &Library, name: &'static str, call: impl FnOnce(F) -> c_int) -> Result<(), NvmlError> {
    // SAFETY: the caller's.
    let code = match unsafe { library.get::<F>(name) } {
        Ok(function) => call(*function),
        Err(_) => FUNCTION_NOT_FOUND,
    };
    if code == SUCCESS { Ok(()) } else { Err(NvmlError::Refused { call: name, why: words(library, code) }) }
}

/// What the library says to an error.
fn words(library: &Library, code: c_int) -> String {
    // SAFETY: the type is the header's, and the text is static.
    let text = unsafe {
        let text = library.get::<ErrorText>("nvmlErrorString").map_or(std::ptr::null(), |of| of(code));
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    text.unwrap_or_else(|| format!("error {code}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_lies_as_in_the_header() {
        assert_eq!((size_of::<MemoryCall>(), std::mem::offset_of!(MemoryCall, used)), (40, 32));
        assert_eq!((size_of::<ProcessCall>(), std::mem::offset_of!(ProcessCall, used_bytes)), (24, 8));
        assert_eq!(MEMORY_VERSION, 0x0200_0028);
    }

    #[test]
    fn a_library_without_a_function_refuses_it() {
        // SAFETY: the C library, which is loaded anyway.
        let library = unsafe { Library::new("libc.so.6") }.unwrap();
        // SAFETY: there is no such function, so nothing is called.
        let refused = unsafe { ask::<Plain>(&library, "nvmlInit_v2", |initialise| initialise()) }.unwrap_err();
        assert_eq!(refused.to_string(), "nvmlInit_v2: error 13");
    }
}
