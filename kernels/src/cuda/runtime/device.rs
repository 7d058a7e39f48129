//! One device: its stream, loaded machine code, and the launch of a kernel.

use super::arguments::DeviceStruct;
use super::cache::KernelCache;
use super::compiler::{Arch, Program};
use super::error::{CudaError, DriverResult};
use super::waits::{EndedWait, WaitRecord};
use cudarc::driver::{CudaContext, CudaStream, result, sys};
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

/// The oldest interface that is used here.
const DRIVER_VERSION_MIN: i32 = 13000;

/// Bytes of local memory that the driver keeps for each thread.
const STACK: sys::CUlimit = sys::CUlimit::CU_LIMIT_STACK_SIZE;

/// What it keeps until it is told otherwise.
const STACK_DEFAULT: usize = 1024;

/// A device that kernels run on, in order, on one stream.
#[derive(Debug)]
pub struct Device {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    arch: Arch,
    multiprocessors: u32,
    /// By what they were compiled from: layers of the same shape share their code.
    modules: Mutex<HashMap<String, Arc<Module>>>,
    /// Where kernels record waits that a bound has ended.
    waits: Arc<WaitRecord>,
    /// Given to every program beside its own.
    defines: Vec<(&'static str, i64)>,
}

impl Device {
    /// Opens device `ordinal` in its primary context, which all of the process have in common.
    ///
    /// # Errors
    /// If there is no driver, it is too old, there is no such device, or it is of a kind that no code is made for.
    pub fn open(ordinal: usize) -> Result<Self, CudaError> {
        Self::check(ordinal)?;
        Self::within(CudaContext::new(ordinal).during("cuDevicePrimaryCtxRetain")?)
    }

    /// Opens device `ordinal` in a context of its own: the device runs one context at a time, so kernels of this one
    /// never share the chip with those of another. A trap in another one's context ended this one too on an H200.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn open_apart(ordinal: usize) -> Result<Self, CudaError> {
        Self::check(ordinal)?;
        Self::within(CudaContext::new_non_primary(ordinal, 0).during("cuCtxCreate")?)
    }

    /// How many devices the driver shows; they are numbered from 0.
    ///
    /// # Errors
    /// If there is no driver, or it is too old.
    pub fn count() -> Result<usize, CudaError> {
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
        Ok(usize::try_from(CudaContext::device_count().during("cuDeviceGetCount")?).unwrap_or(0))
    }

    fn check(ordinal: usize) -> Result<(), CudaError> {
        match Self::count()? {
            count if ordinal < count => Ok(()),
            count => Err(CudaError::NoDevice { ordinal, count }),
        }
    }

    fn within(context: Arc<CudaContext>) -> Result<Self, CudaError> {
        // SAFETY: the order of one stream is all the synchronisation that buffers need; who takes a second says
        // `follow`.
        unsafe { context.disable_event_tracking() };
        // The driver keeps a stack for each thread that the chip can hold: by its default 264 MiB on an H200. The
        // kernels here want next to none, and
        // `Module::kernel` raises the limit to what one does; whoever opened the device before may have done so
        // already. A driver that refuses stays with more than is needed.
        if context.get_limit(STACK).is_ok_and(|bytes| bytes == STACK_DEFAULT) {
            let _ = context.set_limit(STACK, 0);
        }
        let (major, minor) = context.compute_capability().during("cuDeviceGetAttribute")?;
        let arch =
            Arch::of_capability(major, minor).ok_or_else(|| CudaError::Arch { got: format!("sm_{major}{minor}") })?;
        let count = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let multiprocessors = context.attribute(count).during("cuDeviceGetAttribute")? as u32;
        let stream = context.new_stream().during("cuStreamCreate")?;
        let waits = Arc::new(WaitRecord::new(&context)?);
        let (modules, defines) = (Mutex::default(), Vec::new());
        Ok(Self { context, stream, arch, multiprocessors, modules, waits, defines })
    }

