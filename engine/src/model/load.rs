//! Opens a model of any format and architecture. The table of architectures is here; what sets one apart is in its own file.

use super::reader::{Layer, Projections};
use super::{Architecture, HeadOrder, Model, from_gguf, from_hf, qwen3next, qwen35, qwen35moe};
use crate::format::gguf::set_name;
use crate::format::{Gguf, HfDir, LoadError, Problem};
use std::path::{Path, PathBuf};

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

/// Opens a GGUF file (or any part of a split one), a Hugging Face directory, or a directory with one GGUF model in it. Files are
/// mapped: weights are read when they are used.
pub fn load(path: &Path) -> Result<Model, LoadError> {
    if !path.is_dir() {
        return load_gguf(&Gguf::open(path)?);
    }
    match only_gguf(path)? {
        Some(file) => load_gguf(&Gguf::open(&file)?),
        None => load_hugging_face(&HfDir::open(path)?),
    }
}

/// The GGUF file of a directory that has no safetensors weights, if it is one file or one split set.
fn only_gguf(dir: &Path) -> Result<Option<PathBuf>, LoadError> {
    let list = || -> std::io::Result<Vec<PathBuf>> { std::fs::read_dir(dir)?.map(|e| Ok(e?.path())).collect() };
    let mut files = list().map_err(|e| Problem::from(e).in_file(dir))?;
    let is = |file: &PathBuf, extension: &str| file.extension().is_some_and(|e| e == extension);
    if files.iter().any(|f| is(f, "safetensors")) {
        return Ok(None);
    }
    files.retain(|f| is(f, "gguf"));
    files.sort();
    files.dedup_by_key(|f| set_name(f));
    match files.len() {
        0 | 1 => Ok(files.pop()),
        n => Err(Problem::container("directory", "one GGUF model", format_args!("{n}")).in_file(dir)),
    }
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

/// The model in an open Hugging Face directory.
pub fn load_hugging_face(dir: &HfDir) -> Result<Model, LoadError> {
    let name = &dir.config().model_type;
    let spec = find(|s| s.hugging_face.contains(&name.as_str())).ok_or_else(|| {
        let known: Vec<_> = ARCHITECTURES.iter().flat_map(|s| s.hugging_face).copied().collect();
        dir.config().error("model_type", format_args!("one of {}", known.join(", ")), format_args!("`{name}`"))
    })?;
    from_hf::read(dir, spec)
}

fn find(is: impl Fn(&Spec) -> bool) -> Option<&'static Spec> {
    ARCHITECTURES.iter().copied().find(|s| is(s))
}
