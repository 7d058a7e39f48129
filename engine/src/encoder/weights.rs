//! The weights of an encoder in memory: matrices packed for products, tables of embeddings and norms as plain numbers.

use super::config::EncoderConfig;
use crate::backend::cpu::matmul::PackedMatrix;
use crate::format::{HfDir, LoadError, Problem, ReadNames, Tensor};
use crate::model::unread;

/// What the names of all tensors begin with, in directories of the encoder alone and of a model around it.
const PREFIXES: [&str; 2] = ["", "bert."];

/// All weights of an encoder.
pub(super) struct EncoderWeights {
    /// Vectors of the tokens, `[vocab, hidden]`.
    pub(super) words: Vec<f32>,
    /// `[positions, hidden]`, to each of which the first kind of segment is added.
    pub(super) positions: Vec<f32>,
    pub(super) norm: LayerNorm,
    pub(super) layers: Vec<EncoderLayer>,
}

/// A norm's factors and offsets.
pub(super) struct LayerNorm {
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
}

/// A matrix and what is added to its products.
pub(super) struct Linear {
    pub(super) matrix: PackedMatrix,
    pub(super) bias: Vec<f32>,
}

/// The weights of one layer, in the order in which a row meets them.
pub(super) struct EncoderLayer {
    pub(super) query: Linear,
    pub(super) key: Linear,
    pub(super) value: Linear,
    pub(super) output: Linear,
    pub(super) attention_norm: LayerNorm,
    pub(super) up: Linear,
    pub(super) down: Linear,
    pub(super) norm: LayerNorm,
}

impl EncoderWeights {
    /// Reads all of them. A tensor that is missing, of another shape, or not known is an error.
    pub(super) fn read(dir: &HfDir, config: &EncoderConfig) -> Result<Self, LoadError> {
        let source = EncoderSource::new(dir)?;
        let (hidden, inner) = (config.hidden, config.inner);
        let words = source.floats("embeddings.word_embeddings.weight", &[config.vocab, hidden])?;
        let mut positions = source.floats("embeddings.position_embeddings.weight", &[config.positions, hidden])?;
        let types = source.floats("embeddings.token_type_embeddings.weight", &[config.types, hidden])?;
        for row in positions.chunks_exact_mut(hidden) {
            row.iter_mut().zip(&types).for_each(|(x, first)| *x += first);
        }
        let layer = |layer: usize| -> Result<EncoderLayer, LoadError> {
            let name = |part: &str| format!("encoder.layer.{layer}.{part}");
            Ok(EncoderLayer {
                query: source.linear(&name("attention.self.query"), hidden, hidden)?,
                key: source.linear(&name("attention.self.key"), hidden, hidden)?,
                value: source.linear(&name("attention.self.value"), hidden, hidden)?,
                output: source.linear(&name("attention.output.dense"), hidden, hidden)?,
                attention_norm: source.norm(&name("attention.output.LayerNorm"), hidden)?,
                up: source.linear(&name("intermediate.dense"), inner, hidden)?,
                down: source.linear(&name("output.dense"), hidden, inner)?,
                norm: source.norm(&name("output.LayerNorm"), hidden)?,
            })
        };
        let norm = source.norm("embeddings.LayerNorm", hidden)?;
        let layers = (0..config.layers).map(layer).collect::<Result<_, _>>()?;
        source.check()?;
        Ok(Self { words, positions, norm, layers })
    }

    /// Bytes of all of them, norms and biases left out.
    pub(super) fn bytes(&self) -> usize {
        let matrices = |layer: &EncoderLayer| {
            [&layer.query, &layer.key, &layer.value, &layer.output, &layer.up, &layer.down]
                .map(|linear| linear.matrix.bytes())
                .into_iter()
                .sum::<usize>()
        };
        size_of::<f32>() * (self.words.len() + self.positions.len()) + self.layers.iter().map(matrices).sum::<usize>()
    }
}

/// A directory, and which of its tensors were read.
struct EncoderSource<'a> {
    dir: &'a HfDir,
    prefix: &'static str,
    record: ReadNames,
}

impl<'a> EncoderSource<'a> {
    fn new(dir: &'a HfDir) -> Result<Self, LoadError> {
        const FIRST: &str = "embeddings.word_embeddings.weight";
        match PREFIXES.into_iter().find(|prefix| dir.has_tensor(&format!("{prefix}{FIRST}"))) {
            Some(prefix) => Ok(Self { dir, prefix, record: ReadNames::default() }),
            None => Err(Problem::tensor(FIRST, "the embedding", "no such tensor").in_file(dir.path())),
        }
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor, LoadError> {
        let name = format!("{}{name}", self.prefix);
        let error = |got: String| Problem::tensor(&name, format_args!("{shape:?}"), got).in_file(self.dir.path());
        let tensor = self.dir.tensor(&name)?.ok_or_else(|| error("no such tensor".to_owned()))?;
        if tensor.shape != shape {
            return Err(error(format!("{:?}", tensor.shape)));
        }
        self.record.note(&name);
        self.dir.parts_of(&name).into_iter().for_each(|part| self.record.note(part));
        Ok(tensor)
    }

    fn floats(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let values = self.tensor(name, shape)?.decode();
        match values.iter().position(|x| !x.is_finite()) {
            None => Ok(values),
            Some(at) => {
                let got = format!("{} as number {at}", values[at]);
                Err(Problem::tensor(format!("{}{name}", self.prefix), "finite numbers", got).in_file(self.dir.path()))
            }
        }
    }

    fn linear(&self, name: &str, rows: usize, cols: usize) -> Result<Linear, LoadError> {
        let tensor = self.tensor(&format!("{name}.weight"), &[rows, cols])?;
        let matrix = PackedMatrix::pack(&tensor, 0, true).map_err(|e| {
            let got = format!("others in row {}", e.row);
            Problem::tensor(e.tensor, "finite numbers", got).in_file(self.dir.path())
        })?;
        Ok(Linear { matrix, bias: self.floats(&format!("{name}.bias"), &[rows])? })
    }

    fn norm(&self, name: &str, hidden: usize) -> Result<LayerNorm, LoadError> {
        let [weight, bias] = ["weight", "bias"].map(|part| self.floats(&format!("{name}.{part}"), &[hidden]));
        Ok(LayerNorm { weight: weight?, bias: bias? })
    }

    /// That nothing was left unread which changes a vector.
    fn check(&self) -> Result<(), LoadError> {
        let excused = |name: &str| {
            let own = name.strip_prefix(self.prefix).unwrap_or(name);
            // The numbers of positions, and the part behind `[CLS]` that training has and no vector is made by.
            let inside = matches!(own, "embeddings.position_ids" | "pooler.dense.weight" | "pooler.dense.bias");
            // Heads that guess words and the order of sentences stand beside an encoder that has a prefix.
            inside || (!self.prefix.is_empty() && name.starts_with("cls."))
        };
        unread::check_tensors(self.dir.tensor_names(), &self.record, excused)
            .map_err(|problem| problem.in_file(self.dir.path()))
    }
}
