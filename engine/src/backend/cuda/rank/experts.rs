//! Routed experts that do not all fit into the device's memory: some lie there, the others in memory of the host that
//! kernels read over the bus, where it lies.
//!
//! A table has each expert's address, and kernels find an expert by it, so one launch reads both kinds, in the order
//! in which it would read them anyway: where an expert lies changes no byte.
//!
//! What the kernels for few rows read on the host comes to the device as they read it, as long as the block has a place
//! there in reserve: they write it there and its address into the table ([`Arrivals`]), so it crosses the bus once and
//! later launches find it. Which experts decoding used comes back with every step as a bit each, and who came to which
//! reserve. For each reserve that was taken the one goes that [`ExpertPlaces`] names: it is copied to a spare place of
//! the host on a stream of its own, while kernels read it where it is; between two steps, in the stream's order, its
//! address changes and the place that it had is a reserve.

use super::pinned::{Pinned, send_to};
use super::staging::Staging;
use super::upload::upload;
use crate::backend::cuda::error::{CudaBackendError, CudaResult, During};
use crate::backend::cuda::layout::experts::{CHANGES, PoolShape, PoolSource, TierShape};
use crate::backend::cuda::layout::matrix::MatrixPlan;
use crate::backend::cuda::layout::pack::source::ByteSource;
use crate::cache::{EXPERTS_GOING_MAX as GOING_MAX, ExpertPlace, ExpertPlaces, Going};
use crate::step::ExpertReads;
use chimere_kernels::cuda::addresses::Addresses;
use chimere_kernels::cuda::stack::{Arrivals, RESERVES, Stack};
use chimere_kernels::cuda::uses::{self, Uses};
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::{CudaContext, CudaEvent, CudaSlice, CudaStream, DevicePtr, result, sys};
use memmap2::{Advice, MmapMut, MmapOptions};
use rayon::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Steps whose uses are on their way: those that may be unfinished, and one more.
const WATCHED: usize = 5;
/// The host's memory is locked in pieces of this size.
const LOCK_BYTES: usize = 1 << 30;

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
    ) -> CudaResult<Self> {
        let place = source.piece_bytes();
        let map = MmapOptions::new().len((source.pieces() + spare) * place).map_anon();
        let mut bytes = map.map_err(|e| CudaBackendError::Host { what: "memory for experts", why: e.to_string() })?;
        // Fewer and larger pages are locked sooner. Where there are none the small ones do as well.
        let _ = bytes.advise(Advice::HugePage);
        let at_once = (LOCK_BYTES / place).max(1);
        for (n, part) in bytes.chunks_mut(at_once * place).enumerate() {
            part.par_chunks_exact_mut(place).enumerate().try_for_each(|(i, out)| {
                let piece = n * at_once + i;
                if piece < source.pieces() {
                    source.write(piece, out)
                } else {
                    out.fill(0);
                    Ok(())
                }
            })?;
            progress(part.len());
        }
        let mut all = Self { bytes, locked: 0, address: 0, context: context.clone() };
        all.lock()?;
        Ok(all)
    }

    fn lock(&mut self) -> CudaResult<()> {
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

/// A place in reserve: of which of a pool's blocks, and its number among theirs.
type Reserve = (usize, usize);

/// A pool in both memories.
struct ExpertPool {
    shape: PoolShape,
    device: CudaSlice<u8>,
    host: HostExperts,
    places: ExpertPlaces,
    /// Places of the device that blocks have in reserve.
    reserves: Vec<[Option<u32>; RESERVES]>,
    /// Those that were taken, longest ago first.
    owed: VecDeque<Reserve>,
}

impl ExpertPool {
    /// The device's address of a place.
    fn address(&self, stream: &CudaStream, place: ExpertPlace) -> u64 {
        let (start, n) = match place {
            ExpertPlace::Device(n) => (self.device.device_ptr(stream).0, n),
            ExpertPlace::Host(n) => (self.host.address, n),
        };
        start + u64::from(n) * self.shape.place_bytes as u64
    }

    /// Which reserves there are at first: places behind the residents', to the blocks in turn.
    fn first_reserves(shape: &PoolShape) -> Vec<[Option<u32>; RESERVES]> {
        let (blocks, first) = (shape.blocks.len(), shape.residents());
        let mut all = vec![[None; RESERVES]; blocks];
        (0..shape.reserves()).for_each(|n| all[n % blocks][n / blocks] = Some((first + n) as u32));
        all
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

/// An expert on its way to the host, and the reserve that its place becomes.
struct Leaving {
    pool: usize,
    going: Going,
    reserve: Reserve,
    /// Recorded behind the copy of the expert to the host.
    copied: CudaEvent,
}

/// The uses of a step and who came in it, on their way to the host.
struct StepUses {
    words: Arc<Pinned<u32>>,
    copied: CudaEvent,
}

/// What was read and brought over since somebody last asked; shared with the thread that waits for steps.
#[derive(Debug, Default)]
pub(crate) struct ReadCounts {
    hits: AtomicU64,
    misses: AtomicU64,
    missed_bytes: AtomicU64,
    promoted: AtomicU64,
}

impl ReadCounts {
    /// What was counted, from which on it is counted anew.
    pub(crate) fn take(&self) -> ExpertReads {
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
pub(crate) enum PassKind {
    Decode,
    Prompts,
}

/// Experts in two memories, and who changes places; the module's head says how.
pub(crate) struct ExpertTier {
    shape: TierShape,
    pools: Vec<ExpertPool>,
    /// `[blocks][experts]`: addresses of places.
    table: Arc<CudaSlice<u64>>,
    /// `[blocks][RESERVES]`: addresses of places in reserve, and who took them.
    reserves: Arc<CudaSlice<u64>>,
    came: Arc<CudaSlice<u32>>,
    kernels: (Uses, Addresses),
    /// Of decode rows, then of prompts: `[2][blocks][words]`.
    bits: CudaSlice<u32>,
    /// Whether `bits` and `came` have been read since they were last cleared.
    read: bool,
    watched: VecDeque<StepUses>,
    idle: Vec<Arc<Pinned<u32>>>,
    leaving: VecDeque<Leaving>,
    /// Changes of the table of addresses, `[CHANGES][2]`.
    changes: CudaSlice<u64>,
    copies: Arc<CudaStream>,
    counts: Arc<ReadCounts>,
}

/// Where a block's experts lie.
#[derive(Clone, Debug)]
pub(crate) struct PlacedExperts {
    table: Arc<CudaSlice<u64>>,
    reserves: Arc<CudaSlice<u64>>,
    came: Arc<CudaSlice<u32>>,
    block: usize,
    experts: usize,
    /// Where in a place the matrix begins.
    offset: usize,
    /// Where the pool's memory of the host begins, and its bytes.
    host: (u64, u64),
}

impl PlacedExperts {
    /// As kernels take them.
    pub(crate) fn stack(&self) -> Stack<'_> {
        let (at, reserves) = (self.block * self.experts, self.block * RESERVES..(self.block + 1) * RESERVES);
        let (places, came) = (self.table.slice(at..at + self.experts), self.came.slice(reserves.clone()));
        let arrivals = Arrivals { reserves: self.reserves.slice(reserves), came, host: self.host };
        Stack::Placed { places, offset: self.offset, arrivals }
    }
}

impl ExpertTier {
    /// Packs the experts into both memories. `progress` hears how many bytes are done.
    pub(crate) fn load(
        device: &Device,
        cache: &KernelCache,
        shape: TierShape,
        matrices: &[&MatrixPlan<'_>],
        progress: &mut dyn FnMut(usize),
    ) -> CudaResult<Self> {
        let (pairs, _) = matrices.as_chunks::<2>();
        let (stream, doing) = (device.stream(), "allocating the table of experts");
        let mut pools = Vec::with_capacity(shape.pools.len());
        for pool in &shape.pools {
            let members = shape.members(pool);
            let source = |first, count| PoolSource { matrices: pairs, shape: pool, first, count };
            // What the reserves begin with is read by nobody.
            let (there, here) = (source(0, pool.device), source(pool.residents(), members - pool.residents()));
            let (bytes, mut done) = (pool.device * pool.place_bytes, 0);
            let mut share = |part: f32| {
                let now = (part * bytes as f32) as usize;
                progress(now.saturating_sub(done));
                done = done.max(now);
            };
            let slice = upload(device, &[&there], &mut share)?.pop().expect("one source, one place");
            let host = HostExperts::new(stream.context(), &here, GOING_MAX, progress)?;
            let device_places = (pool.residents() as u32, pool.reserves() as u32);
            let places = ExpertPlaces::new(members as u32, device_places, GOING_MAX as u32);
            let (shape, reserves) = (pool.clone(), ExpertPool::first_reserves(pool));
            pools.push(ExpertPool { shape, device: slice, host, places, reserves, owed: VecDeque::new() });
        }
        let (mut table, mut reserves) = (vec![0; shape.blocks * shape.experts], vec![0; shape.blocks * RESERVES]);
        for pool in &pools {
            for n in 0..shape.members(&pool.shape) as u32 {
                let (block, expert) = pool.member(n);
                table[block * shape.experts + expert] = pool.address(stream, pool.places.place(n));
            }
            for (block, theirs) in pool.shape.blocks.iter().zip(&pool.reserves) {
                let address = |place: Option<u32>| place.map_or(0, |n| pool.address(stream, ExpertPlace::Device(n)));
                reserves[block * RESERVES..][..RESERVES].copy_from_slice(&theirs.map(address));
            }
        }
        let words = 2 * shape.blocks * uses::words(shape.experts);
        let pinned = || Pinned::new(stream.context(), words + reserves.len()).map(Arc::new).during(doing);
        Ok(Self {
            table: Arc::new(stream.clone_htod(&table).during(doing)?),
            came: Arc::new(stream.alloc_zeros(reserves.len()).during(doing)?),
            reserves: Arc::new(stream.clone_htod(&reserves).during(doing)?),
            kernels: (Uses::load(device, cache, shape.experts)?, Addresses::load(device, cache)?),
            bits: stream.alloc_zeros(words).during(doing)?,
            read: false,
            watched: VecDeque::new(),
            idle: (0..WATCHED).map(|_| pinned()).collect::<Result<_, _>>()?,
            leaving: VecDeque::new(),
            changes: stream.alloc_zeros(2 * CHANGES).during(doing)?,
            copies: stream.context().new_stream().during(doing)?,
            counts: Arc::default(),
            pools,
            shape,
        })
    }

    /// Where the `n`th of the matrices that it was loaded with lies, by expert.
    pub(crate) fn placed(&self, n: usize) -> PlacedExperts {
        let (block, down) = (n / 2, n % 2 == 1);
        let pool = self.pools.iter().find(|p| p.shape.blocks.contains(&block)).expect("every block is in a pool");
        PlacedExperts {
            table: self.table.clone(),
            reserves: self.reserves.clone(),
            came: self.came.clone(),
            block,
            experts: self.shape.experts,
            offset: if down { pool.shape.down_at } else { 0 },
            host: (pool.host.address, pool.host.bytes.len() as u64),
        }
    }

    /// What was read since somebody last asked.
    pub(crate) fn counts(&self) -> Arc<ReadCounts> {
        self.counts.clone()
    }

    /// Enqueues that a pass's uses are noted: of each block the first `count` of `pitch` choices.
    pub(crate) fn note(
        &mut self,
        device: &Device,
        pass: PassKind,
        chosen: &CudaSlice<i32>,
        (count, pitch): (usize, usize),
    ) -> CudaResult<()> {
        let (blocks, half) = (self.shape.blocks, self.bits.len() / 2);
        let mut bits = match pass {
            PassKind::Decode => self.bits.slice_mut(..half),
            PassKind::Prompts => self.bits.slice_mut(half..),
        };
        // SAFETY: routers choose among the experts that there are.
        Ok(unsafe { self.kernels.0.launch(device, (blocks, pitch), &chosen.as_view(), count, &mut bits) }?)
    }

    /// Before a step's rows: takes in what finished steps used and brought, changes the addresses of experts that have
    /// left, and has others leave.
    pub(crate) fn begin(&mut self, device: &Device, staging: &Staging) -> CudaResult<()> {
        self.take_in();
        self.change_addresses(device, staging)?;
        self.start_copies()?;
        if std::mem::take(&mut self.read) {
            let (stream, doing) = (device.stream(), "clearing the uses of experts");
            stream.memset_zeros(&mut self.bits).during(doing)?;
            let came = self.came.device_ptr(stream).0;
            // SAFETY: all of the buffer, which only what the stream does reads and writes.
            unsafe { result::memset_d8_async(came, 0, self.came.num_bytes(), stream.cu_stream()) }.during(doing)?;
        }
        Ok(())
    }

    /// Behind a step's rows: sends its uses, and who came, on their way.
    pub(crate) fn end(&mut self, stream: &Arc<CudaStream>) -> CudaResult<()> {
        let doing = "reading the uses of experts";
        // More steps than may be unfinished: this one's come with the next one's.
        let Some(words) = self.idle.pop() else { return Ok(()) };
        // SAFETY: nobody looks at the memory until the mark behind the copies was passed.
        let (bits, came) = unsafe { words.as_mut_slice() }.split_at_mut(self.bits.len());
        stream.context().bind_to_thread().during(doing)?;
        for (room, from) in [(bits, self.bits.device_ptr(stream).0), (came, self.came.device_ptr(stream).0)] {
            // SAFETY: as many words on both sides; the pinned ones stay until the mark was passed.
            unsafe { result::memcpy_dtoh_async(room, from, stream.cu_stream()) }.during(doing)?;
        }
        let copied = stream.context().new_event(None).during(doing)?;
        copied.record(stream).during(doing)?;
        self.read = true;
        self.watched.push_back(StepUses { words, copied });
        Ok(())
    }

    fn take_in(&mut self) {
        while let Some(watched) = self.watched.pop_front_if(|w| w.copied.is_complete()) {
            // SAFETY: the copies to this memory are over.
            let (bits, came) = unsafe { watched.words.as_slice() }.split_at(self.bits.len());
            let (decode, prompts) = bits.split_at(bits.len() / 2);
            for pool in &mut self.pools {
                pool.take_in(decode, prompts, self.shape.experts, &self.counts);
                self.counts.promoted.fetch_add(pool.take_arrivals(came), Ordering::Relaxed);
            }
            self.idle.push(watched.words);
        }
    }

    /// Of what was copied: who left lies on the host, and its place is a reserve.
    fn change_addresses(&mut self, device: &Device, staging: &Staging) -> CudaResult<()> {
        let (stream, mut changes) = (device.stream(), Vec::new());
        let [table, reserves] = [&self.table, &self.reserves].map(|words| words.device_ptr(stream).0);
        while let Some(left) = self.leaving.pop_front_if(|l| l.copied.is_complete()) {
            let (pool, Leaving { going, reserve: (i, n), .. }) = (&mut self.pools[left.pool], left);
            pool.places.gone(&going);
            pool.reserves[i][n] = Some(going.from);
            let (block, expert) = pool.member(going.expert);
            let address = |place| pool.address(stream, place);
            let entries =
                [(table, block * self.shape.experts + expert), (reserves, pool.shape.blocks[i] * RESERVES + n)];
            let values = [address(ExpertPlace::Host(going.to)), address(ExpertPlace::Device(going.from))];
            changes.extend(entries.iter().zip(values).flat_map(|((start, at), value)| [start + 8 * *at as u64, value]));
        }
        if changes.is_empty() {
            return Ok(());
        }
        let Some(room) = staging.take::<u64>(changes.len()) else {
            unreachable!("a step's pinned memory has room for {CHANGES} changes before anything else")
        };
        room.copy_from_slice(&changes);
        // SAFETY: no more leave at a time than there is room for; the pinned memory is the step's own until its results
        // are read.
        unsafe { send_to(device, self.changes.device_ptr(stream).0, room) }?;
        // SAFETY: entries of the table and of the reserves, each of an expert or a reserve of its own.
        Ok(unsafe { self.kernels.1.launch(device, &self.changes.slice(..changes.len())) }?)
    }

    /// For each reserve that was taken somebody goes.
    fn start_copies(&mut self) -> CudaResult<()> {
        let (doing, copies) = ("copying experts", &self.copies);
        copies.context().bind_to_thread().during(doing)?;
        for (n, pool) in self.pools.iter_mut().enumerate() {
            let most = pool.places.going_max();
            while self.leaving.len() < most && !pool.owed.is_empty() {
                let Some(going) = pool.places.go() else { break };
                let reserve = pool.owed.pop_front().expect("one is owed");
                let (from, bytes) = (pool.address(copies, ExpertPlace::Device(going.from)), pool.shape.place_bytes);
                let host = &mut pool.host.bytes[going.to as usize * bytes..][..bytes];
                // SAFETY: nobody writes the device's place before its address is among the reserves, and nobody reads
                // the host's before it is in the table.
                unsafe { result::memcpy_dtoh_async(host, from, copies.cu_stream()) }.during(doing)?;
                let copied = copies.context().new_event(None).during(doing)?;
                copied.record(copies).during(doing)?;
                self.leaving.push_back(Leaving { pool: n, going, reserve, copied });
            }
        }
        Ok(())
    }
}

impl ExpertPool {
    fn take_in(&mut self, decode: &[u32], prompts: &[u32], experts: usize, counts: &ReadCounts) {
        let of_prompts = self.places.count(self.set(prompts, experts));
        let decoded: Vec<u32> = self.set(decode, experts).collect();
        for uses in [self.places.used(&decoded), of_prompts] {
            counts.hits.fetch_add(uses.hits, Ordering::Relaxed);
            counts.misses.fetch_add(uses.misses, Ordering::Relaxed);
            counts.missed_bytes.fetch_add(uses.misses * self.shape.place_bytes as u64, Ordering::Relaxed);
        }
    }

    /// Who came in a step, and how many: `[blocks][RESERVES]`, an expert plus one or 0.
    fn take_arrivals(&mut self, came: &[u32]) -> u64 {
        let (mut all, blocks) = (0, self.shape.blocks.len());
        for (i, block) in self.shape.blocks.iter().enumerate() {
            for (n, expert) in came[block * RESERVES..][..RESERVES].iter().enumerate().filter(|(_, e)| **e > 0) {
                let to = self.reserves[i][n].take().expect("a reserve is taken once");
                self.places.came((expert - 1) * blocks as u32 + i as u32, to);
                self.owed.push_back((i, n));
                all += 1;
            }
        }
        all
    }
}

impl Drop for ExpertTier {
    fn drop(&mut self) {
        // The memory goes only when no copy runs. A failure leaves nothing to do.
        let _ = self.copies.synchronize();
    }
}
