/// The `used` most probable experts, best first and ties by lower id, with their probabilities renormalised to sum to one.
pub fn route(logits: &[f32], used: usize) -> Vec<(usize, f32)> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    order.truncate(used);
    let best = f64::from(logits[order[0]]);
    let weights: Vec<f64> = order.iter().map(|&e| (f64::from(logits[e]) - best).exp()).collect();
    let sum: f64 = weights.iter().sum();
    order.iter().zip(weights).map(|(&e, w)| (e, (w / sum) as f32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logits_go_to_the_lower_expert() {
        let picked = route(&[1.0, 2.0, 2.0, 0.0], 3);
        assert_eq!(picked.iter().map(|p| p.0).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(picked[0].1, picked[1].1);
        assert!((picked.iter().map(|p| p.1).sum::<f32>() - 1.0).abs() < 1e-6);
    }
}
