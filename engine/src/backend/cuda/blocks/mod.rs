//! The operators on this backend: what of a block is planned, brought over and kept, which kernels it takes, and what
//! it launches.
//!
//! An operator is one file here that implements [`Operator`] for the model's configuration of it, and a line in the
//! list below: the only place of this backend that tells operators apart. One that is not in the list is refused by
//! name. What is fused across blocks goes through `residual` alone.

mod attention;
mod gdn;
mod latent;
mod mamba2;
mod mlp;
mod moe;
mod parallel;
mod projections;

#[cfg(test)]
pub(super) use mlp::ExpertMatrices;

use super::error::CudaBackendError;
use super::matrices::{Kernels as Products, ProductKind, RowCount};
use super::network::Pass;
use super::plan::{MatrixPlan, VectorPlan};
use super::residual::Next;
use super::shape::{Counts, Widths};
use super::store::Store;
use super::weights::{Matrix, Packed};
use super::workspace::Workspace;
use crate::model::{
    self, AttentionConfig, GdnConfig, Mamba2Config, MlpConfig, ModelConfig, MoeConfig, OpConfig, ParallelConfig,
};
use chimere_kernels::cuda::attention::{AttentionShape, KvType};
use chimere_kernels::cuda::experts::Experts;
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::wide::HalfPlace;
use chimere_kernels::cuda::{Arch, CudaError, Device, KernelCache, Program};
use cudarc::driver::CudaSlice;

/// What kernels are made for beside an operator's own shape.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    /// Width of the residual stream.
    pub(super) hidden: usize,
    /// Epsilon of every norm.
    pub(super) eps: f32,
    pub(super) planes: Planes,
    pub(super) kv: KvType,
    pub(super) counts: Counts,
    /// Positions a sequence may have.
    pub(super) context: usize,
    /// The chip's architecture.
    pub(super) arch: Arch,
}

/// What a sequence leaves behind in a block as it lies on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// Floats of recurrent state.
    pub(super) state: usize,
    /// Floats of a convolution's ring.
    pub(super) ring: usize,
    /// Floats of what the stored state may lack.
    pub(super) updates: usize,
    /// Bytes of a page's keys.
    pub(super) key_page: usize,
    /// Bytes of a page's values.
    pub(super) value_page: usize,
}

impl Memory {
    /// Whether a sequence has recurrent state here.
    pub(super) fn is_recurrent(&self) -> bool {
        self.state + self.ring > 0
    }

    /// Whether a sequence has keys and values here.
    pub(super) fn is_cached(&self) -> bool {
        self.key_page + self.value_page > 0
    }
}

/// Where a block finds what is kept for blocks like it, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BlockPlace {
    /// Among those with recurrent state.
    pub(super) recurrent: usize,
    /// Among those with keys and values.
    pub(super) cached: usize,
    /// Among those that choose experts.
    pub(super) routed: usize,
}

/// Products that blocks take, each kind as often as it comes.
#[derive(Default)]
pub(super) struct WantedProducts {
    pub(super) kinds: Vec<ProductKind>,
    /// Of blocks that choose experts.
    pub(super) experts: Vec<WantedExperts>,
}

/// All experts of a block in one launch, where a chip has the memory for it.
pub(super) struct WantedExperts {
    /// An error is one of sizes.
    pub(super) few: Result<Experts, CudaError>,
    /// Products of the shared expert beside that launch, and where there is none.
    pub(super) shared: [[ProductKind; 2]; 2],
}

/// A pass at one block.
#[derive(Clone, Copy)]
pub(super) struct BlockPass<'a> {
    pub(super) device: &'a Device,
    /// The same device, for what may run beside the rest of a block.
    pub(super) beside: &'a Device,
    pub(super) pass: &'a Pass<'a>,
    /// Weight of the norm before the operator: it is folded into the rows already.
    pub(super) norm: &'a CudaSlice<f32>,
    pub(super) next: Next<'a>,
    pub(super) place: BlockPlace,
    pub(super) hidden: usize,
    pub(super) eps: f32,
}

