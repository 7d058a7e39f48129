//! What a GGUF file says about text: tokenizer, template, end ids, sampling defaults. Handed over, not understood.

use super::gguf::{GgufHeader, MetaValue};
use super::{GenerationDefaults, Gguf, LoadError, Problem, TextAssets, TokenizerSource};
use crate::ids::TokenId;

/// Tokens that end a turn or a text in this family of models. A file's own end id is often only one of them.
pub(super) const END_TOKENS: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

/// The key of a template for conversations with tools.
const TOOL_TEMPLATE: &str = "tokenizer.chat_template.tool_use";

/// Type of an id without a token.
const UNUSED: i32 = 5;

impl TextAssets {
    /// Reads `tokenizer.*` and `general.sampling.*`. Works on files without tensors too.
    pub fn from_gguf(file: &Gguf) -> Result<Self, LoadError> {
        let meta = file.meta();
        let model = meta.need_str("tokenizer.ggml.model")?;
        if model != "gpt2" {
            return Err(meta.error(Problem::key(
                "tokenizer.ggml.model",
                "`gpt2`, a byte-level BPE",
                format_args!("`{model}`"),
            )));
        }
        let strings = |key| meta.strings(key)?.ok_or_else(|| meta.missing(key, "an array of strings"));
        let tokens = strings("tokenizer.ggml.tokens")?;
        let named =
            |key| Ok::<_, LoadError>(meta.u64(key)?.and_then(|id| tokens.get(usize::try_from(id).ok()?).cloned()));
        Ok(Self {
            bos_token: named("tokenizer.ggml.bos_token_id")?,
            eos_token: named("tokenizer.ggml.eos_token_id")?,
            tool_template: meta.str(TOOL_TEMPLATE)?.map(str::to_owned),
            end_ids: end_ids(file, &tokens)?,
            tokenizer: TokenizerSource::Gguf {
                pre: meta.need_str("tokenizer.ggml.pre")?.to_owned(),
                types: token_types(file, tokens.len())?,
                merges: strings("tokenizer.ggml.merges")?,
                tokens,
            },
            chat_template: meta.str("tokenizer.chat_template")?.map(str::to_owned),
            defaults: defaults(file)?,
        })
    }

    /// Sets `tokenizer.*` and `general.sampling.*` for a model whose embedding has `vocab` rows, so that
    /// [`TextAssets::from_gguf`] reads the same: all but a third id that ends, and a presence penalty, for which there
    /// are no keys. Rows without a token get unused ones, as other programs count them.
    pub(crate) fn set_keys(&self, header: &mut GgufHeader, vocab: usize) -> Result<(), Problem> {
        let TokenizerSource::Gguf { pre, tokens, types, merges } = &self.tokenizer else {
            return Err(Problem::container("tokenizer", "one in the form of GGUF files", "a tokenizer.json"));
        };
        if tokens.len() > vocab {
            let want = format!("at most {vocab} tokens, the rows of the embedding");
            return Err(Problem::container("vocabulary", want, tokens.len()));
        }
        let unused = (tokens.len()..vocab).map(|id| format!("[PAD{id}]"));
        let tokens: Vec<String> = tokens.iter().cloned().chain(unused).collect();
        let mut types = types.clone();
        types.resize(vocab, UNUSED);
        self.set_end_ids(header, &tokens);
        header.set("tokenizer.ggml.model", MetaValue::Str("gpt2".into()));
        header.set("tokenizer.ggml.pre", MetaValue::Str(pre.clone()));
        header.set("tokenizer.ggml.tokens", MetaValue::Strings(tokens.clone()));
        header.set("tokenizer.ggml.token_type", MetaValue::I32s(types));
        header.set("tokenizer.ggml.merges", MetaValue::Strings(merges.clone()));
        header.set("tokenizer.ggml.add_bos_token", MetaValue::Bool(false));
        if let Some(template) = &self.chat_template {
            header.set("tokenizer.chat_template", MetaValue::Str(template.clone()));
        }
        if let Some(template) = &self.tool_template {
            header.set(TOOL_TEMPLATE, MetaValue::Str(template.clone()));
        }
        let bos = self.bos_token.as_ref().and_then(|token| tokens.iter().position(|t| t == token));
        if let Some(id) = bos.and_then(|id| u32::try_from(id).ok()) {
            header.set("tokenizer.ggml.bos_token_id", MetaValue::U32(id));
        }
        self.defaults.set_keys(header);
        Ok(())
    }

