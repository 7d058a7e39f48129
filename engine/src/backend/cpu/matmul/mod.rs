//! Products of packed weight matrices with rows of activations.
//!
//! A [`PackedMatrix`] is made once at load: tiles of 16 output rows, interleaved so that a vector's lanes are output
//! rows. No lane is ever summed with another, and each output is accumulated over its inputs in one fixed order, so a
//! product has **the same bytes** on every instruction set, for any number of rows in flight and however tiles are
//! shared among threads.
//!
//! [`matmul`] itself runs on the calling thread. A team of threads calls it with ranges of tiles that do not overlap.
//!
//! Quantised weights read the int8 form of the activations ([`ActivationRows::quantize`]), float weights the values
//! themselves; a matrix packed as `exact` is decoded and multiplied in f32. What each product is, operation by
//! operation, stands in `scalar.rs`.

#![allow(
    clippy::needless_range_loop,
    reason = "kernels loop over numbers: an iterator is a function, which may be compiled without its caller's instruction set"
)]

#[cfg(target_arch = "x86_64")]
mod ahead;
#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod floats;
mod layout;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pack;
mod qblock;
mod quantize;
mod rows;
mod scalar;
#[cfg(test)]
mod tests;
mod watch;

pub use super::isa::{Isa, IsaError};
pub(crate) use qblock::BLOCK;
pub use rows::{ActivationRows, RowsView};
pub use watch::InputSums;

use crate::format::blocks::{decode_row, encode_row, is_finite};
use crate::format::{BlockType, NotFinite, Tensor};
use crate::lines::{LINE_BYTES, Lines};
use floats::{E4M3_FACTOR, FloatForm, GROUP_COLS};
use layout::{Layout, layout};
use qblock::QBlock;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::OnceLock;

/// Output rows of a tile.
pub const TILE_ROWS: usize = 16;

/// One matrix `[rows, cols]` in tiles. Rows that fill up the last tile are zeros.
pub struct PackedMatrix {
    rows: usize,
    cols: usize,
    /// What each output is multiplied with.
    scales: RowScales,
    form: PackedForm,
    tile_bytes: usize,
    data: Lines,
    source: MatrixSource,
    /// What it is multiplied with, once somebody wants to know.
    seen: OnceLock<InputSums>,
}

/// The tensor that a matrix was packed from, and which matrix of the stack it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatrixSource {
    /// The tensor's name in the file.
    pub tensor: String,
    /// Place in the stack.
    pub index: usize,
}

/// What the outputs of a matrix are multiplied with.
enum RowScales {
    One([f32; TILE_ROWS]),
    /// For each tile its rows'.
    Rows(Vec<[f32; TILE_ROWS]>),
}

impl RowScales {
    /// Those of matrix `index` of a stack, times `factor`.
    fn of(t: &Tensor, index: usize, factor: f32) -> Self {
        if t.scale.as_ref().is_none_or(|s| s.len() <= t.matrices()) {
            return Self::One([t.row_scale(index, 0) * factor; TILE_ROWS]);
        }
        let scale = |row: usize| if row < t.rows() { t.row_scale(index, row) * factor } else { 0.0 };
        let tile = |tile: usize| std::array::from_fn(|lane| scale(tile * TILE_ROWS + lane));
        Self::Rows((0..t.rows().div_ceil(TILE_ROWS)).map(tile).collect())
    }
}

#[derive(Clone, Copy, Debug)]
enum PackedForm {
    /// `[cols to a multiple of 4][16 rows]`, and scales behind them where the form has some.
    Float(FloatForm),
    /// Quantised blocks, as [`layout`] describes them.
    Blocks(Layout),
}

/// What a matrix multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowForm {
    /// The int8 form, up to date after [`ActivationRows::quantize`].
    Q8,
    /// The rows' f32 values as they are.
    F32,
}

