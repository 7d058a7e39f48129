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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_gate_passes_its_product() {
        assert_eq!(swiglu(100.0, 2.0), 200.0);
        assert_eq!(swiglu(0.0, 5.0), 0.0);
    }

    #[test]
    fn what_is_below_zero_is_cut_and_the_rest_squared() {
        assert_eq!([-2.0, 0.0, 3.0].map(relu2), [0.0, 0.0, 9.0]);
    }
}
