//! What a launch of experts reads and writes.

use crate::cuda::lora::Lora;
use crate::cuda::moe::router::{Cuts, LayerWeights};
use crate::cuda::stack::Stack;
use cudarc::driver::{CudaView, CudaViewMut};

/// Packed matrices of a layer.
pub struct Matrices<'a> {
    /// Of the routed experts; gate and up lie in the same places as down, if they are placed.
    pub routed: Stack<'a>,
    /// Of the shared one.
    pub shared: &'a CudaView<'a, u8>,
    /// What products of down are multiplied with, of the routed ones and of the shared one.
    pub factors: [f32; 2],
}

/// How rows choose their experts: by scores of the residual stream that have the bits of
/// [`crate::cuda::moe::router::Variant::Few`].
pub struct Routing<'a, 'b> {
    /// Of the router; its norm's squares are those of the launch.
    pub weights: LayerWeights<'a>,
    /// `[rows]`; below 0: no row.
    pub slots: &'a CudaView<'a, i32>,
    /// How few experts rows may do with; `None` where all take all.
    pub cuts: Option<Cuts<'a>>,
    /// `[rows, used]`: gets what was chosen, as [`crate::cuda::moe::router::ChosenExperts`] has it.
    pub chosen: &'a mut CudaViewMut<'b, i32>,
    /// `[rows_max, used]`: the experts of each row, all different, for kernels that replay; `None` for all others.
    pub given: Option<&'a CudaView<'a, i32>>,
}

/// Int8 rows between gate and up and down.
pub struct ExpertRows<'a, 'b> {
    /// `[rows, used, width rounded up to 128, times planes]`, what is beyond the width zeroed once.
    pub codes: &'a mut CudaViewMut<'b, i8>,
    /// `[rows, used, the same / 32, 2]`.
    pub meta: &'a mut CudaViewMut<'b, f32>,
    /// `[rows, shared width rounded up to 128, times planes]`, likewise.
    pub shared_codes: &'a mut CudaViewMut<'b, i8>,
    /// `[rows, the same / 32, 2]`.
    pub shared_meta: &'a mut CudaViewMut<'b, f32>,
    /// What adapters add to what the shared expert's down makes of them.
    pub lora: Option<Lora<'a>>,
}
