//! `POST /v1/embeddings`.

use super::fields::{Fields, missing};
use super::generation::priority;
use super::model::{ModelLimits, check_name};
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

/// A request for vectors, by who is to make them.
#[derive(Clone, Debug, PartialEq)]
pub enum AskedEmbedding {
    /// The served model, which is meant where no name is given.
    Model(EmbeddingRequest),
    /// The encoder, by its own name.
    Encoder(EncoderRequest),
}

/// Texts for the encoder, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderRequest {
    /// At least one; none is empty.
    pub texts: Vec<String>,
    /// How numbers are written.
    pub encoding: Encoding,
}

impl AskedEmbedding {
    /// Reads and checks a body. `encoder` has the encoder's name and the numbers of its vectors.
    pub fn parse(body: &[u8], limits: &ModelLimits, encoder: Option<(&str, u32)>) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let name = fields.string("model")?;
        let is = |own: &str| name.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(own));
        match encoder.filter(|(own, _)| is(own)) {
            Some((_, width)) => EncoderRequest::about(fields, width).map(Self::Encoder),
            None => {
                check_name(name, limits)?;
                EmbeddingRequest::about(fields, limits).map(Self::Model)
            }
        }
    }
}

impl EncoderRequest {
    fn about(mut fields: Fields, width: u32) -> Result<Self, ApiError> {
        const WANTED: &str = "a string or an array of strings: the encoder has a tokenizer of its own";
        let input = fields.any("input").ok_or_else(|| missing("input", WANTED))?;
        // Ids of any vocabulary are refused alike.
        let texts =
            prompts("input", input, u32::MAX, EMBEDDING_INPUTS_MAX, WANTED)?.into_iter().map(|prompt| match prompt {
                Prompt::Text(text) => Ok(text),
                _ => Err(ApiError::invalid("input", format!("`input` must be {WANTED}, got token ids"))),
            });
        let texts = texts.collect::<Result<_, _>>()?;
        let encoding = encoding(&mut fields)?;
        dimensions(&mut fields, width)?;
        fields.refuse("pooling", "the encoder's directory says how its vectors are made")?;
        fields.string("user")?;
        fields.finish()?;
        Ok(Self { texts, encoding })
    }
}

impl EmbeddingRequest {
    /// Of all that a body says but the model's name.
    pub(in crate::http) fn about(mut fields: Fields, limits: &ModelLimits) -> Result<Self, ApiError> {
        let wanted = "a string, an array of strings, an array of token ids or an array of these";
        let input = fields.any("input").ok_or_else(|| missing("input", wanted))?;
        let inputs = prompts("input", input, limits.vocab, EMBEDDING_INPUTS_MAX, wanted)?;
        let encoding = encoding(&mut fields)?;
        let pooling = fields.choice("pooling", [("mean", Pooling::Mean), ("last", Pooling::Last)])?;
        let priority = priority(&mut fields)?;
        dimensions(&mut fields, limits.width)?;
        fields.string("user")?;
        fields.finish()?;
        Ok(Self { inputs, encoding, pooling: pooling.unwrap_or(Pooling::Mean), priority })
    }
}

fn encoding(fields: &mut Fields) -> Result<Encoding, ApiError> {
    let asked = fields.choice("encoding_format", [("float", Encoding::Float), ("base64", Encoding::Base64)])?;
    Ok(asked.unwrap_or(Encoding::Float))
}

/// Texts come in one of two fields: those of the other one would be dropped in silence.
pub(in crate::http) fn one_text(field: &'static str, both: bool) -> Result<(), ApiError> {
    let message = || format!("`{field}` and `input` both say what is to be embedded: give one of them");
    if both { Err(ApiError::invalid(field, message())) } else { Ok(()) }
}

/// No model here was trained to say most in its first numbers, so leaving some out would be chance.
fn dimensions(fields: &mut Fields, width: u32) -> Result<(), ApiError> {
    match fields.integer("dimensions", 1..=i64::MAX)? {
        Some(got) if got != i64::from(width) => {
            let message = format!("`dimensions` must be {width}, which is what this model's vectors have, got {got}");
            Err(ApiError::unsupported("dimensions", message))
        }
        _ => Ok(()),
    }
}
