/// One query head over the `n` cached positions it may see: `softmax(q k^T / sqrt(D)) v`. `keys` and `values` are `[n,
/// D]`.
pub fn attention(q: &[f32], keys: &[f32], values: &[f32]) -> Vec<f32> {
    let dim = q.len();
    let scores: Vec<f64> = keys
        .chunks_exact(dim)
        .map(|k| k.iter().zip(q).map(|(&k, &q)| f64::from(k) * f64::from(q)).sum::<f64>() / (dim as f64).sqrt())
        .collect();
    let best = scores.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    let weights: Vec<f64> = scores.iter().map(|s| (s - best).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let column = |d: usize| weights.iter().zip(values.chunks_exact(dim)).map(|(w, v)| w * f64::from(v[d])).sum::<f64>();
    (0..dim).map(|d| (column(d) / sum) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_scores_give_the_mean_of_the_values() {
        assert_eq!(attention(&[0.0, 0.0], &[1.0, 2.0, 3.0, 4.0], &[1.0, 0.0, 3.0, 2.0]), [2.0, 1.0]);
    }
}
