//! Routed experts and a shared one, of gate, up and down or of up and down alone, chosen by softmax or by sigmoids with
//! biases.
//!
//! Decode passes of few rows choose and compute all experts in one launch. With more rows the router is a launch of its
//! own, an expert's rows are brought together, and what experts made is summed by a launch of its own. Experts whose
//! rows have a width of their own (`latent`) go that way however few rows there are, and a shared expert beside them is
//! a dense part.

use super::latent::LatentMatrices;
use super::mlp::{ExpertMatrices, ExpertRole};
use super::operator::{OperatorPlan, Setting, WantedExperts, WantedProducts, supported};
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::matrix::{MatrixPlan, MatrixUse, Packed, VectorPlan};
use crate::backend::cuda::layout::operators::adapter_groups::GroupPlan;
use crate::backend::cuda::layout::shape::{Counts, Widths};
use crate::model::{MoeConfig, MoeWeights, Router as Routing};
use chimere_kernels::cuda::combine;
use chimere_kernels::cuda::experts::{self, Experts};
use chimere_kernels::cuda::router;
use chimere_kernels::cuda::{CudaError, Program};

/// The experts' and their router's weights, planned or on the device.
pub(crate) struct Weights<M, V> {
    /// Router matrix, `[experts, hidden]`.
    pub(crate) router: V,
    /// `[hidden]`, of the shared expert.
    pub(crate) shared_gate: V,
    /// `[experts]`, where experts are chosen by sigmoids.
    pub(crate) bias: V,
    /// The matrices of all routed experts, one after another.
    pub(crate) experts: ExpertMatrices<M>,
    pub(crate) shared: ExpertMatrices<M>,
    /// Where the routed experts' rows have a width of their own.
    pub(crate) latent: Option<LatentMatrices<M>>,
}

pub(crate) fn router_shape(config: &MoeConfig, s: &Setting) -> router::RouterShape {
    router::RouterShape { cols: s.hidden, experts: config.experts, used: config.used, sigmoid: config.sigmoid() }
}

/// How what experts made of a row is summed.
pub(crate) fn combine_shape(config: &MoeConfig, s: &Setting) -> combine::CombineShape {
    let stream = config.latent.is_none();
    let cols = config.latent.unwrap_or(s.hidden);
    combine::CombineShape { cols, used: config.used, shared: stream, stream, planes: s.planes }
}

impl MoeConfig {
    /// What a routed expert is in its layer.
    pub(crate) fn routed(&self) -> ExpertRole {
        ExpertRole::Routed { used: self.used, of: self.experts }
    }

    /// What the shared one is; `few`: whether few rows have it done with the others.
    pub(crate) fn beside(&self, few: bool) -> ExpertRole {
        if self.latent.is_some() { ExpertRole::Alone } else { ExpertRole::Shared { few } }
    }

    /// Of how many values the routed experts' rows have a norm folded in, if any.
    pub(crate) fn norm(&self, hidden: usize) -> Option<usize> {
        self.latent.is_none().then_some(hidden)
    }

    /// Whether experts are chosen by sigmoids with biases.
    pub(crate) fn sigmoid(&self) -> bool {
        self.router != Routing::Softmax
    }
}

/// Width of the shared expert of zeros that stands in a layer without one: the least that every kernel takes.
const SILENT_WIDTH: usize = 64;

/// The width of the shared expert. Kernels always have one; where the model has none, it is of zeros and adds nothing.
pub(crate) fn shared_width(config: &MoeConfig) -> usize {
    config.shared.map_or(SILENT_WIDTH, |shared| shared.expert.width)
}

/// The experts of a block as the kernels for few rows take them, which multiply what down makes by a factor, and not
/// what gate and up make. They read and make rows of the stream.
pub(crate) fn few<M: Packed, V>(
    config: &MoeConfig,
    w: &Weights<M, V>,
    hidden: usize,
) -> Option<Result<Experts, CudaError>> {
    let plain = config.latent.is_none() && [&w.experts, &w.shared].iter().all(|s| s.gate_up.form().factor == 1.0);
    let kind = |s: &ExpertMatrices<M>| experts::ExpertShape {
        width: s.width(),
        gate_up: s.gate_up.form().layout,
        down: s.down.form().layout,
    };
    let placed = w.experts.gate_up.form().placed;
    let all = || -> Result<Experts, CudaError> {
        let experts = Experts::new(hidden, config.experts, config.used, kind(&w.experts), kind(&w.shared))?;
        let experts = if config.expert.activation.is_gated() { experts } else { experts.without_gates()? };
        Ok(experts.with_sigmoids(config.sigmoid()).with_places(placed))
    };
    plain.then(all)
}

