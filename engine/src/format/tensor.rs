//! A named array as the file stores it: blocks stay encoded, and bytes of a mapped file are not copied.

use super::blocks::{decode_row, is_finite};
use super::mapped::MappedFile;
use super::{BlockType, NotFinite};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Encoded elements with their shape. Cloning copies no data.
#[derive(Clone)]
pub struct Tensor {
    /// The name in the file, for messages.
    pub name: String,
    /// Encoding of the elements.
    pub ty: BlockType,
    /// Row-major shape, slowest dimension first: `[out, in]` for a matrix, `[experts, out, in]` for a stack of them.
    pub shape: Vec<usize>,
    /// Multiplies the values beside what their encoding says: one factor, one a matrix, or one a row of each.
    pub scale: Option<Arc<[f32]>>,
    data: Data,
}

#[derive(Clone)]
enum Data {
    Mapped(Arc<MappedFile>, Range<usize>),
    Owned(Arc<Vec<u8>>, Range<usize>),
    Made(Arc<LazyBytes>),
}

/// What makes a tensor's bytes, and those that were made.
struct LazyBytes {
    make: Arc<dyn Fn() -> Tensor + Send + Sync>,
    made: OnceLock<Tensor>,
}

impl LazyBytes {
    fn tensor(&self, ty: BlockType, shape: &[usize]) -> &Tensor {
        self.made.get_or_init(|| {
            let tensor = (self.make)();
            assert_eq!((tensor.ty, encoded_len(ty, shape)), (ty, Some(tensor.bytes().len())), "as it was announced");
            tensor
        })
    }
}

impl Tensor {
    /// A tensor over a range of a mapped file. `None` if the shape is no whole number of blocks or its size is not the
    /// range's.
    pub(super) fn mapped(
        name: String,
        ty: BlockType,
        shape: Vec<usize>,
        file: Arc<MappedFile>,
        range: Range<usize>,
    ) -> Option<Self> {
        file.get(range.clone())?;
        (encoded_len(ty, &shape)? == range.len()).then_some(Self {
            name,
            ty,
            shape,
            scale: None,
            data: Data::Mapped(file, range),
        })
    }

    /// A tensor of its own bytes. `None` as for [`Tensor::mapped`].
    pub fn owned(name: String, ty: BlockType, shape: Vec<usize>, bytes: Vec<u8>) -> Option<Self> {
        let range = 0..bytes.len();
        let data = Data::Owned(Arc::new(bytes), range.clone());
        (encoded_len(ty, &shape)? == range.len()).then_some(Self { name, ty, shape, scale: None, data })
    }

    /// A tensor whose bytes `make` makes, on the thread that first asks for them, and which are kept as long as this or
    /// a clone of it is. `make` gives a tensor of this type and as many elements. `None` if the shape is no whole
    /// number of blocks.
    pub(crate) fn made(
        name: String,
        ty: BlockType,
        shape: Vec<usize>,
        make: impl Fn() -> Tensor + Send + Sync + 'static,
    ) -> Option<Self> {
        encoded_len(ty, &shape)?;
        let data = Data::Made(Arc::new(LazyBytes { make: Arc::new(make), made: OnceLock::new() }));
        Some(Self { name, ty, shape, scale: None, data })
    }

    /// A copy of the tensor for a short while: bytes that have to be made are made again for it, and go with it.
    pub(crate) fn passing(&self) -> Self {
        match &self.data {
            Data::Made(made) => {
                let data = Data::Made(Arc::new(LazyBytes { make: made.make.clone(), made: OnceLock::new() }));
                Self { data, ..self.clone() }
            }
            Data::Mapped(..) | Data::Owned(..) => self.clone(),
        }
    }

    /// A copy of the tensor that does not need the file: mapped bytes are copied, for whoever keeps them when the model
    /// is loaded.
    pub fn in_memory(&self) -> Self {
        match &self.data {
            Data::Owned(..) => self.clone(),
            Data::Mapped(..) | Data::Made(..) => {
                let bytes = self.bytes().to_vec();
                let range = 0..bytes.len();
                Self { data: Data::Owned(Arc::new(bytes), range), ..self.clone() }
            }
        }
    }

    /// As [`Tensor::in_memory`], and checks that the weights are finite numbers.
    pub(crate) fn finite_in_memory(&self) -> Result<Self, NotFinite> {
        let (row, cols) = (self.ty.row_bytes(self.cols()).expect("checked at construction"), self.cols());
        let mut bytes = Vec::with_capacity(self.bytes().len());
        for (at, row) in self.bytes().chunks_exact(row.max(1)).enumerate() {
            self.check(row, at)?;
            bytes.extend_from_slice(row);
        }
        assert_eq!(bytes.len(), self.bytes().len(), "rows of {cols}");
        let range = 0..bytes.len();
        Ok(Self { data: Data::Owned(Arc::new(bytes), range), ..self.clone() })
    }

