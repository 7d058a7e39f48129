//! Products of quantised matrices with many int8 rows, and what follows them at once: see [`Epilogue`].
//!
//! `csrc/wide/wide.cu` says how, and for very many rows [`warpgroup`] does it in f16. An output depends on the
//! [`WideTiling`], or on its [`Order`] if it has one, and on its own row alone, not on the rows beside it. With
//! [`Columns::Listed`] one launch does several matrices of one shape, each with its own rows: the experts of a layer.

pub mod halves;
pub mod lora_shrink;
mod many;
mod tiling;
pub mod warpgroup;

pub use crate::cuda::product::Epilogue;
pub use many::{HalfPlace, Halved, Many, Source, WideArithmetic};
pub use tiling::{Chip, Order, WideTiling, tiling, tiling_in};

use crate::cuda::lora::{LORA, Lora, LoraParts};
use crate::cuda::product::layout::{Codes, UNIT};
use crate::cuda::product::{self, layout_defines};
use crate::cuda::rows::quantized::{BLOCK, Planes};
use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::stack::Stack;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaView, CudaViewMut};
use halves::HalfRows;

/// A product that a kernel can be made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WideShape {
    matrix: product::MatrixShape,
    epilogue: Epilogue,
    norm: usize,
    dense: bool,
    placed: bool,
    half_rows: bool,
}

impl WideShape {
    /// `matrix` and what follows. `norm`: the width of the rms norm that is folded into the activations, if there is
    /// one. `dense`: whether it is one matrix for all rows, not one of several.
    ///
    /// # Errors
    /// If the outputs of an epilogue that quantises are not whole blocks of 32, or `norm` is not.
    pub fn new(
        matrix: product::MatrixShape,
        epilogue: Epilogue,
        norm: Option<usize>,
        dense: bool,
    ) -> Result<Self, CudaError> {
        let (rows, cols) = matrix.size();
        let whole = epilogue.block_rows();
        if !rows.is_multiple_of(whole) {
            return Err(CudaError::shape(
                "wide",
                format!("{rows} rows with {epilogue:?}: must be a multiple of {whole}"),
            ));
        }
        let norm = norm.unwrap_or(0);
        if !norm.is_multiple_of(BLOCK) || norm > cols {
            return Err(CudaError::shape(
                "wide",
                format!("a norm over {norm} of {cols} inputs: must be a multiple of {BLOCK}"),
            ));
        }
        Ok(Self { matrix, epilogue, norm, dense, placed: false, half_rows: false })
    }

    /// Sets the number of int8 codes for each activation, which is one by default.
    pub fn with_planes(self, planes: Planes) -> Self {
        Self { matrix: self.matrix.with_planes(planes), ..self }
    }

    /// Sets whether adapters add to the products: see [`crate::cuda::lora`].
    pub fn with_adapters(self, adapted: bool) -> Self {
        Self { matrix: self.matrix.with_adapters(adapted), ..self }
    }

    /// Sets whether matrices lie wherever a table says ([`Stack::Placed`]) or, by default, one after another.
    pub fn with_places(self, placed: bool) -> Self {
        Self { placed, ..self }
    }

    /// Sets whether activated rows become f16 at once ([`Output::HalfRows`]). Only products of warpgroups write such
    /// rows and read them.
    pub fn with_half_rows(self, half_rows: bool) -> Self {
        Self { half_rows, ..self }
    }

    /// Whether the rows that it makes can be f16 at once: whole units of them, activated.
    pub fn may_make_half_rows(&self) -> bool {
        self.epilogue.is_activated() && self.outputs().is_multiple_of(UNIT) && self.matrix.planes() == Planes::One
    }

    /// Whether the rows that it makes become f16 at once: see [`WideShape::with_half_rows`].
    pub fn makes_half_rows(&self) -> bool {
        self.half_rows
    }

    /// Whether rows that it makes are whole rows for `next`, which have nothing else in them.
    pub fn fills(&self, next: Self) -> bool {
        self.outputs() == next.matrix.size().1
    }

    /// Values of a row that it makes.
    fn outputs(&self) -> usize {
        let rows = self.matrix.size().0;
        if self.epilogue == Epilogue::Gated { rows / 2 } else { rows }
    }

    /// What is done with the sums.
    pub fn epilogue(&self) -> Epilogue {
        self.epilogue
    }

    /// Width of the folded norm.
    pub fn norm(&self) -> Option<usize> {
        (self.norm > 0).then_some(self.norm)
    }

