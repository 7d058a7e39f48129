//! The experts of a few rows in one launch (`csrc/experts/experts.cu`): gate and up with SiLU, or up alone with a
//! squared ReLU, down, the sum over the experts and the residual stream.
//!
//! Which experts a row uses is chosen in the launch, and each that any row chose is read once. A row's result is the
//! same for any number of rows beside it. All blocks of a launch wait for each other, so there is one a multiprocessor.

use crate::cuda::moe::router::{Cuts, LayerWeights};
use crate::cuda::product::layout::{Codes, Layout, Scales, TILE_ROWS, UNIT};
use crate::cuda::product::{self, Activated, Activations, MatrixShape, NextRows, Norm, Residual, layout_defines};
use crate::cuda::rows::quantized::{BLOCK, Planes};
use crate::cuda::runtime::arguments::{self, DeviceStruct, Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::runtime::error::DriverResult;
use crate::cuda::stack::{Arrivals, RESERVES, Stack};
use crate::cuda::wide::{Chip, Epilogue, Order, WideShape};
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaSlice, CudaView, CudaViewMut};

/// Experts of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExpertShape {
    /// Values between gate, up and down.
    pub width: usize,
    /// Of gate and up, which are one matrix of `2 * width` rows: tiles of 8 rows of gate and the same 8 of up. Of up
    /// alone where there are no gates.
    pub gate_up: Layout,
    /// Storage of the down matrix, `[hidden, width]`.
    pub down: Layout,
}

impl ExpertShape {
    fn padded(self) -> usize {
        self.width.next_multiple_of(UNIT)
    }
}

/// The experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Experts {
    hidden: usize,
    count: usize,
    used: usize,
    routed: ExpertShape,
    shared: ExpertShape,
    planes: Planes,
    placed: bool,
    squared: bool,
    sigmoid: bool,
    replayed: bool,
}

impl Experts {
    /// `count` experts of which a row uses `used`, beside a shared one, between rows of `hidden` values of one plane.
    ///
    /// # Errors
    /// If a width is no whole number of blocks, or more experts are used than there are or than are taken.
    pub fn new(
        hidden: usize,
        count: usize,
        used: usize,
        routed: ExpertShape,
        shared: ExpertShape,
    ) -> Result<Self, CudaError> {
        let wrong = |reason: String| Err(CudaError::shape("experts", reason));
        for (what, n) in [("a row", hidden), ("an expert", routed.width), ("the shared expert", shared.width)] {
            if n == 0 || !n.is_multiple_of(32) {
                return wrong(format!("{what} of {n} values: must be a multiple of 32, at least 32"));
            }
        }
        if used == 0 || used > USED_MAX || used > count || count > COUNT_MAX {
            return wrong(format!("{used} of {count} experts are used: at most {USED_MAX} of {COUNT_MAX}"));
        }
        let (placed, squared, sigmoid, replayed) = (false, false, false, false);
        Ok(Self { hidden, count, used, routed, shared, planes: Planes::One, placed, squared, sigmoid, replayed })
    }

    /// Sets the number of int8 codes for each value of the rows, which is one by default.
    pub fn with_planes(self, planes: Planes) -> Self {
        Self { planes, ..self }
    }

    /// Sets whether routed experts lie wherever a table says ([`Stack::Placed`]) or, by default, one after another.
    pub fn with_places(self, placed: bool) -> Self {
        Self { placed, ..self }
    }

    /// Removes the gate matrices: `relu(up)^2` takes the place of `silu(gate) * up`.
    ///
    /// # Errors
    /// If a width is no whole number of what a block does at a time.
    pub fn without_gates(self) -> Result<Self, CudaError> {
        for width in [self.routed.width, self.shared.width] {
            if !width.is_multiple_of(TILES * TILE_ROWS) {
                let text = format!("an expert of {width} values without a gate: must be a multiple of 64");
                return Err(CudaError::shape("experts", text));
            }
        }
        Ok(Self { squared: true, ..self })
    }

    /// Sets whether experts are chosen by sigmoids with biases or, by default, by a softmax.
    pub fn with_sigmoids(self, sigmoid: bool) -> Self {
        Self { sigmoid, ..self }
    }

    /// Sets whether rows take the experts of [`Routing::given`] instead of choosing; for benchmarks.
    pub fn with_replay(self, replayed: bool) -> Self {
        Self { replayed, ..self }
    }

    /// Whether there are no gates.
    pub fn squared(&self) -> bool {
        self.squared
    }

    /// Whether experts are chosen by sigmoids with biases.
    pub fn sigmoid(&self) -> bool {
        self.sigmoid
    }