impl PackedMatrix {
    /// Matrix `index` of the stack `t`, whose weights are finite numbers. With `exact`, weights are decoded and read
    /// f32 activations.
    pub fn pack(t: &Tensor, index: usize, exact: bool) -> Result<Self, NotFinite> {
        let rows: Vec<&[u8]> = (0..t.rows()).map(|r| t.row(index, r)).collect();
        let bad = |row: usize| NotFinite { tensor: t.name.clone(), row: index * t.rows() + row };
        let packed = match (FloatForm::of(t.ty), layout(t.ty)) {
            (Some(form), _) => Self::pack_floats((t.ty, form), t.cols(), &rows),
            _ if exact => Self::reencoded(t.ty, BlockType::F32, t.cols(), &rows, |r| {
                Self::pack_floats((BlockType::F32, FloatForm::F32), t.cols(), r)
            }),
            (None, Some(layout)) => Self::pack_blocks(t.ty, layout, t.cols(), &rows),
            (None, None) => {
                let q8 = layout(BlockType::Q8_0).expect("Q8_0 has a layout");
                Self::reencoded(t.ty, BlockType::Q8_0, t.cols(), &rows, |r| {
                    Self::pack_blocks(BlockType::Q8_0, q8, t.cols(), r)
                })
            }
        };
        let packed = packed.map_err(bad)?;
        let factor = if let PackedForm::Blocks(layout) = packed.form { layout.factor } else { 1.0 };
        let scales = RowScales::of(t, index, factor);
        Ok(Self { source: MatrixSource { tensor: t.name.clone(), index }, scales, ..packed })
    }

    /// What it was packed from.
    pub fn source(&self) -> &MatrixSource {
        &self.source
    }

    /// Adds up the squares of all inputs from now on, and with `products` what any two of them make.
    pub fn watch(&self, products: bool) {
        // Twice is once.
        let _ = self.seen.set(InputSums::new(self.cols, products));
    }

    /// The sums since [`PackedMatrix::watch`].
    pub fn seen(&self) -> Option<&InputSums> {
        self.seen.get()
    }

    /// The type that matrices of type `ty` are re-encoded as, unless `exact`; `None` if they are packed without loss.
    pub fn reencodes(ty: BlockType) -> Option<BlockType> {
        (FloatForm::of(ty).is_none() && layout(ty).is_none()).then_some(BlockType::Q8_0)
    }

    /// Bytes of a tile: what it costs to read, and about what it costs to multiply with.
    pub fn tile_bytes(&self) -> usize {
        self.tile_bytes
    }

    /// Memory that all matrices of the stack `t` will hold once packed, as [`PackedMatrix::bytes`] will say.
    pub fn planned_bytes(t: &Tensor, exact: bool) -> u64 {
        let floats = |form: FloatForm| form.tile_bytes(t.cols());
        let tile = match (FloatForm::of(t.ty), layout(t.ty).or_else(|| layout(BlockType::Q8_0))) {
            (Some(form), _) => floats(form),
            (None, Some(layout)) if !exact => layout.tile_bytes(t.cols() / BLOCK),
            _ => floats(FloatForm::F32),
        };
        let matrix = (t.rows().div_ceil(TILE_ROWS) * tile).next_multiple_of(LINE_BYTES);
        t.matrices() as u64 * matrix as u64
    }

    /// An error of this and the next ones is the first row that is no finite numbers, found beside the packing of its
    /// tile, while its bytes are in the cache.
    fn reencoded(
        from: BlockType,
        to: BlockType,
        cols: usize,
        rows: &[&[u8]],
        pack: impl FnOnce(&[&[u8]]) -> Result<Self, usize>,
    ) -> Result<Self, usize> {
        let len = to.row_bytes(cols).expect("every block has a multiple of 32 elements");
        let mut values = vec![0.0; cols];
        let mut bytes = vec![0; rows.len() * len];
        for (at, (row, out)) in rows.iter().zip(bytes.chunks_exact_mut(len)).enumerate() {
            check_rows(from, at, &[row])?;
            decode_row(from, row, &mut values);
            encode_row(to, &values, out);
        }
        pack(&bytes.chunks_exact(len).collect::<Vec<_>>())
    }