    /// Whether it is one matrix for all rows.
    pub fn dense(&self) -> bool {
        self.dense
    }

    /// Shape of the matrix, or of each of several where columns are listed.
    pub fn matrix(&self) -> product::MatrixShape {
        self.matrix
    }

    /// What the sources know it by, without the planes of its activations.
    fn defines(&self) -> Vec<(&'static str, i64)> {
        let layout = self.matrix.layout();
        let (rows, cols) = self.matrix.size();
        let mut defines = layout_defines(product::DEFINES, layout);
        defines.extend([
            ("WITH_GRID", i64::from(layout.codes == Codes::Grid)),
            ("LISTED", i64::from(!self.dense)),
            ("ROWS", rows as i64),
            ("COLS", cols as i64),
            ("EPILOGUE", self.epilogue as i64),
            ("NORM_BLOCKS", (self.norm / BLOCK) as i64),
            ("PLACED", i64::from(self.placed)),
            ("HALF_ROWS", i64::from(self.half_rows)),
        ]);
        if self.half_rows {
            defines.push(("HIDDEN_FACTOR", halves::HIDDEN_FACTOR));
        }
        defines.extend(self.matrix.adapted().then_some(LORA));
        defines
    }
}

/// The program of a shape.
///
/// # Errors
/// If there is no such tiling for it.
pub fn program(shape: WideShape, tiling: WideTiling) -> Result<Program, CudaError> {
    tiling.check(shape)?;
    if shape.half_rows {
        return Err(CudaError::shape("wide", format!("{shape:?}: what is made of int8 rows is int8")));
    }
    let mut defines = shape.defines();
    defines.extend([
        ("TW", tiling.tiles as i64),
        ("WR", tiling.warps_rows as i64),
        ("NW", tiling.octets as i64),
        ("WN", tiling.warps_columns as i64),
        ("KG", tiling.groups as i64),
        ("KU", tiling.units as i64),
        ("SPLIT", tiling.split as i64),
        ("STAGES", tiling.stages as i64),
        ("SEGMENTS", tiling.order.map_or(0, |order| order.segments as i64)),
        ("BY_HALVES", tiling.order.map_or(0, |order| i64::from(order.by_halves))),
        shape.matrix.planes().define(),
    ]);
    Ok(Program::naming::<LoraParts, Arguments>("wide", source!("wide/wide.cu"), defines))
}

/// The kernel of one shape and tiling.
#[derive(Debug)]
pub struct Wide {
    shape: WideShape,
    tiling: WideTiling,
    kernel: Kernel<Arguments>,
}

/// Int8 activation rows, `[rows, cols]`, as [`crate::cuda::rows::quantized`] describes them.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// `[rows, cols * planes]`.
    pub codes: &'a CudaView<'a, i8>,
    /// `[rows, cols / 32 * planes, 2]`.
    pub meta: &'a CudaView<'a, f32>,
    /// `[rows, norm / 32]`, where the shape has a norm.
    pub squares: Option<&'a CudaView<'a, f32>>,
    /// Epsilon of that norm.
    pub eps: f32,
    /// Factor of every sum, applied before the epilogue.
    pub factor: f32,
    /// What adapters add, of shapes that have some.
    pub lora: Option<Lora<'a>>,
}

/// Which rows are multiplied with what.
#[derive(Clone, Copy)]
pub enum Columns<'a> {
    /// Rows `0..n` with the one matrix, into rows `0..n`.
    First(usize),
    /// Slot `s` is `{matrix, first, count, 0}` and takes the columns `first..first + count` of the lists. Slots with
    /// columns come in ascending order of `first` and share no columns.
    Listed {
        /// Rows of the activations: those that `in_rows` may name.
        rows: usize,
        /// Matrix, first column and number of columns of each slot, and a zero: `[slots, 4]`.
        slots: &'a CudaView<'a, i32>,
        /// `[columns]`: row of the activations. Its length is the most columns that all slots have together.
        in_rows: &'a CudaView<'a, i32>,
        /// `[columns]`: row of the outputs.
        out_rows: &'a CudaView<'a, i32>,
        /// Where it is not 0, slot `s` has its columns from `s * pitch` on, `pitch` at most: a block then reads which
        /// they are beside its slot and not after it, and does all of its slot's.
        pitch: usize,
        /// Whether a launch of listed columns stands between the one that wrote the lists and this one: then they are
        /// read, and weights asked for, before the launch ahead of this one has ended.
        early: bool,
    },
}

