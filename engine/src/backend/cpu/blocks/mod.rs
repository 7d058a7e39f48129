//! The operators on this backend: what of a block is packed, what its rows are computed in, and its phases of a step.
//!
//! An operator is one file here that implements [`Operator`], and a line in the list below: the only place of this
//! backend that tells operators apart.

mod attention;
mod conv;
mod gdn;
mod mamba2;
mod mlp;
mod moe;
mod parallel;
#[cfg(test)]
mod scale;
mod shortconv;
#[cfg(test)]
mod tests;

use crate::backend::cpu::error::CpuError;
use crate::backend::cpu::matmul::{BLOCK, PackedMatrix};
use crate::backend::cpu::pass::batch::RowBatch;
use crate::backend::cpu::pass::forward::Pass;
use crate::backend::cpu::pass::room::WorkspaceRoom;
use crate::backend::cpu::team::pool::Team;
use crate::format::NotFinite;
use crate::model::{self, BlockConfig, ModelConfig, OpConfig};

/// A block's weights as this backend multiplies with them.
pub(crate) struct Block {
    /// Of the norm before the operator, `[hidden]`.
    pub(crate) norm: Vec<f32>,
    pub(crate) op: Op,
    /// Which of the model's shapes the operator has, and so which buffers are its.
    pub(crate) shape: usize,
    /// What the operator's output is multiplied with.
    pub(crate) scale: f32,
}

/// How weights are packed.
#[derive(Clone, Copy)]
pub(crate) struct Packing {
    /// Whether matrices are decoded to f32, so that results can be compared with a reference.
    pub(crate) exact: bool,
    /// Epsilon of every norm.
    pub(crate) eps: f32,
}

/// One thread at one block of a pass.
#[derive(Clone, Copy)]
pub(crate) struct BlockThread<'a> {
    pub(crate) pass: &'a Pass<'a>,
    pub(crate) team: Team<'a>,
    /// Weight of the norm before the operator.
    pub(crate) norm: &'a [f32],
    /// What the operator's output is multiplied with before it is added.
    pub(crate) scale: f32,
    /// Place among the model's blocks, by which the store knows what a sequence left behind.
    pub(crate) block: usize,
}

/// What this backend has to know of an operator; its packed weights say it.
pub(crate) trait Operator: Sized {
    /// The model's configuration of it.
    type Config;
    /// The model's weights of it.
    type Weights;
    /// What rows are computed in. Blocks of one shape share it, because they run one after another.
    type Buffers;
    /// The buffers at the size of a step, and how the step's work divides.
    type Step<'a>;

    /// Refuses by name what is not computed here.
    fn check(config: &Self::Config) -> Result<(), CpuError>;

    /// Bytes of [`Operator::matrices`] before they are packed.
    fn planned_bytes(weights: &Self::Weights, exact: bool) -> u64;

    /// Packs a model's weights for this processor, if they are finite numbers.
    fn pack(weights: &Self::Weights, packing: Packing) -> Result<Self, NotFinite>;

    /// The packed matrices, of which the memory plan adds up the bytes.
    fn matrices(&self) -> Vec<&PackedMatrix>;

    /// Takes what rows of this shape are computed in.
    fn buffers(config: &Self::Config, room: &mut WorkspaceRoom) -> Self::Buffers;

    /// Brings the buffers to the size of a step and divides its work.
    fn step<'a>(buffers: &'a mut Self::Buffers, batch: &RowBatch, threads: usize) -> Self::Step<'a>;

    /// What a row needs once a step, whatever the number of blocks; the row is in the calling thread's share.
    fn begin(_step: &Self::Step<'_>, _row: usize, _position: u32) {}

    /// This thread's share of `x += scale * op(norm(x))` for all rows. There is a barrier in it before the stream is
    /// changed, for until then another thread may still look at what the block before made; whoever calls it waits for
    /// the team afterwards.
    fn run(&self, step: &Self::Step<'_>, at: BlockThread<'_>);
}