    /// Planes of the rows' int8 form.
    pub fn planes(&self) -> Planes {
        self.planes
    }

    /// How many experts there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Experts that a row uses.
    pub fn used(&self) -> usize {
        self.used
    }

    /// `[2 * width, hidden]` of a routed and of the shared expert; without gates of half as many rows.
    pub fn gate_up(&self) -> [MatrixShape; 2] {
        let each = if self.squared { 1 } else { 2 };
        [self.routed, self.shared].map(|k| {
            MatrixShape::new(k.gate_up, each * k.width, self.hidden.next_multiple_of(UNIT)).expect("checked by `new`")
        })
    }

    /// `[hidden, width]` of a routed and of the shared expert.
    pub fn down(&self) -> [MatrixShape; 2] {
        [self.routed, self.shared].map(|k| MatrixShape::new(k.down, self.hidden, k.padded()).expect("checked by `new`"))
    }

    /// Scores from one row to the next.
    fn scores(&self) -> usize {
        (self.count + 1).next_multiple_of(8)
    }

    fn layouts(&self) -> [Layout; 4] {
        [self.routed.gate_up, self.shared.gate_up, self.routed.down, self.shared.down]
    }

    fn has_grid(&self) -> bool {
        self.layouts().iter().any(|l| l.codes == Codes::Grid)
    }

    fn has_minima(&self) -> bool {
        self.layouts().iter().any(|l| l.scales == Scales::Min)
    }
}

const USED_MAX: usize = 15;
const COUNT_MAX: usize = 512;
/// Tiles of gate and up that a block does at a time: 32 values of h, or 64 of up alone.
const TILES: usize = 4;
/// What the kernel before, which still runs when our blocks come, needs beside them of a multiprocessor's shared
/// memory.
const NEIGHBOUR_BYTES: usize = 12 << 10;
/// Units of a routed expert that a warp's ring has room for, at most, in the kernels for one row, for some and for
/// most; and the least. More are slower where there are many: what is asked for stands in the way of everything that is
/// asked for later, in all of the device's memory.
const RING_UNITS: [usize; 3] = [8, 4, 3];
const RING_UNITS_MIN: usize = 2;
/// Where experts may lie on the host, rings and their units begin at multiples of this, as lines of memory do. With a
/// ring of 13,200 bytes instead of 13,056 lines were asked for twice, and a launch took 1.75 times the bytes that it
/// wanted over the bus. On the card it makes no difference, and room does.
const LINE_BYTES: usize = 128;
/// Elsewhere: what is copied at a time.
const COPY_BYTES: usize = 16;

/// How blocks are used. Outputs depend on `warps_k` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tiling {
    /// Warps that share the inputs of a tile of gate and up.
    pub warps_k: usize,
    /// The three kernels: rows, bytes of a warp's ring, bytes of a block's shared memory.
    pub kernels: [(usize, usize, usize); 3],
}

impl Tiling {
    /// Rows that one launch takes; more are done in turns.
    pub fn rows_max(&self) -> usize {
        self.kernels[2].0
    }

    /// Threads of a block.
    fn threads(&self) -> u32 {
        (TILES * self.warps_k * 32) as u32
    }
}

/// Warps that share the inputs of a tile of gate and up, of so many.
fn warps_k(hidden: usize) -> usize {
    const WARPS_MAX: usize = 4;
    let units = hidden.div_ceil(UNIT);
    [WARPS_MAX, 2].into_iter().find(|w| *w <= units).unwrap_or(1)
}

/// The order in which the kernels for few rows take a product's sums: these ones where it is one `of_experts`, the
/// shared one too, else [`product`]'s.
pub fn order_of_few(shape: WideShape, of_experts: bool, multiprocessors: usize) -> Order {
    let (matrix, epilogue) = (shape.matrix(), shape.epilogue());
    let of = |tilings: Vec<(usize, product::Tiling)>| tilings[0].1.warps_k;
    let segments = match (of_experts, epilogue) {
        (true, epilogue) if epilogue.is_activated() => warps_k(matrix.size().1),
        (true, _) => 1,
        (false, Epilogue::Plain) => of(product::tilings(matrix, multiprocessors)),
        (false, Epilogue::Residual) => of(Residual::tilings(matrix, multiprocessors)),
        (false, epilogue) => of(Activated::tilings(matrix, epilogue, multiprocessors)),
    };
    Order { segments, by_halves: of_experts }
}

