//! Vectors of a store's passages, a byte a number: the exact scan of 100,000 reads a quarter of what f32 would take,
//! and finds the same passages but for ties (`docs/using/documents.md` has the figures).

use crate::semantic::Centred;
use std::ops::Range;
use std::sync::OnceLock;

/// The largest number of a row.
const LARGEST: f32 = 127.0;
/// That of a query, which is one and may take two bytes a number.
const QUERY_LARGEST: f32 = 32_767.0;
/// Products that are summed as whole numbers: more could exceed 32 bits.
const PART: usize = 256;
const _: () = assert!(PART as u64 * 127 * 32_767 < i32::MAX as u64);
/// The scale of a row that has no vector yet.
const MISSING: f32 = 0.0;

/// A row for each passage, in their order.
#[derive(Debug)]
pub(in crate::documents) struct VectorRows {
    width: usize,
    codes: Vec<i8>,
    /// What a row is multiplied with to have length 1.
    scales: Vec<f32>,
    /// Sum of all vectors, from which the middle is computed.
    sum: Vec<f64>,
    /// Rows that have a vector.
    present: usize,
    /// The product of each row with the middle, made by the first search after a change.
    with_middle: OnceLock<Vec<f32>>,
}

/// A vector as it is kept in memory and on the disk.
pub fn coded(vector: &[f32]) -> impl Iterator<Item = u8> {
    let top = vector.iter().fold(f32::MIN_POSITIVE, |top, x| top.max(x.abs()));
    vector.iter().map(move |x| ((x / top * LARGEST).round() as i8).cast_unsigned())
}

impl VectorRows {
    pub(super) fn of_width(width: usize) -> Self {
        Self {
            width,
            codes: Vec::new(),
            scales: Vec::new(),
            sum: vec![0.0; width],
            present: 0,
            with_middle: OnceLock::new(),
        }
    }

    /// Bytes that a passage takes here.
    pub(in crate::documents) fn row_bytes(width: usize) -> u64 {
        (width + 2 * size_of::<f32>()) as u64
    }

    /// Bytes of a passage's vector on the disk.
    pub(super) fn row_len(&self) -> usize {
        self.width
    }

    pub(super) fn bytes(&self) -> u64 {
        self.scales.len() as u64 * Self::row_bytes(self.width)
    }

    pub(super) fn present(&self) -> usize {
        self.present
    }

    pub(super) fn has(&self, at: usize) -> bool {
        self.scales[at] != MISSING
    }

    /// Rows behind all others, for which there are no vectors yet.
    pub(super) fn push_missing(&mut self, count: usize) {
        self.scales.resize(self.scales.len() + count, MISSING);
        self.codes.resize(self.scales.len() * self.width, 0);
        self.with_middle.take();
    }

    /// Gives rows from `first` on their vectors, as [`coded`] makes them.
    pub(super) fn set(&mut self, first: usize, codes: &[u8]) {
        assert_eq!(codes.len() % self.width, 0, "all vectors of a store are of one width");
        for (at, row) in codes.chunks_exact(self.width).enumerate() {
            let at = first + at;
            self.forget(at);
            let own = &mut self.codes[at * self.width..(at + 1) * self.width];
            own.iter_mut().zip(row).for_each(|(own, code)| *own = code.cast_signed());
            let squared: f32 = own.iter().map(|x| f32::from(*x) * f32::from(*x)).sum();
            // One of nothing but zeros is there too.
            self.scales[at] = squared.max(1.0).sqrt().recip();
            self.count(at, 1.0);
            self.present += 1;
        }
        self.with_middle.take();
    }

    /// Takes out rows; those behind them move up.
    pub(super) fn remove(&mut self, gone: Range<usize>) {
        gone.clone().for_each(|at| self.forget(at));
        self.codes.drain(gone.start * self.width..gone.end * self.width);
        self.scales.drain(gone);
        self.with_middle.take();
    }

    fn forget(&mut self, at: usize) {
        if self.has(at) {
            self.count(at, -1.0);
            self.scales[at] = MISSING;
            self.present -= 1;
        }
    }

