//! A Hugging Face directory under the tensor names of GGUF files. Families whose converters do little more than rename
//! say here what is called how and what is done on the way, so that operators read both formats with one piece of code.

use super::reader::TensorSource;
use crate::format::hf::HfConfig;
use crate::format::{BlockType, HfDir, LoadError, Problem, ReadNames, Tensor};
use std::path::Path;

/// What a family's tensors are called.
pub(super) struct HfTensors {
    /// Prefixes of the model, of which exports use one.
    pub(super) prefixes: &'static [&'static str],
    /// The embedding behind the prefix.
    pub(super) embedding: &'static str,
    /// The norm before the head behind the prefix.
    pub(super) norm: &'static str,
    /// Those of a layer, in groups that families share.
    pub(super) layer: &'static [&'static [LayerTensor]],
    /// What the converter multiplies a tensor of a layer with, by GGUF's name.
    pub(super) factors: fn(&HfConfig, &str) -> Result<Factors, LoadError>,
}

/// GGUF's name within a layer, the directory's, in which `{}` stands for the number of an expert, and what the
/// converter does. Of several lines with one name of GGUF's the first counts that the directory has.
pub(super) type LayerTensor = (&'static str, &'static str, Change);

/// What is done with a tensor on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The tensor keeps its values.
    Same,
    /// Each value `x` becomes `-exp(x)`.
    NegExp,
    /// The first half of each matrix's rows.
    FirstHalf,
    /// The second half of each matrix's rows.
    SecondHalf,
    /// One tensor an expert becomes one of all.
    Stack,
}

/// What rows of a matrix are multiplied with.
pub(super) enum Factors {
    /// One factor for all rows.
    One(f32),
    /// Runs of so many rows each with its own.
    Rows(Vec<(usize, f32)>),
}

/// The factor 1 for every tensor, of families whose releases multiply nowhere.
pub(super) fn no_factors(_: &HfConfig, _: &str) -> Result<Factors, LoadError> {
    Ok(Factors::One(1.0))
}

/// A tensor that differs in its name alone.
pub(super) const fn renamed(gguf: &'static str, theirs: &'static str) -> LayerTensor {
    (gguf, theirs, Change::Same)
}

/// The tensors of a Mamba-2 mixer, which modules of different names have.
macro_rules! mamba_tensors {
    ($module:literal) => {
        &[
            renamed("ssm_in.weight", concat!($module, ".in_proj.weight")),
            renamed("ssm_conv1d.weight", concat!($module, ".conv1d.weight")),
            renamed("ssm_conv1d.bias", concat!($module, ".conv1d.bias")),
            ("ssm_a", concat!($module, ".A_log"), $crate::model::hf_tensors::Change::NegExp),
            renamed("ssm_d", concat!($module, ".D")),
            renamed("ssm_dt.bias", concat!($module, ".dt_bias")),
            renamed("ssm_norm.weight", concat!($module, ".norm.weight")),
            renamed("ssm_out.weight", concat!($module, ".out_proj.weight")),
        ]
    };
}
pub(super) use mamba_tensors;

/// The tensors of an attention block, which modules of different names have.
macro_rules! attention_tensors {
    ($module:literal) => {
        &[
            renamed("attn_q.weight", concat!($module, ".q_proj.weight")),
            renamed("attn_k.weight", concat!($module, ".k_proj.weight")),
            renamed("attn_v.weight", concat!($module, ".v_proj.weight")),
            renamed("attn_output.weight", concat!($module, ".o_proj.weight")),
        ]
    };
}
pub(super) use attention_tensors;

impl HfTensors {
    fn lines(&self) -> impl Iterator<Item = &LayerTensor> {
        self.layer.iter().copied().flatten()
    }
}

/// A directory, and which of its tensors were read.
pub(super) struct HfSource<'a> {
    pub(super) dir: &'a HfDir,
    record: ReadNames,
}

impl<'a> HfSource<'a> {
    pub(super) fn new(dir: &'a HfDir) -> Self {
        Self { dir, record: ReadNames::default() }
    }
}

impl TensorSource for HfSource<'_> {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn tensor(&self, name: &str) -> Result<Option<Tensor>, LoadError> {
        let tensor = self.dir.tensor(name)?;
        if tensor.is_some() {
            self.record.note(name);
            self.dir.parts_of(name).into_iter().for_each(|part| self.record.note(part));
        }
        Ok(tensor)
    }

    fn names(&self) -> Vec<&str> {
        self.dir.tensor_names().collect()
    }

    fn record(&self) -> &ReadNames {
        &self.record
    }
}

/// Layer and name within it of GGUF's `blk.3.attn_q.weight`.
pub(super) fn layer_of(name: &str) -> Option<(usize, &str)> {
    let (layer, own) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((layer.parse().ok()?, own))
}

/// A directory whose tensors have GGUF's names.
pub(super) struct RenamedDir<'a> {
    inner: &'a HfSource<'a>,
    tensors: &'static HfTensors,
    prefix: &'static str,
}

