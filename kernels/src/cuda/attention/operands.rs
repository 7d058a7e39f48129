//! What a launch of attention reads and writes beside its weights' shape.

use crate::cuda::wide::halves::HalfRows;
use cudarc::driver::{CudaView, CudaViewMut};

/// A step's rows; on the device, written before the step begins.
#[derive(Clone, Copy)]
pub struct AttentionRows<'a> {
    /// Number of rows, padding rows included.
    pub count: usize,
    /// Slot of each row's sequence; below 0: no row. In a decode step rows of one slot stand next to one another: all
    /// but the first are drafted.
    pub slots: &'a CudaView<'a, i32>,
    /// Position of each row; of drafted ones one after another.
    pub positions: &'a CudaView<'a, i32>,
    /// `[slots, pages_max]`: page of the cache that holds positions `32 i` to `32 i + 31`. Written before the step
    /// begins.
    pub page_table: &'a CudaView<'a, i32>,
    /// Pages of a slot's row in the table.
    pub pages_max: usize,
    /// Whether input rows are f16, two in the place of an f32; not of decode steps.
    pub half_inputs: bool,
}

/// Weights of one layer.
#[derive(Clone, Copy)]
pub struct Norms<'a> {
    /// `[dim]`, the factor itself.
    pub query: &'a CudaView<'a, f32>,
    /// `[dim]`, the factor itself.
    pub key: &'a CudaView<'a, f32>,
}

/// KV cache of one layer, in pages of [`super::AttentionShape::page_bytes`] each.
pub struct Cache<'a, 'b> {
    /// Pages of keys, `[pages, bytes of a page of keys]`.
    pub keys: &'a mut CudaViewMut<'b, u8>,
    /// Pages of values, `[pages, bytes of a page of values]`.
    pub values: &'a mut CudaViewMut<'b, u8>,
}

/// Where the result goes: int8 rows of [`super::AttentionShape::out_stride`]; what is beyond `heads * dim` of a row
/// stays as it is.
pub struct Out<'a, 'b> {
    /// `[rows, out_stride * planes]`.
    pub codes: &'a mut CudaViewMut<'b, i8>,
    /// `[rows, out_stride / 32 * planes, 2]`.
    pub meta: &'a mut CudaViewMut<'b, f32>,
    /// Where a prompt's rows go as f16 instead, if they do: with one plane, for heads whose values are whole units of
    /// 128.
    pub halves: Option<&'a HalfRows>,
}
