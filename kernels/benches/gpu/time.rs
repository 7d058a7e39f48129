//! What measurements share: a graph's launches over more data than the cache holds, and tables.

use crate::Gpu;
use chimere_kernels::cuda::CudaError;
use cudarc::driver::sys;
use std::error::Error;

/// Seconds of one of `launches` launches in a graph: the median of seven replays.
pub(crate) fn graph_time(
    gpu: &Gpu,
    launches: usize,
    mut launch: impl FnMut(usize) -> Result<(), CudaError>,
) -> Result<f64, Box<dyn Error>> {
    let stream = gpu.device.stream();
    launch(0)?;
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    (0..launches).try_for_each(&mut launch)?;
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags)?.ok_or("nothing was captured")?;
    graph.launch()?;
    let mut times = Vec::new();
    for _ in 0..7 {
        let with_timing = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let start = stream.record_event(with_timing)?;
        graph.launch()?;
        let end = stream.record_event(with_timing)?;
        times.push(f64::from(start.elapsed_ms(&end)?) * 1e-3 / launches as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[3])
}

/// Begins a table of [`table_row`].
pub(crate) fn table_head(title: &str) {
    println!("\n{title}\n\n| kernel | rows | us | GB/s |\n| --- | --- | --- | --- |");
}

/// Says what one launch took.
pub(crate) fn table_row(name: &str, rows: usize, seconds: f64, bytes: f64) {
    println!("| {name} | {rows} | {:.2} | {:.0} |", seconds * 1e6, bytes / seconds / 1e9);
}

pub(crate) fn copy_bandwidth(gpu: &Gpu) -> Result<f64, Box<dyn Error>> {
    let (stream, bytes) = (gpu.device.stream(), 2usize << 30);
    let from = stream.alloc_zeros::<u8>(bytes)?;
    let mut to = stream.alloc_zeros::<u8>(bytes)?;
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let with_timing = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let start = stream.record_event(with_timing)?;
        stream.memcpy_dtod(&from, &mut to)?;
        let end = stream.record_event(with_timing)?;
        best = best.min(f64::from(start.elapsed_ms(&end)?) * 1e-3);
    }
    Ok(2.0 * bytes as f64 / best)
}
