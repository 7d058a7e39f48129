//! The body of `POST /inference/v1/generate`.

use crate::http::body::fields::{Fields, missing};
use crate::http::body::generation::{output_limit, token_ids};
use crate::http::body::model::{ModelLimits, take_adapter};
use crate::http::wire::error::ApiError;
use crate::limits::{REQUEST_NAME_BYTES_MAX, TOP_LOGPROBS_MAX};
use crate::turn::options::Generation;
use chimere_engine::ids::TokenId;
use serde_json::Value as Json;

/// What stands beside the sampling parameters and is called the same in chat.
const BESIDE: [&str; 8] =
    ["stream", "stream_options", "priority", "cache_salt", "cache", "drafts", "logprobs_mode", "kv_transfer_params"];
/// vLLM's sampling parameters that are called the same in chat. `structured_outputs` is a form of the answer.
const SAMPLING: [&str; 17] = [
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "max_tokens",
    "min_tokens",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "stop_token_ids",
    "ignore_eos",
    "logit_bias",
    "structured_outputs",
    "length_penalty",
    "truncate_prompt_tokens",
];
/// Sampling parameters about texts and about vLLM's own ways, which mean nothing for ids.
const WITHOUT_EFFECT: [&str; 6] = [
    "detokenize",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "output_kind",
    "skip_clone",
    "flat_logprobs",
];

/// A request for the ids behind some ids, checked.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::http) struct TokenIdsRequest {
    /// Options of the generation.
    pub(in crate::http) generation: Generation,
    /// The prompt; at least one id.
    pub(in crate::http) prompt: Vec<TokenId>,
    /// The caller's name for the request, which the reply repeats.
    pub(in crate::http) request_id: Option<String>,
}

impl TokenIdsRequest {
    /// Reads and checks a body.
    pub(in crate::http) fn parse(body: &[u8], limits: &ModelLimits) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let adapter = take_adapter(&mut fields, limits)?;
        let prompt = prompt(&mut fields, limits.vocab)?;
        let request_id = request_id(&mut fields)?;
        fields.refuse("features", "is not supported: this model reads text")?;
        let (mut words, (sampling, logprobs)) = (fields.same(&BESIDE), sampling_words(&mut fields)?);
        fields.finish()?;
        words.extend(sampling);
        let mut words = Fields::in_chat_words(words);
        let max_tokens = output_limit(&mut words, "max_tokens", 1).map_err(in_sampling)?;
        let generation = Generation::take(&mut words, limits, max_tokens, logprobs).map_err(in_sampling)?;
        let mut generation = generation.by(adapter)?;
        generation.spec.token_ids = true;
        Ok(Self { generation, prompt, request_id })
    }
}

fn prompt(fields: &mut Fields, vocab: u32) -> Result<Vec<TokenId>, ApiError> {
    let list = fields.list("token_ids")?.ok_or_else(|| missing("token_ids", "an array of token ids"))?;
    if list.is_empty() {
        return Err(ApiError::invalid("token_ids", "`token_ids` must not be empty").with_code("empty_prompt"));
    }
    token_ids("token_ids", &list, vocab)
}

fn request_id(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    let id = fields.string("request_id")?;
    match id.as_ref().map(String::len).filter(|bytes| !(1..=REQUEST_NAME_BYTES_MAX).contains(bytes)) {
        Some(got) => {
            let message = format!("`request_id` must have 1 to {REQUEST_NAME_BYTES_MAX} bytes, got {got}");
            Err(ApiError::invalid("request_id", message).with_code("out_of_range"))
        }
        None => Ok(id),
    }
}

/// The sampling parameters in the words of chat, and how many log-probabilities are told with each token.
fn sampling_words(fields: &mut Fields) -> Result<(serde_json::Map<String, Json>, Option<u8>), ApiError> {
    let Some(mut sampling) = fields.fields("sampling_params")? else { return Ok(Default::default()) };
    let words = sampling.same(&SAMPLING);
    let logprobs = sampling.integer("logprobs", 0..=i64::from(TOP_LOGPROBS_MAX))?.map(|n| n as u8);
    for name in ["stop", "bad_words"] {
        if sampling.any(name).is_some_and(|value| value.as_array().is_none_or(|list| !list.is_empty())) {
            let path = sampling.path(name);
            let message = format!("`{path}` is not supported: no texts are looked at here; there is `stop_token_ids`");
            return Err(ApiError::unsupported(&path, message));
        }
    }
    sampling.fixed("include_stop_str_in_output", false, "no texts are looked at here")?;
    sampling.refuse("prompt_logprobs", "is not supported; /v1/completions has `echo` with `logprobs`")?;
    WITHOUT_EFFECT.iter().for_each(|name| drop(sampling.any(name)));
    sampling.finish()?;
    Ok((words, logprobs))
}

/// With the path of a field that stood among the sampling parameters.
fn in_sampling(mut error: ApiError) -> ApiError {
    let head = error.param.as_deref().map(|param| param.split(['.', '[']).next().unwrap_or_default().to_owned());
    if let Some(head) = head.filter(|head| SAMPLING.contains(&head.as_str())) {
        error.message = error.message.replace(&format!("`{head}"), &format!("`sampling_params.{head}"));
        error.param = error.param.map(|param| format!("sampling_params.{param}").into());
    }
    error
}