    fn pack_blocks(ty: BlockType, layout: Layout, cols: usize, rows: &[&[u8]]) -> Result<Self, usize> {
        let blocks = cols / BLOCK;
        let tile_bytes = layout.tile_bytes(blocks);
        let mut data = Lines::for_weights(rows.len().div_ceil(TILE_ROWS) * tile_bytes);
        for (at, (rows, tile)) in rows.chunks(TILE_ROWS).zip(data.chunks_exact_mut(tile_bytes)).enumerate() {
            check_rows(ty, at * TILE_ROWS, rows)?;
            pack::pack_tile(ty, layout, blocks, rows, tile);
        }
        Ok(Self {
            rows: rows.len(),
            cols,
            scales: RowScales::One([1.0; TILE_ROWS]),
            form: PackedForm::Blocks(layout),
            tile_bytes,
            data,
            source: MatrixSource::default(),
            seen: OnceLock::new(),
        })
    }

    fn pack_floats((ty, form): (BlockType, FloatForm), cols: usize, rows: &[&[u8]]) -> Result<Self, usize> {
        let tile_bytes = form.tile_bytes(cols);
        let mut data = Lines::for_weights(rows.len().div_ceil(TILE_ROWS) * tile_bytes);
        for (at, (rows, tile)) in rows.chunks(TILE_ROWS).zip(data.chunks_exact_mut(tile_bytes)).enumerate() {
            check_rows(ty, at * TILE_ROWS, rows)?;
            match form {
                FloatForm::E4m3B128 => pack::pack_float_groups(cols, rows, tile),
                _ => pack::pack_floats(form.bytes(), cols, rows, tile),
            }
        }
        let (source, seen, scales) = (MatrixSource::default(), OnceLock::new(), RowScales::One([1.0; TILE_ROWS]));
        Ok(Self { rows: rows.len(), cols, scales, form: PackedForm::Float(form), tile_bytes, data, source, seen })
    }

    /// How many output features it has.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many input features it has.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Tiles of [`TILE_ROWS`] output features.
    pub fn tiles(&self) -> usize {
        self.rows.div_ceil(TILE_ROWS)
    }

    /// Bytes of memory that it holds.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// The form of activations that it reads.
    pub fn input(&self) -> RowForm {
        match self.form {
            PackedForm::Float(_) => RowForm::F32,
            PackedForm::Blocks(_) => RowForm::Q8,
        }
    }

    /// Writes the weights of output row `row`, as for an embedding.
    ///
    /// # Panics
    /// If there is no such row or `out` has not as many elements as there are inputs.
    pub fn decode_row(&self, row: usize, out: &mut [f32]) {
        assert!(
            row < self.rows && out.len() == self.cols,
            "row {row} into {} values of {} x {}",
            out.len(),
            self.rows,
            self.cols
        );
        let (tile, lane) = (self.tile(row / TILE_ROWS), row % TILE_ROWS);
        let scale = self.row_scales(row / TILE_ROWS)[lane];
        match self.form {
            PackedForm::Float(form) => {
                out.iter_mut().enumerate().for_each(|(k, out)| *out = self.float_weight(form, tile, k, lane) * scale);
            }
            PackedForm::Blocks(layout) => {
                for (b, out) in out.chunks_exact_mut(BLOCK).enumerate() {
                    let block = pack::unpack(layout, self.blocks(), tile, b);
                    let offset = if layout.scales.has_min() { 0 } else { 128 };
                    for (k, out) in out.iter_mut().enumerate() {
                        let level = i32::from(block.codes[k / 4 * 64 + lane * 4 + k % 4]) - offset;
                        *out = (level as f32 * block.scale[k / 16][lane] - block.min[lane]) * scale;
                    }
                }
            }
        }
    }

