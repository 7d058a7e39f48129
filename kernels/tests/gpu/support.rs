//! What the tests share: the device, and comparisons.

use chimere_kernels::cuda::wide::Chip;
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

/// Its bits, of a value that is one of f16's.
pub(crate) fn f16_bits(v: f32) -> u16 {
    let sign = (v.to_bits() >> 16 & 0x8000) as u16;
    if v.abs() < 2f32.powi(-14) {
        return sign | (v.abs() * 2f32.powi(24)) as u16;
    }
    sign | ((v.abs().to_bits() >> 13) - (112 << 10)) as u16
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
