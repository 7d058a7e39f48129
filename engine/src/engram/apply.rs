//! What a prediction does to logits: two ways, both on the listed tokens only. Tokens that a mask forbids stay
//! forbidden in both.

use super::predict::{Prediction, confidence};
use crate::ids::TokenId;

/// Most that the strength of [`Mode::Bias`] can be.
pub const ALPHA_MAX: f32 = 2.0;
/// Most that the share of [`Mode::Mixture`] can be.
pub const LAMBDA_MAX: f32 = 0.95;
/// B: how far the tables' opinion of one token may be from the prior's, in nats.
pub const BIAS_NATS_MAX: f64 = 5.0;

/// How a prediction is applied. Made by [`Mode::bias`] and [`Mode::mixture`], which check the strength.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Adds alpha * w(N) * clip(ln p_table - ln p_prior, -B, B).
    Bias(Strength),
    /// Samples from (1 - lambda) p_model + lambda p_table.
    Mixture(Strength),
}

/// A strength within its mode's range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Strength(f32);

/// A strength out of range.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{name}: wanted 0 to {max}, got {got}")]
pub struct ModeError {
    /// Which one is out of bounds, `alpha` or `lambda`.
    pub name: &'static str,
    /// The most that it may be.
    pub max: f32,
    /// The strength that was asked for.
    pub got: f32,
}

impl Mode {
    /// The mode that changes no logit.
    pub const SILENT: Self = Self::Mixture(Strength(0.0));

    /// Bias with a strength of 0 to [`ALPHA_MAX`].
    pub fn bias(alpha: f32) -> Result<Self, ModeError> {
        strength("alpha", ALPHA_MAX, alpha).map(Mode::Bias)
    }

    /// Mixture with a share of 0 to [`LAMBDA_MAX`].
    pub fn mixture(lambda: f32) -> Result<Self, ModeError> {
        strength("lambda", LAMBDA_MAX, lambda).map(Mode::Mixture)
    }
}

fn strength(name: &'static str, max: f32, got: f32) -> Result<Strength, ModeError> {
    if (0.0..=max).contains(&got) { Ok(Strength(got)) } else { Err(ModeError { name, max, got }) }
}

/// A prediction made ready for the sampler, by rising id. Neither kind needs the logits to be known when it is made.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixing {
    /// To be added to logits.
    Add(Vec<(TokenId, f32)>),
    /// lambda / (1 - lambda) * p_table, for [`Mixing::mixed`] and for [`crate::constraint::Effect::Mix`].
    Mix(Vec<(TokenId, f32)>),
}

impl Mixing {
    /// Of a prediction; empty where the strength is 0 or nothing is listed.
    ///
    /// In a mixture p_table is taken as it is: what the tables leave to unlisted tokens goes to the model. So a context
    /// that was seen once moves little, whatever lambda is.
    pub fn new(prediction: &Prediction, mode: Mode) -> Self {
        let listed = || prediction.listed.iter();
        match mode {
            Mode::Bias(Strength(0.0)) => Mixing::Add(Vec::new()),
            Mode::Mixture(Strength(0.0)) => Mixing::Mix(Vec::new()),
            Mode::Bias(Strength(alpha)) => {
                let scale = f64::from(alpha) * confidence(prediction.seen);
                let bias = |p: f64, prior: f64| scale * (p.ln() - prior.ln()).clamp(-BIAS_NATS_MAX, BIAS_NATS_MAX);
                Mixing::Add(listed().map(|t| (t.token, bias(t.p, t.prior) as f32)).collect())
            }
            Mode::Mixture(Strength(lambda)) => {
                let lambda = f64::from(lambda);
                let odds = lambda / (1.0 - lambda);
                Mixing::Mix(listed().map(|t| (t.token, (odds * t.p) as f32)).collect())
            }
        }
    }

    /// The logit of a listed token in the mixture, up to the constant ln(1 - lambda) that all tokens share:
    /// ln(e^logit + weight * e^lse). `lse` is the log-sum-exp of all logits. A masked token has the logit minus
    /// infinity and keeps it. The sampler's own arithmetic, the same bit for bit on every backend, is in
    /// `chimere_kernels::reference::sampler`.
    pub fn mixed(logit: f32, weight: f32, lse: f32) -> f32 {
        if logit == f32::NEG_INFINITY {
            return logit;
        }
        let table = weight.ln() + lse;
        let (high, low) = if logit > table { (logit, table) } else { (table, logit) };
        high + (low - high).exp().ln_1p()
    }
}