    /// The first id that ends, and the next one that is not known by its name.
    fn set_end_ids(&self, header: &mut GgufHeader, tokens: &[String]) {
        let named = |id: TokenId| tokens.get(id as usize).is_some_and(|t| END_TOKENS.contains(&t.as_str()));
        let Some((first, rest)) = self.end_ids.split_first() else { return };
        header.set("tokenizer.ggml.eos_token_id", MetaValue::U32(*first));
        let mut rest = rest.iter().copied().filter(|id| !named(*id));
        if let Some(id) = rest.next() {
            header.set("tokenizer.ggml.eot_token_id", MetaValue::U32(id));
        }
        let lost: Vec<_> = rest.collect();
        if !lost.is_empty() {
            tracing::warn!("a GGUF file has room for two ids that end a text: {lost:?} are left out");
        }
    }
}

impl GenerationDefaults {
    fn set_keys(&self, header: &mut GgufHeader) {
        let numbers = [
            ("temp", self.temperature),
            ("top_p", self.top_p),
            ("min_p", self.min_p),
            ("penalty_repeat", self.repetition_penalty),
        ];
        for (key, value) in numbers {
            if let Some(x) = value {
                header.set(format!("general.sampling.{key}"), MetaValue::F32(x));
            }
        }
        if let Some(k) = self.top_k {
            header.set("general.sampling.top_k", MetaValue::U32(k));
        }
    }
}

fn token_types(file: &Gguf, count: usize) -> Result<Vec<i32>, LoadError> {
    const KEY: &str = "tokenizer.ggml.token_type";
    let meta = file.meta();
    let types = meta.integers(KEY)?.ok_or_else(|| meta.missing(KEY, "an array of whole numbers"))?;
    if types.len() != count {
        return Err(meta.error(Problem::key(KEY, format_args!("{count} entries, one a token"), types.len())));
    }
    let types: Option<_> = types.into_iter().map(|t| i32::try_from(t).ok()).collect();
    types.ok_or_else(|| meta.error(Problem::key(KEY, "32-bit numbers", "a larger one")))
}

fn end_ids(file: &Gguf, tokens: &[String]) -> Result<Vec<TokenId>, LoadError> {
    let meta = file.meta();
    let mut ids = Vec::new();
    for key in ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"] {
        if let Some(id) = meta.u64(key)? {
            let known = TokenId::try_from(id).ok().filter(|id| (*id as usize) < tokens.len());
            let id =
                known.ok_or_else(|| meta.error(Problem::key(key, format_args!("an id below {}", tokens.len()), id)))?;
            push_new(&mut ids, id);
        }
    }
    for (id, token) in tokens.iter().enumerate() {
        if END_TOKENS.contains(&token.as_str()) {
            push_new(&mut ids, id as TokenId);
        }
    }
    Ok(ids)
}

/// Adds an id that is not there yet.
pub(super) fn push_new(ids: &mut Vec<TokenId>, id: TokenId) {
    if !ids.contains(&id) {
        ids.push(id);
    }
}

fn defaults(file: &Gguf) -> Result<GenerationDefaults, LoadError> {
    let meta = file.meta();
    let number = |key| Ok::<_, LoadError>(meta.f64(key)?.map(|x| x as f32));
    let top_k = meta.u64("general.sampling.top_k")?;
    Ok(GenerationDefaults {
        temperature: number("general.sampling.temp")?,
        top_p: number("general.sampling.top_p")?,
        top_k: top_k.map(|k| u32::try_from(k).unwrap_or(u32::MAX)),
        min_p: number("general.sampling.min_p")?,
        repetition_penalty: number("general.sampling.penalty_repeat")?,
        presence_penalty: None,
    })
}
