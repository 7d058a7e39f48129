//! Decode passes as CUDA graphs, one for each bucket of rows; passes with drafted rows have their own. So have guesses,
//! several passes with their samplers in one.

use crate::backend::cuda::error::{CudaBackendError, CudaResult, During};
use crate::backend::cuda::layout::shape::PassShape;
use chimere_kernels::cuda::Device;
use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};

/// The graphs, by what they were captured for.
pub(crate) struct Graphs<S = PassShape> {
    graphs: Vec<(S, CudaGraph)>,
}

impl<S> Default for Graphs<S> {
    fn default() -> Self {
        Self { graphs: Vec::new() }
    }
}

impl<S: Copy + PartialEq> Graphs<S> {
    /// Captures what `enqueue` puts on the stream as the graph of `pass`. It must have run once before, so that its
    /// code is loaded: loading inside a capture is refused.
    pub(crate) fn capture(
        &mut self,
        device: &Device,
        pass: S,
        enqueue: impl FnOnce() -> CudaResult<()>,
    ) -> CudaResult<()> {
        let stream = device.stream();
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).during("capturing a graph")?;
        let enqueued = enqueue();
        // The capture ends whatever happened inside it, or the stream could not be used again.
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).during("instantiating a graph");
        enqueued?;
        let graph = graph?.ok_or(CudaBackendError::Unsupported {
            what: "a captured graph",
            got: "empty".into(),
            need: "at least one kernel".into(),
        })?;
        graph.upload().during("uploading a graph")?;
        self.graphs.push((pass, graph));
        Ok(())
    }

    /// Replays the graph of a pass.
    pub(crate) fn launch(&self, pass: S) -> CudaResult<()> {
        let (_, graph) = self.graphs.iter().find(|g| g.0 == pass).expect("every bucket was captured at start");
        graph.launch().during("launching a graph")
    }
}
