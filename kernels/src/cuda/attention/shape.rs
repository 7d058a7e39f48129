//! Heads of an attention layer, how their keys and values are kept, and which of both there are kernels for.

use crate::cuda::CudaError;
use crate::cuda::rows::quantized::Planes;
use crate::reference::Yarn;

/// Positions of a page.
pub const PAGE: usize = 32;

/// Widths of heads that there are kernels for, ascending.
pub const DIMS: [usize; 3] = [64, 128, 256];

/// The least that any supported chip has for a block.
pub(super) const SHARED_BYTES_MAX: usize = 99 << 10;

/// Heads of an attention layer, and its rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// D, of queries, keys and values.
    pub dim: usize,
    /// How many query heads there are.
    pub heads: usize,
    /// Key-value heads; query head `h` uses `h / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Dims that are rotated, pair `(i, i + rotary / 2)`.
    pub rotary: usize,
    /// Base of the rotations' frequencies.
    pub theta: f64,
    /// What changes these frequencies, if anything; its magnitude is in `scale`.
    pub yarn: Option<Yarn>,
    /// Epsilon of the norms of queries and keys.
    pub eps: f32,
    /// Whether query heads have gates.
    pub gated: bool,
    /// Whether queries and keys are normed.
    pub normed: bool,
    /// What scores are multiplied with.
    pub scale: f32,
    /// From an input row to the next, in values: D of q and D of gate, if there are gates, for each query head, all k,
    /// all v.
    pub stride: usize,
    /// Of the output rows.
    pub planes: Planes,
    /// Drafted rows that may stand behind a sequence's own in a decode step.
    pub drafts: usize,
}

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvType {
    /// Keys and values as f16.
    F16,
    /// Both in blocks of 32 dims that share an f16 scale, codes of 8 bits; keys after a Hadamard rotation.
    Q8,
    /// Keys as [`KvType::Q8`], values with codes of 4 bits.
    Q8Q4,
}

impl KvType {
    /// As the source numbers them.
    pub(super) fn codes(self) -> (i64, i64) {
        match self {
            Self::F16 => (0, 0),
            Self::Q8 => (1, 1),
            Self::Q8Q4 => (1, 2),
        }
    }

    /// Bytes of one key and one value of `dim` dims.
    pub(super) fn vector_bytes(self, dim: usize) -> (usize, usize) {
        let scales = dim / 32 * 2;
        match self {
            Self::F16 => (2 * dim, 2 * dim),
            Self::Q8 => (dim + scales, dim + scales),
            Self::Q8Q4 => (dim + scales, dim / 2 + scales),
        }
    }
}

impl AttentionShape {
    /// Query heads that share a key-value head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Values of an input row.
    pub fn inputs(&self) -> usize {
        ((1 + usize::from(self.gated)) * self.heads + 2 * self.kv_heads) * self.dim
    }

    /// From an output row to the next, in values: a multiple of 128.
    pub fn out_stride(&self) -> usize {
        (self.heads * self.dim).next_multiple_of(128)
    }

    /// Bytes of a page of keys and of a page of values, all key-value heads of one layer.
    pub fn page_bytes(&self, kv: KvType) -> (usize, usize) {
        let (k, v) = kv.vector_bytes(self.dim);
        (self.kv_heads * PAGE * k, self.kv_heads * PAGE * v)
    }

    /// The scale of most models, `1 / sqrt(dim)`.
    pub fn usual_scale(dim: usize) -> f32 {
        1.0 / (dim as f32).sqrt()
    }

    /// The scale for powers of 2 instead of e. The usual one is rounded once.
    pub(super) fn scale_of_two(&self) -> f32 {
        if self.scale == Self::usual_scale(self.dim) {
            return std::f32::consts::LOG2_E / (self.dim as f32).sqrt();
        }
        std::f32::consts::LOG2_E * self.scale
    }

    /// That there is a kernel for it.
    ///
    /// # Errors
    /// If there is none; it names the size.
    pub fn check(&self) -> Result<(), CudaError> {
        let fail = |reason: String| Err(CudaError::shape("attention", reason));
        let AttentionShape { dim, heads, kv_heads, rotary, stride, .. } = *self;
        if !DIMS.contains(&dim) {
            return fail(format!("heads of {dim}: must be of 64, 128 or 256"));
        }
        if kv_heads == 0 || heads == 0 || !heads.is_multiple_of(kv_heads) || heads / kv_heads > 16 {
            return fail(format!(
                "{heads} query heads for {kv_heads} key-value heads: must be a multiple, at most 16 of each"
            ));
        }
        if !(rotary.is_multiple_of(4) && rotary <= 64 || rotary == 128 && dim == 128) {
            let reason = format!("{rotary} rotated dims: must be a multiple of 4, at most 64, or all of 128");
            return fail(reason);
        }
        if stride < self.inputs() || !stride.is_multiple_of(2) {
            return fail(format!("input rows {stride} apart: must be even and at least {}", self.inputs()));
        }
        Ok(())
    }
}
