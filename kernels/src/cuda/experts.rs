//! The experts of a few rows, in two launches: gate and up with SiLU (`csrc/gate_up.cu`), then down, the sum over the experts and the
//! residual stream (`csrc/down_sum.cu`).
//!
//! Which experts a row uses is read on the device. A row's result is the same for any number of rows beside it.

use super::product::layout::{Codes, Layout, UNIT};
use super::product::{Activations, NextRows, Norm, Shape, depth_max, layout_defines};
use super::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaView, CudaViewMut, DevicePtr, DevicePtrMut};
use std::ffi::c_void;

/// Rows that one launch takes; more are done in turns.
pub const ROWS_MAX: usize = 8;

/// Experts of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// Values between gate, up and down.
    pub width: usize,
    /// Of gate and up, which are one matrix of `2 * width` rows: tiles of 8 rows of gate and the same 8 of up.
    pub gate_up: Layout,
    /// Of down.
    pub down: Layout,
}

impl Kind {
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
    routed: Kind,
    shared: Kind,
}

impl Experts {
    /// `count` experts of which a row uses `used`, beside a shared one, between rows of `hidden` values. Without routed experts (0, 0) the
    /// shared one is a dense layer: its gate and up are done here, its down by [`super::product::Residual`].
    ///
    /// # Errors
    /// If a width is no whole number of blocks, or more experts are used than a block has warps.
    pub fn new(hidden: usize, count: usize, used: usize, routed: Kind, shared: Kind) -> Result<Self, CudaError> {
        let wrong = |reason: String| Err(CudaError::shape("experts", reason));
        for (what, n) in [("a row", hidden), ("an expert", routed.width), ("the shared expert", shared.width)] {
            if n == 0 || !n.is_multiple_of(32) {
                return wrong(format!("{what} of {n} values: must be a multiple of 32, at least 32"));
            }
        }
        if used > USED_MAX || used > count || (used == 0) != (count == 0) {
            return wrong(format!("{used} of {count} experts are used: at most {USED_MAX}"));
        }
        let me = Self { hidden, count, used, routed, shared };
        // Both tiles on one block, where there are no clusters.
        let staged = 2 * (used + 1) * routed.padded().max(shared.padded()) / UNIT * SLOT_BYTES;
        if used > 0 && staged > STAGED_BYTES_MAX {
            return wrong(format!("{used} experts of {} and {} values: too wide", routed.width, shared.width));
        }
        Ok(me)
    }

    /// Experts there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Experts that a row uses.
    pub fn used(&self) -> usize {
        self.used
    }

    /// `[2 * width, hidden]` of a routed and of the shared expert.
    pub fn gate_up(&self) -> [Shape; 2] {
        [self.routed, self.shared]
            .map(|k| Shape::new(k.gate_up, 2 * k.width, self.hidden.next_multiple_of(UNIT)).expect("checked by `new`"))
    }

    /// `[hidden, width]` of a routed and of the shared expert.
    pub fn down(&self) -> [Shape; 2] {
        [self.routed, self.shared].map(|k| Shape::new(k.down, self.hidden, k.padded()).expect("checked by `new`"))
    }
}

const USED_MAX: usize = 15;
/// Shared memory of a unit of activations.
const SLOT_BYTES: usize = 160;
const STAGED_BYTES_MAX: usize = 44 << 10;

/// How blocks' warps are used. Outputs depend on `warps_k` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tiling {
    /// Warps that share the inputs of a tile of gate and up.
    pub warps_k: usize,
    /// Blocks that four tiles of gate and up are spread over, on chips that have clusters.
    pub gate_up_cluster: usize,
    /// Blocks that two tiles of down are spread over: 1 or 2.
    pub down_cluster: usize,
    /// Units that a warp reads ahead into registers, at most.
    pub depth: usize,
    /// Registers of a thread.
    pub registers: usize,
}

