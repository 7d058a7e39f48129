//! `POST /tokenize` and `POST /detokenize`.

use crate::http::body::chat::template_options;
use crate::http::body::fields::{Fields, missing};
use crate::http::body::generation::token_ids;
use crate::http::body::model::ModelLimits;
use crate::http::body::model::take_adapter;
use crate::http::body::{messages, tools};
use crate::http::wire::error::ApiError;
use crate::text::{Conversation, RawJson};
use chimere_engine::ids::TokenId;

/// A text or a conversation to count.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenizeRequest {
    /// The text or the conversation whose tokens are asked for.
    pub input: TokenizeInput,
    /// How the reply looks.
    pub shape: TokensShape,
}

/// In which program's shape the reply to `/tokenize` is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokensShape {
    /// vLLM's, where the text came as `prompt`, and for conversations.
    Vllm {
        /// With each token's text.
        strings: bool,
    },
    /// llama.cpp's, where it came as `content`.
    Llama {
        /// With each token's text or bytes.
        pieces: bool,
    },
}

/// A text or a conversation whose tokens are asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenizeInput {
    /// A text that is cut into tokens as it is.
    Text {
        /// The text, which may be empty.
        text: String,
        /// Take added tokens that are written out for what they are.
        parse_special: bool,
    },
    /// A conversation, as chat would render it.
    Chat(Conversation),
}

impl TokenizeRequest {
    /// Reads and checks a body with `prompt`, `messages` or `content`.
    pub fn parse(body: &[u8], limits: &ModelLimits) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        take_adapter(&mut fields, limits)?;
        // The family's tokenizers add nothing, so either value is honoured. The second is llama.cpp's name.
        fields.bool("add_special_tokens")?;
        fields.bool("add_special")?;
        let (strings, pieces) = (fields.bool("return_token_strs")?, fields.bool("with_pieces")?.unwrap_or(false));
        let (input, shape) = if fields.has("content") {
            (text(&mut fields, "content")?, TokensShape::Llama { pieces })
        } else {
            let shape = TokensShape::Vllm { strings: strings.unwrap_or(false) };
            (if fields.has("messages") { chat(&mut fields, limits)? } else { text(&mut fields, "prompt")? }, shape)
        };
        fields.finish()?;
        Ok(Self { input, shape })
    }
}

fn chat(fields: &mut Fields, limits: &ModelLimits) -> Result<TokenizeInput, ApiError> {
    let messages = messages::checked(fields.list("messages")?.unwrap_or_default())?;
    let tools = tools::take(fields, limits.web)?.functions.map(|t| t.declared).unwrap_or_default();
    Ok(TokenizeInput::Chat(Conversation {
        messages,
        tools: tools.into_iter().map(RawJson).collect(),
        options: template_options(fields, limits)?,
        continues: false,
    }))
}

fn text(fields: &mut Fields, name: &'static str) -> Result<TokenizeInput, ApiError> {
    let text = fields.string(name)?.ok_or_else(|| missing(name, "a string, unless there are `messages`"))?;
    Ok(TokenizeInput::Text { text, parse_special: fields.bool("parse_special")?.unwrap_or(true) })
}

/// Ids to turn into text.
#[derive(Clone, Debug, PartialEq)]
pub struct DetokenizeRequest {
    /// Ids of the vocabulary.
    pub tokens: Vec<TokenId>,
}

impl DetokenizeRequest {
    /// Reads and checks a body.
    pub fn parse(body: &[u8], limits: &ModelLimits) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        take_adapter(&mut fields, limits)?;
        let list = fields.list("tokens")?.ok_or_else(|| missing("tokens", "an array of token ids"))?;
        fields.finish()?;
        Ok(Self { tokens: token_ids("tokens", &list, limits.vocab)? })
    }
}
