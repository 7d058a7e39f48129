//! A draft head's weights as this backend multiplies with them.

use crate::backend::cpu::blocks::{Block, Op, Packing, packed_blocks};
use crate::backend::cpu::matmul::{PackedMatrix, TILE_ROWS};
use crate::backend::cpu::network::logits::HeadTiles;
use crate::format::NotFinite;
use crate::model::{DraftHeadWeights, Model, ModelConfig, OpConfig, Shortlist, StateShape};

/// Whether this backend computes such a draft head: attention, and then what looks at one row alone.
pub(crate) fn is_computed(model: &ModelConfig) -> bool {
    model.draft.split_first().is_some_and(|(first, rest)| {
        let alone = rest.iter().all(|block| block.op.state() == StateShape::default());
        matches!(first.op, OpConfig::Attention(_)) && alone
    })
}

/// The head's weights, packed for this processor.
pub(crate) struct PackedDraftHead {
    /// Weight of the norm of a token's embedding, `[hidden]`.
    pub(super) embed_norm: Vec<f32>,
    /// Weight of the norm of the hidden state before the token, `[hidden]`.
    pub(super) hidden_norm: Vec<f32>,
    /// From both halves of the input to the layer's residual stream, `[hidden, 2 * hidden]`.
    pub(super) fc: PackedMatrix,
    /// The layer's blocks, of which the first is attention.
    pub(super) blocks: Vec<Block>,
    pub(super) norm: Vec<f32>,
    /// Ids that are guessed among, if those are not all, and their rows of the model's head where these are not the
    /// first.
    shortlist: Option<(Shortlist, Option<PackedMatrix>)>,
}

impl PackedDraftHead {
    /// Packs it, for a model whose configuration says that it is computed.
    pub(crate) fn pack(model: &Model, w: &DraftHeadWeights, exact: bool) -> Result<Self, NotFinite> {
        let packing = Packing { exact, eps: model.config.rms_eps };
        let blocks = packed_blocks(&model.config, model.config.draft.iter().zip(&w.layer), packing)?;
        let rows = w.shortlist.as_ref().and_then(Shortlist::rows).map(|rows| PackedMatrix::pack(rows, 0, exact));
        let rows = rows.transpose()?;
        Ok(Self {
            embed_norm: w.embed_norm.clone(),
            hidden_norm: w.hidden_norm.clone(),
            fc: PackedMatrix::pack(&w.fc, 0, exact)?,
            blocks,
            norm: w.norm.clone(),
            shortlist: w.shortlist.clone().map(|list| (list, rows)),
        })
    }

    /// Bytes of [`PackedDraftHead::matrices`] before they are packed.
    pub(crate) fn planned_bytes(w: &DraftHeadWeights, exact: bool) -> u64 {
        let blocks = w.layer.iter().map(|block| Op::planned_bytes(&block.op, exact)).sum::<u64>();
        let listed = w.shortlist.as_ref().and_then(Shortlist::rows);
        let listed = listed.map_or(0, |rows| PackedMatrix::planned_bytes(rows, exact));
        blocks + PackedMatrix::planned_bytes(&w.fc, exact) + listed
    }

    /// The packed matrices, of which the memory plan adds up the bytes.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = &PackedMatrix> {
        let listed = self.shortlist.iter().filter_map(|(_, rows)| rows.as_ref());
        self.blocks.iter().flat_map(|block| block.op.matrices()).chain([&self.fc]).chain(listed)
    }

    /// The tiles of the model's head that guesses take.
    pub(super) fn tiles<'a>(&'a self, whole: HeadTiles<'a>) -> HeadTiles<'a> {
        match &self.shortlist {
            None => whole,
            Some((list, own)) => {
                HeadTiles { matrix: own.as_ref().unwrap_or(whole.matrix), tiles: list.len() / TILE_ROWS }
            }
        }
    }

    /// Brings the logits of listed ids, which stand first, to the ids' places; all others are never drawn.
    pub(super) fn spread(&self, logits: &mut [f32]) {
        let Some((list, _)) = &self.shortlist else { return };
        let mut end = logits.len();
        // From behind: an id is never below its place in the list.
        for place in (0..list.len()).rev() {
            let id = list.ids().map_or(place, |ids| ids[place] as usize);
            logits[id] = logits[place];
            logits[id + 1..end].fill(f32::NEG_INFINITY);
            end = id;
        }
        logits[..end].fill(f32::NEG_INFINITY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_head_takes_what_was_planned_for_it() {
        let mut heads = 0;
        for preset in ["moe", "dense", "next", "quant"] {
            let path = format!("{}/tests/golden/{preset}/model.gguf", env!("CARGO_MANIFEST_DIR"));
            let model = crate::model::load(path.as_ref()).unwrap();
            let Some(w) = &model.weights.draft_head else { continue };
            for exact in [false, true] {
                let packed = PackedDraftHead::pack(&model, w, exact).unwrap();
                let bytes = packed.matrices().map(|m| m.bytes() as u64).sum::<u64>();
                assert_eq!(PackedDraftHead::planned_bytes(w, exact), bytes, "{preset}, exact {exact}");
            }
            heads += 1;
        }
        assert!(heads > 0, "no preset has a draft head");
    }
}
