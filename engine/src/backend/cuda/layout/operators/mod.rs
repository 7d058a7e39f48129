//! The operators as they are planned: what of a block is brought over and kept, which kernels and products it takes.
//!
//! An operator is a file here that implements [`OperatorPlan`] for the model's configuration of it, a file in
//! `blocks` that launches it, and a line in [`for_each_operator`]: the only place of this backend that tells
//! operators apart. One that is not in the list is refused by name.

pub(crate) mod adapter_groups;
pub(crate) mod adapter_plan;
pub(crate) mod attention;
pub(crate) mod gdn;
pub(crate) mod latent;
pub(crate) mod mamba2;
pub(crate) mod mlp;
pub(crate) mod moe;
pub(crate) mod operator;
pub(crate) mod parallel;
pub(crate) mod projections;

use crate::backend::cuda::error::{CudaBackendError, CudaResult};
use crate::backend::cuda::layout::matrix::{MatrixPlan, Packed, VectorPlan};
use crate::backend::cuda::layout::operators::adapter_groups::GroupPlan;
use crate::backend::cuda::layout::shape::{Counts, Widths};
use crate::model::{
    self, AttentionConfig, GdnConfig, Mamba2Config, MlpConfig, ModelConfig, MoeConfig, OpConfig, ParallelConfig,
};
use chimere_kernels::cuda::Program;
use chimere_kernels::cuda::attention::{AttentionShape, KvType};
use operator::{Memory, OperatorPlan, Setting, WantedProducts, supported};

/// An operator's configuration, to be asked what this backend has to know of it.
#[derive(Clone, Copy)]
pub(crate) struct OpQuery<'a>(pub(crate) &'a OpConfig);

macro_rules! planned_operators {
    ($($kind:ident($config:ident)),* $(,)?) => {
        /// An operator's matrices `M` and f32 values `V`.
        #[allow(clippy::large_enum_variant, reason = "one a block")]
        pub(crate) enum Op<M, V> {
            $($kind($config, <$config as OperatorPlan>::Weights<M, V>),)*
            /// One that `check` refuses.
            Refused,
        }

        /// What an operator's configuration alone answers. One that is not in the list needs nothing, for it is
        /// refused.
        #[allow(unreachable_patterns, reason = "every operator may be in the list")]
        impl OpQuery<'_> {
            /// Refuses by name what no kernel of the operator does: [`OperatorPlan::check`].
            pub(crate) fn check(self) -> CudaResult<()> {
                match self.0 {
                    $(OpConfig::$kind(config) => config.check(),)*
                    op => Err(refused(op)),
                }
            }

            /// Widths of the operator's rows in the workspace: [`OperatorPlan::widths`].
            pub(crate) fn widths(self) -> Widths {
                match self.0 {
                    $(OpConfig::$kind(config) => config.widths(),)*
                    _ => Widths::default(),
                }
            }

            /// Floats of scratch that the operator writes: [`OperatorPlan::scratch`].
            pub(crate) fn scratch(self, counts: Counts, hidden: usize) -> usize {
                match self.0 {
                    $(OpConfig::$kind(config) => config.scratch(counts, hidden),)*
                    _ => 0,
                }
            }

            /// Memory that a sequence has in the block: [`OperatorPlan::memory`].
            pub(crate) fn memory(self, kv: KvType, drafts: usize) -> Memory {
                match self.0 {
                    $(OpConfig::$kind(config) => config.memory(kv, drafts),)*
                    _ => Memory::default(),
                }
            }

            /// Whether drafted rows may follow a sequence's own: [`OperatorPlan::takes_drafts`].
            pub(crate) fn takes_drafts(self) -> bool {
                match self.0 {
                    $(OpConfig::$kind(config) => config.takes_drafts(),)*
                    _ => false,
                }
            }

            /// Shape of the tiles of prompt rows, if any: [`OperatorPlan::tiled`].
            pub(crate) fn tiled(self, eps: f32) -> Option<AttentionShape> {
                match self.0 {
                    $(OpConfig::$kind(config) => config.tiled(eps),)*
                    _ => None,
                }
            }

            /// Programs that the operator's kernels are compiled from: [`OperatorPlan::programs`].
            pub(crate) fn programs(self, setting: &Setting) -> CudaResult<Vec<Program>> {
                match self.0 {
                    $(OpConfig::$kind(config) => config.programs(setting),)*
                    op => Err(refused(op)),
                }
            }

            /// Matrices that adapters change: [`OperatorPlan::adapter_groups`].
            pub(crate) fn adapter_groups(self, hidden: usize) -> [Option<GroupPlan>; 2] {
                match self.0 {
                    $(OpConfig::$kind(config) => config.adapter_groups(hidden),)*
                    _ => [None, None],
                }
            }

            /// Bytes of device memory of the operator's kernels: [`OperatorPlan::kernel_bytes`].
            pub(crate) fn kernel_bytes(self, setting: &Setting) -> usize {
                match self.0 {
                    $(OpConfig::$kind(config) => config.kernel_bytes(setting),)*
                    _ => 0,
                }
            }
        }

        impl<M, V> Op<M, V> {
            /// The operator with each matrix and each vector of its weights mapped.
            pub(crate) fn map<N, W>(
                self,
                matrix: &mut impl FnMut(M) -> N,
                vector: &mut impl FnMut(V) -> W,
            ) -> Op<N, W> {
                match self {
                    $(Self::$kind(config, weights) => Op::$kind(config, $config::map(weights, matrix, vector)),)*
                    Self::Refused => Op::Refused,
                }
            }

            /// Adds the products that the block takes.
            pub(crate) fn products(&self, hidden: usize, wanted: &mut WantedProducts) -> CudaResult<()>
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
            pub(crate) fn placed(&self) -> bool {
                match self {
                    $(Self::$kind(_, weights) => <$config as OperatorPlan>::placed::<M, V>(weights),)*
                    Self::Refused => false,
                }
            }
        }

        impl<'a> Op<MatrixPlan<'a>, VectorPlan<'a>> {
            /// What will be on the device.
            #[allow(unreachable_patterns, reason = "every operator may be in the list")]
            pub(crate) fn plan(op: &'a model::Op, scale: f32) -> Self {
                match op {
                    $(model::Op::$kind(weights) => Self::$kind(weights.config, $config::plan(weights, scale)),)*
                    _ => Self::Refused,
                }
            }
        }
    };
}

