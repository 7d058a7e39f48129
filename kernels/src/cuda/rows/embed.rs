//! The first values of a step's rows: a row of the token table each, its int8 form times the first norm's weight, its
//! squares; and the history of tokens that penalties look at. The table stays encoded as in its file:
//! [`crate::reference::table_row`] is its definition. One block a row.

use crate::cuda::rows::quantized::Planes;
use crate::cuda::rows::{FoldedOut, check_cols, fits, padded};
use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
pub use crate::reference::TableEncoding;
use cudarc::driver::{CudaView, CudaViewMut};

const NAME: &str = "embed";
/// Values of the longest row: eight a thread, 1,024 threads.
const COLS_MAX: usize = 8192;
/// What the addresses of tables are multiples of.
const ALIGNMENT: u64 = 16;

/// The shape of a token table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableShape {
    /// Values of a row.
    pub cols: usize,
    /// How many rows there are, one a token.
    pub vocab: usize,
    /// How rows are stored.
    pub encoding: TableEncoding,
    /// Of the rows' int8 form.
    pub planes: Planes,
}

impl TableShape {
    /// Bytes of the table.
    ///
    /// # Errors
    /// If rows are no whole number of blocks, or too long.
    pub fn bytes(&self) -> Result<usize, CudaError> {
        check_cols(NAME, self.cols, COLS_MAX)?;
        let (elements, bytes) = self.encoding.block();
        if !self.cols.is_multiple_of(elements) {
            return Err(CudaError::shape(
                NAME,
                format!("{:?} rows of {}: must be a multiple of {elements}", self.encoding, self.cols),
            ));
        }
        Ok(self.vocab * (self.cols / elements * bytes))
    }

    /// Words of two tokens that the history of `slots` sequences takes.
    pub fn history(&self, slots: usize) -> usize {
        (slots * self.vocab).div_ceil(2)
    }
}

/// An encoding as sources name it: `TableOf` of csrc/rows/tables.cuh.
pub(in crate::cuda) fn code(encoding: TableEncoding) -> i64 {
    match encoding {
        TableEncoding::F32 => 0,
        TableEncoding::F16 => 1,
        TableEncoding::Bf16 => 2,
        TableEncoding::Q8_0 => 3,
        TableEncoding::Q4_0 => 4,
        TableEncoding::Q4K => 5,
        TableEncoding::Q5K => 6,
        TableEncoding::Q6K => 7,
    }
}

/// The program for a table.
///
/// # Errors
/// As [`TableShape::bytes`].
pub fn program(shape: TableShape) -> Result<Program, CudaError> {
    shape.bytes()?;
    let defines = vec![
        ("COLS", shape.cols as i64),
        ("PADDED", padded(shape.cols) as i64),
        ("VOCAB", shape.vocab as i64),
        ("ENCODING", code(shape.encoding)),
        shape.planes.define(),
    ];
    Ok(Program::of::<Arguments>(NAME, source!("rows/embed.cu"), defines))
}

/// The kernel for one table.
#[derive(Debug)]
pub struct Embed {
    shape: TableShape,
    kernel: Kernel<Arguments>,
}

device_struct! {
    /// Parameters of the kernel.
    struct Arguments {
        /// In its file's encoding.
        table: Ptr<u8>,
        /// Id of each row's token, `[rows]`: -1 stands for the slot's last sampled token.
        tokens: Ptr<i32>,
        /// Last sampled token of each slot, `[slots]`.
        sampled: Ptr<i32>,
        /// Slot of each row's sequence, `[rows]`; a padding row has a value below 0.
        slots: Ptr<i32>,
        /// Position of each row in its sequence, `[rows]`.
        positions: Ptr<i32>,
        /// Number of tokens in each row's prompt, `[rows]`.
        prompt_lens: Ptr<i32>,
        /// Weight of the first norm, `[cols]`.
        weight: Ptr<f32>,
        /// `[slots, vocab]` of u16 in words of two, or null.
        history: PtrMut<u32>,
        /// Residual stream that is written, `[rows, cols]`.
        x: PtrMut<f32>,
        codes: PtrMut<i8>,
        meta: PtrMut<[f32; 2]>,
        squares: PtrMut<f32>,
        /// Factor of the table's rows.
        scale: f32,
    }
}

/// A token table, where the device reads it: in its own memory or in pinned host memory that is mapped for it.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Address on the device, a multiple of 16.
    pub address: u64,
    /// How much is there.
    pub bytes: usize,
}

