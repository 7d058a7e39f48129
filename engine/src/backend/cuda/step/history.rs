//! Tokens of prompts that are not computed again, noted for penalties: the kernel and the memory it reads.

use crate::backend::cuda::error::{CudaResult, During};
use crate::backend::cuda::rank::staging::{Staging, stage};
use crate::backend::cuda::rank::store::Store;
use crate::ids::TokenId;
use chimere_kernels::cuda::history::PromptHistory;
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::CudaSlice;

/// The kernel that notes prompt tokens for penalties, and the memory that it reads.
pub(crate) struct HistoryKernel {
    kernel: PromptHistory,
    /// A prompt's tokens, `[context]`.
    tokens: CudaSlice<u32>,
}

impl HistoryKernel {
    pub(crate) fn new(device: &Device, cache: &KernelCache, vocab: usize, context: usize) -> CudaResult<Self> {
        let tokens = device.stream().alloc_zeros(context.max(1)).during("allocating a prompt's history")?;
        Ok(Self { kernel: PromptHistory::load(device, cache, vocab)?, tokens })
    }

    /// Notes tokens of a prompt in the history of a slot, which was cleared before, in stream order.
    pub(crate) fn note(
        &mut self,
        device: &Device,
        tokens: &[TokenId],
        slot: usize,
        store: &mut Store,
        staging: &Staging,
    ) -> CudaResult<()> {
        stage(device, staging, &mut self.tokens, 0, tokens)?;
        let history = &mut store.counts.as_view_mut();
        Ok(self.kernel.launch(device, &self.tokens.as_view(), tokens.len(), slot, history)?)
    }
}
