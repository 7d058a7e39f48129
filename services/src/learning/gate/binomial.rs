//! Tails of the binomial distribution, and bounds of a share by them (Clopper and Pearson, 1934). Nothing is taken for
//! normal: the bounds hold for few questions too.

/// Halvings of an interval when a bound is looked for: 2^-50 is below what a double of a share can say.
const HALVINGS: u32 = 50;

/// The chance of exactly `k` of `n`, each with chance `p`.
pub(super) fn chance(k: u64, n: u64, p: f64) -> f64 {
    match (k, p) {
        _ if k > n => 0.0,
        (0, p) if p <= 0.0 => 1.0,
        (_, p) if p <= 0.0 => 0.0,
        (k, p) if p >= 1.0 => f64::from(u8::from(k == n)),
        _ => (ln_choose(n, k) + k as f64 * p.ln() + (n - k) as f64 * (-p).ln_1p()).exp(),
    }
}

/// The chance of `k` or more of `n`.
pub(super) fn at_least(k: u64, n: u64, p: f64) -> f64 {
    match k {
        0 => 1.0,
        _ if k > n => 0.0,
        // The shorter tail is summed, so that no small chance is a difference of large ones.
        _ if k as f64 > n as f64 * p => upward(k, n, p),
        _ => 1.0 - upward(n - k + 1, n, 1.0 - p),
    }
}

/// The chance of `k` or more of `n`, where `k` is above the mean: terms fall from the first one on.
fn upward(k: u64, n: u64, p: f64) -> f64 {
    let (mut term, mut sum) = (chance(k, n, p), 0.0);
    for i in k..=n {
        sum += term;
        term *= (n - i) as f64 / (i + 1) as f64 * p / (1.0 - p);
        if term < sum * 1e-16 {
            break;
        }
    }
    sum.min(1.0)
}

/// The greatest share that `k` of `n` do not rule out: with a greater one, so few have a chance below `alpha`.
pub(super) fn share_at_most(k: u64, n: u64, alpha: f64) -> f64 {
    if k >= n {
        return 1.0;
    }
    let few = |share: f64| at_least(n - k, n, 1.0 - share);
    let (mut low, mut high) = (k as f64 / n as f64, 1.0);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if few(middle) > alpha { low = middle } else { high = middle }
    }
    high
}

/// The logarithm of the number of ways to take `k` of `n`.
fn ln_choose(n: u64, k: u64) -> f64 {
    ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
}

/// The logarithm of `n` factorial: a product where it is exact, above that Stirling's series, whose first term left out
/// is below 1e-14 from 20 on.
fn ln_factorial(n: u64) -> f64 {
    if n < 20 {
        return (2..=n).map(|i| i as f64).product::<f64>().ln();
    }
    let x = n as f64;
    let square = x * x;
    let series = (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * square)) / square) / square) / x;
    (x + 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_those_of_the_definition() {
        // 10 choose 3 is 120, and 120 of 1024 tosses of ten coins show three heads.
        assert!((chance(3, 10, 0.5) - 120.0 / 1024.0).abs() < 1e-15);
        assert!((at_least(8, 10, 0.5) - 56.0 / 1024.0).abs() < 1e-15);
        assert!((at_least(2, 10, 0.5) - 1013.0 / 1024.0).abs() < 1e-15);
        for (n, p) in [(1, 0.3), (7, 0.9), (200, 0.01), (5_000, 0.4)] {
            let all: f64 = (0..=n).map(|k| chance(k, n, p)).sum();
            assert!((all - 1.0).abs() < 1e-10, "{n} {p}: {all}");
            let tail: f64 = (n / 3..=n).map(|k| chance(k, n, p)).sum();
            assert!((at_least(n / 3, n, p) - tail).abs() < 1e-10, "{n} {p}");
        }
        assert_eq!([chance(0, 5, 0.0), chance(1, 5, 0.0), chance(5, 5, 1.0), chance(4, 5, 1.0)], [1.0, 0.0, 1.0, 0.0]);
        assert_eq!([at_least(0, 0, 0.5), at_least(1, 0, 0.5), at_least(3, 2, 0.5)], [1.0, 0.0, 0.0]);
    }

    #[test]
    fn factorials_go_on_where_the_series_begins() {
        let product = |n: u64| (2..=n).map(|i| (i as f64).ln()).sum::<f64>();
        for n in [0, 1, 19, 20, 21, 170, 10_000] {
            let (got, want) = (ln_factorial(n), product(n));
            assert!((got - want).abs() <= 1e-11 * want.max(1.0), "{n}: {got} for {want}");
        }
    }

    #[test]
    fn a_share_s_bound_is_clopper_and_pearson_s() {
        // None of n: 1 - alpha^(1/n). All of them rule out nothing.
        assert!((share_at_most(0, 300, 0.05) - (1.0 - 0.05f64.powf(1.0 / 300.0))).abs() < 1e-12);
        assert_eq!((share_at_most(4, 4, 0.05), share_at_most(0, 0, 0.05)), (1.0, 1.0));
        // 1 of 10 at 97.5 %: the figure of the published tables.
        assert!((share_at_most(1, 10, 0.025) - 0.4450).abs() < 1e-4);
        let bound = share_at_most(34, 1_712, 0.05);
        assert!((at_least(1_712 - 34, 1_712, 1.0 - bound) - 0.05).abs() < 1e-9);
    }
}
