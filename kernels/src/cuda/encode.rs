//! Rows of floats to quantised blocks (`csrc/encode`): the bytes that the searches on the CPU find, a warp or a block
//! of threads a block of weights. Which bytes those are is the caller's definition; tests hold both side by side.

use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::runtime::error::DriverResult;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaSlice, CudaView, CudaViewMut};

const NAME: &str = "encode_rows";

/// A type that kernels encode, with the names of GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the variants are GGUF's own names")]
pub enum Encoding {
    Q4_0,
    Q5_0,
    Q5_1,
    Q8_0,
    Iq4Nl,
    Mxfp4,
    Q3K,
    Q6K,
    Iq4Xs,
    Q4K,
    Q5K,
    Iq3S,
    Iq3Xxs,
}

impl Encoding {
    /// Every type that there is a kernel for.
    pub const ALL: [Self; 13] = {
        use Encoding::*;
        [Q4_0, Q5_0, Q5_1, Q8_0, Iq4Nl, Mxfp4, Q3K, Q6K, Iq4Xs, Q4K, Q5K, Iq3S, Iq3Xxs]
    };

    /// Values of a block, and the bytes that they become.
    pub fn block(self) -> (usize, usize) {
        match self {
            Self::Q4_0 | Self::Iq4Nl => (32, 18),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Mxfp4 => (32, 17),
            Self::Q3K | Self::Iq3S => (256, 110),
            Self::Q6K => (256, 210),
            Self::Iq4Xs => (256, 136),
            Self::Q4K => (256, 144),
            Self::Q5K => (256, 176),
            Self::Iq3Xxs => (256, 98),
        }
    }

    /// Entries of the book that its blocks refer to, and the largest magnitude in it.
    pub fn book(self) -> Option<(usize, u8)> {
        match self {
            Self::Iq3S => Some((512, 15)),
            Self::Iq3Xxs => Some((256, 62)),
            _ => None,
        }
    }

    /// Text of the source, and the number that the type has in it.
    fn source(self) -> (&'static str, i64) {
        const BLOCK32: &str = source!("encode/block32.cu");
        const SYMMETRIC: &str = source!("encode/symmetric.cu");
        const MINIMUM: &str = source!("encode/minimum.cu");
        const GRID: &str = source!("encode/grid.cu");
        match self {
            Self::Q4_0 => (BLOCK32, 0),
            Self::Q5_0 => (BLOCK32, 1),
            Self::Q5_1 => (BLOCK32, 2),
            Self::Q8_0 => (BLOCK32, 3),
            Self::Iq4Nl => (BLOCK32, 4),
            Self::Mxfp4 => (BLOCK32, 5),
            Self::Q3K => (SYMMETRIC, 0),
            Self::Q6K => (SYMMETRIC, 1),
            Self::Iq4Xs => (SYMMETRIC, 2),
            Self::Q4K => (MINIMUM, 0),
            Self::Q5K => (MINIMUM, 1),
            Self::Iq3S => (GRID, 0),
            Self::Iq3Xxs => (GRID, 1),
        }
    }

    /// Threads of a block, as in the sources, and blocks of weights that it has.
    fn threads(self) -> (u32, usize) {
        if self.book().is_some() { (256, 1) } else { (128, 4) }
    }
}

/// The program of a type.
pub fn program(encoding: Encoding) -> Program {
    let (source, number) = encoding.source();
    let mut defines = vec![("TYPE", number), ("BYTES", encoding.block().1 as i64)];
    if let Some((entries, top)) = encoding.book() {
        defines.extend([("N", entries as i64), ("TOP", i64::from(top))]);
    }
    Program::of::<Arguments>(NAME, source, defines)
}

