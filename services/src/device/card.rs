//! The plan of a GPU's memory before there is one.

use super::{DeviceRequest, cuda_needs, gpu_budget, left_out, missing_prefix_cache};
use crate::config::PrefixCacheMode;
use crate::memory::{Bytes, MemoryPlan, Needs};
use chimere_engine::backend::cuda::{self, Arch, CudaMemory, MemoryPart};
use chimere_engine::model::Model;
use std::fmt;

/// How the memory of a GPU is split, and the parts of each use.
#[derive(Clone, Debug)]
pub struct CardPlan {
    /// The uses of the budget.
    pub plan: MemoryPlan,
    /// Why something that was asked for is missing.
    pub notes: Vec<String>,
    /// The bytes of each part of a use, those of all sequences, pages and checkpoints together.
    pub parts: Vec<MemoryPart>,
}

impl fmt::Display for CardPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.plan)?;
        self.notes.iter().try_for_each(|note| write!(f, "\n{note}"))?;
        f.write_str("\nparts")?;
        for part in &self.parts {
            let text = Bytes(part.bytes).to_string();
            write!(f, "\n  {:<11}{text:>12}  {:<36}{:>16} B", part.of, part.name, part.bytes)?;
        }
        Ok(())
    }
}

/// Plans for one of `shares` replicas on a GPU with so many bytes of memory that nobody else uses. Such a GPU need not be
/// there. What depends on this machine is not looked at: the device that was asked for, and the host's memory.
///
/// # Errors
/// If no GPU does what is asked, or the memory does not suffice.
pub fn plan_for_card(
    wanted: &DeviceRequest,
    (bytes, shares): (u64, u32),
    model: &Model,
    prefix: PrefixCacheMode,
) -> Result<CardPlan, String> {
    if let Some(what) = wanted.needs_cpu() {
        return Err(what.into());
    }
    cuda::check(&model.config).map_err(|e| e.to_string())?;
    let budget = gpu_budget(wanted.budget, bytes.saturating_sub(CudaMemory::CONTEXT_BYTES), bytes)?;
    let budget = budget / u64::from(shares);
    let config = wanted.cuda_on(budget, model);
    cuda::programs(model, &config, Arch::ALL[0], None).map_err(|e| e.to_string())?;
    let needs = cuda_needs(model, &config);
    let checkpoint = needs.checkpoint.filter(|_| prefix != PrefixCacheMode::Off);
    let plan = MemoryPlan::new(budget, Needs { checkpoint, ..needs }).map_err(|e| e.to_string())?;
    // It goes on from another sentence elsewhere.
    let no_drafts = left_out(wanted, model, &config).strip_prefix(", ").map(str::to_owned);
    let notes = no_drafts.into_iter().chain(missing_prefix_cache(&plan, prefix)?).collect();
    let times = |part: &MemoryPart| match part.of {
        "states" => plan.needs.seqs,
        "checkpoints" => plan.checkpoints,
        "kv" => plan.pages,
        _ => 1,
    };
    let all = CudaMemory::parts(model, &config).into_iter();
    let parts = all.map(|part| MemoryPart { bytes: part.bytes * u64::from(times(&part)), ..part });
    Ok(CardPlan { plan, notes, parts: parts.filter(|part| part.bytes > 0).collect() })
}