/// Chosen by the shape and the chip's shared memory; `None` if that holds the activations of too few rows.
pub fn tiling(experts: Experts, chip: Chip) -> Option<Tiling> {
    let warps_k = warps_k(experts.hidden);
    let threads = TILES * warps_k * 32;
    let kernel = |rows: usize, units: usize| {
        let fits = rows * experts.used <= threads.min(256);
        fits.then(|| ring(experts, warps_k, (rows, units), chip)).flatten().map(|(ring, bytes)| (rows, ring, bytes))
    };
    let [one, some, all] = RING_UNITS;
    let kernels = |most: usize| Some([kernel(1, one)?, kernel(most / 2, some)?, kernel(most, all)?]);
    [16, 8, 4].into_iter().find_map(|most| Some(Tiling { warps_k, kernels: kernels(most)? }))
}

/// Bytes of a warp's ring, of `units` units if there is room, and of a block's shared memory; `None` if there is not
/// enough.
fn ring(experts: Experts, warps_k: usize, (rows, units): (usize, usize), chip: Chip) -> Option<(usize, usize)> {
    let warps = TILES * warps_k;
    let at = if experts.placed { LINE_BYTES } else { COPY_BYTES };
    let staged = |layout: Layout| layout.unit_bytes().next_multiple_of(at);
    let unit = experts.layouts().into_iter().map(staged).max().unwrap_or(0);
    let rest = memory_bytes(experts, warps_k, rows);
    let room = chip.shared_bytes.saturating_sub(NEIGHBOUR_BYTES + rest) / warps / at * at;
    let routed = staged(experts.routed.gate_up);
    let ring = room.min(units * routed).max(RING_UNITS_MIN * routed).max(unit);
    if ring > room {
        return None;
    }
    Some((ring, warps * ring + rest))
}

/// What a block needs beside the rings: `Memory` of the kernel.
fn memory_bytes(experts: Experts, warps_k: usize, rows: usize) -> usize {
    let Experts { hidden, count, used, routed, shared, planes, placed, .. } = experts;
    let (pairs, columns) = (rows * used, if rows == 1 { 1 } else { rows.next_multiple_of(8) });
    let minima = |cols: usize| if experts.has_minima() { cols / UNIT * 32 } else { 0 };
    let staged = |cols: usize| planes.count() * (cols + cols / UNIT * 32) + 32 + 16 + minima(cols);
    let places = if placed { 17 * pairs } else { 0 };
    let chosen =
        (places + 4 * pairs + 4 * rows * (used + 1) + 4 * count + 4 * pairs + 4 + count + pairs + pairs * rows)
            .next_multiple_of(16);
    let grid = if experts.has_grid() { 2048 } else { 0 };
    let gate_up = 2 * TILES * warps_k * columns * TILE_ROWS * 4 + rows * staged(hidden.next_multiple_of(UNIT));
    let down = 2 * (pairs + rows) * TILE_ROWS * 4 + pairs * staged(routed.padded()) + rows * staged(shared.padded());
    chosen + grid + 64 + gate_up.max(down)
}

/// The program of a tiling.
pub fn program(experts: Experts, tiling: Tiling) -> Program {
    let Experts { hidden, count, used, routed, shared, planes, placed, squared, sigmoid, replayed } = experts;
    const NAMES: [[&str; 6]; 4] = [
        ["A_CODES", "A_SCALES", "A_LEVELS0", "A_LEVELS1", "A_LEVELS2", "A_LEVELS3"],
        ["B_CODES", "B_SCALES", "B_LEVELS0", "B_LEVELS1", "B_LEVELS2", "B_LEVELS3"],
        ["C_CODES", "C_SCALES", "C_LEVELS0", "C_LEVELS1", "C_LEVELS2", "C_LEVELS3"],
        ["D_CODES", "D_SCALES", "D_LEVELS0", "D_LEVELS1", "D_LEVELS2", "D_LEVELS3"],
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
            ("BYTES_1", one.2),
            ("BYTES_FEW", few.2),
            ("BYTES_MOST", most.2),
        ]
        .map(|(name, value)| (name, value as i64)),
    );
    defines.push(planes.define());
    Program {
        name: "experts",
        source: source!("experts/experts.cu"),
        arguments: arguments::file(&[Arguments::declaration()]),
        defines,
    }
}

/// How much of what the next launch reads is brought to the L2 cache when this one ends; 2, 4, 12 and 20 MB are worse.
const SOON_BYTES: usize = 8 << 20;
/// Blocks that share 32 outputs of down, on chips that have clusters: a tile each.
const CLUSTER: usize = 2;

