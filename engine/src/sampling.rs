//! How one sequence's next token is chosen. The values were checked where the request came in; the order in which they
//! apply is fixed: logit_bias; what may not come; penalties; biases, then mixtures of tables; temperature; top-k;
//! top-p; min-p. Ties go to the lower id. Which tokens may come and what is added for a row is a
//! [`crate::constraint::Constraint`].

use crate::ids::TokenId;

/// Sampling parameters of one request, shared by its choices.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0 takes the most probable token, and then nothing below matters but bias, penalties and masks.
    pub temperature: f32,
    /// Keep the smallest set of tokens whose probability reaches this; 1 keeps all.
    pub top_p: f32,
    /// Keep this many most probable tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep tokens at least this fraction as probable as the best one; 0 keeps all.
    pub min_p: f32,
    /// Key of the Philox generator; the counter is (output index, choice index, draw).
    pub seed: u64,
    /// Divides positive and multiplies negative logits of every token seen in prompt or output; 1 is neutral.
    pub repetition_penalty: f32,
    /// Subtracted once from the logit of every token seen in the output; 0 is neutral.
    pub presence_penalty: f32,
    /// Subtracted as often as the token stands in the output; 0 is neutral.
    pub frequency_penalty: f32,
    /// Added to the logits; ids are unique and inside the vocabulary.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Report the chosen token's log-probability and this many of the most probable ones, from the unedited logits at
    /// temperature 1 unless `processed`.
    pub logprobs: Option<u8>,
    /// Report those of the distribution that the token is drawn from: after everything above, and with nothing of what
    /// cannot be drawn. At temperature 0 nothing is drawn: those of the edited logits at temperature 1.
    pub processed: bool,
    /// Report entropy and top probability of the unedited logits with each token.
    pub certainty: bool,
    /// Report with each token what else stood behind it: [`crate::step::RowReport`].
    pub report: bool,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            seed: 0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            logprobs: None,
            processed: false,
            certainty: false,
            report: false,
        }
    }
}

impl SamplingParams {
    /// Greedy decoding with nothing else.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Whether what was read and said before shows in how a token is chosen.
    pub fn reads_history(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }
}

/// How sure the model was of a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Certainty {
    /// Entropy of the unedited distribution, in nats.
    pub entropy: f32,
    /// Probability of the most probable token.
    pub top_prob: f32,
}
