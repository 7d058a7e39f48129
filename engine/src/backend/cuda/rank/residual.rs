//! The residual stream on the device, and what is fused across blocks through it and nowhere else.
//!
//! Norms have no launch. Who writes the stream also writes its rows times the weight of the next block's norm, in int8,
//! and the sums of their squares; who reads them divides by the root mean square. So a block has to know the norm
//! behind it ([`Next`]), but not what comes after that norm.

use super::products::Product;
use super::quantized::Quantized;
use super::weights::Matrix;
use crate::backend::cuda::error::{CudaResult, During};
use crate::backend::cuda::layout::products::RowCount;
use chimere_kernels::cuda::Device;
use chimere_kernels::cuda::combine::{Combine, ExpertOutputs};
use chimere_kernels::cuda::product::NextRows;
use chimere_kernels::cuda::quantized::{BLOCK, Planes};
use chimere_kernels::cuda::rows::{Folded, FoldedOut, padded};
use chimere_kernels::cuda::wide::{Columns, HalfPlace, Halved, Inputs, Output, Source};
use cudarc::driver::{CudaSlice, CudaView, CudaViewMut};

/// Who reads the stream after a block.
#[derive(Clone, Copy)]
pub(crate) struct NextBlock<'a> {
    /// Weight of the norm before it, `[hidden]`.
    pub(crate) norm: &'a CudaSlice<f32>,
    /// The first matrix that it multiplies with: whoever has time on its hands may fetch it early.
    pub(crate) matrix: &'a Matrix,
    /// Where the rows become f16 for that, if they do: whoever has them whole may do it.
    pub(crate) halves: Option<&'a HalfPlace>,
}

/// Rows with a norm folded in.
pub(crate) struct FoldedRows {
    /// The rows times the norm's weight.
    rows: Quantized,
    /// Sums of squares of the rows, `[rows, cols / 32]`.
    squares: CudaSlice<f32>,
    /// Whether whoever wrote them made f16 of them too.
    halved: Option<Halved>,
}

/// What a kernel reads of them.
pub(crate) struct FoldedView<'a> {
    codes: CudaView<'a, i8>,
    meta: CudaView<'a, f32>,
    squares: CudaView<'a, f32>,
    eps: f32,
    halved: Option<Halved>,
}

/// What a kernel writes of them.
pub(crate) struct FoldedViewMut<'a> {
    codes: CudaViewMut<'a, i8>,
    meta: CudaViewMut<'a, f32>,
    squares: CudaViewMut<'a, f32>,
}

impl FoldedRows {
    /// Takes the memory, zeroed.
    pub(crate) fn new(device: &Device, rows: usize, cols: usize, planes: Planes) -> CudaResult<Self> {
        Ok(Self {
            rows: Quantized::new(device, rows, cols, planes)?,
            squares: device.stream().alloc_zeros(rows * cols / BLOCK).during("allocating the workspace")?,
            halved: None,
        })
    }

    /// For a reader, with the norm's epsilon.
    pub(crate) fn read(&self, eps: f32) -> FoldedView<'_> {
        let (codes, meta) = self.rows.views();
        FoldedView { codes, meta, squares: self.squares.as_view(), eps, halved: self.halved }
    }

    /// Sums of the rows' squares, by block.
    pub(crate) fn squares(&self) -> CudaView<'_, f32> {
        self.squares.as_view()
    }

    /// The rows for a launch that writes them.
    pub(crate) fn write(&mut self) -> FoldedViewMut<'_> {
        self.halved = None;
        let (codes, meta) = self.rows.views_mut();
        FoldedViewMut { codes, meta, squares: self.squares.as_view_mut() }
    }
}

impl FoldedView<'_> {
    /// As products take them.
    pub(crate) fn source(&self) -> Source<'_> {
        let (squares, eps) = (Some(&self.squares), self.eps);
        let inputs = Inputs { codes: &self.codes, meta: &self.meta, squares, eps, factor: 1.0, lora: None };
        Source::halved(inputs, self.halved)
    }

    /// As they are copied.
    pub(crate) fn folded(&self) -> Folded<'_> {
        Folded { codes: &self.codes, meta: &self.meta, squares: &self.squares }
    }

    /// Codes, then what stands beside them.
    pub(crate) fn rows(&self) -> (&CudaView<'_, i8>, &CudaView<'_, f32>) {
        (&self.codes, &self.meta)
    }

    /// Sums of the rows' squares, by block.
    pub(crate) fn squares(&self) -> &CudaView<'_, f32> {
        &self.squares
    }
}

