//! What sequences leave on the device between steps: recurrent state, convolution rings, token history, KV pages, page
//! tables.
//!
//! Everything of a kind is one allocation with the layers outermost, so that a slot or a page is copied or cleared in
//! all layers by one strided call. The stream's order is all the synchronisation there is.

use crate::backend::cuda::error::{CudaResult, During};
use crate::backend::cuda::layout::store::StoreShape;
use crate::ids::{CheckpointId, PageId};
use chimere_kernels::cuda::Device;
use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtrMut, sys};

/// What sequences leave behind on the device, for all slots and pages.
pub(crate) struct Store {
    pub(crate) shape: StoreShape,
    states: CudaSlice<f32>,
    rings: CudaSlice<f32>,
    /// Updates that the recurrent state of each slot lacks. Checkpoints have none.
    updates: CudaSlice<f32>,
    /// Hidden states that each slot carries for the draft head, `[slots, carried]`.
    pub(crate) carried: CudaSlice<f32>,
    /// `[slots, vocab]`, 16 bits a token: bit 15 for the prompt, the rest how often it was generated.
    pub(crate) counts: CudaSlice<u32>,
    /// Page table of each slot, `[slots, table]`.
    pub(crate) table: CudaSlice<i32>,
    /// Last sampled token by slot.
    pub(crate) sampled: CudaSlice<i32>,
    keys: CudaSlice<u8>,
    values: CudaSlice<u8>,
    /// What the device's page tables hold.
    mirror: Vec<Vec<PageId>>,
}

/// Rows of bytes on the device, at a fixed distance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DevicePart {
    pub(crate) at: sys::CUdeviceptr,
    /// Bytes of a row.
    pub(crate) bytes: usize,
    pub(crate) rows: usize,
    pub(crate) pitch: usize,
}

/// What the sequences of one block with recurrent state leave there.
pub(crate) struct RecurrentMemory<'a> {
    /// Of slots, then of checkpoints.
    pub(crate) states: CudaViewMut<'a, f32>,
    /// Rings of the causal convolution, of slots and then of checkpoints.
    pub(crate) rings: CudaViewMut<'a, f32>,
    /// Updates that the states of slots lack.
    pub(crate) updates: CudaViewMut<'a, f32>,
}

/// Keys and values of one block.
pub(crate) struct KvMemory<'a> {
    pub(crate) keys: CudaViewMut<'a, u8>,
    pub(crate) values: CudaViewMut<'a, u8>,
    pub(crate) table: CudaView<'a, i32>,
}

impl Store {
    /// Takes all of it, zeroed.
    pub(crate) fn new(device: &Device, shape: StoreShape) -> CudaResult<Self> {
        let s = device.stream();
        let (slots, states, pages, kv) = (shape.slots, shape.states(), shape.pages, shape.cached);
        // Never empty: no model has all of it, and the driver gives no memory of 0 bytes.
        let some = |n: usize| n.max(1);
        Ok(Self {
            shape,
            states: s
                .alloc_zeros(some(shape.recurrent * states * shape.state))
                .during("allocating recurrent states")?,
            rings: s.alloc_zeros(some(shape.recurrent * states * shape.ring)).during("allocating convolution rings")?,
            updates: s
                .alloc_zeros(some(shape.recurrent * slots * shape.updates))
                .during("allocating updates of recurrent states")?,
            carried: s.alloc_zeros(some(slots * shape.carried)).during("allocating hidden states")?,
            counts: s.alloc_zeros(slots * shape.counts).during("allocating token histories")?,
            table: s.alloc_zeros(slots * shape.table).during("allocating page tables")?,
            sampled: s.alloc_zeros(slots).during("allocating sampled tokens")?,
            keys: s.alloc_zeros(some(kv * pages * shape.key_page)).during("allocating keys")?,
            values: s.alloc_zeros(some(kv * pages * shape.value_page)).during("allocating values")?,
            mirror: vec![Vec::new(); slots],
        })
    }