/// Where the result goes; the variant is that of the shape's epilogue.
pub enum Output<'a, 'b> {
    /// Sums as rows of f32.
    Plain {
        /// Sums, `[rows, stride]`; values behind the matrix's rows stay as they are.
        values: &'a mut CudaViewMut<'b, f32>,
        /// Values from one row to the next.
        stride: usize,
    },
    /// Sums as rows of f16, for values that are read once more and then added up.
    Halves {
        /// Memory of `[rows, stride]` f16, two in each of these.
        values: &'a mut CudaViewMut<'b, f32>,
        /// Values from one row to the next.
        stride: usize,
    },
    /// The residual stream and what the next products read.
    Residual {
        /// `[rows, outputs]`, read and written.
        x: &'a mut CudaViewMut<'b, f32>,
        /// `[outputs]`, of the norm that follows.
        weight: &'a CudaView<'a, f32>,
        /// `[rows, stride * planes]`.
        codes: &'a mut CudaViewMut<'b, i8>,
        /// `[rows, stride / 32 * planes, 2]`.
        meta: &'a mut CudaViewMut<'b, f32>,
        /// `[rows, outputs / 32]`.
        squares: &'a mut CudaViewMut<'b, f32>,
        /// Values from one row to the next, a multiple of 32.
        stride: usize,
    },
    /// Rows of f16 of the same values, where the shape makes such: as products of warpgroups read them, each with
    /// [`halves::HIDDEN_FACTOR`] for its scale ([`HalfRows::of_hidden`]).
    HalfRows {
        /// `[outputs / 64, rows, 64]`.
        rows: &'a HalfRows,
        /// How many there are, of all that the lists name.
        count: usize,
    },
    /// Int8 rows, gated of half as many values as the matrix has rows.
    Activated {
        /// `[rows, stride * planes]`.
        codes: &'a mut CudaViewMut<'b, i8>,
        /// `[rows, stride / 32 * planes, 2]`.
        meta: &'a mut CudaViewMut<'b, f32>,
        /// Values from one row to the next, a multiple of 32.
        stride: usize,
    },
}

device_struct! {
    /// Parameters of the kernel.
    #[derive(Default)]
    struct Arguments {
        weights: Ptr<u8>,
        /// `[.., cols * planes]`.
        codes: Ptr<i8>,
        /// `[.., cols / 32 * planes]`.
        meta: Ptr<[f32; 2]>,
        /// With `HALVES`: `[.., cols]`, as [`halves`] writes them, and what each row is multiplied by.
        halves: Ptr<u16>,
        row_scales: Ptr<f32>,
        /// By row of codes: `[.., blocks of the norm]`.
        squares: Ptr<f32>,
        /// Plain, residual: `[.., out_stride]`.
        out: PtrMut<f32>,
        /// Residual: `[rows]`, of the norm that follows.
        weight: Ptr<f32>,
        /// `[.., code_stride * planes]`, residual, squared: of `rows` values, gated: of half as many.
        out_codes: PtrMut<i8>,
        /// `[.., code_stride / 32 * planes]`.
        out_meta: PtrMut<[f32; 2]>,
        /// With `HALF_ROWS`: `[outputs / 64, out_half_rows, 64]`.
        out_halves: PtrMut<u16>,
        /// Residual: `[.., rows / 32]`.
        out_squares: PtrMut<f32>,
        /// With `PLACED`: where the place of each matrix begins.
        places: Ptr<u64>,
        /// Of shapes with adapters.
        lora: LoraParts,
        /// Matrix, first, count, nothing; or null: columns 0 to `count` of matrix 0.
        slots: Ptr<[i32; 4]>,
        /// With slots, by column: row of codes.
        in_rows: Ptr<i32>,
        /// With slots, by column: row of out.
        out_rows: Ptr<i32>,
        /// From a matrix to the next; with `PLACED` from where a place begins to its matrix.
        matrix_bytes: u64,
        slot_count: i32,
        /// Whether a block takes one tile of columns of its slot, or all of them in turn.
        spread: i32,
        /// Columns from one slot's to the next one's, or 0.
        pitch: i32,
        count: i32,
        /// Number of rows in `halves`, which lie by 64 columns.
        half_rows: i32,
        out_half_rows: i32,
        out_stride: i32,
        /// Whether every row of out begins at a multiple of 16 bytes.
        aligned: i32,
        /// Plain: `out` is `[.., out_stride]` f16.
        half_out: i32,
        code_stride: i32,
        eps: f32,
        factor: f32,
        /// Whether slots and lists may be read before the wait.
        early: i32,
    }
}

