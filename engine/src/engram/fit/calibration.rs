//! Fits the lambdas of [`Strengths`]: deleted interpolation by expectation-maximisation on text that is in no table and
//! no document, with what the served model says of it.

use super::auto::Levels;
use super::strength::{CELLS_ALL, Cell, Strengths};
use crate::ids::TokenId;

/// Rounds after which the lambdas hardly move any more.
const ROUNDS: usize = 60;
/// Positions that what is known of a cell's siblings counts for.
const PRIOR: f64 = 2.0;
/// Positions at which every cell is taken to have been wrong: where a match only says what the model says too, nothing
/// tells how far to believe it, and then it is not believed.
const DOUBT: f64 = 0.5;
/// Most that is fitted for [`Cell::is_of_fragments`], of which several may match. " engineer" in a table of
/// documentation goes on with "ing", which makes another word of what an answer had to copy; on held-out documentation
/// the bound costs nothing.
const FRAGMENT_MAX: f64 = 0.3;

/// What is known of the positions of a text.
#[derive(Clone, Debug, Default)]
pub struct Fit {
    /// Of all positions: (cell, probability of the token that came by that match), most trusted first.
    matches: Vec<(Cell, f32)>,
    /// For each position: where its matches end, and the model's probability of what came.
    positions: Vec<(u32, f32)>,
}

impl Fit {
    /// Takes a position: its matches, the token that came, and how probable the model holds it.
    pub fn add(&mut self, levels: &Levels<'_>, next: TokenId, p_model: f64) {
        for (level, mut expected) in levels.iter() {
            let p = expected.find(|e| e.0 == next).map_or(0.0, |e| e.1);
            self.matches.push((level.cell, p as f32));
        }
        self.positions.push((self.matches.len() as u32, p_model as f32));
    }

    /// Positions that were taken.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether no position was taken.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    fn each(&self) -> impl Iterator<Item = (&[(Cell, f32)], f64)> {
        let starts = std::iter::once(0).chain(self.positions.iter().map(|p| p.0 as usize));
        self.positions.iter().zip(starts).map(|(&(end, p), start)| (&self.matches[start..end as usize], f64::from(p)))
    }

    /// Mean surprise in nats at these strengths.
    pub fn nats(&self, strengths: &Strengths) -> f64 {
        let one = |(matches, model): (&[(Cell, f32)], f64)| {
            let (p, rest) = matches.iter().fold((0.0, 1.0), |(p, rest), &(cell, of)| {
                let lambda = f64::from(strengths.of(cell));
                (p + rest * lambda * f64::from(of), rest * (1.0 - lambda))
            });
            -(p + rest * model).max(f64::MIN_POSITIVE).ln()
        };
        self.each().map(one).sum::<f64>() / self.len() as f64
    }

    /// The strengths under which this text is least surprising.
    pub fn strengths(&self, before: &Strengths) -> Strengths {
        Self::joint(&[(self, 1.0)], before, |_| false)
    }

    /// The strengths under which texts are least surprising together, where each position of one counts as its weight
    /// says. A cell that was seen seldom leans on its siblings; one that was never seen, or that is to be kept, is as
    /// `before` says.
    pub fn joint(texts: &[(&Self, f64)], before: &Strengths, keep: impl Fn(Cell) -> bool) -> Strengths {
        let kept = |cell| keep(cell).then(|| f64::from(before.of(cell)));
        let mut lambda: Vec<f64> = Cell::all().map(|cell| kept(cell).unwrap_or(0.5)).collect();
        for _ in 0..ROUNDS {
            let (taken, asked) = counts(texts, &lambda);
            lambda = Cell::all().map(|cell| kept(cell).unwrap_or_else(|| maximise(cell, &taken, &asked))).collect();
        }
        let (_, asked) = counts(texts, &lambda);
        let seen = |cell: Cell| !keep(cell) && cell.siblings().any(|i| asked[i] > 0.0);
        Strengths::new(|cell| if seen(cell) { lambda[cell.index()] as f32 } else { before.of(cell) })
    }
}

/// How often the token came from each cell's matches, and how often they were asked, at these strengths.
fn counts(texts: &[(&Fit, f64)], lambda: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (mut taken, mut asked) = (vec![0.0; CELLS_ALL], vec![0.0; CELLS_ALL]);
    for (fit, weight) in texts {
        fit.each().for_each(|(matches, model)| expect(matches, (model, *weight), lambda, &mut taken, &mut asked));
    }
    (taken, asked)
}

/// Adds to each match's cell how probably it was the one that the token came from, and how probably it was asked: none
/// before it was the one. The position counts as `weight` of them.
fn expect(matches: &[(Cell, f32)], (model, weight): (f64, f64), lambda: &[f64], taken: &mut [f64], asked: &mut [f64]) {
    let mut shares = [0.0; 64];
    let (mut rest, mut sum) = (1.0, 0.0);
    for (share, &(cell, p)) in shares.iter_mut().zip(matches) {
        let lambda = lambda[cell.index()];
        *share = rest * lambda * f64::from(p);
        sum += *share;
        rest *= 1.0 - lambda;
    }
    sum += rest * model;
    if sum <= 0.0 {
        return;
    }
    let mut left = 1.0;
    for (share, &(cell, _)) in shares.iter().zip(matches) {
        taken[cell.index()] += weight * share / sum;
        asked[cell.index()] += weight * left;
        left -= share / sum;
    }
}

