//! The prompts of a question, one an order of its options, and the tokens of its answers behind each.

use super::{Case, Run};
use crate::actors::request::score::Stem;
use crate::decide::{AnswerPaths, DecisionQuestion, answer, ask};
use crate::text::{Conversation, Message, Role, Thinking};
use crate::turn::prompts::{prompt_of, work};
use crate::turn::{TurnCaller, TurnError, TurnServices};
use chimere_engine::ids::TokenId;
use chimere_engine::scheduler::Rejected;
use serde_json::Map;

/// Texts up to this many bytes are cut into tokens where they are.
const INLINE_BYTES: usize = crate::turn::prompts::INLINE_BYTES;
/// The variable by which templates are told that nothing is to be thought.
const THINKING: &str = "enable_thinking";

/// A prompt whose options are shown in this order, and scored in it.
pub(super) struct AskedStem {
    pub(super) order: Vec<usize>,
    pub(super) stem: Stem,
}

/// The prompts of a case.
pub(super) async fn stems_of(
    services: &TurnServices,
    caller: &TurnCaller,
    case: &Case<'_>,
    run: &Run,
) -> Result<Vec<AskedStem>, TurnError> {
    let question = case.question;
    let shown: Vec<usize> = (0..question.options.len()).collect();
    let turned = (run.orders > 1 && question.may_turn()).then(|| shown.iter().rev().copied().collect());
    let AnswerPaths { common, paths } = answers_of(services, caller, case, run).await?;
    let room = (services.handles.context as usize).saturating_sub(common.len() + longest(&paths));
    let mut stems = Vec::new();
    for order in [shown].into_iter().chain(turned) {
        let mut prompt = prompt_for(services, caller, (case, &order), room).await?;
        if prompt.len() > room || room == 0 {
            let rejected = Rejected::PromptTooLong { got: count(prompt.len()), max: count(room) };
            let error = TurnError::coded(run.field, rejected.to_string(), "context_length_exceeded");
            return Err(error.counted_as("prompt_too_long"));
        }
        prompt.extend(&common);
        let paths = order.iter().map(|option| paths[*option].clone()).collect();
        stems.push(AskedStem { order, stem: Stem { prompt, paths } });
    }
    Ok(stems)
}

fn longest(paths: &[Vec<TokenId>]) -> usize {
    paths.iter().map(Vec::len).max().unwrap_or(0)
}

fn count(tokens: usize) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

/// The tokens of a question's answers. What looks like a control token is text.
async fn answers_of(
    services: &TurnServices,
    caller: &TurnCaller,
    case: &Case<'_>,
    run: &Run,
) -> Result<AnswerPaths, TurnError> {
    let texts: Vec<String> = (0..case.question.options.len()).map(|option| answer(case.question, option)).collect();
    let bytes = texts.iter().map(String::len).sum();
    let tokenizer = services.text.tokenizer().clone();
    let cut = move || {
        let ids = texts.iter().map(|text| tokenizer.encode_plain(text)).collect();
        AnswerPaths::of(ids, |token| tokenizer.bytes(token).len())
    };
    let found = work(&services.lanes, caller.holder, bytes, bytes <= INLINE_BYTES, cut).await?;
    found.map_err(|(a, b)| {
        let list = format!("{}[{}].choices", run.option_field, case.at);
        let message = format!("`{list}[{b}]` and `{list}[{a}]` are the same tokens to this model");
        TurnError::invalid(format!("{list}[{b}]"), message)
    })
}

/// The conversation with the question at its end, up to where the answer begins: behind a thought that is closed.
async fn prompt_for(
    services: &TurnServices,
    caller: &TurnCaller,
    (case, order): (&Case<'_>, &[usize]),
    room: usize,
) -> Result<Vec<TokenId>, TurnError> {
    let messages = with_question(case.input, case.question, order);
    let bytes = messages.iter().filter_map(|message| message.content.as_ref()).map(String::len).sum();
    let switch = services.text.template().is_some_and(|template| template.options().any(|name| name == THINKING));
    let options: Map<_, _> = switch.then(|| (THINKING.to_owned(), false.into())).into_iter().collect();
    let conversation = Conversation { messages, options, ..Conversation::default() };
    let prompt = prompt_of(services, caller.holder, conversation, bytes, room).await?;
    let closing = services.thoughts.as_ref().filter(|_| prompt.thinking == Thinking::Open);
    Ok([&prompt.ids[..], closing.map_or(&[][..], |thoughts| thoughts.closing())].concat())
}

/// The question ends the user's last message, or is one of its own.
fn with_question(input: &[Message], question: &DecisionQuestion, order: &[usize]) -> Vec<Message> {
    let (mut messages, text) = (input.to_vec(), ask(question, order));
    match messages.last_mut().filter(|last| last.role == Role::User) {
        Some(last) => last.content = Some(format!("{}\n\n{text}", last.content.as_deref().unwrap_or_default())),
        None => messages.push(Message::new(Role::User, text)),
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_ends_what_the_user_said_and_is_a_turn_of_its_own_behind_an_answer() {
        let question = DecisionQuestion::predicate(None, "It rains.".into());
        let said = |messages: &[(Role, &str)]| {
            let input: Vec<Message> = messages.iter().map(|(role, text)| Message::new(*role, *text)).collect();
            let all = with_question(&input, &question, &[0, 1]);
            all.iter()
                .map(|m| m.content.clone().unwrap().lines().take(3).collect::<Vec<_>>().join("|"))
                .collect::<Vec<_>>()
        };
        assert_eq!(said(&[(Role::User, "Clouds.")]), ["Clouds.||It rains."]);
        let asked = said(&[(Role::User, "a"), (Role::Assistant, "b")]);
        assert_eq!(asked[..2], ["a", "b"]);
        assert!(asked[2].starts_with("It rains.|Return JSON"));
    }
}
