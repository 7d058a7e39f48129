//! Tries how an answer without a thought would begin, to see how sure the model is of it.

use super::ServiceHandles;
use super::direct::{DirectError, DirectRequest};
use crate::actors::live::LiveEntry;
use chimere_engine::ids::{CacheScope, TokenId};
use chimere_engine::sampling::SamplingParams;
use chimere_engine::scheduler::{Event, Request, Spec, Terms};
use chimere_engine::step::ExpertCut;
use std::sync::Arc;

/// A prompt, and how far its answer is tried.
pub struct Trial {
    /// Ends where the answer begins.
    pub prompt: Arc<[TokenId]>,
    /// Where turns begin in it.
    pub turns: Arc<[u32]>,
    /// Tokens to generate, at least 1.
    pub tokens_max: u32,
    /// The first token with more entropy, in nats, ends it: the rest would change nothing.
    pub entropy_max: f32,
    /// Ids that end the answer.
    pub end_ids: Arc<[TokenId]>,
    /// As for the answer itself.
    pub experts: Option<ExpertCut>,
    /// Lower runs first among the requests of a key.
    pub priority: i32,
    /// The key that asks, and by when the trial has to be done.
    pub terms: Terms,
    /// The part of the cache that the trial is kept in: the answer goes on from there.
    pub cache: Option<CacheScope>,
}

/// How sure the model was of the tokens that it was tried for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Probed {
    /// Tokens that were generated.
    pub tokens: u32,
    /// The most entropy that one of them had, in nats.
    pub entropy: f32,
}

/// Generates the most probable tokens. Whoever stops waiting cancels it.
pub async fn probe(handles: &ServiceHandles, entry: LiveEntry, trial: Trial) -> Result<Probed, DirectError> {
    // Tables speak in answers; whether one needs a thought is the model's own matter.
    let spec = Spec {
        sampling: Arc::new(SamplingParams { certainty: true, ..SamplingParams::greedy() }),
        end_ids: trial.end_ids,
        experts: trial.experts,
        priority: trial.priority,
        cache: trial.cache,
        ..Spec::greedy(trial.tokens_max)
    };
    let request = Request::new(entry.id, trial.prompt, spec).with_turns(trial.turns);
    let mut direct = DirectRequest::start(handles, entry, request, trial.terms).await?;
    let mut found = Probed::default();
    loop {
        match direct.event().await? {
            Event::Token { certainty: Some(certainty), .. } => {
                found.tokens += 1;
                found.entropy = found.entropy.max(certainty.entropy);
                if found.entropy > trial.entropy_max {
                    return Ok(found);
                }
            }
            Event::Finished { .. } => return Ok(found),
            _ => {}
        }
    }
}
