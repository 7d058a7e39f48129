//! A model's weights in device memory.

use super::experts::{ExpertTier, PlacedExperts};
use super::upload::{Mapped, upload, upload_values};
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::config::Placement;
use crate::backend::cuda::layout::experts::TierShape;
use crate::backend::cuda::layout::matrix::{MatrixForm, MatrixPlan, Packed};
use crate::backend::cuda::layout::pack::source::ByteSource;
use crate::backend::cuda::layout::weights::{Weights, WeightsPlan};
use crate::format::BlockType;
use crate::model::Model;
use chimere_kernels::cuda::product::layout::Layout;
use chimere_kernels::cuda::stack::Stack;
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::{CudaSlice, CudaView};

/// Packed matrices on the device.
#[derive(Debug)]
pub(crate) struct Matrix {
    /// How the matrices lie in memory.
    pub(crate) layout: Layout,
    /// What products are to be multiplied with; 1 for most.
    pub(crate) factor: f32,
    /// Output features of each.
    pub(crate) rows: usize,
    /// Input features, padded with zeros to a multiple of 128.
    pub(crate) cols: usize,
    /// One or, of experts, all of them.
    pub(crate) memory: MatrixMemory,
}

/// Where packed matrices lie.
#[derive(Debug)]
pub(crate) enum MatrixMemory {
    /// Matrices of the model's own, one after another.
    Own(CudaSlice<u8>),
    /// Experts that do not all fit into the device's memory.
    Placed(PlacedExperts),
}

impl Matrix {
    /// As kernels take them.
    pub(crate) fn stack(&self) -> Stack<'_> {
        match &self.memory {
            MatrixMemory::Own(bytes) => Stack::Packed(bytes.as_view()),
            MatrixMemory::Placed(placed) => placed.stack(),
        }
    }

    /// The bytes of a matrix that is not one of such experts.
    pub(crate) fn bytes(&self) -> CudaView<'_, u8> {
        match &self.memory {
            MatrixMemory::Own(bytes) => bytes.as_view(),
            MatrixMemory::Placed(_) => unreachable!("kernels that take no table are not given experts"),
        }
    }
}

impl Packed for Matrix {
    fn form(&self) -> MatrixForm {
        let Self { layout, factor, rows, cols, .. } = *self;
        MatrixForm { layout, factor, rows, cols, placed: matches!(self.memory, MatrixMemory::Placed(_)) }
    }
}

/// The embedding, `[vocab, hidden]`, encoded as GGUF files encode it; rows are not padded.
#[derive(Debug)]
pub(crate) struct EmbeddingTable {
    /// F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K or Q6_K.
    pub(crate) ty: BlockType,
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    Device(CudaSlice<u8>),
    Host(Mapped),
}

impl EmbeddingTable {
    /// All rows, as the device reads them.
    pub(crate) fn bytes(&self) -> CudaView<'_, u8> {
        match &self.memory {
            Memory::Device(bytes) => bytes.as_view(),
            Memory::Host(mapped) => mapped.view(),
        }
    }
}

/// Weights on the device.
pub(crate) type DeviceWeights = Weights<Matrix, CudaSlice<f32>, EmbeddingTable>;

impl DeviceWeights {
    /// Packs and copies a model, with its embedding in host memory if the configuration says so, and of its experts
    /// as many as do not fit into the bytes that they have. When this returns, everything is there. `progress` hears
    /// the share done, 0 to 1, on this thread.
    ///
    /// # Errors
    /// If memory does not suffice, or the driver fails.
    pub(crate) fn load(
        device: &Device,
        cache: &KernelCache,
        model: &Model,
        placement: Placement,
        progress: &mut dyn FnMut(f32),
    ) -> CudaResult<(Self, Option<ExpertTier>)> {
        let Placement { host_embedding, expert_bytes, .. } = placement;
        let (tree, matrices, vectors) = WeightsPlan::of(model, placement).take_apart();
        let (placed, own): (Vec<_>, Vec<_>) = matrices.iter().partition(|m| m.placed);
        let shape = expert_bytes.and_then(|bytes| TierShape::of(&placed, bytes));
        let [apart, rest] = [&placed, &own].map(|all| all.iter().map(|m| m.bytes()).sum::<usize>());
        let share = apart as f32 / (apart + rest).max(1) as f32;
        let tier = match shape {
            None => None,
            Some(shape) => {
                let mut done = 0;
                let mut progress = |bytes: usize| {
                    done += bytes;
                    progress(share * (done as f32 / apart as f32).min(1.0));
                };
                Some(ExpertTier::load(device, cache, shape, &placed, &mut progress)?)
            }
        };
        let mut sources: Vec<&dyn ByteSource> = own.iter().map(|m| *m as &dyn ByteSource).collect();
        if !host_embedding {
            sources.push(&tree.embed);
        }
        let mut slices = upload(device, &sources, &mut |part| progress(share + (1.0 - share) * part))?;
        let memory = if host_embedding {
            Memory::Host(Mapped::new(device, &tree.embed)?)
        } else {
            Memory::Device(slices.pop().expect("the embedding was the last source"))
        };
        let embed = EmbeddingTable { ty: tree.embed.ty, memory };
        let vectors = upload_values(device, &vectors)?;
        let (mut slices, mut experts) = (slices.into_iter(), 0..);
        let memory = |m: &MatrixPlan<'_>| match tier.as_ref().filter(|_| m.placed) {
            Some(tier) => MatrixMemory::Placed(tier.placed(experts.next().expect("numbers do not end"))),
            None => MatrixMemory::Own(slices.next().expect("a slice for each that was uploaded")),
        };
        let memories: Vec<_> = matrices.iter().map(memory).collect();
        let matrices = matrices.iter().zip(memories).map(|(m, memory)| Matrix::of(m, memory)).collect();
        progress(1.0);
        Ok((tree.put_together(embed, matrices, vectors), tier))
    }
}

impl Matrix {
    /// A planned matrix whose bytes lie in `memory`.
    fn of(plan: &MatrixPlan<'_>, memory: MatrixMemory) -> Self {
        let MatrixPlan { layout, factor, rows, cols, .. } = *plan;
        Self { layout, factor, rows, cols, memory }
    }
}
