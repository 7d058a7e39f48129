//! What a request asks for, checked: made once where its body is read, and shared from there to the scheduler.

use chimere_engine::constraint::Sources;
use chimere_engine::constraint::thinking::Thinking;
use chimere_engine::ids::{CacheScope, TokenId};
use chimere_engine::scheduler::Spec;
use std::sync::Arc;

/// The engine's part and the service's own. A field of a request stands in one of the two, and is read there by whoever
/// needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestSpec {
    /// What the engine is asked for each prompt.
    pub engine: Arc<Spec>,
    /// Strings that end a choice and are not shown.
    pub stop: Vec<String>,
    /// Answer as server-sent events.
    pub stream: bool,
    /// What a stream tells beside the answer.
    pub stream_options: StreamOptions,
    /// Tokens are told by their ids as they come, end ids too.
    pub token_ids: bool,
}

/// What a stream tells beside the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Usage, in a chunk of its own at the end.
    pub include_usage: bool,
    /// What the service does itself, in chunks of their own as it happens.
    pub include_steps: bool,
}

impl RequestSpec {
    /// The request completed by what is known when its prompts are: the seed of its random numbers, the rules for
    /// thoughts that come after such a prompt, the deferred sources that have something to say, who shares its prompt,
    /// and what the answer may be.
    pub fn complete(
        mut self,
        seed: u64,
        thinking: Option<Arc<Thinking>>,
        waits_for: Sources,
        cache: Option<CacheScope>,
        prediction: Option<Arc<[TokenId]>>,
    ) -> Self {
        let engine = Arc::make_mut(&mut self.engine);
        let sampling = Arc::make_mut(&mut engine.sampling);
        sampling.seed = seed;
        sampling.certainty |= thinking.as_ref().is_some_and(|rules| rules.adaptive.is_some());
        engine.thinking = thinking;
        engine.waits_for = waits_for;
        engine.cache = cache;
        engine.prediction = prediction;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_engine::constraint::Source;
    use chimere_engine::constraint::thinking::{Adaptive, Level};

    #[test]
    fn thoughts_that_certainty_may_shorten_have_it_reported() {
        let (engine, stream_options) = (Arc::new(Spec::greedy(9)), StreamOptions::default());
        let spec = RequestSpec { engine, stop: Vec::new(), stream: false, stream_options, token_ids: false };
        let plain = spec.clone().complete(7, None, Sources::only(Source::Tables), None, None).engine;
        assert_eq!((plain.sampling.seed, plain.sampling.certainty), (7, false));
        assert!(plain.waits_for.contains(Source::Tables) && plain.thinking.is_none());
        let level = Level { entropy_max: 0.1, top_prob_min: 0.9 };
        let adaptive = Adaptive { window: 2, hold: level, held: [5].into(), stop: None, stop_tokens_min: 0 };
        let rules =
            Thinking { opens: None, ends: vec![1], closing: vec![2], tokens_max: None, adaptive: Some(adaptive) };
        let rules = Arc::new(rules);
        let (scope, text) = (Some(CacheScope(3)), Some(Arc::from([4, 5])));
        let thinks = spec.clone().complete(7, Some(rules.clone()), Sources::NONE, scope, text.clone()).engine;
        assert_eq!(thinks.prediction, text);
        assert!(thinks.sampling.certainty && thinks.thinking == Some(rules) && thinks.cache == Some(CacheScope(3)));
        assert_eq!(spec.engine.sampling.seed, 0, "who has it keeps what was shared");
    }
}
