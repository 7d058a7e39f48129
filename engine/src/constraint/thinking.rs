//! How long a choice may think, and what closes its thinking: token ids and figures alone, no text.
//!
//! Whatever is decided about output `j` is a function of the outputs up to `j - 2`, whether later ones are known
//! already or not: so a sequence is the same alone and in a batch, with one step in flight and with two, and through
//! preemption. What must happen at a known place, as the end of a budget, needs no earlier token and comes exactly
//! there.

use super::{Effect, Rule, Source};
use crate::ids::TokenId;
use crate::sampling::Certainty;
use std::collections::VecDeque;
use std::sync::Arc;

/// How far before an output the last one stands that a decision about it may read: with two steps in flight that one is
/// known, so no row waits for a decision.
pub(super) const LAG: u32 = 2;

/// Bounds of a request's thinking, shared by its choices.
#[derive(Clone, Debug, PartialEq)]
pub struct Thinking {
    /// The token that opens it as the first output; `None` if the prompt has opened it.
    pub opens: Option<TokenId>,
    /// Tokens that end it: its closing mark, and whatever else can only stand outside.
    pub ends: Vec<TokenId>,
    /// What is forced to close it, at least one token. The first one may come right after an end that the model chose
    /// itself, so it must be one that does no harm there: white space.
    pub closing: Vec<TokenId>,
    /// Tokens it may have before it is closed; `None` for any number.
    pub tokens_max: Option<u32>,
    /// What follows from certainty; needs [`crate::sampling::SamplingParams::certainty`].
    pub adaptive: Option<Adaptive>,
}

/// What follows when the model has been certain for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct Adaptive {
    /// Tokens over which entropy and top probability are averaged, at least 1. Fewer decide nothing.
    pub window: u32,
    /// From here on words of doubt are held back.
    pub hold: Level,
    /// The tokens that cannot be sampled then.
    pub held: Arc<[TokenId]>,
    /// From here on thinking is closed.
    pub stop: Option<Level>,
    /// Thinking tokens before it may be closed for certainty.
    pub stop_tokens_min: u32,
}

/// Means over the window that count as certain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Most entropy, in nats.
    pub entropy_max: f32,
    /// Least probability of the most probable token.
    pub top_prob_min: f32,
}

/// Why a thought ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThoughtEnd {
    /// The model ended it.
    Model,
    /// It had as many tokens as it may have.
    Budget,
    /// The model was certain.
    Certain,
}

/// A choice's thinking when it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thought {
    /// Tokens that the model chose, without the one that ended it.
    pub tokens: u32,
    /// Why the thought ended.
    pub end: ThoughtEnd,
}

/// Follows one choice's outputs. Outputs are taken as they are committed, and read only as far as the output that is
/// decided allows.
#[derive(Debug)]
pub(crate) struct ThoughtWatch {
    rules: Arc<Thinking>,
    state: ThoughtState,
    /// Committed and not read yet.
    unread: VecDeque<(TokenId, Option<Certainty>)>,
    /// How many outputs were read.
    read: u32,
    window: VecDeque<Certainty>,
    holds: bool,
    /// By output, how certain the model was, where that decides: what [`Self::rewind`] reads again.
    certainties: Vec<Option<Certainty>>,
    /// The caller knows how thinking went.
    told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ThoughtState {
    /// The first output decides.
    Unopened,
    /// Thinking from output `since`; outputs from `closing` on are forced.
    Open { since: u32, closing: Option<(u32, ThoughtEnd)> },
    /// Over, or there was none.
    Over { thought: Option<Thought> },
}

impl ThoughtWatch {
    /// For a choice that has no output yet.
    pub(crate) fn new(rules: Arc<Thinking>) -> Self {
        assert!(!rules.closing.is_empty(), "thinking is closed with something");
        let mut watch = Self {
            rules,
            state: ThoughtState::Unopened,
            unread: VecDeque::new(),
            read: 0,
            window: VecDeque::new(),
            holds: false,
            certainties: Vec::new(),
            told: false,
        };
        if watch.rules.opens.is_none() {
            watch.open(0, 0);
        }
        watch
    }

    /// Takes a committed output, which is read when it is needed.
    pub(crate) fn take(&mut self, token: TokenId, certainty: Option<Certainty>) {
        if !self.is_over() {
            self.unread.push_back((token, certainty));
            if self.rules.adaptive.is_some() {
                self.certainties.push(certainty);
            }
        }
    }

