//! Chooses a row's token twice, without its edits and with them, from one pass over the vocabulary.
//!
//! Edits change a few logits. A weight depends on its own logit and on the best one, so where the best one stays, all
//! but the listed tokens' weights stay too, and the second draw is exact. Where the best logit moves, the weights of
//! all others are `e^(d / temperature)` times as large, up to rounding: their sums are known within [`slack`]. Only a
//! random number that comes that near to the border between two tokens, and rows with filters, are left to the caller,
//! who weighs all tokens again.

use crate::backend::cpu::sampler::rank::filtered;
use crate::backend::cpu::sampler::scan::{first, number};
use crate::backend::cpu::sampler::weight_sum::WeightSum;
use crate::backend::cpu::sampler::weights::{PART, TokenWeights, integer};
use crate::backend::cpu::sampler::{SamplerScratch, bits};
use crate::backend::cpu::simd::{Kernel, LANES, Lanes, run};
use crate::constraint::Constraint;
use crate::ids::TokenId;
use crate::step::SampleRow;
use chimere_kernels::reference::sampler::{Mixture, TEMPERATURE_MIN, WEIGHT_ONE, scaled};

/// A token that edits name.
pub(crate) struct EditedToken {
    id: TokenId,
    /// What a mixture or a bias adds.
    edit: f32,
    /// The logit that the edits leave.
    logit: f32,
    /// Beside the best logit with edits.
    weight: u64,
    /// Beside the best logit without edits.
    plain_weight: u64,
}

/// What could be told of the two tokens.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) plain: Option<TokenId>,
    pub(crate) edited: Option<TokenId>,
}

/// Of a row whose logits `base` are numbers, `best` the largest.
pub(crate) fn choose(base: &[f32], best: f32, row: &SampleRow, edits: &Constraint, s: &mut SamplerScratch) -> Chosen {
    let p = &*row.params;
    let draws = p.temperature >= TEMPERATURE_MIN;
    // Both kinds of edits in one row come from nowhere yet.
    let both = !edits.bias.is_empty() && !edits.mix.is_empty();
    if !best.is_finite() || both || draws && filtered(p, base.len()) {
        return Chosen::default();
    }
    if draws { draw_both(base, best, row, edits, s) } else { take_both(base, best, edits, &mut s.listed) }
}

/// Takes the best token without the edits and the best one with them.
fn take_both(base: &[f32], best: f32, edits: &Constraint, listed: &mut Vec<EditedToken>) -> Chosen {
    let plain = first(base, best);
    let mut edited = None;
    if !edits.mix.is_empty() {
        let sum = WeightSum::near(base, best);
        edited =
            list(base, edits, mixture(edits, best, sum), listed).then(|| outright(plain, best, listed, sum)).flatten();
    }
    let edited = edited.or_else(|| {
        let mixture = mixture_of(edits, best, || WeightSum::exact(base, best));
        list(base, edits, mixture, listed).then(|| best_of(plain, base, best, listed)).flatten()
    });
    Chosen { plain: Some(plain), edited }
}

/// The best token with edits, if no error of the sum can make another one of it. `plain` is the best without.
fn outright(plain: TokenId, best: f32, listed: &[EditedToken], sum: WeightSum) -> Option<TokenId> {
    let top = listed.iter().max_by(|a, b| a.logit.total_cmp(&b.logit))?;
    let error = 2.0 * sum.error_of(listed.iter().map(|l| l.logit), best);
    let above = |a: f32, b: f32| f64::from(a) - f64::from(b) > error;
    let alone = listed.iter().all(|l| l.id == top.id || above(top.logit, l.logit));
    match above(top.logit, best) {
        true => alone.then_some(top.id),
        false => (above(best, top.logit) && listed.iter().all(|l| l.id != plain)).then_some(plain),
    }
}

/// The best token with edits, of logits that are exact. `plain` is the best without.
fn best_of(plain: TokenId, base: &[f32], best: f32, listed: &[EditedToken]) -> Option<TokenId> {
    let edited = best_edited(base, best, listed)?;
    let raised = listed.iter().find(|l| l.logit == edited).map(|l| l.id);
    let own = listed.iter().find(|l| l.id == plain);
    match (edited > best, own) {
        (true, _) => raised,
        (false, None) => Some(raised.map_or(plain, |id| id.min(plain))),
        // Others may be as good as this one was, and they are not known.
        (false, Some(own)) => raised.filter(|_| own.logit == best),
    }
}

