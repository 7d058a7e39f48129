/// Inputs of one value head over `g.len()` tokens; rows are tokens.
pub struct GdnInputs<'a> {
    /// Queries, `[T, K]`, normalised and scaled by `1/sqrt(K)`.
    pub q: &'a [f32],
    /// Keys, `[T, K]`, normalised to length 1.
    pub k: &'a [f32],
    /// Values, `[T, V]`, before the update.
    pub v: &'a [f32],
    /// Log decay of each token, `[T]`, at most 0.
    pub g: &'a [f32],
    /// Write strength of each token, `[T]`, in 0..1.
    pub beta: &'a [f32],
    /// Width of a key, K.
    pub key_dim: usize,
    /// Width of a value, V.
    pub value_dim: usize,
}

/// The gated delta rule token by token: `S = e^g S; S += k (beta (v - S^T k))^T; o = S^T q`. `state` is `[K, V]`;
/// returns `[T, V]`.
pub fn gdn_recurrent(x: &GdnInputs, state: &mut [f64]) -> Vec<f32> {
    let (kd, vd) = (x.key_dim, x.value_dim);
    let mut out = vec![0.0; x.g.len() * vd];
    for t in 0..x.g.len() {
        let (q, k) = (&x.q[t * kd..][..kd], &x.k[t * kd..][..kd]);
        state.iter_mut().for_each(|s| *s *= f64::from(x.g[t]).exp());
        for c in 0..vd {
            let read: f64 = (0..kd).map(|r| state[r * vd + c] * f64::from(k[r])).sum();
            let delta = f64::from(x.beta[t]) * (f64::from(x.v[t * vd + c]) - read);
            (0..kd).for_each(|r| state[r * vd + c] += f64::from(k[r]) * delta);
            out[t * vd + c] = (0..kd).map(|r| state[r * vd + c] * f64::from(q[r])).sum::<f64>() as f32;
        }
    }
    out
}

/// [`gdn_recurrent`] in chunks of `chunk` tokens: within one, a unit lower triangular solve replaces the token-by-token
/// update. The two differ by rounding alone.
pub fn gdn_chunked(x: &GdnInputs, state: &mut [f64], chunk: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(x.g.len() * x.value_dim);
    let mut at = 0;
    while at < x.g.len() {
        let n = chunk.min(x.g.len() - at);
        let (kd, vd) = (x.key_dim, x.value_dim);
        let part = GdnInputs {
            q: &x.q[at * kd..][..n * kd],
            k: &x.k[at * kd..][..n * kd],
            v: &x.v[at * vd..][..n * vd],
            g: &x.g[at..][..n],
            beta: &x.beta[at..][..n],
            ..*x
        };
        out.extend(one_chunk(&part, state));
        at += n;
    }
    out
}

fn one_chunk(x: &GdnInputs, state: &mut [f64]) -> Vec<f32> {
    let (n, kd, vd) = (x.g.len(), x.key_dim, x.value_dim);
    let total: Vec<f64> = x.g.iter().scan(0.0, |sum, &g| (*sum += f64::from(g), Some(*sum)).1).collect();
    let dot = |a: &[f32], i: usize, b: &[f32], j: usize| -> f64 {
        (0..kd).map(|r| f64::from(a[i * kd + r]) * f64::from(b[j * kd + r])).sum()
    };
    let read = |a: &[f32], i: usize, state: &[f64], c: usize| -> f64 {
        total[i].exp() * (0..kd).map(|r| f64::from(a[i * kd + r]) * state[r * vd + c]).sum::<f64>()
    };
    let mut delta = vec![0.0f64; n * vd];
    let mut out = vec![0.0f32; n * vd];
    for i in 0..n {
        for c in 0..vd {
            let earlier: f64 =
                (0..i).map(|j| (total[i] - total[j]).exp() * dot(x.k, i, x.k, j) * delta[j * vd + c]).sum();
            delta[i * vd + c] = f64::from(x.beta[i]) * (f64::from(x.v[i * vd + c]) - read(x.k, i, state, c) - earlier);
            let within: f64 =
                (0..=i).map(|j| (total[i] - total[j]).exp() * dot(x.q, i, x.k, j) * delta[j * vd + c]).sum();
            out[i * vd + c] = (read(x.q, i, state, c) + within) as f32;
        }
    }
    for r in 0..kd {
        for c in 0..vd {
            let added: f64 =
                (0..n).map(|j| (total[n - 1] - total[j]).exp() * f64::from(x.k[j * kd + r]) * delta[j * vd + c]).sum();
            state[r * vd + c] = total[n - 1].exp() * state[r * vd + c] + added;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_any_size_give_what_the_recurrence_gives() {
        let (kd, vd, n) = (4, 3, 11);
        let wave = |len: usize, f: f32| -> Vec<f32> { (0..len).map(|i| (i as f32 * f).sin() * 0.5).collect() };
        let (q, k, v) = (wave(n * kd, 0.7), wave(n * kd, 1.3), wave(n * vd, 0.9));
        let g: Vec<f32> = wave(n, 2.1).iter().map(|x| -x.abs() * 4.0).collect();
        let beta: Vec<f32> = wave(n, 3.1).iter().map(|x| x.abs()).collect();
        let x = GdnInputs { q: &q, k: &k, v: &v, g: &g, beta: &beta, key_dim: kd, value_dim: vd };
        let mut recurrent = vec![0.1; kd * vd];
        let want = gdn_recurrent(&x, &mut recurrent);
        for chunk in [1, 3, 4, 64] {
            let mut state = vec![0.1; kd * vd];
            let got = gdn_chunked(&x, &mut state, chunk);
            assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-6), "chunk {chunk}");
            assert!(state.iter().zip(&recurrent).all(|(a, b)| (a - b).abs() < 1e-12), "chunk {chunk}");
        }
    }
}
