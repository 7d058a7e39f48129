use super::softplus;

/// Inputs of one Mamba-2 head over `dt.len()` tokens; rows are tokens.
pub struct Mamba2Inputs<'a> {
    /// `[T, P]`, after convolution and SiLU.
    pub x: &'a [f32],
    /// `[T, N]`, the group's.
    pub b: &'a [f32],
    /// `[T, N]`, the group's.
    pub c: &'a [f32],
    /// `[T]`, step sizes before bias and softplus.
    pub dt: &'a [f32],
    /// Added to each step size.
    pub dt_bias: f32,
    /// `-exp(A_log)`: the decay a unit of time, below 0.
    pub a: f32,
    /// How much of the input goes past the state.
    pub d: f32,
    /// Width of a head, P.
    pub head_dim: usize,
    /// Width of the state of one of the head's values, N.
    pub state_dim: usize,
}

/// Mamba-2 token by token: `dt = softplus(dt + bias); h = e^(dt a) h + dt x b^T; y = h c + d x`. `state` is `[P, N]`;
/// returns `[T, P]`. Step sizes are not clamped.
pub fn mamba2_recurrent(i: &Mamba2Inputs, state: &mut [f64]) -> Vec<f32> {
    let (pd, nd) = (i.head_dim, i.state_dim);
    let mut out = vec![0.0; i.dt.len() * pd];
    for t in 0..i.dt.len() {
        let (b, c) = (&i.b[t * nd..][..nd], &i.c[t * nd..][..nd]);
        let dt = softplus(f64::from(i.dt[t]) + f64::from(i.dt_bias));
        let decay = (dt * f64::from(i.a)).exp();
        for p in 0..pd {
            let (x, h) = (f64::from(i.x[t * pd + p]), &mut state[p * nd..][..nd]);
            h.iter_mut().zip(b).for_each(|(h, b)| *h = decay * *h + dt * x * f64::from(*b));
            let read: f64 = h.iter().zip(c).map(|(h, c)| h * f64::from(*c)).sum();
            out[t * pd + p] = (read + f64::from(i.d) * x) as f32;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_decays_takes_the_input_up_and_is_read() {
        // softplus(30) is 30 to one part in 10^8, and e^(30 a) one half.
        let (a, d) = (-std::f32::consts::LN_2 / 30.0, 0.5);
        let inputs = Mamba2Inputs {
            x: &[1.0, 0.0],
            b: &[1.0, 2.0, 0.0, 0.0],
            c: &[1.0, 1.0, 1.0, 0.0],
            dt: &[29.0, 29.0],
            dt_bias: 1.0,
            a,
            d,
            head_dim: 1,
            state_dim: 2,
        };
        let mut state = [4.0, 0.0];
        let y = mamba2_recurrent(&inputs, &mut state);
        // 4/2 + 30 and 60, read whole, and half the input past them; then the first one decayed once more.
        assert!((y[0] - 92.5).abs() < 1e-4 && (y[1] - 16.0).abs() < 1e-4, "{y:?}");
        assert!((state[0] - 16.0).abs() < 1e-5 && (state[1] - 30.0).abs() < 1e-5, "{state:?}");
    }
}
