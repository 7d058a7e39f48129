//! Routed experts and a shared one, of gate, up and down or of up and down alone, chosen by softmax or by sigmoids with
//! biases.
//!
//! Decode passes of few rows choose and compute all experts in one launch. With more rows the router is a launch of its
//! own, an expert's rows are brought together, and what experts made is summed by a launch of its own. Experts whose
//! rows have a width of their own (`latent`) go that way however few rows there are, and a shared expert beside them is
//! a dense part.

use super::latent::BoundLatent;
use super::{BlockPass, FirstMatrix, LoadedWeights, OperatorRun, mlp};
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::matrix::Packed;
use crate::backend::cuda::layout::operators::moe::{combine_shape, few, router_shape, shared_width};
use crate::backend::cuda::layout::operators::operator::Setting;
use crate::backend::cuda::layout::products::RowCount;
use crate::backend::cuda::rank::memory::RankMemory;
use crate::backend::cuda::rank::products::ProductKernels;
use crate::backend::cuda::rank::quantized::Quantized;
use crate::backend::cuda::rank::residual::next_rows;
use crate::backend::cuda::rank::workspace::{Workspace, given_of};
use crate::model::MoeConfig;
use chimere_kernels::cuda::combine::{Combine, ExpertOutputs};
use chimere_kernels::cuda::experts::{self, ExpertRows, ExpertsKernels, Matrices};
use chimere_kernels::cuda::product::{Activations, Norm};
use chimere_kernels::cuda::router::{self, Router};
use chimere_kernels::cuda::rows::padded;
use chimere_kernels::cuda::wide::halves::HalfRows;
use chimere_kernels::cuda::wide::{Columns, Output, Source};
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::{CudaSlice, CudaView, CudaViewMut};
use std::rc::Rc;

/// Its weights on the device, with their products.
pub(crate) struct BoundMoe {
    config: MoeConfig,
    router: CudaSlice<f32>,
    shared_gate: CudaSlice<f32>,
    bias: CudaSlice<f32>,
    experts: mlp::BoundMlp,
    /// Everything in one launch, for few rows.
    few: Option<Rc<ExpertsKernels>>,
    /// Everything in one launch, for few rows that may have adapters.
    few_adapted: Option<Rc<ExpertsKernels>>,
    shared: mlp::BoundMlp,
    latent: Option<BoundLatent>,
}

/// Views of what a router reads of a block.
struct RouterViews<'a> {
    norm: CudaView<'a, f32>,
    experts: CudaView<'a, f32>,
    shared_gate: CudaView<'a, f32>,
    /// Biases of the scores, where experts are chosen by sigmoids.
    bias: Option<CudaView<'a, f32>>,
}

impl<'a> RouterViews<'a> {
    fn of(bound: &'a BoundMoe, at: BlockPass<'a>) -> Self {
        Self {
            norm: at.norm.as_view(),
            experts: bound.router.as_view(),
            shared_gate: bound.shared_gate.as_view(),
            bias: bound.config.sigmoid().then(|| bound.bias.as_view()),
        }
    }

    fn weights(&self, eps: f32) -> router::LayerWeights<'_> {
        let Self { norm, experts, shared_gate, bias } = self;
        router::LayerWeights { norm, experts, shared_gate, bias: bias.as_ref(), eps }
    }
}

/// Which rows go to which expert.
struct Lists<'a> {
    slots: CudaView<'a, i32>,
    in_rows: CudaView<'a, i32>,
    out_rows: CudaView<'a, i32>,
    pitch: usize,
}

impl<'a> Lists<'a> {
    fn of(
        slots: &'a CudaSlice<i32>,
        in_rows: &'a CudaSlice<i32>,
        out_rows: &'a CudaSlice<i32>,
        (experts, pitch, all): (usize, usize, usize),
    ) -> Self {
        let slots = slots.slice(0..4 * experts);
        Self { slots, in_rows: in_rows.slice(0..all), out_rows: out_rows.slice(0..all), pitch }
    }

    /// For products that read `in_rows` of `rows`; `early`: behind others of these lists.
    fn columns(&'a self, rows: usize, in_rows: &'a CudaView<'a, i32>, early: bool) -> Columns<'a> {
        Columns::Listed { rows, slots: &self.slots, in_rows, out_rows: &self.out_rows, pitch: self.pitch, early }
    }
}

/// Kernels of all such blocks, and their scratch.
pub(crate) struct MoeKernels {
    router: Router,
    scratch: router::Workspace,
    combine: Combine,
}

impl OperatorRun for MoeConfig {
    type Bound = BoundMoe;
    type Kernels = MoeKernels;

