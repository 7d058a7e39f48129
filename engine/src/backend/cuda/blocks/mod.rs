//! The operators on one device: which kernels a block loads, what it binds its weights to, and what it launches.
//!
//! An operator is a file here that implements [`OperatorRun`]; its plan is the file of that name in `layout/operators`,
//! where the list of operators is too. What is fused across blocks goes through the residual stream alone.

mod attention;
mod gdn;
mod latent;
mod mamba2;
mod mlp;
mod moe;
mod parallel;
mod projections;

use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::operators::operator::{OperatorPlan, Setting};
use crate::backend::cuda::layout::operators::{Op, for_each_operator, refused};
use crate::backend::cuda::layout::products::RowCount;
use crate::backend::cuda::rank::adapters::{AdaptedSide, BlockAdapters};
use crate::backend::cuda::rank::memory::RankMemory;
use crate::backend::cuda::rank::pass::Pass;
use crate::backend::cuda::rank::products::ProductKernels;
use crate::backend::cuda::rank::residual::NextBlock;
use crate::backend::cuda::rank::weights::Matrix;
use crate::model::{AttentionConfig, GdnConfig, Mamba2Config, MlpConfig, MoeConfig, OpConfig, ParallelConfig};
use chimere_kernels::cuda::lora::Lora;
use chimere_kernels::cuda::wide::{HalfPlace, Source};
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::CudaSlice;

/// Where a block finds what is kept for blocks like it, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockPlace {
    /// Among those with recurrent state.
    pub(crate) recurrent: usize,
    /// Among those with keys and values.
    pub(crate) cached: usize,
    /// Among those that choose experts.
    pub(crate) routed: usize,
}

/// A pass at one block.
#[derive(Clone, Copy)]
pub(crate) struct BlockPass<'a> {
    pub(crate) device: &'a Device,
    /// A second stream of the device, for kernels that may run beside the rest of a block.
    pub(crate) beside: &'a Device,
    pub(crate) pass: &'a Pass<'a>,
    /// Weight of the norm before the operator: it is folded into the rows already.
    pub(crate) norm: &'a CudaSlice<f32>,
    pub(crate) next: NextBlock<'a>,
    /// What adapters of the rows add here, if any have one.
    pub(crate) adapters: Option<BlockAdapters<'a>>,
    pub(crate) place: BlockPlace,
    pub(crate) hidden: usize,
    pub(crate) eps: f32,
}

impl<'a> BlockPass<'a> {
    /// Rows of the stream for the matrices that read it, with what adapters add to their products.
    pub(crate) fn adapted_inputs<'b>(&self, x: Source<'b>) -> CudaResult<Source<'b>>
    where
        'a: 'b,
    {
        self.adapted(AdaptedSide::Inputs { norm: self.hidden }, x)
    }

    /// Rows for the matrix that writes the stream, likewise.
    pub(crate) fn adapted_output<'b>(&self, x: Source<'b>) -> CudaResult<Source<'b>>
    where
        'a: 'b,
    {
        self.adapted(AdaptedSide::Output, x)
    }

    /// What adapters add to matrices that read the stream and to the one that writes it, for kernels that make `A x`
    /// themselves.
    pub(crate) fn both_adapters(&self) -> [Option<Lora<'a>>; 2] {
        let lora = |side| self.adapters?.lora(self.pass.rows, side).map(|(_, lora)| lora);
        [lora(AdaptedSide::Inputs { norm: self.hidden }), lora(AdaptedSide::Output)]
    }

    fn adapted<'b>(&self, side: AdaptedSide, x: Source<'b>) -> CudaResult<Source<'b>>
    where
        'a: 'b,
    {
        match self.adapters {
            Some(adapters) => adapters.read(self.device, self.pass.rows, side, x),
            None => Ok(x),
        }
    }
}

/// The weights of an operator on the device, before their products are loaded.
pub(crate) type LoadedWeights<C> = <C as OperatorPlan>::Weights<Matrix, CudaSlice<f32>>;

/// The matrix that a block reads first, which the block before it may fetch early.
#[derive(Clone, Copy)]
pub(crate) struct FirstMatrix<'a> {
    pub(crate) matrix: &'a Matrix,
    /// Where rows of the stream become f16 for this matrix, if they do: the block that writes the rows may convert them.
    pub(crate) halves: Option<&'a HalfPlace>,
}

