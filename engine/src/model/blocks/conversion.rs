//! The tensors of a Hugging Face directory as a converter to GGUF writes them: names, order of rows, norms as factors.

use super::{GdnConfig, HeadOrder};
use crate::format::{BlockType, HfDir, LoadError, Problem, ReadNames, Tensor};
use crate::model::reader::{same_shape, stack_by_this_thread};
use std::ops::Range;
use std::sync::Arc;

/// What a family's converter does.
pub(in crate::model) struct Conversion {
    /// Norms of a layer: the directory's name, and GGUF's.
    pub(in crate::model) norms: &'static [(&'static str, &'static str)],
    /// How value heads are ordered in GGUF files. In directories they are grouped.
    pub(in crate::model) head_order: HeadOrder,
    /// Writes the input projections of a gated-delta block.
    pub(in crate::model) projections: fn(&mut ConvertedLayer<'_>, &GdnConfig) -> Result<(), LoadError>,
}

/// Tensors so far, and which of the directory were read for them.
pub(in crate::model) struct Converted {
    pub(in crate::model) dir: Arc<HfDir>,
    pub(in crate::model) conversion: &'static Conversion,
    pub(in crate::model) tensors: Vec<Tensor>,
    pub(in crate::model) read: ReadNames,
}

impl Converted {
    pub(in crate::model) fn part(&mut self, theirs: String, ours: String, hidden: usize) -> ConvertedLayer<'_> {
        ConvertedLayer { all: self, theirs, ours, hidden }
    }

    pub(in crate::model) fn error(
        &self,
        name: &str,
        want: impl std::fmt::Display,
        got: impl std::fmt::Display,
    ) -> LoadError {
        Problem::tensor(name, want, got).in_file(self.dir.path())
    }
}

/// A part of the file, whose names begin alike in both formats.
pub(in crate::model) struct ConvertedLayer<'a> {
    all: &'a mut Converted,
    theirs: String,
    ours: String,
    /// Width of the residual stream.
    pub(in crate::model) hidden: usize,
}

impl ConvertedLayer<'_> {
    /// What the family's converter does.
    pub(in crate::model) fn conversion(&self) -> &'static Conversion {
        self.all.conversion
    }

    /// The directory's tensor of this name, if it is there; an error if its shape is another one.
    pub(in crate::model) fn find(&mut self, theirs: &str, shape: &[usize]) -> Result<Option<TensorRecipe>, LoadError> {
        let name = format!("{}{theirs}", self.theirs);
        let Some((ty, got)) = self.all.dir.float_outline(&name)? else { return Ok(None) };
        if !same_shape(&got, shape) {
            return Err(self.all.error(&name, format_args!("shape {shape:?}"), format_args!("shape {got:?}")));
        }
        self.all.read.note(&*name);
        self.all.dir.parts_of(&name).into_iter().for_each(|part| self.all.read.note(part));
        Ok(Some(TensorRecipe { names: vec![name], ty, view: shape.to_vec(), rows: None, change: None }))
    }

    /// As [`ConvertedLayer::find`], but the tensor must be there.
    pub(in crate::model) fn need(&mut self, theirs: &str, shape: &[usize]) -> Result<TensorRecipe, LoadError> {
        let name = format!("{}{theirs}", self.theirs);
        let missing = self.all.error(&name, format_args!("shape {shape:?}"), "no such tensor");
        self.find(theirs, shape)?.ok_or(missing)
    }

    /// Several of one shape and type as a stack.
    pub(in crate::model) fn need_stack(
        &mut self,
        theirs: impl Iterator<Item = String>,
        shape: &[usize],
    ) -> Result<TensorRecipe, LoadError> {
        let all = theirs.map(|name| self.need(&name, shape)).collect::<Result<Vec<_>, _>>()?;
        let ty = all.first().expect("a stack has a matrix").ty;
        if let Some(other) = all.iter().find(|s| s.ty != ty) {
            let want = format!("{} like `{}`", ty.name(), all[0].names[0]);
            return Err(self.all.error(&other.names[0], want, other.ty.name()));
        }
        let view = [&[all.len()], shape].concat();
        Ok(TensorRecipe { names: all.into_iter().flat_map(|s| s.names).collect(), ty, view, rows: None, change: None })
    }

    /// Adds a tensor of this shape to the file.
    pub(in crate::model) fn put(&mut self, ours: &str, shape: &[usize], source: TensorRecipe) {
        let (dir, ty) = (self.all.dir.clone(), if source.change.is_some() { BlockType::F32 } else { source.ty });
        let made = Tensor::made(format!("{}{ours}", self.ours), ty, shape.to_vec(), move || source.make(&dir));
        self.all.tensors.push(made.expect("single values are whole blocks"));
    }

    /// A matrix as it is.
    pub(in crate::model) fn put_from(&mut self, ours: &str, theirs: &str, shape: &[usize]) -> Result<(), LoadError> {
        let source = self.need(theirs, shape)?;
        self.put(ours, shape, source);
        Ok(())
    }

    /// Adds a tensor whose values become f32.
    pub(in crate::model) fn put_floats(&mut self, ours: &str, theirs: &str, shape: &[usize]) -> Result<(), LoadError> {
        let source = self.need(theirs, shape)?.floats(|x| x);
        self.put(ours, shape, source);
        Ok(())
    }

    /// A norm, whose distance from 1 the directory has.
    pub(in crate::model) fn put_norm(&mut self, ours: &str, theirs: &str, shape: &[usize]) -> Result<(), LoadError> {
        let source = self.need(theirs, shape)?.floats(|x| x + 1.0);
        self.put(ours, shape, source);
        Ok(())
    }
}

/// What a tensor is made of.
pub(in crate::model) struct TensorRecipe {
    /// In the directory; several are stacked.
    names: Vec<String>,
    ty: BlockType,
    /// Shape in which `rows` are counted.
    view: Vec<usize>,
    /// The rows that are taken, of each matrix, if not all as they are.
    rows: Option<Vec<Range<usize>>>,
    /// What is done with each value, all of which become floats.
    change: Option<fn(f32) -> f32>,
}

impl TensorRecipe {
    /// These rows, in this order, of each matrix; the tensor is looked at in this shape.
    pub(in crate::model) fn rows(self, view: &[usize], rows: Vec<Range<usize>>) -> Self {
        Self { view: view.to_vec(), rows: Some(rows), ..self }
    }

    /// As floats after `change`.
    pub(in crate::model) fn floats(self, change: fn(f32) -> f32) -> Self {
        Self { change: Some(change), ..self }
    }

    fn make(&self, dir: &HfDir) -> Tensor {
        let read = |name: &String| {
            let tensor = dir.floats_by_this_thread(name).ok().flatten();
            tensor.expect("what the header says of it was checked when the file was laid out")
        };
        let mut parts: Vec<Tensor> = self.names.iter().map(read).collect();
        let mut tensor = match parts.len() {
            1 => parts.remove(0),
            _ => stack_by_this_thread(self.names[0].clone(), &parts).expect("all are alike"),
        };
        tensor.shape.clone_from(&self.view);
        if let Some(rows) = &self.rows {
            tensor = tensor.gather_rows(rows);
        }
        let Some(change) = self.change else { return tensor };
        let bytes = tensor.decode().into_iter().flat_map(|x| change(x).to_le_bytes()).collect();
        Tensor::owned(tensor.name.clone(), BlockType::F32, tensor.shape.clone(), bytes).expect("as many as before")
    }
}
