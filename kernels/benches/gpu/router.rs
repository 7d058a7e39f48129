//! Times of the router of the released model.

use crate::time::{graph_time, table_head, table_row};
use crate::{Gpu, Outcome, TIMED};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::router::{
    self, ChosenExperts, Cuts, Groups, LayerWeights, Router, RouterRows, RouterShape, Variant,
};
use chimere_kernels::cuda::{CudaError, Program};

const RELEASED: RouterShape = RouterShape { cols: 2048, experts: 256, used: 8, sigmoid: false };
const EPS: f32 = 1e-6;

/// Builds the programs that [`time`] loads.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    Ok(vec![router::program(RELEASED)?])
}

/// Layers whose weights the cache does not hold together.
const LAYERS: usize = 64;

pub(crate) fn time(gpu: &Gpu) -> Outcome {
    table_head("router, 2048 wide, 8 of 256 experts");
    let (stream, shape) = (gpu.device.stream(), RELEASED);
    let router = Router::load(&gpu.device, &gpu.cache, shape)?;
    let n_max = 16384;
    let mut work = router.workspace(&gpu.device, n_max)?;
    let mut random = Random(1);
    let layer: Vec<f32> = random.vector(256 * 2048);
    let mut weights = stream.alloc_zeros::<f32>(LAYERS * layer.len())?;
    let d_layer = stream.clone_htod(&layer)?;
    for i in 0..LAYERS {
        stream.memcpy_dtod(&d_layer, &mut weights.slice_mut(i * layer.len()..(i + 1) * layer.len()))?;
    }
    let (norm, gate) = (stream.clone_htod(&random.vector(2048))?, stream.clone_htod(&random.vector(2048))?);
    let x = stream.clone_htod(&random.vector(n_max * 2048))?;
    let squares = stream.clone_htod(&vec![10.0f32; n_max * 64])?;
    let slots = stream.clone_htod(&(0..n_max as i32).collect::<Vec<_>>())?;
    let (mut chosen, mut gates) = (stream.alloc_zeros::<i32>(n_max * 8)?, stream.alloc_zeros::<f32>(n_max * 9)?);
    let mut groups = stream.alloc_zeros::<i32>(4 * 256)?;
    let places = (n_max * 8).max(256 * router::GROUPED_ROWS);
    let (mut in_rows, mut out_rows) = (stream.alloc_zeros::<i32>(places)?, stream.alloc_zeros::<i32>(places)?);
    // As a step without any cut has them.
    let (words, tally) = (stream.alloc_zeros::<i32>(n_max * 2)?, stream.alloc_zeros::<u32>(1)?);
    let (words, tally) = (words.as_view(), tally.as_view());
    let cuts = Some(Cuts { words: &words, tally: &tally });
    for (variant, grouped, counts) in [
        (Variant::Few, false, &[1, 2, 4, 8, 16, 32, 64, 256][..]),
        (Variant::Few, true, &[1, 4, 8, 16, 256]),
        (Variant::Ordered, true, &[17, 24, 32, 48, 64, 96, 128, 192, 256]),
        (Variant::Tiled, false, &[1, 4, 8, 16, 64, 256, 512, 1024, 2048, 2559, 2560, 4096, 16384]),
        (Variant::Tiled, true, &[17, 24, 32, 64, 128, 256, 2048, 16384]),
        (router.for_prompts(), false, &[64, 256, 512, 1024, 2048, 2559, 2560, 4096, 8192, 16384]),
        (router.for_prompts(), true, &[512, 2048, 8192]),
    ] {
        for n in counts.iter().copied() {
            let seconds = graph_time(gpu, LAYERS, |i| {
                let layer = LayerWeights {
                    norm: &norm.as_view(),
                    experts: &weights.slice(i * layer.len()..(i + 1) * layer.len()),
                    shared_gate: &gate.as_view(),
                    bias: None,
                    eps: EPS,
                };
                let rows = RouterRows {
                    count: n,
                    slots: &slots.as_view(),
                    x: &x.as_view(),
                    squares: &squares.as_view(),
                    cuts,
                };
                let choice = ChosenExperts { experts: &mut chosen.as_view_mut(), gates: &mut gates.as_view_mut() };
                let (mut slots, mut ins, mut outs) =
                    (groups.as_view_mut(), in_rows.as_view_mut(), out_rows.as_view_mut());
                // As decode rows have them.
                let pitch = if n <= router::GROUPED_ROWS { n } else { 0 };
                let lists =
                    grouped.then_some(Groups { slots: &mut slots, in_rows: &mut ins, out_rows: &mut outs, pitch });
                router.launch(&gpu.device, &mut work, variant, rows, layer, choice, lists)
            })?;
            let name = format!("router {variant:?}{}", if grouped { " and lists" } else { "" });
            table_row(&name, n, seconds, (2048 * 257 * 4 + n * 2048 * 4) as f64);
        }
    }
    for n in TIMED.into_iter().chain([16384]) {
        let seconds = graph_time(gpu, 16, |_| {
            let (mut slots, mut ins, mut outs) = (groups.as_view_mut(), in_rows.as_view_mut(), out_rows.as_view_mut());
            let lists = Groups { slots: &mut slots, in_rows: &mut ins, out_rows: &mut outs, pitch: 0 };
            // SAFETY: the router wrote the ids.
            unsafe { router.group(&gpu.device, &mut work, n, &chosen.as_view(), lists) }
        })?;
        table_row("lists alone", n, seconds, (n * 8 * 12) as f64);
    }
    Ok(())
}
