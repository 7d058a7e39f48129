//! The launch that makes `h = scale * A x` of the rows that products with low-rank adapters read: see
//! [`crate::cuda::lora`]. `csrc/rows/lora_shrink.cu` says how.

use super::Source;
use crate::cuda::lora::{Lora, LoraParts};
use crate::cuda::rows::quantized::{BLOCK, Planes};
use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};

const NAME: &str = "lora_shrink";
/// What a block takes of a launch, as the sources have it.
struct Block {
    threads: usize,
    /// Rows of A that a block multiplies.
    a: usize,
    /// Rows of x that a block multiplies them with.
    rows: usize,
}

const ONE: Block = Block { threads: 256, a: 4, rows: 1 };
const OF_ADAPTER: Block = Block { rows: 8, ..ONE };
const PROMPTS: Block = Block { threads: 128, a: 16, rows: 32 };

/// The program, for activations of so many planes.
pub fn program(planes: Planes) -> Program {
    Program::naming::<LoraParts, Arguments>(NAME, source!("rows/lora_shrink.cu"), vec![planes.define()])
}

device_struct! {
    /// Parameters of the kernel.
    #[derive(Default)]
    struct Arguments {
        /// Codes of the rows, `[rows, cols * planes]`.
        codes: Ptr<i8>,
        /// Their scales and sums, `[rows, cols / 32 * planes]`.
        meta: Ptr<[f32; 2]>,
        /// Sums of squares of the rows before their norm, `[rows, norm_blocks]`.
        squares: Ptr<f32>,
        /// Instead of codes, `[cols / 64, half_rows, 64]` f16, and what each row is multiplied with.
        halves: Ptr<u16>,
        row_scales: Ptr<f32>,
        /// What is made, `[rows, stride]`.
        reduced: PtrMut<f32>,
        lora: LoraParts,
        rows: u32,
        cols: u32,
        half_rows: u32,
        norm_blocks: i32,
        /// Whether a block of decoded rows has some of one adapter, or one row.
        by_adapter: i32,
        /// How many adapters there may be.
        slots: u32,
        eps: f32,
    }
}

/// The kernels that make `h` of rows.
#[derive(Debug)]
pub struct LoraShrink {
    planes: Planes,
    /// For rows that are decoded, and for those of prompts.
    decoded: Kernel<Arguments>,
    prompts: Kernel<Arguments>,
}

impl LoraShrink {
    /// Loads the kernels of [`program`].
    ///
    /// # Errors
    /// If it cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, planes: Planes) -> Result<Self, CudaError> {
        let module = device.module(cache, &program(planes))?;
        Ok(Self { planes, decoded: module.kernel(NAME)?, prompts: module.kernel("lora_shrink_prompts")? })
    }

    /// Enqueues it for `rows` rows of `cols` inputs, whole blocks of 32, of which `norm` have a norm folded in. A has at
    /// most `a_rows` rows.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// What the heads of the group name lies in the slots that the rows' sequences have.
    pub unsafe fn launch(
        &self,
        device: &Device,
        (rows, cols): (usize, usize),
        norm: Option<usize>,
        x: &Source<'_>,
        lora: Lora<'_>,
        a_rows: usize,
    ) -> Result<(), CudaError> {
        let (stream, inputs) = (device.stream(), x.inputs());
        Lora::check(NAME, Some(&lora), true, rows, 0)?;
        let (norm_blocks, planes) = (norm.unwrap_or(0) / BLOCK, self.planes.count());
        let squares = inputs.squares.map_or(0, |s| s.len());
        let halves = x.only_halves();
        let short = halves.is_none()
            && (inputs.codes.len() < rows * cols * planes
                || inputs.meta.len() < rows * cols / 16 * planes
                || squares < rows * norm_blocks);
        if !cols.is_multiple_of(BLOCK) || short || a_rows > lora.stride {
            let what = format!("{rows} rows of {cols}, {a_rows} rows of A and {} values a row of h", lora.stride);
            return Err(CudaError::shape(NAME, what));
        }
        halves.map_or(Ok(()), |halves| halves.check(rows, cols))?;
        if rows == 0 {
            return Ok(());
        }
        let (halves, row_scales) = halves.map_or_else(Default::default, |halves| halves.pointers(device));
        // Each adapter's A is read once, but where there are fewer rows than slots.
        let slots = lora.memory.len() / lora.slot_bytes;
        let by_adapter = lora.early && rows > slots;
        let arguments = Arguments {
            codes: Ptr::of(inputs.codes, stream),
            meta: Ptr::of(inputs.meta, stream),
            squares: Ptr::of_some(inputs.squares, stream),
            halves,
            row_scales,
            reduced: PtrMut::of_shared(lora.reduced, stream),
            lora: lora.parts(stream),
            rows: rows as u32,
            cols: cols as u32,
            half_rows: rows as u32,
            norm_blocks: norm_blocks as i32,
            by_adapter: i32::from(by_adapter),
            slots: slots as u32,
            eps: inputs.eps,
        };
        let (kernel, block, times) = match (lora.early, by_adapter) {
            (true, true) => (&self.decoded, OF_ADAPTER, slots),
            (true, false) => (&self.decoded, ONE, 1),
            (false, _) => (&self.prompts, PROMPTS, 1),
        };
        let blocks = (a_rows.div_ceil(block.a) as u32, (times * rows.div_ceil(block.rows)) as u32);
        let grid = Grid { blocks, threads: block.threads as u32 };
        // SAFETY: the buffers were found large enough, the caller vouches for the adapters. What is read before the wait is
        // there.
        unsafe { kernel.launch(device, grid, &arguments) }
    }
}
