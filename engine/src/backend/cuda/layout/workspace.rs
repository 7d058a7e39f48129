//! Sizes of the buffers that a step's rows are computed in.

use super::operators::OpQuery;
use super::shape::{Counts, Widths};
use crate::model::{BlockConfig, ModelConfig};
use chimere_kernels::cuda::quantized::{BLOCK, Planes};
use chimere_kernels::cuda::rows::padded;
use chimere_kernels::cuda::wide::halves::HalfRows;

/// Bytes that the buffers take of the device, and the products' rows of f16.
pub(crate) fn bytes(c: &ModelConfig, n: Counts, planes: Planes) -> u64 {
    parts(c, n, planes).iter().map(|part| part.1 as u64).sum()
}

/// Bytes of each buffer, with its name.
pub(crate) fn parts(c: &ModelConfig, n: Counts, planes: Planes) -> Vec<(&'static str, usize)> {
    let (w, routed) = (Widths::of(c), all_routed(c));
    let (rows, used) = (n.rows(), w.used);
    let pairs = (rows * used).max(1);
    let quantized = |rows, cols| quantized_bytes(rows, cols, planes);
    vec![
        ("residual stream", residual_bytes(rows, w.hidden, planes)),
        ("in-projections", 4 * rows * w.inputs),
        ("mixed", quantized(rows, w.mixed)),
        (
            "chosen experts",
            4 * ((routed * rows * used).max(1) + 2 * listed(n, &w) + rows * (used + 1) + (4 * w.experts).max(4) + 1),
        ),
        ("rows of experts", quantized(pairs, w.width.max(1)) + quantized(rows, w.shared) + quantized(rows, w.latent)),
        ("scratch of mixers, experts' outputs", 4 * scratch(c, n)),
        ("shared expert's outputs", 4 * shared_values(n, &w)),
        ("rows as f16", half_bytes(c, n)),
        ("logits", 4 * n.logits * w.vocab + folded_bytes(n.logits, w.hidden, planes)),
    ]
}

/// Decode rows of a step that can be given experts, at most: as many as one launch of the kernels for few rows takes.
pub(crate) const GIVEN_ROWS_MAX: usize = 16;

/// How many of these blocks choose experts.
pub(crate) fn routed_blocks<'a>(blocks: impl Iterator<Item = &'a BlockConfig>) -> usize {
    blocks.filter(|block| OpQuery(&block.op).widths().used > 0).count()
}

/// Those of a model, and behind them the draft head's.
pub(crate) fn all_routed(c: &ModelConfig) -> usize {
    routed_blocks(c.blocks().chain(&c.draft))
}

/// Values that shared experts make.
pub(crate) fn shared_values(n: Counts, w: &Widths) -> usize {
    if w.experts > 0 { n.rows() * w.hidden } else { 1 }
}

/// Places in each of the lists of experts' rows.
pub(crate) fn listed(n: Counts, w: &Widths) -> usize {
    (n.rows() * w.used).max(n.decode * w.experts).max(1)
}

/// How many rows products make f16 of at once, and how many values these have at most: a row's, or those of its
/// experts.
pub(crate) fn half_rows(c: &ModelConfig, n: Counts) -> (usize, usize) {
    let (w, rows) = (Widths::of(c), n.rows());
    let input = if c.draft.is_empty() { 0 } else { 2 * w.hidden };
    let widest = [w.hidden, w.mixed, w.shared, w.latent, input].into_iter().map(padded).max().unwrap_or(0);
    (rows * w.used.max(1), rows * widest.max(w.used * padded(w.width)))
}

/// Rows and values of the f16 rows of shared experts, which run beside the routed experts.
pub(crate) fn shared_half_rows(c: &ModelConfig, n: Counts) -> (usize, usize) {
    let w = Widths::of(c);
    let rows = if w.experts > 0 && w.shared > 0 { n.rows() } else { 0 };
    (rows.max(1), rows * padded(w.hidden).max(padded(w.shared)))
}

/// How many rows of f16 one launch makes for the next product, and how many values all of them together.
pub(crate) fn made_rows(w: &Widths, rows: usize) -> (usize, usize) {
    (rows * w.used.max(1), rows * padded(w.mixed).max(w.used * padded(w.width)))
}

/// Bytes of all three; `ProductKernels` of a rank has the first two.
fn half_bytes(c: &ModelConfig, n: Counts) -> usize {
    let all = [half_rows(c, n), shared_half_rows(c, n), made_rows(&Widths::of(c), n.rows())];
    all.into_iter().map(|(rows, values)| HalfRows::bytes(rows, values)).sum()
}

/// How many values the scratch of mixers and experts has.
pub(crate) fn scratch(c: &ModelConfig, n: Counts) -> usize {
    c.blocks().map(|block| OpQuery(&block.op).scratch(n, c.hidden)).max().unwrap_or(0).max(1)
}

pub(crate) fn quantized_bytes(rows: usize, cols: usize, planes: Planes) -> usize {
    rows * padded(cols) / BLOCK * (BLOCK + 8) * planes.count()
}

/// Bytes that rows with a norm folded in take of the device.
pub(crate) fn folded_bytes(rows: usize, cols: usize, planes: Planes) -> usize {
    quantized_bytes(rows, cols, planes) + 4 * (rows * cols / BLOCK)
}

/// Bytes that the residual stream takes of the device.
pub(crate) fn residual_bytes(rows: usize, hidden: usize, planes: Planes) -> usize {
    4 * rows * hidden + 2 * folded_bytes(rows, hidden, planes)
}
