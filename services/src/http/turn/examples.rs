//! From the field `engram.semantic` to examples in a conversation: what is nearest to the last question comes before it
//! as turns that were answered well.

use crate::actors::report::ExamplesReport;
use crate::http::app::App;
use crate::http::body::generation::Generation;
use crate::http::body::semantic::SemanticRequest;
use crate::http::intake::prompts::prompt_of;
use crate::http::intake::search::{Search, look};
use crate::http::wire::error::ApiError;
use crate::semantic::{By, Hit};
use crate::text::Conversation;
use actix_web::HttpRequest;
use serde_json::{Value, json};

/// Puts examples into a conversation that came in a body of this many bytes, as many of them as leave room for the
/// rest.
pub(super) async fn with_examples(
    app: &App,
    request: &HttpRequest,
    generation: &Generation,
    asked: SemanticRequest,
    conversation: &mut Conversation,
    bytes: usize,
) -> Result<ExamplesReport, ApiError> {
    let query = last_question(&conversation.messages)?.to_owned();
    let looked = Search {
        collection: asked.collection.clone(),
        query,
        k: asked.k,
        by: By::Both,
        examples: true,
        field: "messages",
    };
    let (mut hits, query_tokens) = look(app, request, looked).await.map_err(in_chat)?;
    let plain = std::mem::take(&mut conversation.messages);
    // Rendered whole, because what a turn takes is the template's matter; short of room, the examples least like the
    // question go.
    while !hits.is_empty() {
        conversation.messages = with_turns(&plain, &hits);
        let more = hits.iter().map(|hit| hit.item.text_bytes()).sum::<usize>();
        match prompt_of(app, app.holder(request), conversation.clone(), bytes + more, usize::MAX).await {
            Ok(prompt) if prompt.ids.len() <= room(app, generation) => break,
            // Without examples the conversation itself may be at fault, and then it is told so.
            _ => hits.pop(),
        };
    }
    if hits.is_empty() {
        conversation.messages = plain;
    }
    let ids = hits.iter().map(|hit| hit.item.id.clone()).collect();
    Ok(ExamplesReport { collection: asked.collection, ids, query_tokens: query_tokens as u32 })
}

/// Tokens that a prompt with examples may have: what the answer was promised stays free, or else a quarter of the
/// context.
fn room(app: &App, generation: &Generation) -> usize {
    let context = app.handles.context;
    context.saturating_sub(generation.spec.engine.max_tokens.unwrap_or(context / 4)) as usize
}

/// In a chat the fault lies in a field.
fn in_chat(error: ApiError) -> ApiError {
    match error.code {
        Some("collection_not_found" | "other_model") => {
            let message = format!("`engram.semantic.collection`: {}", error.message);
            ApiError::invalid("engram.semantic.collection", message).with_code(error.code.unwrap_or_default())
        }
        Some("unsupported_parameter") => ApiError { param: Some("engram.semantic".into()), ..error },
        _ => error,
    }
}

fn role(message: &Value) -> &str {
    message["role"].as_str().unwrap_or_default()
}

fn last_question(messages: &[Value]) -> Result<&str, ApiError> {
    let last = messages.iter().rev().find(|message| role(message) == "user");
    last.and_then(|message| message["content"].as_str()).filter(|text| !text.is_empty()).ok_or_else(|| {
        let message = "`engram.semantic` looks for what is like the last text of a user, and `messages` has none";
        ApiError::invalid("messages", message)
    })
}

/// After what the system says, least like the question first, so that the most like it stands nearest.
fn with_turns(messages: &[Value], hits: &[Hit]) -> Vec<Value> {
    let system = messages.iter().take_while(|message| ["system", "developer"].contains(&role(message))).count();
    let turn = |hit: &Hit| {
        let answer = hit.item.answer.as_deref().unwrap_or_default();
        [json!({"role": "user", "content": hit.item.text}), json!({"role": "assistant", "content": answer})]
    };
    let turns = hits.iter().rev().flat_map(turn);
    messages[..system].iter().cloned().chain(turns).chain(messages[system..].iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semantic::Item;
    use std::sync::Arc;

    fn hit(id: &str) -> Hit {
        let item = Item { id: id.into(), text: format!("q{id}"), answer: Some(format!("a{id}")) };
        Hit { score: 1.0, item: Arc::new(item) }
    }

    #[test]
    fn examples_stand_between_the_system_and_the_conversation_the_best_last() {
        let said = |role: &str, content: &str| json!({"role": role, "content": content});
        let messages = [said("system", "s"), said("user", "u"), said("assistant", "a"), said("user", "v")];
        let got = with_turns(&messages, &[hit("1"), hit("2")]);
        let got: Vec<_> = got.iter().map(|m| format!("{} {}", role(m), m["content"].as_str().unwrap())).collect();
        let want =
            ["system s", "user q2", "assistant a2", "user q1", "assistant a1", "user u", "assistant a", "user v"];
        assert_eq!(got, want);
        assert_eq!(last_question(&messages).unwrap(), "v");
        assert_eq!(last_question(&messages[..1]).unwrap_err().param.as_deref(), Some("messages"));
    }
}
