//! The second tier of the prefix cache: memory of the host, and copies between it and the device.
//!
//! Memory is taken piece by piece on a thread of its own, because page-locking takes a second for a gibibyte or two,
//! and begins with the first step, when everything else is there. What cannot be locked is used as it is: copies of it
//! are slower and hold up the launching thread, and say the same.
//!
//! Each direction has a stream. A transfer starts when the device has passed the copies of the plan that names it, so
//! it reads what earlier steps wrote, and overwrites what they read last. Where a plan gives away memory that a
//! transfer still reads or writes, its own transfers wait for that one as its rows do.

use crate::backend::cuda::error::{CudaResult, During};
use crate::backend::cuda::rank::store::{DevicePart, Store};
use crate::cache::HostBlocks;
use crate::ids::{HostBlockId, TransferId};
use crate::step::{Direction, FinishedTransfer, HostProgress, Piece, StepPlan, Transfer};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, sys};
use memmap2::{MmapMut, MmapOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Memory is taken in pieces of this size, or of so many blocks if they are large.
const PIECE_BYTES: u64 = 64 << 20;
const PIECE_BLOCKS_MIN: u64 = 8;

/// Blocks of the host's memory, and what is under way to and from them.
pub(crate) struct HostCopies {
    memory: Arc<HostMemory>,
    growing: Option<JoinHandle<()>>,
    streams: [Arc<CudaStream>; 2],
    under_way: Arc<Mutex<Vec<PendingTransfer>>>,
}

/// What the thread that waits for steps asks.
#[derive(Clone)]
pub(crate) struct HostWatch {
    memory: Arc<HostMemory>,
    under_way: Arc<Mutex<Vec<PendingTransfer>>>,
}

struct PendingTransfer {
    id: TransferId,
    direction: Direction,
    begin: CudaEvent,
    end: CudaEvent,
}

impl HostCopies {
    /// For blocks of this cut in so many bytes, none of which are taken yet. `None` if not one checkpoint fits.
    pub(crate) fn new(context: &Arc<CudaContext>, cut: HostBlocks, bytes: u64) -> CudaResult<Option<Self>> {
        let memory = HostMemory::new(context, cut, bytes);
        if !cut.is_some() || memory.blocks_max() < cut.checkpoint {
            return Ok(None);
        }
        let stream = || context.new_stream().during("making a stream for the host's memory");
        Ok(Some(Self {
            memory: Arc::new(memory),
            growing: None,
            streams: [stream()?, stream()?],
            under_way: Arc::default(),
        }))
    }

    /// Blocks that there will be.
    pub(crate) fn blocks_max(&self) -> u32 {
        self.memory.blocks_max()
    }

    pub(crate) fn watch(&self) -> HostWatch {
        HostWatch { memory: self.memory.clone(), under_way: self.under_way.clone() }
    }

    /// Begins to take the memory, once.
    pub(crate) fn grow(&mut self) {
        if self.growing.is_none() {
            let memory = self.memory.clone();
            let thread = std::thread::Builder::new().name("host-cache".into()).spawn(move || memory.grow());
            self.growing = thread.inspect_err(|e| tracing::warn!("the host's cache stays empty: {e}")).ok();
        }
    }

    /// Makes `stream` wait for the loads that bring what these pieces go on from, as far as they have begun.
    pub(crate) fn wait_for(&self, pieces: &[&Piece], stream: &CudaStream) -> CudaResult<()> {
        let under_way = lock(&self.under_way);
        let wanted = |copy: &&PendingTransfer| pieces.iter().any(|piece| piece.state.load() == Some(copy.id));
        let mut copies = under_way.iter().filter(wanted);
        copies.try_for_each(|copy| stream.wait(&copy.end)).during("waiting for the host's cache")
    }

    /// Enqueues a plan's transfers behind what `stream` has so far. If the plan settles, they wait for all that are
    /// under way, and the stream for both.
    pub(crate) fn begin(&mut self, plan: &StepPlan, store: &mut Store, stream: &Arc<CudaStream>) -> CudaResult<()> {
        let doing = "copying to or from the host's cache";
        if !plan.transfers.is_empty() {
            let passed = stream.context().new_event(None).during(doing)?;
            passed.record(stream).during(doing)?;
            self.streams.iter().try_for_each(|copies| copies.wait(&passed)).during(doing)?;
            if plan.settles {
                // What a copy still reads may be given to a load: the two directions do not wait for each other.
                let under_way = lock(&self.under_way);
                let mut copies =
                    under_way.iter().flat_map(|copy| self.streams.iter().map(move |stream| (stream, copy)));
                copies.try_for_each(|(stream, copy)| stream.wait(&copy.end)).during(doing)?;
            }
        }
        for transfer in &plan.transfers {
            self.copy(transfer, store)?;
        }
        if plan.settles {
            lock(&self.under_way).iter().try_for_each(|copy| stream.wait(&copy.end)).during(doing)?;
        }
        Ok(())
    }

    fn copy(&mut self, transfer: &Transfer, store: &mut Store) -> CudaResult<()> {
        let doing = "copying to or from the host's cache";
        let stream = &self.streams[transfer.direction as usize];
        let event = || stream.context().new_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT)).during(doing);
        let (begin, end) = (event()?, event()?);
        begin.record(stream).during(doing)?;
        let mut room = self.memory.parts(&transfer.blocks);
        for mut part in store.checkpoint_parts(stream, transfer.checkpoint) {
            while part.bytes > 0 {
                let (host, piece) = room.take(part.bytes);
                // SAFETY: the part lies inside the store, the host's bytes inside blocks that are this transfer's.
                unsafe { part.split(piece).copy(host, transfer.direction, stream) }.during(doing)?;
            }
        }
        for (pages, block) in &transfer.units {
            let mut host = self.memory.address(*block);
            for part in pages.iter().flat_map(|page| store.page_parts(stream, *page)) {
                // SAFETY: as above; a block has room for a unit's pages.
                unsafe { part.copy(host, transfer.direction, stream) }.during(doing)?;
                host = host.wrapping_add(part.all_bytes());
            }
        }
        end.record(stream).during(doing)?;
        lock(&self.under_way).push(PendingTransfer { id: transfer.id, direction: transfer.direction, begin, end });
        Ok(())
    }
}

