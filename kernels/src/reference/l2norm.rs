/// `x / sqrt(sum(x^2) + 1e-6)`: the epsilon is added inside the root.
pub fn l2norm(x: &[f32]) -> Vec<f32> {
    let sum = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>();
    let scale = 1.0 / (sum + 1e-6).sqrt();
    x.iter().map(|&v| (f64::from(v) * scale) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normed_vector_has_length_one_and_zero_stays_zero() {
        let y = l2norm(&[3.0, -4.0]);
        assert!((y[0] - 0.6).abs() < 1e-6 && (y[1] + 0.8).abs() < 1e-6);
        assert_eq!(l2norm(&[0.0; 4]), [0.0; 4]);
    }
}
