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

pub(crate) fn pairs(flat: &[f32]) -> Vec<[f32; 2]> {
    flat.as_chunks::<2>().0.to_vec()
}

/// The largest, NaN being larger than all.
pub(crate) fn worst_ratio(ratios: impl Iterator<Item = f32>) -> f32 {
    ratios
        .fold(0.0, |worst, r| if r.is_nan() || r > worst { if r.is_nan() { f32::INFINITY } else { r } } else { worst })
}
