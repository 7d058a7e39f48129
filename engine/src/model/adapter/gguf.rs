//! Adapters as llama.cpp's converter writes them: a GGUF file of the type `adapter`, whose tensors have the names of
//! the model's with `.lora_a` or `.lora_b` behind them.

use super::{ModuleNames, Pair};
use crate::format::{Files, Gguf, LoadError, Problem};
use crate::model::hf_tensors::layer_of;
use crate::model::load::head_order_of;
use std::path::Path;

/// Keys that are read or say nothing about what the tensors mean; those that begin with these say nothing either.
const KNOWN: [&str; 4] = ["adapter.type", "adapter.lora.alpha", "GGUF.version", "quantize.imatrix"];
const DESCRIPTION: &str = "general.";

/// All pairs of a file for a model of this architecture, and the file.
pub(super) fn read(path: &Path, architecture: &str) -> Result<(Vec<Pair>, Files), LoadError> {
    let file = Gguf::open(path)?;
    let meta = file.meta();
    for (key, want) in [("general.type", "adapter"), ("adapter.type", "lora"), ("general.architecture", architecture)] {
        let got = meta.need_str(key)?;
        if got != want {
            return Err(meta.error(Problem::key(key, format_args!("`{want}`"), format_args!("`{got}`"))));
        }
    }
    if let Some(key) = meta.keys().filter(|key| !KNOWN.contains(key) && !key.starts_with(DESCRIPTION)).min() {
        return Err(meta.error(Problem::key(key, "a key that is known", "another")));
    }
    let alpha = meta.need_f64("adapter.lora.alpha")?;
    let order = head_order_of(architecture);
    let mut pairs = Vec::new();
    for b in file.tensors_in_order() {
        let name = &b.name;
        let Some(base) = name.strip_suffix(".lora_b") else {
            let a = name.strip_suffix(".lora_a").map(|base| format!("{base}.lora_b"));
            match a.filter(|b| file.tensor(b).is_some()) {
                Some(_) => continue,
                None => return Err(meta.error(Problem::tensor(name, "a pair of `.lora_a` and `.lora_b`", "no pair"))),
            }
        };
        let a = file.tensor(&format!("{base}.lora_a"));
        let a = a.ok_or_else(|| meta.error(Problem::tensor(name, "a pair of `.lora_a` and `.lora_b`", "no pair")))?;
        let (layer, module) =
            layer_of(base).ok_or_else(|| meta.error(Problem::tensor(name, "a matrix of a layer", base)))?;
        let module = module.strip_suffix(".weight").unwrap_or(module).to_owned();
        let scale = (alpha / a.rows() as f64) as f32;
        let pair = Pair { module, layer, a: a.clone(), b: b.clone(), scale, names: ModuleNames::Gguf, order };
        pairs.push(pair.checked(None).map_err(|problem| meta.error(problem))?);
    }
    Ok((pairs, file.files().clone()))
}