    fn load(&self, device: &Device, cache: &KernelCache, s: &Setting) -> CudaResult<MoeKernels> {
        let router = Router::load(device, cache, router_shape(self, s))?;
        let scratch = router.workspace(device, s.counts.rows())?;
        Ok(MoeKernels { router, scratch, combine: Combine::load(device, cache, combine_shape(self, s))? })
    }

    fn bind(&self, w: LoadedWeights<Self>, products: &mut ProductKernels<'_>, hidden: usize) -> CudaResult<BoundMoe> {
        let [few, few_adapted] = match few(self, &w, hidden) {
            Some(few) => products.experts(few?)?,
            None => [None, None],
        };
        // Without kernels for few rows there is no order of theirs to keep.
        let shared = self.beside(few.is_some());
        let latent = w.latent.zip(self.latent);
        Ok(BoundMoe {
            config: *self,
            router: w.router,
            shared_gate: w.shared_gate,
            bias: w.bias,
            experts: mlp::BoundMlp::new(products, w.experts, (self.norm(hidden), self.expert.width), self.routed())?,
            few,
            few_adapted,
            shared: mlp::BoundMlp::new(products, w.shared, (Some(hidden), shared_width(self)), shared)?,
            latent: latent.map(|(w, width)| BoundLatent::new(products, w, (hidden, width))).transpose()?,
        })
    }

    fn first(bound: &BoundMoe, _rows: RowCount) -> FirstMatrix<'_> {
        if let Some(latent) = &bound.latent {
            return FirstMatrix { matrix: &latent.into, halves: None };
        }
        // What is read after the choice cannot be read ahead of it.
        let weights =
            if bound.experts.weights.gate_up.form().placed { &bound.shared.weights } else { &bound.experts.weights };
        FirstMatrix { matrix: &weights.gate_up, halves: None }
    }

    fn launch(
        bound: &BoundMoe,
        kernels: &mut MoeKernels,
        at: BlockPass<'_>,
        memory: &mut RankMemory<'_>,
    ) -> CudaResult<()> {
        let work = &mut *memory.work;
        let adapted = at.adapters.is_some_and(|adapters| adapters.change());
        let few = if adapted { &bound.few_adapted } else { &bound.few };
        let few = few.as_ref().filter(|few| at.pass.rows.count <= few.rows_max() && at.pass.prompts.is_none());
        if let Some(few) = few {
            return bound.launch_few(few, at, work);
        }
        if let Some(latent) = &bound.latent {
            return bound.launch_latent(latent, kernels, at, work);
        }
        // The shared expert needs nothing of the choice, which leaves most of the device idle.
        at.beside.follow(at.device)?;
        let turn = SharedTurn::of(at.pass.rows);
        if turn == SharedTurn::First {
            bound.launch_beside(at, work)?;
        }
        bound.route(kernels, at, work)?;
        if turn == SharedTurn::Second {
            bound.launch_beside(at, work)?;
        }
        bound.launch_routed(at, work)?;
        if turn == SharedTurn::Last {
            bound.launch_beside(at, work)?;
        }
        at.device.follow(at.beside)?;
        let (gates, made, shared) = (work.gates.as_view(), work.scratch.as_view(), work.shared_out.as_view());
        let terms = bound.terms(at, (&gates, &made), Some(&shared));
        work.stream.reduce(at.device, &kernels.combine, at.pass.rows.count, terms, (at.next, at.eps))
    }
}

/// When the shared expert is enqueued, on its own stream. Of a graph the driver makes streams again, and the order in
/// which nodes were captured decides what runs on in the one of the launch before, and so may start before that has
/// ended: the first that follows where the graph forks, and what joins it again behind the branch captured first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SharedTurn {
    /// Before the router: of prompts, which no graph has.
    First,
    /// Behind the router, which so starts early.
    Second,
    /// Behind the routed experts, so that the sum over experts starts early too.
    Last,
}

impl SharedTurn {
    /// Most rows whose sum may start early: of more its blocks are in the way of the experts' last ones.
    const LAST_ROWS: usize = 64;

    fn of(rows: RowCount) -> Self {
        match rows {
            RowCount { prefill: true, .. } => Self::First,
            RowCount { count: ..=Self::LAST_ROWS, .. } => Self::Last,
            _ => Self::Second,
        }
    }
}

impl BoundMoe {
    /// The shared expert, on a stream of its own.
    fn launch_beside(&self, at: BlockPass<'_>, work: &mut Workspace) -> CudaResult<()> {
        self.shared.launch_shared(BlockPass { device: at.beside, ..at }, work)
    }

