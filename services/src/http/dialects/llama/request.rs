//! llama.cpp's own `POST /completion` and `/embedding`: its words for prompts, made into requests of ours.

use super::lora::take_lora;
use crate::http::body::embedding::{EmbeddingRequest, one_text};
use crate::http::body::fields::{Fields, at_most, missing, whole, wrong_type};
use crate::http::body::generation::output_limit;
use crate::http::body::model::take_adapter;
use crate::http::body::model::{ModelLimits, OURS, check_model};
use crate::http::body::prompt::prompts;
use crate::http::wire::error::ApiError;
use crate::limits::{LLAMA_RANDOM_SEED, PROMPTS_MAX, RESPONSE_FIELDS_MAX, TOP_LOGPROBS_MAX};
use crate::turn::options::Generation;
use crate::turn::options::Prompt;
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// A body of `/completion`, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaRequest {
    /// How to generate, with one choice a prompt.
    pub generation: Generation,
    /// The prompts to continue, at least one.
    pub prompts: Vec<Prompt>,
    /// What the reply tells.
    pub reply: LlamaReply,
}

/// What a reply tells beside its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LlamaReply {
    /// Alternatives of each token; `None` for no probabilities.
    pub probs: Option<u8>,
    /// The ids of the tokens of a whole reply. A stream tells them always.
    pub tokens: bool,
    /// Paths of all that is told, `/` between their parts; empty for everything.
    pub fields: Vec<String>,
}

/// Fields that completions call the same, beside [`OURS`].
const SAME: [&str; 8] =
    ["temperature", "top_p", "stop", "stream", "json_schema", "grammar", "response_format", "structured_outputs"];
/// What the fields of completions are called here, for errors.
const NAMES: [(&str, &str); 3] =
    [("repetition_penalty", "repeat_penalty"), ("max_tokens", "n_predict"), ("`logprobs`", "`n_probs`")];
/// A name, whether a value switches it off, and which values do.
type Switch = (&'static str, fn(f64) -> bool, &'static str);

/// Ways of choosing a token that there are none of here.
const OFF: [Switch; 9] = [
    ("mirostat", |x| x == 0.0, "0"),
    ("typical_p", |x| x == 1.0, "1"),
    ("dynatemp_range", |x| x == 0.0, "0"),
    ("xtc_probability", |x| x == 0.0, "0"),
    ("dry_multiplier", |x| x == 0.0, "0"),
    ("top_n_sigma", |x| x <= 0.0, "at most 0"),
    ("n_indent", |x| x == 0.0, "0"),
    ("t_max_predict_ms", |x| x <= 0.0, "at most 0"),
    ("n_cmpl", |x| x == 1.0, "1"),
];

impl LlamaRequest {
    /// Reads and checks a body.
    pub fn parse(body: &[u8], limits: &ModelLimits) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let named = take_adapter(&mut fields, limits)?;
        let lora = take_lora(&mut fields, limits, named.is_some())?;
        let wanted = "a string, an array of token ids and strings, or an array of these";
        let prompt = fields.any("prompt").ok_or_else(|| missing("prompt", wanted))?;
        let prompts = prompts("prompt", prompt, limits.vocab, PROMPTS_MAX, wanted)?;
        let reply = LlamaReply::take(&mut fields)?;
        off(&mut fields)?;
        let mut words = Fields::in_chat_words(words(&mut fields)?);
        fields.ignore_rest();
        let max_tokens = output_limit(&mut words, "max_tokens", 0).map_err(|e| e.renamed(&NAMES))?;
        let streams = words.peek("stream").and_then(Json::as_bool).unwrap_or(false);
        // Only who is told of tokens has them scored, for their numbers come with their scores.
        let scored = streams || reply.tokens || prompts.len() > 1;
        let logprobs = reply.probs.or(scored.then_some(0));
        let generation = Generation::take(&mut words, limits, max_tokens, logprobs).map_err(|e| e.renamed(&NAMES))?;
        let mut generation = generation.by(named)?;
        if let Some(adapter) = lora {
            Arc::make_mut(&mut generation.spec.engine).adapter = adapter;
        }
        Ok(Self { generation, prompts, reply })
    }
}