/// Tokens by the row's random number.
fn draw_both(base: &[f32], best: f32, row: &SampleRow, edits: &Constraint, s: &mut SamplerScratch) -> Chosen {
    let p = &*row.params;
    let draw = Draw { base, best, bits: bits(row), temperature: p.temperature, min_weight: p.min_p * WEIGHT_ONE };
    let total = s.weights.weigh(base, best, p.temperature, draw.min_weight);
    let plain = Some(s.weights.at(scaled(draw.bits, total)));
    let known = edits.mix.is_empty() || p.temperature == 1.0 && draw.min_weight == 0.0;
    let mut edited = None;
    // A least weight is beside the best logit, which is known exactly or not at all.
    if !known && draw.min_weight == 0.0 {
        edited = draw.edited(edits, total, WeightSum::near(base, best), s);
    }
    let exact = || if known { WeightSum::known(total) } else { WeightSum::exact(base, best) };
    Chosen { plain, edited: edited.or_else(|| draw.edited(edits, total, exact(), s)) }
}

/// A draw at a temperature above 0.
struct Draw<'a> {
    base: &'a [f32],
    best: f32,
    bits: u64,
    temperature: f32,
    min_weight: f32,
}

impl Draw<'_> {
    /// The token with edits, if it is certain. `total` is the sum of the weights without them, `sum` that at
    /// temperature 1.
    fn edited(&self, edits: &Constraint, total: u64, sum: WeightSum, s: &mut SamplerScratch) -> Option<TokenId> {
        let &Self { base, best, bits, temperature, min_weight } = self;
        let mixture = mixture(edits, best, sum);
        let known = list(base, edits, mixture, &mut s.listed).then(|| best_edited(base, best, &s.listed)).flatten();
        // Whether an unlisted token has the least weight is known only where the weights are.
        let edited_best = known.filter(|edited| *edited == best || min_weight == 0.0)?;
        let weights = &s.weights.weights;
        run(WeighEdited { listed: &mut s.listed, weights, best: edited_best, temperature, min_weight });
        let patched = EditedWeights::new(&s.weights, &s.listed, total, moved(best, edited_best, temperature));
        patched.mixed_by(sum, best, temperature).at(bits)
    }
}

/// The logarithm of what all weights are multiplied by when another logit is the best.
fn moved(best: f32, edited: f32, temperature: f32) -> Option<f64> {
    (best != edited).then(|| (f64::from(best) - f64::from(edited)) * f64::from(1.0 / temperature))
}

fn mixture(edits: &Constraint, best: f32, sum: WeightSum) -> Option<Mixture> {
    mixture_of(edits, best, || sum)
}

fn mixture_of(edits: &Constraint, best: f32, sum: impl FnOnce() -> WeightSum) -> Option<Mixture> {
    (!edits.mix.is_empty()).then(|| Mixture::new(best, || sum().total)).flatten()
}

/// Lists the edited tokens; false if their ids do not rise.
fn list(base: &[f32], edits: &Constraint, mixture: Option<Mixture>, listed: &mut Vec<EditedToken>) -> bool {
    run(List { base, edits, mixture, listed });
    listed.is_sorted_by(|a, b| a.id < b.id)
}

/// The best logit with edits, if it can be told.
fn best_edited(base: &[f32], best: f32, listed: &[EditedToken]) -> Option<f32> {
    let raised = listed.iter().fold(f32::NEG_INFINITY, |best, l| best.max(l.logit));
    // Otherwise the best of all others has to be there still.
    let stands = || listed.iter().all(|l| base[l.id as usize] < best);
    let edited = if raised >= best { Some(raised) } else { stands().then_some(best) };
    edited.filter(|best| best.is_finite())
}

