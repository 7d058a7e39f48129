//! Temperatures of questions: how far a model's probabilities are to be believed. A file has a line a question,
//! `temperature name`, as `chimere eval decisions` writes it.

use super::answer::shares;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A probability below this counts as this: its logarithm has to be a number.
const LEAST: f64 = 1e-30;
/// The range in which a temperature may lie; [`TemperaturesError`] says it.
const RANGE: std::ops::RangeInclusive<f64> = 0.05..=20.0;

/// Temperatures by the names of questions. A question that is not named keeps what the model says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Temperatures(BTreeMap<String, f64>);

/// What is wrong with a file of temperatures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: wanted a temperature from 0.05 to 20 and the name of a question, got {got:?}")]
pub struct TemperaturesError {
    /// The line's number, from 1.
    pub line: usize,
    /// The beginning of that line.
    pub got: String,
}

impl Temperatures {
    /// Sets a question's temperature, brought into the range that a file may have.
    pub fn set(&mut self, name: String, temperature: f64) {
        self.0.insert(name, temperature.clamp(*RANGE.start(), *RANGE.end()));
    }

    /// Probabilities at the temperature of the question of this name.
    pub fn apply(&self, name: Option<&str>, probabilities: Vec<f64>) -> Vec<f64> {
        match name.and_then(|name| self.0.get(name)) {
            Some(temperature) => at_temperature(&probabilities, *temperature),
            None => probabilities,
        }
    }
}

/// Probabilities, each to the power of 1 / temperature and brought back to a sum of 1.
pub fn at_temperature(probabilities: &[f64], temperature: f64) -> Vec<f64> {
    shares(&probabilities.iter().map(|p| p.max(LEAST).ln() / temperature).collect::<Vec<_>>())
}

/// The temperature that makes what was right most probable, of distributions with the number of the right option. The
/// mean loss is convex in its inverse, so thirds of the range are left out until the rest is small.
pub fn fit(decided: &[(Vec<f64>, usize)]) -> f64 {
    let is_most = |(p, right): &(Vec<f64>, usize)| p.iter().all(|other| *other <= p[*right]);
    if decided.iter().all(is_most) {
        // Each step surer would fit better, without an end: what was never wrong says nothing of how sure to be.
        return 1.0;
    }
    let loss = |inverse: f64| -> f64 {
        decided.iter().map(|(p, right)| -at_temperature(p, inverse.recip())[*right].max(LEAST).ln()).sum()
    };
    let (mut low, mut high) = (RANGE.end().recip(), RANGE.start().recip());
    while high - low > 1e-4 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if loss(a) <= loss(b) { high = b } else { low = a }
    }
    (2.0 / (low + high)).clamp(*RANGE.start(), *RANGE.end())
}

impl FromStr for Temperatures {
    type Err = TemperaturesError;

    fn from_str(text: &str) -> Result<Self, TemperaturesError> {
        let mut all = Self::default();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let wrong = || TemperaturesError { line: number + 1, got: line.chars().take(80).collect() };
            let (temperature, name) = line.split_once(' ').ok_or_else(wrong)?;
            let temperature = temperature.parse().ok().filter(|t| RANGE.contains(t)).ok_or_else(wrong)?;
            all.0.insert(name.to_owned(), temperature);
        }
        Ok(all)
    }
}

impl fmt::Display for Temperatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, temperature)| writeln!(f, "{temperature:.4} {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_temperatures_reads_back_and_wrong_lines_are_named() {
        let mut all = Temperatures::default();
        all.set("kind of order".into(), 1.5);
        all.set("far".into(), 1e9);
        let text = all.to_string();
        assert_eq!(text, "20.0000 far\n1.5000 kind of order\n");
        assert_eq!(format!("# fitted\n\n{text}").parse(), Ok(all));
        for bad in ["1.5", "0 a", "NaN a", "30 a", "x a"] {
            let error = format!("1 a\n{bad}").parse::<Temperatures>().unwrap_err();
            assert_eq!((error.line, &error.got[..]), (2, bad));
        }
    }

    #[test]
    fn a_fitted_temperature_makes_the_surest_as_sure_as_they_are_right() {
        // Sure at 0.9, right in 3 of 5: at the fitted temperature 0.6.
        let decided: Vec<_> = (0..5).map(|i| (vec![0.9, 0.1], usize::from(i > 2))).collect();
        let fitted = at_temperature(&[0.9, 0.1], fit(&decided));
        assert!((fitted[0] - 0.6).abs() < 1e-3, "{fitted:?}");
        assert_eq!(fit(&decided[..3]), 1.0, "all of them were right");
        let named = Temperatures([("a".to_owned(), 2.0)].into());
        assert_eq!(named.apply(None, vec![0.9, 0.1]), [0.9, 0.1]);
        assert!((named.apply(Some("a"), vec![0.9, 0.1])[0] - 0.75).abs() < 1e-12);
        assert_eq!(at_temperature(&[1.0, 0.0], 1.0)[0], 1.0);
    }
}