    /// Experts of rows that have a width of their own. Whoever reads rows of the stream does so before the first that
    /// writes some.
    fn launch_latent(
        &self,
        latent: &BoundLatent,
        kernels: &mut MoeKernels,
        at: BlockPass<'_>,
        work: &mut Workspace,
    ) -> CudaResult<()> {
        self.route(kernels, at, work)?;
        latent.enter(at, work)?;
        let x = work.stream.rows.read(at.eps);
        self.shared.launch_gate_up(at, &x.source(), &mut work.shared_hidden)?;
        let lists = Lists::of(&work.lists, &work.list_in, &work.list_out, self.listed(at));
        let (codes, meta) = work.latent.views();
        let hidden = (&mut work.expert_hidden, &work.made);
        self.launch_gate_up(at, &Source::plain(&codes, &meta), &lists, hidden)?;
        self.launch_down(at, &lists, (&work.expert_hidden, &work.made), &mut work.scratch.as_view_mut())?;
        let (gates, made) = (work.gates.as_view(), work.scratch.as_view());
        let terms = self.terms(at, (&gates, &made), None);
        let (mut codes, mut meta) = work.latent.views_mut();
        kernels.combine.sum(at.device, at.pass.rows.count, terms, &mut codes, &mut meta)?;
        let down = (&self.shared.down, &self.shared.weights.down);
        work.stream.add_product(at.device, at.pass.rows, down, &work.shared_hidden, at.next)?;
        latent.leave(at, work)
    }

