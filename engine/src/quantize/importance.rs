//! How much each input of each matrix counts: the sum of its squares over calibration text. Kept in a GGUF file in the
//! form of llama.cpp's importance matrices (`NAME.in_sum2` and `NAME.counts`), so either program reads the other's.

use super::InputMoments;
use crate::format::gguf::{GgufHeader, MetaValue};
use crate::format::{BlockType, Gguf, LoadError, Problem};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

const SQUARES: &str = ".in_sum2";
const COUNTS: &str = ".counts";

/// Sums of squared inputs by tensor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Importance(BTreeMap<String, TensorSums>);

/// Of one tensor: an entry a matrix.
#[derive(Clone, Debug, Default, PartialEq)]
struct TensorSums {
    rows: Vec<f32>,
    squares: Vec<Vec<f32>>,
    /// Of matrices of which more than the squares is known.
    moments: BTreeMap<usize, InputMoments>,
}

impl Importance {
    /// Adds what matrix `index` of a tensor saw: how many rows, and the sum of squares of each input.
    ///
    /// # Panics
    /// If the matrix has seen inputs of another width.
    pub fn add(&mut self, tensor: &str, index: usize, rows: u64, squares: &[f64]) {
        let stack = self.0.entry(tensor.to_owned()).or_default();
        if stack.rows.len() <= index {
            stack.rows.resize(index + 1, 0.0);
            stack.squares.resize(index + 1, Vec::new());
        }
        stack.rows[index] += rows as f32;
        let sums = &mut stack.squares[index];
        sums.resize(squares.len(), 0.0);
        assert_eq!(sums.len(), squares.len(), "matrix {index} of {tensor} has one width");
        sums.iter_mut().zip(squares).for_each(|(sum, s)| *sum += *s as f32);
    }

    /// The sums of a matrix with inputs of this width; `None` if nothing is known of it.
    pub fn of(&self, tensor: &str, index: usize, cols: usize) -> Option<&[f32]> {
        let squares = self.0.get(tensor)?.squares.get(index)?;
        (squares.len() == cols && squares.iter().any(|s| *s > 0.0)).then_some(squares)
    }

    /// Sets how the inputs of matrix `index` are correlated: the sum of `x x'` over rows, `[cols, cols]`, of which the
    /// lower triangle counts. A file does not keep that.
    ///
    /// # Panics
    /// If it is no square.
    pub fn correlate(&mut self, tensor: &str, index: usize, products: Vec<f32>) {
        if let Some(moments) = InputMoments::new(products) {
            self.0.entry(tensor.to_owned()).or_default().moments.insert(index, moments);
        }
    }

    /// How inputs of this matrix are correlated, if that is known.
    pub fn moments(&self, tensor: &str, index: usize, cols: usize) -> Option<&InputMoments> {
        self.0.get(tensor)?.moments.get(&index).filter(|m| m.cols() == cols)
    }

    /// Whether anything is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the importance of all tensors to a file; `tokens` is how many tokens it was measured on.
    pub fn save(&self, path: &Path, tokens: u64) -> io::Result<()> {
        let mut header = GgufHeader::default();
        header.set("general.type", MetaValue::Str("imatrix".into()));
        header.set("imatrix.datasets", MetaValue::Strings(vec!["written by the model itself".into()]));
        header.set("imatrix.chunk_count", MetaValue::U32(1));
        header.set("imatrix.chunk_size", MetaValue::U32(u32::try_from(tokens).unwrap_or(u32::MAX)));
        let mut data = Vec::new();
        for (name, stack) in &self.0 {
            let cols = stack.squares.iter().map(Vec::len).max().unwrap_or(0);
            header.tensor(format!("{name}{SQUARES}"), BlockType::F32, &[stack.squares.len(), cols]);
            header.tensor(format!("{name}{COUNTS}"), BlockType::F32, &[stack.rows.len(), 1]);
            let mut squares = vec![0.0; stack.squares.len() * cols];
            for (out, sums) in squares.chunks_exact_mut(cols.max(1)).zip(&stack.squares) {
                out[..sums.len()].copy_from_slice(sums);
            }
            for values in [&squares, &stack.rows] {
                values.iter().for_each(|v| data.extend(v.to_le_bytes()));
                data.resize(header.padded(data.len() as u64) as usize, 0);
            }
        }
        let partial = path.with_added_extension("partial");
        let mut file = std::fs::File::create(&partial)?;
        file.write_all(&header.to_bytes())?;
        file.write_all(&data)?;
        file.sync_all()?;
        std::fs::rename(&partial, path)
    }

    /// Reads such a file.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let file = Gguf::open(path)?;
        let mut all = Self::default();
        for squares in file.tensors() {
            let Some(name) = squares.name.strip_suffix(SQUARES) else { continue };
            let counts = file.tensor(&format!("{name}{COUNTS}"));
            let rows = counts.map(|t| t.decode()).unwrap_or_default();
            let (matrices, cols) = (squares.rows() * squares.matrices(), squares.cols());
            if rows.len() != matrices {
                let want = format!("{matrices} counts beside its sums");
                return Err(Problem::tensor(name, want, rows.len()).in_file(path));
            }
            let values = squares.decode();
            if let Some(bad) = values.iter().find(|v| !v.is_finite() || **v < 0.0) {
                return Err(Problem::tensor(&squares.name, "sums of squares", bad).in_file(path));
            }
            let squares = values.chunks_exact(cols).map(<[f32]>::to_vec).collect();
            all.0.insert(name.to_owned(), TensorSums { rows, squares, ..TensorSums::default() });
        }
        file.files().check()?;
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gives_back_what_was_saved() {
        let mut all = Importance::default();
        all.add("blk.0.ffn_down_exps.weight", 2, 7, &[1.0, 2.5, 0.0]);
        all.add("blk.0.ffn_down_exps.weight", 0, 1, &[3.0, 0.5, 9.0]);
        all.add("output.weight", 0, 9, &[4.0; 5]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("i.gguf");
        all.save(&path, 100).unwrap();
        let back = Importance::open(&path).unwrap();
        for (tensor, index, cols) in
            [("blk.0.ffn_down_exps.weight", 0, 3), ("blk.0.ffn_down_exps.weight", 2, 3), ("output.weight", 0, 5)]
        {
            assert_eq!(back.of(tensor, index, cols), all.of(tensor, index, cols));
        }
        assert_eq!(back.of("blk.0.ffn_down_exps.weight", 1, 3), None, "an expert that was never reached");
        assert_eq!(back.of("output.weight", 0, 6), None, "another width");
    }
}
