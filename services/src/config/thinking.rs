//! The section `thinking`: bounds of its keys. What they mean stands where they are used.

use super::check::{InvalidKey, within};
use crate::limits;
use crate::text::thinking::Settings as Thinking;

/// What depends on the model is checked where the model is known.
pub(super) fn check(thinking: &Thinking) -> Result<(), InvalidKey> {
    for (key, share) in [
        ("hold_entropy", thinking.hold_entropy),
        ("hold_top_prob", thinking.hold_top_prob),
        ("stop_entropy", thinking.stop_entropy),
        ("stop_top_prob", thinking.stop_top_prob),
        ("probe_entropy", thinking.probe_entropy),
    ] {
        within(key, share, 0.0..=1.0)?;
    }
    within("window_tokens", thinking.window_tokens, 1..=limits::THINKING_WINDOW_TOKENS_MAX)?;
    within("probe_tokens", thinking.probe_tokens, 1..=limits::PROBE_TOKENS_MAX)?;
    if thinking.hold_words.iter().any(|word| word.trim().is_empty()) {
        return Err(("hold_words", "must not have an empty word".into()));
    }
    let (got, max) = (thinking.hold_words.len(), limits::HOLD_WORDS_MAX);
    if got > max { Err(("hold_words", format!("has {got} words, at most {max} are taken"))) } else { Ok(()) }
}