/// What this backend has to know of an operator; the model's configuration of it says so.
pub(super) trait Operator: Sized {
    /// The model's weights of it.
    type Source;
    /// Its matrices and f32 values, as planned and as they are on the device.
    type Weights<M, V>;
    /// Its weights on the device, with their products.
    type Bound;
    /// Kernels beside the products, and memory of their own, that blocks of one shape share.
    type Kernels;

    /// Refuses by name what no kernel does.
    fn check(&self) -> Result<(), CudaBackendError>;

    /// Of what it puts into the workspace.
    fn widths(&self) -> Widths;

    /// Floats of [`Workspace::scratch`] that it writes.
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

    /// The same tree with other leaves, which are visited in a fixed order.
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
    ) -> Result<(), CudaBackendError>;

    /// The programs that [`Operator::Kernels`] are compiled from.
    fn programs(&self, setting: &Setting) -> Result<Vec<Program>, CudaBackendError>;

    /// Bytes of device memory that [`Operator::Kernels`] keep for themselves.
    fn kernel_bytes(&self, _setting: &Setting) -> usize {
        0
    }

    /// Loads the kernels that blocks of this shape share.
    fn load(&self, device: &Device, cache: &KernelCache, setting: &Setting) -> Result<Self::Kernels, CudaBackendError>;

    /// Loads the products of a block's weights.
    fn bind(
        &self,
        weights: Self::Weights<Matrix, CudaSlice<f32>>,
        products: &mut Products<'_>,
        hidden: usize,
    ) -> Result<Self::Bound, CudaBackendError>;

    /// The matrix that is read first.
    fn first(bound: &Self::Bound) -> &Matrix;

    /// Where such rows of the stream become f16 for that matrix, if they do: whoever writes them may do it too.
    fn half_place(_bound: &Self::Bound, _rows: RowCount) -> Option<&HalfPlace> {
        None
    }

    /// Enqueues the block: from the residual stream back into it.
    fn launch(
        bound: &Self::Bound,
        kernels: &mut Self::Kernels,
        at: BlockPass<'_>,
        store: &mut Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError>;

    /// Enqueues what later rows find of these, and no more: nothing leaves the block.
    fn remember(
        _bound: &Self::Bound,
        _kernels: &mut Self::Kernels,
        _at: BlockPass<'_>,
        _store: &mut Store,
        _work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        Ok(())
    }
}

/// An operator's configuration, to be asked what this backend has to know of it.
#[derive(Clone, Copy)]
pub(super) struct OpQuery<'a>(pub(super) &'a OpConfig);

