//! How many bytes of weights play which role, and in which encodings: for `chimere info` and the memory plan.

use super::*;
use crate::format::BlockType;
use std::collections::BTreeMap;

/// What weights are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Token embedding; also the head where they are tied.
    Embedding,
    /// The output head of the model.
    Head,
    /// Experts that tokens are routed to.
    Experts,
    /// Experts that every token takes.
    SharedExperts,
    /// Feed-forward parts that every token takes.
    FeedForward,
    /// Mixers of the gated-delta layers.
    Gdn,
    /// Mixers of the Mamba-2 layers.
    Mamba2,
    /// Mixers of the layers with a short convolution.
    ShortConv,
    /// Mixers of the attention layers.
    Attention,
    /// The draft head, all of it.
    Draft,
    /// Routers, norms and other small things.
    Other,
}

impl Role {
    /// Every role, in the order of a report.
    pub const ALL: [Role; 11] = [
        Role::Embedding,
        Role::Head,
        Role::Experts,
        Role::SharedExperts,
        Role::FeedForward,
        Role::Gdn,
        Role::Mamba2,
        Role::ShortConv,
        Role::Attention,
        Role::Draft,
        Role::Other,
    ];

    /// Name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Role::Embedding => "embedding",
            Role::Head => "head",
            Role::Experts => "experts",
            Role::SharedExperts => "shared experts",
            Role::FeedForward => "feed-forward",
            Role::Gdn => "gated delta",
            Role::Mamba2 => "mamba-2",
            Role::ShortConv => "short convolution",
            Role::Attention => "attention",
            Role::Draft => "draft head",
            Role::Other => "other",
        }
    }
}

/// The weights of one role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleSummary {
    /// How many parameters there are.
    pub parameters: u64,
    /// Bytes that they take as encoded.
    pub bytes: u64,
    /// Encoded bytes by encoding's name.
    pub types: BTreeMap<&'static str, u64>,
}

/// Sizes of a model's weights as they are in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Roles that the model has.
    pub roles: BTreeMap<Role, RoleSummary>,
}

impl Summary {
    /// Counts a model's weights.
    pub fn of(model: &Model) -> Self {
        let w = &model.weights;
        let mut s = Self::default();
        s.tensor(Role::Embedding, &w.embed);
        w.head.iter().for_each(|t| s.tensor(Role::Head, t));
        s.values(Role::Other, &w.norm);
        w.layers.iter().for_each(|l| s.layer(l));
        if let Some(draft_head) = &w.draft_head {
            s.draft(draft_head);
        }
        s
    }

    /// Bytes of all weights.
    pub fn bytes(&self) -> u64 {
        self.roles.values().map(|r| r.bytes).sum()
    }

    /// Parameters of the model, without its draft head.
    pub fn parameters(&self) -> u64 {
        self.roles.iter().filter(|(role, _)| **role != Role::Draft).map(|(_, r)| r.parameters).sum()
    }

    fn add(&mut self, role: Role, ty: BlockType, parameters: usize, bytes: usize) {
        let r = self.roles.entry(role).or_default();
        r.parameters += parameters as u64;
        r.bytes += bytes as u64;
        *r.types.entry(ty.name()).or_default() += bytes as u64;
    }

    /// Adds a tensor to what has its role.
    pub(super) fn tensor(&mut self, role: Role, t: &Tensor) {
        self.add(role, t.ty, t.shape.iter().product(), t.bytes().len());
    }

    /// Counts values that were decoded.
    pub(super) fn values(&mut self, role: Role, x: &[f32]) {
        self.add(role, BlockType::F32, x.len(), size_of_val(x));
    }

    fn layer(&mut self, layer: &[Block]) {
        for block in layer {
            self.values(Role::Other, &block.norm);
            block.op.count(self);
        }
    }

    fn draft(&mut self, draft_head: &DraftHeadWeights) {
        let mut own = Self::default();
        own.layer(&draft_head.layer);
        own.tensor(Role::Draft, &draft_head.fc);
        [&draft_head.embed_norm, &draft_head.hidden_norm, &draft_head.norm]
            .into_iter()
            .for_each(|x| own.values(Role::Draft, x));
        let draft = self.roles.entry(Role::Draft).or_default();
        for r in own.roles.into_values() {
            draft.parameters += r.parameters;
            draft.bytes += r.bytes;
            r.types.into_iter().for_each(|(ty, bytes)| *draft.types.entry(ty).or_default() += bytes);
        }
    }
}