/// Calls a macro with every operator: its name and the model's configuration of it.
macro_rules! for_each_operator {
    ($apply:ident) => {
        $apply! {
            Gdn(GdnConfig),
            Mamba2(Mamba2Config),
            Attention(AttentionConfig),
            Parallel(ParallelConfig),
            Mlp(MlpConfig),
            Moe(MoeConfig),
        }
    };
}
pub(crate) use for_each_operator;

for_each_operator!(planned_operators);

impl Widths {
    pub(crate) fn of(c: &ModelConfig) -> Self {
        let model = Self { hidden: c.hidden, vocab: c.vocab, ..Self::default() };
        c.blocks().map(|block| OpQuery(&block.op).widths()).fold(model, Self::widest)
    }
}

/// Whether this backend computes such a model.
pub(crate) fn check(model: &ModelConfig, kv: KvType) -> CudaResult<()> {
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
pub(crate) fn tiled(model: &ModelConfig) -> Option<AttentionShape> {
    model.blocks().find_map(|block| OpQuery(&block.op).tiled(model.rms_eps))
}

pub(crate) fn refused(op: &OpConfig) -> CudaBackendError {
    CudaBackendError::Unsupported {
        what: "an operator",
        got: op.name().into(),
        need: "another: there is no kernel for it".into(),
    }
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
    fn the_released_models_of_other_families_are_computed() {
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
            "qwen3-8b",
            "qwen3-30b-a3b",
            "granite-4-micro",
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
        assert_eq!(
            check(&golden("lfm2"), KvType::F16).unwrap_err().to_string(),
            "an operator is short convolution, the GPU's kernels need another: there is no kernel for it"
        );
        let yarn = |op: &mut OpConfig| {
            if let OpConfig::Attention(a) = op {
                a.rope.as_mut().unwrap().dim /= 2
            }
        };
        let partly = refusal("qwen3_moe", 0, yarn);
        assert!(partly.starts_with("a head that YaRN rotates is rotated in part, "), "{partly}");
        let scale = |op: &mut OpConfig| *op = OpConfig::Scale(ScaleConfig);
        assert_eq!(
            refusal("moe", 0, scale),
            "an operator is scale, the GPU's kernels need another: there is no kernel for it"
        );
    }
}
