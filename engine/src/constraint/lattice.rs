//! Composes the rules of one row: forced wins, masks intersect, biases add, mixtures come last.

use super::{Effect, Rule, Sources};
use crate::ids::TokenId;
use std::sync::Arc;

/// Everything that is said about one row's token. The default value says nothing. A sampler applies it in this order:
/// what the request's own parameters add to logits; mask and forbidden tokens; penalties; biases; mixtures; then
/// temperature and filters. A token that may not come stays so whatever is added to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constraint {
    /// This token comes, and nothing else of it matters.
    pub forced: Option<TokenId>,
    /// The tokens that may come, as in [`Effect::Allow`]; `None` allows all.
    pub mask: Option<Arc<[u32]>>,
    /// Tokens that may not come although the mask allows them; a token may stand in it twice.
    pub forbidden: Vec<TokenId>,
    /// Tokens with what is added to their logits, as in [`Effect::Bias`].
    pub bias: Vec<(TokenId, f32)>,
    /// Tokens with the weights that they are mixed in with, as in [`Effect::Mix`].
    pub mix: Vec<(TokenId, f32)>,
    /// Sources with a rule that was left out, because with it no token would have been left.
    pub yielded: Sources,
    /// Sources with something to say about the row that was not left out.
    pub ruled: Sources,
}

impl Constraint {
    /// Of all rules about a row, in any order, for a vocabulary of so many tokens. Rules are taken in the order of
    /// their sources; one that would leave no token yields as a whole. So at least one token may come, unless the
    /// vocabulary is empty.
    pub fn of(mut rules: Vec<Rule>, vocab: u32) -> Self {
        rules.sort_by_key(|rule| rule.source);
        let mut all = Self::default();
        for Rule { source, effect } in rules {
            let speaks = !matches!(&effect, Effect::Bias(list) | Effect::Mix(list) if list.is_empty());
            let stands = match effect {
                Effect::Force(token) => all.force(token, vocab),
                Effect::Allow(mask) => all.intersect(mask, vocab),
                Effect::Forbid(tokens) => all.forbid(&tokens, vocab),
                Effect::Bias(list) => all.add(list),
                Effect::Mix(list) => all.mix_in(list),
            };
            match stands {
                false => all.yielded = all.yielded.with(Sources::only(source)),
                true if speaks => all.ruled = all.ruled.with(Sources::only(source)),
                true => {}
            }
        }
        all
    }

    /// Whether biases or mixtures can make the token another one.
    pub fn shifts(&self) -> bool {
        self.forced.is_none() && !(self.bias.is_empty() && self.mix.is_empty())
    }

    /// How many tokens of the vocabulary may come; `None` where nothing is said about which.
    pub fn left(&self, vocab: u32) -> Option<u32> {
        if self.forced.is_some() {
            return Some(1);
        }
        let mask = self.mask.as_deref();
        let allowed = mask.map_or(vocab as usize, |mask| count(mask, vocab));
        let left = (allowed - taken(mask, &self.forbidden, vocab)) as u32;
        (mask.is_some() || !self.forbidden.is_empty()).then_some(left)
    }

    fn force(&mut self, token: TokenId, vocab: u32) -> bool {
        let stands = token < vocab && self.allows(token);
        if stands {
            self.forced = Some(token);
        }
        stands
    }

    fn intersect(&mut self, mask: Arc<[u32]>, vocab: u32) -> bool {
        if let Some(forced) = self.forced {
            return allows(&mask, forced);
        }
        let both = match &self.mask {
            None => mask,
            Some(before) => before.iter().zip(mask.iter()).map(|(a, b)| a & b).collect(),
        };
        let stands = leaves_some(Some(&both), &self.forbidden, vocab);
        if stands {
            self.mask = Some(both);
        }
        stands
    }

    fn forbid(&mut self, tokens: &[TokenId], vocab: u32) -> bool {
        if let Some(forced) = self.forced {
            return !tokens.contains(&forced);
        }
        let before = self.forbidden.len();
        self.forbidden.extend_from_slice(tokens);
        let stands = leaves_some(self.mask.as_deref(), &self.forbidden, vocab);
        if !stands {
            self.forbidden.truncate(before);
        }
        stands
    }

    fn add(&mut self, list: Vec<(TokenId, f32)>) -> bool {
        self.bias = summed(std::mem::take(&mut self.bias), list);
        true
    }

    fn mix_in(&mut self, list: Vec<(TokenId, f32)>) -> bool {
        self.mix = summed(std::mem::take(&mut self.mix), list);
        true
    }

    fn allows(&self, token: TokenId) -> bool {
        let masked = self.mask.as_ref().is_some_and(|mask| !allows(mask, token));
        self.forced.is_none_or(|forced| forced == token) && !masked && !self.forbidden.contains(&token)
    }
}

fn allows(mask: &[u32], token: TokenId) -> bool {
    mask.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
}