    /// What is summed of each row.
    fn terms<'a>(
        &self,
        at: BlockPass<'a>,
        (gates, experts): (&'a CudaView<'a, f32>, &'a CudaView<'a, f32>),
        shared: Option<&'a CudaView<'a, f32>>,
    ) -> ExpertOutputs<'a> {
        ExpertOutputs { slots: &at.pass.slots, gates, experts, halves: self.makes_halves(at), shared }
    }

    /// Which experts each row takes, how much of each, and each expert's rows.
    fn route(&self, kernels: &mut MoeKernels, at: BlockPass<'_>, work: &mut Workspace) -> CudaResult<()> {
        let views = RouterViews::of(self, at);
        let weights = views.weights(at.eps);
        let variant = match at.pass.rows {
            RowCount { prefill: true, .. } => kernels.router.for_prompts(),
            RowCount { count, .. } => router::decode_variant(count),
        };
        let (x, tally) = (work.stream.x.as_view(), work.tally.as_view());
        let cuts = Some(router::Cuts { words: &at.pass.cuts, tally: &tally });
        let folded = work.stream.rows.read(at.eps);
        let (count, slots) = (at.pass.rows.count, &at.pass.slots);
        let rows = router::RouterRows { count, slots, x: &x, squares: folded.squares(), cuts };
        let chosen = work.chosen(at.place.routed);
        let choice = router::ChosenExperts {
            experts: &mut work.experts.slice_mut(chosen),
            gates: &mut work.gates.as_view_mut(),
        };
        let groups = router::Groups {
            slots: &mut work.lists.as_view_mut(),
            in_rows: &mut work.list_in.as_view_mut(),
            out_rows: &mut work.list_out.as_view_mut(),
            pitch: self.pitch(at),
        };
        Ok(kernels.router.launch(at.device, &mut kernels.scratch, variant, rows, weights, choice, Some(groups))?)
    }

    /// Places of each expert in the lists of decode rows; 0, one after another, of a prompt's.
    fn pitch(&self, at: BlockPass<'_>) -> usize {
        let fixed = !at.pass.rows.prefill && at.pass.rows.count <= router::GROUPED_ROWS;
        if fixed { at.pass.rows.count } else { 0 }
    }

    /// Routed experts, each with its rows.
    fn launch_routed(&self, at: BlockPass<'_>, work: &mut Workspace) -> CudaResult<()> {
        let lists = Lists::of(&work.lists, &work.list_in, &work.list_out, self.listed(at));
        let x = work.stream.rows.read(at.eps);
        self.launch_gate_up(at, &x.source(), &lists, (&mut work.expert_hidden, &work.made))?;
        self.launch_down(at, &lists, (&work.expert_hidden, &work.made), &mut work.scratch.as_view_mut())
    }

    /// Whether what down makes lies in memory as f16 until it is summed: where it is made in f16 anyway.
    fn makes_halves(&self, at: BlockPass<'_>) -> bool {
        self.experts.down.takes_halves(at.pass.rows)
    }

    /// Experts, their places in the lists, and all of these.
    fn listed(&self, at: BlockPass<'_>) -> (usize, usize, usize) {
        let (pitch, config) = (self.pitch(at), &self.config);
        let all = if pitch == 0 { at.pass.rows.count * config.used } else { config.experts * pitch };
        (config.experts, pitch, all)
    }

    /// Whether what gate and up make of so many rows is f16 at once, which down reads.
    fn hides_halves(&self, at: BlockPass<'_>) -> bool {
        self.experts.gate_up.makes_half_rows(at.pass.rows)
    }

    /// Gate and up of the routed experts, into hidden rows in one of their forms.
    fn launch_gate_up(
        &self,
        at: BlockPass<'_>,
        x: &Source<'_>,
        lists: &Lists<'_>,
        (int8, made): (&mut Quantized, &HalfRows),
    ) -> CudaResult<()> {
        let ((mut codes, mut meta), stride) = (int8.views_mut(), padded(self.config.expert.width));
        let out = match self.hides_halves(at) {
            true => Output::HalfRows { rows: made, count: at.pass.rows.count * self.config.used },
            false => Output::Activated { codes: &mut codes, meta: &mut meta, stride },
        };
        let columns = lists.columns(at.pass.rows.count, &lists.in_rows, false);
        let (product, matrix) = (&self.experts.gate_up, &self.experts.weights.gate_up);
        // SAFETY: the router lists rows below the step's and pairs of them, each once, by experts that there are.
        unsafe { product.launch(at.device, at.pass.rows, matrix, x, columns, out) }
    }

    /// Multiplies the hidden rows of the routed experts with their down matrices, one output row a pair of row and
    /// expert.
    fn launch_down(
        &self,
        at: BlockPass<'_>,
        lists: &Lists<'_>,
        (int8, made): (&Quantized, &HalfRows),
        values: &mut CudaViewMut<'_, f32>,
    ) -> CudaResult<()> {
        let (codes, meta) = int8.views();
        let x = Source::plain(&codes, &meta).made(self.hides_halves(at).then_some(made));
        let stride = self.config.latent.unwrap_or(at.hidden);
        let out =
            if self.makes_halves(at) { Output::Halves { values, stride } } else { Output::Plain { values, stride } };
        let columns = lists.columns(at.pass.rows.count * self.config.used, &lists.out_rows, true);
        let (product, matrix) = (&self.experts.down, &self.experts.weights.down);
        // SAFETY: as for gate and up.
        unsafe { product.launch(at.device, at.pass.rows, matrix, &x, columns, out) }
    }

    /// All experts of few rows, which choose in the same launch.
    fn launch_few(&self, kernels: &ExpertsKernels, at: BlockPass<'_>, work: &mut Workspace) -> CudaResult<()> {
        let views = RouterViews::of(self, at);
        let weights = views.weights(at.eps);
        let (routed, shared, tally) = (&self.experts.weights, &self.shared.weights, work.tally.as_view());
        let cuts = Some(router::Cuts { words: &at.pass.cuts, tally: &tally });
        let chosen = work.chosen(at.place.routed);
        let given = work.given.as_ref().map(|all| given_of(all, at.place.routed, self.config.used));
        let mut chosen = work.experts.slice_mut(chosen);
        let slots = &at.pass.slots;
        let routing = experts::Routing { weights, slots, cuts, chosen: &mut chosen, given: given.as_ref() };
        let [lora, down_lora] = at.both_adapters();
        let ((mut codes, mut meta), (mut shared_codes, mut shared_meta)) =
            (work.expert_hidden.views_mut(), work.shared_hidden.views_mut());
        let between = ExpertRows {
            codes: &mut codes,
            meta: &mut meta,
            shared_codes: &mut shared_codes,
            shared_meta: &mut shared_meta,
            lora: down_lora,
        };
        let of_shared = (shared.gate_up.bytes(), shared.down.bytes());
        let (weight, soon) = (at.next.norm.as_view(), at.next.matrix.bytes());
        let (read, mut x, mut write) = work.stream.read_and_write(at.eps);
        let (codes, meta) = read.rows();
        kernels.launch(
            at.device,
            Matrices { routed: routed.gate_up.stack(), shared: &of_shared.0, factors: [1.0; 2] },
            Matrices {
                routed: routed.down.stack(),
                shared: &of_shared.1,
                factors: [&routed.down, &shared.down].map(|m| m.factor),
            },
            routing,
            Activations { codes, meta, lora },
            Norm { squares: read.squares(), eps: at.eps },
            at.pass.rows.count,
            between,
            &mut x,
            next_rows(&weight, write.out()),
            &soon,
        )?;
        work.stream.turn();
        Ok(())
    }
}
