use super::activations::silu;

/// Causal depthwise convolution and SiLU of one channel: `inputs` are the last `taps` values, the current one last.
pub fn conv_silu(inputs: &[f32], weights: &[f32]) -> f32 {
    let sum = inputs.iter().zip(weights).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum::<f64>();
    silu(sum) as f32
}

/// Short convolution of one channel between its gates: `inputs` are the last `taps` values, each times its own first
/// gate and the current one last; `gate` is the second gate of the current token.
pub fn short_conv(inputs: &[f32], weights: &[f32], gate: f32) -> f32 {
    let sum = inputs.iter().zip(weights).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum::<f64>();
    (sum * f64::from(gate)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_convolution_has_a_gate_instead_of_an_activation() {
        assert_eq!(short_conv(&[1.0, -2.0, 4.0], &[0.5, 1.0, 2.0], -3.0), -19.5);
    }

    #[test]
    fn the_last_tap_is_the_current_token() {
        let want = silu(5.0) as f32;
        assert_eq!(conv_silu(&[9.0, 9.0, 9.0, 5.0], &[0.0, 0.0, 0.0, 1.0]), want);
    }
}