/// Packed matrices of a layer.
pub struct Matrices<'a> {
    /// Of the routed experts; gate and up lie in the same places as down, if they are placed.
    pub routed: Stack<'a>,
    /// Of the shared one.
    pub shared: &'a CudaView<'a, u8>,
    /// What products of down are multiplied with, of the routed ones and of the shared one.
    pub factors: [f32; 2],
}

/// How rows choose their experts: by scores of the residual stream that have the bits of
/// [`crate::cuda::moe::router::Variant::Few`].
pub struct Routing<'a, 'b> {
    /// Of the router; its norm's squares are those of the launch.
    pub weights: LayerWeights<'a>,
    /// `[rows]`; below 0: no row.
    pub slots: &'a CudaView<'a, i32>,
    /// How few experts rows may do with; `None` where all take all.
    pub cuts: Option<Cuts<'a>>,
    /// `[rows, used]`: gets what was chosen, as [`crate::cuda::moe::router::ChosenExperts`] has it.
    pub chosen: &'a mut CudaViewMut<'b, i32>,
    /// `[rows_max, used]`: the experts of each row, all different, for kernels that replay; `None` for all others.
    pub given: Option<&'a CudaView<'a, i32>>,
}

/// Int8 rows between gate and up and down.
pub struct ExpertRows<'a, 'b> {
    /// `[rows, used, width rounded up to 128, times planes]`, what is beyond the width zeroed once.
    pub codes: &'a mut CudaViewMut<'b, i8>,
    /// `[rows, used, the same / 32, 2]`.
    pub meta: &'a mut CudaViewMut<'b, f32>,
    /// `[rows, shared width rounded up to 128, times planes]`, likewise.
    pub shared_codes: &'a mut CudaViewMut<'b, i8>,
    /// `[rows, the same / 32, 2]`.
    pub shared_meta: &'a mut CudaViewMut<'b, f32>,
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
        /// Words of [`Cuts`] for each row, `[rows]`; null where every row takes all its experts.
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
        /// One word, of which a launch leaves only the highest bit changed.
        barrier: PtrMut<u32>,
        /// What the next launch reads.
        soon: Ptr<u8>,
        /// How much of it is to be brought to the L2 cache, a multiple of 16.
        soon_bytes: u32,
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
    tiling: Tiling,
    /// The three kernels in the order of [`Tiling::kernels`].
    kernels: [Kernel<Arguments>; 3],
    blocks: u32,
    /// Where the blocks of a launch meet. Launches follow one another on the device's stream, so that one word serves
    /// all.
    barrier: CudaSlice<u32>,
    /// Scores that blocks tell each other, `[rows, scores]`, each with the number of its launch; and how many launches
    /// there were.
    tagged: CudaSlice<u64>,
    launches: CudaSlice<u32>,
}

