//! Adapters as PEFT saves them: `adapter_config.json` beside `adapter_model.safetensors`.

use super::{ModuleNames, Pair};
use crate::format::hf::{AdapterDir, Json};
use crate::format::{Files, LoadError, Problem, Tensor};
use crate::model::HeadOrder;
use regex::{Regex, RegexBuilder};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// What stands before the names of modules, longest first.
const PREFIXES: [&str; 5] = ["model.language_model.", "language_model.model.", "language_model.", "model.", ""];
/// What the names of the two matrices end with, and which of them it is.
const ENDS: [(&str, bool); 4] = [
    (".lora_A.weight", true),
    (".lora_B.weight", false),
    (".lora_A.default.weight", true),
    (".lora_B.default.weight", false),
];
/// Parts of the names of tensors that are not supported, and how they are called.
const UNSUPPORTED: [(&str, &str); 5] = [
    ("lora_magnitude_vector", "DoRA's magnitudes"),
    ("lora_embedding_", "an adapter of the embedding"),
    (".lora_B.bias", "a bias beside lora_B"),
    ("modules_to_save", "a module that replaces the model's own"),
    (".base_layer.", "a weight of the model itself"),
];
/// Keys that change nothing about what the tensors mean.
const HARMLESS: [&str; 22] = [
    "auto_mapping",
    "base_model_name_or_path",
    "exclude_modules",
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "lora_dropout",
    "megatron_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "target_modules",
    "loftq_config",
    "eva_config",
    "corda_config",
    "lora_ga_config",
    "ensure_weight_tying",
    "unsloth_fixed",
    "unsloth_version",
];
/// Keys that only these values may stand at; nothing, `null` and what is empty may too.
const FIXED: [(&str, &[&str]); 14] = [
    ("peft_type", &["\"LORA\""]),
    ("task_type", &["\"CAUSAL_LM\""]),
    ("bias", &["\"none\""]),
    ("use_dora", &["false"]),
    ("use_qalora", &["false"]),
    ("use_bdlora", &["false"]),
    ("lora_bias", &["false"]),
    ("fan_in_fan_out", &["false"]),
    ("modules_to_save", &[]),
    ("layer_replication", &[]),
    ("trainable_token_indices", &[]),
    ("target_parameters", &[]),
    ("alora_invocation_tokens", &[]),
    ("arrow_config", &[]),
];
/// Keys that are read.
const READ: [&str; 5] = ["r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora"];

/// Patterns of names in a configuration, and the bytes that each may take when it is compiled.
const PATTERNS_MAX: usize = 1024;
const PATTERN_BYTES_MAX: usize = 256 << 10;

/// Ranks and factors of the modules, as the configuration says them.
struct PeftConfig {
    rank: usize,
    alpha: f64,
    ranks: Vec<(Regex, f64)>,
    alphas: Vec<(Regex, f64)>,
    /// `alpha / sqrt(r)` in place of `alpha / r`.
    rank_stabilized: bool,
}

/// All pairs of a directory, and its files.
pub(super) fn read(path: &Path) -> Result<(Vec<Pair>, Files), LoadError> {
    let dir = AdapterDir::open(path)?;
    let config = PeftConfig::read(dir.config())?;
    let mut halves: BTreeMap<(usize, String), [Option<Tensor>; 2]> = BTreeMap::new();
    let mut names: Vec<&str> = dir.tensor_names().collect();
    names.sort_unstable();
    for name in names {
        let (layer, module, is_a) = module_of(name).map_err(|problem| problem.in_file(path))?;
        let tensor = dir.tensor(name)?;
        let half = &mut halves.entry((layer, module)).or_default()[usize::from(!is_a)];
        if half.is_some() {
            return Err(Problem::tensor(name, "one tensor of each module's A and B", "two").in_file(path));
        }
        *half = Some(tensor);
    }
    let pair = |((layer, module), halves): ((usize, String), [Option<Tensor>; 2])| {
        let (a, b) = match halves {
            [Some(a), Some(b)] => (a, b),
            [Some(one), None] | [None, Some(one)] => {
                return Err(Problem::tensor(one.name, "A and B of each module", "one of the two"));
            }
            [None, None] => unreachable!("a module is there with its first tensor"),
        };
        let whole = format!("layers.{layer}.{module}");
        let (rank, scale) = (config.rank_of(&whole), config.scale_of(&whole));
        let (names, order) = (ModuleNames::HuggingFace, HeadOrder::Grouped);
        Pair { module, layer, a, b, scale, names, order }.checked(Some(rank))
    };
    let pairs = halves.into_iter().map(|half| pair(half).map_err(|problem| problem.in_file(path)));
    Ok((pairs.collect::<Result<_, _>>()?, dir.files().clone()))
}

