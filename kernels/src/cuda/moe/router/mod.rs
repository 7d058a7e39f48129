//! Chooses the experts of rows and weighs them ([`crate::reference::route`] of scores in f32, or
//! [`crate::reference::route_sigmoid`] with a scale of 1, and the shared expert's gate), and lists rows by expert for
//! products that take them together ([`crate::reference::group`]).
//!
//! Sums over a row have one order in each [`Variant`], whatever stands beside the row.

mod lists;
mod operands;
mod scores;
mod shape;
#[cfg(test)]
mod tests;
mod workspace;

pub use operands::{ChosenExperts, Cuts, Groups, LayerWeights, RouterRows, cut_words};
pub use shape::{FEW_ROWS_MAX, GROUPED_ROWS, RouterShape, Variant, decode_variant};
pub use workspace::Workspace;

use crate::cuda::rows::fits;
use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use scores::{SPREAD_BLOCKS, TILED_THREADS};
use shape::{ORDERED_BYTES_MAX, ORDERED_ROWS};

const NAME: &str = "router";

// As in the source.
const THREADS: u32 = 256;
const COLUMNS: usize = 2;

/// Rows of a block that chooses where rows are many, and up to how many each has a block.
const CHOSEN_TOGETHER: usize = 8;
const ROW_A_BLOCK: usize = 1024;

/// The program for a router.
///
/// # Errors
/// If there is no kernel for it.
pub fn program(shape: RouterShape) -> Result<Program, CudaError> {
    shape.check()?;
    let RouterShape { cols, experts, used, sigmoid } = shape;
    let defines = [("COLS", cols), ("E", experts), ("USED", used), ("SIGMOID", usize::from(sigmoid))];
    Ok(Program::of::<Arguments>(
        NAME,
        source!("router/router.cu"),
        defines.map(|(name, value)| (name, value as i64)).into(),
    ))
}

/// The kernels of a router's shape.
#[derive(Debug)]
pub struct Router {
    shape: RouterShape,
    few: [Kernel<Arguments>; 2],
    /// Kernels for stored segments, in the order of [`scores::TILES`].
    tiled: [Kernel<Arguments>; 3],
    /// The first of them with at most [`SPREAD_BLOCKS`] a multiprocessor.
    spread: Kernel<Arguments>,
    /// The last of them with more than [`scores::FEW_BLOCKS`] a multiprocessor.
    crowded: Kernel<Arguments>,
    multiprocessors: usize,
    whole: Kernel<Arguments>,
    /// Where there are warpgroups' instructions: what splits weights, of a segment, of all.
    prompts: Option<[Kernel<Arguments>; 3]>,
    /// Of a row a block, of [`CHOSEN_TOGETHER`], and of as many with a warp each, where sums are whole.
    choose: [Kernel<Arguments>; 3],
    ordered: [Kernel<Arguments>; 3],
    group: Kernel<Arguments>,
    count: Kernel<Arguments>,
    place: Kernel<Arguments>,
}

