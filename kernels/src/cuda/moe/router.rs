//! Chooses the experts of rows and weighs them ([`crate::reference::route`] of scores in f32, or
//! [`crate::reference::route_sigmoid`] with a scale of 1, and the shared expert's gate), and lists rows by expert for
//! products that take them together ([`crate::reference::group`]).
//!
//! Sums over a row have one order in each [`Variant`], whatever stands beside the row.

use crate::cuda::rows::{check_cols, fits};
use crate::cuda::runtime::arguments::{self, DeviceStruct, Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use crate::reference::ExpertCut;
use cudarc::driver::{CudaSlice, CudaView, CudaViewMut};

const NAME: &str = "router";
/// Longest row: what a thread of the few-rows kernel can hold.
const COLS_MAX: usize = 8192;
/// Most experts: two for each thread that groups.
const EXPERTS_MAX: usize = 512;
/// Most experts of a row: a lane each.
const USED_MAX: usize = 32;

// As in the source.
const THREADS: u32 = 256;
const COLUMNS: usize = 2;
const STEP: usize = 32;
const SEGMENTS_MAX: usize = 16;
const CHUNK: usize = 2048;
const TILED_THREADS: u32 = 128;
const ORDERED_THREADS: u32 = 256;
/// Rows of a block of each of its kernels.
const ORDERED_ROWS: [usize; 3] = [16, 32, 64];
/// Shared memory that a block may have on every device that is served.
const ORDERED_BYTES_MAX: usize = 99 << 10;
/// Rows and experts of a block of each of its kernels that store segments.
const TILES: [(usize, usize); 3] = [(32, 32), (64, 32), WHOLE_TILE];
/// Rows and experts of a block that goes over all segments itself.
const WHOLE_TILE: (usize, usize) = (64, 64);
/// Rows of a block of [`Variant::Prompts`].
const PROMPT_ROWS: usize = 64;
/// Steps of their rows that are on their way, and stages.
const PROMPT_AHEAD: usize = 4;
const PROMPT_STAGES: usize = 4;
/// Parts that a row's sums come in where they have one order.
const SCORE_PARTS: usize = 8;

/// Rows that one block groups beside the choice.
pub const GROUPED_ROWS: usize = 256;
/// Rows that one block groups in a launch of its own; more are counted and placed in two.
const GROUPED_ALONE: usize = 512;
/// Threads of that block.
const ALONE_THREADS: u32 = 1024;
/// Up to so many rows tiles are of 32 rows and 32 experts, and of 64 and 32, as measured.
const SMALL_ROWS: usize = 128;
const NARROW_ROWS: usize = 256;
/// Three, and one for each tile of rows of a launch that also chooses.
const COUNTERS: usize = 3 + GROUPED_ROWS / ORDERED_ROWS[0];
/// Rows of a block that chooses where rows are many, and up to how many each has a block.
const CHOSEN_TOGETHER: usize = 8;
const ROW_A_BLOCK: usize = 1024;
/// Up to so many rows the few-rows kernel is the faster one.
const FEW_ROWS: usize = 16;
/// Most rows that the few-rows kernel takes: the largest step of decoding.
pub const FEW_ROWS_MAX: usize = 256;
/// Blocks of tiles that a multiprocessor has room for with all the registers that they want.
const FEW_BLOCKS: usize = 3;
/// Blocks that score few rows, of a multiprocessor: multiprocessors come free one after another as the launch before
/// ends, and the first would get as many as they have room for, five, and the last none.
const SPREAD_BLOCKS: usize = 2;
/// From so many rows on, tiles alone fill the device, and the sums of segments need not be stored.
const WHOLE_ROWS: usize = 2560;

/// The shape of a layer's router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouterShape {
    /// Values of a row.
    pub cols: usize,
    /// Experts to choose from.
    pub experts: usize,
    /// Experts of a row.
    pub used: usize,
    /// Whether they are chosen by sigmoids with biases, and weighed by the sigmoids; else by softmax.
    pub sigmoid: bool,
}

