//! The experts of a few rows in one launch (`csrc/experts/experts.cu`): gate and up with SiLU, or up alone with a
//! squared ReLU, down, the sum over the experts and the residual stream.
//!
//! Which experts a row uses is chosen in the launch, and each that any row chose is read once. A row's result is the
//! same for any number of rows beside it. All blocks of a launch wait for each other, so there is one a multiprocessor.

mod operands;
mod shape;
#[cfg(test)]
mod tests;
mod tiling;

pub use operands::{ExpertRows, Matrices, Routing};
pub use shape::{ExpertShape, Experts};
pub use tiling::{ExpertsTiling, order_of_few, tiling};

use crate::cuda::lora::{LORA, Lora, LoraParts};
use crate::cuda::product::layout::UNIT;
use crate::cuda::product::{Activations, NextRows, Norm, layout_defines};
use crate::cuda::rows::quantized::BLOCK;
use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::runtime::error::DriverResult;
use crate::cuda::stack::{Arrivals, RESERVES, Stack};
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaSlice, CudaView, CudaViewMut};

/// How much of what the next launch reads is brought to the L2 cache when this one ends; 2, 4, 12 and 20 MB are worse.
const SOON_BYTES: usize = 8 << 20;
/// Blocks that share 32 outputs of down, on chips that have clusters: a tile each.
const CLUSTER: usize = 2;

/// The program of a tiling.
pub fn program(experts: Experts, tiling: ExpertsTiling) -> Program {
    let Experts { hidden, count, used, routed, shared, planes, placed, squared, sigmoid, replayed, .. } = experts;
    const NAMES: [[&str; 7]; 4] = [
        ["A_CODES", "A_SCALES", "A_LEVELS0", "A_LEVELS1", "A_LEVELS2", "A_LEVELS3", "A_ROW_FACTORS"],
        ["B_CODES", "B_SCALES", "B_LEVELS0", "B_LEVELS1", "B_LEVELS2", "B_LEVELS3", "B_ROW_FACTORS"],
        ["C_CODES", "C_SCALES", "C_LEVELS0", "C_LEVELS1", "C_LEVELS2", "C_LEVELS3", "C_ROW_FACTORS"],
        ["D_CODES", "D_SCALES", "D_LEVELS0", "D_LEVELS1", "D_LEVELS2", "D_LEVELS3", "D_ROW_FACTORS"],
    ];
    let mut defines: Vec<_> =
        NAMES.into_iter().zip(experts.layouts()).flat_map(|(n, l)| layout_defines(n, l)).collect();
    let [one, few, most] = tiling.kernels;
    defines.extend(
        [
            ("COLS", hidden.next_multiple_of(UNIT)),
            ("HIDDEN", hidden),
            ("WIDTH", routed.width),
            ("SHARED_WIDTH", shared.width),
            ("COUNT", count),
            ("USED", used),
            ("WITH_GRID", usize::from(experts.has_grid())),
            ("WITH_MINIMA", usize::from(experts.has_minima())),
            ("PLACED", usize::from(placed)),
            ("RESERVES", RESERVES),
            ("SQUARED", usize::from(squared)),
            ("SIGMOID", usize::from(sigmoid)),
            ("REPLAY", usize::from(replayed)),
            ("WK", tiling.warps_k),
            ("CLUSTER", CLUSTER),
            ("ROWS_FEW", few.0),
            ("ROWS_MOST", most.0),
            ("RING_1", one.1),
            ("RING_FEW", few.1),
            ("RING_MOST", most.1),
            ("HALVED_1", tiling.halved[0]),
            ("HALVED_FEW", tiling.halved[1]),
            ("HALVED_MOST", tiling.halved[2]),
            ("BYTES_1", one.2),
            ("BYTES_FEW", few.2),
            ("BYTES_MOST", most.2),
        ]
        .map(|(name, value)| (name, value as i64)),
    );
    defines.push(planes.define());
    if experts.adapted() {
        defines.push(LORA);
    }
    Program::naming::<LoraParts, Arguments>("experts", source!("experts/experts.cu"), defines)
}