/// A kernel, because the definition's fused products are calls of functions where the instruction set has no such
/// products.
struct List<'a> {
    base: &'a [f32],
    edits: &'a Constraint,
    mixture: Option<Mixture>,
    listed: &'a mut Vec<EditedToken>,
}

impl Kernel for List<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) {
        let Self { base, edits, mixture, listed } = self;
        let list = if mixture.is_some() { &edits.mix } else { &edits.bias };
        let known = list.iter().filter_map(|(id, edit)| Some((*id, *edit, *base.get(*id as usize)?)));
        listed.clear();
        listed.extend(known.map(|(id, edit, logit)| EditedToken { id, edit, logit, weight: 0, plain_weight: 0 }));
        let Some(mixture) = mixture else { return listed.iter_mut().for_each(|l| l.logit = number(l.logit + l.edit)) };
        // A loop, since a closure of its own would lack the instruction set.
        for l in listed {
            l.logit = mixture.mixed(l.logit, l.edit);
        }
    }
}

/// Weighs what is listed, as [`TokenWeights::weigh`] does all tokens.
struct WeighEdited<'a> {
    listed: &'a mut [EditedToken],
    /// Of all tokens without edits.
    weights: &'a [f32],
    best: f32,
    temperature: f32,
    min_weight: f32,
}

impl Kernel for WeighEdited<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) {
        let inverse = 1.0 / self.temperature;
        for part in self.listed.chunks_mut(LANES) {
            let mut lanes = [f32::NEG_INFINITY; LANES];
            lanes.iter_mut().zip(&*part).for_each(|(lane, l)| *lane = l.logit);
            // SAFETY: the instruction set is the caller's promise; the array has LANES elements.
            unsafe {
                let x = L::load(lanes.as_ptr()).sub(L::splat(self.best)).mul(L::splat(inverse));
                let w = x.exp().mul(L::splat(WEIGHT_ONE)).round();
                w.zero_below(w, self.min_weight).store(lanes.as_mut_ptr());
            }
            for (l, weight) in part.iter_mut().zip(lanes) {
                l.weight = integer(weight);
                l.plain_weight = integer(self.weights[l.id as usize]);
            }
        }
    }
}

/// A row's weights with edits: those without them times `ratio`, but for the listed tokens.
struct EditedWeights<'a> {
    /// Of all tokens, without edits.
    plain: &'a TokenWeights,
    listed: &'a [EditedToken],
    ratio: f64,
    /// Sum of `plain` without the listed tokens.
    unlisted: u64,
    total: f64,
    /// How far a sum times `bits / 2^64` can be from another sum that is right.
    slack: f64,
}

impl<'a> EditedWeights<'a> {
    /// From the weights without edits, whose sum is `total`. `moved` is the logarithm of the ratio, if the best logit
    /// is another one.
    fn new(plain: &'a TokenWeights, listed: &'a [EditedToken], total: u64, moved: Option<f64>) -> Self {
        let unlisted = total - listed.iter().map(|l| l.plain_weight).sum::<u64>();
        let ratio = moved.map_or(1.0, f64::exp);
        let slack = moved.map_or(0.0, |_| slack(plain.weights.len(), unlisted, ratio));
        let total = ratio * unlisted as f64 + listed.iter().map(|l| l.weight).sum::<u64>() as f64;
        Self { plain, listed, ratio, unlisted, total, slack }
    }

    /// The weights where the listed tokens were mixed by this sum beside the best logit without edits. With another sum
    /// their weights alone are others: in units that the unlisted ones do not change in, which border is reached is
    /// the same.
    fn mixed_by(mut self, sum: WeightSum, best: f32, temperature: f32) -> Self {
        if sum.is_exact() {
            return self;
        }
        let off = sum.error_of(self.listed.iter().map(|l| l.logit), best) / f64::from(temperature);
        let listed = self.listed.iter().map(|l| l.weight).sum::<u64>() as f64;
        let rounded = slack(self.plain.weights.len(), self.unlisted, self.ratio);
        // Up to 0.1, e^x - 1 is less than 1.1 x.
        self.slack = if off < 0.1 { rounded + 2.2 * off * listed } else { f64::INFINITY };
        self
    }

