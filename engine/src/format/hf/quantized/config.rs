//! What a directory says of its matrices of few bits: `quantization_config` of config.json, or hf_quant_config.json.
//!
//! The tensors themselves say how they are read; this is held against them, so that a file whose configuration means
//! something else is refused and not computed otherwise.

use super::super::json::Json;
use super::{QuantizedMatrix, WeightScheme};
use crate::format::LoadError;
use regex::Regex;
use serde_json::Value;
use std::path::Path;

/// A file of older releases of modelopt beside config.json.
const BESIDE: &str = "hf_quant_config.json";
/// Where config.json may say it.
const PLACES: [&str; 3] = ["quantization_config", "text_config.quantization_config", "compression_config"];

/// Names of the list of modules that are not quantised.
const IGNORED: [&str; 4] = ["ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers"];

/// How the matrices of a directory are said to be quantised.
#[derive(Debug)]
pub(in super::super) struct Quantization {
    /// The file, and the object of it that says so.
    said: Option<(Json, &'static str)>,
}

/// Matrices by the names of their modules, and the schemes that they may have.
struct SchemeRule {
    targets: Vec<ModulePattern>,
    schemes: Vec<WeightScheme>,
}

impl Quantization {
    /// What `config`, the whole of config.json, and the directory say.
    pub(in super::super) fn of(config: &Json, dir: &Path) -> Result<Self, LoadError> {
        if let Some(place) = PLACES.into_iter().find(|place| config.get(place).is_some()) {
            return Ok(Self { said: Some((config.clone(), place)) });
        }
        let beside = Json::read_if_there(&dir.join(BESIDE))?;
        Ok(Self { said: beside.map(|json| (json, "quantization")) })
    }

    /// Whether zero points of GPTQ are stored as they are; the format's first version stores one less.
    pub(super) fn is_gptq_v2(&self) -> bool {
        let value = |key| self.get(key).and_then(Value::as_str);
        value("checkpoint_format").or_else(|| value("format")) == Some("gptq_v2")
    }

    /// Whether all zero points are said to be the middle of the codes.
    pub(super) fn is_symmetric(&self) -> bool {
        self.get("sym").and_then(Value::as_bool) == Some(true)
    }

    /// Holds this against the names of all tensors and the scheme of the matrix of each stem.
    pub(in super::super) fn check(
        &self,
        names: &[&str],
        scheme_of: impl Fn(&str) -> Result<Option<WeightScheme>, LoadError>,
    ) -> Result<(), LoadError> {
        let (rules, ignored) = (self.rules()?, self.ignored()?);
        let stems = names.iter().filter_map(|name| QuantizedMatrix::stem_of(name));
        let listed = |name: &&str| ignored.iter().any(|p| name.contains(&p.text) || p.names(stem_or(name)));
        if !ignored.is_empty() && !names.iter().any(listed) {
            let key = self.ignore_key().expect("there is a list");
            return Err(self.error(key, "a list of modules of which some are in this directory", "none of them"));
        }
        for stem in stems {
            let Some(scheme) = scheme_of(stem)? else { continue };
            if let Some(pattern) = ignored.iter().find(|p| p.names(stem)) {
                let got = format!("`{}`, but `{stem}` is {}", pattern.text, scheme.name());
                return Err(self.error(
                    self.ignore_key().expect("there is a list"),
                    "modules that are not quantised",
                    got,
                ));
            }
            self.check_scheme(stem, scheme, &rules)?;
        }
        Ok(())
    }

    fn check_scheme(&self, stem: &str, scheme: WeightScheme, rules: &[SchemeRule]) -> Result<(), LoadError> {
        if self.said.is_none() && scheme == WeightScheme::Gptq {
            return Err(self.error(
                "checkpoint_format",
                format_args!("a configuration that says how `{stem}` is stored"),
                "none",
            ));
        }
        let mut of_stem = rules.iter().filter(|rule| rule.targets.iter().any(|t| t.names(stem)));
        if self.said.is_none() || of_stem.any(|rule| rule.schemes.contains(&scheme)) {
            return Ok(());
        }
        let named: Vec<&str> = rules.iter().flat_map(|rule| &rule.schemes).map(|s| s.name()).collect();
        let want = format!("{} for `{stem}`, as its tensors are", scheme.name());
        Err(self.error(self.method_key(), want, if named.is_empty() { "none".to_owned() } else { named.join(", ") }))
    }

