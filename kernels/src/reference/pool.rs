use super::norms::rmsnorm;

/// The sum of `rows` after a norm with the factor `w`; zeros without rows.
pub fn pool(rows: &[&[f32]], w: &[f32], eps: f32) -> Vec<f32> {
    let mut sum = vec![0.0; w.len()];
    for row in rows {
        sum.iter_mut().zip(rmsnorm(row, w, eps)).for_each(|(sum, x)| *sum += f64::from(x));
    }
    sum.into_iter().map(|sum| sum as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_count_alike_whatever_their_size() {
        assert_eq!(pool(&[&[3.0, -3.0], &[0.5, 0.5]], &[1.0, 2.0], 0.0), [2.0, 0.0]);
        assert_eq!(pool(&[], &[1.0, 2.0], 0.0), [0.0, 0.0]);
    }
}
