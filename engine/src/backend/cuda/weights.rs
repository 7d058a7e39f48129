//! A model's weights in device memory.
//!
//! The tree is the same for what is planned, what is on the device and what a test keeps on the host: only its leaves differ.

use super::error::CudaBackendError;
use super::plan::{EmbeddingPlan, MatrixPlan, Part, VectorPlan, WeightsPlan};
use super::upload::{self, Source};
use crate::format::BlockType;
use crate::model::Model;
use chimere_kernels::cuda::Device;
use chimere_kernels::cuda::product::layout::Layout;
use cudarc::driver::{CudaSlice, CudaView};

/// A model: matrices `M`, f32 values `V`, the embedding `E`.
#[derive(Clone, Debug)]
pub(super) struct Weights<M, V, E> {
    /// `[vocab, hidden]`.
    pub(super) embed: E,
    /// `[vocab, hidden]`, the embedding again where they are tied.
    pub(super) head: M,
    /// Final norm, `[hidden]`.
    pub(super) norm: V,
    /// Decoder layers.
    pub(super) layers: Vec<Layer<M, V>>,
}

/// One decoder layer.
#[derive(Clone, Debug)]
pub(super) struct Layer<M = Matrix, V = CudaSlice<f32>> {
    /// Before the mixer, `[hidden]`.
    pub(super) input_norm: V,
    /// The mixer.
    pub(super) mixer: Mixer<M, V>,
    /// Before the feed-forward part, `[hidden]`.
    pub(super) post_norm: V,
    /// The feed-forward part.
    pub(super) ffn: Ffn<M, V>,
}

/// What mixes tokens.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "one a layer")]
pub(super) enum Mixer<M = Matrix, V = CudaSlice<f32>> {
    /// Gated delta rule.
    Gdn(Gdn<M, V>),
    /// Gated attention.
    Attention(Attention<M, V>),
}

/// Weights of a gated-delta layer.
#[derive(Clone, Debug)]
pub(super) struct Gdn<M = Matrix, V = CudaSlice<f32>> {
    /// Rows qkv | z | b | a | b2 | a2, where b2 and a2 are what rounding left of b and a.
    pub(super) inputs: Segments<M>,
    /// `[channels, taps]`, the last tap is the current token's.
    pub(super) conv: V,
    /// `-exp(A_log)`, `[Hv]`.
    pub(super) a_neg: V,
    /// `[Hv]`.
    pub(super) dt_bias: V,
    /// Gated norm, `[V]`.
    pub(super) norm: V,
    /// `[hidden, Hv * V]`.
    pub(super) out: M,
}

/// Weights of an attention layer.
#[derive(Clone, Debug)]
pub(super) struct Attention<M = Matrix, V = CudaSlice<f32>> {
    /// Rows q (per head D of query, then D of gate) | k | v.
    pub(super) inputs: Segments<M>,
    /// `[D]`.
    pub(super) q_norm: V,
    /// `[D]`.
    pub(super) k_norm: V,
    /// `[hidden, heads * D]`.
    pub(super) out: M,
}

/// Weights of a feed-forward part. A dense one is a shared expert alone, with gate 1.
#[derive(Clone, Debug)]
pub(super) struct Ffn<M = Matrix, V = CudaSlice<f32>> {
    /// What a dense part has not.
    pub(super) routed: Option<Routed<M, V>>,
    /// The shared expert.
    pub(super) shared: Swiglu<M>,
}

/// Routed experts.
#[derive(Clone, Debug)]
pub(super) struct Routed<M = Matrix, V = CudaSlice<f32>> {
    /// `[experts, hidden]`.
    pub(super) router: V,
    /// `[hidden]`, of the shared expert.
    pub(super) shared_gate: V,
    /// All of them.
    pub(super) experts: Swiglu<M>,
}

