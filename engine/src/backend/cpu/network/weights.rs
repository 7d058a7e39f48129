//! A model's weights as this backend multiplies with them.

use crate::backend::cpu::blocks::{Block, Op, Packing};
use crate::backend::cpu::draft_head::DraftHead;
use crate::backend::cpu::matmul::PackedMatrix;
use crate::format::{NotFinite, Tensor};
use crate::model::{self, BlockConfig, Model, ModelConfig};

/// Everything the forward pass reads.
pub(crate) struct CpuModel {
    pub(crate) config: ModelConfig,
    /// Encoded as the file has it: a step reads a row a token.
    pub(crate) embed: Tensor,
    pub(crate) norm: Vec<f32>,
    pub(crate) head: PackedMatrix,
    /// Of all layers, in the order in which rows go through them.
    pub(crate) blocks: Vec<Block>,
    /// Where its guesses are wanted.
    pub(crate) draft_head: Option<DraftHead>,
}

/// Packs blocks, each with its configuration; an error names the tensor whose weights are no finite numbers.
pub(crate) fn packed_blocks<'a>(
    model: &ModelConfig,
    blocks: impl Iterator<Item = (&'a BlockConfig, &'a model::Block)>,
    packing: Packing,
) -> Result<Vec<Block>, NotFinite> {
    let shapes = model.shapes_with_draft();
    blocks
        .map(|(config, block)| {
            let shape = shapes.iter().position(|shape| **shape == config.op).expect("every block's shape is listed");
            let op = Op::pack(&block.op, packing)?;
            Ok(Block { norm: block.norm.clone(), op, shape, scale: block.scale })
        })
        .collect()
}

impl CpuModel {
    /// Packs a model that `blocks::check` has passed; `progress` hears the share done after each block, 0 to
    /// 1. Its draft head is packed if `draft_head`. An error names the tensor whose weights are no finite numbers.
    pub(crate) fn pack(
        model: &Model,
        exact: bool,
        draft_head: bool,
        progress: &mut dyn FnMut(f32),
    ) -> Result<Self, NotFinite> {
        let (c, w) = (&model.config, &model.weights);
        let (all, packing) = (c.blocks().count(), Packing { exact, eps: c.rms_eps });
        let mut blocks = Vec::with_capacity(all);
        for block in c.blocks().zip(w.layers.iter().flatten()) {
            blocks.extend(packed_blocks(c, std::iter::once(block), packing)?);
            progress(blocks.len() as f32 / (all + 1) as f32);
        }
        let head = PackedMatrix::pack(w.head.as_ref().unwrap_or(&w.embed), 0, exact)?;
        let draft_head =
            w.draft_head.as_ref().filter(|_| draft_head).map(|w| DraftHead::pack(model, w, exact)).transpose()?;
        let embed = w.embed.finite_in_memory()?;
        progress(1.0);
        let draft = if draft_head.is_some() { c.draft.clone() } else { Vec::new() };
        let config = ModelConfig { draft, ..c.clone() };
        Ok(Self { config, embed, norm: w.norm.clone(), head, blocks, draft_head })
    }

    /// What [`CpuModel::bytes`] will say, before anything is packed.
    pub(crate) fn planned_bytes(model: &Model, exact: bool, draft_head: bool) -> u64 {
        let w = &model.weights;
        let blocks = w.layers.iter().flatten().map(|block| Op::planned_bytes(&block.op, exact)).sum::<u64>();
        let head = PackedMatrix::planned_bytes(w.head.as_ref().unwrap_or(&w.embed), exact);
        let draft_head = w.draft_head.as_ref().filter(|_| draft_head).map_or(0, |w| DraftHead::planned_bytes(w, exact));
        blocks + head + draft_head + w.embed.bytes().len() as u64
    }

    /// All packed matrices, the head after those of the layers, and then the draft head's.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = &PackedMatrix> {
        self.blocks
            .iter()
            .flat_map(|block| block.op.matrices())
            .chain([&self.head])
            .chain(self.draft_head.iter().flat_map(DraftHead::matrices))
    }

    /// Bytes of the embedding and of packed matrices.
    pub(crate) fn bytes(&self) -> u64 {
        self.matrices().map(|m| m.bytes() as u64).sum::<u64>() + self.embed.bytes().len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_weights_take_what_was_planned_for_them() {
        for preset in ["moe", "dense", "next", "quant"] {
            let path = format!("{}/tests/golden/{preset}/model.gguf", env!("CARGO_MANIFEST_DIR"));
            let model = crate::model::load(path.as_ref()).unwrap();
            for (exact, draft_head) in [(false, false), (true, false), (false, true), (true, true)] {
                let packed = CpuModel::pack(&model, exact, draft_head, &mut |_| {}).unwrap();
                assert_eq!(
                    CpuModel::planned_bytes(&model, exact, draft_head),
                    packed.bytes(),
                    "{preset}, exact {exact}"
                );
            }
        }
    }
}
