//! A model's weights as this backend multiplies with them.

use super::blocks::{Block, Op, Packing};
use super::matmul::PackedMatrix;
use crate::format::Tensor;
use crate::model::{Model, ModelConfig};

/// Everything the forward pass reads.
pub(super) struct CpuModel {
    pub(super) config: ModelConfig,
    /// Encoded as the file has it: a step reads a row a token.
    pub(super) embed: Tensor,
    pub(super) norm: Vec<f32>,
    pub(super) head: PackedMatrix,
    /// Of all layers, in the order in which rows go through them.
    pub(super) blocks: Vec<Block>,
}

impl CpuModel {
    /// Packs a model that [`super::blocks::check`] has passed; `progress` hears the share done after each block, 0 to
    /// 1.
    pub(super) fn pack(model: &Model, exact: bool, progress: &mut dyn FnMut(f32)) -> Self {
        let (c, w) = (&model.config, &model.weights);
        let (shapes, all) = (c.shapes(), c.blocks().count());
        let mut blocks = Vec::with_capacity(all);
        for (config, block) in c.blocks().zip(w.layers.iter().flatten()) {
            let shape = shapes.iter().position(|shape| **shape == config.op).expect("every block's shape is listed");
            let op = Op::pack(&block.op, Packing { exact, eps: c.rms_eps });
            blocks.push(Block { norm: block.norm.clone(), op, shape, scale: block.scale });
            progress(blocks.len() as f32 / (all + 1) as f32);
        }
        let head = PackedMatrix::pack(w.head.as_ref().unwrap_or(&w.embed), 0, exact);
        progress(1.0);
        Self { config: c.clone(), embed: w.embed.in_memory(), norm: w.norm.clone(), head, blocks }
    }

    /// What [`CpuModel::bytes`] will say, before anything is packed.
    pub(super) fn planned_bytes(model: &Model, exact: bool) -> u64 {
        let w = &model.weights;
        let blocks = w.layers.iter().flatten().map(|block| Op::planned_bytes(&block.op, exact)).sum::<u64>();
        let head = PackedMatrix::planned_bytes(w.head.as_ref().unwrap_or(&w.embed), exact);
        blocks + head + w.embed.bytes().len() as u64
    }

    /// All packed matrices, the head last.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &PackedMatrix> {
        self.blocks.iter().flat_map(|block| block.op.matrices()).chain([&self.head])
    }

    /// Bytes of the embedding and of packed matrices.
    pub(super) fn bytes(&self) -> u64 {
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
            for exact in [false, true] {
                let packed = CpuModel::pack(&model, exact, &mut |_| {});
                assert_eq!(CpuModel::planned_bytes(&model, exact), packed.bytes(), "{preset}, exact {exact}");
            }
        }
    }
}