impl Wide {
    /// Loads the kernel.
    ///
    /// # Errors
    /// If there is no such tiling for the shape, or the kernel cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, shape: WideShape, tiling: WideTiling) -> Result<Self, CudaError> {
        if tiling.split > 1 && !device.arch().has_clusters() {
            return Err(CudaError::shape("wide", format!("{tiling:?}: {} has no clusters of blocks", device.arch())));
        }
        let module = device.module(cache, &program(shape, tiling)?)?;
        let kernel = module.kernel("wide")?.with_shared(tiling.shared_bytes(shape.matrix))?;
        Ok(Self { shape, tiling, kernel })
    }

    /// How the product is cut up.
    pub fn tiling(&self) -> WideTiling {
        self.tiling
    }

    /// Enqueues the product. `weights` are one or more packed matrices, placed if the shape's are.
    ///
    /// # Errors
    /// If a buffer is too small, the output is not that of the shape's epilogue, or the driver refuses.
    ///
    /// # Safety
    /// What the lists of [`Columns::Listed`] name lies within `weights`, the inputs and the output, and no row of the
    /// output is named twice: they are on the device and cannot be checked here. [`Columns::First`] asks for nothing.
    pub unsafe fn launch<'a>(
        &self,
        device: &Device,
        weights: impl Into<Stack<'a>>,
        x: Inputs<'_>,
        columns: Columns<'_>,
        out: Output<'_, '_>,
    ) -> Result<(), CudaError> {
        self.shape.check_inputs(&x, columns.rows())?;
        let work = WideLaunch::of(device, self.shape, &weights.into(), columns, out, self.tiling.block_columns())?;
        let arguments = Arguments {
            codes: Ptr::of(x.codes, device.stream()),
            meta: Ptr::of(x.meta, device.stream()),
            squares: Ptr::of_some(x.squares, device.stream()),
            lora: self.shape.lora("wide", x.lora, columns.rows(), device)?,
            eps: x.eps,
            factor: x.factor,
            ..work.arguments
        };
        if work.column_blocks == 0 {
            return Ok(());
        }
        let row_blocks = self.shape.matrix.size().0.div_ceil(self.tiling.block_rows());
        let grid = Grid {
            blocks: ((row_blocks * self.tiling.split) as u32, work.column_blocks as u32),
            threads: (32 * self.tiling.warps()) as u32,
        };
        // SAFETY: every buffer was found large enough for columns that are not listed, the caller vouches for those
        // that are. Before its wait the kernel reads weights only.
        unsafe { self.kernel.launch(device, grid, &arguments) }
    }
}

impl Columns<'_> {
    /// Rows of the activations.
    pub fn rows(&self) -> usize {
        let (Self::First(rows) | Self::Listed { rows, .. }) = self;
        *rows
    }
}

/// What a launch is given of all but the activations, and how many blocks its columns take.
struct WideLaunch {
    arguments: Arguments,
    column_blocks: usize,
}

impl WideLaunch {
    fn of(
        device: &Device,
        shape: WideShape,
        weights: &Stack<'_>,
        columns: Columns<'_>,
        out: Output<'_, '_>,
        block_columns: usize,
    ) -> Result<Self, CudaError> {
        shape.check(weights, &columns, &out)?;
        let stream = device.stream();
        let (weights, places, matrix_bytes) = weights.arguments(shape.matrix.bytes(), stream);
        let mut arguments = Arguments { weights, places, matrix_bytes, ..Arguments::default() };
        let column_blocks = match columns {
            Columns::First(n) => {
                arguments.count = n as i32;
                n.div_ceil(block_columns)
            }
            Columns::Listed { slots, in_rows, out_rows, pitch, early, .. } => {
                let n = slots.len() / 4;
                arguments.slots = Ptr::of(slots, stream);
                arguments.in_rows = Ptr::of(in_rows, stream);
                arguments.out_rows = Ptr::of(out_rows, stream);
                arguments.slot_count = n as i32;
                let spread = pitch == 0 && spreads(n, in_rows.len(), block_columns);
                arguments.pitch = pitch as i32;
                arguments.early = i32::from(early);
                arguments.spread = i32::from(spread);
                if spread { n + in_rows.len() / block_columns } else { n }
            }
        };
        arguments.write_to(out, shape.matrix.size().0, device);
        Ok(Self { arguments, column_blocks })
    }
}

