//! Widths and row counts that the device's buffers and kernels are made for, from a model's shape and the
//! configuration.

use super::config::CudaConfig;

/// Row counts that a decode graph is captured for.
pub(crate) const BUCKETS: [usize; 13] = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256];
/// Rows of a decode graph that may be drafted, for each sequence, and the least for all.
const DRAFTS_A_SLOT: usize = 3;
const DRAFTS_MIN: usize = 7;
/// Sequences that a backend can run at once: rows of the largest graph.
pub(crate) const SLOTS_MAX: usize = BUCKETS[BUCKETS.len() - 1];

/// What a graph of a decode pass was captured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassShape {
    /// Rows of the pass, one of the buckets that graphs are captured for.
    pub(crate) rows: usize,
    /// Whether rows are drafted or lack drafted positions.
    pub(crate) drafts: bool,
    /// Whether rows may have adapters.
    pub(crate) adapted: bool,
}

/// What a graph of guesses was captured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuessShape {
    /// Rows of each pass, one of the buckets that graphs are captured for.
    pub(crate) rows: usize,
    /// Passes of the draft head in the graph, one behind another.
    pub(crate) passes: usize,
}

/// The smallest bucket that holds `rows`, at most [`SLOTS_MAX`].
pub(crate) fn bucket(rows: usize) -> usize {
    BUCKETS.into_iter().find(|b| *b >= rows).unwrap_or(SLOTS_MAX)
}

/// Buckets that a backend of so many decode rows uses.
pub(crate) fn buckets(rows: usize) -> Vec<usize> {
    BUCKETS.into_iter().take_while(|b| *b < rows).chain([bucket(rows)]).collect()
}

/// The decode passes that a backend of these counts has graphs for: those without drafts, then those with some; where
/// there may be adapters, all of them once more.
pub(crate) fn passes(counts: Counts, adapters: bool) -> Vec<PassShape> {
    let of = |rows: usize, drafts: bool, adapted: bool| {
        buckets(rows).into_iter().map(move |rows| PassShape { rows, drafts, adapted })
    };
    let both = |adapted| {
        let drafting = (counts.drafts > 0).then(|| of(counts.decode, true, adapted));
        of(bucket(counts.slots), false, adapted).chain(drafting.into_iter().flatten())
    };
    both(false).chain(adapters.then(|| both(true)).into_iter().flatten()).collect()
}

/// Widths of a model's rows on the device: of each kind the widest that any block has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Widths {
    pub(crate) hidden: usize,
    pub(crate) vocab: usize,
    /// Output of the widest in-projection.
    pub(crate) inputs: usize,
    /// Input of the widest out-projection.
    pub(crate) mixed: usize,
    /// Routed experts, how many a token uses, their width; zeros in a dense model.
    pub(crate) experts: usize,
    pub(crate) used: usize,
    pub(crate) width: usize,
    /// Of the shared expert, or of a dense feed-forward part.
    pub(crate) shared: usize,
    /// Of the rows that routed experts read and make, where it is their own; else 0.
    pub(crate) latent: usize,
}

impl Widths {
    /// Of each width the wider one.
    pub(crate) fn widest(self, other: Self) -> Self {
        Self {
            hidden: self.hidden.max(other.hidden),
            vocab: self.vocab.max(other.vocab),
            inputs: self.inputs.max(other.inputs),
            mixed: self.mixed.max(other.mixed),
            experts: self.experts.max(other.experts),
            used: self.used.max(other.used),
            width: self.width.max(other.width),
            shared: self.shared.max(other.shared),
            latent: self.latent.max(other.latent),
        }
    }
}

/// Row counts of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Rows of the largest decode graph.
    pub(crate) decode: usize,
    /// Rows of a prefill.
    pub(crate) prefill: usize,
    /// Rows whose logits are held at once.
    pub(crate) logits: usize,
    pub(crate) slots: usize,
    /// Drafted rows that may stand behind a sequence's own.
    pub(crate) drafts: usize,
}

impl Counts {
    pub(crate) fn of(config: &CudaConfig) -> Self {
        let (slots, drafts) = (config.slots as usize, config.drafts as usize);
        let drafted = if drafts == 0 { 0 } else { (slots * drafts.min(DRAFTS_A_SLOT)).max(drafts.min(DRAFTS_MIN)) };
        let decode = bucket(slots + drafted);
        // Of a slot a step has either decode rows or a prompt, and decode rows are as many as their graph's.
        let rows = |decoding: usize| if decoding > 0 { bucket(decode.min(decoding * (1 + drafts))) } else { 0 };
        let logits = (0..=slots).map(|decoding| rows(decoding) + slots - decoding).max();
        Self { decode, prefill: config.step_rows_max as usize, logits: logits.unwrap_or(decode), slots, drafts }
    }

    /// Rows of the residual stream.
    pub(crate) fn rows(&self) -> usize {
        self.decode.max(self.prefill)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_have_room_for_every_split_of_the_slots_into_graphs_and_prompts() {
        let logits = |slots: u32| Counts::of(&CudaConfig::of_slots(slots)).logits;
        // 3 that decode and a prompt; 49 that decode in a graph for 64, and 15 prompts.
        assert_eq!([1, 2, 4, 64].map(logits), [1, 2, 5, 79]);
        assert!((1..=256).all(|slots| logits(slots) >= bucket(slots as usize)));
    }

    #[test]
    fn every_number_of_rows_finds_a_bucket_and_slots_use_few() {
        assert_eq!([1, 3, 9, 17, 65, 256].map(bucket), [1, 4, 16, 24, 96, 256]);
        assert_eq!(buckets(1), [1]);
        assert_eq!(buckets(4), [1, 2, 4]);
        assert_eq!(buckets(10), [1, 2, 4, 8, 16]);
        assert!((1..=200).all(|rows| buckets(200).contains(&bucket(rows))));
    }
}
