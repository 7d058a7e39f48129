//! A model's weights in device memory.
//!
//! The tree is the same for what is planned, what is on the device and what a test keeps on the host: only its leaves
//! differ.

use super::blocks::Op;
use super::config::Placement;
use super::error::CudaBackendError;
use super::plan::{EmbeddingPlan, MatrixPlan, MatrixUse, VectorPlan, WeightsPlan};
use super::tier::{ExpertTier, PlacedExperts, TierShape};
use super::upload::{self, UploadSource};
use crate::format::BlockType;
use crate::model::Model;
use chimere_kernels::cuda::product::layout::Layout;
use chimere_kernels::cuda::stack::Stack;
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::{CudaSlice, CudaView};

/// A model: matrices `M`, f32 values `V`, the embedding `E`.
pub(super) struct Weights<M, V, E> {
    /// `[vocab, hidden]`.
    pub(super) embed: E,
    /// `[vocab, hidden]`, the embedding again where they are tied.
    pub(super) head: M,
    /// Weight of the norm before the head, `[hidden]`.
    pub(super) norm: V,
    /// Of all layers, in the order in which rows go through them.
    pub(super) blocks: Vec<Block<M, V>>,
    /// The draft head, if there is one and its guesses are wanted.
    pub(super) draft: Option<Draft<M, V>>,
}

/// A draft head. It has the model's embedding and, unless there is a list of ids, its head or the first rows of that.
pub(super) struct Draft<M = Matrix, V = CudaSlice<f32>> {
    /// `[hidden, 2 * hidden]`, the embedding's half first.
    pub(super) fc: M,
    /// Of the embedding's half, `[hidden]`.
    pub(super) embed_norm: V,
    /// Of the hidden state's half, `[hidden]`.
    pub(super) hidden_norm: V,
    /// Of its layer.
    pub(super) blocks: Vec<Block<M, V>>,
    /// Before the head, `[hidden]`.
    pub(super) norm: V,
    /// Rows of the model's head that are listed, `[ids, hidden]`.
    pub(super) listed: Option<M>,
}

/// A block of a layer.
pub(super) struct Block<M = Matrix, V = CudaSlice<f32>> {
    /// Before the operator, `[hidden]`.
    pub(super) norm: V,
    /// The operator's weights.
    pub(super) op: Op<M, V>,
}

/// Rows of one product that lie in one matrix or, where their encodings differ, in several.
#[derive(Clone, Debug)]
pub(super) struct Segments<M = Matrix> {
    /// Of all together: values of an output row.
    pub(super) rows: usize,
    /// In the order of the rows.
    pub(super) parts: Vec<Segment<M>>,
}

/// Neighbouring rows of one layout.
#[derive(Clone, Debug)]
pub(super) struct Segment<M = Matrix> {
    /// Where its outputs begin in an output row.
    pub(super) first: usize,
    /// Its rows.
    pub(super) matrix: M,
}

/// Packed matrices on the device.
#[derive(Debug)]
pub(super) struct Matrix {
    /// How the matrices lie in memory.
    pub(super) layout: Layout,
    /// What products are to be multiplied with; 1 for most.
    pub(super) factor: f32,
    /// Output features of each.
    pub(super) rows: usize,
    /// Input features, padded with zeros to a multiple of 128.
    pub(super) cols: usize,
    /// One or, of experts, all of them.
    pub(super) memory: MatrixMemory,
}

/// Where packed matrices lie.
#[derive(Debug)]
pub(super) enum MatrixMemory {
    /// One after another.
    Own(CudaSlice<u8>),
    /// Experts that do not all fit into the device's memory.
    Placed(PlacedExperts),
}

impl Matrix {
    /// As kernels take them.
    pub(super) fn stack(&self) -> Stack<'_> {
        match &self.memory {
            MatrixMemory::Own(bytes) => Stack::Packed(bytes.as_view()),
            MatrixMemory::Placed(placed) => placed.stack(),
        }
    }

    /// The bytes of a matrix that is not one of such experts.
    pub(super) fn bytes(&self) -> CudaView<'_, u8> {
        match &self.memory {
            MatrixMemory::Own(bytes) => bytes.as_view(),
            MatrixMemory::Placed(_) => unreachable!("kernels that take no table are not given experts"),
        }
    }
}

