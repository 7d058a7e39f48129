use super::{rmsnorm, silu};

/// `rmsnorm(x, w) * silu(z)` over one value head: the norm comes before the gate.
pub fn gated_norm(x: &[f32], w: &[f32], z: &[f32], eps: f32) -> Vec<f32> {
    rmsnorm(x, w, eps).iter().zip(z).map(|(&y, &z)| (f64::from(y) * silu(f64::from(z))) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gate_lets_nothing_through() {
        assert_eq!(gated_norm(&[1.0, -1.0], &[1.0, 1.0], &[0.0, 0.0], 1e-6), [0.0, -0.0]);
    }
}
