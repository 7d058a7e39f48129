//! Vectors of texts: the model's own hidden states. Their texts go through the scheduler as every other prompt does.

use super::prompts::{INLINE_BYTES, fitting, work};
use crate::actors::embed::{Texts, embed};
use crate::holder::Holder;
use crate::http::app::App;
use crate::http::body::prompt::Prompt;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::direct_error;
use crate::limits::EMBEDDING_TOKENS_MAX;
use chimere_engine::ids::TokenId;
use std::sync::Arc;

/// How a text is laid out for the model.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) enum Layout {
    /// The text stands alone, without a template around it.
    Alone,
    /// As what a user says.
    Turn,
}

/// Token ids of texts, each of which fits the context, and all together the limit. What looks like a control token is
/// text.
pub(in crate::http) async fn tokens(
    app: &App,
    holder: Holder,
    field: &'static str,
    (inputs, layout): (Vec<Prompt>, Layout),
) -> Result<Vec<Arc<[TokenId]>>, ApiError> {
    let room = app.handles.context as usize;
    let bytes = fitting(app, field, inputs.iter().flat_map(Prompt::texts), room)?;
    let model = app.text.clone();
    let encode = move || {
        let of_text = |text: &str| match layout {
            Layout::Alone => model.tokenizer().encode_plain(text),
            Layout::Turn => model.turn_ids(text),
        };
        let ids = |input: Prompt| input.into_ids(&of_text).into();
        inputs.into_iter().map(ids).collect::<Vec<Arc<[TokenId]>>>()
    };
    let prompts = work(&app.lanes, holder, bytes, bytes <= INLINE_BYTES, encode).await?;
    check_lengths(field, &prompts, room)?;
    Ok(prompts)
}

fn check_lengths(field: &'static str, prompts: &[Arc<[TokenId]>], room: usize) -> Result<(), ApiError> {
    if let Some((i, prompt)) = prompts.iter().enumerate().find(|(_, p)| p.len() > room) {
        let message = format!("text {i} of `{field}` has {} tokens, the context has room for {room}", prompt.len());
        return Err(ApiError::invalid(field, message)
            .with_code("context_length_exceeded")
            .rejected_as("prompt_too_long"));
    }
    let got: usize = prompts.iter().map(|p| p.len()).sum();
    if got > EMBEDDING_TOKENS_MAX {
        let message = format!("`{field}` has {got} tokens, at most {EMBEDDING_TOKENS_MAX} are taken in one request");
        return Err(ApiError::invalid(field, message).with_code("too_many_tokens"));
    }
    Ok(())
}

/// A vector of length 1 for each text; `field` is where the texts came from, for errors.
pub(in crate::http) async fn vectors(
    app: &App,
    name: Arc<str>,
    field: &'static str,
    texts: Texts,
) -> Result<Vec<Vec<f32>>, ApiError> {
    app.check_open()?;
    let (inputs, tokens) = (texts.prompts.len(), texts.prompts.iter().map(|p| p.len()).sum::<usize>());
    tracing::info!(request = &*name, inputs, tokens, "to embed");
    if app.log_prompts {
        for prompt in &texts.prompts {
            tracing::info!(request = &*name, prompt = app.text.tokenizer().decode(prompt, true), "embeds");
        }
    }
    embed(&app.handles, &app.live, name, texts).await.map_err(|e| direct_error(e, field))
}
