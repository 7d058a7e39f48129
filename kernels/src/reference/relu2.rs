/// `relu(x)^2`: what stands between the matrices of a feed-forward part without a gate.
pub fn relu2(x: f32) -> f32 {
    let x = f64::from(x).max(0.0);
    (x * x) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_zero_is_cut_and_the_rest_squared() {
        assert_eq!([-2.0, 0.0, 3.0].map(relu2), [0.0, 0.0, 9.0]);
    }
}