/// Chosen by the shape alone (docs/kernels/product.md).
pub fn tiling(experts: Experts) -> Tiling {
    let units = experts.hidden.div_ceil(UNIT);
    let warps_k = if units >= 8 {
        4
    } else if units >= 2 {
        2
    } else {
        1
    };
    // Both tiles of down on one block, unless that would be too many threads.
    let down_cluster = if experts.used <= 8 { 1 } else { 2 };
    Tiling { warps_k, gate_up_cluster: 4, down_cluster, depth: 4, registers: 96 }
}

/// Gate and up, and down.
pub fn programs(experts: Experts, tiling: Tiling) -> Vec<Program> {
    let Experts { hidden, used, routed, shared, .. } = experts;
    let both = |[a, b]: [Layout; 2]| {
        let mut defines = layout_defines(["CODES", "SCALES", "LEVELS0", "LEVELS1", "LEVELS2", "LEVELS3"], a);
        let names = ["SHARED_CODES", "SHARED_SCALES", "SHARED_LEVELS0", "SHARED_LEVELS1", "SHARED_LEVELS2", "SHARED_LEVELS3"];
        defines.extend(layout_defines(names, b));
        let grid = [a, b].iter().any(|l| l.codes == Codes::Grid);
        let depth = |l: Layout| tiling.depth.min(depth_max(l)) as i64;
        defines.extend([
            ("WITH_GRID", i64::from(grid)),
            ("USED", used as i64),
            ("DEPTH", depth(a)),
            ("SHARED_DEPTH", depth(b)),
            ("REGISTERS", tiling.registers as i64),
        ]);
        defines
    };
    let mut gate_up = both([routed.gate_up, shared.gate_up]);
    gate_up.extend([
        ("COLS", hidden.next_multiple_of(UNIT) as i64),
        ("WIDTH", routed.width as i64),
        ("SHARED_WIDTH", shared.width as i64),
        ("NORM_BLOCKS", hidden as i64 / 32),
        ("WK", tiling.warps_k as i64),
        ("CLUSTER", tiling.gate_up_cluster as i64),
    ]);
    let gate_up = Program { name: "gate_up", source: include_str!("../../csrc/gate_up.cu"), defines: gate_up };
    if used == 0 {
        return vec![gate_up];
    }
    let mut down = both([routed.down, shared.down]);
    down.extend([
        ("ROWS", hidden as i64),
        ("COLS", routed.padded() as i64),
        ("SHARED_COLS", shared.padded() as i64),
        ("CLUSTER", tiling.down_cluster as i64),
    ]);
    vec![gate_up, Program { name: "down_sum", source: include_str!("../../csrc/down_sum.cu"), defines: down }]
}

/// Packed matrices of a layer, of the routed experts one after another.
#[derive(Clone, Copy)]
pub struct Matrices<'a> {
    /// Of the routed experts; empty if there are none.
    pub routed: &'a CudaView<'a, u8>,
    /// Of the shared one.
    pub shared: &'a CudaView<'a, u8>,
}

/// What the router decided for each row.
#[derive(Clone, Copy)]
pub struct Chosen<'a> {
    /// `[rows, used]`: experts; below 0 in rows that are none.
    pub experts: &'a CudaView<'a, i32>,
    /// `[rows, used + 1]`: their weights, then the shared one's.
    pub gates: &'a CudaView<'a, f32>,
}

/// Int8 rows between the two launches.
pub struct Between<'a, 'b> {
    /// `[rows, used, width rounded up to 128]`, what is beyond the width zeroed once.
    pub codes: &'a mut CudaViewMut<'b, i8>,
    /// `[rows, used, the same / 32, 2]`.
    pub meta: &'a mut CudaViewMut<'b, f32>,
    /// `[rows, shared width rounded up to 128]`, likewise.
    pub shared_codes: &'a mut CudaViewMut<'b, i8>,
    /// `[rows, the same / 32, 2]`.
    pub shared_meta: &'a mut CudaViewMut<'b, f32>,
}

