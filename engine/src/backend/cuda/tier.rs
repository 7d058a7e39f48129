//! Routed experts that do not all fit into the device's memory: some lie there, the others in memory of the host that
//! kernels read over the bus, where it lies.
//!
//! A table has each expert's address, and kernels find an expert by it, so one launch reads both kinds, in the order
//! in which it would read them anyway: where an expert lies changes no byte. Which ones decoding used comes back with
//! every step as a bit each; [`ExpertPlaces`] says who changes places. Addresses change between steps, in the stream's
//! order, and bytes are copied on a stream of their own:
//!
//! 1. the one that goes is copied to a spare place of the host, while kernels read it where it is;
//! 2. its address changes; behind the steps that read the old one the one that comes is copied over it;
//! 3. that one's address changes, and behind the steps that read it on the host its place there is spare.

use super::error::{CudaBackendError, During};
use super::pinned::Pinned;
use super::plan::MatrixPlan;
use super::staging::Staging;
use super::store::send_to;
use super::upload::{self, UploadSource};
use crate::cache::{EXPERT_SWAPS_MAX as SWAPS_MAX, ExpertPlace, ExpertPlaces, Swap};
use crate::step::ExpertReads;
use chimere_kernels::cuda::uses::{self, Uses};
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::{CudaContext, CudaEvent, CudaSlice, CudaStream, CudaView, DevicePtr, result, sys};
use memmap2::{Advice, MmapMut, MmapOptions};
use rayon::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A place and a matrix in it begin at multiples of this: copies are of whole lines.
const ALIGN: usize = 256;
/// Steps whose uses are on their way: those that may be unfinished, and one more.
const WATCHED: usize = 5;
/// The host's memory is locked in pieces of this size.
const LOCK_BYTES: usize = 1 << 30;

/// The experts of blocks whose matrices have one size, in places of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PoolShape {
    /// Blocks that choose, by their number among such.
    blocks: Vec<usize>,
    /// Where in its place down begins, behind gate and up.
    down_at: usize,
    /// Bytes of a place.
    place_bytes: usize,
    /// Experts in the device's memory.
    device: usize,
}

/// How the experts of a model are split between both memories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TierShape {
    /// Experts of a block.
    experts: usize,
    /// Blocks that choose.
    blocks: usize,
    pools: Vec<PoolShape>,
}

impl TierShape {
    /// Of the experts' matrices, gate and up and then down of each block, with at most `bytes` on the device; `None`
    /// if all of them fit, or there are none.
    pub(super) fn of(matrices: &[&MatrixPlan<'_>], bytes: u64) -> Option<Self> {
        let (pairs, _) = matrices.as_chunks::<2>();
        let mut pools: Vec<PoolShape> = Vec::new();
        for (block, [gate_up, down]) in pairs.iter().enumerate() {
            let down_at = gate_up.matrix_bytes().next_multiple_of(ALIGN);
            let place_bytes = down_at + down.matrix_bytes().next_multiple_of(ALIGN);
            let same = |p: &&mut PoolShape| (p.down_at, p.place_bytes) == (down_at, place_bytes);
            match pools.iter_mut().find(same) {
                Some(pool) => pool.blocks.push(block),
                None => pools.push(PoolShape { blocks: vec![block], down_at, place_bytes, device: 0 }),
            }
        }
        let experts = pairs.first()?[0].count;
        let all = pools.iter().map(|p| (p.blocks.len() * experts * p.place_bytes) as u64).sum::<u64>();
        if all <= bytes {
            return None;
        }
        for pool in &mut pools {
            let members = (pool.blocks.len() * experts) as u128;
            pool.device = (members * u128::from(bytes) / u128::from(all)) as usize;
        }
        Some(Self { experts, blocks: pairs.len(), pools })
    }

    /// Bytes of the device's memory.
    pub(super) fn device_bytes(&self) -> u64 {
        let table = 8 * self.blocks * self.experts + 8 * self.blocks * uses::words(self.experts);
        table as u64 + self.pools.iter().map(|p| (p.device * p.place_bytes) as u64).sum::<u64>()
    }

    /// Bytes of the host's memory.
    pub(super) fn host_bytes(&self) -> u64 {
        self.pools.iter().map(|p| (self.host_places(p) * p.place_bytes) as u64).sum()
    }

    /// Experts that lie on the device, and all.
    pub(super) fn residents(&self) -> (usize, usize) {
        (self.pools.iter().map(|p| p.device).sum(), self.blocks * self.experts)
    }

    fn members(&self, pool: &PoolShape) -> usize {
        pool.blocks.len() * self.experts
    }

    /// With the spare ones.
    fn host_places(&self, pool: &PoolShape) -> usize {
        self.members(pool) - pool.device + SWAPS_MAX
    }
}

/// Experts as the bytes of their places. A pool's members are numbered so that the first ones are a few of every block.
struct PoolSource<'a> {
    matrices: &'a [[&'a MatrixPlan<'a>; 2]],
    shape: &'a PoolShape,
    first: usize,
    count: usize,
}

