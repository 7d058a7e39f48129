//! Matrices that a directory stores in fewer than 16 bits. Each is several tensors, codes and scales, in one of the
//! layouts of the programs that quantise; here their rows are brought into an encoding of [`BlockType`] without a
//! change of any value.
//!
//! | scheme | codes | beside them |
//! | --- | --- | --- |
//! | 8-bit floats, 128 x 128 | `weight` E4M3 | `weight_scale_inv` or `weight_scale`, one for each square |
//! | 8-bit floats, by row or whole | `weight` E4M3 | `weight_scale` `[rows, 1]`, `[rows]`, `[1]` or `[]` |
//! | NVFP4 of modelopt | `weight` U8 | `weight_scale` E4M3 `[rows, cols / 16]`, `weight_scale_2`, which multiplies |
//! | NVFP4 of compressed-tensors | `weight_packed` U8 | `weight_scale`, `weight_global_scale`, which divides |
//! | MXFP4 of compressed-tensors | `weight_packed` U8 | `weight_scale` U8 `[rows, cols / 32]`: powers of two |
//! | integers of compressed-tensors | `weight_packed` I32 | `weight_scale` `[rows, cols / 128]`, `weight_zero_point` |
//! | AWQ | `qweight` I32 `[cols, rows / 8]` | `scales` `[cols / 128, rows]`, `qzeros` `[cols / 128, rows / 8]` |
//! | GPTQ | `qweight` I32 `[cols / 8, rows]` | as AWQ, and `g_idx` `[cols]` |

mod config;
mod integers;
mod scales;
mod small_floats;

pub(super) use config::Quantization;

use super::tensors::{TensorLocation, Tensors};
use crate::format::{BlockType, LoadError, Tensor};
use safetensors::Dtype;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The layout of a quantised matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WeightScheme {
    /// 8-bit floats with a scale for 128 rows by 128 columns.
    Fp8Blocks,
    /// 8-bit floats with one scale a row.
    Fp8Rows,
    /// 8-bit floats with one scale.
    Fp8Whole,
    /// 4-bit floats with an 8-bit scale for 16, and one for all.
    Nvfp4,
    /// 4-bit floats with a power of two for 32.
    Mxfp4,
    /// 4-bit integers with a scale for 128, in the order of the columns.
    Int4,
    /// As [`WeightScheme::Int4`], with a zero point for 128.
    Int4Zeros,
    /// 4-bit integers with a scale and a zero point for 128, packed by outputs.
    Awq,
    /// 4-bit integers with a scale and a zero point for 128, packed by inputs.
    Gptq,
}

impl WeightScheme {
    /// Name in a message.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fp8Blocks => "FP8 in blocks of 128 x 128",
            Self::Fp8Rows => "FP8 with a scale a row",
            Self::Fp8Whole => "FP8 with one scale",
            Self::Nvfp4 => "NVFP4",
            Self::Mxfp4 => "MXFP4",
            Self::Int4 => "4-bit integers",
            Self::Int4Zeros => "4-bit integers with zero points",
            Self::Awq => "AWQ",
            Self::Gptq => "GPTQ",
        }
    }
}

/// What the tensors of a matrix of few bits say of it.
#[derive(Debug)]
pub(super) struct StoredMatrix {
    pub(super) scheme: WeightScheme,
    /// Of the matrix, or of a stack of them.
    pub(super) shape: Vec<usize>,
    /// The names of all tensors that it is made of; the first has the codes.
    pub(super) parts: Vec<String>,
}

/// What was found of matrices, by name: a model asks for each several times, and the look reads scales.
#[derive(Debug, Default)]
pub(super) struct FoundMatrices(Mutex<HashMap<String, Arc<StoredMatrix>>>);

impl FoundMatrices {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<StoredMatrix>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A matrix of few bits.
pub(super) struct QuantizedMatrix<'a> {
    pub(super) tensors: &'a Tensors,
    /// What config.json says of it.
    pub(super) quantization: &'a Quantization,
    /// What the tensor would be called if it were one.
    pub(super) name: String,
    pub(super) stored: Arc<StoredMatrix>,
}

impl<'a> QuantizedMatrix<'a> {
    /// The quantised matrix that stands for the tensor of this name, if there is one.
    pub(super) fn find(
        tensors: &'a Tensors,
        quantization: &'a Quantization,
        found: &FoundMatrices,
        name: &str,
    ) -> Result<Option<Self>, LoadError> {
        let of = |stored| Some(Self { tensors, quantization, name: name.to_owned(), stored });
        let known = found.all().get(name).cloned();
        if known.is_some() {
            return Ok(known.and_then(of));
        }
        let Some(stored) = Self::found(tensors, name)?.map(Arc::new) else { return Ok(None) };
        found.all().insert(name.to_owned(), stored.clone());
        Ok(of(stored))
    }