impl LlamaReply {
    fn take(fields: &mut Fields) -> Result<Self, ApiError> {
        let probs = fields.integer("n_probs", 0..=i64::from(TOP_LOGPROBS_MAX))?.map(|n| n as u8).filter(|n| *n > 0);
        fields.fixed("post_sampling_probs", false, "probabilities are those of the unedited logits")?;
        let list = fields.list("response_fields")?.unwrap_or_default();
        at_most("response_fields", list.len(), RESPONSE_FIELDS_MAX)?;
        let text = |(i, field)| match field {
            Json::String(text) => Ok(text),
            other => Err(wrong_type(&format!("response_fields[{i}]"), "a string", &other)),
        };
        let fields_told = list.into_iter().enumerate().map(text).collect::<Result<_, _>>()?;
        Ok(Self { probs, tokens: fields.bool("return_tokens")?.unwrap_or(false), fields: fields_told })
    }
}

/// Programs send all that llama.cpp has, at the values that mean nothing; any other value would be dropped in silence.
fn off(fields: &mut Fields) -> Result<(), ApiError> {
    for (name, is_off, wanted) in OFF {
        match fields.number(name, f64::MIN..=f64::MAX)? {
            Some(value) if !is_off(value) => {
                let message = format!("`{name}` is not supported: it must be {wanted}, got {value}");
                return Err(ApiError::unsupported(name, message));
            }
            _ => {}
        }
    }
    if fields.list("image_data")?.is_some_and(|list| !list.is_empty()) {
        return Err(ApiError::unsupported("image_data", "`image_data` is not supported: it must be empty"));
    }
    Ok(())
}

/// What is asked for, in the words of completions.
fn words(fields: &mut Fields) -> Result<Map<String, Json>, ApiError> {
    let mut words = fields.same(&SAME);
    let bias = fields.any("logit_bias");
    words.extend(fields.same(&OURS));
    if let Some(bias) = bias {
        words.insert("logit_bias".into(), bias_of(bias)?);
    }
    if let Some(penalty) = fields.any("repeat_penalty") {
        words.insert("repetition_penalty".into(), penalty);
    }
    if let Some(limit) = fields.any("n_predict").or_else(|| fields.any("max_tokens")) {
        // Until the context is full.
        let limit = if limit == -2 { (-1).into() } else { limit };
        words.insert("max_tokens".into(), limit);
    }
    // Both mean that a seed is to be drawn.
    if words.get("seed").and_then(whole).is_some_and(|seed| seed == -1 || seed == i64::from(LLAMA_RANDOM_SEED)) {
        words.remove("seed");
    }
    // None is how programs say that there is none.
    if words.get("grammar").and_then(Json::as_str).is_some_and(str::is_empty) {
        words.remove("grammar");
    }
    Ok(words)
}

/// Pairs of an id and a bias, or of an id and `false`, which is never to come; or an object of ids.
fn bias_of(bias: Json) -> Result<Json, ApiError> {
    let pairs = match bias {
        Json::Array(pairs) => pairs,
        object => return Ok(object),
    };
    let name = |id: &Json| whole(id).map_or_else(|| id.to_string(), |id| id.to_string());
    let pair = |(i, pair): (usize, Json)| match pair.as_array().map(Vec::as_slice) {
        Some([id @ Json::Number(_), Json::Bool(false)]) => Ok((name(id), Json::from(-100))),
        Some([id @ Json::Number(_), bias @ Json::Number(_)]) => Ok((name(id), bias.clone())),
        _ => Err(wrong_type(&format!("logit_bias[{i}]"), "a token id with a number or `false`", &pair)),
    };
    Ok(Json::Object(pairs.into_iter().enumerate().map(pair).collect::<Result<_, _>>()?))
}

/// A body of `/embedding`, whose text is `content` or `input`.
pub fn parse_embedding(body: &[u8], limits: &ModelLimits) -> Result<EmbeddingRequest, ApiError> {
    let mut fields = Fields::of_body(body)?;
    check_model(&mut fields, limits)?;
    let mut words = fields.same(&["input"]);
    if let Some(content) = fields.any("content") {
        one_text("content", words.insert("input".into(), content).is_some())?;
    }
    // Vectors have the length 1, which is the norm's default.
    if fields.integer("embd_normalize", -1..=i64::MAX)?.is_some_and(|norm| norm != 2) {
        let message = "`embd_normalize` must be 2: vectors have the length 1";
        return Err(ApiError::unsupported("embd_normalize", message));
    }
    fields.ignore_rest();
    EmbeddingRequest::about(Fields::in_chat_words(words), limits)
}