impl UploadSource for PoolSource<'_> {
    /// A piece is a place.
    fn piece_bytes(&self) -> usize {
        self.shape.place_bytes
    }

    fn pieces(&self) -> usize {
        self.count
    }

    fn write(&self, piece: usize, out: &mut [u8]) {
        let member = self.first + piece;
        let (expert, block) = (member / self.shape.blocks.len(), member % self.shape.blocks.len());
        for (plan, at) in self.matrices[self.shape.blocks[block]].iter().zip([0, self.shape.down_at]) {
            let (bytes, tile) = (plan.matrix_bytes(), plan.piece_bytes());
            let tiles = bytes / tile;
            let out = out[at..at + bytes].chunks_exact_mut(tile).enumerate();
            out.for_each(|(t, out)| plan.write(expert * tiles + t, out));
        }
    }
}

/// Memory of the host that the device reads in place.
struct HostExperts {
    bytes: MmapMut,
    /// How many of its bytes, from the first on, are locked.
    locked: usize,
    /// The device's address of the first.
    address: sys::CUdeviceptr,
    context: Arc<CudaContext>,
}

impl HostExperts {
    /// The experts of `source`, and room for `spare` more.
    fn new(
        context: &Arc<CudaContext>,
        source: &PoolSource<'_>,
        spare: usize,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Self, CudaBackendError> {
        let place = source.piece_bytes();
        let map = MmapOptions::new().len((source.pieces() + spare) * place).map_anon();
        let mut bytes = map.map_err(|e| CudaBackendError::Host { what: "memory for experts", why: e.to_string() })?;
        // Fewer and larger pages are locked sooner. Where there are none the small ones do as well.
        let _ = bytes.advise(Advice::HugePage);
        let at_once = (LOCK_BYTES / place).max(1);
        for (n, part) in bytes.chunks_mut(at_once * place).enumerate() {
            part.par_chunks_exact_mut(place).enumerate().for_each(|(i, out)| {
                let piece = n * at_once + i;
                if piece < source.pieces() { source.write(piece, out) } else { out.fill(0) }
            });
            progress(part.len());
        }
        let mut all = Self { bytes, locked: 0, address: 0, context: context.clone() };
        all.lock()?;
        Ok(all)
    }

    fn lock(&mut self) -> Result<(), CudaBackendError> {
        let doing = "locking the host's memory for experts";
        self.context.bind_to_thread().during(doing)?;
        let flags = sys::CU_MEMHOSTREGISTER_DEVICEMAP | sys::CU_MEMHOSTREGISTER_PORTABLE;
        let start = self.bytes.as_mut_ptr();
        // SAFETY: the memory is ours, was filled, and is unlocked before it is unmapped.
        unsafe { sys::cuMemHostRegister_v2(start.cast(), self.bytes.len(), flags) }.result().during(doing)?;
        self.locked = self.bytes.len();
        // SAFETY: just registered as mapped memory.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&mut self.address, start.cast(), 0) }.result().during(doing)
    }
}

impl Drop for HostExperts {
    fn drop(&mut self) {
        if self.locked > 0 {
            // A failure leaves nothing to do: the process is ending or the device is lost.
            let _ = self.context.bind_to_thread();
            // SAFETY: locked once by `lock`; no kernel and no copy runs any more.
            let _ = unsafe { sys::cuMemHostUnregister(self.bytes.as_mut_ptr().cast()) }.result();
        }
    }
}

/// A pool in both memories.
struct Pool {
    shape: PoolShape,
    device: CudaSlice<u8>,
    host: HostExperts,
    places: ExpertPlaces,
}

impl Pool {
    /// The device's address of a place.
    fn address(&self, stream: &CudaStream, place: ExpertPlace) -> u64 {
        let (start, n) = match place {
            ExpertPlace::Device(n) => (self.device.device_ptr(stream).0, n),
            ExpertPlace::Host(n) => (self.host.address, n),
        };
        start + u64::from(n) * self.shape.place_bytes as u64
    }