    /// What the `n`th block that has such keeps.
    pub(crate) fn recurrent(&mut self, n: usize) -> RecurrentMemory<'_> {
        let (state, ring) = (self.shape.states() * self.shape.state, self.shape.states() * self.shape.ring);
        let updates = self.shape.slots * self.shape.updates;
        RecurrentMemory {
            states: self.states.slice_mut(n * state..(n + 1) * state),
            rings: self.rings.slice_mut(n * ring..(n + 1) * ring),
            updates: self.updates.slice_mut(n * updates..(n + 1) * updates),
        }
    }

    /// Keys and values of the `n`th block that has such.
    pub(crate) fn kv(&mut self, n: usize) -> KvMemory<'_> {
        let (keys, values) = (self.shape.pages * self.shape.key_page, self.shape.pages * self.shape.value_page);
        KvMemory {
            keys: self.keys.slice_mut(n * keys..(n + 1) * keys),
            values: self.values.slice_mut(n * values..(n + 1) * values),
            table: self.table.as_view(),
        }
    }

    /// Recurrent state and what it lacks, convolution ring and history; not the last sampled token.
    pub(crate) fn copy_slot(&mut self, device: &Device, from: usize, to: usize) -> CudaResult<()> {
        let s = self.shape;
        self.copy_state(device, from, to)?;
        copy_in_layers(device, &mut self.updates, (s.recurrent, s.slots, s.updates), from, to)?;
        copy_in_layers(device, &mut self.carried, (1, s.slots, s.carried), from, to)?;
        copy_in_layers(device, &mut self.counts, (1, s.slots, s.counts), from, to)
    }

    /// Recurrent state and convolution ring of a checkpoint; the history and what is carried are left empty.
    pub(crate) fn restore(&mut self, device: &Device, from: CheckpointId, to: usize) -> CudaResult<()> {
        let s = self.shape;
        self.copy_state(device, self.place_of(from), to)?;
        fill_in_layers(device, &mut self.carried, (1, s.slots, s.carried), to, 0)?;
        fill_in_layers(device, &mut self.counts, (1, s.slots, s.counts), to, 0)
    }

    /// Where a checkpoint lies, as if it were a slot.
    pub(crate) fn place_of(&self, checkpoint: CheckpointId) -> usize {
        self.shape.slots + checkpoint.0 as usize
    }

    fn copy_state(&mut self, device: &Device, from: usize, to: usize) -> CudaResult<()> {
        let s = self.shape;
        copy_in_layers(device, &mut self.states, (s.recurrent, s.states(), s.state), from, to)?;
        copy_in_layers(device, &mut self.rings, (s.recurrent, s.states(), s.ring), from, to)
    }

    /// Where a checkpoint lies: one row of bytes a part.
    pub(crate) fn checkpoint_parts(&mut self, stream: &CudaStream, checkpoint: CheckpointId) -> Vec<DevicePart> {
        let (s, place) = (self.shape, self.place_of(checkpoint));
        let arrays = [(&mut self.states, s.state), (&mut self.rings, s.ring)];
        let parts = arrays.into_iter().flat_map(|(array, len)| {
            let (start, bytes) = (array.device_ptr_mut(stream).0, 4 * len);
            let row = move |layer| start + ((layer * s.states() + place) * bytes) as u64;
            (0..s.recurrent).map(move |layer| DevicePart { at: row(layer), bytes, rows: 1, pitch: bytes })
        });
        parts.filter(|part| part.bytes > 0).collect()
    }

    /// Where a page lies: its keys, then its values, a row a block that has such.
    pub(crate) fn page_parts(&mut self, stream: &CudaStream, page: PageId) -> [DevicePart; 2] {
        let s = self.shape;
        [(&mut self.keys, s.key_page), (&mut self.values, s.value_page)].map(|(array, bytes)| DevicePart {
            at: array.device_ptr_mut(stream).0 + (page.0 as usize * bytes) as u64,
            bytes,
            rows: s.cached,
            pitch: s.pages * bytes,
        })
    }

    /// One KV page in every block that has such.
    pub(crate) fn copy_page(&mut self, device: &Device, from: usize, to: usize) -> CudaResult<()> {
        let s = self.shape;
        copy_in_layers(device, &mut self.keys, (s.cached, s.pages, s.key_page), from, to)?;
        copy_in_layers(device, &mut self.values, (s.cached, s.pages, s.value_page), from, to)
    }

    /// A slot's sequence begins anew.
    pub(crate) fn clear_slot(&mut self, device: &Device, slot: usize) -> CudaResult<()> {
        let s = self.shape;
        fill_in_layers(device, &mut self.states, (s.recurrent, s.states(), s.state), slot, 0)?;
        fill_in_layers(device, &mut self.rings, (s.recurrent, s.states(), s.ring), slot, 0)?;
        fill_in_layers(device, &mut self.carried, (1, s.slots, s.carried), slot, 0)?;
        fill_in_layers(device, &mut self.counts, (1, s.slots, s.counts), slot, 0)
    }

    /// Small equal values wherever a sequence would have left its own.
    pub(crate) fn fill(&mut self, device: &Device, slot: usize, pages: &[PageId]) -> CudaResult<()> {
        const BYTE: u8 = 0x2a;
        let s = self.shape;
        fill_in_layers(device, &mut self.states, (s.recurrent, s.states(), s.state), slot, 0x3c23_d70a)?;
        fill_in_layers(device, &mut self.rings, (s.recurrent, s.states(), s.ring), slot, 0x3c23_d70a)?;
        fill_in_layers(device, &mut self.updates, (s.recurrent, s.slots, s.updates), slot, 0x3c23_d70a)?;
        for page in pages {
            let word = u32::from_ne_bytes([BYTE; 4]);
            fill_in_layers(device, &mut self.keys, (s.cached, s.pages, s.key_page), page.0 as usize, word)?;
            fill_in_layers(device, &mut self.values, (s.cached, s.pages, s.value_page), page.0 as usize, word)?;
        }
        Ok(())
    }

    /// NaN everywhere, as in memory that was never written.
    pub(crate) fn poison(&mut self, device: &Device) -> CudaResult<()> {
        const NAN: u32 = 0x7fff_ffff;
        // By the shape and not by what was allocated: a model has not all of it.
        let s = self.shape;
        fill_in_layers(device, &mut self.states, (s.recurrent, 1, s.states() * s.state), 0, NAN)?;
        fill_in_layers(device, &mut self.rings, (s.recurrent, 1, s.states() * s.ring), 0, NAN)?;
        fill_in_layers(device, &mut self.updates, (s.recurrent, 1, s.slots * s.updates), 0, NAN)?;
        fill_in_layers(device, &mut self.carried, (1, 1, s.slots * s.carried), 0, NAN)?;
        fill_in_layers(device, &mut self.keys, (s.cached, 1, s.pages * s.key_page), 0, NAN)?;
        fill_in_layers(device, &mut self.values, (s.cached, 1, s.pages * s.value_page), 0, NAN)
    }

    /// Which entries of a slot's page table differ from what the device has: their first index and the new values. The
    /// mirror is brought up to date, so the caller must send them.
    pub(crate) fn table_change(&mut self, slot: usize, pages: &[PageId]) -> Option<(usize, Vec<i32>)> {
        let mirror = &mut self.mirror[slot];
        let same = mirror.iter().zip(pages).take_while(|(a, b)| a == b).count();
        if same == pages.len() {
            return None;
        }
        mirror.truncate(same);
        mirror.extend_from_slice(&pages[same..]);
        Some((slot * self.shape.table + same, pages[same..].iter().map(|p| p.0 as i32).collect()))
    }
}

