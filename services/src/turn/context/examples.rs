//! From the field `engram.semantic` to examples in a conversation: what is nearest to the last question comes before it
//! as turns that were answered well.

use super::fit::fit;
use crate::actors::request::report::ExamplesReport;
use crate::semantic::{By, FoundItem};
use crate::text::{Message, Role};
use crate::turn::error::TurnError;
use crate::turn::options::SemanticRequest;
use crate::turn::preparation::{ChatTurn, Preparation};
use crate::turn::search::{Search, look};

/// Puts examples into a conversation, as many of them as leave room for the rest.
pub(in crate::turn) async fn with_examples(
    preparation: &Preparation<'_>,
    wanted: SemanticRequest,
    chat: &mut ChatTurn,
) -> Result<ExamplesReport, TurnError> {
    let query = last_question(&chat.conversation.messages)?.to_owned();
    let looked = Search {
        collection: wanted.collection.clone(),
        query,
        k: wanted.k,
        by: By::Both,
        examples: true,
        field: "messages",
    };
    let (mut hits, query_tokens) = look(preparation.services, &preparation.caller, looked).await.map_err(in_chat)?;
    let bytes = hits.iter().map(|hit| hit.item.text_bytes()).sum();
    // Short of room, the examples least like the question go.
    let fitting = fit(preparation, chat, (hits.len(), bytes), |plain, count| with_turns(plain, &hits[..count])).await?;
    hits.truncate(fitting);
    let ids = hits.iter().map(|hit| hit.item.id.clone()).collect();
    Ok(ExamplesReport { collection: wanted.collection, ids, query_tokens: query_tokens as u32 })
}

/// In a chat the fault lies in the field that names the collection.
fn in_chat(error: TurnError) -> TurnError {
    match error {
        TurnError::Collection(error) => TurnError::Examples(error),
        other => other,
    }
}

fn last_question(messages: &[Message]) -> Result<&str, TurnError> {
    let last = messages.iter().rev().find(|message| message.role == Role::User);
    last.and_then(|message| message.content.as_deref()).filter(|text| !text.is_empty()).ok_or_else(|| {
        let message = "`engram.semantic` looks for what is like the last text of a user, and `messages` has none";
        TurnError::invalid("messages", message)
    })
}

/// After what the system says, least like the question first, so that the most like it stands nearest.
fn with_turns(messages: &[Message], hits: &[FoundItem]) -> Vec<Message> {
    let system = messages.iter().take_while(|message| message.role == Role::System).count();
    let turn = |hit: &FoundItem| {
        let answer = hit.item.answer.as_deref().unwrap_or_default();
        [Message::new(Role::User, &*hit.item.text), Message::new(Role::Assistant, answer)]
    };
    let turns = hits.iter().rev().flat_map(turn);
    messages[..system].iter().cloned().chain(turns).chain(messages[system..].iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semantic::Item;
    use std::sync::Arc;

    fn hit(id: &str) -> FoundItem {
        let item = Item { id: id.into(), text: format!("q{id}"), answer: Some(format!("a{id}")) };
        FoundItem { score: 1.0, item: Arc::new(item) }
    }

    #[test]
    fn examples_stand_between_the_system_and_the_conversation_the_best_last() {
        let messages = [(Role::System, "s"), (Role::User, "u"), (Role::Assistant, "a"), (Role::User, "v")];
        let messages = messages.map(|(role, text)| Message::new(role, text));
        let got = with_turns(&messages, &[hit("1"), hit("2")]);
        let got: Vec<_> = got.iter().map(|m| format!("{} {}", m.role.name(), m.content.as_deref().unwrap())).collect();
        let want =
            ["system s", "user q2", "assistant a2", "user q1", "assistant a1", "user u", "assistant a", "user v"];
        assert_eq!(got, want);
        assert_eq!(last_question(&messages).unwrap(), "v");
        let error = last_question(&messages[..1]).unwrap_err();
        assert!(matches!(error, TurnError::Invalid { field, .. } if field == "messages"));
    }
}