    fn get(&self, key: &str) -> Option<&Value> {
        let (json, place) = self.said.as_ref()?;
        json.get(&format!("{place}.{key}"))
    }

    fn method_key(&self) -> &'static str {
        ["quant_algo", "format", "quant_method"]
            .into_iter()
            .find(|key| self.get(key).is_some())
            .unwrap_or("quant_method")
    }

    fn error(&self, key: &str, want: impl std::fmt::Display, got: impl std::fmt::Display) -> LoadError {
        match &self.said {
            Some((json, place)) => json.error(&format!("{place}.{key}"), want, got),
            None => Json { file: "config.json".into(), value: Value::Null }.error("quantization_config", want, got),
        }
    }

    fn ignore_key(&self) -> Option<&'static str> {
        IGNORED.into_iter().find(|key| self.get(key).is_some())
    }

    fn ignored(&self) -> Result<Vec<ModulePattern>, LoadError> {
        let Some(key) = self.ignore_key() else { return Ok(Vec::new()) };
        self.patterns(key)
    }

    /// A list of names of modules.
    fn patterns(&self, key: &str) -> Result<Vec<ModulePattern>, LoadError> {
        let all = self.get(key).and_then(Value::as_array);
        let all = all.ok_or_else(|| self.error(key, "a list of names of modules", "something else"))?;
        let each = all.iter().map(|name| {
            let name = name.as_str().ok_or_else(|| self.error(key, "names of modules", name))?;
            ModulePattern::new(name).map_err(|e| self.error(key, "patterns that can be read", e))
        });
        each.collect()
    }

    /// That a key is not there or has one of these values.
    fn one_of(&self, key: &str, want: &[Value]) -> Result<(), LoadError> {
        match self.get(key) {
            Some(got) if !want.contains(got) => {
                let want: Vec<String> = want.iter().map(Value::to_string).collect();
                Err(self.error(key, want.join(" or "), got))
            }
            _ => Ok(()),
        }
    }

    fn rules(&self) -> Result<Vec<SchemeRule>, LoadError> {
        if self.said.is_none() {
            return Ok(Vec::new());
        }
        let everything = |scheme: &[WeightScheme]| {
            vec![SchemeRule { targets: vec![ModulePattern::all()], schemes: scheme.to_vec() }]
        };
        let method = self.get("quant_method").and_then(Value::as_str);
        match method.or_else(|| self.get("quant_algo").map(|_| "modelopt")) {
            Some("fp8") => {
                self.one_of("fmt", &["e4m3".into()])?;
                self.one_of("weight_block_size", &[vec![128, 128].into()])?;
                let blocks = self.get("weight_block_size").is_some();
                Ok(everything(if blocks {
                    &[WeightScheme::Fp8Blocks]
                } else {
                    &[WeightScheme::Fp8Blocks, WeightScheme::Fp8Rows, WeightScheme::Fp8Whole]
                }))
            }
            Some("modelopt" | "modelopt_fp4" | "modelopt_mixed") => self.rules_of_modelopt(),
            Some("compressed-tensors") => self.rules_of_groups(),
            Some("awq") => {
                self.integers_of_128()?;
                self.one_of("version", &["gemm".into(), "GEMM".into()])?;
                self.one_of("zero_point", &[true.into()])?;
                Ok(everything(&[WeightScheme::Awq]))
            }
            Some("gptq") => {
                self.integers_of_128()?;
                self.one_of("checkpoint_format", &["gptq".into(), "gptq_v2".into()])?;
                self.no_overrides()?;
                Ok(everything(&[WeightScheme::Gptq]))
            }
            other => {
                let want = "one of `fp8`, `modelopt`, `compressed-tensors`, `awq`, `gptq`";
                Err(self.error("quant_method", want, format_args!("`{}`", other.unwrap_or("nothing"))))
            }
        }
    }

    /// That GPTQ's `dynamic` only leaves modules out (`-:`), and gives none other parameters.
    fn no_overrides(&self) -> Result<(), LoadError> {
        let Some(modules) = self.get("dynamic").and_then(Value::as_object) else { return Ok(()) };
        let same =
            |(name, with): &(&String, &Value)| name.starts_with("-:") || with.as_object().is_some_and(|w| w.is_empty());
        match modules.iter().find(|module| !same(module)) {
            None => Ok(()),
            Some((name, with)) => Err(self.error(&format!("dynamic.{name}"), "no parameters of its own", with)),
        }
    }

    fn integers_of_128(&self) -> Result<(), LoadError> {
        self.one_of("bits", &[4.into()])?;
        self.one_of("group_size", &[128.into()])
    }

    /// One algorithm for all, or a list of layers with one each.
    fn rules_of_modelopt(&self) -> Result<Vec<SchemeRule>, LoadError> {
        let algorithm = self.get("quant_algo").and_then(Value::as_str).unwrap_or("nothing").to_uppercase();
        if algorithm != "MIXED_PRECISION" {
            self.one_of("group_size", &[16.into()])?;
            let schemes = vec![self.scheme_of_modelopt("quant_algo", &algorithm)?];
            return Ok(vec![SchemeRule { targets: vec![ModulePattern::all()], schemes }]);
        }
        let layers = self.get("quantized_layers").and_then(Value::as_object);
        let layers = layers.ok_or_else(|| self.error("quantized_layers", "an object of layers", "none"))?;
        let rule = |(layer, said): (&String, &Value)| {
            let key = format!("quantized_layers.{layer}");
            let algorithm = said.get("quant_algo").and_then(Value::as_str).unwrap_or("nothing").to_uppercase();
            let targets = vec![ModulePattern::new(layer).map_err(|e| self.error(&key, "a name", e))?];
            Ok(SchemeRule { targets, schemes: vec![self.scheme_of_modelopt(&key, &algorithm)?] })
        };
        layers.iter().map(rule).collect()
    }

    fn scheme_of_modelopt(&self, key: &str, algorithm: &str) -> Result<WeightScheme, LoadError> {
        match algorithm {
            "FP8" => Ok(WeightScheme::Fp8Whole),
            "FP8_PER_CHANNEL_PER_TOKEN" => Ok(WeightScheme::Fp8Rows),
            "FP8_PB_WO" | "FP8_BLOCK_SCALES" => Ok(WeightScheme::Fp8Blocks),
            "NVFP4" | "W4A16_NVFP4" => Ok(WeightScheme::Nvfp4),
            other => {
                let want = "FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, NVFP4, W4A16_NVFP4 or MIXED_PRECISION";
                Err(self.error(key, want, format_args!("`{other}`")))
            }
        }
    }

    /// Groups of modules, each with the form of its weights.
    fn rules_of_groups(&self) -> Result<Vec<SchemeRule>, LoadError> {
        let groups = self.get("config_groups").and_then(Value::as_object);
        let groups = groups.ok_or_else(|| self.error("config_groups", "an object of groups", "none"))?;
        for key in ["sparsity_config", "transform_config"] {
            self.one_of(key, &[serde_json::json!({})])?;
        }
        let rule = |name: &String| {
            let schemes = vec![self.scheme_of_group(&format!("config_groups.{name}"))?];
            Ok(SchemeRule { targets: self.patterns(&format!("config_groups.{name}.targets"))?, schemes })
        };
        groups.keys().map(rule).collect()
    }

    fn scheme_of_group(&self, group: &str) -> Result<WeightScheme, LoadError> {
        let key = |end: &str| format!("{group}.weights.{end}");
        let word = |end: &str| self.get(&key(end)).and_then(Value::as_str);
        let number = |end: &str| self.get(&key(end)).and_then(Value::as_u64);
        let size = number("group_size");
        let strategy = word("strategy").unwrap_or(if size.is_some() { "group" } else { "tensor" });
        match (number("num_bits"), word("type").unwrap_or("nothing"), strategy, size) {
            (Some(8), "float", "block", _) => {
                self.one_of(&key("block_structure"), &[vec![128, 128].into()])?;
                Ok(WeightScheme::Fp8Blocks)
            }
            (Some(8), "float", "channel", _) => Ok(WeightScheme::Fp8Rows),
            (Some(8), "float", "tensor", _) => Ok(WeightScheme::Fp8Whole),
            (Some(4), "float", "tensor_group", Some(16)) => Ok(WeightScheme::Nvfp4),
            (Some(4), "float", "group", Some(32)) => Ok(WeightScheme::Mxfp4),
            (Some(4), "int", "group", Some(128)) => {
                let zeros = self.get(&key("symmetric")).and_then(Value::as_bool) == Some(false);
                Ok(if zeros { WeightScheme::Int4Zeros } else { WeightScheme::Int4 })
            }
            (bits, kind, strategy, size) => {
                let want = "8-bit floats by block, channel or tensor; 4-bit ones in groups of 16 or 32; \
                            4-bit integers in groups of 128";
                let size = size.map_or("no size".to_owned(), |n| format!("groups of {n}"));
                let bits = bits.map_or("no".to_owned(), |n| n.to_string());
                Err(self.error(
                    &format!("{group}.weights"),
                    want,
                    format_args!("{bits} bits, {kind}, {strategy}, {size}"),
                ))
            }
        }
    }
}

