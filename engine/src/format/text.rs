//! What a GGUF file says about text: tokenizer, template, end ids, sampling defaults. Handed over, not understood.

use super::{GenerationDefaults, Gguf, LoadError, Problem, TextAssets, TokenizerSource};
use crate::ids::TokenId;

/// Tokens that end a turn or a text in this family of models. A file's own end id is often only one of them.
pub(super) const END_TOKENS: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

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
        Ok(Self {
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
