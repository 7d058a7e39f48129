//! Brings what is packed to the device: every core packs into pinned buffers of its own while earlier ones are copied.

use super::pinned::Pinned;
use crate::backend::cuda::error::{CudaResult, During};
use crate::backend::cuda::layout::matrix::VectorPlan;
use crate::backend::cuda::layout::pack::source::{ByteSource, bytes_of, fill};
use crate::format::NotFinite;
use chimere_kernels::cuda::Device;
use crossbeam::channel::{Sender, bounded};
use crossbeam::queue::ArrayQueue;
use cudarc::driver::{
    CudaEvent, CudaSlice, CudaStream, CudaView, DevicePtr, DriverError, PinnedHostSlice, result, sys,
};
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

/// Bytes of a pinned buffer: a copy of this size is as fast as a larger one, and the buffers of all cores stay in their
/// cache, from where they are copied.
const STAGING_BYTES: usize = 1 << 20;
/// Buffers of a thread: one is filled while the other is copied.
const STAGING_BUFFERS: usize = 2;

/// Some pieces of a source, and where on the device they go.
struct UploadJob<'a> {
    source: &'a dyn ByteSource,
    first: usize,
    pieces: usize,
    to: sys::CUdeviceptr,
}

impl UploadJob<'_> {
    fn bytes(&self) -> usize {
        self.pieces * self.source.piece_bytes()
    }

    fn write(&self, out: &mut [u8]) -> Result<(), NotFinite> {
        let mut pieces = out.chunks_exact_mut(self.source.piece_bytes()).enumerate();
        pieces.try_for_each(|(i, out)| self.source.write(self.first + i, out))
    }
}

/// The pieces of `source` in jobs of at most `limit` bytes, or one piece.
fn jobs_of(source: &dyn ByteSource, to: sys::CUdeviceptr, limit: usize) -> impl Iterator<Item = UploadJob<'_>> {
    let (all, bytes) = (source.pieces(), source.piece_bytes());
    let at_once = (limit / bytes).max(1);
    (0..all).step_by(at_once).map(move |first| {
        let to = to + (first * bytes) as sys::CUdeviceptr;
        UploadJob { source, first, pieces: at_once.min(all - first), to }
    })
}

/// Device memory with the bytes of each source. Allocated on the device's stream; all copies are done when this
/// returns.
pub(crate) fn upload(
    device: &Device,
    sources: &[&dyn ByteSource],
    progress: &mut dyn FnMut(f32),
) -> CudaResult<Vec<CudaSlice<u8>>> {
    let stream = device.stream();
    // SAFETY: the jobs write every byte before anyone else gets to see it.
    let alloc = |s: &&dyn ByteSource| unsafe { stream.alloc::<u8>(bytes_of(*s)) };
    let slices = sources.iter().map(alloc).collect::<Result<Vec<_>, _>>().during("allocating weights")?;
    let copies = stream.context().new_stream().during("making a stream for copies")?;
    copies.join(stream).during("ordering copies behind allocations")?;
    let places = slices.iter().map(|s| s.device_ptr(stream).0);
    let jobs: Vec<_> = sources.iter().zip(places).flat_map(|(s, to)| jobs_of(*s, to, STAGING_BYTES)).collect();
    let done = run(&copies, jobs, progress);
    // Even after a failure: the memory is given back only when nothing is copied to it any more.
    copies.synchronize().during("copying weights to the device")?;
    done.map(|()| slices)
}

/// Runs the jobs on all cores. What they copy may still be under way after that.
fn run(copies: &Arc<CudaStream>, jobs: Vec<UploadJob<'_>>, progress: &mut dyn FnMut(f32)) -> CudaResult<()> {
    let total: usize = jobs.iter().map(UploadJob::bytes).sum();
    let staging_bytes = jobs.iter().map(UploadJob::bytes).max().unwrap_or(0);
    let queue = ArrayQueue::new(jobs.len().max(1));
    for job in jobs {
        assert!(queue.push(job).is_ok(), "the queue has room for every job");
    }
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(queue.len().max(1));
    thread::scope(|scope| {
        let (sender, receiver) = bounded(threads);
        let work = |sender| work(copies, &queue, staging_bytes, sender);
        let workers: Vec<_> = (0..threads).map(|_| sender.clone()).map(|s| scope.spawn(move || work(s))).collect();
        drop(sender);
        let mut done = 0;
        for bytes in receiver {
            done += bytes;
            progress(done as f32 / total as f32);
        }
        workers.into_iter().try_for_each(|w| w.join().expect("packing does not panic"))
    })
}

/// A pinned buffer, and the mark in the stream behind its last copy.
///
/// The driver's wrapper marks copies by itself only while it tracks events, which [`Device`] has turned off; so this
/// does.
struct UploadBuffers {
    bytes: Pinned<u8>,
    copied: CudaEvent,
}

impl UploadBuffers {
    fn new(copies: &Arc<CudaStream>, bytes: usize) -> Result<Self, DriverError> {
        let context = copies.context();
        Ok(Self { bytes: Pinned::new(context, bytes)?, copied: context.new_event(None)? })
    }