/// A module's name as a list of modules writes it: the name itself, its end, its beginning, the name of a class, which
/// stands for every module, or a pattern.
struct ModulePattern {
    text: String,
    form: PatternForm,
}

enum PatternForm {
    Everything,
    Name(String),
    Regex(Regex),
}

impl ModulePattern {
    fn all() -> Self {
        Self { text: String::new(), form: PatternForm::Everything }
    }

    fn new(text: &str) -> Result<Self, String> {
        let regex =
            |pattern: &str| Regex::new(&format!("^(?:{pattern})")).map(PatternForm::Regex).map_err(|e| e.to_string());
        let form = if let Some(pattern) = text.strip_prefix("re:") {
            regex(pattern)?
        } else if text.contains(['*', '?']) {
            regex(&(regex::escape(text).replace("\\*", ".*").replace("\\?", ".") + "$"))?
        } else if text.starts_with(|c: char| c.is_ascii_uppercase()) && !text.contains('.') {
            PatternForm::Everything
        } else {
            PatternForm::Name(plain(text).to_owned())
        };
        Ok(Self { text: text.to_owned(), form })
    }

    /// Whether this names the module, with or without the prefix that a model with a vision tower has.
    fn names(&self, module: &str) -> bool {
        match &self.form {
            PatternForm::Everything => true,
            PatternForm::Regex(regex) => module_names(module).iter().any(|name| regex.is_match(name)),
            PatternForm::Name(name) => {
                let module = plain(module);
                let dotted = |rest: Option<&str>, edge: fn(&str) -> bool| rest.is_some_and(edge);
                module == name
                    || dotted(module.strip_prefix(name.as_str()), |rest| rest.starts_with('.'))
                    || dotted(module.strip_suffix(name.as_str()), |rest| rest.ends_with('.'))
            }
        }
    }
}

