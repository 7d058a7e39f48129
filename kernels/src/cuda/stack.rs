//! Where the matrices of a stack lie, those of a layer's experts: one after another, or each wherever a table says.

use crate::cuda::runtime::arguments::{Ptr, PtrMut};
use cudarc::driver::{CudaStream, CudaView};

/// Places of the device's memory that a layer may have in reserve.
pub const RESERVES: usize = 8;

/// How matrices of the host's memory come to the device: those that the kernels for few rows read are written to a
/// place of the device on their way, as long as there is one, and lie there from the launch's end on. The kernels do
/// the bookkeeping of a launch, launches follow one another on the stream, and the host looks at it behind them.
pub struct Arrivals<'a> {
    /// Addresses of places of the device that hold nothing, `[RESERVES]`, 0 for none; those that were taken become 0.
    pub reserves: CudaView<'a, u64>,
    /// Who took each, plus one, `[RESERVES]`.
    pub came: CudaView<'a, u32>,
    /// Where the places of the host's memory begin, as the device sees them, and how many bytes they are.
    pub host: (u64, u64),
}

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
        /// Reserves that places of the host's memory are exchanged for.
        arrivals: Arrivals<'a>,
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
    pub(in crate::cuda) fn count(&self, bytes: usize) -> usize {
        match self {
            Self::Packed(all) => all.len() / bytes,
            Self::Placed { places, .. } => places.len(),
        }
    }

    /// What a kernel is given: the first matrix or nothing, the table or nothing, and how far it is from a matrix to
    /// the next, or from where a place begins to the matrix.
    pub(in crate::cuda) fn arguments(&self, bytes: usize, stream: &CudaStream) -> (Ptr<u8>, Ptr<u64>, u64) {
        match self {
            Self::Packed(all) => (Ptr::of(all, stream), Ptr::default(), bytes as u64),
            Self::Placed { places, offset, .. } => (Ptr::default(), Ptr::of(places, stream), *offset as u64),
        }
    }

    /// What a kernel is given that changes places: the table, reserves, who came, and where the host's memory begins
    /// and how long it is; nothing where there is no table.
    pub(in crate::cuda) fn changes(&self, stream: &CudaStream) -> (PtrMut<u64>, PtrMut<u64>, PtrMut<u32>, (u64, u64)) {
        let Self::Placed { places, arrivals: Arrivals { reserves, came, host }, .. } = self else {
            return Default::default();
        };
        let shared = |words| PtrMut::of_shared(words, stream);
        (shared(places), shared(reserves), PtrMut::of_shared(came, stream), *host)
    }
}
