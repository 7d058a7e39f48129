//! Finds tensors by name and holds their shapes against the metadata. The same for every file format.

use crate::format::{BlockType, LoadError, Problem, ReadNames, Tensor};
use rayon::prelude::*;
use std::path::Path;
use std::sync::Arc;

/// The largest number of heads, widths and the like that is believed; products of three of them fit in 64 bits.
pub(super) const SIZE_MAX: u64 = 1 << 20;

/// A place that tensors come from.
pub(super) trait TensorSource {
    /// The file or directory, for messages.
    fn path(&self) -> &Path;
    /// The tensor of this name, which counts as read from now on, as do those that it is made of.
    fn tensor(&self, name: &str) -> Result<Option<Tensor>, LoadError>;
    /// What the source itself calls its tensors, in no particular order.
    fn names(&self) -> Vec<&str>;
    /// Which of these were read.
    fn record(&self) -> &ReadNames;
    /// What the source itself calls the tensor, for messages.
    fn called(&self, name: &str) -> String {
        name.to_owned()
    }
}

/// Checked access to a source.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    source: &'a dyn TensorSource,
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a dyn TensorSource) -> Self {
        Self { source }
    }

    /// The tensor of this name if there is one, of this shape. Dimensions of 1 do not count: formats differ in writing
    /// them.
    pub(super) fn find(&self, name: &str, shape: &[usize]) -> Result<Option<Tensor>, LoadError> {
        let Some(mut tensor) = self.source.tensor(name)? else { return Ok(None) };
        let same = same_shape(&tensor.shape, shape);
        // A row is a run of blocks, so the last dimension may only lose or gain a 1 where an element is a block.
        if !same || (tensor.cols() != shape[shape.len() - 1] && tensor.ty.elements() != 1) {
            return Err(self.error(Problem::tensor(
                self.source.called(name),
                format_args!("shape {shape:?}"),
                format_args!("shape {:?}", tensor.shape),
            )));
        }
        tensor.shape = shape.to_vec();
        Ok(Some(tensor))
    }

    /// As [`Reader::find`], but the tensor must be there.
    pub(super) fn need(&self, name: &str, shape: &[usize]) -> Result<Tensor, LoadError> {
        self.find(name, shape)?.ok_or_else(|| self.missing(name, shape))
    }

    /// The tensor of this name, whatever its shape.
    pub(super) fn any(&self, name: &str) -> Result<Option<Tensor>, LoadError> {
        self.source.tensor(name)
    }

    /// A small tensor, decoded, in the order of `shape`.
    pub(super) fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        self.decoded(&self.need(name, shape)?)
    }

    /// A small tensor's values, which are finite numbers.
    pub(super) fn decoded(&self, tensor: &Tensor) -> Result<Vec<f32>, LoadError> {
        finite_values(tensor).map_err(|problem| self.error(problem))
    }

    /// The values of a tensor that has `shape` in one format and all in one row in the other.
    pub(super) fn values_or_row(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let len: usize = shape.iter().product();
        match self.source.tensor(name)? {
            Some(row) if row.shape == [len] => self.decoded(&row),
            _ => self.values(name, shape),
        }
    }

    /// What the source itself calls its tensors, in no particular order.
    pub(super) fn names(&self) -> Vec<&'a str> {
        self.source.names()
    }

    /// Which of these were read.
    pub(super) fn record(&self) -> &'a ReadNames {
        self.source.record()
    }

    /// The error of a tensor that is not there.
    pub(super) fn missing(&self, name: &str, shape: &[usize]) -> LoadError {
        self.error(Problem::tensor(self.source.called(name), format_args!("shape {shape:?}"), "no such tensor"))
    }

    pub(super) fn error(&self, problem: Problem) -> LoadError {
        problem.in_file(self.source.path())
    }
}

/// All values of a small tensor, if they are finite numbers.
pub(super) fn finite_values(tensor: &Tensor) -> Result<Vec<f32>, Problem> {
    let values = tensor.decode();
    match values.iter().position(|x| !x.is_finite()) {
        None => Ok(values),
        Some(at) => {
            let got = format_args!("{} at {at}", values[at]).to_string();
            Err(Problem::tensor(&tensor.name, "finite numbers", got))
        }
    }
}

/// Whether two shapes are the same but for dimensions of 1.
pub(super) fn same_shape(a: &[usize], b: &[usize]) -> bool {
    a.iter().filter(|d| **d != 1).eq(b.iter().filter(|d| **d != 1))
}

/// The format whose names the tensors of a source have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Gguf,
    HuggingFace,
}

/// Hugging Face files have a norm's distance from 1.
pub(super) fn plus_one(mut w: Vec<f32>) -> Vec<f32> {
    w.iter_mut().for_each(|w| *w += 1.0);
    w
}

/// One tensor from several of the same type and shape, as a stack of matrices, copied by all threads of the pool.
///
/// # Panics
/// If `parts` is empty.
pub(super) fn stack(name: String, parts: &[Tensor]) -> Result<Tensor, Problem> {
    stack_with(name, parts, |bytes, len| {
        let each = bytes.par_chunks_mut(len).zip(parts);
        each.for_each(|(bytes, part)| bytes.copy_from_slice(part.passing().bytes()));
    })
}

/// As [`stack`], by the calling thread alone, which may be one of the pool that must take no other work meanwhile.
pub(super) fn stack_by_this_thread(name: String, parts: &[Tensor]) -> Result<Tensor, Problem> {
    stack_with(name, parts, |bytes, len| {
        bytes.chunks_mut(len).zip(parts).for_each(|(bytes, part)| bytes.copy_from_slice(part.bytes()));
    })
}

/// `copy` copies the bytes of the parts, each so many, one after another.
fn stack_with(name: String, parts: &[Tensor], copy: impl FnOnce(&mut [u8], usize)) -> Result<Tensor, Problem> {
    let first = &parts[0];
    let ty: BlockType = first.ty;
    if let Some(other) = parts.iter().find(|t| t.ty != ty || t.shape != first.shape) {
        let want = format!("{} {:?} like `{}`", ty.name(), first.shape, first.name);
        return Err(Problem::tensor(&other.name, want, format_args!("{} {:?}", other.ty.name(), other.shape)));
    }
    let len = first.matrices() * first.rows() * ty.row_bytes(first.cols()).expect("a tensor's rows are whole blocks");
    let mut bytes = vec![0; parts.len() * len];
    copy(&mut bytes, len.max(1));
    let shape = [&[parts.len()], &first.shape[..]].concat();
    let whole = Tensor::owned(name, ty, shape, bytes).expect("equal parts make a whole");
    Ok(whole.with_scale(stacked_scales(parts)))
}

/// The factors of a stack: none, one a matrix, or one a row of each where a matrix has several.
fn stacked_scales(parts: &[Tensor]) -> Option<Arc<[f32]>> {
    let several = parts.iter().any(|t| t.scale.as_ref().is_some_and(|s| s.len() > 1));
    let of_part =
        |t: &Tensor| (0..if several { t.rows() } else { 1 }).map(|row| t.row_scale(0, row)).collect::<Vec<_>>();
    parts.iter().any(|t| t.scale.is_some()).then(|| parts.iter().flat_map(of_part).collect())
}
