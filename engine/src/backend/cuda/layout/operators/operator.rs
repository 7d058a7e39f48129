//! An operator before there is a device: what of a block is planned and kept, and which kernels it takes.

use crate::backend::cuda::error::{CudaBackendError, CudaResult};
use crate::backend::cuda::layout::config::CudaConfig;
use crate::backend::cuda::layout::matrix::{MatrixPlan, Packed, VectorPlan};
use crate::backend::cuda::layout::operators::adapter_groups::GroupPlan;
use crate::backend::cuda::layout::products::ProductKind;
use crate::backend::cuda::layout::shape::{Counts, Widths};
use crate::model::ModelConfig;
use chimere_kernels::cuda::attention::{AttentionShape, KvType};
use chimere_kernels::cuda::experts::Experts;
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::{Arch, CudaError, Program};

/// What kernels are made for beside an operator's own shape.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    /// Width of the residual stream.
    pub(crate) hidden: usize,
    /// Epsilon of every norm.
    pub(crate) eps: f32,
    pub(crate) planes: Planes,
    pub(crate) kv: KvType,
    pub(crate) counts: Counts,
    /// Positions a sequence may have.
    pub(crate) context: usize,
    /// Architecture of the chip that the kernels are compiled for.
    pub(crate) arch: Arch,
}

impl Setting {
    /// What a backend's kernels are made for.
    pub(crate) fn of(c: &ModelConfig, config: &CudaConfig, planes: Planes, arch: Arch) -> Self {
        let (counts, context) = (Counts::of(config), config.context as usize);
        Self { hidden: c.hidden, eps: c.rms_eps, planes, kv: config.kv.into(), counts, context, arch }
    }
}

/// What a sequence leaves behind in a block as it lies on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Floats of recurrent state.
    pub(crate) state: usize,
    /// Floats of a convolution's ring.
    pub(crate) ring: usize,
    /// Floats of what the stored state may lack.
    pub(crate) updates: usize,
    /// Bytes of a page's keys.
    pub(crate) key_page: usize,
    /// Bytes of a page's values.
    pub(crate) value_page: usize,
}

impl Memory {
    /// Whether a sequence has recurrent state here.
    pub(crate) fn is_recurrent(&self) -> bool {
        self.state + self.ring > 0
    }

    /// Whether a sequence has keys and values here.
    pub(crate) fn is_cached(&self) -> bool {
        self.key_page + self.value_page > 0
    }
}

/// Products that blocks take, each kind as often as it comes.
#[derive(Default)]
pub(crate) struct WantedProducts {
    pub(crate) kinds: Vec<ProductKind>,
    /// Of blocks that choose experts.
    pub(crate) experts: Vec<WantedExperts>,
}

/// All experts of a block in one launch, where a chip has the memory for it.
pub(crate) struct WantedExperts {
    /// An error is one of sizes.
    pub(crate) few: Result<Experts, CudaError>,
    /// Products of the shared expert beside that launch, and where there is none.
    pub(crate) shared: [[ProductKind; 2]; 2],
}

/// An operator as it is planned, by the model's configuration of it: a pure function of that, without a device.
pub(crate) trait OperatorPlan: Sized {
    /// The model's weights of it.
    type Source;
    /// Its matrices and f32 values, as planned and as they are on the device.
    type Weights<M, V>;

    /// Refuses by name what no kernel does.
    fn check(&self) -> CudaResult<()>;

    /// Of what it puts into the workspace.
    fn widths(&self) -> Widths;

    /// Floats of the workspace's scratch that it writes.
    fn scratch(&self, _counts: Counts, _hidden: usize) -> usize {
        0
    }

    /// What a sequence leaves behind, with room for so many drafted rows behind its own.
    fn memory(&self, _kv: KvType, _drafts: usize) -> Memory {
        Memory::default()
    }

    /// Whether drafted rows may stand behind a sequence's own.
    fn takes_drafts(&self) -> bool {
        true
    }

    /// The shape by which the rows of prompts are put into tiles, if the operator has them in tiles.
    fn tiled(&self, _eps: f32) -> Option<AttentionShape> {
        None
    }

    /// What will be on the device. `scale` is the block's: the last matrix has it as a factor.
    fn plan(weights: &Self::Source, scale: f32) -> Self::Weights<MatrixPlan<'_>, VectorPlan<'_>>;

    /// Maps each matrix and each vector of the weights, in a fixed order.
    fn map<M, V, N, W>(
        weights: Self::Weights<M, V>,
        matrix: &mut impl FnMut(M) -> N,
        vector: &mut impl FnMut(V) -> W,
    ) -> Self::Weights<N, W>;

    /// Whether a table says where any of its matrices lie.
    fn placed<M: Packed, V>(_weights: &Self::Weights<M, V>) -> bool {
        false
    }

    /// Adds the products that it takes.
    fn products<M: Packed, V>(
        &self,
        weights: &Self::Weights<M, V>,
        hidden: usize,
        wanted: &mut WantedProducts,
    ) -> CudaResult<()>;

    /// The groups of matrices that adapters change: of those that read the residual stream, and of those that write it.
    fn adapter_groups(&self, _hidden: usize) -> [Option<GroupPlan>; 2] {
        [None, None]
    }

    /// The programs that the operator's kernels are compiled from.
    fn programs(&self, setting: &Setting) -> CudaResult<Vec<Program>>;

    /// Bytes of device memory that the operator's kernels keep for themselves.
    fn kernel_bytes(&self, _setting: &Setting) -> usize {
        0
    }
}

/// That something is as the kernels compute it.
pub(crate) fn supported(is: bool, what: &'static str, got: impl ToString, need: &str) -> CudaResult<()> {
    if is { Ok(()) } else { Err(CudaBackendError::Unsupported { what, got: got.to_string(), need: need.into() }) }
}
