//! The fields that chat and completions share: how to sample, when to stop, how to answer.

use super::fields::{Fields, at_most, integer, number, wrong_type};
use super::model::ModelLimits;
use super::structured;
use crate::actors::request::spec::{RequestSpec, StreamOptions};
use crate::http::wire::error::ApiError;
use crate::limits;
use crate::metrics::count_ignored;
use crate::turn::options::{AskedForm, CacheRequest, EngramRequest, Generation};
use chimere_engine::format::GenerationDefaults;
use chimere_engine::ids::TokenId;
use chimere_engine::sampling::SamplingParams;
use chimere_engine::scheduler::Spec;
use chimere_engine::step::ExpertCut;
use serde_json::Value as Json;
use std::sync::Arc;

/// Parameters that other servers know and this one does not, with the reason if there is one to give.
const UNSUPPORTED: [(&str, &str); 10] = [
    ("audio", "is not supported: this model reads and writes text"),
    ("functions", "is not supported; use `tools`"),
    ("function_call", "is not supported; use `tool_choice`"),
    ("reasoning_effort", "is for chat: a raw prompt says itself whether to think"),
    ("enable_thinking", "belongs into `chat_template_kwargs`"),
    ("reasoning", "is for chat: a raw prompt says itself whether to think"),
    ("thinking", "is for chat: a raw prompt says itself whether to think"),
    ("web_search_options", "is not supported"),
    ("chat_template", "is not supported: the template is the model's"),
    ("prompt_logprobs", "is not supported; completions have `echo` with `logprobs`"),
];

impl Generation {
    /// Takes the shared fields. `max_tokens` and log-probabilities differ between the endpoints and are given.
    pub(in crate::http) fn take(
        fields: &mut Fields,
        limits: &ModelLimits,
        max_tokens: Option<u32>,
        logprobs: Option<u8>,
    ) -> Result<Self, ApiError> {
        let (stream, stream_options) = stream(fields)?;
        let seed = fields.integer("seed", i64::MIN..=i64::MAX)?.map(|seed| seed as u64);
        let (choices, priority, end_ids) = (choices(fields, limits)?, priority(fields)?, end_ids(fields, limits)?);
        let min_tokens = min_tokens(fields, max_tokens)?;
        let logit_bias = logit_bias(fields, limits.vocab)?;
        let processed = processed(fields, logprobs.is_some())?;
        let sampling = sampling(fields, &limits.defaults)?;
        let sampling = Arc::new(SamplingParams { logit_bias, logprobs, processed, ..sampling });
        let experts = experts(fields, limits)?;
        let drafts = fields.bool("drafts")?.unwrap_or(true);
        let engine =
            Spec { choices, max_tokens, min_tokens, end_ids, sampling, priority, experts, drafts, ..Spec::default() };
        let prediction = prediction(fields)?;
        let adapter_scale = fields.number("scale", 0.0..=limits::ADAPTER_SCALE_MAX)?.map(|scale| scale as f32);
        let (engram, cache) = (EngramRequest::take(fields)?, CacheRequest::take(fields)?);
        without_effect(fields)?;
        only_as_it_is(fields)?;
        for (name, why) in UNSUPPORTED {
            fields.refuse(name, why)?;
        }
        let form = structured::take(fields)?;
        if let Some(AskedForm { field, .. }) = &form {
            structured::check_ends(field, &engine.end_ids, limits)?;
        }
        let (engine, stop) = (Arc::new(engine), stop(fields)?);
        let spec = RequestSpec { engine, stop, stream, stream_options, token_ids: false };
        Ok(Self { spec, seed, engram, cache, form, prediction, adapter_scale })
    }

    /// Has each token reported with what stood behind it, how sure the model was among it.
    pub(super) fn report(&mut self) {
        let sampling = &mut Arc::make_mut(&mut self.spec.engine).sampling;
        let sampling = Arc::make_mut(sampling);
        (sampling.report, sampling.certainty) = (true, true);
    }
}

/// A limit on the tokens of an answer; -1 sets none, as some clients write it.
pub(in crate::http) fn output_limit(
    fields: &mut Fields,
    name: &'static str,
    min: i64,
) -> Result<Option<u32>, ApiError> {
    if fields.is(name, -1) {
        fields.any(name);
        return Ok(None);
    }
    token_limit(fields, name, min)
}

/// A number of tokens.
pub(super) fn token_limit(fields: &mut Fields, name: &'static str, min: i64) -> Result<Option<u32>, ApiError> {
    Ok(fields.integer(name, min..=i64::from(u32::MAX))?.map(|n| n as u32))
}

