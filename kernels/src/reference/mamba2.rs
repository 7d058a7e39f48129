use super::activations::softplus;

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

/// [`mamba2_recurrent`] in chunks of `chunk` tokens, within which no token waits for the one before it: with `G` the
/// running sum of `dt a` in a chunk, `y_t = e^(G_t) h c_t + sum over s <= t of (c_t b_s) dt_s e^(G_t - G_s) x_s + d
/// x_t`, and `h = e^(G_last) h + sum of dt_s e^(G_last - G_s) x_s b_s^T`.
pub fn mamba2_chunked(i: &Mamba2Inputs, state: &mut [f64], chunk: usize) -> Vec<f32> {
    let (pd, nd) = (i.head_dim, i.state_dim);
    let chunks = (0..i.dt.len()).step_by(chunk).map(|at| at..i.dt.len().min(at + chunk));
    let part = |tokens: std::ops::Range<usize>| Mamba2Inputs {
        x: &i.x[tokens.start * pd..tokens.end * pd],
        b: &i.b[tokens.start * nd..tokens.end * nd],
        c: &i.c[tokens.start * nd..tokens.end * nd],
        dt: &i.dt[tokens],
        ..*i
    };
    chunks.flat_map(|tokens| one_chunk(&part(tokens), state)).collect()
}

fn one_chunk(i: &Mamba2Inputs, state: &mut [f64]) -> Vec<f32> {
    let (n, pd, nd) = (i.dt.len(), i.head_dim, i.state_dim);
    let dt: Vec<f64> = i.dt.iter().map(|dt| softplus(f64::from(*dt) + f64::from(i.dt_bias))).collect();
    let total: Vec<f64> = dt.iter().scan(0.0, |sum, dt| (*sum += dt * f64::from(i.a), Some(*sum)).1).collect();
    let x = |t: usize, p: usize| f64::from(i.x[t * pd + p]);
    let value = |of: &[f32], t: usize, k: usize| f64::from(of[t * nd + k]);
    let mut out = Vec::with_capacity(n * pd);
    for t in 0..n {
        let weight = |s: usize| {
            let product: f64 = (0..nd).map(|k| value(i.c, t, k) * value(i.b, s, k)).sum();
            product * dt[s] * (total[t] - total[s]).exp()
        };
        let weights: Vec<f64> = (0..=t).map(weight).collect();
        for p in 0..pd {
            let before: f64 = (0..nd).map(|k| value(i.c, t, k) * state[p * nd + k]).sum();
            let within: f64 = weights.iter().enumerate().map(|(s, weight)| weight * x(s, p)).sum();
            out.push((total[t].exp() * before + within + f64::from(i.d) * x(t, p)) as f32);
        }
    }
    let last = total.last().copied().unwrap_or(0.0);
    for p in 0..pd {
        for k in 0..nd {
            let added: f64 = (0..n).map(|s| dt[s] * (last - total[s]).exp() * x(s, p) * value(i.b, s, k)).sum();
            state[p * nd + k] = last.exp() * state[p * nd + k] + added;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_any_length_give_what_tokens_one_by_one_give() {
        let wave = |n: usize, step: f32| (0..n).map(|k| (k as f32 * step).sin()).collect::<Vec<_>>();
        let (tokens, head_dim, state_dim) = (23, 3, 4);
        let (x, b) = (wave(tokens * head_dim, 0.7), wave(tokens * state_dim, 1.3));
        let (c, dt) = (wave(tokens * state_dim, 2.1), wave(tokens, 0.9));
        let (x, b, c, dt) = (&x[..], &b[..], &c[..], &dt[..]);
        let inputs = Mamba2Inputs { x, b, c, dt, dt_bias: 0.3, a: -0.4, d: 0.5, head_dim, state_dim };
        let before: Vec<f64> = (0..head_dim * state_dim).map(|k| (k as f64 * 0.37).cos()).collect();
        let mut stepped = before.clone();
        let want = mamba2_recurrent(&inputs, &mut stepped);
        for chunk in [1, 5, 23, 64] {
            let mut state = before.clone();
            let got = mamba2_chunked(&inputs, &mut state, chunk);
            assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-6), "chunk {chunk}");
            assert!(state.iter().zip(&stepped).all(|(a, b)| (a - b).abs() < 1e-12), "chunk {chunk}");
        }
    }

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