/// An operator on one device: what it loads and what it launches.
pub(crate) trait OperatorRun: OperatorPlan {
    /// Its weights on the device, with their products.
    type Bound;
    /// Kernels beside the products, and memory of their own, that blocks of one shape share.
    type Kernels;

    /// Loads the kernels that blocks of this shape share.
    fn load(&self, device: &Device, cache: &KernelCache, setting: &Setting) -> CudaResult<Self::Kernels>;

    /// Loads the products of a block's weights.
    fn bind(
        &self,
        weights: LoadedWeights<Self>,
        products: &mut ProductKernels<'_>,
        hidden: usize,
    ) -> CudaResult<Self::Bound>;

    /// The matrix that the block multiplies such rows of the residual stream with first.
    fn first(bound: &Self::Bound, rows: RowCount) -> FirstMatrix<'_>;

    /// Enqueues the block: from the residual stream back into it.
    fn launch(
        bound: &Self::Bound,
        kernels: &mut Self::Kernels,
        at: BlockPass<'_>,
        memory: &mut RankMemory<'_>,
    ) -> CudaResult<()>;

    /// Enqueues what later rows find of these, and no more: nothing leaves the block.
    fn remember(
        _bound: &Self::Bound,
        _kernels: &mut Self::Kernels,
        _at: BlockPass<'_>,
        _memory: &mut RankMemory<'_>,
    ) -> CudaResult<()> {
        Ok(())
    }
}

macro_rules! running_operators {
    ($($kind:ident($config:ident)),* $(,)?) => {
        /// An operator's weights on the device, with their products.
        #[allow(clippy::large_enum_variant, reason = "one a block")]
        pub(crate) enum Bound {
            $($kind(<$config as OperatorRun>::Bound),)*
        }

        /// Kernels that blocks of one shape share.
        #[allow(clippy::large_enum_variant, reason = "one a shape")]
        pub(crate) enum Kernels {
            $($kind(<$config as OperatorRun>::Kernels),)*
        }

        impl Kernels {
            /// Those of a shape.
            #[allow(unreachable_patterns, reason = "every operator may be in the list")]
            pub(crate) fn load(
                op: &OpConfig,
                device: &Device,
                cache: &KernelCache,
                setting: &Setting,
            ) -> CudaResult<Self> {
                match op {
                    $(OpConfig::$kind(config) => config.load(device, cache, setting).map(Self::$kind),)*
                    _ => Err(refused(op)),
                }
            }
        }

        impl Bound {
            /// Loads the products of an operator with its matrices.
            pub(crate) fn new(
                op: Op<Matrix, CudaSlice<f32>>,
                products: &mut ProductKernels<'_>,
                hidden: usize,
            ) -> CudaResult<Self> {
                match op {
                    $(Op::$kind(config, weights) => config.bind(weights, products, hidden).map(Self::$kind),)*
                    Op::Refused => unreachable!("`check` comes first"),
                }
            }

            /// This block as the one that reads such rows of the stream next: `norm` is the weight of its norm.
            pub(crate) fn reader<'a>(&'a self, norm: &'a CudaSlice<f32>, rows: RowCount) -> NextBlock<'a> {
                let FirstMatrix { matrix, halves } = match self {
                    $(Self::$kind(bound) => $config::first(bound, rows),)*
                };
                NextBlock { norm, matrix, halves }
            }

            /// Enqueues the block: from the residual stream back into it.
            pub(crate) fn launch(
                &self,
                kernels: &mut Kernels,
                at: BlockPass<'_>,
                memory: &mut RankMemory<'_>,
            ) -> CudaResult<()> {
                match (self, kernels) {
                    $((Self::$kind(bound), Kernels::$kind(kernels)) => {
                        $config::launch(bound, kernels, at, memory)
                    })*
                    _ => unreachable!("a block's kernels are those of its shape"),
                }
            }

            /// Enqueues what later rows find of these.
            pub(crate) fn remember(
                &self,
                kernels: &mut Kernels,
                at: BlockPass<'_>,
                memory: &mut RankMemory<'_>,
            ) -> CudaResult<()> {
                match (self, kernels) {
                    $((Self::$kind(bound), Kernels::$kind(kernels)) => {
                        $config::remember(bound, kernels, at, memory)
                    })*
                    _ => unreachable!("a block's kernels are those of its shape"),
                }
            }
        }
    };
}

for_each_operator!(running_operators);