device_struct! {
    /// Parameters of the kernels.
    #[derive(Default)]
    struct Arguments {
        /// With `PLACED`: where the place of each routed expert begins; addresses of `RESERVES` places of the device or
        /// 0, and who took them, plus one; where the host's places begin, and how many bytes they are.
        places: PtrMut<u64>,
        reserves: PtrMut<u64>,
        came: PtrMut<u32>,
        host_from: u64,
        host_bytes: u64,
        /// Where in a place gate and up and down begin.
        gate_up_in: u64,
        down_in: u64,
        /// Packed matrices of gate and up of the routed experts; null where a table says where they lie.
        gate_up: Ptr<u8>,
        shared_gate_up: Ptr<u8>,
        /// Packed down matrices of the routed experts; null where a table says where they lie.
        down: Ptr<u8>,
        shared_down: Ptr<u8>,
        /// `[rows, hidden rounded up to 128, times planes]`.
        codes: Ptr<i8>,
        /// `[rows, the same / 32]`.
        meta: Ptr<[f32; 2]>,
        /// `[rows, hidden / 32]`.
        squares: Ptr<f32>,
        /// Weights of the router, `[count, hidden]`.
        router: Ptr<f32>,
        /// Weights of the shared expert's gate, `[hidden]`.
        shared_gate: Ptr<f32>,
        /// Weight of the norm before the router, `[hidden]`.
        router_norm: Ptr<f32>,
        /// `[count]`, or null where experts are not chosen by sigmoids.
        bias: Ptr<f32>,
        /// `[rows_max, scores]`: count of launches and score, the shared gate's behind the experts'.
        tagged: PtrMut<u64>,
        /// How many launches there were.
        launches: PtrMut<u32>,
        /// `[rows]`; below 0: no row.
        slots: Ptr<i32>,
        /// Words of [`crate::cuda::moe::router::Cuts`] for each row, `[rows]`; null where every row takes all its
        /// experts.
        cuts: Ptr<[i32; 2]>,
        /// One word, to which the number of experts that rows with a cut keep is added; null where there are no cuts.
        tally: PtrMut<u32>,
        /// `[rows, used]`: gets what was chosen.
        experts: PtrMut<i32>,
        /// `[rows, used]`, or null where rows choose.
        given: Ptr<i32>,
        /// `[rows, used, width rounded up to 128, times planes]`.
        hidden: PtrMut<i8>,
        hidden_meta: PtrMut<[f32; 2]>,
        /// `[rows, shared width rounded up to 128, times planes]`.
        shared_hidden: PtrMut<i8>,
        shared_meta: PtrMut<[f32; 2]>,
        /// Residual stream, `[rows, hidden]`, read and written.
        x: PtrMut<f32>,
        /// Weight of the norm that follows the layer, `[hidden]`.
        next: Ptr<f32>,
        /// `[rows, hidden rounded up to 128, times planes]`.
        next_codes: PtrMut<i8>,
        next_meta: PtrMut<[f32; 2]>,
        /// `[rows, hidden / 32]`.
        next_squares: PtrMut<f32>,
        /// What adapters add to the shared expert's gate and up, and to its down.
        gate_up_lora: LoraParts,
        down_lora: LoraParts,
        /// `[rows_max, 3, adapter_rank]`: count of launches and `A x` of the shared expert's gate and up, and of its down.
        told: PtrMut<u64>,
        /// One word, of which a launch leaves only the highest bit changed.
        barrier: PtrMut<u32>,
        /// What the next launch reads.
        soon: Ptr<u8>,
        /// How much of it is to be brought to the L2 cache, a multiple of 16.
        soon_bytes: u32,
        /// Largest rank of adapters.
        adapter_rank: u32,
        rows: i32,
        eps: f32,
        /// What products of down are multiplied with.
        down_factor: f32,
        shared_down_factor: f32,
    }
}