    /// Encoded bytes of row `row` of matrix `matrix`, if its weights are finite numbers.
    pub(crate) fn finite_row(&self, matrix: usize, row: usize) -> Result<&[u8], NotFinite> {
        let bytes = self.row(matrix, row);
        self.check(bytes, matrix * self.rows() + row)?;
        Ok(bytes)
    }

    fn check(&self, bytes: &[u8], row: usize) -> Result<(), NotFinite> {
        if is_finite(self.ty, bytes) { Ok(()) } else { Err(NotFinite { tensor: self.name.clone(), row }) }
    }

    /// The tensor's bytes as encoded.
    pub fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::Mapped(file, range) => &file[range.clone()],
            Data::Owned(bytes, range) => &bytes[range.clone()],
            Data::Made(made) => made.tensor(self.ty, &self.shape).bytes(),
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

    /// This tensor with other factors ([`Tensor::scale`]).
    pub(crate) fn with_scale(self, scale: Option<Arc<[f32]>>) -> Self {
        Self { scale, ..self }
    }

    /// What row `row` of matrix `matrix` is multiplied with beside what its encoding says.
    pub fn row_scale(&self, matrix: usize, row: usize) -> f32 {
        match self.scale.as_deref() {
            None => 1.0,
            Some([one]) => *one,
            Some(all) if all.len() == self.matrices() => all[matrix],
            Some(all) => all[matrix * self.rows() + row],
        }
    }

