//! How a product of many columns is cut up: a pure choice, and what it costs in shared memory.

use super::{Epilogue, WideShape};
use crate::cuda::product;
use crate::cuda::product::layout::{Codes, Scales, TILE_ROWS, UNIT};
use crate::cuda::{Arch, CudaError, Device};

/// What a block's warps do. `csrc/wide/wide.cu` names them the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WideTiling {
    /// Tiles of 16 rows that a warp has.
    pub tiles: usize,
    /// Warps beside one another along the rows.
    pub warps_rows: usize,
    /// Tiles of 8 columns that a warp has.
    pub octets: usize,
    /// Warps beside one another along the columns.
    pub warps_columns: usize,
    /// Groups of warps that take turns along the inputs.
    pub groups: usize,
    /// Units of 128 inputs of a stage that each group has.
    pub units: usize,
    /// Blocks of a cluster, which share the inputs.
    pub split: usize,
    /// Stages of shared memory.
    pub stages: usize,
    /// In what order sums are taken, if not in the one that is fastest for these tiles.
    pub order: Option<Order>,
}

/// An order of sums that does not depend on how a product is cut up: that of the kernels for few rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Order {
    /// Parts of the inputs, a power of two, each added up in order; then neighbours are added, and neighbouring pairs.
    pub segments: usize,
    /// Whether the first two and the last two blocks of units have sums of their own within a segment, and segments
    /// are added one after another: as among experts.
    pub by_halves: bool,
}

impl Order {
    /// Segments of each group of warps.
    fn of_group(&self, t: &WideTiling) -> usize {
        self.segments / (t.groups * t.split)
    }

    /// Whether groups and blocks of `t` have whole segments.
    fn fits(&self, t: &WideTiling) -> bool {
        let shared = t.groups * t.split;
        if self.by_halves && shared > 1 && (t.groups, t.split) != (self.segments, 1) {
            return false;
        }
        shared.is_power_of_two() && shared <= self.segments && t.groups <= GROUPS_IN_ORDER_MAX && self.of_group(t) <= 8
    }
}

/// Groups whose sums have a place in shared memory.
const GROUPS_IN_ORDER_MAX: usize = 4;

/// Shared memory that a block may have on any chip.
pub(super) const SHARED_BYTES_MAX: usize = 227 << 10;
const WARPS_MAX: usize = 16;
const SPLIT_MAX: usize = 8;

/// What the choice has to know of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chip {
    /// Blocks that run at a time, at least.
    pub multiprocessors: usize,
    /// Whether blocks form clusters.
    pub clusters: bool,
    /// Shared memory that a block may have.
    pub shared_bytes: usize,
    /// Whether four warps share a matrix instruction: see [`super::warpgroup`].
    pub warpgroups: bool,
}

impl Chip {
    /// A common one of an architecture, for choices that are made without a device.
    pub fn typical(arch: Arch) -> Self {
        let multiprocessors = match arch.to_string().as_str() {
            "sm_80" => 108,
            "sm_86" => 84,
            "sm_89" => 128,
            "sm_90a" => 132,
            "sm_100a" => 148,
            _ => 36,
        };
        Self::with(multiprocessors, arch)
    }

    /// What tiles are chosen by, read from a device.
    pub fn of(device: &Device) -> Self {
        Self::with(device.multiprocessors() as usize, device.arch())
    }

    fn with(multiprocessors: usize, arch: Arch) -> Self {
        Self {
            multiprocessors,
            clusters: arch.has_clusters(),
            shared_bytes: arch.shared_bytes_max(),
            warpgroups: arch.has_warpgroups(),
        }
    }
}

impl WideTiling {
    /// Output rows of a block.
    pub fn block_rows(&self) -> usize {
        TILE_ROWS * self.tiles * self.warps_rows
    }

    /// Columns of a block.
    pub fn block_columns(&self) -> usize {
        8 * self.octets * self.warps_columns
    }

    /// Whether groups and blocks have whole segments of the order that sums are taken in, if there is one.
    fn keeps_order(&self) -> bool {
        self.order.is_none_or(|order| order.fits(self))
    }

    /// Warps of a block.
    pub fn warps(&self) -> usize {
        self.warps_rows * self.warps_columns * self.groups
    }

    /// Dynamic shared memory of a block, as `csrc/wide/wide.cu` lays it out.
    pub fn shared_bytes(&self, matrix: product::MatrixShape) -> usize {
        let (layout, planes) = (matrix.layout(), matrix.planes().count());
        let meta = if layout.scales == Scales::Min { 32 } else { 16 };
        let column = 32 + planes * (UNIT + meta);
        let unit = self.tiles * self.warps_rows * layout.unit_bytes() + self.block_columns() * column;
        let stage = self.groups * self.units * unit;
        let places = if self.order.is_some_and(|order| !order.by_halves) { (self.groups / 2).max(1) } else { 1 };
        let sums = places * self.block_columns() * (self.block_rows() + 4) * 4;
        let grid = if layout.codes == Codes::Grid { 2048 } else { 0 };
        (self.stages * stage).max(sums) + 12 * self.block_columns() + grid
    }

