/// What a low-rank adapter adds to the product of a matrix with `x`: `scale * B (A x)` (Hu et al., 2021), with
/// `a: [rank, inputs]` and `b: [outputs, rank]`.
pub fn lora(x: &[f32], (a, b): (&[f32], &[f32]), scale: f32) -> Vec<f32> {
    let dot = |w: &[f32], x: &[f64]| w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum::<f64>();
    let x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    let reduced: Vec<f64> = a.chunks_exact(x.len()).map(|row| f64::from(scale) * dot(row, &x)).collect();
    b.chunks_exact(reduced.len()).map(|row| dot(row, &reduced) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_pass_through_the_rank() {
        let (a, b) = ([1.0, 0.0, 2.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, -1.0]);
        assert_eq!(lora(&[1.0, 3.0, 5.0], (&a, &b), 0.5), [0.5 * (11.0 + 3.0), -1.5]);
    }
}
