//! Tries how an answer without a thought would begin, to see how sure the model is of it.

use super::live::Entry;
use super::messages::{Refusal, Submit, Told};
use super::request::{Around, Hangup};
use chimere_engine::ids::TokenId;
use chimere_engine::sampling::SamplingParams;
use chimere_engine::scheduler::{Event, Request, Terms};
use chimere_engine::step::ExpertCut;
use std::sync::Arc;
use tokio::sync::mpsc;

/// What to try.
pub struct Trial {
    /// Ends where the answer begins.
    pub prompt: Arc<[TokenId]>,
    /// Tokens to generate, at least 1.
    pub tokens_max: u32,
    /// The first token with more entropy, in nats, ends it: the rest would change nothing.
    pub entropy_max: f32,
    /// Ids that end the answer.
    pub end_ids: Vec<TokenId>,
    /// As for the answer itself.
    pub experts: Option<ExpertCut>,
    /// Likewise.
    pub priority: i32,
    /// Likewise.
    pub terms: Terms,
}

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Probed {
    /// Tokens that were generated.
    pub tokens: u32,
    /// The most entropy that one of them had, in nats.
    pub entropy: f32,
}

/// Why nothing was found.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProbeError {
    /// The scheduler did not take it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The engine failed, or the service is going down.
    #[error("{0}")]
    Failed(String),
}

/// Generates the most probable tokens. Whoever stops waiting cancels it.
pub async fn probe(around: &Around, entry: Entry, trial: Trial) -> Result<Probed, ProbeError> {
    let request = Request {
        id: entry.id,
        prompt: trial.prompt,
        choices: 1,
        max_tokens: Some(trial.tokens_max),
        sampling: Arc::new(SamplingParams { certainty: true, ..SamplingParams::greedy() }),
        end_ids: trial.end_ids,
        priority: trial.priority,
        score_prompt: None,
        thinking: None,
        experts: trial.experts,
        // Tables speak in answers; whether one needs a thought is the model's own matter.
        awaits_edits: false,
        pool: None,
    };
    let (events, mut told) = mpsc::channel(Submit::events_max(&request, around.context));
    let _hangup = Hangup { scheduler: around.scheduler.clone(), clock: around.clock.clone(), ids: vec![entry.id] };
    let gone = |_| ProbeError::Failed("the engine is lost".into());
    around.scheduler.send(Submit { request, terms: trial.terms, events, guidance: None, warm_up: false }).await.map_err(gone)??;
    let mut found = Probed::default();
    while let Some(told) = told.recv().await {
        match told {
            Told::Event(Event::Token { certainty: Some(certainty), .. }) => {
                found.tokens += 1;
                found.entropy = found.entropy.max(certainty.entropy);
                if found.entropy > trial.entropy_max {
                    return Ok(found);
                }
            }
            Told::Event(Event::Finished { .. }) => return Ok(found),
            Told::Event(Event::Failed(why)) => return Err(ProbeError::Failed(why)),
            _ => {}
        }
    }
    Err(ProbeError::Failed("the engine is lost".into()))
}
