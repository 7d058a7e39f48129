//! How much room the prefix cache has.

use super::host::HostBlocks;

/// Room of the prefix cache. The KV pages of its entries are the scheduler's, as long as no sequence needs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixConfig {
    /// Recurrent states that the backend can keep beside those of slots; 0 switches the cache off.
    pub checkpoints: u32,
    /// Bytes of one of them.
    pub checkpoint_bytes: u64,
    /// Bytes of a KV page.
    pub page_bytes: u64,
    /// The second tier's. How many blocks there are is told by [`crate::step::HostProgress::blocks`].
    pub host: HostBlocks,
}

impl PrefixConfig {
    /// Every prompt is read whole.
    pub const OFF: Self = Self { checkpoints: 0, checkpoint_bytes: 0, page_bytes: 0, host: HostBlocks::NONE };

    /// A checkpoint's bytes, in pages.
    pub(crate) fn checkpoint_pages(&self) -> f64 {
        self.checkpoint_bytes.max(1) as f64 / self.page_bytes.max(1) as f64
    }
}
