//! Tokens from logits: [`crate::reference::sampler`], bit for bit, with log-probabilities of the unedited logits or of
//! what is drawn from; also scores of known tokens.
//!
//! A group of blocks has a row, keeps it in shared memory and exchanges what its blocks must know of each other, so the
//! logits are read once whatever is asked for. Sums are of integers: a token does not depend on how many rows or blocks
//! there are.

use crate::cuda::runtime::arguments::{self, DeviceStruct, Pointee, Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaSlice, CudaView, CudaViewMut, DeviceRepr, ValidAsZeroBits};

/// The most alternatives that are reported.
pub const TOP_MAX: usize = 20;
/// Bit of a history entry: stands in the prompt. The bits below it count how often the token was generated.
pub const IN_PROMPT: u16 = 1 << 15;

/// Threads of a block, and the limits below, as in the source.
const THREADS: usize = 256;
/// Logits that a block has room for.
const SLICE_MAX: usize = 8192;
/// Blocks of a row.
const BLOCKS_MAX: usize = 128;
/// Logits of a block below which more blocks bring nothing.
const SLICE_MIN: usize = 1024;
/// Words of scratch memory that each group of blocks has.
const SCRATCH_WORDS: usize = 16 + 2 * (2 * 3 * BLOCKS_MAX) + 2 * 128 + 3 * 1024;

device_struct! {
    /// One row to sample or to score, as the device reads it. Parts of `lists` are given by their first word and number
    /// of entries.
    #[derive(PartialEq)]
    pub struct SampleParams {
        /// Row of the logits; below 0: nothing is done, and nothing written.
        pub row: i32,
        /// Entry of `sampled` that gets the token; below 0: none does.
        pub slot: i32,
        /// Row of the history that the penalties read; below 0: no penalties.
        pub history: i32,
        /// The token to take whatever the logits say; below 0: one is chosen.
        pub forced: i32,
        /// Below [`crate::reference::sampler::TEMPERATURE_MIN`] the best token is taken.
        pub temperature: f32,
        /// Keep the smallest set of tokens that reaches this probability; 1 keeps all.
        pub top_p: f32,
        /// Keep this many; 0 keeps all.
        pub top_k: u32,
        /// Keep tokens at least this fraction as probable as the best.
        pub min_p: f32,
        /// Seed of the request, from which the random bits of every token are derived.
        pub seed: u64,
        /// Factor that penalises tokens of the prompt and of the output; 1 penalises none.
        pub repetition_penalty: f32,
        /// Subtracted once from the logits of tokens that were generated; 0 penalises none.
        pub presence_penalty: f32,
        /// Subtracted for each time that a token was generated; 0 penalises none.
        pub frequency_penalty: f32,
        /// Tokens generated before this one.
        pub output_index: u32,
        /// Which choice of the request.
        pub choice: u32,
        /// 1: log-probabilities are those of what the token is drawn from, else of the unedited logits at temperature
        /// 1.
        pub processed: u32,
        /// logit_bias in `lists`: each entry two words, an id and the bits of an `f32`. No id twice.
        pub bias_at: u32,
        /// How many tokens have biases.
        pub biases: u32,
        /// Ids that may not come in `lists`, a word each.
        pub ends_at: u32,
        /// How many may not come.
        pub ends: u32,
        /// Edits that are added after the penalties, in `lists`, as for logit_bias; behind them those that are mixed
        /// in.
        pub edits_at: u32,
        /// Number of entries that are added.
        pub edits: u32,
        /// First word of the mask in `lists`, `vocab / 32` words rounded up; below 0: no mask.
        pub mask_at: i32,
        /// Alternatives to report, at most [`TOP_MAX`]; below 0: no log-probabilities at all.
        pub logprobs: i32,
        /// 1 if entropy and top probability are wanted, else 0.
        pub certainty: u32,
        /// Number of entries that are mixed in ([`crate::reference::sampler::Mixture`]), each an id and the bits of its
        /// weight. No id twice.
        pub mixes: u32,
    }
}

impl Default for SampleParams {
    /// A row that is none, with neutral parameters.
    fn default() -> Self {
        Self {
            row: -1,
            slot: -1,
            history: -1,
            forced: -1,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            seed: 0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            output_index: 0,
            choice: 0,
            processed: 0,
            bias_at: 0,
            biases: 0,
            ends_at: 0,
            ends: 0,
            edits_at: 0,
            edits: 0,
            mask_at: -1,
            logprobs: -1,
            certainty: 0,
            mixes: 0,
        }
    }
}

