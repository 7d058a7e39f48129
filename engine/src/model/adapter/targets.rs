//! What adapters may change of a model: its matrices by name and size. A description of its own, which outlives the
//! model's file.

use super::AdaptedMatrix;
use crate::adapter::ADAPTER_RANK_MAX;
use crate::format::{Problem, Tensor};
use crate::model::{AttentionWeights, GdnConfig, GdnWeights, MlpWeights, Model, Op};

/// Families whose adapters are read: of the others a converter multiplies or reorders matrices.
const FAMILIES: [&str; 5] = ["qwen35moe", "qwen35", "qwen3next", "qwen3moe", "qwen3"];
/// All matrices that an operator may have.
const MATRICES: [AdaptedMatrix; 11] = [
    AdaptedMatrix::Qkv,
    AdaptedMatrix::Z,
    AdaptedMatrix::Beta,
    AdaptedMatrix::Alpha,
    AdaptedMatrix::Query,
    AdaptedMatrix::Key,
    AdaptedMatrix::Value,
    AdaptedMatrix::Out,
    AdaptedMatrix::Gate,
    AdaptedMatrix::Up,
    AdaptedMatrix::Down,
];

/// The matrices of a model that adapters may change.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterTargets {
    pub(super) architecture: &'static str,
    /// Those of each layer that have some.
    pub(super) layers: Vec<Vec<TargetBlock>>,
    /// Blocks of the model, those without a matrix among them.
    pub(super) blocks: usize,
    /// The largest rank that is accepted.
    pub(super) rank_max: usize,
}

/// A block with matrices that adapters may change.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TargetBlock {
    /// The block among all.
    pub(super) number: usize,
    pub(super) kind: TargetKind,
    /// Each with its rows and columns.
    matrices: Vec<(AdaptedMatrix, usize, usize)>,
}

/// The operator that the matrices are of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TargetKind {
    DeltaNet(GdnConfig),
    SelfAttention,
    FeedForward,
    /// Of a mixture, the expert that every token takes.
    SharedExpert,
}

impl AdapterTargets {
    /// Those of a model.
    pub fn of(model: &Model) -> Self {
        let mut blocks = 0;
        let mut target = |op: &Op| {
            blocks += 1;
            TargetBlock::of(blocks - 1, op)
        };
        let layers = model.weights.layers.iter();
        let layers = layers.map(|layer| layer.iter().filter_map(|block| target(&block.op)).collect()).collect();
        Self { architecture: model.config.architecture, layers, blocks, rank_max: ADAPTER_RANK_MAX }
    }

    /// These, with a smaller bound of the rank than what is read at all.
    #[must_use]
    pub fn with_rank_max(self, rank_max: usize) -> Self {
        Self { rank_max: rank_max.min(ADAPTER_RANK_MAX), ..self }
    }

    /// Whether adapters of the model's family are read.
    pub(super) fn check_family(&self) -> Result<(), Problem> {
        if FAMILIES.contains(&self.architecture) {
            return Ok(());
        }
        let want = format!("a model of {}", FAMILIES.join(", "));
        Err(Problem::container("adapter's model", want, self.architecture))
    }
}

impl TargetBlock {
    fn of(number: usize, op: &Op) -> Option<Self> {
        let kind = match op {
            Op::Gdn(gdn) => TargetKind::DeltaNet(gdn.config),
            Op::Attention(_) => TargetKind::SelfAttention,
            Op::Mlp(_) => TargetKind::FeedForward,
            Op::Moe(moe) if moe.shared.is_some() => TargetKind::SharedExpert,
            _ => return None,
        };
        let sized = |matrix| tensor_of(op, matrix).map(|tensor| (matrix, tensor.rows(), tensor.cols()));
        Some(Self { number, kind, matrices: MATRICES.into_iter().filter_map(sized).collect() })
    }

    /// Rows and columns of a matrix, if the block has it.
    pub(super) fn size_of(&self, matrix: AdaptedMatrix) -> Option<(usize, usize)> {
        self.matrices.iter().find(|(own, ..)| *own == matrix).map(|(_, rows, cols)| (*rows, *cols))
    }
}

fn tensor_of(op: &Op, matrix: AdaptedMatrix) -> Option<&Tensor> {
    match (op, matrix) {
        (Op::Gdn(GdnWeights { qkv, .. }), AdaptedMatrix::Qkv) => Some(qkv),
        (Op::Gdn(GdnWeights { z, .. }), AdaptedMatrix::Z) => Some(z),
        (Op::Gdn(GdnWeights { b, .. }), AdaptedMatrix::Beta) => Some(b),
        (Op::Gdn(GdnWeights { a, .. }), AdaptedMatrix::Alpha) => Some(a),
        (Op::Gdn(GdnWeights { out, .. }) | Op::Attention(AttentionWeights { out, .. }), AdaptedMatrix::Out) => {
            Some(out)
        }
        (Op::Attention(AttentionWeights { q, .. }), AdaptedMatrix::Query) => Some(q),
        (Op::Attention(AttentionWeights { k, .. }), AdaptedMatrix::Key) => Some(k),
        (Op::Attention(AttentionWeights { v, .. }), AdaptedMatrix::Value) => Some(v),
        (Op::Mlp(w), matrix) => part_of(w, matrix),
        (Op::Moe(moe), matrix) => part_of(&moe.shared.as_ref()?.expert, matrix),
        _ => None,
    }
}

fn part_of(w: &MlpWeights, matrix: AdaptedMatrix) -> Option<&Tensor> {
    match matrix {
        AdaptedMatrix::Gate => w.gate.as_ref(),
        AdaptedMatrix::Up => Some(&w.up),
        AdaptedMatrix::Down => Some(&w.down),
        _ => None,
    }
}
