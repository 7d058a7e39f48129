//! Which tensors are quantised, and which of them change together: those of one role in one layer. Every other tensor
//! (norms, routers, convolutions, gates of a few rows) is passed on as it is, for a reason that a report can state.

use crate::format::{BlockType, Gguf, Tensor};
use std::collections::BTreeMap;

/// What matrices of a layer do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MatrixRole {
    /// Token embedding, and the head too where they are tied.
    Embedding,
    /// The output head of the model.
    Head,
    /// Query projection of attention.
    AttentionQuery,
    /// Key and value projections.
    AttentionKeyValue,
    /// What attention gives back.
    AttentionOut,
    /// Input projection of the delta rule.
    GdnInput,
    /// Output gate of the delta rule.
    GdnGate,
    /// Output projection of the delta rule.
    GdnOut,
    /// Input projection of a Mamba-2 mixer: gate, inputs, B, C and steps together.
    SsmIn,
    /// Output projection of a Mamba-2 mixer.
    SsmOut,
    /// Input projection of a short convolution: both gates and the values together.
    ShortConvIn,
    /// Output projection of a short convolution.
    ShortConvOut,
    /// Gate and up of routed experts, which are computed together.
    ExpertsIn,
    /// Down of routed experts.
    ExpertsOut,
    /// Projections into and out of the narrower width that routed experts compute in.
    ExpertsLatent,
    /// Gate and up of what every token goes through: a shared expert or a dense layer.
    SharedIn,
    /// Down of a shared expert or of a dense layer.
    SharedOut,
    /// Anything of the draft head.
    Draft,
}

/// Ends of tensor names with the role.
const ENDS: &[(&str, MatrixRole)] = &[
    ("attn_qkv.weight", MatrixRole::GdnInput),
    ("attn_gate.weight", MatrixRole::GdnGate),
    ("ssm_in.weight", MatrixRole::GdnInput),
    ("ssm_out.weight", MatrixRole::GdnOut),
    ("shortconv.in_proj.weight", MatrixRole::ShortConvIn),
    ("shortconv.out_proj.weight", MatrixRole::ShortConvOut),
    ("attn_q.weight", MatrixRole::AttentionQuery),
    ("attn_k.weight", MatrixRole::AttentionKeyValue),
    ("attn_v.weight", MatrixRole::AttentionKeyValue),
    ("attn_output.weight", MatrixRole::AttentionOut),
    ("ffn_gate_exps.weight", MatrixRole::ExpertsIn),
    ("ffn_up_exps.weight", MatrixRole::ExpertsIn),
    ("ffn_down_exps.weight", MatrixRole::ExpertsOut),
    ("ffn_latent_down.weight", MatrixRole::ExpertsLatent),
    ("ffn_latent_up.weight", MatrixRole::ExpertsLatent),
    ("ffn_gate_shexp.weight", MatrixRole::SharedIn),
    ("ffn_up_shexp.weight", MatrixRole::SharedIn),
    ("ffn_down_shexp.weight", MatrixRole::SharedOut),
    ("ffn_gate.weight", MatrixRole::SharedIn),
    ("ffn_up.weight", MatrixRole::SharedIn),
    ("ffn_down.weight", MatrixRole::SharedOut),
    ("nextn.eh_proj.weight", MatrixRole::Draft),
];

impl MatrixRole {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Head => "head",
            Self::AttentionQuery => "attention query",
            Self::AttentionKeyValue => "attention key, value",
            Self::AttentionOut => "attention out",
            Self::GdnInput => "delta-net in",
            Self::GdnGate => "delta-net gate",
            Self::GdnOut => "delta-net out",
            Self::SsmIn => "mamba in",
            Self::SsmOut => "mamba out",
            Self::ShortConvIn => "short convolution in",
            Self::ShortConvOut => "short convolution out",
            Self::ExpertsIn => "experts gate, up",
            Self::ExpertsOut => "experts down",
            Self::ExpertsLatent => "experts latent",
            Self::SharedIn => "shared gate, up",
            Self::SharedOut => "shared down",
            Self::Draft => "draft head",
        }
    }

    /// Role and layer of a tensor; `None` if it is not to be quantised. Layers from `main` on are the draft head's.
    fn of(name: &str, main: usize) -> Option<(Self, usize)> {
        match name {
            "token_embd.weight" => return Some((Self::Embedding, 0)),
            "output.weight" => return Some((Self::Head, 0)),
            _ => {}
        }
        let (layer, end) = name.strip_prefix("blk.")?.split_once('.')?;
        let layer: usize = layer.parse().ok()?;
        let role = ENDS.iter().find(|e| e.0 == end)?.1;
        Some((if layer >= main { Self::Draft } else { role }, layer))
    }

    /// The role in a layer that has a Mamba-2 mixer: the delta rule's projections have equal names.
    fn of_state_space(self) -> Self {
        match self {
            Self::GdnInput => Self::SsmIn,
            Self::GdnOut => Self::SsmOut,
            other => other,
        }
    }
}

