//! From the log-probabilities of options to an answer.

use super::question::{DecisionQuestion, QuestionKind};

/// What came out of a question: probabilities in the order of its options, which sum to 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// How likely it is that the statement is true.
    Predicate {
        /// That the statement is true.
        probability: f64,
    },
    /// Which of the options fits best.
    Choice {
        /// The most probable one; the first of equals.
        choice: usize,
        /// Those of each option, in order.
        probabilities: Vec<f64>,
    },
    /// Which level is reached.
    Score {
        /// The expected level, the lowest one being 0.
        score: f64,
        /// Those of each level, in order.
        probabilities: Vec<f64>,
    },
}

impl Decision {
    /// Of the probabilities of a question's options.
    pub fn of(question: &DecisionQuestion, probabilities: Vec<f64>) -> Self {
        match question.kind {
            QuestionKind::Predicate => Self::Predicate { probability: probabilities[0] },
            QuestionKind::Choice => Self::Choice { choice: most(&probabilities), probabilities },
            QuestionKind::Score => {
                let score = probabilities.iter().enumerate().map(|(level, p)| level as f64 * p).sum();
                Self::Score { score, probabilities }
            }
        }
    }
}

/// The most probable option's probability, in which an answer is confident.
pub fn confidence(probabilities: &[f64]) -> f64 {
    probabilities[most(probabilities)]
}

fn most(probabilities: &[f64]) -> usize {
    let larger = |best: usize, at: usize| if probabilities[at] > probabilities[best] { at } else { best };
    (0..probabilities.len()).fold(0, larger)
}

/// Probabilities of options, of which one is taken, with these log-probabilities.
pub fn shares(logprobs: &[f64]) -> Vec<f64> {
    let most = logprobs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logprobs.iter().map(|x| (x - most).exp()).collect();
    let all: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::question::{DecisionOption, OptionValue};

    #[test]
    fn options_share_what_they_have_together_however_little_that_is() {
        assert_eq!(shares(&[-1000.0, -1000.0]), [0.5, 0.5]);
        let three = shares(&[-2000.0, -2000.0 + 3f64.ln(), -3000.0]);
        assert!((three[1] - 0.75).abs() < 1e-12 && three[2] == 0.0, "{three:?}");
    }

    #[test]
    fn an_answer_has_the_best_option_or_the_expected_level() {
        let option = |text: &str| DecisionOption { value: OptionValue::Text(text.into()), description: None };
        let of = |kind| DecisionQuestion {
            name: None,
            instructions: "?".into(),
            kind,
            options: ["a", "b", "c"].map(option).into(),
        };
        let p = vec![0.25, 0.25, 0.5];
        assert_eq!(
            Decision::of(&of(QuestionKind::Choice), p.clone()),
            Decision::Choice { choice: 2, probabilities: p.clone() }
        );
        assert_eq!(
            Decision::of(&of(QuestionKind::Score), p.clone()),
            Decision::Score { score: 1.25, probabilities: p.clone() }
        );
        assert_eq!(confidence(&p), 0.5);
        assert_eq!(most(&[0.4, 0.4, 0.2]), 0);
    }
}