impl<'a> RenamedDir<'a> {
    /// Finds out which of the prefixes the directory uses.
    pub(super) fn new(inner: &'a HfSource<'a>, tensors: &'static HfTensors) -> Result<Self, LoadError> {
        let embedding = |prefix: &&&str| inner.dir.has_tensor(&format!("{prefix}{}", tensors.embedding));
        match tensors.prefixes.iter().find(embedding) {
            Some(prefix) => Ok(Self { inner, tensors, prefix }),
            None => {
                let name = format!("{}{}", tensors.prefixes[0], tensors.embedding);
                Err(Problem::tensor(&name, "the embedding", "no such tensor").in_file(inner.path()))
            }
        }
    }

    /// What the directory calls a tensor outside of layers.
    fn outside(&self, name: &str) -> Option<String> {
        match name {
            "token_embd.weight" => Some(format!("{}{}", self.prefix, self.tensors.embedding)),
            "output_norm.weight" => Some(format!("{}{}", self.prefix, self.tensors.norm)),
            "output.weight" => Some("lm_head.weight".to_owned()),
            _ => None,
        }
    }

    /// The names that a layer's tensor may have, each with its change.
    fn inside(&self, name: &str) -> impl Iterator<Item = (String, Change)> {
        let (layer, own) = layer_of(name).unwrap_or((0, ""));
        let lines = self.tensors.lines().filter(move |line| line.0 == own);
        lines.map(move |(_, theirs, change)| (format!("{}layers.{layer}.{theirs}", self.prefix), *change))
    }

    fn changed(&self, name: &str, change: Change) -> Result<Option<Tensor>, LoadError> {
        if change == Change::Stack {
            return self.stacked(name);
        }
        let Some(tensor) = self.inner.tensor(name)? else { return Ok(None) };
        let half = tensor.rows() / 2;
        Ok(Some(match change {
            Change::FirstHalf => tensor.rows_of_each(0..half),
            Change::SecondHalf => tensor.rows_of_each(half..tensor.rows()),
            Change::NegExp => floats(&tensor, tensor.decode().into_iter().map(|x| -x.exp())),
            Change::Same | Change::Stack => tensor,
        }))
    }

    /// The tensors of all experts, as many as there are.
    fn stacked(&self, name: &str) -> Result<Option<Tensor>, LoadError> {
        let mut parts = Vec::new();
        while let Some(part) = self.inner.tensor(&name.replace("{}", &parts.len().to_string()))? {
            parts.push(part);
        }
        if parts.is_empty() {
            return Ok(None);
        }
        super::reader::stack(name.to_owned(), &parts).map(Some).map_err(|p| p.in_file(self.inner.path()))
    }

    fn multiplied(&self, mut tensor: Tensor, factors: Factors) -> Result<Tensor, LoadError> {
        match factors {
            Factors::One(1.0) => Ok(tensor),
            Factors::One(factor) => {
                let scale = tensor.scale.as_ref().map_or(vec![factor], |s| s.iter().map(|s| s * factor).collect());
                tensor.scale = Some(scale.into());
                Ok(tensor)
            }
            Factors::Rows(runs) if runs.iter().all(|run| run.1 == 1.0) => Ok(tensor),
            Factors::Rows(runs) => {
                let rows: usize = runs.iter().map(|run| run.0).sum();
                if rows != tensor.rows() {
                    return Err(self.error(&tensor.name, format_args!("{rows} rows"), tensor.rows()));
                }
                let of_row = runs.iter().flat_map(|(rows, factor)| std::iter::repeat_n(*factor, *rows * tensor.cols()));
                Ok(floats(&tensor, tensor.decode().into_iter().zip(of_row).map(|(x, factor)| x * factor)))
            }
        }
    }

    fn error(&self, name: &str, want: impl std::fmt::Display, got: impl std::fmt::Display) -> LoadError {
        Problem::tensor(name, want, got).in_file(self.inner.path())
    }
}

impl TensorSource for RenamedDir<'_> {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn tensor(&self, name: &str) -> Result<Option<Tensor>, LoadError> {
        if let Some(name) = self.outside(name) {
            return self.inner.tensor(&name);
        }
        for (theirs, change) in self.inside(name) {
            if let Some(tensor) = self.changed(&theirs, change)? {
                let (_, own) = layer_of(name).expect("a tensor that is found inside of layers is of one");
                return self.multiplied(tensor, (self.tensors.factors)(self.inner.dir.config(), own)?).map(Some);
            }
        }
        Ok(None)
    }

    fn names(&self) -> Vec<&str> {
        self.inner.names()
    }

    fn record(&self) -> &ReadNames {
        self.inner.record()
    }

    fn called(&self, name: &str) -> String {
        let inside = || self.inside(name).next().map(|(theirs, _)| theirs);
        self.outside(name).or_else(inside).unwrap_or_else(|| name.to_owned())
    }
}

/// A tensor of the same name and shape with other values.
fn floats(tensor: &Tensor, values: impl Iterator<Item = f32>) -> Tensor {
    let bytes = values.flat_map(f32::to_le_bytes).collect();
    Tensor::owned(tensor.name.clone(), BlockType::F32, tensor.shape.clone(), bytes).expect("as many values as before")
}