/// Laid out as the parameter of `gate_up` is.
#[repr(C)]
#[derive(Clone, Copy)]
struct GateUpCall {
    routed: u64,
    shared: u64,
    codes: u64,
    meta: u64,
    squares: u64,
    experts: u64,
    hidden: u64,
    hidden_meta: u64,
    shared_hidden: u64,
    shared_meta: u64,
    rows: i32,
    eps: f32,
}

/// Laid out as the parameter of `down_sum` is.
#[repr(C)]
struct DownCall {
    routed: u64,
    shared: u64,
    hidden: u64,
    hidden_meta: u64,
    shared_hidden: u64,
    shared_meta: u64,
    experts: u64,
    gates: u64,
    x: u64,
    next: u64,
    next_codes: u64,
    next_meta: u64,
    next_squares: u64,
    early: i32,
}

/// The kernels of a layer's experts.
#[derive(Debug)]
pub struct ExpertsKernels {
    experts: Experts,
    tiling: Tiling,
    gate_up: [Kernel; 2],
    down: Option<Kernel>,
}

impl ExpertsKernels {
    /// Loads the kernels.
    ///
    /// # Errors
    /// If they cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, experts: Experts) -> Result<Self, CudaError> {
        Self::load_tiled(device, cache, experts, tiling(experts))
    }

    /// The same with another tiling than [`tiling`]'s.
    ///
    /// # Errors
    /// As [`ExpertsKernels::load`], and if the tiling cannot be launched.
    pub fn load_tiled(device: &Device, cache: &KernelCache, experts: Experts, tiling: Tiling) -> Result<Self, CudaError> {
        let Tiling { warps_k, gate_up_cluster: cluster, down_cluster, .. } = tiling;
        if ![1, 2, 4].contains(&warps_k) || ![1, 2, 4].contains(&cluster) || ![1, 2].contains(&down_cluster) {
            return Err(CudaError::shape("experts", format!("{tiling:?} cannot be launched")));
        }
        let programs = programs(experts, tiling);
        let module = device.module(cache, &programs[0])?;
        let gate_up = [module.kernel("gate_up_1")?, module.kernel("gate_up_8")?];
        let down = programs.get(1).map(|p| device.module(cache, p)?.kernel("down_sum")).transpose()?;
        Ok(Self { experts, tiling, gate_up, down })
    }

    /// Enqueues both launches for `rows` rows: `x[row] += sum over the experts`, then [`NextRows`] of `x`. `y` are the rows that gate and
    /// up read, with their norm; `next`'s buffers may be the same memory.
    ///
    /// # Errors
    /// If there are no routed experts, a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// `chosen` holds experts below the count: it is on the device and cannot be checked here.
    #[expect(clippy::too_many_arguments, reason = "each is a thing of its own")]
    pub unsafe fn launch(
        &self,
        device: &Device,
        gate_up: Matrices<'_>,
        down: Matrices<'_>,
        chosen: Chosen<'_>,
        y: Activations<'_>,
        norm: Norm<'_>,
        rows: usize,
        between: Between<'_, '_>,
        x: &mut CudaViewMut<'_, f32>,
        next: NextRows<'_, '_>,
    ) -> Result<(), CudaError> {
        let Experts { hidden, used, routed, shared, count } = self.experts;
        let Some(kernel) = &self.down else {
            return Err(CudaError::shape("experts", "there are none to choose from"));
        };
        self.check_gate_up(gate_up, chosen.experts, &y, &norm, rows, &between)?;
        let [of_routed, of_shared] = self.experts.down();
        fits("down of the routed experts", down.routed.len(), count * of_routed.bytes())?;
        fits("down of the shared expert", down.shared.len(), of_shared.bytes())?;
        fits("gates", chosen.gates.len(), rows * (used + 1))?;
        fits("the residual stream", x.len(), rows * hidden)?;
        next.check(rows, hidden)?;
        let stream = device.stream();
        let next_cols = hidden.next_multiple_of(UNIT);
        let pointers = [
            between.codes.device_ptr_mut(stream).0,
            between.meta.device_ptr_mut(stream).0,
            between.shared_codes.device_ptr_mut(stream).0,
            between.shared_meta.device_ptr_mut(stream).0,
        ];
        for first in (0..rows).step_by(ROWS_MAX) {
            let n = (rows - first).min(ROWS_MAX);
            // SAFETY: checked above for all rows; the caller vouches for the experts.
            unsafe { self.enqueue_gate_up(device, gate_up, chosen.experts, &y, norm, first, n, pointers) }?;
            let at = |pointer: u64, bytes: usize| pointer + (first * bytes) as u64;
            let mut call = DownCall {
                routed: down.routed.device_ptr(stream).0,
                shared: down.shared.device_ptr(stream).0,
                hidden: at(pointers[0], used * routed.padded()),
                hidden_meta: at(pointers[1], used * routed.padded() / 4),
                shared_hidden: at(pointers[2], shared.padded()),
                shared_meta: at(pointers[3], shared.padded() / 4),
                experts: at(chosen.experts.device_ptr(stream).0, used * 4),
                gates: at(chosen.gates.device_ptr(stream).0, (used + 1) * 4),
                x: at(x.device_ptr_mut(stream).0, hidden * 4),
                next: next.weight.device_ptr(stream).0,
                next_codes: at(next.codes.device_ptr_mut(stream).0, next_cols),
                next_meta: at(next.meta.device_ptr_mut(stream).0, next_cols / 4),
                next_squares: at(next.squares.device_ptr_mut(stream).0, hidden / 32 * 4),
                early: 1,
            };
            let cluster = if device.arch().has_clusters() { self.tiling.down_cluster } else { 1 };
            let grid = Grid { blocks: ((hidden / 32 * cluster) as u32, n as u32), threads: (2 * (used + 1) / cluster * 32) as u32 };
            // SAFETY: `DownCall` is the kernel's one parameter; the buffers were found large enough, the caller vouches for the experts.
            // Before its wait it reads weights, and what kernels before `gate_up` wrote: that one, right before, lets it start only
            // once they have ended.
            unsafe { kernel.launch(device, grid, &mut [(&raw mut call).cast::<c_void>()]) }?;
        }
        Ok(())
    }

    /// Enqueues gate and up alone: of a dense layer, or of experts whose down is done in another way.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// As [`ExpertsKernels::launch`].
    #[expect(clippy::too_many_arguments, reason = "each is a thing of its own")]
    pub unsafe fn launch_gate_up(
        &self,
        device: &Device,
        gate_up: Matrices<'_>,
        experts: &CudaView<'_, i32>,
        y: Activations<'_>,
        norm: Norm<'_>,
        rows: usize,
        between: Between<'_, '_>,
    ) -> Result<(), CudaError> {
        self.check_gate_up(gate_up, experts, &y, &norm, rows, &between)?;
        let stream = device.stream();
        let pointers = [
            between.codes.device_ptr_mut(stream).0,
            between.meta.device_ptr_mut(stream).0,
            between.shared_codes.device_ptr_mut(stream).0,
            between.shared_meta.device_ptr_mut(stream).0,
        ];
        for first in (0..rows).step_by(ROWS_MAX) {
            let n = (rows - first).min(ROWS_MAX);
            // SAFETY: checked above for all rows; the caller vouches for the experts.
            unsafe { self.enqueue_gate_up(device, gate_up, experts, &y, norm, first, n, pointers) }?;
        }
        Ok(())
    }

    fn check_gate_up(
        &self,
        weights: Matrices<'_>,
        experts: &CudaView<'_, i32>,
        y: &Activations<'_>,
        norm: &Norm<'_>,
        rows: usize,
        between: &Between<'_, '_>,
    ) -> Result<(), CudaError> {
        let Experts { hidden, count, used, routed, shared } = self.experts;
        let (cols, [of_routed, of_shared]) = (hidden.next_multiple_of(UNIT), self.experts.gate_up());
        fits("gate and up of the routed experts", weights.routed.len(), count * of_routed.bytes())?;
        fits("gate and up of the shared expert", weights.shared.len(), of_shared.bytes())?;
        fits("experts", experts.len(), rows * used)?;
        fits("codes", y.codes.len(), rows * cols)?;
        fits("meta", y.meta.len(), rows * cols / 16)?;
        fits("squares", norm.squares.len(), rows * hidden / 32)?;
        fits("codes of the experts", between.codes.len(), rows * used * routed.padded())?;
        fits("meta of the experts", between.meta.len(), rows * used * routed.padded() / 16)?;
        fits("codes of the shared expert", between.shared_codes.len(), rows * shared.padded())?;
        fits("meta of the shared expert", between.shared_meta.len(), rows * shared.padded() / 16)
    }

    /// Rows `first..first + n`, at most [`ROWS_MAX`].
    ///
    /// # Safety
    /// Every buffer is large enough for them, and holds experts below the count.
    #[expect(clippy::too_many_arguments, reason = "each is a thing of its own")]
    unsafe fn enqueue_gate_up(
        &self,
        device: &Device,
        weights: Matrices<'_>,
        experts: &CudaView<'_, i32>,
        y: &Activations<'_>,
        norm: Norm<'_>,
        first: usize,
        n: usize,
        between: [u64; 4],
    ) -> Result<(), CudaError> {
        let Experts { hidden, used, routed, shared, .. } = self.experts;
        let (stream, cols) = (device.stream(), hidden.next_multiple_of(UNIT));
        let at = |pointer: u64, bytes: usize| pointer + (first * bytes) as u64;
        let mut call = GateUpCall {
            routed: weights.routed.device_ptr(stream).0,
            shared: weights.shared.device_ptr(stream).0,
            codes: at(y.codes.device_ptr(stream).0, cols),
            meta: at(y.meta.device_ptr(stream).0, cols / 4),
            squares: at(norm.squares.device_ptr(stream).0, hidden / 32 * 4),
            experts: at(experts.device_ptr(stream).0, used * 4),
            hidden: at(between[0], used * routed.padded()),
            hidden_meta: at(between[1], used * routed.padded() / 4),
            shared_hidden: at(between[2], shared.padded()),
            shared_meta: at(between[3], shared.padded() / 4),
            rows: n as i32,
            eps: norm.eps,
        };
        let cluster = if device.arch().has_clusters() { self.tiling.gate_up_cluster } else { 1 };
        let groups = shared.width / 32 + n * used * (routed.width / 32);
        let grid = Grid { blocks: ((groups * cluster) as u32, 1), threads: (4 * self.tiling.warps_k / cluster * 32) as u32 };
        let kernel = &self.gate_up[usize::from(n > 1)];
        // SAFETY: `GateUpCall` is the kernel's one parameter; the caller vouches for the buffers. Before its wait it reads weights only.
        unsafe { kernel.launch(device, grid, &mut [(&raw mut call).cast::<c_void>()]) }
    }
}

fn fits(what: &str, got: usize, need: usize) -> Result<(), CudaError> {
    if got >= need { Ok(()) } else { Err(CudaError::shape("experts", format!("{what} has {got} elements, {need} are needed"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { width: 512, gate_up: Layout::Q4_K, down: Layout::Q4_K };

    #[test]
    fn experts_of_every_family_member_fit_and_broken_blocks_are_refused() {
        for (hidden, count, used, width) in [(2048, 256, 8, 512), (4096, 512, 10, 1024), (256, 16, 4, 128), (32, 16, 4, 32)] {
            let kind = Kind { width, ..KIND };
            assert!(Experts::new(hidden, count, used, kind, kind).is_ok(), "{hidden} {count} {used} {width}");
        }
        let error = |used, width| Experts::new(2048, 256, used, Kind { width, ..KIND }, KIND).unwrap_err().to_string();
        assert!(error(8, 48).contains("48 values"));
        assert!(error(16, 512).contains("16 of 256"));
        assert!(error(10, 8192).contains("too wide"));
        assert_eq!(
            programs(Experts::new(2048, 0, 0, KIND, KIND).unwrap(), tiling(Experts::new(2048, 0, 0, KIND, KIND).unwrap())).len(),
            1
        );
    }
}