/// The order in which a row's sums are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Weights in registers, a row after another, up to [`FEW_ROWS_MAX`]; selects and groups in the same launch.
    Few,
    /// On tensor cores, for any number of rows.
    Tiled,
    /// The sums of [`Variant::Few`], bit for bit, for many rows.
    Ordered,
    /// On the matrix instructions of warpgroups, for any number of rows, of which it wants many: see
    /// [`Router::for_prompts`].
    Prompts,
}

/// The faster one for `rows` decode rows of those that have one order of sums, which the experts' own launch has too.
pub fn decode_variant(rows: usize) -> Variant {
    if rows <= FEW_ROWS { Variant::Few } else { Variant::Ordered }
}

impl RouterShape {
    fn check(&self) -> Result<(), CudaError> {
        check_cols(NAME, self.cols, COLS_MAX)?;
        let RouterShape { experts, used, .. } = *self;
        if experts == 0 || experts > EXPERTS_MAX || used == 0 || used > USED_MAX.min(experts) {
            let text = format!("{used} of {experts} experts: must be 1 to {USED_MAX} of at most {EXPERTS_MAX}");
            return Err(CudaError::shape(NAME, text));
        }
        Ok(())
    }

    /// Scores from one row to the next: one an expert, the shared gate's, and what aligns them.
    fn stride(&self) -> usize {
        (self.experts + 1).next_multiple_of(8)
    }

    /// Parts that a row's sums come in, of whole steps each.
    fn segments(&self) -> usize {
        let steps = self.cols / STEP;
        steps.div_ceil(steps.div_ceil(SEGMENTS_MAX))
    }

    /// Sums of each score that are stored.
    fn stored(&self, variant: Variant, rows: usize) -> usize {
        match variant {
            Variant::Few => 1,
            Variant::Ordered => SCORE_PARTS,
            Variant::Tiled | Variant::Prompts if rows >= WHOLE_ROWS => 1,
            Variant::Tiled | Variant::Prompts => self.segments(),
        }
    }

    /// Bytes of a [`Workspace`] for launches of up to `rows_max` rows.
    pub fn workspace_bytes(&self, rows_max: usize) -> usize {
        let scores = self.scores(rows_max);
        let tagged = rows_max.min(FEW_ROWS_MAX) * self.stride();
        8 * tagged + 4 * (scores + COUNTERS + self.halves() + self.chunks(rows_max).max(1) * self.experts)
    }

    /// Scores that any variant stores of up to so many rows.
    fn scores(&self, rows_max: usize) -> usize {
        rows_max.max(rows_max.min(WHOLE_ROWS - 1) * self.segments().max(SCORE_PARTS)) * self.stride()
    }

    /// Vectors of a row that a lane of a part has.
    fn vectors(&self) -> usize {
        (self.cols / 4).div_ceil(SCORE_PARTS * 32)
    }

    /// Experts of a block of [`Variant::Ordered`].
    fn ordered_columns(&self) -> usize {
        match self.vectors() {
            ..=2 => 32,
            3..=4 => 16,
            _ => 8,
        }
    }

    /// Shared memory of such a block with so many rows.
    fn ordered_bytes(&self, rows: usize) -> usize {
        (rows + self.ordered_columns()) * (self.vectors() * 128 + 4) * 4
    }

    /// Which of [`ORDERED_ROWS`] serves `n` rows, as measured; the most of those that have room.
    fn ordered_kernel(&self, n: usize) -> usize {
        let wanted = usize::from(n > 32) + usize::from(n > 128);
        (0..=wanted).rev().find(|i| self.ordered_bytes(ORDERED_ROWS[*i]) <= ORDERED_BYTES_MAX).unwrap_or(0)
    }

    /// Experts of a block of [`Variant::Prompts`].
    fn prompt_columns(&self) -> usize {
        match self.experts {
            ..=64 => 64,
            65..=128 => 128,
            _ => 256,
        }
    }

    /// Threads of such a block: a warpgroup for 64 or 128 experts.
    fn prompt_threads(&self) -> u32 {
        128 * self.prompt_columns().div_ceil(128) as u32
    }

    /// Shared memory of such a block: stages of 128 bytes a row, and rows on their way.
    fn prompt_bytes(&self) -> usize {
        128 * (PROMPT_STAGES * (PROMPT_ROWS + self.prompt_columns()) + PROMPT_AHEAD * PROMPT_ROWS)
    }

