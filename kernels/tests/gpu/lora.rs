//! Products with low-rank adapters against their definition, and rows beside them.

use crate::support::{Gpu, H200, Outcome, Test, f16, f16_bits};
use chimere_kernels::cuda::lora::{self, GroupHead, HEAD_BYTES, Lora, LoraShrink, NO_PART, PARTS_MAX, PLACE_BYTES};
use chimere_kernels::cuda::product::layout::Layout;
use chimere_kernels::cuda::product::sample::{Matrix, Random};
use chimere_kernels::cuda::product::{self, Activated, MatrixShape, Residual};
use chimere_kernels::cuda::quantized::{Planes, QuantizedRows};
use chimere_kernels::cuda::wide::halves::{HalfRows, Halves};
use chimere_kernels::cuda::wide::{
    self, Columns, Epilogue, HalfPlace, Inputs, Many, Output, Source, WideArithmetic, WideShape, warpgroup,
};
use chimere_kernels::cuda::{CudaError, Program};
use chimere_kernels::reference;
use std::error::Error;
use std::rc::Rc;

/// Of the largest output: sums in f32 of values in f16, and of what int8 rows lose where they become f16.
const TOLERANCE: f32 = 2e-3;
const RANK: usize = 16;
const COLS: usize = 512;
/// Outputs of the matrix, the first of them number [`FIRST`] of the group's.
const ROWS: usize = 320;
const FIRST: usize = 64;
const ADAPTERS: usize = 3;
const EPS: f32 = 1e-6;

/// The ways to compute products of the matrix: its few rows by kernels of their own, many on int8, many in f16.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Few,
    FewInHalves,
    Int8,
    F16,
}