/// The kernels of a layer's experts.
#[derive(Debug)]
pub struct ExpertsKernels {
    experts: Experts,
    tiling: ExpertsTiling,
    /// The three kernels in the order of [`ExpertsTiling::kernels`].
    kernels: [Kernel<Arguments>; 3],
    blocks: u32,
    /// Where the blocks of a launch meet. Launches follow one another on the device's stream, so that one word serves
    /// all.
    barrier: CudaSlice<u32>,
    /// Scores that blocks tell each other, `[rows, scores]`, each with the number of its launch; and how many launches
    /// there were.
    tagged: CudaSlice<u64>,
    launches: CudaSlice<u32>,
    /// What blocks tell each other of adapters in that way, `[rows, 3, largest rank]`.
    told: CudaSlice<u64>,
}

impl ExpertsKernels {
    /// Loads the kernels of a tiling.
    ///
    /// # Errors
    /// If they cannot be compiled or loaded.
    pub fn load(
        device: &Device,
        cache: &KernelCache,
        experts: Experts,
        tiling: ExpertsTiling,
    ) -> Result<Self, CudaError> {
        let module = device.module(cache, &program(experts, tiling))?;
        let kernel = |name, at: usize| module.kernel(name)?.with_shared(tiling.kernels[at].2);
        let kernels = [kernel("experts_1", 0)?, kernel("experts_few", 1)?, kernel("experts_most", 2)?];
        let blocks = CLUSTER as u32 * resident_clusters(device, &kernels, tiling)?;
        let stream = device.stream();
        let [barrier, launches] =
            [stream.alloc_zeros::<u32>(1), stream.alloc_zeros::<u32>(1)].map(|word| word.during("cuMemAlloc"));
        let words = |each: usize| stream.alloc_zeros::<u64>(tiling.rows_max() * each).during("cuMemAlloc");
        let (tagged, told) = (words(experts.scores())?, words(3 * experts.adapter_rank.max(1))?);
        Ok(Self { experts, tiling, kernels, blocks, barrier: barrier?, tagged, launches: launches?, told })
    }

    /// Rows that one launch takes; more are done in turns.
    pub fn rows_max(&self) -> usize {
        self.tiling.rows_max()
    }

    /// Enqueues `rows` rows: `x[row] += sum over the experts`, then [`NextRows`] of `x`. `y` are the rows that gate and
    /// up read, with their norm, which is that of scores too; `next`'s buffers may be the same memory. `soon`: what the
    /// launch after this one reads.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    #[expect(clippy::too_many_arguments, reason = "each is a thing of its own")]
    pub fn launch(
        &self,
        device: &Device,
        gate_up: Matrices<'_>,
        down: Matrices<'_>,
        routing: Routing<'_, '_>,
        y: Activations<'_>,
        norm: Norm<'_>,
        rows: usize,
        between: ExpertRows<'_, '_>,
        x: &mut CudaViewMut<'_, f32>,
        next: NextRows<'_, '_>,
        soon: &CudaView<'_, u8>,
    ) -> Result<(), CudaError> {
        let (Experts { hidden, planes, .. }, stream) = (self.experts, device.stream());
        self.check(&gate_up, &down, &y, &norm, rows, &between)?;
        let lora = [y.lora, between.lora].map(|lora| lora.map_or_else(LoraParts::default, |lora| lora.parts(stream)));
        fits("the residual stream", x.len(), rows * hidden)?;
        next.check(rows, hidden, planes)?;
        let [of_gate_up, of_down] = [self.experts.gate_up(), self.experts.down()].map(|[routed, _]| routed.bytes());
        let (gate_up_at, _, gate_up_in) = gate_up.routed.arguments(of_gate_up, stream);
        let (places, reserves, came, (host_from, host_bytes)) = gate_up.routed.changes(stream);
        let weight = Ptr::of(next.weight, stream);
        let (next_codes, next_meta, next_squares) = next.pointers(stream);
        let (down_at, _, down_in) = down.routed.arguments(of_down, stream);
        let all = Arguments {
            places,
            reserves,
            came,
            host_from,
            host_bytes,
            gate_up_in,
            down_in,
            gate_up: gate_up_at,
            shared_gate_up: Ptr::of(gate_up.shared, stream),
            down: down_at,
            shared_down: Ptr::of(down.shared, stream),
            codes: Ptr::of(y.codes, stream),
            meta: Ptr::of(y.meta, stream),
            squares: Ptr::of(norm.squares, stream),
            hidden: PtrMut::of(between.codes, stream),
            hidden_meta: PtrMut::of(between.meta, stream),
            shared_hidden: PtrMut::of(between.shared_codes, stream),
            shared_meta: PtrMut::of(between.shared_meta, stream),
            x: PtrMut::of(x, stream),
            next: weight,
            next_codes,
            next_meta,
            next_squares,
            gate_up_lora: lora[0],
            down_lora: lora[1],
            told: PtrMut::of_shared(&self.told, stream),
            adapter_rank: self.experts.adapter_rank as u32,
            barrier: PtrMut::of_shared(&self.barrier, stream),
            soon: Ptr::of(soon, stream),
            soon_bytes: (soon.len().min(SOON_BYTES) / 16 * 16) as u32,
            rows: 0,
            eps: norm.eps,
            down_factor: down.factors[0],
            shared_down_factor: down.factors[1],
            ..self.routing_arguments(device, routing, rows)?
        };
        self.launch_in_turns(device, &all, rows)
    }