/// An expert, or a stack of them.
#[derive(Clone, Debug)]
pub(super) struct Swiglu<M = Matrix> {
    /// Rows of gate and up in turns of 8: `[2 * width, hidden]`.
    pub(super) gate_up: M,
    /// `[hidden, width]`.
    pub(super) down: M,
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
    /// How they lie.
    pub(super) layout: Layout,
    /// What products are to be multiplied with; 1 for most.
    pub(super) factor: f32,
    /// Output features of each.
    pub(super) rows: usize,
    /// Input features, padded with zeros to a multiple of 128.
    pub(super) cols: usize,
    /// One or, of experts, all of them one after another.
    pub(super) bytes: CudaSlice<u8>,
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
    /// Packs and copies a model, with its embedding in host memory if `host_embedding`. When this returns, everything is there.
    /// `progress` hears the share done, 0 to 1, on this thread.
    ///
    /// # Errors
    /// If memory does not suffice, or the driver fails.
    pub(super) fn load(
        device: &Device,
        model: &Model,
        host_embedding: bool,
        progress: &mut dyn FnMut(f32),
    ) -> Result<Self, CudaBackendError> {
        let (tree, matrices, vectors) = WeightsPlan::of(model).take_apart();
        let mut sources: Vec<&dyn Source> = matrices.iter().map(|m| m as &dyn Source).collect();
        if !host_embedding {
            sources.push(&tree.embed);
        }
        let mut slices = upload::upload(device, &sources, progress)?;
        let memory = if host_embedding {
            Memory::Host(upload::Mapped::new(device, &tree.embed)?)
        } else {
            Memory::Device(slices.pop().expect("the embedding was the last source"))
        };
        let embed = Embedding { ty: tree.embed.ty, memory };
        let vectors = upload::upload_values(device, &vectors)?;
        let matrices = matrices.iter().zip(slices).map(|(m, bytes)| m.on_device(bytes)).collect();
        progress(1.0);
        Ok(tree.put_together(embed, matrices, vectors))
    }
}

impl MatrixPlan<'_> {
    fn on_device(&self, bytes: CudaSlice<u8>) -> Matrix {
        let Self { layout, factor, rows, cols, .. } = *self;
        Matrix { layout, factor, rows, cols, bytes }
    }
}

/// Bytes that [`DeviceWeights::load`] will allocate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WeightBytes {
    /// The embedding, on the device.
    pub(super) embedding: u64,
    /// The embedding, on the host.
    pub(super) host_embedding: u64,
    /// The head.
    pub(super) head: u64,
    /// Mixers.
    pub(super) mixers: u64,
    /// Routed experts.
    pub(super) experts: u64,
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
pub(super) fn planned_bytes(model: &Model, host_embedding: bool) -> WeightBytes {
    let (tree, matrices, vectors) = WeightsPlan::of(model).take_apart();
    let mut bytes = WeightBytes::default();
    let embedding = if host_embedding { &mut bytes.host_embedding } else { &mut bytes.embedding };
    *embedding = tree.embed.bytes() as u64;
    for m in &matrices {
        let part = match m.part {
            Part::Head => &mut bytes.head,
            Part::Mixers => &mut bytes.mixers,
            Part::Experts => &mut bytes.experts,
            Part::Shared => &mut bytes.shared,
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
        Weights { embed, head, norm, layers: self.layers.into_iter().map(|l| l.map(m, v)).collect() }
    }
}

impl<M, V> Layer<M, V> {
    fn map<N, W>(self, m: &mut impl FnMut(M) -> N, v: &mut impl FnMut(V) -> W) -> Layer<N, W> {
        Layer {
            input_norm: v(self.input_norm),
            mixer: match self.mixer {
                Mixer::Gdn(g) => Mixer::Gdn(g.map(m, v)),
                Mixer::Attention(a) => Mixer::Attention(a.map(m, v)),
            },
            post_norm: v(self.post_norm),
            ffn: Ffn { routed: self.ffn.routed.map(|r| r.map(m, v)), shared: self.ffn.shared.map(m) },
        }
    }
}

impl<M, V> Gdn<M, V> {
    fn map<N, W>(self, m: &mut impl FnMut(M) -> N, v: &mut impl FnMut(V) -> W) -> Gdn<N, W> {
        Gdn {
            inputs: self.inputs.map(m),
            conv: v(self.conv),
            a_neg: v(self.a_neg),
            dt_bias: v(self.dt_bias),
            norm: v(self.norm),
            out: m(self.out),
        }
    }
}

impl<M, V> Attention<M, V> {
    fn map<N, W>(self, m: &mut impl FnMut(M) -> N, v: &mut impl FnMut(V) -> W) -> Attention<N, W> {
        Attention { inputs: self.inputs.map(m), q_norm: v(self.q_norm), k_norm: v(self.k_norm), out: m(self.out) }
    }
}

impl<M, V> Routed<M, V> {
    fn map<N, W>(self, m: &mut impl FnMut(M) -> N, v: &mut impl FnMut(V) -> W) -> Routed<N, W> {
        Routed { router: v(self.router), shared_gate: v(self.shared_gate), experts: self.experts.map(m) }
    }
}

impl<M> Swiglu<M> {
    fn map<N>(self, m: &mut impl FnMut(M) -> N) -> Swiglu<N> {
        Swiglu { gate_up: m(self.gate_up), down: m(self.down) }
    }
}

impl<M> Segments<M> {
    fn map<N>(self, m: &mut impl FnMut(M) -> N) -> Segments<N> {
        let parts = self.parts.into_iter().map(|s| Segment { first: s.first, matrix: m(s.matrix) }).collect();
        Segments { rows: self.rows, parts }
    }
}