/// Lower runs first; 0 for who does not say.
pub(super) fn priority(fields: &mut Fields) -> Result<i32, ApiError> {
    Ok(fields.integer("priority", i64::from(i32::MIN)..=i64::from(i32::MAX))?.unwrap_or(0) as i32)
}

fn stream(fields: &mut Fields) -> Result<(bool, StreamOptions), ApiError> {
    let stream = fields.bool("stream")?.unwrap_or(false);
    let path = fields.path("stream_options");
    let Some(mut options) = fields.fields("stream_options")? else {
        return Ok((stream, StreamOptions::default()));
    };
    let stream_options = StreamOptions {
        include_usage: options.bool("include_usage")?.unwrap_or(false),
        include_steps: options.bool("include_steps")?.unwrap_or(false),
    };
    if options.bool("include_obfuscation")? == Some(true) {
        let path = options.path("include_obfuscation");
        return Err(ApiError::unsupported(&path, format!("`{path}` is not supported")));
    }
    options.ignore_rest();
    if !stream {
        return Err(ApiError::invalid(&path, format!("`{path}` is only allowed with `stream: true`")));
    }
    Ok((stream, stream_options))
}

fn choices(fields: &mut Fields, limits: &ModelLimits) -> Result<u32, ApiError> {
    let choices = fields.integer("n", 1..=i64::from(limits.choices_max))?.unwrap_or(1);
    if let Some(best_of) = fields.integer("best_of", 1..=i64::from(u32::MAX))?
        && best_of != choices
    {
        return Err(ApiError::unsupported(
            "best_of",
            format!("`best_of` must equal `n`, which is {choices}, got {best_of}"),
        ));
    }
    Ok(choices as u32)
}

fn end_ids(fields: &mut Fields, limits: &ModelLimits) -> Result<Arc<[TokenId]>, ApiError> {
    let ignore_eos = fields.bool("ignore_eos")?.unwrap_or(false);
    let mut ids = if ignore_eos { Vec::new() } else { limits.end_ids.clone() };
    let own = fields.list("stop_token_ids")?.unwrap_or_default();
    at_most("stop_token_ids", own.len(), limits::STOP_TOKEN_IDS_MAX)?;
    for id in token_ids("stop_token_ids", &own, limits.vocab)? {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids.into())
}

/// Ids inside the vocabulary.
pub(in crate::http) fn token_ids(path: &str, list: &[Json], vocab: u32) -> Result<Vec<TokenId>, ApiError> {
    let last = i64::from(vocab) - 1;
    list.iter().enumerate().map(|(i, id)| Ok(integer(&format!("{path}[{i}]"), id, 0..=last)? as TokenId)).collect()
}

fn min_tokens(fields: &mut Fields, max_tokens: Option<u32>) -> Result<u32, ApiError> {
    let min = token_limit(fields, "min_tokens", 0)?.unwrap_or(0);
    match max_tokens {
        Some(max) if min > max => Err(ApiError::invalid(
            "min_tokens",
            format!("`min_tokens` must not exceed the limit of {max} tokens, got {min}"),
        )),
        _ => Ok(min),
    }
}

/// `moe`: the fewest experts whose share of the router's weight reaches `mass`.
fn experts(fields: &mut Fields, limits: &ModelLimits) -> Result<Option<ExpertCut>, ApiError> {
    let path = fields.path("moe");
    let Some(mut moe) = fields.fields("moe")? else { return Ok(None) };
    let Some(used) = limits.experts else {
        let message = format!("`{path}` is not supported: {} has no experts to choose from", limits.name);
        return Err(ApiError::unsupported(&path, message));
    };
    let max = moe.integer("max_k", 1..=i64::from(used))?;
    let most = max.unwrap_or(i64::from(used));
    let min = moe.integer("min_k", 1..=most)?;
    let mass = moe.number("mass", 0.0..=1.0)?;
    moe.finish()?;
    let asked = max.is_some() || min.is_some() || mass.is_some();
    Ok(asked.then(|| ExpertCut { min: min.unwrap_or(1) as u32, max: most as u32, mass: mass.unwrap_or(1.0) as f32 }))
}