device_struct! {
    /// Parameters of the kernels.
    struct Arguments {
        /// Values to encode, `[rows, cols]`, finite.
        x: Ptr<f32>,
        /// `[sets, cols]`: what each value weighs, null where all weigh the same; and `[rows]`: the set of each row.
        weights: Ptr<f32>,
        set_of: Ptr<u32>,
        /// Encoded rows, one after another, each a whole number of blocks.
        out: PtrMut<u8>,
        /// Magnitudes of each entry of the type's book, a byte each, the first one lowest.
        book: Ptr<u32>,
        /// Number of blocks of weights in all rows together.
        blocks: u64,
        cols: u64,
    }
}

/// The kernel of a type.
#[derive(Debug)]
pub struct Encoder {
    encoding: Encoding,
    kernel: Kernel<Arguments>,
    book: Option<CudaSlice<u32>>,
}

/// Weights that the values of rows have in the error that a search minimises.
#[derive(Clone, Copy, Debug)]
pub struct RowWeights<'a> {
    /// `[sets, cols]`, above zero.
    pub weights: &'a CudaView<'a, f32>,
    /// `[rows]`: the set of each row.
    pub set_of: &'a CudaView<'a, u32>,
}

impl Encoder {
    /// Loads the kernel of a type. `book`: the entries of [`Encoding::book`], four magnitudes each.
    ///
    /// # Errors
    /// If the book is of another size, or the kernel cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, encoding: Encoding, book: &[[u8; 4]]) -> Result<Self, CudaError> {
        let (want, top) = encoding.book().unwrap_or((0, 0));
        if book.len() != want || book.iter().flatten().any(|g| *g > top) {
            let text = format!("a book of {} entries: {want} of at most {top} are needed", book.len());
            return Err(CudaError::shape(NAME, text));
        }
        let kernel = device.module(cache, &program(encoding))?.kernel(NAME)?;
        let words: Vec<u32> = book.iter().map(|g| u32::from_le_bytes(*g)).collect();
        let stream = device.stream();
        let book = (want > 0).then(|| stream.clone_htod(&words).during("cuMemcpyHtoD")).transpose()?;
        Ok(Self { encoding, kernel, book })
    }

    /// Enqueues it: encodes `rows` rows of `cols` finite values.
    ///
    /// # Errors
    /// If a row is no whole number of blocks, a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// Each row's set on the device is one that `weighed` has.
    pub unsafe fn launch(
        &self,
        device: &Device,
        (rows, cols): (usize, usize),
        x: &CudaView<'_, f32>,
        weighed: Option<RowWeights<'_>>,
        out: &mut CudaViewMut<'_, u8>,
    ) -> Result<(), CudaError> {
        let (values, bytes) = self.encoding.block();
        if cols == 0 || !cols.is_multiple_of(values) {
            return Err(CudaError::shape(NAME, format!("rows of {cols} values: blocks have {values}")));
        }
        let blocks = rows * (cols / values);
        let sets = weighed.map_or(usize::MAX, |w| w.set_of.len());
        for (what, got, need) in
            [("values", x.len(), rows * cols), ("sets", sets, rows), ("bytes", out.len(), blocks * bytes)]
        {
            if got < need {
                return Err(CudaError::shape(NAME, format!("{what} has {got} elements, {need} are needed")));
            }
        }
        if blocks == 0 {
            return Ok(());
        }
        let stream = device.stream();
        let (threads, each) = self.encoding.threads();
        let arguments = Arguments {
            x: Ptr::of(x, stream),
            weights: Ptr::of_some(weighed.map(|w| w.weights), stream),
            set_of: Ptr::of_some(weighed.map(|w| w.set_of), stream),
            out: PtrMut::of(out, stream),
            book: Ptr::of_some(self.book.as_ref(), stream),
            blocks: blocks as u64,
            cols: cols as u64,
        };
        let grid = Grid { blocks: (blocks.div_ceil(each) as u32, 1), threads };
        // SAFETY: the buffers were found large enough, and the book has as many entries as the kernel knows; the caller
        // vouches for the sets; nothing is read before the wait.
        unsafe { self.kernel.launch(device, grid, &arguments) }
    }
}
