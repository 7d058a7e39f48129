//! How the served model thinks, in its own tokens: what opens and closes a thought, what a word of doubt is, how much
//! an effort may cost. From this and from what a request asks for come the rules that the engine follows.

mod settings;

// Its own name is that of the section: the fingerprint that clients see is made of it.
pub use settings::Thinking as Settings;

use super::parser::{CALL, THINK, THINK_END};
use super::prompt;
use super::tokenizer::Tokenizer;
use chimere_engine::constraint::thinking::{Adaptive, Level, Thinking};
use chimere_engine::ids::TokenId;

/// A model's thinking, as the operator allows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Thoughts {
    opens: TokenId,
    ends: TokenId,
    /// Begins a tool call, which cannot stand inside a thought.
    call: Option<TokenId>,
    closing: Vec<TokenId>,
    /// What is held back while the model is certain, and when; the tokens are those of `held`.
    adaptive: Adaptive,
    /// Thinking tokens of each effort; `None` for no bound.
    efforts: [Option<u32>; 4],
    /// How the answer without a thought is tried.
    pub probe: ProbeRule,
    /// The greatest entropy that the vocabulary allows, in nats.
    entropy_most: f64,
}

/// When an answer without a thought is good enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeRule {
    /// Tokens of the answer that are tried.
    pub tokens: u32,
    /// Most entropy that any of them may have, in nats.
    pub entropy_max: f32,
}

/// How much a request wants thought about it, for those that think at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Thinks for as few tokens as the setting `minimal_tokens` allows.
    Minimal,
    /// Thinks for at most `low_tokens`.
    Low,
    /// Think as long as is usual.
    Medium,
    /// Think as long as it takes.
    High,
}

/// What a request says about thinking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reasoning {
    /// Whether the answer begins with a thought.
    pub mode: ThinkingMode,
    /// Thinking tokens a choice; `None` for no bound.
    pub tokens_max: Option<u32>,
    /// Let certainty shorten it.
    pub adaptive: bool,
}

/// Whether an answer begins with a thought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkingMode {
    /// The answer begins without a thought.
    Off,
    /// The answer begins after a thought.
    On,
    /// Think if an answer without a thought would be unsure.
    Auto,
}

impl Thoughts {
    /// Of a model with this tokenizer and vocabulary. `None` if it has no tokens for thoughts, and so none to bound. A
    /// setting that cannot be followed is named in the error.
    pub fn new(tokenizer: &Tokenizer, vocab: u32, settings: &Settings) -> Result<Option<Self>, String> {
        let (Some(opens), Some(ends)) = (tokenizer.id(THINK), tokenizer.id(THINK_END)) else { return Ok(None) };
        // As the sampler's entropy is: in nats, at most those of an even choice from the vocabulary.
        let entropy_most = f64::from(vocab.max(2)).ln();
        let nats = |share: f64| (share * entropy_most) as f32;
        let level = |entropy: f64, top_prob: f64| Level { entropy_max: nats(entropy), top_prob_min: top_prob as f32 };
        let bound = |tokens: u32| (tokens > 0).then_some(tokens);
        let adaptive = Adaptive {
            window: settings.window_tokens,
            hold: level(settings.hold_entropy, settings.hold_top_prob),
            held: held(tokenizer, &settings.hold_words).into(),
            stop: (settings.stop_tokens_min > 0).then(|| level(settings.stop_entropy, settings.stop_top_prob)),
            stop_tokens_min: settings.stop_tokens_min,
        };
        Ok(Some(Self {
            opens,
            ends,
            call: tokenizer.id(CALL),
            closing: closing(tokenizer, ends, &settings.end_text)?,
            adaptive,
            efforts: [settings.minimal_tokens, settings.low_tokens, settings.medium_tokens, settings.high_tokens]
                .map(bound),
            probe: ProbeRule { tokens: settings.probe_tokens, entropy_max: nats(settings.probe_entropy) },
            entropy_most,
        }))
    }

    /// Thinking tokens that an effort may cost; `None` for any number.
    pub fn tokens_of(&self, effort: Effort) -> Option<u32> {
        self.efforts[effort as usize]
    }

    /// The tokens that close a thought.
    pub fn closing(&self) -> &[TokenId] {
        &self.closing
    }

    /// An entropy in nats as a share of the greatest one.
    pub fn share(&self, nats: f32) -> f32 {
        (f64::from(nats) / self.entropy_most) as f32
    }

