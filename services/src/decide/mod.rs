//! Decisions: how probable each of a question's options is, as the model's own answer to it. The questions and their
//! answers as texts, tokens and numbers; `turn/decisions` asks the model. Knows texts, and nothing of requests.

mod answer;
mod calibration;
mod paths;
mod question;
mod wording;

pub use answer::{Decision, confidence, shares};
pub use calibration::{Temperatures, TemperaturesError, at_temperature, fit};
pub use paths::AnswerPaths;
pub use question::{DecisionOption, DecisionQuestion, OptionValue, QuestionKind};
pub use wording::{answer, ask};

use std::sync::Arc;

/// What holds for requests that do not say.
#[derive(Clone, Debug, PartialEq)]
pub struct DecideSettings {
    /// In how many orders the options of a choice are shown.
    pub orders: u32,
    /// Temperatures of questions that were fitted before.
    pub calibration: Arc<Temperatures>,
}

impl Default for DecideSettings {
    fn default() -> Self {
        Self { orders: 1, calibration: Arc::default() }
    }
}