    /// Makes a second handle of the device with a stream of its own, for work that may run beside this one's.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn beside(&self) -> Result<Self, CudaError> {
        let stream = self.context.new_stream().during("cuStreamCreate")?;
        let (context, arch, multiprocessors) = (self.context.clone(), self.arch, self.multiprocessors);
        let (modules, waits, defines) = (Mutex::default(), self.waits.clone(), self.defines.clone());
        Ok(Self { context, stream, arch, multiprocessors, modules, waits, defines })
    }

    /// Gives these definitions to every program that is loaded from now on, beside the program's own; for tests.
    pub fn with_defines(self, defines: Vec<(&'static str, i64)>) -> Self {
        Self { defines, ..self }
    }

    /// The waits of kernels that a bound has ended; after the first one nothing runs on the device any more. Whoever
    /// reports that a step failed says these too. Asks neither driver nor device, which do not answer then.
    pub fn ended_waits(&self) -> Vec<EndedWait> {
        self.waits.ended()
    }

    /// What `error` says of a step that failed, and the waits that a bound has ended, which the driver does not know.
    pub fn explain(&self, error: &dyn std::fmt::Display) -> String {
        std::iter::once(error.to_string())
            .chain(self.ended_waits().iter().map(EndedWait::to_string))
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// What is enqueued from now on begins when all that `other` was given so far is done. While one of them is
    /// captured into a graph this is a dependency of the graph.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn follow(&self, other: &Self) -> Result<(), CudaError> {
        self.stream.join(&other.stream).during("cuStreamWaitEvent")
    }

    /// The stream that every launch and copy runs on.
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

    /// Bytes of shared memory that a block may have.
    ///
    /// # Errors
    /// If the driver does not say.
    pub fn shared_memory_max(&self) -> Result<usize, CudaError> {
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        Ok(self.context.attribute(attribute).during("cuDeviceGetAttribute")? as usize)
    }

    /// Loads `program` from the cache, compiling it if need be. The same program is loaded once.
    ///
    /// # Errors
    /// If it cannot be compiled or loaded.
    pub fn module(&self, cache: &KernelCache, program: &Program) -> Result<Arc<Module>, CudaError> {
        let mut program = program.clone();
        program.defines.extend(&self.defines);
        let program = &program;
        let mut modules = self.modules.lock().expect("nothing panics while it is held");
        let fingerprint = program.fingerprint(self.arch);
        if let Some(module) = modules.get(&fingerprint) {
            return Ok(module.clone());
        }
        let cubin = cache.get(program, self.arch)?;
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        // SAFETY: a cubin says how long it is; the driver copies it.
        let module =
            unsafe { result::module::load_data(cubin.as_ptr().cast::<c_void>()) }.during("cuModuleLoadData")?;
        let (context, waits) = (self.context.clone(), self.waits.clone());
        let module = Arc::new(Module { module, context, waits });
        // SAFETY: just loaded, and the module holds the record.
        unsafe { self.waits.keep_for(module.module) }?;
        modules.insert(fingerprint, module.clone());
        Ok(module)
    }
}

/// Loaded machine code of one program.
#[derive(Debug)]
pub struct Module {
    module: sys::CUmodule,
    /// Held so that it outlives the module.
    context: Arc<CudaContext>,
    /// Held so that the record outlives the module, whose kernels have its address.
    #[expect(dead_code, reason = "held, not read")]
    waits: Arc<WaitRecord>,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// The kernel called `name`, whose one parameter is an `A`.
    ///
    /// # Errors
    /// If there is none, or its parameter is of another size.
    pub(in crate::cuda) fn kernel<A: DeviceStruct>(self: &Arc<Self>, name: &str) -> Result<Kernel<A>, CudaError> {
        let c_name = CString::new(name).expect("kernel names have no zero bytes");
        // The thread may have worked with another device since the module was loaded.
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(self.module, c_name) }.during("cuModuleGetFunction")?;
        let (mut offset, mut bytes) = (0, 0);
        // SAFETY: the function is loaded; the driver writes two numbers.
        unsafe { sys::cuFuncGetParamInfo(function, 0, &mut offset, &mut bytes) }
            .result()
            .during("cuFuncGetParamInfo")?;
        if bytes != size_of::<A>() {
            return Err(CudaError::Argument { kernel: name.into(), got: bytes, want: size_of::<A>() });
        }
        self.keep_stack(function)?;
        Ok(Kernel { function, shared_bytes: 0, module: self.clone(), _argument: PhantomData })
    }
}