    /// Pairs of halves that a layer's weights are split into, of whole tiles of experts.
    fn halves(&self) -> usize {
        self.experts.next_multiple_of(self.prompt_columns()) * self.cols
    }

    fn chunks(&self, rows: usize) -> usize {
        (rows * self.used).div_ceil(CHUNK)
    }
}

/// The program for a router.
///
/// # Errors
/// If there is no kernel for it.
pub fn program(shape: RouterShape) -> Result<Program, CudaError> {
    shape.check()?;
    let RouterShape { cols, experts, used, sigmoid } = shape;
    let defines = [("COLS", cols), ("E", experts), ("USED", used), ("SIGMOID", usize::from(sigmoid))];
    Ok(Program {
        name: NAME,
        source: source!("router/router.cu"),
        arguments: arguments::file(&[Arguments::declaration()]),
        defines: defines.map(|(name, value)| (name, value as i64)).into(),
    })
}

/// The kernels of a router's shape.
#[derive(Debug)]
pub struct Router {
    shape: RouterShape,
    few: [Kernel<Arguments>; 2],
    /// Kernels for stored segments, in the order of [`TILES`].
    tiled: [Kernel<Arguments>; 3],
    /// The first of them with at most [`SPREAD_BLOCKS`] a multiprocessor.
    spread: Kernel<Arguments>,
    /// The last of them with more than [`FEW_BLOCKS`] a multiprocessor.
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

/// What launches leave to themselves. One serves all layers, one after another.
#[derive(Debug)]
pub struct Workspace {
    scores: CudaSlice<f32>,
    tagged: CudaSlice<u64>,
    counters: CudaSlice<i32>,
    offsets: CudaSlice<i32>,
    /// Of one layer; one of none where no kernel reads them.
    halves: CudaSlice<u32>,
}

/// Weights of one layer.
#[derive(Clone, Copy)]
pub struct LayerWeights<'a> {
    /// `[cols]`, the factor of the norm before the router.
    pub norm: &'a CudaView<'a, f32>,
    /// Weights of the router, `[experts, cols]`.
    pub experts: &'a CudaView<'a, f32>,
    /// Weights of the shared expert's gate, `[cols]`.
    pub shared_gate: &'a CudaView<'a, f32>,
    /// `[experts]`, where experts are chosen by sigmoids.
    pub bias: Option<&'a CudaView<'a, f32>>,
    /// Epsilon of the norm before the router.
    pub eps: f32,
}

impl LayerWeights<'_> {
    /// Whether those of `experts` experts and rows of `cols` values are there, for a kernel of this name; with biases
    /// where it chooses by sigmoids.
    pub(in crate::cuda) fn check(
        &self,
        kernel: &'static str,
        experts: usize,
        cols: usize,
        sigmoid: bool,
    ) -> Result<(), CudaError> {
        fits(kernel, "the biases", self.bias.map_or(0, |bias| bias.len()), if sigmoid { experts } else { 0 })?;
        fits(kernel, "the norm", self.norm.len(), cols)?;
        fits(kernel, "the weights", self.experts.len(), experts * cols)?;
        fits(kernel, "the shared gate", self.shared_gate.len(), cols)
    }
}

/// The rows of a step that are routed.
#[derive(Clone, Copy)]
pub struct RouterRows<'a> {
    /// Number of rows, padding rows included.
    pub count: usize,
    /// `[rows]`; below 0: no row.
    pub slots: &'a CudaView<'a, i32>,
    /// Residual stream before the norm, `[rows, cols]`.
    pub x: &'a CudaView<'a, f32>,
    /// `[rows, cols / 32]`, as [`crate::cuda::rows`] says.
    pub squares: &'a CudaView<'a, f32>,
    /// How few experts rows may do with; `None` where all take all.
    pub cuts: Option<Cuts<'a>>,
}

/// An [`ExpertCut`] for each row.
#[derive(Clone, Copy)]
pub struct Cuts<'a> {
    /// `[rows, 2]`, as [`cut_words`] makes them; aligned to 8 bytes.
    pub words: &'a CudaView<'a, i32>,
    /// One word, to which the numbers of experts that rows with a cut keep are added.
    pub tally: &'a CudaView<'a, u32>,
}

