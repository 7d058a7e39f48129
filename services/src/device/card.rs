//! The plan of a GPU's memory before there is one.

use super::{DeviceRequest, cuda_needs, gpu_budget};
use crate::memory::{Bytes, MemoryPlan, Needs};
use chimere_engine::backend::cuda::{self, CudaMemory, MemoryPart};
use chimere_engine::model::Model;
use std::fmt;

/// How the memory of a GPU is split, and the parts of each use.
#[derive(Clone, Debug)]
pub struct CardPlan {
    /// The uses of the budget.
    pub plan: MemoryPlan,
    /// The bytes of each part of a use, those of all sequences, pages and checkpoints together.
    pub parts: Vec<MemoryPart>,
}

impl fmt::Display for CardPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nparts", self.plan)?;
        for part in &self.parts {
            let text = Bytes(part.bytes).to_string();
            write!(f, "\n  {:<11}{text:>12}  {:<36}{:>16} B", part.of, part.name, part.bytes)?;
        }
        Ok(())
    }
}

/// Plans for a GPU with so many bytes of memory that nobody else uses. Such a GPU need not be there.
///
/// # Errors
/// If no GPU does what is asked, or the memory does not suffice.
pub fn plan_for_card(wanted: &DeviceRequest, bytes: u64, model: &Model, prefix: bool) -> Result<CardPlan, String> {
    if let Some(what) = wanted.needs_cpu() {
        return Err(what.into());
    }
    cuda::check(&model.config).map_err(|e| e.to_string())?;
    let budget = gpu_budget(wanted.budget, bytes.saturating_sub(CudaMemory::CONTEXT_BYTES), bytes)?;
    let config = wanted.cuda_on(budget, model);
    let needs = cuda_needs(model, &config);
    let checkpoint = needs.checkpoint.filter(|_| prefix);
    let plan = MemoryPlan::new(budget, Needs { checkpoint, ..needs }).map_err(|e| e.to_string())?;
    let times = |part: &MemoryPart| match part.of {
        "states" => plan.needs.seqs,
        "checkpoints" => plan.checkpoints,
        "kv" => plan.pages,
        _ => 1,
    };
    let all = CudaMemory::parts(model, &config).into_iter();
    let parts = all.map(|part| MemoryPart { bytes: part.bytes * u64::from(times(&part)), ..part });
    Ok(CardPlan { plan, parts: parts.filter(|part| part.bytes > 0).collect() })
}