    /// Whether there is such a kernel for `shape`.
    ///
    /// # Errors
    /// With what does not fit.
    pub fn check(&self, shape: WideShape) -> Result<(), CudaError> {
        let wrong = |what: String| Err(CudaError::shape("wide", format!("{self:?} of {shape:?}: {what}")));
        let whole = shape.epilogue.block_tiles();
        let rows = self.tiles * self.warps_rows;
        if rows == 0 || self.block_columns() == 0 || self.groups * self.units == 0 || self.split == 0 || self.stages < 2
        {
            return wrong("nothing may be zero, stages are at least two".into());
        }
        if !rows.is_multiple_of(whole) {
            return wrong(format!("a block of int8 values is made of {whole} tiles, a block has {rows}"));
        }
        if self.warps() > WARPS_MAX || self.block_columns() > 32 * self.warps() {
            return wrong(format!("{} warps for {} columns", self.warps(), self.block_columns()));
        }
        if self.split > SPLIT_MAX || self.split > (shape.matrix.size().1 / UNIT).max(1) {
            return wrong(format!("inputs cannot be shared by {} blocks", self.split));
        }
        if let Some(order) = self.order.filter(|order| !order.segments.is_power_of_two() || !order.fits(self)) {
            return wrong(format!("{order:?}: groups and blocks must have whole segments"));
        }
        let shared = self.shared_bytes(shape.matrix);
        if shared > SHARED_BYTES_MAX {
            return wrong(format!("{shared} bytes of shared memory are more than {SHARED_BYTES_MAX}"));
        }
        Ok(())
    }
}

/// Chosen by the matrix and the columns that are expected beside one another: all of a dense product's, those of one
/// expert else. Outputs depend on the choice, so whoever wants them the same in every batch passes one number of
/// columns for all, or asks for an [`Order`].
///
/// Measured (docs/internals/kernels/wide.md). Warps want as many products as registers hold, because a fragment of
/// weights is expanded and one of activations is read once for all of them. A matrix too small to give every
/// multiprocessor a block of that size has its inputs shared among groups of warps, then among blocks. Beyond 110 KB of
/// shared memory the next kernel's blocks cannot wait beside ours.
pub fn tiling(shape: WideShape, columns: usize, chip: Chip) -> WideTiling {
    split(shape, columns, chip, within(chip.shared_bytes, shape, measured(shape, columns, chip)))
}

/// Chooses the tiling of a product whose sums are taken in `order`.
pub fn tiling_in(order: Order, shape: WideShape, columns: usize, chip: Chip) -> WideTiling {
    let mut t = WideTiling { order: Some(order), ..measured_in(order, shape, columns, chip) };
    while t.groups > 1 && !t.keeps_order() {
        (t.groups, t.units) = (t.groups / 2, t.units * 2);
    }
    split(shape, columns, chip, within(chip.shared_bytes, shape, t))
}

/// With the inputs of a dense product shared among blocks, where there are too few of these.
fn split(shape: WideShape, columns: usize, chip: Chip, mut t: WideTiling) -> WideTiling {
    let (rows, cols) = shape.matrix.size();
    let (tiles, units) = (rows.div_ceil(TILE_ROWS), cols / UNIT);
    let most = SPLIT_CHOSEN_MAX.min(SHARES_MAX / t.groups);
    if shape.dense && chip.clusters {
        let blocks = tiles.div_ceil(t.tiles * t.warps_rows) * columns.div_ceil(t.block_columns()).max(1);
        let running = chip.multiprocessors * if t.warps() <= PAIRED_WARPS { 2 } else { 1 };
        let twice = |t: WideTiling| WideTiling { split: t.split * 2, ..t };
        let fills = |t: WideTiling| blocks * t.split <= running && t.split * t.groups < units;
        while t.split < most && fills(twice(t)) && twice(t).keeps_order() {
            t = twice(t);
        }
    }
    t
}

/// A tiling with all inputs in one block.
fn of(
    tiles: usize,
    warps_rows: usize,
    octets: usize,
    warps_columns: usize,
    groups: usize,
    units: usize,
    stages: usize,
) -> WideTiling {
    WideTiling { tiles, warps_rows, octets, warps_columns, groups, units, split: 1, stages, order: None }
}

/// Where sums in order want other tiles than [`measured`]'s. A group that has several segments keeps a sum for each
/// size of what it has added up; so tiles of large matrices are smaller, or shared by more groups.
fn measured_in(order: Order, shape: WideShape, columns: usize, chip: Chip) -> WideTiling {
    let (rows, cols) = shape.matrix.size();
    let few_units = cols / UNIT <= FEW_UNITS;
    let free = measured(shape, columns, chip);
    if !shape.dense {
        return free;
    }
    let large = rows.div_ceil(TILE_ROWS) > 2 * chip.multiprocessors;
    match (large, shape.epilogue, columns) {
        (true, Epilogue::Plain, 17..=32) if order.segments > 2 => of(2, 3, 4, 1, 4, 1, 2),
        (true, Epilogue::Plain, 33..=64) if order.segments > 2 => of(1, 6, 4, 2, 1, 2, 2),
        (true, Epilogue::Plain, 65..) if order.segments > 2 => of(2, 6, 4, 2, 1, 1, 2),
        (false, Epilogue::Plain, 129..) if few_units => of(1, 4, 2, 1, 1, 2, 2),
        (false, Epilogue::Residual, 65..=128) => of(2, 4, 4, 1, 4, 1, 2),
        _ => free,
    }
}