impl Arguments {
    /// Where the result goes, of a matrix of so many rows.
    fn write_to(&mut self, out: Output<'_, '_>, rows: usize, device: &Device) {
        let stream = device.stream();
        match out {
            Output::Plain { values, stride } => {
                self.out = PtrMut::of(values, stream);
                self.out_stride = stride as i32;
                self.aligned = i32::from(stride % 4 == 0 && self.out.address().is_multiple_of(16));
            }
            Output::Halves { values, stride } => {
                self.write_to(Output::Plain { values, stride }, rows, device);
                self.aligned &= i32::from(stride % 8 == 0);
                self.half_out = 1;
            }
            Output::Residual { x, weight, codes, meta, squares, stride } => {
                self.out = PtrMut::of(x, stream);
                self.out_stride = rows as i32;
                self.weight = Ptr::of(weight, stream);
                self.out_codes = PtrMut::of(codes, stream);
                self.out_meta = PtrMut::of(meta, stream);
                self.out_squares = PtrMut::of(squares, stream);
                self.code_stride = stride as i32;
            }
            Output::HalfRows { rows, count } => {
                self.out_halves = rows.pointers_mut(device).0;
                self.out_half_rows = count as i32;
            }
            Output::Activated { codes, meta, stride } => {
                self.out_codes = PtrMut::of(codes, stream);
                self.out_meta = PtrMut::of(meta, stream);
                self.code_stride = stride as i32;
            }
        }
    }
}

/// That a buffer of an operand has what `n` columns of a matrix need.
fn fits(what: &str, got: usize, need: usize, n: usize, (rows, cols): (usize, usize)) -> Result<(), CudaError> {
    let text = || format!("{what} has {got} elements, {n} columns of {rows} x {cols} need {need}");
    if got >= need { Ok(()) } else { Err(CudaError::shape("wide", text())) }
}

impl WideShape {
    /// What adapters add to `rows` rows, as the kernels are given it.
    fn lora(
        &self,
        name: &'static str,
        lora: Option<Lora<'_>>,
        rows: usize,
        device: &Device,
    ) -> Result<LoraParts, CudaError> {
        Lora::check(name, lora.as_ref(), self.matrix.adapted(), rows, self.matrix.size().0)?;
        Ok(lora.map_or_else(LoraParts::default, |lora| lora.parts(device.stream())))
    }

    fn check_inputs(&self, x: &Inputs<'_>, n: usize) -> Result<(), CudaError> {
        let (size, planes) = (self.matrix.size(), self.matrix.planes().count());
        fits("codes", x.codes.len(), n * size.1 * planes, n, size)?;
        fits("meta", x.meta.len(), n * size.1 / 16 * planes, n, size)?;
        fits("squares", x.squares.map_or(0, |s| s.len()), n * self.norm / BLOCK, n, size)
    }

    fn check(&self, weights: &Stack<'_>, columns: &Columns<'_>, out: &Output<'_, '_>) -> Result<(), CudaError> {
        let (rows, cols) = self.matrix.size();
        let n = if let Columns::First(n) = columns { *n } else { 1 };
        let fits = |what: &str, got: usize, need: usize| fits(what, got, need, n, (rows, cols));
        let wrong = |what: String| Err(CudaError::shape("wide", what));
        if weights.placed() != self.placed {
            return wrong("matrices are placed for kernels that were made for such, and for no others".into());
        }
        fits("the matrices", weights.count(self.matrix.bytes()), 1)?;
        let planes = self.matrix.planes().count();
        if let Columns::Listed { slots, in_rows, out_rows, pitch, .. } = columns {
            fits("the list of rows", in_rows.len(), slots.len() / 4 * pitch)?;
            fits("the list of output rows", out_rows.len(), in_rows.len())?;
        }
        let strided = |len: usize, stride: usize| n.saturating_sub(1) * stride + if n > 0 { len } else { 0 };
        let int8 = |codes: &CudaViewMut<'_, i8>, meta: &CudaViewMut<'_, f32>, values: usize, stride: usize| {
            if stride < values || !stride.is_multiple_of(BLOCK) {
                return wrong(format!("rows of {values} int8 values cannot lie {stride} apart"));
            }
            fits("the output's codes", codes.len(), strided(values, stride) * planes)?;
            fits("the output's meta", meta.len(), strided(values, stride) / 16 * planes)
        };
        match (self.epilogue, out) {
            (Epilogue::Plain, Output::Plain { values, stride }) => {
                fits("a row of the output", *stride, rows)?;
                fits("the output", values.len(), strided(rows, *stride))
            }
            (Epilogue::Plain, Output::Halves { values, stride }) => {
                fits("a row of the output", *stride, rows)?;
                fits("the output in f16", 2 * values.len(), strided(rows, *stride))
            }
            (Epilogue::Residual, Output::Residual { x, weight, codes, meta, squares, stride }) => {
                fits("the residual stream", x.len(), n * rows)?;
                fits("the norm's weight", weight.len(), rows)?;
                fits("the output's squares", squares.len(), n * rows / BLOCK)?;
                int8(codes, meta, rows, *stride)
            }
            (_, Output::HalfRows { rows, count }) if self.half_rows => {
                fits("the list of output rows", *count, n)?;
                rows.check(*count, self.outputs())
            }
            _ if self.half_rows => wrong("the output given is not rows of f16".into()),
            (Epilogue::Gated, Output::Activated { codes, meta, stride }) => int8(codes, meta, rows / 2, *stride),
            (Epilogue::Squared | Epilogue::Rounded, Output::Activated { codes, meta, stride }) => {
                int8(codes, meta, rows, *stride)
            }
            (epilogue, _) => wrong(format!("the output given is not {epilogue:?}")),
        }
    }
}