    /// Begins again behind these outputs, all of which it has taken. Rows were planned behind them whose tokens will
    /// never come, and for those it has read outputs that the row which is planned now must not know.
    pub(crate) fn rewind(&mut self, outputs: &[TokenId]) {
        let mut again = Self { told: self.told, ..Self::new(self.rules.clone()) };
        let certainty = |at: usize| self.certainties.get(at).copied().flatten();
        outputs.iter().enumerate().for_each(|(at, token)| again.take(*token, certainty(at)));
        *self = again;
    }

    /// Nothing is decided any more.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, ThoughtState::Over { .. })
    }

    /// What it says about output `index`: the token that closes the thought there, or which words are held back. Every
    /// output before `index - 1` must have been taken.
    pub(crate) fn rule(&mut self, index: u32) -> Option<Rule> {
        self.read_before(index);
        let ThoughtState::Open { closing, .. } = self.state else { return None };
        match closing.and_then(|(from, _)| index.checked_sub(from)) {
            Some(at) => {
                let token = self.rules.closing.get(at as usize)?;
                Some(Rule { source: Source::Forced, effect: Effect::Force(*token) })
            }
            None => {
                let held = &self.rules.adaptive.as_ref().filter(|_| self.holds)?.held;
                Some(Rule { source: Source::HeldWords, effect: Effect::Forbid(held.clone()) })
            }
        }
    }

    /// How thinking went, once, as soon as its end has been read.
    pub(crate) fn report(&mut self) -> Option<Thought> {
        match self.state {
            ThoughtState::Over { thought: Some(thought) } if !self.told => {
                self.told = true;
                Some(thought)
            }
            _ => None,
        }
    }

    /// No more outputs come: reads what is left.
    pub(crate) fn finish(&mut self) {
        self.read_before(u32::MAX);
    }

    fn read_before(&mut self, index: u32) {
        while self.read + LAG <= index
            && let Some((token, certainty)) = self.unread.pop_front()
        {
            self.read(token, certainty);
            self.read += 1;
        }
        assert!(self.is_over() || index == u32::MAX || self.read + LAG > index, "output {index} is decided too early");
    }

    fn read(&mut self, token: TokenId, certainty: Option<Certainty>) {
        let index = self.read;
        match self.state {
            ThoughtState::Unopened if self.rules.opens == Some(token) => self.open(index + 1, index + LAG),
            ThoughtState::Unopened => self.state = ThoughtState::Over { thought: None },
            ThoughtState::Open { since, closing: Some((from, end)) } if index >= from => {
                if index + 1 - from >= self.rules.closing.len() as u32 {
                    self.state = ThoughtState::Over { thought: Some(Thought { tokens: from - since, end }) };
                }
            }
            ThoughtState::Open { since, .. } if self.rules.ends.contains(&token) => {
                self.state =
                    ThoughtState::Over { thought: Some(Thought { tokens: index - since, end: ThoughtEnd::Model }) };
            }
            ThoughtState::Open { since, closing } => {
                if self.certain_enough_to_stop(index + 1 - since, certainty)
                    && closing.is_none_or(|(from, _)| index + LAG < from)
                {
                    self.state = ThoughtState::Open { since, closing: Some((index + LAG, ThoughtEnd::Certain)) };
                }
            }
            ThoughtState::Over { .. } => {}
        }
    }

    /// Begins at output `since`; nothing before `earliest` can be forced any more.
    fn open(&mut self, since: u32, earliest: u32) {
        let end = |tokens: u32| (since.saturating_add(tokens).max(earliest), ThoughtEnd::Budget);
        self.state = ThoughtState::Open { since, closing: self.rules.tokens_max.map(end) };
    }

    /// Moves the window on; says whether thinking, which has had `tokens` tokens, should be closed for certainty.
    fn certain_enough_to_stop(&mut self, tokens: u32, certainty: Option<Certainty>) -> bool {
        let (Some(rules), Some(certainty)) = (&self.rules.adaptive, certainty) else { return false };
        self.window.push_back(certainty);
        if self.window.len() > rules.window as usize {
            self.window.pop_front();
        }
        let full = self.window.len() == rules.window as usize;
        self.holds = full && rules.hold.is_met(&self.window);
        full && tokens >= rules.stop_tokens_min && rules.stop.is_some_and(|level| level.is_met(&self.window))
    }
}

