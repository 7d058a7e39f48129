//! A model's weights as this backend multiplies with them.

use crate::backend::cpu::blocks::{Block, Op, Packing, packed_blocks};
use crate::backend::cpu::matmul::PackedMatrix;
use crate::format::{NotFinite, Tensor};
use crate::model::{Model, ModelConfig};

/// Everything that the forward pass reads of the model, its draft head left out.
pub(crate) struct CpuModel {
    pub(crate) config: ModelConfig,
    /// Encoded as the file has it: a step reads a row a token.
    pub(crate) embed: Tensor,
    pub(crate) norm: Vec<f32>,
    pub(crate) head: PackedMatrix,
    /// Of all layers, in the order in which rows go through them.
    pub(crate) blocks: Vec<Block>,
}

impl CpuModel {
    /// Packs a model that `blocks::check` has passed and that is computed as far as `config` says; `progress` hears the
    /// share done after each block, 0 to 1. An error names the tensor whose weights are no finite numbers.
    pub(crate) fn pack(
        model: &Model,
        config: ModelConfig,
        exact: bool,
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
        let embed = w.embed.finite_in_memory()?;
        progress(1.0);
        Ok(Self { config, embed, norm: w.norm.clone(), head, blocks })
    }

    /// What [`CpuModel::bytes`] will say, before anything is packed.
    pub(crate) fn planned_bytes(model: &Model, exact: bool) -> u64 {
        let w = &model.weights;
        let blocks = w.layers.iter().flatten().map(|block| Op::planned_bytes(&block.op, exact)).sum::<u64>();
        let head = PackedMatrix::planned_bytes(w.head.as_ref().unwrap_or(&w.embed), exact);
        blocks + head + w.embed.bytes().len() as u64
    }

    /// All packed matrices, the head after those of the layers.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = &PackedMatrix> {
        self.blocks.iter().flat_map(|block| block.op.matrices()).chain([&self.head])
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
            for exact in [false, true] {
                let packed = CpuModel::pack(&model, model.config.clone(), exact, &mut |_| {}).unwrap();
                assert_eq!(CpuModel::planned_bytes(&model, exact), packed.bytes(), "{preset}, exact {exact}");
            }
        }
    }
}