    /// All values, in the order of the shape.
    pub fn decode(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.shape.iter().product()];
        decode_row(self.ty, self.bytes(), &mut out);
        if self.scale.is_some() {
            let rows = self.rows();
            for (i, row) in out.chunks_exact_mut(self.cols()).enumerate() {
                let scale = self.row_scale(i / rows, i % rows);
                row.iter_mut().for_each(|x| *x *= scale);
            }
        }
        out
    }

    /// The rows `rows` of each matrix as a tensor of its own. Of a single matrix no byte is copied, of a stack all are.
    ///
    /// # Panics
    /// If a row is not there.
    pub fn rows_of_each(&self, rows: Range<usize>) -> Self {
        assert!(rows.start <= rows.end && rows.end <= self.rows(), "rows {rows:?} of {self:?}");
        if !self.may_part(std::slice::from_ref(&rows)) {
            return self.decoded().rows_of_each(rows);
        }
        if self.matrices() > 1 {
            return self.gather_rows(&[rows]);
        }
        let len = self.ty.row_bytes(self.cols()).expect("checked at construction");
        let within = |whole: &Range<usize>| whole.start + rows.start * len..whole.start + rows.end * len;
        let data = match &self.data {
            Data::Mapped(file, whole) => Data::Mapped(file.clone(), within(whole)),
            Data::Owned(bytes, whole) => Data::Owned(bytes.clone(), within(whole)),
            Data::Made(_) => return self.gather_rows(&[rows]),
        };
        let scale = self.scale_of_rows(std::slice::from_ref(&rows));
        Self { shape: self.with_rows(rows.len()), scale, data, ..self.clone() }
    }

    /// Whether these rows keep their encoding by themselves. Eight rows that share the scales of 128 are kept together,
    /// so that a device need keep them for eight.
    fn may_part(&self, pieces: &[Range<usize>]) -> bool {
        let whole = |p: &Range<usize>| p.start.is_multiple_of(8) && p.len().is_multiple_of(8);
        self.ty != BlockType::F8E4m3B128 || pieces.iter().all(whole)
    }

    /// The values as f32.
    pub(super) fn decoded(&self) -> Self {
        let bytes = self.decode().into_iter().flat_map(f32::to_le_bytes).collect();
        Self::owned(self.name.clone(), BlockType::F32, self.shape.clone(), bytes).expect("as many values as before")
    }

    /// [`Tensor::scale`] of the rows in `pieces` of each matrix.
    fn scale_of_rows(&self, pieces: &[Range<usize>]) -> Option<Arc<[f32]>> {
        let all = self.scale.as_ref()?;
        if all.len() == 1 || all.len() == self.matrices() {
            return Some(all.clone());
        }
        let of_matrix = |matrix: &[f32]| pieces.iter().flat_map(|p| matrix[p.clone()].to_vec()).collect::<Vec<_>>();
        Some(all.chunks_exact(self.rows()).flat_map(of_matrix).collect())
    }

    /// The rows in `pieces`, in that order, of each matrix, copied.
    ///
    /// # Panics
    /// If a row is not there.
    pub fn gather_rows(&self, pieces: &[Range<usize>]) -> Self {
        if !self.may_part(pieces) {
            return self.decoded().gather_rows(pieces);
        }
        let len = self.ty.row_bytes(self.cols()).expect("checked at construction");
        let rows: usize = pieces.iter().map(Range::len).sum();
        let mut bytes = Vec::with_capacity(self.matrices() * rows * len);
        for matrix in self.bytes().chunks_exact(self.rows() * len) {
            pieces.iter().for_each(|p| bytes.extend_from_slice(&matrix[p.start * len..p.end * len]));
        }
        let range = 0..bytes.len();
        let scale = self.scale_of_rows(pieces);
        Self { shape: self.with_rows(rows), scale, data: Data::Owned(Arc::new(bytes), range), ..self.clone() }
    }

    fn with_rows(&self, rows: usize) -> Vec<usize> {
        let mut shape = self.shape.clone();
        let i = shape.len().checked_sub(2).expect("rows are picked from a matrix");
        shape[i] = rows;
        shape
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

    #[test]
    fn what_is_made_is_made_once_and_again_in_passing() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let count = Arc::new(AtomicUsize::new(0));
        let make = {
            let count = count.clone();
            move || {
                count.fetch_add(1, Ordering::Relaxed);
                Tensor::owned("x".into(), BlockType::Q8_0, vec![3, 32], (0..102).collect()).unwrap()
            }
        };
        let t = Tensor::made("w".into(), BlockType::Q8_0, vec![3, 1, 32], make).unwrap();
        assert_eq!((t.clone().row(2, 0)[0], t.row(0, 0)[0]), (68, 0));
        assert_eq!((t.rows_of_each(0..1).bytes().len(), count.load(Ordering::Relaxed)), (102, 1));
        assert_eq!((t.passing().bytes().len(), t.bytes().len(), count.load(Ordering::Relaxed)), (102, 102, 2));
        assert!(Tensor::made("w".into(), BlockType::Q8_0, vec![33], || unreachable!()).is_none());
    }

    #[test]
    fn rows_that_share_scales_part_by_eights_or_are_decoded() {
        let bytes: Vec<u8> = (0..16).flat_map(|r| [vec![0, 0, 0, 0x40], vec![0x30 + r; 128]].concat()).collect();
        let t = Tensor::owned("w".into(), BlockType::F8E4m3B128, vec![16, 128], bytes).unwrap();
        let (even, odd) = (t.rows_of_each(8..16), t.rows_of_each(3..7));
        assert_eq!((even.ty, odd.ty, odd.shape.as_slice()), (BlockType::F8E4m3B128, BlockType::F32, &[4, 128][..]));
        assert_eq!((even.decode(), odd.decode()), (t.decode()[1024..].to_vec(), t.decode()[384..896].to_vec()));
        assert_eq!(t.gather_rows(&[8..16, 0..8]).ty, BlockType::F8E4m3B128);
        assert_eq!(t.gather_rows(std::slice::from_ref(&(1..9))).decode(), t.decode()[128..1152]);
    }

    #[test]
    fn factors_of_rows_go_with_their_rows() {
        let bytes: Vec<u8> = (0..6).map(|row| [0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c][row]).collect();
        let mut t = Tensor::owned("w".into(), BlockType::F8E4m3, vec![2, 3, 1], bytes).unwrap();
        assert_eq!(t.decode(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        t.scale = Some([10.0, 100.0].into());
        assert_eq!(t.decode(), [10.0, 20.0, 30.0, 400.0, 500.0, 600.0]);
        t.scale = Some([1.0, 2.0, 3.0, 4.0, 5.0, 6.0].into());
        assert_eq!(t.decode(), [1.0, 4.0, 9.0, 16.0, 25.0, 36.0]);
        assert_eq!(t.rows_of_each(1..3).decode(), [4.0, 9.0, 25.0, 36.0]);
        assert_eq!(t.gather_rows(&[2..3, 0..1]).decode(), [9.0, 1.0, 36.0, 16.0]);
        t.shape = vec![6, 1];
        assert_eq!(t.rows_of_each(2..4).rows_of_each(1..2).decode(), [16.0]);
    }

    #[test]
    fn rows_are_picked_from_one_matrix_and_from_each_of_a_stack() {
        let t =
            Tensor::owned("w".into(), BlockType::Q8_0, vec![2, 3, 32], (0..6).flat_map(|r| [r; 34]).collect()).unwrap();
        let first = |t: &Tensor| t.bytes().chunks_exact(34).map(|r| r[0]).collect::<Vec<_>>();
        assert_eq!(first(&t.rows_of_each(1..3)), [1, 2, 4, 5]);
        assert_eq!(t.rows_of_each(1..3).shape, [2, 2, 32]);
        assert_eq!(first(&t.gather_rows(&[2..3, 0..1])), [2, 0, 5, 3]);
        let one = Tensor::owned("w".into(), BlockType::Q8_0, vec![3, 32], t.bytes()[..102].to_vec()).unwrap();
        assert_eq!(first(&one.rows_of_each(1..3).rows_of_each(1..2)), [2]);
        assert_eq!(one.rows_of_each(0..0).shape, [0, 32]);
    }
}