/// Whether each tile of columns gets its own block, or a slot's block does all of its columns in turn. Outputs are the
/// same. Finding one's slot costs a look at all of them, so only where slots are expected to have more than half a tile
/// of columns.
fn spreads(slots: usize, columns: usize, block_columns: usize) -> bool {
    2 * columns > slots * block_columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::product::layout::Layout;

    #[test]
    fn few_columns_an_expert_are_done_in_turn_and_many_are_spread() {
        assert!(!spreads(256, 512, 8));
        assert!(!spreads(256, 2048, 16));
        assert!(spreads(256, 16384, 64));
    }

    #[test]
    fn epilogues_that_quantise_want_whole_blocks() {
        let matrix = |rows| product::MatrixShape::new(Layout::Q8_0, rows, 256).unwrap();
        assert!(WideShape::new(matrix(40), Epilogue::Plain, None, true).is_ok());
        let error = WideShape::new(matrix(96), Epilogue::Gated, None, true).unwrap_err().to_string();
        assert!(error.contains("96 rows with Gated: must be a multiple of 64"), "{error}");
        assert!(
            WideShape::new(matrix(96), Epilogue::Residual, Some(512), true).is_err(),
            "a norm over more than there is"
        );
    }

    #[test]
    fn the_choice_is_legal_for_every_layout_and_size() {
        for layout in product::sample::LAYOUTS {
            for (rows, cols) in [(64, 256), (1024, 2048), (2048, 512), (12416, 2048), (5120, 17408)] {
                let epilogues = [
                    (Epilogue::Plain, false),
                    (Epilogue::Residual, true),
                    (Epilogue::Gated, true),
                    (Epilogue::Squared, true),
                    (Epilogue::Squared, false),
                    (Epilogue::Rounded, true),
                ];
                for (planes, (epilogue, dense)) in Planes::ALL.into_iter().flat_map(|p| epilogues.map(|e| (p, e))) {
                    let matrix = product::MatrixShape::new(layout, rows, cols).unwrap().with_planes(planes);
                    let shape = WideShape::new(matrix, epilogue, Some(256), dense).unwrap();
                    for columns in [1, 8, 16, 24, 32, 64, 256, 4096] {
                        for (clusters, shared) in [(true, 227 << 10), (false, 99 << 10)] {
                            let chip = Chip { multiprocessors: 132, clusters, shared_bytes: shared, warpgroups: false };
                            let tiling = tiling(shape, columns, chip);
                            let ordered = [(1, true), (4, true), (1, false), (4, false), (8, false)]
                                .map(|(segments, by_halves)| Order { segments, by_halves })
                                .into_iter()
                                .filter(|order| order.segments * UNIT <= cols)
                                .map(|order| tiling_in(order, shape, columns, chip));
                            for tiling in ordered.chain([tiling]) {
                                tiling.check(shape).unwrap();
                                assert!(tiling.shared_bytes(matrix) <= shared, "{tiling:?} of {shape:?}");
                                assert!(clusters || tiling.split == 1);
                            }
                        }
                    }
                }
            }
        }
    }
}
