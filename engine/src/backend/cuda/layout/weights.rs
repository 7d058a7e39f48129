//! A model's weights as one tree: matrices, f32 values and the embedding.
//!
//! The tree is the same for what is planned, what is on the device and what a test keeps on the host: only its leaves
//! differ.

use super::config::Placement;
use super::experts::TierShape;
use super::matrix::{EmbeddingPlan, MatrixPlan, MatrixUse, VectorPlan};
use super::operators::Op;
use crate::model::{self, DraftHeadWeights, Model, Shortlist};

/// A model: matrices `M`, f32 values `V`, the embedding `E`.
pub(crate) struct Weights<M, V, E> {
    /// Embedding of the tokens, `[vocab, hidden]`.
    pub(crate) embed: E,
    /// `[vocab, hidden]`, the embedding again where they are tied.
    pub(crate) head: M,
    /// Weight of the norm before the head, `[hidden]`.
    pub(crate) norm: V,
    /// Of all layers, in the order in which rows go through them.
    pub(crate) blocks: Vec<Block<M, V>>,
    /// The draft head, if there is one and its guesses are wanted.
    pub(crate) draft: Option<Draft<M, V>>,
}

/// A draft head. It has the model's embedding and, unless there is a list of ids, its head or the first rows of that.
pub(crate) struct Draft<M, V> {
    /// `[hidden, 2 * hidden]`, the embedding's half first.
    pub(crate) fc: M,
    /// Of the embedding's half, `[hidden]`.
    pub(crate) embed_norm: V,
    /// Of the hidden state's half, `[hidden]`.
    pub(crate) hidden_norm: V,
    /// Blocks of the draft head's layer.
    pub(crate) blocks: Vec<Block<M, V>>,
    /// Before the head, `[hidden]`.
    pub(crate) norm: V,
    /// Rows of the model's head that are listed, `[ids, hidden]`.
    pub(crate) listed: Option<M>,
}

/// A block of a layer.
pub(crate) struct Block<M, V> {
    /// Before the operator, `[hidden]`.
    pub(crate) norm: V,
    /// Weights of the block's operator.
    pub(crate) op: Op<M, V>,
}

/// What will be on the device.
pub(crate) type WeightsPlan<'a> = Weights<MatrixPlan<'a>, VectorPlan<'a>, EmbeddingPlan<'a>>;

impl<'a> WeightsPlan<'a> {
    /// Of a model, with its draft head where that is computed. Where its experts do not fit into their bytes, if
    /// there is such a limit, a table will say where they lie.
    pub(crate) fn of(model: &'a Model, placement: Placement) -> Self {
        let plan = Self::whole(model, placement.draft);
        let Some(bytes) = placement.expert_bytes else { return plan };
        let embed = plan.embed;
        let (bare, mut matrices, vectors) = plan.take_apart();
        let experts = |m: &&MatrixPlan<'_>| m.part == MatrixUse::Experts;
        if TierShape::of(&matrices.iter().filter(experts).collect::<Vec<_>>(), bytes).is_some() {
            matrices.iter_mut().for_each(|m| m.placed = m.part == MatrixUse::Experts);
        }
        bare.put_together(embed, matrices, vectors)
    }

    fn whole(model: &'a Model, drafts: bool) -> Self {
        let w = &model.weights;
        let head = MatrixPlan::whole(MatrixUse::Head, w.head.as_ref().unwrap_or(&w.embed));
        Self {
            embed: EmbeddingPlan::of(&w.embed),
            head: head.times(model.config.logit_scale),
            norm: VectorPlan::Values(&w.norm),
            blocks: w.layers.iter().flatten().map(block).collect(),
            draft: w.draft_head.as_ref().filter(|_| drafts).map(|w| draft(w, model.config.logit_scale)),
        }
    }
}

fn draft(w: &DraftHeadWeights, logit_scale: f32) -> Draft<MatrixPlan<'_>, VectorPlan<'_>> {
    let listed = w.shortlist.as_ref().and_then(Shortlist::rows);
    Draft {
        fc: MatrixPlan::whole(MatrixUse::Mixers, &w.fc),
        embed_norm: VectorPlan::Values(&w.embed_norm),
        hidden_norm: VectorPlan::Values(&w.hidden_norm),
        blocks: w.layer.iter().map(block).collect(),
        norm: VectorPlan::Values(&w.norm),
        listed: listed.map(|rows| MatrixPlan::whole(MatrixUse::Head, rows).times(logit_scale)),
    }
}

fn block(block: &model::Block) -> Block<MatrixPlan<'_>, VectorPlan<'_>> {
    Block { norm: VectorPlan::Values(&block.norm), op: Op::plan(&block.op, block.scale) }
}

/// Bytes that the weights of a model take, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WeightBytes {
    /// The embedding, on the device.
    pub(crate) embedding: u64,
    /// The embedding, on the host.
    pub(crate) host_embedding: u64,
    /// Bytes of the output head.
    pub(crate) head: u64,
    /// Bytes of the mixers of all layers.
    pub(crate) mixers: u64,
    /// Bytes of the routed experts, on the device.
    pub(crate) experts: u64,
    /// Bytes of those that do not fit there, on the host.
    pub(crate) host_experts: u64,
    /// How many experts lie on the device, and how many there are, where not all do.
    pub(crate) residents: Option<(usize, usize)>,
    /// Shared experts and dense feed-forward parts.
    pub(crate) shared: u64,
    /// Norms, routers and what else stays f32.
    pub(crate) small: u64,
}

impl WeightBytes {
    /// The parts that are on the device, with their names.
    pub(crate) fn device_parts(&self) -> [(&'static str, u64); 6] {
        [
            ("embedding", self.embedding),
            ("output head", self.head),
            ("mixers", self.mixers),
            ("routed experts", self.experts),
            ("shared experts, dense parts", self.shared),
            ("norms, routers and others in f32", self.small),
        ]
    }

    /// All that is on the device.
    pub(crate) fn device(&self) -> u64 {
        self.device_parts().iter().map(|part| part.1).sum()
    }
}

/// The bytes that the weights will take, before anything is allocated.
pub(crate) fn planned_bytes(model: &Model, placement: Placement) -> WeightBytes {
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
    pub(crate) fn take_apart(self) -> (Bare<'a>, Vec<MatrixPlan<'a>>, Vec<VectorPlan<'a>>) {
        let (mut matrices, mut vectors) = (Vec::new(), Vec::new());
        let embed = self.embed;
        let bare = self.map(embed, &mut |m| matrices.push(m), &mut |v| vectors.push(v));
        (bare, matrices, vectors)
    }
}

impl<E> Weights<(), (), E> {
    /// Leaves in the order of [`WeightsPlan::take_apart`].
    pub(crate) fn put_together<M, V, F>(self, embed: F, matrices: Vec<M>, vectors: Vec<V>) -> Weights<M, V, F> {
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