impl Drop for HostCopies {
    fn drop(&mut self) {
        self.memory.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.growing.take() {
            // A thread that panicked has told so already.
            let _ = thread.join();
        }
        // The memory goes with the last who has it: no copy may still run.
        for stream in &self.streams {
            let _ = stream.synchronize();
        }
    }
}

fn lock(under_way: &Mutex<Vec<PendingTransfer>>) -> MutexGuard<'_, Vec<PendingTransfer>> {
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HostWatch {
    /// What is done by now.
    pub(crate) fn progress(&self) -> HostProgress {
        let done = lock(&self.under_way).extract_if(.., |copy| copy.end.is_complete()).collect::<Vec<_>>();
        let finished = done.iter().map(|copy| {
            // Both marks were passed; without a time it took none.
            let ms = copy.begin.elapsed_ms(&copy.end).unwrap_or(0.0);
            FinishedTransfer { id: copy.id, direction: copy.direction, micros: (ms * 1e3) as u64 }
        });
        HostProgress { finished: finished.collect(), blocks: self.memory.blocks() }
    }
}

/// Memory of the host, cut into blocks.
struct HostMemory {
    context: Arc<CudaContext>,
    cut: HostBlocks,
    piece_blocks: u32,
    pieces_max: u32,
    pieces: Mutex<Vec<HostPiece>>,
    stops: AtomicBool,
}

struct HostPiece {
    bytes: MmapMut,
    /// Whether the piece is page-locked: copies from other memory are slower.
    locked: bool,
}

impl HostMemory {
    fn new(context: &Arc<CudaContext>, cut: HostBlocks, bytes: u64) -> Self {
        let piece_blocks = (PIECE_BYTES / cut.bytes.max(1)).max(PIECE_BLOCKS_MIN).min(bytes / cut.bytes.max(1)).max(1);
        Self {
            context: context.clone(),
            cut,
            piece_blocks: piece_blocks as u32,
            pieces_max: (bytes / (piece_blocks * cut.bytes.max(1))) as u32,
            pieces: Mutex::default(),
            stops: AtomicBool::new(false),
        }
    }

