//! Opens a model of any format and family.

use super::families::{FAMILIES, Family};
use super::{HeadOrder, Model, from_gguf, from_hf};
use crate::format::gguf::set_name;
use crate::format::hf::AdapterDir;
use crate::format::{Gguf, HfDir, LoadError, Problem};
use std::path::{Path, PathBuf};

/// What a model can be read from, open.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one is open at a time, and nobody moves it about")]
pub enum Opened {
    /// A GGUF file, or a whole set of split ones.
    Gguf(Gguf),
    /// A Hugging Face directory.
    HuggingFace(HfDir),
}

/// Opens a GGUF file (or any part of a split one), a Hugging Face directory, or a directory with one GGUF model in it.
/// Files are mapped: weights are read when they are used.
pub fn open(path: &Path) -> Result<Opened, LoadError> {
    let path = &find_file(path)?;
    if !path.is_dir() {
        return Gguf::open(path).map(Opened::Gguf);
    }
    if AdapterDir::is_one(path) {
        return Err(no_model(ADAPTER).in_file(path));
    }
    HfDir::open(path).map(Opened::HuggingFace)
}

/// The model in what [`open`] opens.
pub fn load(path: &Path) -> Result<Model, LoadError> {
    match open(path)? {
        Opened::Gguf(file) => load_gguf(&file),
        Opened::HuggingFace(dir) => load_hugging_face(&dir),
    }
}

/// What a path stands for: a directory with one GGUF model in it, a file or a split set, for that model, whatever else
/// the directory holds; every other path for itself. Projectors of pictures are no models.
pub fn find_file(path: &Path) -> Result<PathBuf, LoadError> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let list = || -> std::io::Result<Vec<PathBuf>> { std::fs::read_dir(path)?.map(|e| Ok(e?.path())).collect() };
    let mut files = list().map_err(|e| Problem::from(e).in_file(path))?;
    files.retain(|file| file.extension().is_some_and(|e| e == "gguf"));
    files.sort();
    files.dedup_by_key(|file| set_name(file));
    // Opening a file opens the whole set that it is a part of.
    files.retain(|file| !is_projector(file));
    match files.as_slice() {
        [] => Ok(path.to_owned()),
        [one] => {
            tracing::info!("{} stands for {}, its only GGUF model", path.display(), one.display());
            Ok(one.clone())
        }
        several => {
            let names = several.iter().filter_map(|file| file.file_name()).map(|name| name.to_string_lossy());
            let got = format!("{} ({})", several.len(), names.collect::<Vec<_>>().join(", "));
            Err(Problem::container("directory", "one GGUF model, or the name of a file", got).in_file(path))
        }
    }
}

/// Whether a GGUF file is the part of a model that reads pictures, by its name or by what it says of itself.
fn is_projector(file: &Path) -> bool {
    let name = file.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    name.contains("mmproj") || Gguf::open(file).is_ok_and(|file| other_kind(&file) == Some(PROJECTOR))
}

const ADAPTER: &str = "an adapter, which changes a model: it is served beside its model";
const IMATRIX: &str = "an importance matrix, which `quantize` takes beside a model";
const PROJECTOR: &str = "a projector of pictures, which is a part of a model";
const VOCABULARY: &str = "a vocabulary without weights";

/// The kind of a GGUF file that is no model.
fn other_kind(file: &Gguf) -> Option<&'static str> {
    let word = |key: &str| file.meta().str(key).ok().flatten();
    match (word("general.type"), word("general.architecture")) {
        (Some("adapter"), _) => Some(ADAPTER),
        (Some("imatrix"), _) => Some(IMATRIX),
        (Some("mmproj"), _) | (_, Some("clip")) => Some(PROJECTOR),
        _ if file.tensors().len() == 0 && word("tokenizer.ggml.model").is_some() => Some(VOCABULARY),
        _ => None,
    }
}

fn no_model(kind: &str) -> Problem {
    Problem::container("content", "a model", kind)
}

/// The model in an open GGUF file.
pub fn load_gguf(file: &Gguf) -> Result<Model, LoadError> {
    if let Some(kind) = other_kind(file) {
        return Err(file.meta().error(no_model(kind)));
    }
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

/// The family that config.json names, if its weights are encoded in a way that is read.
pub(super) fn hugging_face_family(dir: &HfDir) -> Result<&'static Family, LoadError> {
    let name = &dir.config().model_type;
    let family = find(|f| f.hugging_face.contains(&name.as_str())).ok_or_else(|| {
        let known: Vec<_> = FAMILIES.iter().flat_map(|f| f.hugging_face).copied().collect();
        dir.config().error("model_type", format_args!("one of {}", known.join(", ")), format_args!("`{name}`"))
    })?;
    dir.check_quantization()?;
    Ok(family)
}

/// The order that value heads have in GGUF files of an architecture.
pub(super) fn head_order_of(architecture: &str) -> HeadOrder {
    let conversion = find(|f| f.gguf == architecture).and_then(|family| family.conversion);
    conversion.map_or(HeadOrder::Grouped, |conversion| conversion.head_order)
}

/// Whether directories of an architecture have the input projections of gated-delta blocks as two matrices.
pub(super) fn fuses_projections(architecture: &str) -> bool {
    find(|f| f.gguf == architecture).and_then(|family| family.gdn.as_ref()).is_some_and(|packing| packing.is_fused)
}

fn find(is: impl Fn(&Family) -> bool) -> Option<&'static Family> {
    FAMILIES.iter().copied().find(|f| is(f))
}
