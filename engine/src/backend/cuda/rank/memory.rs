//! The memory of one device that every block reads and writes beside its own weights.

use super::store::Store;
use super::workspace::Workspace;

/// What stays between steps and what a pass alone uses. Both have one owner, so a block borrows them for its launch.
pub(crate) struct RankMemory<'a> {
    /// Recurrent states, keys and values, token history: they outlive the step.
    pub(crate) store: &'a mut Store,
    /// Activations of the pass that is being enqueued.
    pub(crate) work: &'a mut Workspace,
}