impl Level {
    /// Compares the means, which are summed in the order of the outputs.
    fn is_met(self, window: &VecDeque<Certainty>) -> bool {
        let n = window.len() as f32;
        let (entropy, top_prob) = window.iter().fold((0.0, 0.0), |(e, p), c| (e + c.entropy, p + c.top_prob));
        entropy / n <= self.entropy_max && top_prob / n >= self.top_prob_min
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: TokenId = 90;
    const SURE: Certainty = Certainty { entropy: 0.0, top_prob: 1.0 };
    const UNSURE: Certainty = Certainty { entropy: 3.0, top_prob: 0.1 };

    fn rules(tokens_max: Option<u32>) -> Thinking {
        Thinking { opens: None, ends: vec![END, 91], closing: vec![80, END, 81], tokens_max, adaptive: None }
    }

    fn adaptive(stop: Option<Level>) -> Adaptive {
        let sure = Level { entropy_max: 0.5, top_prob_min: 0.9 };
        Adaptive { window: 2, hold: sure, held: [7].into(), stop, stop_tokens_min: 4 }
    }

    /// What the outputs become if the model says `said`, with `ahead` outputs known beyond what a decision may read.
    fn outputs(rules: Thinking, said: &[(TokenId, Certainty)], ahead: bool) -> (Vec<TokenId>, Option<Thought>) {
        let mut watch = ThoughtWatch::new(Arc::new(rules));
        let mut out: Vec<(TokenId, Certainty)> = Vec::new();
        for (j, says) in said.iter().enumerate() {
            if let (false, Some(late)) = (ahead, j.checked_sub(2)) {
                watch.take(out[late].0, Some(out[late].1));
            }
            let token = match watch.rule(j as u32).map(|rule| rule.effect) {
                Some(Effect::Force(token)) => token,
                Some(Effect::Forbid(held)) if held.contains(&says.0) => 8,
                _ => says.0,
            };
            out.push((token, says.1));
            if ahead {
                watch.take(token, Some(says.1));
            }
        }
        watch.finish();
        (out.into_iter().map(|o| o.0).collect(), watch.report())
    }

    #[track_caller]
    fn check(rules: &Thinking, said: &[(TokenId, Certainty)], want: &[TokenId], thought: Option<(u32, ThoughtEnd)>) {
        let thought = thought.map(|(tokens, end)| Thought { tokens, end });
        for ahead in [false, true] {
            let got = outputs(rules.clone(), said, ahead);
            // Unless outputs are handed over at once, the last two are still unread.
            assert_eq!(
                (got.0.as_slice(), if ahead { got.1 } else { thought }),
                (want, thought),
                "known at once: {ahead}"
            );
        }
    }

    fn sure(tokens: &[TokenId]) -> Vec<(TokenId, Certainty)> {
        tokens.iter().map(|t| (*t, SURE)).collect()
    }

    #[test]
    fn thinking_is_closed_when_its_budget_is_spent_and_what_follows_is_free() {
        let said = sure(&[1, 2, 3, 4, 5, 6, 7, 8]);
        check(&rules(Some(3)), &said, &[1, 2, 3, 80, END, 81, 7, 8], Some((3, ThoughtEnd::Budget)));
        check(&rules(Some(0)), &said, &[80, END, 81, 4, 5, 6, 7, 8], Some((0, ThoughtEnd::Budget)));
        check(&rules(None), &said, &[1, 2, 3, 4, 5, 6, 7, 8], None);
    }

    #[test]
    fn an_end_that_the_model_chooses_stands_and_costs_at_most_one_blank() {
        check(&rules(Some(4)), &sure(&[1, 2, END, 4, 5, 6]), &[1, 2, END, 4, 5, 6], Some((2, ThoughtEnd::Model)));
        check(&rules(Some(4)), &sure(&[1, 2, 3, END, 5, 6]), &[1, 2, 3, END, 80, 6], Some((3, ThoughtEnd::Model)));
        check(&rules(Some(4)), &sure(&[1, 91, 3, 4, 5, 6]), &[1, 91, 3, 4, 5, 6], Some((1, ThoughtEnd::Model)));
        check(
            &rules(Some(4)),
            &sure(&[1, 2, 3, 4, END, 6, 7]),
            &[1, 2, 3, 4, 80, END, 81],
            Some((4, ThoughtEnd::Budget)),
        );
    }

    #[test]
    fn thinking_that_the_model_opens_itself_is_counted_from_there() {
        let free = |tokens_max| Thinking { opens: Some(60), ..rules(tokens_max) };
        check(
            &free(Some(2)),
            &sure(&[60, 1, 2, 3, 4, 5, 6]),
            &[60, 1, 2, 80, END, 81, 6],
            Some((2, ThoughtEnd::Budget)),
        );
        check(&free(Some(0)), &sure(&[60, 1, 2, 3, 4, 5]), &[60, 1, 80, END, 81, 5], Some((1, ThoughtEnd::Budget)));
        check(&free(Some(2)), &sure(&[1, 60, 2, 3, 4, 5]), &[1, 60, 2, 3, 4, 5], None);
    }

    #[test]
    fn words_of_doubt_are_held_back_two_outputs_after_the_window_is_certain() {
        let rules = Thinking { adaptive: Some(adaptive(None)), ..rules(None) };
        let said = [(7, SURE), (7, SURE), (7, UNSURE), (7, SURE), (7, UNSURE), (7, SURE), (7, SURE)];
        check(&rules, &said, &[7, 7, 7, 8, 7, 7, 7], None);
    }

    #[test]
    fn what_it_says_is_said_as_what_it_is_for_others_to_yield_to() {
        let mut watch = ThoughtWatch::new(Arc::new(Thinking { adaptive: Some(adaptive(None)), ..rules(Some(3)) }));
        let mut said = |index| {
            let rule = watch.rule(index);
            watch.take(1, Some(SURE));
            rule
        };
        let held = Rule { source: Source::HeldWords, effect: Effect::Forbid([7].into()) };
        let forced = |token| Some(Rule { source: Source::Forced, effect: Effect::Force(token) });
        // The window is full after two outputs, which the fourth may read first: by then the thought is closed.
        assert_eq!([0, 1, 2, 3, 4].map(&mut said), [None, None, None, forced(80), forced(END)]);
        let mut watch = ThoughtWatch::new(Arc::new(Thinking { adaptive: Some(adaptive(None)), ..rules(None) }));
        (0..3).for_each(|_| watch.take(1, Some(SURE)));
        assert_eq!([2, 3].map(|index| watch.rule(index)), [None, Some(held)]);
    }

    #[test]
    fn what_it_says_of_an_output_is_the_same_when_rows_behind_it_were_planned_in_vain() {
        let stops = Level { entropy_max: 0.0, top_prob_min: 1.0 };
        let rules = Arc::new(Thinking { adaptive: Some(adaptive(Some(stops))), ..rules(Some(7)) });
        let said = [(1, SURE), (7, SURE), (1, UNSURE), (1, SURE), (END, SURE), (1, SURE), (1, UNSURE), (1, SURE)];
        for kept in 0..=said.len() {
            let take = |watch: &mut ThoughtWatch| said[..kept].iter().for_each(|(t, c)| watch.take(*t, Some(*c)));
            let mut plain = ThoughtWatch::new(rules.clone());
            take(&mut plain);
            let mut ahead = ThoughtWatch::new(rules.clone());
            take(&mut ahead);
            let of_row = |watch: &mut ThoughtWatch, at: usize| watch.rule(at as u32);
            // Two rows are planned behind the last output that came, and the tokens of both are lost.
            (kept..kept + 2).for_each(|at| drop(of_row(&mut ahead, at)));
            let told = ahead.report();
            let outputs: Vec<TokenId> = said[..kept].iter().map(|(token, _)| *token).collect();
            (0..2).for_each(|_| ahead.rewind(&outputs));
            assert_eq!(of_row(&mut ahead, kept), of_row(&mut plain, kept), "output {kept}");
            plain.finish();
            ahead.finish();
            assert_eq!(told.or(ahead.report()), plain.report(), "and its end is told once");
            assert_eq!(ahead.report(), None);
        }
    }

    #[test]
    fn certainty_closes_thinking_after_its_least_length_and_before_its_budget() {
        let level = Level { entropy_max: 0.0, top_prob_min: 1.0 };
        let stops = |tokens_max| Thinking { adaptive: Some(adaptive(Some(level))), ..rules(tokens_max) };
        let said = sure(&[1, 2, 3, 4, 5, 6, 7, 8]);
        check(&stops(None), &said, &[1, 2, 3, 4, 5, 80, END, 81], Some((5, ThoughtEnd::Certain)));
        check(&stops(Some(4)), &said, &[1, 2, 3, 4, 80, END, 81, 8], Some((4, ThoughtEnd::Budget)));
        let mut doubts = said;
        doubts[3].1 = UNSURE;
        doubts[4].1 = UNSURE;
        check(&stops(None), &doubts[..7], &[1, 2, 3, 4, 5, 6, 7], None);
    }
}