/// What kernels are chosen by for a matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MatrixForm {
    /// How the matrix lies in memory.
    pub(super) layout: Layout,
    /// What products are to be multiplied with.
    pub(super) factor: f32,
    /// How many output features it has.
    pub(super) rows: usize,
    /// How many input features it has, with those that fill the last tile.
    pub(super) cols: usize,
    /// Whether a table says where the matrices lie.
    pub(super) placed: bool,
}

/// A matrix, planned or there.
pub(super) trait Packed {
    /// What kernels are chosen by.
    fn form(&self) -> MatrixForm;
}

impl Packed for MatrixForm {
    fn form(&self) -> MatrixForm {
        *self
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
pub(super) struct Embedding {
    /// F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K or Q6_K.
    pub(super) ty: BlockType,
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    Device(CudaSlice<u8>),
    Host(upload::Mapped),
}

impl Embedding {
    /// All rows, as the device reads them.
    pub(super) fn bytes(&self) -> CudaView<'_, u8> {
        match &self.memory {
            Memory::Device(bytes) => bytes.as_view(),
            Memory::Host(mapped) => mapped.view(),
        }
    }
}

/// Weights on the device.
pub(super) type DeviceWeights = Weights<Matrix, CudaSlice<f32>, Embedding>;

impl DeviceWeights {
    /// Packs and copies a model, with its embedding in host memory if the configuration says so, and of its experts as many as
    /// do not fit into the bytes that they have. When this returns, everything is there.
    /// `progress` hears the share done, 0 to 1, on this thread.
    ///
    /// # Errors
    /// If memory does not suffice, or the driver fails.
    pub(super) fn load(
        device: &Device,
        cache: &KernelCache,
        model: &Model,
        placement: Placement,
        progress: &mut dyn FnMut(f32),
    ) -> Result<(Self, Option<ExpertTier>), CudaBackendError> {
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
        let mut sources: Vec<&dyn UploadSource> = own.iter().map(|m| *m as &dyn UploadSource).collect();
        if !host_embedding {
            sources.push(&tree.embed);
        }
        let mut slices = upload::upload(device, &sources, &mut |part| progress(share + (1.0 - share) * part))?;
        let memory = if host_embedding {
            Memory::Host(upload::Mapped::new(device, &tree.embed)?)
        } else {
            Memory::Device(slices.pop().expect("the embedding was the last source"))
        };
        let embed = Embedding { ty: tree.embed.ty, memory };
        let vectors = upload::upload_values(device, &vectors)?;
        let (mut slices, mut experts) = (slices.into_iter(), 0..);
        let memory = |m: &MatrixPlan<'_>| match tier.as_ref().filter(|_| m.placed) {
            Some(tier) => MatrixMemory::Placed(tier.placed(experts.next().expect("numbers do not end"))),
            None => MatrixMemory::Own(slices.next().expect("a slice for each that was uploaded")),
        };
        let memories: Vec<_> = matrices.iter().map(memory).collect();
        let matrices = matrices.iter().zip(memories).map(|(m, memory)| m.on_device(memory)).collect();
        progress(1.0);
        Ok((tree.put_together(embed, matrices, vectors), tier))
    }
}

impl MatrixPlan<'_> {
    fn on_device(&self, memory: MatrixMemory) -> Matrix {
        let Self { layout, factor, rows, cols, .. } = *self;
        Matrix { layout, factor, rows, cols, memory }
    }
}

/// Bytes that [`DeviceWeights::load`] will allocate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WeightBytes {
    /// The embedding, on the device.
    pub(super) embedding: u64,
    /// The embedding, on the host.
    pub(super) host_embedding: u64,
    /// Bytes of the output head.
    pub(super) head: u64,
    /// Bytes of the mixers of all layers.
    pub(super) mixers: u64,
    /// Bytes of the routed experts, on the device.
    pub(super) experts: u64,
    /// Bytes of those that do not fit there, on the host.
    pub(super) host_experts: u64,
    /// How many experts lie on the device, and how many there are, where not all do.
    pub(super) residents: Option<(usize, usize)>,
    /// Shared experts and dense feed-forward parts.
    pub(super) shared: u64,
    /// Norms, routers and what else stays f32.
    pub(super) small: u64,
}

impl WeightBytes {
    /// All that is on the device.
    pub(super) fn device(&self) -> u64 {
        self.embedding + self.head + self.mixers + self.experts + self.shared + self.small
    }
}