fn copy_in_layers<T>(
    device: &Device,
    buffer: &mut CudaSlice<T>,
    (layers, entries, len): (usize, usize, usize),
    from: usize,
    to: usize,
) -> CudaResult<()> {
    let bytes = len * size_of::<T>();
    if layers == 0 || bytes == 0 || from == to {
        return Ok(());
    }
    let stream = device.stream();
    let at = buffer.device_ptr_mut(stream).0;
    let (device_kind, pitch) = (sys::CUmemorytype::CU_MEMORYTYPE_DEVICE, entries * bytes);
    let copy = sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: device_kind,
        srcHost: std::ptr::null(),
        srcDevice: at + (from * bytes) as u64,
        srcArray: std::ptr::null_mut(),
        srcPitch: pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: device_kind,
        dstHost: std::ptr::null_mut(),
        dstDevice: at + (to * bytes) as u64,
        dstArray: std::ptr::null_mut(),
        dstPitch: pitch,
        WidthInBytes: bytes,
        Height: layers,
    };
    stream.context().bind_to_thread().during("cuCtxSetCurrent")?;
    // SAFETY: both entries lie inside the buffer of `layers * entries * len` values: the plan's slots and pages were
    // checked.
    unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream.cu_stream()) }.result().during("copying a slot or page")
}

fn fill_in_layers<T>(
    device: &Device,
    buffer: &mut CudaSlice<T>,
    (layers, entries, len): (usize, usize, usize),
    entry: usize,
    word: u32,
) -> CudaResult<()> {
    let bytes = len * size_of::<T>();
    if layers == 0 || bytes == 0 {
        return Ok(());
    }
    assert!(bytes.is_multiple_of(4), "everything that is filled is made of words");
    let stream = device.stream();
    let at = buffer.device_ptr_mut(stream).0 + (entry * bytes) as u64;
    stream.context().bind_to_thread().during("cuCtxSetCurrent")?;
    // SAFETY: the entry lies inside the buffer in every layer, as above.
    unsafe { sys::cuMemsetD2D32Async(at, entries * bytes, word, bytes / 4, layers, stream.cu_stream()) }
        .result()
        .during("clearing a slot")
}