    fn pieces(&self) -> MutexGuard<'_, Vec<HostPiece>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn blocks_max(&self) -> u32 {
        self.pieces_max * self.piece_blocks
    }

    fn blocks(&self) -> u32 {
        self.pieces().len() as u32 * self.piece_blocks
    }

    /// Takes all of it, or as much as there is.
    fn grow(&self) {
        let mut locks = self.context.bind_to_thread().is_ok();
        for _ in 0..self.pieces_max {
            if self.stops.load(Ordering::Relaxed) {
                return;
            }
            match self.take(locks) {
                Ok(piece) => {
                    if locks && !piece.locked {
                        tracing::warn!("the host cannot lock memory for its cache: copies will be slower");
                    }
                    locks = piece.locked;
                    self.pieces().push(piece);
                }
                Err(e) => {
                    let (got, wanted) = (self.blocks(), self.blocks_max());
                    tracing::warn!("the host's cache has {got} of {wanted} blocks of {} bytes: {e}", self.cut.bytes);
                    return;
                }
            }
        }
    }

    fn take(&self, locks: bool) -> std::io::Result<HostPiece> {
        let len = u64::from(self.piece_blocks) * self.cut.bytes;
        // Its pages are made here, so that locking them takes no faults under the driver's locks.
        let mut bytes = MmapOptions::new().len(len as usize).populate().map_anon()?;
        // SAFETY: the memory is ours, and unlocked before it is unmapped.
        let locked =
            locks && unsafe { sys::cuMemHostRegister_v2(bytes.as_mut_ptr().cast(), bytes.len(), 0) }.result().is_ok();
        Ok(HostPiece { bytes, locked })
    }

    /// Where a block begins, which was told to be there.
    fn address(&self, block: HostBlockId) -> *mut u8 {
        let (piece, at) = (block.0 / self.piece_blocks, block.0 % self.piece_blocks);
        let start = self.pieces()[piece as usize].bytes.as_ptr().cast_mut();
        start.wrapping_add((u64::from(at) * self.cut.bytes) as usize)
    }

    /// These blocks as one run of bytes.
    fn parts(&self, blocks: &[HostBlockId]) -> HostRun {
        let starts = blocks.iter().map(|block| self.address(*block)).collect::<Vec<_>>();
        HostRun { starts: starts.into_iter(), at: std::ptr::null_mut(), left: 0, block_bytes: self.cut.bytes as usize }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // A failure leaves nothing to do: the process is ending or the device is lost.
        let _ = self.context.bind_to_thread();
        for piece in self.pieces().iter_mut().filter(|piece| piece.locked) {
            // SAFETY: locked once by `take`; no copy runs any more.
            let _ = unsafe { sys::cuMemHostUnregister(piece.bytes.as_mut_ptr().cast()) }.result();
        }
    }
}

/// Blocks that are filled or read one after another.
struct HostRun {
    starts: std::vec::IntoIter<*mut u8>,
    at: *mut u8,
    left: usize,
    block_bytes: usize,
}

impl HostRun {
    /// The next bytes that lie together, `most` at most.
    fn take(&mut self, most: usize) -> (*mut u8, usize) {
        if self.left == 0 {
            self.at = self.starts.next().expect("a checkpoint has as many blocks as its bytes need");
            self.left = self.block_bytes;
        }
        let (at, bytes) = (self.at, most.min(self.left));
        self.at = self.at.wrapping_add(bytes);
        self.left -= bytes;
        (at, bytes)
    }
}

/// A part of the device's memory: rows that lie apart there and together on the host.
impl DevicePart {
    /// The first bytes of a single row, which it has from now on no more.
    fn split(&mut self, bytes: usize) -> Self {
        let first = Self { bytes, ..*self };
        (self.at, self.bytes) = (self.at + bytes as u64, self.bytes - bytes);
        first
    }

    fn all_bytes(&self) -> usize {
        self.bytes * self.rows
    }

    /// # Safety
    /// The part and as many bytes at `host` stay what they are, and nobody else touches what is written, until `stream`
    /// has passed the copy.
    unsafe fn copy(
        &self,
        host: *mut u8,
        direction: Direction,
        stream: &CudaStream,
    ) -> Result<(), cudarc::driver::DriverError> {
        use sys::CUmemorytype::{CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST};
        let saves = direction == Direction::Save;
        let (from, to) =
            if saves { (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST) } else { (CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE) };
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: from,
            srcHost: host.cast(),
            srcDevice: self.at,
            srcArray: std::ptr::null_mut(),
            srcPitch: if saves { self.pitch } else { self.bytes },
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: to,
            dstHost: host.cast(),
            dstDevice: self.at,
            dstArray: std::ptr::null_mut(),
            dstPitch: if saves { self.bytes } else { self.pitch },
            WidthInBytes: self.bytes,
            Height: self.rows,
        };
        stream.context().bind_to_thread()?;
        // SAFETY: the caller's.
        unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream.cu_stream()) }.result()
    }
}