macro_rules! operators {
    ($($kind:ident($config:ident)),* $(,)?) => {
        /// An operator's matrices `M` and f32 values `V`.
        #[allow(clippy::large_enum_variant, reason = "one a block")]
        pub(super) enum Op<M = Matrix, V = CudaSlice<f32>> {
            $($kind($config, <$config as Operator>::Weights<M, V>),)*
            /// One that `check` refuses.
            Refused,
        }

        /// An operator's weights on the device, with their products.
        #[allow(clippy::large_enum_variant, reason = "one a block")]
        pub(super) enum Bound {
            $($kind(<$config as Operator>::Bound),)*
        }

        /// Kernels that blocks of one shape share.
        #[allow(clippy::large_enum_variant, reason = "one a shape")]
        pub(super) enum Kernels {
            $($kind(<$config as Operator>::Kernels),)*
        }

        /// What an operator's configuration alone answers. One that is not in the list needs nothing, for it is
        /// refused.
        #[allow(unreachable_patterns, reason = "every operator may be in the list")]
        impl OpQuery<'_> {
            /// [`Operator::check`].
            pub(super) fn check(self) -> Result<(), CudaBackendError> {
                match self.0 {
                    $(OpConfig::$kind(config) => config.check(),)*
                    op => Err(refused(op)),
                }
            }

            /// [`Operator::widths`].
            pub(super) fn widths(self) -> Widths {
                match self.0 {
                    $(OpConfig::$kind(config) => config.widths(),)*
                    _ => Widths::default(),
                }
            }

            /// [`Operator::scratch`].
            pub(super) fn scratch(self, counts: Counts, hidden: usize) -> usize {
                match self.0 {
                    $(OpConfig::$kind(config) => config.scratch(counts, hidden),)*
                    _ => 0,
                }
            }

            /// [`Operator::memory`].
            pub(super) fn memory(self, kv: KvType, drafts: usize) -> Memory {
                match self.0 {
                    $(OpConfig::$kind(config) => config.memory(kv, drafts),)*
                    _ => Memory::default(),
                }
            }

            /// [`Operator::takes_drafts`].
            pub(super) fn takes_drafts(self) -> bool {
                match self.0 {
                    $(OpConfig::$kind(config) => config.takes_drafts(),)*
                    _ => false,
                }
            }

            /// [`Operator::tiled`].
            pub(super) fn tiled(self, eps: f32) -> Option<AttentionShape> {
                match self.0 {
                    $(OpConfig::$kind(config) => config.tiled(eps),)*
                    _ => None,
                }
            }

            /// [`Operator::programs`].
            pub(super) fn programs(self, setting: &Setting) -> Result<Vec<Program>, CudaBackendError> {
                match self.0 {
                    $(OpConfig::$kind(config) => config.programs(setting),)*
                    op => Err(refused(op)),
                }
            }

            /// [`Operator::kernel_bytes`].
            pub(super) fn kernel_bytes(self, setting: &Setting) -> usize {
                match self.0 {
                    $(OpConfig::$kind(config) => config.kernel_bytes(setting),)*
                    _ => 0,
                }
            }
        }

        impl<M, V> Op<M, V> {
            /// The same with other leaves.
            pub(super) fn map<N, W>(self, matrix: &mut impl FnMut(M) -> N, vector: &mut impl FnMut(V) -> W) -> Op<N, W> {
                match self {
                    $(Self::$kind(config, weights) => Op::$kind(config, $config::map(weights, matrix, vector)),)*
                    Self::Refused => Op::Refused,
                }
            }

            /// Adds the products that the block takes.
            pub(super) fn products(&self, hidden: usize, wanted: &mut WantedProducts) -> Result<(), CudaBackendError>
            where
                M: Packed,
            {
                match self {
                    $(Self::$kind(config, weights) => config.products::<M, V>(weights, hidden, wanted),)*
                    Self::Refused => Ok(()),
                }
            }
        }

        impl<M: Packed, V> Op<M, V> {
            /// Whether a table says where any of its matrices lie.
            pub(super) fn placed(&self) -> bool {
                match self {
                    $(Self::$kind(_, weights) => <$config as Operator>::placed::<M, V>(weights),)*
                    Self::Refused => false,
                }
            }
        }

        impl<'a> Op<MatrixPlan<'a>, VectorPlan<'a>> {
            /// What will be on the device.
            #[allow(unreachable_patterns, reason = "every operator may be in the list")]
            pub(super) fn plan(op: &'a model::Op, scale: f32) -> Self {
                match op {
                    $(model::Op::$kind(weights) => Self::$kind(weights.config, $config::plan(weights, scale)),)*
                    _ => Self::Refused,
                }
            }
        }

        impl Op {
            /// Loads the operator's products with its matrices.
            pub(super) fn bind(self, products: &mut Products<'_>, hidden: usize) -> Result<Bound, CudaBackendError> {
                match self {
                    $(Self::$kind(config, weights) => config.bind(weights, products, hidden).map(Bound::$kind),)*
                    Self::Refused => unreachable!("`check` comes first"),
                }
            }
        }

        impl Kernels {
            /// Those of a shape.
            #[allow(unreachable_patterns, reason = "every operator may be in the list")]
            pub(super) fn load(
                op: &OpConfig,
                device: &Device,
                cache: &KernelCache,
                setting: &Setting,
            ) -> Result<Self, CudaBackendError> {
                match op {
                    $(OpConfig::$kind(config) => config.load(device, cache, setting).map(Self::$kind),)*
                    _ => Err(refused(op)),
                }
            }
        }

        impl Bound {
            /// The matrix that is read first.
            pub(super) fn first(&self) -> &Matrix {
                match self {
                    $(Self::$kind(bound) => $config::first(bound),)*
                }
            }

            /// Who reads the stream before it, as whoever writes such rows of it is told.
            pub(super) fn reader<'a>(&'a self, norm: &'a CudaSlice<f32>, rows: RowCount) -> Next<'a> {
                let halves = match self {
                    $(Self::$kind(bound) => $config::half_place(bound, rows),)*
                };
                Next { norm, matrix: self.first(), halves }
            }

            /// Enqueues the block: from the residual stream back into it.
            pub(super) fn launch(
                &self,
                kernels: &mut Kernels,
                at: BlockPass<'_>,
                store: &mut Store,
                work: &mut Workspace,
            ) -> Result<(), CudaBackendError> {
                match (self, kernels) {
                    $((Self::$kind(bound), Kernels::$kind(kernels)) => $config::launch(bound, kernels, at, store, work),)*
                    _ => unreachable!("a block's kernels are those of its shape"),
                }
            }

            /// Enqueues what later rows find of these.
            pub(super) fn remember(
                &self,
                kernels: &mut Kernels,
                at: BlockPass<'_>,
                store: &mut Store,
                work: &mut Workspace,
            ) -> Result<(), CudaBackendError> {
                match (self, kernels) {
                    $((Self::$kind(bound), Kernels::$kind(kernels)) => $config::remember(bound, kernels, at, store, work),)*
                    _ => unreachable!("a block's kernels are those of its shape"),
                }
            }
        }
    };
}

