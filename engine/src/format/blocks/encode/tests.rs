//! What holds for every encoder: errors on Gaussian weights, and values at the edges.

use super::super::{SplitMix, decode_row};
use super::*;

/// Type and the error `|W' - W|^2 / |W|^2` on Gaussian weights that it may have at most: what ggml's encoders reach,
/// and a tenth less for IQ3_S, whose multiples are all tried here.
const ERRORS_MAX: [(BlockType, f64); 13] = [
    (BlockType::Iq3Xxs, 0.0330),
    (BlockType::Q3K, 0.0208),
    (BlockType::Iq3S, 0.0185 * 0.9),
    (BlockType::Mxfp4, 0.0140),
    (BlockType::Q4_0, 0.0082),
    (BlockType::Iq4Nl, 0.0060),
    (BlockType::Iq4Xs, 0.0055),
    (BlockType::Q4K, 0.00493),
    (BlockType::Q5_0, 0.0020),
    (BlockType::Q5_1, 0.0016),
    (BlockType::Q5K, 0.00123),
    (BlockType::Q6K, 0.00028),
    (BlockType::Q8_0, 0.000028),
];

fn gaussian(n: usize, seed: u64) -> Vec<f32> {
    let mut rng = SplitMix::new(seed, 0);
    let mut unit = || f64::from(rng.signed_unit()) * 0.5 + 0.5;
    (0..n)
        .map(|_| ((-2.0 * (1.0 - unit()).max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * unit()).cos()) as f32)
        .collect()
}

fn coded(ty: BlockType, x: &[f32], importance: Option<&[f32]>) -> (Vec<u8>, Vec<f32>) {
    let mut bytes = vec![0xAA; ty.row_bytes(x.len()).unwrap()];
    quantize_row(ty, x, importance, &mut bytes);
    let mut back = vec![f32::NAN; x.len()];
    decode_row(ty, &bytes, &mut back);
    (bytes, back)
}

fn error(x: &[f32], back: &[f32], w: impl Fn(usize) -> f32) -> f64 {
    let sum = |f: &dyn Fn(usize) -> f32| (0..x.len()).map(|i| f64::from(w(i)) * f64::from(f(i)).powi(2)).sum::<f64>();
    sum(&|i| x[i] - back[i]) / sum(&|i| x[i])
}

#[test]
fn errors_on_gaussian_weights_are_at_most_those_of_the_table() {
    let x = gaussian(256 * 512, 1);
    for (ty, max) in ERRORS_MAX {
        let t2 = error(&x, &coded(ty, &x, None).1, |_| 1.0);
        println!("{}: {t2:.6}", ty.name());
        assert!(t2 <= max, "{}: {t2} is more than {max}", ty.name());
    }
}

#[test]
fn what_counts_more_is_met_better() {
    let x = gaussian(256 * 16, 2);
    let w: Vec<f32> = (0..x.len()).map(|i| if i % 7 == 0 { 20.0 } else { 0.5 }).collect();
    for (ty, _) in ERRORS_MAX.into_iter() {
        let (plain, weighted) = (coded(ty, &x, None).1, coded(ty, &x, Some(&w)).1);
        let (plain, weighted) = (error(&x, &plain, |i| w[i]), error(&x, &weighted, |i| w[i]));
        assert!(weighted < plain, "{}: {weighted} instead of {plain}", ty.name());
    }
}

#[test]
fn rows_of_any_size_decode_to_what_is_near() {
    let shape = gaussian(512, 3);
    for (ty, max) in ERRORS_MAX {
        let zeros = coded(ty, &[0.0; 512], None).1;
        assert!(zeros.iter().all(|x| *x == 0.0), "{}: zeros", ty.name());
        for scale in [1e-3, 1.0, 100.0] {
            let x: Vec<f32> = shape.iter().map(|x| x * scale).collect();
            let t2 = error(&x, &coded(ty, &x, None).1, |_| 1.0);
            assert!(t2 < 2.0 * max, "{} at {scale}: {t2}", ty.name());
        }
        for scale in [1e-42, 1e-30, 1e-9, 1e12, 3e37] {
            let x: Vec<f32> = shape.iter().map(|x| x * scale).collect();
            let back = coded(ty, &x, None).1;
            let largest = x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
            let fine = |b: &f32| b.is_finite() && b.abs() <= 2.0 * largest + 1e-6;
            assert!(back.iter().all(fine), "{} at {scale}: {back:?}", ty.name());
        }
    }
}

#[test]
fn constant_rows_stay_nearly_constant() {
    for (ty, _) in ERRORS_MAX {
        for value in [0.037, -1.5, 40.0] {
            let back = coded(ty, &[value; 256], None).1;
            // Levels of MXFP4 are a third apart, and the books of IQ3 have few entries of equal magnitudes.
            let off = match ty {
                BlockType::Mxfp4 => 0.2,
                BlockType::Iq3Xxs | BlockType::Iq3S => 0.4,
                _ => 0.08,
            };
            assert!(back.iter().all(|b| (b / value - 1.0).abs() < off), "{}: {:?}", ty.name(), &back[..8]);
        }
    }
}

#[test]
fn one_value_among_zeros_is_kept() {
    for (ty, _) in ERRORS_MAX {
        for (at, value) in [(0, 2.0), (100, -3.0), (255, 0.01)] {
            let mut x = vec![0.0; 256];
            x[at] = value;
            let back = coded(ty, &x, None).1;
            let others = back.iter().enumerate().filter(|(i, _)| *i != at).fold(0.0f32, |m, (_, b)| m.max(b.abs()));
            assert!((back[at] / value - 1.0).abs() < 0.5, "{}: {} instead of {value}", ty.name(), back[at]);
            assert!(others <= 0.5 * value.abs(), "{}: {others} beside {value}", ty.name());
        }
    }
}

#[test]
fn equal_rows_make_equal_bytes() {
    let x = gaussian(512, 5);
    for (ty, _) in ERRORS_MAX {
        let both = [x[256..].to_vec(), x[256..].to_vec()].concat();
        let bytes = coded(ty, &both, None).0;
        assert_eq!(bytes[..bytes.len() / 2], bytes[bytes.len() / 2..], "{}", ty.name());
    }
}

#[test]
fn halves_stay_finite() {
    assert_eq!(coded(BlockType::F16, &[1e9, -1e30, 0.5], None).1, [65504.0, -65504.0, 0.5]);
    assert!(coded(BlockType::Bf16, &[f32::MAX, f32::MIN], None).1.iter().all(|x| x.is_finite()));
}

#[test]
#[should_panic = "finite"]
fn a_row_with_a_nan_is_the_callers_fault() {
    coded(BlockType::Q4K, &[f32::NAN; 256], None);
}

#[test]
fn a_row_of_zeros_encodes_to_zeros() {
    let mut out = [1; 34];
    encode_row(BlockType::Q8_0, &[0.0; 32], &mut out);
    assert_eq!(out, [0; 34]);
}
