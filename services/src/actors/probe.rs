//! Tries how an answer without a thought would begin, to see how sure the model is of it.

use super::live::Entry;
use super::lone::{Lone, LoneError};
use super::request::Around;
use chimere_engine::ids::TokenId;
use chimere_engine::sampling::SamplingParams;
use chimere_engine::scheduler::{Event, Request, Spec, Terms};
use chimere_engine::step::ExpertCut;
use std::sync::Arc;

/// What to try.
pub struct Trial {
    /// Ends where the answer begins.
    pub prompt: Arc<[TokenId]>,
    /// Tokens to generate, at least 1.
    pub tokens_max: u32,
    /// The first token with more entropy, in nats, ends it: the rest would change nothing.
    pub entropy_max: f32,
    /// Ids that end the answer.
    pub end_ids: Arc<[TokenId]>,
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

/// Generates the most probable tokens. Whoever stops waiting cancels it.
pub async fn probe(around: &Around, entry: Entry, trial: Trial) -> Result<Probed, LoneError> {
    // Tables speak in answers; whether one needs a thought is the model's own matter.
    let spec = Spec {
        sampling: Arc::new(SamplingParams { certainty: true, ..SamplingParams::greedy() }),
        end_ids: trial.end_ids,
        experts: trial.experts,
        priority: trial.priority,
        ..Spec::greedy(trial.tokens_max)
    };
    let request = Request::new(entry.id, trial.prompt, spec);
    let mut lone = Lone::start(around, entry, request, trial.terms).await?;
    let mut found = Probed::default();
    loop {
        match lone.event().await? {
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
