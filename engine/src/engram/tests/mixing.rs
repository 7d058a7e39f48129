//! The two ways to apply a prediction, against softmax over a whole vocabulary.

use super::*;
use proptest::prelude::*;

fn softmax(logits: &[f64]) -> Vec<f64> {
    let lse = lse(logits);
    logits.iter().map(|l| (l - lse).exp()).collect()
}

fn lse(logits: &[f64]) -> f64 {
    let high = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    high + logits.iter().map(|l| (l - high).exp()).sum::<f64>().ln()
}

fn mix(logits: &[f32], mixing: &Mixing) -> Vec<f64> {
    let lse = lse(&logits.iter().map(|&l| f64::from(l)).collect::<Vec<_>>()) as f32;
    let mut out = logits.to_vec();
    let Mixing::Mix(list) = mixing else { panic!("a mixture was asked for") };
    list.iter().for_each(|&(t, weight)| out[t as usize] = Mixing::mixed(out[t as usize], weight, lse));
    out.into_iter().map(f64::from).collect()
}

fn prediction(listed: &[(TokenId, f64, f64)], seen: u64) -> Prediction {
    Prediction {
        listed: listed.iter().map(|&(token, p, prior)| Predicted { token, p, prior }).collect(),
        order: 2,
        seen,
    }
}

proptest! {
    #[test]
    fn a_mixture_is_exact(logits in prop::collection::vec(-20f32..20.0, 8), p in prop::collection::vec(0.001f64..0.3, 3), lambda in 0.0f32..=LAMBDA_MAX) {
        let listed: Vec<_> = p.iter().zip([1, 4, 6]).map(|(&p, token)| (token, p, 0.1)).collect();
        let mixed = softmax(&mix(&logits, &Mixing::new(&prediction(&listed, 3), Mode::mixture(lambda).unwrap())));
        let model = softmax(&logits.iter().map(|&l| f64::from(l)).collect::<Vec<_>>());
        let table = |t: usize| listed.iter().find(|l| l.0 as usize == t).map_or(0.0, |l| l.1);
        let lambda = f64::from(lambda);
        let wanted: Vec<f64> = (0..8).map(|t| (1.0 - lambda) * model[t] + lambda * table(t)).collect();
        let sum: f64 = wanted.iter().sum();
        for t in 0..8 {
            prop_assert!((mixed[t] - wanted[t] / sum).abs() < 1e-4, "token {}: {} instead of {}", t, mixed[t], wanted[t] / sum);
        }
    }
}

#[test]
fn a_bias_is_the_formula_and_clipped_on_both_sides() {
    let Mixing::Add(list) =
        Mixing::new(&prediction(&[(3, 0.2, 0.1), (5, 0.9, 1e-6), (7, 1e-6, 0.5)], 12), Mode::bias(1.5).unwrap())
    else {
        panic!("a bias was asked for")
    };
    let scale = 1.5 * 12.0 / 16.0;
    let wanted = [(3, scale * 2f64.ln()), (5, scale * 5.0), (7, -scale * 5.0)];
    for ((token, bias), (wanted_token, wanted_bias)) in list.into_iter().zip(wanted) {
        assert!(
            token == wanted_token && (f64::from(bias) - wanted_bias).abs() < 1e-6,
            "{token}: {bias}, not {wanted_bias}"
        );
    }
}

#[test]
fn what_a_mask_forbids_stays_forbidden() {
    let mut logits = vec![1.0f32; 8];
    logits[4] = f32::NEG_INFINITY;
    let listed = prediction(&[(4, 0.9, 0.1)], 100);
    let mixed = mix(&logits, &Mixing::new(&listed, Mode::mixture(LAMBDA_MAX).unwrap()));
    assert_eq!(mixed[4], f64::NEG_INFINITY);
    let Mixing::Add(list) = Mixing::new(&listed, Mode::bias(ALPHA_MAX).unwrap()) else {
        panic!("a bias was asked for")
    };
    assert_eq!(logits[4] + list[0].1, f32::NEG_INFINITY);
}

#[test]
fn no_strength_means_no_change_and_too_much_is_refused() {
    let listed = prediction(&[(4, 0.9, 0.1)], 100);
    assert_eq!(Mixing::new(&listed, Mode::bias(0.0).unwrap()), Mixing::Add(Vec::new()));
    assert_eq!(Mixing::new(&listed, Mode::mixture(0.0).unwrap()), Mixing::Mix(Vec::new()));
    assert_eq!(Mode::mixture(0.96).unwrap_err().to_string(), "lambda: wanted 0 to 0.95, got 0.96");
    for wrong in [-0.1, 2.1, f32::NAN, f32::INFINITY] {
        assert_eq!(Mode::bias(wrong).unwrap_err().name, "alpha");
    }
}

#[test]
fn a_context_that_was_seen_often_is_believed_more() {
    let table = |times| Arc::new(table(&vec![vec![1, 2, 3]; times], &options(2, 2, 100)));
    let p = |times: usize| predict(&[&table(times)], &[1, 2], 1).listed[0].p;
    assert!(p(1) < p(4) && p(4) < p(100) && p(100) > 0.96, "{} {} {}", p(1), p(4), p(100));
}
