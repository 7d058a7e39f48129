//! Two versions answer equal questions, and an exact check says of each answer whether it is right. What that says of
//! the difference between them: bounds that hold for any number of questions, and how many it takes.

use super::binomial::{at_least, chance, share_at_most};
use serde::{Deserialize, Serialize};

/// The part of the chance of an error that is spent on how often verdicts differ; the rest is for how they differ.
const SPENT_ON_SPREAD: f64 = 0.05;
/// Halvings of an interval of differences: 2^-24 is a hundred-thousandth of a point.
const HALVINGS: u32 = 24;
/// Chances of numbers of differing verdicts below this are left out of sums.
const NEGLIGIBLE: f64 = 1e-15;

/// What came of a family's questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairedCounts {
    /// Questions that both were asked.
    pub questions: u64,
    /// Questions that both answer rightly.
    pub both: u64,
    /// Questions that the candidate alone answers rightly.
    pub gains: u64,
    /// Questions that the version which is served alone answers rightly.
    pub losses: u64,
}

impl PairedCounts {
    /// Counts a question that both have answered.
    pub fn count(&mut self, served_is_right: bool, candidate_is_right: bool) {
        self.questions += 1;
        let counted = match (served_is_right, candidate_is_right) {
            (true, true) => &mut self.both,
            (false, true) => &mut self.gains,
            (true, false) => &mut self.losses,
            (false, false) => return,
        };
        *counted += 1;
    }

    /// Both counts as one.
    pub fn and(self, more: Self) -> Self {
        Self {
            questions: self.questions + more.questions,
            both: self.both + more.both,
            gains: self.gains + more.gains,
            losses: self.losses + more.losses,
        }
    }

    /// The share that the served version answers rightly, 0 to 1; 0 of no question.
    pub fn before(self) -> f64 {
        self.share(self.both + self.losses)
    }

    /// The share that the candidate answers rightly, 0 to 1; 0 of no question.
    pub fn after(self) -> f64 {
        self.share(self.both + self.gains)
    }

    /// The share of questions whose verdict differs, 0 to 1; 0 of no question.
    pub fn differing(self) -> f64 {
        self.share(self.gains + self.losses)
    }

    /// The share that the candidate answers rightly less that of the served version, -1 to 1.
    pub fn difference(self) -> f64 {
        self.share(self.gains) - self.share(self.losses)
    }

    fn share(self, of: u64) -> f64 {
        of as f64 / self.questions.max(1) as f64
    }

    /// The lower bound of the difference, which is above the true one with a chance of at most `alpha`; -1 of no
    /// question. The chance of so large a surplus of gains is computed exactly, for the greatest share of differing
    /// verdicts that is not ruled out (Berger and Boos, 1994).
    pub fn lower_bound(self, alpha: f64) -> f64 {
        let spread = self.spread(alpha);
        // A greater difference than the spread either way would need more differing verdicts than there can be.
        let (mut low, mut high) = (-spread, self.difference());
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if self.rules_out(middle, spread, alpha) { low = middle } else { high = middle }
        }
        low
    }

    /// The upper bound of the difference, below the true one with a chance of at most `alpha`; 1 of no question.
    pub fn upper_bound(self, alpha: f64) -> f64 {
        -Self { gains: self.losses, losses: self.gains, ..self }.lower_bound(alpha)
    }

    /// Whether so large a surplus of gains is too unlikely for a true difference, if this share of verdicts differs.
    fn rules_out(self, difference: f64, spread: f64, alpha: f64) -> bool {
        let surplus = self.gains as i64 - self.losses as i64;
        surplus_at_least(surplus, self.questions, spread, difference) <= alpha * (1.0 - SPENT_ON_SPREAD)
    }

    /// The greatest share of differing verdicts that is not ruled out.
    fn spread(self, alpha: f64) -> f64 {
        share_at_most(self.gains + self.losses, self.questions, alpha * SPENT_ON_SPREAD)
    }
}

/// The chance that gains exceed losses by `surplus` or more among so many questions, if a share of `spread` of all
/// verdicts differs and the candidate is better by `difference`.
fn surplus_at_least(surplus: i64, questions: u64, spread: f64, difference: f64) -> f64 {
    if spread <= 0.0 {
        return f64::from(u8::from(surplus <= 0));
    }
    // Of the verdicts that differ, this share are gains.
    let gain = f64::midpoint(1.0, difference / spread).clamp(0.0, 1.0);
    let of = |differing: u64| {
        let gains = (differing as i64 + surplus + 1).div_euclid(2).max(0);
        at_least(gains as u64, differing, gain)
    };
    // From the likeliest number of differing verdicts outwards, each term from its neighbour.
    let middle = (questions as f64 * spread) as u64;
    let (likeliest, odds, mut sum) =
        (chance(middle, questions, spread), spread / (1.0 - spread).max(f64::MIN_POSITIVE), 0.0);
    let mut term = likeliest;
    for differing in middle..=questions {
        sum += term * of(differing);
        term *= (questions - differing) as f64 / (differing + 1) as f64 * odds;
        if term < NEGLIGIBLE {
            break;
        }
    }
    term = likeliest;
    for differing in (0..middle).rev() {
        term *= (differing + 1) as f64 / (questions - differing) as f64 / odds;
        if term < NEGLIGIBLE {
            break;
        }
        sum += term * of(differing);
    }
    sum.min(1.0)
}

/// What a family that the candidate does not touch has to show, and how surely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Harmlessness {
    /// By how much it may be worse, 0 to 1.
    pub(super) margin: f64,
    /// The chance of passing a candidate that is worse by more.
    pub(super) alpha: f64,
    /// The chance of not passing one that changes nothing on average.
    pub(super) miss: f64,
}