    /// The token that the random number gives, if it is certain.
    fn at(&self, bits: u64) -> Option<TokenId> {
        // Sums are exact here where `ratio` is 1: they are integers below 2^53.
        let target = scaled(bits, self.total as u64) as f64;
        let (mut below, mut listed) = ((0, 0), self.listed);
        for (part, sum) in self.plain.sums.iter().enumerate() {
            let end = ((part + 1) * PART) as TokenId;
            let (here, after) = listed.split_at(listed.iter().take_while(|l| l.id < end).count());
            let edited = here.iter().fold((0, 0), |(plain, with), l| (plain + l.plain_weight, with + l.weight));
            let reached = (below.0 + (sum - edited.0), below.1 + edited.1);
            if self.sum(reached) > target {
                return self.within(part * PART, here, below, target);
            }
            (below, listed) = (reached, after);
        }
        None
    }

    /// As [`EditedWeights::at`] among the tokens of one part; `below` are the sums before it.
    fn within(&self, first: usize, mut listed: &[EditedToken], mut below: (u64, u64), target: f64) -> Option<TokenId> {
        for (id, weight) in (first..).zip(&self.plain.weights[first..]) {
            let before = below;
            match listed.split_first() {
                Some((l, after)) if l.id as usize == id => {
                    below.1 += l.weight;
                    listed = after;
                }
                _ => below.0 += integer(*weight),
            }
            if self.sum(below) > target {
                let certain = self.sum(before) + self.slack <= target && target + self.slack < self.sum(below);
                return certain.then_some(id as TokenId);
            }
        }
        None
    }

    /// Of the weights of unlisted and listed tokens.
    fn sum(&self, (unlisted, listed): (u64, u64)) -> f64 {
        self.ratio * unlisted as f64 + listed as f64
    }
}

