//! What the tests share: the device, and comparisons.

use chimere_kernels::cuda::quantized::QuantizedRows;
use chimere_kernels::cuda::wide::Chip;
use chimere_kernels::cuda::wide::halves::{HIDDEN_FACTOR, HalfRows};
use chimere_kernels::cuda::{Device, KernelCache};
use std::error::Error;

/// The device, and where machine code is kept.
pub(crate) struct Gpu {
    pub(crate) device: Device,
    pub(crate) cache: KernelCache,
}

/// What a test may fail with, besides a panic.
pub(crate) type Outcome = Result<(), Box<dyn Error>>;

/// A name, and the test.
pub(crate) type Test = (&'static str, fn(&Gpu) -> Outcome);

/// What programs are made for when there is no device to ask.
pub(crate) const H200: Chip = Chip { multiprocessors: 132, clusters: true, shared_bytes: 227 << 10, warpgroups: true };

/// Whether `CHIMERE_FEW_CASES` asks for a part of the longest tests alone, as tools that slow them down a hundred times
/// need it.
pub(crate) fn few_cases() -> bool {
    std::env::var_os("CHIMERE_FEW_CASES").is_some()
}

/// A value as f16 has it.
pub(crate) fn f16(v: f32) -> f32 {
    if v.abs() < 2f32.powi(-14) {
        return (v * 2f32.powi(24)).round_ties_even() * 2f32.powi(-24);
    }
    let bits = v.to_bits();
    f32::from_bits((bits + 0xfff + (bits >> 13 & 1)) & !0x1fff)
}

/// Its bits, of a value that is one of f16's, or of none.
pub(crate) fn f16_bits(v: f32) -> u16 {
    if v.is_nan() {
        return 0x7e00;
    }
    let sign = (v.to_bits() >> 16 & 0x8000) as u16;
    if v.abs() < 2f32.powi(-14) {
        return sign | (v.abs() * 2f32.powi(24)) as u16;
    }
    sign | ((v.abs().to_bits() >> 13) - (112 << 10)) as u16
}

/// What bits of f16 mean, of what is finite.
pub(crate) fn of_f16_bits(bits: u16) -> f32 {
    let (exponent, fraction) = (bits >> 10 & 31, f32::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(i32::from(exponent) - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// Memory that holds these values as f16, two in each.
pub(crate) fn as_halves(values: &[f32]) -> Vec<f32> {
    let two = |v: &[f32]| u32::from(f16_bits(v[0])) | u32::from(f16_bits(v[1])) << 16;
    values.as_chunks::<2>().0.iter().map(|v| f32::from_bits(two(v))).collect()
}

pub(crate) fn pairs(flat: &[f32]) -> Vec<[f32; 2]> {
    flat.as_chunks::<2>().0.to_vec()
}

/// The largest, NaN being larger than all.
pub(crate) fn worst_ratio(ratios: impl Iterator<Item = f32>) -> f32 {
    ratios
        .fold(0.0, |worst, r| if r.is_nan() || r > worst { if r.is_nan() { f32::INFINITY } else { r } } else { worst })
}

/// Rows of f16 as [`HalfRows`] lie, in order: of 64 values at a time all rows, whose pieces of 8 change places by the
/// row's number, and of 16 values those with even numbers before the others.
pub(crate) fn in_order_of_values(lying: &[u16], rows: usize, values: usize) -> Vec<u16> {
    let of = |row: usize, v: usize| {
        let piece = v / 16 * 2 + v % 2;
        lying[(piece / 8 * rows + row) * 64 + ((piece ^ row) & 7) * 8 + v % 16 / 2]
    };
    (0..rows * values).map(|i| of(i / values, i % values)).collect()
}

/// That rows which were made as f16 are those that were made as int8, `values` long: off by what int8 may be, and f16's
/// rounding.
pub(crate) fn near_int8(gpu: &Gpu, made: &HalfRows, int8: &QuantizedRows, values: usize) -> Outcome {
    let rows = int8.meta.len() * 32 / values;
    let halves = in_order_of_values(&made.on_host(&gpu.device)?.0, rows, values);
    let (mut seen, factor) = (0, HIDDEN_FACTOR as f64);
    // Rows that nobody wrote have no scale.
    for block in (0..int8.meta.len()).filter(|b| !int8.meta[*b][0].is_nan()) {
        for (i, want) in int8.values(block).into_iter().enumerate() {
            let got = factor * f64::from(of_f16_bits(halves[32 * block + i]));
            let slack = 1.01 * int8.error_max(block) + want.abs() * 0.5f64.powi(10) + factor * 0.5f64.powi(24);
            if (got - want).abs() > slack || got.is_nan() {
                return Err(format!("value {i} of block {block}: {got} as f16, {want} as int8").into());
            }
            seen += 1;
        }
    }
    if seen == 0 { Err("no row was made".into()) } else { Ok(()) }
}
