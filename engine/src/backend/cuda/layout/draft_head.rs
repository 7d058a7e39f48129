//! The model's draft head before there is a device: whether this backend computes it, its products, its bytes.

use super::config::CudaConfig;
use super::matrix::{MatrixForm, Packed};
use super::operators::OpQuery;
use super::outputs::LIST_WORDS;
use super::products::ProductKind;
use super::shape::{Counts, bucket};
use super::workspace::quantized_bytes;
use crate::backend::cuda::error::CudaResult;
use crate::drafts::{DraftMode, PIECE_ROWS_MAX};
use crate::model::{Model, ModelConfig, Shortlist};
use chimere_kernels::cuda::attention::KvType;
use chimere_kernels::cuda::draft_head::{self, BEHIND_WORDS, ROW_WORDS};
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::sampler::{SampleParams, SampleResult};
use chimere_kernels::cuda::wide::Epilogue;

/// Passes of guesses in one graph at most; more of them are several.
pub(crate) const GRAPH_PASSES: usize = 3;

const _: () = assert!(draft_head::RING > 2 * PIECE_ROWS_MAX, "a step's rows and its proposals are fewer");

/// Tokens that a step's draft head proposes at most, for all sequences.
pub(crate) fn proposals_max(config: &CudaConfig) -> usize {
    if config.draft_head { DraftMode::Auto.drafts_max() as usize * bucket(config.slots as usize) } else { 0 }
}

/// Whether this backend computes such a draft head: its blocks are like some of the model's, attention first, and then
/// what looks at one row alone.
pub(crate) fn is_computed(model: &ModelConfig) -> bool {
    let shapes = model.shapes();
    let memory = |block: &crate::model::BlockConfig| OpQuery(&block.op).memory(KvType::F16, 0);
    let known = model.draft.iter().all(|block| shapes.contains(&&block.op));
    known
        && model.draft.split_first().is_some_and(|(first, rest)| {
            let alone = rest.iter().all(|block| !memory(block).is_cached() && !memory(block).is_recurrent());
            memory(first).is_cached() && !memory(first).is_recurrent() && alone
        })
}

/// What the head guesses among, if that is not the whole vocabulary.
pub(crate) fn shortlist(model: &Model) -> Option<&Shortlist> {
    model.weights.draft_head.as_ref()?.shortlist.as_ref()
}

/// What the product with the rows of a shortlist is chosen by; `head` is the model's.
pub(crate) fn listed_product(head: &impl Packed, list: &Shortlist, hidden: usize) -> CudaResult<ProductKind> {
    ProductKind::dense(&MatrixForm { rows: list.len(), ..head.form() }, Epilogue::Plain, Some(hidden))
}

/// What the head's first product is chosen by.
pub(crate) fn input_product(fc: &impl Packed) -> CudaResult<ProductKind> {
    ProductKind::dense(fc, Epilogue::Residual, None)
}

/// Bytes that it takes for this model as far as it is computed, and the head beside its weights.
pub(crate) fn guessing_bytes((model, c): (&Model, &ModelConfig), counts: Counts, planes: Planes) -> u64 {
    if c.draft.is_empty() {
        return 0;
    }
    let each = 4 * ROW_WORDS + 16 + size_of::<SampleParams>() + GRAPH_PASSES * size_of::<SampleResult>();
    let ids = shortlist(model).and_then(Shortlist::ids).map_or(0, |ids| size_of_val(&ids[..]));
    let following = 4 * draft_head::ROWS_MAX * (BEHIND_WORDS + ROW_WORDS);
    let own = bucket(counts.slots) * each + ids + 4 * LIST_WORDS + following;
    (quantized_bytes(counts.rows(), 2 * c.hidden, planes) + own) as u64
}