fn logit_bias(fields: &mut Fields, vocab: u32) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let map = fields.object("logit_bias")?.unwrap_or_default();
    at_most("logit_bias", map.len(), limits::LOGIT_BIAS_MAX)?;
    let mut biases = Vec::with_capacity(map.len());
    for (key, value) in map {
        let path = format!("logit_bias.{key}");
        let id = key.parse().ok().filter(|&id: &TokenId| id < vocab);
        let id = id.ok_or_else(|| {
            ApiError::invalid(&path, format!("`logit_bias` has the key {key:?}, wanted a token id below {vocab}"))
        })?;
        biases.push((id, number(&path, &value, -100.0..=100.0)? as f32));
    }
    biases.sort_by_key(|(id, _)| *id);
    match biases.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(ApiError::invalid("logit_bias", format!("`logit_bias` names token {} twice", pair[0].0))),
        None => Ok(biases),
    }
}

/// `logprobs_mode`: whether log-probabilities are those of what tokens are drawn from. Each mode also goes by vLLM's
/// name.
fn processed(fields: &mut Fields, wanted: bool) -> Result<bool, ApiError> {
    let field = "logprobs_mode";
    match fields.string(field)?.as_deref() {
        None | Some("raw" | "raw_logprobs") => Ok(false),
        Some("processed" | "processed_logprobs") if !wanted => {
            Err(ApiError::invalid(field, format!("`{field}` \"processed\" is only allowed with `logprobs`")))
        }
        Some("processed" | "processed_logprobs") => Ok(true),
        Some(logits @ ("raw_logits" | "processed_logits")) => Err(ApiError::unsupported(
            field,
            format!("`{field}` {logits:?} is not supported: logits are not reported, only log-probabilities"),
        )),
        Some(other) => {
            Err(ApiError::invalid(field, format!("`{field}` must be \"raw\" or \"processed\", got {other:?}")))
        }
    }
}

/// The request's own values, else the model's, else neutral ones. A model's value that makes no sense counts as absent.
fn sampling(fields: &mut Fields, model: &GenerationDefaults) -> Result<SamplingParams, ApiError> {
    let neutral = SamplingParams::default();
    let fraction = |x: Option<f32>| x.filter(|x| *x > 0.0 && *x <= 1.0);
    let mut number = |name, range| Ok::<_, ApiError>(fields.number(name, range)?.map(|x| x as f32));
    let own = SamplingParams {
        temperature: number("temperature", 0.0..=2.0)?
            .or(model.temperature.filter(|t| (0.0..=2.0).contains(t)))
            .unwrap_or(neutral.temperature),
        // 0 keeps the best token alone, as the smallest share does.
        top_p: number("top_p", 0.0..=1.0)?
            .map(|p| p.max(f32::MIN_POSITIVE))
            .or(fraction(model.top_p))
            .unwrap_or(neutral.top_p),
        min_p: number("min_p", 0.0..=1.0)?.or(fraction(model.min_p)).unwrap_or(neutral.min_p),
        presence_penalty: number("presence_penalty", -2.0..=2.0)?
            .or(model.presence_penalty.filter(|p| p.abs() <= 2.0))
            .unwrap_or(neutral.presence_penalty),
        frequency_penalty: number("frequency_penalty", -2.0..=2.0)?.unwrap_or(neutral.frequency_penalty),
        repetition_penalty: number("repetition_penalty", 0.01..=100.0)?
            .or(model.repetition_penalty.filter(|p| (0.01..=100.0).contains(p)))
            .unwrap_or(neutral.repetition_penalty),
        ..neutral
    };
    // Some servers write "all" as -1.
    let top_k = fields.integer("top_k", -1..=i64::from(u32::MAX))?.map(|k| k.max(0) as u32);
    let temperature = if own.temperature < limits::GREEDY_BELOW_TEMPERATURE { 0.0 } else { own.temperature };
    Ok(SamplingParams { temperature, top_k: top_k.or(model.top_k).unwrap_or(0), ..own })
}

fn stop(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let list = match fields.any("stop") {
        None => return Ok(Vec::new()),
        Some(Json::String(one)) => vec![Json::String(one)],
        Some(Json::Array(list)) => list,
        Some(other) => return Err(wrong_type("stop", "a string or an array of strings", &other)),
    };
    at_most("stop", list.len(), limits::STOP_STRINGS_MAX)?;
    let strings = list.into_iter().enumerate().map(|(i, item)| stop_string(&format!("stop[{i}]"), item));
    // An empty one is how forms say that there is none.
    strings.filter(|string| string.as_ref().map_or(true, |s| !s.is_empty())).collect()
}

