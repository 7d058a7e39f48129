//! A named array as the file stores it: blocks stay encoded, and bytes of a mapped file are not copied.

use super::BlockType;
use memmap2::Mmap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Encoded elements with their shape. Cloning copies no data.
#[derive(Clone)]
pub struct Tensor {
    /// The name in the file, for messages.
    pub name: String,
    /// Encoding of the elements.
    pub ty: BlockType,
    /// Row-major shape, slowest dimension first: `[out, in]` for a matrix, `[experts, out, in]` for a stack of them.
    pub shape: Vec<usize>,
    /// Multiplies the product with each matrix (NVFP4's companion tensor): one value, or one a matrix.
    pub scale: Option<Arc<[f32]>>,
    data: Data,
}

#[derive(Clone)]
enum Data {
    Mapped(Arc<Mmap>, Range<usize>),
    Owned(Arc<[u8]>),
}

impl Tensor {
    /// A tensor over a range of a mapped file. `None` if the shape is no whole number of blocks or its size is not the range's.
    pub fn mapped(name: String, ty: BlockType, shape: Vec<usize>, file: Arc<Mmap>, range: Range<usize>) -> Option<Self> {
        file.get(range.clone())?;
        (encoded_len(ty, &shape)? == range.len()).then_some(Self { name, ty, shape, scale: None, data: Data::Mapped(file, range) })
    }

    /// A tensor of its own bytes. `None` as for [`Tensor::mapped`].
    pub fn owned(name: String, ty: BlockType, shape: Vec<usize>, bytes: Vec<u8>) -> Option<Self> {
        (encoded_len(ty, &shape)? == bytes.len()).then_some(Self { name, ty, shape, scale: None, data: Data::Owned(bytes.into()) })
    }

    /// All encoded bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::Mapped(file, range) => &file[range.clone()],
            Data::Owned(bytes) => bytes,
        }
    }

    /// Elements of a row (the fastest dimension).
    pub fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Rows of one matrix (the second-fastest dimension).
    pub fn rows(&self) -> usize {
        self.shape.len().checked_sub(2).map_or(1, |i| self.shape[i])
    }

    /// How many matrices are stacked.
    pub fn matrices(&self) -> usize {
        self.shape.iter().rev().skip(2).product()
    }

    /// Encoded bytes of row `row` of matrix `matrix`.
    pub fn row(&self, matrix: usize, row: usize) -> &[u8] {
        let len = self.ty.row_bytes(self.cols()).expect("checked at construction");
        let at = (matrix * self.rows() + row) * len;
        &self.bytes()[at..at + len]
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{:?}", self.name, self.ty.name(), self.shape)
    }
}

fn encoded_len(ty: BlockType, shape: &[usize]) -> Option<usize> {
    let row = ty.row_bytes(shape.last().copied().unwrap_or(1))?;
    shape.iter().rev().skip(1).try_fold(row, |n, d| n.checked_mul(*d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_knows_its_rows_and_refuses_bytes_that_do_not_fit() {
        let t = Tensor::owned("w".into(), BlockType::Q8_0, vec![2, 3, 64], vec![0; 2 * 3 * 68]).unwrap();
        assert_eq!((t.matrices(), t.rows(), t.cols()), (2, 3, 64));
        assert_eq!(t.row(1, 2).len(), 68);
        assert!(Tensor::owned("w".into(), BlockType::Q8_0, vec![3, 64], vec![0; 3 * 68 - 1]).is_none());
        assert!(Tensor::owned("w".into(), BlockType::Q8_0, vec![3, 33], vec![0; 3 * 68]).is_none());
        assert!(Tensor::owned("w".into(), BlockType::F32, vec![usize::MAX, 64], vec![]).is_none());
    }
}
