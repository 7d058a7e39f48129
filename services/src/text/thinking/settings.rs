//! How a model thinks, as an operator says it: the section `thinking` of the configuration.

use serde::{Deserialize, Serialize};

/// How long a model thinks for requests that say something about it. Entropies are shares of the greatest one that the
/// vocabulary allows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thinking {
    /// What is forced to close a thought.
    pub end_text: String,
    /// Thinking tokens of the effort `minimal`; 0 for no bound.
    pub minimal_tokens: u32,
    /// Thinking tokens of the effort `low`; 0 for no bound.
    pub low_tokens: u32,
    /// Thinking tokens of the effort `medium`; 0 for no bound.
    pub medium_tokens: u32,
    /// Thinking tokens of the effort `high`; 0 for no bound.
    pub high_tokens: u32,
    /// Tokens over which certainty is averaged.
    pub window_tokens: u32,
    /// Words of doubt, which are held back while the model is certain.
    pub hold_words: Vec<String>,
    /// Most entropy at which these are held back.
    pub hold_entropy: f64,
    /// Least probability of the best token at which these are held back.
    pub hold_top_prob: f64,
    /// Thinking tokens before certainty may close a thought; 0 for never.
    pub stop_tokens_min: u32,
    /// Most entropy at which a thought is closed.
    pub stop_entropy: f64,
    /// Least probability of the best token at which a thought is closed.
    pub stop_top_prob: f64,
    /// Tokens of the answer that the effort `auto` tries without a thought.
    pub probe_tokens: u32,
    /// Most entropy of any of these tokens for that answer to be sure.
    pub probe_entropy: f64,
}

impl Default for Thinking {
    fn default() -> Self {
        Self {
            end_text: "\n</think>\n\n".into(),
            minimal_tokens: 256,
            low_tokens: 1024,
            medium_tokens: 4096,
            high_tokens: 0,
            window_tokens: 16,
            hold_words: ["Wait", "Hmm", "Let", "Alternatively", "Actually"].map(str::to_owned).to_vec(),
            hold_entropy: 0.02,
            hold_top_prob: 0.95,
            stop_tokens_min: 0,
            stop_entropy: 0.01,
            stop_top_prob: 0.98,
            probe_tokens: 24,
            probe_entropy: 0.02,
        }
    }
}