impl<'a> FoldedViewMut<'a> {
    /// As kernels write them.
    pub(crate) fn out(&mut self) -> FoldedOut<'_, 'a> {
        FoldedOut { codes: &mut self.codes, meta: &mut self.meta, squares: &mut self.squares }
    }
}

/// The stream: `[rows, hidden]`, and what the next reader takes of it.
pub(crate) struct ResidualStream {
    pub(crate) x: CudaSlice<f32>,
    pub(crate) rows: FoldedRows,
    /// What a launch that reads `rows` writes for the reader after it: they change places then. Where two operators
    /// read the same rows, what the first one writes for a reader goes here, and nobody reads it.
    spare: FoldedRows,
    hidden: usize,
}

impl ResidualStream {
    /// Takes the memory, zeroed.
    pub(crate) fn new(device: &Device, rows: usize, hidden: usize, planes: Planes) -> CudaResult<Self> {
        Ok(Self {
            x: device.stream().alloc_zeros(rows * hidden).during("allocating the workspace")?,
            rows: FoldedRows::new(device, rows, hidden, planes)?,
            spare: FoldedRows::new(device, rows, hidden, planes)?,
            hidden,
        })
    }

    /// Adds the product of `input` with a matrix.
    pub(crate) fn add_product(
        &mut self,
        device: &Device,
        rows: RowCount,
        (product, matrix): (&Product, &Matrix),
        input: &Quantized,
        next: NextBlock<'_>,
    ) -> CudaResult<()> {
        let (codes, meta) = input.views();
        self.add_product_of(device, rows, (product, matrix), &Source::plain(&codes, &meta), next)
    }

    /// Adds the product of `x`, rows in any of the forms that a product reads, to the residual stream.
    pub(crate) fn add_product_of(
        &mut self,
        device: &Device,
        rows: RowCount,
        (product, matrix): (&Product, &Matrix),
        x: &Source<'_>,
        next: NextBlock<'_>,
    ) -> CudaResult<()> {
        let mut folded = self.rows.write();
        let FoldedOut { codes: next_codes, meta: next_meta, squares } = folded.out();
        let out = Output::Residual {
            x: &mut self.x.as_view_mut(),
            weight: &next.norm.as_view(),
            codes: next_codes,
            meta: next_meta,
            squares,
            stride: padded(self.hidden),
        };
        // SAFETY: the columns are not listed.
        unsafe { product.launch(device, rows, matrix, x, Columns::First(rows.count), out) }
    }

    /// Adds what experts made. `eps`: of the next reader's norm.
    pub(crate) fn reduce(
        &mut self,
        device: &Device,
        combine: &Combine,
        rows: usize,
        terms: ExpertOutputs<'_>,
        (next, eps): (NextBlock<'_>, f32),
    ) -> CudaResult<()> {
        let (mut folded, mut x, weight) = (self.rows.write(), self.x.as_view_mut(), next.norm.as_view());
        let Some(place) = next.halves.filter(|_| combine.brings_halves()) else {
            return Ok(combine.launch(device, rows, terms, &weight, &mut x, folded.out())?);
        };
        let (halves, halved) = place.fill(rows);
        combine.launch_with_halves(device, rows, terms, &weight, &mut x, folded.out(), (halves, eps))?;
        self.rows.halved = Some(halved);
        Ok(())
    }

    /// For a launch that reads the rows and, before all of its blocks have done so, writes those of the next reader:
    /// what it reads, the stream, and what it writes. [`ResidualStream::turn`] follows.
    pub(crate) fn read_and_write(&mut self, eps: f32) -> (FoldedView<'_>, CudaViewMut<'_, f32>, FoldedViewMut<'_>) {
        (self.rows.read(eps), self.x.as_view_mut(), self.spare.write())
    }

    /// What was written last is what is read next, or, for launches until the next turn, kept from being written.
    pub(crate) fn turn(&mut self) {
        std::mem::swap(&mut self.rows, &mut self.spare);
    }
}

/// The rows of the next reader as the kernels for few rows write them.
pub(crate) fn next_rows<'a, 'b>(weight: &'a CudaView<'a, f32>, out: FoldedOut<'a, 'b>) -> NextRows<'a, 'b> {
    NextRows { weight, codes: out.codes, meta: out.meta, squares: out.squares }
}