    /// Enqueues as many launches as `rows` rows take.
    fn launch_in_turns(&self, device: &Device, all: &Arguments, rows: usize) -> Result<(), CudaError> {
        let [one, some, most] = self.tiling.kernels.map(|k| k.0);
        for first in (0..rows).step_by(most) {
            let n = (rows - first).min(most);
            let arguments = self.of_rows(all, first, n);
            let kernel = usize::from(n > one) + usize::from(n > some);
            let grid = Grid { blocks: (self.blocks, 1), threads: self.tiling.threads() };
            // SAFETY: the buffers were found large enough. Before its wait the kernel reads
            // weights only. No more blocks than run at a time, as they rely on.
            unsafe { self.kernels[kernel].launch(device, grid, &arguments) }?;
        }
        Ok(())
    }

    /// The arguments of `n` rows from `first` on.
    fn of_rows(&self, all: &Arguments, first: usize, n: usize) -> Arguments {
        let Experts { hidden, used, routed, shared, planes, .. } = self.experts;
        // Codes of a row; each 32 of them have a pair.
        let [codes, routed, shared] =
            [hidden.next_multiple_of(UNIT), routed.padded(), shared.padded()].map(|n| n * planes.count());
        let blocks = hidden / BLOCK;
        Arguments {
            codes: all.codes.skip(first * codes),
            meta: all.meta.skip(first * codes / BLOCK),
            squares: all.squares.skip(first * blocks),
            slots: all.slots.skip(first),
            cuts: all.cuts.skip(first),
            experts: all.experts.skip(first * used),
            given: all.given.skip(first * used),
            hidden: all.hidden.skip(first * used * routed),
            hidden_meta: all.hidden_meta.skip(first * used * routed / BLOCK),
            shared_hidden: all.shared_hidden.skip(first * shared),
            shared_meta: all.shared_meta.skip(first * shared / BLOCK),
            x: all.x.skip(first * hidden),
            next_codes: all.next_codes.skip(first * codes),
            next_meta: all.next_meta.skip(first * codes / BLOCK),
            next_squares: all.next_squares.skip(first * blocks),
            gate_up_lora: all.gate_up_lora.skip(first),
            down_lora: all.down_lora.skip(first),
            rows: n as i32,
            ..*all
        }
    }

