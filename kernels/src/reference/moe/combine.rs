/// `x + gates[0] * experts[0] + gates[1] * experts[1] + ... + gates[last] * shared`: a row of the residual stream with
/// what its experts made. `gates` has one more than there are experts if there is a shared one.
pub fn combine(x: &[f32], gates: &[f32], experts: &[&[f32]], shared: Option<&[f32]>) -> Vec<f32> {
    let terms: Vec<&[f32]> = experts.iter().copied().chain(shared).collect();
    assert_eq!(terms.len(), gates.len(), "a gate for each term");
    let value =
        |i: usize| terms.iter().zip(gates).fold(f64::from(x[i]), |sum, (y, g)| sum + f64::from(*g) * f64::from(y[i]));
    (0..x.len()).map(|i| value(i) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shared_expert_has_the_last_gate() {
        assert_eq!(combine(&[1.0, 2.0], &[0.5, 10.0], &[&[2.0, 4.0]], Some(&[1.0, 0.0])), [12.0, 4.0]);
        assert_eq!(combine(&[1.0], &[1.0], &[], Some(&[3.0])), [4.0]);
    }
}