impl ExpertsKernels {
    /// Loads the kernels of a tiling.
    ///
    /// # Errors
    /// If they cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, experts: Experts, tiling: Tiling) -> Result<Self, CudaError> {
        let module = device.module(cache, &program(experts, tiling))?;
        let kernel = |name, at: usize| module.kernel(name)?.with_shared(tiling.kernels[at].2);
        let kernels = [kernel("experts_1", 0)?, kernel("experts_few", 1)?, kernel("experts_most", 2)?];
        let blocks = CLUSTER as u32 * resident_clusters(device, &kernels, tiling)?;
        let stream = device.stream();
        let [barrier, launches] =
            [stream.alloc_zeros::<u32>(1), stream.alloc_zeros::<u32>(1)].map(|word| word.during("cuMemAlloc"));
        let tagged = stream.alloc_zeros::<u64>(tiling.rows_max() * experts.scores()).during("cuMemAlloc")?;
        Ok(Self { experts, tiling, kernels, blocks, barrier: barrier?, tagged, launches: launches? })
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
        let Experts { hidden, planes, .. } = self.experts;
        self.check(&gate_up, &down, &y, &norm, rows, &between)?;
        fits("the residual stream", x.len(), rows * hidden)?;
        next.check(rows, hidden, planes)?;
        let stream = device.stream();
        let [of_gate_up, of_down] = [self.experts.gate_up(), self.experts.down()].map(|[routed, _]| routed.bytes());
        let (gate_up_at, _, gate_up_in) = gate_up.routed.arguments(of_gate_up, stream);
        let (places, reserves, came, (host_from, host_bytes)) = gate_up.routed.changes(stream);
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
            next: Ptr::of(next.weight, stream),
            next_codes: PtrMut::of(next.codes, stream),
            next_meta: PtrMut::of(next.meta, stream),
            next_squares: PtrMut::of(next.squares, stream),
            barrier: PtrMut::of_shared(&self.barrier, stream),
            soon: Ptr::of(soon, stream),
            soon_bytes: (soon.len().min(SOON_BYTES) / 16 * 16) as u32,
            rows: 0,
            eps: norm.eps,
            down_factor: down.factors[0],
            shared_down_factor: down.factors[1],
            ..self.routing_arguments(device, routing, rows)?
        };
        let [one, some, most] = self.tiling.kernels.map(|k| k.0);
        for first in (0..rows).step_by(most) {
            let n = (rows - first).min(most);
            let arguments = self.of_rows(&all, first, n);
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
fn resident_clusters(device: &Device, kernels: &[Kernel<Arguments>; 3], tiling: Tiling) -> Result<u32, CudaError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: ExpertShape = ExpertShape { width: 512, gate_up: Layout::Q4_K, down: Layout::Q4_K };
    const H200: Chip = Chip { multiprocessors: 132, clusters: true, shared_bytes: 227 << 10, warpgroups: true };

    #[test]
    fn experts_of_every_family_member_fit_and_broken_blocks_are_refused() {
        for (hidden, count, used, width, rows) in [
            (2048, 256, 8, 512, 16),
            (2048, 512, 10, 512, 16),
            (4096, 512, 10, 1024, 8),
            (256, 16, 4, 128, 16),
            (32, 16, 4, 32, 16),
        ] {
            let kind = ExpertShape { width, ..KIND };
            let experts = Experts::new(hidden, count, used, kind, kind).unwrap();
            let tiling = tiling(experts, H200).unwrap();
            assert_eq!(tiling.rows_max(), rows, "{hidden} {count} {used} {width}");
            assert!(
                tiling.kernels.iter().all(|(_, _, bytes)| bytes + NEIGHBOUR_BYTES <= H200.shared_bytes),
                "{tiling:?}"
            );
        }
        let error =
            |used, width| Experts::new(2048, 256, used, ExpertShape { width, ..KIND }, KIND).unwrap_err().to_string();
        assert!(error(8, 48).contains("48 values"));
        assert!(error(16, 512).contains("16 of 256"));
        let without = |width| Experts::new(2048, 256, 8, ExpertShape { width, ..KIND }, KIND).unwrap().without_gates();
        assert!(without(96).unwrap_err().to_string().contains("96 values without a gate"));
        assert!(error(0, 512).contains("0 of 256"));
    }

    #[test]
    fn rows_of_two_planes_take_more_memory_so_that_fewer_are_done_at_a_time() {
        let experts = |hidden, count, used, width| {
            let kind = ExpertShape { width, ..KIND };
            Experts::new(hidden, count, used, kind, kind).unwrap().with_planes(Planes::Two)
        };
        let rows = |e| tiling(e, H200).map(|t| t.rows_max());
        assert_eq!(rows(experts(2048, 256, 8, 512)), Some(8));
        assert_eq!(rows(experts(256, 16, 4, 128)), Some(16));
    }

    #[test]
    fn experts_without_gates_of_an_uneven_width_fit() {
        let kind = |width, layout| ExpertShape { width, gate_up: layout, down: layout };
        // Q8_0 and two planes are too much for one block: such models take the kernels for many rows.
        for (layout, most) in [(Layout::Q5_0, [Some(8), Some(4)]), (Layout::Q8_0, [Some(4), None])] {
            let experts = Experts::new(2688, 128, 6, kind(1856, layout), kind(3712, layout)).unwrap();
            let experts = experts.without_gates().unwrap().with_sigmoids(true);
            assert_eq!(experts.gate_up().map(|shape| shape.size()), [(1856, 2688), (3712, 2688)]);
            assert_eq!(experts.down().map(|shape| shape.size()), [(2688, 1920), (2688, 3712)]);
            let rows = Planes::ALL.map(|planes| tiling(experts.with_planes(planes), H200).map(|t| t.rows_max()));
            assert_eq!(rows, most, "{layout:?}");
        }
    }

    #[test]
    fn a_chip_with_little_shared_memory_takes_fewer_rows_at_a_time() {
        let experts =
            Experts::new(2048, 256, 8, KIND, ExpertShape { gate_up: Layout::Q8_0, down: Layout::Q8_0, ..KIND })
                .unwrap();
        let small = tiling(experts, Chip { shared_bytes: 99 << 10, ..H200 }).unwrap();
        assert!(small.rows_max() < 16, "{small:?}");
        assert_eq!(tiling(experts, Chip { shared_bytes: 48 << 10, ..H200 }), None);
    }
}
