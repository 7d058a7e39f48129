//! From a conversation to its answer, in any dialect: examples, thinking, the prompt, the rules.

use super::dialect::Dialect;
use super::examples::with_examples;
use super::generate::{EndpointJob, generate};
use super::thinking::{PromptAndThinking, Question, prompt_and_thinking};
use crate::actors::reader::{Answer, Reader};
use crate::actors::report::Report;
use crate::http::app::App;
use crate::http::body::chat::ChatRequest;
use crate::http::edge::keys::auth::Caller;
use crate::http::edge::keys::cache;
use crate::http::edge::keys::terms::terms_of;
use crate::http::intake::bodies::Taken;
use crate::http::wire::error::ApiError;
use crate::http::wire::reply::RequestName;
use crate::text::OutputParser;
use actix_web::{HttpRequest, HttpResponse};
use std::sync::Arc;

/// Answers a conversation in any dialect, once its request is a chat's.
pub(in crate::http) async fn converse<S: Dialect>(
    app: &App,
    request: &HttpRequest,
    taken: Taken<ChatRequest>,
    shape: S,
    id_prefix: &'static str,
) -> Result<HttpResponse, ApiError> {
    let Taken { asked, bytes, room } = taken;
    let ChatRequest { mut generation, mut conversation, tools, calls, reasoning } = asked;
    let examples = match generation.engram.semantic.take() {
        Some(asked) => Some(with_examples(app, request, &generation, asked, &mut conversation, bytes).await?),
        None => None,
    };
    let cache = cache::of_request(Caller::of(request).cache, generation.cache.on, generation.cache.salt.as_deref());
    let holder = app.holder(request);
    let question =
        Question { conversation, bytes, reasoning, tools: tools.is_some(), terms: terms_of(request)?, cache, holder };
    let name = RequestName::of(request);
    let PromptAndThinking { prompt, thinking: rules, probe } =
        prompt_and_thinking(app, name, &generation, question).await?;
    let reports = [probe.map(Report::Probe), examples.map(Report::Examples)].into_iter().flatten().collect();
    let grammar = app.grammars.grammar_of(holder, generation.form.take(), calls, Some(prompt.thinking)).await?;
    // Only now: what waits for a thread or a trial is as large as its body was when it was taken apart.
    drop(room);
    let (thinking, tools) = (prompt.thinking, tools.map(Arc::new));
    let call_ids = uuid::Uuid::new_v4().simple().to_string();
    let reader = move |choice: usize| {
        let parser = OutputParser::new(thinking, tools.clone(), call_id_prefix(&call_ids, choice));
        Box::new(Answer::new(parser)) as Box<dyn Reader>
    };
    let endpoint = EndpointJob {
        prompts: vec![prompt.ids.into()],
        turns: prompt.turns.into(),
        prompt_field: "messages",
        thinking: rules,
        reports,
        grammar,
        reader: Box::new(reader),
        shape,
        id_prefix,
        generation,
    };
    generate(app, request, endpoint).await
}

/// What the ids of one choice's calls have in common. The choice's number takes two digits always, so that call 11 of
/// choice 1 and call 1 of choice 11 stay apart; the parser puts `call_` before it.
fn call_id_prefix(request: &str, choice: usize) -> String {
    format!("{}{choice:02}", &request[..16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CHOICES_MAX;

    #[test]
    fn no_two_calls_of_a_request_share_an_id() {
        let request = "0".repeat(32);
        let ids = (0..CHOICES_MAX as usize).flat_map(|choice| {
            let prefix = call_id_prefix(&request, choice);
            (0..200).map(move |call| format!("{prefix}{call}"))
        });
        let all: Vec<String> = ids.collect();
        let different: std::collections::HashSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }
}