/// The rows of a step, all on the device.
#[derive(Clone, Copy)]
pub struct TokenRows<'a> {
    /// Number of rows, padding rows included.
    pub count: usize,
    /// `[rows]`: id, or -1 for the last sampled one of the slot.
    pub tokens: &'a CudaView<'a, i32>,
    /// Last sampled token of each slot, `[slots]`.
    pub sampled: &'a CudaView<'a, i32>,
    /// `[rows]`; below 0: no row.
    pub slots: &'a CudaView<'a, i32>,
    /// Position of each row in its sequence, `[rows]`.
    pub positions: &'a CudaView<'a, i32>,
    /// `[rows]`: tokens of the sequence's prompt. A token at or behind that position was generated.
    pub prompt_lens: &'a CudaView<'a, i32>,
}

impl Embed {
    /// Loads the kernel for a table.
    ///
    /// # Errors
    /// If there is none, or it cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, shape: TableShape) -> Result<Self, CudaError> {
        Ok(Self { shape, kernel: device.module(cache, &program(shape)?)?.kernel(NAME)? })
    }

    /// Enqueues it. `x` is `[rows, cols]`, rows of the table times `scale`, `weight` the first norm's factor. `history`
    /// is `[slots, vocab]` u16, two a word: bit 15 says that a token is of the prompt, the others count how often it
    /// was generated, up to 32,767. Rows that are none become zeros; a token outside the vocabulary makes a row of NaN.
    ///
    /// # Errors
    /// If a buffer is too small, the table is not aligned, or the driver refuses.
    ///
    /// # Safety
    /// `table` is memory that the device can read, and lives until the stream has passed the launch. Slots on the
    /// device are below the length of `sampled` and those that `history` has room for.
    #[allow(clippy::too_many_arguments, reason = "table, rows, weight, history and both outputs of one operation")]
    pub unsafe fn launch(
        &self,
        device: &Device,
        table: Table,
        rows: TokenRows<'_>,
        scale: f32,
        weight: &CudaView<'_, f32>,
        history: Option<&mut CudaViewMut<'_, u32>>,
        x: &mut CudaViewMut<'_, f32>,
        out: FoldedOut<'_, '_>,
    ) -> Result<(), CudaError> {
        let (n, cols) = (rows.count, self.shape.cols);
        fits(NAME, "the table (bytes)", table.bytes, self.shape.bytes()?)?;
        if !table.address.is_multiple_of(ALIGNMENT) {
            return Err(CudaError::shape(
                NAME,
                format!("the table is at {:#x}: must be a multiple of {ALIGNMENT}", table.address),
            ));
        }
        for (what, list) in [
            ("tokens", rows.tokens),
            ("slots", rows.slots),
            ("positions", rows.positions),
            ("prompt_lens", rows.prompt_lens),
        ] {
            fits(NAME, what, list.len(), n)?;
        }
        fits(NAME, "the weight", weight.len(), cols)?;
        fits(NAME, "x", x.len(), n * cols)?;
        out.check(NAME, n, cols, self.shape.planes)?;
        if let Some(history) = &history {
            fits(NAME, "the history", history.len(), self.shape.history(1))?;
        }
        if n == 0 {
            return Ok(());
        }
        let stream = device.stream();
        let (codes, meta, squares) = out.pointers(stream);
        let arguments = Arguments {
            table: Ptr::at(table.address),
            tokens: Ptr::of(rows.tokens, stream),
            sampled: Ptr::of(rows.sampled, stream),
            slots: Ptr::of(rows.slots, stream),
            positions: Ptr::of(rows.positions, stream),
            prompt_lens: Ptr::of(rows.prompt_lens, stream),
            weight: Ptr::of(weight, stream),
            history: history.map_or(PtrMut::default(), |h| PtrMut::of(h, stream)),
            x: PtrMut::of(x, stream),
            codes,
            meta,
            squares,
            scale,
        };
        let threads = (cols / 8).next_multiple_of(32) as u32;
        // SAFETY: buffers were found large enough, ids beyond the table are not looked up, the caller vouches for slots
        // and the table's memory; before its wait the kernel reads the weight only.
        unsafe { self.kernel.launch(device, Grid { blocks: (n as u32, 1), threads }, &arguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_the_bytes_of_their_file() {
        let bytes = |cols, encoding| TableShape { cols, vocab: 3, encoding, planes: Planes::One }.bytes();
        assert_eq!(bytes(2048, TableEncoding::Q8_0).unwrap(), 3 * 2176);
        assert_eq!(bytes(2048, TableEncoding::Q6K).unwrap(), 3 * 1680);
        assert_eq!(bytes(32, TableEncoding::F16).unwrap(), 192);
        assert!(bytes(96, TableEncoding::Q4K).unwrap_err().to_string().contains("multiple of 256"));
        assert!(bytes(48, TableEncoding::F32).is_err() && bytes(16384, TableEncoding::F32).is_err());
        assert_eq!(
            TableShape { cols: 32, vocab: 511, encoding: TableEncoding::F16, planes: Planes::One }.history(3),
            767
        );
    }
}