    fn found(tensors: &Tensors, name: &str) -> Result<Option<StoredMatrix>, LoadError> {
        let stem = name.strip_suffix(".weight");
        if let Some(entry) = tensors.location(name) {
            return match (entry.dtype, stem) {
                (Dtype::F8_E4M3, _) => small_floats::fp8(tensors, name, entry).map(Some),
                (Dtype::U8, Some(stem)) => small_floats::nvfp4_of_modelopt(tensors, name, stem, entry).map(Some),
                _ => Ok(None),
            };
        }
        let Some(stem) = stem else { return Ok(None) };
        let packed = format!("{stem}.weight_packed");
        if let Some(entry) = tensors.location(&packed) {
            return match entry.dtype {
                Dtype::U8 => small_floats::packed(tensors, stem, entry).map(Some),
                Dtype::I32 => integers::packed(tensors, stem, entry).map(Some),
                other => Err(tensors.error(&packed, "U8 or I32", format_args!("{other:?}"))),
            };
        }
        match tensors.location(&format!("{stem}.qweight")) {
            Some(entry) => integers::awq_or_gptq(tensors, stem, entry).map(Some),
            None => Ok(None),
        }
    }

    /// Whether [`QuantizedMatrix::find`] finds something under a name that no tensor has.
    pub(super) fn stands_for(tensors: &Tensors, name: &str) -> bool {
        let there = |stem: &str, end: &str| tensors.location(&format!("{stem}.{end}")).is_some();
        name.strip_suffix(".weight").is_some_and(|stem| there(stem, "weight_packed") || there(stem, "qweight"))
    }

    /// The name, without `.weight`, of the matrix whose codes a tensor of this name has.
    pub(super) fn stem_of(codes: &str) -> Option<&str> {
        [".weight", ".weight_packed", ".qweight"].into_iter().find_map(|end| codes.strip_suffix(end))
    }

    /// The encoding of its rows.
    pub(super) fn encoding(&self) -> BlockType {
        match self.stored.scheme {
            // A block of a row that is cut short has no encoding.
            WeightScheme::Fp8Blocks if !self.cols().is_multiple_of(small_floats::SQUARE) => BlockType::F32,
            WeightScheme::Fp8Blocks => BlockType::F8E4m3B128,
            WeightScheme::Fp8Rows | WeightScheme::Fp8Whole => BlockType::F8E4m3,
            WeightScheme::Nvfp4 => BlockType::Nvfp4,
            WeightScheme::Mxfp4 => BlockType::Mxfp4,
            WeightScheme::Int4 | WeightScheme::Int4Zeros | WeightScheme::Awq | WeightScheme::Gptq => BlockType::U4G128,
        }
    }

    /// The matrix, whose bytes are made when they are first asked for, by the thread that asks.
    pub(super) fn tensor(&self) -> Result<Tensor, LoadError> {
        match self.stored.scheme {
            WeightScheme::Fp8Blocks
            | WeightScheme::Fp8Rows
            | WeightScheme::Fp8Whole
            | WeightScheme::Nvfp4
            | WeightScheme::Mxfp4 => small_floats::tensor(self),
            WeightScheme::Int4 | WeightScheme::Int4Zeros | WeightScheme::Awq | WeightScheme::Gptq => {
                integers::tensor(self)
            }
        }
    }

    /// Elements of a row.
    fn cols(&self) -> usize {
        self.stored.shape.last().copied().unwrap_or(1)
    }

    /// Rows of all matrices.
    fn rows(&self) -> usize {
        self.stored.shape.iter().rev().skip(1).product()
    }

    /// Where part `i` lies.
    fn part(&self, i: usize) -> &'a TensorLocation {
        self.tensors.location(&self.stored.parts[i]).expect("it was found")
    }

    /// A tensor of this encoding, whose bytes `make` writes into zeros.
    fn made(&self, ty: BlockType, make: impl Fn(&mut [u8]) + Send + Sync + 'static) -> Result<Tensor, LoadError> {
        let bytes = ty.row_bytes(self.cols()).and_then(|row| row.checked_mul(self.rows())).ok_or_else(|| {
            let want = format_args!("rows of a multiple of {} values", ty.elements());
            self.tensors.error(&self.name, want, self.cols())
        })?;
        let (name, stored) = (self.name.clone(), self.stored.clone());
        let tensor = Tensor::made(self.name.clone(), ty, self.stored.shape.clone(), move || {
            let mut out = vec![0; bytes];
            make(&mut out);
            Tensor::owned(name.clone(), ty, stored.shape.clone(), out).expect("as many bytes as the encoding has")
        });
        Ok(tensor.expect("rows are whole blocks"))
    }
}
