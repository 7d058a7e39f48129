/// `x * w / sqrt(mean(x^2) + eps)`; `w` is the factor itself, not an offset from one.
pub fn rmsnorm(x: &[f32], w: &[f32], eps: f32) -> Vec<f32> {
    let mean = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + f64::from(eps)).sqrt();
    x.iter().zip(w).map(|(&v, &w)| (f64::from(v) * scale * f64::from(w)) as f32).collect()
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
}