    /// Adds a row to the sum, or takes it off.
    fn count(&mut self, at: usize, sign: f64) {
        let scale = sign * f64::from(self.scales[at]);
        let row = &self.codes[at * self.width..(at + 1) * self.width];
        self.sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += scale * f64::from(*x));
    }

    /// The cosines of all rows to a query of length 1, seen from the middle of all rows; none where no vector is.
    pub(super) fn cosines(&self, query: &[f32]) -> Vec<Option<f32>> {
        let centred = Centred::new(query, &self.sum, self.present);
        let (part, with_middle) = (QueryNumbers::of(centred.query()), self.with_middle(centred.middle()));
        let rows = self.codes.chunks_exact(self.width).zip(&self.scales).zip(with_middle);
        rows.map(|((row, scale), middle)| {
            (*scale != MISSING).then(|| centred.cosine_of(part.product(row) * scale, *middle))
        })
        .collect()
    }

    fn with_middle(&self, middle: &[f32]) -> &[f32] {
        self.with_middle.get_or_init(|| {
            let (middle, rows) = (QueryNumbers::of(middle), self.codes.chunks_exact(self.width));
            rows.zip(&self.scales).map(|(row, scale)| middle.product(row) * scale).collect()
        })
    }

    /// The cosine of a vector that is no row, as if it were one.
    pub(super) fn cosine_of(&self, query: &[f32], vector: &[f32]) -> f32 {
        Centred::new(query, &self.sum, self.present).cosine(vector)
    }
}

/// Numbers that rows are multiplied with, as whole ones.
struct QueryNumbers {
    numbers: Vec<i16>,
    /// What a product with them is multiplied with.
    scale: f32,
}

impl QueryNumbers {
    fn of(numbers: &[f32]) -> Self {
        let top = numbers.iter().fold(f32::MIN_POSITIVE, |top, x| top.max(x.abs()));
        let numbers = numbers.iter().map(|x| (x / top * QUERY_LARGEST) as i16).collect();
        Self { numbers, scale: top / QUERY_LARGEST }
    }

    fn product(&self, row: &[i8]) -> f32 {
        product(row, &self.numbers) * self.scale
    }
}

/// Whole numbers in parts, which compilers make vectors of on every machine; always the same sum.
fn product(row: &[i8], query: &[i16]) -> f32 {
    let parts = row.chunks(PART).zip(query.chunks(PART));
    parts
        .map(|(row, query)| row.iter().zip(query).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum::<i32>() as f32)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unit(vector: &[f32]) -> Vec<f32> {
        let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        vector.iter().map(|x| x / length).collect()
    }

    fn rows(vectors: &[Vec<f32>]) -> VectorRows {
        let mut rows = VectorRows::of_width(vectors[0].len());
        rows.push_missing(vectors.len());
        vectors.iter().enumerate().for_each(|(at, vector)| rows.set(at, &coded(vector).collect::<Vec<u8>>()));
        rows
    }

    proptest! {
        #[test]
        fn cosines_are_those_of_the_vectors_but_for_a_hundredth(
            vectors in prop::collection::vec(prop::collection::vec(-1.0f32..1.0, 300), 3..9),
            query in prop::collection::vec(-1.0f32..1.0, 300),
        ) {
            let (vectors, query) = (vectors.iter().map(|v| unit(v)).collect::<Vec<_>>(), unit(&query));
            let sum: Vec<f64> = (0..300).map(|i| vectors.iter().map(|v| f64::from(v[i])).sum()).collect();
            let exact = Centred::new(&query, &sum, vectors.len());
            for (vector, got) in vectors.iter().zip(rows(&vectors).cosines(&query)) {
                prop_assert!((exact.cosine(vector) - got.unwrap()).abs() < 0.01);
            }
        }

        #[test]
        fn what_is_taken_out_leaves_nothing(
            vectors in prop::collection::vec(prop::collection::vec(-1.0f32..1.0, 5), 3..9),
            a in any::<prop::sample::Index>(),
            b in any::<prop::sample::Index>(),
        ) {
            let (a, b) = (a.index(vectors.len()), b.index(vectors.len()));
            let (first, end) = (a.min(b), a.max(b));
            let mut taken = rows(&vectors);
            taken.push_missing(1);
            taken.remove(first..end);
            let rest = [&vectors[..first], &vectors[end..]].concat();
            let mut anew = rows(&rest);
            anew.push_missing(1);
            prop_assert_eq!((taken.bytes(), taken.present(), taken.has(rest.len())), (anew.bytes(), rest.len(), false));
            for (taken, anew) in taken.cosines(&vectors[0]).into_iter().zip(anew.cosines(&vectors[0])) {
                prop_assert_eq!(taken.is_some(), anew.is_some());
                prop_assert!(taken.zip(anew).is_none_or(|(a, b)| (a - b).abs() < 1e-4));
            }
        }
    }
}