// SAFETY: `repr(C)`, no pointers, no padding bytes.
unsafe impl DeviceRepr for SampleParams {}

impl Pointee for SampleParams {
    type Element = Self;
    const NAME: &'static str = "SampleParams";
}

device_struct! {
    /// What comes back of a row. Fields that were not asked for keep what they were.
    #[derive(Default, PartialEq)]
    pub struct SampleResult {
        /// The token that was chosen.
        pub token: i32,
        /// The token that the same random bits give without what was added after the penalties or mixed in.
        pub plain: i32,
        /// Its log-probability in nats, of what [`SampleParams::processed`] says.
        pub logprob: f32,
        /// Of the unedited distribution, in nats.
        pub entropy: f32,
        /// Probability of the unedited distribution's best token.
        pub top_prob: f32,
        /// The most probable tokens, best first, ties by lower id. With [`SampleParams::processed`] there may be fewer
        /// than were asked for: -1 is none.
        pub top_ids: [i32; TOP_MAX],
        /// Log-probability of each of `top_ids`, in nats.
        pub top_logprobs: [f32; TOP_MAX],
        /// 1 if a logit of the row is a NaN or an infinity, else 0; 0 too where no logit was read, as for a forced
        /// token of which nothing is reported.
        pub not_finite: u32,
    }
}

// SAFETY: `repr(C)`, no pointers, no padding bytes.
unsafe impl DeviceRepr for SampleResult {}
// SAFETY: integers and floats.
unsafe impl ValidAsZeroBits for SampleResult {}

impl Pointee for SampleResult {
    type Element = Self;
    const NAME: &'static str = "SampleResult";
}

/// How rows are shared among blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Blocks that share a row.
    pub blocks: usize,
    /// Rows at a time.
    pub groups: usize,
    /// Logits of a block.
    pub slice: usize,
}

/// The split for `rows` rows on a device that runs `resident` blocks at a time; `None` if it cannot hold a row.
///
/// All blocks run at the same time, because those of a row wait for each other. Few rows are spread over two blocks a
/// multiprocessor, many over as few as hold them.
pub fn split(vocab: usize, rows: usize, multiprocessors: usize, resident: usize) -> Option<Split> {
    let least = vocab.div_ceil(SLICE_MAX);
    if least > BLOCKS_MAX.min(resident) {
        return None;
    }
    let most = vocab.div_ceil(SLICE_MIN).min(BLOCKS_MAX).min(resident).max(least);
    let blocks = (2 * multiprocessors / rows.max(1)).clamp(least, most);
    Some(Split {
        blocks,
        groups: (resident / blocks).min(rows.max(1)),
        slice: vocab.div_ceil(blocks).next_multiple_of(4),
    })
}

/// The program for rows of `vocab` logits; with `drawn` some may be [`SampleParams::processed`].
///
/// # Errors
/// If `vocab` is no multiple of 4, or more than a row's blocks hold.
pub fn program(vocab: usize, drawn: bool) -> Result<Program, CudaError> {
    if vocab == 0 || !vocab.is_multiple_of(4) || vocab > SLICE_MAX * BLOCKS_MAX.min(32) {
        let reason = format!("a vocabulary of {vocab}: must be a multiple of 4, at most {}", SLICE_MAX * 32);
        return Err(CudaError::shape("sampler", reason));
    }
    let structs = [SampleParams::declaration(), SampleResult::declaration(), Arguments::declaration()];
    let arguments = arguments::file(&structs);
    Ok(Program {
        name: if drawn { "sampler of draws" } else { "sampler" },
        source: source!("sampler/sampler.cu"),
        arguments,
        defines: vec![("VOCAB", vocab as i64), ("DRAWN", i64::from(drawn))],
    })
}

/// The kernels for rows of one length, and the memory through which its blocks talk.
#[derive(Debug)]
pub struct Sampler {
    vocab: usize,
    rows_max: usize,
    multiprocessors: usize,
    resident: usize,
    kernel: Kernel<Arguments>,
    /// Kernel for rows that may be [`SampleParams::processed`]. It has too few registers for all that it can do, and
    /// other rows need not wait for that.
    drawn: Kernel<Arguments>,
    scratch: CudaSlice<u64>,
}

