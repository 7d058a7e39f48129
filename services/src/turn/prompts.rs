//! Prompts of texts and of conversations, made where they are if that is short, else on the threads of texts.

use super::error::TurnError;
use super::options::Prompt;
use super::services::TurnServices;
use crate::holder::Holder;
use crate::text::{ChatPrompt, Conversation, Lanes, PromptError, TextModel};
use chimere_engine::ids::TokenId;
use chimere_engine::scheduler::Rejected;

/// Texts up to this many bytes are tokenized where they are: a change of threads would take longer.
pub const INLINE_BYTES: usize = 2 << 10;

/// Does what takes as long as a text of so many bytes: `here` if that is short, else on a text thread, in the holder's
/// turn.
pub async fn work<T: Send + 'static>(
    lanes: &Lanes,
    holder: Holder,
    bytes: usize,
    here: bool,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TurnError> {
    if here { Ok(job()) } else { lanes.for_bytes(bytes).run(holder, job).await.map_err(TurnError::TextThreads) }
}

/// Token ids of a text; `special` takes added tokens that are written out for what they are.
pub async fn ids_of(
    services: &TurnServices,
    holder: Holder,
    text: String,
    special: bool,
) -> Result<Vec<TokenId>, TurnError> {
    let tokenizer = services.text.tokenizer().clone();
    let bytes = text.len();
    let encode = move || if special { tokenizer.encode(&text) } else { tokenizer.encode_plain(&text) };
    work(&services.lanes, holder, bytes, bytes <= INLINE_BYTES, encode).await
}

/// Bytes of texts that stood in a field, none of which may be larger than `room` tokens can be.
pub fn fitting<'a>(
    services: &TurnServices,
    field: &'static str,
    texts: impl IntoIterator<Item = &'a str>,
    room: usize,
) -> Result<usize, TurnError> {
    texts.into_iter().try_fold(0, |bytes, text| {
        services.text.may_fit(text, room).map_err(|error| TurnError::TooLong { field, error })?;
        Ok(bytes + text.len())
    })
}

/// Token ids of a prompt that no template is laid around, and its text where it came as one. No text in it may be
/// larger than `room` tokens can be.
pub async fn prompt_ids(
    services: &TurnServices,
    holder: Holder,
    prompt: Prompt,
    room: usize,
) -> Result<(Vec<TokenId>, Option<String>), TurnError> {
    let bytes = fitting(services, "prompt", prompt.texts(), room)?;
    let text = if let Prompt::Text(text) = &prompt { Some(text.clone()) } else { None };
    let tokenizer = services.text.tokenizer().clone();
    let encode = move || prompt.into_ids(&|text| tokenizer.encode(text));
    Ok((work(&services.lanes, holder, bytes, bytes <= INLINE_BYTES, encode).await?, text))
}

/// The prompt of a conversation that came in a body of this many bytes, if it may have at most `tokens_max` tokens.
pub async fn prompt_of(
    services: &TurnServices,
    holder: Holder,
    conversation: Conversation,
    bytes: usize,
    tokens_max: usize,
) -> Result<ChatPrompt, TurnError> {
    let text = services.text.clone();
    let job = move || {
        let made = text.chat_prompt(&conversation, tokens_max);
        tools_too_long(&text, conversation, &made, tokens_max).map_or(made.map_err(prompt_error), Err)
    };
    services.lanes.for_bytes(bytes).run(holder, job).await.map_err(TurnError::TextThreads)?
}

fn prompt_error(error: PromptError) -> TurnError {
    match error {
        PromptError::Template(e) => TurnError::invalid("messages", e.to_string()),
        PromptError::TooLong(error) => TurnError::TooLong { field: "messages", error },
    }
}

/// What to say of a prompt that does not fit, if tools take most of it: programs declare dozens of them, and whoever
/// sees the refusal wrote a line.
fn tools_too_long(
    text: &TextModel,
    conversation: Conversation,
    made: &Result<ChatPrompt, PromptError>,
    max: usize,
) -> Option<TurnError> {
    let (message, tokens) = match made {
        Ok(prompt) if prompt.ids.len() > max => {
            let count = |tokens| u32::try_from(tokens).unwrap_or(u32::MAX);
            (Rejected::PromptTooLong { got: count(prompt.ids.len()), max: count(max) }.to_string(), prompt.ids.len())
        }
        Err(PromptError::TooLong(error)) => (error.to_string(), error.least),
        _ => return None,
    };
    let tools = conversation.tools.len();
    let rest = match text.chat_prompt(&Conversation { tools: Vec::new(), ..conversation }, max) {
        Ok(prompt) => prompt.ids.len(),
        Err(PromptError::TooLong(error)) => error.least,
        Err(PromptError::Template(_)) => return None,
    };
    let of_tools = tokens.saturating_sub(rest);
    let least = if made.is_ok() { "" } else { "at least " };
    let advice = format!(
        "the declaration of {tools} tools takes {least}{of_tools} of them: \
         switch off tools that this conversation does not need"
    );
    (2 * of_tools > tokens).then_some(TurnError::ToolsTooLong { message, tokens, max, advice })
}