/// OpenAI's predicted outputs: a text, or parts of one.
fn prediction(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    let path = fields.path("prediction");
    let Some(mut prediction) = fields.fields("prediction")? else { return Ok(None) };
    let kind = prediction.string("type")?;
    let content = prediction.any("content");
    prediction.ignore_rest();
    if let Some(other) = kind.filter(|kind| kind != "content") {
        return Err(ApiError::invalid(&path, format!("`{path}.type` must be \"content\", got {other:?}")));
    }
    let path = format!("{path}.content");
    match content {
        None => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(Json::Array(parts)) => {
            let texts = parts.iter().enumerate().map(|(i, part)| text_part(&path, i, part));
            texts.collect::<Result<String, _>>().map(Some)
        }
        Some(other) => Err(wrong_type(&path, "a string or an array of text parts", &other)),
    }
}

fn text_part<'a>(path: &str, i: usize, part: &'a Json) -> Result<&'a str, ApiError> {
    let text = part.get("text").and_then(Json::as_str);
    text.ok_or_else(|| wrong_type(&format!("{path}[{i}]"), "a part with a text", part))
}

fn stop_string(path: &str, item: Json) -> Result<String, ApiError> {
    match item {
        Json::String(s) if s.len() > limits::STOP_STRING_BYTES_MAX => {
            let (got, max) = (s.len(), limits::STOP_STRING_BYTES_MAX);
            Err(ApiError::invalid(path, format!("`{path}` has {got} bytes, at most {max} are taken")))
        }
        Json::String(s) => Ok(s),
        other => Err(wrong_type(path, "a string", &other)),
    }
}

/// Fields of llama.cpp and vLLM that ask for something about a request which is no part of its answer. They are
/// counted.
pub(in crate::http) const OF_OTHER_SERVERS: [&str; 14] = [
    "add_special_tokens",
    "early_stopping",
    "id_slot",
    "kv_transfer_params",
    "length_penalty",
    "min_keep",
    "mm_processor_kwargs",
    "n_discard",
    "n_keep",
    "request_id",
    "return_progress",
    "samplers",
    "timings_per_token",
    "truncate_prompt_tokens",
];

/// Fields that clients send for services of another kind, and that change nothing here.
fn without_effect(fields: &mut Fields) -> Result<(), ApiError> {
    fields.string("user")?;
    fields.string("safety_identifier")?;
    fields.string("prompt_cache_key")?;
    fields.string("prompt_cache_retention")?;
    fields.bool("spaces_between_special_tokens")?;
    fields.object("metadata")?;
    // A chat is not kept, and no reply says that it was.
    if fields.bool("store")? == Some(true) {
        count_ignored("", "store");
    }
    OF_OTHER_SERVERS.iter().filter(|name| fields.any(name).is_some()).for_each(|name| count_ignored("", name));
    match fields.string("service_tier")?.as_deref() {
        None | Some("auto" | "default") => Ok(()),
        Some(other) => {
            Err(ApiError::unsupported("service_tier", format!("`service_tier` must be \"auto\", got {other:?}")))
        }
    }
}

/// Fields that may say what happens in any case, and nothing else.
fn only_as_it_is(fields: &mut Fields) -> Result<(), ApiError> {
    fields.fixed("skip_special_tokens", true, "control tokens are never shown")?;
    fields.fixed("include_reasoning", true, "reasoning is part of the reply")?;
    // SGLang's, which routers made for it send with every request.
    fields.fixed("separate_reasoning", true, "reasoning is a part of the reply of its own")?;
    fields.fixed("stream_reasoning", true, "reasoning is streamed as it comes")?;
    fields.fixed("no_stop_trim", false, "stop strings are not shown")?;
    fields.fixed("return_hidden_states", false, "hidden states are not told; there is /v1/embeddings")?;
    fields.fixed("add_generation_prompt", true, "the prompt always ends with the assistant's turn")?;
    fields.fixed("continue_final_message", false, "the prompt always ends with the assistant's turn")?;
    fields.fixed("use_beam_search", false, "tokens are drawn one by one")?;
    let modalities = fields.list("modalities")?.unwrap_or_default();
    if modalities.iter().any(|kind| kind != "text") {
        return Err(ApiError::unsupported(
            "modalities",
            "`modalities` must be [\"text\"]: this model reads and writes text",
        ));
    }
    match fields.string("verbosity")?.as_deref() {
        None | Some("medium") => Ok(()),
        Some(other) => {
            Err(ApiError::unsupported("verbosity", format!("`verbosity` must be \"medium\", got {other:?}")))
        }
    }
}