impl Cuts<'_> {
    /// Whether those of `rows` rows are there, for a kernel of this name.
    pub(in crate::cuda) fn check(&self, kernel: &'static str, rows: usize) -> Result<(), CudaError> {
        fits(kernel, "the cuts", self.words.len(), 2 * rows)?;
        fits(kernel, "the tally", self.tally.len(), 1)
    }
}

/// A row's words in [`Cuts`]; a row without a cut has zeros.
pub fn cut_words(cut: Option<&ExpertCut>) -> [i32; 2] {
    // More than a row uses is as good as what it uses.
    let part = |n: u32| n.min(USED_MAX as u32) as i32;
    cut.map_or([0; 2], |c| [part(c.min) | part(c.max) << 16, c.mass.to_bits() as i32])
}

/// The experts that rows were given, and their weights.
pub struct ChosenExperts<'a, 'b> {
    /// `[rows, used]`, best first; -1 in padding rows, and behind those that a cut leaves.
    pub experts: &'a mut CudaViewMut<'b, i32>,
    /// `[rows, used + 1]`: weights of those experts, which add up to one, then the shared expert's; 0 in rows that are
    /// none, and of experts that were cut away.
    pub gates: &'a mut CudaViewMut<'b, f32>,
}

/// Lists that a launch writes: the rows that go to each expert.
pub struct Groups<'a, 'b> {
    /// `[experts, 4]`: `{expert, first, count, 0}`.
    pub slots: &'a mut CudaViewMut<'b, i32>,
    /// `[rows * used]`: rows of expert 0 in order, then those of expert 1, and so on. Padding rows are nowhere;
    /// what lies behind the last stays as it is.
    pub in_rows: &'a mut CudaViewMut<'b, i32>,
    /// `[rows * used]`: the pair `row * used + k` beside each.
    pub out_rows: &'a mut CudaViewMut<'b, i32>,
    /// Where it is not 0, lists are `[experts, pitch]` and each expert's stand from `expert * pitch` on, in any order
    /// where rows are more than [`Variant::Few`] takes. At least as many as there are rows, of which there are at most
    /// [`GROUPED_ROWS`].
    pub pitch: usize,
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