impl Harmlessness {
    /// The least number of questions that a candidate without harm passes, as surely as is asked, if this share of its
    /// verdicts differs; at most `most`.
    pub(super) fn questions(self, differing: f64, most: u64) -> u64 {
        let (mut low, mut high) = (0, 1);
        while high < most && !self.suffices(high, differing) {
            low = high;
            high *= 2;
        }
        high = high.min(most);
        while high - low > 1 {
            let middle = u64::midpoint(low, high);
            if self.suffices(middle, differing) { high = middle } else { low = middle }
        }
        high
    }

    /// Whether so many questions show it, with the spread that is to be expected then.
    fn suffices(self, questions: u64, differing: f64) -> bool {
        let expected = (questions as f64 * differing).round() as u64;
        let spread = share_at_most(expected, questions, self.alpha * SPENT_ON_SPREAD);
        let alpha = self.alpha * (1.0 - SPENT_ON_SPREAD);
        let passes = |surplus: i64| surplus_at_least(surplus, questions, spread, -self.margin) <= alpha;
        // The least surplus that passes: the more gains, the less likely they are by chance.
        let (mut low, mut high) = (-(questions as i64) - 1, 1);
        if !passes(high - 1) {
            return false;
        }
        while high - low > 1 {
            let middle = i64::midpoint(low, high);
            if passes(middle) { high = middle } else { low = middle }
        }
        surplus_at_least(high, questions, differing, 0.0) >= 1.0 - self.miss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALPHA: f64 = 0.05;

    fn of(questions: u64, gains: u64, losses: u64) -> PairedCounts {
        PairedCounts { questions, both: (questions - gains - losses) / 2, gains, losses }
    }

    #[test]
    fn counts_add_up_to_shares() {
        let mut counts = PairedCounts::default();
        for (served, candidate) in [(true, true), (true, true), (false, true), (true, false), (false, false)] {
            counts.count(served, candidate);
        }
        assert_eq!(counts, PairedCounts { questions: 5, both: 2, gains: 1, losses: 1 });
        assert_eq!((counts.before(), counts.after(), counts.differing(), counts.difference()), (0.6, 0.6, 0.4, 0.0));
        assert_eq!(counts.and(counts).questions, 10);
        let none = PairedCounts::default();
        assert_eq!((none.before(), none.lower_bound(ALPHA), none.upper_bound(ALPHA)), (0.0, -1.0, 1.0));
    }

    /// The chance that the bound is above the true difference, summed over all that can come of the questions.
    fn error(questions: u64, spread: f64, difference: f64) -> f64 {
        let gain = f64::midpoint(1.0, difference / spread);
        let mut error = 0.0;
        for differing in 0..=questions {
            for gains in 0..=differing {
                let here = chance(differing, questions, spread) * chance(gains, differing, gain);
                let counts = of(questions, gains, differing - gains);
                let spread = counts.spread(ALPHA);
                // What `lower_bound` finds by halving.
                let is_above = difference < -spread || counts.rules_out(difference, spread, ALPHA);
                error += if here > 1e-9 && is_above { here } else { 0.0 };
            }
        }
        error
    }

    #[test]
    fn a_bound_is_above_the_true_difference_no_more_often_than_it_says() {
        for (questions, spread) in [(12, 0.3), (12, 1.0), (60, 0.05), (60, 0.2), (60, 0.6)] {
            for difference in [-0.04, -0.01, 0.0, 0.03] {
                let error = error(questions, spread, difference);
                assert!(error <= ALPHA, "{questions} {spread} {difference}: {error}");
            }
        }
        assert!(error(12, 1.0, 0.0) > ALPHA / 5.0, "a bound that says next to nothing is none");
    }

    #[test]
    fn bounds_lie_on_both_sides_and_come_nearer_with_more_questions() {
        let (few, many) = (of(500, 6, 5), of(5_000, 60, 50));
        for counts in [few, many, of(40, 38, 0), of(300, 0, 0), of(300, 0, 9)] {
            let (lower, upper) = (counts.lower_bound(ALPHA), counts.upper_bound(ALPHA));
            assert!(lower <= counts.difference() && counts.difference() <= upper, "{counts:?}: {lower} {upper}");
        }
        assert!(few.lower_bound(ALPHA) < many.lower_bound(ALPHA));
        assert!(of(40, 38, 0).lower_bound(ALPHA) > 0.7 && of(40, 1, 0).lower_bound(ALPHA) < 0.0);
        assert!(of(300, 0, 9).upper_bound(ALPHA) < 0.0);
    }

    #[test]
    fn as_many_questions_as_are_asked_for_pass_a_candidate_without_harm_and_fail_one_that_is_a_point_worse() {
        let rule = Harmlessness { margin: 0.01, alpha: ALPHA, miss: 0.1 };
        for (differing, normal) in [(0.02, 1_712), (0.05, 4_280), (0.1, 8_560)] {
            let questions = rule.questions(differing, 1 << 20);
            // What the normal distribution would ask for, and what it costs that nothing is taken for normal.
            assert!(questions >= normal && questions < normal * 3 / 2, "{differing}: {questions}");
            assert!(!rule.suffices(questions * 9 / 10, differing));
        }
        assert!((300..700).contains(&rule.questions(0.0, 1 << 20)), "{}", rule.questions(0.0, 1 << 20));
        assert_eq!(rule.questions(0.3, 1_000), 1_000, "no more than there may be");
        let surer = Harmlessness { miss: 0.01, ..rule };
        assert!(surer.questions(0.02, 1 << 20) > rule.questions(0.02, 1 << 20));
    }
}
