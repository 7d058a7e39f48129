//! Low-rank adapters on one device: their memory, which of them a row has, and what is launched before a product that
//! they add to.

use super::pinned::{Pinned, send_to};
use super::staging::{Staging, stage};
use crate::adapter::{Adapter, ResidentAdapter};
use crate::backend::cuda::error::{CudaResult, During};
use crate::backend::cuda::layout::operators::adapter_plan::{AdapterPlan, BlockGroups};
use crate::backend::cuda::layout::products::RowCount;
use crate::ids::SlotId;
use crate::step::StepPlan;
use chimere_kernels::cuda::lora::Lora;
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::wide::Source;
use chimere_kernels::cuda::wide::lora_shrink::LoraShrink;
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::{CudaSlice, CudaView, DevicePtrMut};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// That a sequence has no adapter.
const NONE: [i32; 2] = [-1, 0];

/// The slots of a device for adapters.
pub(crate) struct AdapterStore {
    plan: AdapterPlan,
    /// Adapters as they were packed, `[slots, slot_bytes]`.
    memory: CudaSlice<u8>,
    /// By slot of a sequence: the slot of its adapter, or -1, and the bits of its scale.
    of_sequences: CudaSlice<i32>,
    /// What the device was told of each sequence.
    on_device: Vec<[i32; 2]>,
    /// By slot: the number of its adapter.
    resident: Vec<Option<u64>>,
    /// By group, which part each output is of.
    columns: Vec<CudaSlice<u8>>,
    /// `[rows, AdapterPlan::reduced]`: products of rows with A.
    reduced: CudaSlice<f32>,
    shrink: LoraShrink,
    /// By number: adapters as they lie on the device. Those that nobody has any more are forgotten when another comes.
    images: HashMap<u64, (Weak<Adapter>, Pinned<u8>)>,
}

/// What adapters add to the products of a block.
#[derive(Clone, Copy)]
pub(crate) struct BlockAdapters<'a> {
    store: &'a AdapterStore,
    block: usize,
    /// By row: the slot of its sequence, or -1.
    row_slots: &'a CudaView<'a, i32>,
}

/// Which of a block's matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdaptedSide {
    /// Those that read the residual stream, with the norm of so many values folded in.
    Inputs { norm: usize },
    /// The one that writes it.
    Output,
}

impl AdapterStore {
    /// Takes the memory for as many adapters as the plan has slots for.
    ///
    /// # Errors
    /// If the device has too little, or the kernel cannot be loaded.
    pub(crate) fn new(
        device: &Device,
        cache: &KernelCache,
        plan: AdapterPlan,
        (rows, sequences): (usize, usize),
        planes: Planes,
    ) -> CudaResult<Self> {
        let (stream, doing) = (device.stream(), "allocating memory for adapters");
        let on_device = vec![NONE; sequences];
        let columns = plan.groups.iter().map(|group| stream.clone_htod(&group.columns()).during(doing));
        Ok(Self {
            memory: stream.alloc_zeros(plan.room.slots * plan.slot_bytes()).during(doing)?,
            of_sequences: stream.clone_htod(on_device.as_flattened()).during(doing)?,
            on_device,
            resident: vec![None; plan.room.slots],
            columns: columns.collect::<CudaResult<_>>()?,
            reduced: stream.alloc_zeros(rows * plan.reduced()).during(doing)?,
            shrink: LoraShrink::load(device, cache, planes)?,
            images: HashMap::new(),
            plan,
        })
    }

    /// Brings the adapters of a step that their slots lack, and tells the device which sequence has which.
    ///
    /// # Errors
    /// If the host has no memory, or the driver refuses.
    pub(crate) fn begin(&mut self, device: &Device, plan: &StepPlan, staging: &Staging) -> CudaResult<()> {
        for piece in &plan.pieces {
            let (sequence, mut adapted) = (piece.slot.0 as usize, NONE);
            if let Some(ResidentAdapter { adapter, slot, scale }) = &piece.adapter {
                self.bring(device, adapter, usize::from(slot.0))?;
                adapted = [i32::from(slot.0), scale.to_bits() as i32];
            }
            if std::mem::replace(&mut self.on_device[sequence], adapted) != adapted {
                stage(device, staging, &mut self.of_sequences, 2 * sequence, &adapted)?;
            }
        }
        Ok(())
    }

