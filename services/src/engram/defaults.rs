//! What holds for a request that does not say: a strength, a phase, tables.

use chimere_engine::engram::{ALPHA_MAX, LAMBDA_MAX};
use serde::{Deserialize, Serialize};

/// How predictions are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModeName {
    /// A strength that is computed at each position.
    Auto,
    /// (1 - lambda) of the model's probability and lambda of the tables'.
    Mixture,
    /// A multiple of the tables' log-odds, added to logits.
    Bias,
}

/// The part of an output in which tables speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PhaseName {
    /// Tables speak outside of thinking only.
    Answer,
    /// Tables speak inside a thought and outside.
    All,
}

/// The settings of a request, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Defaults {
    /// Names of the tables that are asked.
    pub tables: Vec<String>,
    /// How predictions are applied.
    pub mode: ModeName,
    /// Strength of a bias, 0 to 2.
    pub alpha: f32,
    /// Share of a mixture, 0 to 0.95.
    pub lambda: f32,
    /// Continuations with fewer occurrences are passed over.
    pub min_count: u32,
    /// The part of an output in which tables speak.
    pub phase: PhaseName,
}

impl Default for Defaults {
    /// A computed strength; those of the other modes are for who asks for these.
    fn default() -> Self {
        Self {
            tables: Vec::new(),
            mode: ModeName::Auto,
            alpha: 0.1,
            lambda: 0.3,
            min_count: 1,
            phase: PhaseName::Answer,
        }
    }
}

/// Settings that may be given or left out; each that is there wins over what is below it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overrides {
    /// Names of the tables that are asked, as in [`Defaults`].
    pub tables: Option<Vec<String>>,
    /// How predictions are applied, as in [`Defaults`].
    pub mode: Option<ModeName>,
    /// Strength of a bias, as in [`Defaults`].
    pub alpha: Option<f32>,
    /// Share of a mixture, as in [`Defaults`].
    pub lambda: Option<f32>,
    /// Least count of a continuation, as in [`Defaults`].
    pub min_count: Option<u32>,
    /// The part of an output in which tables speak, as in [`Defaults`].
    pub phase: Option<PhaseName>,
}

impl Overrides {
    /// A strength without a mode means its mode.
    fn mode_of_strength(&self) -> Option<ModeName> {
        let mixture = self.lambda.map(|_| ModeName::Mixture);
        mixture.or(self.alpha.map(|_| ModeName::Bias))
    }

    /// Lays them over `below`.
    pub fn over(&self, below: &Defaults) -> Defaults {
        Defaults {
            tables: self.tables.clone().unwrap_or_else(|| below.tables.clone()),
            mode: self.mode.or(self.mode_of_strength()).unwrap_or(below.mode),
            alpha: self.alpha.unwrap_or(below.alpha),
            lambda: self.lambda.unwrap_or(below.lambda),
            min_count: self.min_count.unwrap_or(below.min_count),
            phase: self.phase.unwrap_or(below.phase),
        }
    }
}

impl Defaults {
    /// The first setting that is out of range, with what was wanted.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        for (name, value, max) in [("alpha", self.alpha, ALPHA_MAX), ("lambda", self.lambda, LAMBDA_MAX)] {
            if !(0.0..=max).contains(&value) {
                return Err((name, format!("must lie between 0 and {max}, got {value}")));
            }
        }
        if self.min_count == 0 {
            return Err(("min_count", "must be at least 1, got 0".into()));
        }
        Ok(())
    }
}
