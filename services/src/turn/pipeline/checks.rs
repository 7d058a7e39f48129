//! Tests of a conversation and checks of a text that was generated.

use super::asking::Asking;
use super::calls::call_of;
use super::conversation::{last_text, names_file};
use crate::decide::{Decision, DecisionQuestion};
use crate::pipelines::{CheckPlan, CheckRule, Test};
use crate::text::{Message, Role};
use crate::turn::decisions::{DecisionRequest, decide};
use crate::turn::error::TurnError;
use crate::turn::options::ChatRequest;

/// Whether a test holds of what the client asked.
pub(super) async fn holds(asking: Asking<'_>, test: &Test, asked: &ChatRequest) -> Result<bool, TurnError> {
    let messages = &asked.conversation.messages;
    match test {
        Test::Regex(regex) => Ok(regex.is_match(last_text(messages))),
        Test::FileType(endings) => {
            let titles = asked.sources.iter().filter_map(|source| source.title.as_deref());
            Ok(titles.chain([last_text(messages)]).any(|text| names_file(text, endings)))
        }
        Test::Decision { statement, min } => Ok(likely(asking, messages.clone(), statement).await? >= *min),
    }
}

/// Why a text fails a check; `None` if it passes.
pub(super) async fn failure(
    asking: Asking<'_>,
    CheckPlan { step, text, tool, .. }: &CheckPlan,
    (pipeline, cited): (&str, usize),
    asked: &ChatRequest,
) -> Result<Option<String>, TurnError> {
    let why = match &step.rule {
        CheckRule::Regex(regex) => {
            (!regex.is_match(text)).then(|| format!("The answer does not match the expression {regex}"))
        }
        CheckRule::Cited(least) => {
            (cited < *least as usize).then(|| "The answer does not cite the passages that it is from.".to_owned())
        }
        CheckRule::Schema(schema) => {
            let looked = asking.services.grammars.misfit(asking.caller.holder, (schema.clone(), text.clone()));
            looked.await?.map(|why| format!("The answer has a mistake: {why}."))
        }
        CheckRule::Tool(_) => {
            let tool = tool.clone().expect("a check by a tool is planned with it");
            match call_of(asking, pipeline, tool).await? {
                Ok(call) => call.run(asking.services, asking.caller).await.0.err(),
                Err(why) => Some(why),
            }
        }
        CheckRule::Decision { statement, min } => {
            let mut messages = asked.conversation.messages.clone();
            messages.push(Message::new(Role::Assistant, text.as_str()));
            let fails = likely(asking, messages, statement).await? < *min;
            fails.then(|| format!("This does not hold of the answer: {statement}"))
        }
    };
    Ok(why.map(|why| step.why.clone().unwrap_or(why)))
}

/// How probable the model holds a statement about a conversation.
async fn likely(asking: Asking<'_>, input: Vec<Message>, statement: &str) -> Result<f64, TurnError> {
    let questions = vec![DecisionQuestion::predicate(None, statement.to_owned())];
    let request = DecisionRequest { input, questions, orders: None, raw: false, cache: asking.cache };
    let decided = decide(asking.services, asking.caller, request).await?;
    Ok(match decided.answers.first() {
        Some(Decision::Predicate { probability }) => *probability,
        _ => 0.0,
    })
}
