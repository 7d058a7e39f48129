//! How one sequence's next token is chosen. The values were checked where the request came in; the order in which they apply
//! is fixed: logit_bias, min_tokens, mask; penalties; sparse edits; temperature; top-k; top-p; min-p. Ties go to the lower id.

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
    /// The `end_ids` cannot be sampled before this many tokens were generated.
    pub min_tokens: u32,
    /// Ids that end the sequence, masked until `min_tokens` is reached.
    pub end_ids: Vec<TokenId>,
    /// Report the chosen token's log-probability and this many of the most probable ones, from the unedited logits at
    /// temperature 1.
    pub logprobs: Option<u8>,
    /// Report entropy and top probability of the unedited logits with each token.
    pub certainty: bool,
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
            min_tokens: 0,
            end_ids: Vec::new(),
            logprobs: None,
            certainty: false,
        }
    }
}

impl SamplingParams {
    /// Greedy decoding with nothing else.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }
}
