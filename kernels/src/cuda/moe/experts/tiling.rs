//! How the blocks of a launch are used: a pure choice by the experts' shape and the chip's shared memory.

use super::shape::{Experts, TILES};
use crate::cuda::product::layout::{Layout, TILE_ROWS, UNIT};
use crate::cuda::product::{self, Activated, Residual};
use crate::cuda::wide::{Chip, Epilogue, Order, WideShape};

/// What the kernel before, which still runs when our blocks come, needs beside them of a multiprocessor's shared
/// memory.
pub(super) const NEIGHBOUR_BYTES: usize = 12 << 10;

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
pub struct ExpertsTiling {
    /// Warps that share the inputs of a tile of gate and up.
    pub warps_k: usize,
    /// The three kernels: rows, bytes of a warp's ring, bytes of a block's shared memory.
    pub kernels: [(usize, usize, usize); 3],
    /// Of each: in how many places activations are f16 too, of gate and up, then of down.
    pub halved: [usize; 3],
}

impl ExpertsTiling {
    /// Rows that one launch takes; more are done in turns.
    pub fn rows_max(&self) -> usize {
        self.kernels[2].0
    }

    /// Threads of a block.
    pub(super) fn threads(&self) -> u32 {
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
    let of = |tilings: Vec<(usize, product::ProductTiling)>| tilings[0].1.warps_k;
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
pub fn tiling(experts: Experts, chip: Chip) -> Option<ExpertsTiling> {
    let warps_k = warps_k(experts.hidden);
    let threads = TILES * warps_k * 32;
    let kernel = |rows: usize, units: usize| {
        let fits = rows * experts.used <= threads.min(256);
        fits.then(|| ring(experts, warps_k, (rows, units), chip)).flatten().map(|r| ((rows, r.0, r.1), r.2))
    };
    let [one, some, all] = RING_UNITS;
    let kernels = |most: usize| Some([kernel(1, one)?, kernel(most / 2, some)?, kernel(most, all)?]);
    let all = [16, 8, 4].into_iter().find_map(kernels)?;
    Some(ExpertsTiling { warps_k, kernels: all.map(|k| k.0), halved: all.map(|k| k.1) })
}

/// Bytes of a warp's ring, of `units` units if there is room, of a block's shared memory, and in how many places
/// activations are f16 too, as long as the ring loses no unit by that; `None` if there is not enough room.
fn ring(experts: Experts, warps_k: usize, (rows, units): (usize, usize), chip: Chip) -> Option<(usize, usize, usize)> {
    let warps = TILES * warps_k;
    let at = if experts.placed { LINE_BYTES } else { COPY_BYTES };
    let staged = |layout: Layout| layout.unit_bytes().next_multiple_of(at);
    let unit = experts.layouts().into_iter().map(staged).max().unwrap_or(0);
    let routed = staged(experts.routed.gate_up);
    let of = |halved: usize| {
        let rest = memory_bytes(experts, warps_k, rows, halved);
        let room = chip.shared_bytes.saturating_sub(NEIGHBOUR_BYTES + rest) / warps / at * at;
        let ring = room.min(units * routed).max(RING_UNITS_MIN * routed).max(unit);
        (ring <= room).then_some((ring, warps * ring + rest, halved))
    };
    let plain = of(0)?;
    let most = if experts.has_floats() { 2 } else { 0 };
    (1..=most).rev().filter_map(of).find(|r| r.0 / routed == plain.0 / routed).or(Some(plain))
}

/// What a block needs beside the rings: `Memory` of the kernel.
fn memory_bytes(experts: Experts, warps_k: usize, rows: usize, halved: usize) -> usize {
    let Experts { hidden, count, used, routed, shared, planes, placed, .. } = experts;
    let (pairs, columns) = (rows * used, if rows == 1 { 1 } else { rows.next_multiple_of(8) });
    let minima = |cols: usize| if experts.has_minima() { cols / UNIT * 32 } else { 0 };
    let staged = |cols: usize, halved: bool| {
        let halves = if halved { 2 * cols * planes.count() + 16 } else { 0 };
        planes.count() * (cols + cols / UNIT * 32) + 32 + 16 + minima(cols) + halves
    };
    let places = if placed { 17 * pairs } else { 0 };
    let chosen =
        (places + 4 * pairs + 4 * rows * (used + 1) + 4 * count + 4 * pairs + 4 + count + pairs + pairs * rows)
            .next_multiple_of(16);
    let grid = if experts.has_grid() { 2048 } else { 0 };
    let of_rows = rows * staged(hidden.next_multiple_of(UNIT), halved > 0);
    let gate_up = 2 * TILES * warps_k * columns * TILE_ROWS * 4 + of_rows;
    let of_hidden = pairs * staged(routed.padded(), halved > 1) + rows * staged(shared.padded(), halved > 1);
    let down = 2 * (pairs + rows) * TILE_ROWS * 4 + of_hidden;
    chosen + grid + 64 + gate_up.max(down)
}