    fn blocks(&self) -> usize {
        self.cols / BLOCK
    }

    /// What the outputs of a tile are multiplied with.
    fn row_scales(&self, tile: usize) -> &[f32; TILE_ROWS] {
        match &self.scales {
            RowScales::One(all) => all,
            RowScales::Rows(tiles) => &tiles[tile],
        }
    }

    /// Where the scales of a tile of floats begin, if they have any.
    fn float_codes_bytes(&self) -> usize {
        if let PackedForm::Float(form) = self.form { form.codes_bytes(self.cols) } else { 0 }
    }

    fn tile(&self, tile: usize) -> &[u8] {
        &self.data[tile * self.tile_bytes..][..self.tile_bytes]
    }
}

/// The first of these rows that is no finite numbers is an error; `first` is the number of the first.
fn check_rows(ty: BlockType, first: usize, rows: &[&[u8]]) -> Result<(), usize> {
    rows.iter().position(|row| !is_finite(ty, row)).map_or(Ok(()), |at| Err(first + at))
}

/// Where outputs go: rows of f32 at a fixed distance.
///
/// A view has no copies. Several threads write to one buffer through a view each ([`OutView::new`]), and each thread
/// writes the outputs of its own tiles, so ranges of tiles that do not overlap make writes that do not overlap.
pub struct OutView<'a> {
    start: *mut f32,
    rows: usize,
    cols: usize,
    stride: usize,
    life: PhantomData<&'a mut [f32]>,
}

// SAFETY: a pointer into memory borrowed for `'a`; a view of `of` is the only one, and for views of `new` their users
// promise that writes do not overlap.
unsafe impl Send for OutView<'_> {}

impl<'a> OutView<'a> {
    /// `rows` rows of `cols` values, `stride` apart, from `start`.
    ///
    /// # Safety
    /// All of it is writable for `'a`; while the view is passed to [`matmul`], no other thread reads or writes the
    /// outputs (output rows times tiles) of that call.
    pub unsafe fn new(start: *mut f32, rows: usize, cols: usize, stride: usize) -> Self {
        assert!(rows <= 1 || cols <= stride, "rows of {cols} values only {stride} apart overlap");
        Self { start, rows, cols, stride, life: PhantomData }
    }

    /// `out` as rows of `cols` values.
    pub fn of(out: &'a mut [f32], cols: usize) -> Self {
        // SAFETY: the borrow is exclusive for `'a`, and the view has no copies.
        unsafe { Self::new(out.as_mut_ptr(), out.len() / cols.max(1), cols, cols) }
    }

    /// A view of these rows for one call of [`matmul`]; this one may be used again afterwards.
    pub fn reborrow(&mut self) -> OutView<'_> {
        OutView { start: self.start, rows: self.rows, cols: self.cols, stride: self.stride, life: PhantomData }
    }

    /// A view of these rows from column `start` on.
    pub fn columns(self, start: usize) -> Self {
        assert!(start <= self.cols, "column {start} of {}", self.cols);
        Self { start: self.start.wrapping_add(start), cols: self.cols - start, ..self }
    }

    /// Writes the first `lanes` values at tile `tile` of row `row`.
    #[inline(always)]
    fn store(&self, row: u32, tile: usize, lanes: usize, values: &[f32; TILE_ROWS]) {
        let at = self.tile(row, tile, lanes);
        // SAFETY: in bounds because `matmul` checked rows and columns on entry; nobody else touches them by the promise
        // of `new`.
        unsafe {
            // A copy of a known length is a few moves, any other a call.
            if lanes == TILE_ROWS {
                at.cast::<[f32; TILE_ROWS]>().write_unaligned(*values);
            } else {
                std::ptr::copy_nonoverlapping(values.as_ptr(), at, lanes);
            }
        }
    }

    /// Where the `lanes` outputs of tile `tile` of row `row` go.
    #[inline(always)]
    fn tile(&self, row: u32, tile: usize, lanes: usize) -> *mut f32 {
        // `product` has checked all of it; here it would be checked for every tile of every row.
        debug_assert!((row as usize) < self.rows && tile * TILE_ROWS + lanes <= self.cols && lanes <= TILE_ROWS);
        self.start.wrapping_add(row as usize * self.stride + tile * TILE_ROWS)
    }
}

