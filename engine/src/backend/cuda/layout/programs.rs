//! Which kernels a model's layers take: known from its shape and encodings alone, so that they can be compiled without
//! a device.

use super::config::CudaConfig;
use super::draft_head::{input_product, listed_product, shortlist};
use super::operators::operator::{Setting, WantedExperts, WantedProducts};
use super::operators::{self, OpQuery};
use super::products::{ProductChoice, ProductKind, classes};
use super::shape::Widths;
use super::weights::WeightsPlan;
use crate::backend::cuda::error::CudaResult;
use crate::format::BlockType;
use crate::model::{Model, ModelConfig};
use chimere_kernels::cuda::embed::{self, TableEncoding};
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::wide::{Chip, Epilogue, lora_shrink};
use chimere_kernels::cuda::{
    Arch, Program, addresses, carry, draft_head, experts, gather, history, pool, sampler, uses,
};
use std::collections::HashSet;

/// What the look-up of embeddings is made for.
pub(crate) fn embed_shape(c: &ModelConfig, embedding: BlockType, planes: Planes) -> embed::TableShape {
    let encoding = match embedding {
        BlockType::F32 => TableEncoding::F32,
        BlockType::Bf16 => TableEncoding::Bf16,
        BlockType::Q8_0 => TableEncoding::Q8_0,
        BlockType::Q4_0 => TableEncoding::Q4_0,
        BlockType::Q4K => TableEncoding::Q4K,
        BlockType::Q5K => TableEncoding::Q5K,
        BlockType::Q6K => TableEncoding::Q6K,
        // Loading turned everything else into this.
        _ => TableEncoding::F16,
    };
    embed::TableShape { cols: c.hidden, vocab: c.vocab, encoding, planes }
}

/// Every program that a backend of this model loads on a chip, each once. Needs no device: without `chip`, tiles are
/// chosen as for a common one of its architecture, and another one compiles at its first start what it wants otherwise.
///
/// # Errors
/// If the model has operators or sizes that no kernel takes.
pub fn programs(model: &Model, config: &CudaConfig, arch: Arch, chip: Option<Chip>) -> CudaResult<Vec<Program>> {
    let chip = chip.unwrap_or_else(|| Chip::typical(arch));
    let config = &config.of(&model.config);
    let c = &config.computed(&model.config);
    operators::check(c, config.kv.into())?;
    let (plan, planes) = (WeightsPlan::of(model, config.placement()), config.activations.planes(model));
    let setting = Setting::of(c, config, planes, arch);
    let table = embed_shape(c, plan.embed.ty, planes);
    let mut all = vec![embed::program(table)?, gather::program(c.hidden, planes)?];
    all.extend(plan.draft.as_ref().map(|_| draft_head::program(table)).transpose()?);
    all.extend([sampler::program(c.vocab, false)?, sampler::program(c.vocab, true)?]);
    let shortlist = plan.draft.as_ref().and_then(|_| shortlist(model));
    if let Some(list) = shortlist {
        all.extend([sampler::program(list.len(), false)?, sampler::program(list.len(), true)?]);
    }
    all.extend([pool::program(c.hidden)?, history::program(c.vocab), carry::program()]);
    let (placed, experts) = (plan.blocks.iter().any(|block| block.op.placed()), Widths::of(c).experts);
    all.extend(placed.then(|| [uses::program(experts), addresses::program()]).into_iter().flatten());
    for shape in c.shapes() {
        all.extend(OpQuery(shape).programs(&setting)?);
    }
    let mut wanted = products(&plan, c.hidden)?;
    wanted.kinds.extend(shortlist.map(|list| listed_product(&plan.head, list, c.hidden)).transpose()?);
    let classes = classes(setting.counts.decode, setting.counts.prefill);
    let adapter_rank = config.adapters.rank();
    let choice = ProductChoice { chip, replayed: config.replayed, adapter_rank };
    all.extend((adapter_rank > 0).then(|| lora_shrink::program(planes)));
    for WantedExperts { few, shared: [beside, alone] } in wanted.experts {
        let few = few?.with_planes(planes).with_replay(config.replayed);
        let tiling = experts::tiling(few, chip);
        wanted.kinds.extend(if tiling.is_some() { beside } else { alone });
        for experts in [few].into_iter().chain((adapter_rank > 0).then(|| few.with_adapters(adapter_rank))) {
            all.extend(tiling.map(|tiling| experts::program(experts, tiling)));
        }
    }
    let kinds: HashSet<ProductKind> = wanted.kinds.into_iter().collect();
    for kind in kinds {
        all.extend(kind.with_planes(planes).programs(&classes, choice)?);
    }
    // Layers of one shape want the same ones, and so do kinds that adapters may change and those that they may not.
    let mut seen = HashSet::new();
    all.retain(|program| seen.insert(program.clone()));
    Ok(all)
}

/// The products of the head and of all blocks.
fn products(plan: &WeightsPlan<'_>, hidden: usize) -> CudaResult<WantedProducts> {
    let mut wanted = WantedProducts::default();
    wanted.kinds.push(ProductKind::dense(&plan.head, Epilogue::Plain, Some(hidden))?);
    let draft = plan.draft.as_ref();
    wanted.kinds.extend(draft.map(|draft| input_product(&draft.fc)).transpose()?);
    for block in plan.blocks.iter().chain(draft.into_iter().flat_map(|draft| &draft.blocks)) {
        block.op.products(hidden, &mut wanted)?;
    }
    Ok(wanted)
}

/// Bytes of device memory that the blocks' kernels keep for themselves, the same whatever the planes and the chip.
pub(crate) fn scratch_bytes(c: &ModelConfig, config: &CudaConfig) -> u64 {
    let setting = Setting::of(c, config, Planes::One, Arch::ALL[0]);
    c.shapes().into_iter().map(|shape| OpQuery(shape).kernel_bytes(&setting) as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cuda::layout::config::Activations;
    use crate::format::synth::{Mix, SynthOptions, write_outline};
    use crate::model;

    #[test]
    fn where_a_chip_has_no_room_for_all_experts_in_one_launch_the_shared_one_has_kernels_for_few_rows() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("outline.gguf");
        let shape = "nemotron-3-nano-30b-a3b".to_owned();
        let options =
            SynthOptions { shape, mix: Mix::Q4, layers: None, experts: None, vocab: None, draft_head: false, seed: 1 };
        write_outline(&file, &options).unwrap();
        let model = model::load(&file).unwrap();
        let config = CudaConfig {
            pages: 64,
            activations: Activations::Int8,
            step_rows_max: 256,
            context: 512,
            ..CudaConfig::of_slots(4)
        };
        let kernels = |arch: &str| {
            let all = programs(&model, &config, arch.parse().unwrap(), None).unwrap();
            let squared = ("EPILOGUE", Epilogue::Squared as i64);
            let few = all.iter().filter(|p| p.name == "product" && p.defines.contains(&squared)).count();
            (all.iter().filter(|p| p.name == "experts").count(), few)
        };
        assert_eq!(kernels("sm_90a"), (1, 0), "one launch does all experts");
        assert_eq!(kernels("sm_120a"), (0, 2), "for one row, and for some");
    }
}
