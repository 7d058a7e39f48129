//! The experts of a layer: their widths, how their matrices are stored, and how rows choose them.

use crate::cuda::CudaError;
use crate::cuda::product::MatrixShape;
use crate::cuda::product::layout::{Codes, Layout, Scales, TILE_ROWS, UNIT};
use crate::cuda::rows::quantized::Planes;

const USED_MAX: usize = 15;
const COUNT_MAX: usize = 512;
/// Tiles of gate and up that a block does at a time: 32 values of h, or 64 of up alone.
pub(super) const TILES: usize = 4;

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
    pub(super) fn padded(self) -> usize {
        self.width.next_multiple_of(UNIT)
    }
}

/// The experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Experts {
    pub(super) hidden: usize,
    pub(super) count: usize,
    pub(super) used: usize,
    pub(super) routed: ExpertShape,
    pub(super) shared: ExpertShape,
    pub(super) planes: Planes,
    pub(super) placed: bool,
    pub(super) squared: bool,
    pub(super) sigmoid: bool,
    pub(super) replayed: bool,
    /// Largest rank of adapters that may add to the shared expert's products; 0 for kernels that know none.
    pub(super) adapter_rank: usize,
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
        let (placed, squared, sigmoid, replayed, planes) = (false, false, false, false, Planes::One);
        let adapter_rank = 0;
        Ok(Self { hidden, count, used, routed, shared, planes, placed, squared, sigmoid, replayed, adapter_rank })
    }

    /// Sets the number of int8 codes for each value of the rows, which is one by default.
    pub fn with_planes(self, planes: Planes) -> Self {
        Self { planes, ..self }
    }

    /// Sets whether routed experts lie wherever a table says ([`crate::cuda::stack::Stack::Placed`]) or, by default,
    /// one after another.
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

    /// Sets whether rows take the experts of [`super::Routing::given`] instead of choosing; for benchmarks.
    pub fn with_replay(self, replayed: bool) -> Self {
        Self { replayed, ..self }
    }

    /// Sets the largest rank of adapters that add to the shared expert's products ([`crate::cuda::lora`]); kernels that
    /// know adapters are others than those that know none, which is the default.
    pub fn with_adapters(self, rank_max: usize) -> Self {
        Self { adapter_rank: rank_max, ..self }
    }

    /// Outputs of the shared expert's gate and up.
    pub(super) fn shared_outputs(&self) -> usize {
        if self.squared { self.shared.width } else { 2 * self.shared.width }
    }

    /// Whether adapters add to the shared expert's products.
    pub(super) fn adapted(&self) -> bool {
        self.adapter_rank > 0
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
    pub(super) fn scores(&self) -> usize {
        (self.count + 1).next_multiple_of(8)
    }

    pub(super) fn layouts(&self) -> [Layout; 4] {
        [self.routed.gate_up, self.shared.gate_up, self.routed.down, self.shared.down]
    }

    pub(super) fn has_grid(&self) -> bool {
        self.layouts().iter().any(|l| l.codes == Codes::Grid)
    }

    /// Whether codes of any are floats, which are multiplied in f16.
    pub(super) fn has_floats(&self) -> bool {
        self.layouts().iter().any(|l| matches!(l.codes, Codes::E4m3 | Codes::E2m1))
    }

    pub(super) fn has_minima(&self) -> bool {
        self.layouts().iter().any(|l| l.scales == Scales::Min)
    }
}