/// For each pair `(i, o)`: the outputs `tiles` (16 features each) of `w` times input row `i` go to row `o` of `out`.
///
/// An output is the same for any set of pairs and tiles around it. Output rows should differ; of pairs with the same
/// one, any wins.
///
/// # Panics
/// If shapes do not fit: `x` has other columns than `w`, or a pair, `tiles` or the rows of `w` lie beyond `x` or `out`.
pub fn matmul(w: &PackedMatrix, x: RowsView<'_>, pairs: &[(u32, u32)], tiles: Range<usize>, out: OutView<'_>) {
    product(Isa::host(), w, x, pairs, tiles, out, None);
}

/// A matrix, and the first of its tiles, that the calling thread multiplies with after a product.
pub type NextTiles<'a> = Option<(&'a PackedMatrix, usize)>;

/// [`matmul`] that asks for the weights of the product after it towards its end: those of an expert are read in less
/// time than the first of them take to come.
///
/// # Panics
/// As [`matmul`].
pub fn matmul_before(
    next: NextTiles<'_>,
    w: &PackedMatrix,
    x: RowsView<'_>,
    pairs: &[(u32, u32)],
    tiles: Range<usize>,
    out: OutView<'_>,
) {
    product(Isa::host(), w, x, pairs, tiles, out, next);
}

/// [`matmul`] with the instructions of `isa`, to compare them.
///
/// # Panics
/// Also if this host does not have them.
pub fn matmul_on(
    isa: Isa,
    w: &PackedMatrix,
    x: RowsView<'_>,
    pairs: &[(u32, u32)],
    tiles: Range<usize>,
    out: OutView<'_>,
) {
    product(isa, w, x, pairs, tiles, out, None);
}

/// Asks for the first weights of some tiles, which the calling thread multiplies with next, before it waits for others.
pub fn prefetch(w: &PackedMatrix, tiles: Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    if Isa::host() != Isa::Scalar {
        ahead::ask_first(&w.data[tiles.start * w.tile_bytes..tiles.end * w.tile_bytes]);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (w, tiles);
}

fn product(
    isa: Isa,
    w: &PackedMatrix,
    x: RowsView<'_>,
    pairs: &[(u32, u32)],
    tiles: Range<usize>,
    out: OutView<'_>,
    next: NextTiles<'_>,
) {
    assert!(Isa::available().contains(&isa), "{isa:?} on a host that has only {:?}", Isa::available());
    assert_eq!(x.cols(), w.cols, "activations and weights differ in inputs");
    assert!(tiles.end <= w.tiles(), "tile {} of {}", tiles.end, w.tiles());
    assert!(w.rows <= out.cols, "{} outputs into rows of {}", w.rows, out.cols);
    for (i, o) in pairs {
        assert!(
            (*i as usize) < x.len() && (*o as usize) < out.rows,
            "pair {i}, {o} of {} inputs, {} outputs",
            x.len(),
            out.rows
        );
    }
    if let Some(seen) = w.seen.get()
        && tiles.contains(&0)
    {
        seen.add(x, pairs);
    }
    let next = next.map_or(std::ptr::null(), |(w, tile)| w.data.as_ptr().wrapping_add(tile * w.tile_bytes));
    let job = TileJob { w, x, pairs, out: &out, last: tiles.end.saturating_sub(1), next };
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the host has the instructions and shapes fit, as asserted above.
        Isa::Avx512 | Isa::Amx => unsafe {
            match w.form {
                PackedForm::Float(form) => avx512::floats(&job, form, tiles),
                PackedForm::Blocks(layout) if isa == Isa::Amx && amx::pays(pairs.len()) => {
                    amx::blocks(&job, layout, tiles)
                }
                PackedForm::Blocks(layout) => avx512::blocks(&job, layout, tiles),
            }
        },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 | Isa::AvxVnni => unsafe {
            match w.form {
                PackedForm::Float(form) => avx2::floats(&job, form, tiles),
                PackedForm::Blocks(layout) if isa == Isa::AvxVnni => avx2::blocks_vnni(&job, layout, tiles),
                PackedForm::Blocks(layout) => avx2::blocks(&job, layout, tiles),
            }
        },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        Isa::Neon | Isa::NeonDot => unsafe {
            match w.form {
                PackedForm::Float(form) => neon::floats(&job, form, tiles),
                PackedForm::Blocks(layout) => neon::blocks(&job, layout, tiles, isa == Isa::NeonDot),
            }
        },
        _ => scalar_tiles(&job, tiles),
    }
}