    /// What the engine is to do, for an output that begins as `begin` says. `None` if no thought can come, or nothing
    /// bounds it.
    pub fn rules(&self, asked: Reasoning, begin: prompt::Thinking, tools: bool) -> Option<Thinking> {
        let opens = match begin {
            prompt::Thinking::Closed => return None,
            prompt::Thinking::Open => None,
            prompt::Thinking::Free => Some(self.opens),
        };
        Some(Thinking {
            opens,
            ends: [Some(self.ends), self.call.filter(|_| tools)].into_iter().flatten().collect(),
            closing: self.closing.clone(),
            tokens_max: if asked.mode == ThinkingMode::Off { Some(0) } else { asked.tokens_max },
            adaptive: asked.adaptive.then(|| self.adaptive.clone()),
        })
    }
}

/// The tokens of the text that closes a thought. The first may come right after an end that the model chose itself,
/// where only white space does no harm, and the end must be among them, or nothing would be closed.
fn closing(tokenizer: &Tokenizer, end: TokenId, text: &str) -> Result<Vec<TokenId>, String> {
    let ids = tokenizer.encode(text);
    let blank = ids.first().is_some_and(|id| tokenizer.bytes(*id).iter().all(u8::is_ascii_whitespace));
    if blank && ids.iter().filter(|id| **id == end).count() == 1 {
        return Ok(ids);
    }
    Err(format!("thinking.end_text must begin with a line break and have {THINK_END} once, got {text:?}"))
}

/// Tokens that are exactly one of the words, with or without a blank before it. A longer word cannot be held back: its
/// first token begins others too.
fn held(tokenizer: &Tokenizer, words: &[String]) -> Vec<TokenId> {
    let mut ids = Vec::new();
    for word in words {
        let found: Vec<_> = [word.clone(), format!(" {word}")].iter().filter_map(|form| tokenizer.id(form)).collect();
        if found.is_empty() {
            tracing::debug!(word, "thinking.hold_words: no token of this model");
        }
        ids.extend(found.into_iter().filter(|id| !ids.contains(id)).collect::<Vec<_>>());
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_engine::format::TokenizerSource;

    fn tokenizer() -> Tokenizer {
        Tokenizer::new(&TokenizerSource::Json(
            include_bytes!("../../../engine/tests/golden/moe/tokenizer.json").to_vec(),
        ))
        .unwrap()
    }

    fn thoughts(config: &Settings) -> Result<Thoughts, String> {
        Thoughts::new(&tokenizer(), 512, config).map(|t| t.expect("the tokenizer has thoughts"))
    }

    #[test]
    fn a_thought_is_closed_with_white_space_first_and_one_end() {
        let good = thoughts(&Settings::default()).unwrap();
        assert_eq!(tokenizer().decode(&good.closing, true), "\n</think>\n\n");
        for text in ["", "\n", "</think>\n", "So</think>", "\n</think></think>"] {
            let error = thoughts(&Settings { end_text: text.into(), ..Default::default() }).unwrap_err();
            assert!(
                error.starts_with("thinking.end_text must begin with a line break")
                    && error.contains(&format!("{text:?}"))
            );
        }
    }

    #[test]
    fn an_effort_costs_what_the_configuration_says_and_0_is_no_bound() {
        let t = thoughts(&Settings { low_tokens: 7, high_tokens: 0, ..Default::default() }).unwrap();
        assert_eq!((t.tokens_of(Effort::Low), t.tokens_of(Effort::High)), (Some(7), None));
    }

    #[test]
    fn levels_are_shares_of_the_vocabulary_s_greatest_entropy() {
        let config = Settings { hold_entropy: 0.5, ..Default::default() };
        let t = thoughts(&config).unwrap();
        assert!((t.adaptive.hold.entropy_max - 0.5 * 512f32.ln()).abs() < 1e-6);
        assert!((t.share(512f32.ln() / 4.0) - 0.25).abs() < 1e-6);
    }

    #[test]
    fn the_rules_follow_from_how_the_output_begins() {
        let t = thoughts(&Settings::default()).unwrap();
        let asked = Reasoning { mode: ThinkingMode::On, tokens_max: Some(5), adaptive: false };
        assert_eq!(t.rules(asked, prompt::Thinking::Closed, false), None);
        let open = t.rules(asked, prompt::Thinking::Open, true).unwrap();
        assert_eq!((open.opens, open.tokens_max, open.ends.len()), (None, Some(5), 2));
        let free = t.rules(Reasoning { mode: ThinkingMode::Off, ..asked }, prompt::Thinking::Free, false).unwrap();
        assert_eq!((free.opens, free.tokens_max, free.ends.len()), (tokenizer().id(THINK), Some(0), 1));
    }

    #[test]
    fn a_word_is_held_back_only_where_it_is_one_token() {
        let ids = held(&tokenizer(), &["e".into(), "e".into(), "certainly not one token".into()]);
        assert!(ids.contains(&tokenizer().id("e").unwrap()) && ids.len() <= 2);
    }
}
