//! Norms of a row of values, with and without a gate.

use super::activations::silu;

/// `x * w / sqrt(mean(x^2) + eps)`; `w` is the factor itself, not an offset from one.
pub fn rmsnorm(x: &[f32], w: &[f32], eps: f32) -> Vec<f32> {
    let mean = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + f64::from(eps)).sqrt();
    x.iter().zip(w).map(|(&v, &w)| (f64::from(v) * scale * f64::from(w)) as f32).collect()
}

/// `(x - mean(x)) / sqrt(variance(x) + eps) * w + b`.
pub fn layer_norm(x: &[f32], w: &[f32], b: &[f32], eps: f32) -> Vec<f32> {
    let mean = x.iter().map(|&v| f64::from(v)).sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (variance + f64::from(eps)).sqrt();
    let normed = x.iter().map(|&v| (f64::from(v) - mean) * scale);
    normed.zip(w.iter().zip(b)).map(|(v, (&w, &b))| (v * f64::from(w) + f64::from(b)) as f32).collect()
}

/// `x / sqrt(sum(x^2) + 1e-6)`: the epsilon is added inside the root.
pub fn l2norm(x: &[f32]) -> Vec<f32> {
    let sum = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>();
    let scale = 1.0 / (sum + 1e-6).sqrt();
    x.iter().map(|&v| (f64::from(v) * scale) as f32).collect()
}

/// `rmsnorm(x, w) * silu(z)` over one value head: the norm comes before the gate.
pub fn gated_norm(x: &[f32], w: &[f32], z: &[f32], eps: f32) -> Vec<f32> {
    rmsnorm(x, w, eps).iter().zip(z).map(|(&y, &z)| (f64::from(y) * silu(f64::from(z))) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_norm_divides_by_the_root_mean_square() {
        assert_eq!(
            rmsnorm(&[3.0, 4.0], &[1.0, 2.0], 0.0),
            [(3.0 / 12.5f64.sqrt()) as f32, (8.0 / 12.5f64.sqrt()) as f32]
        );
    }

    #[test]
    fn a_layer_norm_takes_the_mean_away_first() {
        assert_eq!(layer_norm(&[1.0, 3.0], &[2.0, 2.0], &[0.5, 0.5], 0.0), [-1.5, 2.5]);
    }

    #[test]
    fn a_normed_vector_has_length_one_and_zero_stays_zero() {
        let y = l2norm(&[3.0, -4.0]);
        assert!((y[0] - 0.6).abs() < 1e-6 && (y[1] + 0.8).abs() < 1e-6);
        assert_eq!(l2norm(&[0.0; 4]), [0.0; 4]);
    }

    #[test]
    fn a_closed_gate_lets_nothing_through() {
        assert_eq!(gated_norm(&[1.0, -1.0], &[1.0, 1.0], &[0.0, 0.0], 1e-6), [0.0, -0.0]);
    }
}