device_struct! {
    /// What each of the kernels is given: one for all, so that there is one list to keep.
    #[derive(Default)]
    struct Arguments {
        /// Residual stream before the norm, `[rows, cols]`.
        x: Ptr<f32>,
        /// Sums of squares of each 32 values of `x`, `[rows, cols / 32]`.
        squares: Ptr<f32>,
        /// Weight of the norm before the router, `[cols]`.
        norm: Ptr<f32>,
        /// Weights of the router, `[experts, cols]`.
        weights: Ptr<f32>,
        /// Weights of the shared expert's gate, `[cols]`.
        shared_gate: Ptr<f32>,
        /// `[experts]`, or null where they are not chosen by sigmoids.
        bias: Ptr<f32>,
        /// `[rows]`; below 0: no row.
        slots: Ptr<i32>,
        /// Sums of each score over parts of a row, `[segments, rows, stride]`.
        scores: PtrMut<f32>,
        /// `[tiles of experts, cols / 32, experts of a tile, 32]`: large halves and small ones, for prompts.
        halves: PtrMut<u32>,
        /// Of few rows: `[rows, stride]`, count of launches and score.
        tagged: PtrMut<u64>,
        /// Blocks that have finished, zero between launches; launches for few rows; then, zero too, rows that are
        /// chosen for, and of each tile of rows the blocks that have scored it.
        counters: PtrMut<i32>,
        /// Chosen experts, `[rows, used]`, best first: see [`ChosenExperts::experts`].
        experts: PtrMut<i32>,
        /// `[rows, used + 1]`.
        gates: PtrMut<f32>,
        /// `[experts]`, or null where no lists are wanted.
        groups: PtrMut<[i32; 4]>,
        /// Row of each listed pair, `[rows * used]`: see [`Groups::in_rows`].
        in_rows: PtrMut<i32>,
        /// Number of each listed pair, `[rows * used]`: see [`Groups::out_rows`].
        out_rows: PtrMut<i32>,
        /// Pairs that each chunk of pairs has for each expert, then where these begin in the lists, `[chunks,
        /// experts]`.
        offsets: PtrMut<i32>,
        /// `[rows]`: at least and at most (the high half), and mass; zeros: all experts. Or null.
        cuts: Ptr<[i32; 2]>,
        /// Gets the number of experts that rows with a cut keep.
        tally: PtrMut<u32>,
        rows: i32,
        /// Of lists, or 0.
        pitch: i32,
        segments: i32,
        /// Whether the shared gate's sums lie behind the experts' scores.
        gate_scored: i32,
        eps: f32,
    }
}