/// Why a tensor cannot be encoded in blocks; `None` if it can.
fn unfit(tensor: &Tensor) -> Option<&'static str> {
    if tensor.shape.len() < 2 {
        return Some("vectors: few bytes, and each value counts");
    }
    if tensor.ty == BlockType::Nvfp4 {
        return Some("NVFP4: the scales are tensors of their own");
    }
    (!tensor.cols().is_multiple_of(32)).then_some("rows that are not whole blocks of 32 weights")
}

/// Why [`groups`] leaves a tensor of a file out.
pub fn kept_because(tensor: &Tensor) -> &'static str {
    const REASONS: [(&str, &str); 9] = [
        ("ffn_gate_inp", "routers: a small error chooses another expert"),
        ("ssm_conv1d", CONVOLUTION),
        ("shortconv.conv", CONVOLUTION),
        ("ssm_beta", GATES),
        ("ssm_alpha", GATES),
        ("ssm_ba", GATES),
        ("ssm_a", FACTORS),
        ("ssm_d", FACTORS),
        ("ssm_norm", FACTORS),
    ];
    const CONVOLUTION: &str = "convolutions of a few taps";
    const GATES: &str = "gates of a few rows, which decide how long a state lasts";
    const FACTORS: &str = "decays, skips and norms of a recurrence: few bytes, and each value counts";
    let named = || REASONS.iter().find(|(name, _)| tensor.name.contains(name)).map(|(_, why)| *why);
    named().or_else(|| unfit(tensor)).unwrap_or("matrices that no layer of these families multiplies with")
}

/// Tensors that get one encoding.
#[derive(Clone, Debug)]
pub struct Group {
    /// The role of the tensors in the model.
    pub role: MatrixRole,
    /// Number of the layer that the tensors are in.
    pub layer: usize,
    /// Their names, in the order of the file.
    pub tensors: Vec<String>,
    /// Weights in all of them.
    pub weights: u64,
}

impl Group {
    /// Role and, where there are many, layer.
    pub fn name(&self) -> String {
        match self.role {
            MatrixRole::Embedding | MatrixRole::Head => self.role.name().to_owned(),
            _ => format!("{} {}", self.role.name(), self.layer),
        }
    }

    /// Bytes of all its tensors, each in the encoding that fits it in the place of `ty`.
    pub fn bytes(&self, source: &Gguf, ty: BlockType) -> u64 {
        let bytes = |t: &Tensor| {
            super::encoded_bytes(t, super::fitting(ty, t.cols()).expect("a group has only tensors that fit"))
        };
        self.tensors.iter().filter_map(|name| source.tensor(name)).map(bytes).sum()
    }
}

/// The groups of a file whose first `main` layers are the model's and whose others are the draft head's. Which tensors
/// are left out, [`kept_because`] explains.
pub fn groups(source: &Gguf, main: usize) -> Vec<Group> {
    let mut groups: BTreeMap<(usize, MatrixRole), Group> = BTreeMap::new();
    for t in source.tensors_in_order() {
        let Some((role, layer)) = MatrixRole::of(&t.name, main) else { continue };
        if unfit(t).is_some() {
            continue;
        }
        let mamba = source.tensor(&format!("blk.{layer}.ssm_d")).is_some();
        let role = if mamba { role.of_state_space() } else { role };
        let empty = || Group { role, layer, tensors: Vec::new(), weights: 0 };
        let group = groups.entry((layer, role)).or_insert_with(empty);
        group.tensors.push(t.name.clone());
        group.weights += t.shape.iter().map(|d| *d as u64).product::<u64>();
    }
    groups.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_quantised() {
        let role = |name: &str| MatrixRole::of(name, 8);
        assert_eq!(role("token_embd.weight"), Some((MatrixRole::Embedding, 0)));
        assert_eq!(role("blk.3.attn_v.weight"), Some((MatrixRole::AttentionKeyValue, 3)));
        assert_eq!(role("blk.8.attn_v.weight"), Some((MatrixRole::Draft, 8)));
        assert_eq!(role("blk.8.nextn.eh_proj.weight"), Some((MatrixRole::Draft, 8)));
        assert_eq!(role("blk.2.shortconv.in_proj.weight"), Some((MatrixRole::ShortConvIn, 2)));
        for kept in [
            "blk.0.shortconv.conv.weight",
            "blk.0.ffn_gate_inp.weight",
            "blk.0.ssm_conv1d.weight",
            "blk.0.attn_norm.weight",
            "v.blk.0.x",
        ] {
            assert_eq!(role(kept), None, "{kept}");
        }
    }
}
