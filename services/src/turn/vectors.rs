//! Vectors of texts: the model's own hidden states. Their texts go through the scheduler as every other prompt does.

use super::error::TurnError;
use super::options::Prompt;
use super::prompts::{INLINE_BYTES, fitting, work};
use super::services::TurnServices;
use crate::actors::request::embed::{Texts, embed};
use crate::holder::Holder;
use crate::limits::EMBEDDING_TOKENS_MAX;
use chimere_engine::ids::TokenId;
use std::sync::Arc;

/// How a text is laid out for the model.
#[derive(Clone, Copy, Debug)]
pub enum EmbeddingLayout {
    /// The text stands alone, without a template around it.
    Alone,
    /// As what a user says.
    Turn,
}

/// Token ids of texts, each of which fits the context, and all together the limit. What looks like a control token is
/// text.
pub async fn tokens(
    services: &TurnServices,
    holder: Holder,
    field: &'static str,
    (inputs, layout): (Vec<Prompt>, EmbeddingLayout),
) -> Result<Vec<Arc<[TokenId]>>, TurnError> {
    let room = services.handles.context as usize;
    let bytes = fitting(services, field, inputs.iter().flat_map(Prompt::texts), room)?;
    let model = services.text.clone();
    let encode = move || {
        let of_text = |text: &str| match layout {
            EmbeddingLayout::Alone => model.tokenizer().encode_plain(text),
            EmbeddingLayout::Turn => model.turn_ids(text),
        };
        let ids = |input: Prompt| input.into_ids(&of_text).into();
        inputs.into_iter().map(ids).collect::<Vec<Arc<[TokenId]>>>()
    };
    let prompts = work(&services.lanes, holder, bytes, bytes <= INLINE_BYTES, encode).await?;
    check_lengths(field, &prompts, room)?;
    Ok(prompts)
}

fn check_lengths(field: &'static str, prompts: &[Arc<[TokenId]>], room: usize) -> Result<(), TurnError> {
    if let Some((i, prompt)) = prompts.iter().enumerate().find(|(_, p)| p.len() > room) {
        let message = format!("text {i} of `{field}` has {} tokens, the context has room for {room}", prompt.len());
        return Err(TurnError::coded(field, message, "context_length_exceeded").counted_as("prompt_too_long"));
    }
    let got: usize = prompts.iter().map(|p| p.len()).sum();
    if got > EMBEDDING_TOKENS_MAX {
        let message = format!("`{field}` has {got} tokens, at most {EMBEDDING_TOKENS_MAX} are taken in one request");
        return Err(TurnError::coded(field, message, "too_many_tokens"));
    }
    Ok(())
}

/// A vector of length 1 for each text; `field` is where the texts came from, for errors.
pub async fn vectors(
    services: &TurnServices,
    name: Arc<str>,
    field: &'static str,
    texts: Texts,
) -> Result<Vec<Vec<f32>>, TurnError> {
    services.check_open()?;
    let (inputs, tokens) = (texts.prompts.len(), texts.prompts.iter().map(|p| p.len()).sum::<usize>());
    tracing::info!(request = &*name, inputs, tokens, "to embed");
    if services.log_prompts {
        for prompt in &texts.prompts {
            tracing::info!(request = &*name, prompt = services.text.tokenizer().decode(prompt, true), "embeds");
        }
    }
    embed(&services.handles, &services.live, name, texts).await.map_err(|error| TurnError::Engine { field, error })
}
