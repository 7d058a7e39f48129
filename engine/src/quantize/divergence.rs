//! How far a model's next-token distributions are from another's: Kullback-Leibler divergence, agreement on the most
//! probable token, probability of the real next token. The quantities are those that llama.cpp's `--kl-divergence`
//! reports.

use crate::ids::TokenId;

/// Sums over the positions at which two models were compared.
#[derive(Clone, Debug, Default)]
pub struct Divergence {
    kl: Vec<f64>,
    same_top: u64,
    /// Of positions whose next token is known.
    known: u64,
    squared_change: f64,
    nats: [f64; 2],
}

/// Logarithm of the sum of exponentials, `ln sum exp(l)`.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    f64::from(best) + logits.iter().map(|l| f64::from((l - best).exp())).sum::<f64>().ln()
}

/// The first of the largest.
fn top(logits: &[f32]) -> usize {
    (1..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best })
}

impl Divergence {
    /// A position: logits of the base and of the other model, and the token that really follows.
    pub fn add(&mut self, base: &[f32], other: &[f32], next: Option<TokenId>) {
        assert_eq!(base.len(), other.len(), "both models have one vocabulary");
        let (lse_base, lse) = (log_sum_exp(base), log_sum_exp(other));
        let (shift, of_sums) = (lse_base as f32, lse - lse_base);
        let sum = |(a, b): (&f32, &f32)| f64::from((a - shift).exp()) * (f64::from(*a) - f64::from(*b) + of_sums);
        // Rounding may leave a little below nothing.
        self.kl.push(base.iter().zip(other).map(sum).sum::<f64>().max(0.0));
        self.same_top += u64::from(top(base) == top(other));
        if let Some(next) = next {
            let logprobs = [f64::from(base[next as usize]) - lse_base, f64::from(other[next as usize]) - lse];
            self.known += 1;
            self.squared_change += (logprobs[1].exp() - logprobs[0].exp()).powi(2);
            self.nats.iter_mut().zip(logprobs).for_each(|(sum, l)| *sum -= l);
        }
    }

    /// Number of positions that were added.
    pub fn positions(&self) -> usize {
        self.kl.len()
    }

    /// Mean divergence in nats; 0 of nothing.
    pub fn mean(&self) -> f64 {
        self.kl.iter().sum::<f64>() / self.kl.len().max(1) as f64
    }

    /// Standard error of the mean, as if positions were independent.
    pub fn mean_error(&self) -> f64 {
        let (n, mean) = (self.kl.len().max(2) as f64, self.mean());
        (self.kl.iter().map(|k| (k - mean).powi(2)).sum::<f64>() / (n - 1.0) / n).sqrt()
    }

    /// The divergences at these shares of the positions in ascending order, interpolated; 0.5 is the median, 1 the
    /// largest.
    pub fn quantiles<const N: usize>(&self, shares: [f64; N]) -> [f64; N] {
        let mut sorted = self.kl.clone();
        sorted.sort_by(f64::total_cmp);
        shares.map(|share| {
            let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
            let at = share.clamp(0.0, 1.0) * last as f64;
            let (low, part) = (at.floor() as usize, at.fract());
            sorted[low] * (1.0 - part) + sorted[(low + 1).min(last)] * part
        })
    }

    /// Share of positions where both models have the same most probable token.
    pub fn same_top(&self) -> f64 {
        self.same_top as f64 / self.kl.len().max(1) as f64
    }

    /// Root of the mean squared change of the real next token's probability.
    pub fn rms_change(&self) -> f64 {
        (self.squared_change / self.known.max(1) as f64).sqrt()
    }

    /// Perplexities of the base and of the other model.
    pub fn perplexities(&self) -> [f64; 2] {
        self.nats.map(|nats| (nats / self.known.max(1) as f64).exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logits_do_not_differ_and_a_shift_changes_nothing() {
        let base: Vec<f32> = (0..100).map(|i| (i as f32 * 0.7).sin() * 5.0).collect();
        let shifted: Vec<f32> = base.iter().map(|l| l + 3.0).collect();
        let mut d = Divergence::default();
        d.add(&base, &base, Some(3));
        d.add(&base, &shifted, Some(4));
        assert!(d.mean() < 1e-6 && d.same_top() == 1.0 && d.rms_change() < 1e-6, "{d:?}");
        let [a, b] = d.perplexities();
        assert!((a / b - 1.0).abs() < 1e-6);
    }

    #[test]
    fn two_tokens_diverge_as_by_hand() {
        // p = (3/4, 1/4), q = (1/4, 3/4): KL = ln 3 / 2.
        let (p, q) = ([3f32.ln(), 0.0], [0.0, 3f32.ln()]);
        let mut d = Divergence::default();
        d.add(&p, &q, Some(0));
        assert!((d.mean() - 3f64.ln() / 2.0).abs() < 1e-6, "{}", d.mean());
        assert_eq!(d.same_top(), 0.0);
        assert!((d.rms_change() - 0.5).abs() < 1e-6);
        let [a, b] = d.perplexities();
        assert!((a - 4.0 / 3.0).abs() < 1e-6 && (b - 4.0).abs() < 1e-6, "{a} {b}");
        d.add(&p, &p, None);
        let [low, middle, high] = d.quantiles([0.0, 0.5, 1.0]);
        assert!(low.abs() < 1e-6 && (middle - high / 2.0).abs() < 1e-6 && high > 0.5);
    }
}