/// What is read; on the device, written before the step begins, but for the logits.
#[derive(Clone, Copy)]
pub struct SampleInputs<'a> {
    /// `[*, vocab]`, aligned to 16 bytes. A NaN counts as minus infinity.
    pub logits: &'a CudaView<'a, f32>,
    /// One a row to sample.
    pub params: &'a CudaView<'a, SampleParams>,
    /// Whether a row of them is [`SampleParams::processed`].
    pub processed: bool,
    /// What the parameters' offsets name.
    pub lists: &'a CudaView<'a, u32>,
    /// `[slots, vocab]`: see [`IN_PROMPT`].
    pub history: &'a CudaView<'a, u16>,
    /// By how much [`SampleParams::output_index`] of each row is more than its parameters say, where that was not known
    /// when these were made.
    pub ahead: Option<&'a CudaView<'a, i32>>,
    /// One word that is brought along: it becomes the token of the result behind the last row's, and zero itself.
    pub tally: Option<&'a CudaView<'a, u32>>,
}

/// Where a launch writes its results.
pub struct SampleOutputs<'a, 'b> {
    /// One a row to sample, and one more if a tally is brought along.
    pub results: &'a mut CudaViewMut<'b, SampleResult>,
    /// `[slots]`: the last token of each.
    pub sampled: &'a mut CudaViewMut<'b, i32>,
}

device_struct! {
    /// Parameters of the kernel.
    struct Arguments {
        /// Logits, `[rows of logits, vocab]`.
        logits: Ptr<f32>,
        /// Parameters of each row to sample, `[rows]`.
        params: Ptr<SampleParams>,
        lists: Ptr<u32>,
        /// History of each slot, `[slots, vocab]`: see [`IN_PROMPT`].
        history: Ptr<u16>,
        /// Added to `output_index` of each row, `[rows]`; null adds nothing.
        ahead: Ptr<i32>,
        /// `[rows]`, and one more with a tally.
        results: PtrMut<SampleResult>,
        /// Gets the last sampled token of each slot, `[slots]`.
        sampled: PtrMut<i32>,
        /// [`SCRATCH_WORDS`] of each group.
        scratch: PtrMut<u64>,
        /// What the router counted, or null: it goes behind the rows' results, and begins anew.
        tally: PtrMut<u32>,
        rows: i32,
        /// Logits of a block.
        slice: i32,
    }
}