operators! {
    Gdn(GdnConfig),
    Mamba2(Mamba2Config),
    Attention(AttentionConfig),
    Parallel(ParallelConfig),
    Mlp(MlpConfig),
    Moe(MoeConfig),
}

/// Whether this backend computes such a model.
pub(super) fn check(model: &ModelConfig, kv: KvType) -> Result<(), CudaBackendError> {
    for block in model.blocks() {
        OpQuery(&block.op).check()?;
    }
    // The store has one size of each for all blocks that have any, so that a slot or a page is one strided copy.
    let memories = || model.blocks().map(|block| OpQuery(&block.op).memory(kv, 0));
    let states = || memories().filter(Memory::is_recurrent).map(|m| (m.state, m.ring, m.updates));
    let pages = || memories().filter(Memory::is_cached).map(|m| (m.key_page, m.value_page));
    supported(
        states().all(|s| Some(s) == states().next()),
        "recurrent state",
        "of several sizes",
        "one for all layers",
    )?;
    supported(pages().all(|p| Some(p) == pages().next()), "a page of keys", "of several sizes", "one for all layers")?;
    let mut tiled = model.shapes().into_iter().filter_map(|op| OpQuery(op).tiled(model.rms_eps));
    let first = tiled.next();
    supported(tiled.next().is_none() || first.is_none(), "attention", "of several shapes", "one for all layers")
}

/// The shape by which the rows of prompts are put into tiles, if there are blocks that want such.
pub(super) fn tiled(model: &ModelConfig) -> Option<AttentionShape> {
    model.blocks().find_map(|block| OpQuery(&block.op).tiled(model.rms_eps))
}

