/// Rotates the first `rotary` values of a head in place: pair `(i, i + rotary/2)` by `position * theta^(-2i/rotary)`.
pub fn rope(x: &mut [f32], position: u32, rotary: usize, theta: f64) {
    let half = rotary / 2;
    for i in 0..half {
        let angle = f64::from(position) * theta.powf(-2.0 * i as f64 / rotary as f64);
        let (a, b) = (f64::from(x[i]), f64::from(x[i + half]));
        x[i] = (a * angle.cos() - b * angle.sin()) as f32;
        x[i + half] = (b * angle.cos() + a * angle.sin()) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_zero_changes_nothing_and_the_tail_is_never_rotated() {
        let mut x = [1.0, 2.0, 3.0, 4.0, 5.0];
        rope(&mut x, 0, 4, 1e7);
        assert_eq!(x, [1.0, 2.0, 3.0, 4.0, 5.0]);
        rope(&mut x, 1, 4, 1e7);
        assert!((x[0] - (1f64.cos() - 3.0 * 1f64.sin()) as f32).abs() < 1e-6);
        assert_eq!(x[4], 5.0);
    }
}