/// How far, at most, two sums of weights times `ratio` can be, together, from what they stand for.
///
/// With `x = (logit - best) / temperature`, a weight is `2^30 e^x` up to rounding: of `x` twice, `2^-23 |x|`, of the
/// exponential, 2 ulp, and to an integer. Where `x < -22` the weight is below 1/2. So one weight is off by 3e-6 of
/// itself and 0.51 at most; that of an unlisted token times
/// `ratio` is off from its weight with edits by as much on either side. The rest is for the target's own rounding.
fn slack(tokens: usize, unlisted: u64, ratio: f64) -> f64 {
    2.0 * (7e-6 * ratio * unlisted as f64 + 0.6 * tokens as f64 * (1.0 + ratio)) + 4.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::sampler::history::History;
    use crate::backend::cpu::sampler::sample;
    use crate::backend::cpu::sampler::scan::largest;
    use crate::backend::cpu::sampler::tests::{defined, row};
    use crate::sampling::SamplingParams;
    use chimere_kernels::reference::sampler::weight;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    type List = Vec<(TokenId, f32)>;

    fn edits(bias: List, mix: List) -> Constraint {
        Constraint { bias, mix, ..Constraint::default() }
    }

    /// Values as uneven as a model's, on a grid of sixteenths where `ties`.
    fn logits(tokens: usize, spread: f32, ties: bool, noise: u32) -> Vec<f32> {
        let value =
            |i: u32| ((i.wrapping_mul(2_654_435_761) ^ noise).wrapping_mul(0x85EB_CA6B) >> 8) as f32 / (1 << 24) as f32;
        let logit = |i| -(1.0 - value(i)).max(1e-7).ln() * spread;
        (0..tokens as u32).map(|i| if ties { (logit(i) * 16.0).round() / 16.0 } else { logit(i) }).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn both_tokens_are_the_definitions(
            temperature in prop_oneof![Just(0.0f32), Just(1.0), 0.05f32..3.0],
            (top_p, top_k, min_p) in prop_oneof![8 => Just((1.0f32, 0, 0.0f32)), 1 => (0.1f32..1.0, 0u32..40, 0.0f32..0.3), 1 => Just((1.0, 0, 0.1))],
            presence_penalty in prop_oneof![Just(0.0f32), Just(1.5)],
            seed in any::<u64>(),
            (tokens, spread, ties, noise) in (300usize..1500, prop_oneof![Just(0.0f32), 0.1f32..4.0], any::<bool>(), any::<u32>()),
            named in prop::collection::btree_map(0u32..300, -1.0f32..1.0, 0..40),
            (bias, strength) in (any::<bool>(), prop_oneof![Just(1e-7f32), Just(0.1), 0.0f32..8.0]),
            // What happens to the best token and to another that is made as good, or better.
            (best_by, rival_by) in (prop::option::of(prop_oneof![Just(1.0f32), Just(-1.0), Just(f32::NEG_INFINITY)]), prop::option::of(0u32..300)),
            (masked, ban_best) in (any::<bool>(), any::<bool>()),
        ) {
            let logits = logits(tokens, spread, ties, noise);
            let best = first(&logits, largest(&logits));
            let mut list: BTreeMap<_, _> = named.into_iter().map(|(id, by)| (id, by * strength)).collect();
            best_by.map(|by| list.insert(best, by * strength));
            rival_by.map(|id| list.insert(id, if bias { logits[best as usize] - logits[id as usize] } else { strength }));
            let list: List = list.into_iter().map(|(id, by)| (id, if bias { by } else { by.abs().min(1e4) })).collect();
            let (bias, mix) = if bias { (list, Vec::new()) } else { (Vec::new(), list) };
            let mut mask: Vec<u32> = (0..tokens.div_ceil(32) as u32).map(|w| w.wrapping_mul(noise | 1) | noise >> 7).collect();
            if ban_best {
                mask[best as usize / 32] &= !(1 << (best % 32));
            }
            let mask: Option<Arc<[u32]>> = masked.then(|| mask.into());
            let with = Constraint { mask: mask.clone(), ..edits(bias, mix) };
            let without = Constraint { mask, ..edits(Vec::new(), Vec::new()) };
            let mut history = History::default();
            (0..20).for_each(|i| history.push(if i < 10 { i } else { best }, i, 5));
            let params = SamplingParams { temperature, top_p, top_k, min_p, presence_penalty, seed, ..Default::default() };
            let row = row(params, 3);
            let got = sample(&logits, &row, &history, &with, &mut SamplerScratch::default());
            let (want, plain) = (defined(&logits, &row, &history, &with), defined(&logits, &row, &history, &without));
            prop_assert_eq!((got.token, got.changed), (want, Some(want != plain)));
        }
    }

    /// Everything before the random number, at a temperature above 0.
    fn weighed(
        base: &[f32],
        p: &SamplingParams,
        edits: &Constraint,
        sum: WeightSum,
        s: &mut SamplerScratch,
    ) -> (f32, f32, u64) {
        let best = largest(base);
        let total = s.weights.weigh(base, best, p.temperature, 0.0);
        assert!(list(base, edits, mixture(edits, best, sum), &mut s.listed));
        let edited = best_edited(base, best, &s.listed).unwrap();
        let weights = &s.weights.weights;
        run(WeighEdited { listed: &mut s.listed, weights, best: edited, temperature: p.temperature, min_weight: 0.0 });
        (best, edited, total)
    }

    /// The definition's weights of all tokens with edits.
    fn weights(base: &[f32], p: &SamplingParams, s: &SamplerScratch, best: f32) -> Vec<u64> {
        let mut edited = base.to_vec();
        s.listed.iter().for_each(|l| edited[l.id as usize] = l.logit);
        edited.iter().map(|l| weight(*l, best, p.temperature)).collect()
    }

    #[test]
    fn a_random_number_at_a_border_gives_the_right_token_or_none() {
        let (mut certain, mut open) = (0, 0);
        for (noise, temperature) in (0..40).flat_map(|noise| [0.3f32, 0.8, 1.0, 1.7].map(|t| (noise, t))) {
            let base = logits(1203, 0.5 + noise as f32 * 0.05, noise % 3 == 0, noise);
            let top = first(&base, largest(&base));
            let share = [1e-6, 0.01, 0.3, 5.0][noise as usize % 4];
            let mix: BTreeMap<_, _> = (0..9).map(|i| (i * 131, 1e-4)).chain([(top, share)]).collect();
            let (p, s) = (SamplingParams { temperature, ..Default::default() }, &mut SamplerScratch::default());
            let edits = edits(Vec::new(), mix.into_iter().collect());
            let (_, edited, _) = weighed(&base, &p, &edits, WeightSum::exact(&base, largest(&base)), s);
            let exact = weights(&base, &p, s, edited);
            let sum: u64 = exact.iter().sum();
            let near = [WeightSum::exact, WeightSum::near][noise as usize / 4 % 2](&base, largest(&base));
            let (best, edited, total) = weighed(&base, &p, &edits, near, s);
            let moved = moved(best, edited, temperature);
            assert!(moved.is_some());
            let patched = EditedWeights::new(&s.weights, &s.listed, total, moved).mixed_by(near, best, temperature);
            let mut border = 0;
            for weight in &exact[..exact.len() - 1] {
                border += weight;
                let bits = ((u128::from(border) << 64).div_ceil(u128::from(sum))).min(u128::from(u64::MAX)) as u64;
                for bits in [bits.saturating_sub(1), bits, bits.saturating_add(1 << 50)] {
                    let (target, mut reached) = (scaled(bits, sum), 0);
                    let want = exact.iter().position(|w| (reached += w, reached > target).1).unwrap() as TokenId;
                    let got = patched.at(bits);
                    assert!(
                        got.is_none_or(|got| got == want),
                        "{got:?} instead of {want} at {bits:x}, noise {noise}, temperature {temperature}"
                    );
                    *if got.is_some() { &mut certain } else { &mut open } += 1;
                }
            }
            // Anywhere but at a border it is certain.
            let told = (0..1000).filter(|i| patched.at(i * (u64::MAX / 1000) + 12345).is_some()).count();
            assert!(told >= 900, "{told} of 1000, noise {noise}, temperature {temperature}");
        }
        assert!(certain > 0 && open > 0, "{certain} {open}");
    }

    /// `C`: the caller has to weigh again; otherwise it is known.
    #[track_caller]
    fn check(temperature: f32, bias: &[(TokenId, f32)], mix: &[(TokenId, f32)], want: &str) {
        let base: Vec<f32> = [1.0, 9.0, 3.0, 8.0].into_iter().chain((0..500).map(|i| (i % 7) as f32 * 0.1)).collect();
        let row = row(SamplingParams { temperature, seed: 4, ..Default::default() }, 0);
        let got = choose(&base, 9.0, &row, &edits(bias.to_vec(), mix.to_vec()), &mut SamplerScratch::default());
        let name = |token: Option<TokenId>| token.map_or("C".into(), |token| token.to_string());
        assert_eq!(format!("{} {}", name(got.plain), name(got.edited)), want);
    }

    #[test]
    fn the_best_token_with_edits_is_known_unless_the_one_without_is_lowered() {
        check(0.0, &[], &[(0, 0.01), (3, 0.1)], "1 1");
        check(0.0, &[], &[(3, 5.0)], "1 3");
        check(0.0, &[], &[(1, 0.2), (3, 0.2)], "1 1");
        check(0.0, &[(3, 1.0)], &[], "1 1");
        check(0.0, &[(0, 8.0)], &[], "1 0");
        check(0.0, &[(3, 1.5)], &[], "1 3");
        check(0.0, &[(1, -0.5)], &[], "1 C");
        check(0.0, &[(1, -0.5), (3, 2.0)], &[], "1 3");
        check(0.0, &[(1, -0.5), (3, 1.0)], &[], "1 C");
    }

    #[test]
    fn a_draw_is_known_unless_the_best_token_is_lowered_or_edits_are_of_both_kinds_or_in_no_order() {
        check(1.0, &[], &[(0, 0.01), (3, 0.1)], "1 1");
        check(1.0, &[], &[(3, 50.0)], "1 3");
        check(0.7, &[], &[(1, 0.2), (3, 0.2)], "1 1");
        check(0.7, &[(0, 12.0)], &[], "1 0");
        check(0.7, &[(1, -0.5)], &[], "1 C");
        check(0.7, &[(3, 1.0)], &[(3, 1.0)], "C C");
        check(0.7, &[(3, 1.0), (0, 1.0)], &[], "1 C");
    }
}