    /// What says how experts are chosen; zeros elsewhere.
    fn routing_arguments(
        &self,
        device: &Device,
        routing: Routing<'_, '_>,
        rows: usize,
    ) -> Result<Arguments, CudaError> {
        let (Experts { hidden, count, used, sigmoid, replayed, .. }, stream) = (self.experts, device.stream());
        let Routing { weights, slots, cuts, chosen, given } = routing;
        weights.check("experts", count, hidden, sigmoid)?;
        fits("slots", slots.len(), rows)?;
        cuts.map_or(Ok(()), |cuts| cuts.check("experts", rows))?;
        fits("the chosen experts", chosen.len(), rows * used)?;
        if replayed {
            fits("the given experts", given.map_or(0, |given| given.len()), rows * used)?;
        }
        Ok(Arguments {
            router: Ptr::of(weights.experts, stream),
            shared_gate: Ptr::of(weights.shared_gate, stream),
            router_norm: Ptr::of(weights.norm, stream),
            bias: Ptr::of_some(weights.bias, stream),
            tagged: PtrMut::of_shared(&self.tagged, stream),
            launches: PtrMut::of_shared(&self.launches, stream),
            slots: Ptr::of(slots, stream),
            cuts: Ptr::of_some(cuts.map(|c| c.words), stream),
            tally: cuts.map_or(PtrMut::default(), |c| PtrMut::of_shared(c.tally, stream)),
            experts: PtrMut::of(chosen, stream),
            given: Ptr::of_some(given, stream),
            ..Arguments::default()
        })
    }

    fn check(
        &self,
        gate_up: &Matrices<'_>,
        down: &Matrices<'_>,
        y: &Activations<'_>,
        norm: &Norm<'_>,
        rows: usize,
        between: &ExpertRows<'_, '_>,
    ) -> Result<(), CudaError> {
        let Experts { hidden, count, used, routed, shared, planes, placed, .. } = self.experts;
        let [cols, routed, shared] =
            [hidden.next_multiple_of(UNIT), routed.padded(), shared.padded()].map(|n| n * planes.count());
        for (what, matrices, [of_routed, of_shared]) in
            [("gate and up", gate_up, self.experts.gate_up()), ("down", down, self.experts.down())]
        {
            if matrices.routed.placed() != placed {
                let what = format!("{what} of the routed experts are placed for kernels made for such, and no others");
                return Err(CudaError::shape("experts", what));
            }
            if what == "gate and up" && matrices.factors != [1.0; 2] {
                return Err(CudaError::shape("experts", "products of gate and up are multiplied with nothing"));
            }
            if let Stack::Placed { arrivals: Arrivals { reserves, came, .. }, .. } = &matrices.routed {
                fits("reserves", reserves.len().min(came.len()), RESERVES)?;
            }
            fits(&format!("matrices of {what}"), matrices.routed.count(of_routed.bytes()), count)?;
            fits(&format!("{what} of the shared expert"), matrices.shared.len(), of_shared.bytes())?;
        }
        let adapted = self.experts.adapted();
        let made = self.experts.shared_outputs();
        Lora::check("experts", y.lora.as_ref(), adapted, rows, made)?;
        Lora::check("experts", between.lora.as_ref(), adapted, rows, hidden)?;
        fits("codes", y.codes.len(), rows * cols)?;
        fits("meta", y.meta.len(), rows * cols / 16)?;
        fits("squares", norm.squares.len(), rows * hidden / 32)?;
        fits("codes of the experts", between.codes.len(), rows * used * routed)?;
        fits("meta of the experts", between.meta.len(), rows * used * routed / 16)?;
        fits("codes of the shared expert", between.shared_codes.len(), rows * shared)?;
        fits("meta of the shared expert", between.shared_meta.len(), rows * shared / 16)
    }
}

/// Clusters of a launch: as many as run at a time of each of the kernels, and no more than a block a multiprocessor.
fn resident_clusters(
    device: &Device,
    kernels: &[Kernel<Arguments>; 3],
    tiling: ExpertsTiling,
) -> Result<u32, CudaError> {
    let mut clusters = device.multiprocessors() / CLUSTER as u32;
    for kernel in kernels {
        clusters = clusters.min(kernel.resident_clusters(device, tiling.threads(), CLUSTER as u32)?);
    }
    match clusters {
        0 => Err(CudaError::shape("experts", format!("the device runs no {CLUSTER} blocks of {tiling:?} at a time"))),
        _ => Ok(clusters),
    }
}

fn fits(what: &str, got: usize, need: usize) -> Result<(), CudaError> {
    if got >= need {
        Ok(())
    } else {
        Err(CudaError::shape("experts", format!("{what} has {got} elements, {need} are needed")))
    }
}
