//! One device: its stream, loaded machine code, and the launch of a kernel.

use super::error::DriverResult;
use super::{Arch, CudaError, KernelCache, Program};
use cudarc::driver::{CudaContext, CudaStream, result, sys};
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// The oldest interface that is used here.
const DRIVER_VERSION_MIN: i32 = 13000;

/// A device that kernels run on, in order, on one stream.
#[derive(Debug)]
pub struct Device {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    arch: Arch,
    multiprocessors: u32,
}

impl Device {
    /// Opens device `ordinal`.
    ///
    /// # Errors
    /// If there is no driver, it is too old, there is no such device, or it is of a kind that no code is made for.
    pub fn open(ordinal: usize) -> Result<Self, CudaError> {
        // SAFETY: only tries to load the library.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        let mut version = 0;
        // SAFETY: the library is present, and has had this function in every release.
        unsafe { sys::cuDriverGetVersion(&mut version) }.result().during("cuDriverGetVersion")?;
        if version < DRIVER_VERSION_MIN {
            return Err(CudaError::OldDriver { version });
        }
        let context = CudaContext::new(ordinal).during("cuDevicePrimaryCtxRetain")?;
        // SAFETY: everything runs on one stream, whose order is all the synchronisation that buffers need.
        unsafe { context.disable_event_tracking() };
        let (major, minor) = context.compute_capability().during("cuDeviceGetAttribute")?;
        let arch = Arch::of_capability(major, minor).ok_or_else(|| CudaError::Arch { got: format!("sm_{major}{minor}") })?;
        let count = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let multiprocessors = context.attribute(count).during("cuDeviceGetAttribute")? as u32;
        let stream = context.new_stream().during("cuStreamCreate")?;
        Ok(Self { context, stream, arch, multiprocessors })
    }

    /// Where everything runs.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// What code it runs.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// How many blocks run at a time, at least.
    pub fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// Loads `program` from the cache, compiling it if need be.
    ///
    /// # Errors
    /// If it cannot be compiled or loaded.
    pub fn module(&self, cache: &KernelCache, program: &Program) -> Result<Arc<Module>, CudaError> {
        let cubin = cache.get(program, self.arch)?;
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        // SAFETY: a cubin says how long it is; the driver copies it.
        let module = unsafe { result::module::load_data(cubin.as_ptr().cast::<c_void>()) }.during("cuModuleLoadData")?;
        Ok(Arc::new(Module { module, _context: self.context.clone() }))
    }
}

/// Loaded machine code of one program.
#[derive(Debug)]
pub struct Module {
    module: sys::CUmodule,
    /// Outlives the module.
    _context: Arc<CudaContext>,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// The kernel called `name`.
    ///
    /// # Errors
    /// If there is none.
    pub fn kernel(self: &Arc<Self>, name: &str) -> Result<Kernel, CudaError> {
        let name = CString::new(name).expect("kernel names have no zero bytes");
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(self.module, name) }.during("cuModuleGetFunction")?;
        Ok(Kernel { function, _module: self.clone() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded by `Device::module`; kernels keep the module alive. A failure leaves nothing to do.
        let _ = unsafe { result::module::unload(self.module) };
    }
}

/// Blocks and threads of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks, x and y.
    pub blocks: (u32, u32),
    /// Threads of a block.
    pub threads: u32,
}

/// A function that can be launched.
#[derive(Clone, Debug)]
pub struct Kernel {
    function: sys::CUfunction,
    /// Outlives the function.
    _module: Arc<Module>,
}

// SAFETY: as for `Module`.
unsafe impl Send for Kernel {}
// SAFETY: as for `Module`.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Enqueues the kernel, on chips that can with leave to start while the one before it drains.
    ///
    /// # Errors
    /// If the driver refuses; what happens on the device shows later.
    ///
    /// # Safety
    /// `params` point to what the kernel's parameters are, in number, order and type. Memory that they name is the device's, as
    /// large as the kernel takes it to be, and lives until the stream has passed the launch. The kernel waits for the one before
    /// it before it touches what that one writes.
    pub(super) unsafe fn launch(&self, device: &Device, grid: Grid, params: &mut [*mut c_void]) -> Result<(), CudaError> {
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: grid.blocks.0,
            gridDimY: grid.blocks.1,
            gridDimZ: 1,
            blockDimX: grid.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: device.stream.cu_stream(),
            attrs: &mut attribute,
            numAttrs: u32::from(device.arch.has_dependent_launch()),
        };
        device.context.bind_to_thread().during("cuCtxSetCurrent")?;
        // SAFETY: function, stream and attribute are alive; the caller vouches for the parameters.
        unsafe { sys::cuLaunchKernelEx(&config, self.function, params.as_mut_ptr(), std::ptr::null_mut()) }
            .result()
            .during("cuLaunchKernelEx")
    }
}
