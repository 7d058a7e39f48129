//! Opens a model of any format and family.

use super::families::{FAMILIES, Family};
use super::{Model, from_gguf, from_hf};
use crate::format::gguf::set_name;
use crate::format::{Gguf, HfDir, LoadError, Problem};
use std::path::{Path, PathBuf};

/// Opens a GGUF file (or any part of a split one), a Hugging Face directory, or a directory with one GGUF model in it.
/// Files are mapped: weights are read when they are used.
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
    let name = &dir.config().model_type;
    let family = find(|f| f.hugging_face.contains(&name.as_str())).ok_or_else(|| {
        let known: Vec<_> = FAMILIES.iter().flat_map(|f| f.hugging_face).copied().collect();
        dir.config().error("model_type", format_args!("one of {}", known.join(", ")), format_args!("`{name}`"))
    })?;
    from_hf::read(dir, family)
}

fn find(is: impl Fn(&Family) -> bool) -> Option<&'static Family> {
    FAMILIES.iter().copied().find(|f| is(f))
}