impl Router {
    /// Loads the kernels of a shape.
    ///
    /// # Errors
    /// If there are none, or they cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, shape: RouterShape) -> Result<Self, CudaError> {
        let module = device.module(cache, &program(shape)?)?;
        let kernel = |name| module.kernel(name);
        let ordered = |i: usize| {
            let bytes = shape.ordered_bytes(ORDERED_ROWS[i]).min(ORDERED_BYTES_MAX);
            kernel(["ordered1", "ordered2", "ordered4"][i])?.with_shared(bytes)
        };
        let prompts = |name| kernel(name)?.with_shared(shape.prompt_bytes());
        let warpgroups = device.arch().has_warpgroups();
        Ok(Self {
            shape,
            prompts: warpgroups
                .then(|| {
                    Ok::<_, CudaError>([
                        kernel("split_weights")?,
                        prompts("prompts_segments")?,
                        prompts("prompts_whole")?,
                    ])
                })
                .transpose()?,
            few: [kernel("few1")?, kernel("few4")?],
            tiled: [kernel("tiled_small")?, kernel("tiled_narrow")?, kernel("tiled_segments")?],
            spread: kernel("tiled_small")?.at_most(device, SPREAD_BLOCKS)?,
            crowded: kernel("tiled_crowded")?,
            multiprocessors: device.multiprocessors() as usize,
            whole: kernel("tiled_whole")?,
            choose: [kernel("choose1")?, kernel("choose8")?, kernel("choose_many")?],
            ordered: [ordered(0)?, ordered(1)?, ordered(2)?],
            group: kernel("group")?,
            count: kernel("count")?,
            place: kernel("place")?,
        })
    }

    /// Enqueues the choice of experts, and the lists by expert if they are wanted.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    #[allow(clippy::too_many_arguments, reason = "rows, weights, memory and both outputs of one operation")]
    pub fn launch(
        &self,
        device: &Device,
        work: &mut Workspace,
        variant: Variant,
        rows: RouterRows<'_>,
        layer: LayerWeights<'_>,
        choice: ChosenExperts<'_, '_>,
        groups: Option<Groups<'_, '_>>,
    ) -> Result<(), CudaError> {
        let (shape, n) = (self.shape, rows.count);
        let segments = shape.stored(variant, n);
        let scoring = self.score_arguments(device, work, rows, layer)?;
        match variant {
            Variant::Few => fits(NAME, "the workspace for few rows", work.tagged.len(), n * shape.stride())?,
            Variant::Tiled | Variant::Ordered | Variant::Prompts => {
                fits(NAME, "the workspace", work.scores.len(), segments * n * shape.stride())?;
            }
        }
        if variant == Variant::Prompts && self.prompts.is_some() {
            fits(NAME, "the workspace for prompts", work.halves.len(), shape.halves())?;
        }
        rows.cuts.map_or(Ok(()), |cuts| cuts.check(NAME, n))?;
        fits(NAME, "experts", choice.experts.len(), n * shape.used)?;
        fits(NAME, "gates", choice.gates.len(), n * (shape.used + 1))?;
        if n == 0 {
            return Ok(());
        }
        let lists = self.list_arguments(device, work, n, groups)?;
        let stream = device.stream();
        let mut arguments = Arguments {
            tagged: PtrMut::of(&mut work.tagged, stream),
            halves: PtrMut::of(&mut work.halves, stream),
            experts: PtrMut::of(choice.experts, stream),
            gates: PtrMut::of(choice.gates, stream),
            cuts: Ptr::of_some(rows.cuts.map(|c| c.words), stream),
            tally: rows.cuts.map_or(PtrMut::default(), |c| PtrMut::of_shared(c.tally, stream)),
            segments: segments as i32,
            gate_scored: i32::from(variant == Variant::Prompts),
            counters: lists.counters,
            offsets: lists.offsets,
            groups: lists.groups,
            pitch: lists.pitch,
            in_rows: lists.in_rows,
            out_rows: lists.out_rows,
            ..scoring
        };
        // Lists of more rows than one block takes come in launches of their own.
        let apart = n > GROUPED_ROWS && arguments.groups.address() != 0;
        let groups = arguments.groups;
        if apart {
            arguments.groups = PtrMut::default();
        }
        let grid = |x: usize, y: usize, threads| Grid { blocks: (x as u32, y as u32), threads };
        match variant {
            Variant::Few => {
                let kernel = &self.few[usize::from(n > 1)];
                self.enqueue(device, kernel, grid((shape.experts + 1).div_ceil(COLUMNS), 1, THREADS), &arguments)?;
            }
            Variant::Tiled => {
                let (kernel, (x, y)) = self.tiled_kernel(n, segments);
                self.enqueue(device, kernel, grid(x, y, TILED_THREADS), &arguments)?;
                self.enqueue_choice(device, n, &arguments)?;
            }
            Variant::Ordered => self.enqueue_ordered(device, &arguments)?,
            Variant::Prompts => self.enqueue_prompts(device, segments, &arguments)?,
        }
        if apart { self.enqueue_lists(device, &Arguments { groups, ..arguments }) } else { Ok(()) }
    }

    /// The variant for rows of prompts: one order of sums for any number of them.
    pub fn for_prompts(&self) -> Variant {
        if self.prompts.is_some() { Variant::Prompts } else { Variant::Tiled }
    }

    /// Lists are made where one block can.
    fn enqueue_choice(&self, device: &Device, n: usize, arguments: &Arguments) -> Result<(), CudaError> {
        let (kernel, blocks) = match n {
            ..=ROW_A_BLOCK => (0, n),
            _ if arguments.segments > 1 => (1, n.div_ceil(CHOSEN_TOGETHER)),
            _ => (2, n.div_ceil(CHOSEN_TOGETHER)),
        };
        let grid = Grid { blocks: (blocks as u32, 1), threads: THREADS };
        self.enqueue(device, &self.choose[kernel], grid, arguments)
    }

    fn enqueue(
        &self,
        device: &Device,
        kernel: &Kernel<Arguments>,
        grid: Grid,
        arguments: &Arguments,
    ) -> Result<(), CudaError> {
        // SAFETY: the buffers were found large enough where the arguments were made, ids are those that were chosen or
        // the caller vouches for; before their wait kernels read weights only.
        unsafe { kernel.launch(device, grid, arguments) }
    }
}
