//! Bytes that are made in pieces, for whoever copies them to a device or into memory that it reads.

use crate::format::NotFinite;
use rayon::prelude::*;

/// Bytes that are made in pieces, in any order and on any thread.
pub(crate) trait ByteSource: Sync {
    /// Bytes of each piece.
    fn piece_bytes(&self) -> usize;
    /// How many there are.
    fn pieces(&self) -> usize;
    /// Makes one, whatever was in `out`; an error if the weights that it is made of are no finite numbers.
    fn write(&self, piece: usize, out: &mut [u8]) -> Result<(), NotFinite>;
}

pub(crate) fn bytes_of(source: &dyn ByteSource) -> usize {
    source.pieces() * source.piece_bytes()
}

/// Makes all pieces on all cores.
pub(crate) fn fill(source: &dyn ByteSource, out: &mut [u8]) -> Result<(), NotFinite> {
    out.par_chunks_exact_mut(source.piece_bytes()).enumerate().try_for_each(|(i, out)| source.write(i, out))
}
