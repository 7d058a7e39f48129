//! Which tokens a sequence has read, for penalties.

use crate::ids::TokenId;
use std::collections::HashMap;

/// Tokens of a prompt and counts of what was generated after it.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    seen: HashMap<TokenId, Seen>,
}

/// How a token was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) in_prompt: bool,
    pub(crate) output_count: u32,
}

impl History {
    /// Of a prompt that was read so far.
    pub(crate) fn of_prompt(tokens: &[TokenId]) -> Self {
        let seen = Seen { in_prompt: true, output_count: 0 };
        Self { seen: tokens.iter().map(|token| (*token, seen)).collect() }
    }

    /// Notes a token at a position.
    pub(crate) fn push(&mut self, token: TokenId, position: u32, prompt_len: u32) {
        let seen = self.seen.entry(token).or_default();
        if position < prompt_len {
            seen.in_prompt = true;
        } else {
            seen.output_count += 1;
        }
    }

    /// Notes a token after the prompt.
    pub(crate) fn push_output(&mut self, token: TokenId) {
        self.seen.entry(token).or_default().output_count += 1;
    }

    /// Every token seen, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TokenId, Seen)> + '_ {
        self.seen.iter().map(|(t, s)| (*t, *s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_and_output_are_counted_apart() {
        let mut h = History::default();
        [5, 5, 6, 5].iter().enumerate().for_each(|(i, t)| h.push(*t, i as u32, 2));
        let mut all: Vec<_> = h.iter().collect();
        all.sort_unstable_by_key(|(t, _)| *t);
        assert_eq!(
            all,
            [(5, Seen { in_prompt: true, output_count: 1 }), (6, Seen { in_prompt: false, output_count: 1 })]
        );
    }
}
