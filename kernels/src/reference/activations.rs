//! Functions of one value: sigmoid, SiLU, softplus, and what stands between the matrices of a feed-forward part.

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub(super) fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

/// `log(1 + e^x)`, and `x` itself where the difference is below one part in 10^8.
pub fn softplus(x: f64) -> f64 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// SwiGLU of one value: `silu(gate) * up`.
pub fn swiglu(gate: f32, up: f32) -> f32 {
    (silu(f64::from(gate)) * f64::from(up)) as f32
}

/// `relu(x)^2`: what stands between the matrices of a feed-forward part without a gate.
pub fn relu2(x: f32) -> f32 {
    let x = f64::from(x).max(0.0);
    (x * x) as f32
}

/// `x / 2 (1 + erf(x / sqrt 2))`, between the matrices of BERT's feed-forward parts.
pub fn gelu(x: f32) -> f32 {
    let x = f64::from(x);
    (0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))) as f32
}

/// [`gelu`] with `tanh(sqrt(2 / pi) (x + 0.044715 x^3))` in the place of `erf`.
pub fn gelu_tanh(x: f32) -> f32 {
    let x = f64::from(x);
    let inner = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2 * (x + 0.044_715 * x.powi(3));
    (0.5 * x * (1.0 + inner.tanh())) as f32
}

/// The error function: its series near 0, and 1 where no double tells it from 1.
fn erf(x: f64) -> f64 {
    /// `1 - erf(6)` is 2e-17.
    const ONE_FROM: f64 = 6.0;
    if x.abs() >= ONE_FROM {
        return x.signum();
    }
    // e^(-x^2) times a series of positive terms: nothing cancels.
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term.abs() > 1e-18 * sum.abs() {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_gate_passes_its_product() {
        assert_eq!(swiglu(100.0, 2.0), 200.0);
        assert_eq!(swiglu(0.0, 5.0), 0.0);
    }

    #[test]
    fn the_error_function_has_the_values_of_its_table() {
        for (x, want) in [(0.0, 0.0), (0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (-2.0, -0.995_322_265_0)] {
            assert!((erf(x) - want).abs() < 1e-10, "{x}");
        }
        assert!((gelu(1.0) - 0.841_344_7).abs() < 1e-6 && (gelu_tanh(1.0) - 0.841_192).abs() < 1e-6);
    }

    #[test]
    fn what_is_below_zero_is_cut_and_the_rest_squared() {
        assert_eq!([-2.0, 0.0, 3.0].map(relu2), [0.0, 0.0, 9.0]);
    }
}