/// What [`DeviceWeights::load`] will allocate, before it does.
pub(super) fn planned_bytes(model: &Model, placement: Placement) -> WeightBytes {
    let Placement { host_embedding, expert_bytes, .. } = placement;
    let (tree, matrices, vectors) = WeightsPlan::of(model, placement).take_apart();
    let mut bytes = WeightBytes::default();
    let placed: Vec<_> = matrices.iter().filter(|m| m.placed).collect();
    if let Some(tier) = expert_bytes.and_then(|bytes| TierShape::of(&placed, bytes)) {
        (bytes.experts, bytes.host_experts) = (tier.device_bytes(), tier.host_bytes());
        bytes.residents = Some(tier.residents());
    }
    let embedding = if host_embedding { &mut bytes.host_embedding } else { &mut bytes.embedding };
    *embedding = tree.embed.bytes() as u64;
    for m in matrices.iter().filter(|m| !m.placed) {
        let part = match m.part {
            MatrixUse::Head => &mut bytes.head,
            MatrixUse::Mixers => &mut bytes.mixers,
            MatrixUse::Experts => &mut bytes.experts,
            MatrixUse::Shared => &mut bytes.shared,
        };
        *part += m.bytes() as u64;
    }
    bytes.small = vectors.iter().map(|v| (v.len() * size_of::<f32>()) as u64).sum();
    bytes
}

/// A tree without its leaves.
type Bare<'a> = Weights<(), (), EmbeddingPlan<'a>>;

impl<'a> WeightsPlan<'a> {
    /// Its leaves in an order that [`Weights::put_together`] knows.
    pub(super) fn take_apart(self) -> (Bare<'a>, Vec<MatrixPlan<'a>>, Vec<VectorPlan<'a>>) {
        let (mut matrices, mut vectors) = (Vec::new(), Vec::new());
        let embed = self.embed;
        let bare = self.map(embed, &mut |m| matrices.push(m), &mut |v| vectors.push(v));
        (bare, matrices, vectors)
    }
}

impl<E> Weights<(), (), E> {
    /// Leaves in the order of [`WeightsPlan::take_apart`].
    pub(super) fn put_together<M, V, F>(self, embed: F, matrices: Vec<M>, vectors: Vec<V>) -> Weights<M, V, F> {
        let (mut matrices, mut vectors) = (matrices.into_iter(), vectors.into_iter());
        let matrix = &mut |()| matrices.next().expect("one for each place");
        let vector = &mut |()| vectors.next().expect("one for each place");
        self.map(embed, matrix, vector)
    }
}

impl<M, V, E> Weights<M, V, E> {
    fn map<N, W, F>(self, embed: F, m: &mut impl FnMut(M) -> N, v: &mut impl FnMut(V) -> W) -> Weights<N, W, F> {
        let (head, norm) = (m(self.head), v(self.norm));
        let blocks = self.blocks.into_iter().map(|block| block.map(m, v)).collect();
        Weights { embed, head, norm, blocks, draft: self.draft.map(|draft| draft.map(m, v)) }
    }
}

impl<M, V> Block<M, V> {
    fn map<N, W>(self, m: &mut impl FnMut(M) -> N, v: &mut impl FnMut(V) -> W) -> Block<N, W> {
        Block { norm: v(self.norm), op: self.op.map(m, v) }
    }
}

impl<M, V> Draft<M, V> {
    fn map<N, W>(self, m: &mut impl FnMut(M) -> N, v: &mut impl FnMut(V) -> W) -> Draft<N, W> {
        let (fc, [embed_norm, hidden_norm, norm]) =
            (m(self.fc), [self.embed_norm, self.hidden_norm, self.norm].map(&mut *v));
        let listed = self.listed.map(&mut *m);
        let blocks = self.blocks.into_iter().map(|b| b.map(m, v)).collect();
        Draft { fc, embed_norm, hidden_norm, norm, listed, blocks }
    }
}

impl<M> Segments<M> {
    /// The same with other matrices.
    pub(super) fn map<N>(self, m: &mut impl FnMut(M) -> N) -> Segments<N> {
        let parts = self.parts.into_iter().map(|s| Segment { first: s.first, matrix: m(s.matrix) }).collect();
        Segments { rows: self.rows, parts }
    }
}
