//! Times of the kernels between layers: combine and gather.

use crate::time::{graph_time, table_head, table_row};
use crate::{Gpu, Outcome, TIMED};
use chimere_kernels::cuda::combine::{self, Combine, CombineShape, ExpertOutputs};
use chimere_kernels::cuda::gather::{self, Gather};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::rows::{Folded, FoldedOut, lengths};
use chimere_kernels::cuda::{CudaError, Program};
use cudarc::driver::CudaSlice;
use std::error::Error;

const RELEASED: CombineShape = CombineShape { cols: 2048, used: 8, shared: true, stream: true, planes: Planes::One };

/// Memory for folded rows.
pub(crate) struct Outputs {
    pub(crate) codes: CudaSlice<i8>,
    pub(crate) meta: CudaSlice<f32>,
    pub(crate) squares: CudaSlice<f32>,
}

impl Outputs {
    pub(crate) fn new(gpu: &Gpu, rows: usize, cols: usize, planes: Planes) -> Result<Self, Box<dyn Error>> {
        let (stream, [codes, meta, squares]) = (gpu.device.stream(), lengths(rows, cols, planes));
        Ok(Self {
            codes: stream.alloc_zeros(codes)?,
            meta: stream.alloc_zeros(meta)?,
            squares: stream.alloc_zeros(squares)?,
        })
    }
}

/// Builds the programs that [`time`] loads.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    Ok(vec![combine::program(RELEASED)?, gather::program(RELEASED.cols, RELEASED.planes)?])
}

pub(crate) fn time(gpu: &Gpu) -> Outcome {
    table_head("combine and gather, 2048 wide");
    let (stream, shape) = (gpu.device.stream(), RELEASED);
    let CombineShape { cols, used, .. } = shape;
    let (kernel, gather) =
        (Combine::load(&gpu.device, &gpu.cache, shape)?, Gather::load(&gpu.device, &gpu.cache, cols, shape.planes)?);
    for n in TIMED.into_iter().chain([16384]) {
        let mut random = Random(n as u64);
        let sample = random.vector(1 << 20);
        let long = |len: usize| -> Vec<f32> { sample.iter().copied().cycle().take(len).collect() };
        let slots = stream.clone_htod(&(0..n as i32).collect::<Vec<_>>())?;
        let gates = stream.clone_htod(&vec![0.01f32; n * (used + 1)])?;
        let (experts, own) = (stream.clone_htod(&long(n * used * cols))?, stream.clone_htod(&long(n * cols))?);
        let (mut x, w) = (stream.clone_htod(&long(n * cols))?, stream.clone_htod(&random.vector(cols))?);
        let mut out = Outputs::new(gpu, n, cols, shape.planes)?;
        let seconds = graph_time(gpu, if n > 256 { 8 } else { 64 }, |_| {
            let terms = ExpertOutputs {
                slots: &slots.as_view(),
                gates: &gates.as_view(),
                experts: &experts.as_view(),
                halves: false,
                shared: Some(&own.as_view()),
            };
            let (mut codes, mut meta, mut squares) =
                (out.codes.as_view_mut(), out.meta.as_view_mut(), out.squares.as_view_mut());
            let folded = FoldedOut { codes: &mut codes, meta: &mut meta, squares: &mut squares };
            kernel.launch(&gpu.device, n, terms, &w.as_view(), &mut x.as_view_mut(), folded)
        })?;
        table_row("combine", n, seconds, (n * cols) as f64 * (4.0 * (used + 3) as f64 + 1.375));
        let mut to = Outputs::new(gpu, n, cols, shape.planes)?;
        let seconds = graph_time(gpu, if n > 256 { 8 } else { 64 }, |_| {
            let from =
                Folded { codes: &out.codes.as_view(), meta: &out.meta.as_view(), squares: &out.squares.as_view() };
            let (mut codes, mut meta, mut squares) =
                (to.codes.as_view_mut(), to.meta.as_view_mut(), to.squares.as_view_mut());
            let folded = FoldedOut { codes: &mut codes, meta: &mut meta, squares: &mut squares };
            // SAFETY: slots are 0..n.
            unsafe { gather.launch(&gpu.device, n, &slots.as_view(), from, folded) }
        })?;
        table_row("gather", n, seconds, (n * cols) as f64 * 2.75);
    }
    Ok(())
}
