//! What a directory of sentence-transformers says about vectors of texts: how rows become one vector, and how long a
//! text may be. A plain directory of an encoder says none of it, and then rows are averaged.

use super::json::Json;
use crate::format::{LoadError, Problem};
use serde_json::Value;
use std::path::Path;

/// Over which rows of a text its vector is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextPooling {
    /// The mean of all rows.
    Mean,
    /// The first row, which is that of `[CLS]`.
    Cls,
}

/// The modules behind an encoder, and the bounds before it.
#[derive(Clone, Debug, PartialEq)]
pub struct SentenceModules {
    /// Over which rows a vector is made.
    pub pooling: TextPooling,
    /// The vector is brought to length 1.
    pub normalized: bool,
    /// Tokens of a text, with those that the tokenizer puts around it; `None` where only positions bound it.
    pub tokens_max: Option<usize>,
    /// Texts are written in small letters before they are cut into tokens.
    pub lower_case: bool,
    /// What stands before a text that is looked for.
    pub query_prompt: String,
    /// What stands before a text that is to be found.
    pub passage_prompt: String,
}

impl SentenceModules {
    /// Reads modules.json and what it names, sentence_bert_config.json, config_sentence_transformers.json and the
    /// length in tokenizer_config.json. None of them must be there.
    pub fn read(dir: &Path) -> Result<Self, LoadError> {
        let mut all = Self {
            pooling: TextPooling::Mean,
            normalized: false,
            tokens_max: None,
            lower_case: false,
            query_prompt: String::new(),
            passage_prompt: String::new(),
        };
        if let Some(modules) = Json::read_list_if_there(&dir.join("modules.json"))? {
            all.read_modules(dir, &modules)?;
        } else if let Some(pooling) = Json::read_if_there(&dir.join("1_Pooling").join("config.json"))? {
            all.pooling = pooling_of(&pooling)?;
        }
        all.read_bounds(dir)?;
        all.read_prompts(dir)?;
        Ok(all)
    }

    fn read_modules(&mut self, dir: &Path, modules: &Json) -> Result<(), LoadError> {
        let list = modules.array("modules")?.map_or(&[][..], Vec::as_slice);
        let kinds: Vec<&str> = list.iter().map(kind_of).collect();
        for (at, (module, kind)) in list.iter().zip(&kinds).enumerate() {
            let path = format!("{at}.type");
            match (at, *kind) {
                (0, "Transformer") | (2, "Normalize") => {}
                (1, "Pooling") => {
                    let folder = module.get("path").and_then(Value::as_str).unwrap_or_default();
                    // Nothing outside of the directory is read.
                    let inside = Path::new(folder).file_name().is_some_and(|name| name == folder);
                    if !inside {
                        return Err(modules.error("1.path", "the name of a folder in this directory", folder));
                    }
                    self.pooling = pooling_of(&Json::read(&dir.join(folder).join("config.json"))?)?;
                }
                (at, kind) => {
                    let want = ["`Transformer`", "`Pooling`", "`Normalize`"].get(at).unwrap_or(&"no further module");
                    return Err(modules.error(&path, want, format_args!("`{kind}`")));
                }
            }
        }
        if kinds.len() < 2 {
            return Err(modules.error("1.type", "`Pooling`", "no such module"));
        }
        self.normalized = kinds.len() == 3;
        Ok(())
    }

    fn read_bounds(&mut self, dir: &Path) -> Result<(), LoadError> {
        if let Some(own) = Json::read_if_there(&dir.join("sentence_bert_config.json"))? {
            self.tokens_max = own.u64("max_seq_length")?.map(size);
            self.lower_case = own.bool("do_lower_case")?.unwrap_or(false);
        }
        if self.tokens_max.is_none()
            && let Some(tokenizer) = Json::read_if_there(&dir.join("tokenizer_config.json"))?
        {
            // Tokenizers without a bound write a number of thirty digits, which none of the encoders has room for.
            self.tokens_max = tokenizer.f64("model_max_length")?.map(|n| n as usize);
        }
        match self.tokens_max {
            Some(0) => Err(Problem::key("max_seq_length", "at least 1", 0).in_file(dir)),
            _ => Ok(()),
        }
    }

    fn read_prompts(&mut self, dir: &Path) -> Result<(), LoadError> {
        let Some(own) = Json::read_if_there(&dir.join("config_sentence_transformers.json"))? else { return Ok(()) };
        let first = |names: &[&str]| -> Result<String, LoadError> {
            let mut found = Ok(None);
            for name in names {
                found = found.and_then(|found| Ok(found.or(own.str(&format!("prompts.{name}"))?)));
            }
            Ok(found?.unwrap_or_default().to_owned())
        };
        self.query_prompt = first(&["query"])?;
        self.passage_prompt = first(&["document", "passage"])?;
        Ok(())
    }
}

/// The last step of a module's type, which older releases write with another path.
fn kind_of(module: &Value) -> &str {
    let full = module.get("type").and_then(Value::as_str).unwrap_or_default();
    full.rsplit('.').next().unwrap_or_default()
}

/// A mode by its word, or the one whose flag is set.
fn pooling_of(config: &Json) -> Result<TextPooling, LoadError> {
    if let Some(false) = config.bool("include_prompt")? {
        return Err(config.error("include_prompt", "true", false));
    }
    if let Some(mode) = config.str("pooling_mode")? {
        return match mode {
            "mean" => Ok(TextPooling::Mean),
            "cls" => Ok(TextPooling::Cls),
            other => Err(config.error("pooling_mode", "`mean` or `cls`", format_args!("`{other}`"))),
        };
    }
    let mut found = None;
    for (key, set) in config.value.as_object().into_iter().flatten() {
        let mode = match key.as_str() {
            "pooling_mode_mean_tokens" => Some(TextPooling::Mean),
            "pooling_mode_cls_token" => Some(TextPooling::Cls),
            other if other.starts_with("pooling_mode_") => None,
            _ => continue,
        };
        if set.as_bool() != Some(true) {
            continue;
        }
        match (mode, found) {
            (Some(mode), None) => found = Some(mode),
            (None, _) => return Err(config.error(key, "false: only means and `[CLS]` are known", true)),
            (Some(_), Some(_)) => return Err(config.error(key, "one way of pooling", "a second one")),
        }
    }
    found.ok_or_else(|| config.error("pooling_mode_mean_tokens", "true, or pooling_mode_cls_token", "neither"))
}

fn size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