/// Is a token of the vocabulary left? Forbidden tokens are few, so counting mostly tells.
fn leaves_some(mask: Option<&[u32]>, forbidden: &[TokenId], vocab: u32) -> bool {
    let allowed = mask.map_or(vocab as usize, |mask| count(mask, vocab));
    if allowed > forbidden.len() {
        return true;
    }
    allowed > taken(mask, forbidden, vocab)
}

/// How many different tokens of those that a mask allows are forbidden.
fn taken(mask: Option<&[u32]>, forbidden: &[TokenId], vocab: u32) -> usize {
    let mut taken: Vec<_> =
        forbidden.iter().filter(|id| **id < vocab && mask.is_none_or(|mask| allows(mask, **id))).collect();
    taken.sort_unstable();
    taken.dedup();
    taken.len()
}

/// Tokens of the vocabulary that a mask allows.
fn count(mask: &[u32], vocab: u32) -> usize {
    let whole = vocab as usize / 32;
    let ones: u32 = mask.iter().take(whole).map(|word| word.count_ones()).sum();
    let rest = mask.get(whole).map_or(0, |word| (word & !(u32::MAX << (vocab % 32))).count_ones());
    (ones + rest) as usize
}

/// What one source alone says stays as it is, also in its order; of several, a token's values add up in the order of
/// the sources.
fn summed(before: Vec<(TokenId, f32)>, list: Vec<(TokenId, f32)>) -> Vec<(TokenId, f32)> {
    if before.is_empty() || list.is_empty() {
        return if before.is_empty() { list } else { before };
    }
    let mut all = [before, list].concat();
    all.sort_by_key(|(id, _)| *id);
    all.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1 += later.1;
        }
        same
    });
    all
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const VOCAB: u32 = 40;

    fn rule(source: Source, effect: Effect) -> Rule {
        Rule { source, effect }
    }

    fn allow(ids: &[TokenId]) -> Effect {
        let mut words = vec![0; VOCAB.div_ceil(32) as usize];
        ids.iter().for_each(|id| words[*id as usize / 32] |= 1 << (id % 32));
        Effect::Allow(words.into())
    }

    fn all_but(ids: &[TokenId]) -> Effect {
        Effect::Forbid((0..VOCAB).filter(|id| !ids.contains(id)).collect())
    }

    /// The tokens that may come.
    fn left(c: &Constraint) -> BTreeSet<TokenId> {
        (0..VOCAB).filter(|id| c.allows(*id)).collect()
    }

    /// Allowed tokens, biases, mixtures, and who yielded.
    type Defined = (BTreeSet<TokenId>, BTreeMap<TokenId, f32>, BTreeMap<TokenId, f32>, Vec<Source>);

    /// The rules as `docs/internals/constraints.md` states them: sets of tokens, one source after the other.
    fn defined(rules: &[Rule]) -> Defined {
        let mut tokens: BTreeSet<TokenId> = (0..VOCAB).collect();
        let (mut bias, mut mix, mut yielded) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        for source in Source::ALL {
            for Rule { effect, .. } in rules.iter().filter(|rule| rule.source == source) {
                let keeps: Box<dyn Fn(&TokenId) -> bool> = match effect {
                    Effect::Force(token) => Box::new(move |id| id == token),
                    Effect::Allow(mask) => {
                        Box::new(move |id| mask.get((id / 32) as usize).is_some_and(|w| w & 1 << (id % 32) != 0))
                    }
                    Effect::Forbid(list) => Box::new(move |id| !list.contains(id)),
                    Effect::Bias(list) => {
                        list.iter().for_each(|(id, by)| *bias.entry(*id).or_insert(0.0) += by);
                        continue;
                    }
                    Effect::Mix(list) => {
                        list.iter().for_each(|(id, by)| *mix.entry(*id).or_insert(0.0) += by);
                        continue;
                    }
                };
                let both: BTreeSet<TokenId> = tokens.iter().copied().filter(|id| keeps(id)).collect();
                if both.is_empty() {
                    yielded.insert(source);
                } else {
                    tokens = both;
                }
            }
        }
        (tokens, bias, mix, yielded.into_iter().collect())
    }

    fn source() -> impl Strategy<Value = Source> {
        prop::sample::select(Source::ALL.to_vec())
    }

    fn effect() -> impl Strategy<Value = Effect> {
        // Whole numbers, so that sums are exact in any order.
        let list = prop::collection::btree_map(0..VOCAB, (-9i8..9).prop_map(f32::from), 0..6);
        let pairs = list.prop_map(|map| map.into_iter().collect::<Vec<_>>());
        let few = prop::collection::vec(0..VOCAB + 8, 0..5);
        prop_oneof![
            (0..VOCAB + 2).prop_map(Effect::Force),
            // Short masks, wide ones, and some that allow little.
            prop::collection::vec(prop_oneof![any::<u32>(), Just(0), Just(1 << 7), Just(u32::MAX)], 0..4)
                .prop_map(|w| Effect::Allow(w.into())),
            few.clone().prop_map(|ids| Effect::Forbid(ids.into())),
            few.prop_map(|ids| all_but(&ids)),
            pairs.clone().prop_map(Effect::Bias),
            pairs.prop_map(Effect::Mix),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn rules_compose_as_they_are_defined_whatever_order_they_come_in(
            rules in prop::collection::vec((source(), effect()).prop_map(|(source, effect)| rule(source, effect)), 0..7),
            turn in 0usize..7,
        ) {
            let (tokens, bias, mix, yielded) = defined(&rules);
            let got = Constraint::of(rules.clone(), VOCAB);
            prop_assert_eq!(left(&got), tokens);
            prop_assert_eq!(got.bias.iter().copied().collect::<BTreeMap<_, _>>(), bias);
            prop_assert_eq!(got.mix.iter().copied().collect::<BTreeMap<_, _>>(), mix);
            prop_assert_eq!(got.yielded.iter().collect::<Vec<_>>(), yielded);
            prop_assert_eq!(got.left(VOCAB).unwrap_or(VOCAB) as usize, left(&got).len());
            // Which source answers first is chance, so it must not show. Rules of one source keep their order.
            let mut turned = rules;
            let turn = turn.min(turned.len());
            turned.rotate_left(turn);
            if turned.iter().enumerate().all(|(i, a)| turned[..i].iter().all(|b| a.source != b.source)) {
                prop_assert_eq!(Constraint::of(turned, VOCAB), got);
            }
        }
    }

    /// Each rule as source and effect; the tokens that are left, and who yielded.
    #[track_caller]
    fn check(rules: &[(Source, Effect)], want: &[TokenId], yielded: &[Source]) {
        let got = Constraint::of(rules.iter().map(|(source, effect)| rule(*source, effect.clone())).collect(), VOCAB);
        assert_eq!(left(&got).into_iter().collect::<Vec<_>>(), want);
        assert_eq!(got.yielded.iter().collect::<Vec<_>>(), yielded);
    }

    #[test]
    fn a_forced_token_wins_over_everything_and_whoever_forbids_it_yields() {
        use Source::{Forced, Grammar, HeldWords, MinTokens};
        let forced = (Forced, Effect::Force(7));
        check(&[(Grammar, allow(&[7, 8])), forced.clone()], &[7], &[]);
        check(&[forced.clone(), (Grammar, allow(&[8]))], &[7], &[Grammar]);
        check(
            &[forced.clone(), (MinTokens, Effect::Forbid([7].into())), (HeldWords, Effect::Forbid([8].into()))],
            &[7],
            &[MinTokens],
        );
        check(&[forced, (HeldWords, Effect::Forbid([6, 7].into()))], &[7], &[HeldWords]);
    }

    #[test]
    fn masks_intersect_and_where_nothing_is_left_the_later_source_yields() {
        use Source::{Grammar, HeldWords, MinTokens};
        check(&[(Grammar, allow(&[1, 2, 33])), (MinTokens, Effect::Forbid([2].into()))], &[1, 33], &[]);
        check(
            &[
                (HeldWords, Effect::Forbid([1].into())),
                (MinTokens, Effect::Forbid([2].into())),
                (Grammar, allow(&[1, 2, 3])),
            ],
            &[3],
            &[],
        );
        // The grammar allows nothing but its end.
        check(&[(Grammar, allow(&[2])), (MinTokens, Effect::Forbid([2].into()))], &[2], &[MinTokens]);
        // Held words yield to the two before them, and those stand.
        let both = [
            (Grammar, allow(&[1, 2])),
            (MinTokens, Effect::Forbid([2].into())),
            (HeldWords, Effect::Forbid([1].into())),
        ];
        check(&both, &[1], &[HeldWords]);
        check(&[(Grammar, allow(&[])), (MinTokens, all_but(&[4]))], &[4], &[Grammar]);
        check(&[(MinTokens, all_but(&[])), (HeldWords, all_but(&[5]))], &[5], &[MinTokens]);
    }

    #[test]
    fn biases_add_and_mixtures_come_last_with_the_weights_of_both() {
        let tables = |effect| rule(Source::Tables, effect);
        let one = vec![(9, 0.25), (3, 0.5)];
        let got = Constraint::of(vec![tables(Effect::Mix(one.clone())), tables(Effect::Bias(one.clone()))], VOCAB);
        assert_eq!((&got.bias, &got.mix), (&one, &one), "what one source says keeps its order");
        let more = rule(Source::HeldWords, Effect::Bias(vec![(3, 1.0), (4, 2.0)]));
        let got = Constraint::of(vec![tables(Effect::Bias(one)), more], VOCAB);
        assert_eq!(got.bias, [(3, 1.5), (4, 2.0), (9, 0.25)]);
    }

    #[test]
    fn a_row_about_which_nothing_is_said_is_free() {
        assert_eq!(Constraint::of(Vec::new(), VOCAB), Constraint::default());
        assert!(!Constraint::default().shifts());
    }
}