macro_rules! operators {
    ($($(#[$attribute:meta])? $kind:ident($file:ident)),* $(,)?) => {
        /// An operator's packed weights.
        #[allow(clippy::large_enum_variant, reason = "one a block")]
        pub(crate) enum Op {
            $($(#[$attribute])? $kind($file::$kind),)*
        }

        /// The buffers of one shape.
        pub(crate) enum OpBuffers {
            $($(#[$attribute])? $kind(<$file::$kind as Operator>::Buffers),)*
        }

        /// The buffers of one shape at the size of a step.
        pub(crate) enum OpStep<'a> {
            $($(#[$attribute])? $kind(<$file::$kind as Operator>::Step<'a>),)*
        }

        fn check_op(config: &OpConfig) -> Result<(), CpuError> {
            match config {
                $($(#[$attribute])? OpConfig::$kind(config) => $file::$kind::check(config),)*
            }
        }

        impl Op {
            /// Packs a block's operator.
            pub(crate) fn pack(op: &model::Op, packing: Packing) -> Result<Self, NotFinite> {
                Ok(match op {
                    $($(#[$attribute])? model::Op::$kind(weights) => Self::$kind($file::$kind::pack(weights, packing)?),)*
                })
            }

            /// Bytes of [`Op::matrices`] before they are packed.
            pub(crate) fn planned_bytes(op: &model::Op, exact: bool) -> u64 {
                match op {
                    $($(#[$attribute])? model::Op::$kind(weights) => $file::$kind::planned_bytes(weights, exact),)*
                }
            }

            /// The packed matrices, of which the memory plan adds up the bytes.
            pub(crate) fn matrices(&self) -> Vec<&PackedMatrix> {
                match self {
                    $($(#[$attribute])? Self::$kind(op) => op.matrices(),)*
                }
            }

            /// This thread's share of `x += scale * op(norm(x))` for all rows.
            pub(crate) fn run(&self, step: &OpStep<'_>, at: BlockThread<'_>) {
                match (self, step) {
                    $($(#[$attribute])? (Self::$kind(op), OpStep::$kind(step)) => op.run(step, at),)*
                    _ => unreachable!("a block's buffers are those of its shape"),
                }
            }
        }

        impl OpBuffers {
            /// Takes what rows of a shape are computed in.
            pub(crate) fn new(config: &OpConfig, room: &mut WorkspaceRoom) -> Self {
                match config {
                    $($(#[$attribute])? OpConfig::$kind(config) => Self::$kind($file::$kind::buffers(config, room)),)*
                }
            }

            /// Brings the buffers to the size of a step and divides its work.
            pub(crate) fn step(&mut self, batch: &RowBatch, threads: usize) -> OpStep<'_> {
                match self {
                    $($(#[$attribute])? Self::$kind(buffers) => OpStep::$kind($file::$kind::step(buffers, batch, threads)),)*
                }
            }
        }

        impl OpStep<'_> {
            /// What a row needs once a step; the row is in the calling thread's share.
            pub(crate) fn begin(&self, row: usize, position: u32) {
                match self {
                    $($(#[$attribute])? Self::$kind(step) => $file::$kind::begin(step, row, position),)*
                }
            }
        }
    };
}

operators! {
    Gdn(gdn),
    Mamba2(mamba2),
    Attention(attention),
    ShortConv(shortconv),
    Parallel(parallel),
    Mlp(mlp),
    Moe(moe),
    #[cfg(test)]
    Scale(scale),
}

impl Op {
    /// This thread's share of the keys and values of all rows, of an operator that is attention.
    ///
    /// # Panics
    /// If it is another one.
    pub(crate) fn remember(&self, step: &OpStep<'_>, at: BlockThread<'_>) {
        match (self, step) {
            (Self::Attention(attention), OpStep::Attention(step)) => attention.remember(step, at),
            _ => panic!("attention alone has keys and values"),
        }
    }
}

/// Packs blocks, each with its configuration; an error names the tensor whose weights are no finite numbers.
pub(crate) fn packed_blocks<'a>(
    model: &ModelConfig,
    blocks: impl Iterator<Item = (&'a BlockConfig, &'a model::Block)>,
    packing: Packing,
) -> Result<Vec<Block>, NotFinite> {
    let shapes = model.shapes_with_draft();
    blocks
        .map(|(config, block)| {
            let shape = shapes.iter().position(|shape| **shape == config.op).expect("every block's shape is listed");
            let op = Op::pack(&block.op, packing)?;
            Ok(Block { norm: block.norm.clone(), op, shape, scale: block.scale })
        })
        .collect()
}

/// Whether this backend computes such a model.
pub(crate) fn check(model: &ModelConfig) -> Result<(), CpuError> {
    whole_blocks("hidden width", model.hidden)?;
    model.blocks().try_for_each(|block| check_op(&block.op))
}

/// That a width is made of whole blocks of the int8 form.
fn whole_blocks(what: &'static str, got: usize) -> Result<(), CpuError> {
    if got.is_multiple_of(BLOCK) { Ok(()) } else { Err(CpuError::Width { what, got }) }
}