    /// Memory for launches of up to `rows_max` rows.
    ///
    /// # Errors
    /// If the device has none left.
    pub fn workspace(&self, device: &Device, rows_max: usize) -> Result<Workspace, CudaError> {
        let stream = device.stream();
        let failed = |error| CudaError::Driver { call: "cuMemAlloc", error };
        Ok(Workspace {
            scores: stream.alloc_zeros(self.shape.scores(rows_max)).map_err(failed)?,
            tagged: stream.alloc_zeros(rows_max.min(FEW_ROWS_MAX) * self.shape.stride()).map_err(failed)?,
            halves: stream.alloc_zeros(if self.prompts.is_some() { self.shape.halves() } else { 1 }).map_err(failed)?,
            counters: stream.alloc_zeros(COUNTERS).map_err(failed)?,
            offsets: stream.alloc_zeros(self.shape.chunks(rows_max).max(1) * self.shape.experts).map_err(failed)?,
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

    fn enqueue_prompts(&self, device: &Device, segments: usize, arguments: &Arguments) -> Result<(), CudaError> {
        let Some([split, of_segment, whole]) = &self.prompts else {
            let what = format!("{} has no matrix instructions of warpgroups", device.arch());
            return Err(CudaError::shape(NAME, what));
        };
        let (n, columns) = (arguments.rows as usize, self.shape.prompt_columns());
        let (x, y) = (self.shape.experts.div_ceil(columns), n.div_ceil(PROMPT_ROWS) * segments);
        let vectors = self.shape.halves() / 4;
        let grid = Grid { blocks: (vectors.div_ceil(THREADS as usize) as u32, 1), threads: THREADS };
        self.enqueue(device, split, grid, arguments)?;
        let grid = Grid { blocks: (x as u32, y as u32), threads: self.shape.prompt_threads() };
        self.enqueue(device, if n >= WHOLE_ROWS { whole } else { of_segment }, grid, arguments)?;
        self.enqueue_choice(device, n, arguments)
    }

    /// What scores `n` rows by tiles, and how many blocks of experts, and of rows and segments.
    fn tiled_kernel(&self, n: usize, segments: usize) -> (&Kernel<Arguments>, (usize, usize)) {
        let tiles = |(rows, columns)| (self.shape.experts.div_ceil(columns), n.div_ceil(rows) * segments);
        if n >= WHOLE_ROWS {
            return (&self.whole, tiles(WHOLE_TILE));
        }
        let i = usize::from(n > SMALL_ROWS) + usize::from(n > NARROW_ROWS);
        let (x, y) = tiles(TILES[i]);
        if i == 0 && x * y <= SPREAD_BLOCKS * self.multiprocessors {
            return (&self.spread, (x, y));
        }
        let crowded = n > NARROW_ROWS && x * y > FEW_BLOCKS * self.multiprocessors;
        (if crowded { &self.crowded } else { &self.tiled[i] }, (x, y))
    }

    /// What scores need; zeros elsewhere.
    fn score_arguments(
        &self,
        device: &Device,
        work: &mut Workspace,
        rows: RouterRows<'_>,
        layer: LayerWeights<'_>,
    ) -> Result<Arguments, CudaError> {
        let (shape, n, stream) = (self.shape, rows.count, device.stream());
        fits(NAME, "slots", rows.slots.len(), n)?;
        fits(NAME, "x", rows.x.len(), n * shape.cols)?;
        fits(NAME, "squares", rows.squares.len(), n * shape.cols / 32)?;
        layer.check(NAME, shape.experts, shape.cols, shape.sigmoid)?;
        fits(NAME, "the workspace", work.scores.len(), n * shape.stride())?;
        Ok(Arguments {
            x: Ptr::of(rows.x, stream),
            squares: Ptr::of(rows.squares, stream),
            norm: Ptr::of(layer.norm, stream),
            weights: Ptr::of(layer.experts, stream),
            shared_gate: Ptr::of(layer.shared_gate, stream),
            bias: Ptr::of_some(layer.bias, stream),
            slots: Ptr::of(rows.slots, stream),
            scores: PtrMut::of(&mut work.scores, stream),
            rows: n as i32,
            segments: 1,
            eps: layer.eps,
            ..Arguments::default()
        })
    }

    /// Enqueues the lists alone, of `experts`, `[rows, used]`, with -1 in padding rows.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// Ids on the device are below the number of experts, and no row has one twice.
    pub unsafe fn group(
        &self,
        device: &Device,
        work: &mut Workspace,
        rows: usize,
        experts: &CudaView<'_, i32>,
        groups: Groups<'_, '_>,
    ) -> Result<(), CudaError> {
        fits(NAME, "experts", experts.len(), rows * self.shape.used)?;
        let lists = self.list_arguments(device, work, rows, Some(groups))?;
        // The lists' kernels only read the experts.
        let experts = PtrMut::of_shared(experts, device.stream());
        self.enqueue_lists(device, &Arguments { experts, rows: rows as i32, ..lists })
    }

    /// What lists need; zeros elsewhere.
    fn list_arguments(
        &self,
        device: &Device,
        work: &mut Workspace,
        n: usize,
        groups: Option<Groups<'_, '_>>,
    ) -> Result<Arguments, CudaError> {
        let (shape, stream) = (self.shape, device.stream());
        let mut arguments = Arguments {
            counters: PtrMut::of(&mut work.counters, stream),
            offsets: PtrMut::of(&mut work.offsets, stream),
            ..Arguments::default()
        };
        if let Some(groups) = groups {
            fits(NAME, "the groups", groups.slots.len(), 4 * shape.experts)?;
            let (pitch, used) = (groups.pitch, shape.used);
            if pitch != 0 && (pitch < n || n > GROUPED_ROWS) {
                return Err(CudaError::shape(
                    NAME,
                    format!("{n} rows in lists of {pitch}: at most {GROUPED_ROWS} rows"),
                ));
            }
            let listed = if pitch == 0 { n * used } else { shape.experts * pitch };
            fits(NAME, "in_rows", groups.in_rows.len(), listed)?;
            fits(NAME, "out_rows", groups.out_rows.len(), listed)?;
            arguments.pitch = pitch as i32;
            fits(NAME, "the workspace", work.offsets.len(), shape.chunks(n) * shape.experts)?;
            arguments.groups = PtrMut::of(groups.slots, stream);
            arguments.in_rows = PtrMut::of(groups.in_rows, stream);
            arguments.out_rows = PtrMut::of(groups.out_rows, stream);
        }
        Ok(arguments)
    }

    /// Scores and the choice: of decode rows, whose lists have a place for each expert, in one launch with a block more
    /// for each row.
    fn enqueue_ordered(&self, device: &Device, arguments: &Arguments) -> Result<(), CudaError> {
        let n = arguments.rows as usize;
        let kernel = self.shape.ordered_kernel(n);
        let x = self.shape.experts.div_ceil(self.shape.ordered_columns());
        let scoring = n.div_ceil(ORDERED_ROWS[kernel]) * SCORE_PARTS;
        let together = n <= GROUPED_ROWS && (arguments.groups.address() == 0 || arguments.pitch != 0);
        let choosing = if together { n.div_ceil(x) } else { 0 };
        let grid = Grid { blocks: (x as u32, (scoring + choosing) as u32), threads: ORDERED_THREADS };
        self.enqueue(device, &self.ordered[kernel], grid, arguments)?;
        if together { Ok(()) } else { self.enqueue_choice(device, n, arguments) }
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

    fn enqueue_lists(&self, device: &Device, arguments: &Arguments) -> Result<(), CudaError> {
        let pairs = arguments.rows as usize * self.shape.used;
        if arguments.rows as usize <= GROUPED_ALONE {
            return self.enqueue(device, &self.group, Grid { blocks: (1, 1), threads: ALONE_THREADS }, arguments);
        }
        let grid = Grid { blocks: (pairs.div_ceil(CHUNK) as u32, 1), threads: THREADS };
        self.enqueue(device, &self.count, grid, arguments)?;
        self.enqueue(device, &self.place, grid, arguments)
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

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASED: RouterShape = RouterShape { cols: 2048, experts: 256, used: 8, sigmoid: false };

    #[test]
    fn every_family_member_has_a_kernel_and_others_are_refused_by_name() {
        let ok = |cols, experts, used| program(RouterShape { cols, experts, used, sigmoid: false });
        assert!(program(RELEASED).is_ok());
        for (cols, experts, used) in [(256, 16, 4), (32, 16, 4), (256, 4, 2), (4096, 512, 22), (5120, 128, 8)] {
            assert!(ok(cols, experts, used).is_ok());
        }
        assert!(ok(2048, 1024, 8).unwrap_err().to_string().contains("8 of 1024 experts"));
        assert!(ok(2048, 4, 5).is_err() && ok(2048, 4, 0).is_err() && ok(100, 4, 2).is_err());
    }

    #[test]
    fn a_cut_goes_in_two_words_and_no_cut_is_zeros() {
        let cut = |min, max, mass| cut_words(Some(&ExpertCut { min, max, mass }));
        assert_eq!(cut_words(None), [0, 0]);
        assert_eq!(cut(1, 8, 0.5), [8 << 16 | 1, 0x3f00_0000]);
        assert_eq!(cut(1, 16, 0.0)[1], 0);
        assert_eq!(cut(33, u32::MAX, 1.0)[0], 32 << 16 | 32);
    }

    #[test]
    fn sums_come_in_whole_segments_and_are_stored_while_rows_are_few() {
        let segments = |cols| RouterShape { cols, ..RELEASED }.segments();
        assert_eq!([32, 96, 256, 2048, 2560, 2080].map(segments), [1, 3, 8, 16, 16, 13]);
        assert_eq!(RELEASED.stored(Variant::Tiled, 256), 16);
        assert_eq!((RELEASED.stored(Variant::Tiled, 4096), RELEASED.stored(Variant::Few, 256)), (1, 1));
        assert_eq!(RELEASED.stored(Variant::Prompts, 2559), 16);
    }
}
