//! Opens a model of any format and architecture. The table of architectures is here; what sets one apart is in its own file.

use super::reader::{Layer, Projections};
use super::{Architecture, HeadOrder, Model, from_gguf, qwen3next, qwen35, qwen35moe};
use crate::format::{Gguf, LoadError, Problem};
use std::path::Path;

/// What sets one architecture apart when its files are read.
pub(super) struct Spec {
    pub(super) architecture: Architecture,
    /// `general.architecture` of GGUF files.
    pub(super) gguf: &'static str,
    /// `model_type` in config.json, of the whole model and of its text part.
    pub(super) hugging_face: &'static [&'static str],
    /// Whether its feed-forward parts are mixtures of experts.
    pub(super) moe: bool,
    /// Order of value heads in GGUF files; it is always grouped on the Hugging Face side.
    pub(super) gguf_head_order: HeadOrder,
    /// Unpacks the input projections of a GDN layer of a GGUF file.
    pub(super) gguf_projections: fn(&Layer<'_>) -> Result<Projections, LoadError>,
    /// The same of a Hugging Face directory.
    pub(super) hugging_face_projections: fn(&Layer<'_>) -> Result<Projections, LoadError>,
}

const ARCHITECTURES: &[&Spec] = &[&qwen35moe::SPEC, &qwen35::SPEC, &qwen3next::SPEC];

/// Opens a GGUF file (or any part of a split one) or a Hugging Face directory. Files are mapped: weights are read when they are used.
pub fn load(path: &Path) -> Result<Model, LoadError> {
    load_gguf(&Gguf::open(path)?)
}

/// The model in an open GGUF file.
pub fn load_gguf(file: &Gguf) -> Result<Model, LoadError> {
    let name = file.meta().need_str("general.architecture")?;
    let spec = find(|s| s.gguf == name).ok_or_else(|| {
        let known: Vec<_> = ARCHITECTURES.iter().map(|s| s.gguf).collect();
        file.meta().error(Problem::key(
            "general.architecture",
            format_args!("one of {}", known.join(", ")),
            format_args!("`{name}`"),
        ))
    })?;
    from_gguf::read(file, spec)
}

fn find(is: impl Fn(&Spec) -> bool) -> Option<&'static Spec> {
    ARCHITECTURES.iter().copied().find(|s| is(s))
}