fn refused(op: &OpConfig) -> CudaBackendError {
    CudaBackendError::Unsupported {
        what: "an operator",
        got: op.name().into(),
        need: "another: there is no kernel for it".into(),
    }
}

/// That something is as the kernels compute it.
fn supported(is: bool, what: &'static str, got: impl ToString, need: &str) -> Result<(), CudaBackendError> {
    if is { Ok(()) } else { Err(CudaBackendError::Unsupported { what, got: got.to_string(), need: need.into() }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::synth::{Mix, SynthOptions, write_outline};
    use crate::model::{Activation, ScaleConfig};

    fn golden(preset: &str) -> ModelConfig {
        let path = format!("{}/tests/golden/{preset}/model.gguf", env!("CARGO_MANIFEST_DIR"));
        model::load(path.as_ref()).unwrap().config
    }

    fn refusal(preset: &str, layer: usize, change: impl Fn(&mut OpConfig)) -> String {
        let mut config = golden(preset);
        assert!(check(&config, KvType::F16).is_ok(), "{preset}");
        config.layers[layer].iter_mut().for_each(|block| change(&mut block.op));
        check(&config, KvType::F16).unwrap_err().to_string()
    }

    #[test]
    fn the_released_hybrids_with_mamba_2_are_computed() {
        let dir = tempfile::tempdir().unwrap();
        let checked = |shape: &str| {
            let (file, shape) = (dir.path().join(shape), shape.to_owned());
            let options = SynthOptions {
                shape,
                mix: Mix::Q4,
                layers: None,
                experts: None,
                vocab: None,
                draft_head: false,
                seed: 1,
            };
            write_outline(&file, &options).unwrap();
            check(&model::load(&file).unwrap().config, KvType::F16).map_err(|e| e.to_string())
        };
        for shape in [
            "mamba2-2.7b",
            "granite-4-h-tiny",
            "granite-4-h-small",
            "falcon-h1-7b",
            "nemotron-3-nano-30b-a3b",
            "nemotron-3-super-120b-a12b",
            "nemotron-h-8b",
        ] {
            assert_eq!(checked(shape), Ok(()), "{shape}");
        }
    }

    #[test]
    fn what_no_kernel_computes_is_refused_by_name() {
        let attention = |change: fn(&mut AttentionConfig)| {
            refusal("moe", 3, move |op| {
                if let OpConfig::Attention(a) = op {
                    change(a)
                }
            })
        };
        let narrow = attention(|a| a.head_dim = 32);
        assert_eq!(narrow, "a normed head is of 32, the GPU's kernels need one of 64, 128 or 256");
        let wide = attention(|a| a.head_dim = 512);
        assert!(wide.contains("heads of 512: must be of 64, 128 or 256"), "{wide}");
        let moe = |change: fn(&mut MoeConfig)| {
            refusal("moe", 0, move |op| {
                if let OpConfig::Moe(m) = op {
                    change(m)
                }
            })
        };
        assert_eq!(moe(|m| m.shared = None), "the shared expert is absent, the GPU's kernels need one");
        assert_eq!(
            moe(|m| m.expert.activation = Activation::Relu2),
            "the shared expert is of SiluGated, the GPU's kernels need the activation of the others"
        );
        let latent = moe(|m| m.latent = Some(64));
        assert!(latent.starts_with("the shared expert is gated beside experts of a width of their own"), "{latent}");
        let gdn = |op: &mut OpConfig| {
            if let OpConfig::Gdn(g) = op {
                g.key_dim *= 2
            }
        };
        assert_eq!(
            refusal("moe", 0, gdn),
            "recurrent state is of several sizes, the GPU's kernels need one for all layers"
        );
        let scale = |op: &mut OpConfig| *op = OpConfig::Scale(ScaleConfig);
        assert_eq!(
            refusal("moe", 0, scale),
            "an operator is scale, the GPU's kernels need another: there is no kernel for it"
        );
    }
}