/// A call of [`matmul`] whose shapes fit.
struct TileJob<'a> {
    w: &'a PackedMatrix,
    x: RowsView<'a>,
    pairs: &'a [(u32, u32)],
    out: &'a OutView<'a>,
    /// The last tile of the range: a panel of two never writes beyond it, for that tile is another thread's.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only AVX-512 takes two tiles at once"))]
    last: usize,
    /// Weights that the thread reads after this job; null where nobody says.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only x86-64 asks for weights early"))]
    next: *const u8,
}

impl TileJob<'_> {
    /// Where the bytes lie that are read `bytes` after tile `tile` of a range that ends at tile `end`.
    #[cfg(target_arch = "x86_64")]
    fn after(&self, tile: usize, end: usize, bytes: usize) -> *const u8 {
        let rest = (end - tile) * self.w.tile_bytes;
        match bytes.checked_sub(rest) {
            Some(beyond) if !self.next.is_null() => self.next.wrapping_add(beyond),
            _ => self.w.data.as_ptr().wrapping_add(tile * self.w.tile_bytes + bytes),
        }
    }

    /// What lies behind `n` tiles from `tile` on of a range that ends at tile `end`: as many, to be asked for by
    /// blocks.
    #[cfg(target_arch = "x86_64")]
    fn next_tiles(&self, tile: usize, n: usize, end: usize) -> ahead::PrefetchStream {
        let bytes = n * self.w.tile_bytes;
        ahead::PrefetchStream::new(self.after(tile, end, bytes), bytes / self.w.blocks())
    }

    /// Outputs of a tile that exist.
    fn lanes(&self, tile: usize) -> usize {
        (self.w.rows - tile * TILE_ROWS).min(TILE_ROWS)
    }
}

fn scalar_tiles(job: &TileJob<'_>, tiles: Range<usize>) {
    let (w, x) = (job.w, job.x);
    for tile in tiles {
        for (i, o) in job.pairs {
            let i = *i as usize;
            let values = match w.form {
                // SAFETY: the view's promise: nobody writes the row while it is an input. Rows are padded to whole
                // blocks.
                PackedForm::Float(form) => unsafe {
                    let x = std::slice::from_raw_parts(x.values(i), w.cols.next_multiple_of(4));
                    scalar::float_tile(w, form, tile, x)
                },
                // SAFETY: as above.
                PackedForm::Blocks(layout) => unsafe {
                    let x: &[QBlock] = std::slice::from_raw_parts(x.blocks(i), w.blocks());
                    scalar::blocks_tile(w, layout, tile, x)
                },
            };
            job.out.store(*o, tile, job.lanes(tile), &values);
        }
    }
}
