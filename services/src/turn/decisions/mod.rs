//! Asks the model for decisions. Nothing is sampled: each answer is scored along its tokens behind one prompt, at
//! temperature 1 and without edits, and the options share what they have together. The same request has the same bytes
//! in any batch.

pub mod adapter_probe;
mod rerank;
mod stems;
mod sufficiency;

pub use rerank::{Ranked, RerankRequest, rerank};
pub(super) use sufficiency::sufficiency;

use super::caller::TurnCaller;
use super::error::TurnError;
use super::services::TurnServices;
use crate::actors::request::score::{Scoring, score, work_tokens};
use crate::decide::{Decision, DecisionQuestion, shares};
use crate::limits::{DECISION_PROMPT_TOKENS_MAX, DECISION_TOKENS_MAX};
use crate::metrics;
use crate::text::Message;
use chimere_engine::ids::CacheScope;
use stems::{AskedStem, stems_of};

/// Questions about one input, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionRequest {
    /// What the questions are about: a conversation of one message or more.
    pub input: Vec<Message>,
    /// The questions, of which there is at least one.
    pub questions: Vec<DecisionQuestion>,
    /// In how many orders the options of a choice are shown, if the request says.
    pub orders: Option<u32>,
    /// Probabilities as the model has them, whatever temperature was fitted.
    pub raw: bool,
    /// Whether its prompts are looked up and kept, and among whose.
    pub cache: Option<CacheScope>,
}

/// The answers, and what they cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// In the order of the questions.
    pub answers: Vec<Decision>,
    /// Tokens that were read.
    pub cost: Cost,
}

/// Tokens that a call took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Tokens of all prompts and options, common beginnings counted once.
    pub input_tokens: usize,
    /// Of the first prompt, those that a cache had from before.
    pub cached_tokens: usize,
}

/// Answers every question about the input.
pub async fn decide(
    services: &TurnServices,
    caller: &TurnCaller,
    asked: DecisionRequest,
) -> Result<Decided, TurnError> {
    let settings = &services.decide;
    let orders = asked.orders.unwrap_or(settings.orders);
    let cases: Vec<Case> =
        asked.questions.iter().enumerate().map(|(at, question)| Case { input: &asked.input, question, at }).collect();
    let run = Run { field: "input", option_field: "questions", orders, cache: asked.cache };
    let (all, cost) = probabilities(services, caller, &cases, run).await?;
    let of = |(question, probabilities): (&DecisionQuestion, Vec<f64>)| {
        ::metrics::counter!(metrics::DECISIONS, "type" => question.kind.name()).increment(1);
        let name = question.name.as_deref().filter(|_| !asked.raw);
        Decision::of(question, settings.calibration.apply(name, probabilities))
    };
    Ok(Decided { answers: asked.questions.iter().zip(all).map(of).collect(), cost })
}

/// A question about an input.
struct Case<'a> {
    input: &'a [Message],
    question: &'a DecisionQuestion,
    /// Its number among the questions of the request.
    at: usize,
}

/// What all cases of a call have in common.
struct Run {
    /// The field that is at fault where a prompt is too long.
    field: &'static str,
    /// The field of the questions.
    option_field: &'static str,
    orders: u32,
    cache: Option<CacheScope>,
}

/// The probabilities of each case's options, the mean over the orders in which they were shown.
async fn probabilities(
    services: &TurnServices,
    caller: &TurnCaller,
    cases: &[Case<'_>],
    run: Run,
) -> Result<(Vec<Vec<f64>>, Cost), TurnError> {
    services.check_open()?;
    let (mut asked, mut stems) = (Vec::new(), Vec::new());
    let mut prompt_tokens = 0;
    for (case, of) in cases.iter().enumerate() {
        for AskedStem { order, stem } in stems_of(services, caller, of, &run).await? {
            prompt_tokens += stem.prompt.len();
            within(run.field, prompt_tokens, DECISION_PROMPT_TOKENS_MAX)?;
            asked.push((case, order));
            stems.push(stem);
        }
    }
    let scoring = Scoring { stems, cache: run.cache, terms: caller.terms };
    let input_tokens = work_tokens(&scoring);
    within(run.field, input_tokens, DECISION_TOKENS_MAX)?;
    tracing::info!(request = &*caller.name, cases = cases.len(), tokens = input_tokens, "to decide");
    let scored = score(&services.handles, &services.live, caller.name.clone(), scoring).await;
    let scored = scored.map_err(|error| TurnError::Engine { field: run.field, error })?;
    let cost = Cost { input_tokens, cached_tokens: scored.cached_tokens as usize };
    let mut all: Vec<Vec<f64>> = cases.iter().map(|case| vec![0.0; case.question.options.len()]).collect();
    let mut orders = vec![0u32; cases.len()];
    for ((case, order), logprobs) in asked.into_iter().zip(scored.logprobs) {
        orders[case] += 1;
        order.into_iter().zip(shares(&logprobs)).for_each(|(option, p)| all[case][option] += p);
    }
    all.iter_mut().zip(orders).for_each(|(all, n)| all.iter_mut().for_each(|p| *p /= f64::from(n)));
    Ok((all, cost))
}

fn within(field: &'static str, got: usize, max: usize) -> Result<(), TurnError> {
    let message = || format!("`{field}` and its questions have {got} tokens, at most {max} are taken in one request");
    if got > max { Err(TurnError::coded(field, message(), "too_many_tokens")) } else { Ok(()) }
}
