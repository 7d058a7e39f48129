//! The one error that a client sees, in OpenAI's shape. How it becomes a response is the server's business.

use actix_web::http::StatusCode;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::borrow::Cow;
use std::time::Duration;

/// An error as the client reads it: `{"error": {"message", "type", "param", "code"}}` and a status.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Status of the HTTP reply.
    pub status: StatusCode,
    /// The class of error, OpenAI's `type`.
    pub kind: &'static str,
    /// A word for programs, where there is one.
    pub code: Option<&'static str>,
    /// The field of the request that is at fault, as a path: `messages[2].content`.
    pub param: Option<Box<str>>,
    /// What was wanted and what came.
    pub message: String,
    /// For a refusal that passes: becomes `Retry-After` and `retry-after-ms`.
    pub retry_after: Option<Duration>,
    /// For a prompt that is too long: how long, and what to do about it.
    pub prompt: Option<Box<PromptOverflow>>,
    /// For a request that is refused: the reason that it is counted under when the error becomes a response.
    pub rejected: Option<&'static str>,
}

/// A prompt that is too long. Each dialect has words for it that its programs look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptOverflow {
    /// Its tokens, or a number that it certainly has.
    pub tokens: usize,
    /// The most that there is room for.
    pub max: usize,
    /// A way to a shorter one, where there is one.
    pub advice: Option<String>,
}

impl ApiError {
    /// The request is at fault; which part of it, `param` says.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into().into()), ..Self::invalid_body(message) }
    }

    /// The body as a whole is at fault: no JSON, or not an object.
    pub fn invalid_body(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message).rejected_as("invalid")
    }

    /// A field that nobody knows, or a value that is not supported.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::invalid(param, message).with_code("unsupported_parameter").rejected_as("unsupported")
    }

    /// There is no such thing for the caller: whether others have one of that name is not told. `what` is also the
    /// field at fault.
    pub fn unknown_name(what: &'static str, name: &str, code: &'static str) -> Self {
        let shown: String = name.chars().take(64).collect();
        let message = format!("there is no {what} {shown:?} here");
        Self {
            param: Some(what.into()),
            ..Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message).with_code(code)
        }
    }

    /// Any other error. It is not counted as a refusal unless [`ApiError::rejected_as`] says so: a request that was
    /// taken may fail too.
    pub fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, kind, code: None, param: None, message, retry_after: None, prompt: None, rejected: None }
    }

    /// Of a prompt of at least so many tokens, where at most `max` fit.
    pub fn with_prompt(mut self, tokens: usize, max: usize) -> Self {
        self.prompt = Some(Box::new(PromptOverflow { tokens, max, advice: None }));
        self
    }

    /// Of a prompt that is too long, with a way to a shorter one.
    pub fn with_advice(mut self, advice: String) -> Self {
        if let Some(prompt) = &mut self.prompt {
            prompt.advice = Some(advice);
        }
        self
    }

    /// The message, which for a prompt that is too long has the words that programs look for to know that they have to
    /// shorten a conversation.
    pub fn worded(&self) -> Cow<'_, str> {
        let Some(PromptOverflow { max, advice, .. }) = self.prompt.as_deref() else {
            return Cow::Borrowed(&self.message);
        };
        let words = format!("This model's maximum context length is {max} tokens. However, your {}", self.message);
        advised(words, advice.as_deref()).into()
    }

    /// With fields called what they are called in the body that came: `(ours, theirs)`, each as it stands in paths,
    /// which stand between backticks.
    pub fn renamed(mut self, names: &[(&str, &str)]) -> Self {
        for (ours, theirs) in names {
            self.message = self.message.replace(ours, theirs);
            let param = self.param.map(|param| format!("`{param}`").replace(ours, theirs));
            self.param = param.map(|param| param.trim_matches('`').into());
        }
        self
    }

    /// With a word for programs.
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// A refusal, counted under one of [`crate::metrics::REASONS`].
    pub fn rejected_as(mut self, reason: &'static str) -> Self {
        self.rejected = Some(reason);
        self
    }

    /// With a time after which it is worth coming back.
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }
}

/// The object under `error`, also the data of an error event inside a stream.
struct Inner<'a>(&'a ApiError);

impl Serialize for Inner<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("message", &self.0.worded())?;
        map.serialize_entry("type", self.0.kind)?;
        map.serialize_entry("param", &self.0.param)?;
        map.serialize_entry("code", &self.0.code)?;
        map.end()
    }
}

/// Words with an advice behind them.
pub(in crate::http) fn advised(words: String, advice: Option<&str>) -> String {
    advice.into_iter().fold(words, |words, advice| format!("{words}; {advice}"))
}

impl Serialize for ApiError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("error", &Inner(self))?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_openai_s_four_fields_null_where_empty() {
        let text = serde_json::to_string(&ApiError::invalid("top_p", "top_p must lie in (0, 1], got 2")).unwrap();
        assert_eq!(
            text,
            r#"{"error":{"message":"top_p must lie in (0, 1], got 2","type":"invalid_request_error","param":"top_p","code":null}}"#
        );
    }

    #[test]
    fn a_prompt_that_is_too_long_is_called_so_in_the_words_that_programs_look_for() {
        let error = ApiError::invalid("messages", "prompt has 9 tokens, the context has room for 5").with_prompt(9, 5);
        let message = "This model's maximum context length is 5 tokens. However, your prompt has 9 tokens, \
            the context has room for 5";
        assert_eq!(serde_json::to_value(&error).unwrap()["error"]["message"], message);
    }

    #[test]
    fn an_error_of_the_whole_body_names_no_field() {
        let error = ApiError::invalid_body("body is not JSON").with_code("invalid_json");
        assert_eq!(serde_json::to_value(&error).unwrap()["error"]["param"], serde_json::Value::Null);
        assert_eq!(serde_json::to_value(&error).unwrap()["error"]["code"], "invalid_json");
    }
}
