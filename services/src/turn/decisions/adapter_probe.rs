//! The probe of an adapter: the model reads fixed prompts with it and without, as ordinary requests. An adapter
//! that changes nothing, or that spoils the model, is not served.

use crate::actors::request::direct::DirectError;
use crate::actors::request::score::scores_behind;
use crate::limits::{ADAPTER_PROBE_SECONDS_MAX, TOP_LOGPROBS_MAX};
use crate::turn::services::TurnServices;
use chimere_engine::adapter::{Adapter, ScaledAdapter};
use chimere_engine::ids::TokenId;
use chimere_engine::scheduler::PromptScores;
use chimere_engine::step::Score;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(ADAPTER_PROBE_SECONDS_MAX);

/// Beginnings in the kinds of text that models are used for.
const PROMPTS: [&str; 8] = [
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return",
    "Question: What is 17 + 25?\nAnswer:",
    "Dear Sir or Madam,\n\nI am writing to",
    "{\"name\": \"Ada\", \"age\":",
    "Es war einmal ein König, der hatte",
    "Water boils at a temperature of",
    "1. Wash the rice.\n2. Boil the water.\n3.",
];

/// Why an adapter is not served although its file is in order.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No probability of any prompt is another one with it.
    #[error("it has no effect: the model says the same behind all {} prompts with it and without", PROMPTS.len())]
    NoEffect,
    /// A probability is no number.
    #[error("the model's logits with it are not finite")]
    NotFinite,
    /// It is too far from the model.
    #[error(
        "it changes what the model says by {got:.2} nats on average over the probe's prompts, at most {max} \
         (adapters.kl_max)"
    )]
    TooFar {
        /// The mean divergence from the model, over its most probable tokens.
        got: f64,
        /// The most that is taken.
        max: f64,
    },
    /// The engine is too busy, or too slow.
    #[error("the probe has not ended within {ADAPTER_PROBE_SECONDS_MAX} seconds")]
    TooSlow,
    /// The engine could not be asked.
    #[error("the probe did not run: {0}")]
    Engine(#[from] DirectError),
}

/// Asks the model about all prompts with an adapter and without, for a bounded time.
pub async fn probe(services: &TurnServices, adapter: &Arc<Adapter>, kl_max: f64) -> Result<(), ProbeError> {
    let asked = tokio::time::timeout(PATIENCE, ask_all(services, adapter, kl_max)).await;
    asked.unwrap_or(Err(ProbeError::TooSlow))
}

async fn ask_all(services: &TurnServices, adapter: &Arc<Adapter>, kl_max: f64) -> Result<(), ProbeError> {
    let (mut differs, mut nats) = (false, 0.0);
    for text in PROMPTS {
        let prompt: Arc<[TokenId]> = services.text.tokenizer().encode(text).into();
        let first = Arc::from([prompt[0]]);
        let best = ask(services, &prompt, first, TOP_LOGPROBS_MAX, None).await?;
        let likely: Arc<[TokenId]> = best[0].logprobs.top.iter().map(|(token, _)| *token).collect();
        let base = ask(services, &prompt, likely.clone(), 0, None).await?;
        let scaled = ScaledAdapter { adapter: adapter.clone(), scale: 1.0 };
        let own = ask(services, &prompt, likely, 0, Some(scaled)).await?;
        let of = |scores: &[Score]| scores.iter().map(|score| score.logprobs.logprob).collect::<Vec<f32>>();
        let (base, own) = (of(&base), of(&own));
        if own.iter().any(|x| !x.is_finite()) {
            return Err(ProbeError::NotFinite);
        }
        differs |= base != own;
        nats += divergence(&base, &own) / PROMPTS.len() as f64;
    }
    tracing::info!(adapter = adapter.name, nats, "probed");
    match nats {
        _ if !differs => Err(ProbeError::NoEffect),
        got if got >= kl_max => Err(ProbeError::TooFar { got, max: kl_max }),
        _ => Ok(()),
    }
}

/// The scores of tokens behind a prompt.
async fn ask(
    services: &TurnServices,
    prompt: &Arc<[TokenId]>,
    behind: Arc<[TokenId]>,
    top: u8,
    adapter: Option<ScaledAdapter>,
) -> Result<Vec<Score>, ProbeError> {
    let from = prompt.len() as u32;
    let asked = PromptScores { top, from, behind };
    let scores = scores_behind(&services.handles, &services.live, prompt.clone(), (asked, adapter)).await?;
    let finite = scores.iter().all(|score| score.finite);
    finite.then_some(scores).ok_or(ProbeError::NotFinite)
}

/// Kullback and Leibler's divergence of the second from the first, over these tokens and all others taken as one: over
/// the whole vocabulary it is no less.
fn divergence(base: &[f32], own: &[f32]) -> f64 {
    let term = |p: f64, q: f64| if p > 0.0 { p * (p / q.max(f64::MIN_POSITIVE)).ln() } else { 0.0 };
    let p = |logprobs: &[f32]| logprobs.iter().map(|x| f64::from(*x).exp()).collect::<Vec<_>>();
    let (base, own) = (p(base), p(own));
    let rest = |all: &[f64]| (1.0 - all.iter().sum::<f64>()).max(0.0);
    base.iter().zip(&own).map(|(p, q)| term(*p, *q)).sum::<f64>() + term(rest(&base), rest(&own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_divergence_is_that_of_the_tokens_and_of_the_rest_as_one() {
        let logs = |p: &[f32]| p.iter().map(|p| p.ln()).collect::<Vec<_>>();
        assert_eq!(divergence(&logs(&[0.5, 0.25]), &logs(&[0.5, 0.25])), 0.0);
        let got = divergence(&logs(&[0.5]), &logs(&[0.25]));
        let want = 0.5 * 2f64.ln() + 0.5 * (0.5f64 / 0.75).ln();
        assert!((got - want).abs() < 1e-7, "{got} for {want}");
        assert!(divergence(&logs(&[0.5]), &[-1e4]) > 100.0);
    }
}
