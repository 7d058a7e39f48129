use std::f64::consts::TAU;

/// YaRN: how a model is led beyond the positions that it was trained for. Pairs that turn slowly are slowed down by
/// `factor`, those that turn fast keep their frequency, and between both frequencies are mixed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// By how much slow pairs are slowed down.
    pub factor: f64,
    /// Positions that the model was trained for.
    pub positions: f64,
    /// Pairs that turn at least this often within these positions keep their frequency.
    pub beta_fast: f64,
    /// Pairs that turn at most this often within these positions are slowed down by the whole factor.
    pub beta_slow: f64,
    /// What cosines and sines are multiplied with.
    pub magnitude: f64,
}

impl Yarn {
    /// The usual magnitude of a factor: `0.1 ln(factor) + 1`.
    pub fn usual_magnitude(factor: f64) -> f64 {
        if factor <= 1.0 { 1.0 } else { 0.1 * factor.ln() + 1.0 }
    }

    /// The share of its own frequency that pair `i` keeps.
    fn kept(&self, i: usize, rotary: usize, theta: f64) -> f64 {
        let width = rotary as f64;
        let pair = |turns: f64| width * (self.positions / (turns * TAU)).ln() / (2.0 * theta.ln());
        let low = pair(self.beta_fast).floor().max(0.0);
        let high = pair(self.beta_slow).ceil().min(width - 1.0);
        let span = if low == high { 0.001 } else { high - low };
        1.0 - ((i as f64 - low) / span).clamp(0.0, 1.0)
    }
}

/// Radians by which pair `i` of `rotary` values turns from one position to the next: `theta^(-2i/rotary)`, or what
/// `yarn` makes of it.
pub fn rope_frequency(i: usize, rotary: usize, theta: f64, yarn: Option<&Yarn>) -> f64 {
    let own = theta.powf(-2.0 * i as f64 / rotary.max(1) as f64);
    let Some(yarn) = yarn else { return own };
    let kept = yarn.kept(i, rotary, theta);
    own / yarn.factor * (1.0 - kept) + own * kept
}

/// Rotates the first `rotary` values of a head in place: pair `(i, i + rotary/2)` by `position * theta^(-2i/rotary)`.
pub fn rope(x: &mut [f32], position: u32, rotary: usize, theta: f64) {
    let half = rotary / 2;
    for i in 0..half {
        let angle = f64::from(position) * rope_frequency(i, rotary, theta, None);
        let (a, b) = (f64::from(x[i]), f64::from(x[i + half]));
        x[i] = (a * angle.cos() - b * angle.sin()) as f32;
        x[i + half] = (b * angle.cos() + a * angle.sin()) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_zero_changes_nothing_and_the_tail_is_never_rotated() {
        let mut x = [1.0, 2.0, 3.0, 4.0, 5.0];
        rope(&mut x, 0, 4, 1e7);
        assert_eq!(x, [1.0, 2.0, 3.0, 4.0, 5.0]);
        rope(&mut x, 1, 4, 1e7);
        assert!((x[0] - (1f64.cos() - 3.0 * 1f64.sin()) as f32).abs() < 1e-6);
        assert_eq!(x[4], 5.0);
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_slows_the_others_down() {
        let (rotary, theta) = (128, 1e6);
        let magnitude = Yarn::usual_magnitude(4.0);
        let yarn = Yarn { factor: 4.0, positions: 32_768.0, beta_fast: 32.0, beta_slow: 1.0, magnitude };
        let share = |i| rope_frequency(i, rotary, theta, Some(&yarn)) / rope_frequency(i, rotary, theta, None);
        // Pair 23 turns 32 times within the positions, and pair 40 once.
        assert_eq!((share(0), share(23), share(40), share(63)), (1.0, 1.0, 0.25, 0.25));
        assert!((share(30) - (1.0 - 0.75 * 7.0 / 17.0)).abs() < 1e-12, "{}", share(30));
        assert!((magnitude - 1.138_629).abs() < 1e-6 && Yarn::usual_magnitude(1.0) == 1.0);
    }
}
