//! What comparisons share.

pub(crate) fn pairs(flat: &[f32]) -> Vec<[f32; 2]> {
    flat.as_chunks::<2>().0.to_vec()
}

/// The largest, NaN being larger than all.
pub(crate) fn worst_ratio(ratios: impl Iterator<Item = f32>) -> f32 {
    ratios.fold(0.0, |worst, r| if r.is_nan() || r > worst { if r.is_nan() { f32::INFINITY } else { r } } else { worst })
}
