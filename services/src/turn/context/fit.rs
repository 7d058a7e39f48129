//! How much of what would help an answer has room beside it.

use crate::text::Message;
use crate::turn::error::TurnError;
use crate::turn::preparation::{ChatTurn, Preparation};
use crate::turn::prompts::prompt_of;

/// Puts as many of some texts into a conversation as leave room for the answer, and says how many these are. `with`
/// gives the messages with the first of them; `count` is how many there are, `bytes` all their bytes.
///
/// Prompts are rendered whole, because what a text takes there is the template's matter.
pub(super) async fn fit(
    preparation: &Preparation<'_>,
    chat: &mut ChatTurn,
    (count, bytes): (usize, usize),
    with: impl Fn(&[Message], usize) -> Vec<Message>,
) -> Result<usize, TurnError> {
    let plain = std::mem::take(&mut chat.conversation.messages);
    let room = room(preparation.services.handles.context, preparation.request.spec.engine.max_tokens);
    // All of them fit, mostly. Otherwise the largest number is looked for between one that fits and one that does not.
    let (mut fitting, mut too_many, mut tried) = (0, count + 1, count);
    while fitting + 1 < too_many {
        chat.conversation.messages = with(&plain, tried);
        let bytes = chat.bytes + bytes;
        match prompt_of(preparation.services, preparation.caller.holder, chat.conversation.clone(), bytes, usize::MAX)
            .await
        {
            Ok(prompt) if prompt.ids.len() <= room => fitting = tried,
            // Without these texts the conversation itself may be at fault, and then it is told so.
            _ => too_many = tried,
        }
        tried = fitting.midpoint(too_many);
    }
    chat.conversation.messages = if fitting == 0 { plain } else { with(&plain, fitting) };
    Ok(fitting)
}

/// Tokens that such a prompt may have: what the answer was promised stays free, or else a quarter of the context.
pub(in crate::turn) fn room(context: u32, max_tokens: Option<u32>) -> usize {
    context.saturating_sub(max_tokens.unwrap_or(context / 4)) as usize
}