    /// Writes the job's bytes, once the copy of the last ones is over, and enqueues theirs.
    fn pass_on(&mut self, copies: &Arc<CudaStream>, job: &UploadJob<'_>) -> CudaResult<()> {
        let doing = "copying weights to the device";
        self.copied.synchronize().during(doing)?;
        // SAFETY: the stream is past the last copy from this buffer, and the buffer is this thread's.
        let bytes = &mut unsafe { self.bytes.as_mut_slice() }[..job.bytes()];
        job.write(bytes)?;
        copies.context().bind_to_thread().during(doing)?;
        // SAFETY: `upload` allocated the place with room for the whole source, keeps it until the stream is done, and
        // gives each byte to one job. Nobody writes to the buffer before the mark.
        unsafe { result::memcpy_htod_async(job.to, bytes, copies.cu_stream()) }.during(doing)?;
        self.copied.record(copies).during(doing)
    }
}

impl Drop for UploadBuffers {
    fn drop(&mut self) {
        // Also after an error: the memory goes back only when nothing reads it. A failure leaves nothing to do.
        let _ = self.copied.synchronize();
    }
}

/// What one thread does: jobs until there are none.
fn work(
    copies: &Arc<CudaStream>,
    queue: &ArrayQueue<UploadJob<'_>>,
    staging_bytes: usize,
    done: Sender<usize>,
) -> CudaResult<()> {
    let result = (|| {
        let staging = (0..STAGING_BUFFERS).map(|_| UploadBuffers::new(copies, staging_bytes));
        let staging = staging.collect::<Result<Vec<_>, _>>();
        let mut staging = staging.during("allocating buffers for copies")?;
        for buffer in (0..STAGING_BUFFERS).cycle() {
            let Some(job) = queue.pop() else { break };
            staging[buffer].pass_on(copies, &job)?;
            // The receiver lives as long as the workers.
            let _ = done.send(job.bytes());
        }
        Ok(())
    })();
    if result.is_err() {
        // Nobody needs the rest.
        while queue.pop().is_some() {}
    }
    result
}

fn pinned(stream: &Arc<CudaStream>, bytes: usize, flags: u32) -> Result<PinnedHostSlice<u8>, DriverError> {
    // Not write-combined: tiles are put together in place. SAFETY: any bytes are bytes.
    unsafe { stream.context().alloc_pinned_with_flags(bytes, flags) }
}

/// The values of each, in device memory.
pub(crate) fn upload_values(device: &Device, vectors: &[VectorPlan<'_>]) -> CudaResult<Vec<CudaSlice<f32>>> {
    let stream = device.stream();
    let doing = "copying small weights to the device";
    let copy = |v: &VectorPlan<'_>| stream.clone_htod(&v.finite_values()?).during(doing);
    let slices = vectors.iter().map(copy).collect::<Result<_, _>>()?;
    stream.synchronize().during(doing)?;
    Ok(slices)
}

/// Host memory that the device reads in place.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// The device's address of `_memory`, which frees it.
    bytes: ManuallyDrop<CudaSlice<u8>>,
    _memory: PinnedHostSlice<u8>,
}

impl Mapped {
    /// The bytes of `source`.
    pub(crate) fn new(device: &Device, source: &dyn ByteSource) -> CudaResult<Self> {
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        let mut memory =
            pinned(device.stream(), bytes_of(source), flags).during("allocating pinned memory for the embedding")?;
        fill(source, memory.as_mut_slice().during("filling the embedding")?)?;
        let host = memory.as_mut_ptr().during("filling the embedding")?;
        let mut address = 0;
        // SAFETY: `host` was allocated as mapped memory.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, host.cast(), 0) }
            .result()
            .during("mapping the embedding for the device")?;
        // SAFETY: the memory is as long and stays while this value lives; it is not freed as device memory.
        let bytes = ManuallyDrop::new(unsafe { device.stream().upgrade_device_ptr(address, memory.len()) });
        Ok(Self { bytes, _memory: memory })
    }

    /// As the device sees it.
    pub(crate) fn view(&self) -> CudaView<'_, u8> {
        self.bytes.as_view()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Bytes that tell their place; the first pieces take long, so that copies pile up behind them.
    struct Numbered {
        pieces: usize,
        slow: usize,
    }

    impl ByteSource for Numbered {
        fn piece_bytes(&self) -> usize {
            4096
        }

        fn pieces(&self) -> usize {
            self.pieces
        }

        fn write(&self, piece: usize, out: &mut [u8]) -> Result<(), NotFinite> {
            if piece < self.slow {
                thread::sleep(Duration::from_micros(200));
            }
            for (i, word) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                *word = ((piece << 20 | i) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            }
            Ok(())
        }
    }

    #[test]
    fn what_comes_to_the_device_is_what_was_made() {
        let device = match Device::open(0) {
            Ok(device) => device,
            Err(error) => {
                let required = std::env::var("CHIMERE_REQUIRE").unwrap_or_default().split(',').any(|r| r == "gpu");
                assert!(!required, "{error}");
                eprintln!("skipped: {error}");
                return;
            }
        };
        let sources = [Numbered { pieces: 4096, slow: 200 }, Numbered { pieces: 131_072, slow: 0 }];
        for _ in 0..3 {
            let on_device = upload(&device, &sources.each_ref().map(|s| s as &dyn ByteSource), &mut |_| {}).unwrap();
            for (source, bytes) in sources.iter().zip(on_device) {
                let mut want = vec![0; bytes_of(source)];
                fill(source, &mut want).unwrap();
                let got = device.stream().clone_dtoh(&bytes).unwrap();
                let wrong = got.chunks(4096).zip(want.chunks(4096)).filter(|(got, want)| got != want).count();
                assert_eq!(wrong, 0, "of {} pieces", source.pieces);
            }
        }
    }
}
