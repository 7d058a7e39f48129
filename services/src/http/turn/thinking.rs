//! From what a chat says about thinking to its prompt and the rules for its thoughts.

use crate::actors::generation_request::ThinkingPlan;
use crate::actors::probe::{Trial, probe};
use crate::actors::report::ProbeReport;
use crate::holder::Holder;
use crate::http::app::App;
use crate::http::body::generation::Generation;
use crate::http::intake::prompts::prompt_of;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::direct_error;
use crate::metrics;
use crate::text::thinking::{Mode, Reasoning, Thoughts};
use crate::text::{ChatPrompt, Conversation, Thinking};
use chimere_engine::ids::CacheScope;
use chimere_engine::scheduler::Terms;
use std::sync::Arc;

/// A prompt, and what becomes of the thinking after it.
pub(super) struct PromptAndThinking {
    pub(super) prompt: ChatPrompt,
    /// `None` if the request says nothing about it.
    pub(super) thinking: Option<ThinkingPlan>,
    /// For the effort `auto`.
    pub(super) probe: Option<ProbeReport>,
}

/// A conversation that came in a body of this many bytes, and what its request says about thinking.
pub(super) struct Question {
    pub(super) conversation: Conversation,
    pub(super) bytes: usize,
    pub(super) reasoning: Option<Reasoning>,
    /// Calls may be made.
    pub(super) tools: bool,
    /// What the request runs under, and its trial too.
    pub(super) terms: Terms,
    /// Who shares its prompt, and that of its trial.
    pub(super) cache: Option<CacheScope>,
    /// In whose turn it is rendered.
    pub(super) holder: Holder,
}

/// Renders the conversation. With the effort `auto` the answer without a thought is tried first.
pub(super) async fn prompt_and_thinking(
    app: &App,
    name: Arc<str>,
    generation: &Generation,
    question: Question,
) -> Result<PromptAndThinking, ApiError> {
    let Question { conversation, bytes, reasoning, tools, terms, cache, holder } = question;
    let room = app.room(generation);
    let (Some(reasoning), Some(thoughts)) = (reasoning, &app.limits.thinking) else {
        let prompt = prompt_of(app, holder, conversation, bytes, room).await?;
        return Ok(PromptAndThinking { prompt, thinking: None, probe: None });
    };
    let mut found = None;
    if reasoning.mode == Mode::Auto
        && let Some(direct) = without_thought(app, holder, &conversation, bytes, room).await?
    {
        let account = try_answer(app, name, generation, thoughts, &direct, (terms, cache)).await?;
        if account.sure {
            ::metrics::counter!(metrics::THINKING_ENDED, "reason" => "sure")
                .increment(u64::from(generation.spec.engine.choices));
            return Ok(PromptAndThinking {
                prompt: direct,
                thinking: Some(ThinkingPlan::Skipped("sure")),
                probe: Some(account),
            });
        }
        found = Some(account);
    }
    let prompt = prompt_of(app, holder, conversation, bytes, room).await?;
    let rules = thoughts.rules(reasoning, prompt.thinking, tools);
    let thinking = rules.map_or(ThinkingPlan::Skipped("off"), |rules| ThinkingPlan::Bounded(Arc::new(rules)));
    Ok(PromptAndThinking { prompt, thinking: Some(thinking), probe: found })
}

/// The prompt that asks for the answer at once. `None` if the template cannot.
async fn without_thought(
    app: &App,
    holder: Holder,
    conversation: &Conversation,
    bytes: usize,
    room: usize,
) -> Result<Option<ChatPrompt>, ApiError> {
    let mut direct = conversation.clone();
    let Some(switch) = direct.options.get_mut("enable_thinking") else { return Ok(None) };
    *switch = false.into();
    let prompt = prompt_of(app, holder, direct, bytes, room).await?;
    Ok(Some(prompt).filter(|prompt| prompt.thinking == Thinking::Closed))
}

async fn try_answer(
    app: &App,
    name: Arc<str>,
    generation: &Generation,
    thoughts: &Thoughts,
    direct: &ChatPrompt,
    (terms, cache): (Terms, Option<CacheScope>),
) -> Result<ProbeReport, ApiError> {
    app.check_open()?;
    let (asked, tokens) = (&generation.spec.engine, thoughts.probe.tokens);
    let trial = Trial {
        prompt: direct.ids.as_slice().into(),
        turns: direct.turns.as_slice().into(),
        tokens_max: asked.max_tokens.map_or(tokens, |max| max.min(tokens)),
        entropy_max: thoughts.probe.entropy_max,
        end_ids: asked.end_ids.clone(),
        experts: asked.experts,
        priority: asked.priority,
        terms,
        cache,
    };
    let found = probe(&app.handles, app.live.enter(name), trial).await;
    let found = found.map_err(|e| direct_error(e, "messages"))?;
    let sure = found.entropy <= thoughts.probe.entropy_max;
    Ok(ProbeReport { tokens: found.tokens, entropy: thoughts.share(found.entropy), sure })
}