impl OperatorPlan for MoeConfig {
    type Source = MoeWeights;
    type Weights<M, V> = Weights<M, V>;

    fn check(&self) -> CudaResult<()> {
        let Some(shared) = self.shared else { return Ok(()) };
        let (own, of_all) = (shared.expert.activation, self.expert.activation);
        supported(own == of_all, "the shared expert", format_args!("of {own:?}"), "the activation of the others")?;
        let plain = self.latent.is_none() || !shared.gated;
        supported(plain, "the shared expert", "gated beside experts of a width of their own", "one without a gate")
    }

    fn widths(&self) -> Widths {
        let (experts, used, width) = (self.experts, self.used, self.expert.width);
        let (shared, latent) = (shared_width(self), self.latent.unwrap_or(0));
        Widths { experts, used, width, shared, latent, ..Widths::default() }
    }

    fn scratch(&self, counts: Counts, hidden: usize) -> usize {
        counts.rows() * self.used * self.latent.unwrap_or(hidden)
    }

    fn plan(w: &MoeWeights, scale: f32) -> Weights<MatrixPlan<'_>, VectorPlan<'_>> {
        let shared = w.shared.as_ref();
        // A gate of zeros is open by half, so what it lets through counts twice: both are exact.
        let (gate, shared_scale) = match shared.and_then(|s| s.gate.as_deref()) {
            Some(gate) => (VectorPlan::Values(gate), scale),
            // As a dense part it goes through none.
            None if w.latent.is_some() => (VectorPlan::Zeros(w.router.cols()), scale),
            None => (VectorPlan::Zeros(w.router.cols()), 2.0 * scale),
        };
        // Gates are shares of 1.
        let sum = match w.config.router {
            Routing::Softmax => 1.0,
            Routing::SigmoidBias { scale: sum } => sum,
        };
        let latent = w.latent.as_ref().map(|latent| LatentMatrices::plan(latent, sum * scale));
        // Where a matrix brings their sum back, it has their factor.
        let routed_scale = if latent.is_some() { 1.0 } else { sum * scale };
        Weights {
            router: VectorPlan::Encoded(&w.router),
            shared_gate: gate,
            bias: w.bias.as_deref().map_or(VectorPlan::Zeros(1), VectorPlan::Values),
            experts: ExpertMatrices::plan(MatrixUse::Experts, &w.experts, routed_scale),
            shared: match shared {
                Some(shared) => ExpertMatrices::plan(MatrixUse::Shared, &shared.expert, shared_scale),
                None => ExpertMatrices::zeros(MatrixUse::Shared, &w.experts, SILENT_WIDTH),
            },
            latent,
        }
    }

    fn map<M, V, N, W>(
        w: Weights<M, V>,
        matrix: &mut impl FnMut(M) -> N,
        vector: &mut impl FnMut(V) -> W,
    ) -> Weights<N, W> {
        Weights {
            router: vector(w.router),
            shared_gate: vector(w.shared_gate),
            bias: vector(w.bias),
            experts: w.experts.map(matrix),
            shared: w.shared.map(matrix),
            latent: w.latent.map(|latent| latent.map(matrix)),
        }
    }

    fn placed<M: Packed, V>(w: &Weights<M, V>) -> bool {
        w.experts.gate_up.form().placed
    }

    fn products<M: Packed, V>(&self, w: &Weights<M, V>, hidden: usize, wanted: &mut WantedProducts) -> CudaResult<()> {
        wanted.kinds.extend(w.experts.kinds(self.norm(hidden), self.routed())?);
        w.latent.as_ref().map_or(Ok(()), |latent| latent.products(hidden, wanted))?;
        let shared = |few| w.shared.kinds(Some(hidden), self.beside(few));
        match few(self, w, hidden) {
            Some(few) => wanted.experts.push(WantedExperts { few, shared: [shared(true)?, shared(false)?] }),
            None => wanted.kinds.extend(shared(false)?),
        }
        Ok(())
    }

    fn adapter_groups(&self, hidden: usize) -> [Option<GroupPlan>; 2] {
        let Some(shared) = self.shared.filter(|_| self.latent.is_none()) else { return [None, None] };
        let [gate_up, down] = shared.expert.adapter_groups(hidden);
        // One without a gate has a gate of zeros, which is open by half.
        [gate_up, down.map(|down| down.times(if shared.gated { 1.0 } else { 2.0 }))]
    }

    fn programs(&self, s: &Setting) -> CudaResult<Vec<Program>> {
        Ok(vec![router::program(router_shape(self, s))?, combine::program(combine_shape(self, s))?])
    }

    fn kernel_bytes(&self, s: &Setting) -> usize {
        router_shape(self, s).workspace_bytes(s.counts.rows())
    }
}