impl Module {
    /// Has the driver take now what local memory the function wants, and not when it is launched first.
    fn keep_stack(&self, function: sys::CUfunction) -> Result<(), CudaError> {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
        // SAFETY: the function is loaded.
        let bytes = unsafe { result::function::get_function_attribute(function, attribute) }
            .during("cuFuncGetAttribute")? as usize;
        if bytes <= self.context.get_limit(STACK).during("cuCtxGetLimit")? {
            return Ok(());
        }
        self.context.set_limit(STACK, bytes).during("cuCtxSetLimit")
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
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

/// A function that is launched with one argument, an `A`.
#[derive(Debug)]
pub(in crate::cuda) struct Kernel<A> {
    function: sys::CUfunction,
    /// Dynamic shared memory of a block.
    shared_bytes: u32,
    /// Held so that it outlives the function.
    module: Arc<Module>,
    _argument: PhantomData<fn(A)>,
}

// SAFETY: as for `Module`.
unsafe impl<A> Send for Kernel<A> {}
// SAFETY: as for `Module`.
unsafe impl<A> Sync for Kernel<A> {}

impl<A> Clone for Kernel<A> {
    fn clone(&self) -> Self {
        let (module, shared_bytes) = (self.module.clone(), self.shared_bytes);
        Self { function: self.function, shared_bytes, module, _argument: PhantomData }
    }
}

impl<A: DeviceStruct> Kernel<A> {
    /// Gives each block `bytes` of dynamic shared memory.
    ///
    /// # Errors
    /// If the device does not have as much.
    pub(in crate::cuda) fn with_shared(mut self, bytes: usize) -> Result<Self, CudaError> {
        self.module.context.bind_to_thread().during("cuCtxSetCurrent")?;
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the module is loaded, so the function is there.
        unsafe { sys::cuFuncSetAttribute(self.function, attribute, bytes as i32) }
            .result()
            .during("cuFuncSetAttribute")?;
        self.shared_bytes = bytes as u32;
        Ok(self)
    }

    /// Gives each block so much shared memory, used or not, that a multiprocessor runs at most `blocks` of them at a
    /// time.
    ///
    /// # Errors
    /// If the driver does not say how much there is, or refuses.
    pub(in crate::cuda) fn at_most(self, device: &Device, blocks: usize) -> Result<Self, CudaError> {
        let attribute = |a| device.context.attribute(a).during("cuDeviceGetAttribute").map(|bytes| bytes as usize);
        let all = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?;
        let of_driver = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK)?;
        let own = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        // SAFETY: the function is loaded.
        let own =
            unsafe { result::function::get_function_attribute(self.function, own) }.during("cuFuncGetAttribute")?;
        // One block more would not fit.
        let bytes = (all / (blocks + 1) + 1).next_multiple_of(128).saturating_sub(own as usize + of_driver);
        let bytes = bytes.max(self.shared_bytes as usize);
        self.with_shared(bytes)
    }

    /// How many blocks of `threads` threads a multiprocessor runs at a time.
    ///
    /// # Errors
    /// If the driver refuses.
    pub(in crate::cuda) fn resident(&self, threads: u32) -> Result<u32, CudaError> {
        self.module.context.bind_to_thread().during("cuCtxSetCurrent")?;
        let (mut blocks, shared) = (0, self.shared_bytes as usize);
        // SAFETY: the function is loaded; the driver writes one number.
        unsafe { sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, self.function, threads as i32, shared) }
            .result()
            .during("cuOccupancyMaxActiveBlocksPerMultiprocessor")?;
        Ok(blocks as u32)
    }