    /// Block and expert of a member.
    fn member(&self, n: u32) -> (usize, usize) {
        let blocks = self.shape.blocks.len();
        (self.shape.blocks[n as usize % blocks], n as usize / blocks)
    }

    /// Members whose bits are set.
    fn set<'a>(&'a self, bits: &'a [u32], experts: usize) -> impl Iterator<Item = u32> + 'a {
        let (words, blocks) = (uses::words(experts), self.shape.blocks.len());
        self.shape.blocks.iter().enumerate().flat_map(move |(i, block)| {
            let of_block = &bits[block * words..(block + 1) * words];
            let set = (0..experts).filter(|e| of_block[e / 32] >> (e % 32) & 1 == 1);
            set.map(move |e| (e * blocks + i) as u32)
        })
    }
}

/// Where a swap has got to: what its last copy brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Going,
    Coming,
}

struct Move {
    pool: usize,
    swap: Swap,
    phase: Phase,
    /// Behind the copy.
    copied: CudaEvent,
}

/// The uses of a step, on their way to the host.
struct Watched {
    bits: Arc<Pinned<u32>>,
    copied: CudaEvent,
}

/// What was read and brought over since somebody last asked; shared with the thread that waits for steps.
#[derive(Debug, Default)]
pub(super) struct ReadCounts {
    hits: AtomicU64,
    misses: AtomicU64,
    missed_bytes: AtomicU64,
    promoted: AtomicU64,
}

impl ReadCounts {
    /// What was counted, from which on it is counted anew.
    pub(super) fn take(&self) -> ExpertReads {
        let take = |n: &AtomicU64| n.swap(0, Ordering::Relaxed);
        ExpertReads {
            hits: take(&self.hits),
            misses: take(&self.misses),
            missed_bytes: take(&self.missed_bytes),
            promoted: take(&self.promoted),
        }
    }
}

/// Which rows of a pass chose: those that decode say who is to come to the device, all of them what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassKind {
    Decode,
    Prompts,
}

/// Experts in two memories, and who changes places; the module's head says how.
pub(super) struct ExpertTier {
    shape: TierShape,
    pools: Vec<Pool>,
    /// `[blocks][experts]`: addresses of places.
    table: Arc<CudaSlice<u64>>,
    kernel: Uses,
    /// Of decode rows, then of prompts: `[2][blocks][words]`.
    bits: CudaSlice<u32>,
    watched: VecDeque<Watched>,
    idle: Vec<Arc<Pinned<u32>>>,
    moves: VecDeque<Move>,
    copies: Arc<CudaStream>,
    counts: Arc<ReadCounts>,
}

/// Where a block's experts lie.
#[derive(Clone, Debug)]
pub(super) struct PlacedExperts {
    table: Arc<CudaSlice<u64>>,
    first: usize,
    experts: usize,
    /// Where in a place the matrix begins.
    pub(super) offset: usize,
}

impl PlacedExperts {
    /// Addresses of the places.
    pub(super) fn places(&self) -> CudaView<'_, u64> {
        self.table.slice(self.first..self.first + self.experts)
    }
}

