//! What a Hugging Face directory says about text.

use super::json::Json;
use crate::files::{read_regular, read_regular_text};
use crate::format::text::{END_TOKENS, push_new};
use crate::format::{GenerationDefaults, LoadError, Problem, TEXT_FILE_BYTES_MAX, TextAssets, TokenizerSource};
use crate::ids::TokenId;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;

impl TextAssets {
    /// Reads tokenizer.json, tokenizer_config.json, generation_config.json and the chat template of a directory. Only
    /// the first must be there.
    pub fn from_hugging_face(dir: &Path) -> Result<Self, LoadError> {
        Self::from_hugging_face_for(dir, usize::MAX)
    }

    /// Text assets for a model whose embedding has `vocab` rows: a tokenizer with ids beyond it is an error.
    pub(crate) fn from_hugging_face_for(dir: &Path, vocab: usize) -> Result<Self, LoadError> {
        let path = dir.join("tokenizer.json");
        let bytes = read_regular(&path, TEXT_FILE_BYTES_MAX).map_err(|e| Problem::from(e).in_file(&path))?;
        let names = Names::parse(&bytes).map_err(|e| Problem::container("content", "a tokenizer", e).in_file(&path))?;
        if let Some(id) = names.largest().filter(|id| *id as usize >= vocab) {
            let want = format!("ids below {vocab}, the rows of the embedding");
            return Err(Problem::container("vocabulary", want, id).in_file(&path));
        }
        let about = Json::read_if_there(&dir.join("tokenizer_config.json"))?;
        let generation = Json::read_if_there(&dir.join("generation_config.json"))?;
        Ok(Self {
            chat_template: chat_template(dir, about.as_ref())?,
            tool_template: tool_template(dir, about.as_ref())?,
            bos_token: about.as_ref().and_then(|about| named_token(about, "bos_token")),
            eos_token: about.as_ref().and_then(|about| named_token(about, "eos_token")),
            end_ids: end_ids(dir, &names, about.as_ref(), generation.as_ref(), vocab)?,
            defaults: generation.as_ref().map_or_else(|| Ok(GenerationDefaults::default()), defaults)?,
            tokenizer: TokenizerSource::Json(bytes),
        })
    }
}

/// Ids of token strings in a tokenizer.json.
#[derive(Deserialize)]
struct Names {
    #[serde(default)]
    added_tokens: Vec<Added>,
    model: Vocabulary,
}

#[derive(Deserialize)]
struct Added {
    id: TokenId,
    content: String,
}

#[derive(Deserialize)]
struct Vocabulary {
    vocab: HashMap<String, TokenId>,
}

impl Names {
    fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
    }

    fn largest(&self) -> Option<TokenId> {
        self.added_tokens.iter().map(|t| t.id).chain(self.model.vocab.values().copied()).max()
    }

    fn id(&self, token: &str) -> Option<TokenId> {
        let added = self.added_tokens.iter().find(|t| t.content == token).map(|t| t.id);
        added.or_else(|| self.model.vocab.get(token).copied())
    }
}

/// The file beside the weights first: it is what newer exports write, and the others may be stale copies.
fn chat_template(dir: &Path, about: Option<&Json>) -> Result<Option<String>, LoadError> {
    let path = dir.join("chat_template.jinja");
    match read_regular_text(&path, TEXT_FILE_BYTES_MAX) {
        Ok(text) => return Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(Problem::from(e).in_file(&path)),
    }
    if let Some(json) = Json::read_if_there(&dir.join("chat_template.json"))?
        && let Some(text) = json.str("chat_template")?
    {
        return Ok(Some(text.to_owned()));
    }
    let Some(about) = about else { return Ok(None) };
    // One template, or several with names.
    let several = about.get("chat_template").and_then(|v| v.as_array());
    let Some(several) = several else { return Ok(about.str("chat_template")?.map(str::to_owned)) };
    let default = several.iter().find(|t| t["name"] == "default").and_then(|t| t["template"].as_str());
    let default = default.ok_or_else(|| about.error("chat_template", "one named `default`", "none of this name"))?;
    Ok(Some(default.to_owned()))
}

/// The template named `tool_use`: a file in the folder of further templates, or one of several in the configuration.
fn tool_template(dir: &Path, about: Option<&Json>) -> Result<Option<String>, LoadError> {
    let path = dir.join("additional_chat_templates").join("tool_use.jinja");
    match read_regular_text(&path, TEXT_FILE_BYTES_MAX) {
        Ok(text) => return Ok(Some(text)),
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {}
        Err(e) => return Err(Problem::from(e).in_file(&path)),
    }
    // A template of its own in a file stands for all that the configuration has.
    if dir.join("chat_template.jinja").exists() || dir.join("chat_template.json").exists() {
        return Ok(None);
    }
    let several = about.and_then(|about| about.get("chat_template")).and_then(|v| v.as_array());
    let of_tools = several.and_then(|several| several.iter().find(|t| t["name"] == "tool_use"));
    Ok(of_tools.and_then(|t| t["template"].as_str()).map(str::to_owned))
}

/// The text of a token that the configuration names: the text itself, or an object that has it.
fn named_token(about: &Json, name: &str) -> Option<String> {
    let token = about.get(name)?;
    token.as_str().or_else(|| token["content"].as_str()).map(str::to_owned)
}

/// config.json's own id counts only where nothing else says: it is often that of the text's end alone, or not a token
/// that ends.
fn end_ids(
    dir: &Path,
    names: &Names,
    about: Option<&Json>,
    generation: Option<&Json>,
    vocab: usize,
) -> Result<Vec<TokenId>, LoadError> {
    let known = |json: &Json, key: &str| known_ids(json, key, vocab);
    let mut ids = generation.map_or_else(|| Ok(Vec::new()), |g| known(g, "eos_token_id"))?;
    let named = about.and_then(|about| named_token(about, "eos_token"));
    for token in named.as_deref().into_iter().chain(END_TOKENS) {
        names.id(token).into_iter().for_each(|id| push_new(&mut ids, id));
    }
    if let Some(config) = Json::read_if_there(&dir.join("config.json"))? {
        let (nested, whole) = (known(&config, "text_config.eos_token_id")?, known(&config, "eos_token_id")?);
        if ids.is_empty() {
            ids = if nested.is_empty() { whole } else { nested };
        }
    }
    Ok(ids)
}

/// The ids at a key, all of which have a row of the embedding.
fn known_ids(json: &Json, key: &str, vocab: usize) -> Result<Vec<TokenId>, LoadError> {
    let ids = json.ids(key)?;
    match ids.iter().find(|id| **id as usize >= vocab) {
        Some(id) => Err(json.error(key, format_args!("ids below {vocab}, the rows of the embedding"), id)),
        None => Ok(ids),
    }
}

fn defaults(json: &Json) -> Result<GenerationDefaults, LoadError> {
    let number = |key| Ok::<_, LoadError>(json.f64(key)?.map(|x| x as f32));
    Ok(GenerationDefaults {
        temperature: number("temperature")?,
        top_p: number("top_p")?,
        top_k: json.u64("top_k")?.map(|k| u32::try_from(k).unwrap_or(u32::MAX)),
        min_p: number("min_p")?,
        repetition_penalty: number("repetition_penalty")?,
        presence_penalty: number("presence_penalty")?,
    })
}
