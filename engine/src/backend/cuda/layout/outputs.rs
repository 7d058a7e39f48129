//! Sizes of what a step's outputs take on the device: the sampler's, sums of hidden states, a prompt's history.

use super::shape::Counts;
use crate::CHUNK_TOKENS;
use chimere_kernels::cuda::pool::UNIT_ROWS_MAX;
use chimere_kernels::cuda::sampler::{SampleParams, SampleResult};

/// Words of biases, forbidden ids, edits and masks that go to the device at once; more rows than fit are sampled in
/// several launches.
pub(crate) const LIST_WORDS: usize = 1 << 20;
/// Rows sampled by one launch at most.
pub(crate) const LAUNCH_ROWS: usize = 256;

/// Bytes of device memory that sampling takes beside the sampler's own.
pub(crate) fn sampling_bytes(counts: Counts) -> u64 {
    let rows = counts.logits.max(LAUNCH_ROWS) + 1;
    (rows * (size_of::<SampleParams>() + size_of::<SampleResult>()) + 4 * (LIST_WORDS + LAUNCH_ROWS)) as u64
}

const _: () = assert!(CHUNK_TOKENS as usize <= UNIT_ROWS_MAX, "a unit's rows are those of a chunk");

/// Units that a step's pieces have at most: each piece begins at a whole chunk and may end with a part of one.
pub(crate) fn units_max(counts: Counts) -> usize {
    counts.prefill / CHUNK_TOKENS as usize + counts.slots
}

/// Bytes of device memory that sums of hidden states take.
pub(crate) fn pooling_bytes(hidden: usize, counts: Counts) -> u64 {
    (units_max(counts) * (4 * hidden + 8)) as u64
}

/// Bytes of device memory that the tokens of a prompt take.
pub(crate) fn history_bytes(context: u32) -> u64 {
    4 * u64::from(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_fill_a_step_with_pieces_has_room_for_its_units() {
        let chunk = CHUNK_TOKENS as usize;
        for (prefill, slots) in [(128, 1), (68, 4), (512, 3), (2048, 64), (64, 64)] {
            let most = units_max(Counts { decode: slots, prefill, logits: slots, slots, drafts: 0 });
            let units = |pieces: usize| {
                // All but one as short as a second unit needs, the last takes the rest.
                let short = (prefill / pieces).min(chunk + 1);
                (pieces - 1) * short.div_ceil(chunk) + (prefill - (pieces - 1) * short).div_ceil(chunk)
            };
            assert!((1..=slots.min(prefill)).all(|pieces| units(pieces) <= most), "{prefill} rows of {slots}");
        }
    }
}