fn maximise(cell: Cell, taken: &[f64], asked: &[f64]) -> f64 {
    let (all_taken, all_asked): (f64, f64) = cell.siblings().fold((0.0, 0.0), |(t, a), i| (t + taken[i], a + asked[i]));
    let prior = if all_asked > 0.0 { all_taken / all_asked } else { 0.5 };
    let most = if cell.is_of_fragments() { FRAGMENT_MAX } else { 1.0 };
    ((taken[cell.index()] + PRIOR * prior) / (asked[cell.index()] + PRIOR + DOUBT)).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positions with one match each.
    fn fit(cell: Cell, positions: impl Iterator<Item = (f32, f32)>) -> Fit {
        let mut fit = Fit::default();
        for (of_match, of_model) in positions {
            fit.matches.push((cell, of_match));
            fit.positions.push((fit.matches.len() as u32, of_model));
        }
        fit
    }

    #[test]
    fn a_match_that_is_right_three_times_in_four_gets_what_its_likelihood_has_most_at() {
        let cell = Cell::recalled(true);
        let fit = fit(cell, (0..4000).map(|i| if i % 4 < 3 { (1.0, 0.01) } else { (0.0, 0.5) }));
        let before = Strengths::new(|_| 0.3);
        let fitted = fit.strengths(&before);
        let best = (0..=98).map(|i| i as f32 / 100.0).min_by(|a, b| {
            let nats = |x: f32| fit.nats(&Strengths::new(|_| x));
            nats(*a).total_cmp(&nats(*b))
        });
        assert!((fitted.of(cell) - best.unwrap()).abs() < 0.02, "{} and {best:?}", fitted.of(cell));
        assert!(fit.nats(&fitted) < fit.nats(&before));
        assert_eq!(fitted.of(Cell::recalled(false)), 0.3, "what was not seen stays");
    }

    #[test]
    fn a_second_match_is_asked_as_often_as_the_first_was_not_it() {
        let (first, second) = (Cell::recalled(true), Cell::recalled(false));
        let mut fit = Fit::default();
        for i in 0..2000 {
            fit.matches.extend([(first, f32::from(i % 2 == 0)), (second, f32::from(i % 2 == 1))]);
            fit.positions.push((fit.matches.len() as u32, 1e-6));
        }
        let fitted = fit.strengths(&Strengths::new(|_| 0.0));
        assert!((fitted.of(first) - 0.5).abs() < 0.01 && fitted.of(second) > 0.97, "{fitted:?}");
    }

    #[test]
    fn a_match_of_a_fragment_is_never_believed_by_half() {
        let cell = Cell::all().find(|cell| cell.is_of_fragments()).unwrap();
        let fitted = fit(cell, (0..100).map(|_| (1.0, 0.01))).strengths(&Strengths::new(|_| 0.9));
        assert_eq!(fitted.of(cell), FRAGMENT_MAX as f32);
    }

    #[test]
    fn a_match_that_only_says_what_the_model_says_is_not_believed() {
        let cell = Cell::recalled(true);
        let fitted = fit(cell, (0..5).map(|_| (1.0, 1.0))).strengths(&Strengths::new(|_| 0.9));
        assert!(fitted.of(cell) < 0.1, "{}", fitted.of(cell));
    }

    #[test]
    fn a_text_that_counts_thrice_is_one_that_was_read_thrice() {
        let cell = Cell::recalled(true);
        let positions =
            |from: u32, len| (from..from + len).map(|i| (f32::from(i % 3 != 0), 0.1 + (i % 7) as f32 * 0.05));
        let (mostly, thrice) = (fit(cell, positions(0, 90)), fit(cell, (0..3).flat_map(|_| positions(0, 90))));
        let never = fit(cell, (0..60).map(|_| (0.0, 0.5)));
        let before = Strengths::new(|_| 0.3);
        let of = |texts: &[(&Fit, f64)]| Fit::joint(texts, &before, |_| false).of(cell);
        let weighed = of(&[(&mostly, 3.0), (&never, 1.0)]);
        assert!((weighed - of(&[(&thrice, 1.0), (&never, 1.0)])).abs() < 1e-6);
        assert!(weighed > of(&[(&mostly, 1.0), (&never, 1.0)]) + 0.05 && weighed < of(&[(&mostly, 3.0)]));
        assert_eq!(Fit::joint(&[(&mostly, 3.0)], &before, |kept| kept == cell), before);
    }

    #[test]
    fn no_positions_change_nothing() {
        let before = Strengths::new(|cell| cell.index() as f32 / 1000.0);
        assert_eq!(Fit::default().strengths(&before), before);
        assert!(Fit::default().is_empty());
    }
}
