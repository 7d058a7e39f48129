//! How far a candidate's next tokens are from the served version's, on fixed prompts: computed from what the model says
//! and from what the tables add to it, as the sampler does.

use super::arms::{Arms, request};
use crate::actors::request::score::scores_behind;
use crate::http::app::App;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::direct_error;
use crate::learning::gate::ProbeDivergence;
use crate::learning::questions::CheckedQuestion;
use chimere_engine::constraint::Effect;
use chimere_engine::engram::TableSequence;
use chimere_engine::ids::TokenId;
use chimere_engine::scheduler::PromptScores;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What tables add to a token, as a part of all that the model says: its weight in either version.
type Weights = BTreeMap<TokenId, [f64; 2]>;

/// Looks at all probes.
pub(super) async fn divergence(
    app: &App,
    arms: &Arms<'_>,
    probes: &[CheckedQuestion],
) -> Result<ProbeDivergence, ApiError> {
    let (mut sum, mut largest) = (0.0, 0.0f64);
    for probe in probes {
        let nats = of_probe(app, arms, probe).await?;
        sum += nats;
        largest = largest.max(nats);
    }
    let probes = probes.len() as u64;
    Ok(ProbeDivergence { probes, mean: sum / probes.max(1) as f64, largest })
}

async fn of_probe(app: &App, arms: &Arms<'_>, probe: &CheckedQuestion) -> Result<f64, ApiError> {
    let (prompt, served) = weights(app, probe, &arms.served).await?;
    let (_, candidate) = weights(app, probe, &arms.candidate).await?;
    let mut both = Weights::new();
    served.into_iter().for_each(|(token, weight)| both.entry(token).or_default()[0] = weight);
    candidate.into_iter().for_each(|(token, weight)| both.entry(token).or_default()[1] = weight);
    // Where neither says anything both are the model.
    if both.is_empty() {
        return Ok(0.0);
    }
    let behind: Arc<[TokenId]> = both.keys().copied().collect();
    let asked = PromptScores { top: 0, from: prompt.len() as u32, behind };
    let scores = scores_behind(&app.turns.handles, &app.turns.live, prompt, (asked, None)).await;
    let scores = scores.map_err(|error| direct_error(error, "messages"))?;
    let model = scores.iter().map(|score| f64::from(score.logprobs.logprob).exp());
    Ok(nats(&model.zip(both.into_values()).collect::<Vec<_>>()))
}

/// The prompt of a probe, and what tables add behind it.
async fn weights(
    app: &App,
    probe: &CheckedQuestion,
    tables: &[String],
) -> Result<(Arc<[TokenId]>, Vec<(TokenId, f64)>), ApiError> {
    let request = request(app, probe, tables).await?;
    let prompt = request.prompts[0].clone();
    let effect = request.engram.tables.first().and_then(|tables| TableSequence::first_effect(&prompt, tables.clone()));
    let weights = match effect {
        None => Vec::new(),
        Some(Effect::Mix(weights)) => weights.into_iter().map(|(token, weight)| (token, f64::from(weight))).collect(),
        Some(_) => {
            let message = "the divergence of a candidate is known where engram.mode is auto or mixture";
            return Err(ApiError::invalid("engram.mode", message));
        }
    };
    Ok((prompt, weights))
}

/// Kullback and Leibler's divergence of the second version from the first, in nats: over tokens that a table adds to,
/// each with what the model says and what either adds, and over all others together. A table's weights are mixed in as
/// `(p + w) / (1 + sum of w)`.
fn nats(listed: &[(f64, [f64; 2])]) -> f64 {
    let all = |arm: usize| 1.0 + listed.iter().map(|(_, weights)| weights[arm]).sum::<f64>();
    let (served, candidate) = (all(0), all(1));
    let term = |p: f64, q: f64| if p > 0.0 { p * (p / q.max(f64::MIN_POSITIVE)).ln() } else { 0.0 };
    let rest = (1.0 - listed.iter().map(|(p, _)| p).sum::<f64>()).max(0.0);
    let of =
        |(p, [w_served, w_candidate]): &(f64, [f64; 2])| term((p + w_served) / served, (p + w_candidate) / candidate);
    (listed.iter().map(of).sum::<f64>() + term(rest / served, rest / candidate)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_divergence_is_that_of_the_mixed_probabilities() {
        assert_eq!(nats(&[]), 0.0);
        assert!(nats(&[(0.3, [0.5, 0.5]), (0.1, [0.2, 0.2])]) < 1e-12);
        // Of two tokens of a half each, the candidate adds one to the first: three quarters and a quarter.
        let want = 0.5 * (0.5f64 / 0.75).ln() + 0.5 * (0.5f64 / 0.25).ln();
        assert!((nats(&[(0.5, [0.0, 1.0])]) - want).abs() < 1e-12);
        let back = 0.75 * (0.75f64 / 0.5).ln() + 0.25 * (0.25f64 / 0.5).ln();
        assert!((nats(&[(0.5, [1.0, 0.0])]) - back).abs() < 1e-12);
        assert!(nats(&[(1e-9, [0.0, 49.0])]) > 3.0, "a table that takes nearly all");
    }
}
