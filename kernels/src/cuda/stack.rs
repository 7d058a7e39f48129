//! Where the matrices of a stack lie, those of a layer's experts: one after another, or each wherever a table says.

use super::arguments::Ptr;
use cudarc::driver::{CudaStream, CudaView};

/// Matrices of one shape, numbered from 0.
pub enum Stack<'a> {
    /// One after another in the device's memory.
    Packed(CudaView<'a, u8>),
    /// Each in a place of its own, maybe beside others, in the device's memory or in the host's.
    Placed {
        /// Where each place begins, `[matrices]`: addresses of the device, multiples of 16.
        places: CudaView<'a, u64>,
        /// Where in its place a matrix begins, a multiple of 16 bytes.
        offset: usize,
    },
}

impl<'a> From<&'a CudaView<'a, u8>> for Stack<'a> {
    fn from(packed: &'a CudaView<'a, u8>) -> Self {
        Self::Packed(packed.slice(..))
    }
}

impl Stack<'_> {
    /// Whether a table says where the matrices lie: kernels are compiled for one of the two.
    pub fn placed(&self) -> bool {
        matches!(self, Self::Placed { .. })
    }

    /// How many matrices of so many bytes there are at least.
    pub(super) fn count(&self, bytes: usize) -> usize {
        match self {
            Self::Packed(all) => all.len() / bytes,
            Self::Placed { places, .. } => places.len(),
        }
    }

    /// What a kernel is given: the first matrix or nothing, the table or nothing, and how far it is from a matrix to
    /// the next, or from where a place begins to the matrix.
    pub(super) fn arguments(&self, bytes: usize, stream: &CudaStream) -> (Ptr<u8>, Ptr<u64>, u64) {
        match self {
            Self::Packed(all) => (Ptr::of(all, stream), Ptr::default(), bytes as u64),
            Self::Placed { places, offset } => (Ptr::default(), Ptr::of(places, stream), *offset as u64),
        }
    }
}