/// Layer, module within it, and whether a tensor is A.
fn module_of(name: &str) -> Result<(usize, String, bool), Problem> {
    if let Some((_, what)) = UNSUPPORTED.iter().find(|(part, _)| name.contains(part)) {
        return Err(Problem::tensor(name, "a low-rank change of a matrix", *what));
    }
    let end = ENDS.iter().find_map(|(end, is_a)| Some((name.strip_suffix(end)?, *is_a)));
    let (module, is_a) =
        end.ok_or_else(|| Problem::tensor(name, "a name that ends in `.lora_A.weight` or `.lora_B.weight`", name))?;
    let module = module.strip_prefix("base_model.model.").unwrap_or(module);
    let module = PREFIXES.iter().find_map(|prefix| module.strip_prefix(prefix)).unwrap_or(module);
    let layer = module.strip_prefix("layers.").and_then(|rest| rest.split_once('.'));
    let (layer, rest) = layer
        .and_then(|(layer, rest)| Some((layer.parse().ok()?, rest)))
        .ok_or_else(|| Problem::tensor(name, "a module of a layer", format_args!("`{module}`")))?;
    Ok((layer, rest.to_owned(), is_a))
}

impl PeftConfig {
    fn read(json: &Json) -> Result<Self, LoadError> {
        for (key, value) in json.members() {
            check_key(key, value).map_err(|problem| problem.in_file(&json.file))?;
        }
        let rank = json.u64("r")?.ok_or_else(|| json.error("r", "the rank", "no such key"))?;
        let alpha = json.f64("lora_alpha")?.ok_or_else(|| json.error("lora_alpha", "a number", "no such key"))?;
        Ok(Self {
            rank: usize::try_from(rank).unwrap_or(usize::MAX),
            alpha,
            ranks: patterns(json, "rank_pattern")?,
            alphas: patterns(json, "alpha_pattern")?,
            rank_stabilized: json.bool("use_rslora")?.unwrap_or(false),
        })
    }

    fn rank_of(&self, module: &str) -> usize {
        matching(&self.ranks, module).map_or(self.rank, |rank| rank as usize)
    }

    fn scale_of(&self, module: &str) -> f32 {
        let (rank, alpha) = (self.rank_of(module) as f64, matching(&self.alphas, module).unwrap_or(self.alpha));
        (alpha / if self.rank_stabilized { rank.sqrt() } else { rank }) as f32
    }
}

/// The value of the first pattern that a module's name ends with.
fn matching(patterns: &[(Regex, f64)], module: &str) -> Option<f64> {
    patterns.iter().find(|(pattern, _)| pattern.is_match(module)).map(|(_, value)| *value)
}

/// Patterns of modules' names with a value each, as PEFT matches them: at the end of a name, behind a dot.
fn patterns(json: &Json, key: &str) -> Result<Vec<(Regex, f64)>, LoadError> {
    let Some(all) = json.get(key) else { return Ok(Vec::new()) };
    let all = all.as_object().ok_or_else(|| json.error(key, "an object", all))?;
    if all.len() > PATTERNS_MAX {
        return Err(json.error(key, format_args!("at most {PATTERNS_MAX} patterns"), all.len()));
    }
    let one = |(pattern, value): (&String, &Value)| {
        let number = value.as_f64().filter(|x| x.is_finite() && *x > 0.0);
        let number = number.ok_or_else(|| json.error(&format!("{key}.{pattern}"), "a number above 0", value))?;
        let mut regex = RegexBuilder::new(&format!(r"^(?:.*\.)?(?:{})$", pattern.trim_start_matches('^')));
        Ok((
            regex.size_limit(PATTERN_BYTES_MAX).build().map_err(|error| json.error(key, "patterns of names", error))?,
            number,
        ))
    };
    all.iter().map(one).collect()
}

/// That a key of the configuration is read, fixed or harmless.
fn check_key(key: &str, value: &Value) -> Result<(), Problem> {
    let empty = match value {
        Value::Null => true,
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        _ => false,
    };
    if empty || READ.contains(&key) || HARMLESS.contains(&key) {
        return Ok(());
    }
    match FIXED.iter().find(|(name, _)| *name == key) {
        Some((_, allowed)) if allowed.contains(&value.to_string().as_str()) => Ok(()),
        Some((_, [])) => Err(Problem::key(key, "nothing: it is not supported", value)),
        Some((_, allowed)) => Err(Problem::key(key, allowed.join(" or "), value)),
        None => Err(Problem::key(key, "a key that is known", value)),
    }
}
