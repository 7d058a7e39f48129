use super::activations::silu;

/// Causal depthwise convolution and SiLU of one channel: `inputs` are the last `taps` values, the current one last.
pub fn conv_silu(inputs: &[f32], weights: &[f32]) -> f32 {
    let sum = inputs.iter().zip(weights).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum::<f64>();
    silu(sum) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tap_is_the_current_token() {
        let want = silu(5.0) as f32;
        assert_eq!(conv_silu(&[9.0, 9.0, 9.0, 5.0], &[0.0, 0.0, 0.0, 1.0]), want);
    }
}
