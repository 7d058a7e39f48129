//! What a request asks of the engine.

use crate::adapter::ScaledAdapter;
use crate::constraint::Sources;
use crate::constraint::thinking::Thinking;
use crate::format::blocks::SplitMix;
use crate::ids::{CacheScope, TokenId};
use crate::sampling::SamplingParams;
use crate::step::ExpertCut;
use std::sync::Arc;

/// Everything that a request asks for beside its prompt. Made once, where the request is checked: counts, ids and
/// sampling parameters are all in range for the model. Nobody changes it afterwards, and everybody who needs a part of
/// it shares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Choices to generate from the prompt, at least 1.
    pub choices: u32,
    /// Tokens to generate a choice; 0 computes and scores the prompt only. `None` takes the rest of the context.
    pub max_tokens: Option<u32>,
    /// None of `end_ids` comes before so many tokens.
    pub min_tokens: u32,
    /// Ids that end a choice; the id itself is reported as the last token. Empty under `ignore_eos`.
    pub end_ids: Arc<[TokenId]>,
    /// How tokens are chosen.
    pub sampling: Arc<SamplingParams>,
    /// Lower runs first and is preempted last.
    pub priority: i32,
    /// Report log-probabilities of the prompt, and of tokens that may follow it.
    pub score_prompt: Option<PromptScores>,
    /// Bounds of its thinking; `None` leaves it alone.
    pub thinking: Option<Arc<Thinking>>,
    /// Rows after the prompt take only as many experts as they need. The prompt takes all: its state is shared with
    /// requests that ask otherwise.
    pub experts: Option<ExpertCut>,
    /// What is added to the model's matrices for this request, which finds prompts of the same adapter and scale alone
    /// in the prefix cache.
    pub adapter: Option<ScaledAdapter>,
    /// Deferred sources of rules about its tokens: every row waits for them.
    pub waits_for: Sources,
    /// Report the prompt's hidden state. Such a request has one choice and wants no token.
    pub pool: Option<Pooling>,
    /// Tokens may be drafted for it. It changes no byte.
    pub drafts: bool,
    /// What the answer may be like: a source of drafts.
    pub prediction: Option<Arc<[TokenId]>>,
    /// The scope whose prompts it may go on from, and which may go on from its own; `None` neither looks nor leaves
    /// anything.
    pub cache: Option<CacheScope>,
}

impl Default for Spec {
    /// One choice of as many tokens as fit, which nothing ends or bounds.
    fn default() -> Self {
        Self {
            choices: 1,
            max_tokens: None,
            min_tokens: 0,
            end_ids: Arc::new([]),
            sampling: Arc::default(),
            priority: 0,
            score_prompt: None,
            thinking: None,
            experts: None,
            adapter: None,
            waits_for: Sources::NONE,
            pool: None,
            drafts: true,
            prediction: None,
            cache: None,
        }
    }
}

impl Spec {
    /// The scope of the prefix cache that it looks in and leaves its prompt in: that of `cache`, and of its adapter and
    /// scale alone where it has one, for an adapter changes what a prompt leaves behind.
    pub fn cache_scope(&self) -> Option<CacheScope> {
        let own = |scaled: &ScaledAdapter, half| {
            let number = SplitMix::nth(scaled.adapter.number, half);
            u128::from(SplitMix::nth(number ^ u64::from(scaled.scale.to_bits()), half))
        };
        let apart = self.adapter.as_ref().map_or(0, |scaled| own(scaled, 1) << 64 | own(scaled, 2));
        self.cache.map(|scope| CacheScope(scope.0 ^ apart))
    }

    /// So many positions at the beginning of a prompt of this length report nothing, so a cache may have them: all but
    /// the last one where nobody asks about others, and none where each reports something.
    pub(crate) fn silent_rows(&self, prompt_len: u32) -> u32 {
        let first_token = self.score_prompt.as_ref().map_or(prompt_len, |scores| scores.from.min(prompt_len));
        if self.pool == Some(Pooling::Mean) { 0 } else { first_token.saturating_sub(1) }
    }

    /// So many tokens of one choice, the most probable ones.
    pub fn greedy(max_tokens: u32) -> Self {
        Self { max_tokens: Some(max_tokens), sampling: Arc::new(SamplingParams::greedy()), ..Self::default() }
    }
}

/// Which log-probabilities of a prompt are reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptScores {
    /// How many of the most probable alternatives come with each.
    pub top: u8,
    /// Position of the first token that is scored. Rows further in front than the one before it report nothing, so a
    /// cache may spare them; the first token of all has no row before it.
    pub from: u32,
    /// Tokens that are scored in the place behind the prompt: at most [`crate::step::SCORED_NEXT_MAX`] of the
    /// vocabulary.
    pub behind: Arc<[TokenId]>,
}

impl PromptScores {
    /// All of the prompt's own tokens, each with so many alternatives.
    pub fn whole(top: u8) -> Self {
        Self { top, ..Self::default() }
    }
}

/// Which rows of a prompt make its hidden state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean over all of them.
    Mean,
    /// The last one, which has read all others.
    Last,
}

impl Pooling {
    /// The first position that counts, of a prompt of this many tokens.
    pub(crate) fn from(self, prompt_len: u32) -> u32 {
        match self {
            Pooling::Mean => 0,
            Pooling::Last => prompt_len - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::Adapter;

    #[test]
    fn an_adapter_finds_its_own_prompts_alone() {
        let scaled = |adapter: &Arc<Adapter>, scale| ScaledAdapter { adapter: adapter.clone(), scale };
        let (first, second) = (Arc::new(Adapter::new("a", Vec::new())), Arc::new(Adapter::new("a", Vec::new())));
        let (first, second, half) = (scaled(&first, 1.0), scaled(&second, 1.0), scaled(&first, 0.5));
        let scope = |cache: Option<u128>, adapter: Option<&ScaledAdapter>| {
            Spec { cache: cache.map(CacheScope), adapter: adapter.cloned(), ..Spec::default() }.cache_scope()
        };
        assert_eq!((scope(Some(7), None), scope(None, Some(&first))), (Some(CacheScope(7)), None));
        assert_eq!(scope(Some(7), Some(&first)), scope(Some(7), Some(&first.clone())));
        let all = [(7, None), (7, Some(&first)), (7, Some(&second)), (8, Some(&first)), (8, None), (7, Some(&half))];
        let all: std::collections::HashSet<_> =
            all.iter().map(|(cache, adapter)| scope(Some(*cache), *adapter)).collect();
        assert_eq!(all.len(), 6);
    }
}
