//! Tokens of prompts that are not computed again, noted for penalties: the kernel and the memory it reads.

use super::error::{CudaBackendError, During};
use super::staging::Staging;
use super::store::Store;
use crate::ids::TokenId;
use chimere_kernels::cuda::history::PromptHistory;
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::CudaSlice;

/// See the module.
pub(super) struct History {
    kernel: PromptHistory,
    /// A prompt's tokens, `[context]`.
    tokens: CudaSlice<u32>,
}

/// Bytes of device memory that a [`History`] takes.
pub(super) fn bytes(context: u32) -> u64 {
    4 * u64::from(context)
}

impl History {
    pub(super) fn new(
        device: &Device,
        cache: &KernelCache,
        vocab: usize,
        context: usize,
    ) -> Result<Self, CudaBackendError> {
        let tokens = device.stream().alloc_zeros(context.max(1)).during("allocating a prompt's history")?;
        Ok(Self { kernel: PromptHistory::load(device, cache, vocab)?, tokens })
    }

    /// Notes tokens of a prompt in the history of a slot, which was cleared before, in stream order.
    pub(super) fn note(
        &mut self,
        device: &Device,
        tokens: &[TokenId],
        slot: usize,
        store: &mut Store,
        staging: &Staging,
    ) -> Result<(), CudaBackendError> {
        super::stage(device, staging, &mut self.tokens, 0, tokens)?;
        let history = &mut store.counts.as_view_mut();
        Ok(self.kernel.launch(device, &self.tokens.as_view(), tokens.len(), slot, history)?)
    }
}