    /// How many clusters of `cluster` blocks of `threads` threads the device runs at a time; where there are no
    /// clusters, how many times as many blocks.
    ///
    /// # Errors
    /// If the driver refuses.
    pub(in crate::cuda) fn resident_clusters(
        &self,
        device: &Device,
        threads: u32,
        cluster: u32,
    ) -> Result<u32, CudaError> {
        if !device.arch.has_clusters() {
            return Ok(self.resident(threads)? * device.multiprocessors / cluster);
        }
        let cluster_dim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: cluster, y: 1, z: 1 };
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { clusterDim: cluster_dim },
        };
        let config = self.config(device, Grid { blocks: (cluster, 1), threads }, &mut attribute, 1);
        device.context.bind_to_thread().during("cuCtxSetCurrent")?;
        let mut clusters = 0;
        // SAFETY: function, stream and attribute are alive; the driver writes one number.
        unsafe { sys::cuOccupancyMaxActiveClusters(&mut clusters, self.function, &config) }
            .result()
            .during("cuOccupancyMaxActiveClusters")?;
        Ok(clusters as u32)
    }

    /// Enqueues the kernel, on chips that can with leave to start while the one before it drains.
    ///
    /// # Errors
    /// If the driver refuses; what happens on the device shows later.
    ///
    /// # Safety
    /// Memory that `argument` names is the device's, as large as the kernel takes it to be, and lives until the stream
    /// has passed the launch. The kernel waits for the one before it before it touches what that one writes.
    pub(in crate::cuda) unsafe fn launch(&self, device: &Device, grid: Grid, argument: &A) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        unsafe { self.enqueue(device, grid, argument, device.arch.has_dependent_launch()) }
    }

    /// Enqueues the kernel to begin when everything before it has ended. A kernel that follows may take this one's
    /// start as proof of that.
    ///
    /// # Safety
    /// As [`Kernel::launch`].
    pub(in crate::cuda) unsafe fn launch_behind_all(
        &self,
        device: &Device,
        grid: Grid,
        argument: &A,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        unsafe { self.enqueue(device, grid, argument, false) }
    }

    /// What the driver is told of a launch: the grid, the stream, and the first `count` of `attributes`, which must
    /// live as long as the configuration is used.
    fn config(
        &self,
        device: &Device,
        grid: Grid,
        attributes: *mut sys::CUlaunchAttribute,
        count: u32,
    ) -> sys::CUlaunchConfig {
        sys::CUlaunchConfig {
            gridDimX: grid.blocks.0,
            gridDimY: grid.blocks.1,
            gridDimZ: 1,
            blockDimX: grid.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared_bytes,
            hStream: device.stream.cu_stream(),
            attrs: attributes,
            numAttrs: count,
        }
    }

    unsafe fn enqueue(&self, device: &Device, grid: Grid, argument: &A, early: bool) -> Result<(), CudaError> {
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = self.config(device, grid, &mut attribute, u32::from(early));
        device.context.bind_to_thread().during("cuCtxSetCurrent")?;
        // The driver copies what it points to before it returns, and writes nothing there.
        let mut params = [std::ptr::from_ref(argument).cast_mut().cast::<c_void>()];
        // SAFETY: function, stream and attribute are alive; the kernel's one parameter has the argument's size, as
        // `Module::kernel` found, and its layout, as the device's compiler did; the caller vouches for the memory that
        // it names.
        unsafe { sys::cuLaunchKernelEx(&config, self.function, params.as_mut_ptr(), std::ptr::null_mut()) }
            .result()
            .during("cuLaunchKernelEx")
    }
}