    /// Whether any of these sequences had an adapter in the last step.
    pub(crate) fn any(&self, mut sequences: impl Iterator<Item = SlotId>) -> bool {
        sequences.any(|slot| self.on_device.get(slot.0 as usize).is_some_and(|adapted| *adapted != NONE))
    }

    /// For a block, and rows of the sequences in these slots.
    pub(crate) fn block<'a>(&'a self, block: usize, row_slots: &'a CudaView<'a, i32>) -> BlockAdapters<'a> {
        BlockAdapters { store: self, block, row_slots }
    }

    /// Copies an adapter to a slot, behind all steps that were enqueued.
    fn bring(&mut self, device: &Device, adapter: &Arc<Adapter>, slot: usize) -> CudaResult<()> {
        if self.resident[slot] == Some(adapter.number) {
            return Ok(());
        }
        if !self.images.contains_key(&adapter.number) {
            let image = self.image(device, adapter)?;
            self.images.insert(adapter.number, (Arc::downgrade(adapter), image));
        }
        let image = &self.images[&adapter.number].1;
        let to = self.memory.device_ptr_mut(device.stream()).0 + (slot * self.plan.slot_bytes()) as u64;
        // SAFETY: nobody writes an image once it is made, and it is freed when no copy is under way.
        unsafe { send_to(device, to, image.as_slice()) }?;
        self.resident[slot] = Some(adapter.number);
        Ok(())
    }

    /// An adapter as it lies on the device. Images that nobody wants any more are freed.
    fn image(&mut self, device: &Device, adapter: &Adapter) -> CudaResult<Pinned<u8>> {
        if self.images.values().any(|(of, _)| of.strong_count() == 0) {
            device.stream().synchronize().during("waiting for copies of adapters")?;
            self.images.retain(|_, (of, _)| of.strong_count() > 0);
        }
        let mut bytes = Vec::new();
        self.plan.pack(adapter, &mut bytes);
        let image = Pinned::new(device.stream().context(), bytes.len()).during("allocating pinned memory")?;
        // SAFETY: nobody knows it yet.
        unsafe { image.as_mut_slice() }.copy_from_slice(&bytes);
        Ok(image)
    }
}

impl AdaptedSide {
    fn norm(self) -> Option<usize> {
        match self {
            Self::Inputs { norm } => Some(norm),
            Self::Output => None,
        }
    }
}

impl<'a> BlockAdapters<'a> {
    /// What adapters add to products of one side of the block, and the number of its group; none where they change no
    /// matrix there. Nobody has made `A x` of the rows yet.
    pub(crate) fn lora(self, rows: RowCount, side: AdaptedSide) -> Option<(usize, Lora<'a>)> {
        let Self { store, block, row_slots } = self;
        let groups = store.plan.blocks[block];
        let number = if side == AdaptedSide::Output { groups.outputs } else { groups.inputs }?;
        let lora = Lora::new(
            (&store.memory, store.plan.slot_bytes()),
            &store.of_sequences,
            row_slots,
            (number, &store.columns[number]),
            (&store.reduced, store.plan.reduced()),
        );
        // Prompts are not captured: what stages their rows may still run.
        Some((number, lora.early(!rows.prefill)))
    }

    /// Whether adapters may change any matrix of the block.
    pub(crate) fn change(&self) -> bool {
        let BlockGroups { inputs, outputs } = self.store.plan.blocks[self.block];
        inputs.is_some() || outputs.is_some()
    }

    /// Rows as products of one side of the block read them: where that has matrices that adapters change, behind what
    /// they take of the rows was enqueued.
    pub(crate) fn read<'b>(
        self,
        device: &Device,
        rows: RowCount,
        side: AdaptedSide,
        x: Source<'b>,
    ) -> CudaResult<Source<'b>>
    where
        'a: 'b,
    {
        let Some((number, lora)) = self.lora(rows, side) else { return Ok(x) };
        let plan = &self.store.plan;
        let group = &plan.groups[number];
        let (count, a_rows) = ((rows.count, group.cols), group.a_rows(plan.room.rank_max));
        // SAFETY: `pack` writes heads that name what lies behind them, and a sequence has the slot of its adapter.
        unsafe { self.store.shrink.launch(device, count, side.norm(), &x, lora, a_rows) }?;
        Ok(x.adapted(Some(lora)))
    }
}
