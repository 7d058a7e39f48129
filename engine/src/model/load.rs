//! Opens a model of any format and family.

use super::families::{FAMILIES, Family};
use super::{Model, from_gguf, from_hf};
use crate::format::gguf::set_name;
use crate::format::{Gguf, HfDir, LoadError, Problem};
use std::path::{Path, PathBuf};

/// What a model can be read from, open.
#[derive(Debug)]
pub enum Opened {
    /// A GGUF file, or a whole set of split ones.
    Gguf(Gguf),
    /// A Hugging Face directory.
    HuggingFace(HfDir),
}

/// Opens a GGUF file (or any part of a split one), a Hugging Face directory, or a directory with one GGUF model in it.
/// Files are mapped: weights are read when they are used.
pub fn open(path: &Path) -> Result<Opened, LoadError> {
    if !path.is_dir() {
        return Gguf::open(path).map(Opened::Gguf);
    }
    match only_gguf(path)? {
        Some(file) => Gguf::open(&file).map(Opened::Gguf),
        None => HfDir::open(path).map(Opened::HuggingFace),
    }
}

/// The model in what [`open`] opens.
pub fn load(path: &Path) -> Result<Model, LoadError> {
    match open(path)? {
        Opened::Gguf(file) => load_gguf(&file),
        Opened::HuggingFace(dir) => load_hugging_face(&dir),
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
    let family = find(|f| f.gguf == name).ok_or_else(|| {
        let known: Vec<_> = FAMILIES.iter().map(|f| f.gguf).collect();
        file.meta().error(Problem::key(
            "general.architecture",
            format_args!("one of {}", known.join(", ")),
            format_args!("`{name}`"),
        ))
    })?;
    from_gguf::read(file, family)
}

/// The model in an open Hugging Face directory.
pub fn load_hugging_face(dir: &HfDir) -> Result<Model, LoadError> {
    from_hf::read(dir, hugging_face_family(dir)?)
}

/// The family that config.json names.
pub(super) fn hugging_face_family(dir: &HfDir) -> Result<&'static Family, LoadError> {
    let name = &dir.config().model_type;
    find(|f| f.hugging_face.contains(&name.as_str())).ok_or_else(|| {
        let known: Vec<_> = FAMILIES.iter().flat_map(|f| f.hugging_face).copied().collect();
        dir.config().error("model_type", format_args!("one of {}", known.join(", ")), format_args!("`{name}`"))
    })
}

fn find(is: impl Fn(&Family) -> bool) -> Option<&'static Family> {
    FAMILIES.iter().copied().find(|f| is(f))
}