impl Sampler {
    /// Loads the kernels for rows of `vocab` logits, at most `rows_max` of them in a launch.
    ///
    /// # Errors
    /// If there are none for them, the device cannot hold a row, or they cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, vocab: usize, rows_max: usize) -> Result<Self, CudaError> {
        let load = |drawn| device.module(cache, &program(vocab, drawn)?)?.kernel("sampler");
        let (kernel, drawn) = (load(false)?, load(true)?);
        let multiprocessors = device.multiprocessors() as usize;
        let threads = THREADS as u32;
        let resident = kernel.resident(threads)?.min(drawn.resident(threads)?) as usize * multiprocessors;
        let of = |rows| split(vocab, rows, multiprocessors, resident);
        let groups = (1..=rows_max.max(1)).filter_map(of).map(|s| s.groups).max();
        let Some(groups) = groups else {
            let reason = format!("a vocabulary of {vocab} does not fit in {resident} blocks at a time");
            return Err(CudaError::shape("sampler", reason));
        };
        let scratch = device.stream().alloc_zeros(groups * SCRATCH_WORDS);
        let scratch = scratch.map_err(|error| CudaError::Driver { call: "cuMemAlloc", error })?;
        Ok(Self { vocab, rows_max, multiprocessors, resident, kernel, drawn, scratch })
    }

    /// Enqueues the sampling of `rows` rows. The grid depends on `rows` alone.
    ///
    /// # Errors
    /// If there are too many rows, a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// What the parameters name lies within `logits`, `lists`, `history` and `sampled`: they are on the device and
    /// cannot be checked here. Temperatures, penalties and filters are numbers in their ranges. Nothing else that could
    /// keep a block from running for good runs beside the kernel, and no two launches of the same sampler run at once.
    pub unsafe fn launch(
        &mut self,
        device: &Device,
        rows: usize,
        inputs: SampleInputs<'_>,
        outputs: SampleOutputs<'_, '_>,
    ) -> Result<(), CudaError> {
        let fits = |what: &str, got: usize, need: usize| {
            let text = || format!("{what} has {got} elements, {rows} rows of {} need {need}", self.vocab);
            if got >= need { Ok(()) } else { Err(CudaError::shape("sampler", text())) }
        };
        fits("the sampler", self.rows_max, rows)?;
        fits("the list of parameters", inputs.params.len(), rows)?;
        fits("the list of results", outputs.results.len(), rows + usize::from(inputs.tally.is_some()))?;
        fits("the logits", inputs.logits.len(), rows.min(1) * self.vocab)?;
        fits("the tally", inputs.tally.map_or(1, |t| t.len()), 1)?;
        fits("the list of how far rows are ahead", inputs.ahead.map_or(rows, |a| a.len()), rows)?;
        if rows == 0 {
            return Ok(());
        }
        let split = split(self.vocab, rows, self.multiprocessors, self.resident).expect("a row fits, as `load` found");
        let stream = device.stream();
        let logits = Ptr::of(inputs.logits, stream);
        if !logits.address().is_multiple_of(16) {
            return Err(CudaError::shape("sampler", "the logits are not aligned to 16 bytes"));
        }
        let arguments = Arguments {
            logits,
            params: Ptr::of(inputs.params, stream),
            lists: Ptr::of(inputs.lists, stream),
            history: Ptr::of(inputs.history, stream),
            ahead: Ptr::of_some(inputs.ahead, stream),
            results: PtrMut::of(outputs.results, stream),
            sampled: PtrMut::of(outputs.sampled, stream),
            scratch: PtrMut::of(&mut self.scratch, stream),
            tally: inputs.tally.map_or(PtrMut::default(), |t| PtrMut::of_shared(t, stream)),
            rows: rows as i32,
            slice: split.slice as i32,
        };
        let grid = Grid { blocks: (split.blocks as u32, split.groups as u32), threads: THREADS as u32 };
        let kernel = if inputs.processed { &self.drawn } else { &self.kernel };
        // SAFETY: parameters, results and scratch (for the groups of any number of rows up to
        // `rows_max`) were found large enough, the caller vouches for what parameters name. Nothing is read before the
        // wait. The grid is resident as a whole, as its blocks rely on.
        unsafe { kernel.launch(device, grid, &arguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_row_is_spread_over_the_chip_and_many_rows_share_it() {
        let of = |vocab, rows| split(vocab, rows, 132, 528).unwrap();
        assert_eq!(of(248_320, 1), Split { blocks: 128, groups: 1, slice: 1940 });
        assert_eq!(of(248_320, 4), Split { blocks: 66, groups: 4, slice: 3764 });
        assert_eq!(of(248_320, 256), Split { blocks: 31, groups: 17, slice: 8012 });
        assert_eq!(of(8192, 3), Split { blocks: 8, groups: 3, slice: 1024 });
        assert_eq!(of(512, 256), Split { blocks: 1, groups: 256, slice: 512 });
    }

    #[test]
    fn every_split_covers_the_vocabulary_and_is_resident() {
        for vocab in [4, 512, 8192, 8196, 151_936, 248_320, 262_144] {
            for (multiprocessors, each) in [(132, 4), (108, 3), (48, 2), (16, 2)] {
                for rows in 1..=256 {
                    let s = split(vocab, rows, multiprocessors, multiprocessors * each).unwrap();
                    assert!(
                        s.blocks * s.slice >= vocab && s.slice <= SLICE_MAX && s.slice.is_multiple_of(4),
                        "{vocab} {rows} {s:?}"
                    );
                    assert!(
                        s.blocks * s.groups <= multiprocessors * each && s.blocks <= BLOCKS_MAX,
                        "{vocab} {rows} {s:?}"
                    );
                }
            }
        }
        assert_eq!(split(248_320, 1, 8, 16), None);
    }

    #[test]
    fn what_the_device_reads_has_no_gaps() {
        assert_eq!((size_of::<SampleParams>(), size_of::<SampleResult>()), (104, 184));
        let program = |vocab| program(vocab, true);
        assert!(program(510).is_err() && program(512).is_ok() && program(1 << 19).is_err());
    }
}