/// What was fastest, whatever it takes of shared memory, with all inputs in one block.
fn measured(shape: WideShape, columns: usize, chip: Chip) -> WideTiling {
    let (rows, cols) = shape.matrix.size();
    let (tiles, units) = (rows.div_ceil(TILE_ROWS), cols / UNIT);
    let few_units = units <= FEW_UNITS;
    if !shape.dense {
        match columns {
            0..=4 => of(2, 4, 1, 1, 1, 1, if few_units { 3 } else { 4 }),
            5..=16 => of(2, 4, 2, 1, 1, 1, 3),
            _ => of(2, 8, 4, 1, 1, 1, 3),
        }
    } else if tiles > 2 * chip.multiprocessors {
        // Blocks of 96 rows where those come out more even than 128.
        let waste = |block: usize| tiles.div_ceil(block * chip.multiprocessors) * block * chip.multiprocessors - tiles;
        let three = shape.epilogue != Epilogue::Gated && waste(6) < waste(8);
        match columns {
            0..=16 if three => of(1, 6, 2, 1, 2, 1, 3),
            0..=16 => of(2, 4, 2, 1, 1, 1, 3),
            17..=32 if three => of(1, 6, 4, 1, 2, 1, 3),
            17..=32 => of(1, 8, 4, 1, 1, 1, 4),
            33..=128 if three => of(2, 3, 4, 2, 2, 1, 2),
            129..=512 if three => of(2, 6, 8, 2, 1, 1, 3),
            // Six bits take long to expand, so for as many columns as there can be.
            _ if shape.matrix.layout().codes == Codes::Six => of(1, 8, 8, 1, 1, 1, 4),
            _ => of(2, 4, 4, 2, 1, 1, 4),
        }
    } else {
        match (columns, shape.epilogue) {
            (0..=64, Epilogue::Plain | Epilogue::Residual) if few_units => of(1, 2, 2, 1, 4, 1, 2),
            // Codes that take longer to expand do better by larger blocks.
            (0..=16, Epilogue::Residual) if matches!(shape.matrix.layout().codes, Codes::Byte | Codes::E4m3) => {
                of(1, 2, 2, 1, 2, 1, 4)
            }
            (0..=16, _) => of(1, 4, 2, 1, 2, 1, 4),
            (17..=128, epilogue) if epilogue.is_activated() => of(1, 4, 2, 1, 4, 1, 2),
            (17..=32, Epilogue::Residual) => of(1, 2, 4, 1, 4, 1, 3),
            (17..=128, _) => of(1, 4, 4, 1, 4, 1, 2),
            (129..=512, epilogue) if epilogue.is_activated() => of(1, 4, 4, 1, 4, 1, 2),
            (129..=512, _) if few_units => of(2, 4, 4, 1, 2, 1, 2),
            (129..=512, _) => of(2, 4, 4, 2, 2, 1, 3),
            _ => of(2, 4, 4, 2, 1, 1, 3),
        }
    }
}

/// `t`, made smaller until it takes `limit` bytes of shared memory.
fn within(limit: usize, shape: WideShape, mut t: WideTiling) -> WideTiling {
    while t.shared_bytes(shape.matrix) > limit {
        match t {
            WideTiling { stages: 3.., .. } => t.stages -= 1,
            WideTiling { units: 2.., .. } => t.units -= 1,
            WideTiling { groups: 2.., .. } => {
                t.groups /= 2;
                while t.groups > 1 && !t.keeps_order() {
                    t.groups /= 2;
                }
            }
            WideTiling { warps_columns: 2.., .. } => t.warps_columns /= 2,
            WideTiling { warps_rows: 8.., .. } => t.warps_rows /= 2,
            WideTiling { octets: 2.., .. } => t.octets /= 2,
            WideTiling { warps_rows: 2.., .. } => t.warps_rows /= 2,
            _ => unreachable!("two stages of four tiles and eight columns fit everywhere"),
        }
    }
    t
}

/// Up to so many units a product is over before more stages or groups would help.
const FEW_UNITS: usize = 8;
/// Warps of blocks of which two on a multiprocessor are better than one: an out-projection of 16 rows takes 5.9 us by
/// 256 blocks of four warps and 6.4 by 128 of eight.
const PAIRED_WARPS: usize = 4;
/// More blocks to a cluster cost more to gather than they save.
const SPLIT_CHOSEN_MAX: usize = 4;
/// So do more shares of the inputs, among groups and blocks together: an out-projection of 32 rows takes 12.8 us with
/// 16 and 8.9 with 8.
const SHARES_MAX: usize = 8;