/// A name without the prefixes that programs add and take away around the text part of a model.
fn plain(name: &str) -> &str {
    let prefixes = ["model.language_model.", "language_model.model.", "language_model.", "model."];
    prefixes.into_iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}

/// The names that a module has with each of these prefixes.
fn module_names(module: &str) -> [String; 4] {
    let plain = plain(module);
    [module.to_owned(), plain.to_owned(), format!("model.{plain}"), format!("model.language_model.{plain}")]
}

fn stem_or(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_named_whole_by_their_ends_by_patterns_and_under_every_prefix() {
        let names = |pattern: &str, module: &str| ModulePattern::new(pattern).unwrap().names(module);
        for (pattern, module, want) in [
            ("lm_head", "lm_head", true),
            ("model.layers.0.mlp.gate", "model.language_model.layers.0.mlp.gate", true),
            ("model.layers.0.mlp.gate", "model.layers.0.mlp.gate_proj", false),
            ("mlp.gate", "model.layers.3.mlp.gate", true),
            ("model.layers.1", "model.layers.1.mlp.gate", true),
            ("model.layers.1", "model.layers.12.mlp.gate", false),
            ("model.layers.0*", "model.layers.0.mlp.gate", true),
            ("*mlp.gate", "model.layers.0.mlp.gate", true),
            ("*mlp.gate", "model.layers.0.mlp.gate_proj", false),
            ("re:.*linear_attn.*", "model.language_model.layers.0.linear_attn.out_proj", true),
            ("re:model.layers.*mlp.gate$", "model.language_model.layers.0.mlp.gate", true),
            ("re:layers", "mtp.layers.0.mlp.gate", false),
            ("Linear", "model.layers.0.mlp.gate", true),
        ] {
            assert_eq!(names(pattern, module), want, "{pattern} {module}");
        }
        assert!(ModulePattern::new("re:(").is_err());
    }
}
