use super::silu;

/// SwiGLU of one value: `silu(gate) * up`.
pub fn swiglu(gate: f32, up: f32) -> f32 {
    (silu(f64::from(gate)) * f64::from(up)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_gate_passes_its_product() {
        assert_eq!(swiglu(100.0, 2.0), 200.0);
        assert_eq!(swiglu(0.0, 5.0), 0.0);
    }
}
