//! From a chat's words about thinking to its prompt and the rules for its thoughts.

use super::error::TurnError;
use super::preparation::{ChatTurn, Preparation};
use super::prompts::prompt_of;
use crate::actors::request::generation_request::ThinkingPlan;
use crate::actors::request::probe::{Trial, probe};
use crate::actors::request::report::ProbeReport;
use crate::metrics;
use crate::text::thinking::{ThinkingMode, Thoughts};
use crate::text::{ChatPrompt, Conversation, Thinking, Tools};
use std::sync::Arc;

/// A prompt, and the plan for the thinking after it.
pub(super) struct PromptAndThinking {
    pub(super) prompt: ChatPrompt,
    /// `None` if the request says nothing about it.
    pub(super) thinking: Option<ThinkingPlan>,
    /// Result of the trial, for the effort `auto`.
    pub(super) probe: Option<ProbeReport>,
    /// Tools that the answer may call.
    pub(super) tools: Option<Tools>,
}

/// Renders the conversation. With the effort `auto` the answer without a thought is tried first, but not in a later
/// round of a turn, whose prompt is there.
pub(super) async fn prompt_and_thinking(
    preparation: &Preparation<'_>,
    mut chat: ChatTurn,
) -> Result<PromptAndThinking, TurnError> {
    let made = chat.made.take();
    let (Some(reasoning), Some(thoughts)) = (chat.reasoning, &preparation.services.thoughts) else {
        let prompt = made_or_rendered(preparation, made, chat.conversation, chat.bytes).await?;
        return Ok(PromptAndThinking { prompt, thinking: None, probe: None, tools: chat.tools });
    };
    let mut found = None;
    if reasoning.mode == ThinkingMode::Auto
        && made.is_none()
        && let Some(direct) = without_thought(preparation, &chat).await?
    {
        let report = try_answer(preparation, thoughts, &direct).await?;
        if report.sure {
            ::metrics::counter!(metrics::THINKING_ENDED, "reason" => "sure")
                .increment(u64::from(preparation.request.spec.engine.choices));
            let thinking = Some(ThinkingPlan::Skipped("sure"));
            return Ok(PromptAndThinking { prompt: direct, thinking, probe: Some(report), tools: chat.tools });
        }
        found = Some(report);
    }
    let prompt = made_or_rendered(preparation, made, chat.conversation, chat.bytes).await?;
    let rules = thoughts.rules(reasoning, prompt.thinking, chat.tools.is_some());
    let thinking = rules.map_or(ThinkingPlan::Skipped("off"), |rules| ThinkingPlan::Bounded(Arc::new(rules)));
    Ok(PromptAndThinking { prompt, thinking: Some(thinking), probe: found, tools: chat.tools })
}

async fn made_or_rendered(
    preparation: &Preparation<'_>,
    made: Option<ChatPrompt>,
    conversation: Conversation,
    bytes: usize,
) -> Result<ChatPrompt, TurnError> {
    match made {
        Some(prompt) => Ok(prompt),
        None => rendered(preparation, conversation, bytes).await,
    }
}

async fn rendered(
    preparation: &Preparation<'_>,
    conversation: Conversation,
    bytes: usize,
) -> Result<ChatPrompt, TurnError> {
    let room = preparation.services.room(&preparation.request.spec.engine);
    prompt_of(preparation.services, preparation.caller.holder, conversation, bytes, room).await
}

/// The prompt that asks for the answer at once. `None` if the template cannot.
async fn without_thought(preparation: &Preparation<'_>, chat: &ChatTurn) -> Result<Option<ChatPrompt>, TurnError> {
    let mut direct = chat.conversation.clone();
    let Some(switch) = direct.options.get_mut("enable_thinking") else { return Ok(None) };
    *switch = false.into();
    let prompt = rendered(preparation, direct, chat.bytes).await?;
    Ok(Some(prompt).filter(|prompt| prompt.thinking == Thinking::Closed))
}

async fn try_answer(
    preparation: &Preparation<'_>,
    thoughts: &Thoughts,
    direct: &ChatPrompt,
) -> Result<ProbeReport, TurnError> {
    preparation.services.check_open()?;
    let (wanted, tokens) = (&preparation.request.spec.engine, thoughts.probe.tokens);
    let trial = Trial {
        prompt: direct.ids.as_slice().into(),
        turns: direct.turns.as_slice().into(),
        tokens_max: wanted.max_tokens.map_or(tokens, |max| max.min(tokens)),
        entropy_max: thoughts.probe.entropy_max,
        end_ids: wanted.end_ids.clone(),
        experts: wanted.experts,
        priority: wanted.priority,
        terms: preparation.caller.terms,
        cache: preparation.cache,
    };
    let entry = preparation.services.live.enter(preparation.caller.name.clone());
    let found = probe(&preparation.services.handles, entry, trial).await;
    let found = found.map_err(|error| TurnError::Engine { field: "messages", error })?;
    let sure = found.entropy <= thoughts.probe.entropy_max;
    Ok(ProbeReport { tokens: found.tokens, entropy: thoughts.share(found.entropy), sure })
}
