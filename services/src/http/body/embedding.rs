//! `POST /v1/embeddings`.

use super::fields::{Fields, missing};
use super::generation::priority;
use super::model::{ModelLimits, check_model};
use super::prompt::prompts;
use crate::http::wire::error::ApiError;
use crate::limits::EMBEDDING_INPUTS_MAX;
use crate::turn::options::Prompt;
use chimere_engine::scheduler::Pooling;

/// Texts to embed, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingRequest {
    /// At least one; none is empty.
    pub inputs: Vec<Prompt>,
    /// How numbers are written.
    pub encoding: Encoding,
    /// Which rows make a vector.
    pub pooling: Pooling,
    /// Lower runs first among the requests of a key.
    pub priority: i32,
}

/// How a vector is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// As an array of numbers.
    Float,
    /// Little-endian f32 in base64, as OpenAI's own clients ask for it.
    Base64,
}

impl EmbeddingRequest {
    /// Reads and checks a body.
    pub fn parse(body: &[u8], limits: &ModelLimits) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        check_model(&mut fields, limits)?;
        Self::about(fields, limits)
    }

    /// Of all that a body says but the model's name.
    pub(in crate::http) fn about(mut fields: Fields, limits: &ModelLimits) -> Result<Self, ApiError> {
        let wanted = "a string, an array of strings, an array of token ids or an array of these";
        let input = fields.any("input").ok_or_else(|| missing("input", wanted))?;
        let inputs = prompts("input", input, limits.vocab, EMBEDDING_INPUTS_MAX, wanted)?;
        let encoding = fields.choice("encoding_format", [("float", Encoding::Float), ("base64", Encoding::Base64)])?;
        let pooling = fields.choice("pooling", [("mean", Pooling::Mean), ("last", Pooling::Last)])?;
        let priority = priority(&mut fields)?;
        dimensions(&mut fields, limits.width)?;
        fields.string("user")?;
        fields.finish()?;
        Ok(Self {
            inputs,
            encoding: encoding.unwrap_or(Encoding::Float),
            pooling: pooling.unwrap_or(Pooling::Mean),
            priority,
        })
    }
}

/// Texts come in one of two fields: those of the other one would be dropped in silence.
pub(in crate::http) fn one_text(field: &'static str, both: bool) -> Result<(), ApiError> {
    let message = || format!("`{field}` and `input` both say what is to be embedded: give one of them");
    if both { Err(ApiError::invalid(field, message())) } else { Ok(()) }
}

/// The model was not trained to say most in its first numbers, so leaving some out would be chance.
fn dimensions(fields: &mut Fields, width: u32) -> Result<(), ApiError> {
    match fields.integer("dimensions", 1..=i64::MAX)? {
        Some(got) if got != i64::from(width) => {
            let message = format!("`dimensions` must be {width}, which is what this model's vectors have, got {got}");
            Err(ApiError::unsupported("dimensions", message))
        }
        _ => Ok(()),
    }
}