impl ExpertTier {
    /// Packs the experts into both memories. `progress` hears how many bytes are done.
    pub(super) fn load(
        device: &Device,
        cache: &KernelCache,
        shape: TierShape,
        matrices: &[&MatrixPlan<'_>],
        progress: &mut dyn FnMut(usize),
    ) -> Result<Self, CudaBackendError> {
        let (pairs, _) = matrices.as_chunks::<2>();
        let (stream, doing) = (device.stream(), "allocating the table of experts");
        let mut pools = Vec::with_capacity(shape.pools.len());
        for pool in &shape.pools {
            let members = shape.members(pool);
            let source = |first, count| PoolSource { matrices: pairs, shape: pool, first, count };
            let (there, here) = (source(0, pool.device), source(pool.device, members - pool.device));
            let (bytes, mut done) = (pool.device * pool.place_bytes, 0);
            let mut share = |part: f32| {
                let now = (part * bytes as f32) as usize;
                progress(now.saturating_sub(done));
                done = done.max(now);
            };
            let slice = upload::upload(device, &[&there], &mut share)?.pop().expect("one source, one place");
            let host = HostExperts::new(stream.context(), &here, SWAPS_MAX, progress)?;
            let places = ExpertPlaces::new(members as u32, pool.device as u32, SWAPS_MAX as u32);
            pools.push(Pool { shape: pool.clone(), device: slice, host, places });
        }
        let mut table = vec![0; shape.blocks * shape.experts];
        for pool in &pools {
            for n in 0..shape.members(&pool.shape) as u32 {
                let (block, expert) = pool.member(n);
                table[block * shape.experts + expert] = pool.address(stream, pool.places.place(n));
            }
        }
        let words = 2 * shape.blocks * uses::words(shape.experts);
        let pinned = || Pinned::new(stream.context(), words).map(Arc::new).during(doing);
        Ok(Self {
            table: Arc::new(stream.clone_htod(&table).during(doing)?),
            kernel: Uses::load(device, cache, shape.experts)?,
            bits: stream.alloc_zeros(words).during(doing)?,
            watched: VecDeque::new(),
            idle: (0..WATCHED).map(|_| pinned()).collect::<Result<_, _>>()?,
            moves: VecDeque::new(),
            copies: stream.context().new_stream().during(doing)?,
            counts: Arc::default(),
            pools,
            shape,
        })
    }

    /// Where the `n`th of the matrices that it was loaded with lies, by expert.
    pub(super) fn placed(&self, n: usize) -> PlacedExperts {
        let (n, down) = (n / 2, n % 2 == 1);
        let pool = self.shape.pools.iter().find(|p| p.blocks.contains(&n)).expect("every block is in a pool");
        let (table, experts) = (self.table.clone(), self.shape.experts);
        PlacedExperts { table, first: n * experts, experts, offset: if down { pool.down_at } else { 0 } }
    }

    /// What was read since somebody last asked.
    pub(super) fn counts(&self) -> Arc<ReadCounts> {
        self.counts.clone()
    }

    /// Enqueues that a pass's uses are noted: of each block the first `count` of `pitch` choices.
    pub(super) fn note(
        &mut self,
        device: &Device,
        pass: PassKind,
        chosen: &CudaSlice<i32>,
        (count, pitch): (usize, usize),
    ) -> Result<(), CudaBackendError> {
        let (blocks, half) = (self.shape.blocks, self.bits.len() / 2);
        let mut bits = match pass {
            PassKind::Decode => self.bits.slice_mut(..half),
            PassKind::Prompts => self.bits.slice_mut(half..),
        };
        // SAFETY: routers choose among the experts that there are.
        Ok(unsafe { self.kernel.launch(device, (blocks, pitch), &chosen.as_view(), count, &mut bits) }?)
    }

    /// Before a step's rows: takes in what finished steps used, changes the addresses of experts whose copies are
    /// there, and begins new copies.
    pub(super) fn begin(&mut self, device: &Device, staging: &Staging) -> Result<(), CudaBackendError> {
        self.take_in();
        let flipped = self.change_addresses(device, staging)?;
        self.start_copies(device.stream(), flipped)?;
        let stream = device.stream();
        stream.memset_zeros(&mut self.bits).during("clearing the uses of experts")
    }

    /// Behind a step's rows: sends its uses on their way.
    pub(super) fn end(&mut self, stream: &Arc<CudaStream>) -> Result<(), CudaBackendError> {
        let doing = "reading the uses of experts";
        // More steps than may be unfinished: this one's are not missed.
        let Some(bits) = self.idle.pop() else { return Ok(()) };
        // SAFETY: nobody looks at the memory until the mark behind the copy was passed.
        let room = unsafe { bits.as_mut_slice() };
        let from = self.bits.device_ptr(stream).0;
        stream.context().bind_to_thread().during(doing)?;
        // SAFETY: as many words on both sides; the pinned ones stay until the mark was passed.
        unsafe { result::memcpy_dtoh_async(room, from, stream.cu_stream()) }.during(doing)?;
        let copied = stream.context().new_event(None).during(doing)?;
        copied.record(stream).during(doing)?;
        self.watched.push_back(Watched { bits, copied });
        Ok(())
    }

    fn take_in(&mut self) {
        while let Some(watched) = self.watched.pop_front_if(|w| w.copied.is_complete()) {
            // SAFETY: the copy to this memory is over.
            let bits = unsafe { watched.bits.as_slice() };
            let (decode, prompts) = bits.split_at(bits.len() / 2);
            for pool in &mut self.pools {
                pool.take_in(decode, prompts, self.shape.experts, &self.counts);
            }
            self.idle.push(watched.bits);
        }
    }

    /// Of what was copied. Says which moves begin their second copy, and whether any place of the host became spare.
    fn change_addresses(&mut self, device: &Device, staging: &Staging) -> Result<Vec<Move>, CudaBackendError> {
        let mut second = Vec::new();
        while let Some(moved) = self.moves.pop_front_if(|m| m.copied.is_complete()) {
            let pool = &mut self.pools[moved.pool];
            let expert = match moved.phase {
                Phase::Going => {
                    pool.places.left(&moved.swap);
                    moved.swap.goes
                }
                Phase::Coming => {
                    pool.places.arrived(&moved.swap);
                    self.counts.promoted.fetch_add(1, Ordering::Relaxed);
                    moved.swap.comes
                }
            };
            let ((block, of_block), place) = (pool.member(expert), pool.places.place(expert));
            let (at, address) = (block * self.shape.experts + of_block, pool.address(device.stream(), place));
            let Some(room) = staging.take::<u64>(1) else {
                unreachable!("a step's pinned memory has room for {SWAPS_MAX} addresses before anything else")
            };
            room[0] = address;
            let to = self.table.device_ptr(device.stream()).0 + 8 * at as u64;
            // SAFETY: the entry lies in the table; the room is the step's own until its results are read.
            unsafe { send_to(device, to, room) }?;
            second.push(moved);
        }
        Ok(second)
    }

    /// Behind what the main stream has so far, which reads the old addresses: what `flipped` goes on with, and new
    /// swaps.
    fn start_copies(&mut self, stream: &Arc<CudaStream>, flipped: Vec<Move>) -> Result<(), CudaBackendError> {
        let doing = "copying experts";
        if !flipped.is_empty() {
            let passed = stream.context().new_event(None).during(doing)?;
            passed.record(stream).during(doing)?;
            self.copies.wait(&passed).during(doing)?;
        }
        for moved in flipped {
            match moved.phase {
                Phase::Going => self.copy(Move { phase: Phase::Coming, ..moved })?,
                // All copies to its place from here on are behind the mark.
                Phase::Coming => self.pools[moved.pool].places.freed(&moved.swap),
            }
        }
        for pool in 0..self.pools.len() {
            let most = self.pools[pool].places.swaps();
            while self.moves.len() < most {
                let Some(swap) = self.pools[pool].places.swap() else { break };
                let copied = self.copies.context().new_event(None).during(doing)?;
                self.copy(Move { pool, swap, phase: Phase::Going, copied })?;
            }
        }
        Ok(())
    }

    /// Enqueues the copy of a move's phase.
    fn copy(&mut self, moved: Move) -> Result<(), CudaBackendError> {
        let (pool, copies) = (&mut self.pools[moved.pool], &self.copies);
        let (bytes, swap) = (pool.shape.place_bytes, moved.swap);
        let device = pool.address(copies, ExpertPlace::Device(swap.device));
        let place = if moved.phase == Phase::Going { swap.to } else { swap.from };
        let host = &mut pool.host.bytes[place as usize * bytes..][..bytes];
        self.copies.context().bind_to_thread().during("copying experts")?;
        // SAFETY: both places are this swap's: nobody writes the one that is read, and nobody reads the one that is
        // written, for its address was taken from the table before the mark that the stream waits for.
        let copied = unsafe {
            match moved.phase {
                Phase::Going => result::memcpy_dtoh_async(host, device, copies.cu_stream()),
                Phase::Coming => result::memcpy_htod_async(device, host, copies.cu_stream()),
            }
        };
        copied.during("copying experts")?;
        moved.copied.record(copies).during("copying experts")?;
        self.moves.push_back(moved);
        Ok(())
    }
}

impl Pool {
    fn take_in(&mut self, decode: &[u32], prompts: &[u32], experts: usize, counts: &ReadCounts) {
        let decoded: Vec<u32> = self.set(decode, experts).collect();
        let uses = self.places.count(decoded.iter().copied().chain(self.set(prompts, experts)));
        counts.hits.fetch_add(uses.hits, Ordering::Relaxed);
        counts.misses.fetch_add(uses.misses, Ordering::Relaxed);
        counts.missed_bytes.fetch_add(uses.misses * self.shape.place_bytes as u64, Ordering::Relaxed);
        if !decoded.is_empty() {
            self.places.used(decoded.into_iter());
        }
    }
}

impl Drop for ExpertTier {
    fn drop(&mut self) {
        // The memory goes only when no copy runs. A failure leaves nothing to do.
        let _ = self.copies.synchronize();
    }
}
